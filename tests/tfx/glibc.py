"""A newer glibc for one command, where this machine's is too old for TFX's wheels. No root is needed.

    python -m tests.tfx.glibc FOLDER                  Debian 13's libraries, into FOLDER, where they are needed
    python -m tests.tfx.glibc FOLDER COMMAND ...      runs a command on them

The command gets a mount namespace of its own, in which the libraries of glibc and of g++ lie over this machine's; all
else is as it was, and nothing of it outlives the command. They are Debian's packages of `NEEDED`, from the mirror that
apt is configured with. Elsewhere GLIBC names a folder into which such packages are unpacked (`dpkg -x`).
"""

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

MIN_GLIBC = (2, 39)
"""That of `components.validate.tfdv.plan`, which cannot be imported: a process with threads gets no user namespace."""

SUITE = "trixie"
NEEDED = ("libc6", "libgcc-s1", "libstdc++6")
SYSTEM = Path("/usr/lib/x86_64-linux-gnu")
VARIABLE = "GLIBC"

# From sched.h and sys/mount.h.
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 4096


class NoGlibcError(Exception):
    """No newer glibc can be had here; says why."""


def is_new_enough() -> bool:
    """Whether TFX's wheels run on this machine's own glibc."""
    name, number = platform.libc_ver()
    return name == "glibc" and tuple(map(int, number.split(".")[:2])) >= MIN_GLIBC


def prepare(folder: Path) -> None:
    """Unpacks the libraries into a folder, unless they are there, or this machine needs none.

    Raises:
      NoGlibcError: they cannot be had here, or nothing runs on them.
    """
    if is_new_enough():
        return
    if platform.machine() != "x86_64" or not SYSTEM.is_dir():
        raise NoGlibcError(f"TFX's wheels are of x86-64, and there is no {SYSTEM} here to lay Debian's libraries over")
    if VARIABLE not in os.environ and not (folder / "libc.so.6").exists():
        _download(folder)

    # Containers often refuse user namespaces, which only a try shows.
    command = [sys.executable, "-m", __spec__.name, str(folder), "/bin/true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no message"])[-1]
        raise NoGlibcError(f"nothing runs on a newer glibc here: {reason}")


def run(folder: Path, command: list[str]) -> None:
    """Becomes the command, with the libraries over this machine's; does not return.

    Raises:
      OSError: user namespaces or mounts are refused here.
      NoGlibcError: the folder lacks the libraries.
    """
    if not is_new_enough():
        _lay_over(_libraries(folder))
    os.execvp(command[0], command)  # noqa: S606 - no shell is what is wanted


def _lay_over(libraries: Path) -> None:
    """Mounts every library over this machine's of that name, in a namespace of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _require(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a user namespace")

    # The same user inside: without a map there would be none, and a map to root would let tests believe it.
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")

    # By this process alone: between two mounts no program could start, as its loader and its libc would differ.
    for library in sorted(libraries.glob("*.so*")):
        place = SYSTEM / library.name
        if place.exists():
            mounted = libc.mount(os.fsencode(library), os.fsencode(place), None, MS_BIND, None)
            _require(mounted, f"a mount over {place}")


def _require(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} is refused: {os.strerror(number)}")


def _libraries(folder: Path) -> Path:
    """The folder with libc.so.6: that of `GLIBC`, or the one given."""
    root = Path(os.environ.get(VARIABLE, folder))
    for candidate in (root, root / "usr" / "lib" / SYSTEM.name):
        if (candidate / "libc.so.6").exists():
            return candidate.resolve()
    raise NoGlibcError(f"{root}: no libc.so.6 in it, nor in usr/lib/{SYSTEM.name}; unpack {', '.join(NEEDED)} there")


def _download(folder: Path) -> None:
    """Downloads and unpacks the packages by apt, with its own keys, lists and cache beside the folder."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NoGlibcError(f"there is no apt-get here; {VARIABLE}=folder names Debian 13's libraries")
    own = folder.with_name(f"{folder.name}.apt").resolve()
    shutil.rmtree(own, ignore_errors=True)
    for part in ("state/lists/partial", "cache/archives/partial", "root"):
        (own / part).mkdir(parents=True)
    (own / "sources.list").write_text(_sources(), encoding="utf-8")
    options = [f"Dir::State={own / 'state'}", f"Dir::Cache={own / 'cache'}", "APT::Sandbox::User="]
    options += [f"Dir::Etc::sourcelist={own / 'sources.list'}", "Dir::Etc::sourceparts=-"]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]

    for arguments in ([*apt, "update"], [*apt, "download", *NEEDED]):
        ended = subprocess.run(arguments, cwd=own, capture_output=True, text=True, check=False)
        if ended.returncode:
            reason = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise NoGlibcError(f"apt-get {' '.join(arguments[arguments.index(apt[-1]) + 1 :])} of {SUITE}: {reason}")
    for package in own.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, own / "root"], check=True)

    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    (own / "root" / "usr" / "lib" / SYSTEM.name).rename(folder)
    shutil.rmtree(own)


def _sources() -> str:
    """The lines of sources.list for the mirror that apt is configured with, and the suite that has the libraries."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian":
        raise NoGlibcError(f"apt's mirror here is not Debian's; {VARIABLE}=folder names Debian 13's libraries")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    own = re.findall(rf"^(\S+) {release.get('VERSION_CODENAME')} main$", listed.stdout, flags=re.MULTILINE)
    if not own:
        raise NoGlibcError(f"apt is configured with no mirror of Debian; {VARIABLE}=folder names Debian 13's libraries")
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return "".join(f"deb [signed-by={keys}] {uri} {SUITE} main\n" for uri in dict.fromkeys(own))


if __name__ == "__main__":
    try:
        if sys.argv[2:]:
            run(Path(sys.argv[1]), sys.argv[2:])
        prepare(Path(sys.argv[1]))
    except (NoGlibcError, OSError) as error:
        sys.exit(str(error))

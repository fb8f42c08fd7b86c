"""The image that ours are built on: the Dockerfile's where it can be pulled, else one made from Debian's packages.

The one made here is Debian 13 with a Python of this machine, of the version that the locks are for, copied in with
the libraries that it needs and Debian's base lacks. The image that installs is the same, with what this machine's
network asks for: its CA and its package index. Nothing of that gets into an image of ours; a test looks.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.containers.engine import docker

ROOT = Path(__file__).parent.parent.parent
SUITE = "trixie"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
NETWORK = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "UV_DEFAULT_INDEX", "UV_INDEX", *PROXIES)
"""Variables of this process that say how a package index is reached."""


class NoBaseError(Exception):
    """No base image can be pulled, and none can be made; says why."""


def base_image() -> str:
    """The base's name in the engine.

    Raises:
      NoBaseError: it can neither be pulled nor made.
    """
    wanted = os.environ.get("VOXLINE_IMAGE_BASE") or _default("BASE")
    if _there(wanted):
        return wanted
    pulled = subprocess.run(["docker", "pull", "--quiet", wanted], capture_output=True, text=True, check=False)
    if pulled.returncode == 0:
        return wanted
    prefix, version = _python_of_the_locks()
    built_here = f"voxline-test/base:{hashlib.sha256(Path(__file__).read_bytes() + version.encode()).hexdigest()[:12]}"
    if not _there(built_here):
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            why = pulled.stderr.strip().splitlines()[-1:]
            raise NoBaseError(f"{wanted} cannot be pulled {why}, and only root with debootstrap can make a base")
        with tempfile.TemporaryDirectory(prefix="base-") as folder:
            _import(_debian_with_python(Path(folder) / "root", prefix), built_here)
    return built_here


def builder_image(base: str) -> str:
    """The base, and how a package index is reached from here."""
    name = f"voxline-test/builder:{hashlib.sha256(base.encode()).hexdigest()[:12]}"
    settings = {key: os.environ[key] for key in NETWORK if key in os.environ}
    lines = [f"FROM {base}"]
    with tempfile.TemporaryDirectory(prefix="builder-") as folder:
        authorities = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT")
        if authorities:
            shutil.copy(authorities, Path(folder) / "authorities.crt")
            lines.append("COPY authorities.crt /opt/authorities.crt")
            settings |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), "/opt/authorities.crt")
        lines += [f'ENV {key}="{value}"' for key, value in settings.items()]
        (Path(folder) / "Dockerfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
        docker("build", "--quiet", "--tag", name, folder)
    return name


def _default(argument: str) -> str:
    recipe = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    stated = re.search(rf"^ARG {argument}=(\S+)$", recipe, re.MULTILINE)
    assert stated, f"docker/Dockerfile names no {argument}"
    return stated[1]


def _python_of_the_locks() -> tuple[Path, str]:
    """The folder and the whole version of a Python here that the base's may be copied from.

    Raises:
      NoBaseError: there is none.
    """
    version = _default("PYTHON")
    here = sys.executable if sys.version.startswith(f"{version}.") else f"python{version}"
    asking = [here, "-c", "import sys; print(sys.base_prefix); print(sys.version)"]
    try:
        answer = subprocess.run(asking, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoBaseError(f"no base can be pulled, and to make one {here} must be on the PATH: {error}") from None
    prefix, _, whole = answer.partition("\n")
    return Path(prefix), whole


def _there(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0


def _debian_with_python(root: Path, prefix: Path) -> Path:
    """Unpacks Debian's smallest set of packages, from the mirror that debootstrap knows; then Python beside it."""
    seen = subprocess.run(["debootstrap", "--variant=minbase", SUITE, str(root)], capture_output=True, text=True)
    if seen.returncode:
        raise NoBaseError(f"debootstrap of {SUITE} failed: {seen.stdout.splitlines()[-1:]}")
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / folder)
    _copy_python(prefix, root / "usr" / "local")
    for line in _needed(root):
        library = re.match(r"\s*(\S+) => not found", line)
        if library:
            shutil.copy(f"/lib/x86_64-linux-gnu/{library[1]}", root / "usr" / "local" / "lib")
    subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)
    return root


def _copy_python(prefix: Path, target: Path) -> None:
    """Python's own files; what was installed into it stays where it is."""
    version = f"python{_default('PYTHON')}"
    left_out = shutil.ignore_patterns(
        "site-packages", "test", "tests", "__pycache__", "config-*", "idlelib", "*tkinter*"
    )
    shutil.copytree(prefix / "lib" / version, target / "lib" / version, ignore=left_out, symlinks=True)
    (target / "lib" / version / "site-packages").mkdir()
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, target / "lib", follow_symlinks=False)
    shutil.copy(prefix / "bin" / version, target / "bin" / version)
    for name in ("python3", "python"):
        (target / "bin" / name).symlink_to(version)


def _needed(root: Path) -> list[str]:
    """What ldd says, within the root, of Python and of its extension modules."""
    subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)
    local = root / "usr" / "local"
    files = [*local.glob("lib/python3*/lib-dynload/*.so"), *local.glob("bin/python3.*")]
    names = [f"/{file.relative_to(root)}" for file in files]
    told = subprocess.run(["chroot", str(root), "/usr/bin/ldd", *names], capture_output=True, text=True, check=False)
    return told.stdout.splitlines()


def _import(root: Path, name: str) -> None:
    with subprocess.Popen(["tar", "--directory", str(root), "--create", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["docker", "import", "-", name], stdin=packed.stdout, check=True, capture_output=True)
    assert packed.returncode == 0, f"{root} cannot be packed"

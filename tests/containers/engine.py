"""A Docker engine for the tests: the one that answers, or one of our own for as long as they run."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT_VARIABLE = "VOXLINE_ENGINE_ROOT"
_SECONDS_TO_START = 60.0


class NoEngineError(Exception):
    """There is no engine here, and none can be started; says why."""


def docker(*arguments: str, timeout: float = 3000) -> str:
    """What `docker` answers; what it prints beside shows where it fails."""
    ended = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert ended.returncode == 0, f"docker {' '.join(arguments)}\n{ended.stdout[-6000:]}\n{ended.stderr[-6000:]}"
    return ended.stdout.strip()


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """The engine's address; DOCKER_HOST names it as long as the block lasts.

    Raises:
      NoEngineError: none answers, and none can be started.
    """
    if shutil.which("docker") is None:
        raise NoEngineError("no `docker` on the PATH")
    if _answers():
        yield os.environ.get("DOCKER_HOST", "the default context's")
        return
    if os.geteuid() != 0:
        raise NoEngineError("no Docker engine answers, and only root may start one; start one, or set DOCKER_HOST")
    if shutil.which("dockerd") is None:
        raise NoEngineError(
            "no Docker engine answers, and there is no dockerd to start; install it, or set DOCKER_HOST"
        )
    with _started() as address:
        yield address


def _answers() -> bool:
    try:
        asked = subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


@contextlib.contextmanager
def _started() -> Iterator[str]:
    """dockerd on a socket of its own, without a bridge: containers have the host's network, or none.

    What it stores stays in a folder of its own, so that the next run finds the layers that it built.
    """
    root = Path(os.environ.get(ROOT_VARIABLE) or Path(tempfile.gettempdir()) / "voxline-engine")
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="dockerd-") as folder, open(root / "dockerd.log", "w") as log:
        address = f"unix://{folder}/docker.sock"
        flags = [f"--host={address}", f"--data-root={root / 'data'}", f"--exec-root={folder}/exec"]
        flags += [f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        process = subprocess.Popen(["dockerd", *flags], stdout=log, stderr=subprocess.STDOUT)
        before = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = address
        try:
            _wait_for(process, root / "dockerd.log")
            yield address
        finally:
            if before is None:
                os.environ.pop("DOCKER_HOST")
            else:
                os.environ["DOCKER_HOST"] = before
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _clear_up_after(Path(folder), root)


def _clear_up_after(folder: Path, root: Path) -> None:
    """Ends and unmounts what an engine that did not end by itself has left, which nobody could remove so."""
    left = folder / "exec" / "containerd" / "containerd.pid"
    if left.is_file():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(left.read_text(encoding="utf-8")), signal.SIGKILL)
    for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
        place = Path(line.split()[1].encode().decode("unicode_escape"))  # a space is encoded as a number
        if place.is_relative_to(folder) or place.is_relative_to(root):
            subprocess.run(["umount", "--lazy", place], check=False)


def _wait_for(process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while not _answers():
        if process.poll() is not None or time.monotonic() > end:
            last = " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])
            raise NoEngineError(f"dockerd does not start here: {last}")
        time.sleep(0.5)

"""`voxline doctor` on this machine: whether a run could start here, a line for each check, a fix for each problem.

Nothing is written but a file that is removed again, where a folder's permission can only be tried.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Literal

from voxline.errors import VoxlineError
from voxline.pipelines.config.run_config import RunConfig
from voxline.store.bucket_cache import cache_root
from voxline.store.uris import is_remote

PYTHONS = ((3, 11), (3, 13))
MIN_MEMORY_GB, MIN_DISK_GB = 2.0, 2.0
TFX_GLIBC = (2, 39)
DEVICE_SECONDS = 180.0
_DEVICES = (
    "import json, tensorflow as tf; "
    "print('DEVICES', json.dumps([tf.__version__, [d.name for d in tf.config.list_physical_devices() "
    "if d.device_type != 'CPU']]))"
)


@dataclass(frozen=True)
class Diagnostic:
    """One line of `voxline doctor`."""

    state: Literal["ok", "problem", "not checked"]
    what: str
    detail: str
    fix: str = ""

    @classmethod
    def ok(cls, what: str, detail: str) -> "Diagnostic":
        return cls("ok", what, detail)

    @classmethod
    def problem(cls, what: str, detail: str, fix: str = "") -> "Diagnostic":
        return cls("problem", what, detail, fix)

    @classmethod
    def not_checked(cls, what: str, why: str) -> "Diagnostic":
        return cls("not checked", what, why)

    @property
    def is_problem(self) -> bool:
        return self.state == "problem"

    @property
    def line(self) -> str:
        """
        >>> Diagnostic.problem("image", "data:1 is not there", "make images").line
        'problem      image        data:1 is not there; fix: make images'
        """
        return f"{self.state:<12} {self.what:<12} {self.detail}" + (f"; fix: {self.fix}" if self.fix else "")


def catch_errors(what: str, check: Callable[[], Iterable[Diagnostic]]) -> Iterator[Diagnostic]:
    """The diagnostics of a check; an error in it is reported as a problem, and the other checks continue."""
    try:
        yield from check()
    except VoxlineError as error:
        yield Diagnostic.problem(what, str(error))


def diagnose_machine(config: Callable[[], RunConfig] | None, run_dir: Path | None = None) -> Iterator[Diagnostic]:
    """Yields each diagnostic as soon as it is known.

    Args:
      config: loads the config of a run that is to start here.
      run_dir: of that run; None: `runs/<name>`.
    """
    yield from _check_python()
    yield from _check_memory()
    chosen = None
    if config:
        try:
            chosen = config()
            yield Diagnostic.ok("config", f"{chosen.name}, pipeline {chosen.pipeline}")
        except VoxlineError as error:
            yield Diagnostic.problem("config", str(error))
    folder = run_dir or Path("runs") / (chosen.name if chosen else "")
    yield from _check_folders(folder, chosen)
    if chosen:
        yield from catch_errors("corpus", lambda: _check_corpus(chosen))
        yield from catch_errors("registry", lambda: _check_registry(chosen, folder))
    yield from _check_programs()
    yield _check_devices()


def _check_python() -> Iterator[Diagnostic]:
    found = sys.version_info[:2]
    about = f"{platform.python_version()}, voxline {version_of('voxline')}"
    if PYTHONS[0] <= found <= PYTHONS[1]:
        yield Diagnostic.ok("python", about)
    else:
        yield Diagnostic.problem("python", about, "make setup PYTHON=/path/to/python3.12 (3.11 to 3.13 are accepted)")
    library, number = platform.libc_ver()
    if library != "glibc":
        system = f"{platform.system()} {platform.machine()}"
        yield Diagnostic.not_checked("system", f"{system}: Voxline is tested on Linux with glibc only")
        return
    known = tuple(int(part) for part in number.split(".")[:2])
    without = "" if known >= TFX_GLIBC else ": TFX's data validation needs 2.39, so validate leaves it out"
    yield Diagnostic.ok("system", f"{platform.system()} {platform.machine()}, glibc {number}{without}")


def _check_memory() -> Iterator[Diagnostic]:
    available = _available_memory_gb()
    if available is None:
        yield Diagnostic.not_checked("memory", "/proc/meminfo cannot be read")
    elif available < MIN_MEMORY_GB:
        fix = "end other programs, or lower convert.workers and train.batch_size"
        yield Diagnostic.problem("memory", f"{available:.1f} GB are available, training takes {MIN_MEMORY_GB:g}", fix)
    else:
        yield Diagnostic.ok("memory", f"{available:.1f} GB available, {len(os.sched_getaffinity(0))} cores")


def _available_memory_gb() -> float | None:
    """GB that processes can still get: of the machine, or of the container if that has a limit."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024.0
    except (OSError, ValueError, KeyError):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
        available = min(available, float(limit) - float(used))
    except (OSError, ValueError):  # "max": no limit
        pass
    return available / 1e9


def _check_folders(run_dir: Path, config: RunConfig | None) -> Iterator[Diagnostic]:
    folders = {"run folder": run_dir, "cache": cache_root(), "scratch": Path(tempfile.gettempdir())}
    if config:
        places = {name: getattr(config, name) for name in config.default_folders if getattr(config, name)}
        folders |= {name: Path(place) for name, place in places.items() if not is_remote(place)}
    for what, folder in folders.items():
        folder = folder.absolute()
        base = next(one for one in (folder, *folder.parents) if one.exists())
        if not base.is_dir() or not _is_writable(base):
            yield Diagnostic.problem(
                what, f"{folder}: cannot be written", "choose another one, or change its permissions"
            )
            continue
        free = shutil.disk_usage(base).free / 1e9
        if free < MIN_DISK_GB:
            yield Diagnostic.problem(
                what,
                f"{folder}: {free:.1f} GB are free, the demo takes {MIN_DISK_GB:g}",
                "make room, or choose another disk",
            )
        else:
            yield Diagnostic.ok(what, f"{folder}: {free:,.0f} GB free")


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _check_corpus(config: RunConfig) -> Iterator[Diagnostic]:
    from voxline.components.ingest.open_corpus import check_corpus_location
    from voxline.components.ingest.settings import HTTP_SCHEMES

    check_corpus_location(config.corpus)
    for name, corpus in config.corpus.by_name().items():
        what = f"corpus {name}".rstrip()
        if not corpus.uri.startswith(HTTP_SCHEMES) and is_remote(corpus.uri):
            yield Diagnostic.not_checked(what, f"{corpus.uri}: `voxline doctor --cluster` checks buckets")
        else:
            yield Diagnostic.ok(what, corpus.uri.partition("?")[0])


def _check_registry(config: RunConfig, run_dir: Path) -> Iterator[Diagnostic]:
    config.with_default_folders(run_dir.absolute()).check_registry()
    yield from ()


def _check_programs() -> Iterator[Diagnostic]:
    try:
        import imageio_ffmpeg

        yield Diagnostic.ok("ffmpeg", imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        fix = "make setup; or install ffmpeg and set IMAGEIO_FFMPEG_EXE"
        yield Diagnostic.problem("ffmpeg", f"m4a, wma, aac and webm cannot be read: {error}", fix)


def _check_devices() -> Diagnostic:
    """What TensorFlow sees, asked in a process of its own: drivers may crash it."""
    command = [sys.executable, "-P", "-c", _DEVICES]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        ended = subprocess.run(  # noqa: S603 - this Python
            command, env=environment, capture_output=True, text=True, timeout=DEVICE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Diagnostic.not_checked("tensorflow", f"it did not start within {DEVICE_SECONDS:g} s")
    devices_line = next((line for line in ended.stdout.splitlines() if line.startswith("DEVICES ")), "")
    if not devices_line:
        last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        return Diagnostic.problem("tensorflow", f"it cannot be imported: {last}", "make setup")
    version, devices = json.loads(devices_line.removeprefix("DEVICES "))
    seen = ", ".join(devices) or "no GPU or TPU; training runs on the CPU"
    return Diagnostic.ok("tensorflow", f"{version}: {seen}")

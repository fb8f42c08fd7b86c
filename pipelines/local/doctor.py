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

from voxline.errors import MissingPackageError, VoxlineError
from voxline.inference.tensorflow_import import has_accelerator_driver
from voxline.pipelines.config.run_config import RunConfig
from voxline.provenance import package_versions
from voxline.store.bucket_cache import cache_root
from voxline.store.uris import is_remote

PYTHONS = ((3, 11), (3, 13))
# The demo needs so much; a run with more data needs more.
MIN_MEMORY_GB = 2.0
MIN_DISK_GB = 2.0
TFX_GLIBC = (2, 39)
DEVICE_SECONDS = 180.0
# A marker opens the line, because drivers and TensorFlow may print to standard output too.
_DEVICES = (
    "import json, tensorflow as tf; "
    "print('DEVICES', json.dumps([tf.__version__, [d.name for d in tf.config.list_physical_devices() "
    "if d.device_type != 'CPU']]))"
)


@dataclass(frozen=True)
class Diagnostic:
    """One line of `voxline doctor`."""

    state: Literal["ok", "problem", "not checked"]
    what: str  # the subject; a key of `voxline doctor --json`, as the other names are
    detail: str
    fix: str = ""

    @classmethod
    def ok(cls, subject: str, detail: str) -> "Diagnostic":
        return cls("ok", subject, detail)

    @classmethod
    def problem(cls, subject: str, detail: str, fix: str = "") -> "Diagnostic":
        return cls("problem", subject, detail, fix)

    @classmethod
    def not_checked(cls, subject: str, why: str) -> "Diagnostic":
        return cls("not checked", subject, why)

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


def catch_errors(subject: str, check: Callable[[], Iterable[Diagnostic]]) -> Iterator[Diagnostic]:
    """The diagnostics of a check; an error in it is reported as a problem, and the other checks continue."""
    try:
        yield from check()
    except VoxlineError as error:
        yield Diagnostic.problem(subject, str(error))


def diagnose_machine(config: Callable[[], RunConfig] | None, run_dir: Path | None = None) -> Iterator[Diagnostic]:
    """Yields each diagnostic as soon as it is known.

    Args:
      config: loads the config of a run that is to start here.
      run_dir: of that run; None: `runs/<name>`.
    """
    yield from _check_python()
    yield from _check_memory()

    # A config that does not load is one problem of several: the machine is checked all the same.
    run_config = None
    if config:
        try:
            run_config = config()
            yield Diagnostic.ok("config", f"{run_config.name}, pipeline {run_config.pipeline}")
        except VoxlineError as error:
            yield Diagnostic.problem("config", str(error))

    folder = run_dir or Path("runs") / (run_config.name if run_config else "")
    yield from _check_folders(folder, run_config)
    if run_config:
        yield from catch_errors("corpus", lambda: _check_corpus(run_config, folder))
        yield from catch_errors("registry", lambda: _check_registry(run_config, folder))

    yield from _check_programs()
    yield _check_tensorflow()


def _check_python() -> Iterator[Diagnostic]:
    versions = f"{platform.python_version()}, voxline {version_of('voxline')}"
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        yield Diagnostic.ok("python", versions)
    else:
        fix = "make setup PYTHON=/path/to/python3.12 (3.11 to 3.13 are accepted)"
        yield Diagnostic.problem("python", versions, fix)

    library, number = platform.libc_ver()
    if library != "glibc":
        system = f"{platform.system()} {platform.machine()}"
        yield Diagnostic.not_checked("system", f"{system}: Voxline is tested on Linux with glibc only")
        return

    # An older glibc is no problem: a run starts all the same.
    glibc = tuple(int(part) for part in number.split(".")[:2])
    without = "" if glibc >= TFX_GLIBC else ": TFX's data validation needs 2.39, so validate leaves it out"
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

    # /proc/meminfo is the machine's, also in a container; a container's limit is in its control group (version 2).
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
        # A location that the config leaves empty is made in the run's folder.
        places = {name: getattr(config, name) for name in config.default_folders if getattr(config, name)}
        folders |= {name: Path(place) for name, place in places.items() if not is_remote(place)}

    for name, folder in folders.items():
        folder = folder.absolute()

        # The run makes the folders that are missing, so the permission and the disk of the nearest one above count.
        base = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not base.is_dir() or not _is_writable(base):
            fix = "choose another one, or change its permissions"
            yield Diagnostic.problem(name, f"{folder}: cannot be written", fix)
            continue

        free = shutil.disk_usage(base).free / 1e9
        if free < MIN_DISK_GB:
            yield Diagnostic.problem(
                name,
                f"{folder}: {free:.1f} GB are free, the demo takes {MIN_DISK_GB:g}",
                "make room, or choose another disk",
            )
        else:
            yield Diagnostic.ok(name, f"{folder}: {free:,.0f} GB free")


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _check_corpus(config: RunConfig, run_dir: Path) -> Iterator[Diagnostic]:
    from voxline.components.ingest.open_corpus import check_corpus_location
    from voxline.components.ingest.settings import HTTP_SCHEMES

    if config.corpus.dataset:
        from voxline.data.versions import find_version

        root = getattr(config, "datasets", "") or run_dir.absolute() / "datasets"
        versions, number = find_version(root, config.corpus.dataset)
        yield Diagnostic.ok("dataset", versions.uri_of(number))
        return

    check_corpus_location(config.corpus)
    for name, corpus in config.corpus.by_name().items():
        subject = f"corpus {name}".rstrip()  # a corpus that is the only one has no name
        if not corpus.uri.startswith(HTTP_SCHEMES) and is_remote(corpus.uri):
            yield Diagnostic.not_checked(subject, f"{corpus.uri}: `voxline doctor --cluster` checks buckets")
        else:
            yield Diagnostic.ok(subject, corpus.uri.partition("?")[0])  # the query may be a signature


def _check_registry(config: RunConfig, run_dir: Path) -> Iterator[Diagnostic]:
    config.with_default_folders(run_dir.absolute()).check_registry()
    yield from ()


def _check_programs() -> Iterator[Diagnostic]:
    from voxline.audio.ffmpeg import find_ffmpeg  # numpy, which a cluster's client does not have

    try:
        yield Diagnostic.ok("ffmpeg", find_ffmpeg())
    except MissingPackageError as error:
        fix = "pip install 'voxline[media]'; or install ffmpeg and set IMAGEIO_FFMPEG_EXE"
        yield Diagnostic.problem("ffmpeg", f"m4a, wma, aac and webm cannot be read: {error}", fix)


def _check_tensorflow() -> Diagnostic:
    """Checks TensorFlow's version and devices. It is imported, for seconds, only where there may be a device."""
    version = package_versions(("tensorflow",)).get("tensorflow")
    if version is None:
        return Diagnostic.problem("tensorflow", "it is not installed", "pip install 'voxline[train]'")
    if not has_accelerator_driver():
        return Diagnostic.ok("tensorflow", f"{version}: no driver of a GPU or TPU; training runs on the CPU")
    return _check_devices()


def _check_devices() -> Diagnostic:
    """Asks TensorFlow for its devices, in a process of its own: drivers may crash it."""
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
        # The last line of a traceback names the error; a crash in native code may print nothing.
        last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        return Diagnostic.problem("tensorflow", f"it cannot be imported: {last}", "make setup")

    version, devices = json.loads(devices_line.removeprefix("DEVICES "))
    seen = ", ".join(devices) or "no GPU or TPU; training runs on the CPU"
    return Diagnostic.ok("tensorflow", f"{version}: {seen}")

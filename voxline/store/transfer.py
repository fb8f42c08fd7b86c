"""Many objects moved at a time: what is there already stays; what arrives is checked, and renamed last.

A file larger than a chunk is downloaded in ranges, several at a time, into an unfinished file in the same folder. A
second file notes which of them have arrived, so a killed download resumes.
"""

import concurrent.futures
import fcntl
import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pydantic

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.progress import Progress
from voxline.settings import Settings
from voxline.store.files import atomic_write
from voxline.store.storage import ABSENT, ObjectInfo, Storage
from voxline.store.uris import safe_join

_PREFIX = "VOXLINE_BUCKETS_"


class TransferSettings(Settings):
    """Read from the environment: `VOXLINE_BUCKETS_DEADLINE_SECONDS` and so on."""

    deadline_seconds: float = pydantic.Field(300, gt=0, description="seconds for which a request is retried")
    first_wait_seconds: float = pydantic.Field(1, gt=0, description="seconds before the first retry; doubles with each")
    longest_wait_seconds: float = pydantic.Field(30, gt=0, description="longest wait between two retries, in seconds")
    timeout_seconds: float = pydantic.Field(
        60, gt=0, description="seconds without a byte after which a request has failed"
    )
    lease_seconds: float = pydantic.Field(
        60, gt=0, description="seconds after which a lock that is not renewed expires"
    )
    connections: int = pydantic.Field(8, ge=1, le=64, description="requests at a time")
    chunk_megabytes: int = pydantic.Field(16, ge=1, le=1024, description="MiB of a large file per request")

    @classmethod
    def of_environment(cls) -> Self:
        """Reads the environment.

        Raises:
          SettingsError: naming the variable, what it got and what it accepts.
        """
        values = {
            name: os.environ[_PREFIX + name.upper()]
            for name in cls.model_fields
            if _PREFIX + name.upper() in os.environ
        }
        return cls.of(values, source=f"environment ({_PREFIX}…)")

    @property
    def chunk(self) -> int:
        """Bytes."""
        return self.chunk_megabytes << 20


SILENT_SECONDS = 5.0
"""A storage that fails for longer is reported while we retry."""


Result = TypeVar("Result")
_STAT_LIMIT = 100
"""Up to this many names, each object is looked up by itself; for more, their folder is listed."""


def download(
    store: Storage,
    objects: Iterable[str | ObjectInfo],
    folder: Path,
    name_of: Callable[[ObjectInfo], str] | None = None,
) -> list[ObjectInfo]:
    """Downloads objects into a folder; files that hold those bytes already stay.

    Args:
      name_of: the name of an object's file; None: its own.

    Raises:
      WorkError: an object does not exist, or its name would leave the folder; then nothing was downloaded.
      TransientError: the storage or the network failed; what has arrived stays.
    """
    # All are looked up before the first is downloaded: an absent one costs no traffic.
    infos = _find_all(store, list(objects))
    targets = [safe_join(folder, name_of(info) if name_of else info.name, store.uri) for info in infos]
    progress = Progress("files downloaded", total=len(infos))
    chunk = TransferSettings.of_environment().chunk
    pairs = list(zip(infos, targets, strict=True))

    # Small files several at a time, large ones one after the other in ranges, which are several at a time.
    small = [functools.partial(_download_small, store, *pair) for pair in pairs if pair[0].size <= chunk]
    run_jobs(small, progress)
    for info, target in pairs:
        if info.size > chunk:
            _download_large(store, info, target, chunk)
            progress.advance()
    return infos


def upload(store: Storage, folder: Path, names: Iterable[str], *, absent_only: bool = False) -> list[ObjectInfo]:
    """Uploads files; objects that hold those bytes already stay.

    Args:
      absent_only: objects that exist stay, whatever they hold: their names name their content.

    Raises:
      TransientError: the storage or the network failed; what has been uploaded stays.
    """
    ordered = list(names)
    files = [safe_join(folder, name, str(folder)) for name in ordered]

    existing = _find(store, ordered)
    jobs = [
        functools.partial(_upload_one, store, file, name, existing.get(name), absent_only)
        for file, name in zip(files, ordered, strict=True)
    ]
    return run_jobs(jobs, Progress("files uploaded", total=len(jobs)))


def move_folder(store: Storage, source: str, target: str, last: Sequence[str]) -> None:
    """Copies the objects of a folder, those in `last` at the end, and deletes them. See `ObjectStore.move_folder`."""
    begin = store / source
    end = store / target

    # The last marker is there: another process has copied everything, so only the source is left to delete.
    if not last or end.stat(last[-1]) is None:
        names = [info.name for info in begin.list()]
        run_jobs([functools.partial(_copy_if_absent, begin, end, name) for name in names if name not in last])
        for name in last:
            _copy_if_absent(begin, end, name)
        if last and end.stat(last[-1]) is None:
            raise WorkError(f"{begin.uri}: is not whole, and {end.uri} neither; remove both, and start again")

    # Markers go first here, in reverse order: a half-deleted folder does not count.
    delete_folder(store, source, first=tuple(reversed(last)))


def delete_folder(store: Storage, name: str, first: Sequence[str] = ()) -> None:
    """Deletes all objects of a folder, those in `first` before the others."""
    folder = store / name
    for marker in first:
        folder.delete(marker)
    run_jobs([functools.partial(folder.delete, info.name) for info in folder.list()])


def call_within(seconds: float, function: Callable[[], Result]) -> Result:
    """The result of a function that reads from a server.

    A socket's timeout begins again with each byte, so it never ends an answer that drips. The function is abandoned in
    its thread: give it nothing that changes something.

    Raises:
      TimeoutError: it takes longer.
    """
    outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: an abandoned thread must not keep the process alive.
    threading.Thread(target=call, name="request", daemon=True).start()
    if not concurrent.futures.wait([outcome], seconds).done:
        raise TimeoutError(f"the answer was not complete after {seconds:g} s")
    return outcome.result()


class Pages:
    """Checks the tokens of a listing's pages, so that a listing ends.

    Args:
      uri: of what is listed, for messages.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._seen: set[object] = set()

    def check(self, token: object) -> None:
        """Raises TransientError for the token of a next page that is absent, or that an earlier page had."""
        if not token or token in self._seen:
            fault = "the token of an earlier page" if token else "no token"
            raise TransientError(f"{self._uri}: the storage lists a next page with {fault}; start again")
        self._seen.add(token)


def run_jobs(jobs: Sequence[Callable[[], Result]], progress: Progress | None = None) -> list[Result]:
    """The results of jobs, some at a time. After one has failed no further one begins, and its error is raised."""
    if not jobs:
        return []
    with concurrent.futures.ThreadPoolExecutor(TransferSettings.of_environment().connections) as threads:
        futures = [threads.submit(job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                if progress:
                    progress.advance()
        except BaseException:
            # Jobs that run are waited for: they may be writing; those that have not begun never begin.
            threads.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


class RangedDownload:
    """The unfinished file of an object. One process at a time holds it, others wait.

    Args:
      target: where the file will be.
      size: bytes of a range.
    """

    def __init__(self, store: Storage, info: ObjectInfo, target: Path, size: int) -> None:
        self.store = store
        self.info = info
        self.target = target
        self.size = size

        # The object's version and the size of ranges are in the name: notes of another one never count.
        stem = f".{target.name[:100]}.{info.version}.{size}"
        self._unfinished = target.with_name(stem + ".part")
        self._notes = target.with_name(stem + ".ranges")
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._descriptor = os.open(self._unfinished, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # The locked file must still be the one of this name: the process before may have renamed it.
            if self._unfinished.exists() and os.path.samestat(os.fstat(self._descriptor), self._unfinished.stat()):
                break
            os.close(self._descriptor)  # the process that held it has finished, or given up
            if self.store.matches(self.target, self.info):
                self._descriptor = -1
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def missing(self) -> list[tuple[int, int]]:
        """The ranges that have not arrived: first byte, and the one after the last."""
        if self._descriptor < 0 or self.store.matches(self.target, self.info):
            return []

        os.ftruncate(self._descriptor, self.info.size)
        lines = self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []  # a last line may be cut
        arrived = {int(line) for line in lines}
        starts = range(0, self.info.size, self.size)
        return [(start, min(start + self.size, self.info.size)) for start in starts if start not in arrived]

    def write(self, start: int, data: bytes) -> None:
        """Takes a range that has arrived; from any thread."""
        count = 0
        while count < len(data):
            count += os.pwrite(self._descriptor, data[count:], start + count)
        # Noted after it was written: a killed download fetches at most one range twice.
        with self._writing, open(self._notes, "a") as notes:
            notes.write(f"{start}\n")

    def finish(self) -> bool:
        """Renames the file to the target if its checksum agrees; else nothing is left of it."""
        if self._descriptor < 0:
            return True

        whole = self.store.is_intact(self._unfinished, self.info)
        if whole:
            os.replace(self._unfinished, self.target)
        whole = whole or self.store.matches(self.target, self.info)
        self._notes.unlink(missing_ok=True)
        self._unfinished.unlink(missing_ok=True)
        return whole


def _download_small(store: Storage, info: ObjectInfo, target: Path) -> None:
    if not store.matches(target, info):
        with atomic_write(target, durable=False) as file:
            file.write(store.read_version(info))


def _download_large(store: Storage, info: ObjectInfo, target: Path, chunk: int) -> None:
    def fetch(ranges: RangedDownload, start: int, end: int) -> None:
        ranges.write(start, store.read_range(info, start, end))
        progress.advance(end - start >> 20)

    if store.matches(target, info):
        return
    # Twice: a range that was damaged in transit makes the whole file fail its checksum.
    for _ in range(2):
        with RangedDownload(store, info, target, chunk) as ranges:
            missing = ranges.missing()
            progress = Progress(f"MiB of {info.name}", total=sum(end - start for start, end in missing) >> 20)
            run_jobs([functools.partial(fetch, ranges, *part) for part in missing])
            if ranges.finish():
                return
    raise store.damaged(info.name, info.checksum)


def _upload_one(store: Storage, file: Path, name: str, existing: ObjectInfo | None, absent_only: bool) -> ObjectInfo:
    if existing and (absent_only or store.matches(file, existing)):
        return existing
    try:
        return store.upload_file(file, name, if_version=ABSENT if absent_only else None)
    except PreconditionError:
        # Another machine was faster, which is as good: the name stands for the content.
        if absent_only and (existing := store.stat(name)):
            return existing
        raise


def _copy_if_absent(source: Storage, target: Storage, name: str) -> None:
    """Copies an object, unless another process did so already and perhaps removed the source."""
    try:
        source.copy(name, target, if_version=ABSENT)
    except FileNotFoundError:
        return
    except PreconditionError:
        target_info = target.stat(name)

        source_info = source.stat(name)
        if source_info and (
            target_info is None or (target_info.size, target_info.checksum) != (source_info.size, source_info.checksum)
        ):
            raise WorkError(
                f"{target.uri_of(name)}: holds other bytes than {source.uri_of(name)}; remove it, and start again"
            ) from None


def _find_all(store: Storage, objects: list[str | ObjectInfo]) -> list[ObjectInfo]:
    existing = _find(store, [name for name in objects if isinstance(name, str)])
    infos: list[Any] = [existing.get(name) if isinstance(name, str) else name for name in objects]
    if None in infos:
        name = str(objects[infos.index(None)])
        raise WorkError(f"{store.uri_of(name)}: the object does not exist; nothing was downloaded")
    return infos


def _find(store: Storage, names: list[str]) -> dict[str, ObjectInfo]:
    """Those of the objects that exist."""
    if len(names) > _STAT_LIMIT:
        requested = set(names)
        common = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        return {info.name: info for info in store.list(common) if info.name in requested}
    infos = run_jobs([functools.partial(store.stat, name) for name in names])
    return {info.name: info for info in infos if info is not None}

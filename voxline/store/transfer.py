"""Many objects moved at a time: what is there already stays, what arrives is compared by its crc32c, and renamed last.

A file larger than a chunk is brought in ranges, several at a time, into an unfinished file beside its place; which of
them have arrived is noted, so that a killed download goes on. A large upload is one resumable session.
"""

import concurrent.futures
import fcntl
import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.progress import Progress
from voxline.store.files import atomic_write
from voxline.store.gcs_client import explain_errors
from voxline.store.objects import ObjectInfo, crc32c, crc32c_of_file, has_same_bytes, safe_join

if TYPE_CHECKING:
    from voxline.store.bucket import Bucket


class RangedDownload:
    """The unfinished file of an object; held by one process at a time, while another waits.

    Args:
      target: where it will lie.
      entry: the object.
      size: bytes of a range.
    """

    def __init__(self, target: Path, entry: ObjectInfo, size: int) -> None:
        self.target, self.entry, self.size = target, entry, size
        stem = f".{target.name[:100]}.{entry.generation}.{size}"
        self._unfinished, self._notes = target.with_name(stem + ".part"), target.with_name(stem + ".ranges")
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._descriptor = os.open(self._unfinished, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._unfinished.exists() and os.path.samestat(os.fstat(self._descriptor), self._unfinished.stat()):
                break
            os.close(self._descriptor)  # who held it has finished, or given up
            if has_same_bytes(self.target, self.entry):
                self._descriptor = -1
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def missing(self) -> list[tuple[int, int]]:
        """The ranges that have not arrived, each from its first byte up to the one behind its last."""
        if self._descriptor < 0 or has_same_bytes(self.target, self.entry):
            return []
        os.ftruncate(self._descriptor, self.entry.size)
        lines = self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []  # a last line may be cut
        arrived = {int(line) for line in lines}
        starts = range(0, self.entry.size, self.size)
        return [(start, min(start + self.size, self.entry.size)) for start in starts if start not in arrived]

    def write(self, start: int, data: bytes) -> None:
        """Takes a range that has arrived; from any thread."""
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], start + written)
        with self._writing, open(self._notes, "a") as notes:
            notes.write(f"{start}\n")

    def finish(self) -> bool:
        """Puts the file in its place, if its checksum agrees; else nothing is left of it."""
        whole = self._descriptor >= 0 and crc32c_of_file(self._unfinished) == self.entry.crc32c
        if whole:
            os.replace(self._unfinished, self.target)
        whole = whole or has_same_bytes(self.target, self.entry)
        if self._descriptor >= 0:
            self._notes.unlink(missing_ok=True)
            self._unfinished.unlink(missing_ok=True)
        return whole


Result = TypeVar("Result")
_ONE_BY_ONE = 100
"""Names up to which each is asked for by itself; of more, their folder is listed."""


def download(
    bucket: "Bucket", names: Iterable[str | ObjectInfo], folder: Path, named: Callable[[ObjectInfo], str] | None = None
) -> list[ObjectInfo]:
    """Brings objects into a folder; files that hold those bytes already stay.

    Args:
      named: the name of an object's file; None: its own.

    Raises:
      WorkError: an object is not there, or its name would leave the folder; then nothing was brought.
      Interruption: the storage or the network failed; what has arrived stays.
    """
    entries = _entries(bucket, list(names))
    targets = [safe_join(folder, named(entry) if named else entry.name, bucket.uri) for entry in entries]
    progress = Progress("files brought", total=len(entries))
    jobs = list(zip(entries, targets, strict=True))
    with explain_errors(bucket.uri + "/", "read"):
        chunk = bucket.connection.settings.chunk
    small = [one for one in jobs if one[0].size <= chunk]
    _each(bucket, [functools.partial(_bring, bucket, *one) for one in small], progress)
    for entry, target in (one for one in jobs if one[0].size > chunk):
        _bring_in_ranges(bucket, entry, target)
        progress.advance()
    return entries


def upload(bucket: "Bucket", folder: Path, names: Iterable[str], *, absent_only: bool = False) -> list[ObjectInfo]:
    """Sends files; objects that hold those bytes already stay.

    Args:
      absent_only: objects that are there stay, whatever they hold: their names name their content.

    Raises:
      Interruption: the storage or the network failed; what has been sent stays.
    """
    ordered = list(names)
    files = [safe_join(folder, name, str(folder)) for name in ordered]
    there = _there(bucket, ordered)
    jobs = [
        functools.partial(_send, bucket, file, name, there.get(name), absent_only)
        for file, name in zip(files, ordered, strict=True)
    ]
    return _each(bucket, jobs, Progress("files sent", total=len(jobs)))


def fetch_object(bucket: "Bucket", entry: ObjectInfo) -> bytes:
    """The bytes of an object of this generation.

    Raises:
      Changed: it was replaced or deleted.
    """
    for _ in range(2):
        data = fetch_range(bucket, entry, 0, entry.size) if entry.size else b""
        if crc32c(data) == entry.crc32c:
            return data
    raise _damaged(bucket, entry)


def fetch_range(bucket: "Bucket", entry: ObjectInfo, start: int, end: int) -> bytes:
    """Bytes from `start` up to `end` of an object of this generation."""
    place = bucket.place(entry.name)
    try:
        with explain_errors(place, "read"):
            data: bytes = bucket.blob(entry).download_as_bytes(
                start=start, end=end - 1, raw_download=True, checksum=None, **bucket.connection.patience(place)
            )
    except WorkError as error:
        if getattr(error.__cause__, "code", None) == 404:
            raise PreconditionError(f"{place}: replaced or deleted while it was read; start again") from error
        raise
    if len(data) != end - start:
        raise TransientError(f"{place}: {len(data):,} bytes came of {end - start:,}; start again")
    return data


def _bring(bucket: "Bucket", entry: ObjectInfo, target: Path) -> None:
    if not has_same_bytes(target, entry):
        with atomic_write(target, durable=False) as file:
            file.write(fetch_object(bucket, entry))


def _bring_in_ranges(bucket: "Bucket", entry: ObjectInfo, target: Path) -> None:
    def bring(ranges: RangedDownload, start: int, end: int) -> None:
        ranges.write(start, fetch_range(bucket, entry, start, end))
        progress.advance(end - start >> 20)

    if has_same_bytes(target, entry):
        return
    for _ in range(2):
        with RangedDownload(target, entry, bucket.connection.settings.chunk) as ranges:
            missing = ranges.missing()
            progress = Progress(f"MiB of {entry.name}", total=sum(end - start for start, end in missing) >> 20)
            _each(bucket, [functools.partial(bring, ranges, *one) for one in missing])
            if ranges.finish():
                return
    raise _damaged(bucket, entry)


def _send(bucket: "Bucket", file: Path, name: str, there: ObjectInfo | None, absent_only: bool) -> ObjectInfo:
    if there and (absent_only or has_same_bytes(file, there)):
        return there

    def send(blob: Any, patience: dict[str, Any]) -> None:
        blob.chunk_size = bucket.connection.settings.chunk
        condition = 0 if absent_only else None
        blob.upload_from_filename(str(file), checksum="crc32c", if_generation_match=condition, **patience)

    try:
        return bucket.send(name, send)
    except PreconditionError:
        if absent_only and (there := bucket.stat(name)):
            return there
        raise


def _entries(bucket: "Bucket", names: list[str | ObjectInfo]) -> list[ObjectInfo]:
    there = _there(bucket, [name for name in names if isinstance(name, str)])
    entries = [there.get(name) if isinstance(name, str) else name for name in names]
    if None in entries:
        raise WorkError(
            f"{bucket.place(str(names[entries.index(None)]))}: there is no such object; nothing was brought"
        )
    return [entry for entry in entries if entry is not None]


def _there(bucket: "Bucket", names: list[str]) -> dict[str, ObjectInfo]:
    """Which of these objects are there."""
    if len(names) > _ONE_BY_ONE:
        wanted = set(names)
        common = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        return {entry.name: entry for entry in bucket.list(common) if entry.name in wanted}
    found = _each(bucket, [functools.partial(bucket.stat, name) for name in names])
    return {entry.name: entry for entry in found if entry is not None}


def _each(bucket: "Bucket", jobs: Sequence[Callable[[], Result]], progress: Progress | None = None) -> list[Result]:
    """The results of jobs, some at a time. After one has failed no further one begins, and its error is raised."""
    if not jobs:
        return []
    with explain_errors(bucket.uri + "/", "read"):
        connections = bucket.connection.settings.connections
    with concurrent.futures.ThreadPoolExecutor(connections) as threads:
        futures = [threads.submit(job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                if progress:
                    progress.advance()
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _damaged(bucket: "Bucket", entry: ObjectInfo) -> TransientError:
    return TransientError(
        f"{bucket.place(entry.name)}: its bytes came damaged twice (crc32c {entry.crc32c} was expected); "
        "nothing was kept of them, start again"
    )

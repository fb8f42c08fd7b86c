"""A folder of this machine as an object store: files that are written whole, and replaced under a lock."""

import contextlib
import datetime
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from voxline.errors import PreconditionError, WorkError
from voxline.store.file_locks import wait_for_lock
from voxline.store.files import atomic_write, fsync_path, remove_unfinished
from voxline.store.objects import ObjectStore
from voxline.store.storage import ABSENT, ObjectInfo, Storage
from voxline.store.uris import invalid_name_reason, safe_join

_LOCK = ".objects.lock"
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class LocalStore(ObjectStore):
    """Files below a folder. Hidden ones are no objects: they are locks and unfinished files.

    A version is a file's inode, size and time, so a file that is written by rename has another one, whatever it holds.
    """

    is_remote: ClassVar[bool] = False

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.uri = str(self.folder)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Lists files as a bucket lists objects. Links are followed, as they are when a file is read.

        It holds the entries of one folder at a time, and looks into each as the listing gets there.

        Raises:
          WorkError: a folder cannot be read, so what it holds is unknown.
        """
        # Only the folder that the prefix names is walked, not the whole store.
        below, slash, _ = prefix.rpartition("/")
        for name, status in _walk(str(self.folder / below), below + slash, prefix):
            if not _is_unfinished(name):
                yield _info(name, status)

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        """Lists folders as a bucket does; empty folders are listed as well."""
        return sorted(entry.name for entry in _scan(str(self.folder / prefix)) if entry.is_dir())

    def exists(self) -> bool:
        return self.folder.is_dir()

    def stat(self, name: str) -> ObjectInfo | None:
        try:
            status = self._file(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _info(name, status)

    def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        with contextlib.suppress(FileNotFoundError), open(self._file(info.name), "rb") as file:
            # The version of the open file: a file that is replaced while it is read stays what it was.
            if _version(os.fstat(file.fileno())) == info.version:
                file.seek(start)
                return file.read(end - start)
        raise PreconditionError(f"{self.uri_of(info.name)}: replaced or deleted while it was read; start again")

    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        with self._unchanged(name, if_version), atomic_write(self._file(name)) as file:
            file.write(data)
        return self._written(name)

    def upload_file(self, file: Path, name: str, *, if_version: str | None = None) -> ObjectInfo:
        with self._unchanged(name, if_version), open(file, "rb") as source, atomic_write(self._file(name)) as target:
            shutil.copyfileobj(source, target)
        return self._written(name)

    def copy(self, name: str, target: Storage, *, if_version: str | None = None) -> ObjectInfo:
        return target.upload_file(self._file(name), name, if_version=if_version)

    def delete(self, name: str, *, if_version: str | None = None) -> None:
        with self._unchanged(name, if_version):
            self._file(name).unlink(missing_ok=True)

    def matches(self, source: Path | bytes, info: ObjectInfo) -> bool:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size if source.is_file() else -1
        if size != info.size:
            return False
        content = self.read_range(info, 0, info.size)
        return content == (source if isinstance(source, bytes) else source.read_bytes())

    def is_intact(self, source: Path | bytes, info: ObjectInfo) -> bool:
        return True  # a disk delivers what it holds, or fails

    def local_path(self, name: str = "") -> Path:
        return self.folder / name

    def pull(self, objects: Iterable[str | ObjectInfo]) -> None:
        """Nothing: they are here."""

    def push(self, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        return [self._written(name) for name in names]

    def upload_new(self, paths: Iterable[Path | str]) -> None:
        """Nothing: they are here."""

    def localize(self, name: str) -> Path:
        return self.folder / name

    def upload_folder(self, name: str, last: Sequence[str] = ()) -> None:
        folder = self.folder / name

        # The folders too: an entry may reach the disk before the bytes that it names, or after them.
        for path in folder.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            else:
                fsync_path(path)
        fsync_path(folder)

    def delete_folder(self, name: str, first: Sequence[str] = ()) -> None:
        for marker in first:
            (self.folder / name / marker).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder / name)

    def move_folder(self, source: str, target: str, last: Sequence[str] = ()) -> None:
        begin = self.folder / source
        end = self.folder / target

        # A rename is all that a disk needs. A killed process may have done it already.
        if begin.is_dir():
            begin.rename(end)
            fsync_path(end.parent)
        elif not end.is_dir():
            raise WorkError(f"{begin}: neither this folder nor {end} exists; start again")

    def reserve(self, name: str) -> bool:
        """Reserves a name as in a bucket; the caller holds a lock."""
        return not (self.folder / name).exists()

    @contextlib.contextmanager
    def lock(self, name: str, waiting: str) -> Iterator[None]:
        """The lock goes when the process does, however it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)

        with open(self.folder / name, "ab") as lock:
            wait_for_lock(lock, waiting)
            remove_unfinished(self.folder)
            yield

    @contextlib.contextmanager
    def _unchanged(self, name: str, if_version: str | None) -> Iterator[None]:
        """Lets one process at a time change an object whose version it expects."""
        if reason := invalid_name_reason(name):
            raise WorkError(f"{self.uri_of(name)}: the name {reason}")
        if if_version is None:
            yield
            return

        # Comparing and writing are two steps on a disk, so one process at a time takes both.
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            current = self.stat(name)
            if (current.version if current else ABSENT) != if_version:
                raise PreconditionError(f"{self.uri_of(name)}: another process changed it meanwhile; start again")
            yield

    def _written(self, name: str) -> ObjectInfo:
        if (info := self.stat(name)) is None:
            raise PreconditionError(f"{self.uri_of(name)}: another process deleted it meanwhile; start again")
        return info

    def _file(self, name: str) -> Path:
        return safe_join(self.folder, name, self.uri)


def _walk(
    folder: str, name: str, prefix: str, above: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[str, os.stat_result]]:
    """The files below a folder whose names begin with `prefix`, in the order of their names.

    What other processes delete meanwhile is left out.

    Args:
      name: of the folder: empty, or with a / at its end.
      above: the folders that lead here, to notice a link to one of them.
    """
    # A link to a folder above it would be walked without end.
    if not (here := _identity(folder)) or here in above:
        return

    # A folder's files come where its name with a / does: "a-b" is before "a/c".
    entries = {f"{entry.name}/" if _is_folder(entry) else entry.name: entry for entry in _scan(folder)}
    for key in sorted(entries):
        # An entry keeps the status that it was asked for, so it goes as soon as it is listed.
        entry = entries.pop(key)
        child = name + key
        if key.endswith("/"):
            # Both ways: the folder leads to the prefix, or is below it.
            if child[: len(prefix)] == prefix[: len(child)]:
                yield from _walk(entry.path, child, prefix, (*above, here))
        elif child.startswith(prefix) and (status := _status_of(entry)):
            yield child, status


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return False


def _status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The status of a file; None if it is gone, or no file."""
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _identity(folder: str) -> tuple[int, int] | None:
    """The same for all paths that lead to a folder; None where there is none."""
    try:
        status = Path(folder).stat()
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    return status.st_dev, status.st_ino


def _scan(folder: str) -> Sequence[os.DirEntry[str]]:
    """Lists the entries of a folder; none if the folder does not exist."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        if error.errno in _NO_FILE:
            return []
        raise WorkError(f"{folder}: cannot be read ({error.strerror}); mend that, and start again") from error


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    updated = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
    return ObjectInfo(name, status.st_size, _version(status), "", updated)


def _version(status: os.stat_result) -> str:
    # A rename gives another inode, a change in place another time or size.
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _is_unfinished(name: str) -> bool:
    return name == _LOCK or (name.rpartition("/")[2].startswith(".") and name.endswith((".part", ".lock")))

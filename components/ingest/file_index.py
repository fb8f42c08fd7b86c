"""An index of the files of a folder: their paths, kinds and states, listed once."""

import contextlib
import hashlib
import os
import sqlite3
import stat
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from voxline.errors import WorkError
from voxline.store.hashing import HASH_CHARACTERS
from voxline.store.layout import RUN_FILE

_MEMORY_KIB = 1024
"""Memory of the database. Sorting takes as much again; larger pages would take more."""
_SHORT_LIVED = ("journal_mode = off", "synchronous = off", "temp_store = file")


def temporary_database(*tables: str) -> sqlite3.Connection:
    """Creates a private database with these tables; it disappears with its connection."""
    database = sqlite3.connect("", isolation_level=None)
    for setting in (f"cache_size = -{_MEMORY_KIB}", *_SHORT_LIVED):
        database.execute(f"PRAGMA {setting}")
    for table in tables:
        database.execute(f"CREATE TABLE {table}")
    database.execute("BEGIN")  # never committed: nothing has to survive
    return database


@contextlib.contextmanager
def explain_full_disk() -> Iterator[None]:
    """Turns a full disk under a temporary database into a WorkError that says how to make room."""
    try:
        yield
    except sqlite3.OperationalError as error:
        import tempfile  # not at the top: its import is slow

        raise WorkError(
            f"ingest: no room for its temporary database ({error}); make room in {tempfile.gettempdir()}, "
            "or name another folder in SQLITE_TMPDIR"
        ) from error


REGULAR = 1
LINK = 2

_STATE = struct.Struct("<QQqqq")
STATE_BYTES = _STATE.size
_DIGEST_FROM = 16
"""Where size and times begin in a packed state. A device has another number when it is mounted again."""


class FileState(NamedTuple):
    """The state of a file, which changes with its bytes. Times are in ns; `size` is -1 for a dead link."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    def packed(self) -> bytes:
        return _STATE.pack(*self)


def unpack_state(state: bytes) -> FileState:
    return FileState._make(_STATE.unpack(state))


class IndexedFile(NamedTuple):
    """A file of the index; for a link, its target.

    Attributes:
      number: in the index.
      kind: flags REGULAR and LINK.
      packed: its `FileState` as 40 bytes.
    """

    number: int
    kind: int
    packed: bytes
    path: bytes

    @property
    def size(self) -> int:
        return unpack_state(self.packed).size


_FROM = "SELECT number, kind, state, path FROM files WHERE path >= ? ORDER BY path"


class FileIndex:
    """Files by their paths relative to the root, in order of the paths' bytes.

    Attributes:
      database: holds them in the table `files`; others may add tables.
    """

    def __init__(self, files: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Indexes files, each given as path, kind and packed state."""
        self.database = temporary_database(
            "files (number INTEGER PRIMARY KEY, path, kind, state)",
            "forms (form PRIMARY KEY, path) WITHOUT ROWID",
        )
        self.database.executemany("INSERT INTO files (path, kind, state) VALUES (?, ?, ?)", files)
        self.database.execute("CREATE UNIQUE INDEX by_path ON files (path)")
        ((self._count,),) = self.database.execute("SELECT count(*) FROM files")

        # Other spellings are indexed when the first one is looked up, which most corpora never need.
        self._has_forms = False
        self._following: Iterator[tuple[int, int, bytes, bytes]] = iter(())
        self._next: tuple[int, int, bytes, bytes] | None = None

    def __len__(self) -> int:
        return int(self._count)

    def __iter__(self) -> Iterator[str]:
        return map(os.fsdecode, self.paths())

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None

    def __getitem__(self, path: str) -> IndexedFile:
        if file := self.get(path):
            return file
        raise KeyError(path)

    def get(self, path: str) -> IndexedFile | None:
        try:
            name = os.fsencode(path)
        except UnicodeEncodeError:  # half a surrogate pair is in no file name
            return None

        # Corpora mostly name their files in order, and the next row is several times as fast as a search.
        row = self._next
        if row is None or row[3] != name:
            self._following = self.database.execute(_FROM, (name,))
            row = next(self._following, None)
            if row is None or row[3] != name:
                self._next = row
                return None

        self._next = next(self._following, None)
        return IndexedFile._make(row)

    def add(self, path: str, file: str) -> IndexedFile | None:
        """Adds a file that the listing does not have; None where there is none.

        Args:
          path: the name that the index gives it: absolute where it is outside the root.
          file: its absolute path.
        """
        if status_of_file := self.get(path):
            return status_of_file
        try:
            name = os.fsencode(path)
            status = Path(file).stat()
        except (OSError, ValueError):
            return None

        # `stat` followed a link, so the kind is that of its target. The cursor may be past the new row.
        kind = REGULAR * stat.S_ISREG(status.st_mode)
        row = (name, kind, _pack_status(status))
        self.database.execute("INSERT INTO files (path, kind, state) VALUES (?, ?, ?)", row)
        self._next = None
        return self.get(path)

    def added_digest(self, exclude: str) -> str:
        """Hashes the paths, sizes and times of the files that were added; empty where there are none.

        Args:
          exclude: absolute path of a folder whose files do not count.
        """
        # Rows that the listing did not have come after its last number.
        digest = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)
        count = 0
        excluded = os.fsencode(exclude) + b"/"

        rows = self.database.execute("SELECT path, state FROM files WHERE number > ? ORDER BY path", (self._count,))
        for path, state in rows:
            if not path.startswith(excluded):
                count += 1
                digest.update(path + b"\0" + state[_DIGEST_FROM:])

        return digest.hexdigest() if count else ""

    def paths(self) -> Iterator[bytes]:
        """Yields every path as the file system spells it."""
        return (path for (path,) in self.database.execute("SELECT path FROM files ORDER BY path"))

    def find_equivalent(self, path: str) -> str | None:
        """The first path that differs from this one only in Unicode form or the case of its extension."""
        if not self._has_forms:
            forms = ((os.fsencode(_form(other)), os.fsencode(other)) for other in self)
            self.database.executemany("INSERT OR IGNORE INTO forms VALUES (?, ?)", forms)
            self._has_forms = True
        try:
            form = os.fsencode(_form(path))
        except UnicodeEncodeError:
            return None
        row = self.database.execute("SELECT path FROM forms WHERE form = ?", (form,)).fetchone()
        return None if row is None else os.fsdecode(row[0])

    @property
    def has_added(self) -> bool:
        """Returns whether a file was added that the listing does not have."""
        ((last,),) = self.database.execute("SELECT max(number) FROM files")
        return bool(last and last > self._count)

    def states(self) -> Iterator[tuple[bytes, int, bytes, int]]:
        """Yields path, kind, size with times as bytes, and the later of both times in ns, in order of the paths."""
        for path, kind, state in self.database.execute("SELECT path, kind, state FROM files ORDER BY path"):
            *_, modified, changed = _STATE.unpack(state)
            yield path, kind, state[_DIGEST_FROM:], max(modified, changed)

    def digest(self, *, times: bool) -> str:
        """Hashes the paths and sizes of all files, and their times if wanted."""
        digest = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)
        # Without times, as those of unpacked files say only when they were unpacked.
        until = _STATE.size if times else _DIGEST_FROM + 8
        for path, state in self.database.execute("SELECT path, state FROM files ORDER BY path"):
            digest.update(path + b"\0" + state[_DIGEST_FROM:until])
        return digest.hexdigest()


def scan_files(
    root: str, exclude: str | None, external_symlinks: dict[str, str], audio_roots: Sequence[str] = ()
) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields path, kind and packed state of every file. Folders of runs inside the corpus are not entered.

    Args:
      root: a real path.
      exclude: a folder that is not entered.
      external_symlinks: receives folders that are links out of the root, by path; they are not entered either.
      audio_roots: real paths of folders outside the root; links into these are entered.

    Raises:
      WorkError: a folder cannot be listed.
    """
    top = os.fsencode(root)
    excluded = None if exclude is None else os.fsencode(exclude)

    # No recursion: an archive may nest folders a thousand deep. With each folder, the targets of the links that led
    # there: one that leads back to where it came from is not entered again.
    folders: list[tuple[bytes, tuple[str, ...]]] = [(b"", (root,))]
    while folders:
        folder, inside = folders.pop()
        below = folder + b"/" if folder else b""
        if folder and _is_run(os.path.join(top, folder)):
            continue
        try:
            with os.scandir(os.path.join(top, folder)) as items:
                for item in items:
                    path = below + item.name
                    if item.is_dir(follow_symlinks=False):
                        folders += [(path, inside)] * (item.path != excluded)
                    elif item.is_symlink() and Path(os.fsdecode(item.path)).is_dir():
                        # (item.is_dir() raises on a link to itself.)
                        # A folder inside is listed under its real name.
                        real = os.fsdecode(os.path.realpath(item.path))
                        if any(contains_path(folder_, real) or contains_path(real, folder_) for folder_ in inside):
                            if not contains_path(root, real) and len(inside) == 1:
                                external_symlinks[os.fsdecode(path)] = real
                        elif any(contains_path(folder_, real) for folder_ in audio_roots):
                            folders.append((path, (*inside, real)))
                        else:
                            external_symlinks[os.fsdecode(path)] = real
                    else:
                        yield path, *_stat(item)
        except OSError as error:
            where = os.path.join(root, os.fsdecode(folder))
            raise WorkError(f"{where}: the corpus cannot be listed ({error.strerror})") from None


def _is_run(folder: bytes) -> bool:
    """Returns whether a run wrote the folder: it was started among the recordings and has manifests of its own."""
    return all(os.path.lexists(os.path.join(folder, name)) for name in (os.fsencode(RUN_FILE), b"config.yaml"))


def contains_path(root: str, real: str) -> bool:
    """Returns whether a real path is inside the root."""
    return os.path.commonpath([root, real]) == root


def _stat(item: "os.DirEntry[bytes]") -> tuple[int, bytes]:
    """Kind and packed state."""
    try:
        status = item.stat()
    except OSError:  # a dead link, or a file that was just deleted
        return LINK, _ABSENT
    kind = REGULAR * stat.S_ISREG(status.st_mode) | LINK * item.is_symlink()
    return kind, _pack_status(status)


def _pack_status(status: os.stat_result) -> bytes:
    return _STATE.pack(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


_ABSENT = FileState(0, 0, -1, 0, 0).packed()


def _form(path: str) -> str:
    normal = unicodedata.normalize("NFC", path)
    extension = PurePosixPath(normal).suffix
    return normal.removesuffix(extension) + extension.lower()

"""The files of a folder, listed once: their paths, and what the file system says of each."""

import contextlib
import hashlib
import os
import sqlite3
import stat
import struct
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from voxline.errors import WorkError
from voxline.store.hashing import HASH_CHARACTERS

_MEMORY_KIB = 1024
"""What the database keeps in memory. Sorting takes as much again; with larger pages it would take more."""
_SHORT_LIVED = ("journal_mode = off", "synchronous = off", "temp_store = file")


def temporary_database(*tables: str) -> sqlite3.Connection:
    """A database that nobody else sees, with these tables."""
    database = sqlite3.connect("", isolation_level=None)
    for setting in (f"cache_size = -{_MEMORY_KIB}", *_SHORT_LIVED):
        database.execute(f"PRAGMA {setting}")
    for table in tables:
        database.execute(f"CREATE TABLE {table}")
    database.execute("BEGIN")  # never ended: nothing has to survive
    return database


@contextlib.contextmanager
def explain_full_disk() -> Iterator[None]:
    """Tells that there is no room for what is held as something to mend."""
    try:
        yield
    except sqlite3.OperationalError as error:
        import tempfile  # not at the top: it takes longer than all else here

        raise WorkError(
            f"ingest: no room for what it notes down of a large corpus ({error}); make room in "
            f"{tempfile.gettempdir()}, or name another folder by SQLITE_TMPDIR"
        ) from error


REGULAR, LINK = 1, 2

_STATE = struct.Struct("<QQqqq")
STATE_BYTES = _STATE.size
_NAMED_FROM = 16
"""Where size and times begin in a packed state; a device has another number once it is mounted again."""


class FileState(NamedTuple):
    """By what a file is known again; times are ns. `size` is -1 where a link leads nowhere."""

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
    """A file of the listing; where a link leads to one, that.

    Attributes:
      number: in the listing.
      kind: REGULAR and LINK, where it is such.
      packed: its state, as 40 bytes.
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
    """Files by their path relative to the root; in order of its bytes.

    Attributes:
      database: holds them in a table `files`.
    """

    def __init__(self, files: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Takes path, kind and packed state of each."""
        self.database = temporary_database(
            "files (number INTEGER PRIMARY KEY, path, kind, state)",
            "forms (form PRIMARY KEY, path) WITHOUT ROWID",
        )
        self.database.executemany("INSERT INTO files (path, kind, state) VALUES (?, ?, ?)", files)
        self.database.execute("CREATE UNIQUE INDEX by_path ON files (path)")
        ((self._count,),) = self.database.execute("SELECT count(*) FROM files")
        self._by_form = False
        self._following: Iterator[tuple[int, int, bytes, bytes]] = iter(())
        self._next: tuple[int, int, bytes, bytes] | None = None

    def __len__(self) -> int:
        return int(self._count)

    def __iter__(self) -> Iterator[str]:
        return map(os.fsdecode, self.paths())

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None

    def __getitem__(self, path: str) -> IndexedFile:
        if found := self.get(path):
            return found
        raise KeyError(path)

    def get(self, path: str) -> IndexedFile | None:
        try:
            name = os.fsencode(path)
        except UnicodeEncodeError:  # half a surrogate pair: no file has such a name
            return None
        # Corpora mostly name their files in order, and to go on is several times as quick as to search.
        found = self._next
        if found is None or found[3] != name:
            self._following = self.database.execute(_FROM, (name,))
            found = next(self._following, None)
            if found is None or found[3] != name:
                self._next = found
                return None
        self._next = next(self._following, None)
        return IndexedFile._make(found)

    def paths(self) -> Iterator[bytes]:
        """Every path as the system has it."""
        return (path for (path,) in self.database.execute("SELECT path FROM files ORDER BY path"))

    def by_form(self, path: str) -> str | None:
        """The first path that differs from this one by its Unicode form or the case of its extension only."""
        if not self._by_form:
            forms = ((os.fsencode(_form(other)), os.fsencode(other)) for other in self)
            self.database.executemany("INSERT OR IGNORE INTO forms VALUES (?, ?)", forms)
            self._by_form = True
        try:
            form = os.fsencode(_form(path))
        except UnicodeEncodeError:
            return None
        found = self.database.execute("SELECT path FROM forms WHERE form = ?", (form,)).fetchone()
        return None if found is None else os.fsdecode(found[0])

    def name(self, *, times: bool) -> str:
        """Names the listing by paths and sizes, and by the times of files if wanted."""
        digest, until = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2), _STATE.size if times else _NAMED_FROM + 8
        for path, state in self.database.execute("SELECT path, state FROM files ORDER BY path"):
            digest.update(path + b"\0" + state[_NAMED_FROM:until])
        return digest.hexdigest()


def scan_files(root: str, skipped: str | None, outward: dict[str, str]) -> Iterator[tuple[bytes, int, bytes]]:
    """Path, kind and packed state of every file.

    Args:
      root: a real path.
      skipped: a folder that is not entered.
      outward: gets the folders that are links out of the root, which are not entered either.

    Raises:
      WorkError: a folder cannot be listed.
    """
    top, passed_over = os.fsencode(root), None if skipped is None else os.fsencode(skipped)
    folders = [b""]  # no recursion: an archive may hold a folder in a folder in a folder, a thousand deep
    while folders:
        folder = folders.pop()
        below = folder + b"/" if folder else b""
        try:
            with os.scandir(os.path.join(top, folder)) as items:
                for item in items:
                    path = below + item.name
                    if item.is_dir(follow_symlinks=False):
                        folders += [path] * (item.path != passed_over)
                    elif item.is_symlink() and Path(os.fsdecode(item.path)).is_dir():
                        # (item.is_dir() raises on a link to itself.)
                        # A folder inside is listed under its real name; one outside is not entered.
                        if not contains_path(root, real := os.fsdecode(os.path.realpath(item.path))):
                            outward[os.fsdecode(path)] = real
                    else:
                        yield path, *_of(item)
        except OSError as error:
            where = os.path.join(root, os.fsdecode(folder))
            raise WorkError(f"{where}: the corpus cannot be listed ({error.strerror})") from None


def contains_path(root: str, real: str) -> bool:
    """Whether a real path lies in the root."""
    return os.path.commonpath([root, real]) == root


def _of(item: "os.DirEntry[bytes]") -> tuple[int, bytes]:
    """Kind and packed state."""
    try:
        found = item.stat()
    except OSError:  # a link to nowhere, or a file that has just gone
        return LINK, _LOST
    kind = REGULAR * stat.S_ISREG(found.st_mode) | LINK * item.is_symlink()
    return kind, _STATE.pack(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


_LOST = FileState(0, 0, -1, 0, 0).packed()


def _form(path: str) -> str:
    normal = unicodedata.normalize("NFC", path)
    extension = PurePosixPath(normal).suffix
    return normal.removesuffix(extension) + extension.lower()

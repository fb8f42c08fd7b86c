"""An index of the files of a folder: their paths, kinds and states, listed once."""

import contextlib
import functools
import hashlib
import itertools
import os
import sqlite3
import stat
import struct
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
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
DIGEST_FROM = 16
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


_FILE_NAMES = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
BLOCK_FILES = 1_000
_STATE_AT = slice(-1 - STATE_BYTES, -1)
_PATH_END = -2 - STATE_BYTES
"""Where a state is in the text of a file, and where its path ends."""
_FROM = "SELECT number, kind, state, path FROM files WHERE path >= ? ORDER BY path"


class FileIndex:
    """Files by their paths relative to the root, in order of the paths' bytes.

    The listing is in memory, in some hundred bytes of each file, until a file is looked up: most runs need no more.
    """

    def __init__(self, files: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Indexes files, each given as path, kind and packed state."""
        # Each file as one text, which sorts as its path does: no path has a zero byte.
        self._listed: list[bytes] | None = sorted([b"%b\0%b%c" % (path, state, kind) for path, kind, state in files])
        self._count = len(self._listed)

        # Other spellings are indexed when the first one is looked up, which most corpora never need.
        self._has_forms = False
        self._following: Iterator[tuple[int, int, bytes, bytes]] = iter(())
        self._next: tuple[int, int, bytes, bytes] | None = None

    @functools.cached_property
    def database(self) -> sqlite3.Connection:
        """Holds the files in the table `files`; others may add tables."""
        database = temporary_database(
            "files (number INTEGER PRIMARY KEY, path, kind, state)",
            "forms (form PRIMARY KEY, path) WITHOUT ROWID",
        )
        for paths, kinds, states in self.blocks():
            rows = zip(paths, kinds, _split_states(states), strict=True)
            database.executemany("INSERT INTO files (path, kind, state) VALUES (?, ?, ?)", rows)
        database.execute("CREATE UNIQUE INDEX by_path ON files (path)")
        self._listed = None
        return database

    def only(self, paths: Collection[bytes]) -> "FileIndex":
        """An index of some of the files."""
        wanted = (
            (path, kind, states[at * STATE_BYTES : (at + 1) * STATE_BYTES])
            for block, kinds, states in self.blocks()
            for at, (path, kind) in enumerate(zip(block, kinds, strict=True))
            if path in paths
        )
        return FileIndex(wanted)

    def __len__(self) -> int:
        return self._count

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
        if not self.has_added:
            return ""
        # Rows that the listing did not have come after its last number.
        digest = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)
        count = 0
        excluded = os.fsencode(exclude) + b"/"

        rows = self.database.execute("SELECT path, state FROM files WHERE number > ? ORDER BY path", (self._count,))
        for path, state in rows:
            if not path.startswith(excluded):
                count += 1
                digest.update(path + b"\0" + state[DIGEST_FROM:])

        return digest.hexdigest() if count else ""

    def paths(self) -> Iterator[bytes]:
        """Yields every path as the file system spells it."""
        return itertools.chain.from_iterable(paths for paths, *_ in self.blocks())

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
        if self._listed is not None:
            return False
        ((last,),) = self.database.execute("SELECT max(number) FROM files")
        return bool(last and last > self._count)

    def blocks(self) -> Iterator[tuple[list[bytes], bytes, bytes]]:
        """Yields the paths, kinds and packed states of `BLOCK_FILES` files at a time, in order of the paths.

        Kinds are a byte each, and states follow each other.
        """
        if self._listed is not None:
            for begin in range(0, len(self._listed), BLOCK_FILES):
                block = self._listed[begin : begin + BLOCK_FILES]
                states = b"".join([file[_STATE_AT] for file in block])
                yield [file[:_PATH_END] for file in block], bytes([file[-1] for file in block]), states
            return
        rows = self.database.execute("SELECT path, kind, state FROM files ORDER BY path")
        while block_rows := rows.fetchmany(BLOCK_FILES):
            paths, kinds, packed = zip(*block_rows, strict=True)
            yield list(paths), bytes(kinds), b"".join(packed)

    def digest(self, *, times: bool) -> str:
        """Hashes the paths and sizes of all files, and their times if wanted."""
        digest = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)
        # Without times, as those of unpacked files say only when they were unpacked.
        until = STATE_BYTES if times else DIGEST_FROM + 8
        for paths, _, states in self.blocks():
            begins = range(0, len(states), STATE_BYTES)
            named = zip(paths, begins, strict=True)
            digest.update(b"".join([path + b"\0" + states[at + DIGEST_FROM : at + until] for path, at in named]))
        return digest.hexdigest()


def _split_states(states: bytes) -> list[bytes]:
    return [states[at : at + STATE_BYTES] for at in range(0, len(states), STATE_BYTES)]


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
            with _opened_folder(os.path.join(top, folder)) as descriptor, os.scandir(descriptor) as items:
                for item in items:
                    path = below + item.name.encode(*_FILE_NAMES)  # as os.fsencode, which takes five times as long
                    if item.is_file(follow_symlinks=False):  # as nearly all are
                        yield path, *_stat(item, is_symlink=False)
                    elif item.is_dir(follow_symlinks=False):
                        folders += [(path, inside)] * (os.path.join(top, path) != excluded)
                    elif item.is_symlink() and Path(os.fsdecode(os.path.join(top, path))).is_dir():
                        # (item.is_dir() raises on a link to itself.)
                        # A folder inside is listed under its real name.
                        real = os.fsdecode(os.path.realpath(os.path.join(top, path)))
                        if any(contains_path(folder_, real) or contains_path(real, folder_) for folder_ in inside):
                            if not contains_path(root, real) and len(inside) == 1:
                                external_symlinks[os.fsdecode(path)] = real
                        elif any(contains_path(folder_, real) for folder_ in audio_roots):
                            folders.append((path, (*inside, real)))
                        else:
                            external_symlinks[os.fsdecode(path)] = real
                    else:
                        yield path, *_stat(item, item.is_symlink())
        except OSError as error:
            where = os.path.join(root, os.fsdecode(folder))
            raise WorkError(f"{where}: the corpus cannot be listed ({error.strerror})") from None


@contextlib.contextmanager
def _opened_folder(path: bytes) -> Iterator[int]:
    """A descriptor of a folder, by which the system finds its files faster than by their paths."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_run(folder: bytes) -> bool:
    """Returns whether a run wrote the folder: it was started among the recordings and has manifests of its own."""
    return all(os.path.lexists(os.path.join(folder, name)) for name in (os.fsencode(RUN_FILE), b"config.yaml"))


def contains_path(root: str, real: str) -> bool:
    """Returns whether a real path is inside the root."""
    return os.path.commonpath([root, real]) == root


def _stat(item: "os.DirEntry[str]", is_symlink: bool) -> tuple[int, bytes]:
    """Kind and packed state."""
    try:
        status = item.stat()
    except OSError:  # a dead link, or a file that was just deleted
        return LINK, _ABSENT
    return REGULAR * stat.S_ISREG(status.st_mode) | LINK * is_symlink, _pack_status(status)


def _pack_status(status: os.stat_result) -> bytes:
    return _STATE.pack(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


_ABSENT = FileState(0, 0, -1, 0, 0).packed()


def _form(path: str) -> str:
    normal = unicodedata.normalize("NFC", path)
    extension = PurePosixPath(normal).suffix
    return normal.removesuffix(extension) + extension.lower()

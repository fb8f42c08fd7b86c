"""What recordings were found to be, remembered: a corpus of which one file changed is not read as a whole again.

A file is known again by what the file system says of it: device, inode, size, time of modification and time of change
(which no program can put back). Its name does not matter. As git does with its index, a file that was touched within
seconds of being looked at is not remembered: a clock may not have moved on before it was touched again.

  <store>/measured/<hash of the corpus' folder>   all that one listing found; replaced as a whole

Two runs at once each write what is true; the later one's stays. What is damaged is made again.
"""

import hashlib
import heapq
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from components.ingest.corpus import Corpus, escaped
from components.ingest.listing import STATE_BYTES, unpacked
from components.ingest.spool import Found
from components.speech.progress import say
from components.speech.storage import clear_unfinished, hash_value, whole_file

RACY_SECONDS = 3.0
"""FAT's clock moves every two seconds, that of every other file system more often."""

_MAGIC = b"voxline measured 2\n"
"""The number is raised when a recording would be measured otherwise."""
_FOUND = struct.Struct(f"<{STATE_BYTES}s16sd")
_DIGEST_BYTES = 16
_READ_AT_ONCE = _FOUND.size * 4_096

_OTHERS = 100
"""Corpora whose recordings are looked at, the latest first, where nothing is known of this one."""


class Remembered:
    """What is known of the files of a corpus, in order of their states.

    Where nothing is known of its folder yet, what is known of others is looked at: it may have been moved.

    Attributes:
      count: how many were handed out that are noted under this very folder.
    """

    def __init__(self, store: Path, corpus: Corpus) -> None:
        self._corpus = corpus
        self._folder = store / "measured"
        self._file = self._folder / hash_value(escaped(str(corpus.root)))
        self.count = 0

    def __iter__(self) -> Iterator[Found]:
        self.count = 0
        if not self._file.is_file():
            others = sorted(self._folder.glob("[0-9a-f]*"), key=_changed_at, reverse=True)
            yield from heapq.merge(*map(_read, others[:_OTHERS]))
            return
        for self.count, found in enumerate(_read(self._file), start=1):  # noqa: B020 - it counts
            yield found

    def keep(self, found: Iterable[Found]) -> None:
        """Remembers these, in order of their states, and nothing else of this folder."""
        latest = self._corpus.listed_at - int(RACY_SECONDS * 1e9)
        digest = _digest()
        clear_unfinished(self._folder)
        with whole_file(self._file) as out:
            out.write(_MAGIC + bytes(_DIGEST_BYTES))
            for packed, hash, seconds in found:
                _, _, _, modified, changed = unpacked(packed)
                if modified < latest and changed < latest:
                    record = _FOUND.pack(packed, bytes.fromhex(hash), seconds)
                    digest.update(record)
                    out.write(record)
            out.seek(len(_MAGIC))
            out.write(digest.digest())


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another run's, that has just gone
        return 0.0


def _read(name: Path) -> Iterator[Found]:
    try:
        with open(name, "rb") as file:
            yield from _records(file, name)
    except FileNotFoundError:
        return


def _records(file: IO[bytes], name: Path) -> Iterator[Found]:
    head = file.read(len(_MAGIC) + _DIGEST_BYTES)
    digest, size = _digest(), 0
    for piece in iter(lambda: file.read(_READ_AT_ONCE), b""):
        digest.update(piece)
        size += len(piece)
    if head != _MAGIC + digest.digest() or size % _FOUND.size:
        say(f"ingest: {name} is damaged, or of another version; the recordings are read again")
        return
    file.seek(len(head))
    for piece in iter(lambda: file.read(_READ_AT_ONCE), b""):
        for state, hash, seconds in _FOUND.iter_unpack(piece):
            yield state, hash.hex(), seconds


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)

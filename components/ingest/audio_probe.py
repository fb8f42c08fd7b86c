"""What each audio file is named by, and how long it says it is; many files at once."""

import hashlib
import heapq
import os
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from voxline.components.ingest.corpus import Corpus, escape_surrogates
from voxline.components.ingest.file_index import STATE_BYTES, unpack_state
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write, remove_unfinished
from voxline.store.hashing import hash_file, hash_value

_BATCH = 32
"""Files that a thread takes at a time: handing over each by itself would cost as much as hashing it."""
_LONGEST_SECONDS = 7 * 24 * 3600.0
"""A header that claims more is one that a stream left open, not a recording of more than a week."""


class ProbeResult(NamedTuple):
    """An audio file, by its bytes.

    Attributes:
      hash: of the whole file; empty where it could not be read.
      seconds: by its header; 0.0 where the header cannot be read here (convert says why, or decodes it).
      fault: what the system said when the file could not be read.
    """

    hash: str
    seconds: float
    fault: str = ""


def probe(root: Path, paths: Collection[str], progress: Progress | None = None) -> dict[str, ProbeResult]:
    """Hashes files and reads their headers, in threads: both wait for the disk or run outside Python's lock.

    Args:
      progress: is advanced; it may be of more files than these.
    """
    from concurrent.futures import ThreadPoolExecutor  # not at the top: mostly nothing has to be measured

    progress = progress or Progress("recordings", total=len(paths))
    ordered = list(paths)
    batches = [ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH)]
    measured: dict[str, ProbeResult] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        for batch in threads.map(lambda batch: {path: _measure(root / path) for path in batch}, batches):
            measured |= batch
            progress.advance(len(batch))
    return measured


def _measure(path: Path) -> ProbeResult:
    try:
        return ProbeResult(hash_file(path), _seconds(path))
    except OSError as error:
        return ProbeResult("", 0.0, fault=error.strerror or str(error))


def _seconds(path: Path) -> float:
    import soundfile  # not at the top: it brings numpy, which nothing else here needs

    try:
        with soundfile.SoundFile(str(path)) as file:
            frames, rate = file.frames, file.samplerate
    except (RuntimeError, TypeError):  # libsndfile's own errors are RuntimeErrors; TypeError: headerless .raw
        return 0.0
    seconds = frames / rate if rate > 0 else 0.0
    return seconds if 0 < seconds <= _LONGEST_SECONDS else 0.0


ProbeRecord = tuple[bytes, str, float]
"""The packed state of a file, the hash of its bytes, its seconds."""


RACY_SECONDS = 3.0
"""FAT's clock moves every two seconds, that of every other file system more often."""

_MAGIC = b"voxline measured 2\n"
"""The number is raised when a recording would be measured otherwise."""
_FOUND = struct.Struct(f"<{STATE_BYTES}s16sd")
_DIGEST_BYTES = 16
_READ_AT_ONCE = _FOUND.size * 4_096

_OTHERS = 100
"""Corpora whose recordings are looked at, the latest first, where nothing is known of this one."""


class ProbeCache:
    """What is known of the files of a corpus, in order of their states.

    Where nothing is known of its folder yet, what is known of others is looked at: it may have been moved.

    Attributes:
      count: how many were handed out that are noted under this very folder.
    """

    def __init__(self, store: Path, corpus: Corpus) -> None:
        self._corpus = corpus
        self._folder = store / "measured"
        self._file = self._folder / hash_value(escape_surrogates(str(corpus.root)))
        self.count = 0

    def __iter__(self) -> Iterator[ProbeRecord]:
        self.count = 0
        if not self._file.is_file():
            others = sorted(self._folder.glob("[0-9a-f]*"), key=_changed_at, reverse=True)
            yield from heapq.merge(*map(_read, others[:_OTHERS]))
            return
        for self.count, found in enumerate(_read(self._file), start=1):  # noqa: B020 - it counts
            yield found

    def keep(self, found: Iterable[ProbeRecord]) -> None:
        """Remembers these, in order of their states, and nothing else of this folder."""
        latest = self._corpus.listed_at - int(RACY_SECONDS * 1e9)
        digest = _digest()
        remove_unfinished(self._folder)
        with atomic_write(self._file) as out:
            out.write(_MAGIC + bytes(_DIGEST_BYTES))
            for packed, hash, seconds in found:
                _, _, _, modified, changed = unpack_state(packed)
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


def _read(name: Path) -> Iterator[ProbeRecord]:
    try:
        with open(name, "rb") as file:
            yield from _records(file, name)
    except FileNotFoundError:
        return


def _records(file: IO[bytes], name: Path) -> Iterator[ProbeRecord]:
    head = file.read(len(_MAGIC) + _DIGEST_BYTES)
    digest, size = _digest(), 0
    for piece in iter(lambda: file.read(_READ_AT_ONCE), b""):
        digest.update(piece)
        size += len(piece)
    if head != _MAGIC + digest.digest() or size % _FOUND.size:
        print_status(f"ingest: {name} is damaged, or of another version; the recordings are read again")
        return
    file.seek(len(head))
    for piece in iter(lambda: file.read(_READ_AT_ONCE), b""):
        for state, hash, seconds in _FOUND.iter_unpack(piece):
            yield state, hash.hex(), seconds


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)

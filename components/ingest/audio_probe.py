"""Probes audio files: their hashes and durations, many files at once; and the cache of earlier probes."""

import hashlib
import heapq
import itertools
import operator
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from voxline.components.ingest.corpus import Corpus, escape_surrogates
from voxline.components.ingest.file_index import STATE_BYTES, unpack_state
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write, remove_unfinished
from voxline.store.hashing import hash_file, hash_value

_BATCH_FILES = 32
"""Files that a thread takes at a time: handing over each by itself would cost as much as hashing it."""
_MAX_SECONDS = 7 * 24 * 3600.0
"""A header that claims more than a week was left open by a stream."""


class ProbeResult(NamedTuple):
    """An audio file, by its bytes.

    Attributes:
      hash: of the whole file; empty where it could not be read.
      seconds: by its header, or by counting an MP3's frames; 0.0 where neither says (convert decodes it, or says why
        not).
      fault: the system's message when the file could not be read.
    """

    hash: str
    seconds: float
    fault: str = ""


def probe(root: Path, paths: Collection[str], progress: Progress | None = None) -> dict[str, ProbeResult]:
    """Hashes files and reads their headers, in threads: both wait for the disk or run outside Python's lock.

    Args:
      progress: is advanced by each file.
    """
    if not paths:
        return {}

    # Not at the top: usually nothing has to be probed.
    from concurrent.futures import ThreadPoolExecutor

    from voxline.audio import streams  # imports numpy; by two threads at once, one may see it half imported

    progress = progress or Progress("recordings", total=len(paths))
    ordered = list(paths)
    batches = [ordered[start : start + _BATCH_FILES] for start in range(0, len(ordered), _BATCH_FILES)]
    results: dict[str, ProbeResult] = {}

    # Not Paths: Python keeps a table of their parts, which grows by megabytes.
    folder = os.fspath(root)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        read_duration = streams.stated_seconds
        for batch in threads.map(
            lambda batch: {path: _probe_file(os.path.join(folder, path), read_duration) for path in batch},
            batches,
        ):
            results |= batch
            progress.advance(len(batch))
    return results


def _probe_file(path: str, read_duration: Callable[[str], float]) -> ProbeResult:
    try:
        digest = hash_file(path)
        seconds = read_duration(path)
    except OSError as error:
        return ProbeResult("", 0.0, fault=error.strerror or str(error))
    return ProbeResult(digest, seconds if 0 < seconds <= _MAX_SECONDS else 0.0)


ProbeRecord = tuple[bytes, str, float]
"""The packed state of a file, the hash of its bytes, its seconds."""


RACY_SECONDS = 3.0
"""A file that changed this shortly before the listing is not cached: FAT's clock moves every two seconds."""

_MAGIC = b"voxline probes 2\n"
"""Raise the number when a probe would give another result."""
_RECORD = struct.Struct(f"<{STATE_BYTES}s16sd")
_PACKED = struct.Struct(f"{_RECORD.size}s")
_DIGEST_BYTES = 16
_BLOCK_RECORDS = 4_096
_READ_BYTES = _RECORD.size * _BLOCK_RECORDS

_MAX_OTHER_CORPORA = 100
"""Caches of other corpora that are read, the latest first, where this corpus has none."""


class ProbeCache:
    """The probes of a corpus' files, in order of the files' states.

    Where the corpus' folder has no cache yet, those of other corpora are read: it may have been moved.

    Attributes:
      count: how many were read from the folder's own cache.
    """

    def __init__(self, store: Path, corpus: Corpus) -> None:
        self._corpus = corpus
        self._folder = store / "probes"
        self._file = self._folder / hash_value(escape_surrogates(str(corpus.path)))
        self.count = 0

    def __iter__(self) -> Iterator[ProbeRecord]:
        self.count = 0
        if not self._file.is_file():
            other_caches = sorted(self._folder.glob("[0-9a-f]*"), key=_modified_at, reverse=True)
            yield from heapq.merge(*map(_read_cache, other_caches[:_MAX_OTHER_CORPORA]))
            return
        for self.count, record in enumerate(_read_cache(self._file), start=1):  # noqa: B020 - it counts
            yield record

    def write(self, records: Iterable[ProbeRecord]) -> None:
        """Replaces the folder's cache by these, which are in order of their states."""
        self._write(self._packed(records))

    def update(self, removed: Collection[bytes], records: Iterable[ProbeRecord]) -> None:
        """Replaces those of some states by others, which are in order of their states.

        Where the folder has no cache, or a damaged one, it has these alone afterwards.
        """
        unchanged = [record for record in _packed_records(self._file) if record[:STATE_BYTES] not in removed]
        self._write(sorted([*unchanged, *self._packed(records)]))

    def _packed(self, records: Iterable[ProbeRecord]) -> Iterator[bytes]:
        # A file that changed while it was listed may change again with the same times, so that its probe is not kept.
        latest = self._corpus.listed_at - int(RACY_SECONDS * 1e9)
        for packed, hash, seconds in records:
            _, _, _, modified, changed = unpack_state(packed)
            if modified < latest and changed < latest:
                yield _RECORD.pack(packed, bytes.fromhex(hash), seconds)

    def _write(self, records: Iterable[bytes]) -> None:
        digest = _new_digest()
        remove_unfinished(self._folder)
        with atomic_write(self._file) as out:
            out.write(_MAGIC + bytes(_DIGEST_BYTES))
            remaining = iter(records)
            while block := b"".join(itertools.islice(remaining, _BLOCK_RECORDS)):
                digest.update(block)
                out.write(block)

            # The hash of the records comes before them, where zeros kept its place.
            out.seek(len(_MAGIC))
            out.write(digest.digest())


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # deleted by another run
        return 0.0


def _read_cache(path: Path) -> Iterator[ProbeRecord]:
    for record in _packed_records(path):
        state, hash, seconds = _RECORD.unpack(record)
        yield state, hash.hex(), seconds


def _packed_records(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from _read_records(file, path)
    except FileNotFoundError:
        return


def _read_records(file: IO[bytes], path: Path) -> Iterator[bytes]:
    # A first pass over the whole file, so that nothing of a damaged cache is used.
    header = file.read(len(_MAGIC) + _DIGEST_BYTES)
    digest = _new_digest()
    size = 0
    for piece in iter(lambda: file.read(_READ_BYTES), b""):
        digest.update(piece)
        size += len(piece)

    if header != _MAGIC + digest.digest() or size % _RECORD.size:
        print_status(f"ingest: {path} is damaged, or of another version; the recordings are read again")
        return

    file.seek(len(header))
    for piece in iter(lambda: file.read(_READ_BYTES), b""):
        yield from map(operator.itemgetter(0), _PACKED.iter_unpack(piece))


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)

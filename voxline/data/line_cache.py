"""A line cache: what a step made of each line of its last manifest, so that an unchanged line is not processed again.

  <store>/lines/<step>-<hash of the settings>    written by the last run with these settings, replaced as a whole

Steps whose work on a line costs little keep an entry for each piece of some lines instead (`iter_pieces`).

A text file. Each entry is a line of tab-separated fields: the digest of the manifest's line, fields that the step
chooses, and last the line that the step wrote. Two lines follow the entries: a JSON object that describes the run, and
the CRC-32C of everything before it.

The cache holds nothing that a run cannot compute again. Delete it freely; a damaged one is ignored. A reader keeps the
file that it opened, so another run may replace it.
"""

import contextlib
import json
import os
import zlib
from binascii import unhexlify
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import google_crc32c

from voxline.errors import WorkError
from voxline.store.files import atomic_write, remove_unfinished
from voxline.store.hashing import HASH_CHARACTERS, DigestMap, hash_digest, hash_value
from voxline.store.layout import LINES
from voxline.store.objects import open_store
from voxline.store.size_limits import FILE_BUFFER, iter_bounded_lines

_FORMAT = 2
_FOOTER_BYTES = 65_536
"""More than a footer takes."""
_CHECKSUM_BYTES = 9
"""Of the last line, with its end."""
_CHUNK = 1 << 16
_ENTRIES_BUFFER = 1 << 18
"""Bytes that are read at a time. An entry has some kilobytes, and one that ends in the next buffer is copied twice."""

PIECE_LINES = 32
"""Lines of a piece, on average: with fewer a piece costs more than its lines, with more a change costs more lines."""
MAX_PIECE_LINES = 8 * PIECE_LINES


class CacheEntry(NamedTuple):
    """The result of a step for one line.

    Attributes:
      offset: byte of the cache at which the entry begins; `LineCache.read` finds it again.
      raw: the entry as it is in the file; `LineCacheWriter.copy` takes it.
      fields: what the step stored.
      output: the line that it wrote.
    """

    offset: int
    raw: bytes
    fields: list[bytes]
    output: bytes


class LineCache:
    """The entries of a cache file; none if it is absent or damaged.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "convert"
    >>> with write_line_cache(file) as writer:
    ...     writer.add(bytes(16), "0.5", "train", output=b"a row" + b"\\n")
    ...     writer.about = {"manifest": "9f"}
    >>> with LineCache(file) as cache:
    ...     cache.about, cache.find(bytes(16)).fields, cache.find(b"another digest !")
    ({'manifest': '9f'}, [b'0.5', b'train'], None)

    Attributes:
      file: the cache file.
      about: what the writer said of the run; empty without entries.
      count: number of entries.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.about: dict[str, Any] = {}
        self.count = 0
        self._lines: IO[bytes] | None = None
        self._next = b""
        self._next_at = 0
        self._end = 0
        self._offsets: DigestMap | None = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self._open()

    def __enter__(self) -> "LineCache":
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines:
            self._lines.close()

    def find(self, digest: bytes) -> CacheEntry | None:
        """The entry of a line. Lines are expected in the order of the last manifest; others cost an index in memory."""
        # Manifests change little from run to run, so the entry that was read ahead is nearly always the one asked for.
        if self._next[:HASH_CHARACTERS] != digest.hex().encode():
            if not self.count or (offset := self._index().find(digest)) is None:
                return None
            self._seek(int.from_bytes(offset, "little"))
        return self._take()

    def read(self, offset: int) -> CacheEntry:
        """The entry that begins at a byte."""
        if offset != self._next_at:
            self._seek(offset)
        return self._take()

    def take_next(self) -> CacheEntry | None:
        """The entry after the last one, whatever its digest: mostly what a line was that has none now."""
        return self._take() if self._next else None

    def __iter__(self) -> Iterator[CacheEntry]:
        return self.entries({})

    def entries(self, without: Mapping[int, int]) -> Iterator[CacheEntry]:
        """The entries in their order.

        Args:
          without: bytes at which entries begin that are left out, and at which each of them ends.
        """
        offset = 0
        while offset < self._end:
            if offset in without:
                offset = without[offset]
                continue
            entry = self.read(offset)
            offset += len(entry.raw)
            yield entry

    def check(self) -> None:
        """Checks that no purge has removed the cache since it was opened.

        Raises:
          WorkError: one has, so the entries may name what is gone.
        """
        if self.count and not self.file.exists():  # a run replaces the file, it never removes it
            raise WorkError(f"{self.file}: removed while it was being read, probably by a purge; run this again")

    def _open(self) -> None:
        """Opens and verifies the file.

        Raises:
          OSError, ValueError, KeyError, TypeError: it is absent, damaged, or of another version.
        """
        with contextlib.ExitStack() as files:
            lines = files.enter_context(open(self.file, "rb", _ENTRIES_BUFFER))

            # The last line is the checksum of all bytes before it.
            summed = lines.seek(0, os.SEEK_END) - _CHECKSUM_BYTES
            lines.seek(max(0, summed - _FOOTER_BYTES))
            *_, footer, stated = lines.read().splitlines(keepends=True)
            if stated != _encode_checksum(_checksum_of(lines, summed)):
                raise ValueError("damaged")

            # Only a file that is whole is parsed: a cut one may end in the middle of a footer.
            values = json.loads(footer)
            if values["format"] != _FORMAT:
                raise ValueError("another version")
            self.about = values["about"]
            self.count = values["count"]
            self._end = summed - len(footer)
            self._lines = lines

            # Ready to use: the file stays open beyond this block.
            self._seek(0)
            files.pop_all()

    def _take(self) -> CacheEntry:
        """The next entry, and reads ahead."""
        assert self._lines  # noqa: S101 -- there are entries, so it is open
        raw = self._next
        offset = self._next_at
        self._next_at = offset + len(raw)
        self._next = self._lines.readline() if self._next_at < self._end else b""
        head, _, output = raw.rpartition(b"\t")  # to look for tabs in the output would take longer than to read it
        return CacheEntry(offset, raw, head.split(b"\t")[1:], output)

    def _seek(self, offset: int) -> None:
        if self._lines:
            self._lines.seek(offset)
            self._next_at = offset
            self._next = self._lines.readline() if offset < self._end else b""

    def _index(self) -> DigestMap:
        if self._offsets is None:
            assert self._lines  # noqa: S101 -- as above

            # Eight bytes for an offset, and no entry in memory: a manifest of millions of lines fits.
            self._offsets = DigestMap(8)
            here = self._lines.tell()
            offset = 0
            self._lines.seek(0)
            while offset < self._end:
                raw = self._lines.readline()
                self._offsets.put(unhexlify(raw[:HASH_CHARACTERS]), offset.to_bytes(8, "little"))
                offset += len(raw)

            # The index must not disturb a sequential reader.
            self._lines.seek(here)
        return self._offsets


class LineCacheWriter:
    """Writes a cache file.

    Attributes:
      about: JSON values that describe the run, for `LineCache.about`.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._checksum = 0
        self._count = 0
        self._waiting = bytearray()
        self.about: dict[str, Any] = {}

    def add(self, digest: bytes, *fields: str, output: bytes) -> None:
        """Adds an entry.

        Args:
          digest: of the manifest's line.
          fields: without tabs.
          output: the line that the step wrote, JSON and so without tabs; it ends with a line feed.
        """
        self.copy("\t".join((digest.hex(), *fields, "")).encode() + output)

    def copy(self, raw: bytes) -> None:
        """Adds an entry as another cache has it."""
        self._waiting += raw
        self._count += 1

        # Writes of 64 KiB: a call for each line would cost more than the line.
        if len(self._waiting) >= FILE_BUFFER:
            self._flush()

    def close(self) -> None:
        """Writes what follows the entries."""
        footer = {"format": _FORMAT, "count": self._count, "about": self.about}
        self._waiting += json.dumps(footer, ensure_ascii=False).encode() + b"\n"
        self._flush()
        self._file.write(_encode_checksum(self._checksum))

    def _flush(self) -> None:
        self._file.write(self._waiting)
        self._checksum = google_crc32c.extend(self._checksum, bytes(self._waiting))
        self._waiting.clear()


@contextlib.contextmanager
def write_line_cache(file: Path) -> Iterator[LineCacheWriter]:
    """Opens a cache for writing; it replaces the file when the block ends without an error."""
    remove_unfinished(file.parent)
    with atomic_write(file, durable=False) as out:  # a reader checks the checksum
        writer = LineCacheWriter(out)
        yield writer
        writer.close()


def iter_pieces(file: IO[bytes], path: Path | str) -> Iterator[tuple[bytes, list[bytes]]]:
    """Divides the lines of an open file into pieces; yields the digest and the lines of each.

    A piece ends with a line whose own bytes say so, once it is long enough. So a line that is changed, added or removed
    alters its piece, and seldom one or a few after it, wherever it is.

    >>> import io
    >>> lines = [b"%d\\n" % number for number in range(1000)]
    >>> changed = [*lines[:500], b"new\\n", *lines[500:]]
    >>> before, after = (dict(iter_pieces(io.BytesIO(b"".join(part)), "")) for part in (lines, changed))
    >>> len(before), len(after.keys() - before.keys())
    (36, 1)

    Args:
      path: names the file in messages.

    Raises:
      SizeLimitError: a line is longer than `MAX_LINE_BYTES`.
    """
    # Of similar lengths: the longer a piece, the more likely is a change in it, and the more lines that costs.
    fewest = 3 * PIECE_LINES // 4
    ends_one_in = PIECE_LINES - fewest

    piece: list[bytes] = []
    for _, line in iter_bounded_lines(file, path):
        piece.append(line)
        if len(piece) >= fewest and (zlib.crc32(line) % ends_one_in == 0 or len(piece) == MAX_PIECE_LINES):
            yield hash_digest(b"".join(piece)), piece
            piece = []
    if piece:
        yield hash_digest(b"".join(piece)), piece


def hash_lines(lines: Iterable[bytes]) -> str:
    """The digests of some lines in hexadecimal, one after the other, by which `changed_lines` compares them."""
    return b"".join([hash_digest(line) for line in lines]).hex()


def changed_lines(before: str, after: str) -> list[int] | None:
    """The numbers of the lines of a piece that are not what they were; None where lines were added or removed.

    >>> before, after = hash_lines([b"a", b"b"]), hash_lines([b"a", b"c"])
    >>> changed_lines(before, after), changed_lines(before, after[:HASH_CHARACTERS])
    ([1], None)

    Args:
      before, after: from `hash_lines`.
    """
    if len(before) != len(after):
        return None
    begins = range(0, len(after), HASH_CHARACTERS)
    return [
        number
        for number, at in enumerate(begins)
        if before[at : at + HASH_CHARACTERS] != after[at : at + HASH_CHARACTERS]
    ]


def cache_file(store: Path | str, step: str, made_by: dict[str, Any]) -> Path:
    """The file of a step's cache.

    Args:
      made_by: the settings and revisions that decide what becomes of a line.
    """
    return open_store(store).local_path() / LINES / f"{step}-{hash_value(made_by)}"


def _checksum_of(file: IO[bytes], size: int) -> int:
    """The CRC-32C of the first bytes of a file."""
    checksum = 0
    file.seek(0)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        checksum = google_crc32c.extend(checksum, chunk)
        size -= len(chunk)
    return checksum


def _encode_checksum(checksum: int) -> bytes:
    return b"%08x\n" % checksum

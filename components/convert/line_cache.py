"""What the last conversion made of each line of its manifest: a line that comes again is taken over, not made again.

  <store>/lines/<hash of the settings>    of the last conversion with these settings; replaced as a whole

The same line, with the same settings, becomes the same line of the output. So beside a head that says of which manifest
this is, and where the output lies, there is for each line: its digest, the digest of the utterance, its WAV, and
where in the output its own line stands. The file holds nothing that counts: what is damaged or leads nowhere is passed
over, and then each line is made anew. What was found whole is read to the end from the files that were open then: a
purge, or a run that makes that output again, puts others in their places.
"""

import contextlib
import functools
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple

from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE
from voxline.errors import WorkError
from voxline.store.bucket_cache import local_path
from voxline.store.files import atomic_write, remove_unfinished
from voxline.store.hashing import DIGEST_BYTES, HASH_CHARACTERS, DigestMap, hash_bytes, hash_file

IN_REJECTS, HAS_WAV, NEEDS_SOURCE = 1, 2, 4
"""Where a line went; whether it holds as long as its WAV is whole; whether nobody has listened to it, so that the
recording must be there."""

NO_WAV = bytes(DIGEST_BYTES)
_MAGIC = b"voxline lines 2\n"
_HEAD_BYTES = 1024
_ENTRY = struct.Struct("<16s16s16s16sQQIB")
_BLOCK = 512
"""Entries that are read and written at a time."""


class CachedLine(NamedTuple):
    """A line that was converted.

    Attributes:
      line: its digest, as it stands in the manifest.
      utterance: the digest of what it tells, and
      converted: of what became of it; of a reject, of nothing.
      wav: the digest that names the WAV.
      samples: of the WAV.
      offset, length: bytes, in the manifest or in the rejects.
      kind: IN_REJECTS, HAS_WAV, NEEDS_SOURCE.
    """

    line: bytes
    utterance: bytes
    converted: bytes
    wav: bytes
    samples: int
    offset: int
    length: int
    kind: int


_cached_line: Callable[[tuple[Any, ...]], CachedLine] = functools.partial(tuple.__new__, CachedLine)
"""As `CachedLine._make`, which takes twice as long."""


class LineCache:
    """The last conversion with some settings, as far as what it made is still there.

    Attributes:
      incoming: the hash of the manifest's file, empty where there was no such conversion, or not all of its lines
        can be taken over.
      fingerprint: of its utterances.
      folder: of the output.
      count: lines that can be taken over.
    """

    def __init__(self, store: Path | str, named: str) -> None:
        self.file = local_path(store) / "lines" / named
        self._store = local_path(store)
        self.incoming, self.fingerprint, self.folder, self.count = "", "", Path(), 0
        self._body: IO[bytes] | None = None
        self._outputs: list[BufferedReader] = []
        self._outputs_at = [0, 0]
        self._files = contextlib.ExitStack()
        self._next, self._first, self._block = 0, -1, b""
        self._last = (-1, CachedLine(NO_WAV, NO_WAV, NO_WAV, NO_WAV, 0, 0, 0, 0))
        self._digests: DigestMap | None = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), contextlib.ExitStack() as files:
            self._open(files)
            self._files = files.pop_all()  # stay open, since another run may replace them

    def __enter__(self) -> "LineCache":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def check(self) -> None:
        """Sees that nobody was purged since: what is open here may tell of them, and what it leads to may be gone.

        Raises:
          WorkError: somebody was.
        """
        if self.count and not self.file.exists():  # another run replaces it, and does not remove it
            raise WorkError(f"{self.file}: removed while it was read, as by a purge; run this again")

    def find(self, digest: bytes) -> int:
        """The number of the entry of a line; -1: there is none. Lines mostly come in the order that they came in."""
        number = self._next
        if number >= self.count or self.entry(number)[0] != digest:
            if (found := self._index().find(digest)) is None:
                return -1
            number = int.from_bytes(found, "little")
        self._next = number + 1
        return number

    def entry(self, number: int) -> CachedLine:
        if number == self._last[0]:
            return self._last[1]
        first = number - number % _BLOCK
        if first != self._first:
            assert self._body is not None  # noqa: S101 -- there are entries, so it is open
            self._body.seek(_HEAD_BYTES + first * _ENTRY.size)
            self._first, self._block = first, self._body.read(_BLOCK * _ENTRY.size)
        entry = _cached_line(_ENTRY.unpack_from(self._block, (number - first) * _ENTRY.size))
        self._last = number, entry
        return entry

    def line(self, entry: CachedLine) -> bytes:
        """What was written of a line: of the manifest, or of the rejects."""
        which = entry.kind & IN_REJECTS
        if self._outputs_at[which] != entry.offset:
            self._outputs[which].seek(entry.offset)
        self._outputs_at[which] = entry.offset + entry.length
        return self._outputs[which].read(entry.length)

    def _open(self, files: contextlib.ExitStack) -> None:
        """Opens what there is.

        Raises:
          OSError, ValueError, KeyError, TypeError: it is not there, or it is damaged, or what it leads to is.
        """
        body: BufferedReader = files.enter_context(open(self.file, "rb"))  # noqa: SIM115 -- for as long as `files`
        told = _read_head(body.read(_HEAD_BYTES))
        folder = self._store / told["folder"]
        if told["body"] != _hash_of(body) or told["way"] != os.path.relpath(self._store, folder):
            raise ValueError("damaged, or of another store")
        outputs = [files.enter_context(open(folder / name, "rb")) for name in (MANIFEST_FILE, REJECTS_FILE)]  # noqa: SIM115
        if [_hash_of(output) for output in outputs] != [told[MANIFEST_FILE], told[REJECTS_FILE]]:
            raise ValueError("the output is another one")
        for output in outputs:
            output.seek(0)
        self._body, self._outputs, self.folder, self.count = body, outputs, folder, told["count"]
        if told["count"] == told["of"]:
            self.incoming, self.fingerprint = told["incoming"], told["fingerprint"]

    def _index(self) -> DigestMap:
        if self._digests is None:
            self._digests = DigestMap(4)
            for number in range(self.count):
                self._digests.put(self.entry(number).line, number.to_bytes(4, "little"))
        return self._digests


class CacheWriter:
    """Entries that are being written, for the next conversion."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._count, self._waiting = 0, bytearray()
        file.write(bytes(_HEAD_BYTES))

    def add(self, entry: tuple[Any, ...]) -> None:
        """Adds an `CachedLine`."""
        self._waiting += _ENTRY.pack(*entry)
        self._count += 1
        if len(self._waiting) >= _BLOCK * _ENTRY.size:
            self._write()

    def _write(self) -> None:
        self._file.write(self._waiting)
        self._hash.update(self._waiting)
        self._waiting.clear()

    def finish(self, store: Path | str, folder: Path, **told: Any) -> None:
        """Writes the head.

        Args:
          folder: of the output.
          told: incoming, fingerprint, and `of`: how many lines there were.
        """
        self._write()
        root = local_path(store)
        head = {
            **told,
            "folder": folder.relative_to(root).as_posix(),
            "way": os.path.relpath(root, folder),
            "count": self._count,
            "body": self._hash.hexdigest(),
            **{name: hash_file(folder / name) for name in (MANIFEST_FILE, REJECTS_FILE)},
        }
        text = json.dumps(head, ensure_ascii=False).encode()
        self._file.seek(0)
        self._file.write((_MAGIC + hash_bytes(text).encode() + text).ljust(_HEAD_BYTES))


@contextlib.contextmanager
def open_cache_writer(earlier: LineCache) -> Iterator[CacheWriter]:
    """Opens what the next conversion will find in the place of this one's; it appears when the block ends well."""
    remove_unfinished(earlier.file.parent)
    with atomic_write(earlier.file, durable=False) as file:  # its head says whether its body is whole
        yield CacheWriter(file)


def _read_head(head: bytes) -> dict[str, Any]:
    """What a head says.

    Raises:
      ValueError: it is damaged, or of another version.
    """
    at = len(_MAGIC) + HASH_CHARACTERS
    text = head[at:].rstrip(b" ")
    if head[:at] != _MAGIC + hash_bytes(text).encode():
        raise ValueError("damaged, or of another version")
    told: dict[str, Any] = json.loads(text)
    return told


def _hash_of(body: BufferedReader) -> str:
    return hashlib.file_digest(body, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()

"""Hashes, and compact collections of them: a set of strings takes eight times the memory of their digests."""

import functools
import hashlib
import json
import struct
import time
from pathlib import Path
from typing import Any

HASH_CHARACTERS = 32
"""Length of every hash in a name: 128 bits of BLAKE2b, in hexadecimal."""

DIGEST_BYTES = HASH_CHARACTERS // 2


def hash_value(value: Any) -> str:
    """The hash of a JSON value, whatever the order of its keys."""
    return hash_bytes(canonical_json(value).encode())


canonical_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
"""The text of a JSON value that is hashed."""


def hash_bytes(data: bytes | memoryview) -> str:
    return hash_digest(data).hex()


def hash_digest(data: bytes | memoryview) -> bytes:
    """The hash as 16 bytes, for code that keeps many."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def hash_file(path: Path | str) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=HASH_CHARACTERS // 2))
    return digest.hexdigest()


_SETTLED_SECONDS = 0.05
"""A file whose times are older has others after another write: Linux counts them in steps of up to 0.01 s."""


def hash_unchanged_file(path: Path) -> str:
    """Like `hash_file`, without another look at a file whose inode, size and times are those of the last time.

    For files that appear by a rename: a step compares its input with what the step before wrote, and then names it.
    """
    status = path.stat()
    if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED_SECONDS:
        return hash_file(path)
    return _hash_state(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@functools.lru_cache(maxsize=64)
def _hash_state(path: Path, *_state: int) -> str:
    return hash_file(path)


_BUCKETS = 4096
_DIGESTS = struct.Struct(f"{DIGEST_BYTES}s")
"""One of some that follow each other."""


class DigestMap:
    """Maps digests to values of a fixed number of bytes, in little more memory than both take."""

    def __init__(self, value_bytes: int) -> None:
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._width = DIGEST_BYTES + value_bytes

    def put(self, digest: bytes, value: bytes = b"") -> None:
        """Adds one; a later value of the same digest wins."""
        # The first twelve bits choose one of 4,096 buckets: each is short enough to be searched from its end.
        self._buckets[digest[0] << 4 | digest[1] >> 4] += digest + value

    def find(self, digest: bytes) -> bytes | None:
        """The value of a digest.

        >>> found = DigestMap(1)
        >>> found.put(bytes(16), b"1")
        >>> found.put(bytes(16), b"2")
        >>> found.find(bytes(16)), found.find(bytes(15) + b"!")
        (b'2', None)
        """
        bucket = self._buckets[digest[0] << 4 | digest[1] >> 4]
        # A match that is not at the beginning of an entry lies across two of them.
        at = bucket.rfind(digest)
        while at >= 0 and at % self._width:  # across the end of one and the beginning of the next
            at = bucket.rfind(digest, 0, at + DIGEST_BYTES - 1)
        return bytes(bucket[at + DIGEST_BYTES : at + self._width]) if at >= 0 else None


class Fingerprint:
    """The hash of a set, from the digests of its members in any order; it keeps 16 bytes of each.

    >>> from voxline.store.files import hash_value
    >>> found = Fingerprint()
    >>> for value in ("b", "a"):
    ...     found.add(bytes.fromhex(hash_value(value)))
    >>> found.name() == hash_value(sorted(hash_value(value) for value in ("a", "b")))
    True
    """

    def __init__(self) -> None:
        self._by_first = [bytearray() for _ in range(256)]  # so that few at a time are sorted

    def add(self, digest: bytes) -> None:
        self._by_first[digest[0]] += digest

    def add_all(self, digests: bytes | bytearray) -> None:
        """Adds digests that follow each other."""
        by_first = self._by_first
        for (digest,) in _DIGESTS.iter_unpack(digests):
            by_first[digest[0]] += digest

    def name(self) -> str:
        """The hash of the sorted list of the digests in hexadecimal, as JSON."""
        whole = hashlib.blake2b(digest_size=DIGEST_BYTES)

        # The digests as a JSON list, piece by piece: never all of them in one text.
        between = b'["'
        for joined in filter(None, self._by_first):
            digests = b"".join(sorted([digest for (digest,) in _DIGESTS.iter_unpack(joined)]))
            whole.update(between + digests.hex(",", DIGEST_BYTES).replace(",", '","').encode())
            between = b'","'
        whole.update(b"[]" if between == b'["' else b'"]')
        return whole.hexdigest()

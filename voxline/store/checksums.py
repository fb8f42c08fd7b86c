"""Checksums of files and bytes, as the storages state them."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_PARTS_MIB = (5, 6, 7, 8, 10, 12, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
"""Sizes of parts that S3 clients use."""


def has_checksum(source: Path | bytes, checksum: str, *, part: int = 0) -> bool:
    """Returns whether a file or bytes have a checksum in the form of `ObjectInfo.checksum`.

    Args:
      part: bytes of a part, as tried besides the usual sizes.

    >>> has_checksum(b"123456789", "crc32c:4waSgw=="), has_checksum(b"123456789", "")
    (True, False)
    """
    algorithm, _, value = checksum.partition(":")
    if algorithm == "crc32c":
        return crc32c(source) == value
    if algorithm == "md5":
        return _md5(source) == value

    # The ETag of parts says how many there were, not how large: the usual sizes are tried.
    if algorithm == "md5-parts":
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        count = int(value.partition("-")[2])
        sizes = {
            part_size
            for part_size in (part, *(mib << 20 for mib in _PARTS_MIB))
            if part_size and -(-size // part_size) == count
        }
        return any(md5_of_parts(source, part_size) == value for part_size in sorted(sizes))
    return False


def crc32c(source: Path | bytes) -> str:
    """The CRC-32C of a file or bytes, in base64.

    >>> crc32c(b"123456789")
    '4waSgw=='
    """
    import google_crc32c  # not at the top: steps that touch no bucket do not need it

    checksum: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    for chunk in _chunks(source, _CHUNK):
        checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()


def md5_of_parts(source: Path | bytes, part: int) -> str:
    """Computes the ETag that S3 gives to an object that was uploaded in parts of this size."""
    digests = [hashlib.md5(chunk, usedforsecurity=False).digest() for chunk in _chunks(source, part)]
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}"


def _md5(source: Path | bytes) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in _chunks(source, _CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(source: Path | bytes, size: int) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield from (source[start : start + size] for start in range(0, len(source), size))
        return
    with open(source, "rb") as file:
        while chunk := file.read(size):
            yield chunk

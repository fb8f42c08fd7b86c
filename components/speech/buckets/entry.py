"""An object as a bucket lists it, and whether a file holds its bytes."""

import base64
import dataclasses
import datetime
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An object.

    Attributes:
      name: relative to the bucket's prefix, with /.
      size: bytes.
      crc32c: of its bytes, in base64 as Google Cloud Storage writes it.
      generation: a number that no other content of this name has, higher the later.
      updated: when it was written.
      md5: of its bytes, in base64; empty where the storage has none (of objects that were composed of others).
    """

    name: str
    size: int
    crc32c: str
    generation: int
    updated: datetime.datetime
    md5: str = ""


def crc32c_of(data: bytes) -> str:
    """The checksum of bytes.

    >>> crc32c_of(b"123456789")
    '4waSgw=='
    """
    checksum = _checksum()
    checksum.update(data)
    return base64.b64encode(checksum.digest()).decode()


def crc32c_of_file(path: Path) -> str:
    checksum = _checksum()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()


def is_same(path: Path, entry: Entry) -> bool:
    """Whether a local file holds the object's bytes."""
    return path.is_file() and path.stat().st_size == entry.size and crc32c_of_file(path) == entry.crc32c


def _checksum() -> Any:
    import google_crc32c  # not at the top: who touches no bucket needs no library of one

    return google_crc32c.Checksum()  # type: ignore[no-untyped-call]

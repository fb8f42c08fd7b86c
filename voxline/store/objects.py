"""Where an object lies: `gs://bucket/prefix`, and the names below it that a file may have."""

import base64
import dataclasses
import datetime
import re
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.errors import SettingsError, WorkError

SCHEME = "gs://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def is_remote(place: Path | str) -> bool:
    """Whether a place lies in a bucket.

    >>> is_remote("gs://speech/corpus"), is_remote("/data/corpus")
    (True, False)
    """
    return str(place).startswith(SCHEME)


def split_uri(uri: str) -> tuple[str, str]:
    """The bucket and the prefix, without slashes at its ends.

    >>> split_uri("gs://speech/corpora/fsdd/")
    ('speech', 'corpora/fsdd')

    Raises:
      SettingsError: it is no such place.
    """
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    if not is_remote(uri) or not _BUCKET.fullmatch(bucket):
        raise SettingsError(f"{uri!r} is no place in a bucket; accepted is gs://BUCKET or gs://BUCKET/FOLDER")
    prefix = prefix.strip("/")
    if fault := invalid_name_reason(prefix) if prefix else "":
        raise SettingsError(f"{uri!r} {fault}; accepted is gs://BUCKET or gs://BUCKET/FOLDER")
    return bucket, prefix


def safe_join(folder: Path, name: str, source: str) -> Path:
    """The file that an object of this name is brought to.

    Raises:
      WorkError: it would not lie in the folder, or be no file.
    """
    if fault := invalid_name_reason(name):
        raise WorkError(f"{source}: the object {name!r} {fault}; rename or remove that object, nothing was brought")
    return folder / PurePosixPath(name)


def invalid_name_reason(name: str) -> str:
    """What keeps an object's name from being a file's; empty: nothing.

    >>> invalid_name_reason("train/a.wav")
    ''
    >>> invalid_name_reason("../a.wav")
    'would leave its folder: a name must be relative, with single / and without . and ..'
    """
    if not name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        return "would leave its folder: a name must be relative, with single / and without . and .."
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "holds a control character"
    if any(len(part.encode()) > 255 for part in name.split("/")):
        return "has a part of more than 255 bytes"
    return ""


_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectInfo:
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


def crc32c(data: bytes) -> str:
    """The checksum of bytes.

    >>> crc32c(b"123456789")
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


def has_same_bytes(path: Path, entry: ObjectInfo) -> bool:
    """Whether a local file holds the object's bytes."""
    return path.is_file() and path.stat().st_size == entry.size and crc32c_of_file(path) == entry.crc32c


def _checksum() -> Any:
    import google_crc32c  # not at the top: who touches no bucket needs no library of one

    return google_crc32c.Checksum()  # type: ignore[no-untyped-call]

"""Where an object lies: `gs://bucket/prefix`, and the names below it that a file may have."""

import re
from pathlib import Path, PurePosixPath

from components.speech.errors import SettingsError, WorkError

SCHEME = "gs://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def is_remote(place: Path | str) -> bool:
    """Whether a place lies in a bucket.

    >>> is_remote("gs://speech/corpus"), is_remote("/data/corpus")
    (True, False)
    """
    return str(place).startswith(SCHEME)


def parted(uri: str) -> tuple[str, str]:
    """The bucket and the prefix, without slashes at its ends.

    >>> parted("gs://speech/corpora/fsdd/")
    ('speech', 'corpora/fsdd')

    Raises:
      SettingsError: it is no such place.
    """
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    if not is_remote(uri) or not _BUCKET.fullmatch(bucket):
        raise SettingsError(f"{uri!r} is no place in a bucket; accepted is gs://BUCKET or gs://BUCKET/FOLDER")
    prefix = prefix.strip("/")
    if fault := fault_of(prefix) if prefix else "":
        raise SettingsError(f"{uri!r} {fault}; accepted is gs://BUCKET or gs://BUCKET/FOLDER")
    return bucket, prefix


def inside(folder: Path, name: str, source: str) -> Path:
    """The file that an object of this name is brought to.

    Raises:
      WorkError: it would not lie in the folder, or be no file.
    """
    if fault := fault_of(name):
        raise WorkError(f"{source}: the object {name!r} {fault}; rename or remove that object, nothing was brought")
    return folder / PurePosixPath(name)


def fault_of(name: str) -> str:
    """What keeps an object's name from being a file's; empty: nothing.

    >>> fault_of("train/a.wav")
    ''
    >>> fault_of("../a.wav")
    'would leave its folder: a name must be relative, with single / and without . and ..'
    """
    if not name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        return "would leave its folder: a name must be relative, with single / and without . and .."
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "holds a control character"
    if any(len(part.encode()) > 255 for part in name.split("/")):
        return "has a part of more than 255 bytes"
    return ""

"""URIs of storages: which schemes there are, and which names a file can have.

Every setting and argument that holds a location passes through `scheme_of`, so an unknown scheme is refused by name
and never becomes a folder called `s3:`.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Annotated

import pydantic

from voxline.errors import SettingsError, WorkError

SCHEMES = {
    "gs": "voxline.store.gcs:GcsStore",
    "s3": "voxline.store.s3:S3Store",
}
"""Where the class of each scheme is. A path without a scheme is a folder: `LocalStore`."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/+")  # one letter is a drive of Windows
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def register_scheme(scheme: str, implementation: str) -> None:
    """Adds a storage: `register_scheme("az", "my_package.azure:AzureStore")`."""
    SCHEMES[scheme] = implementation


def scheme_of(uri: Path | str) -> str:
    """The scheme of a URI; empty for a path. Every setting that holds a location passes through here.

    >>> scheme_of("gs://speech/corpus"), scheme_of("/data/a:b"), scheme_of("C:/data"), scheme_of("a:b/c")
    ('gs', '', '', '')

    Raises:
      SettingsError: the scheme is not registered, or only one / follows it, as in a `Path` made of a URI.
    """
    text = str(uri)
    if not (match := _SCHEME.match(text)):
        return ""

    # `Path("gs://a")` becomes "gs:/a", which would be a folder named "gs:".
    if match[1] not in SCHEMES or not text.startswith(f"{match[1]}://"):
        accepted = " and ".join(f"{scheme}://bucket/folder" for scheme in SCHEMES)
        raise SettingsError(
            f"{text!r}: {match[0]} is not supported; accepted are {accepted}, and paths of this machine (write "
            f"./{match[1]}: for a folder of that name)"
        )
    return match[1]


def is_remote(uri: Path | str) -> bool:
    """Returns whether a URI is in a bucket.

    >>> is_remote("gs://speech/corpus"), is_remote("s3://speech/corpus"), is_remote("/data/corpus")
    (True, True, False)

    Raises:
      SettingsError: Voxline does not know the scheme.
    """
    return bool(scheme_of(uri))


def absolute_uri(uri: Path | str) -> str:
    """A URI as it is, or the absolute path of a folder or file of this machine; without a slash at the end.

    >>> absolute_uri("gs://speech/corpus/"), absolute_uri("/data/store/../corpus")
    ('gs://speech/corpus', '/data/corpus')
    """
    return str(uri).rstrip("/") if is_remote(uri) else os.path.abspath(uri)


def check_local(path: Path | str) -> None:
    """Checks that a path is one of this machine, where no bucket can be read or written.

    Raises:
      SettingsError: it is a URI.
    """
    if match := _SCHEME.match(str(path)):
        raise SettingsError(
            f"{str(path)!r} is a URI; a path of this machine is accepted here (write ./{match[1]}: for a folder of "
            "that name)"
        )


def _checked_location(location: str) -> str:
    try:
        scheme_of(location)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    return location


Location = Annotated[str, pydantic.AfterValidator(_checked_location)]
"""The type of a setting that holds a path or a URI: its scheme is checked when the config is read."""


def split_uri(uri: str) -> tuple[str, str]:
    """The bucket and the prefix, without slashes at its ends.

    >>> split_uri("gs://speech/corpora/fsdd/")
    ('speech', 'corpora/fsdd')

    Raises:
      SettingsError: the URI is malformed, or its scheme is not known.
    """
    scheme = scheme_of(uri)

    bucket, _, prefix = uri.removeprefix(f"{scheme}://").partition("/")
    accepted = f"{scheme or 'gs'}://bucket or {scheme or 'gs'}://bucket/folder"
    if not scheme or not _BUCKET.fullmatch(bucket):
        fault = "" if not scheme else f": {bucket!r} is not a bucket's name (lower-case letters, digits, -, _ and .)"
        raise SettingsError(f"{uri!r} is not the URI of a bucket{fault}; accepted is {accepted}")
    prefix = prefix.strip("/")
    if reason := invalid_name_reason(prefix) if prefix else "":
        raise SettingsError(f"{uri!r} {reason}; accepted is {accepted}")
    return bucket, prefix


def safe_join(folder: Path, name: str, source: str) -> Path:
    """The file of an object in a folder.

    Raises:
      WorkError: it would be outside the folder, or its name cannot be a file's.
    """
    if reason := invalid_name_reason(name):
        raise WorkError(f"{source}: the object {name!r} {reason}; rename or remove that object, nothing was downloaded")
    return folder / PurePosixPath(name)


def invalid_name_reason(name: str) -> str:
    """Explains why a file cannot have an object's name; empty where it can.

    >>> invalid_name_reason("train/a.wav")
    ''
    >>> invalid_name_reason("../a.wav")
    'would leave its folder: a name must be relative, with single / and without . and ..'
    """
    if not name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        return "would leave its folder: a name must be relative, with single / and without . and .."
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "holds a control character"
    try:
        parts = [part.encode() for part in name.split("/")]
    except UnicodeEncodeError:  # of a disk, where a name is any bytes
        return "is not UTF-8"
    # The limit of common file systems.
    if any(len(part) > 255 for part in parts):
        return "has a part of more than 255 bytes"
    return ""

"""Object stores: folders of named objects, on a disk or in a bucket, behind one interface.

`open_store(uri)` opens one. A scheme is one line of `SCHEMES` and one class; see docs/extend/storage.md.
"""

import abc
import base64
import dataclasses
import datetime
import functools
import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Self

from voxline.errors import PreconditionError, SettingsError, TransientError, WorkError
from voxline.store.files import is_unfinished

SCHEMES = {
    "gs": "voxline.store.gcs:GcsStore",
    "s3": "voxline.store.s3:S3Store",
}
"""Where the class of each scheme is. A path without a scheme is a folder: `LocalStore`."""

CLAIM = "claim.json"
"""Reserves the folder that it is in."""

ABSENT = ""
"""As `if_version`: there is no object of this name."""

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
    if not (found := _SCHEME.match(text)):
        return ""
    if found[1] not in SCHEMES or not text.startswith(f"{found[1]}://"):
        accepted = " and ".join(f"{scheme}://BUCKET/FOLDER" for scheme in SCHEMES)
        raise SettingsError(
            f"{text!r}: {found[0]} is not supported; accepted are {accepted}, and paths of this machine (write "
            f"./{found[1]}: for a folder of that name)"
        )
    return found[1]


def is_remote(uri: Path | str) -> bool:
    """Whether a URI is in a bucket.

    >>> is_remote("gs://speech/corpus"), is_remote("s3://speech/corpus"), is_remote("/data/corpus")
    (True, True, False)

    Raises:
      SettingsError: Voxline does not know the scheme.
    """
    return bool(scheme_of(uri))


def open_store(uri: Path | str) -> "ObjectStore":
    """Opens a folder, or a folder of a bucket. No request is made, and no folder.

    Raises:
      SettingsError: the URI is malformed, or its scheme is not known.
    """
    module, _, name = SCHEMES.get(scheme_of(uri), "voxline.store.local:LocalStore").partition(":")
    store: ObjectStore = getattr(importlib.import_module(module), name)(uri)
    return store


def split_uri(uri: str) -> tuple[str, str]:
    """The bucket and the prefix, without slashes at its ends.

    >>> split_uri("gs://speech/corpora/fsdd/")
    ('speech', 'corpora/fsdd')

    Raises:
      SettingsError: the URI is malformed, or its scheme is not known.
    """
    scheme = scheme_of(uri)
    bucket, _, prefix = uri.removeprefix(f"{scheme}://").partition("/")
    accepted = f"{scheme or 'gs'}://BUCKET or {scheme or 'gs'}://BUCKET/FOLDER"
    if not scheme or not _BUCKET.fullmatch(bucket):
        raise SettingsError(f"{uri!r} is not the URI of a bucket; accepted is {accepted}")
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
    """Why a file cannot have an object's name; empty where it can.

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
    if any(len(part) > 255 for part in parts):
        return "has a part of more than 255 bytes"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object, as it was when the store was asked.

    Attributes:
      name: relative to the store, with /.
      size: bytes.
      version: a token of this content, for `if_version`. On S3 objects of equal bytes have equal tokens.
      checksum: of its bytes: `crc32c:…` in base64, `md5:…` in hexadecimal, or `md5-parts:…` of an object that was
        uploaded in parts; empty where the store knows none.
      updated: when it was written, by the store's clock.
      md5: identifies its content, where the store has such a digest; else empty.
    """

    name: str
    size: int
    version: str
    checksum: str
    updated: datetime.datetime
    md5: str = ""


@dataclasses.dataclass(frozen=True)
class RetentionPolicy:
    """Whether a bucket keeps what is replaced or deleted.

    Attributes:
      versioning: it keeps older versions, for ever or as its lifecycle rules say.
      soft_delete_seconds: how long it keeps deleted objects besides; 0: not at all.
    """

    versioning: bool
    soft_delete_seconds: int


class ObjectStore(abc.ABC):
    """A folder of objects. Names are relative to it, with /.

    A method that asks a bucket retries with back-off up to a deadline. Then it raises TransientError; WorkError where a
    person must act (permission, credentials, no such bucket); PreconditionError where `if_version` did not hold.

    Attributes:
      uri: of the folder, without a / at its end.
      is_remote: whether other machines may use it, with copies of their own.
      clock_resolution: s; `updated` may be that much earlier than the write.
    """

    uri: str
    clock_resolution: ClassVar[float] = 0.0
    is_remote: ClassVar[bool] = True

    def __truediv__(self, folder: str) -> Self:
        """The store of a folder in this one."""
        return type(self)(f"{self.uri}/{folder}")  # type: ignore[call-arg]

    def uri_of(self, name: str) -> str:
        """The whole URI of an object."""
        return f"{self.uri}/{name}"

    # What each storage implements.

    @abc.abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, in the order of their names."""

    @abc.abstractmethod
    def list_folders(self, prefix: str = "") -> Sequence[str]:
        """The names, up to the next /, of the folders below a prefix that is empty or ends in /; sorted."""

    @abc.abstractmethod
    def stat(self, name: str) -> ObjectInfo | None:
        """The object as it is now; None where there is none."""

    @abc.abstractmethod
    def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        """Bytes from `start` up to `end` of exactly this version.

        Raises:
          PreconditionError: the object was replaced or deleted.
        """

    @abc.abstractmethod
    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        """Writes an object, whole or not at all.

        Args:
          if_version: the version that it replaces, ABSENT: none, None: any. What was written may be replaced before we
            learn that it was; this raises PreconditionError then, so code that appends first checks whether its line
            is there.

        Raises:
          PreconditionError: it has another version.
        """

    @abc.abstractmethod
    def upload_file(self, file: Path, name: str, *, if_version: str | None = None) -> ObjectInfo:
        """Writes an object from a file of any size. As `write`."""

    @abc.abstractmethod
    def delete(self, name: str, *, if_version: str | None = None) -> None:
        """Deletes an object. Deleting one that does not exist is no error.

        Raises:
          PreconditionError: it has another version.
        """

    @abc.abstractmethod
    def copy(self, name: str, target: "ObjectStore", *, if_version: str | None = None) -> ObjectInfo:
        """Copies an object, under its name, to another folder of the same storage.

        Raises:
          PreconditionError: the target has another version.
          FileNotFoundError: the object does not exist.
        """

    # What a storage overrides where it can do more.

    def retention_policy(self) -> RetentionPolicy | None:
        """What the bucket does with replaced and deleted objects; None where we may not ask."""
        return RetentionPolicy(versioning=False, soft_delete_seconds=0)

    def object_versions(self) -> Iterator[ObjectInfo]:
        """Versions below this folder that were replaced or deleted and are kept nevertheless."""
        return iter(())

    def delete_version(self, info: ObjectInfo) -> None:
        """Deletes exactly this version for good. Deleting one that does not exist is no error."""
        raise NotImplementedError

    def abort_uploads(self) -> int:
        """Deletes what killed uploads left below this folder, where the storage keeps that; returns of how many.

        An upload that is under way starts over.
        """
        return 0

    def held_permissions(self, needed: Sequence[str]) -> set[str]:
        """Those of the storage's permissions that we have.

        Raises:
          Exception: the storage does not say.
        """
        raise NotImplementedError

    def matches(self, source: Path | bytes, info: ObjectInfo) -> bool:
        """Whether a file or bytes are the object's."""
        size = len(source) if isinstance(source, bytes) else source.stat().st_size if source.is_file() else -1
        return size == info.size and has_checksum(source, info.checksum)

    def is_intact(self, source: Path | bytes, info: ObjectInfo) -> bool:
        """Whether what was just downloaded is the object. Differs from `matches` where a store knows no checksum."""
        return self.matches(source, info)

    # What follows from that.

    def exists(self) -> bool:
        """Whether the folder holds any object; of a disk: whether it is there."""
        return next(iter(self.list()), None) is not None

    def read(self, name: str) -> bytes:
        """The object's bytes.

        Raises:
          FileNotFoundError: the object does not exist.
        """
        return self.read_with_info(name)[0]

    def read_with_info(self, name: str) -> tuple[bytes, ObjectInfo]:
        """The object's bytes, and the object that has them.

        Raises:
          FileNotFoundError: the object does not exist.
        """
        while (info := self.stat(name)) is not None:
            try:
                return self.read_version(info), info
            except PreconditionError:
                continue  # replaced between the two requests
        raise FileNotFoundError(self.uri_of(name))

    def read_version(self, info: ObjectInfo) -> bytes:
        """The bytes of exactly this version, checked by its checksum.

        Raises:
          PreconditionError: the object was replaced or deleted.
        """
        for _ in range(2):
            data = self.read_range(info, 0, info.size) if info.size else b""
            if self.is_intact(data, info):
                return data
        raise self.damaged(info)

    def damaged(self, info: ObjectInfo) -> TransientError:
        return TransientError(
            f"{self.uri_of(info.name)}: arrived damaged twice ({info.checksum.partition(':')[0]} "
            f"{info.checksum.partition(':')[2]} was expected); nothing of it was kept, start again"
        )

    def delete_if_unchanged(self, info: ObjectInfo) -> None:
        """Deletes exactly this version, also where the answer to an earlier request was lost.

        Raises:
          PreconditionError: it is another one by now.
        """
        try:
            self.delete(info.name, if_version=info.version)
        except PreconditionError:
            if self.stat(info.name) is not None:
                raise

    def delete_folder(self, name: str, first: Sequence[str] = ()) -> None:
        """Deletes all objects of a folder.

        Args:
          first: objects that go first, so that a part of the folder is never taken for all of it.
        """
        folder = self / name
        for marker in first:
            folder.delete(marker)
        folder.map(folder.delete, [info.name for info in folder.list()])

    def download(
        self,
        objects: Iterable[str | ObjectInfo],
        folder: Path | str,
        *,
        name_of: Callable[[ObjectInfo], str] | None = None,
    ) -> Sequence[ObjectInfo]:
        """Downloads objects into a folder, under their names or those that `name_of` gives. See `transfer.download`."""
        from voxline.store import transfer

        return transfer.download(self, objects, Path(folder), name_of)

    def upload(self, folder: Path | str, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Uploads files of a folder under their names. See `transfer.upload`."""
        from voxline.store import transfer

        return transfer.upload(self, Path(folder), names, absent_only=absent_only)

    def upload_folder(self, name: str, last: Sequence[str] = ()) -> None:
        """Uploads the folder `local_path(name)`; of a disk: waits until its files have reached it.

        Args:
          last: files that are uploaded last, in this order.
        """
        root = self.local_path(name)
        files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        (self / name).upload(root, [file for file in files if file not in last])
        for file in last:
            if file in files:
                (self / name).upload(root, [file])

    def local_path(self, name: str = "") -> Path:
        """The file or folder on this machine: its place in the bucket cache, or itself. Nothing is downloaded."""
        from voxline.store.bucket_cache import local_path

        return local_path(self.uri_of(name) if name else self.uri)

    def pull(self, objects: Iterable[str | ObjectInfo]) -> None:
        """Downloads objects to `local_path()`; files that hold those bytes already stay. A folder has them there.

        Raises:
          WorkError: one does not exist; then nothing was downloaded.
        """
        self.download(objects, self.local_path())

    def push(self, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Uploads files of `local_path()`. A folder has them there. Returns the objects as they are now.

        Args:
          absent_only: objects that exist stay, whatever they hold.
        """
        return self.upload(self.local_path(), names, absent_only=absent_only)

    def localize(self, name: str) -> Path:
        """A folder on this machine with exactly the objects below `name`: an updated copy, or the folder itself."""
        folder, store = self.local_path(name), self / name
        objects = list(store.list())
        store.download(objects, folder)
        current = {folder / info.name for info in objects}
        for path in folder.rglob("*"):
            if path.is_file() and path not in current and not is_unfinished(path):
                path.unlink(missing_ok=True)
        return folder

    def lock(self, name: str, waiting: str) -> AbstractContextManager[None]:
        """Holds the lock of this name against other processes, and waits while another one holds it.

        Args:
          waiting: is printed where another one holds it.
        """
        from voxline.store.bucket_locks import exclusive_lease

        return exclusive_lease(self, name, waiting)

    def reserve(self, name: str) -> bool:
        """Whether a new folder of this name is ours: no other process gets it, also if we never fill it."""
        try:
            self.write(f"{name}/{CLAIM}", b"{}\n", if_version=ABSENT)
        except PreconditionError:
            return False
        return True

    def move_folder(self, source: str, target: str, last: Sequence[str] = ()) -> None:
        """Moves a folder to where none is. Two processes that do the same at once do not disturb each other.

        Args:
          last: objects that are written last, in this order: without them the folder does not count.

        Raises:
          WorkError: the target holds other bytes, or neither folder is whole.
        """
        from voxline.store import transfer

        transfer.move_folder(self, source, target, last)

    def map(self, function: Callable[[Any], Any], arguments: Iterable[Any]) -> Sequence[Any]:
        """The results of a function that makes requests, several at a time. The first error ends it."""
        from voxline.store import transfer

        return transfer.run_jobs(self, [functools.partial(function, argument) for argument in arguments])


_CHUNK = 1 << 20
_PARTS_MIB = (5, 6, 7, 8, 10, 12, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
"""Sizes of parts that S3 clients use."""


def has_checksum(source: Path | bytes, checksum: str, *, part: int = 0) -> bool:
    """Whether a file or bytes have a checksum in the form of `ObjectInfo.checksum`.

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
    if algorithm == "md5-parts":
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        count = int(value.partition("-")[2])
        sizes = {one for one in (part, *(mib << 20 for mib in _PARTS_MIB)) if one and -(-size // one) == count}
        return any(md5_of_parts(source, one) == value for one in sorted(sizes))
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
    """What S3 has as the ETag of an object that was uploaded in parts of this size."""
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

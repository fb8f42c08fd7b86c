"""What a storage is asked for: objects that are listed, read, written on a condition, copied and deleted."""

import abc
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

from voxline.errors import PreconditionError, TransientError
from voxline.store.checksums import has_checksum

ABSENT = ""
"""As `if_version`: there is no object of this name."""


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
    """The policy by which a bucket keeps replaced or deleted objects.

    Attributes:
      versioning: it keeps older versions, for ever or as its lifecycle rules say.
      soft_delete_seconds: how long it keeps deleted objects besides; 0: not at all.
    """

    versioning: bool
    soft_delete_seconds: int


class Storage(abc.ABC):
    """The operations on a folder of objects that each storage implements. Names are relative to it, with /.

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
    def copy(self, name: str, target: "Storage", *, if_version: str | None = None) -> ObjectInfo:
        """Copies an object, under its name, to another folder of the same storage.

        Raises:
          PreconditionError: the target has another version.
          FileNotFoundError: the object does not exist.
        """

    # What a storage overrides where it can do more.

    def retention_policy(self) -> RetentionPolicy | None:
        """Returns what the bucket does with replaced and deleted objects; None where we may not ask."""
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
        """Returns whether a file or bytes are the object's."""
        # Sizes first: a checksum of the whole file takes longer.
        size = len(source) if isinstance(source, bytes) else source.stat().st_size if source.is_file() else -1
        return size == info.size and has_checksum(source, info.checksum)

    def is_intact(self, source: Path | bytes, info: ObjectInfo) -> bool:
        """Returns whether a downloaded file is the object. Differs from `matches` where a store knows no checksum."""
        return self.matches(source, info)

    # What follows from that.

    def exists(self) -> bool:
        """Returns whether the folder holds any object; of a disk: whether it is there."""
        return next(iter(self.list()), None) is not None

    def read(self, name: str) -> bytes:
        """The object's bytes.

        Raises:
          FileNotFoundError: the object does not exist.
        """
        return self.read_with_version(name)[0]

    def read_with_version(self, name: str) -> tuple[bytes, str]:
        """The object's bytes, and the version that has them. A storage whose answer has both is asked once.

        Raises:
          FileNotFoundError: the object does not exist.
        """
        while (info := self.stat(name)) is not None:
            try:
                return self.read_version(info), info.version
            except PreconditionError:
                continue  # replaced between the two requests
        raise FileNotFoundError(self.uri_of(name))

    def read_version(self, info: ObjectInfo) -> bytes:
        """The bytes of exactly this version, checked by its checksum.

        Raises:
          PreconditionError: the object was replaced or deleted.
        """
        # Twice: bytes that were damaged in transit arrive whole the second time.
        for _ in range(2):
            data = self.read_range(info, 0, info.size) if info.size else b""
            if self.is_intact(data, info):
                return data
        raise self.damaged(info.name, info.checksum)

    def damaged(self, name: str, checksum: str) -> TransientError:
        kind, _, digest = checksum.partition(":")
        return TransientError(
            f"{self.uri_of(name)}: arrived damaged twice ({kind} {digest} was expected); nothing of it was kept, start "
            "again"
        )

    def delete_if_unchanged(self, info: ObjectInfo) -> None:
        """Deletes exactly this version, also where the answer to an earlier request was lost.

        Raises:
          PreconditionError: it is another one by now.
        """
        try:
            self.delete(info.name, if_version=info.version)
        # Gone already, by an earlier request of ours or by another process: both are what was wanted.
        except PreconditionError:
            if self.stat(info.name) is not None:
                raise

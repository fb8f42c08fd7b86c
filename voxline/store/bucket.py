"""A folder of a bucket: its objects listed, read, written under a condition, and moved in numbers.

Every method tries again with back-off up to the deadline, and raises `TransientError` past it, `WorkError` where a
person must mend something (permission, credentials, no such bucket),
`PreconditionError` where a condition did not hold.
"""

import mimetypes
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import PreconditionError, WorkError
from voxline.store.gcs_client import explain_errors
from voxline.store.objects import SCHEME, ObjectInfo, invalid_name_reason, split_uri

if TYPE_CHECKING:  # who touches no bucket pays for none: both are imported where an object is asked for
    from voxline.store.gcs_client import GcsConnection
import dataclasses

_FIELDS = "items(name,size,crc32c,md5Hash,generation,updated),prefixes,nextPageToken"
_WRITE = "voxline-write"
"""Metadata that tells our own write from another's, where the answer to it was lost."""


class Bucket:
    """Objects below `gs://bucket/prefix/`. All names are relative to that.

    Raises:
      SettingsError: the uri is no place in a bucket.
    """

    def __init__(self, uri: str) -> None:
        self.bucket, self.prefix = split_uri(str(uri))
        self.uri = f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")
        self._base = f"{self.prefix}/" if self.prefix else ""

    def __truediv__(self, folder: str) -> "Bucket":
        """The folder below this one."""
        return Bucket(f"{self.uri}/{folder}")

    def place(self, name: str) -> str:
        """The whole address of an object."""
        return f"{self.uri}/{name}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, in order; the marks that consoles leave for folders are not."""
        with explain_errors(self.place(prefix), "list"):
            for blob in self._listed(prefix):
                if not blob.name.endswith("/"):
                    yield self._entry(blob)
        self.connection.known.add(self.bucket)

    def folders(self, prefix: str = "") -> Sequence[str]:
        """The names, up to the next /, of what lies below a prefix that is empty or ends in /."""
        with explain_errors(self.place(prefix), "list"):
            found = self._listed(prefix, delimiter="/")
            for _ in found:  # the prefixes come with the pages
                pass
            return sorted(one[len(self._base) + len(prefix) :].rstrip("/") for one in found.prefixes)

    def stat(self, name: str) -> ObjectInfo | None:
        """The object as it is now; None where there is none."""
        blob = self._blob(name)
        try:
            with explain_errors(self.place(name), "read"):
                blob.reload(**self._patience(name))
                return self._entry(blob)
        except WorkError as error:
            self._absent(error)
            return None

    def read(self, name: str) -> bytes:
        """The object's bytes.

        Raises:
          FileNotFoundError: there is no such object.
        """
        return self.read_entry(name)[0]

    def read_entry(self, name: str) -> tuple[bytes, ObjectInfo]:
        """The object's bytes, and the object whose they are.

        Raises:
          FileNotFoundError: there is no such object.
        """
        from voxline.store import transfer

        while (entry := self.stat(name)) is not None:
            try:
                return transfer.fetch_object(self, entry), entry
            except PreconditionError:
                continue  # replaced between the two requests
        raise FileNotFoundError(self.place(name))

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        """Writes an object, whole or not at all.

        Args:
          if_generation: which generation it replaces, 0: none. What was written may be replaced before we learn that it
            was; this raises Changed then, so whoever appends looks first whether its line is there.

        Raises:
          Changed: it is of another generation.
        """

        def send(blob: Any, patience: dict[str, Any]) -> None:
            blob.upload_from_string(
                data, content_type=_type_of(name), checksum="crc32c", if_generation_match=if_generation, **patience
            )

        return self.send(name, send)

    def copy(self, name: str, to: "Bucket", *, if_generation: int | None = None) -> ObjectInfo:
        """Copies an object within the storage, under its name; no byte of it comes here.

        Raises:
          Changed: there is one of another generation.
          FileNotFoundError: there is no such object.
        """

        def rewrite(blob: Any, patience: dict[str, Any]) -> None:
            blob.content_type = _type_of(name)  # who gives metadata has to give all of it
            token = None
            while True:
                token, _, _ = blob.rewrite(self._blob(name), token=token, if_generation_match=if_generation, **patience)
                if token is None:
                    return

        try:
            return to.send(name, rewrite)
        except WorkError as error:
            self._absent(error)
            raise FileNotFoundError(self.place(name)) from error

    def delete(self, name: str, *, if_generation: int | None = None) -> None:
        """Removes an object; one that is not there is none to remove.

        Raises:
          Changed: it is of another generation.
        """
        try:
            with explain_errors(self.place(name), "delete"):
                self._blob(name).delete(if_generation_match=if_generation, **self._patience(name))
        except WorkError as error:
            self._absent(error)

    def remove(self, name: str, generation: int) -> None:
        """Removes an object that was looked at.

        Raises:
          Changed: it is another one by now.
        """
        try:
            self.delete(name, if_generation=generation)
        except PreconditionError:
            if self.stat(name) is not None:  # else it is the answer that was lost
                raise

    def download(
        self, names: Iterable[str | ObjectInfo], folder: Path | str, *, named: Callable[[ObjectInfo], str] | None = None
    ) -> Sequence[ObjectInfo]:
        """Brings objects into a folder, under their names, or as `named` has it. See `transfer.download`."""
        from voxline.store import transfer

        return transfer.download(self, names, Path(folder), named)

    def upload(self, folder: Path | str, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Sends files of a folder, under their names. See `transfer.upload`."""
        from voxline.store import transfer

        return transfer.upload(self, Path(folder), names, absent_only=absent_only)

    def send(self, name: str, request: Callable[[Any, dict[str, Any]], None]) -> ObjectInfo:
        """Makes a request that writes an object, and tells our own write from another's.

        A request whose answer was lost is made again, and then fails by its own success; the object's metadata says so.
        """
        if fault := invalid_name_reason(name):
            raise WorkError(f"{self.place(name)}: the name {fault}")
        blob = self._blob(name)
        token = secrets.token_hex(8)
        blob.metadata = {_WRITE: token}
        try:
            with explain_errors(self.place(name), "write"):
                request(blob, self._patience(name))
        except PreconditionError:
            blob = self._blob(name)
            with explain_errors(self.place(name), "read"):
                if not blob.exists(**self._patience(name)):
                    raise
                blob.reload(**self._patience(name))
            if (blob.metadata or {}).get(_WRITE) != token:
                raise
        return self._entry(blob)

    def blob(self, entry: ObjectInfo) -> Any:
        """Google's handle of exactly this content."""
        return self._google().blob(self._base + entry.name, generation=entry.generation)

    @property
    def connection(self) -> "GcsConnection":
        from voxline.store.gcs_client import gcs_connection

        return gcs_connection()

    def _patience(self, name: str) -> dict[str, Any]:
        return self.connection.patience(self.place(name))

    def _google(self) -> Any:
        with explain_errors(self.uri + "/", "read"):
            return self.connection.client.bucket(self.bucket)

    def _blob(self, name: str) -> Any:
        return self._google().blob(self._base + name)

    def _listed(self, prefix: str, delimiter: str | None = None) -> Any:
        return self.connection.client.list_blobs(
            self.bucket, prefix=self._base + prefix, delimiter=delimiter, fields=_FIELDS, **self._patience(prefix)
        )

    def _absent(self, error: WorkError) -> None:
        """Says nothing of an object that is not there; raises every other error, and where the bucket is not there."""
        if not _is_not_found(error):
            raise error
        if self.bucket not in self.connection.known:
            next(self.list(), None)
            self.connection.known.add(self.bucket)

    def _entry(self, blob: Any) -> ObjectInfo:
        name = blob.name[len(self._base) :]
        return ObjectInfo(name, blob.size, blob.crc32c, blob.generation, blob.updated, blob.md5_hash or "")


def _is_not_found(error: WorkError) -> bool:
    return getattr(error.__cause__, "code", None) == 404


def _type_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


_GENERATIONS_FIELDS = "items(name,size,crc32c,md5Hash,generation,updated,timeDeleted),nextPageToken"


@dataclasses.dataclass(frozen=True)
class RetentionPolicy:
    """What a bucket does with what is replaced or deleted.

    Attributes:
      versioning: it keeps older generations, without end or as its lifecycle rules say.
      soft_delete_seconds: for which it keeps them beside that; 0: it does not.
    """

    versioning: bool
    soft_delete_seconds: int


def retention_policy(bucket: Bucket) -> RetentionPolicy | None:
    """What the bucket says; None where whoever runs this may not ask (storage.buckets.get)."""
    try:
        with explain_errors(f"{bucket.uri}/", "read"):
            found: Any = bucket.connection.client.get_bucket(
                bucket.bucket, **bucket.connection.patience(f"{bucket.uri}/")
            )
    except WorkError as error:
        if getattr(error.__cause__, "code", None) in (401, 403):
            return None
        raise
    policy = found.soft_delete_policy
    return RetentionPolicy(bool(found.versioning_enabled), int(policy.retention_duration_seconds or 0))


def object_versions(bucket: Bucket) -> Iterator[ObjectInfo]:
    """Generations below a place that were replaced or deleted, and are kept all the same."""
    base = f"{bucket.prefix}/" if bucket.prefix else ""
    with explain_errors(f"{bucket.uri}/", "list"):
        for blob in bucket.connection.client.list_blobs(
            bucket.bucket,
            prefix=base,
            versions=True,
            fields=_GENERATIONS_FIELDS,
            **bucket.connection.patience(f"{bucket.uri}/"),
        ):
            if blob.time_deleted is not None:
                name = blob.name[len(base) :]
                yield ObjectInfo(name, blob.size, blob.crc32c, blob.generation, blob.updated, blob.md5_hash or "")


def delete_version(bucket: Bucket, entry: ObjectInfo) -> None:
    """Removes exactly this generation; one that is not there is none to remove."""
    try:
        with explain_errors(bucket.place(entry.name), "delete"):
            bucket.blob(entry).delete(**bucket.connection.patience(bucket.place(entry.name)))
    except WorkError as error:
        if getattr(error.__cause__, "code", None) != 404:
            raise

"""`gs://bucket/prefix`: Google Cloud Storage, through Google's own client.

Google's library is imported with the first request. It looks for credentials as always (workload identity,
`gcloud auth application-default login`, GOOGLE_APPLICATION_CREDENTIALS); none pass through here. With
STORAGE_EMULATOR_HOST it talks to an emulator, without credentials.
"""

import contextlib
import functools
import mimetypes
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from voxline.errors import NoCredentialsError, PreconditionError, TransientError, VoxlineError, WorkError
from voxline.extras import naming_extras
from voxline.progress import PROGRESS_PREFIX
from voxline.store.checksums import crc32c
from voxline.store.objects import ObjectStore
from voxline.store.storage import ABSENT, ObjectInfo, RetentionPolicy, Storage
from voxline.store.transfer import SILENT_SECONDS, Pages, Result, TransferSettings, call_within
from voxline.store.uris import invalid_name_reason, split_uri

_FIELDS = "items(name,size,crc32c,md5Hash,generation,updated),prefixes,nextPageToken"
_VERSIONS_FIELDS = "items(name,size,crc32c,md5Hash,generation,updated,timeDeleted),nextPageToken"
_WRITE = "voxline-write"
"""Metadata by which we recognize our own write when the answer to it was lost."""


class GcsStore(ObjectStore):
    """Objects below `gs://bucket/prefix/`.

    Raises:
      SettingsError: the URI is malformed.
    """

    def __init__(self, uri: Path | str) -> None:
        self.bucket, self.prefix = split_uri(str(uri))
        self.uri = f"gs://{self.bucket}/{self.prefix}".rstrip("/")
        self._base = f"{self.prefix}/" if self.prefix else ""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, in order; not the marks that consoles leave for folders."""
        with explain_errors(self.uri_of(prefix), "list"):
            for blob in self._blobs(prefix):
                if not blob.name.endswith("/"):
                    yield self._info(blob)
        self.connection.known_buckets.add(self.bucket)

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        with explain_errors(self.uri_of(prefix), "list"):
            pages = self._pages(prefix, delimiter="/", fields=_FIELDS)
            folders = {folder for page in pages for folder in page.prefixes}
            return sorted(folder[len(self._base) + len(prefix) :].rstrip("/") for folder in folders)

    def stat(self, name: str) -> ObjectInfo | None:
        blob = self._blob(name)
        try:
            with explain_errors(self.uri_of(name), "read"):
                self._read(lambda: blob.reload(**self._retries(name)))
                return self._info(blob)
        except WorkError as error:
            self._pass_if_absent(error)
            return None

    def read_with_version(self, name: str) -> tuple[bytes, str]:
        # Twice: bytes that were damaged in transit arrive whole the second time.
        for _ in range(2):
            blob = self._blob(name)
            try:
                with explain_errors(self.uri_of(name), "read"):
                    how = {"raw_download": True, "checksum": None, **self._retries(name)}
                    data = self._read(functools.partial(blob.download_as_bytes, **how))
            except WorkError as error:
                self._pass_if_absent(error)
                raise FileNotFoundError(self.uri_of(name)) from error
            if not blob.generation or not blob.crc32c:  # a server that does not say with the bytes what they are
                return super().read_with_version(name)
            if crc32c(data) == blob.crc32c:
                return data, str(blob.generation)
        raise self.damaged(name, f"crc32c:{blob.crc32c}")

    def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        uri = self.uri_of(info.name)
        try:
            # `raw_download`: objects that are stored packed are read as they are, which is what the checksum is of.
            with explain_errors(uri, "read"):
                blob = self._blob(info.name, int(info.version))
                how = {"raw_download": True, "checksum": None, **self._retries(info.name)}
                data: bytes = self._read(lambda: blob.download_as_bytes(start=start, end=end - 1, **how))
        except WorkError as error:
            if _is_not_found(error):
                raise PreconditionError(f"{uri}: replaced or deleted while it was read; start again") from error
            raise

        if len(data) != end - start:
            raise TransientError(f"{uri}: {len(data):,} of {end - start:,} bytes arrived; start again")
        return data

    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        def send(blob: Any, retries: dict[str, Any]) -> None:
            blob.upload_from_string(data, content_type=_type_of(name), checksum="crc32c", **retries)

        return self._write(name, if_version, send)

    def upload_file(self, file: Path, name: str, *, if_version: str | None = None) -> ObjectInfo:
        def send(blob: Any, retries: dict[str, Any]) -> None:
            blob.chunk_size = TransferSettings.of_environment().chunk
            blob.upload_from_filename(str(file), checksum="crc32c", **retries)

        return self._write(name, if_version, send)

    def copy(self, name: str, target: Storage, *, if_version: str | None = None) -> ObjectInfo:
        def rewrite(blob: Any, retries: dict[str, Any]) -> None:
            blob.content_type = _type_of(name)  # a request that sets metadata has to set all of it

            # A large rewrite takes several calls, each with the token of the one before.
            token = None
            while True:
                token, _, _ = blob.rewrite(self._blob(name), token=token, **retries)
                if token is None:
                    return

        if not isinstance(target, GcsStore):
            raise TypeError(f"cannot copy from {self.uri} to {target.uri}")
        try:
            return target._write(name, if_version, rewrite)
        except WorkError as error:
            self._pass_if_absent(error)
            raise FileNotFoundError(self.uri_of(name)) from error

    def delete(self, name: str, *, if_version: str | None = None) -> None:
        try:
            with explain_errors(self.uri_of(name), "delete"):
                # A deletion on condition fails where the object was replaced: 412.
                self._blob(name).delete(if_generation_match=_generation(if_version), **self._retries(name))
        except WorkError as error:
            self._pass_if_absent(error)

    def retention_policy(self) -> RetentionPolicy | None:
        """Returns what the bucket does with replaced and deleted objects; None without storage.buckets.get."""
        try:
            with explain_errors(f"{self.uri}/", "read"):
                bucket: Any = self.connection.client.get_bucket(self.bucket, **self._retries(""))
        except WorkError as error:
            if _code(error) in (401, 403):
                return None
            raise
        policy = bucket.soft_delete_policy
        return RetentionPolicy(bool(bucket.versioning_enabled), int(policy.retention_duration_seconds or 0))

    def object_versions(self) -> Iterator[ObjectInfo]:
        with explain_errors(f"{self.uri}/", "list"):
            for blob in self._blobs("", versions=True, fields=_VERSIONS_FIELDS):
                if blob.time_deleted is not None:
                    yield self._info(blob)

    def delete_version(self, info: ObjectInfo) -> None:
        try:
            with explain_errors(self.uri_of(info.name), "delete"):
                self._blob(info.name, int(info.version)).delete(**self._retries(info.name))
        except WorkError as error:
            if not _is_not_found(error):
                raise

    def held_permissions(self, needed: Sequence[str]) -> set[str]:
        bucket = self.connection.client.bucket(self.bucket)  # storages that speak Google's protocol may not know this
        return set(bucket.test_iam_permissions([*needed], timeout=15, retry=None))

    @property
    def connection(self) -> "GcsConnection":
        return gcs_connection()

    def _write(self, name: str, if_version: str | None, request: Callable[[Any, dict[str, Any]], None]) -> ObjectInfo:
        """Makes a request that writes an object, and tells our own write from another's.

        A request whose answer was lost is repeated, and fails by its own success; the object's metadata shows it.
        """
        if reason := invalid_name_reason(name):
            raise WorkError(f"{self.uri_of(name)}: the name {reason}")
        blob = self._blob(name)
        token = secrets.token_hex(8)
        blob.metadata = {_WRITE: token}
        try:
            with explain_errors(self.uri_of(name), "write"):
                request(blob, {"if_generation_match": _generation(if_version), **self._retries(name)})
        except PreconditionError:
            blob = self._blob(name)
            with explain_errors(self.uri_of(name), "read"):
                if not blob.exists(**self._retries(name)):
                    raise
                blob.reload(**self._retries(name))
            if (blob.metadata or {}).get(_WRITE) != token:
                raise
        return self._info(blob)

    def _retries(self, name: str) -> dict[str, Any]:
        return self.connection.retries(self.uri_of(name))

    def _blob(self, name: str, generation: int | None = None) -> Any:
        with explain_errors(self.uri + "/", "read"):
            return self.connection.client.bucket(self.bucket).blob(self._base + name, generation=generation)

    def _blobs(self, prefix: str, fields: str = _FIELDS, **how: Any) -> Iterator[Any]:
        for page in self._pages(prefix, fields=fields, **how):
            yield from page

    def _pages(self, prefix: str, **how: Any) -> Iterator[Any]:
        """The pages of a listing: their blobs, and in `prefixes` the folders."""
        listing = self.connection.client.list_blobs(
            self.bucket, prefix=self._base + prefix, **how, **self._retries(prefix)
        )

        tokens = Pages(self.uri_of(prefix))
        pages = listing.pages
        while (page := self._read(lambda: next(pages, None))) is not None:
            yield page
            if listing.next_page_token:
                tokens.check(listing.next_page_token)

    def _read(self, request: Callable[[], Result]) -> Result:
        """The answer to a request that changes nothing. Google's library ends its retries at the deadline by itself."""
        settings = self.connection.settings
        return call_within(settings.deadline_seconds + settings.timeout_seconds, request)

    def _pass_if_absent(self, error: WorkError) -> None:
        """Passes over an object that does not exist; raises every other error, and where there is no bucket."""
        # "Not found" is also what a missing bucket says; that is a mistake of the user and not an absent object.
        if not _is_not_found(error):
            raise error
        if self.bucket not in self.connection.known_buckets:
            next(self.list(), None)
            self.connection.known_buckets.add(self.bucket)

    def _info(self, blob: Any) -> ObjectInfo:
        name = blob.name[len(self._base) :]
        checksum = f"crc32c:{blob.crc32c}"
        return ObjectInfo(name, blob.size, str(blob.generation), checksum, blob.updated, blob.md5_hash or "")


class GcsConnection:
    """Google's client, and the arguments of each request.

    Attributes:
      known_buckets: those that we have seen to exist.
    """

    def __init__(self, settings: TransferSettings) -> None:
        with naming_extras():
            import google.cloud.storage as storage

        self.settings = settings
        self.known_buckets: set[str] = set()
        self.client: Any = storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT") or "voxline")

    def retries(self, uri: str) -> dict[str, Any]:
        """The arguments `retry` and `timeout` of a request; every request of ours may be repeated safely."""
        from google.api_core.retry import Retry
        from google.cloud.storage.retry import DEFAULT_RETRY

        began = time.monotonic()

        def report(error: Exception) -> None:
            # At the deadline it gives up, in a thread that a slow answer has kept perhaps long after.
            if SILENT_SECONDS < time.monotonic() - began < self.settings.deadline_seconds:
                print(f"{PROGRESS_PREFIX}{uri}: {type(error).__name__}, trying again", flush=True)

        # Their predicate says which errors may pass, ours how long to wait.
        retry = Retry(
            predicate=DEFAULT_RETRY._predicate,
            initial=self.settings.first_wait_seconds,
            maximum=self.settings.longest_wait_seconds,
            multiplier=2,
            timeout=self.settings.deadline_seconds,
            on_error=report,
        )
        return {"retry": retry, "timeout": self.settings.timeout_seconds}


def gcs_connection() -> GcsConnection:
    """The connection of this process; a fork gets its own, since two cannot share a socket."""
    return _connect(os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", ""), TransferSettings.of_environment())


@functools.lru_cache(maxsize=4)
def _connect(process: int, emulator: str, settings: TransferSettings) -> GcsConnection:
    return GcsConnection(settings)


PERMISSIONS = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create and, to replace an object, storage.objects.delete",
    "delete": "storage.objects.delete",
}
_QUERY = re.compile(r"\?\S+")
_ROLES = {"list": "roles/storage.objectViewer", "read": "roles/storage.objectViewer"}


@contextlib.contextmanager
def explain_errors(uri: str, action: str) -> Iterator[None]:
    """Turns errors of the block into ours.

    Args:
      uri: of the object or folder.
      action: what is done with it: list, read, write or delete.

    Raises:
      PreconditionError: it does not have the expected generation.
      TransientError: the storage or the network failed for the whole deadline.
      WorkError: a person must act: a permission, credentials, a bucket that does not exist.
    """
    try:
        yield
    except (VoxlineError, FileNotFoundError):
        raise
    except Exception as error:
        raise _explain(uri, action, error) from error


def _explain(uri: str, action: str, error: Exception) -> Exception:
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from google.cloud.storage.retry import DEFAULT_RETRY

    # A retried error hides the one that ended the retries.
    cause = error.cause if isinstance(error, api.RetryError) and error.cause else error
    bucket = uri.split("/")[2]
    code = cause.response.status_code if isinstance(cause, InvalidResponse) else getattr(cause, "code", None)
    if isinstance(cause, DataCorruption) or (code in (400, 409) and "crc32c" in str(cause).lower()):
        return TransientError(f"{uri}: damaged in transit; nothing of it was kept, start again")

    if isinstance(error, (api.RetryError, TimeoutError)) or DEFAULT_RETRY._predicate(cause):
        return TransientError(
            f"{uri}: the storage failed to {action} it, for all retries ({_in_one_line(cause)}); what has been moved "
            "stays, so start again, and it resumes"
        )

    # From here on a person has to act: each message says what to do, and where.
    if isinstance(cause, auth.GoogleAuthError) or code == 401:
        absent = isinstance(cause, auth.DefaultCredentialsError) and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ
        kind = NoCredentialsError if absent else WorkError
        return kind(
            f"{uri}: no credentials that Google Cloud Storage accepts ({_in_one_line(cause).rstrip('.')}); on a "
            "cluster bind the service account by workload identity, elsewhere run: "
            "gcloud auth application-default login"
        )
    if code == 403:
        role = _ROLES.get(action, "roles/storage.objectUser")
        return WorkError(
            f"{uri}: permission denied: this account needs {PERMISSIONS[action]} on the bucket {bucket}; "
            f"grant it, as in: gcloud storage buckets add-iam-policy-binding gs://{bucket} "
            f"--member=serviceAccount:ACCOUNT --role={role}"
        )
    if code == 412:
        return PreconditionError(f"{uri}: another process changed it meanwhile; start again")
    if code == 404:
        return WorkError(
            f"{uri}: there is no bucket {bucket}; correct the name, or create it, as in: "
            f"gcloud storage buckets create gs://{bucket} --uniform-bucket-level-access"
        )
    return WorkError(f"{uri}: the storage refused to {action} it: {_in_one_line(cause)}")


def _in_one_line(error: BaseException) -> str:
    """Without the queries of URLs: that of an upload's session is as good as a key to it."""
    return _QUERY.sub("", " ".join(str(error).split()))[:300] or type(error).__name__


def _code(error: WorkError) -> int | None:
    return getattr(error.__cause__, "code", None)


def _is_not_found(error: WorkError) -> bool:
    return _code(error) == 404


def _generation(version: str | None) -> int | None:
    return None if version is None else 0 if version == ABSENT else int(version)


def _type_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"

"""`s3://bucket/prefix`: Amazon S3, and servers that speak its protocol (MinIO, SeaweedFS, Ceph, versitygw), by boto3.

boto3 is imported with the first request. Credentials, region and endpoint come from where it always takes them: the
environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL_S3), ~/.aws, a pod's or a machine's role.

Locks and markers need conditional writes, `If-None-Match: *` and `If-Match`. A server that ignores one is refused: the
first conditional write to a bucket is repeated so that it must fail. Versions are ETags, and equal bytes have equal
ETags. See docs/decisions/0041-storages.md for which server honors what.
"""

import base64
import contextlib
import email.utils
import functools
import hashlib
import mimetypes
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.store.checksums import crc32c, has_checksum, md5_of_parts
from voxline.store.objects import ObjectStore
from voxline.store.s3_client import S3Connection, error_code, explain_s3_errors, is_not_found, s3_connection
from voxline.store.scratch import scratch_root
from voxline.store.storage import ABSENT, ObjectInfo, RetentionPolicy, Storage
from voxline.store.transfer import Pages, TransferSettings
from voxline.store.uris import invalid_name_reason, split_uri

_WRITE = "voxline-write"
_CRC32C = "voxline-crc32c"
"""Metadata: by which we recognize our own write when the answer to it was lost; and the checksum of its bytes."""

_READING = ("get_", "head_", "list_")
"""How operations begin that change nothing."""
_NOT_OFFERED = {"NotImplemented", "MethodNotAllowed", "501", "405"}
_OTHER_PARTS = ("InvalidPart", "EntityTooSmall")
"""Another process has sent its own parts to the same upload."""
_MIN_PART = 5 << 20
_MAX_PARTS = 10_000
_NEXT_PAGE = {
    "list_objects_v2": {"ContinuationToken": "NextContinuationToken"},
    "list_object_versions": {"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"},
    "list_multipart_uploads": {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"},
    "list_parts": {"PartNumberMarker": "NextPartNumberMarker"},
}
"""By operation: which arguments ask for the page after one, and where that one has their values."""


class S3Store(ObjectStore):
    """Objects below `s3://bucket/prefix/`.

    Raises:
      SettingsError: the URI is malformed.
    """

    clock_resolution: ClassVar[float] = 1.0

    def __init__(self, uri: Path | str) -> None:
        self.bucket, self.prefix = split_uri(str(uri))
        self.uri = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._base = f"{self.prefix}/" if self.prefix else ""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, in order; not the marks that consoles leave for folders."""
        for page in self._pages("list_objects_v2", prefix):
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    yield self._info(item["Key"], item["Size"], item)
        self.connection.known_buckets.add(self.bucket)

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        cut = len(self._base) + len(prefix)
        pages = self._pages("list_objects_v2", prefix, Delimiter="/")
        return sorted(item["Prefix"][cut:].rstrip("/") for page in pages for item in page.get("CommonPrefixes", ()))

    def stat(self, name: str) -> ObjectInfo | None:
        head = self._head(name)
        return self._info(self._base + name, head["ContentLength"], head) if head else None

    def read_with_version(self, name: str) -> tuple[bytes, str]:
        # Twice: bytes that were damaged in transit arrive whole the second time.
        for _ in range(2):
            try:
                data, answer = self._get(name)
            except WorkError as error:
                self._pass_if_absent(error)
                raise FileNotFoundError(self.uri_of(name)) from error
            info = self._info(self._base + name, answer["ContentLength"], answer)

            if self.is_intact(data, info) if info.checksum else _has_size(data, info.size):
                return data, info.version
        raise self.damaged(name, info.checksum)

    def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        uri = self.uri_of(info.name)
        try:
            data, _ = self._get(info.name, IfMatch=f'"{info.version}"', Range=f"bytes={start}-{end - 1}")
        except PreconditionError as error:
            raise PreconditionError(f"{uri}: replaced or deleted while it was read; start again") from error
        except WorkError as error:
            self._pass_if_absent(error)
            raise PreconditionError(f"{uri}: replaced or deleted while it was read; start again") from error
        if len(data) != end - start:
            raise TransientError(f"{uri}: {len(data):,} of {end - start:,} bytes arrived; start again")
        return data

    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        self._check_name(name)
        token = secrets.token_hex(8)
        checksum = crc32c(data)
        digest = hashlib.md5(data, usedforsecurity=False)

        # Content-MD5 is checked by the server; our own checksum stays with the object.
        arguments = {
            **self._key(name),
            "Body": data,
            "ContentMD5": base64.b64encode(digest.digest()).decode(),
            "ContentType": mimetypes.guess_type(name)[0] or "application/octet-stream",
            "Metadata": {_WRITE: token, _CRC32C: checksum},
        }

        try:
            answer = self._request(self.uri_of(name), "write", "put_object", **arguments, **_condition(if_version))
        # The answer to our first request may have been lost: our token says whose write it was.
        except PreconditionError:
            head = self._head(name)
            if not head or head["Metadata"].get(_WRITE) != token:
                raise
            return self._info(self._base + name, head["ContentLength"], head)
        except WorkError as error:
            if if_version and is_not_found(error):  # to be replaced, and deleted meanwhile
                self._pass_if_absent(error)
                raise PreconditionError(f"{self.uri_of(name)}: another process deleted it; start again") from error
            raise
        if if_version is not None:
            self._check_conditions(name, arguments, absent=if_version == ABSENT)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        version = answer["ETag"].strip('"')
        info = ObjectInfo(
            name,
            len(data),
            version,
            f"crc32c:{checksum}",
            email.utils.parsedate_to_datetime(date or email.utils.formatdate(usegmt=True)),
            version,
        )
        # Not every server checks Content-MD5, and not every server's ETag is an MD5.
        if data and version != digest.hexdigest() and self.read_range(info, 0, len(data)) != data:
            self.delete(name, if_version=version)
            raise TransientError(f"{self.uri_of(name)}: damaged in transit; nothing of it was kept, start again")
        return info

    def upload_file(self, file: Path, name: str, *, if_version: str | None = None) -> ObjectInfo:
        """Writes a file like `write`. A large file goes in parts; a later upload reuses those that have arrived."""
        size = file.stat().st_size
        chunk = TransferSettings.of_environment().chunk
        if size <= max(chunk, _MIN_PART):
            return self.write(name, file.read_bytes(), if_version=if_version)

        self._check_name(name)
        # At least the protocol's least part, and no more parts than it allows.
        part = max(chunk, _MIN_PART, -(-size // _MAX_PARTS >> 20) + 1 << 20 if size > chunk * _MAX_PARTS else 0)
        upload = self._unfinished_upload(name)
        for _ in range(3):
            try:
                return self._upload_parts(file, name, part, if_version, upload)
            except _UploadGoneError:  # another process took it for one of a killed process, and went on with it
                upload = ""
        raise TransientError(f"{self.uri_of(name)}: other processes upload it as well; start again")

    def delete(self, name: str, *, if_version: str | None = None) -> None:
        condition = {}
        if if_version is not None:  # asked first as well: not every server honors the condition of a deletion
            current = self.stat(name)
            if current is None:
                return
            if current.version != if_version:
                raise PreconditionError(f"{self.uri_of(name)}: another process changed it meanwhile; start again")
            condition = {"IfMatch": f'"{if_version}"'}

        try:
            self._request(self.uri_of(name), "delete", "delete_object", **self._key(name), **condition)
        except WorkError as error:
            if error_code(error) in _NOT_OFFERED and condition:
                self.delete(name)
                return
            self._pass_if_absent(error)

    def copy(self, name: str, target: Storage, *, if_version: str | None = None) -> ObjectInfo:
        """Copies like `ObjectStore.copy`. The bytes pass through here: few servers check conditions on a copy."""
        info = self.stat(name)
        if info is None:
            raise FileNotFoundError(self.uri_of(name))

        if info.size <= TransferSettings.of_environment().chunk:
            return target.write(name, self.read_version(info), if_version=if_version)
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            self.download([info], folder)
            return target.upload_file(Path(folder) / name, name, if_version=if_version)

    def retention_policy(self) -> RetentionPolicy | None:
        """Returns what the bucket does with replaced and deleted objects; None without s3:GetBucketVersioning."""
        try:
            answer = self._request(f"{self.uri}/", "read", "get_bucket_versioning", Bucket=self.bucket)
        except WorkError as error:
            if error_code(error) in ("AccessDenied", "403"):
                return None
            if error_code(error) in _NOT_OFFERED:
                return RetentionPolicy(versioning=False, soft_delete_seconds=0)
            raise
        return RetentionPolicy(versioning="Status" in answer, soft_delete_seconds=0)

    def object_versions(self) -> Iterator[ObjectInfo]:
        """Versions that were replaced or deleted and are kept. Their `version` is S3's VersionId, not an ETag."""
        try:
            for page in self._pages("list_object_versions"):
                for item in page.get("Versions", ()):
                    if not item["IsLatest"]:
                        name = item["Key"][len(self._base) :]
                        version, checksum = item["VersionId"], _etag_checksum(item["ETag"])
                        yield ObjectInfo(name, item["Size"], version, checksum, item["LastModified"])
        except WorkError as error:
            if error_code(error) not in _NOT_OFFERED:
                raise

    def delete_version(self, info: ObjectInfo) -> None:
        key = {**self._key(info.name), "VersionId": info.version}
        self._request(self.uri_of(info.name), "delete", "delete_object", **key)

    def abort_uploads(self) -> int:
        try:
            uploads = [upload for page in self._pages("list_multipart_uploads") for upload in page.get("Uploads", ())]
        except WorkError as error:
            if error_code(error) in _NOT_OFFERED:
                return 0
            raise
        for upload in uploads:
            self._abort_upload(upload["Key"][len(self._base) :], upload["UploadId"])
        return len(uploads)

    def matches(self, source: Path | bytes, info: ObjectInfo) -> bool:
        if not _has_size(source, info.size):
            return False
        chunk = TransferSettings.of_environment().chunk
        if has_checksum(source, info.checksum, part=chunk):
            return True
        if info.checksum.startswith("crc32c:"):
            return False
        refined = self.stat(info.name)  # the ETag of an encrypted object is no MD5; ours have metadata
        if refined is None or refined.version != info.version:
            return False

        # Large objects of other clients: the ETag says the number of parts, the first part their size.
        if refined.checksum.startswith("md5-parts:") and (part := self._part_size(info)):
            return md5_of_parts(source, part) == refined.checksum.removeprefix("md5-parts:")
        return has_checksum(source, refined.checksum)

    def is_intact(self, source: Path | bytes, info: ObjectInfo) -> bool:
        if self.matches(source, info):
            return True
        refined = self.stat(info.name) if _has_size(source, info.size) else None

        # An object without any checksum, such as one that is encrypted: its size has to do.
        return refined is not None and refined.version == info.version and not refined.checksum

    @property
    def connection(self) -> "S3Connection":
        return s3_connection()

    def _request(self, uri: str, action: str, operation: str, **arguments: Any) -> Any:
        """The answer to an operation of boto3's client."""
        with explain_s3_errors(uri, action):
            reads = operation.startswith(_READING)
            return self.connection.retry(uri, lambda client: getattr(client, operation)(**arguments), reads=reads)

    def _get(self, name: str, **arguments: str) -> tuple[bytes, Any]:
        """The bytes of an object, and the answer that they came with."""

        def get(client: Any) -> tuple[bytes, Any]:
            answer = client.get_object(**self._key(name), **arguments)
            with contextlib.closing(answer["Body"]) as body:
                return body.read(), answer

        with explain_s3_errors(self.uri_of(name), "read"):
            return self.connection.retry(self.uri_of(name), get, reads=True)

    def _pages(self, operation: str, prefix: str = "", **arguments: str) -> Iterator[Any]:
        """The pages of a listing; below a prefix, unless the arguments name an object."""
        parameters = (
            arguments if "Key" in arguments else {"Bucket": self.bucket, "Prefix": self._base + prefix} | arguments
        )
        following: dict[str, Any] = {}
        pages = Pages(self.uri_of(prefix))
        while True:
            page = self._request(self.uri_of(prefix), "list", operation, **parameters | following)
            yield page
            if not page.get("IsTruncated"):
                return
            following = {name: page[value] for name, value in _NEXT_PAGE[operation].items() if page.get(value)}
            pages.check(tuple(following.values()))

    def _head(self, name: str) -> Any:
        try:
            return self._request(self.uri_of(name), "read", "head_object", **self._key(name))
        except WorkError as error:
            self._pass_if_absent(error)
            return None

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self._base + name}

    def _check_name(self, name: str) -> None:
        if reason := invalid_name_reason(name):
            raise WorkError(f"{self.uri_of(name)}: the name {reason}")

    def _unfinished_upload(self, name: str) -> str:
        """The id of an upload in parts that a killed process left; empty where there is none."""
        try:
            answer = next(self._pages("list_multipart_uploads", name))
        except TransientError:
            raise
        except WorkError:  # a server or an account that cannot list them starts again
            return ""
        uploads = [upload["UploadId"] for upload in answer.get("Uploads", ()) if upload["Key"] == self._base + name]
        return uploads[-1] if uploads else ""

    def _upload_parts(self, file: Path, name: str, part: int, if_version: str | None, resumed: str) -> ObjectInfo:
        uri = self.uri_of(name)
        key = self._key(name)
        token = secrets.token_hex(8)

        # Parts of a killed process are reused if their MD5 is that of our bytes.
        arrived = self._arrived_parts(name, resumed) if resumed else {}
        upload = (
            resumed
            or self._request(
                uri,
                "write",
                "create_multipart_upload",
                **key,
                ContentType=mimetypes.guess_type(name)[0] or "application/octet-stream",
                Metadata={_WRITE: token},
            )["UploadId"]
        )

        parts = []
        digests = []
        with open(file, "rb") as data:
            for number, chunk in enumerate(iter(functools.partial(data.read, part), b""), start=1):
                digest = hashlib.md5(chunk, usedforsecurity=False).digest()

                # Compared by number, length and MD5: another file of this name has other parts.
                tag = arrived.get((number, len(chunk)))
                if tag != digest.hex():
                    tag = self._upload_part(name, upload, number, chunk, digest)
                parts.append({"PartNumber": number, "ETag": f'"{tag}"'})
                digests.append(digest)

        request = {**key, "UploadId": upload, "MultipartUpload": {"Parts": parts}, **_condition(if_version)}
        try:
            self._request(uri, "write", "complete_multipart_upload", **request)
        except WorkError as error:
            # The answer may have been lost. Of an upload that another process began, the bytes tell.
            whole = f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}"
            head = self._head(name)
            if head and (head["Metadata"].get(_WRITE) == token or (resumed and head["ETag"].strip('"') == whole)):
                return self._info(key["Key"], head["ContentLength"], head)

            # Parts that cannot be joined are of another process, or damaged: begin again without them.
            if isinstance(error, PreconditionError) or error_code(error) in _OTHER_PARTS:
                with contextlib.suppress(WorkError):
                    self._abort_upload(name, upload)
            if error_code(error) in ("NoSuchUpload", *_OTHER_PARTS):
                raise _UploadGoneError from error
            raise
        if (info := self.stat(name)) is None:
            raise PreconditionError(f"{uri}: another process deleted it; start again")
        return info

    def _part_size(self, info: ObjectInfo) -> int:
        """The bytes of the first part of an object that was uploaded in parts; 0 where the server does not say."""
        try:
            answer = self._request(self.uri_of(info.name), "read", "head_object", **self._key(info.name), PartNumber=1)
        except TransientError:
            raise
        except WorkError:
            return 0
        size = int(answer["ContentLength"])
        return size if size < info.size else 0

    def _upload_part(self, name: str, upload: str, number: int, chunk: bytes, digest: bytes) -> str:
        request = {**self._key(name), "UploadId": upload, "PartNumber": number, "Body": chunk}
        request["ContentMD5"] = base64.b64encode(digest).decode()
        try:
            answer = self._request(self.uri_of(name), "write", "upload_part", **request)
        except WorkError as error:
            if error_code(error) == "NoSuchUpload":
                raise _UploadGoneError from error
            raise
        return str(answer["ETag"].strip('"'))

    def _arrived_parts(self, name: str, upload: str) -> dict[tuple[int, int], str]:
        try:
            pages = list(self._pages("list_parts", name, **self._key(name), UploadId=upload))
        except WorkError as error:
            if error_code(error) == "NoSuchUpload":
                raise _UploadGoneError from error
            raise
        parts = (part for page in pages for part in page.get("Parts", ()))
        return {(part["PartNumber"], part["Size"]): part["ETag"].strip('"') for part in parts}

    def _abort_upload(self, name: str, upload: str) -> None:
        try:
            self._request(self.uri_of(name), "delete", "abort_multipart_upload", **self._key(name), UploadId=upload)
        except WorkError as error:
            if error_code(error) != "NoSuchUpload":
                raise

    def _check_conditions(self, name: str, arguments: dict[str, Any], *, absent: bool) -> None:
        """Repeats a first conditional write so that it must fail; were it done, it would write the same bytes.

        Raises:
          WorkError: the server ignores the condition, so no lock would hold.
        """
        checked = self.connection.known_conditions
        if (self.bucket, absent) in checked:
            return
        header = "If-None-Match" if absent else "If-Match"

        # The object exists by now, and has another version: neither condition can hold.
        condition = _condition(ABSENT if absent else "0" * 32)
        try:
            self._request(self.uri_of(name), "write", "put_object", **arguments, **condition)
        except WorkError as error:
            if not isinstance(error, PreconditionError) and not is_not_found(error):
                raise
            checked.add((self.bucket, absent))
            return
        raise WorkError(
            f"s3://{self.bucket}: the server ignores the header {header}, so processes that use it at once would "
            "overwrite each other; use a server with conditional writes (Amazon S3, MinIO, Ceph, versitygw)"
        )

    def _pass_if_absent(self, error: WorkError) -> None:
        """Passes over an object that does not exist; raises every other error, and where there is no bucket."""
        if not is_not_found(error) or error_code(error) == "NoSuchBucket":
            raise error
        if self.bucket not in self.connection.known_buckets:
            next(self.list(), None)
            self.connection.known_buckets.add(self.bucket)

    def _info(self, key: str, size: int, answer: Any) -> ObjectInfo:
        # An ETag is an MD5 only of what is neither encrypted with a key of KMS nor uploaded in parts.
        version = answer["ETag"].strip('"')
        own_checksum = answer.get("Metadata", {}).get(_CRC32C)
        encrypted = (
            str(answer.get("ServerSideEncryption", "")).startswith("aws:kms") or "SSECustomerAlgorithm" in answer
        )
        checksum = f"crc32c:{own_checksum}" if own_checksum else "" if encrypted else _etag_checksum(version)
        return ObjectInfo(key[len(self._base) :], size, version, checksum, answer["LastModified"], version)


class _UploadGoneError(Exception):
    """An upload in parts that we wanted to finish has ended."""


def _condition(version: str | None) -> dict[str, str]:
    return {} if version is None else {"IfNoneMatch": "*"} if version == ABSENT else {"IfMatch": f'"{version}"'}


def _etag_checksum(tag: str) -> str:
    digest, _, parts = tag.strip('"').partition("-")
    if len(digest) != 32:
        return ""
    return f"md5-parts:{digest}-{parts}" if parts else f"md5:{digest}"


def _has_size(source: Path | bytes, size: int) -> bool:
    return (len(source) if isinstance(source, bytes) else source.stat().st_size if source.is_file() else -1) == size

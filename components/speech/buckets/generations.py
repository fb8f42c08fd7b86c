"""What a bucket keeps of objects that were replaced or deleted: older generations, and what is softly deleted.

Older generations are there where the bucket has object versioning; they are listed and deleted like objects. What soft
delete keeps nobody can remove before its time.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from components.speech.buckets.bucket import Bucket
from components.speech.buckets.entry import Entry
from components.speech.buckets.faults import told
from components.speech.errors import WorkError

_FIELDS = "items(name,size,crc32c,md5Hash,generation,updated,timeDeleted),nextPageToken"


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What a bucket does with what is replaced or deleted.

    Attributes:
      versioning: it keeps older generations, without end or as its lifecycle rules say.
      soft_delete_seconds: for which it keeps them beside that; 0: it does not.
    """

    versioning: bool
    soft_delete_seconds: int


def keeping(bucket: Bucket) -> Keeping | None:
    """What the bucket says; None where whoever runs this may not ask (storage.buckets.get)."""
    try:
        with told(f"{bucket.uri}/", "read"):
            found: Any = bucket.connection.client.get_bucket(
                bucket.bucket, **bucket.connection.patience(f"{bucket.uri}/")
            )
    except WorkError as error:
        if getattr(error.__cause__, "code", None) in (401, 403):
            return None
        raise
    policy = found.soft_delete_policy
    return Keeping(bool(found.versioning_enabled), int(policy.retention_duration_seconds or 0))


def older(bucket: Bucket) -> Iterator[Entry]:
    """Generations below a place that were replaced or deleted, and are kept all the same."""
    base = f"{bucket.prefix}/" if bucket.prefix else ""
    with told(f"{bucket.uri}/", "list"):
        for blob in bucket.connection.client.list_blobs(
            bucket.bucket, prefix=base, versions=True, fields=_FIELDS, **bucket.connection.patience(f"{bucket.uri}/")
        ):
            if blob.time_deleted is not None:
                name = blob.name[len(base) :]
                yield Entry(name, blob.size, blob.crc32c, blob.generation, blob.updated, blob.md5_hash or "")


def delete_generation(bucket: Bucket, entry: Entry) -> None:
    """Removes exactly this generation; one that is not there is none to remove."""
    try:
        with told(bucket.place(entry.name), "delete"):
            bucket.blob(entry).delete(**bucket.connection.patience(bucket.place(entry.name)))
    except WorkError as error:
        if getattr(error.__cause__, "code", None) != 404:
            raise

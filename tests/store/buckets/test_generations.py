"""What a bucket keeps of what was replaced or deleted is listed, and removed for good."""

import os

import pytest

from tests.buckets.emulator import FAKE_GCS, Storage
from voxline.errors import WorkError
from voxline.store.storage import RetentionPolicy

pytestmark = pytest.mark.skipif(
    bool(os.environ.get(FAKE_GCS)), reason="the proxy does what gcp-storage-emulator leaves out"
)


def test_older_generations_are_listed_and_go_one_by_one(gcs: Storage) -> None:
    gcs.proxy.older.buckets.add(gcs.name)
    bucket = gcs.bucket("store")
    first = bucket.write("a", b"1")
    second = bucket.write("a", b"22", if_version=first.version)
    other = bucket.write("b/c", b"333")
    bucket.delete("b/c")
    live = bucket.write("d", b"4")
    assert [(entry.name, entry.version) for entry in bucket.object_versions()] == [
        ("a", first.version),
        ("b/c", other.version),
    ]
    for entry in list(bucket.object_versions()):
        bucket.delete_version(entry)
    bucket.delete_version(first)
    assert list(bucket.object_versions()) == []
    assert list(bucket.list()) == [second, live]


def test_what_a_bucket_keeps_is_told_by_it_to_who_may_ask(gcs: Storage) -> None:
    bucket = gcs.client().get_bucket(gcs.name)
    bucket.versioning_enabled = True
    bucket.soft_delete_policy.retention_duration_seconds = 3_600
    bucket.patch()
    assert gcs.bucket("store").retention_policy() == RetentionPolicy(versioning=True, soft_delete_seconds=3_600)
    gcs.fails("status", "GET", f"/b/{gcs.name}", code=403)
    assert gcs.bucket("store").retention_policy() is None
    gcs.fails("status", "GET", f"/b/{gcs.name}", code=403)
    with pytest.raises(WorkError, match=r"permission denied: this account needs storage\.objects\.list"):
        list(gcs.bucket("store").object_versions())

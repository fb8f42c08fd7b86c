"""What a bucket keeps of what was replaced or deleted is listed, and removed for good."""

import os

import pytest

from tests.buckets.emulator import FAKE_GCS, Storage
from tests.buckets.older import Older
from voxline.errors import WorkError
from voxline.store.bucket import RetentionPolicy, delete_version, object_versions, retention_policy

pytestmark = pytest.mark.skipif(
    bool(os.environ.get(FAKE_GCS)), reason="the proxy stands in for what gcp-storage-emulator leaves out"
)


def test_older_generations_are_listed_and_go_one_by_one(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Older()
    kept.buckets.add(gcs.name)
    monkeypatch.setattr(gcs.proxy, "older", kept)
    bucket = gcs.bucket("store")
    first = bucket.write("a", b"1")
    second = bucket.write("a", b"22", if_generation=first.generation)
    other = bucket.write("b/c", b"333")
    bucket.delete("b/c")
    live = bucket.write("d", b"4")
    assert [(entry.name, entry.generation) for entry in object_versions(bucket)] == [
        ("a", first.generation),
        ("b/c", other.generation),
    ]
    for entry in list(object_versions(bucket)):
        delete_version(bucket, entry)
    delete_version(bucket, first)
    assert list(object_versions(bucket)) == []
    assert list(bucket.list()) == [second, live]


def test_what_a_bucket_keeps_is_told_by_it_to_who_may_ask(gcs: Storage) -> None:
    bucket = gcs.client().get_bucket(gcs.name)
    bucket.versioning_enabled = True
    bucket.soft_delete_policy.retention_duration_seconds = 3_600
    bucket.patch()
    assert retention_policy(gcs.bucket("store")) == RetentionPolicy(versioning=True, soft_delete_seconds=3_600)
    gcs.fails("status", "GET", f"/b/{gcs.name}", code=403)
    assert retention_policy(gcs.bucket("store")) is None
    gcs.fails("status", "GET", f"/b/{gcs.name}", code=403)
    with pytest.raises(WorkError, match=r"permission denied: whoever runs this needs storage\.objects\.list"):
        list(object_versions(gcs.bucket("store")))

"""What only S3 has: uploads in parts that others can see, and ETags that depend on the size of the parts."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.buckets.s3_server import S3Storage
from voxline.errors import WorkError
from voxline.operations.purge.retention import delete_old_versions
from voxline.store.objects import ObjectStore

OTHER = b"x" * (5 << 20)
"""As long as a part must be."""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_of_two_machines_that_upload_other_bytes_at_once_one_is_first(
    s3: S3Storage, tmp_path: Path, first: str
) -> None:
    """The second mistakes the live upload of the first for that of a killed process and continues it."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shard").write_bytes(os.urandom(11 << 20))
    client = s3.client()

    def meanwhile() -> None:
        (upload,) = client.list_multipart_uploads(Bucket=s3.name)["Uploads"]
        assert len(client.list_parts(Bucket=s3.name, Key="shard", UploadId=upload["UploadId"])["Parts"]) == 3
        if first == "ours":
            client.upload_part(Bucket=s3.name, Key="shard", UploadId=upload["UploadId"], PartNumber=1, Body=OTHER)
        else:
            s3.bucket().upload(tmp_path / "theirs", ["shard"], absent_only=True)

    completed = s3.fails("meanwhile", "POST", "uploadId=", action=meanwhile)
    s3.bucket().upload(tmp_path / "ours", ["shard"], absent_only=True)
    assert completed.met
    assert s3.bucket().read("shard") == (tmp_path / first / "shard").read_bytes()
    assert not client.list_multipart_uploads(Bucket=s3.name).get("Uploads")


@pytest.mark.slow
def test_an_object_in_parts_of_any_size_is_known_to_be_whole(
    s3: S3Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large.tar").write_bytes(os.urandom(21 << 20))
    monkeypatch.setenv("VOXLINE_BUCKETS_CHUNK_MEGABYTES", "9")
    s3.bucket().upload(tmp_path, ["large.tar"])
    monkeypatch.setenv("VOXLINE_BUCKETS_CHUNK_MEGABYTES", "4")
    for _ in range(2):
        s3.proxy.requests.clear()
        s3.bucket().download(s3.bucket().list(), tmp_path / "came")
        assert (tmp_path / "came" / "large.tar").read_bytes() == (tmp_path / "large.tar").read_bytes()
    assert s3.proxy.count("GET", "large.tar") == 0


def test_a_purge_deletes_the_parts_of_killed_uploads(s3: S3Storage) -> None:
    client = s3.client()
    for name in ("store/shards/a", "store/shards/b", "storehouse"):
        upload = client.create_multipart_upload(Bucket=s3.name, Key=name)["UploadId"]
        client.upload_part(Bucket=s3.name, Key=name, UploadId=upload, PartNumber=1, Body=b"clip")
    delete_old_versions(f"{s3.uri}/store", set())
    left = client.list_multipart_uploads(Bucket=s3.name)["Uploads"]
    assert [one["Key"] for one in left] == ["storehouse"]


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "InvalidObjectState"])
def test_what_no_permission_mends_is_not_called_one(s3: S3Storage, code: str) -> None:
    s3.fails("status", "PUT", code=403, reason=code, times=100)
    with pytest.raises(WorkError, match=rf"the storage refused to write it: 403 {code}: as the test wants it"):
        s3.bucket("a").write("x", b"1")


@pytest.mark.parametrize(
    ("call", "listing", "marker", "parameter"),
    [
        (lambda store: list(store.object_versions()), "ListVersionsResult", "VersionIdMarker", "version-id-marker"),
        (lambda store: store.abort_uploads(), "ListMultipartUploadsResult", "UploadIdMarker", "upload-id-marker"),
    ],
)
def test_a_listing_asks_for_the_next_page_with_the_markers_of_the_last(
    s3: S3Storage, call: Callable[[ObjectStore], object], listing: str, marker: str, parameter: str
) -> None:
    """The answers name the next page as Amazon's reference of the two operations does; servers page after 1,000."""
    more = f"<IsTruncated>true</IsTruncated><NextKeyMarker>p/k</NextKeyMarker><Next{marker}>m</Next{marker}>"
    for content in (more, "<IsTruncated>false</IsTruncated>"):
        s3.fails("status", "GET", "prefix=p", code=200, body=f"<{listing}>{content}</{listing}>".encode())
    call(s3.bucket("p"))
    first, second = (dict(parse_qsl(path.partition("?")[2])) for _, path, _ in s3.proxy.requests)
    assert second == {**first, "key-marker": "p/k", parameter: "m"}
    assert first["prefix"] == "p/"

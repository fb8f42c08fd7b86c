"""Answers that would never end, on the real clients: a clear error, at once or by the deadline."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.buckets.storages import AnyStorage
from voxline.errors import TransientError

DEADLINE = 2.0


@pytest.fixture(params=["gcs", "s3"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    bucket = request.getfixturevalue(request.param)
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", str(DEADLINE))
    monkeypatch.setenv("VOXLINE_BUCKETS_TIMEOUT_SECONDS", "1")
    bucket.bucket("a").write("folder/x.bin", b"RIFF" * 20)
    return bucket


def _listing(storage: AnyStorage) -> str:
    return "/o?" if storage.uri.startswith("gs://") else "list-type=2"


@pytest.mark.parametrize("ask", [lambda store: list(store.list()), lambda store: store.list_folders()])
def test_a_page_token_that_repeats_ends_a_listing(storage: AnyStorage, ask: Callable[[Any], object]) -> None:
    page = (
        b'{"nextPageToken": "same"}'
        if storage.uri.startswith("gs://")
        else b"<ListBucketResult><NextContinuationToken>same</NextContinuationToken><IsTruncated>true</IsTruncated>"
        b"</ListBucketResult>"
    )
    fault = storage.fails("status", "GET", _listing(storage), times=1_000, code=200, body=page)
    with pytest.raises(TransientError, match=r"/a/: the storage lists a next page with the token of an earlier page"):
        ask(storage.bucket("a"))
    assert fault.times == 998


def test_a_listing_that_goes_on_without_a_token_is_an_error(s3: Any) -> None:
    s3.bucket("a").write("x.bin", b"RIFF")
    s3.fails("edit", "GET", "list-type=2", edit=lambda body: body.replace(b"<IsTruncated>false", b"<IsTruncated>true"))
    with pytest.raises(TransientError, match=r"/a/: the storage lists a next page with no token; start again"):
        list(s3.bucket("a").list())


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["read", "read_range", "list", "stat"])
def test_an_answer_that_drips_ends_by_the_deadline(storage: AnyStorage, ask: str) -> None:
    store = storage.bucket("a")
    info = store.stat("folder/x.bin")
    assert info is not None
    storage.fails("drip", "GET", times=1_000, seconds=0.5)
    requests: dict[str, Callable[[], object]] = {
        "read": lambda: store.read("folder/x.bin"),
        "read_range": lambda: store.read_range(info, 0, 40),
        "list": lambda: list(store.list()),
        "stat": lambda: store.stat("folder/x.bin"),
    }
    if ask == "stat" and storage.uri.startswith("s3://"):
        pytest.skip("a HEAD has no body")
    began = time.monotonic()
    with pytest.raises(TransientError, match="not complete after"):
        requests[ask]()
    assert time.monotonic() - began < 40 * 0.5  # what the shortest of the bodies takes

"""Locks of a store in a bucket hold on every storage: against each other, past kills, and past a purge."""

import time
from typing import Any

import pytest

from tests.waiting import wait_until
from voxline.errors import PreconditionError, WorkError
from voxline.store.leases import hold_lease
from voxline.store.store_locks import (
    EXCLUSIVE_LOCK,
    SHARED_LOCKS,
    exclusive_store_lock,
    hold_shared_store_lock,
    record_purge,
)


@pytest.fixture(params=["gcs", "s3"])
def uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    storage: Any = request.getfixturevalue(request.param)
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "1.5")
    return f"{storage.uri}/store"


def test_a_store_in_use_is_not_locked_exclusively(uri: str) -> None:
    with hold_shared_store_lock(uri, 0), hold_shared_store_lock(uri, 0) as lease:
        with pytest.raises(WorkError, match=r"in use by process \d+ of "), exclusive_store_lock(uri):
            pass
        assert len(list(lease.store.list(SHARED_LOCKS))) == 2
    with exclusive_store_lock(uri) as lease:
        assert [info.name for info in lease.store.list(".")] == [EXCLUSIVE_LOCK]
    assert list(lease.store.list(".")) == []


def test_a_renewed_lease_is_kept_and_a_stolen_one_is_noticed(uri: str) -> None:
    """Each renewal has other bytes: on S3 equal ones would have one version, and nobody could tell."""
    with exclusive_store_lock(uri) as lease:
        first = lease.info.version
        wait_until(lambda: lease.info.version != first, "a renewal")
        lease.check()
        lease.store.write(EXCLUSIVE_LOCK, b"stolen")
        with pytest.raises(PreconditionError, match="not renewed in time, and lost"):
            lease.check()
        time.sleep(0.6)  # until a renewal has noticed it
    assert lease.store.read(EXCLUSIVE_LOCK) == b"stolen"


@pytest.mark.slow
def test_the_lock_of_a_killed_process_expires(uri: str) -> None:
    with exclusive_store_lock(uri) as lease:
        store = lease.store
    store.write(f"{SHARED_LOCKS}killed", b"{}")
    store.write(".lock", b"{}")
    time.sleep(3 + store.clock_resolution)
    with exclusive_store_lock(uri):
        assert list(store.list(SHARED_LOCKS)) == []
    with hold_lease(store, ".lock", "waiting"):
        assert store.read(".lock") != b"{}"


def test_what_was_read_before_a_purge_is_not_used_after_it(uri: str) -> None:
    with exclusive_store_lock(uri) as lease:
        record_purge(lease)
    with pytest.raises(PreconditionError, match="a purge has ended here since"), hold_shared_store_lock(uri, 60):
        pass
    time.sleep(0.1 + 2 * lease.store.clock_resolution)
    with hold_shared_store_lock(uri, 0):
        pass

"""Garbage collection in a bucket deletes unreferenced shards and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.storages import AnyStorage
from tests.publish.test_publish import content
from tests.publish.test_publish_in_a_bucket import extracted as extracted  # a fixture
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run
from voxline.errors import WorkError
from voxline.operations.shard_gc import GarbageCollected, collect_garbage
from voxline.store import store_locks
from voxline.store.bucket_step import LAST_USE_FILE
from voxline.store.files import DONE, seal_marker
from voxline.store.localize import localize
from voxline.store.step_cache import StepOutput

Pod = Callable[[], Path]
Extracted = Callable[[range], StepOutput]


def shards(storage: AnyStorage) -> set[str]:
    return {name.rpartition("/")[0] for name in storage.names() if name.startswith("store/shards/")}


@pytest.mark.slow
def test_unreferenced_shards_are_deleted_after_the_grace_period_and_extracted_again_when_needed(
    storage: AnyStorage, fresh_pod: Pod, extracted: Extracted
) -> None:
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    extracted(range(12))
    few = run(extracted(range(0, 12, 4)).uri, store, datasets, PublishSettings(compact_below=0.9))
    expected, before = content(localize(few.uri)), shards(storage)
    fresh_pod()

    def collected(grace_days: float = 3, dry_run: bool = False) -> GarbageCollected:
        return collect_garbage(store, [datasets], grace_days=grace_days, dry_run=dry_run)

    assert collected().shards == 0
    dry = collected(grace_days=0, dry_run=True)  # by this machine's clock: it writes nothing
    assert shards(storage) == before
    storage.let_pass(days=4)
    assert collected() == dry
    assert dry.shards == len(before - shards(storage)) >= 2
    fresh_pod()
    assert content(localize(few.uri)) == expected
    again = extracted(range(12))
    assert not again.reused
    assert len(content(localize(again.uri))) == len(content(localize(extracted(range(12)).uri)))
    output = storage.bucket(f"store/extract/{again.key}")
    marker = json.loads(output.read(DONE))
    output.write(DONE, json.dumps(seal_marker({**marker, "finished": "2026-01-01T00:00:00+00:00"})).encode())
    extracted(range(12))
    assert output.stat(LAST_USE_FILE)


@pytest.mark.slow
def test_running_steps_unfinished_purges_and_faults_stop_a_deletion_cleanly(
    storage: AnyStorage,
    fresh_pod: Pod,
    extracted: Extracted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "1")
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    extracted(range(12))
    few = run(extracted(range(0, 12, 4)).uri, store, datasets, PublishSettings(compact_below=0.9))
    expected, before = content(localize(few.uri)), shards(storage)
    storage.let_pass(days=9)
    with store_locks.hold_shared_store_lock(store, 0), pytest.raises(WorkError, match="in use by"):
        collect_garbage(store, [datasets], grace_days=3, dry_run=False)
    storage.bucket("store").write(".purge-0123.json", b"{}")
    with pytest.raises(WorkError, match="a purge was started here and did not finish"):
        collect_garbage(store, [datasets], grace_days=3, dry_run=False)
    storage.bucket("store").delete(".purge-0123.json")
    denied = storage.fails("status", "DELETE", "tfrecord", code=403, times=1_000)
    with pytest.raises(WorkError, match=r"storage\.objects\.delete|s3:DeleteObject"):
        collect_garbage(store, [datasets], grace_days=3, dry_run=False)
    denied.times = 0
    storage.fails("lost answer", "DELETE", "shards", after=1, times=2)
    collect_garbage(store, [datasets], grace_days=3, dry_run=False)
    gone = before - shards(storage)
    assert gone
    assert {f"{folder}/shard.json" for folder in shards(storage)} <= set(storage.names()), "nothing half is left"
    fresh_pod()
    assert content(localize(few.uri)) == expected

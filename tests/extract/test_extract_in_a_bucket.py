"""Shards in a bucket: workers need no shared disk, and a shard counts only once every machine can find it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.pods import workers_elsewhere
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.store.localize import localize
from voxline.store.objects import open_store

SMALL = ExtractSettings.of(shard_megabytes=0.1)


@pytest.fixture
def converted(
    gcs: Storage, fresh_pod: Callable[[], Path], corpus: Callable[..., list[Utterance]], tmp_path: Path
) -> str:
    """Converted recordings in a bucket."""
    corpus(20)
    fresh_pod()
    mirror = open_store(f"{gcs.uri}/converted")
    shutil.copytree(tmp_path / "converted", mirror.local_path())
    mirror.push(
        [path.relative_to(mirror.local_path()).as_posix() for path in mirror.local_path().rglob("*") if path.is_file()]
    )
    fresh_pod()
    return f"{gcs.uri}/converted"


@pytest.mark.slow
def test_workers_that_share_no_disk_write_the_shards_of_one_machine(
    gcs: Storage, converted: str, tmp_path: Path
) -> None:
    by_workers = SMALL.model_copy(update={"beam_from_megabytes": 0, "runner": "multi_process", "workers": 1})
    with workers_elsewhere(tmp_path / "worker") as here:
        work = run(converted, f"{gcs.uri}/store", by_workers)
        assert not list(here.rglob("*.tfrecord"))
    assert list((tmp_path / "worker").rglob("*.tfrecord"))
    alone = run(converted, tmp_path / "store", SMALL)
    read, expected = Dataset.read(localize(work.uri)), Dataset.read(alone.folder)
    assert [shard.checksum for shard in read.shards] == [shard.checksum for shard in expected.shards]
    assert read.counts == expected.counts
    assert not [name for name in gcs.names() if "/unfinished/" in name]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_shard_that_was_not_uploaded_does_not_count_and_is_uploaded(
    gcs: Storage, converted: str, fresh_pod: Callable[[], Path], sent: int
) -> None:
    gcs.fails("status", "POST", after=sent, times=1_000, code=403)
    with pytest.raises(WorkError, match="permission denied"):
        run(converted, f"{gcs.uri}/store", SMALL)
    gcs.proxy.faults.clear()
    assert not run(converted, f"{gcs.uri}/store", SMALL).reused
    fresh_pod()
    again = run(converted, f"{gcs.uri}/store", SMALL)
    assert again.reused
    assert sum(Dataset.read(localize(again.uri)).counts.values()) == 20


@pytest.mark.slow
def test_a_shard_that_was_deleted_from_the_bucket_is_written_again_where_its_index_is_cached(
    gcs: Storage, converted: str, fresh_pod: Callable[[], Path]
) -> None:
    store = open_store(f"{gcs.uri}/store")
    first = run(converted, store.uri, SMALL)
    cache = fresh_pod()
    store.pull([info for info in store.list() if info.name.endswith("/shard.json")])
    store.delete_folder("extract")
    store.delete_folder("shards")
    assert not list(cache.rglob("*.tfrecord"))
    assert run(converted, store.uri, SMALL).counts == first.counts

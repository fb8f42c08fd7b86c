"""Versions in a bucket: every machine sees whole ones, and no two machines use the same number."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.buckets.storages import AnyStorage
from tests.extract.conftest import write_wav
from tests.publish.conftest import HOW
from tests.publish.test_publish import content
from voxline.components.extract.step import run as extract
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, write_manifest
from voxline.data.versions import DatasetVersions, list_datasets
from voxline.errors import WorkError
from voxline.store.bucket_cache import CACHE_ENV
from voxline.store.hashing import hash_file
from voxline.store.localize import localize
from voxline.store.step_cache import StepOutput
from voxline.training.batches import Batches

Pod = Callable[[], Path]
COMPACT = PublishSettings(compact_below=0.9)


@pytest.fixture
def extracted(storage: AnyStorage, tmp_path: Path) -> Callable[[range], StepOutput]:
    """Extracts a corpus of some of twelve recordings into a store in the bucket."""
    random = np.random.default_rng(0)
    utterances = []
    for number in range(12):
        samples = int(random.integers(2_000, 6_000))
        path = write_wav(tmp_path / "wavs" / f"{number}.wav", random.standard_normal(samples) / 10)
        utterances.append(Utterance(f"u{number:02}", str(path), samples / 16_000, "one", "s", "train", hash_file(path)))

    def make(which: range) -> StepOutput:
        write_manifest(tmp_path / "manifest.jsonl", [utterances[number] for number in which])
        return extract(tmp_path, f"{storage.uri}/store", HOW)

    return make


def test_another_machine_reads_a_version_and_publishes_the_same_content_only_once(
    storage: AnyStorage, fresh_pod: Pod, extracted: Callable[[range], StepOutput]
) -> None:
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    whole = extracted(range(12))
    first = run(whole.uri, store, datasets, COMPACT)
    expected = content(localize(whole.uri))
    fresh_pod()
    again = run(extracted(range(12)).uri, store, datasets, COMPACT)
    assert (first.uri, first.reused) == (f"{datasets}/corpus/1", False)
    assert (again.uri, again.reused) == (f"{datasets}/corpus/1", True)
    fresh_pod()
    assert content(localize(f"{datasets}/corpus/1")) == expected
    assert list_datasets(datasets) == ["corpus"]


def test_sparse_shards_are_compacted_in_a_bucket(
    storage: AnyStorage, fresh_pod: Pod, extracted: Callable[[range], StepOutput]
) -> None:
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    extracted(range(12))
    fresh_pod()
    left = extracted(range(0, 12, 4))
    version = run(left.uri, store, datasets, COMPACT)
    fresh_pod()
    dataset = Dataset.read(localize(version.uri))
    assert all(shard.live == shard.examples for shard in dataset.shards)
    read = Batches(dataset, "train", batch_size=4)
    assert sorted(name for batch in read.epoch(0) for name in batch.ids) == ["u00", "u04", "u08"]


def test_a_number_reserved_by_a_machine_that_died_is_not_a_version(
    storage: AnyStorage, fresh_pod: Pod, extracted: Callable[[range], StepOutput]
) -> None:
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    dataset = extracted(range(12))
    gone = storage.fails("status", path="version.json", changes=True, code=403, times=100)
    with pytest.raises(WorkError, match=r"version\.json: .*permission denied"):
        run(dataset.uri, store, datasets, COMPACT)
    gone.times = 0
    fresh_pod()
    assert DatasetVersions(datasets, "corpus").numbers() == []
    with pytest.raises(WorkError, match="no version 1; existing: none"):
        DatasetVersions(datasets, "corpus").path(1)
    assert run(dataset.uri, store, datasets, COMPACT).uri == f"{datasets}/corpus/2"
    assert json.loads(storage.bucket("datasets").read("corpus/2/version.json"))["replaces"] is None


def test_the_second_machine_takes_the_next_number(
    storage: AnyStorage,
    fresh_pod: Pod,
    extracted: Callable[[range], StepOutput],
    tmp_path: Path,
) -> None:
    store, datasets = f"{storage.uri}/store", f"{storage.uri}/datasets"
    fresh_pod()
    slow, fast = extracted(range(12)), extracted(range(6))

    def overtake() -> None:
        with pytest.MonkeyPatch.context() as other_machine:
            other_machine.setenv(CACHE_ENV, str(tmp_path / "other machine"))
            run(fast.uri, store, datasets, COMPACT)

    listed = storage.fails("meanwhile", "GET", "delimiter", action=overtake)
    run(slow.uri, store, datasets, COMPACT)
    assert listed.met
    versions = DatasetVersions(datasets, "corpus")
    assert {number: versions.info(number).key for number in versions.numbers()} == {1: fast.key, 2: slow.key}


def test_a_version_in_a_bucket_cannot_use_local_shards(
    storage: AnyStorage, fresh_pod: Pod, tmp_path: Path, extracted: Callable[[range], StepOutput]
) -> None:
    fresh_pod()
    extracted(range(3))
    dataset = extract(tmp_path, tmp_path / "store", HOW).folder
    with pytest.raises(WorkError, match="set `store` to a bucket too"):
        run(dataset, tmp_path / "store", f"{storage.uri}/datasets", COMPACT)

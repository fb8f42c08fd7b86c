"""extract on a Flink session cluster: the same records as in one process, also when machines and workers die."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.extract.deadly import DEADLY, written_deadly
from tests.flink.cluster import Cluster
from tests.flink.conftest import UTTERANCES, make_corpus
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_rejects
from voxline.data.tfrecord import decode_example, read_record_at
from voxline.store.step_cache import StepOutput

pytestmark = pytest.mark.timeout(1_800)

ALONE = ExtractSettings(shard_megabytes=0.5, beam_from_megabytes=1_000_000)


def on(cluster: Cluster, parallelism: int = 2) -> ExtractSettings:
    options = cluster.beam_options(parallelism)
    return ALONE.model_copy(update={"runner": "FlinkRunner", "beam_options": options, "beam_from_megabytes": 0.0})


def records(work: StepOutput) -> dict[str, bytes]:
    """A hash of each utterance's features, by id."""
    dataset = Dataset.read(work.folder)
    places = dataset.read_record_locations()
    found: dict[str, bytes] = {}
    for row in dataset.rows():
        shard, offset, size, _ = places[row.number, 0].item()
        file = dataset.file(dataset.shards[shard])
        with open(file, "rb") as opened:
            example: dict[str, Any] = decode_example(read_record_at(opened.fileno(), offset, size, file))
        found[row.id] = hashlib.blake2b(example["features"][0]).digest()
    return found


def is_whole(work: StepOutput, utterances: int) -> None:
    """Checks that no clip is missing or in two shards."""
    dataset = Dataset.read(work.folder)
    assert work.counts["extracted"] == work.counts["utterances"] == utterances
    assert sum(shard.examples for shard in dataset.shards) == sum(shard.live for shard in dataset.shards) == utterances


def in_the_middle(store: Path, do: Callable[[], None], *, shards: int) -> threading.Thread:
    """Calls a function as soon as so many shards are written."""

    def watch() -> None:
        while len(list(store.glob("shards/*/*/shard.json"))) < shards:
            time.sleep(0.05)
        do()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="session")
def alone(many: Path, tmp_path_factory: pytest.TempPathFactory) -> StepOutput:
    """The dataset of one process."""
    return run(many, tmp_path_factory.mktemp("alone"), ALONE)


def test_two_task_managers_write_the_records_of_one_process(many: Path, alone: StepOutput, tmp_path: Path) -> None:
    with Cluster(tmp_path / "flink") as cluster:
        work = run(many, tmp_path / "store", on(cluster))
        (job,) = cluster.jobs()
    assert job["state"] == "FINISHED"
    is_whole(work, UTTERANCES)
    assert records(work) == records(alone)
    assert work.key == alone.key


def test_a_killed_task_manager_loses_no_record_and_duplicates_none(
    many: Path, alone: StepOutput, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with Cluster(tmp_path / "flink") as cluster:
        at_once = len(list(alone.folder.parent.parent.glob("shards/*/*/shard.json"))) // 4
        killer = in_the_middle(store, lambda: cluster.kill_task_manager(1), shards=max(at_once, 1))
        work = run(many, store, on(cluster))
        killer.join(timeout=1)
        (job,) = cluster.jobs()
        assert cluster.task_managers[1].poll() is not None
        assert cluster.restarts() >= 1
    assert job["state"] == "FINISHED"
    is_whole(work, UTTERANCES)
    assert records(work) == records(alone)


def test_a_killed_worker_of_a_pool_loses_no_record(many: Path, alone: StepOutput, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Cluster(tmp_path / "flink", pool=True) as cluster:
        killer = in_the_middle(store, lambda: os.kill(cluster.workers_of_the_pool()[0], signal.SIGKILL), shards=1)
        work = run(many, store, on(cluster))
        killer.join(timeout=1)
        (job,) = cluster.jobs()
        assert cluster.restarts() >= 1
    assert job["state"] == "FINISHED"
    is_whole(work, UTTERANCES)
    assert records(work) == records(alone)


def test_a_recording_that_crashes_its_workers_is_a_reject_and_the_job_succeeds(tmp_path: Path) -> None:
    utterances = make_corpus(tmp_path / "corpus", 60)
    manifest = tmp_path / "corpus" / "manifest.jsonl"
    (tmp_path / "corpus" / "wavs" / "30.wav").rename(tmp_path / "corpus" / "wavs" / DEADLY)
    manifest.write_text(manifest.read_text().replace("wavs/30.wav", f"wavs/{DEADLY}"))
    hook = written_deadly(tmp_path / "hook")
    with Cluster(tmp_path / "flink", python_path=[hook]) as cluster:
        work = run(tmp_path / "corpus", tmp_path / "store", on(cluster))
        (job,) = cluster.jobs()
    assert job["state"] == "FINISHED"
    (reject,) = read_rejects(work.folder)
    assert (reject.id, reject.reason) == (utterances[30].id, "unreadable")
    assert "process of its own" in reject.detail
    assert work.counts["utterances"] == 59


def test_a_recording_of_an_hour_does_not_delay_the_others(tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus", 400, longest=3_600.0)
    store = tmp_path / "store"
    with Cluster(tmp_path / "flink") as cluster:
        work = run(tmp_path / "corpus", store, on(cluster))
    dataset = Dataset.read(work.folder)
    (long,) = [shard for shard in dataset.shards if shard.bytes > 50e6]
    assert long.examples == 1
    written = sorted(dataset.shards, key=lambda shard: dataset.file(shard).stat().st_mtime)
    assert written.index(long) >= len(written) // 3 >= 1
    assert work.counts["utterances"] == 400

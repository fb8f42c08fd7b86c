"""Dataset versions: numbered, whole or absent, never changed; compaction and garbage collection."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.audit import noticed
from tests.publish.conftest import Extract
from tests.waiting import PATIENCE_SECONDS
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run
from voxline.data.dataset import Dataset
from voxline.data.versions import VERSION_FILE, DatasetVersions, list_datasets
from voxline.errors import WorkError
from voxline.notify.event import RunEvent, RunIdentity
from voxline.notify.history import record_run
from voxline.operations.shard_gc import collect_garbage
from voxline.store import files
from voxline.training.batches import Batches

KEEP = PublishSettings(compact_below=0)
COMPACT = PublishSettings(compact_below=0.9)


def content(folder: Path) -> list[Any]:
    dataset = Dataset.read(folder)
    batches = Batches(dataset, "train", batch_size=4, shuffled=True, seed=1)
    return [list(dataset.rows()), dataset.mean, *((b.ids, b.features.tobytes()) for b in batches.epoch(1))]


def test_a_run_ends_here_only_where_these_settings_were_judged_on_this_version(
    extracted: Extract, tmp_path: Path
) -> None:
    history = str(tmp_path / "history")
    settings = PublishSettings(then="asr", training="one", history=history)
    first = run(extracted(), tmp_path / "store", tmp_path / "datasets", settings, model_name="asr")
    assert "skipped" not in first.counts
    identity = RunIdentity("asr", "nightly", "asr", training="one")
    record_run(RunEvent(identity, "refused", "", time.time(), digest="9f", dataset_uri=first.uri), history)
    for training, skipped in (("one", 1), ("another", None)):
        changed = settings.model_copy(update={"training": training})
        again = run(extracted(), tmp_path / "store", tmp_path / "datasets", changed, model_name="asr")
        assert again.reused
        assert again.counts.get("skipped") == skipped


def test_versions_are_numbered_and_the_same_content_creates_none(extracted: Extract, tmp_path: Path) -> None:
    first = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP)
    again = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP)
    other = run(extracted(range(10)), tmp_path / "store", tmp_path / "datasets", KEEP)
    back = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP)
    assert [work.folder.name for work in (first, again, other, back)] == ["1", "1", "2", "3"]
    assert [work.reused for work in (first, again, other, back)] == [False, True, False, False]
    assert first.counts == {"version": 1, "utterances": 20, "train": 16, "dev": 4}
    versions = DatasetVersions(tmp_path / "datasets", "corpus")
    assert [versions.info(number).replaces for number in versions.numbers()] == [None, 1, 2]
    assert content(first.folder) == content(back.folder) == content(extracted())
    assert list_datasets(tmp_path / "datasets") == ["corpus"]


def test_a_version_is_never_changed_and_numbers_are_not_used_again(extracted: Extract, tmp_path: Path) -> None:
    first = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP).folder
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    run(extracted(range(3)), tmp_path / "store", tmp_path / "datasets", COMPACT)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before
    (tmp_path / "datasets" / "corpus" / "2" / VERSION_FILE).unlink()
    assert run(extracted(range(4)), tmp_path / "store", tmp_path / "datasets", KEEP).folder.name == "3"
    with pytest.raises(WorkError, match=r"no version 2; existing: 1, 3"):
        DatasetVersions(tmp_path / "datasets", "corpus").path(2)


def test_sparse_shards_are_compacted_and_read_as_before(extracted: Extract, tmp_path: Path) -> None:
    extracted()
    left = extracted([0, 3, 7, 11, 19])
    assert any(shard.live < shard.examples / 2 for shard in Dataset.read(left).shards)
    version = run(left, tmp_path / "store", tmp_path / "datasets", COMPACT).folder
    compacted = Dataset.read(version)
    assert all(shard.live == shard.examples for shard in compacted.shards)
    assert sum(shard.examples for shard in compacted.shards) == 5
    assert content(version) == content(left)
    # Later extractions use the new shards, so that nothing references the old ones.
    more = Dataset.read(extracted([0, 3, 7, 11, 18, 19]))
    assert {shard.checksum for shard in compacted.shards} <= {shard.checksum for shard in more.shards}


def test_every_write_may_fail_and_readers_see_whole_versions(extracted: Extract, tmp_path: Path) -> None:
    """Each rename in turn, which is how a file or a folder appears."""
    extracted()
    small = extracted(range(3))
    run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP)
    expected, calls = content(small), 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(28, "No space left on device", "/full")

    failures: list[str] = []
    for at in range(1, 50):  # noqa: B007 - `fail` reads it
        calls = 0
        try:
            with noticed("os.rename", fail):
                run(small, tmp_path / "store", tmp_path / "datasets", COMPACT)
        except WorkError as error:
            failures.append(str(error))
            assert DatasetVersions(tmp_path / "datasets", "corpus").numbers() == [1]
            assert content(small) == expected
            continue
        break
    assert len(failures) >= 5
    assert all("No space left" in failure for failure in failures)
    assert DatasetVersions(tmp_path / "datasets", "corpus").numbers() == [1, 2]
    assert content(tmp_path / "datasets" / "corpus" / "2") == expected
    assert files.read_json(tmp_path / "datasets" / "corpus" / "2" / VERSION_FILE)["replaces"] == 1
    assert not [path for path in (tmp_path / "datasets" / "corpus").iterdir() if path.name.startswith(".incoming")]


@pytest.mark.slow
def test_concurrent_processes_each_get_a_number(extracted: Extract, tmp_path: Path) -> None:
    folders = [extracted(range(number)) for number in (5, 8, 11, 14)]
    script = (
        "import sys; from voxline.components.publish.step import run; "
        "from voxline.components.publish.settings import PublishSettings;"
        "run(*sys.argv[1:4], PublishSettings())"
    )
    stores = [tmp_path / "store", tmp_path / "datasets"]
    running = [subprocess.Popen([sys.executable, "-c", script, folder, *stores]) for folder in folders]
    assert [process.wait(PATIENCE_SECONDS) for process in running] == [0] * 4
    versions = DatasetVersions(tmp_path / "datasets", "corpus")
    assert versions.numbers() == [1, 2, 3, 4]
    assert {versions.info(number).key for number in versions.numbers()} == {folder.name for folder in folders}
    for number in versions.numbers():
        assert content(versions.path(number)) == content(tmp_path / "store" / "extract" / versions.info(number).key)


def test_a_reader_is_not_disturbed_by_refreshes_and_compactions(extracted: Extract, tmp_path: Path) -> None:
    folder = extracted()
    version = run(folder, tmp_path / "store", tmp_path / "datasets", KEEP).folder
    expected = content(version)
    stop, faults = threading.Event(), list[str]()

    def read() -> None:
        while not stop.is_set():
            if content(version) != expected:
                faults.append("another content")

    reader = threading.Thread(target=read)
    reader.start()
    for last in (3, 6, 9, 12):
        run(extracted(range(last)), tmp_path / "store", tmp_path / "datasets", COMPACT)
        collect_garbage(tmp_path / "store", [tmp_path / "datasets"], grace_days=0, dry_run=False)
    stop.set()
    reader.join()
    assert not faults
    assert content(version) == expected


def old(folder: Path, days: float) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - days * 86_400,) * 2)


def test_unreferenced_shards_are_deleted_after_the_grace_period(extracted: Extract, tmp_path: Path) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    extracted()
    kept = run(extracted([0, 3, 7]), store, datasets, COMPACT).folder
    expected = content(kept)
    assert collect_garbage(store, [datasets], grace_days=1, dry_run=False).shards == 0
    old(store, days=2)
    dry = collect_garbage(store, [datasets], grace_days=1, dry_run=True)
    done = collect_garbage(store, [datasets], grace_days=1, dry_run=False)
    assert dry == done
    assert done.shards >= 3
    assert content(kept) == expected
    assert len(list(store.glob("shards/*/[0-9a-f]*"))) == len(Dataset.read(kept).shards)
    # Deleted shards are extracted again when needed.
    assert len(list(Dataset.read(extracted()).rows())) == 20


def test_versions_and_shards_behind_links_count(extracted: Extract, tmp_path: Path) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    version = run(extracted(), store, datasets, KEEP).folder
    expected = content(version)
    for number, folder in enumerate([*(store / "shards").glob("*/"), version]):
        folder.rename(tmp_path / f"other disk {number}")
        folder.symlink_to(tmp_path / f"other disk {number}")
    for folder in (store, *tmp_path.glob("other disk *")):
        old(folder, days=9)
    assert collect_garbage(store, [datasets], grace_days=1, dry_run=False).shards == 0
    assert content(version) == expected


def test_shards_that_a_process_reads_are_not_deleted(extracted: Extract, tmp_path: Path) -> None:
    store = tmp_path / "store"
    reading = Batches(Dataset.read(extracted()), "train", batch_size=4)
    old(store, days=2)
    found = collect_garbage(store, [], grace_days=1, dry_run=False)
    assert (found.shards, found.in_use) == (1, 4)  # the one of dev is read by nobody
    assert sum(len(batch.ids) for batch in reading.epoch(0)) == 16
    del reading
    assert collect_garbage(store, [], grace_days=1, dry_run=False).shards == 4


def test_nothing_is_deleted_if_a_version_is_unreadable_or_a_purge_unfinished(
    extracted: Extract, tmp_path: Path
) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    version = run(extracted(), store, datasets, KEEP).folder
    (version / "dataset.json").write_text(json.dumps({"half": "written"}))
    old(store, days=9)
    with pytest.raises(WorkError, match=r"datasets/corpus/1/dataset\.json: damaged"):
        collect_garbage(store, [datasets], grace_days=1, dry_run=False)
    (store / ".purge-0123.json").write_text("{}")
    with pytest.raises(WorkError, match="a purge was started here and did not finish"):
        collect_garbage(store, [datasets], grace_days=1, dry_run=False)


def test_a_flipped_bit_in_a_version_is_never_read(extracted: Extract, tmp_path: Path) -> None:
    """A mean with another digit trained another model under the same key: no marker of a step has a version's hash."""
    version = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP).folder
    before = Dataset.read_header(version)
    file = version / "dataset.json"
    whole = file.read_bytes()
    mean = whole.index(b'"mean"')
    refused = 0
    for at in [*range(mean, mean + 60), *range(0, len(whole), 29)]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            assert Dataset.read_header(version) == before, at
        except WorkError as error:
            refused += "seal is another" in str(error)
    assert refused > 60
    again = run(extracted(), tmp_path / "store", tmp_path / "datasets", KEEP)
    assert (again.reused, again.folder.name) == (False, "2"), "and it is published again"


def test_a_dataset_without_its_shards_is_not_published(extracted: Extract, tmp_path: Path) -> None:
    folder = extracted()
    shutil.rmtree(Dataset.read(folder).files()[0].parent)
    with pytest.raises(WorkError, match=r"absent, and .* lists it; run extract again"):
        run(folder, tmp_path / "store", tmp_path / "datasets", KEEP)
    assert not (tmp_path / "datasets").exists() or list_datasets(tmp_path / "datasets") == []

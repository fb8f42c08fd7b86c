"""A purge in a bucket: nothing is left there or on this machine, also after faults and kills at any request."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.buckets.emulator import FAKE_GCS, Storage
from tests.buckets.older import Older
from tests.buckets.proxy import Proxy
from tests.publish.withdrawn import GONE, make, refresh
from voxline.components.publish.purge.locations import PurgeScope
from voxline.components.publish.purge.purge import PurgeFindings, purge_speaker
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.components.publish.versions import DatasetVersions
from voxline.components.train.batches import Batches
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry
from voxline.store import bucket_locks
from voxline.store.bucket_cache import CACHE_ENV, localize
from voxline.store.objects import crc32c

Objects = dict[str, bytes]
COUNT = 12
EVERY = "VOXLINE_TEST_EVERY_CHANGE"
"""Set: a purge is killed at every change, and not at three of them, which takes many minutes."""


@pytest.fixture(scope="module")
def made(gcs_proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Objects]:
    """The folder of a corpus, and all that a bucket holds of it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", gcs_proxy.address)
        patch.setenv(CACHE_ENV, str(folder / "mirror"))
        gcs_proxy.faults.clear()
        gcs_proxy.wipe()
        storage = Storage(gcs_proxy)
        make(folder, storage.uri, COUNT)
        cache = folder / "mirror" / "gs" / storage.name
        for file in cache.rglob("*"):  # what a training and an evaluation would have sent
            if file.is_file() and ("train/" in str(file) or "registry/" in str(file)) and file.name[0] != ".":
                storage.bucket().write(file.relative_to(cache).as_posix(), file.read_bytes())
        objects = {entry.name: storage.bucket().read(entry.name) for entry in storage.bucket().list()}
    return folder, objects


@pytest.fixture
def filled(gcs: Storage, made: tuple[Path, Objects], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Storage:
    """That bucket once more, and a machine that has brought nothing yet."""
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "20")
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "mirror"))
    fill(gcs, made[1])
    return gcs


def fill(gcs: Storage, objects: Objects) -> None:
    bucket = gcs.bucket()
    there = {entry.name: entry.checksum for entry in bucket.list()}
    for name in there.keys() - objects.keys():
        bucket.delete(name)
    for name, data in objects.items():
        if there.get(name) != f"crc32c:{crc32c(data)}":
            bucket.write(name, data)


def purged(gcs: Storage) -> PurgeFindings:
    return purge_speaker(GONE, PurgeScope(f"{gcs.uri}/store", (f"{gcs.uri}/datasets",), f"{gcs.uri}/registry"))


def told(gcs: Storage, *more: str) -> str:
    arguments = ["--speaker", GONE, "--store", f"{gcs.uri}/store", "--datasets", f"{gcs.uri}/datasets"]
    result = CliRunner().invoke(app, ["datasets", "purge", *arguments, "--registry", f"{gcs.uri}/registry", *more])
    return result.output + str(result.exception or "")


def traces_of_her(gcs: Storage) -> list[str]:
    found = []
    for entry in gcs.bucket().list():
        data = gcs.bucket().read(entry.name)
        data = gzip.decompress(data) if entry.name.endswith(".gz") else data
        if GONE in f"{entry.name} {data.decode('latin-1')}" or data == b"her voice":
            found.append(entry.name)
    return found


def read_all(folder: Path) -> dict[str, bytes]:
    """Features of all utterances, read as training reads them."""
    dataset = Dataset.read(folder)
    found: dict[str, bytes] = {}
    for split in dataset.counts:
        found |= {one.ids[0]: one.features.tobytes() for one in Batches(dataset, split, batch_size=1).epoch(0)}
    return found


def of_versions(gcs: Storage) -> dict[tuple[str, int], dict[str, bytes]]:
    all_versions = [DatasetVersions(f"{gcs.uri}/datasets", name) for name in ("three", "two")]
    return {(each.name, number): read_all(each.path(number)) for each in all_versions for number in each.numbers()}


def without_her(content: dict[tuple[str, int], dict[str, bytes]]) -> dict[tuple[str, int], dict[str, bytes]]:
    return {
        version: {name: data for name, data in rows.items() if not name.startswith(GONE)}
        for version, rows in content.items()
    }


def is_clean(gcs: Storage, expected: Any, clips: set[str]) -> None:
    """All of the others', nothing of hers, and no lock or half of anything."""
    assert traces_of_her(gcs) == []
    assert of_versions(gcs) == expected
    names = gcs.names()
    shards = [json.loads(gcs.bucket().read(name)) for name in names if name.endswith("/shard.json")]
    assert not any(clips & set(shard["clips"]) for shard in shards)
    folders = {name.rpartition("/")[0] for name in names if name.startswith("store/shards/")}
    assert folders == {name.rpartition("/")[0] for name in names if name.endswith("/shard.json")}
    assert not [name for name in names if "/." in name and not name.endswith("/.purged")], "locks, moves"
    assert len(gcs.bucket().read("datasets/purges.jsonl").splitlines()) == 1


def test_nothing_of_a_speaker_is_left_in_a_bucket_and_all_of_the_others_is(filled: Storage, tmp_path: Path) -> None:
    expected = without_her(of_versions(filled))
    before = filled.names()
    assert "would be removed" in told(filled)
    assert sorted(filled.names()) == sorted(before), "to look changes nothing"
    assert (tmp_path / "mirror" / "gs" / filled.name / "store").is_dir()
    output = told(filled, "--yes", "--note", "asked by letter")
    assert "\nother machines may hold copies" in output, output
    assert f"recorded in {filled.uri}/datasets/purges.jsonl" in output
    assert not (tmp_path / "mirror" / "gs" / filled.name / "store").exists()
    assert not list((tmp_path / "mirror").glob(".apart*"))
    is_clean(filled, expected, set())
    (line,) = [json.loads(line) for line in filled.bucket().read("datasets/purges.jsonl").splitlines()]
    assert (line["note"], line["rows"], line["utterances"]) == ("asked by letter", 8, 4)
    assert (line["versions"], line["models"], line["trained"]) == (["three/1", "three/2"], ["asr/1"], ["0123"])
    assert line["retention"][0]["place"] == f"{filled.uri}/store"
    assert "nothing of 'zenobia'" in told(filled)
    assert Registry(f"{filled.uri}/registry", "asr").is_intact(1)


def test_a_refresh_after_it_publishes_no_version(filled: Storage, made: tuple[Path, Objects]) -> None:
    purged(filled)
    _, extracted = refresh(made[0], filled.uri, 2, without=GONE)
    store, datasets = f"{filled.uri}/store", f"{filled.uri}/datasets"
    published = publish(extracted.uri, store, datasets, PublishSettings(name="three"))
    assert (published.reused, published.uri) == (True, f"{datasets}/three/2")
    assert traces_of_her(filled) == []


def test_who_works_in_the_store_is_not_disturbed_and_a_lock_that_was_left_goes(
    filled: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "60")
    before = filled.names()
    with (
        bucket_locks.hold_shared_store_lock(f"{filled.uri}/store", 0),
        pytest.raises(WorkError, match=r"in use by process"),
    ):
        purged(filled)
    assert sorted(filled.names()) == sorted(before)
    filled.bucket("store").write(".working/killed", b"{}")
    monkeypatch.setattr(bucket_locks, "_lease_seconds", lambda: -1.0)
    purged(filled)
    assert traces_of_her(filled) == []


def test_what_had_begun_to_read_before_it_is_refused(filled: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    read_before = bucket_locks.seconds_since_snapshot
    purged(filled)
    with bucket_locks.hold_shared_store_lock(f"{filled.uri}/store", 0):
        pass
    monkeypatch.setattr("voxline.store.bucket_locks.seconds_since_snapshot", lambda: read_before() + 60)
    with pytest.raises(WorkError, match="a purge has ended here since this process began"):
        publish(f"{filled.uri}/store/none", f"{filled.uri}/store", f"{filled.uri}/datasets", PublishSettings(name="x"))


@pytest.mark.skipif(bool(os.environ.get(FAKE_GCS)), reason="the proxy stands in for gcp-storage-emulator alone")
@pytest.mark.parametrize("denied", [False, True])
def test_older_generations_go_too_and_what_must_stay_is_told(
    filled: Storage, denied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Older()
    older.buckets.add(filled.name)
    older.denied = denied
    monkeypatch.setattr(filled.proxy, "older", older)
    bucket = filled.client().get_bucket(filled.name)
    bucket.versioning_enabled = True
    bucket.patch()
    gone = next(name for name in filled.names() if name.endswith(".wav"))  # anybody's
    filled.bucket().write(gone, filled.bucket().read(gone))
    output = told(filled, "--yes")
    theirs = [entry for entry in filled.bucket("store").object_versions() if "convert/" in entry.name]
    records = [json.loads(line) for line in filled.bucket().read("datasets/purges.jsonl").splitlines()]
    (of_store,) = [kept for kept in records[0]["retention"] if kept["place"].endswith("/store")]
    if denied:
        assert "older versions of their objects REMAIN" in output
        assert (bool(theirs), of_store["left"] > 0) == (True, True)
    else:
        assert "older versions of their objects are deleted too" in output
        assert (theirs, of_store["left"], of_store["removed"] > 0) == ([], 0, True)
    assert "(soft delete), and nobody can remove them earlier" in output
    assert "--clear-soft-delete" in output
    assert "a lifecycle rule that deletes what is not live" in output
    assert of_store["soft_until"] > records[0]["at"]


def test_faults_that_pass_by_are_not_noticed(filled: Storage) -> None:
    expected = without_her(of_versions(filled))
    for kind, method, after in (("status", "DELETE", 3), ("reset", "POST", 5), ("lost answer", "DELETE", 9)):
        filled.fails(kind, method, after=after, times=2)
    filled.fails("status", "GET", code=429, after=20, times=3)
    filled.fails("lost answer", "POST", after=12)
    is_clean(filled, expected, purged(filled).footprint.clips)


def test_a_permission_that_is_not_given_is_told_and_the_purge_goes_on_when_it_is(filled: Storage) -> None:
    expected = without_her(of_versions(filled))
    denied = filled.fails("status", "DELETE", "shards", code=403, times=1_000)
    assert "storage.objects.delete" in told(filled, "--yes")
    denied.times = 0
    with pytest.raises(WorkError, match="a purge was begun here and did not end; run the same command again"):
        publish(f"{filled.uri}/store/none", f"{filled.uri}/store", f"{filled.uri}/datasets", PublishSettings(name="x"))
    is_clean(filled, expected, purged(filled).footprint.clips)


@pytest.mark.timeout(3_600)
def test_a_purge_that_was_killed_at_any_change_is_finished_by_the_next(
    filled: Storage, made: tuple[Path, Objects], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "60")
    expected = without_her(of_versions(filled))
    before = len(filled.proxy.requests)
    clips = purged(filled).footprint.clips
    changes = sum(method != "GET" for method, _, _ in filled.proxy.requests[before:])
    for after in range(2, changes, 1 if os.environ.get(EVERY) else changes // 3):
        fill(filled, made[1])
        dead = filled.fails("reset", changes=True, after=after, times=10_000)
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.05")
        with pytest.raises(WorkError):
            purged(filled)
        dead.times = 0
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
        assert dead.met
        meanwhile = without_her(of_versions(filled))  # whole, or none for a moment
        assert meanwhile == {version: expected[version] for version in meanwhile}, after
        for name in filled.names():  # the time of its locks goes by
            if name.endswith(("/.alone", "/.lock")):
                filled.bucket().delete(name)
        purged(filled)
        is_clean(filled, expected, clips)


def test_what_is_local_is_read_again_after_it(filled: Storage) -> None:
    place = f"{filled.uri}/datasets/three/2"
    assert len(read_all(localize(place))) == COUNT
    purged(filled)
    assert len(read_all(localize(place))) == COUNT * 2 // 3

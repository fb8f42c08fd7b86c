"""A purge in a bucket removes a speaker there and on this machine, also after faults and kills at any request."""

import contextlib
import datetime
import gzip
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.buckets.emulator import FAKE_GCS, Storage
from tests.buckets.proxy import Proxy
from tests.buckets.s3_server import S3Storage
from tests.buckets.storages import AnyStorage
from tests.operations.three_speakers import GONE, make, refresh
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.versions import PURGED_FILE, DatasetVersions
from voxline.errors import WorkError
from voxline.notify.history import FOLDER
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import PurgeFindings, purge_speaker
from voxline.pipelines.cli.main import app
from voxline.registry.journal import format_utc
from voxline.registry.registry import Registry
from voxline.store import store_locks
from voxline.store.bucket_cache import CACHE_ENV
from voxline.store.localize import localize
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT
from voxline.training.batches import Batches

COUNT = 12
EVERY = "VOXLINE_TEST_EVERY_CHANGE"
"""If set, the purge is killed at every change on each storage, not at three on one, which takes many minutes."""


@pytest.fixture(scope="module")
def made(gcs_proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, and in `objects` all files that a bucket holds of it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", gcs_proxy.address)
        patch.setenv(CACHE_ENV, str(folder / "mirror"))
        gcs_proxy.faults.clear()
        gcs_proxy.wipe()
        storage = Storage(gcs_proxy)
        make(folder, storage.uri, COUNT)
        cache = folder / "mirror" / "gs" / storage.name
        for file in cache.rglob("*"):  # what a training and an evaluation would upload
            if file.is_file() and ("train/" in str(file) or "registry/" in str(file)) and file.name[0] != ".":
                storage.bucket().write(file.relative_to(cache).as_posix(), file.read_bytes())
        storage.bucket().download(storage.names(), folder / "objects")
    return folder


@pytest.fixture(scope="module")
def expected(made: Path) -> dict[tuple[str, int], dict[str, bytes]]:
    """What must be left of each version's features: the same files, read on this machine."""
    return without_her(of_versions(str(made / "objects")))


one_storage = pytest.mark.parametrize("storage", ["gcs"], indirect=True)
"""For what is the same on every storage: locks, keys and caches stand above it."""


@pytest.fixture
def filled(storage: AnyStorage, made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AnyStorage:
    """A bucket with these files, and a machine that has downloaded nothing yet."""
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "20")
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "mirror"))
    fill(storage, made)
    return storage


def fill(storage: AnyStorage, made: Path) -> None:
    bucket, root = storage.bucket(), made / "objects"
    names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    bucket.map(bucket.delete, [name for name in storage.names() if name not in names])
    bucket.upload(root, sorted(names))


def purged(storage: AnyStorage) -> PurgeFindings:
    scope = PurgeScope(f"{storage.uri}/store", (f"{storage.uri}/datasets",), f"{storage.uri}/registry")
    findings = purge_speaker(GONE, scope)
    time.sleep(2 * storage.bucket().clock_resolution)
    store_locks.reset_snapshot()  # from here on this is another process
    return findings


def told(storage: AnyStorage, *more: str) -> str:
    arguments = ["--speaker", GONE, "--store", f"{storage.uri}/store", "--datasets", f"{storage.uri}/datasets"]
    result = CliRunner().invoke(app, ["datasets", "purge", *arguments, "--registry", f"{storage.uri}/registry", *more])
    return result.output + str(result.exception or "")


def traces_of_her(storage: AnyStorage) -> list[str]:
    found = []
    for entry in storage.bucket().list():
        data = storage.bucket().read_version(entry)
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


def of_versions(base: str) -> dict[tuple[str, int], dict[str, bytes]]:
    all_versions = [DatasetVersions(f"{base}/datasets", name) for name in ("three", "two")]
    return {(each.name, number): read_all(each.path(number)) for each in all_versions for number in each.numbers()}


def without_her(content: dict[tuple[str, int], dict[str, bytes]]) -> dict[tuple[str, int], dict[str, bytes]]:
    return {
        version: {name: data for name, data in rows.items() if not name.startswith(GONE)}
        for version, rows in content.items()
    }


def is_clean(storage: AnyStorage, expected: Any, clips: set[str]) -> None:
    """All others are whole, nothing of the speaker is left, and no lock or staging folder either."""
    assert traces_of_her(storage) == []
    assert of_versions(storage.uri) == expected
    objects = list(storage.bucket().list())
    names = [one.name for one in objects]
    shards = [json.loads(storage.bucket().read_version(one)) for one in objects if one.name.endswith("/shard.json")]
    assert not any(clips & set(shard["clips"]) for shard in shards)
    folders = {name.rpartition("/")[0] for name in names if name.startswith("store/shards/")}
    assert folders == {name.rpartition("/")[0] for name in names if name.endswith("/shard.json")}
    hidden = [name for name in names if "/." in name.replace(f"/{FOLDER}/", "/")]
    assert not [name for name in hidden if not name.endswith("/.purged")], "locks, moves"
    assert len(storage.bucket().read("datasets/purges.jsonl").splitlines()) == 1


@pytest.mark.slow
def test_a_speaker_is_removed_and_all_others_are_kept(filled: AnyStorage, expected: Any, tmp_path: Path) -> None:
    assert without_her(of_versions(filled.uri)) == expected  # now this machine has copies
    before = filled.names()
    assert "would be removed" in told(filled)
    assert sorted(filled.names()) == sorted(before), "a dry run changes nothing"
    assert (tmp_path / "mirror" / filled.uri.replace("://", "/") / "store").is_dir()
    output = told(filled, "--yes", "--note", "asked by letter")
    assert "\nother machines may hold copies" in output, output
    assert f"recorded in {filled.uri}/datasets/purges.jsonl" in output
    assert not (tmp_path / "mirror" / filled.uri.replace("://", "/") / "store").exists()
    assert not list((tmp_path / "mirror").glob(".apart*"))
    is_clean(filled, expected, set())
    (line,) = [json.loads(line) for line in filled.bucket().read("datasets/purges.jsonl").splitlines()]
    assert (line["note"], line["rows"], line["utterances"]) == ("asked by letter", 8, 4)
    assert (line["versions"], line["models"], line["trained"]) == (["three/1", "three/2"], ["asr/1"], ["0123"])
    assert line["retention"][0]["place"] == f"{filled.uri}/store"
    assert "nothing of 'zenobia'" in told(filled)
    assert Registry(f"{filled.uri}/registry", "asr").is_intact(1)


@pytest.mark.slow
@one_storage
def test_a_refresh_after_a_purge_publishes_no_version(filled: AnyStorage, made: Path) -> None:
    purged(filled)
    _, extracted = refresh(made, filled.uri, 2, without=GONE)
    store, datasets = f"{filled.uri}/store", f"{filled.uri}/datasets"
    published = publish(extracted.uri, store, datasets, PublishSettings(dataset="three"))
    assert (published.reused, published.uri) == (True, f"{datasets}/three/2")
    assert traces_of_her(filled) == []


@pytest.mark.slow
@one_storage
def test_a_version_that_was_purged_is_trained_on_again(filled: AnyStorage, made: Path) -> None:
    # The model that was judged before knows the speaker, though the number of its version is the same.
    purged(filled)
    _, extracted = refresh(made, filled.uri, 2, without=GONE)
    version = f"{filled.uri}/datasets/three/2"
    (line,) = localize(f"{version}/{PURGED_FILE}").read_text(encoding="utf-8").splitlines()
    at = datetime.datetime.fromisoformat(json.loads(line)["at"])
    settings = PublishSettings(dataset="three", then="asr", history=f"{filled.uri}/history")
    for minutes, ends in ((-1, False), (1, True)):
        started = format_utc((at + datetime.timedelta(minutes=minutes)).timestamp())
        run = {"name": "nightly", "model": "asr", "started": started, "ended": started}
        judged = {"verdict": "promoted", "digest": "d", "dataset_uri": version}
        record = {"schema": "voxline.run/1", "run": run, **judged}
        history = open_store(settings.history)
        history.write(f"20260101T000000Z-{ends}.json", json.dumps(record).encode(), if_version=ABSENT)
        published = publish(extracted.uri, f"{filled.uri}/store", f"{filled.uri}/datasets", settings, model_name="asr")
        assert published.reused
        assert published.counts.get("skipped", 0) == ends


@pytest.mark.slow
@one_storage
def test_a_running_process_stops_the_purge_and_the_lock_of_a_killed_one_expires(
    filled: AnyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "60")
    before = filled.names()
    with (
        store_locks.hold_shared_store_lock(f"{filled.uri}/store", 0),
        pytest.raises(WorkError, match=r"in use by process"),
    ):
        purged(filled)
    assert sorted(filled.names()) == sorted(before)
    filled.bucket("store").write(".working/killed", b"{}")
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "1")
    time.sleep(1.1 + 2 * filled.bucket().clock_resolution)
    purged(filled)
    assert traces_of_her(filled) == []


@pytest.mark.slow
@one_storage
def test_a_process_that_read_before_the_purge_is_refused(filled: AnyStorage) -> None:
    if (process := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            purged(filled)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(process, 0)[1] == 0
    with store_locks.hold_shared_store_lock(f"{filled.uri}/store", 0):
        pass
    with pytest.raises(WorkError, match="a purge has ended here since this process began"):
        publish(
            f"{filled.uri}/datasets/three/2",
            f"{filled.uri}/store",
            f"{filled.uri}/datasets",
            PublishSettings(dataset="x"),
        )


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get(FAKE_GCS)), reason="the proxy keeps no versions for fake-gcs-server")
@pytest.mark.parametrize("denied", [False, True])
def test_older_versions_are_deleted_and_those_that_must_stay_are_reported(filled: AnyStorage, denied: bool) -> None:
    keep_versions(filled, denied)
    rewritten = next(name for name in filled.names() if name.endswith(".wav"))  # anybody's
    filled.bucket().write(rewritten, filled.bucket().read(rewritten) + b" ")
    filled.bucket().write(rewritten, filled.bucket().read(rewritten)[:-1])
    output = told(filled, "--yes")
    theirs = [info for info in filled.bucket("store").object_versions() if "convert/" in info.name]
    records = [json.loads(line) for line in filled.bucket().read("datasets/purges.jsonl").splitlines()]
    (of_store,) = [kept for kept in records[0]["retention"] if kept["place"].endswith("/store")]
    if denied:
        assert "older versions of their objects REMAIN" in output
        assert (bool(theirs), of_store["left"] > 0) == (True, True)
    else:
        assert "older versions of their objects are deleted too" in output
        assert (theirs, of_store["left"], of_store["removed"] > 0) == ([], 0, True)
    assert "older versions of other objects were not searched; a lifecycle rule" in output
    if isinstance(filled, Storage):
        assert "(soft delete), and nobody can remove them earlier" in output
        assert "--clear-soft-delete" in output
        assert of_store["soft_until"] > records[0]["at"]


def keep_versions(storage: AnyStorage, denied: bool) -> None:
    """Switches object versioning on.

    Args:
      denied: whether older versions may not be deleted.
    """
    if isinstance(storage, S3Storage):
        storage.client().put_bucket_versioning(Bucket=storage.name, VersioningConfiguration={"Status": "Enabled"})
        if denied:
            storage.fails("status", "DELETE", "versionId", code=403, times=10_000)
        return
    storage.proxy.older.buckets.add(storage.name)
    storage.proxy.older.denied = denied
    bucket = storage.client().get_bucket(storage.name)
    bucket.versioning_enabled = True
    bucket.patch()


@pytest.mark.slow
def test_transient_faults_are_retried(filled: AnyStorage, expected: Any) -> None:
    for kind, method, after in (("status", "DELETE", 3), ("reset", "", 5), ("lost answer", "DELETE", 9)):
        filled.fails(kind, method, changes=True, after=after, times=2)
    filled.fails("status", "GET", code=429, after=20, times=3)
    filled.fails("lost answer", changes=True, after=12)
    is_clean(filled, expected, purged(filled).footprint.clips)


@pytest.mark.slow
def test_a_missing_permission_is_named_and_the_purge_resumes_when_it_is_granted(
    filled: AnyStorage, expected: Any
) -> None:
    denied = filled.fails("status", "DELETE", "shards", code=403, times=1_000)
    assert re.search(r"storage\.objects\.delete|s3:DeleteObject", told(filled, "--yes"))
    denied.times = 0
    with pytest.raises(WorkError, match="a purge was started here and did not finish; run the same command again"):
        publish(
            f"{filled.uri}/datasets/three/2",
            f"{filled.uri}/store",
            f"{filled.uri}/datasets",
            PublishSettings(dataset="x"),
        )
    is_clean(filled, expected, purged(filled).footprint.clips)


@pytest.mark.slow
def test_a_purge_killed_at_any_change_is_completed_by_the_next(
    filled: AnyStorage, made: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_BUCKETS_LEASE_SECONDS", "60")
    before = len(filled.proxy.requests)
    clips = purged(filled).footprint.clips
    changes = sum(method not in ("GET", "HEAD") for method, _, _ in filled.proxy.requests[before:])
    for after in range(2, changes, 1 if os.environ.get(EVERY) else changes // 3):
        fill(filled, made)
        dead = filled.fails("reset", changes=True, after=after, times=10_000)
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.05")
        with pytest.raises(WorkError):
            purged(filled)
        dead.times = 0
        monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
        assert dead.met
        meanwhile = without_her(of_versions(filled.uri))  # whole, or absent for a moment
        assert meanwhile == {version: expected[version] for version in meanwhile}, after
        for name in filled.names():  # as if its locks had expired
            if name.endswith(("/.alone", "/.lock")):
                filled.bucket().delete(name)
        purged(filled)
        is_clean(filled, expected, clips)


@pytest.mark.slow
@one_storage
def test_cached_copies_are_downloaded_again_after_a_purge(filled: AnyStorage) -> None:
    place = f"{filled.uri}/datasets/three/2"
    assert len(read_all(localize(place))) == COUNT
    purged(filled)
    assert len(read_all(localize(place))) == COUNT * 2 // 3

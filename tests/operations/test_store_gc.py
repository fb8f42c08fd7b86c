"""`voxline store du` and `gc`: what is needed stays whole, all else goes, after a kill and during other work."""

import datetime
import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.audit import noticed
from tests.buckets.storages import AnyStorage
from tests.operations.three_speakers import GONE, make, refresh
from tests.publish.conftest import HOW
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_manifest
from voxline.data.shards import SHARDS_FOLDER, lock_shards
from voxline.data.versions import DatasetVersions
from voxline.errors import SettingsError, WorkError
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import find_speaker, purge_speaker
from voxline.operations.shard_gc import collect_garbage
from voxline.operations.store_contents import StoreUsers
from voxline.operations.store_gc import CollectedStore, collect_store
from voxline.pipelines.cli.main import app
from voxline.pipelines.local.runner import hold_store
from voxline.registry.models import resolve_version
from voxline.settings import Settings
from voxline.store.bucket_cache import CACHE_ENV
from voxline.store.files import write_json
from voxline.store.step_cache import cached_step
from voxline.store.store_locks import hold_shared_store_lock
from voxline.training.batches import Batches

NOW, MONTH = datetime.timedelta(0), datetime.timedelta(days=30)
OLD_TRAINING = "feed" * 8


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two refreshes, of which a run names the second; its versions; and a training of the first."""
    folder = tmp_path_factory.mktemp("made")
    make(folder, str(folder))
    steps = refresh(folder, str(folder), 2)
    last = max((folder / "store" / "ingest").glob("*/done.json"), key=lambda file: file.stat().st_mtime).parent.name
    record = {"steps": [{"name": "ingest", "key": last}, *({"name": one.step, "key": one.key} for one in steps)]}
    write_json(folder / "runs" / "nightly" / "run.json", record)
    training = folder / "store" / "train" / OLD_TRAINING
    (folder / "store" / "train" / "0123").rename(training)
    shutil.rmtree(training)
    (training / "model").mkdir(parents=True)
    (training / "model" / "weights").write_bytes(bytes(1000))
    done = {"inputs": {"dataset": "0" * 32}, "counts": {}, "metrics": {}, "outputs": {"model": "model"}}
    write_json(training / "done.json", done)
    long_ago = time.time() - 60 * 86_400
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith(".tar"):
            os.utime(path, (long_ago, long_ago))
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy: links would share times."""
    shutil.copytree(made, tmp_path / "place", symlinks=True)
    return tmp_path / "place"


def users(place: Path) -> StoreUsers:
    return StoreUsers((str(place / "datasets"),), (str(place / "registry"),), (place / "runs",))


def collect(place: Path, older_than: datetime.timedelta = NOW, *, dry_run: bool = False) -> CollectedStore:
    return collect_store(place / "store", users(place), older_than=older_than, dry_run=dry_run)


def kinds(found: CollectedStore) -> set[str]:
    return {item.kind for item in found.items}


def files(place: Path) -> set[str]:
    store = place / "store"
    return {
        path.relative_to(store).as_posix()
        for path in store.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def read_all(folder: Path) -> dict[str, bytes]:
    dataset = Dataset.read(folder)
    found: dict[str, bytes] = {}
    for split in dataset.counts:
        found |= {one.ids[0]: one.features.tobytes() for one in Batches(dataset, split, batch_size=1).epoch(0)}
    return found


def content(datasets: Path | str) -> dict[tuple[str, int], dict[str, bytes]]:
    all_versions = [DatasetVersions(datasets, name) for name in ("three", "two")]
    return {(each.name, number): read_all(each.path(number)) for each in all_versions for number in each.numbers()}


def test_a_model_in_service_on_a_published_version_asks_for_its_datasets(place: Path) -> None:
    """Its recordings are found by the version alone, where the output of extract is gone."""
    (provenance,) = (place / "registry" / "asr").glob("*/provenance.json")
    trained = json.loads(provenance.read_text())
    name, number = next((path.parent.name, path.name) for path in (place / "datasets").glob("*/1"))
    trained["dataset"] |= {"version": f"{name}@{number}"}
    provenance.write_text(json.dumps(trained))
    shutil.rmtree(place / "store" / "extract" / trained["dataset"]["key"])
    before = files(place)
    forgetful = StoreUsers(registries=(str(place / "registry"),), runs=(place / "runs",))
    told = f"--datasets: none has {name}@{number}, on which version 1 of asr was trained; give the folder"
    with pytest.raises(SettingsError, match=told):
        collect_store(place / "store", forgetful, older_than=NOW, dry_run=False)
    assert files(place) == before
    collect(place)


@pytest.mark.parametrize("alias", ["production", "candidate"])
def test_the_dataset_of_the_version_in_service_stays_with_its_test_recordings(place: Path, alias: str) -> None:
    """A model that starts from this version, or from the candidate once it is promoted, is measured on them."""
    for file in (place / "registry" / "asr" / "journal.jsonl", place / "registry" / "asr" / "1" / "version.json"):
        file.write_text(file.read_text().replace('"production"', f'"{alias}"'))
    assert resolve_version(place / "registry", f"asr@{alias}")[1] == 1
    (provenance,) = (place / "registry" / "asr").glob("*/provenance.json")
    folder = place / "store" / "extract" / json.loads(provenance.read_text())["dataset"]["key"]
    shutil.rmtree(place / "runs")
    shutil.rmtree(place / "datasets" / "two")
    collect_store(place / "store", StoreUsers(registries=(str(place / "registry"),)), older_than=NOW, dry_run=False)
    dataset = Dataset.read(folder)
    hashes = [row.audio_hash for row in dataset.rows() if row.split == "test"]
    assert hashes
    assert all(file.is_file() for file in dataset.recordings(hashes))


def test_what_a_run_or_a_version_needs_stays_and_all_else_goes(place: Path) -> None:
    versions, before = content(place / "datasets"), files(place)
    keys = [step["key"] for step in json.loads((place / "runs/nightly/run.json").read_text())["steps"]]
    planned = collect(place, dry_run=True)
    assert files(place) == before, "a dry run deletes nothing"
    found = collect(place)
    assert [item.name for item in planned.items] == [item.name for item in found.items]
    assert {"ingest", "convert", "extract", "unpacked", "train", "lines"} <= kinds(found)
    assert not {"wavs", "shards"} & kinds(found), "both refreshes have the same recordings"
    assert content(place / "datasets") == versions
    left = {name.split("/")[1] for name in files(place) if re.match(r"(ingest|convert|extract|train)/", name)}
    assert left == set(keys)
    assert not collect(place).items, "nothing is left to do"
    # The run that is known does nothing again.
    ingested = place / "store" / "ingest" / keys[0]
    converted = convert(ingested, place / "store", ConvertSettings.of({"workers": 1}))
    assert (converted.key, converted.reused) == (keys[1], True)
    extracted = extract(converted.folder, place / "store", HOW)
    assert (extracted.key, extracted.reused) == (keys[2], True)


def test_without_runs_only_the_shards_and_wavs_of_versions_stay(place: Path) -> None:
    versions, store = content(place / "datasets"), place / "store"
    scope = PurgeScope(store, (str(place / "datasets"),))
    usual = find_speaker("bo", scope).wavs
    found = collect_store(store, StoreUsers((str(place / "datasets"),)), older_than=NOW, dry_run=False)
    assert usual
    assert find_speaker("bo", scope).wavs == usual, "a purge finds the WAVs when no manifest is left"
    assert {"convert", "extract", "lines"} <= kinds(found)
    assert {name.split("/")[0] for name in files(place)} == {"shards", "wavs"}
    assert content(place / "datasets") == versions


@pytest.mark.parametrize("how", ["..", "link"])
def test_a_store_by_another_path_loses_nothing_and_hides_nobody(
    how: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(place)
    other = Path("../place/store") if how == ".." else tmp_path / "link" / "store"
    versions, roots = content(place / "datasets"), (str(place / "datasets"),)
    usual = find_speaker("bo", PurgeScope(place / "store", roots)).counts()
    assert min(usual["wavs"], usual["shards"]) > 0
    if how == "..":
        assert find_speaker("bo", PurgeScope(other, roots)).counts() == usual
    else:
        with pytest.raises(SettingsError, match="the same folder"):
            purge_speaker("bo", PurgeScope(other, roots))
    assert collect_garbage(other, roots, grace_days=0, dry_run=False).shards == 0
    found = collect_store(other, users(place), older_than=NOW, dry_run=False)
    assert "train" in kinds(found)
    assert not {"wavs", "shards"} & kinds(found)
    assert content(place / "datasets") == versions


def test_line_caches_with_transcripts_of_settings_no_longer_used_go(place: Path) -> None:
    caches = [file for file in (place / "store" / "lines").iterdir() if b"zenobia says one" in file.read_bytes()]
    assert caches
    os.utime(caches[0])  # a run has just written it
    collect(place, MONTH)
    assert caches[0].exists()
    assert not [file for file in caches[1:] if file.exists()]


def test_what_was_used_within_the_time_stays_and_a_reuse_counts_as_use(place: Path) -> None:
    store, without = place / "store", StoreUsers()
    (ingested,) = [file.parent for file in (store / "ingest").glob("*/manifest.jsonl") if '"one"' in file.read_text()]
    reused = convert(ingested, store, ConvertSettings.of({"workers": 1}))
    assert reused.reused
    collect_store(store, without, older_than=MONTH, dry_run=False)
    assert [folder.name for folder in (store / "convert").glob("*/done.json")] == ["done.json"]
    assert (store / "convert" / reused.key / "done.json").exists()
    assert all(Path(one.audio_filepath).exists() for one in read_manifest(reused.folder)), "and the WAVs that it names"
    assert collect_store(store, without, older_than=NOW, dry_run=True).items


def test_a_model_in_the_registry_keeps_the_training_on_its_dataset(place: Path) -> None:
    key = json.loads((place / "registry/asr/1/provenance.json").read_text())["dataset"]["key"]
    kept, marker = place / "store" / "train" / ("beef" * 8), place / "store" / "train" / OLD_TRAINING / "done.json"
    shutil.copytree(marker.parent, kept)
    write_json(kept / "done.json", json.loads(marker.read_text()) | {"inputs": {"dataset": key}})
    collect(place)
    assert (kept / "model" / "weights").exists()
    assert not marker.exists()


@contextmanager
def before_each_deletion(call: Callable[[], object]) -> Iterator[None]:
    """Calls a function before each file, and each folder with what is in it, is deleted."""

    def of_file(path: object, folder: int) -> None:
        if folder == -1:  # else it goes with its folder
            call()

    with noticed("os.remove", of_file), noticed("shutil.rmtree", lambda *_: call()):
        yield


@pytest.mark.slow
def test_a_killed_collection_loses_nothing_and_the_same_call_completes_it(made: Path, tmp_path: Path) -> None:
    """Killed at each deletion in turn."""
    shutil.copytree(made, tmp_path / "whole", symlinks=True)
    collect(tmp_path / "whole")
    expected, versions = files(tmp_path / "whole"), content(tmp_path / "whole" / "datasets")
    deleted = 0

    def kill_at_last() -> None:
        nonlocal deleted
        deleted += 1
        if deleted == kill:
            raise KeyboardInterrupt

    for kill in range(1, 100):
        deleted = 0
        place = tmp_path / f"killed {kill}"
        shutil.copytree(made, place, symlinks=True)
        try:
            with before_each_deletion(kill_at_last):
                collect(place)
        except KeyboardInterrupt:
            assert expected <= files(place)
            for folder in (place / "store" / "convert").iterdir():
                if (folder / "done.json").exists():
                    assert (folder / "manifest.jsonl").exists(), "a marker never outlives its files"
            collect(place)
            assert files(place) == expected, kill
        else:
            break
    assert kill > 15
    assert content(place / "datasets") == versions


def test_a_purge_finds_what_a_killed_collection_left_of_a_speaker(place: Path) -> None:
    """Searched before each deletion in turn, which is what a kill there leaves."""
    store, scope = place / "store", PurgeScope(place / "store")
    at_first, searches, one_at_a_time = find_speaker(GONE, scope), [0], threading.Lock()
    sources = {path for path in at_first.outputs if path.parent.name == "unpacked"}
    assert min(len(at_first.wavs), len(at_first.shards), len(sources)) > 0

    def search() -> None:
        with one_at_a_time:
            searches[0] += 1
            there = [{wav for wav in at_first.wavs if wav.exists()}, {path for path in sources if path.exists()}]
            shards = {info.folder for info, _ in at_first.shards if info.folder.exists()}
            now = find_speaker(GONE, scope)
            there = [{path for path in paths if path.exists()} for paths in (*there, shards)]  # some go meanwhile
            assert there[0] <= set(now.wavs)
            assert there[1] <= set(now.outputs)
            assert there[2] <= {*(info.folder for info, _ in now.shards), *now.leftovers}

    with before_each_deletion(search):
        collect_store(store, StoreUsers(), older_than=NOW, dry_run=False)
    assert searches[0] > 30
    assert not files(place)


def test_a_running_step_or_run_stops_the_collection(place: Path) -> None:
    before = files(place)
    with (
        cached_step(place / "store", "count", Settings(), {"of": "a step"}),
        pytest.raises(WorkError, match="in use by another process of Voxline; stop it"),
    ):
        collect(place)
    with hold_store(str(place / "store")), pytest.raises(WorkError, match="in use by"):
        collect(place)
    assert before <= files(place)


def test_a_reader_of_shards_stops_both_collections(place: Path) -> None:
    before, (pool,) = files(place), (place / "store" / SHARDS_FOLDER).iterdir()
    with lock_shards(pool):
        with pytest.raises(WorkError, match="a process is adding to these shards"):
            collect(place)
        with pytest.raises(WorkError, match="a process is adding to these shards"):
            collect_garbage(place / "store", [place / "datasets"], grace_days=0, dry_run=False)
    assert files(place) == before


def test_work_that_is_claimed_on_this_machine_stays_and_is_named(place: Path) -> None:
    with open(place / "store" / "train" / f"{OLD_TRAINING}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = collect(place)
    assert [item.name for item in found.in_use] == [f"train/{OLD_TRAINING}"]
    assert (place / "store" / "train" / OLD_TRAINING / "done.json").exists()


def test_two_collections_at_once_take_turns(place: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    with before_each_deletion(wait), ThreadPoolExecutor() as threads:
        first = threads.submit(collect, place)
        assert begun.wait(60)
        second = threads.submit(collect, place)
        assert not second.done()
        go_on.set()
        assert first.result().items
        assert second.result().items == []


def test_an_unfinished_purge_or_a_wrong_location_is_refused(place: Path) -> None:
    (place / "store" / ".purge-abc.json").write_text("{}")
    with pytest.raises(WorkError, match="a purge was started here and did not finish"):
        collect(place)
    (place / "store" / ".purge-abc.json").unlink()
    with pytest.raises(SettingsError, match="this is no store"):
        collect_store(place, StoreUsers(), older_than=NOW, dry_run=True)
    with pytest.raises(SettingsError, match="this folder of runs does not exist"):
        collect_store(place / "store", StoreUsers(runs=(place / "none",)), older_than=NOW, dry_run=True)


def test_the_commands_show_and_delete(place: Path) -> None:
    def told(*arguments: str) -> str:
        options = [
            "--store",
            str(place / "store"),
            "--datasets",
            str(place / "datasets"),
            "--runs",
            str(place / "runs"),
        ]
        result = CliRunner().invoke(app, ["store", *arguments, *options])
        assert result.exit_code == 0, result.output
        return result.output

    used = json.loads(told("du", "--json"))
    assert used["bytes"] == sum((place / "store" / name).stat().st_size for name in files(place))
    assert used["kinds"]["train"]["nothing"] > 1000
    assert used["kinds"]["wavs"]["versions"] > 0 == used["kinds"]["wavs"]["nothing"]
    assert "versions" in told("du").splitlines()[0]
    assert f"  train/{OLD_TRAINING}, last used 2" in told("gc")
    assert "would be deleted; --yes deletes it" in told("gc")
    assert told("gc", "--yes").endswith("MB deleted\n")
    assert json.loads(told("gc", "--json"))["items"] == []
    refused = CliRunner().invoke(app, ["store", "gc", "--store", str(place / "store"), "--older-than", "soon"])
    assert "accepted are days and hours, such as 30d and 12h, and 0" in str(refused.exception)


@pytest.mark.slow
def test_a_store_in_a_bucket(storage: AnyStorage, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "mirror"))
    bucket, store = storage.bucket(), f"{storage.uri}/store"
    names = [f"{top}/{name}" for top in ("store", "datasets") for name in _objects(made / top)]
    bucket.upload(made, names)
    known = StoreUsers((f"{storage.uri}/datasets",), runs=(made / "runs",))
    with pytest.raises(SettingsError, match="give --older-than 1d or more"):
        collect_store(store, known, older_than=NOW, dry_run=False)
    assert not collect_store(store, known, older_than=MONTH, dry_run=False).items, "all was uploaded just now"
    storage.let_pass(days=60)
    with hold_shared_store_lock(store, 0), pytest.raises(WorkError, match="in use by"):
        collect_store(store, known, older_than=MONTH, dry_run=False)
    versions = content(f"{storage.uri}/datasets")
    found = collect_store(store, known, older_than=MONTH, dry_run=False)
    assert {"ingest", "convert", "extract", "train"} <= kinds(found)
    keys = {step["key"] for step in json.loads((made / "runs/nightly/run.json").read_text())["steps"]}
    left = {name.split("/")[2] for name in storage.names() if re.match(r"store/(ingest|convert|extract|train)/", name)}
    assert left == keys
    assert content(f"{storage.uri}/datasets") == versions
    hidden = [name for name in storage.names() if "/." in name.replace("/.runs/", "/")]  # a history stays
    assert not hidden, "no lock is left"


def _objects(folder: Path) -> list[str]:
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in paths if not name.endswith(".lock") and "/lines/" not in f"/{name}"]

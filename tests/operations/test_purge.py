"""A purge removes a speaker everywhere, keeps all others whole, and resumes after a kill at any point."""

import dataclasses
import fcntl
import gzip
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.operations.three_speakers import COUNT, GONE, make, refresh
from tests.publish.conftest import HOW
from voxline.components.extract.step import run as extract
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.versions import DatasetVersions
from voxline.errors import VoxlineError, WorkError
from voxline.feedback.captures import CapturedClip, CaptureStore
from voxline.metrics.evaluation import Evaluation
from voxline.notify.history import FOLDER, read_runs
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import find_speaker, purge_speaker
from voxline.pipelines.cli.main import app
from voxline.registry.erasures import PURGES_FILE, doubt_of, erased_speakers, salted_hash
from voxline.registry.registry import EVALUATION, Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.settings import Settings
from voxline.store.hashing import hash_file
from voxline.store.local import LocalStore
from voxline.store.permanent_failures import FailureNote
from voxline.store.step_cache import cached_step
from voxline.training.batches import Batches


class Folders(NamedTuple):
    store: Path
    datasets: tuple[Path, ...]
    registry: Path

    @property
    def scope(self) -> PurgeScope:
        return PurgeScope(*self)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, two versions of a dataset, and a registry with a model, of an archive in which three people speak."""
    folder = tmp_path_factory.mktemp("made")
    make(folder, str(folder))
    return folder


@pytest.fixture
def places(made: Path, tmp_path: Path) -> Folders:
    shutil.copytree(made, tmp_path / "made")
    return at(tmp_path / "made")


def at(folder: Path) -> Folders:
    return Folders(folder / "store", (folder / "datasets",), folder / "registry")


def traces_of_her(places: Folders, wavs: set[str]) -> list[str]:
    """Files that name the speaker or equal one of their recordings."""
    found = []
    for root in (places.store, *places.datasets, places.registry):
        for file in root.rglob("*"):
            data = file.read_bytes() if file.is_file() else b""
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            if GONE in f"{file.name} {data.decode('latin-1')}" or (file.is_file() and hash_file(file) in wavs):
                found.append(str(file))
    return found


def read_all(folder: Path) -> dict[str, bytes]:
    """Features of all utterances, read as training reads them."""
    dataset = Dataset.read(folder)
    found: dict[str, bytes] = {}
    for split in dataset.counts:
        batches = Batches(dataset, split, batch_size=1)
        found |= {batch.ids[0]: batch.features.tobytes() for batch in batches.epoch(0)}
    return found


def test_a_dry_run_changes_nothing_and_lists_what_there_is(places: Folders) -> None:
    before = {file: hash_file(file) for file in places.store.parent.rglob("*") if file.is_file()}
    arguments = ["--speaker", GONE, "--store", places.store, "--datasets", places.datasets[0]]
    arguments += ["--registry", places.registry]
    result = CliRunner().invoke(app, ["datasets", "purge", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "  6 rows of version 1 of three" in result.output
    assert "  asr/1, in production\n  train/0123" in result.output
    assert "  2 reasons in the history of runs" in result.output
    assert "--yes removes it" in result.output
    after = {file: hash_file(file) for file in places.store.parent.rglob("*") if file.is_file()}
    assert after == before


def test_a_speaker_is_removed_and_all_others_are_kept(places: Folders) -> None:
    versions = DatasetVersions(places.datasets[0], "three")
    before = {number: read_all(versions.path(number)) for number in versions.numbers()}
    keys = {number: versions.info(number).key for number in versions.numbers()}
    sources = {hash_file(file) for file in (places.store.parent / "corpus").glob("*.wav") if int(file.stem) % 3 == 2}
    wavs = {hash_file(file) for file in find_speaker(GONE, places.scope).wavs} | sources
    assert len(wavs) >= COUNT // 3
    assert list((places.store / "lines").iterdir())
    for speaker in (GONE, "ada"):
        FailureNote(str(places.store), f"asr-{speaker[0]}.root.train.json").write(
            WorkError(f"{speaker}-2 is too short")
        )
    found = purge_speaker(GONE, places.scope, note="asked by letter")
    assert found.counts()["clips"] == COUNT // 3
    assert traces_of_her(places, wavs) == []
    assert not list((places.store / "lines").iterdir())
    assert [note.name for note in (places.store / "failures").iterdir()] == ["asr-a.root.train.json"]
    assert versions.numbers() == [1, 2]
    for number, all_read in before.items():
        kept = {name: features for name, features in all_read.items() if not name.startswith(GONE)}
        assert read_all(versions.path(number)) == kept
        dataset = Dataset.read(versions.path(number))
        assert sum(dataset.counts.values()) == len(kept) == COUNT * 2 // 3
        assert dataset.key == versions.info(number).key != keys[number]
        assert json.loads((versions.path(number) / "purged.jsonl").read_text())["utterances"] == COUNT // 3
    indices = [json.loads(index.read_text()) for index in (places.store / "shards").glob("*/*/shard.json")]
    assert indices
    assert not any(found.footprint.clips & set(index["clips"]) for index in indices)
    assert not find_speaker(GONE, places.scope)


def test_a_purge_is_recorded_without_naming_the_speaker(places: Folders) -> None:
    purge_speaker(GONE, places.scope, note="asked by letter")
    (line,) = [json.loads(line) for line in (places.datasets[0] / PURGES_FILE).read_text().splitlines()]
    assert line["note"] == "asked by letter"

    # The registry has the record too: a training that ran on meanwhile has a list that the purge did not see.
    ((salt, known),) = erased_speakers(places.registry) or []
    assert salted_hash(GONE, salt) == known != salted_hash("ada", salt)
    (version,) = Registry(places.registry, "asr").versions()
    file = places.registry / "asr" / str(version) / TRAINED_ON
    before = read_training_data(file.read_bytes(), "its list")
    lines = [{**line, "speaker": GONE} for line in before.utterances[:2]]
    dataclasses.replace(before, purged=0, utterances=lines).write(file)
    assert "it was trained on 2 utterances of an erased speaker too" in doubt_of(
        file.parent, Registry(places.registry, "asr")
    )
    assert (line["utterances"], line["rows"], line["models"]) == (6, 12, ["asr/1"])
    assert line["versions"] == ["three/1", "three/2"]
    told = ["datasets", "seen", "--speaker", GONE, "--datasets", str(places.datasets[0])]
    output = CliRunner().invoke(app, told).output
    assert output.startswith("purged 2")
    assert output.endswith("6 utterances; models trained on them: asr/1\n")


def test_a_record_whose_last_line_has_no_end_stays_readable(places: Folders) -> None:
    (places.registry / PURGES_FILE).write_text('{"salt": "00ff", "speaker": "9f"}')
    purge_speaker(GONE, places.scope)
    assert (erased_speakers(places.registry) or [])[0] == ("00ff", "9f")


def test_a_record_that_another_purge_adds_meanwhile_stays(places: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge in another store records in the same registry, between this one's reading and its writing."""
    theirs = '{"salt": "00ff", "speaker": "9f"}\n'
    read = LocalStore.read

    def read_before_they_write(store: LocalStore, name: str) -> bytes:
        data = read(store, name)
        if name == PURGES_FILE and theirs.encode() not in data:
            with open(store.folder / name, "a") as file:
                file.write(theirs)
        return data

    (places.registry / PURGES_FILE).write_text('{"salt": "0a", "speaker": "9e"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read", read_before_they_write)
        purge_speaker(GONE, places.scope)
    purges = erased_speakers(places.registry) or []
    assert purges[:2] == [("0a", "9e"), ("00ff", "9f")]
    assert [known == salted_hash(GONE, salt) for salt, known in purges] == [False, False, True]


def test_the_registry_keeps_models_and_metrics_and_loses_the_speaker(places: Folders) -> None:
    purge_speaker(GONE, places.scope)
    version = (places.registry) / "asr" / "1"
    assert Registry(version.parents[1], "asr").is_intact(1)
    lineage = read_training_data((version / TRAINED_ON).read_bytes(), "")
    assert {line["speaker"] for line in lineage.utterances} == {"ada", "bo"}
    assert len(lineage.utterances) + lineage.purged == 14
    evaluation = Evaluation.read(version / EVALUATION)
    assert {row.speaker for row in evaluation.results} == {"ada", "bo"}
    assert evaluation.test_fingerprint != "f"
    assert not (version / EVALUATION / "clip.wav").exists()


@pytest.mark.parametrize("change", [{"format": 2}, {"anchor": ...}, {"slices": None, "note": "kept"}, None])
def test_an_evaluation_that_push_would_refuse_loses_the_speaker_too(
    places: Folders, change: dict[str, Any] | None
) -> None:
    """Of another release, changed by hand, or damaged: an erasure is owed all the same. Unknown keys stay."""
    folder = places.registry / "asr" / "1" / EVALUATION
    document = json.loads((folder / "metrics.json").read_text())
    document |= change or {}
    if change and ... in change.values():
        document.pop("anchor")
    (folder / "metrics.json").write_text(json.dumps(document) if change else '{"key": "a\\')

    purge_speaker(GONE, places.scope)
    table = [json.loads(line) for line in (folder / "utterances.jsonl").read_text().splitlines()]
    assert {line["speaker"] for line in table} == {"ada", "bo"}
    if change:
        purged = json.loads((folder / "metrics.json").read_text())
        assert purged["utterances"] == len(table)
        assert purged.get("note") == change.get("note")
        assert GONE not in json.dumps(purged)
    else:
        assert not (folder / "metrics.json").exists()


def test_the_history_of_runs_loses_reasons_that_name_the_speaker(places: Folders) -> None:
    purge_speaker(GONE, places.scope)
    for root in (places.registry, places.datasets[0]):
        kept, purged = read_runs(root / FOLDER)
        assert kept["reason"] == "train: step 7 skipped (ada-2, bo-1)"
        assert purged["reason"].startswith("the reason named a speaker who was purged, 2")
        assert purged["verdict"] == "failed"


_FAIL: dict[str, Any] = {"left": None}
_CHANGES = ("os.rename", "os.remove", "shutil.rmtree", "os.rmdir")


def _hook(event: str, _: Any) -> None:
    if _FAIL["left"] is not None and event in _CHANGES:
        _FAIL["left"] -= 1
        if _FAIL["left"] < 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def killed() -> Iterator[dict[str, Any]]:
    """After a number of changes of files, stops every further one, as a kill does."""
    sys.addaudithook(_hook)
    yield _FAIL
    _FAIL["left"] = None


@pytest.mark.slow
def test_a_purge_killed_anywhere_is_completed_by_the_next(made: Path, tmp_path: Path, killed: dict[str, Any]) -> None:
    wavs = {hash_file(file) for file in find_speaker(GONE, at(made).scope).wavs}
    steps = 0
    for steps in range(1, 1_000, 13):
        folder = tmp_path / str(steps)
        shutil.copytree(made, folder)
        places = at(folder)
        killed["left"] = steps
        try:
            purge_speaker(GONE, places.scope)
        except KeyboardInterrupt:
            ended = False
        else:
            ended = True
        finally:
            killed["left"] = None
        if ended:
            break
        purge_speaker(GONE, places.scope)
        assert traces_of_her(places, wavs) == [], steps
        versions = DatasetVersions(places.datasets[0], "three")
        assert versions.numbers() == [1, 2], steps
        for number in (1, 2):
            assert len(read_all(versions.path(number))) == COUNT * 2 // 3, steps
        assert len((places.datasets[0] / PURGES_FILE).read_text().splitlines()) == 1, steps
        assert not [path for path in folder.rglob(".*") if path.name.startswith((".purge", ".purged"))], steps
        shutil.rmtree(folder)
    assert steps > 30


def test_a_shard_that_a_training_reads_stops_the_purge_before_it_begins(places: Folders) -> None:
    version = DatasetVersions(places.datasets[0], "three").path(2)
    reader = Batches(Dataset.read(version), "train", batch_size=1)
    before = hash_file(version / "rows.jsonl")
    with pytest.raises(WorkError, match="a training reads it; stop that"):
        purge_speaker(GONE, places.scope)
    assert hash_file(version / "rows.jsonl") == before
    del reader


def test_a_running_extraction_stops_the_purge_before_it_begins(places: Folders) -> None:
    (pool,) = (places.store / "shards").iterdir()
    with open(pool / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(WorkError, match="a process is adding to these shards"):
            purge_speaker(GONE, places.scope)


def test_a_step_that_works_in_the_store_stops_the_purge_before_it_begins(places: Folders) -> None:
    with (
        cached_step(places.store, "count", Settings(), {"of": "a step"}),
        pytest.raises(WorkError, match="in use by another process of Voxline; stop it"),
    ):
        purge_speaker(GONE, places.scope)
    assert find_speaker(GONE, places.scope).outputs


def test_a_dataset_opened_before_a_purge_is_refused_with_the_reason(places: Folders) -> None:
    began = Dataset.read(DatasetVersions(places.datasets[0], "three").path(2))
    purge_speaker(GONE, places.scope)
    with pytest.raises(WorkError, match="a purge has just changed this version"):
        Batches(began, "train", batch_size=1)


def test_a_dataset_that_only_shares_shards_is_pointed_at_the_new_ones(places: Folders) -> None:
    versions = DatasetVersions(places.datasets[0], "two")
    folders = [versions.path(1)]
    folders += [file.parent for file in (places.store / "extract").glob("*/dataset.json") if GONE not in _rows(file)]
    assert len(folders) == 2
    before, key, rows = [read_all(folder) for folder in folders], versions.info(1).key, _rows(folders[0])
    purge_speaker(GONE, places.scope)
    assert [read_all(folder) for folder in folders] == before
    assert (versions.info(1).key, _rows(folders[0])) == (key, rows)
    for folder in folders:
        assert len(list(folder.glob("record-locations-*"))) == 1
        places_now = Dataset.read(folder).read_record_locations()
        assert (places_now["shard"] >= 0).any()


def _rows(beside: Path) -> str:
    return ((beside if beside.is_dir() else beside.parent) / "rows.jsonl").read_text(encoding="utf-8")


def test_a_refresh_after_a_purge_publishes_no_version_and_reuses_what_it_can(
    places: Folders,
) -> None:
    folder = places.store.parent
    shared = [file.parent for file in (places.store / "extract").glob("*/dataset.json") if GONE not in _rows(file)]
    purge_speaker(GONE, places.scope)
    again = extract(folder / "manifest.jsonl", places.store, HOW)
    assert again.folder in shared
    assert again.reused
    _, extracted = refresh(folder, str(folder), 2, without=GONE)
    published = publish(extracted.folder, places.store, places.datasets[0], PublishSettings(dataset="three"))
    assert (published.reused, published.folder.name) == (True, "2")


def test_captured_and_labeled_recordings_of_a_speaker_are_erased(places: Folders, tmp_path: Path) -> None:
    captures, labeled = CaptureStore(tmp_path / "captures"), tmp_path / "labeled"
    captures.prepare()
    for number, speaker in enumerate((GONE, "ada")):
        clip = CapturedClip(
            f"capture-{number}", "asr", 1, "d", "2026-11-23T18:00:00Z", "2999-01-01", "yes", 1.0, "one", 0.9, [], "",
            -20.0, 30.0, [], speaker,
        )  # fmt: skip
        captures.write(clip, b"fLaC")
        (labeled / "audio").mkdir(parents=True, exist_ok=True)
        (labeled / "audio" / f"{clip.id}.flac").write_bytes(b"fLaC")
        line = {"id": clip.id, "audio_filepath": f"audio/{clip.id}.flac", "duration": 1.0, "text": ""}
        line |= {"consent": "yes", "expires": "2999-01-01"}
        with open(labeled / "manifest.jsonl", "a") as manifest:
            manifest.write(json.dumps(line | {"speaker": speaker}) + "\n")
    scope = dataclasses.replace(places.scope, captures=(captures.uri, str(labeled)))
    assert find_speaker(GONE, scope).counts()["captures"] == 2
    purge_speaker(GONE, scope)
    assert [clip.speaker for clip in captures.clips()] == ["ada"]
    assert [path.name for path in (labeled / "audio").iterdir()] == ["capture-1.flac"]
    assert GONE not in (labeled / "manifest.jsonl").read_text()
    assert not purge_speaker(GONE, scope)
    assert purge_speaker("capture-1", scope).counts()["captures"] == 2, "one clip, by its id"
    assert not captures.size()
    assert not purge_speaker("ada-none", scope), "empty captures are captures still"


def test_a_clip_that_waits_in_a_server_is_not_kept_where_it_is_all_there_is(places: Folders, tmp_path: Path) -> None:
    captures = CaptureStore(tmp_path / "captures")
    captures.prepare()
    waiting = CapturedClip(
        "capture-1", "erased", 1, "d", "2026-11-23T18:00:00Z", "2999-01-01", "yes", 1.0, "one", 0.9, [], "", -20.0,
        30.0, [], GONE,
    )  # fmt: skip
    scope = dataclasses.replace(places.scope, captures=(captures.uri,))
    find_speaker(GONE, scope)
    assert captures.write(waiting, b"fLaC"), "to look leaves no mark"
    captures.expire("2999-01-01")
    purge_speaker(GONE, scope)
    assert not captures.write(waiting, b"fLaC")
    assert not captures.size()
    other = dataclasses.replace(waiting, id="capture-2", speaker="ada")
    captures.write(other, b"fLaC")
    for file in (tmp_path / "captures").rglob("*"):
        os.utime(file, (0, 0))
    captures.expire("2999-01-01".replace("2999", "2998"))
    assert captures.size(), "a model may be named as the folder of marks"


def test_an_unknown_speaker_changes_nothing(places: Folders) -> None:
    found = purge_speaker("nobody", places.scope)
    assert not found
    assert not (places.datasets[0] / PURGES_FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("--store", ".", r"this is no store: .*; did you mean \S+/made\d*/store\?"),
        ("--store", "store/wavs", r"this is no store: .*; did you mean \S+/made\d*/store\?"),
        ("--store", "absent", "this folder does not exist; did you mean"),
        ("--datasets", "store", "no dataset is published here"),
        ("--registry", "store", "there is no registry here"),
        ("--registry", ".", r"there is no registry here, .*; did you mean \S+/made\d*/registry\?"),
    ],
)
def test_a_wrong_location_is_refused_before_the_search(made: Path, option: str, given: str, message: str) -> None:
    right = {"--store": made / "store", "--datasets": made / "datasets", "--registry": made / "registry"}
    arguments = [str(part) for one in (right | {option: made / given}).items() for part in one]
    result = CliRunner().invoke(app, ["datasets", "purge", "--speaker", GONE, "--yes", *arguments])
    assert isinstance(result.exception, VoxlineError)
    assert re.search(message, str(result.exception)), result.exception


def test_nothing_found_is_a_failure_unless_an_earlier_purge_is_on_record(places: Folders) -> None:
    """A request to erase somebody must not be closed because of a misspelled id."""

    def purge(speaker: str, *more: str) -> Result:
        arguments = ["--store", str(places.store), "--datasets", str(places.datasets[0]), *more]
        return CliRunner().invoke(app, ["datasets", "purge", "--speaker", speaker, *arguments])

    assert purge("nobody").exit_code == 0
    assert "nothing of 'nobody'" in purge("nobody").output
    failed = purge("nobody", "--yes")
    assert isinstance(failed.exception, WorkError)
    assert "so nothing was removed; check the id" in str(failed.exception)
    assert purge(GONE, "--yes").exit_code == 0
    assert purge(GONE, "--yes").exit_code == 0, "a repeated request"


def test_reports_of_runs_that_show_the_speaker_are_named_and_stay(places: Folders) -> None:
    run = places.store.parent
    (run / "run.json").write_text("{}")
    (run / "report.html").write_text(f"<td>{GONE}-2</td>")
    (run / "other.html").write_text("<td>ada-0</td>")
    elsewhere = run.parent / "runs" / "nightly" / "report.html"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text(f"<td>{GONE}-2</td>")
    (elsewhere.parent / "kept.json").write_text('{"id": "ada-0"}')
    key = next((places.store / "train").glob("*/done.json")).parent.name
    copies = {
        training: elsewhere.parent / "tensorboard" / f"nightly 2026-01-31, cnn, {training}" / "events.out.tfevents.1"
        for training in (key[:6], "abcdef")
    }
    for copy in copies.values():
        copy.parent.mkdir(parents=True)
        copy.write_bytes(b"")
    arguments = ["--speaker", GONE, "--store", str(places.store), "--datasets", str(places.datasets[0])]
    arguments += ["--registry", str(places.registry), "--runs", str(run.parent / "runs"), "--yes"]
    result = CliRunner().invoke(app, ["datasets", "purge", *arguments])
    assert result.exit_code == 0, result.output
    named = result.output.split("files of runs that show them, which stay: 3; delete them\n")[1].splitlines()
    assert named[:3] == [f"  {elsewhere}", f"  {copies[key[:6]]}", f"  {run / 'report.html'}"]
    assert (run / "report.html").exists()


def test_an_empty_speaker_is_refused(places: Folders) -> None:
    result = CliRunner().invoke(app, ["datasets", "purge", "--speaker", "", "--store", str(places.store), "--yes"])
    assert "that would remove all utterances without a speaker" in f"{result.output}{result.exception}"
    assert (places.store / "wavs").is_dir()


def test_training_data_is_listed_by_model_and_models_by_speaker(places: Folders, tmp_path: Path) -> None:
    told = [
        "models",
        "trained-on",
        "asr",
        "1",
        "--registry",
        str(places.registry),
        "--ids",
        str(tmp_path / "ids.jsonl"),
    ]
    result = CliRunner().invoke(app, told)
    assert result.exit_code == 0, result.output
    listed = [json.loads(line) for line in (tmp_path / "ids.jsonl").read_text().splitlines()]
    assert {line["split"] for line in listed} == {"train", "dev"}
    assert f"{len([line for line in listed if line['split'] == 'train'])} utterances" in result.output
    seen = ["datasets", "seen", "--speaker", GONE, "--registry", str(places.registry)]
    (line,) = CliRunner().invoke(app, seen).output.splitlines()
    assert line.startswith("model asr version 1: ")
    assert line.endswith("  in service")

"""`voxline run refresh`, for real: a version is published, nothing new for nothing new, and one more for a change."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import voxline
from tests.pipelines.conftest import House, check_step_keys
from tests.waiting import PATIENCE_SECONDS
from voxline.components.dataset.settings import VersionSettings
from voxline.components.dataset.step import run as open_version
from voxline.components.evaluate.before import _read_probe
from voxline.data.dataset import Dataset, read_utterances
from voxline.data.manifest import fingerprint_utterances, read_manifest, write_manifest
from voxline.data.recordings import refuse_changed_audio
from voxline.data.rows import DatasetRow
from voxline.errors import WorkError
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.pipeline_configs import config_class_of
from voxline.pipelines.graphs import graph_of
from voxline.store.files import read_json

OURS = Path(__file__).parents[2] / "configs"
CONFIG = """
pipeline: refresh
name: tiny
corpus: {uri: corpus}
extract: {features: {mels: 16}}
publish: {dataset: commands}
notify: {textfile: voxline.prom, success_days: 2}
"""


def refresh(house: House) -> dict[str, Any]:
    process = house.start("run", "refresh", "--config", "refresh.yaml")
    seen, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, seen
    return {
        "seen": seen.splitlines(),
        "record": read_json(house.run_dir / "run.json"),
        "gauges": (house.folder / "voxline.prom").read_text(encoding="utf-8"),
        "page": (house.run_dir / "report.html").read_text(encoding="utf-8"),
    }


def gauge_lines(run: dict[str, Any]) -> list[str]:
    return [line for line in run["gauges"].splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> House:
    """A copy of the corpus that may be changed: its transcripts are files, its audio is linked to."""
    house = House(tmp_path_factory.mktemp("refreshed"), corpus)
    for file in corpus.rglob("*"):
        if file.is_file():
            copied = house.folder / "corpus" / file.relative_to(corpus)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    (house.folder / "refresh.yaml").write_text(CONFIG, encoding="utf-8")
    return house


@pytest.fixture(scope="module")
def runs(house: House) -> dict[str, Any]:
    """The first run, and one after a transcript was corrected."""
    runs = {"first": refresh(house)}
    transcripts = min((house.folder / "corpus").rglob("*.trans.txt"))
    lines = transcripts.read_text(encoding="utf-8").splitlines()
    utterance, _, text = lines[0].partition(" ")
    transcripts.write_text("\n".join([f"{utterance} {text} NOW", *lines[1:]]) + "\n", encoding="utf-8")
    runs["corrected"] = refresh(house)
    return runs


def test_a_corpus_is_published_as_a_version(house: House, runs: dict[str, Any]) -> None:
    record = runs["first"]["record"]
    assert [step["name"] for step in record["steps"]] == list(graph_of("refresh"))
    assert (record["pipeline"], record["status"]) == ("refresh", "succeeded")
    assert record["dataset"] == str(house.run_dir / "datasets" / "commands" / "1")
    assert read_json(Path(record["dataset"]) / "version.json")["number"] == 1
    assert runs["first"]["seen"][-1] == record["reason"] == "Published as version 1 of commands"
    assert "This is the first version." in runs["first"]["page"]


def test_the_parts_of_each_steps_key_are_pinned(runs: dict[str, Any]) -> None:
    check_step_keys("refresh", runs["first"]["record"])


def test_the_artifact_of_publish_is_the_version(house: House, runs: dict[str, Any]) -> None:
    (file,) = (house.run_dir / "kfp").glob("*/publish/executor_output.json")
    (version,) = read_json(file)["artifacts"]["version"]["artifacts"]
    assert version["uri"] == str(house.run_dir / "datasets" / "commands" / str(version["metadata"]["version"]))
    assert Dataset.read(version["uri"]).key == version["metadata"]["digest"]


def test_the_gauges_of_a_run_are_in_the_textfile(runs: dict[str, Any]) -> None:
    of = 'model="",pipeline="refresh",run="tiny"'
    gauges = {name: gauge_lines(run) for name, run in runs.items()}
    assert f'voxline_run_verdict{{{of},verdict="published"}} 1.0' in gauges["first"]
    assert f"voxline_dataset_version{{{of}}} 2.0" in gauges["corrected"]
    assert f"voxline_success_interval_seconds{{{of}}} 172800.0" in gauges["first"]
    assert 'voxline_rejects{model="",pipeline="refresh",reason="none",run="tiny",step="convert"} 0.0' in gauges["first"]
    assert sum(line.startswith("voxline_step_seconds") for line in gauges["first"]) == len(graph_of("refresh"))


@pytest.mark.slow
def test_an_unchanged_corpus_is_reused_and_publishes_no_version(house: House, runs: dict[str, Any]) -> None:
    again = refresh(house)
    record = again["record"]
    assert all(step["reused"] for step in record["steps"])
    assert record["dataset"] == runs["corrected"]["record"]["dataset"]
    assert again["seen"][-1] == "Nothing has changed since version 2 of commands"
    assert "Nothing has changed since version 2 was published." in again["page"]
    gauges = gauge_lines(again)
    assert 'voxline_run_verdict{model="",pipeline="refresh",run="tiny",verdict="unchanged"} 1.0' in gauges
    assert sum("voxline_last_success_timestamp_seconds" in line for line in gauges) == 1


def test_a_corrected_transcript_publishes_a_version_without_audio_work(runs: dict[str, Any]) -> None:
    record = runs["corrected"]["record"]
    steps = {step["name"]: step for step in record["steps"]}
    assert steps["convert"]["counts"]["decoded"] == 0
    assert record["dataset"].endswith("/commands/2")
    rows = [json.loads(line) for line in (Path(record["dataset"]) / "rows.jsonl").read_text("utf-8").splitlines()]
    assert sum("now" in json.dumps(row) for row in rows) == 1


def test_the_refresh_report_shows_the_changes(runs: dict[str, Any]) -> None:
    page = runs["corrected"]["page"]
    assert "Text changed: 1" in page
    assert "pair insert" in page  # "now", under nothing
    assert "The test set" in page
    assert "small_splits" in page  # the results of the checks are there, too


@pytest.mark.slow
def test_a_recognizer_trains_on_a_dataset_version(house: House, runs: dict[str, Any]) -> None:
    version = runs["first"]["record"]["dataset"]
    ended = voxline("step", "train", "--config", "tiny.yaml", "--dataset", version, cwd=house.folder)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^model +/", ended.stdout, re.MULTILINE)


TRAINING = """
name: on-version
datasets: runs/tiny/datasets
corpus: {dataset: commands@latest}
train:
  epochs: 1
  batch_size: 8
  model: {layers: 1, units: 8, rnn: simple, directions: forward, convolutions: [{channels: 2, stride: [3, 2]}]}
evaluate: {bootstrap_samples: 200}
"""


@pytest.fixture(scope="module")
def on_latest(house: House, runs: dict[str, Any]) -> dict[str, Any]:
    """The record of a run on the latest version."""
    (house.folder / "on-version.yaml").write_text(TRAINING, encoding="utf-8")
    ended = voxline("run", "asr", "--config", "on-version.yaml", cwd=house.folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record: dict[str, Any] = read_json(house.folder / "runs" / "on-version" / "run.json")
    return record


def trained_on(record: dict[str, Any]) -> str:
    """The key of the dataset that a run's model was trained on."""
    (train,) = (step for step in record["steps"] if step["name"] == "train")
    return str(read_json(Path(train["folder"]) / "done.json")["inputs"]["dataset"])


def test_a_run_on_the_latest_version_records_its_number(
    house: House, runs: dict[str, Any], on_latest: dict[str, Any]
) -> None:
    folder = house.folder / "runs" / "on-version"
    assert [step["name"] for step in on_latest["steps"]] == ["dataset", "train", "evaluate", "push"]
    assert trained_on(on_latest) == Dataset.read_header(runs["corrected"]["record"]["dataset"]).key
    assert on_latest["inputs"]["corpus"] == "commands@2"
    assert "dataset: commands@2" in (folder / "config.yaml").read_text(encoding="utf-8")
    assert "corpus commands@2" in (folder / "report.html").read_text(encoding="utf-8")

    # What the gate judged says the version too, and so does a model in the registry.
    push = next(step for step in on_latest["steps"] if step["name"] == "push")
    assert read_json(Path(push["outputs"]["verdict"]))["dataset"] == "commands@2"
    evaluate = next(step for step in on_latest["steps"] if step["name"] == "evaluate")
    measured = read_json(Path(evaluate["outputs"]["metrics"]))
    assert (measured["test"]["dataset"], measured["model"]["dataset"]) == ("commands@2", "commands@2")


def test_the_settings_of_a_version_are_those_of_its_refresh(house: House, on_latest: dict[str, Any]) -> None:
    config = load_config(house.folder / "runs" / "on-version" / "config.yaml")
    refreshed = load_config(house.folder / "refresh.yaml")
    assert config.extract.features == refreshed.extract.features
    assert config.extract.features.mels == 16

    # Also a value that is the default of all configs, which nobody else can tell from one that was not given.
    for mels in (20, config_class_of("asr").example()["extract"]["features"]["mels"]):
        other = ["--set", f"extract.features.mels={mels}"]
        refused = voxline("run", "asr", "--config", "on-version.yaml", "--dry-run", *other, cwd=house.folder)
        assert refused.returncode == 2
        assert f"extract.features.mels is {mels}, and commands@2 was made with 16; leave it out" in refused.stderr


@pytest.mark.slow
def test_last_months_model_is_made_again_by_the_number_of_its_version(
    house: House, runs: dict[str, Any], on_latest: dict[str, Any]
) -> None:
    # An older version: a corpus that was rolled back. Its key is the content's, so a training on it is found again.
    first = ["--set", "corpus.dataset=commands@1", "--until", "train"]
    for reused in (False, True):
        ended = voxline("run", "asr", "--config", "on-version.yaml", *first, cwd=house.folder)
        assert ended.returncode == 0, ended.stderr
        record = read_json(house.folder / "runs" / "on-version" / "run.json")
        assert trained_on(record) == Dataset.read_header(runs["first"]["record"]["dataset"]).key
        assert record["steps"][1]["reused"] is reused


def test_a_version_that_does_not_exist_is_refused_before_any_work(house: House, on_latest: dict[str, Any]) -> None:
    for reference, said in (("commands@9", "existing: 1, 2"), ("digits@latest", "has no version")):
        setting = f"corpus.dataset={reference}"
        refused = voxline("run", "asr", "--config", "on-version.yaml", "--set", setting, cwd=house.folder)
        assert refused.returncode == 2, refused.stdout
        assert reference in refused.stderr
        assert said in refused.stderr


def test_a_version_whose_recordings_are_gone_is_refused_before_it_is_trained_on(
    house: House, on_latest: dict[str, Any]
) -> None:
    datasets = str(house.folder / "runs" / "tiny" / "datasets")
    settings = VersionSettings.of({"dataset": "commands@2"})
    judged = [utterance for utterance in read_utterances(f"{datasets}/commands/2") if utterance.split == "test"]
    wav = Path(judged[0].audio_filepath)
    wav.rename(wav.with_suffix(".gone"))
    try:
        with pytest.raises(WorkError, match=f"commands@2: 1 of .* recordings of dev and test are gone.*{wav.name}"):
            open_version(datasets, settings)
    finally:
        wav.with_suffix(".gone").rename(wav)
    assert open_version(datasets, settings).counts["version"] == 2


def test_a_version_of_several_corpora_says_that_their_weights_are_left_behind(
    house: House, on_latest: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = str(house.folder / "runs" / "tiny" / "datasets")
    open_version(datasets, VersionSettings.of({"dataset": "commands@2"}))
    assert "several corpora" not in capsys.readouterr().out

    rows = Dataset.rows

    def of_two_corpora(dataset: Dataset) -> Iterator[DatasetRow]:
        for number, row in enumerate(rows(dataset)):
            yield dataclasses.replace(row, extra={**row.extra, "corpus": ("ours", "theirs")[number % 2]})

    monkeypatch.setattr(Dataset, "rows", of_two_corpora)
    open_version(datasets, VersionSettings.of({"dataset": "commands@2"}))
    assert "several corpora (ours, theirs), each drawn once" in capsys.readouterr().out


def test_a_version_is_read_as_the_manifest_that_it_was_made_of(
    house: House, runs: dict[str, Any], tmp_path: Path
) -> None:
    record = runs["corrected"]["record"]
    (convert,) = (step for step in record["steps"] if step["name"] == "convert")
    converted = read_manifest(convert["folder"])
    published = read_utterances(record["dataset"])
    assert fingerprint_utterances(published) == fingerprint_utterances(converted)
    files = {utterance.id: Path(utterance.audio_filepath) for utterance in converted}
    assert all(Path(utterance.audio_filepath).samefile(files[utterance.id]) for utterance in published)

    # Its rows have no measurements: the logs of the pool tell which samples they have, so that a probe leaves out a
    # recording of the training under another name.
    trained = next(utterance for utterance in converted if utterance.split == "train")
    renamed = trained.replace(id="another", audio_hash="0" * 32, text="other words")
    write_manifest(tmp_path / "manifest.jsonl", [renamed])
    utterances, probe = _read_probe(tmp_path, Path(record["dataset"]), str(tmp_path))
    assert (utterances, probe.listed) == ([], 1)

    # And they tell whether a WAV is what convert wrote.
    refuse_changed_audio(published, "evaluate")
    wav = Path(published[0].audio_filepath)
    content = wav.read_bytes()
    wav.write_bytes(content[:-2] + b"xy")
    try:
        with pytest.raises(WorkError, match="WAVs had changed since convert wrote them"):
            refuse_changed_audio(published, "evaluate")
    finally:
        wav.write_bytes(content)


@pytest.mark.parametrize(
    ("dataset", "training"), [("demo", "asr/demo"), ("librispeech", "asr/librispeech"), ("ljspeech", "tts/ljspeech")]
)
def test_our_datasets_are_what_our_models_train_on(dataset: str, training: str) -> None:
    refreshed = load_config(OURS / "refresh" / f"{dataset}.yaml").plain()
    trained = load_config(OURS / f"{training}.yaml").plain()
    for section in ("corpus", "convert", "extract"):
        assert refreshed[section] == trained[section]

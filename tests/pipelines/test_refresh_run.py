"""`voxline run refresh`, for real: a version is published, nothing new for nothing new, and one more for a change."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command import voxline
from tests.pipelines.conftest import House, check_step_keys
from tests.waiting import PATIENCE_SECONDS
from voxline.data.dataset import Dataset
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of
from voxline.store.files import read_json

OURS = Path(__file__).parents[2] / "configs"
CONFIG = """
pipeline: refresh
name: tiny
corpus: {uri: corpus}
extract: {features: {mels: 16}}
publish: {name: commands}
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


@pytest.mark.parametrize(
    ("dataset", "training"), [("demo", "asr/demo"), ("librispeech", "asr/librispeech"), ("ljspeech", "tts/ljspeech")]
)
def test_our_datasets_are_what_our_models_train_on(dataset: str, training: str) -> None:
    refreshed = load_config(OURS / "refresh" / f"{dataset}.yaml").plain()
    trained = load_config(OURS / f"{training}.yaml").plain()
    for section in ("corpus", "convert", "extract"):
        assert refreshed[section] == trained[section]

"""One command a night, on a config of a few lines: refresh, publish, train, judge; nothing where nothing changed."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.command import voxline
from voxline.pipelines.graphs import graph_of
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.store.files import read_json

pytestmark = pytest.mark.slow

# It learns nothing in an epoch, and passes a gate that accepts anything: the way is what is tested.
NIGHT = """
pipeline: refresh
name: night
corpus: {corpus}
extract: {{features: {{mels: 16}}}}
publish: {{dataset: speech, then: asr}}
train:
  epochs: 1
  batch_size: 8
  model: {{layers: 1, units: 8, rnn: simple, directions: forward, convolutions: [{{channels: 2, stride: [3, 2]}}]}}
evaluate: {{bootstrap_samples: 200}}
push: {{limits: {{wer: 1}}, max_regression: {{wer: 1}}, smoke_test: false}}
"""
assert len(NIGHT.strip().splitlines()) <= 15


def _generated(folder: Path, corpus: Path) -> str:
    """A copy of the generated corpus, whose transcripts are files."""
    shutil.copytree(corpus, folder / "speech")
    return "{uri: speech}"


def _digits(folder: Path, _corpus: Path) -> str:
    """A few of the Free Spoken Digit Dataset's recordings."""
    source = Path(os.environ.get("VOXLINE_FSDD", ""))
    if not os.environ.get("VOXLINE_FSDD"):
        pytest.skip("VOXLINE_FSDD names no folder of the Free Spoken Digit Dataset's recordings")
    (folder / "speech").mkdir()
    for recording in sorted(source.glob("*_*_[0-3].wav")):
        shutil.copyfile(recording, folder / "speech" / recording.name)
    return "{uri: speech, format: fsdd, split: {by: utterance, test: 0.2}}"


def _correct_a_transcript(folder: Path) -> None:
    file = min((folder / "speech").rglob("*.trans.txt"))
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([f"{lines[0]} NOW", *lines[1:]]) + "\n", encoding="utf-8")


def _remove_a_recording(folder: Path) -> None:
    min((folder / "speech").glob("*.wav")).unlink()


CORPORA = {"generated": (_generated, _correct_a_transcript), "digits": (_digits, _remove_a_recording)}


def night(folder: Path, *options: str) -> dict[str, Any]:
    ended = voxline("run", "refresh", "--config", "night.yaml", *options, cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record: dict[str, Any] = read_json(folder / "runs" / "night" / "run.json")
    return {**record, "by_name": {step["name"]: step for step in record["steps"]}, "seen": ended.stdout}


@pytest.mark.parametrize("kind", CORPORA)
def test_one_command_leads_from_a_changed_corpus_to_a_promoted_model(kind: str, tmp_path: Path, corpus: Path) -> None:
    write, change = CORPORA[kind]
    (tmp_path / "night.yaml").write_text(NIGHT.format(corpus=write(tmp_path, corpus)), encoding="utf-8")
    registry = Registry(tmp_path / "runs" / "night" / "registry", "asr")

    first = night(tmp_path)
    assert list(first["by_name"]) == list(graph_of("asr", ["publish"]))
    assert (first["pushed"], registry.in_service()) == (True, 1)

    change(tmp_path)
    second = night(tmp_path)
    assert second["dataset"].endswith("speech/2")
    assert not second["by_name"]["train"]["reused"]
    assert (second["pushed"], registry.in_service()) == (True, 2)
    assert "utterances       " not in second["seen"]  # the summary is that of the model
    for version in (1, 2):
        provenance = read_json(registry.path(version) / "provenance.json")
        assert provenance["dataset"]["version"] == provenance["test"]["dataset"] == f"speech@{version}"

    # An unchanged night ends where it knows that nothing is new.
    third = night(tmp_path)
    assert list(third["by_name"])[-1] == "publish"
    assert third["by_name"]["extract"]["reused"]
    assert third["reason"] == "Nothing has changed since version 2 of speech"
    assert registry.versions() == [1, 2]

    # After an erasure such a night is no success, though it judged nothing.
    if kind == "generated":
        service = registry.path(2) / TRAINED_ON
        listed = service.read_bytes()
        TrainingData("dataset", "rows", 3, []).write(service)
        ended = voxline("run", "refresh", "--config", "night.yaml", cwd=tmp_path)
        assert (ended.returncode, "Nothing has changed since version 2" in ended.stdout) == (3, True)
        told = "voxline: version 2, still in production, was trained on 3 utterances of a speaker who was erased since"
        assert told in ended.stderr
        assert read_json(tmp_path / "runs" / "night" / "run.json")["erased_in_production"] == 3
        service.write_bytes(listed)

    # A version whose training did not come to its end is trained on, though it is not new any more.
    if kind == "generated":
        change(tmp_path)
        night(tmp_path, "--until", "publish")
        resumed = night(tmp_path, "--until", "train")
        assert resumed["by_name"]["publish"]["reused"]
        assert not resumed["by_name"]["train"]["reused"]

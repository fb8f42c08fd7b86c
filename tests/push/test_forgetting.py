"""The forgetting gate: a model that started from another one must still know what that one was judged by."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tone_asr_model import ALPHABET, WORDS, MakeAsrModel, write_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.data import testing as by_hand
from voxline.data.manifest import read_manifest, write_manifest
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.registry.parents import find_parent
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.text.alphabet import Alphabet

OLD = [("ada", " ".join(WORDS[(number + step) % 9] for step in range(6))) for number in range(40)]
NEW = [("ben", " ".join(["one", "three", "five"][(number + step) % 3] for step in range(6))) for number in range(40)]
"""A new part of the corpus, in which nobody says "two"."""


class Night:
    """A store, a registry whose version 1 was judged by the old part, and the dataset that it was trained on."""

    def __init__(self, folder: Path, make_asr_model: MakeAsrModel) -> None:
        self.folder, self.make = folder, make_asr_model
        self.store, self.registry = folder / "store", folder / "registry"
        self.old = write_corpus(folder / "old", OLD)
        new = read_manifest(write_corpus(folder / "new", NEW) / "manifest.jsonl")
        self.new, self.grown = folder / "new", folder / "grown"
        self.grown.mkdir()
        write_manifest(self.grown / "manifest.jsonl", [*read_manifest(self.old / "manifest.jsonl"), *new])
        self.key = self.write_dataset()
        assert self.judge(self.model("base", {}, None), self.old)["version"] == 1

    def write_dataset(self) -> str:
        """As extract and convert leave them in the store."""
        how = FeatureSettings(sample_rate=16_000, mels=16, window_seconds=0.1, hop_seconds=0.1)
        said = read_manifest(self.old / "manifest.jsonl")
        examples = [by_hand.NewExample("train-0", "one", "train", np.ones((3, 16), np.float32), "ada")]
        for one in said:
            features = np.ones((round(one.duration * 10), 16), np.float32)
            examples.append(by_hand.NewExample(one.id, one.text, "test", features, one.speaker))
            wav = self.store / "wavs" / one.id[:2] / f"{one.id}.wav"
            wav.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.audio_filepath, wav)
        dataset = by_hand.write_dataset(self.folder / "made", examples, how, Alphabet(ALPHABET))
        shutil.move(self.folder / "made", self.store / "extract" / dataset.key)
        values = {"counts": {}, "metrics": {}, "outputs": {}}
        (self.store / "extract" / dataset.key / "done.json").write_text(json.dumps(values))
        # The audio hash of a dataset made by hand is the id.
        for corpus in (self.old, self.grown):
            lines = read_manifest(corpus / "manifest.jsonl")
            write_manifest(corpus / "manifest.jsonl", [one.replace(audio_hash=one.id) for one in lines])
        return dataset.key

    def model(self, name: str, mistakes: dict[str, str], parent: str | None = "asr@1") -> Path:
        """An exported model that hears some words as others, and says that it started from another one."""
        folder = shutil.copytree(self.make(mistakes), self.folder / name / "model")
        about = json.loads((folder / "model.json").read_text())
        about["dataset"]["key"], about["settings"]["name"] = self.key, name
        if parent:
            found = find_parent(parent, self.registry, family="asr", own_name="asr", generations=5)
            assert found is not None
            about["start"] = found.describe()
        (folder / "model.json").write_text(json.dumps(about))
        return folder

    def judge(self, model: Path, corpus: Path) -> dict[str, Any]:
        settings = AsrEvaluateSettings(bootstrap_samples=200, worst_utterances=1, aligned_utterances=0)
        self.evaluation = evaluate(model, corpus, self.registry, self.store, settings)
        gate = AsrPushSettings(smoke_test=False, max_regression={"wer": 0.03})
        work = push(model, self.evaluation.folder, self.registry, self.store, gate)
        verdict: dict[str, Any] = json.loads(work.path("verdict").read_text())
        return verdict


@pytest.fixture
def night(tmp_path: Path, make_asr_model: MakeAsrModel) -> Night:
    return Night(tmp_path, make_asr_model)


def parent_checks(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    checks = (check for check in verdict["checks"] if check["name"].endswith("its parent"))
    return [(check["status"], check["detail"]) for check in checks]


@pytest.mark.slow
def test_a_model_that_forgot_is_refused_though_the_new_part_shows_nothing(night: Night) -> None:
    verdict = night.judge(night.model("forgets", {"two": "one"}), night.new)
    assert not verdict["pushed"]
    (reason,) = verdict["reasons"]  # on today's test split it is as good as the model in service
    assert "on the test split of asr@1, which it started from (40 utterances), +11" in reason
    assert "against version 1 (0.00%)" in reason
    parent = json.loads(night.evaluation.path("metrics").read_text())["parent"]
    twos = sum(text.split().count("two") for _, text in OLD)
    assert parent["metrics"]["wer"]["value"] == pytest.approx(twos / (6 * len(OLD)))
    assert parent["metrics"]["wer"]["comparison"]["champion_value"] == 0
    assert (parent["utterances"], parent["listed"], parent["missing"]) == (40, 40, "")

    kept = night.judge(night.model("remembers", {"zero": "zero"}), night.new)
    assert kept["pushed"]
    assert [status for status, _ in parent_checks(kept)] == ["passed"]
    assert "test split of asr@1" in (Registry(night.registry, "asr").folder / "2" / "model_card.md").read_text()


@pytest.mark.slow
def test_with_the_old_part_in_todays_test_split_nothing_is_measured_twice(night: Night) -> None:
    verdict = night.judge(night.model("same", {"two": "two"}), night.grown)
    assert verdict["pushed"]
    assert [status for status, _ in parent_checks(verdict)] == ["passed"]
    results = (night.evaluation.folder / "parent_utterances.jsonl").read_text().splitlines()
    assert {json.loads(line)["speaker"] for line in results} == {"ada"}
    again = night.judge(night.model("another", {"three": "three"}, "asr@2"), night.grown)
    told = "the comparison with the model in service"
    assert [status for status, detail in parent_checks(again) if told in detail] == ["not checked"]


def test_what_started_from_published_weights_has_no_parents_test_split_to_be_measured_on(night: Night) -> None:
    model = night.model("published", {"zero": "zero"}, None)
    about = json.loads((model / "model.json").read_text())
    ancestor = {"name": "deepspeech-0.9.3.safetensors", "version": None, "digest": "0f" * 32, "dataset": ""}
    about["start"] = {"generation": 1, "ancestors": [ancestor], "training_data": "unknown"}
    (model / "model.json").write_text(json.dumps(about))
    verdict = night.judge(model, night.new)
    (reason,) = verdict["reasons"]  # it could not be measured as it was, either
    assert "was not measured before tuning" in reason
    ((status, detail),) = parent_checks(verdict)
    assert status == "not checked"
    assert "deepspeech-0.9.3.safetensors (0f0f0f0f0f0f) is a file of published weights, without a test split" in detail


def test_what_cannot_be_measured_any_more_refuses_the_model(night: Night) -> None:
    shutil.rmtree(night.store / "extract")
    verdict = night.judge(night.model("same", {"two": "two"}), night.new)
    assert not verdict["pushed"]
    ((status, detail),) = parent_checks(verdict)
    assert status == "failed"
    assert "40 of 40 utterances are neither in today's test split nor, with their recordings, in" in detail
    assert "train.start.model" in detail


def test_a_part_of_the_test_split_does_not_show_what_was_forgotten(night: Night) -> None:
    """Half of it is in today's corpus, and passes; the other half, with all that was forgotten, is gone."""
    half = night.folder / "half"
    half.mkdir()
    lines = [one for one in read_manifest(night.old / "manifest.jsonl") if int(one.id.rpartition("-")[2]) < 20]
    write_manifest(half / "manifest.jsonl", lines)
    shutil.rmtree(night.store / "extract")
    verdict = night.judge(night.model("same", {"two": "two"}), half)
    ((status, detail),) = parent_checks(verdict)
    assert status == "failed"
    assert "20 of its 40 utterances do not show what it forgot: 20 of 40 utterances are neither in" in detail


def test_utterances_that_the_model_was_trained_on_do_not_show_what_it_forgot(night: Night) -> None:
    """Of the parent's test split 38 are in train today, as after another draw of the splits."""
    model = night.model("cheats", {"zero": "zero"})
    heard = [one.replace(split="train") for one in read_manifest(night.old / "manifest.jsonl")][2:]
    lines = [
        {"id": one.id, "split": "train", "speaker": one.speaker, "audio_hash": one.audio_hash, "offset": one.offset}
        | {"duration": one.duration, "text_hash": ""}
        for one in heard
    ]
    TrainingData(night.key, "", 0, lines).write(model / TRAINED_ON)
    verdict = night.judge(model, night.new)
    ((status, detail),) = parent_checks(verdict)
    assert status == "failed"
    assert "2 of its 40 utterances do not show what it forgot: the model was trained on 38 of 40 utterances" in detail

"""Before and after: a model that started from a public one is measured beside it, and refused if it became worse."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tone_asr_model import WORDS, MakeAsrModel, write_corpus
from voxline.components.evaluate.step import run as evaluate
from voxline.components.evaluate.step import summarize
from voxline.components.push.step import run as push
from voxline.components.untouched_parent import MODEL, REVISION, STEP
from voxline.data.manifest import read_manifest, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.inference.model_info import AS_PUBLISHED
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.settings import Settings
from voxline.store.step_cache import cached_step

pytestmark = pytest.mark.parents

PARENT = {
    "name": "owner/tones",
    "version": None,
    "digest": "0f" * 32,
    "dataset": "",
    "revision": "c0ffee" * 6 + "beef",
    "licence": "apache-2.0",
}
TEXTS = [" ".join(WORDS[(number + step) % 9] for step in range(6)) for number in range(27)]
WORSE = {"two": "one", "five": "four"}
GATE: dict[str, Any] = {"smoke_test": False, "limits": {"wer": 1.0}, "max_regression": {"wer": 0.1}}


class Night:
    """A corpus, a store with an untouched parent in it, and models that say that they started from that."""

    def __init__(self, folder: Path, make: MakeAsrModel) -> None:
        self.folder, self.make = folder, make
        self.store, self.registry = folder / "store", folder / "registry"
        self.trained_on: TrainingData | None = None
        test = read_manifest(write_corpus(folder / "test", [("ada", text) for text in TEXTS]))
        dev = read_manifest(write_corpus(folder / "dev", [("ben", text) for text in TEXTS[:9]], split="dev"))
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        write_manifest(self.corpus / "manifest.jsonl", [*test, *dev])
        self.probe = write_corpus(folder / "probe", [("eve", text) for text in TEXTS])

    def parent(self, mistakes: dict[str, str] | None) -> None:
        """Puts the parent into the store, as train does; None: it cannot transcribe."""
        inputs = {"family": "asr", "parent": PARENT["digest"]}
        with cached_step(self.store, STEP, Settings(), inputs, revision=REVISION) as work:
            if mistakes is not None:
                shutil.copytree(self.make(mistakes), work.folder / MODEL)
                about = json.loads((work.folder / MODEL / "model.json").read_text())
                about["provenance"]["trained"] = {AS_PUBLISHED: True}
                (work.folder / MODEL / "model.json").write_text(json.dumps(about))
                work.outputs[MODEL] = MODEL

    def judge(
        self,
        mistakes: dict[str, str],
        *,
        probe: object = "",
        ancestor: dict[str, Any] = PARENT,
        normalization: str = "auto",
        start: str = "",
        **gate: Any,
    ) -> dict[str, Any]:
        model = self.folder / "models" / f"{len(list(self.folder.glob('models/*')))}"
        shutil.copytree(self.make(mistakes), model)
        about = json.loads((model / "model.json").read_text())
        about["start"] = {"generation": 1, "ancestors": [ancestor], "training_data": "unknown"}
        about["settings"]["start"] = {"model": start}
        (model / "model.json").write_text(json.dumps(about))
        if self.trained_on:
            self.trained_on.write(model / TRAINED_ON)
        values = {"bootstrap_samples": 200, "worst_utterances": 1, "aligned_utterances": 0}
        settings = AsrEvaluateSettings.of({**values, "probe": str(probe), "normalization": normalization})
        self.output = evaluate(model, self.corpus, self.registry, self.store, settings)
        self.evaluation = Evaluation.read(self.output.folder)
        pushed = push(model, self.output.folder, self.registry, self.store, AsrPushSettings.of({**GATE, **gate}))
        verdict: dict[str, Any] = json.loads(pushed.path("verdict").read_text())
        return verdict


@pytest.fixture
def night(tmp_path: Path, make_asr_model: MakeAsrModel) -> Night:
    return Night(tmp_path, make_asr_model)


def checks(verdict: dict[str, Any], ending: str = "its parent before tuning") -> list[tuple[str, str]]:
    return [(check["status"], check["detail"]) for check in verdict["checks"] if check["name"].endswith(ending)]


def test_before_and_after_are_measured_on_test_and_dev_and_told_everywhere(night: Night) -> None:
    night.parent(WORSE)
    verdict = night.judge({})
    assert verdict["pushed"]
    ((status, detail),) = checks(verdict)
    assert status == "passed"
    assert "against owner/tones@c0ffeec0 (22.22%)" in detail

    before = night.evaluation.info.before
    assert before is not None
    assert (before.licence, before.published, before.missing, list(before.parts)) == (
        "apache-2.0", True, "", ["test", "dev"],
    )  # fmt: skip
    assert [summary.utterances for summary in before.parts.values()] == [27, 9]
    wer = before.parts["test"].metrics["wer"]
    assert wer.value == 0
    assert wer.comparison is not None
    assert wer.comparison.champion_value == pytest.approx(2 / 9)
    assert wer.comparison.interval.high is not None
    assert wer.comparison.interval.high < 0

    assert summarize(night.evaluation.info).endswith("; before: 22.22%, after: 0.00%")
    assert night.output.metrics["before_wer"] == pytest.approx(2 / 9, abs=1e-6)
    report = night.output.path("report").read_text()
    assert "Before is owner/tones@c0ffeec0 as it comes (licence: apache-2.0)" in report
    card = (Registry(night.registry, "asr").path(1) / "model_card.md").read_text()
    assert f"`owner/tones`: commit `{PARENT['revision']}`; licence: apache-2.0" in card
    assert "| test | 27 | word error rate | 22.22% | 0.00% | -22.22 points |" in card


def test_a_model_that_is_worse_than_its_untouched_parent_is_refused(night: Night) -> None:
    night.parent({})
    verdict = night.judge(WORSE)
    assert not verdict["pushed"]
    (reason,) = verdict["reasons"]
    assert "on the split 'test' (27 utterances), +22.22 points against owner/tones@c0ffeec0 (0.00%)" in reason
    assert summarize(night.evaluation.info).endswith("; before: 0.00%, after: 22.22%")

    warned = night.judge(WORSE, below_parent="warn")
    assert warned["pushed"]
    ((status, detail),) = checks(warned)
    assert status == "not checked"
    assert detail.startswith("warning: word error rate on the split 'test'")


def test_before_and_after_are_told_normalized_too(night: Night) -> None:
    """The parent's capitals count as errors of neither; the transcripts have numbers in digits, which it writes out."""
    night.parent(WORSE)
    corpus = [
        utterance.replace(text=utterance.text.replace("one", "1").replace("four", "4!"))
        for utterance in read_manifest(night.corpus)
    ]
    write_manifest(night.corpus / "manifest.jsonl", corpus)
    gate = {"limits": {"wer": 1, "wer_normalized": 0.01}, "max_regression": {"wer_normalized": 0.01}}
    verdict = night.judge({}, normalization="english", **gate)
    assert verdict["pushed"], verdict["reasons"]
    assert summarize(night.evaluation.info).endswith("; normalized before: 22.22%, after: 0.00%")
    assert night.output.metrics["before_wer"] > 0.3
    assert night.output.metrics["before_wer_normalized"] == pytest.approx(2 / 9, abs=1e-6)
    card = (Registry(night.registry, "asr").path(1) / "model_card.md").read_text()
    assert "| test | 27 | word error rate, normalized | 22.22% | 0.00% | -22.22 points |" in card


def test_a_parent_that_cannot_transcribe_has_no_before(night: Night) -> None:
    night.parent(None)
    verdict = night.judge({})
    assert verdict["pushed"]
    ((status, detail),) = checks(verdict)
    assert status == "not checked"
    assert "there is no before: owner/tones@c0ffeec0 has no output layer of the kind that was trained" in detail
    assert "before" not in summarize(night.evaluation.info)


def test_a_parent_that_is_gone_refuses_the_model(night: Night) -> None:
    verdict = night.judge({})
    assert not verdict["pushed"]
    ((status, detail),) = checks(verdict)
    assert status == "failed"
    assert "owner/tones@c0ffeec0 was not measured before tuning: owner/tones@c0ffeec0 is not in" in detail
    assert night.judge({}, below_parent="warn")["pushed"]


def test_an_evaluation_whose_figures_of_before_were_removed_or_changed_is_not_judged(night: Night) -> None:
    night.parent({})
    night.judge(WORSE)
    metrics = night.output.folder / "metrics.json"
    values = json.loads(metrics.read_text())
    model = night.folder / "models" / "0"

    def pushed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        folder = night.folder / "changed"
        shutil.copytree(night.output.folder, folder, dirs_exist_ok=True)
        (folder / "done.json").unlink(missing_ok=True)
        changed = json.loads(json.dumps(values))
        change(changed)
        (folder / "metrics.json").write_text(json.dumps(changed))
        output = push(model, folder, night.registry, night.store, AsrPushSettings.of(GATE))
        verdict: dict[str, Any] = json.loads(output.path("verdict").read_text())
        return verdict

    ((status, detail),) = checks(pushed(lambda changed: changed.pop("before")))
    assert status == "failed"
    assert "was not measured before tuning; evaluate again" in detail
    with pytest.raises(WorkError, match="before and after, test, utterances"):
        pushed(lambda changed: changed["before"]["parts"]["test"].update(utterances=26))


def test_the_probe_shows_what_was_forgotten(night: Night) -> None:
    """The test split has no word that was forgotten."""
    night.parent({})
    kept = [utterance for utterance in read_manifest(night.corpus) if "two" not in utterance.text.split()]
    write_manifest(night.corpus / "manifest.jsonl", kept)
    without = night.judge({"two": "one"})
    assert without["pushed"]
    assert "name a corpus that shows it (evaluate.probe)" in str(checks(without, "against its parent"))

    verdict = night.judge({"two": "one", "zero": "zero"}, probe=night.probe)
    assert not verdict["pushed"]
    (reason,) = verdict["reasons"]
    assert f"on the probe {night.probe} (27 utterances), +11.11 points against owner/tones@c0ffeec0" in reason
    assert [status for status, _ in checks(verdict)] == ["passed"]

    good = night.judge({"zero": "zero"}, probe=night.probe)
    assert good["pushed"]
    before = night.evaluation.info.before
    assert before is not None
    assert before.probe is not None
    assert (before.probe.listed, before.parts["probe"].utterances) == (27, 27)


def test_a_probe_in_another_style_shows_no_more_than_what_was_forgotten(night: Night) -> None:
    """Its capitals are no errors of a model that was tuned on small letters."""
    night.parent({})
    louder = [utterance.replace(text=utterance.text.upper()) for utterance in read_manifest(night.probe)]
    write_manifest(night.probe / "manifest.jsonl", louder)
    assert night.judge({"zero": "zero"}, probe=night.probe)["pushed"]
    assert "+11.11 points" in str(night.judge({"two": "one"}, probe=night.probe)["reasons"])


def test_a_probe_shows_what_a_version_of_ours_forgot_too(night: Night) -> None:
    night.parent({})
    night.judge({})
    event = Registry(night.registry, "asr").event(1)
    ours = {"name": "asr", "version": 1, "digest": event.digest, "dataset": "k"}
    verdict = night.judge(WORSE, probe=night.probe, ancestor=ours)
    assert any(f"on the probe {night.probe} (27 utterances), +22.22 points" in reason for reason in verdict["reasons"])
    before = night.evaluation.info.before
    assert before is not None
    assert (before.published, before.version, list(before.parts)) == (False, 1, ["probe"])
    assert checks(verdict) == []


@pytest.mark.parametrize("known_by", ["source", "samples", "id and text", "an earlier training"])
def test_a_probe_in_train_does_not_show_what_was_forgotten(known_by: str, night: Night) -> None:
    """20 of the 27 recordings are in train, or were."""
    night.parent({})
    probed = [
        utterance.replace(audio_hash=f"probe-{number}", measured={"pcm_hash": f"{number:032x}"})
        for number, utterance in enumerate(read_manifest(night.probe))
    ]
    changes: dict[str, dict[str, Any]] = {
        "source": {"id": "x", "measured": {}},
        "samples": {"id": "x", "audio_hash": "y"},
        "id and text": {"audio_hash": "y", "measured": {}},
    }
    write_manifest(night.probe / "manifest.jsonl", probed)
    train = [
        utterance.replace(split="train", **{key: f"{value}{number}" if value else {} for key, value in change.items()})
        for change in [changes.get(known_by)]
        if change
        for number, utterance in enumerate(probed[:20])
    ]
    write_manifest(night.corpus / "manifest.jsonl", [*read_manifest(night.corpus), *train])
    if not train:
        lines = [
            {"id": "x", "split": "train", "speaker": "", "audio_hash": utterance.audio_hash, "offset": 0.0}
            | {"duration": 1.0, "text_hash": ""}
            for utterance in probed[:20]
        ]
        night.trained_on = TrainingData("k", "", 0, lines)

    verdict = night.judge({}, probe=night.probe)
    assert not verdict["pushed"]
    (reason,) = verdict["reasons"]
    assert "7 of the 27 utterances of the probe" in reason
    assert "the model was trained on 20 of 27 utterances of the probe" in reason


def test_a_probe_that_cannot_be_read_is_named(night: Night) -> None:
    night.parent({})
    with pytest.raises(SettingsError, match=r"evaluate\.probe is '/nowhere'.*a manifest of recordings, or convert's"):
        night.judge({}, probe="/nowhere")


def test_a_parent_is_spelled_as_the_transcripts_are_and_the_new_model_is_not(night: Night) -> None:
    night.parent({})
    louder = [utterance.replace(text=utterance.text.upper()) for utterance in read_manifest(night.corpus)]
    write_manifest(night.corpus / "manifest.jsonl", louder)
    assert not night.judge({})["pushed"]
    assert summarize(night.evaluation.info).endswith("; before: 0.00%, after: 100.00%")

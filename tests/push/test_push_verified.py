"""What is judged is what was measured, bit by bit; and what push says is what the journal says."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.failing import FULL, GROWING, READ_ONLY, FailingDisk
from tests.push.conftest import QUICK, evaluated
from tests.store.test_step_cache import flip
from tests.tone_asr_model import WORDS, MakeAsrModel
from voxline.components.push.step import run as push
from voxline.errors import WorkError
from voxline.families.asr.settings import AsrPushSettings as PushSettings
from voxline.metrics.evaluation import METRICS_FILE, UTTERANCES_FILE, Evaluation
from voxline.registry.registry import Registry

BAD = dict.fromkeys(WORDS[:3], "six")
LAX = PushSettings(smoke_test=False, limits={"wer": 1})


class StoreDisk(FailingDisk):
    """The disk of the store alone: the registry's, which waits for its disk too, is another one."""

    def change(self, what: str) -> bool:
        return what not in ("fsync", "sync") and super().change(what)

    def _sendfile(self, door: Callable[..., int]) -> Callable[..., int]:
        return door


class FullOnceServed(StoreDisk):
    """A disk that has no room from the moment at which a file exists."""

    def __init__(self, root: Path, served: Path) -> None:
        super().__init__([root], FULL, 1 << 62)
        self._served = served

    def change(self, what: str) -> bool:
        if self._served.exists() and what in GROWING:
            self._how, self._at = FULL, 0
        return super().change(what)


def wer_digit(evaluation: Path) -> int:
    """Where the first digit after the point of the word error rate is in metrics.json."""
    text = (evaluation / METRICS_FILE).read_bytes()
    return text.index(b'"value": 0.', text.index(b'"wer"')) + len(b'"value": 0.')


def test_a_flipped_bit_in_the_metrics_is_refused_and_measured_again(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It made a model of too many errors one that is within the limit, and put it into service."""
    model = make_asr_model(BAD)
    evaluation = evaluated(model, corpus, tmp_path)
    before = (evaluation / METRICS_FILE).read_bytes()
    flip(evaluation / METRICS_FILE, wer_digit(evaluation))
    assert json.loads((evaluation / METRICS_FILE).read_bytes()) != json.loads(before)
    with pytest.raises(WorkError, match=r"metrics.json \(its hash is .* has changed since evaluate wrote it"):
        push(model, evaluation, tmp_path / "registry", tmp_path / "store", QUICK)
    assert Registry(tmp_path / "registry", "asr").versions() == []
    assert evaluated(model, corpus, tmp_path) == evaluation
    assert "evaluate: making it again" in capsys.readouterr().out
    assert Evaluation.read(evaluation).values()["wer"] == json.loads(before)["metrics"]["wer"]["value"]


@pytest.mark.parametrize("whose", ["value", "slice", "absent", "utterances", "no utterance", "not the first"])
def test_figures_that_do_not_follow_from_the_utterances_are_refused_with_both_numbers(
    whose: str, corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    """Also where the hashes were written again, as those who may write the store can."""
    model = make_asr_model(BAD)
    forged = Path(shutil.copytree(evaluated(model, corpus, tmp_path), tmp_path / "forged"))
    (forged / "done.json").unlink()
    metrics: dict[str, Any] = json.loads((forged / METRICS_FILE).read_bytes())
    true = metrics["metrics"]["wer"]["value"]
    expected = rf"metrics.json: its figures are not .*word error rate 1.00%, computed {true:.2%}.*run evaluate again"
    if whose == "value":
        metrics["metrics"]["wer"]["value"] = 0.01
    elif whose == "slice":
        metrics["slices"]["speaker"]["ada"]["metrics"]["wer"]["value"] = 0.01
        expected = r"speaker ada, word error rate 1.00%, computed \d\d.\d\d%"
    elif whose == "absent":  # a limit on what was not measured is skipped
        del metrics["metrics"]["wer"]
        expected = "word error rate is absent"
    elif whose in ("no utterance", "not the first"):  # a figure that nothing gives
        metrics["metrics"]["wer"]["value"] = 0.01
        lines = [json.loads(line) for line in (forged / UTTERANCES_FILE).read_bytes().splitlines()]
        for line in lines if whose == "no utterance" else lines[:1]:
            del line["metrics"]["wer"]
        (forged / UTTERANCES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
        expected = "word error rate is absent in the line of utterance"
    else:
        lines = [json.loads(line) for line in (forged / UTTERANCES_FILE).read_bytes().splitlines()]
        lines[3]["metrics"]["wer"][0] += 1
        (forged / UTTERANCES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
        expected = rf"word error rate {true:.2%}, computed \d\d.\d\d%"
    (forged / METRICS_FILE).write_text(json.dumps(metrics))
    with pytest.raises(WorkError, match=expected):
        push(
            model, forged, tmp_path / "registry", tmp_path / "store", PushSettings(smoke_test=False, limits={"wer": 1})
        )
    assert Registry(tmp_path / "registry", "asr").versions() == []


def test_report_card_and_summary_name_the_bytes_that_were_judged(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model = make_asr_model()
    evaluation = evaluated(model, corpus, tmp_path)
    work = push(model, evaluation, tmp_path / "registry", tmp_path / "store", QUICK)
    version, measured = tmp_path / "registry" / "asr" / "1", Evaluation.read(evaluation)
    digests = (measured.digest, measured.content_digest())
    pages = [
        work.path("report"),
        work.path("summary"),
        version / "model_card.md",
        version / "evaluation" / "report.html",
    ]
    for page in [*pages, work.path("verdict"), version / "provenance.json"]:
        assert all(digest in page.read_text() for digest in digests), page
    assert Evaluation.read(version / "evaluation").content_digest() == measured.content_digest()
    line = (evaluation / UTTERANCES_FILE).read_bytes()
    (evaluation / UTTERANCES_FILE).write_bytes(line.replace(b"ada", b"ade"))
    assert measured.content_digest() not in digests


def test_a_store_that_cannot_be_written_keeps_the_model_out_of_service(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model = make_asr_model()
    evaluation = evaluated(model, corpus, tmp_path)
    store, registry = tmp_path / "store", tmp_path / "registry"
    for how in (READ_ONLY, FULL):
        with StoreDisk([store], how, 1).in_place(), pytest.raises(WorkError, match=r"push: .*make room"):
            push(model, evaluation, registry, store, QUICK)
        assert Registry(registry, "asr").versions() == []
    assert push(model, evaluation, registry, store, QUICK).counts["pushed"]


@pytest.mark.parametrize("alias", ["production", "candidate"])
def test_a_disk_that_fills_after_the_publication_does_not_hide_it(
    alias: str, corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    model = make_asr_model()
    evaluation = evaluated(model, corpus, tmp_path)
    store, registry = tmp_path / "store", tmp_path / "registry"
    settings = PushSettings(smoke_test=False, promote=alias)  # type: ignore[arg-type]
    where = {"production": "in service", "candidate": "the candidate"}[alias]
    with (
        FullOnceServed(store, registry / "asr" / "1" / "version.json").in_place(),
        pytest.raises(WorkError, match=rf"push: version 1 of asr is {where} .*asr/1\); its report .* No space left"),
    ):
        push(model, evaluation, registry, store, settings)
    assert [event.version for event in Registry(registry, "asr").journal()] == [1]
    again = push(model, evaluation, registry, store, settings)
    assert json.loads(again.path("verdict").read_text())["reasons"] == [f"already {where} as version 1"]


@pytest.mark.slow
def test_figures_of_the_version_in_service_that_changed_are_not_compared_with(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went into service after this model was evaluated, so push would take its figures from the registry."""
    store, registry = tmp_path / "store", tmp_path / "registry"
    better, served = make_asr_model(), make_asr_model(BAD)
    evaluation = evaluated(better, corpus, tmp_path)
    assert push(served, evaluated(served, corpus, tmp_path), registry, store, LAX).counts["pushed"]
    table = registry / "asr" / "1" / "evaluation" / UTTERANCES_FILE
    before = table.read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    lines[3]["metrics"]["wer"][0] += 1
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = push(better, evaluation, registry, store, LAX)
    assert "went into service since the evaluation" in json.loads(refused.path("verdict").read_text())["heading"]
    assert "push: the evaluation of version 1 is not used: " in capsys.readouterr().out
    table.write_bytes(before)
    assert push(better, evaluation, registry, store, LAX).counts["pushed"]

"""Comparisons with the model in service are counted, and share one error."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from tests.push.test_add_a_family import word_count
from tests.push.test_anchor import Night, night, registry
from voxline.components.push.gate import Opponent, check_after_erasure, check_regression
from voxline.errors import PreconditionError, WorkError
from voxline.families.asr.settings import AsrPushSettings
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import Evaluation, UtteranceResult
from voxline.metrics.paired import proposed_margin
from voxline.registry.looks import LOOKS_FILE, count_look
from voxline.registry.registry import Registry
from voxline.store.objects import ObjectStore

__all__ = ["night", "registry", "word_count"]
pytestmark = pytest.mark.usefixtures(word_count.__name__)


def confidence(verdict: dict[str, Any]) -> str:
    (detail,) = (check["detail"] for check in verdict["checks"] if check["name"].endswith("the model in service"))
    return str(detail).partition("with ")[2].partition(" at most")[0]


def test_each_model_that_is_compared_needs_more_confidence_than_the_one_before(
    night: Night, registry: Registry
) -> None:
    assert night(0.5)["pushed"]
    assert confidence(night(0.8)) == "97.5% confidence"
    second = "99.17% confidence (comparison 2 with what is in service)"
    assert confidence(night(0.9)) == second
    assert confidence(night(0.8)) == "97.5% confidence"  # the same comparison again
    assert confidence(night(0.9)) == second
    assert len((registry.folder / LOOKS_FILE).read_text().splitlines()) == 2
    assert confidence(night(0.8, 30)) == "99.58% confidence (comparison 3 with what is in service)"

    # Another model in service, another count; after a rollback that of the restored model continues.
    assert night(0.45)["pushed"]
    assert confidence(night(0.8)) == "97.5% confidence"
    registry.rollback(to=1)
    assert confidence(night(0.7)) == "99.83% confidence (comparison 5 with what is in service)"


def test_a_model_that_fails_a_limit_is_a_comparison_too(night: Night, registry: Registry) -> None:
    """A limit sees the same recordings: were a failure free, each model that luck takes past it would be the first."""
    assert night(0.5)["pushed"]
    assert confidence(night(1.5)) == "97.5% confidence"  # above its limit of 1
    assert confidence(night(0.8)) == "99.17% confidence (comparison 2 with what is in service)"


def test_a_damaged_count_is_told_with_its_remedy(tmp_path: Path) -> None:
    models = Registry(tmp_path, "asr")
    assert count_look(models, "service", "model", "test") == 1
    (models.folder / LOOKS_FILE).write_text('{"service": "service"}\n')
    with pytest.raises(WorkError, match=r"looks\.jsonl: damaged .* remove it"):
        count_look(models, "service", "other", "test")


def test_a_count_without_its_last_line_end_goes_on(tmp_path: Path) -> None:
    models = Registry(tmp_path, "asr")
    assert count_look(models, "service", "model", "test") == 1
    file = models.folder / LOOKS_FILE
    file.write_bytes(file.read_bytes().rstrip())
    assert [count_look(models, "service", name, "test") for name in ("other", "third", "model")] == [2, 3, 1]


def test_a_comparison_that_another_process_counted_meanwhile_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock in a bucket may pass to another process while its holder sleeps."""
    models = Registry(tmp_path, "asr")
    assert count_look(models, "service", "model", "test") == 1
    read = ObjectStore.read_with_version

    def sleep_after_reading(store: ObjectStore, name: str) -> tuple[bytes, str]:
        answer = read(store, name)
        monkeypatch.undo()
        count_look(models, "service", "other", "test")
        return answer

    monkeypatch.setattr(ObjectStore, "read_with_version", sleep_after_reading)
    with pytest.raises(PreconditionError):
        count_look(models, "service", "third", "test")
    assert count_look(models, "service", "third", "test") == 3


def recognizer(folder: Path, errors: int, in_service: int, words: int = 165) -> tuple[Evaluation, Opponent]:
    """A recognizer with so many errors on as many one-word utterances, and the one in service, which has others too."""
    results = [
        UtteranceResult(f"{number:03}", "", 1.0, {}, {"wer": SumAndWeight(float(number < errors), 1)})
        for number in range(words)
    ]
    service = {result.id: {"wer": SumAndWeight(float(int(result.id) < in_service), 1)} for result in results}
    metrics = {"wer": metric_info(errors / words, 0, 1)}
    evaluation = Evaluation(folder, evaluation_info(metrics=metrics), results)
    return evaluation, Opponent("the model in service", 1, service, look=1)


def test_a_refusal_on_a_small_split_names_the_utterances_and_the_margin_that_would_do(tmp_path: Path) -> None:
    """Two fixes and no regression of 165: better as measured, and no proof of it within half a point at 97.5%."""
    evaluation, service = recognizer(tmp_path, errors=2, in_service=4)
    (refused,) = check_regression(evaluation, service, AsrPushSettings())
    assert refused.passed is False
    assert (refused.metric, round(165 * (refused.difference or 0))) == ("wer", -2)  # better, though it is not proved
    said = re.search(
        r"about ([\d,]+) test utterances like these would, or max_regression.wer: ([\d.]+)", refused.detail
    )
    assert said is not None, refused.detail

    # Both are true: the margin lets it pass, and so do as many utterances that differ as often.
    (wider,) = check_regression(evaluation, service, AsrPushSettings.of({"max_regression": {"wer": float(said[2])}}))
    assert wider.passed
    words = int(said[1].replace(",", ""))
    assert 165 < words < 740  # 740 without a regression, whatever is fixed
    larger = recognizer(tmp_path, errors=2 * words // 165, in_service=round(4 * words / 165), words=words)
    (enough,) = check_regression(*larger, AsrPushSettings())
    assert enough.passed, enough.detail


def test_after_an_erasure_a_split_too_small_for_the_margin_is_told_and_proves_nothing(tmp_path: Path) -> None:
    """Measured as good is not shown: 165 words cannot exclude one point at 97.5%, whatever was measured."""
    evaluation, other = recognizer(tmp_path, errors=0, in_service=0)
    measured, shown = check_after_erasure(evaluation, other, AsrPushSettings())
    assert (measured.passed, shown.passed) == (True, False)
    assert "the test split is too small to show it: about" in shown.detail
    said = re.search(r"max_regression.wer: ([\d.]+)", shown.detail)
    assert said is not None
    wider = AsrPushSettings.of({"max_regression": {"wer": float(said[1])}})
    assert [check.passed for check in check_after_erasure(evaluation, other, wider)] == [True, True]

    # Half the margin that `config init` writes is enough after an erasure.
    half = AsrPushSettings.of({"max_regression": {"wer": proposed_margin(165, 0.02, 0.95) / 2}})
    for errors, in_service, passes in ((2, 3, True), (3, 3, True), (0, 0, True), (9, 2, False)):
        evaluation, other = recognizer(tmp_path, errors, in_service)
        assert all(check.passed for check in check_after_erasure(evaluation, other, half)) is passes


def test_a_model_that_fixes_and_breaks_nothing_passes_at_the_margin_that_init_writes(tmp_path: Path) -> None:
    margin = proposed_margin(165, 0.02, 0.95)
    settings = AsrPushSettings.of({"max_regression": {"wer": margin}})
    for errors, in_service, passes in ((2, 4, True), (3, 3, True), (0, 0, True), (9, 2, False)):
        evaluation, service = recognizer(tmp_path, errors, in_service)
        (check,) = check_regression(evaluation, service, settings)
        assert check.passed is passes, check.detail

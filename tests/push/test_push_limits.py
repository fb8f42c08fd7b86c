"""What may be gated on: metrics of the catalog, by limits that are shares, if they were measured."""

from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info
from tests.push.conftest import Judge
from tests.tone_asr_model import MakeAsrModel
from voxline.components.push.gate import GateCheck, check_onnx
from voxline.components.push.limits import check_limits
from voxline.errors import SettingsError
from voxline.families.asr.evaluate import AsrResult
from voxline.families.asr.settings import AsrPushSettings as PushSettings
from voxline.families.tts.settings import TtsPushSettings
from voxline.families.vocoder.settings import VocoderPushSettings
from voxline.metrics.bootstrap import SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import UNKNOWN_INTERVAL, Evaluation, MetricInfo, UtteranceResult
from voxline.registry.registry import Registry


@pytest.mark.slow
def test_a_metric_added_to_the_catalog_can_be_gated_on(
    judge: Judge,
    make_asr_model: MakeAsrModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The example of docs/extend/metric.md: the page edits these two places, so here they are patched."""
    name = "character_substitution_rate"
    added = (Metric(name, "characters substituted", ("asr",), "rate", unit="%"),)
    CATALOG.register(added, "another family")
    request.addfinalizer(lambda: CATALOG.unregister("another family"))
    metrics = AsrResult.metrics
    monkeypatch.setattr(
        AsrResult,
        "metrics",
        lambda result: {
            **metrics(result),
            name: SumAndWeight(result.characters.substitutions, result.characters.length),
        },
    )
    passing = PushSettings(smoke_test=False, limits={name: 0.2})
    assert passing.limits == {"wer": 0.3, name: 0.2}
    verdict = judge(make_asr_model({"four": "five"}), passing)
    assert verdict["pushed"]
    measured = verdict["metrics"][name]
    assert 0 < measured == verdict["metrics"]["cer"] < 0.2
    version = tmp_path / "registry" / "asr" / "1"
    assert "| characters substituted |" in (version / "model_card.md").read_text()
    assert "characters substituted" in (version / "evaluation" / "report.html").read_text()
    assert Registry(tmp_path / "registry", "asr").journal()[0].metrics[name] > 0
    worse = make_asr_model({"four": "five", "two": "one"})
    limited = judge(worse, PushSettings(smoke_test=False, limits={"wer": 1, name: measured}))
    assert f"(limits.{name})" in limited["reasons"][0]
    margins = {"wer": 1, name: 0.001}
    settings = PushSettings(
        smoke_test=False, limits={"wer": 1}, max_regression=margins, max_slice_regression={"wer": 1}
    )
    (reason,) = judge(worse, settings)["reasons"]
    assert f"(max_regression.{name})" in reason


def test_a_metric_that_cannot_be_judged_is_refused_by_the_settings() -> None:
    with pytest.raises(
        SettingsError, match=r"'max_regression\.rtf' is 0\.1; no metric rtf; accepted: wer, wer_normalized, cer, "
    ):
        PushSettings.of({"max_regression": {"rtf": 0.1}}, "push")
    assert PushSettings.of({"limits": {"rtf": 0.5}}).limits == {"wer": 0.3, "rtf": 0.5}


@pytest.mark.parametrize(
    ("section", "accepted"), [({"limits": {"wer": 30}}, "0 to 10"), ({"max_regression": {"wer": 5}}, "0 to 1 ")]
)
def test_a_percentage_given_for_a_share_is_refused(section: dict[str, dict[str, float]], accepted: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"push: '{next(iter(section))}\.wer' is .*; wer is a share \(1 is 100%\); {accepted}"
    ):
        PushSettings.of(section, "push")
    assert PushSettings.of({"limits": {"rtf": 30}}).limits["rtf"] == 30


@pytest.mark.parametrize(
    "settings", [PushSettings(), TtsPushSettings(), VocoderPushSettings(), PushSettings(limits={"rtf": 1})]
)
def test_a_limit_whose_figure_was_not_measured_is_not_passed(settings: Any, tmp_path: Path) -> None:
    """A rate of utterances without words, say: zero errors of zero words are no figure."""
    value = aggregate([SumAndWeight(0, 0)] * 3)
    metric = MetricInfo(value=value, measured=0, interval=UNKNOWN_INTERVAL, comparison=None)
    evaluation = Evaluation(tmp_path, evaluation_info(metrics=dict.fromkeys(settings.limits, metric)), [])
    checks = check_limits(evaluation, settings)
    assert len(checks) == len(settings.limits)
    assert {check.status for check in checks} == {"not checked"}


def test_an_onnx_graph_passes_only_if_it_was_compared_and_writes_the_same_texts(tmp_path: Path) -> None:
    def check(**onnx: Any) -> GateCheck:
        evaluation = Evaluation(tmp_path, evaluation_info(details={"onnx": {"precision": "float32", **onnx}}), [])
        (result,) = check_onnx(evaluation, PushSettings(), tmp_path)
        return result

    assert check(count=0, different=[]).passed
    different = check(count=2, different=[{"id": "a-1", "saved_model": "six", "onnx": "sixty"}])
    assert not different.passed
    assert "such as a-1: 'sixty', not 'six'; set train.export.onnx to none" in different.detail
    uncompared = check()
    assert uncompared.passed is False
    assert uncompared.detail == (
        "the ONNX graph was not compared with the SavedModel; let the family's compare_onnx do it and run evaluate "
        "again (--force evaluate), or set train.export.onnx to none"
    )

    assert check(largest=0.01, limit=0.05, unit="dB", id="a-1").passed
    assert not check(largest=0.06, limit=0.05, unit="dB", id="a-1").passed


def test_each_speaker_of_a_voice_is_held_to_the_limits(tmp_path: Path) -> None:
    """Two good speakers would hide a third one, and a speaker of few sentences says little."""

    def check(**sharpness: float) -> list[GateCheck]:
        results = [
            UtteranceResult(f"{name}-{n}", name, 1.0, {"speaker": name}, {"sharpness": SumAndWeight(value)}, None, {})
            for name, value in sharpness.items()
            for n in range(3 if name == "few" else 20)
        ]
        mean = aggregate([result.metrics["sharpness"] for result in results], "mean")
        metric = MetricInfo(value=mean, measured=len(results), interval=UNKNOWN_INTERVAL, comparison=None)
        info = evaluation_info(metrics={"sharpness": metric}, slices={"speaker": {}})
        settings = TtsPushSettings()
        checks = check_limits(Evaluation(tmp_path, info, results), settings)
        return [each for each in checks if each.name.startswith(CATALOG["sharpness"].title)]

    assert [each.passed for each in check(ann=0.9, few=0.1)] == [True]
    assert [each.passed for each in check(ann=0.9, bob=0.8)] == [True, True]
    whole, by_speaker = check(ann=0.9, bob=0.4, eve=0.9)
    assert (whole.passed, by_speaker.passed) == (True, False)
    assert "by speaker: 40.00% of bob, the worst of 3; limit 50.00% (limits.sharpness)" in by_speaker.detail

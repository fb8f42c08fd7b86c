"""Checks on the result of TFDV count features, and list the utterances that cause the value."""

from pathlib import Path
from typing import Any

import pytest

from tests.validate.takes import SMALL, fit, speech, written
from voxline.components.validate.checks import run_checks
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tfdv.results import Anomaly, FeatureDomain, TfdvDrift, TfdvResult


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> CheckedCorpus:
    takes = fit()
    takes[4].samples, takes[9].samples = speech(4, 2.0), speech(9, 3.0)
    takes[3].split = "holdout"
    return CheckedCorpus.read(written(tmp_path_factory.mktemp("corpus"), takes))


def checked(corpus: CheckedCorpus, tfdv_result: TfdvResult, **changes: Any) -> dict[str, dict[str, Any]]:
    chosen = ValidateSettings.of({**SMALL, **changes})
    return {one.check.name: one.to_json(corpus, 10) for one in run_checks(corpus, chosen, tfdv_result)}


TOO_LONG = Anomaly("duration", "out_of_range", "FLOAT_TYPE_BIG_FLOAT", "Unexpectedly high value: 3>1.5")
NO_SPLIT = Anomaly("split", "unexpected_values", "ENUM_TYPE_UNEXPECTED_STRING_VALUES", "holdout (~1%)")
FEW = Anomaly("", "other_anomalies", "DATASET_LOW_NUM_EXAMPLES", "too few")
RESULT = TfdvResult(
    schema="own",
    anomalies=(TOO_LONG, NO_SPLIT, FEW),
    domains={"duration": FeatureDomain(0.1, 1.5), "split": FeatureDomain(values=("train", "dev", "test"))},
    no_baseline="no version of asr is in service yet",
)


def test_an_anomaly_is_counted_by_kind_and_its_utterances_are_listed(corpus: CheckedCorpus) -> None:
    found = checked(corpus, RESULT)
    assert found["out_of_range"]["value"] == 1
    assert found["out_of_range"]["outcome"] == "failed"
    assert [(one["id"], one["note"]) for one in found["out_of_range"]["offenders"]] == [
        ("train-4", "duration 2"),
        ("train-9", "duration 3"),
    ]
    assert [(one["id"], one["note"]) for one in found["unexpected_values"]["offenders"]] == [
        ("train-3", "split holdout")
    ]
    assert found["other_anomalies"]["detail"] == "the dataset: too few"
    assert found["missing_features"]["outcome"] == "passed"
    assert (found["drift"]["outcome"], found["drift"]["detail"]) == ("not checked", RESULT.no_baseline)


def test_the_config_sets_severity_and_threshold_of_an_anomaly(corpus: CheckedCorpus) -> None:
    changes = {"out_of_range": {"severity": "error", "threshold": 1}, "other_anomalies": {"severity": "off"}}
    found = checked(corpus, RESULT, **changes)
    assert found["out_of_range"]["outcome"] == "passed"
    assert found["other_anomalies"]["outcome"] == "off"


def test_drift_counts_features_and_reports_distance_and_threshold(corpus: CheckedCorpus) -> None:
    drifts = (
        TfdvDrift("duration", "Jensen-Shannon", 0.31, 0.1, drifted=True),
        TfdvDrift("speaker", "L-infinity", 0.05, 0.2, drifted=False),
        TfdvDrift("", "utterances", 0.4, 0.5, drifted=True),
        TfdvDrift("level", "Jensen-Shannon", None, 0.0, drifted=True, description="There are no values now"),
    )
    found = checked(corpus, TfdvResult(baseline="asr, version 3", drifts=drifts))["drift"]
    assert (found["value"], found["outcome"]) == (3, "failed")
    assert found["detail"] == (
        "against asr, version 3: duration 0.310 bits (Jensen-Shannon), 0.1 accepted; "
        "40% as many utterances, at least 50% accepted; level: There are no values now"
    )
    alike = checked(corpus, TfdvResult(baseline="asr, version 3", drifts=drifts[1:2]))["drift"]
    assert (alike["value"], alike["outcome"]) == (0, "passed")
    assert alike["detail"].endswith("the furthest: speaker 0.050 (L-infinity), 0.2 accepted")


def test_a_skipped_check_is_not_checked_and_says_why(corpus: CheckedCorpus, tmp_path: Path) -> None:
    found = checked(corpus, TfdvResult(skipped="it needs glibc 2.39"))
    for name in ("missing_features", "out_of_range", "drift"):
        assert found[name]["outcome"] == "not checked"
        assert "it needs glibc 2.39" in found[name]["detail"]

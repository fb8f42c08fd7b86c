"""The statistics page is self-contained, escaped, and says what is missing."""

from dataclasses import replace

import numpy as np
import pytest

from voxline.components.validate.tfdv.report import statistics_page
from voxline.components.validate.tfdv.results import Anomaly, FeatureStatistics, TfdvDrift, TfdvResult
from voxline.metrics.divergence import share_by_bin

HOSTILE = "<script>alert(1)</script>"
DURATION = FeatureStatistics(
    "duration", True, 40, 2, 40, 1.5, 0.5, 1.0, 1.4, 2.0, 0, buckets=((1.0, 1.5, 30.0), (1.5, 2.0, 10.0))
)
CONSTANT = FeatureStatistics("labels", True, 42, 0, 42, 3.0, 0.0, 3.0, 3.0, 3.0, 0, buckets=((3.0, 3.0, 42.0),))
SPEAKER = FeatureStatistics("speaker", False, 42, 0, 42, distinct=2, top_values=((HOSTILE, 30.0), ("b", 12.0)))
ABSENT = FeatureStatistics("level", True, 0, 42, 0)


def page(**changes: object) -> str:
    values: dict[str, object] = {"version": "1.21.0", "schema": "asr", "no_baseline": "nothing is in service"}
    statistics = {"": [DURATION, CONSTANT, SPEAKER, ABSENT], "train": [DURATION]}
    return statistics_page(TfdvResult(**{**values, "statistics": statistics, **changes})).html()  # type: ignore[arg-type]


def test_it_shows_every_feature_and_why_there_is_no_baseline() -> None:
    html = page()
    for name in ("duration", "labels", "speaker", "level", "nothing is in service", "1.21.0"):
        assert name in html
    assert "Matches the schema" in html


def test_it_loads_nothing_runs_nothing_and_escapes_transcripts() -> None:
    html = page()
    assert "<script" not in html
    assert "src=" not in html
    assert "http" not in html.replace("http-equiv", "")
    assert "&lt;script&gt;alert(1)" in html


def test_the_heading_has_drift_and_anomalies() -> None:
    anomaly = Anomaly("duration", "out_of_range", "FLOAT_TYPE_BIG_FLOAT", "too long")
    drift = TfdvDrift("speaker", "L-infinity", 0.5, 0.2, drifted=True, description="a newcomer")
    other = FeatureStatistics("speaker", False, 10, 0, 10, distinct=1, top_values=(("b", 10.0),))
    html = page(
        anomalies=(anomaly,),
        drifts=(drift,),
        baseline="asr, version 3",
        no_baseline="",
        baseline_statistics={"": [other]},
    )
    assert "1 anomaly and drift of speaker" in html
    assert "a newcomer" in html
    assert "in service" in html


def test_a_feature_of_the_baseline_alone_is_shown() -> None:
    html = page(
        baseline="asr, version 3", no_baseline="", baseline_statistics={"": [replace(DURATION, feature="loudness")]}
    )
    assert "loudness" in html


def test_a_skipped_validation_says_why_and_nothing_else() -> None:
    html = statistics_page(TfdvResult(skipped="it needs glibc 2.39")).html()
    assert "did not run: it needs glibc 2.39" in html
    assert "Numbers" not in html


@pytest.mark.parametrize("feature", [DURATION, CONSTANT])
def test_no_utterance_is_lost_between_buckets(feature: FeatureStatistics) -> None:
    edges = np.linspace(0.0, 4.0, 8)
    shares = share_by_bin(feature.buckets, edges)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares[edges[:-1] >= feature.max] == 0).all()

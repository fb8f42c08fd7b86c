"""The estimate without labels: its curve against SciPy's optimizer, and how far it is off where the truth is known."""

import math

import numpy as np
import pytest
import scipy.optimize

from voxline.metrics.wer_estimate import HeardClip, WerCurve, back_test, estimate_wer


def clips(count: int, mean: float, random: np.random.Generator, bias: float = 0.0) -> list[HeardClip]:
    """Words are wrong with probability 1 - c; `bias`: more often than the confidence says."""
    found = []
    for _ in range(count):
        confidence = float(1 / (1 + np.exp(-random.normal(mean, 1.0))))
        words = int(random.integers(1, 8))
        errors = int(random.binomial(words, min(1 - confidence + bias, 1)))
        found.append(HeardClip(words, confidence, errors, words))
    return found


def test_the_curve_maximizes_the_likelihood() -> None:
    heard = clips(400, 2.0, np.random.default_rng(0))
    curve = WerCurve.fit(heard)
    prior = [HeardClip(1, one, 1 - one, 1) for one in (0.05, 0.25, 0.5, 0.75, 0.95)]

    def loss(coefficients: np.ndarray) -> float:
        total = 0.0
        for clip in [*heard, *prior]:
            odds = coefficients[0] + coefficients[1] * math.log(clip.confidence / (1 - clip.confidence))
            total += clip.words * math.log1p(math.exp(odds)) - clip.errors * odds
        return total

    best = scipy.optimize.minimize(loss, [0.0, -1.0], method="BFGS").x
    assert (curve.offset, curve.slope) == pytest.approx(tuple(best), abs=1e-3)


@pytest.mark.parametrize("mean", [0.0, 1.0, 3.0])
def test_harder_and_easier_recordings_are_estimated_within_three_points(mean: float) -> None:
    random = np.random.default_rng(1)
    judged, new = clips(600, 2.0, random), clips(300, mean, random)
    slices = [{"half": str(index % 2)} for index in range(600)]
    estimate = estimate_wer(judged, slices, new)
    actual = sum(one.errors for one in new) / sum(one.reference_words for one in new)
    assert estimate.value == pytest.approx(actual, abs=0.03)
    assert estimate.low <= actual <= estimate.high


def test_the_back_test_says_where_confidence_misleads() -> None:
    random = np.random.default_rng(2)
    judged = clips(300, 2.0, random) + clips(60, 2.0, random, bias=0.3)
    slices = [{"speaker": "a" if index < 150 else "b"} for index in range(300)] + [{"speaker": "loud"}] * 60
    tested = back_test(judged, slices)
    assert {value for _, value, *_ in tested.slices} == {"a", "b", "loud"}
    (loud,) = [one for one in tested.slices if one[1] == "loud"]
    assert loud[3] - loud[2] > 0.2
    honest = estimate_wer(judged[:300], slices[:300], clips(200, 2.0, random))
    wary = estimate_wer(judged, slices, clips(200, 2.0, random))
    assert wary.high - wary.low > 2 * (honest.high - honest.low)


def test_without_errors_in_the_test_split_low_confidence_is_believed() -> None:
    judged = [HeardClip(3, 0.99, 0, 3)] * 50
    curve = WerCurve.fit(judged)
    assert curve.wer(judged) < 0.02
    assert curve.wer([HeardClip(3, 0.2, 0, 0)] * 5) > 0.5
    assert curve.wer([HeardClip(0, None)]) == 1.0, "nothing was heard"


def test_empty_texts_count_as_missed_words() -> None:
    judged = [HeardClip(2, 0.95, 0, 2)] * 30 + [HeardClip(0, None, 4, 4)] * 10
    new = [HeardClip(2, 0.95)] * 10 + [HeardClip(0, None)] * 10
    assert WerCurve.fit(judged).wer(new) == pytest.approx(40 / 60, abs=0.03)


def test_a_slice_takes_no_part_in_its_own_estimate() -> None:
    right, wrong = [HeardClip(1, 0.9, 0, 1)] * 100, [HeardClip(1, 0.9, 1, 1)] * 100
    tested = back_test([*right, *wrong], [{"room": "a"}] * 100 + [{"room": "b"}] * 100)
    found = {value: (estimated, actual) for _, value, estimated, actual in tested.slices}
    assert found["a"] == pytest.approx((1.0, 0.0), abs=0.05)
    assert found["b"] == pytest.approx((0.0, 1.0), abs=0.05)

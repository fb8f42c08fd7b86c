"""Exact sums: order and grouping of the utterances do not matter."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.components.extract.normalization import SMALLEST_DEVIATION, ExactSums

SUMS = st.lists(st.floats(-1e12, 1e12) | st.floats(-1, 1), min_size=1, max_size=40)


def mean(groups: list[list[float]]) -> list[float]:
    total = ExactSums(1)
    for group in groups:
        total.add(np.array([[[value], [0.0]] for value in group]).reshape(-1, 2, 1), frames=len(group))
    return total.mean_and_deviation()[0]


@settings(deadline=None, max_examples=200)
@given(values=SUMS, cut=st.integers(0, 40), random=st.randoms())
def test_the_mean_is_exact_in_any_order_and_grouping(values: list[float], cut: int, random: object) -> None:
    exact = sum((Fraction(value) for value in values), Fraction()) / len(values)
    found = mean([values])
    shuffled = [*values]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert mean([shuffled[:cut], shuffled[cut:]]) == mean([[value] for value in reversed(values)]) == found
    assert found[0] == pytest.approx(float(exact), rel=1e-7, abs=1e-14)


def test_small_terms_survive_large_ones() -> None:
    assert mean([[1e12, 1.0, -1e12]]) == [pytest.approx(1 / 3, rel=1e-7)]


def test_a_constant_bin_gets_the_deviation_1() -> None:
    frames = np.full((5_000, 1), np.log(1e-8))
    total = ExactSums(1)
    for _ in range(200):
        total.add(np.stack([frames.sum(axis=0), (frames**2).sum(axis=0)])[None], frames=len(frames))
    mean, deviation = total.mean_and_deviation()
    assert mean == [pytest.approx(np.log(1e-8))]
    assert deviation == [1.0]
    assert SMALLEST_DEVIATION < 1

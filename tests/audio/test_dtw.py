"""Dynamic time warping finds the path of least total cost, fast enough for a test split."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.audio.dtw import align_by_cost, dtw


def slow(costs: np.ndarray) -> float:
    """The least total cost by definition, cell by cell."""
    summed = np.full((costs.shape[0] + 1, costs.shape[1] + 1), np.inf)
    summed[0, 0] = 0
    for i, j in itertools.product(range(costs.shape[0]), range(costs.shape[1])):
        summed[i + 1, j + 1] = costs[i, j] + min(summed[i, j], summed[i, j + 1], summed[i + 1, j])
    return float(summed[-1, -1])


@settings(max_examples=150, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 10_000), whole=st.booleans())
def test_the_path_is_one_and_none_costs_less(rows: int, columns: int, seed: int, whole: bool) -> None:
    random = np.random.default_rng(seed)
    costs = random.integers(0, 4, (rows, columns)).astype(float) if whole else random.random((rows, columns))
    warped = align_by_cost(costs)
    steps = np.diff(warped.path, axis=0)
    assert warped.path[0].tolist() == [0, 0]
    assert warped.path[-1].tolist() == [rows - 1, columns - 1]
    assert {tuple(step) for step in steps.tolist()} <= {(0, 1), (1, 0), (1, 1)}
    assert warped.distance * len(warped.path) == pytest.approx(slow(costs))


def test_a_recording_that_is_only_slower_is_at_no_distance() -> None:
    frames = np.random.default_rng(1).random((40, 80)).astype(np.float32)
    slower = np.repeat(frames, 1 + np.arange(40) % 3, axis=0)
    assert dtw(frames, slower).distance == 0
    assert dtw(frames, frames[::-1]).distance > 0.1


def test_the_distance_is_the_mean_difference_and_the_same_both_ways() -> None:
    random = np.random.default_rng(2)
    one, other = random.random((30, 5)), random.random((50, 5))
    warped = dtw(one, other)
    differences = np.abs(one[warped.path[:, 0]] - other[warped.path[:, 1]])
    assert warped.distance == pytest.approx(differences.mean())
    assert np.array_equal(dtw(other, other).path[:, 0], np.arange(50))


def test_six_hundred_frames_take_less_than_a_blink() -> None:
    random = np.random.default_rng(3)
    one, other = random.random((600, 80), np.float32), random.random((600, 80), np.float32)
    dtw(one, other)
    fastest = min(_seconds(one, other) for _ in range(5))
    assert fastest < 0.15


def _seconds(one: np.ndarray, other: np.ndarray) -> float:
    start = time.thread_time()  # of the processor: others may be busy there
    dtw(one, other)
    return time.thread_time() - start


def test_what_cannot_be_warped_is_refused_by_its_shape() -> None:
    with pytest.raises(ValueError, match=r"\(3, 2\) and \(3, 4\)"):
        dtw(np.zeros((3, 2)), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="frames and equal bins"):
        dtw(np.zeros((0, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="finite"):
        align_by_cost(np.array([[np.nan]]))

"""Sharpness of mels and their change over time."""

import numpy as np
import pytest
import scipy.ndimage

from voxline.metrics.sharpness import change_over_time, sharpness

MELS = np.random.default_rng(1).normal(-4, 2, (50, 20)).astype(np.float32)


def test_blur_along_one_axis_lowers_the_measure_of_that_axis_more() -> None:
    across = scipy.ndimage.gaussian_filter1d(MELS, 2, axis=1)
    along = scipy.ndimage.gaussian_filter1d(MELS, 2, axis=0)
    assert sharpness(across) < 0.2 * sharpness(MELS)
    assert change_over_time(along) < 0.2 * change_over_time(MELS)
    assert sharpness(across) / sharpness(MELS) < 0.5 * change_over_time(across) / change_over_time(MELS)
    assert change_over_time(along) / change_over_time(MELS) < 0.5 * sharpness(along) / sharpness(MELS)


def test_both_are_means_of_differences_pair_by_pair() -> None:
    frames, bins = MELS.shape
    of_bins = [abs(float(MELS[t, k + 1]) - float(MELS[t, k])) for t in range(frames) for k in range(bins - 1)]
    of_frames = [abs(float(MELS[t + 1, k]) - float(MELS[t, k])) for t in range(frames - 1) for k in range(bins)]
    assert sharpness(MELS) == pytest.approx(np.mean(of_bins))
    assert change_over_time(MELS) == pytest.approx(np.mean(of_frames))


def test_level_changes_neither_and_pace_leaves_sharpness_alone() -> None:
    assert sharpness(MELS + 3) == pytest.approx(sharpness(MELS), rel=1e-5)
    assert change_over_time(MELS + 3) == pytest.approx(change_over_time(MELS), rel=1e-5)
    slower = np.repeat(MELS, 2, axis=0)
    assert sharpness(slower) == pytest.approx(sharpness(MELS))


def test_silence_and_a_single_frame_have_no_change() -> None:
    assert sharpness(np.full((9, 4), -11.5, np.float32)) == 0
    assert change_over_time(MELS[:1]) == 0

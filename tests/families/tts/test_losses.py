"""The terms of the TTS loss against slow NumPy versions; padding takes part in none."""

from typing import Any

import numpy as np
import pytest

from voxline.families.tts import losses

FRAMES, COUNTS = np.array([7, 3, 1]), np.array([4, 2, 1])


@pytest.fixture
def pair() -> tuple[Any, Any]:
    """Made [3, 10, 5] and wanted [3, 8, 5]; made is longer, as whole decoder steps are. NaN in all padding."""
    random = np.random.default_rng(0)
    made, wanted = random.standard_normal((3, 10, 5)), random.standard_normal((3, 8, 5))
    for row, count in enumerate(FRAMES):
        made[row, count:], wanted[row, count:] = np.nan, np.nan
    return made.astype(np.float32), wanted.astype(np.float32)


@pytest.mark.parametrize("kind", ["l1", "mse"])
def test_distance_is_the_mean_over_real_frames_and_bins(pair: tuple[Any, Any], kind: str) -> None:
    made, wanted = pair
    expected = []
    for row, count in enumerate(FRAMES):
        error = made[row, :count] - wanted[row, :count]
        expected.append(np.mean(np.abs(error) if kind == "l1" else error**2))
    np.testing.assert_allclose(losses.masked_distance(made, wanted, FRAMES, kind), expected, rtol=1e-5)


def test_half_of_the_linear_loss_is_on_low_bins(pair: tuple[Any, Any]) -> None:
    made, wanted = pair
    expected = []
    for row, count in enumerate(FRAMES):
        error = np.abs(made[row, :count] - wanted[row, :count])
        expected.append(0.5 * error.mean() + 0.5 * error[:, :2].mean())
    np.testing.assert_allclose(losses.linear_loss(made, wanted, FRAMES, 2), expected, rtol=1e-5)


def test_the_stop_target_is_1_on_the_last_real_frame_only() -> None:
    logits = np.random.default_rng(1).standard_normal((3, 10)).astype(np.float32)
    expected = []
    for row, count in enumerate(FRAMES):
        entropies = []
        for frame in range(count):
            share = 1 / (1 + np.exp(-logits[row, frame]))
            entropies.append(-np.log(share if frame == count - 1 else 1 - share))
        expected.append(np.mean(entropies))
        logits[row, count:] = np.nan
    np.testing.assert_allclose(losses.stop_loss(logits, FRAMES), expected, rtol=1e-5)


def test_a_confident_stop_costs_nothing_if_right_and_does_not_overflow_if_wrong() -> None:
    logits = np.where(np.arange(8) == FRAMES[:, None] - 1, 500.0, -500.0).astype(np.float32)
    np.testing.assert_allclose(losses.stop_loss(logits, FRAMES), 0, atol=1e-6)
    assert np.isfinite(np.asarray(losses.stop_loss(-logits, FRAMES))).all()


def test_guided_attention_is_tachibanas_cost_per_step() -> None:
    random = np.random.default_rng(2)
    steps, alignment = np.array([5, 3, 1]), random.dirichlet(np.ones(6), (3, 8)).astype(np.float32)
    expected = []
    for row, (count, symbols) in enumerate(zip(steps, COUNTS, strict=True)):
        alignment[row, :, symbols:] = 0
        alignment[row, count:] = np.nan
        cost = 0.0
        for step in range(count):
            for symbol in range(symbols):
                weight = 1 - np.exp(-((symbol / symbols - step / count) ** 2) / (2 * 0.3**2))
                cost += alignment[row, step, symbol] * weight
        expected.append(cost / count)
    np.testing.assert_allclose(losses.guided_attention_loss(alignment, steps, COUNTS, 0.3), expected, rtol=1e-5)


def test_guided_attention_prefers_the_diagonal_to_its_mirror() -> None:
    straight = np.eye(20, dtype=np.float32)[None]
    whole = np.array([20])
    right = float(losses.guided_attention_loss(straight, whole, whole, 0.2)[0])
    wrong = float(losses.guided_attention_loss(straight[:, ::-1], whole, whole, 0.2)[0])
    assert right < 1e-6
    assert wrong > 0.5

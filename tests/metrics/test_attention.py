"""Attention that reads a text well, and each way of reading it badly."""

import numpy as np
import pytest

from voxline.metrics.attention import compute_attention_metrics


def reading(positions: list[float], symbols: int, width: float = 0.7) -> np.ndarray:
    """Soft attention that looks at one position after another, float32 [steps, symbols]."""
    distance = (np.arange(symbols) - np.array(positions)[:, None]) / width
    weights = np.exp(-(distance**2))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def straight(symbols: int = 40, steps: int = 60) -> list[float]:
    return list(np.linspace(0, symbols - 1, steps))


def test_a_text_that_is_read_from_beginning_to_end_is_aligned() -> None:
    found = compute_attention_metrics(reading(straight(), 40))
    assert (found.coverage, found.repeats, found.skips) == (1, 0, 0)
    assert found.diagonality > 0.99


def test_attention_that_dwells_on_vowels_and_pauses_is_aligned() -> None:
    uneven = np.cumsum(np.tile([0.2, 0.3, 1.5, 1.0], 15))
    found = compute_attention_metrics(reading(list(uneven * 39 / uneven[-1]), 40))
    assert found.diagonality > 0.98
    assert (found.repeats, found.skips) == (0, 0)


def test_attention_that_never_formed_scores_low() -> None:
    found = compute_attention_metrics(np.full((60, 40), 1 / 40))
    assert found.diagonality == pytest.approx(0.36, abs=0.02)
    assert found.coverage == 0
    assert found.skips == 1
    assert compute_attention_metrics(reading(straight()[::-1], 40)).diagonality < 0.25
    assert compute_attention_metrics(reading([3.0] * 60, 40)).diagonality < 0.35


def test_skipped_words_are_counted() -> None:
    positions = [p for p in straight() if not (9 < p < 16 or 22 < p < 30)]
    found = compute_attention_metrics(reading(positions, 40, width=0.4))
    assert found.skips == 2
    assert 0.6 < found.coverage < 0.8
    letter = [p for p in straight() if not 9 < p < 12]
    assert compute_attention_metrics(reading(letter, 40, width=0.4)).skips == 0


def test_an_end_that_is_not_reached_is_a_skip() -> None:
    assert compute_attention_metrics(reading(straight(30), 40)).skips == 1


def test_a_repeated_word_counts_once() -> None:
    positions = [*range(20), *range(12, 20), *range(12, 40)]
    found = compute_attention_metrics(reading([float(p) for p in positions], 40))
    assert (found.repeats, found.skips, found.coverage) == (2, 0, 1)
    trembling = [p + (-2 if n % 2 else 0) for n, p in enumerate(straight())]
    assert compute_attention_metrics(reading(trembling, 40)).repeats == 0


def test_empty_and_not_finite_weights_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(0, 5\)"):
        compute_attention_metrics(np.zeros((0, 5)))
    with pytest.raises(ValueError, match="finite"):
        compute_attention_metrics(np.array([[np.nan, 1.0]]))

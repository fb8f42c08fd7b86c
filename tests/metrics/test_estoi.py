"""ESTOI against the reference implementation, and where it has no value."""

import numpy as np
import pytest

from voxline.metrics.estoi import estoi

OF_PYSTOI = [0.92527483, 0.50751661, 0.2365938]
"""What pystoi 0.4.1 prints of `phrases`: `stoi(clean, noisy, 10_000, extended=True)`, in float64."""


def phrases() -> list[tuple[np.ndarray, np.ndarray]]:
    """Noise that swells like speech, with silence between, and the same in noise of its own."""
    random = np.random.default_rng(0)
    found = []
    for samples, noise in ((12_000, 0.1), (15_104, 0.5), (31_234, 1.0)):
        clean = random.standard_normal(samples) * np.clip(np.sin(np.arange(samples) / 1_500), 1e-4, None) ** 2
        found.append((clean.astype(np.float32), (clean + noise * random.standard_normal(samples)).astype(np.float32)))
    return found


def test_it_is_that_of_the_reference_implementation() -> None:
    assert [estoi(*pair, 10_000) for pair in phrases()] == pytest.approx(OF_PYSTOI, abs=1e-6)


def test_level_and_rate_change_little_and_other_speech_has_none() -> None:
    (clean, noisy), (other, _), _ = phrases()
    assert estoi(clean, 0.1 * clean, 10_000) == pytest.approx(1, abs=1e-6)
    assert estoi(np.repeat(clean, 2), np.repeat(noisy, 2), 20_000) == pytest.approx(
        estoi(clean, noisy, 10_000), abs=0.02
    )
    assert abs(estoi(clean, other[:12_000], 10_000) or 1) < 0.3


def test_less_speech_than_a_segment_has_no_value() -> None:
    (clean, noisy), *_ = phrases()
    assert estoi(clean[:3_900], noisy[:3_900], 10_000) is None
    assert estoi(clean[:0], noisy[:0], 10_000) is None
    silent = np.zeros(20_000, np.float32)
    assert np.isfinite(estoi(silent, silent, 10_000) or 0.0)

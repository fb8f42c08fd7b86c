"""Rooms and noises: how fast they die away, how strong they are, how they sound."""

import numpy as np
import pytest

from voxline.components.demo_corpus.acoustics import (
    draw_impulse_response,
    generate_noise,
    mix_at_snr,
    normalize_peak,
    reverberate,
)

RATE = 16000


@pytest.mark.parametrize("seconds", [0.15, 0.3, 1.0])
def test_a_room_dies_away_by_60_db_in_the_time_that_was_asked_for(seconds: float) -> None:
    """Schroeder (1965): the energy still to come falls along a straight line of −60 dB over that time."""
    response = draw_impulse_response(np.random.default_rng(1), RATE, seconds).astype(np.float64)
    tail = response[round(0.025 * RATE) :]
    to_come = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1])
    length = round(0.4 * len(tail))
    slope = np.polyfit(np.arange(length) / RATE, to_come[:length], 1)[0]
    assert -60 / slope == pytest.approx(seconds, rel=0.15)


def test_the_direct_sound_comes_first_and_strongest() -> None:
    for seed in range(20):
        response = draw_impulse_response(np.random.default_rng(seed), RATE, 0.3)
        assert response[0] == 1
        direct_to_reverberant = -10 * np.log10(np.sum(response[1:] ** 2))
        assert 3.9 < direct_to_reverberant < 12.1
        assert np.abs(response[1:]).max() < 1


def test_reverberation_neither_delays_nor_lengthens() -> None:
    click = np.zeros(RATE, np.float32)
    click[100] = 1
    heard = reverberate(click, draw_impulse_response(np.random.default_rng(0), RATE, 0.2))
    assert len(heard) == RATE
    assert np.argmax(heard) == 100
    assert np.abs(heard[:100]).max() < 1e-6


@pytest.mark.parametrize("kind", ["white", "pink", "hum"])
def test_noise_is_mixed_in_at_the_ratio_that_was_asked_for(kind: str) -> None:
    rng = np.random.default_rng(3)
    speech = rng.standard_normal(RATE).astype(np.float32) * np.float32(0.1)
    added = mix_at_snr(speech, generate_noise(rng, kind, RATE, RATE), 17.0) - speech
    assert 10 * np.log10(np.mean(speech**2) / np.mean(added**2)) == pytest.approx(17, abs=0.01)


def test_noises_have_their_colour() -> None:
    rng = np.random.default_rng(5)

    def fall(kind: str) -> float:
        """How many dB less power density the octave at 2 kHz has than that at 500 Hz."""
        power = np.abs(np.fft.rfft(generate_noise(rng, kind, 10 * RATE, RATE))) ** 2
        return float(10 * np.log10(power[4000:8000].mean() / power[16000:32000].mean()))

    assert fall("white") == pytest.approx(0, abs=0.3)
    assert fall("pink") == pytest.approx(6, abs=0.3)
    spectrum = np.abs(np.fft.rfft(generate_noise(rng, "hum", 10 * RATE, RATE)))
    assert np.argmax(spectrum) / 10 in (50, 60)


def test_the_peak_lies_where_it_was_put() -> None:
    samples = np.array([0.01, -0.04, 0.02], np.float32)
    assert np.abs(normalize_peak(samples, -3)).max() == pytest.approx(10 ** (-3 / 20))

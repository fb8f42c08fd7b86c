"""F0, onset and offset against speech that was generated with them, pulse trains, sweeps, and a search of all paths."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import assert_close
from voxline.audio import prosody
from voxline.audio.prosody import compute_prosody, find_f0, find_speech, summarize_prosody
from voxline.components.demo_corpus.acoustics import generate_noise, mix_at_snr
from voxline.components.demo_corpus.espeak import EspeakVoice, speak

Samples = npt.NDArray[np.float32]
RATE, HOP = 16_000, 160
TEXTS = ["the quick brown fox jumps over the lazy dog", "seven four nine one two", "turn off the kitchen lights"]


def spoken(voice: EspeakVoice, texts: list[str] = TEXTS) -> list[Samples]:
    recordings, rate = speak(voice, texts)
    return [soxr.resample(samples, rate, RATE) for samples in recordings]


def right(found: Samples, truth: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """Which voiced frames are within 1%."""
    voiced = found > 0
    return np.abs(found[voiced] / truth[voiced] - 1) < 0.01


@pytest.mark.parametrize(
    ("variant", "hertz"), [("m3", 75), ("m3", 120), ("m8", 95), ("f2", 200), ("f4", 330), ("f5", 240)]
)
def test_f0_of_generated_speech_is_that_which_the_generator_was_given(variant: str, hertz: int) -> None:
    recordings = spoken(EspeakVoice("en-us", variant, constant_hz=hertz))
    found = np.concatenate([find_f0(samples, RATE, HOP) for samples in recordings])
    assert right(found, np.full(len(found), hertz)).mean() > 0.95
    assert 0.5 < (found > 0).mean() < 0.9


@pytest.mark.parametrize("variant", ["m3", "f4"])
def test_f0_of_speech_that_rises_and_falls(variant: str) -> None:
    """Speech of one F0, played faster and slower by a known amount: its F0 is then that times the speed."""
    shares, rising = [], 0.2
    for samples in spoken(EspeakVoice("en-us", variant, constant_hz=150)):
        time = np.arange(len(samples)) / RATE
        warped = np.interp(time + rising / (2 * np.pi) * np.sin(2 * np.pi * time), time, samples)
        speed = 1 + rising * np.cos(2 * np.pi * np.arange(1 + len(samples) // HOP) * HOP / RATE)
        shares.append(right(find_f0(warped.astype(np.float32), RATE, HOP), 150 * speed))
    assert np.concatenate(shares).mean() > 0.95


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 48_000])
def test_f0_of_a_sweep_and_of_a_train_of_pulses(rate: int) -> None:
    time = np.arange(2 * rate) / rate
    hertz = 100 * 3 ** (time / 2)
    phase = np.cumsum(hertz) / rate
    hop = rate // 100
    truth = hertz[::hop]
    inner = slice(4, len(truth) - 4)
    sweep = np.sin(2 * np.pi * phase).astype(np.float32)
    pulses = sum(np.cos(2 * np.pi * order * phase) for order in range(1, int(rate / 2 / 300))).astype(np.float32)
    for samples in (sweep, pulses):
        found = find_f0(samples, rate, hop)[: len(truth)]
        assert np.abs(found / truth - 1)[inner].max() < 0.01
        assert np.abs(found / truth - 1)[inner].mean() < 0.002


def test_noise_and_silence_have_no_f0() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 2 * RATE).astype(np.float32)
    assert (find_f0(noise, RATE, HOP) > 0).mean() < 0.02
    assert not find_f0(np.zeros(RATE, np.float32), RATE, HOP).any()
    assert not find_f0(np.full(RATE, 0.25, np.float32), RATE, HOP).any()


@pytest.mark.slow
@given(st.integers(0, 3_000), st.sampled_from([4_000, 16_000, 44_100]), st.integers(1, 400))
@settings(max_examples=80, deadline=None)
def test_clips_of_every_length_have_frames_and_finite_numbers(length: int, rate: int, hop: int) -> None:
    samples = np.random.default_rng(length).normal(0, 0.3, length).astype(np.float32)
    found = compute_prosody(samples, rate, hop)
    assert found.f0.shape == found.energy.shape == (1 + length // hop,)
    assert np.isfinite(found.f0).all()
    assert (found.energy >= -120).all()
    assert 0 <= found.onset <= found.offset <= length / rate + 5e-5
    assert all(np.isfinite(value) for value in summarize_prosody(samples, rate).values())


@pytest.mark.parametrize(("hop_seconds", "seed"), [(0.01, 0), (0.01, 1), (0.01, 2), (0.0125, 3), (0.005, 4)])
def test_the_path_is_the_best_of_all_paths(hop_seconds: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    hertz = np.concatenate([np.zeros((6, 1)), random.uniform(80, 400, (6, 3))], axis=1).astype(np.float32)
    strength = random.uniform(0.3, 0.9, hertz.shape).astype(np.float32)
    scale = 0.01 / hop_seconds

    def worth(path: tuple[int, ...]) -> float:
        found = [float(hertz[frame, place]) for frame, place in enumerate(path)]
        total = sum(float(strength[frame, place]) for frame, place in enumerate(path))
        for one, other in itertools.pairwise(found):
            if bool(one) != bool(other):
                total -= prosody.VOICING_CHANGE_COST * scale
            elif one:
                total -= prosody.OCTAVE_JUMP_COST * scale * abs(np.log2(one / other))
        return total

    best = max(itertools.product(range(4), repeat=6), key=worth)
    wanted = hertz[np.arange(6), np.array(best)]
    np.testing.assert_array_equal(prosody._best_path(hertz, strength, hop_seconds), wanted)


def test_the_windows_autocorrelation_is_that_of_the_window() -> None:
    window = np.hanning(4_001)
    whole = np.correlate(window, window, "full")[4_000:]
    assert_close(prosody._hann_autocorrelation(np.arange(4_001) / 4_000), whole / whole[0], relative_to_peak=1e-9)


@pytest.mark.parametrize(("variant", "snr"), [("m3", None), ("f4", None), ("m3", 40)])
def test_speech_begins_and_ends_where_it_was_put(variant: str, snr: float | None) -> None:
    """Fricatives and stops at both ends are soft; noise of 30 dB or more hides them."""
    random = np.random.default_rng(2)
    texts = ["five", "hat", "she sells sea shells", "three four five six", "please help", "one stop"]
    for samples in spoken(EspeakVoice("en-us", variant), texts):
        sound = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (-50 / 20))
        speech = samples[sound[0] : sound[-1] + 1]
        before, after = random.uniform(0.05, 0.6, 2)
        padded = np.pad(speech, (round(before * RATE), round(after * RATE)))
        if snr is not None:
            padded = mix_at_snr(padded, generate_noise(random, "pink", len(padded), RATE), snr)
        onset, offset = find_speech(padded, RATE)
        assert onset == pytest.approx(before, abs=0.02)
        assert offset == pytest.approx(before + len(speech) / RATE, abs=0.02)


@pytest.mark.parametrize("margin", [0.02, 0.05])
def test_speech_with_short_pauses_at_its_ends(margin: float) -> None:
    """As recordings that were trimmed."""
    for samples in spoken(EspeakVoice("en-us", "m3"), ["she sells sea shells", "ah ah ah", "please help", "five"]):
        sound = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (-50 / 20))
        speech = samples[sound[0] : sound[-1] + 1]
        onset, offset = find_speech(np.pad(speech, round(margin * RATE)), RATE)
        assert (onset, offset) == pytest.approx((margin, margin + len(speech) / RATE), abs=0.02)


def test_a_sound_without_any_pause_is_speech_from_its_begin_to_its_end() -> None:
    """A hum that swells and fades by 5 dB, and noise."""
    time = np.arange(2 * RATE) / RATE
    swelling = (1 + 0.3 * np.sin(2 * np.pi * 0.7 * time - 2)) * np.sign(np.sin(2 * np.pi * 150 * time)) / 4
    for samples in (swelling, np.random.default_rng(0).normal(0, 0.1, 2 * RATE)):
        assert find_speech(samples.astype(np.float32), RATE) == pytest.approx((0, 2), abs=0.02)


def test_a_click_is_not_speech_and_a_level_changes_nothing() -> None:
    random = np.random.default_rng(3)
    samples = np.pad(random.normal(0, 0.1, 8_000), (8_000, 4_000)).astype(np.float32)
    samples += random.normal(0, 1e-5, len(samples)).astype(np.float32)
    alone = find_speech(samples, RATE)
    assert alone == pytest.approx((0.5, 1.0), abs=0.002)
    clicked = samples.copy()
    clicked[[2_000, 18_000]] = 0.5
    assert find_speech(clicked, RATE) == pytest.approx(alone, abs=0.002)
    assert find_speech(samples / 100, RATE) == alone


def test_the_summary_is_of_the_frames() -> None:
    (samples,) = spoken(EspeakVoice("en-us", "m3"), TEXTS[:1])
    samples = np.pad(samples, (RATE // 2, RATE))
    found, summary = compute_prosody(samples, RATE, HOP), summarize_prosody(samples, RATE)
    voiced = found.f0[found.f0 > 0]
    assert summary["f0_hz"] == pytest.approx(np.median(voiced), abs=0.01)
    assert summary["f0_low_hz"] < summary["f0_hz"] < summary["f0_high_hz"]
    assert (summary["onset_seconds"], summary["offset_seconds"]) == (found.onset, found.offset)
    inside = samples[round(found.onset * RATE) : round(found.offset * RATE)]
    assert summary["speech_db"] == pytest.approx(20 * np.log10(np.sqrt(np.mean(inside**2))), abs=0.01)
    assert summary["voiced_share"] == pytest.approx(len(voiced) / ((found.offset - found.onset) * 100), abs=0.02)
    silent = summarize_prosody(np.zeros(RATE, np.float32), RATE)
    assert silent == {"onset_seconds": 0.0, "offset_seconds": 0.0, "speech_db": -120.0, "voiced_share": 0.0}

"""Mel cepstral distortion and F0, against cases with a known answer."""

import numpy as np
import pytest

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.audio.griffin_lim import features_to_waveform
from voxline.audio.prosody import find_f0
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.components.evaluate.speech import describe_difference, evenly_spaced_ids
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.metrics import f0
from voxline.metrics.mcd import mel_cepstra, mel_cepstral_distortion

RATE = 16_000
KINDS = {
    "power": FeatureSettings(mels=40),
    "magnitude": FeatureSettings(mels=40, spectrum="magnitude", log_floor=1e-5),
    "tacotron": FeatureSettings(kind="mel_and_linear", mels=40, preemphasis=0.0),
}


def test_distortion_is_the_difference_of_spectra_in_decibels() -> None:
    """A ripple of c4 with an amplitude of 3 dB differs from a flat spectrum by 3 / √2 dB, root mean square."""
    settings = FeatureSettings(mels=40, spectrum="magnitude")
    ripple = 3 * np.log(10) / 20 * np.cos(np.pi * 4 * (np.arange(40) + 0.5) / 40)
    flat, rippled = np.full((30, 40), -2.0), np.tile(-2 + ripple, (20, 1))
    found = mel_cepstral_distortion(mel_cepstra(flat, settings, 13), mel_cepstra(rippled, settings, 13))
    assert found.distance == pytest.approx(3 / np.sqrt(2))


def test_level_and_pace_do_not_change_distortion() -> None:
    settings = FeatureSettings(mels=40, spectrum="magnitude")
    mels = np.random.default_rng(1).normal(size=(25, 40))
    louder = np.repeat(mels + 1.5, 2, axis=0)
    assert mel_cepstral_distortion(
        mel_cepstra(mels, settings, 13), mel_cepstra(louder, settings, 13)
    ).distance == pytest.approx(0, abs=1e-6)


def test_distortion_hardly_depends_on_the_kind_of_features() -> None:
    random = np.random.default_rng(2)
    one = random.normal(size=RATE).astype(np.float32) * 0.1
    other = np.convolve(one, [1, -0.8], "same").astype(np.float32)
    found = {}
    for name, settings in KINDS.items():
        mels = [compute_features(samples, settings)[:, settings.mel_columns] for samples in (one, other)]
        found[name] = mel_cepstral_distortion(*(mel_cepstra(side, settings, 13) for side in mels)).distance
    assert found["power"] == pytest.approx(found["magnitude"], rel=0.1)
    assert found["power"] == pytest.approx(found["tacotron"], rel=0.1)


def job(recorded: np.ndarray, spoken: np.ndarray) -> f0.F0Pair:
    frames = np.arange(1 + len(recorded) // 200, dtype=np.int32)
    return f0.F0Pair(recorded, spoken, np.stack([frames, frames], axis=1), RATE, 200, 65.0, 400.0)


def hum(hertz: float, seconds: float = 0.6) -> np.ndarray:
    """A voiced sound: eight harmonics, float32 [samples]."""
    time = np.arange(round(seconds * RATE)) / RATE
    return sum(np.sin(2 * np.pi * hertz * n * time) / n for n in range(1, 9)).astype(np.float32) * np.float32(0.2)


def test_two_semitones_too_high_are_two_hundred_cents_and_a_whisper_is_unvoiced() -> None:
    high = f0.compare_pair(job(hum(150), hum(150 * 2 ** (2 / 12))))
    assert high.cents == pytest.approx(200, abs=12)
    assert high.hertz == pytest.approx(18.4, abs=1.5)
    assert high.voicing_error < 0.1
    noise = np.random.default_rng(3).normal(size=round(0.6 * RATE)).astype(np.float32) * 0.1
    whisper = f0.compare_pair(job(hum(150), noise))
    assert whisper.voicing_error > 0.6


def test_silence_has_no_f0_to_compare() -> None:
    found = f0.compare_pair(job(hum(120, 0.3), np.zeros(round(0.3 * RATE), np.float32)))
    assert (found.hertz, found.cents) == (None, None)
    assert found.voicing_error > 0.8


def test_ids_are_evenly_spaced_by_length() -> None:
    utterances = [Utterance(f"u{n:03d}", "", 1.0, "a" * n) for n in range(100)]
    assert evenly_spaced_ids(utterances, 4) == {"u000", "u025", "u050", "u075"}
    assert len(evenly_spaced_ids(utterances, 1000)) == 100
    assert evenly_spaced_ids(utterances, 0) == set()


@pytest.mark.slow
def test_pairs_compared_in_threads_come_back_in_order() -> None:
    jobs = [job(hum(hertz, 0.3), hum(hertz * 1.1, 0.3)) for hertz in (100, 140, 180, 220)]
    assert list(f0.compare_f0(jobs)) == [f0.compare_pair(one) for one in jobs]


def words(seed: int = 4) -> np.ndarray:
    """Six hums with pauses between them, as words have, and some noise of a room."""
    random = np.random.default_rng(seed)
    pause = np.zeros(RATE // 10, np.float32)
    said = np.concatenate([part for hertz in random.uniform(90, 180, 6) for part in (hum(hertz, 0.25), pause)])
    return (said + random.normal(size=len(said)) * 1e-4).astype(np.float32)


@pytest.mark.slow
def test_a_recording_has_no_f0_error_against_itself() -> None:
    found = f0.compare_pair(job(words(), words()))
    assert (found.hertz, found.cents, found.voicing_error) == (0.0, 0.0, 0.0)
    assert found.recorded_spread == found.synthesized_spread > 100


@pytest.mark.slow
def test_griffin_lim_keeps_f0_and_voicing() -> None:
    """So what these figures show of a voice is the voice's."""
    settings = FeatureSettings(mels=80, window_seconds=0.05, hop_seconds=0.0125, fft_size=1024, spectrum="magnitude")
    found = f0.compare_pair(job(words(), features_to_waveform(compute_features(words(), settings), settings)))
    assert found.voicing_error < 0.1
    assert found.hertz is not None
    assert found.hertz < 5


@pytest.mark.slow
def test_hoarse_speech_is_not_all_unvoiced() -> None:
    """Half of its power is noise, so one period is like the next by half."""
    said = words()
    noise = np.random.default_rng(5).normal(size=len(said)) * said.std() * (np.abs(said) > 1e-3)
    found = f0.compare_pair(job(said, (said + noise).astype(np.float32)))
    assert found.voicing_error < 0.4
    assert found.hertz is not None
    assert found.hertz < 8


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("at", [0, 1])
def test_two_forms_of_a_model_that_differ_by_no_number_are_an_error(bad: float, at: int) -> None:
    utterances = [Utterance(id, f"{id}.wav", 1.0, id) for id in ("u1", "u2")]
    assert describe_difference(utterances, [0.1, 0.2], "dB", 0.5, 1.0).id == "u2"
    apart = [0.1, 0.2]
    apart[at] = bad
    with pytest.raises(WorkError, match=rf"utterance u{at + 1}: the ONNX graph differs .* by (nan|inf) dB"):
        describe_difference(utterances, apart, "dB", 0.5, 1.0)


@pytest.mark.slow
def test_pyin_agrees_with_autocorrelation_where_speech_has_an_intonation() -> None:
    """Its steps are ten cents, and its window is longer."""
    recordings, rate = speak(EspeakVoice("en-us", "m3"), ["seven four nine one two", "turn off the kitchen lights"])
    for samples in recordings:
        pair = f0.F0Pair(samples, samples, np.zeros((1, 2), np.int32), rate, rate // 100, 65.0, 400.0)
        theirs = np.nan_to_num(f0.estimate_f0(samples, pair))
        ours = find_f0(samples, rate, rate // 100)
        both = (ours > 0) & (theirs > 0)
        assert both.sum() > 0.9 * (ours > 0).sum()  # pYIN is more tolerant of hoarse speech
        apart = np.abs(ours[both] / theirs[both] - 1)
        assert (apart < 0.05).mean() > 0.95
        assert np.median(apart) < 0.02

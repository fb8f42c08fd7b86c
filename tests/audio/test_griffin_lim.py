"""Griffin-Lim on real speech: the error of the reconstructed spectrum in decibels, compared with librosa."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.test_features import TACOTRON, TACOTRON_2
from tests.closeness import assert_close
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, compute_features, magnitude_spectrogram, mel_filterbank, preemphasize
from voxline.audio.griffin_lim import (
    deemphasize,
    features_to_waveform,
    griffin_lim,
    linear_to_magnitude,
    mel_to_magnitude,
)


def read(real_data: Path, rate: int, name: str = "LJ001-0002") -> FloatArray:
    """Two seconds of an LJSpeech recording."""
    import soxr

    samples, found = soundfile.read(real_data / "LJSpeech-1.1" / "wavs" / f"{name}.wav", dtype="float32")
    resampled: FloatArray = soxr.resample(samples, found, rate).astype(np.float32)
    return resampled


def decibels(values: FloatArray, how: FeatureSettings) -> FloatArray:
    """Features as decibels of magnitude."""
    scale = -how.floor_db if how.kind == "mel_and_linear" else 20 / np.log(10) / (1 if how.uses_magnitude else 2)
    return values * np.float32(scale)


def convergence(made: FloatArray, magnitudes: FloatArray, how: FeatureSettings) -> float:
    """Spectral convergence: the norm of the error of the magnitudes, relative to the norm of the magnitudes."""
    found = magnitude_spectrogram(made, how)
    return float(np.linalg.norm(found - magnitudes) / np.linalg.norm(magnitudes))


@pytest.mark.parametrize(
    ("how", "part", "accepted"),
    [(TACOTRON, "mel", 1.0), (TACOTRON, "linear", 2.0), (TACOTRON_2, "mel", 1.0), (FeatureSettings(), "mel", 1.5)],
)
def test_re_analysis_of_the_waveform_is_close_in_decibels(
    real_data: Path, how: FeatureSettings, part: str, accepted: float
) -> None:
    samples = read(real_data, how.sample_rate)
    columns = how.mel_columns if part == "mel" else how.linear_columns
    wanted = compute_features(samples, how)[:, columns]
    made = features_to_waveform(wanted, how)
    assert made.dtype == np.float32
    assert len(made) == how.count_samples(len(wanted))
    assert 0 <= len(samples) - len(made) < how.hop_length
    error = np.abs(decibels(compute_features(made, how)[:, columns] - wanted, how)).mean()
    assert error < accepted


@pytest.mark.slow
@pytest.mark.parametrize("how", [TACOTRON, TACOTRON_2])
def test_it_comes_as_near_as_librosas(real_data: Path, how: FeatureSettings) -> None:
    import librosa

    samples = read(real_data, how.sample_rate)
    wanted = magnitude_spectrogram(preemphasize(samples, how).astype(np.float32), how)
    theirs = librosa.griffinlim(
        wanted.T, n_iter=60, n_fft=how.n_fft, hop_length=how.hop_length, win_length=how.win_length, random_state=0
    )
    ours = griffin_lim(wanted, how)
    assert ours.shape == theirs.shape
    assert convergence(ours, wanted, how) < 1.1 * convergence(theirs, wanted, how)


def test_momentum_brings_it_nearer(real_data: Path) -> None:
    wanted = magnitude_spectrogram(read(real_data, 22_050), TACOTRON_2)
    plain, fast = (convergence(griffin_lim(wanted, TACOTRON_2, 30, m), wanted, TACOTRON_2) for m in (0.0, 0.99))
    assert fast < 0.7 * plain


@pytest.mark.parametrize("how", [TACOTRON, TACOTRON_2, FeatureSettings(mels=40)])
def test_the_magnitudes_of_mels_have_these_mels_and_are_not_negative(real_data: Path, how: FeatureSettings) -> None:
    mels = compute_features(read(real_data, how.sample_rate), how)[:, how.mel_columns]
    found = mel_to_magnitude(mels, how)
    assert found.min() >= 0
    again = (found if how.uses_magnitude else found**2) @ mel_filterbank(how)
    if how.kind == "mel_and_linear":
        level = (20 * np.log10(np.maximum(again, 1e-5)) - how.reference_db - how.floor_db) / -how.floor_db
    else:
        level = np.log(np.maximum(again, how.log_floor))
    assert np.abs(decibels(level - mels, how)).mean() < 0.1


def test_the_mels_are_nearer_than_those_of_librosas_least_squares(real_data: Path) -> None:
    import librosa

    wanted = np.exp(compute_features(read(real_data, 22_050)[:11_025], TACOTRON_2))
    basis = mel_filterbank(TACOTRON_2)
    theirs = librosa.util.nnls(basis.T, wanted.T).T @ basis
    ours = mel_to_magnitude(np.log(wanted), TACOTRON_2) @ basis
    off = [np.abs(np.log(np.maximum(found, 1e-5) / wanted)).mean() for found in (ours, theirs)]
    assert off[0] < off[1]
    assert np.linalg.norm(ours - wanted) < 0.005 * np.linalg.norm(wanted)


def test_the_linear_spectrum_is_undone_above_its_floor() -> None:
    samples = 0.05 * np.random.default_rng(0).standard_normal(8_000).astype(np.float32)
    for how in (TACOTRON, FeatureSettings(kind="linear")):
        found = linear_to_magnitude(compute_features(samples, how)[:, how.linear_columns], how)
        wanted = magnitude_spectrogram(preemphasize(samples, how).astype(np.float32), how)
        assert_close(found, wanted, relative_to_peak=1e-5)


def test_de_emphasis_undoes_emphasis() -> None:
    samples = 0.1 * np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    again = deemphasize(preemphasize(samples, TACOTRON).astype(np.float32), TACOTRON)
    assert_close(again, samples, relative_to_peak=1e-5)


@settings(deadline=None, max_examples=20)
@given(frames=st.integers(0, 70), how=st.sampled_from([TACOTRON, TACOTRON_2, FeatureSettings()]))
def test_any_number_of_frames_gives_its_samples_the_same_each_time(frames: int, how: FeatureSettings) -> None:
    mels = np.random.default_rng(frames).uniform(0, 1, (frames, how.mels)).astype(np.float32)
    made = features_to_waveform(mels, how, iterations=2)
    assert made.shape == (max(frames - 1, 0) * how.hop_length,)
    assert np.isfinite(made).all()
    np.testing.assert_array_equal(made, features_to_waveform(mels, how, iterations=2))


def test_silence_stays_silence() -> None:
    mels = compute_features(np.zeros(8_000, np.float32), TACOTRON)[:, TACOTRON.mel_columns]
    assert np.abs(features_to_waveform(mels, TACOTRON)).max() < 1e-3


@pytest.mark.parametrize("kind", ["log_mel", "mel_and_prosody"])
def test_mels_are_no_linear_spectrum_where_there_are_as_many_of_both(kind: str) -> None:
    how = FeatureSettings.of({"kind": kind, "sample_rate": 8_000, "mels": 129})
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(4_000) / 8_000).astype(np.float32)
    mels = compute_features(tone, how)[:, how.mel_columns]
    assert mels.shape[1] == how.fft_bins == 129
    made = features_to_waveform(mels, how, iterations=5)
    assert np.abs(np.fft.rfft(made, 8_000)).argmax() == pytest.approx(440, abs=10)


def test_spectra_of_another_width_are_refused_naming_both() -> None:
    with pytest.raises(ValueError, match=r"\(10, 80\); \[frames, 257\] is accepted"):
        griffin_lim(np.zeros((10, 80), np.float32), FeatureSettings())
    with pytest.raises(ValueError, match=r"mels of shape \(10, 40\); \[frames, 80\]"):
        features_to_waveform(np.zeros((10, 40), np.float32), FeatureSettings())
    with pytest.raises(ValueError, match="kind mfcc have no such columns"):
        features_to_waveform(np.zeros((10, 26), np.float32), FeatureSettings(kind="mfcc"))

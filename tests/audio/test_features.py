"""Features equal librosa's: power within 2e-6 of its peak, logarithms within 1e-3."""

import importlib.machinery
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import assert_close
from voxline.audio import fft as transform
from voxline.audio import filters
from voxline.audio.feature_settings import PROSODY, FeatureSettings
from voxline.audio.features import (
    cepstral_basis,
    compute_features,
    hann_window,
    mel_filterbank,
    mel_spectrogram,
    power_spectrogram,
)
from voxline.errors import SettingsError
from voxline.families.asr.published_weights import FEATURES as MOZILLA

Array = npt.NDArray[np.float32]
KINDS = ["log_mel", "mfcc", "linear", "mel_and_linear", "mel_and_prosody", "waveform"]
VARIETY = [
    FeatureSettings(),
    FeatureSettings(mels=40, log_floor=1e-10),
    FeatureSettings(
        sample_rate=8_000, window_seconds=0.032, hop_seconds=0.020, mels=26, lowest_hz=80, highest_hz=3_800
    ),
    FeatureSettings(fft_size=400, window_seconds=0.02),
    FeatureSettings(sample_rate=22_050, fft_size=1_024, window_seconds=1_024 / 22_050, hop_seconds=256 / 22_050),
    FeatureSettings(window_seconds=0.0201, hop_seconds=0.007),  # an odd hop
]


TACOTRON = FeatureSettings.of(
    {"kind": "mel_and_linear", "window_seconds": 0.05, "hop_seconds": 0.0125, "fft_size": 2_048, "mels": 80}
)
TACOTRON_2 = FeatureSettings.of(
    {
        "sample_rate": 22_050,
        "window_seconds": 1_024 / 22_050,
        "hop_seconds": 256 / 22_050,
        "highest_hz": 8_000,
        "spectrum": "magnitude",
        "log_floor": 1e-5,
    }
)


def speech_like(samples: int, seed: int = 0) -> Array:
    """Noise with a varying level and a silence."""
    random = np.random.default_rng(seed)
    level = np.abs(np.sin(np.arange(samples) / 3_000)) ** 4
    level[samples // 3 : samples // 2] = 0
    return (0.3 * level * random.standard_normal(samples)).astype(np.float32)


def librosa_power(samples: Array, how: FeatureSettings) -> Array:
    import librosa

    spectrum = librosa.stft(
        samples, n_fft=how.n_fft, hop_length=how.hop_length, win_length=how.win_length, center=True, pad_mode="constant"
    )
    power: Array = (np.abs(spectrum) ** 2).T
    return power


def librosa_mels(samples: Array, how: FeatureSettings) -> Array:
    import librosa

    return librosa.feature.melspectrogram(
        S=librosa_power(samples, how).T,
        sr=how.sample_rate,
        n_fft=how.n_fft,
        n_mels=how.mels,
        fmin=how.lowest_hz,
        fmax=how.highest_hz,
    ).T


def close_in_power(ours: Array, theirs: Array) -> None:
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * max(float(theirs.max()), 1e-20))


@pytest.mark.parametrize("how", VARIETY)
def test_power_and_mel_power_are_librosas(how: FeatureSettings) -> None:
    samples = speech_like(3 * how.sample_rate + 77)
    close_in_power(power_spectrogram(samples, how), librosa_power(samples, how))
    close_in_power(mel_spectrogram(samples, how), librosa_mels(samples, how))


@pytest.mark.parametrize("how", VARIETY)
def test_the_filterbank_and_the_window_are_librosas(how: FeatureSettings) -> None:
    import librosa

    theirs = librosa.filters.mel(
        sr=how.sample_rate, n_fft=how.n_fft, n_mels=how.mels, fmin=how.lowest_hz, fmax=how.highest_hz
    )
    np.testing.assert_allclose(mel_filterbank(how), theirs.T, rtol=1e-6, atol=1e-9)
    assert_close(hann_window(how), librosa.filters.get_window("hann", how.win_length), relative_to_peak=1e-7)


@pytest.mark.parametrize("how", VARIETY)
def test_log_mel_is_the_natural_logarithm_cut_at_the_floor(how: FeatureSettings) -> None:
    samples = speech_like(2 * how.sample_rate)
    expected = np.log(np.maximum(librosa_mels(samples, how), how.log_floor))
    assert_close(compute_features(samples, how), expected, relative_to_peak=1e-5)


def tensorflow_cepstra(samples: Array, how: FeatureSettings) -> Array:
    """AudioSpectrogram and Mfcc, as Mozilla's DeepSpeech calls them; frame t starts where ours has its center."""
    import tensorflow as tf

    padded = np.pad(samples, (how.win_length // 2, how.win_length))
    spectrum = tf.raw_ops.AudioSpectrogram(
        input=padded[:, None], window_size=how.win_length, stride=how.hop_length, magnitude_squared=True
    )
    found: Array = tf.raw_ops.Mfcc(
        spectrogram=spectrum, sample_rate=how.sample_rate, lower_frequency_limit=how.lowest_hz,
        upper_frequency_limit=how.highest_hz or how.sample_rate / 2, filterbank_channel_count=how.mels,
        dct_coefficient_count=how.coefficients,
    )[0].numpy()  # fmt: skip
    return found[: how.count_frames(len(samples))]


@pytest.mark.parametrize(
    "how",
    [
        MOZILLA,
        MOZILLA.model_copy(update={"sample_rate": 8_000, "lowest_hz": 80.0, "highest_hz": 3_300.0, "mels": 26}),
    ],
)
def test_cepstra_of_tensorflow_are_those_of_its_ops(how: FeatureSettings) -> None:
    samples = speech_like(2 * how.sample_rate + 77)
    ours = compute_features(samples, how)
    assert_close(ours, tensorflow_cepstra(samples, how), relative_to_peak=1e-5)


def test_of_real_speech_librosas_cepstra_are_others(real_data: Path) -> None:
    """docs/recognizers.md"""
    by_librosa = MOZILLA.model_copy(update={"cepstra": "librosa", "log_floor": 1e-8})
    theirs, others = [], []
    for file in sorted((real_data / "LibriSpeech").rglob("*.flac")):
        samples, rate = soundfile.read(file, dtype="float32")
        assert rate == MOZILLA.sample_rate
        theirs.append(tensorflow_cepstra(samples, MOZILLA))
        others.append(compute_features(samples, by_librosa))
        assert_close(compute_features(samples, MOZILLA), theirs[-1], relative_to_peak=2e-5)
    assert len(theirs) == 10
    columns = zip(np.concatenate(theirs).T, np.concatenate(others).T, strict=True)
    correlations = [float(np.corrcoef(one, other)[0, 1]) for one, other in columns]
    assert correlations[0] > 0.99
    assert max(correlations[-7:]) < 0


def test_linear_is_the_logarithm_of_power() -> None:
    how = FeatureSettings(kind="linear")
    samples = speech_like(20_000)
    ours = compute_features(samples, how)
    assert ours.shape == (how.count_frames(20_000), how.bins)
    assert_close(ours, np.log(np.maximum(librosa_power(samples, how), how.log_floor)), relative_to_peak=5e-5)


def test_tacotrons_features_are_librosas_decibels_in_0_to_1() -> None:
    import librosa
    import scipy.signal

    samples = speech_like(3 * 16_000)
    # librosa.effects.preemphasis from zero; that module imports scikit-learn, which the lock leaves out.
    lifted = scipy.signal.lfilter([1, -0.97], [1], samples).astype(np.float32)
    magnitude = np.sqrt(librosa_power(lifted, TACOTRON)).T
    mels = librosa.filters.mel(sr=16_000, n_fft=2_048, n_mels=80) @ magnitude
    decibels = [20 * np.log10(np.maximum(1e-5, part)) - 20 for part in (mels, magnitude)]
    expected = [np.clip((part + 100) / 100, 0, 1).T for part in decibels]
    found = compute_features(samples, TACOTRON)
    assert found.shape == (TACOTRON.count_frames(len(samples)), 80 + 1_025)
    assert_close(found[:, TACOTRON.mel_columns], expected[0], relative_to_peak=5e-5)
    assert_close(found[:, TACOTRON.linear_columns], expected[1], relative_to_peak=2e-4)
    assert 0 == found.min() < 0.3 < found.max() <= 1


def test_the_loudest_and_the_faintest_of_tacotrons_features_are_1_and_0() -> None:
    loud = compute_features(np.sign(np.sin(np.arange(8_000) / 5)).astype(np.float32), TACOTRON)
    assert loud.max() == 1
    assert not compute_features(np.zeros(8_000, np.float32), TACOTRON).any()


def test_tacotron_2s_log_mels_are_of_magnitude_cut_at_their_floor() -> None:
    samples = speech_like(3 * 22_050)
    magnitude = np.sqrt(librosa_power(samples, TACOTRON_2))
    expected = np.log(np.maximum(magnitude @ mel_filterbank(TACOTRON_2), 1e-5))
    assert_close(compute_features(samples, TACOTRON_2), expected, relative_to_peak=1e-5)
    assert TACOTRON_2.n_fft == 1_024


def test_a_part_that_a_kind_does_not_have_is_not_sliced_from_it() -> None:
    with pytest.raises(ValueError, match="features of kind log_mel have no such columns"):
        _ = FeatureSettings().linear_columns


def test_prosody_is_behind_the_mels_frame_by_frame() -> None:
    """A voice of ten harmonics that glides from 110 to 180 Hz, then noise, then silence."""
    how = FeatureSettings(kind="mel_and_prosody", hop_seconds=0.0125, spectrum="magnitude", log_floor=1e-5)
    hertz = np.geomspace(110, 180, 16_000)
    phase = 2 * np.pi * np.cumsum(hertz) / 16_000
    voice = 0.3 * sum(np.sin(n * phase) / n for n in range(1, 11))
    noise = 0.1 * np.random.default_rng(4).standard_normal(8_000)
    samples = np.concatenate([voice, noise, np.zeros(8_000)]).astype(np.float32)
    found = compute_features(samples, how)
    plain = FeatureSettings.of({**how.plain(), "kind": "log_mel"})
    np.testing.assert_array_equal(found[:, how.mel_columns], compute_features(samples, plain))
    log_f0, voicing, energy = found[:, how.prosody_columns].T
    assert PROSODY == ("log_f0", "voicing", "energy")
    inside = slice(3, 77)  # frames whose windows are in the glide
    assert voicing[inside].all()
    assert not voicing[85:].any()
    assert not log_f0[voicing == 0].any()
    np.testing.assert_allclose(log_f0[inside], np.log(hertz[::200][inside]), atol=0.01)
    for frame in range(3, 117):
        window = samples[frame * 200 - 200 : frame * 200 + 200].astype(np.float64)
        assert energy[frame] == pytest.approx(20 * np.log10(np.sqrt(np.mean(window**2))), abs=0.01)
    assert set(energy[-20:].tolist()) == {-120.0}
    with pytest.raises(ValueError, match="features of kind log_mel have no such columns; mel_and_prosody is accepted"):
        _ = plain.prosody_columns


def test_mfcc_is_librosas_without_the_cut_under_the_peak() -> None:
    import librosa

    how = FeatureSettings(kind="mfcc", mels=40)
    samples = speech_like(20_000)
    decibels = librosa.power_to_db(librosa_mels(samples, how).T, amin=how.log_floor, top_db=None)
    expected = librosa.feature.mfcc(S=decibels, n_mfcc=26).T
    assert_close(compute_features(samples, how), expected, relative_to_peak=1e-5)
    assert cepstral_basis(how).shape == (40, 26)


def test_mfcc_with_context_holds_its_neighbours_oldest_first_and_zeros_beyond_the_ends() -> None:
    plain = FeatureSettings(kind="mfcc")
    stacked = plain.model_copy(update={"context": 9})
    samples = speech_like(8_000)
    alone, together = compute_features(samples, plain), compute_features(samples, stacked)
    assert together.shape == (51, 19 * 26) == (stacked.count_frames(8_000), stacked.bins)
    blocks = together.reshape(51, 19, 26)
    for frame in range(51):
        for place in range(19):
            neighbour = frame + place - 9
            expected = alone[neighbour] if 0 <= neighbour < 51 else np.zeros(26)
            np.testing.assert_array_equal(blocks[frame, place], expected)


@pytest.mark.filterwarnings("ignore:n_fft:UserWarning")
@settings(deadline=None, max_examples=60)
@given(samples=st.integers(0, 9_000), how=st.sampled_from(VARIETY))
def test_any_length_has_a_frame_a_hop_and_librosas_power(samples: int, how: FeatureSettings) -> None:
    recording = speech_like(samples, seed=samples)
    ours = mel_spectrogram(recording, how)
    assert ours.shape == (1 + samples // how.hop_length, how.mels) == (how.count_frames(samples), how.mels)
    if samples:  # librosa refuses an empty recording
        close_in_power(ours, librosa_mels(recording, how))
    else:
        assert not ours.any()


@settings(deadline=None, max_examples=30)
@given(samples=st.integers(0, 100_000), kind=st.sampled_from(KINDS))
def test_every_kind_is_finite_and_of_the_promised_shape(samples: int, kind: str) -> None:
    how = FeatureSettings.of({"kind": kind, "context": 2})
    found = compute_features(speech_like(samples), how)
    assert found.shape == (how.count_frames(samples), how.bins)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


def test_real_speech_agrees_too(real_data: Path) -> None:
    how = FeatureSettings()
    files = sorted((real_data / "LibriSpeech").rglob("*.flac"))
    assert files
    for file in files[:3]:
        samples, _ = soundfile.read(file, dtype="float32")
        close_in_power(mel_spectrogram(samples, how), librosa_mels(samples, how))


def test_two_processes_compute_the_same_bytes() -> None:
    script = (
        "import numpy, hashlib; from voxline.audio.features import *;"
        "samples = numpy.random.default_rng(1).standard_normal(50_000).astype('float32');"
        "print(hashlib.sha256(compute_features(samples, FeatureSettings()).tobytes()).hexdigest())"
    )
    digests = {subprocess.check_output([sys.executable, "-c", script]) for _ in range(2)}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"fft_size": 256}, "fft_size"),
        ({"fft_size": 513}, "fft_size"),
        ({"highest_hz": 9_000}, "highest_hz"),
        ({"lowest_hz": 8_000}, "highest_hz"),
        ({"kind": "mfcc", "mels": 20}, "coefficients"),
        ({"hop_seconds": 1e-5}, "hop_seconds"),
        ({"mel": 80}, "mel"),
        ({"kind": "mfcc", "spectrum": "magnitude"}, "spectrum"),
        ({"kind": "mfcc", "cepstra": "tensorflow", "spectrum": "power"}, "spectrum"),
        ({"cepstra": "tensorflow"}, "cepstra"),
        ({"kind": "mel_and_linear", "spectrum": "power"}, "spectrum"),
        ({"preemphasis": 0.97}, "preemphasis"),
    ],
)
def test_impossible_settings_are_refused_by_their_key(values: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsError, match=f"'{key}'"):
        FeatureSettings.of(values)


def test_more_than_one_channel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(10, 2\)"):
        compute_features(np.zeros((10, 2), np.float32), FeatureSettings())


@pytest.mark.parametrize("where", ["at once", "in its packages", "nowhere"])
def test_what_is_taken_of_scipy_is_scipys_to_the_last_bit_and_the_core_does_without(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import scipy.fft
    import scipy.signal

    loaders = transform._load_rfft, transform._load_irfft, transform._load_convolve, filters._load_sosfilt
    for loader in loaders:
        loader.cache_clear()
    if where != "at once":
        monkeypatch.setattr(importlib.machinery, "EXTENSION_SUFFIXES", [])
    frames = np.random.default_rng(3).standard_normal((7, 512)).astype(np.float32)
    one, other = frames[:2].reshape(-1), frames[2, :77]
    sections = [[0.9, -0.4, 0.1, 1, -1.2, 0.5], [1, -2, 1, 1, -1.9, 0.95]]
    spectrum = scipy.fft.rfft(frames, axis=1)
    filtered = scipy.signal.sosfilt(sections, one)
    inverse = scipy.fft.irfft(spectrum, 512, axis=1)
    if where == "nowhere":
        monkeypatch.setitem(sys.modules, "scipy", None)
        np.testing.assert_allclose(transform.rfft(frames), spectrum, atol=1e-5)
    else:
        np.testing.assert_array_equal(transform.rfft(frames), spectrum)
        np.testing.assert_array_equal(transform.convolve(one, other), scipy.signal.fftconvolve(one, other))
    np.testing.assert_array_equal(transform.irfft(spectrum, 512), inverse)
    np.testing.assert_array_equal(filters.sosfilt(sections, one), filtered)
    for loader in loaders:
        loader.cache_clear()


def test_features_waveforms_loudness_and_rooms_need_none_of_scipys_large_packages() -> None:
    script = """
import sys
import numpy as np
from voxline.audio.features import FeatureSettings, compute_features
from voxline.audio.griffin_lim import features_to_waveform
from voxline.audio.loudness import integrated_loudness
from voxline.components.demo_corpus.acoustics import reverberate

samples = np.random.default_rng(0).standard_normal(8_000).astype(np.float32)
compute_features(samples, FeatureSettings())
print("scipy.fft" in sys.modules)
how = FeatureSettings.of({"kind": "mel_and_linear", "preemphasis": 0.97})
made = features_to_waveform(compute_features(samples, how)[:, how.mel_columns], how, iterations=0)
integrated_loudness(made, 16_000)
reverberate(made, samples[:100])
print(sorted({"scipy.signal", "scipy.stats", "scipy.optimize"} & sys.modules.keys()))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.split("\n") == ["False", "[]", ""], found.stderr

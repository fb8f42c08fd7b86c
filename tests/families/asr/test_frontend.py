"""The exported frontend computes the features of extract."""

from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from scipy.special import softmax

from tests.closeness import assert_close
from voxline.audio import features as spectra
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr import frontend
from voxline.families.asr.export import AsrGraph
from voxline.families.asr.export_checks import check_features
from voxline.families.asr.settings import AsrExportSettings, AsrTrainSettings
from voxline.families.asr.task import AsrTrainModule
from voxline.text.alphabet import Alphabet

KINDS: dict[str, dict[str, Any]] = {
    "log_mel": {"mels": 40},
    "16 kHz, odd hop": {"sample_rate": 16_000, "mels": 80, "hop_seconds": 0.0123, "window_seconds": 0.0251},
    "mfcc": {"kind": "mfcc", "context": 9, "window_seconds": 0.032, "hop_seconds": 0.02},
    "mfcc of TensorFlow": {"kind": "mfcc", "cepstra": "tensorflow", "mels": 40, "lowest_hz": 20, "log_floor": 1e-12},
    "linear": {"kind": "linear", "window_seconds": 0.02},
    "nemo_mel": {"kind": "nemo_mel"},
    "waveform": {"kind": "waveform"},
    "waveform as it is": {"kind": "waveform", "unit_variance": False},
    "hop longer than window": {"mels": 20, "window_seconds": 0.01, "hop_seconds": 0.03},
}


@pytest.mark.parametrize("kind", KINDS)
def test_graph_features_equal_those_of_extract_in_a_padded_batch(kind: str) -> None:
    settings = FeatureSettings(**{"sample_rate": 8_000, **KINDS[kind]})
    random = np.random.default_rng(0)
    lengths = np.array([8_000, 5_003, 160, 1, settings.hop_length * 7, settings.hop_length * 7 - 1], np.int32)
    waveforms = (0.3 * random.standard_normal((len(lengths), 8_000))).astype(np.float32)
    waveforms[4, 5_000:] = np.nan  # beyond the end nothing is listened to
    found, frames = frontend.graph_features(waveforms, lengths, settings)
    for row, length in enumerate(lengths):
        expected = spectra.compute_features(waveforms[row, :length], settings)
        assert frames[row] == len(expected)
        # Two frames of nearly equal power are amplified by what little they differ.
        assert_close(found[row, : frames[row]], expected, relative_to_peak=1e-4 if kind == "nemo_mel" else 1e-5)


def test_graph_features_of_real_speech_equal_those_of_extract(real_data: Any) -> None:
    file = sorted((real_data / "LibriSpeech").rglob("*.flac"))[0]
    samples, rate = soundfile.read(file, dtype="float32")
    settings = FeatureSettings(sample_rate=rate)
    found, _ = frontend.graph_features(samples[None], np.array([len(samples)], np.int32), settings)
    assert_close(found[0], spectra.compute_features(samples, settings), relative_to_peak=1e-5)


def test_a_model_averages_its_probabilities_over_stretched_bins() -> None:
    """Against numpy's interpolation of the features, one stretch after the other."""
    settings = FeatureSettings(sample_rate=8_000, mels=8)
    random = np.random.default_rng(0)
    kernel = tf.constant(random.standard_normal((8, 5)), tf.float32)

    class Network:
        weights: tuple[Any, ...] = ()

        def __call__(self, features: Any, frames: Any) -> tuple[Any, Any]:
            return tf.matmul(features, kernel), frames

    waveforms = (0.3 * random.standard_normal((2, 2_000))).astype(np.float32)
    lengths = np.array([2_000, 900], np.int32)
    factors = [0.8, 1.0, 1.3]
    network: Any = Network()
    graph = AsrGraph(network, settings, Alphabet("abcd"), factors)
    found = graph.logits(waveforms, lengths)
    for row, length in enumerate(lengths):
        features = spectra.compute_features(waveforms[row, :length], settings)
        bins = np.arange(8)
        each = []
        for factor in factors:
            warped = np.array([np.interp(np.clip(bins / factor, 0, 7), bins, frame) for frame in features])
            each.append(softmax(warped @ kernel.numpy(), axis=-1))
        count = int(found["frames"][row])
        assert count == len(features)
        assert_close(softmax(found["logits"][row, :count], axis=-1), np.mean(each, 0), relative_to_peak=1e-5)
    with pytest.raises(SettingsError, match="frequency_warps: features of kind mfcc"):
        check_features(FeatureSettings(kind="mfcc"), AsrExportSettings(frequency_warps=factors))
    with pytest.raises(SettingsError, match="ONNX graphs have no frequency_warps"):
        AsrTrainSettings.of({"export": {"onnx": "float32", "frequency_warps": factors}})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (FeatureSettings(kind="mel_and_linear"), "kind mel_and_linear; set extract.features.kind to log_mel"),
        (FeatureSettings(kind="mel_and_prosody"), "kind mel_and_prosody; set extract.features.kind to log_mel"),
        (FeatureSettings(spectrum="magnitude"), "set extract.features.spectrum to power"),
    ],
)
def test_features_that_cannot_be_exported_are_refused_before_training(settings: FeatureSettings, named: str) -> None:
    bins = settings.bins
    alphabet = Alphabet.from_name("english")
    dataset = Dataset("voices", "voices", settings, alphabet, [0.0] * bins, [1.0] * bins, {}, {}, [])
    with pytest.raises(SettingsError, match=named):
        AsrTrainModule(AsrTrainSettings(), dataset, tf.distribute.get_strategy())

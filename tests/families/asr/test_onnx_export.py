"""The ONNX graph computes what the SavedModel's graph computes, run by ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.asr import export_checks, onnx_stream
from voxline.families.asr import onnx as onnx_export
from voxline.families.asr.export import AsrGraph
from voxline.families.asr.export_checks import check_onnx_export
from voxline.families.asr.networks.deepspeech import DeepSpeech
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.fastconformer import FastConformer
from voxline.families.asr.networks.settings import (
    ConformerSettings,
    ConvolutionSettings,
    DeepSpeech2Settings,
    DeepSpeechSettings,
    FastConformerSettings,
    Wav2Vec2Settings,
    WhisperSettings,
)
from voxline.families.asr.networks.wav2vec2 import Wav2Vec2
from voxline.families.asr.networks.whisper import WhisperCtc
from voxline.families.asr.onnx import export_onnx
from voxline.inference.onnx_model import greedy_text
from voxline.text.alphabet import Alphabet

WHISPER = {"units": 16, "heads": 2, "layers": 2, "positions": 80, "tokens": 8}
ALPHABET = Alphabet("abcdefghij ")
LAYERS = ConvolutionSettings(channels=4, kernel=(4, 6), stride=(2, 2)), ConvolutionSettings(channels=3, stride=(1, 2))
SAMPLES: dict[str, Any] = {
    "channels": (6, 8, 8),
    "kernels": (10, 3, 2),
    "strides": (20, 4, 2),
    "position_kernel": 6,
    "position_groups": 4,
    "layers": 2,
    "units": 12,
    "heads": 3,
    "feed_forward_units": 20,
}
FORMS = {
    "gru": (DeepSpeech2, DeepSpeech2Settings(units=8), FeatureSettings(mels=40)),
    "lstm, summed, normalized": (
        DeepSpeech2,
        DeepSpeech2Settings(units=8, rnn="lstm", directions="summed", rnn_batch_norm=True, convolutions=LAYERS),
        FeatureSettings(kind="linear", sample_rate=8_000),
    ),
    "clipped, forward, row convolution": (
        DeepSpeech2,
        DeepSpeech2Settings(
            units=8, rnn="simple", rnn_activation="clipped_relu", directions="forward", lookahead=7, relu_clip=1.5
        ),
        FeatureSettings(kind="mfcc", coefficients=13, context=4, window_seconds=0.02, fft_size=512),
    ),
    "deepspeech": (
        DeepSpeech,
        DeepSpeechSettings(units=8, context=3),
        FeatureSettings(kind="mfcc", coefficients=26, window_seconds=0.032, hop_seconds=0.02),
    ),
    "whisper": (WhisperCtc, WhisperSettings(**WHISPER, padding=9), FeatureSettings(kind="whisper", mels=20)),
    "whisper without silence": (
        WhisperCtc,
        WhisperSettings(**WHISPER, padding=0),
        FeatureSettings(kind="whisper", mels=20),
    ),
    "fastconformer": (
        FastConformer,
        FastConformerSettings(units=16, heads=2, layers=2, kernel=5, channels=4, padding=3),
        FeatureSettings(kind="nemo_mel", mels=40),
    ),
    "fastconformer without biases": (
        FastConformer,
        FastConformerSettings(
            units=12, heads=3, layers=1, channels=4, attention_bias=False, convolution_bias=False, scale_input=False
        ),
        FeatureSettings(kind="nemo_mel"),
    ),
    "wav2vec2": (Wav2Vec2, Wav2Vec2Settings(**SAMPLES, padding=50), FeatureSettings(kind="waveform")),
    "wav2vec2, large, with adapters": (
        Wav2Vec2,
        Wav2Vec2Settings(
            **SAMPLES,
            convolution_norm="layer",
            convolution_bias=True,
            norm_first=True,
            adapter=3,
            projection_norm=False,
        ),
        FeatureSettings(kind="waveform", unit_variance=False),
    ),
    "deepspeech, as Mozilla's hears": (
        DeepSpeech,
        DeepSpeechSettings(units=8, context=3),
        FeatureSettings(
            kind="mfcc", cepstra="tensorflow", mels=40, lowest_hz=20, window_seconds=0.032, hop_seconds=0.02
        ),
    ),
}


def network(form: Any, seed: int = 0) -> tuple[Any, FeatureSettings, list[float], list[float]]:
    """A network with random weights and statistics, for features of known mean and deviation."""
    kind, settings, features = form
    draw = np.random.default_rng(seed)
    mean, deviation = draw.normal(-5, 2, features.bins).tolist(), draw.uniform(1, 3, features.bins).tolist()
    model = kind(settings, mean=mean, deviation=deviation, classes=12, portable=True)
    for variable in model.weights:
        shape = variable.numpy().shape
        variance = "variance" in variable.name
        variable.assign(draw.uniform(0.5, 2, shape) if variance else variable.numpy() + draw.normal(0, 0.1, shape))
    return model, features, mean, deviation


def recordings(rate: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch of three lengths; noise follows where the shortest one ends, and silence precedes all."""
    draw = np.random.default_rng(1)
    lengths = np.array([rate + 77, rate // 3 + 5, rate // 2], np.int32)
    waveforms = np.zeros((3, lengths.max()), np.float32)
    for row, length in zip(waveforms, lengths, strict=True):
        row[:length] = 0.3 * np.sin(np.cumsum(draw.uniform(0, 0.6, length))) * (np.arange(length) > length // 3)
    waveforms[1, lengths[1] :] = 9
    return waveforms, lengths


def run(data: bytes, waveforms: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    values, frames = session.run(None, {"waveforms": waveforms, "lengths": lengths})
    return values, frames


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_graph_gives_what_the_saved_model_gives(form: str) -> None:
    model, features, mean, deviation = network(FORMS[form])
    waveforms, lengths = recordings(features.sample_rate)
    # Called as a plain function: tracing it would take longer than running it.
    expected = AsrGraph.transcribe.python_function(
        AsrGraph(model, features, ALPHABET), tf.constant(waveforms), tf.constant(lengths)
    )
    values, frames = run(export_onnx(model, features, mean, deviation), waveforms, lengths)
    assert frames.dtype == np.int32
    np.testing.assert_array_equal(frames, expected["frames"].numpy())
    for row, count in enumerate(frames):
        ours = values[row, :count]
        assert_close(ours, expected["log_probabilities"].numpy()[row, :count], relative_to_peak=1e-4)
        assert greedy_text(ours, ALPHABET.symbols).encode() == expected["text"].numpy()[row]


@pytest.mark.slow
def test_a_row_of_a_batch_is_the_recording_alone() -> None:
    model, features, mean, deviation = network(FORMS["lstm, summed, normalized"])
    data = export_onnx(model, features, mean, deviation)
    waveforms, lengths = recordings(features.sample_rate)
    values, frames = run(data, waveforms, lengths)
    alone, count = run(data, waveforms[1:2, : lengths[1]], lengths[1:2])
    assert count[0] == frames[1]
    assert_close(alone[0], values[1, : count[0]], relative_to_peak=1e-5)


def test_recurrent_layers_are_single_nodes() -> None:
    """A loop of small ops, as Keras' exporter writes it, runs four times as long and cannot be quantized."""
    model, features, mean, deviation = network(FORMS["gru"])
    nodes = [node.op_type for node in onnx.load_from_string(export_onnx(model, features, mean, deviation)).graph.node]
    assert nodes.count("GRU") == 2
    assert not {"Loop", "Scan", "If"} & set(nodes)


def test_the_checks_of_a_config_know_the_networks_that_have_a_graph() -> None:
    assert set(export_checks.ONNX_KINDS) == set(onnx_export._NETWORKS)
    assert set(export_checks.STREAMING_KINDS) == set(onnx_stream._NETWORKS)


def test_a_network_without_a_graph_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"train.export.onnx: .*'conformer'; accepted: deepspeech, deepspeech2"):
        check_onnx_export(ConformerSettings(), "float32")
    with pytest.raises(SettingsError, match=r"train.export.onnx: .*no 8-bit kernel for train.model.rnn 'gru'"):
        check_onnx_export(DeepSpeech2Settings(), "int8")
    with pytest.raises(SettingsError, match=r"train.export.onnx: with train.model.top_db 50, .*set top_db to 0"):
        check_onnx_export(DeepSpeech2Settings(top_db=50), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lstm, summed, normalized", "deepspeech"])
def test_an_8_bit_graph_is_near_the_other_and_smaller(form: str) -> None:
    kind, settings, features = FORMS[form]
    settings = settings.model_copy(update={"units": 48})  # type: ignore[attr-defined]
    model, _, mean, deviation = network((kind, settings, features))
    waveforms, lengths = recordings(features.sample_rate)
    whole, small = (export_onnx(model, features, mean, deviation, precision) for precision in ("float32", "int8"))
    expected, frames = run(whole, waveforms, lengths)
    values, counts = run(small, waveforms, lengths)
    np.testing.assert_array_equal(counts, frames)
    for row, count in enumerate(frames):
        difference = np.abs(np.exp(values[row, :count]) - np.exp(expected[row, :count]))
        assert 0 < difference.max() < 0.05
    weights = {node.op_type for node in onnx.load_from_string(small).graph.node}
    assert "DynamicQuantizeLSTM" in weights
    assert "LSTM" not in weights

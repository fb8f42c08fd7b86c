"""An ASR model that can stream, with random weights: real graphs, built without TensorFlow."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from tests.tone_asr_model import RATE, _about
from voxline.audio.feature_settings import FeatureSettings
from voxline.families.asr.networks.settings import DeepSpeechSettings
from voxline.families.asr.onnx import export_onnx
from voxline.families.asr.onnx_stream import export_stream

SYMBOLS = "abcdefgh "


class LSTMCell(SimpleNamespace):
    """Named as Keras' own, by which the exporter knows it."""


def export_causal_model(folder: Path, seed: int = 0, symbols: Sequence[str] = SYMBOLS) -> Path:
    """Writes a DeepSpeech of eight units, in which half of the frames of `babble` are blank."""
    draw = np.random.default_rng(seed)
    settings = DeepSpeechSettings(units=8, context=2, padding=2)
    features = FeatureSettings(kind="mfcc", coefficients=8, mels=20, sample_rate=RATE)
    bins, units = features.bins, settings.units

    def layer(*shape: int) -> Any:
        kernel = draw.normal(0, 1 / np.sqrt(np.prod(shape[:-1])), shape)
        return SimpleNamespace(kernel=_Variable(kernel), bias=_Variable(draw.normal(0, 0.1, shape[-1])))

    cell = LSTMCell(units=units, recurrent_kernel=layer(units, 4 * units).kernel, **vars(layer(units, 4 * units)))
    model = SimpleNamespace(
        settings=settings,
        before=[layer(2 * settings.context + 1, bins, units), layer(units, units), layer(units, units)],
        recurrent=SimpleNamespace(cell=cell),
        after=layer(units, units),
        classifier=layer(units, len(symbols) + 1),
    )
    model.classifier.kernel.values *= 20
    statistics = [0.0] * bins, [10.0] * bins
    waveform = babble(2 * RATE)
    inputs = {"waveforms": waveform[None], "lengths": np.array([len(waveform)], np.int32)}
    values = onnxruntime.InferenceSession(export_onnx(model, features, *statistics)).run(None, inputs)[0][0]
    model.classifier.bias.values[-1] += np.median(values[:, :-1].max(axis=1) - values[:, -1])
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(export_onnx(model, features, *statistics))
    (folder / "stream.onnx").write_bytes(export_stream(model, features, *statistics))
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "model.json").write_text(json.dumps({**_about("none"), "alphabet": symbols}))
    return folder


def babble(samples: int, seed: int = 0) -> np.ndarray:
    """float32 [samples]; tones of 50 ms that change."""
    draw = np.random.default_rng(seed)
    steps = np.repeat(draw.uniform(0.05, 2.5, samples // 800 + 1), 800)[:samples]
    return (0.4 * np.sin(np.cumsum(steps))).astype(np.float32)


class _Variable:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def numpy(self) -> np.ndarray:
        return self.values

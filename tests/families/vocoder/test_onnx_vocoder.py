"""The ONNX graph of a vocoder computes what its network computes; its inverse FFT is numpy's."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from tests.closeness import assert_close
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.vocoder.networks.hifigan import HifiganGenerator
from voxline.families.vocoder.networks.settings import HifiganSettings, VocosSettings, WaveGlowSettings
from voxline.families.vocoder.networks.vocos import Vocos, magnitude_prior
from voxline.families.vocoder.onnx import export_onnx_vocoder, inverse_fft
from voxline.training.onnx_graph import Graph

RANDOM = np.random.default_rng(3)
KINDS: dict[str, dict[str, Any]] = {
    "power": {"mels": 20},
    "magnitude": {
        "sample_rate": 22_050, "window_seconds": 1_024 / 22_050, "hop_seconds": 256 / 22_050, "spectrum": "magnitude",
    },
    "decibels": {"kind": "mel_and_linear", "window_seconds": 0.05, "hop_seconds": 0.0125, "fft_size": 2_048},
}  # fmt: skip


@pytest.mark.parametrize("size", [400, 1_024, 802, 18])
def test_the_inverse_fft_is_numpys(size: int) -> None:
    graph, shape = Graph(), ["batch", "frames", size // 2 + 1]
    given = [(name, TensorProto.FLOAT, shape) for name in ("real", "imaginary")]
    made = inverse_fft(graph, "real", "imaginary", size)
    session = onnxruntime.InferenceSession(
        graph.finish("inverse", given, [("made", made, TensorProto.FLOAT, ["batch", "frames", size])])
    )
    real, imaginary = RANDOM.standard_normal((2, 2, 3, size // 2 + 1)).astype(np.float32)
    (found,) = session.run(None, {"real": real, "imaginary": imaginary})
    assert_close(found, np.fft.irfft(real + 1j * imaginary, size), relative_to_peak=2e-6)


@pytest.mark.parametrize(("kind", "prior", "fft_size"), [("power", True, None), ("magnitude", True, None),
                                                         ("decibels", True, 802), ("power", False, 400)])  # fmt: skip
def test_vocos_is_the_networks(kind: str, prior: bool, fft_size: int | None) -> None:
    features = FeatureSettings.of(KINDS[kind])
    settings = VocosSettings(channels=16, hidden=24, layers=2, fft_size=fft_size, prior=prior)
    size = settings.inverse_fft_size(features)
    middle, spread = (0.5, 0.1) if kind == "decibels" else (-4.0, 1.0)
    mean, deviation = RANDOM.normal(middle, spread, features.mels), np.full(features.mels, 1.5 * spread)
    network = Vocos(
        settings,
        fft_size=size,
        hop=features.hop_length,
        mean=mean.tolist(),
        deviation=deviation.tolist(),
        prior=magnitude_prior(features, size) if prior else None,
    )
    for weight in network.weights:
        weight.assign(RANDOM.standard_normal(weight.shape) * 0.2)
    session = onnxruntime.InferenceSession(export_onnx_vocoder(network, settings, features, mean, deviation))
    mels = RANDOM.normal(middle, spread, (3, 30, features.mels)).astype(np.float32)
    frames = np.array([30, 12, 1], np.int32)
    wanted = network(mels, frames).numpy()
    made, samples = session.run(None, {"mels": mels, "frames": frames})
    assert samples.tolist() == [29 * features.hop_length, 11 * features.hop_length, 0]
    assert np.sqrt(np.mean(wanted[0] ** 2)) > 1e-3
    for row, count in enumerate(samples):
        assert_close(made[row, :count], wanted[row, :count], relative_to_peak=1e-5)
        assert not made[row, count:].any()


@pytest.mark.parametrize("block", ["double", "single"])
def test_hifigan_is_the_networks(block: str) -> None:
    features = FeatureSettings.of({"mels": 12, "hop_seconds": 0.002, "window_seconds": 0.008})
    settings = HifiganSettings(
        channels=16, upsample_rates=(8, 4), upsample_kernels=(16, 8), residual_kernels=(3, 5),
        residual_dilations=((1, 3), (2, 1)), residual_block=block,
    )  # fmt: skip
    mean, deviation = RANDOM.normal(-4.0, 1.0, 12), np.full(12, 1.5)
    network = HifiganGenerator(settings, mean=mean.tolist(), deviation=deviation.tolist())
    for weight in network.weights:
        weight.assign(RANDOM.standard_normal(weight.shape) / np.sqrt(max(np.prod(weight.shape[:-1]), 1)))
    session = onnxruntime.InferenceSession(export_onnx_vocoder(network, settings, features, mean, deviation))
    mels = RANDOM.normal(-4.0, 1.0, (3, 30, 12)).astype(np.float32)
    frames = np.array([30, 12, 1], np.int32)
    wanted = network(mels, frames).numpy()
    made, samples = session.run(None, {"mels": mels, "frames": frames})
    assert samples.tolist() == [29 * 32, 11 * 32, 0]
    assert np.sqrt(np.mean(wanted[0] ** 2)) > 1e-3
    for row, count in enumerate(samples):
        assert_close(made[row, :count], wanted[row, :count], relative_to_peak=1e-5)
        assert not made[row, count:].any()


@pytest.mark.parametrize("model", [HifiganSettings(istft_hop=4), HifiganSettings(bands=4), WaveGlowSettings()])
def test_a_network_without_a_graph_is_refused_by_name(model: Any) -> None:
    with pytest.raises(SettingsError, match=rf"train\.export\.onnx: .*'{model.kind}'.*; accepted: vocos, and hifigan"):
        export_onnx_vocoder(None, model, FeatureSettings(), [], [])

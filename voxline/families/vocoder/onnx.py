"""A vocoder as one ONNX graph: raw mels in, waveforms out, for `voxline.inference.vocoder` without TensorFlow.

Input    mels float32 [batch, t, mels] as extract computes them; frames int32 [batch]
Output   waveforms float32 [batch, samples], zero beyond a row's own; samples int32 [batch]
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.vocoder.networks.settings import HifiganSettings, VocoderModelSettings, VocosSettings
from voxline.families.vocoder.networks.vocos import MAX_LOG_MAGNITUDE, MIN_PRIOR, PRIOR_UPDATES, prior_matrices
from voxline.training.onnx_graph import Graph, Name, normalize_features, to_numpy
from voxline.training.onnx_upsampling import convolve_frames, upsample
from voxline.training.stft import MIN_ENVELOPE, periodic_hann

Array = npt.NDArray[Any]


def export_onnx_vocoder(
    model: Any, settings: VocoderModelSettings, features: FeatureSettings, mean: Any, deviation: Any
) -> bytes:
    """Builds the graph of a network.

    Args:
      model: the network, with its trained weights.
      features: of the mels.
      mean, deviation: of the mels, as the network was built with them.

    Raises:
      SettingsError: the network is not known here.
    """
    known_settings = check_onnx_vocoder(settings)
    graph = Graph()
    frames = graph("Cast", "frames", to=TensorProto.INT64)
    values = normalize_features(graph, "mels", mean, deviation)
    if isinstance(known_settings, VocosSettings):
        waveforms = _vocos(graph, model, known_settings, features, frames, values)
    else:
        waveforms = _hifigan(graph, model, known_settings, frames, values)
    samples = graph("Mul", graph("Max", graph("Sub", frames, np.int64(1)), np.int64(0)), np.int64(features.hop_length))

    return graph.finish(
        "vocoder",
        [
            ("mels", TensorProto.FLOAT, ["batch", "frames", features.mels]),
            ("frames", TensorProto.INT32, ["batch"]),
        ],
        [
            ("waveforms", graph.mask(waveforms, samples, 1, 2), TensorProto.FLOAT, ["batch", "samples"]),
            ("samples", graph("Cast", samples, to=TensorProto.INT32), TensorProto.INT32, ["batch"]),
        ],
    )


def check_onnx_vocoder(settings: VocoderModelSettings) -> VocosSettings | HifiganSettings:
    """The settings of a network that this module can write; others are refused, before they are trained.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """
    if isinstance(settings, VocosSettings):
        return settings
    if isinstance(settings, HifiganSettings) and not settings.istft_hop and settings.bands == 1:
        return settings

    changed = " with istft_hop or bands" if isinstance(settings, HifiganSettings) else ""
    raise SettingsError(
        f"train.export.onnx: no ONNX graph is known for train.model.kind {settings.kind!r}{changed}; accepted: vocos, "
        "and hifigan without them. Set train.export.onnx to none"
    )


def _hifigan(graph: Graph, model: Any, settings: HifiganSettings, frames: Name, values: Name) -> Name:
    """`HifiganGenerator.call`: waveforms [batch, (frames - 1) · hop]."""

    def real(value: Name, factor: int) -> Name:
        steps = graph("Mul", frames, np.int64(factor))
        return graph.mask(value, steps, 2, 3)

    # [batch, mels, frames] → [batch, channels, frames] → [batch, 1, frames · hop]
    x = real(convolve_frames(graph, real(graph.transpose(values), 1), model.first), 1)
    x = upsample(graph, model, settings.upsample_rates, x, real)
    waveforms = graph("Squeeze", graph("Tanh", convolve_frames(graph, x, model.last)), np.array([1]))

    # The network makes a hop around each frame's center, and a waveform begins at the first center.
    half = settings.hop // 2
    samples = graph("Mul", graph("Sub", graph.size(values, 1), np.int64(1)), np.int64(settings.hop))
    end = graph("Unsqueeze", graph("Add", samples, np.int64(half)), np.array([0]))
    return str(graph("Slice", waveforms, np.array([half]), end, np.array([1])))


def _vocos(
    graph: Graph, model: Any, settings: VocosSettings, features: FeatureSettings, frames: Name, values: Name
) -> Name:
    """`Vocos.call`: waveforms [batch, (frames - 1) · hop]."""

    # [batch, frames, mels] → [batch, frames, channels] → log magnitude and phase.
    size = settings.inverse_fft_size(features)
    bins = size // 2 + 1

    def real(value: Name) -> Name:
        return graph.mask(value, frames, 1, 3)

    values = graph.convolution(real(values), to_numpy(model.embedding.kernel), to_numpy(model.embedding.bias))
    values = real(graph.layer_norm(values, model.first_norm))
    for block in model.blocks:
        values = real(graph.convnext(values, block))

    spectrum = graph.dense(graph.layer_norm(values, model.last_norm), model.head)
    logarithm, phase = graph("Split", spectrum, np.array([bins, bins]), axis=2, outputs=2)
    if settings.prior:
        logarithm = graph("Add", logarithm, _prior(graph, features, size))

    magnitude = real(graph("Exp", graph("Min", logarithm, np.float32(MAX_LOG_MAGNITUDE))))
    real_part, imaginary_part = (graph("Mul", magnitude, graph(op, phase)) for op in ("Cos", "Sin"))

    return _inverse_stft(graph, real_part, imaginary_part, size, features.hop_length, frames)


def _prior(graph: Graph, features: FeatureSettings, size: int) -> Name:
    """`vocos.magnitude_prior` of the graph's mels."""
    to_mels, to_bins, magnitude_offset, mel_offset = prior_matrices(features, size)

    # Features in decibels of a range become natural logarithms of magnitude.
    mels: Name = "mels"
    if features.kind == "mel_and_linear":
        share = graph("Clip", mels, np.float32(0), np.float32(1))
        decibels = graph("Mul", share, np.float32(-features.floor_db))
        decibels = graph("Add", decibels, np.float32(features.floor_db + features.reference_db))
        mels = graph("Mul", decibels, np.float32(math.log(10) / 20))

    # Multiplicative updates from a spectrum that is nowhere zero.
    bands = graph("Exp", graph("Add", mels, np.float32(mel_offset)))
    spectrum = graph("MatMul", bands, to_bins)
    for _ in range(PRIOR_UPDATES):
        bands_of_spectrum = graph("Max", graph("MatMul", spectrum, to_mels), np.float32(MIN_PRIOR**2))
        spectrum = graph("Mul", spectrum, graph("MatMul", graph("Div", bands, bands_of_spectrum), to_bins))

    power = 1.0 if features.uses_magnitude else 0.5
    logarithm = graph("Log", graph("Max", spectrum, np.float32(MIN_PRIOR ** (1 / power))))

    return str(graph("Add", graph("Mul", logarithm, np.float32(power)), np.float32(magnitude_offset)))


def _inverse_stft(graph: Graph, real: Name, imaginary: Name, size: int, hop: int, frames: Name) -> Name:
    """Waveforms of spectra [batch, frames, size // 2 + 1], as `stft.inverse_stft` computes them."""

    # Least squares: windows added where they overlap, over the squared windows there.
    hann = periodic_hann(size)
    added = _overlap_add(graph, graph("Mul", inverse_fft(graph, real, imaginary, size), hann), size, hop)
    present = graph("Cast", graph.below(frames, graph.size(real, 1)), to=TensorProto.FLOAT)
    windows = graph("Mul", graph("Unsqueeze", present, np.array([2])), hann**2)
    envelope = _overlap_add(graph, windows, size, hop)
    flat = graph("Div", added, graph("Max", envelope, np.float32(MIN_ENVELOPE)))
    flat = graph("Reshape", flat, np.array([0, -1]))
    # The samples from the first center to the last one.
    samples = graph("Mul", graph("Sub", graph.size(real, 1), np.int64(1)), np.int64(hop))
    end = graph("Unsqueeze", graph("Add", samples, np.int64(size // 2)), np.array([0]))
    return str(graph("Slice", flat, np.array([size // 2]), end, np.array([1])))


def _overlap_add(graph: Graph, windows: Name, size: int, hop: int) -> Name:
    """`stft.overlap_add`, before its reshaping: [batch, frames - 1 + hops, hop]."""

    # Each window is cut in pieces of a hop; pieces of a row of windows are added with a shift.
    hops = -(-size // hop)
    if hops * hop > size:
        windows = graph("Pad", windows, np.array([0, 0, 0, 0, 0, hops * hop - size]))
    parts = graph("Split", windows, np.full(hops, hop), axis=2, outputs=hops)
    added: Name = ""
    for number, part in enumerate(parts):
        placed = graph("Pad", part, np.array([0, number, 0, 0, hops - 1 - number, 0]))
        added = graph("Add", added, placed) if added else placed
    return added


def inverse_fft(graph: Graph, real: Name, imaginary: Name, size: int) -> Name:
    """The inverse FFT of [batch, frames, size // 2 + 1], real [batch, frames, size], as products of matrices.

    Cosines are even and sines odd around the middle of a window, and those of even bins are once more around its
    quarters: a quarter of the products is enough. ONNX Runtime's `DFT` is slow, and inverts no half of a spectrum.
    """
    half = size // 2

    # The bins between the first and the last stand for two of the whole spectrum.
    once = np.full(half + 1, 2 / size)
    once[[0, -1]] = 1 / size

    def waves(function: Any, bins: Array, samples: Array) -> Array:
        # The angle's whole turns are taken off as integers, so that it is exact.
        turns = np.outer(bins, samples) % size
        return (once[bins, None] * function(2 * np.pi * turns / size)).astype(np.float32)

    if size % 4:
        bins = np.arange(half + 1)
        samples = np.arange(size)
        cosines = graph("MatMul", real, waves(np.cos, bins, samples))
        sines = graph("MatMul", imaginary, waves(np.sin, bins, samples))
        return str(graph("Sub", cosines, sines))

    # Half a window of cosines and half of sines; the other half is their difference and sum mirrored.
    quarter = np.arange(size // 4 + 1)
    step = np.array([2])
    axis = np.array([2])
    end = np.array([half + 1])

    def halves(value: Name, function: Any, sign: float) -> tuple[Name, Name]:
        """Over samples 0 to half: of even bins, which repeat with `sign` around the quarter, and of odd ones."""
        even, odd = (
            graph("MatMul", graph("Slice", value, np.array([first]), end, axis, step),
                  waves(function, np.arange(first, half + 1, 2), quarter))
            for first in (0, 1)
        )  # fmt: skip
        return graph("Add", even, odd), mirror(graph("Sub", even, odd) if sign > 0 else graph("Sub", odd, even))

    def mirror(value: Name) -> Name:
        """Sample size/2 - n at n, without the quarter itself: it is in the first part."""
        return str(graph("Slice", value, np.array([size // 4 - 1]), np.array([-size]), axis, np.array([-1])))

    cosines = graph("Concat", *halves(real, np.cos, 1.0), axis=2)
    sines = graph("Concat", *halves(imaginary, np.sin, -1.0), axis=2)  # [batch, frames, half + 1]
    first = graph("Sub", cosines, sines)
    second = graph("Add", cosines, sines)
    second = graph("Slice", second, np.array([half - 1]), np.array([0]), axis, np.array([-1]))

    return str(graph("Concat", first, second, axis=2))

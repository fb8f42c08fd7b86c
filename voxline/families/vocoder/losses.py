"""The terms of a vocoder's loss that compare spectra, float32 [batch] each."""

import math
from typing import Any

import numpy as np
from keras import ops

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import mel_filterbank
from voxline.metrics import estoi
from voxline.metrics.stft import RESOLUTIONS
from voxline.training.layers import Tensor
from voxline.training.stft import MIN_MAGNITUDE, magnitudes

SILENCE = 1e-3
"""Root mean square, of full scale, under which a frame is silent to `estoi_distance`: -60 dB."""
BINS_A_BAND = 12
"""Bins of a transform for each of its mel bands in `band_distance`."""


def spectra(waveforms: Tensor) -> list[Tensor]:
    """Magnitudes [batch, frames, size // 2 + 1] at each of `RESOLUTIONS`."""
    return [magnitudes(waveforms, size, hop, length) for size, hop, length in RESOLUTIONS]


def stft_distances(generated: list[Tensor], recorded: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Spectral convergence, and the mean absolute difference of log magnitudes; means over `spectra`, [batch] each.

    Yamamoto, Song and Kim 2020 (arXiv 1910.11480), equations 4 to 6.
    """
    convergence: list[Any] = []
    log_distance: list[Any] = []
    for generated_spectrum, recorded_spectrum in zip(generated, recorded, strict=True):
        # Spectral convergence: the Frobenius norm of the difference over that of the recording.
        difference_norm, recorded_norm = (
            ops.sqrt(ops.sum(ops.square(x), axis=(1, 2)))
            for x in (recorded_spectrum - generated_spectrum, recorded_spectrum)
        )
        convergence.append(difference_norm / recorded_norm)
        log_distance.append(_mean(ops.abs(ops.log(generated_spectrum) - ops.log(recorded_spectrum))))
    totals: tuple[Any, Any] = (sum(convergence), sum(log_distance))
    return totals[0] / len(generated), totals[1] / len(generated)


def band_distance(generated: list[Tensor], recorded: list[Tensor], features: FeatureSettings) -> Tensor:
    """Mean absolute difference of the logarithms of mel bands of `spectra`, the mean over them, [batch].

    The multi-scale mel loss of Kumar et al. 2023 (arXiv 2306.06546), of the spectra that are there anyway: a band for
    every `BINS_A_BAND` bins, so that short windows have few wide bands and show when there is sound in them.
    """
    distances = []
    for (size, hop, length), generated_spectrum, recorded_spectrum in zip(
        RESOLUTIONS, generated, recorded, strict=True
    ):
        rate = features.sample_rate

        # A bank of its own for each transform: a band for every BINS_A_BAND bins.
        bank = mel_filterbank(
            FeatureSettings(
                sample_rate=rate,
                window_seconds=length / rate,
                hop_seconds=hop / rate,
                fft_size=size,
                mels=size // (2 * BINS_A_BAND),
            )
        )
        generated_bands, recorded_bands = (
            ops.log(ops.maximum(spectrum @ bank, MIN_MAGNITUDE)) for spectrum in (generated_spectrum, recorded_spectrum)
        )
        distances.append(_mean(ops.abs(generated_bands - recorded_bands)))

    return sum(distances[1:], distances[0]) / len(distances)


def estoi_distance(generated: Tensor, recorded: Tensor, sample_rate: int) -> Tensor:
    """1 - ESTOI of waveforms of a segment or more (`estoi.spans`), [batch]; `voxline.metrics.estoi` has the source.

    It differs from the measure in three ways: bands are taken at the sample rate of the waveforms, those above its half
    left out; silent frames count nothing where they are, in place of being cut out; and silent is what is below the
    loudest frame of these waveforms, or below SILENCE. Of a silent recording it is 1, without a gradient.

    Kolbæk, Tan and Jensen 2018 (arXiv 1802.00604) train on the measure before it, STOI, in this manner.
    """

    # Powers in third octaves, [batch, frames, bands].
    window, hop, _ = estoi.spans(sample_rate)
    size = 2 ** math.ceil(math.log2(2 * window))
    bands = estoi.octave_bands(size, sample_rate).astype(np.float32)
    bands = bands[:, bands.any(axis=0)]
    recorded_power, generated_power = (
        ops.square(magnitudes(waveforms, size, hop, window)) for waveforms in (recorded, generated)
    )

    # Silent frames are found in the recording alone, as in the measure.
    level = ops.sum(recorded_power, axis=-1, keepdims=True)
    loudest = ops.max(level, axis=1, keepdims=True)
    # A Hann window keeps 3/8 of a power, of which the bins of one side have size / 2 times as much.
    floor = SILENCE**2 * 3 / 8 * window * size / 2
    silent = ops.maximum(loudest * 10 ** (-estoi.DYNAMIC_RANGE / 10), floor)

    # [batch, segments, frames, 1]; each segment is normalized over time, then over bands.
    loud = _in_segments(ops.cast(level > silent, "float32"))
    frames = ops.sum(loud, axis=2, keepdims=True)
    normalized = []
    for power in (recorded_power, generated_power):
        segments = _in_segments(ops.sqrt(power @ bands)) * loud
        segments = (segments - ops.sum(segments, axis=2, keepdims=True) / ops.maximum(frames, 1.0)) * loud
        segments = segments / _norm(segments, 2)
        segments = segments - ops.mean(segments, axis=3, keepdims=True)
        normalized.append(segments / _norm(segments, 3))

    # Mean correlation over segments and frames (Jensen and Taal 2016).
    correlation = ops.sum(normalized[0] * normalized[1], axis=(1, 2, 3))

    return 1 - correlation / ops.maximum(ops.sum(loud, axis=(1, 2, 3)), 1.0)


def _in_segments(frames: Tensor) -> Tensor:
    """[batch, frames, …] to [batch, segments, estoi.SEGMENT, …], one for each frame that one begins with."""
    count = frames.shape[1] - estoi.SEGMENT + 1
    return ops.stack([frames[:, first : first + estoi.SEGMENT] for first in range(count)], axis=1)


def _norm(values: Tensor, axis: int) -> Tensor:
    """Along an axis, which is kept; never zero, so that silence has no gradient."""
    return ops.sqrt(ops.sum(ops.square(values), axis=axis, keepdims=True) + MIN_MAGNITUDE**2)


def _mean(values: Tensor) -> Tensor:
    """Over all dimensions but the first, float32."""
    return ops.mean(ops.cast(values, "float32"), axis=tuple(range(1, len(values.shape))))


DECIBELS = 20 / np.log(10)
"""Decibels of a natural logarithm of magnitude."""

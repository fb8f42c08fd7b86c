"""The terms of a vocoder's loss, float32 [batch] each: spectra, and the least squares of adversarial training."""

from typing import Any

import numpy as np
from keras import ops

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import mel_filterbank
from voxline.components.train.models.stft import magnitudes
from voxline.metrics.stft import RESOLUTIONS

Tensor = Any

MIN_MAGNITUDE = 1e-5


def log_mels(waveforms: Tensor, features: FeatureSettings) -> Tensor:
    """Natural logarithms of mel magnitudes, [batch, frames, mels]: windows as the features have them, of magnitude."""
    around = features.win_length // 2
    padded = ops.pad(waveforms, [[0, 0], [around, around]])
    spectrum = magnitudes(padded, features.n_fft, features.hop_length, features.win_length)
    return ops.log(ops.maximum(spectrum @ mel_filterbank(features), MIN_MAGNITUDE))


def mel_distance(generated: Tensor, recorded: Tensor, features: FeatureSettings) -> Tensor:
    """Mean absolute difference of `log_mels`, [batch]."""
    return _mean(ops.abs(log_mels(generated, features) - log_mels(recorded, features)))


def stft_distances(generated: Tensor, recorded: Tensor) -> tuple[Tensor, Tensor]:
    """Spectral convergence, and the mean absolute difference of log magnitudes; means over `RESOLUTIONS`, [batch] each.

    Yamamoto, Song and Kim 2020 (arXiv 1910.11480), equations 4 to 6.
    """
    convergence, log_distance = [], []
    for size, hop, length in RESOLUTIONS:
        made, wanted = (magnitudes(waveforms, size, hop, length) for waveforms in (generated, recorded))
        apart, whole = (ops.sqrt(ops.sum(ops.square(x), axis=(1, 2))) for x in (wanted - made, wanted))
        convergence.append(apart / whole)
        log_distance.append(_mean(ops.abs(ops.log(made) - ops.log(wanted))))
    return sum(convergence) / len(RESOLUTIONS), sum(log_distance) / len(RESOLUTIONS)


def discriminator_loss(recorded: list[Tensor], generated: list[Tensor]) -> Tensor:
    """The discriminators' least squares (Mao et al. 2017): recorded speech is to be judged 1, generated 0; [batch]."""
    terms = [
        _mean(ops.square(1 - real)) + _mean(ops.square(made)) for real, made in zip(recorded, generated, strict=True)
    ]
    return sum(terms[1:], terms[0])


def adversarial_loss(generated: list[Tensor]) -> Tensor:
    """The generator's: what it makes is to be judged 1; [batch]."""
    terms = [_mean(ops.square(1 - made)) for made in generated]
    return sum(terms[1:], terms[0])


def feature_matching_loss(recorded: list[list[Tensor]], generated: list[list[Tensor]]) -> Tensor:
    """Mean absolute difference of activations, summed over all layers of all discriminators (Larsen et al. 2016)."""
    terms = [
        _mean(ops.abs(real - made))
        for of_recorded, of_generated in zip(recorded, generated, strict=True)
        for real, made in zip(of_recorded, of_generated, strict=True)
    ]
    return sum(terms[1:], terms[0])


def _mean(values: Tensor) -> Tensor:
    """Over all dimensions but the first, float32."""
    return ops.mean(ops.cast(values, "float32"), axis=tuple(range(1, len(values.shape))))


DECIBELS = 20 / np.log(10)
"""Of a natural logarithm of magnitude."""

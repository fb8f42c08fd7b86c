"""Perturbation of training examples, on features: speed, pitch, volume, tilt, noise, SpecAugment.

Everything is numpy on one example and drawn from the generator that it is given, so that (seed, epoch,
example) decide what is done, whatever was done before and however many devices there are.
"""

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.asr.settings import AugmentSettings
from voxline.errors import SettingsError

Array = npt.NDArray[np.float32]
LOG_POWER_PER_DECIBEL = np.log(10) / 10
"""A decibel in the natural logarithm of power."""


class Augmentation:
    """Perturbs examples.

    Args:
      mean, deviation: per bin, of the training split.

    Raises:
      SettingsError: the settings ask for what these features cannot show.
    """

    def __init__(self, settings: AugmentSettings, features: FeatureSettings, mean: Array, deviation: Array) -> None:
        spectral = [key for key in ("pitch", "volume", "tilt") if getattr(settings, key)]
        if features.kind == "mfcc" and spectral:
            raise SettingsError(
                f"train.augment.{spectral[0]}: cepstral coefficients have no frequency axis to change it on; "
                "set it to 0, or extract.features.kind to log_mel"
            )
        self.settings, self.mean, self.deviation = settings, mean, deviation
        self.active = any(
            getattr(settings, key)
            for key in ("speed", "pitch", "volume", "tilt", "noise", "time_masks", "frequency_masks")
        )

    def __call__(self, features: Array, fewest: int, random: np.random.Generator) -> Array:
        """A perturbed copy of one example, `[frames', bins]`.

        Args:
          features: [frames, bins].
          fewest: frames that its labels need, fewer than which no change of speed may leave.
        """
        settings = self.settings
        if not self.active:
            return features
        if settings.speed:
            factor = _share(settings.speed, random)
            features = stretch_time(features, max(round(len(features) / factor), min(fewest, len(features))))
        if settings.pitch:
            features = warp_frequency(features, _share(settings.pitch, random))
        bins = features.shape[1]
        offset = np.zeros(bins)
        if settings.volume:
            offset += random.uniform(-settings.volume, settings.volume) * LOG_POWER_PER_DECIBEL
        if settings.tilt:
            offset += (
                random.uniform(-settings.tilt, settings.tilt) * LOG_POWER_PER_DECIBEL * np.linspace(-0.5, 0.5, bins)
            )
        features = features + offset.astype(np.float32)
        if settings.noise:
            size = np.float32(random.uniform(0, settings.noise))
            features += size * self.deviation * random.standard_normal(features.shape, np.float32)
        for _ in range(settings.frequency_masks):
            start, stop = _stretch(bins, settings.frequency_mask_share, random)
            features[:, start:stop] = self.mean[start:stop]
        for _ in range(settings.time_masks):
            start, stop = _stretch(len(features), settings.time_mask_share, random)
            features[start:stop] = self.mean
        return features


def stretch_time(features: Array, frames: int) -> Array:
    """Linear interpolation in time to so many frames.

    >>> stretch_time(np.array([[0.0], [2.0]], np.float32), 3).tolist()
    [[0.0], [1.0], [2.0]]
    """
    return _interpolate(features, np.linspace(0, len(features) - 1, frames))


def warp_frequency(features: Array, factor: float) -> Array:
    """Stretches the frequency axis: what stood in bin `b` comes to stand in bin `b · factor`.

    On a mel axis that is about what a vocal tract of another length does (Jaitly and Hinton 2013).

    >>> warp_frequency(np.array([[0.0, 1.0, 2.0, 3.0]], np.float32), 2.0).tolist()
    [[0.0, 0.5, 1.0, 1.5]]
    """
    bins = features.shape[1]
    return np.ascontiguousarray(_interpolate(features.T, np.clip(np.arange(bins) / factor, 0, bins - 1)).T)


def _interpolate(rows: Array, positions: npt.NDArray[np.float64]) -> Array:
    left = np.minimum(positions.astype(np.int64), len(rows) - 1)
    right = np.minimum(left + 1, len(rows) - 1)
    weight = (positions - left).astype(np.float32)[:, None]
    interpolated: Array = rows[left] * (1 - weight) + rows[right] * weight
    return interpolated


def _share(limit: float, random: np.random.Generator) -> float:
    """A factor between 1 / (1 + limit) and 1 + limit, as often above 1 as below."""
    return float(np.exp(random.uniform(-1, 1) * np.log1p(limit)))


def _stretch(size: int, share: float, random: np.random.Generator) -> tuple[int, int]:
    """A stretch of up to `share` of `size`, anywhere in it."""
    length = int(random.integers(0, int(size * share) + 1))
    start = int(random.integers(0, size - length + 1))
    return start, start + length

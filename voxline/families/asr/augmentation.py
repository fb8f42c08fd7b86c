"""Augmentation of training examples, on features: speed, pitch, room, codec, level, noise, SpecAugment, ….

It is numpy on one example, drawn from the given generator: (seed, epoch, example) determine the result, whatever came
before and however many devices there are.
"""

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import NORMALIZED, FeatureSettings
from voxline.audio.features import compute_features, mel_filterbank
from voxline.errors import SettingsError
from voxline.families.asr.settings import AugmentSettings

Array = npt.NDArray[np.float32]
LOG_POWER_PER_DECIBEL = np.log(10) / 10
"""One decibel, as a difference of natural logarithms of power."""

SPECTRAL = ("pitch", "volume", "tilt", "equalizer", "reverberation", "background", "band_limit", "codec")
"""Settings that need features with a frequency axis."""

COMPILED = ("speed", "pitch", "reverberation", "background")
"""Settings whose loops numba compiles."""

RIPPLES = (1.0, 0.67, 0.42, 0.25)
"""Relative deviations of the cosines over the bins, of 1, 2, 3 and 4 half waves, that a random response is made of."""

DECAY_SECONDS = (0.01, 0.1)
"""Range of the time constant of a room's energy, in seconds."""
SPEECH_TO_NOISE = (5.0, 35.0)
"""Range of the mean power of speech to that of noise, in dB."""

LOWEST_HZ = (50.0, 400.0)
"""Range of a band's lower edge."""
HIGHEST_HZ = 3_000.0
"""The lowest that a band's upper edge may be."""
DECIBELS_PER_OCTAVE = (12.0, 48.0)
"""Range of the slopes beyond a band's edges."""

SPEECH_TO_CODING_NOISE = (5.0, 35.0)
"""Range of each frame's power to that of its coding noise, in dB."""
NOISE_SHAPING = (0.0, 0.8)
"""Range of the exponent by which coding noise follows the frame's spectrum. GSM 06.10 and ADPCM are within both
ranges (a test measures it)."""


class Augmentation:
    """Changes examples at random.

    Args:
      mean, deviation: per bin, of the training split. Masks are filled with the mean; where it is None, with that of
        the utterance, which is no louder than the utterance is.
      views: of each example, side by side: they differ in noise and masks.

    Attributes:
      more_frames: that an example may get, besides what `speed` lengthens it by.

    Raises:
      SettingsError: a setting has no meaning for these features.
    """

    def __init__(
        self,
        settings: AugmentSettings,
        features: FeatureSettings,
        mean: Array | None,
        deviation: Array,
        views: int = 1,
    ) -> None:
        # Cepstra and samples have no frequency axis, and normalized mels no level: these settings would change other
        # things.
        without_axis = {"mfcc": "cepstral coefficients", "waveform": "samples"}
        keys = (*SPECTRAL, "frequency_masks") if features.kind == "waveform" else SPECTRAL
        spectral = [key for key in keys if getattr(settings, key)]
        if features.kind in without_axis and spectral:
            raise SettingsError(
                f"train.augment.{spectral[0]}: {without_axis[features.kind]} have no frequency axis to change it on; "
                "set it to 0, or extract.features.kind to log_mel"
            )
        if features.kind in NORMALIZED and (absolute := [*spectral, *(["silence"] if settings.silence else [])]):
            raise SettingsError(
                f"train.augment.{absolute[0]}: features of kind {features.kind} are normalized, each utterance by "
                "itself, and so have no power to change; set it to 0"
            )

        self.settings = settings
        self.mean = mean
        self.deviation = deviation
        self.views = views

        # Constants of the features, computed once.
        self._hop_seconds = features.hop_seconds
        hop = 1 / features.sample_rate if features.kind == "waveform" else features.hop_seconds
        self.more_frames = 2 * round(settings.silence / hop)
        self._silence = digital_silence(features, self.more_frames // 2)
        self._centers = bin_centers(features) if settings.band_limit else np.zeros(0)
        self._nyquist = features.sample_rate / 2
        self._floor = np.float32(np.log(features.log_floor))
        self._changes = any(
            getattr(settings, key) for key in ("speed", "silence", *SPECTRAL, "noise", "time_masks", "frequency_masks")
        )
        if any(getattr(settings, key) for key in COMPILED):
            _kernel()  # before reader processes are forked, which then share it

    @property
    def active(self) -> bool:
        return self._changes

    def __call__(self, features: Array, min_frames: int, random: np.random.Generator) -> Array:
        """An augmented copy of one example, `[frames', views · bins]`.

        Args:
          features: [frames, bins].
          min_frames: that its labels need; a change of speed leaves at least as many.
        """
        settings = self.settings
        if not self.active:
            return features if self.views == 1 else np.tile(features, self.views)

        # Changes of time and frequency come first, then what adds energy, in the order in which sound meets them.
        if settings.speed:
            factor = _random_factor(settings.speed, random)
            features = stretch_time(features, max(round(len(features) / factor), min(min_frames, len(features))))

        if settings.pitch:
            features = warp_frequency(features, _random_factor(settings.pitch, random))

        if settings.silence:
            frames = random.integers(0, len(self._silence) + 1, size=2)
            features = np.concatenate([self._silence[: frames[0]], features, self._silence[: frames[1]]])

        # A room and its noise, which both add power.
        bins = features.shape[1]
        power: Array | None = None
        if settings.reverberation and (
            settings.reverberation_share == 1 or random.uniform() < settings.reverberation_share
        ):
            power = np.exp(features)
            decay = np.exp(-self._hop_seconds / random.uniform(*DECAY_SECONDS))
            smear_power(power, random.uniform(0, settings.reverberation), decay)

        if settings.background and random.uniform() < settings.background:
            power = np.exp(features) if power is None else power
            color = draw_response(bins, 5.0, random)
            add_background(power, color, random.uniform(*SPEECH_TO_NOISE), random)

        if power is not None:
            features = np.log(power, out=power)

        # A frequency response multiplies power, so it is added to log power: one sum for all of them.
        offset = np.zeros(bins)
        if settings.equalizer:
            offset += draw_response(bins, settings.equalizer, random) * LOG_POWER_PER_DECIBEL

        if settings.volume:
            offset += random.uniform(-settings.volume, settings.volume) * LOG_POWER_PER_DECIBEL

        if settings.tilt:
            offset += (
                random.uniform(-settings.tilt, settings.tilt) * LOG_POWER_PER_DECIBEL * np.linspace(-0.5, 0.5, bins)
            )

        band_limited = bool(settings.band_limit) and random.uniform() < settings.band_limit
        if band_limited:
            offset += self._draw_band(random) * LOG_POWER_PER_DECIBEL

        features = features + offset.astype(np.float32)
        if band_limited:
            features = np.maximum(features, self._floor)

        if settings.codec and random.uniform() < settings.codec:
            features = add_coding_noise(
                features, random.uniform(*SPEECH_TO_CODING_NOISE), random.uniform(*NOISE_SHAPING), random
            )

        # Each view has its own noise and masks, as CR-CTC wants it.
        if self.views == 1:
            return self._view(features, random)
        return np.concatenate([self._view(features.copy(), random) for _ in range(self.views)], axis=1)

    def _draw_band(self, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """The response of a random band limit, in dB [bins]."""

        # Edges are uniform in log frequency, as hearing is.
        lowest = np.exp(random.uniform(*np.log(LOWEST_HZ)))
        highest = np.exp(random.uniform(np.log(min(HIGHEST_HZ, self._nyquist)), np.log(self._nyquist)))
        slopes = random.uniform(*DECIBELS_PER_OCTAVE, size=2)
        return band_response(self._centers, (lowest, highest), slopes.tolist())

    def _view(self, features: Array, random: np.random.Generator) -> Array:
        """The features with noise and masks, in place."""
        settings = self.settings
        bins = features.shape[1]

        # SpecAugment (Park et al. 2019): masks over bins and over time, filled with the mean.
        mean = features.mean(axis=0) if self.mean is None else self.mean
        if settings.noise:
            size = np.float32(random.uniform(0, settings.noise))
            features += size * self.deviation * random.standard_normal(features.shape, np.float32)

        for _ in range(settings.frequency_masks):
            start, stop = _random_span(bins, settings.frequency_mask_share, random)
            features[:, start:stop] = mean[start:stop]

        for _ in range(settings.time_masks):
            start, stop = _random_span(len(features), settings.time_mask_share, random)
            features[start:stop] = mean

        return features


@functools.cache
def _kernel() -> Any:
    """The compiled loops, loaded where they are needed: numba takes 50 MB."""
    return importlib.import_module("voxline.families.asr.augmentation_kernel")


def stretch_time(features: Array, frames: int) -> Array:
    """Interpolates linearly in time to this many frames.

    >>> stretch_time(np.array([[0.0], [2.0]], np.float32), 3).tolist()
    [[0.0], [1.0], [2.0]]
    """
    return _kernel().interpolate_frames(features, *_places(np.linspace(0, len(features) - 1, frames), len(features)))


def warp_frequency(features: Array, factor: float) -> Array:
    """Stretches the frequency axis: bin `b` moves to bin `b · factor`.

    On a mel axis that resembles a vocal tract of another length (Jaitly and Hinton 2013).

    >>> warp_frequency(np.array([[0.0, 1.0, 2.0, 3.0]], np.float32), 2.0).tolist()
    [[0.0, 0.5, 1.0, 1.5]]
    """
    bins = features.shape[1]
    return _kernel().interpolate_bins(features, *_places(np.clip(np.arange(bins) / factor, 0, bins - 1), bins))


def smear_power(power: Array, share: float, decay: float) -> None:
    """Adds to each frame a share of the energy of those before it, which decays from frame to frame.

    Of power P: Q[t] = P[t] + share · E[t - 1], and E[t] = decay · E[t - 1] + (1 - decay) · P[t]: a recursive filter of
    first order along time, for each bin alone.

    Args:
      power: float32 [frames, bins]; it is changed.

    >>> power = np.array([[1.0], [0.0], [0.0]], np.float32)
    >>> smear_power(power, 0.5, 0.5)
    >>> power[:, 0].tolist()
    [1.0, 0.25, 0.125]
    """
    _kernel().smear(power, np.float32(share), np.float32(decay), np.float32(1 - decay))


def add_background(power: Array, color: npt.NDArray[np.float64], ratio: float, random: np.random.Generator) -> None:
    """Adds the power of Gaussian noise.

    Args:
      power: float32 [frames, bins]; it is changed.
      color: dB, of each bin.
      ratio: mean power of speech to that of noise, in dB.
    """
    noise = random.standard_exponential(power.shape)

    # The mean of the colored noise, by that of each bin.
    bin_power = 10 ** (color / 10)
    noise_power = (noise.mean(axis=0) * bin_power).mean()
    _kernel().add_scaled(power, noise, bin_power, power.mean(dtype=np.float64) / noise_power * 10 ** (-ratio / 10))


def draw_response(bins: int, deviation: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """A smooth random frequency response, in dB [bins], as of a microphone or a room.

    Args:
      deviation: dB, the standard deviation of the slowest ripple.
    """

    # Cosines of 1 to 4 half waves over the bins: smooth, and of mean zero.
    phases = np.pi * (np.arange(bins) + 0.5) / bins
    ripples = np.cos(np.outer(np.arange(1, len(RIPPLES) + 1), phases))
    response: npt.NDArray[np.float64] = deviation * (np.array(RIPPLES) * random.standard_normal(len(RIPPLES))) @ ripples
    return response


def add_coding_noise(features: Array, ratio: float, shaping: float, random: np.random.Generator) -> Array:
    """Adds noise to log power that follows the speech in time, and in part in its spectrum, as a codec's does.

    Args:
      ratio: power of each frame to that of its noise, in dB.
      shaping: exponent of the frame's power by bin to which the noise is proportional; 0: alike in all bins, 1: the
        spectrum of the frame.
    """
    power = np.exp(features)

    # The noise has the spectrum of the frame to a power below 1: louder where the speech is, and flatter.
    shape = power ** np.float32(shaping)
    noise = shape * random.standard_exponential(features.shape, np.float32)
    noise *= power.mean(axis=1, keepdims=True) / shape.mean(axis=1, keepdims=True) * np.float32(10 ** (-ratio / 10))
    noise += power
    return np.log(noise, out=noise)


def digital_silence(features: FeatureSettings, frames: int) -> Array:
    """The features of samples that are zero, float32 [frames, bins].

    >>> digital_silence(FeatureSettings(mels=8, log_floor=np.exp(-2)), 1).round(3).tolist()
    [[-2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0]]
    """
    around = features.context  # frames at the ends have no neighbors to be stacked with
    computed = compute_features(np.zeros((frames + 2 * around) * features.hop_length), features)
    return np.asarray(computed[around : around + frames], np.float32)


def bin_centers(features: FeatureSettings) -> npt.NDArray[np.float64]:
    """The frequency in Hz at which the weight of each bin is centered, [bins]."""
    hertz = np.linspace(0, features.sample_rate / 2, features.fft_bins)
    if features.kind == "linear":
        return hertz
    weights = mel_filterbank(features).astype(np.float64)
    centers: npt.NDArray[np.float64] = hertz @ weights / np.maximum(weights.sum(axis=0), 1e-12)
    return centers


def band_response(
    hertz: npt.NDArray[np.float64], edges: tuple[float, float], slopes: Sequence[float]
) -> npt.NDArray[np.float64]:
    """The response of a band limit, in dB: 0 between both edges, and falling by a slope beyond each.

    Args:
      edges: Hz.
      slopes: dB per octave, below and above.

    >>> band_response(np.array([100.0, 200.0, 1000.0, 8000.0]), (200.0, 4000.0), (12.0, 24.0)).tolist()
    [-12.0, 0.0, 0.0, -24.0]
    """

    # Octaves beyond each edge.
    below = np.log2(np.maximum(edges[0] / np.maximum(hertz, 1.0), 1.0))
    above = np.log2(np.maximum(hertz / edges[1], 1.0))
    response: npt.NDArray[np.float64] = 0.0 - slopes[0] * below - slopes[1] * above
    return response


def _places(positions: npt.NDArray[np.float64], size: int) -> tuple[npt.NDArray[np.int64], Array]:
    """The places to the left of positions among `size`, and how far the positions are to the next."""
    left = np.minimum(positions.astype(np.int64), size - 1)
    return left, (positions - left).astype(np.float32)


def _random_factor(limit: float, random: np.random.Generator) -> float:
    """A random factor between 1 / (1 + limit) and 1 + limit, as often above 1 as below."""
    return float(np.exp(random.uniform(-1, 1) * np.log1p(limit)))


def _random_span(size: int, share: float, random: np.random.Generator) -> tuple[int, int]:
    """Start and end of a random span of up to `share` of `size`."""
    length = int(random.integers(0, int(size * share) + 1))
    start = int(random.integers(0, size - length + 1))
    return start, start + length

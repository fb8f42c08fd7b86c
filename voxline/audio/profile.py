"""What a recording sounds like, in a few numbers that do not depend on what is said: level, noise and spectrum."""

import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt

from voxline.audio.loudness import level_and_snr

BAND_EDGES = (80, 250, 500, 1000, 2000, 3000, 4000, 6000, 8000)
"""Hz. About two bands an octave where speech is, and the two that a telephone cuts off."""
_FLOOR = -90.0
_FRAME_SECONDS = 0.032


@dataclasses.dataclass(frozen=True, slots=True)
class AudioProfile:
    """Measurements of a recording's sound.

    Attributes:
      level_db: RMS level, in dB of full scale.
      snr_db: an estimate of the signal-to-noise ratio; see `level_and_snr`.
      bands_db: the power in each band of `BAND_EDGES` below half the sample rate, in dB of the whole; -90 at least.
    """

    level_db: float
    snr_db: float
    bands_db: list[float]


def audio_profile(samples: npt.NDArray[np.float32], sample_rate: int) -> AudioProfile:
    """Measures a recording.

    Args:
      samples: float32 `[samples]`, full scale 1.
      sample_rate: Hz.

    >>> time = np.arange(16_000) / 16_000
    >>> audio_profile(np.sin(2 * np.pi * 5_000 * time).astype(np.float32), 16_000).bands_db
    [-90.0, -90.0, -90.0, -90.0, -90.0, -90.0, 0.0, -90.0]
    """
    level, snr = level_and_snr(samples, sample_rate)
    return AudioProfile(round(float(level), 2), round(float(snr), 2), _band_levels(samples, sample_rate))


def _band_levels(samples: npt.NDArray[np.float32], sample_rate: int) -> list[float]:
    size = round(_FRAME_SECONDS * sample_rate)

    # At least one frame, [frames, size]
    padded = np.concatenate([samples, np.zeros(max(size - len(samples), 0), np.float32)])
    frames = padded[: len(padded) // size * size].reshape(-1, size) * np.hanning(size).astype(np.float32)

    # [size // 2 + 1] mean power of each bin
    power = (np.abs(np.fft.rfft(frames, axis=1)) ** 2).mean(axis=0)
    hertz = np.fft.rfftfreq(size, 1 / sample_rate)
    edges = [edge for edge in BAND_EDGES if edge <= sample_rate / 2]
    whole = max(float(power.sum()), 1e-20)

    # A band that half the sample rate cuts is left out: it would look empty.
    shares = [float(power[(hertz >= low) & (hertz < high)].sum()) / whole for low, high in itertools.pairwise(edges)]
    return [round(max(10 * math.log10(max(share, 1e-12)), _FLOOR), 2) + 0.0 for share in shares]

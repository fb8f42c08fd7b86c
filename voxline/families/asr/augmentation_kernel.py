"""The loops of `augmentation`, compiled by numba: frame by frame, and with the interpreter left to other threads."""

from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.inference.compiled import compiled

Array = npt.NDArray[np.float32]


def _smear(power: Array, share: np.float32, decay: np.float32, rest: np.float32) -> None:
    """See `smear_power`; `power` float32 [frames, bins] is changed, `rest` is 1 - decay."""
    frames, bins = power.shape
    energy = np.zeros(bins, np.float32)
    for frame in range(frames):
        for place in range(bins):
            value = power[frame, place]
            power[frame, place] = value + share * energy[place]
            energy[place] = decay * energy[place] + rest * value


def _interpolate_frames(rows: Array, left: Any, weights: Array) -> Array:
    """Between frames `left` [frames'] int64 and the next ones, by weights float32 [frames'] of these."""
    bins = rows.shape[1]
    interpolated = np.empty((len(left), bins), np.float32)
    for frame in range(len(left)):
        first = left[frame]
        second = min(first + 1, len(rows) - 1)
        weight = weights[frame]
        for place in range(bins):
            interpolated[frame, place] = rows[first, place] * (1 - weight) + rows[second, place] * weight
    return interpolated


def _interpolate_bins(rows: Array, left: Any, weights: Array) -> Array:
    """The same along the bins."""
    frames, bins = rows.shape
    interpolated = np.empty((frames, len(left)), np.float32)
    for frame in range(frames):
        for place in range(len(left)):
            first = left[place]
            second = min(first + 1, bins - 1)
            weight = weights[place]
            interpolated[frame, place] = rows[frame, first] * (1 - weight) + rows[frame, second] * weight
    return interpolated


def _add_scaled(power: Array, noise: Any, color: Any, scale: float) -> None:
    """Adds noise float64 [frames, bins], times a factor for each bin and one for all, to power."""
    frames, bins = power.shape
    for frame in range(frames):
        for place in range(bins):
            power[frame, place] += np.float32(noise[frame, place] * color[place] * scale)


smear = compiled(_smear, nogil=True)
interpolate_frames = compiled(_interpolate_frames, nogil=True)
interpolate_bins = compiled(_interpolate_bins, nogil=True)
add_scaled = compiled(_add_scaled, nogil=True)

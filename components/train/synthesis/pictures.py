"""What a person sees and hears of a synthesis while the voice is learning."""

import numpy as np
import numpy.typing as npt

from components.speech.feature_settings import FeatureSettings
from components.speech.griffin_lim import waveform

Values = npt.NDArray[np.floating]
Image = npt.NDArray[np.uint8]
COLOURS = np.array([[0, 0, 4], [80, 18, 123], [182, 54, 121], [251, 136, 97], [252, 253, 191]], np.float64)
"""From low to high, evenly spaced: dark to light, so that it reads in grey too."""
SCALE = 3
"""Pixels a value, either way."""
ITERATIONS = 20
"""Of Griffin-Lim: enough to hear what goes wrong."""


def picture(values: Values, lowest: float | None = None, highest: float | None = None) -> Image:
    """Time from left to right, bins or symbols from bottom to top.

    Args:
      values: [time, bins].
      lowest, highest: the ends of the colours; empty: those of the values.

    >>> picture(np.array([[0.0, 1.0]])).shape
    (6, 3, 3)
    """
    low = float(values.min()) if lowest is None else lowest
    high = float(values.max()) if highest is None else highest
    share = np.clip((values.T[::-1] - low) / max(high - low, 1e-9), 0, 1) * (len(COLOURS) - 1)
    left = np.minimum(share.astype(int), len(COLOURS) - 2)
    weight = (share - left)[..., None]
    image = (COLOURS[left] * (1 - weight) + COLOURS[left + 1] * weight).astype(np.uint8)
    enlarged: Image = image.repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    return enlarged


def side_by_side(made: Values, recorded: Values) -> Image:
    """Made above recorded, in the colours of the recorded one, a light line between."""
    low, high = float(recorded.min()), float(recorded.max())
    images = [picture(values, low, high) for values in (made, recorded)]
    width = max(image.shape[1] for image in images)
    padded = [np.pad(image, ((0, 0), (0, width - image.shape[1]), (0, 0))) for image in images]
    return np.concatenate([padded[0], np.full((SCALE, width, 3), 255, np.uint8), padded[1]])


def sound(part: Values, features: FeatureSettings, power: float = 1.0) -> npt.NDArray[np.float32]:
    """A waveform of raw features, float32 [samples], never louder than 1."""
    made = waveform(np.asarray(part, np.float32), features, iterations=ITERATIONS, power=power)
    loudest = float(np.abs(made).max(initial=0.0))
    return made / np.float32(loudest) if loudest > 1 else made

"""Mean and deviation of each bin, from sums in float64 that can be added in any grouping."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from components.speech.spectra import Array

SMALLEST_DEVIATION = 1e-4
"""A bin that varies by less (an empty mel band, digital silence) is given the deviation 1: models divide by it."""


@dataclasses.dataclass(frozen=True)
class Sums:
    """Of the frames of some recordings: how many, the sum of each bin and of its square, float64 `[bins]`."""

    frames: int
    total: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]

    @classmethod
    def of_nothing(cls, bins: int) -> "Sums":
        return cls(0, np.zeros(bins), np.zeros(bins))

    @classmethod
    def of(cls, made: Array) -> "Sums":
        """Sums over features `[frames, bins]`."""
        exact = made.astype(np.float64)
        return cls(len(made), exact.sum(axis=0), np.einsum("fb,fb->b", exact, exact))

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.frames + other.frames, self.total + other.total, self.squares + other.squares)

    def mean_and_deviation(self) -> tuple[list[float], list[float]]:
        """Per bin. Of nothing: zeros and ones, which normalise nothing.

        Rounded to eight digits (float32, in which they are used, has seven): the order in which a runner adds does
        not show.

        >>> Sums.of(np.array([[1, 5], [3, 5]], np.float32)).mean_and_deviation()
        ([2.0, 5.0], [1.0, 1.0])
        """
        if not self.frames:
            return [0.0] * len(self.total), [1.0] * len(self.total)
        mean = self.total / self.frames
        deviation = np.sqrt(np.maximum(self.squares / self.frames - mean**2, 0))
        deviation[deviation < SMALLEST_DEVIATION] = 1.0
        return [float(f"{value:.8g}") for value in mean], [float(f"{value:.8g}") for value in deviation]

    def plain(self) -> dict[str, Any]:
        return {"frames": self.frames, "total": self.total.tolist(), "squares": self.squares.tolist()}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Sums":
        return cls(values["frames"], np.array(values["total"]), np.array(values["squares"]))

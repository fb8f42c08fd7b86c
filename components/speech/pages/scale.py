"""The axis of a plot: which round values stand on it, and how they are written."""

import dataclasses
import functools
import math


@dataclasses.dataclass(frozen=True)
class Scale:
    """One axis: its ends, and how its values are told.

    Attributes:
      whole: values are whole numbers, so ticks are too.
      most: ticks, about; none where it is 0.
    """

    low: float
    high: float
    percent: bool = False
    whole: bool = False
    most: int = 6

    @classmethod
    def around(cls, low: float, high: float, margin: float = 0.04, **how: bool) -> "Scale":
        """The scale on which these values have room at both ends.

        >>> Scale.around(3.0, 3.0).ends
        (2.46, 3.54)
        """
        if not high - low > 1e-9 * max(abs(low), abs(high), 1e-290):
            room = 0.5 * max(1.0, abs(low) * 1e-3)
            low, high = low - room, high + room
        room = margin * (high - low)
        return cls(low - room, high + room, **how)

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    @functools.cached_property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values between the ends, and how they are written.

        >>> Scale(0, 0.31, percent=True).ticks[:2], Scale(-1, 1400).ticks[-1]
        ([(0.0, '0%'), (0.1, '10%')], (1250.0, '1,250'))
        """
        if not self.most:
            return []
        step = _round_step((self.high - self.low) / self.most)
        if self.whole:
            step = max(1.0, math.ceil(step))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(place * step, self._told(place * step, step)) for place in range(first, last + 1)]

    def _told(self, value: float, step: float) -> str:
        if abs(value) < step / 2:
            value = 0.0
        shown = step * 100 if self.percent else step
        decimals = next((some for some in range(5) if abs(round(shown, some) - shown) < 1e-6 * shown), None)
        if self.percent:
            return f"{value:.{decimals or 0}%}".replace("-", "−")
        if decimals is None or abs(value) >= 1e6:
            return f"{value:.4g}".replace("-", "−")
        return f"{value:,.{decimals}f}".replace("-", "−")


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))

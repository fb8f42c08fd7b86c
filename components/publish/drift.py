"""How the features of one dataset lie to those of another: mean and deviation per bin, no shard is read."""

import dataclasses
import math

from components.speech.dataset import Dataset

NOTABLE = 0.1
"""Deviations of shift, or share of another deviation, from which on a model hears other features than it was told."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """What changed of the statistics of the training split.

    Attributes:
      shift: per bin, how far the mean moved, in deviations of the dataset before.
      spread: per bin, the deviation after over that before.
    """

    shift: list[float]
    spread: list[float]

    @property
    def furthest(self) -> int:
        """The bin whose mean moved most."""
        return max(range(len(self.shift)), key=lambda bin: abs(self.shift[bin]))

    @property
    def widest(self) -> int:
        """The bin whose deviation changed most."""
        return max(range(len(self.spread)), key=lambda bin: abs(math.log(max(self.spread[bin], 1e-9))))

    @property
    def notable(self) -> bool:
        return abs(self.shift[self.furthest]) > NOTABLE or abs(self.spread[self.widest] - 1) > NOTABLE

    def told(self) -> str:
        """In words, the bins that changed most."""
        moved, widened = self.furthest, self.widest
        return (
            f"means moved by at most {self.shift[moved]:+.3f} deviations (bin {moved}), deviations changed by at most "
            f"{self.spread[widened] - 1:+.1%} (bin {widened})" + ("; that is a lot" if self.notable else "")
        )


def drift(before: Dataset, after: Dataset) -> Drift | None:
    """The drift from one dataset to another; None where their features are made otherwise, or nothing moved.

    Bins that do not vary have none.
    """
    if before.features != after.features or not before.mean or len(before.mean) != len(after.mean):
        return None
    columns = zip(before.mean, before.deviation, after.mean, after.deviation, strict=True)
    pairs = [((to - mean) / by, to_by / by) if by > 0 else (0.0, 1.0) for mean, by, to, to_by in columns]
    found = Drift([shift for shift, _ in pairs], [spread for _, spread in pairs])
    return found if any(shift or spread != 1 for shift, spread in pairs) else None

"""How sure one may be of a figure that was measured on so many utterances, and of the difference of two models.

Every figure is a ratio of two sums over utterances: errors over words (a rate), or values over their number (a
mean). Its interval is a percentile bootstrap over utterances, or over speakers where there are enough of them:
what one speaker says falls together, and resampling it apart would promise too much (Bisani and Ney 2004,
"Bootstrap estimates for confidence intervals in ASR performance evaluation").
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from voxline.errors import WorkError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


MIN_UNITS = 5
"""With fewer utterances (or speakers) than this a bootstrap says nothing; the interval is all there is."""

MetricKind = Literal["rate", "mean"]
"""rate: whole numbers of events among so many chances. mean: any numbers, each with weight 1 (0: not measured)."""


class SumAndWeight(NamedTuple):
    """What one utterance adds to a figure: `value` to the sum above, `weight` to the one below."""

    value: float
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """Where the true figure (or difference of two) lies; infinite ends where nothing is known.

    Attributes:
      over: what was resampled, "utterances" or "speakers".
      units: how many of them.
    """

    low: float
    high: float
    over: str
    units: int

    def plain(self) -> dict[str, Any]:
        """As JSON, which has no infinity: null stands for it."""
        ends = {name: end if math.isfinite(end) else None for name, end in (("low", self.low), ("high", self.high))}
        return {**ends, "over": self.over, "units": self.units}


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A challenger against a champion on the same utterances; positive is a higher figure.

    Attributes:
      difference: challenger's figure less the champion's.
      interval: of the difference, two-sided.
      lowest, highest: one-sided bounds: the difference is above `lowest`, and below `highest`, each with the
        stated confidence. Where a challenger's rate was nowhere higher no resample can show that it is; what so many
        words leave open (the exact binomial bound, as in `Bootstrap.interval`) is then added to the upper bounds.
      probability_worse: share of resamples in which the challenger's figure is higher; ties count half.
    """

    difference: float
    interval: Interval
    lowest: float
    highest: float
    probability_worse: float

    def plain(self) -> dict[str, Any]:
        bounds = {"lowest": self.lowest, "highest": self.highest}
        return {
            "difference": self.difference,
            "interval": self.interval.plain(),
            **{name: bound if math.isfinite(bound) else None for name, bound in bounds.items()},
            "probability_worse": self.probability_worse,
        }


def aggregate(parts: Sequence[SumAndWeight], kind: MetricKind = "rate") -> float | None:
    """The figure of some utterances; None where a mean was measured of none.

    A rate without chances counts its events as if against one.

    >>> (
    ...     aggregate([SumAndWeight(1, 4), SumAndWeight(0, 6)]),
    ...     aggregate([SumAndWeight(2, 0)]),
    ...     aggregate([SumAndWeight(3.5), SumAndWeight(0, 0)], "mean"),
    ... )
    (0.1, 2.0, 3.5)
    """
    value, weight = math.fsum(part.value for part in parts), math.fsum(part.weight for part in parts)
    if kind == "mean" and not weight:
        return None
    return value / max(weight, 1)


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
      confidence: of an interval, 0.95 for instance.
      samples: resamples drawn.
      seed: of the resamples; the same data and seed give the same interval.
      fewest_speakers: from so many on, speakers are resampled in place of utterances.

    >>> Bootstrap(samples=500).interval([SumAndWeight(n % 2, 4) for n in range(40)], [""] * 40)
    Interval(low=0.0875, high=0.1625, over='utterances', units=40)
    """

    confidence: float = 0.95
    samples: int = 2000
    seed: int = 0
    fewest_speakers: int = 10

    def interval(self, parts: Sequence[SumAndWeight], speakers: Sequence[str], kind: MetricKind = "rate") -> Interval:
        """The interval of a figure.

        Where not one event of a rate was seen every resample says 0; the upper end is then the exact binomial bound
        for so many words without an error, 3.7 / words at 95% ("rule of three").
        """
        import numpy as np

        kept = [place for place, part in enumerate(parts) if kind == "rate" or part.weight]
        found = np.array([parts[place] for place in kept], np.float64).reshape(-1, 2)
        over, units = self._units(found, [speakers[place] for place in kept])
        if len(units) < MIN_UNITS:
            if kind == "mean":
                return Interval(-math.inf, math.inf, over, len(units))
            return Interval(0.0, max(1.0, aggregate(parts) or 0.0), over, len(units))
        tail = (1 - self.confidence) / 2
        if kind == "rate" and not units[:, 0].any():
            return Interval(0.0, _unseen(tail, units[:, 1]), over, len(units))
        (figures,) = self._resampled(units)
        low, high = np.quantile(figures, [tail, 1 - tail])
        return Interval(float(low), float(high), over, len(units))

    def compare(
        self,
        challenger: Sequence[SumAndWeight],
        champion: Sequence[SumAndWeight],
        speakers: Sequence[str],
        kind: MetricKind = "rate",
    ) -> Comparison:
        """Compares two models, utterance by utterance; a mean on those where both were measured.

        Raises:
          WorkError: two rates were not measured against the same references.
        """
        import numpy as np

        same = len(challenger) == len(champion)
        if not same or (kind == "rate" and [one.weight for one in challenger] != [one.weight for one in champion]):
            raise WorkError("two models can be compared on the same utterances only; evaluate both on one test split")
        pairs = list(zip(challenger, champion, strict=True))
        kept = [place for place, (one, other) in enumerate(pairs) if kind == "rate" or (one.weight and other.weight)]
        found = np.array([[*pairs[place][0], *pairs[place][1]] for place in kept], np.float64).reshape(-1, 4)
        whole = found.sum(axis=0)
        point = float(whole[0] / max(whole[1], 1) - whole[2] / max(whole[3], 1))
        over, units = self._units(found, [speakers[place] for place in kept])
        if len(units) < MIN_UNITS:
            widest = max(1.0, abs(point)) if kind == "rate" else math.inf
            return Comparison(point, Interval(-widest, widest, over, len(units)), -widest, widest, 0.5)
        one, other = self._resampled(units)
        resampled = one - other
        tail = (1 - self.confidence) / 2
        low, high, lowest, highest = np.quantile(resampled, [tail, 1 - tail, 1 - self.confidence, self.confidence])
        if kind == "rate" and not (units[:, 0] > units[:, 2]).any():
            high += _unseen(tail, units[:, 1])
            highest += _unseen(1 - self.confidence, units[:, 1])
        worse = float((resampled > 0).mean() + (resampled == 0).mean() / 2)
        interval = Interval(float(low), float(high), over, len(units))
        return Comparison(point, interval, float(lowest), float(highest), worse)

    def _units(self, found: "Floats", speakers: Sequence[str]) -> tuple[str, "Floats"]:
        """What is resampled: utterances, or the sums of each speaker where there are enough and all are known."""
        import numpy as np

        names, index = np.unique(np.array(speakers, dtype=str), return_inverse=True)
        if len(names) < self.fewest_speakers or "" in names:
            return "utterances", found
        return "speakers", np.stack([np.bincount(index, weights=column) for column in found.T], axis=1)

    def _resampled(self, units: "Floats") -> list["Floats"]:
        """The ratio of columns 0 and 1, of 2 and 3, … in each resample, float64 [samples] each.

        All from the same draws; in blocks, so that memory stays within some 100 MB.
        """
        import numpy as np

        random = np.random.default_rng(self.seed)
        block = max(1, 4_000_000 // len(units))
        blocks = []
        for start in range(0, self.samples, block):
            drawn = random.integers(len(units), size=(min(block, self.samples - start), len(units)))
            sums = [column[drawn].sum(axis=1) for column in units.T]
            pairs = zip(sums[::2], sums[1::2], strict=True)
            blocks.append([above / np.maximum(below, 1) for above, below in pairs])
        return [np.concatenate(columns) for columns in zip(*blocks, strict=True)]


def _unseen(tail: float, chances: "Floats") -> float:
    """The highest rate with which nothing is seen in so many chances, but for a probability of `tail`."""
    return float(1 - tail ** (1 / max(int(chances.sum()), 1)))

"""Bootstrap confidence intervals of a metric on a test split, and of the difference of two models.

Every metric is a ratio of two sums over utterances: errors over words (a rate), or values over their number (a
mean). Its interval is a percentile bootstrap over utterances, or over speakers if there are enough of them: a
speaker's utterances are correlated, and resampling them separately would give too narrow an interval (Bisani and Ney
2004, "Bootstrap estimates for confidence intervals in ASR performance evaluation").
"""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from voxline.errors import WorkError
from voxline.store.versioned_json import FilePart

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


MIN_UNITS = 5
"""With fewer utterances (or speakers) than this a bootstrap tells nothing; the interval is the widest possible."""

RESAMPLES_IN_TAIL = 20
"""With fewer resamples than this beyond a bound, their order says little about it."""

MetricKind = Literal["rate", "mean"]
"""rate: a count of events over a count of chances. mean: any numbers, each with weight 1, or
another one of a ratio of two means (0: not measured)."""


class SumAndWeight(NamedTuple):
    """The share of one utterance in a metric: `sum` to the numerator, `weight` to the denominator."""

    sum: float
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a metric, or of the difference of two; infinite ends if nothing is known.

    Attributes:
      over: what was resampled, "utterances" or "speakers".
      units: how many of them.
    """

    low: float
    high: float
    over: str
    units: int


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A challenger against a champion on the same utterances. A positive difference is worse.

    Attributes:
      difference: the challenger's metric minus the champion's; reversed for a metric that is better higher.
      interval: of the difference, two-sided.
      lowest, highest: one-sided bounds, each with the stated confidence: the difference is above `lowest` and below
        `highest`. If the challenger's rate is higher on no utterance, no resample can show that it is; the exact
        binomial bound for that many words (see `Bootstrap.interval`) is then added to the upper bounds.
      probability_worse: share of resamples in which the challenger is worse; ties count half.
    """

    difference: float
    interval: Interval
    lowest: float
    highest: float
    probability_worse: float


def aggregate(values: Sequence[SumAndWeight], kind: MetricKind = "rate") -> float | None:
    """The metric over some utterances; None for what none of them was measured for: no weight, and no event.

    A rate without chances counts its events as if against one.

    >>> aggregate([SumAndWeight(1, 4), SumAndWeight(0, 6)]), aggregate([SumAndWeight(2, 0)])
    (0.1, 2.0)
    >>> print(aggregate([SumAndWeight(0, 0)]))
    None
    >>> aggregate([SumAndWeight(3.5), SumAndWeight(0, 0)], "mean")
    3.5
    """
    # `fsum` is exact, so the order of utterances does not change the last digits.
    total = math.fsum(value.sum for value in values)
    weight = math.fsum(value.weight for value in values)
    if not weight and (kind == "mean" or not total):
        return None
    return total / max(weight, 1)


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """Computes intervals by resampling.

    Attributes:
      confidence: of an interval, such as 0.95.
      samples: number of resamples.
      seed: the same data and seed give the same interval.
      min_speakers: with this many speakers or more, speakers are resampled instead of utterances.

    >>> Bootstrap(samples=500).interval([SumAndWeight(n % 2, 4) for n in range(40)], [""] * 40)
    Interval(low=0.0875, high=0.1625, over='utterances', units=40)
    """

    confidence: float = 0.95
    samples: int = 2000
    seed: int = 0
    min_speakers: int = 10

    def interval(self, values: Sequence[SumAndWeight], speakers: Sequence[str], kind: MetricKind = "rate") -> Interval:
        """The interval of a metric.

        If a rate counts no event at all, every resample is 0. The upper end is then the exact binomial bound for that
        many words without an error, 3.7 / words at 95% ("rule of three").
        """
        import numpy as np

        # [units, 2] sums and weights; a mean leaves out utterances on which it was not measured.
        measured = [index for index, value in enumerate(values) if kind == "rate" or value.weight]
        table = np.array([values[index] for index in measured], np.float64).reshape(-1, 2)
        over, units = self._units(table, [speakers[index] for index in measured])
        if len(units) < MIN_UNITS:
            if kind == "mean":
                return Interval(-math.inf, math.inf, over, len(units))
            return Interval(0.0, max(1.0, aggregate(values) or 0.0), over, len(units))

        # An equal tail on either side.
        tail = (1 - self.confidence) / 2
        if kind == "rate" and not units[:, 0].any():
            return Interval(0.0, _binomial_bound(tail, units[:, 1]), over, len(units))
        (resampled,) = self._resample(units)
        low, high = np.quantile(resampled, [tail, 1 - tail])
        return Interval(float(low), float(high), over, len(units))

    def compare(
        self,
        challenger: Sequence[SumAndWeight],
        champion: Sequence[SumAndWeight],
        speakers: Sequence[str],
        kind: MetricKind = "rate",
        *,
        sign: int = 1,
    ) -> Comparison:
        """Compares two models, utterance by utterance; a mean on the utterances that both were measured on.

        Args:
          sign: -1 for a metric that is better higher, so that a positive difference is worse.

        Raises:
          WorkError: the references of two rates differ.
        """
        import numpy as np

        # Weights are reference words: equal ones mean the same references in the same order.
        same = len(challenger) == len(champion)
        if not same or (
            kind == "rate"
            and [challenger_pair.weight for challenger_pair in challenger]
            != [challenger_pair.weight for challenger_pair in champion]
        ):
            raise WorkError("two models can be compared on the same utterances only; evaluate both on one test split")
        pairs = list(zip(challenger, champion, strict=True))
        paired = [
            index
            for index, (challenger_pair, other) in enumerate(pairs)
            if kind == "rate" or (challenger_pair.weight and other.weight)
        ]

        # [utterances, 4]: sum and weight of the challenger, sum and weight of the champion
        table = np.array([[*pairs[index][0], *pairs[index][1]] for index in paired], np.float64).reshape(-1, 4)
        table[:, [0, 2]] *= sign
        total = table.sum(axis=0)
        point = float(total[0] / max(total[1], 1) - total[2] / max(total[3], 1))
        over, units = self._units(table, [speakers[index] for index in paired])

        # Too few to resample: nothing is known, so the interval is the widest that there can be.
        if len(units) < MIN_UNITS:
            widest = max(1.0, abs(point)) if kind == "rate" else math.inf
            return Comparison(point, Interval(-widest, widest, over, len(units)), -widest, widest, 0.5)

        # One draw for both models: what is hard for both cancels out of the difference.
        challenger_pair, other = self._resample(units)
        difference = challenger_pair - other
        tail = (1 - self.confidence) / 2
        low, high, lowest, highest = np.quantile(difference, [tail, 1 - tail, 1 - self.confidence, self.confidence])

        # A tail that few resamples are in is taken from their standard deviation, unless the few are further out.
        if (1 - self.confidence) * self.samples < RESAMPLES_IN_TAIL:
            distance = NormalDist().inv_cdf(self.confidence) * float(difference.std())
            lowest = min(lowest, point - distance)
            highest = max(highest, point + distance)

        # Every resample would say "not worse", however few words there are: add what that many words cannot exclude.
        if kind == "rate" and not (units[:, 0] > units[:, 2]).any():
            high += _binomial_bound(tail, units[:, 1])
            highest += _binomial_bound(1 - self.confidence, units[:, 1])
        worse = float((difference > 0).mean() + (difference == 0).mean() / 2)
        interval = Interval(float(low), float(high), over, len(units))
        return Comparison(point, interval, float(lowest), float(highest), worse)

    def _units(self, table: "Floats", speakers: Sequence[str]) -> tuple[str, "Floats"]:
        """The rows to resample: utterances, or the sums of each speaker if there are enough and all are known."""
        import numpy as np

        names, index = np.unique(np.array(speakers, dtype=str), return_inverse=True)
        if len(names) < self.min_speakers or "" in names:
            return "utterances", table

        # [speakers, columns]
        return "speakers", np.stack([np.bincount(index, weights=column) for column in table.T], axis=1)

    def _resample(self, units: "Floats") -> list["Floats"]:
        """The ratio of columns 0 and 1, of 2 and 3, … in each resample, float64 [samples] each.

        All come from the same draws, in blocks that take about 100 MB at most.
        """
        import numpy as np

        random = np.random.default_rng(self.seed)

        # At least one resample a block, however large the split.
        block = max(1, 4_000_000 // len(units))
        blocks = []
        for start in range(0, self.samples, block):
            # [resamples of the block, units] indices, with replacement
            drawn = random.integers(len(units), size=(min(block, self.samples - start), len(units)))
            # [resamples of the block] for each column
            sums = [column[drawn].sum(axis=1) for column in units.T]
            pairs = zip(sums[::2], sums[1::2], strict=True)
            blocks.append([above / np.maximum(below, 1) for above, below in pairs])
        return [np.concatenate(columns) for columns in zip(*blocks, strict=True)]


class BootstrapInfo(FilePart, forbid_unknown_fields=False):
    """A `Bootstrap` in metrics.json; every key is needed."""

    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    samples: Annotated[int, msgspec.Meta(ge=1)]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    min_speakers: Annotated[int, msgspec.Meta(ge=1)]

    @classmethod
    def of(cls, bootstrap: Bootstrap) -> "BootstrapInfo":
        return cls(**dataclasses.asdict(bootstrap))


def _binomial_bound(tail: float, chances: "Floats") -> float:
    """The highest rate at which that many chances bring no event with a probability of `tail`."""
    return float(1 - tail ** (1 / max(int(chances.sum()), 1)))

"""How much worse a model may be, where few utterances tell it from another one: an exact paired test.

Two models err on the same recordings. The new one makes b errors that the other does not make, and corrects c of the
other's; what both do says nothing of the difference. b and c are Poisson counts with the means x + m and x, where m is
the excess of errors of the new model, and x a number that nobody knows. "It is worse by m or more" is refused at a
level α if outcomes at least as good as the measured one have a probability of α at most, whatever x is. Outcomes are
ordered by the score statistic

  T = (b - c - m) / sqrt(2 x̂ + m),   x̂ the most probable x for that outcome and m

With m = 0 this is McNemar's test without its approximation. The highest m that is not refused is the upper bound. With
no error more and none less it is ln(1/α), the rule of three; a corrected error counts for the model.

Resampling cannot do this: it draws no outcome but those that were seen, so it needs many of them.

Words that go wrong together, in an utterance or with a speaker, are no independent errors. Counts and chances are
divided by the design effect of the differences, which is their variance over that of as many independent errors. The
levels are those of errors that go wrong together as they did here: failures that are larger than any seen are likelier
to be missed (docs/decisions/0090-few-differences-many-nights.md has figures).

Before a model is judged, the same test says what a split can show: `least_margin`, `proposed_margin`.

Models of many nights are judged on the same recordings: each night has another chance to accept a worse one by luck.
`look_confidence` gives the k-th comparison with one model in service the error α / (k (k + 1)), which is α in all,
however many follow and however they depend on each other.

Sources: Nam, "Establishing equivalence of two treatments and sample size requirements in matched-pairs design",
Biometrics 53, 1997, and Tango, "Equivalence test and confidence interval for the difference in proportions for the
paired-sample design", Statistics in Medicine 17, 1998 (score statistic); Hsueh, Liu and Chen, "Unconditional exact
tests for equivalence or noninferiority for paired binary endpoints", Biometrics 57, 2001; Berger and Boos, "P values
maximized over a confidence set for the nuisance parameter", JASA 89, 1994 (range of x); Rao and Scott, "A simple
method for the analysis of clustered binary data", Biometrics 48, 1992 (design effect); Tian and Ramdas, "Online
control of the familywise error rate", Statistical Methods in Medical Research 30, 2021 (α spending over hypotheses
that come one after the other).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from voxline.metrics.bootstrap import SumAndWeight

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEW_DIFFERENCES = 50
"""Differing utterances from which on resampling sees enough of them."""
EXPECTED_ERRORS = 0.02
"""Error rate that is assumed of models of which nothing is known yet."""
_MANY_ERRORS = 200
"""Errors more and less, from which on T is normally distributed."""
_GRID = 32
"""Values of x at which the probability is computed."""
_BISECTIONS = 16
"""Halvings of a range: enough for four digits."""


@dataclasses.dataclass(frozen=True)
class PairedCounts:
    """Errors of two models on the same utterances.

    Attributes:
      worse: b, errors that the new model alone makes, in independent ones.
      better: c, the same of the other model.
      chances: reference words, in independent ones.
      utterances: of the split.
      differing: utterances on which the models make another number of errors.
    """

    worse: int
    better: int
    chances: float
    utterances: int
    differing: int

    @classmethod
    def of(
        cls, challenger: Sequence[SumAndWeight], champion: Sequence[SumAndWeight], units: Sequence[str] | None = None
    ) -> "PairedCounts":
        """Counts the differences.

        Args:
          challenger, champion: errors and words of each utterance.
          units: what each utterance belongs to, such as its speaker, where utterances of one are not independent.

        >>> PairedCounts.of([SumAndWeight(1, 4), SumAndWeight(0, 6)], [SumAndWeight(0, 4), SumAndWeight(0, 6)])
        PairedCounts(worse=1, better=0, chances=10.0, utterances=2, differing=1)
        """
        differences = [new.sum - other.sum for new, other in zip(challenger, champion, strict=True)]
        names = range(len(differences)) if units is None else units
        net: dict[object, float] = {}
        for name, difference in zip(names, differences, strict=True):
            net[name] = net.get(name, 0.0) + difference

        # One more difference, as large as errors of an utterance are on average, stands for those that may come.
        wrong = [pair.sum for pair in (*challenger, *champion) if pair.sum > 0]
        usual = max(1.0, math.fsum(wrong) / len(wrong)) if wrong else 1.0
        changed = math.fsum(map(abs, differences))
        squares = math.fsum(value * value for value in net.values())
        effect = max(1.0, (squares + usual * usual) / (changed + usual))

        # Whole errors: rounded against the new model.
        more = math.fsum(value for value in differences if value > 0)
        less = -math.fsum(value for value in differences if value < 0)
        words = math.fsum(pair.weight for pair in challenger)
        return cls(
            math.ceil(more / effect - 1e-9),
            math.floor(less / effect + 1e-9),
            max(words, 1.0) / effect,
            len(differences),
            sum(value != 0 for value in differences),
        )

    def highest(self, confidence: float) -> float:
        """The upper bound of the difference of the two error rates, as a share."""
        bound = highest_excess(self.worse, self.better, 1 - confidence) / self.chances

        # Without insertions all words can be lost, and no more.
        return min(bound, max(1.0, (self.worse - self.better) / self.chances))

    def utterances_needed(self, margin: float, confidence: float) -> int | None:
        """How many utterances like these would show that the difference is within a margin; None if none would.

        The models are taken to differ on the others as they do on these.
        """
        if self.worse - self.better >= margin * self.chances:
            return None

        def shown(factor: float) -> bool:
            worse, better = round(factor * self.worse), round(factor * self.better)
            return highest_excess(worse, better, 1 - confidence) <= margin * factor * self.chances

        # The bound falls with the root of the number: doubled until it is met, and then searched between.
        high = 1.0
        while not shown(high):
            high *= 2
            if high > 1e6:
                return None
        low = high / 2
        for _ in range(6):
            middle = (low + high) / 2
            low, high = (low, middle) if shown(middle) else (middle, high)
        return math.ceil(high * self.utterances)


@functools.lru_cache(maxsize=4096)
def highest_excess(worse: int, better: int, level: float) -> float:
    """The highest excess of errors, m, that is not refused at a level.

    Args:
      worse, better: b and c.
      level: α, in (0, 1).

    >>> round(highest_excess(0, 0, 0.05), 2), round(highest_excess(0, 2, 0.05), 2), round(highest_excess(1, 0, 0.05), 2)
    (3.0, 0.79, 4.74)
    """
    refused = _refuses_exactly if worse + better <= _MANY_ERRORS else _refuses_approximately

    # What was measured is never refused, and far above it every excess is.
    low = float(worse - better)
    high = low + 8 * math.sqrt(worse + better + 1) - 4 * math.log(level)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if refused(worse, better, middle, level) else (middle, high)
    return high


def p_value(worse: int, better: int, excess: float) -> float:
    """The probability of outcomes as good as this one, if the excess of errors is as given; the highest over all x.

    >>> round(p_value(0, 0, 3.0), 3), round(p_value(0, 2, 0.825), 3)
    (0.05, 0.049)
    """
    import numpy as np

    # x has an upper bound that the sum of both counts exceeds once in a million times; 0 is the lowest.
    total = worse + better
    highest = max(total + 5 * math.sqrt(total) + 16 - abs(excess), 0.0) / 2
    unknown = np.linspace(0, math.sqrt(highest), _GRID) ** 2
    mean_worse = unknown + max(excess, 0.0)
    mean_better = unknown + max(-excess, 0.0)

    # [b, c] outcomes that are as good, among all that are probable
    b, c = (np.arange(math.ceil(mean.max() + 8 * math.sqrt(mean.max() + 1) + 8)) for mean in (mean_worse, mean_better))
    good = _score(b[:, None], c[None], excess) <= _score(np.array(worse), np.array(better), excess) + 1e-9

    # [x] the sum of P(b) P(c) over these; einsum wakes no threads, as a product of such small matrices would
    probabilities = np.einsum("xb,bc,xc->x", _poisson(b, mean_worse), good.astype(np.float64), _poisson(c, mean_better))
    return float(min(1.0, probabilities.max()))


def least_margin(words: float, confidence: float) -> float:
    """The smallest margin that a split of so many words can show, by a model that is worse in none of them.

    >>> round(least_margin(165, 0.95), 4)
    0.0182
    """
    return min(1.0, -math.log(1 - confidence) / max(words, 1.0))


def proposed_margin(words: int, error_rate: float, confidence: float) -> float:
    """A margin that an equal model mostly shows within some nights.

    It is met by two models that make as many errors, half of them on other words, at the second comparison.

    Args:
      words: of the test split.
      error_rate: that the models are thought to have.
      confidence: `push.confidence`.

    >>> proposed_margin(165, 0.02, 0.95)
    0.044
    """
    differ = math.ceil(words * error_rate / 2)
    excess = highest_excess(differ, differ, 1 - look_confidence(confidence, 2))
    return min(1.0, math.ceil(1000 * excess / max(words, 1)) / 1000)


def look_confidence(confidence: float, look: int) -> float:
    """The confidence that the k-th comparison with one model in service needs, counted from 1.

    >>> [round(look_confidence(0.95, look), 4) for look in (1, 2, 3, 14)]
    [0.975, 0.9917, 0.9958, 0.9998]
    """
    return 1 - (1 - confidence) / (look * (look + 1))


def _refuses_exactly(worse: int, better: int, excess: float, level: float) -> bool:
    return p_value(worse, better, excess) <= level


def _refuses_approximately(worse: int, better: int, excess: float, level: float) -> bool:
    import numpy as np

    return float(_score(np.array(worse), np.array(better), excess)) <= NormalDist().inv_cdf(level)


def _score(b: "npt.NDArray[np.int64]", c: "npt.NDArray[np.int64]", excess: float) -> "Floats":
    """T of outcomes. x̂ solves b / (x + m) + c / x = 2, a quadratic equation."""
    import numpy as np

    linear = b + c - 2 * excess
    estimated = (linear + np.sqrt(np.maximum(linear**2 + 8 * c * excess, 0))) / 4
    variance = np.maximum(2 * estimated + excess, 1e-12)
    return np.asarray((b - c - excess) / np.sqrt(variance), np.float64)


def _poisson(counts: "npt.NDArray[np.int64]", means: "Floats") -> "Floats":
    """[means, counts] probabilities."""
    import numpy as np

    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])  # of 0, 1, 2, …
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = counts * np.log(means)[:, None] - means[:, None] - log_factorials
    # A mean of 0 has no event: 0 log 0 is 0.
    probabilities: Floats = np.where(means[:, None] == 0, counts == 0, np.exp(logs))
    return probabilities

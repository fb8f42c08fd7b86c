"""Tests of a difference between two arms that may be looked at after every request.

A request t is sent to the candidate with a known probability p (Z = 1), else to production, and a value y of it in
[0, 1] is measured; lower is better. Weighted by the inverse of the probability of its arm,

  d_t = (y_t - b_t) (Z_t / p - (1 - Z_t) / (1 - p))

has the expectation y_t(candidate) - y_t(production), whatever the requests are and however they change, if the
baseline b_t depends on earlier requests alone. A gambler who bets a fraction c of what he can lose on "the difference
is larger than the margin m" owns, after t requests,

  K_t(c) = Π (1 + c (d_i - m) / (l_i + m)),  -l_i the least value that d_i can have

which is a supermartingale where no request is expected to be worse by more than m. So is the mean over several c, and
by Ville's inequality it ever exceeds 1 / α with a probability of α at most. There is no number of requests after which
one has to look, nor a price for looking. The bet on "the difference is smaller than m" is its mirror image.

Sums of log K over servers are the log K of all requests, since each bet is on another request.

Sources: Ville, "Étude critique de la notion de collectif", 1939; Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting", JRSS B 86, 2024 (capital process, grid of bets); Waudby-Smith et al., "Anytime-valid
off-policy inference for contextual bandits", ACM/IMS J. Data Science 1, 2024 (inverse probability weights).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BETS = (0.01, 0.03, 0.06, 0.125, 0.25, 0.5, 0.75, 0.95)
"""Fractions c: small ones find small differences in noise, large ones find large differences soon."""
_LOG_LARGEST = 700.0
"""exp of more is no float."""


@dataclass
class ArmTally:
    """The measurements of one arm.

    Attributes:
      count: requests.
      total: sum of their values.
    """

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass
class SequentialTest:
    """Tests whether the candidate's mean is above production's by more than a margin, and whether it is below.

    Attributes:
      margin: m, in (0, 1).
      harm, safe: log K of each bet in `BETS`, that the difference is above and below the margin.
      production, candidate: what was measured.
    """

    margin: float
    harm: list[float] = field(default_factory=lambda: [0.0] * len(BETS))
    safe: list[float] = field(default_factory=lambda: [0.0] * len(BETS))
    production: ArmTally = field(default_factory=ArmTally)
    candidate: ArmTally = field(default_factory=ArmTally)

    def observe(self, value: float, share: float, *, chosen: bool) -> None:
        """Adds a request.

        Args:
          value: of the measure, 0 to 1.
          share: p, the probability with which the request could go to the candidate, in (0, 1).
          chosen: it did.
        """
        # Ville's inequality needs bounded values: what is outside of [0, 1] is clipped.
        value = min(max(value, 0.0), 1.0)
        baseline = self.production.mean or 0.0  # of earlier requests alone

        # Inverse probability weights make both arms estimate the same requests.
        weight = 1 / share if chosen else -1 / (1 - share)
        difference = (value - baseline) * weight

        # The bounds of the difference keep each factor of K positive.
        least = -max(baseline / share, (1 - baseline) / (1 - share))
        most = max((1 - baseline) / share, baseline / (1 - share))
        above = (difference - self.margin) / (self.margin - least)
        below = (self.margin - difference) / (most - self.margin)
        for index, bet in enumerate(BETS):
            self.harm[index] += math.log1p(bet * above)
            self.safe[index] += math.log1p(bet * below)

        # After the bets: the next request's baseline may know this one.
        arm = self.candidate if chosen else self.production
        arm.count += 1
        arm.total += value

    @property
    def harm_evidence(self) -> float:
        """K for "above the margin": more than 1 / α is significant."""
        return _mean_of_exp(self.harm)

    @property
    def safe_evidence(self) -> float:
        """K for "below the margin"."""
        return _mean_of_exp(self.safe)

    @property
    def is_measured(self) -> bool:
        """Returns whether both arms have values."""
        return bool(self.production.count and self.candidate.count)

    def plain(self) -> dict[str, Any]:
        """Returns plain values for JSON; `of` reads them."""
        arms = {name: [arm.count, arm.total] for name, arm in self._arms.items()}
        return {"margin": self.margin, "harm": self.harm, "safe": self.safe, **arms}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "SequentialTest":
        """
        Raises:
          KeyError, TypeError, ValueError: the values are not those of a test.
        """
        harm, safe = ([float(value) for value in values[name]] for name in ("harm", "safe"))

        # Values come from a file that several servers write: a list of another length is of another release.
        if not len(harm) == len(safe) == len(BETS) or not all(map(math.isfinite, [*harm, *safe])):
            raise ValueError(f"{len(BETS)} finite numbers are expected in `harm` and `safe`")
        arms = [ArmTally(int(values[name][0]), float(values[name][1])) for name in ("production", "candidate")]
        return cls(float(values["margin"]), harm, safe, *arms)

    @classmethod
    def merged(cls, tests: Iterable["SequentialTest"]) -> "SequentialTest":
        """The test of all requests of several servers, none of which two of them have seen.

        Raises:
          ValueError: there is none.
        """
        first, *further = tests
        total = cls.of(first.plain())
        for test in further:
            # Margins differ only while servers change from one setting to another.
            total.margin = min(total.margin, test.margin)
            for own, added in ((total.harm, test.harm), (total.safe, test.safe)):
                # Products of bets on different requests are sums of their logarithms.
                own[:] = [a + b for a, b in zip(own, added, strict=True)]
            for arm, other in zip(total._arms.values(), test._arms.values(), strict=True):
                arm.count = arm.count + other.count
                arm.total = arm.total + other.total
        return total

    @property
    def _arms(self) -> dict[str, ArmTally]:
        return {"production": self.production, "candidate": self.candidate}


def mean_harm(tests: Iterable[SequentialTest]) -> float:
    """The evidence that the candidate is worse in at least one of several measures.

    The mean of such evidence is evidence again, whatever the measures have to do with each other: over all of them
    together it exceeds 1 / α with a probability of α at most where none is worse.
    """
    evidence = [test.harm_evidence for test in tests]

    # Divided before the sum: the sum of the largest would overflow.
    return math.fsum(value / len(evidence) for value in evidence)


def _mean_of_exp(logs: list[float]) -> float:
    # Subtracting the largest keeps the sum from overflowing.
    largest = max(logs)
    return math.exp(min(largest, _LOG_LARGEST)) * math.fsum(math.exp(value - largest) for value in logs) / len(logs)

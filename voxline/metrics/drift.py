"""Whether new recordings differ from those that a model was judged on, in what, and by how much.

Each statistic is replaced by its rank among all clips, so that an outlier is one clip. The effect is the probability
that a new clip has a higher value than a reference clip (the area under the ROC curve): 0.5 is no difference.

Two conditions make an alarm. The difference must not be chance: a permutation test of all statistics at once, by the
largest standardized difference (Westfall and Young, "Resampling-based multiple testing", 1993), so that the share of
false alarms is held over all of them together. And it must be larger than what two groups of the test split's speakers
differ by: with thousands of clips the smallest difference is not chance, and clips of one speaker are alike.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

MIN_EFFECT = 0.1
"""Of the probability, from 0.5, of a statistic that is measured."""
MIN_RATE_CHANGE = 0.03
"""Of a share of clips."""
_SPEAKER_DEVIATIONS = 3.0
_CHUNK = 200


@dataclasses.dataclass(frozen=True)
class Shift:
    """One statistic of new clips, beside that of the reference.

    Attributes:
      name: of the statistic.
      before, now: means.
      probability: that a new clip has a higher value than a reference clip, ties shared.
      p_value: of such a difference in any statistic by chance.
      allowed: how far from 0.5 the probability may be.
      drifted: whether it is an alarm.
    """

    name: str
    before: float
    now: float
    probability: float
    p_value: float
    allowed: float
    drifted: bool


def find_shifts(
    reference: Mapping[str, Sequence[float]],
    new: Mapping[str, Sequence[float]],
    speakers: Sequence[str],
    new_speakers: Sequence[str] = (),
    *,
    rates: Sequence[str] = (),
    alpha: float = 0.01,
    permutations: int = 2000,
    seed: int = 0,
) -> list[Shift]:
    """Compares statistics of clips, the largest difference first.

    Args:
      reference, new: by name, the values of each clip; all of one length each, NaN where a clip has none.
      speakers: of the reference clips; "" for none.
      new_speakers: of the new clips; () if each is of another one.
      rates: statistics that are 0 or 1.
      alpha: share of false alarms, over all statistics together.
      permutations: of the test.

    Returns:
      A shift for each statistic that both have.
    """
    names = [name for name in reference if name in new and not (_empty(reference[name]) or _empty(new[name]))]
    if not names:
        return []

    # [clips, statistics]
    before, current = (np.array([values[name] for name in names], float).T for values in (reference, new))
    pooled = np.concatenate([before, current])

    # A missing value counts as the median, which says nothing either way.
    pooled = np.where(np.isnan(pooled), np.nanmedian(pooled, axis=0), pooled)
    ranks = np.stack([_ranks(column) for column in pooled.T], axis=1)

    # Reference clips come first in all that follows.
    count = len(before)
    adjusted = _permutation_test(ranks, count, permutations, seed)
    shifts = []
    for index, name in enumerate(names):
        probability = _probability(ranks[count:, index], ranks[:count, index])

        # Half: a change of a share by x moves the probability of a higher value by x / 2.
        smallest = MIN_RATE_CHANGE / 2 if name in rates else MIN_EFFECT
        allowed = max(smallest, _speaker_allowance(ranks[:count, index], speakers, new_speakers))
        means = float(np.nanmean(before[:, index])), float(np.nanmean(current[:, index]))
        drifted = bool(adjusted[index] <= alpha and abs(probability - 0.5) > allowed)
        shifts.append(Shift(name, *means, probability, float(adjusted[index]), allowed, drifted))
    return sorted(shifts, key=lambda shift: (not shift.drifted, -abs(shift.probability - 0.5)))


def _empty(values: Sequence[float]) -> bool:
    # Statistics that no clip has, such as F0 of silence, are left out.
    return len(values) == 0 or bool(np.isnan(np.asarray(values, float)).all())


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ranks values from 1; equal values share the mean of their ranks."""
    unique, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    del unique
    last = np.cumsum(counts)
    shared: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return shared


def _probability(new: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> float:
    """Mann and Whitney's U over the number of pairs, of ranks in the pooled sample."""
    # The mean ranks of the two groups differ by the number of clips times (probability - 0.5).
    return float(0.5 + (new.mean() - reference.mean()) / (len(new) + len(reference)))


def _permutation_test(
    ranks: npt.NDArray[np.float64], count: int, permutations: int, seed: int
) -> npt.NDArray[np.float64]:
    """Returns for each statistic how often the largest difference is as large when clips are dealt by chance."""
    # [clips, statistics], each with mean 0 and variance 1, so that the largest difference is comparable.
    deviations = ranks.std(axis=0)
    standard = (ranks - ranks.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    total = len(standard)

    # [statistics]
    observed = np.abs(standard[count:].mean(axis=0))
    random = np.random.default_rng(seed)
    exceeded = np.zeros(len(observed))

    # In blocks, so that memory does not grow with the number of permutations.
    for start in range(0, permutations, _CHUNK):
        # [permutations of the block, clips]: 1 for those that are dealt to "new"
        is_new = np.zeros((min(_CHUNK, permutations - start), total), np.float64)
        is_new[:, count:] = 1.0
        # The largest over all statistics: with it the adjusted p-values hold for all of them together.
        largest = np.abs(random.permuted(is_new, axis=1) @ standard / (total - count)).max(axis=1)
        # The tolerance keeps rounding from turning a tie into a difference.
        exceeded += (largest[:, None] >= observed - 1e-12).sum(axis=0)

    # Plus one: the observed dealing is one of the possible ones, and no p-value is zero.
    return (exceeded + 1) / (permutations + 1)


def _speaker_allowance(ranks: npt.NDArray[np.float64], speakers: Sequence[str], new_speakers: Sequence[str]) -> float:
    """Returns the difference that two groups of speakers may have, in units of the probability.

    They have as many as the reference and the new clips have; the latter at most as many as the former.
    """
    groups: dict[str, list[int]] = {}
    for index, speaker in enumerate(speakers):
        if speaker:
            groups.setdefault(speaker, []).append(index)

    # One speaker says nothing of how speakers differ.
    if len(groups) < 2:
        return 0.0
    spread = ranks.max() - ranks.min() + 1

    # [speakers] mean rank of each, as a share
    means = np.array([ranks[members].mean() for members in groups.values()]) / spread
    # Simpson's effective number: a caller with most of the clips counts as nearly all of them.
    shares = np.array(list(Counter(new_speakers).values()), float) / max(len(new_speakers), 1)
    new = min(1 / float((shares**2).sum()), len(groups)) if new_speakers else len(groups)

    # The variance of a difference of two means, of the reference's speakers and of the new ones. Below 0.5, else no
    # difference could be an alarm.
    return float(min(_SPEAKER_DEVIATIONS * means.std(ddof=1) * np.sqrt(1 / len(groups) + 1 / new), 0.45))

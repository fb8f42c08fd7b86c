"""Distances between two distributions, as TensorFlow Data Validation measures them.

Numbers have the Jensen-Shannon divergence of their histograms, in bits: 0 for equal distributions, 1 for disjoint ones.
Texts have the L-infinity distance: the largest difference between the shares of one value.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BUCKETS = 40
"""Of a histogram. With TFDV's 10, one recording of a minute among 3,000 of seconds gives a divergence of 0.09 bits,
because all others fall into one bucket; with 40, of 0.03."""
VALUES = 200
"""Most frequent texts that are compared."""

Floats = npt.NDArray[np.float64]
Bucket = tuple[float, float, float]
"""Its ends, and the count of values in it."""


def jensen_shannon(shares: Floats, other: Floats) -> float:
    """The Jensen-Shannon divergence in bits; scipy's import alone takes longer.

    Args:
      shares, other: `[values]`, each of sum 1.

    >>> jensen_shannon(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0]))
    1.0
    """
    # The mean of the two relative entropies against the middle: [2, values]
    sides = np.stack([shares, other])
    middle = sides.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a missing value contributes nothing
        gains = np.where(sides > 0, sides * np.log2(sides / middle), 0.0)
    return max(float(gains.sum() / 2), 0.0)


def divergence_of_numbers(values: Floats, other: Floats, bucket_count: int = BUCKETS) -> float:
    """The Jensen-Shannon divergence of the histograms of two samples, in bits.

    Each has buckets of equal width between its own ends, as TFDV's has, and both are divided at the ends of all.

    Args:
      values, other: `[samples]`, finite.
      bucket_count: of each histogram.
    """
    buckets = _histogram(values, bucket_count)
    other_buckets = _histogram(other, bucket_count)
    edges = np.unique([end for low, high, _ in (*buckets, *other_buckets) for end in (low, high)])

    # A bucket of no width, as all values of a constant are in, needs a bin of its own: (value, just above it).
    points = [low for low, high, _ in (*buckets, *other_buckets) if high <= low]
    edges = np.unique([*edges, *np.nextafter(points, np.inf)]) if points else edges
    return jensen_shannon(share_by_bin(buckets, edges), share_by_bin(other_buckets, edges))


def fitting_buckets(smaller: int) -> int:
    """The buckets of histograms to compare, by the size of the smaller sample: its square root, 8 to `BUCKETS`.

    Two samples of 80 from one normal distribution are 0.20 bits apart with 40 buckets, and 0.06 with 9 (medians).
    """
    return min(max(round(math.sqrt(smaller)), 8), BUCKETS)


def largest_share_difference(counts: Counter[str], other: Counter[str]) -> float:
    """The L-infinity distance between the `VALUES` most frequent texts of two samples.

    >>> largest_share_difference(Counter(a=3, b=1), Counter(a=1, b=2, c=1))
    0.5
    """
    shares = [_shares_of_texts(sample) for sample in (counts, other)]
    return max((abs(shares[0].get(text, 0) - shares[1].get(text, 0)) for text in {*shares[0], *shares[1]}), default=0.0)


def share_by_bin(buckets: Sequence[Bucket], edges: Floats) -> Floats:
    """Rebins a histogram to shares; values are assumed to be uniform within a bucket.

    Args:
      edges: `[bins + 1]`, which reach over all buckets.

    Returns:
      `[bins]`, of sum 1, or of 0 without values.
    """
    # [buckets]
    lows, highs, counts = (
        (np.array(column, float) for column in zip(*buckets, strict=True)) if buckets else [np.empty(0)] * 3
    )
    wide = highs > lows

    # [buckets, bins]: the part of each bucket that is in each bin.
    overlap = np.minimum(edges[1:], highs[wide, None]) - np.maximum(edges[:-1], lows[wide, None])
    inside = np.clip(overlap, 0.0, None) / (highs - lows)[wide, None]
    shares = counts[wide] @ inside

    # A bucket of no width goes to one bin as a whole.
    places = np.minimum(np.searchsorted(edges, lows[~wide], side="right") - 1, len(edges) - 2)
    np.add.at(shares, places, counts[~wide])
    share: Floats = shares / max(counts.sum(), 1e-9)
    return share


def _histogram(values: Floats, bucket_count: int) -> list[Bucket]:
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return [(low, low, float(len(values)))]
    counts, edges = np.histogram(values, bucket_count, (low, high))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True))


def _shares_of_texts(counts: Counter[str]) -> dict[str, float]:
    frequent = counts.most_common(VALUES)
    total = sum(count for _, count in frequent)
    return {text: count / total for text, count in frequent}

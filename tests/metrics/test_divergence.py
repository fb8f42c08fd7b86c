"""Distances between distributions, held to scipy's and to what is known of them."""

from collections import Counter

import numpy as np
import pytest
from scipy.spatial import distance

from voxline.metrics.divergence import (
    BUCKETS,
    divergence_of_numbers,
    fitting_buckets,
    jensen_shannon,
    largest_share_difference,
    share_by_bin,
)


def test_the_divergence_is_scipys() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        shares = random.dirichlet(np.ones(9), 2) * (random.random((2, 9)) > 0.3)
        shares /= shares.sum(axis=1, keepdims=True)
        expected = distance.jensenshannon(shares[0], shares[1], base=2) ** 2
        assert jensen_shannon(shares[0], shares[1]) == pytest.approx(expected, abs=1e-12)


def test_numbers_are_equal_disjoint_or_in_between() -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=5000)
    assert divergence_of_numbers(values, values) == 0
    assert divergence_of_numbers(values, values + 100) == pytest.approx(1)
    assert divergence_of_numbers(values, random.normal(size=5000)) < 0.02
    assert 0.2 < divergence_of_numbers(values, values + 1.5) < 0.6
    assert divergence_of_numbers(values, values * 3) == pytest.approx(divergence_of_numbers(values * 3, values))


def test_few_samples_get_few_buckets() -> None:
    """By chance alone two samples of 80 are far apart in fine histograms."""
    random = np.random.default_rng(2)
    pairs = [random.normal(size=(2, 80)) for _ in range(200)]
    fine, fitting = (
        float(np.median([divergence_of_numbers(one, other, count) for one, other in pairs]))
        for count in (BUCKETS, fitting_buckets(80))
    )
    assert (round(fine, 1), round(fitting, 2)) == (0.2, 0.06)
    assert (fitting_buckets(30), fitting_buckets(100_000)) == (8, BUCKETS)


def test_constants_are_equal_only_to_themselves() -> None:
    ones = np.ones(50)
    assert divergence_of_numbers(ones, ones) == 0
    assert divergence_of_numbers(ones, 2 * ones) == pytest.approx(1)
    assert divergence_of_numbers(np.linspace(0, 2, 50), ones) > 0.5


def test_a_rebinned_histogram_keeps_its_mass() -> None:
    shares = share_by_bin([(0.0, 1.0, 3.0), (1.0, 2.0, 1.0), (0.5, 0.5, 4.0)], np.array([0.0, 0.5, 2.0]))
    assert shares.tolist() == [1.5 / 8, 6.5 / 8]
    assert share_by_bin([], np.array([0.0, 1.0])).tolist() == [0.0]


def test_only_the_most_frequent_texts_are_compared() -> None:
    rare = Counter({f"w{number}": 1 for number in range(500)})
    assert largest_share_difference(rare + Counter(a=199), Counter(a=10)) == pytest.approx(0.5, abs=0.01)
    assert largest_share_difference(Counter(), Counter()) == 0

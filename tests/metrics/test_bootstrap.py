"""Intervals and comparisons of rates and means keep their stated confidence."""

import math

import numpy as np
import pytest

from voxline.errors import WorkError
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.evaluation import IntervalInfo


def test_an_interval_contains_the_true_rate_as_often_as_stated() -> None:
    random = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        parts = [SumAndWeight(int(errors), 10) for errors in random.binomial(10, 0.2, size=60)]
        interval = Bootstrap(0.9, samples=300, seed=seed).interval(parts, [""] * 60)
        held += interval.low <= 0.2 <= interval.high
    assert 0.83 <= held / 200 <= 0.96


def test_resampling_different_speakers_gives_a_wider_interval_than_resampling_utterances() -> None:
    parts = [SumAndWeight(speaker % 5, 10) for speaker in range(20) for _ in range(30)]
    speakers = [f"s{speaker}" for speaker in range(20) for _ in range(30)]
    by_speaker, by_utterance = (Bootstrap(min_speakers=n).interval(parts, speakers) for n in (10, 21))
    assert (by_speaker.over, by_speaker.units) == ("speakers", 20)
    assert (by_utterance.over, by_utterance.units) == ("utterances", 600)
    assert by_speaker.high - by_speaker.low > 3 * (by_utterance.high - by_utterance.low)
    unknown = ["", *speakers[1:]]
    assert Bootstrap().interval(parts, unknown).over == "utterances"


def test_no_error_in_few_words_does_not_promise_perfection() -> None:
    interval = Bootstrap(0.95).interval([SumAndWeight(0, 1)] * 300, [""] * 300)
    assert interval.low == 0
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / 300))
    assert Bootstrap().interval([SumAndWeight(0, 5)] * 4, [""] * 4).high == 1


def test_the_same_seed_gives_the_same_interval_and_memory_stays_bounded() -> None:
    parts = [SumAndWeight(n % 3, 3) for n in range(5_000)]
    one, same, other = (Bootstrap(samples=900, seed=seed).interval(parts, [""] * 5_000) for seed in (1, 1, 2))
    assert one == same != other


def test_a_comparison_on_the_same_utterances_sees_what_two_intervals_do_not() -> None:
    random = np.random.default_rng(3)
    champion = [SumAndWeight(int(n), 10) for n in random.binomial(10, 0.3, size=200)]
    challenger = [SumAndWeight(max(part.sum - (n % 4 == 0), 0), 10) for n, part in enumerate(champion)]
    bootstrap, speakers = Bootstrap(), [""] * 200
    overlap = bootstrap.interval(challenger, speakers).high - bootstrap.interval(champion, speakers).low
    compared = bootstrap.compare(challenger, champion, speakers)
    assert overlap > 0
    assert compared.difference == pytest.approx(aggregate(challenger) - aggregate(champion))
    assert compared.interval.low <= compared.lowest <= compared.difference <= compared.highest <= compared.interval.high
    assert compared.highest < 0
    assert compared.probability_worse == 0
    turned = bootstrap.compare(champion, challenger, speakers)
    assert (turned.difference, turned.probability_worse) == (-compared.difference, 1)


def test_equal_models_are_neither_better_nor_worse() -> None:
    parts = [SumAndWeight(n % 2, 4) for n in range(30)]
    compared = Bootstrap().compare(parts, parts, [""] * 30)
    assert (compared.difference, compared.lowest, compared.probability_worse) == (0, 0, 0.5)


@pytest.mark.parametrize("utterances", [5, 20, 100])
def test_no_loss_on_a_few_words_is_not_a_bound_of_zero(utterances: int) -> None:
    """One word lost of n gives a bound near 3 / n by resampling; none lost must not give less by much."""
    faultless, speakers = [SumAndWeight(0, 3)] * utterances, [""] * utterances
    none = Bootstrap().compare(faultless, faultless, speakers)
    assert none.highest == pytest.approx(1 - 0.05 ** (1 / (3 * utterances)))
    one = Bootstrap().compare([SumAndWeight(1, 3), *faultless[1:]], faultless, speakers)
    assert none.highest == pytest.approx(one.highest, rel=0.15)


def test_too_few_utterances_show_nothing() -> None:
    compared = Bootstrap().compare([SumAndWeight(0, 2)] * 4, [SumAndWeight(1, 2)] * 4, [""] * 4)
    assert (compared.lowest, compared.highest) == (-1, 1)


def test_models_measured_on_different_references_are_not_compared() -> None:
    with pytest.raises(WorkError, match="same utterances"):
        Bootstrap().compare([SumAndWeight(0, 2)], [SumAndWeight(0, 3)], ["a"])


def test_an_interval_contains_the_true_mean_as_often_as_stated() -> None:
    random = np.random.default_rng(6)
    held = 0
    for seed in range(200):
        parts = [SumAndWeight(float(value)) for value in random.gamma(2, 3, size=60)]
        interval = Bootstrap(0.9, samples=300, seed=seed).interval(parts, [""] * 60, "mean")
        held += interval.low <= 6 <= interval.high
    assert 0.82 <= held / 200 <= 0.96


def test_unmeasured_utterances_are_left_out_of_a_mean() -> None:
    measured = [SumAndWeight(5 + n % 3) for n in range(30)]
    some = [*measured, *[SumAndWeight(0, 0)] * 300]
    assert aggregate(some, "mean") == aggregate(measured, "mean") == 6
    alone, among = (Bootstrap().interval(parts, [""] * len(parts), "mean") for parts in (measured, some))
    assert (alone, among.units) == (among, 30)
    other = [SumAndWeight(part.sum + 1) if n % 2 else SumAndWeight(0, 0) for n, part in enumerate(some)]
    compared = Bootstrap().compare(some, other, [""] * 330, "mean")
    assert compared.difference == pytest.approx(-1)
    assert compared.interval.units == 15
    assert compared.highest < 0


def test_a_mean_of_too_few_utterances_has_no_interval() -> None:
    interval = Bootstrap().interval([SumAndWeight(2.5)] * 4, [""] * 4, "mean")
    assert IntervalInfo.of(interval) == IntervalInfo(low=None, high=None, over="utterances", units=4)
    compared = Bootstrap().compare([SumAndWeight(2.5)] * 4, [SumAndWeight(1.5)] * 4, [""] * 4, "mean")
    assert (compared.difference, compared.highest) == (1, math.inf)
    assert aggregate([SumAndWeight(0, 0)] * 9, "mean") is None
    assert Bootstrap().interval([], [], "mean").units == 0

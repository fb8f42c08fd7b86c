"""The exact paired test: against an enumeration by SciPy, and by the errors that it makes in the long run."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from voxline.components.push.gate import ERASURE_MARGINS
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.paired import (
    PairedCounts,
    highest_excess,
    least_margin,
    look_confidence,
    p_value,
    proposed_margin,
)

NIGHTS = 14


def score(worse: int, better: int, excess: float) -> float:
    """T, with the most probable x found by a search."""

    def unlikely(x: float) -> float:
        return -float(stats.poisson.logpmf(worse, x + excess) + stats.poisson.logpmf(better, x))

    likeliest = float(optimize.minimize_scalar(unlikely, bounds=(1e-9, worse + better + 1), options={"xatol": 1e-9}).x)
    x = likeliest if unlikely(likeliest) < unlikely(1e-12) else 0.0
    return float((worse - better - excess) / math.sqrt(2 * x + excess))


@pytest.mark.parametrize(("worse", "better", "excess"), [(1, 1, 4.2), (0, 2, 0.825)])
def test_a_p_value_is_that_of_an_enumeration_of_all_outcomes(worse: int, better: int, excess: float) -> None:
    counts = range(24)
    limit = score(worse, better, excess) + 1e-6
    good = np.array([[score(b, c, excess) <= limit for c in counts] for b in counts])
    probabilities = [
        float(stats.poisson.pmf(counts, x + excess) @ good @ stats.poisson.pmf(counts, x))
        for x in np.linspace(0, 8, 60)
    ]
    assert p_value(worse, better, excess) == pytest.approx(max(probabilities), rel=0.01)


@pytest.mark.parametrize("level", [0.05, 0.025, 0.0083])
def test_a_model_that_is_worse_by_the_margin_is_accepted_no_more_often_than_stated(level: float) -> None:
    """Computed, not drawn: the probabilities of all outcomes that are accepted, whatever else both models get wrong."""
    counts = range(24)
    for margin in (2.0, 5.0):
        accepted = np.array([[p_value(b, c, margin) <= level for c in counts] for b in counts])
        for x in (0.0, 0.3, 1.0, 2.5, 6.0):
            passes = stats.poisson.pmf(counts, x + margin) @ accepted @ stats.poisson.pmf(counts, x)
            assert passes <= level * 1.01


def test_the_bound_is_the_rule_of_three_without_a_difference_and_lower_after_corrections() -> None:
    none = highest_excess(0, 0, 0.05)
    assert none == pytest.approx(-math.log(0.05), rel=1e-3)
    assert [highest_excess(0, better, 0.05) < none for better in (1, 2, 5)] == [True] * 3
    assert highest_excess(1, 0, 0.05) == pytest.approx(stats.chi2.ppf(0.95, 4) / 2, rel=1e-3)
    assert highest_excess(0, 5, 0.05) < 0  # five corrected and none lost: better, whatever the margin


def test_many_errors_make_the_bound_of_a_normal_distribution() -> None:
    exact = highest_excess(90, 100, 0.05)
    assert exact == pytest.approx(-10 + stats.norm.ppf(0.95) * math.sqrt(190), abs=2)
    assert highest_excess(105, 115, 0.05) == pytest.approx(-10 + stats.norm.ppf(0.95) * math.sqrt(220), abs=2)


def test_words_that_go_wrong_together_count_once() -> None:
    """Ten words lost in one utterance, or by one speaker, are no ten pieces of evidence."""
    zeros = [SumAndWeight(0, 10)] * 100
    together = PairedCounts.of([SumAndWeight(10, 10), *zeros[1:]], zeros)
    assert (together.worse, together.differing, together.utterances) == (1, 1, 100)
    assert together.chances == pytest.approx(100)  # of 1,000 words
    apart = [SumAndWeight(1, 10)] * 10 + zeros[10:]
    speakers = ["ada"] * 10 + [str(number) for number in range(90)]
    assert PairedCounts.of(apart, zeros).worse == 10
    assert PairedCounts.of(apart, zeros, speakers).worse == 2


def test_of_a_few_words_all_may_be_lost_and_no_more() -> None:
    """A margin of 1 accepts anything, as a test of the way to a model may want."""
    silent = [SumAndWeight(3, 3)] * 5
    assert PairedCounts.of(silent, silent).highest(0.999) == 1.0
    assert PairedCounts.of([SumAndWeight(9, 3)] * 5, [SumAndWeight(0, 3)] * 5).highest(0.999) == pytest.approx(3.0)


def test_what_is_needed_is_what_is_accepted() -> None:
    counts = PairedCounts(worse=1, better=1, chances=165.0, utterances=165, differing=2)
    bound = counts.highest(0.95)
    needed = counts.utterances_needed(0.005, 0.95)
    assert needed is not None
    factor = needed / counts.utterances
    larger = PairedCounts(round(factor), round(factor), factor * 165, needed, 2)
    assert counts.utterances_needed(bound, 0.95) == 165
    assert larger.highest(0.95) <= 0.005 < PairedCounts(1, 1, 165.0, 165, 2).highest(0.95)
    assert PairedCounts(9, 1, 165.0, 165, 10).utterances_needed(0.005, 0.95) is None


@pytest.mark.parametrize(("words", "error_rate"), [(60, 0.02), (165, 0.01), (165, 0.02), (600, 0.02), (300, 0.1)])
def test_an_equal_model_is_promoted_within_two_weeks_and_a_worse_one_is_not(words: int, error_rate: float) -> None:
    """Nights on one test split, at the margin that `config init` writes. Hard words are hard for every model."""
    random = np.random.default_rng(words)
    margin = proposed_margin(words, error_rate, 0.95)
    levels = [1 - look_confidence(0.95, night) for night in range(1, NIGHTS + 1)]
    values: dict[tuple[int, int], float] = {}

    def nights(excess: float) -> tuple[bool, float]:
        """Whether a model was accepted on any night until the first, and the share of nights on which one was."""
        hard = random.beta(error_rate, 1 - error_rate, words)
        service = random.random(words) < hard
        accepted = []
        for level in levels:
            model = random.random(words) < hard + excess * (1 - hard) / (1 - error_rate)
            counts = int((model & ~service).sum()), int((service & ~model).sum())
            if counts not in values:
                values[counts] = p_value(*counts, margin * words)
            accepted.append(values[counts] <= level)
        return any(accepted), float(np.mean(accepted))

    equal = [nights(0.0) for _ in range(300)]
    worse = [nights(2 * margin) for _ in range(300)]
    barely = [nights(margin) for _ in range(300)]
    assert np.mean([promoted for promoted, _ in equal]) >= 0.8
    assert np.mean([share for _, share in worse]) < 0.05
    # In all nights together, not in each: so many looks do not add up.
    assert np.mean([promoted for promoted, _ in worse]) < 0.05
    assert np.mean([promoted for promoted, _ in barely]) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.parametrize(("words", "error_rate"), [(60, 0.02), (165, 0.02), (300, 0.1)])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_after_an_erasure_an_equal_model_follows_within_two_weeks_and_a_worse_one_does_not(
    words: int, error_rate: float, share: float
) -> None:
    """Nights in a row at a share of the margin that `config init` writes: the gate's two conditions, drawn."""
    random = np.random.default_rng(words)
    margin = share * proposed_margin(words, error_rate, 0.95)
    levels = [1 - look_confidence(0.95, night) for night in range(1, NIGHTS + 1)]
    values: dict[tuple[int, int], float] = {}

    def nights(excess: float) -> list[tuple[bool, bool]]:
        """Of each night: whether a model was measured within the margin, and whether it was accepted."""
        hard = random.beta(error_rate, 1 - error_rate, words)
        reference = random.random(words) < hard
        outcomes = []
        for level in levels:
            model = random.random(words) < hard + excess * (1 - hard) / (1 - error_rate)
            counts = int((model & ~reference).sum()), int((reference & ~model).sum())
            if counts not in values:
                values[counts] = p_value(*counts, ERASURE_MARGINS * margin * words)
            within = counts[0] - counts[1] <= margin * words
            outcomes.append((within, within and values[counts] <= level))
        return outcomes

    # [runs, nights, 2]
    equal = np.array([nights(0.0) for _ in range(200)])
    worse = np.array([nights(2 * margin) for _ in range(200)])
    assert equal[..., 1].any(1).mean() >= 0.8
    assert worse[..., 1].mean() < 0.05
    assert worse[..., 1].any(1).mean() < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 200)
    # The measured value alone would accept it sooner or later.
    assert worse[..., 0].any(1).mean() > 0.15


def test_looks_share_one_error_however_many_there_are() -> None:
    spent = [1 - look_confidence(0.95, look) for look in range(1, 10_000)]
    assert sum(spent) == pytest.approx(0.05, rel=1e-3)
    assert all(later < earlier for earlier, later in itertools.pairwise(spent))


def test_the_least_margin_is_what_a_model_without_a_further_error_shows() -> None:
    assert least_margin(165, 0.95) == pytest.approx(highest_excess(0, 0, 0.05) / 165, rel=1e-3)
    assert least_margin(0, 0.95) == 1.0


@pytest.mark.parametrize("speakers", [0, 12])
def test_words_of_an_utterance_and_utterances_of_a_speaker_may_go_wrong_together(speakers: int) -> None:
    """Models that are worse by the margin: a wrong utterance loses 1 to 4 of 6 words, and speakers differ."""
    random = np.random.default_rng(speakers)
    utterances, words, rate, margin, lost = 300, 6, 0.02, 0.02, 2.2
    sizes = 1 + random.binomial(3, 0.4, (200, 4, utterances))
    accepted = 0
    for size in sizes:
        speaker = random.integers(0, max(speakers, 1), utterances)
        harm = random.gamma(1.0, 1.0, speakers)[speaker] if speakers else 1.0
        shares = rate / 2, rate / 2, rate / 2, margin * harm
        wrong = size * [random.random(utterances) < share * words / lost for share in shares]
        both, new, other, worse = wrong
        models = [np.minimum(both + new + worse, words), np.minimum(both + other, words)]
        challenger, champion = ([SumAndWeight(float(errors), words) for errors in model] for model in models)
        counts = PairedCounts.of(challenger, champion, [str(one) for one in speaker] if speakers else None)
        accepted += counts.highest(0.95) <= margin
    assert accepted / len(sizes) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / len(sizes))

"""Errors are those of the textbook, and intervals hold what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.speech.errors import WorkError
from components.speech.scoring import (
    Bootstrap,
    Edits,
    align_words,
    character_edits,
    confusions,
    total,
    word_edits,
)

texts = st.lists(st.sampled_from(["a", "b", "cat", "d'", "é"]), max_size=8).map(" ".join)


def edit_distance(said: list[str], heard: list[str]) -> int:
    """Wagner and Fischer 1974, the slow way."""
    previous = list(range(len(heard) + 1))
    for row, word in enumerate(said, start=1):
        current = [row]
        for column, other in enumerate(heard, start=1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (word != other)))
        previous = current
    return previous[-1]


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_errors_are_the_fewest_that_turn_one_text_into_the_other(pairs: list[tuple[str, str]]) -> None:
    said, heard = [list(side) for side in zip(*pairs, strict=True)]
    for edits, split in ((word_edits(said, heard), str.split), (character_edits(said, heard), list)):
        assert len(edits) == len(pairs)
        for edit, reference, hypothesis in zip(edits, said, heard, strict=True):
            assert edit.errors == edit_distance(split(reference), split(hypothesis))
            assert edit.length == len(split(reference))
            assert edit.length - edit.deletions + edit.insertions == len(split(hypothesis))
            assert min(edit.insertions, edit.deletions, edit.substitutions) >= 0
    assert total(word_edits(said, heard)).errors == sum(count for *_, count in confusions(said, heard))


@given(texts, texts)
def test_an_alignment_holds_both_texts_word_for_word(said: str, heard: str) -> None:
    pairs = align_words(said, heard)
    assert [left for left, _ in pairs if left] == said.split()
    assert [right for _, right in pairs if right] == heard.split()


def test_spacing_is_no_error() -> None:
    assert word_edits(["  a \t b"], ["a  b "]) == [Edits(2)]
    assert word_edits([], []) == []


def test_ten_times_the_words_are_all_counted() -> None:
    (wild,) = word_edits(["yes"], [" ".join(["yes"] * 20_000)])
    assert (wild.insertions, wild.rate) == (19_999, 19_999)


def test_an_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        edits = [Edits(10, substitutions=int(errors)) for errors in random.binomial(10, 0.2, size=60)]
        interval = Bootstrap(0.9, samples=300, seed=seed).interval(edits, [""] * 60)
        held += interval.low <= 0.2 <= interval.high
    assert 0.83 <= held / 200 <= 0.96


def test_speakers_who_differ_make_a_wider_interval_than_their_utterances_would() -> None:
    edits = [Edits(10, substitutions=speaker % 5) for speaker in range(20) for _ in range(30)]
    speakers = [f"s{speaker}" for speaker in range(20) for _ in range(30)]
    by_speaker, by_utterance = (Bootstrap(fewest_speakers=n).interval(edits, speakers) for n in (10, 21))
    assert (by_speaker.over, by_speaker.units) == ("speakers", 20)
    assert (by_utterance.over, by_utterance.units) == ("utterances", 600)
    assert by_speaker.high - by_speaker.low > 3 * (by_utterance.high - by_utterance.low)
    unknown = ["", *speakers[1:]]
    assert Bootstrap().interval(edits, unknown).over == "utterances"


def test_no_error_in_few_words_does_not_promise_perfection() -> None:
    interval = Bootstrap(0.95).interval([Edits(1)] * 300, [""] * 300)
    assert interval.low == 0
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / 300))
    assert Bootstrap().interval([Edits(5)] * 4, [""] * 4).high == 1


def test_the_same_seed_gives_the_same_interval_and_memory_stays_bounded() -> None:
    edits = [Edits(3, deletions=n % 3) for n in range(5_000)]
    one, same, other = (Bootstrap(samples=900, seed=seed).interval(edits, [""] * 5_000) for seed in (1, 1, 2))
    assert one == same != other


def test_a_comparison_on_the_same_utterances_sees_what_two_intervals_do_not() -> None:
    random = np.random.default_rng(3)
    champion = [Edits(10, substitutions=int(n)) for n in random.binomial(10, 0.3, size=200)]
    challenger = [Edits(10, substitutions=max(edit.errors - (n % 4 == 0), 0)) for n, edit in enumerate(champion)]
    bootstrap, speakers = Bootstrap(), [""] * 200
    overlap = bootstrap.interval(challenger, speakers).high - bootstrap.interval(champion, speakers).low
    compared = bootstrap.compare(challenger, champion, speakers)
    assert overlap > 0
    assert compared.difference == pytest.approx(total(challenger).rate - total(champion).rate)
    assert compared.interval.low <= compared.lowest <= compared.difference <= compared.highest <= compared.interval.high
    assert compared.highest < 0
    assert compared.probability_worse == 0
    turned = bootstrap.compare(champion, challenger, speakers)
    assert (turned.difference, turned.probability_worse) == (-compared.difference, 1)


def test_equal_models_are_neither_better_nor_worse() -> None:
    edits = [Edits(4, insertions=n % 2) for n in range(30)]
    compared = Bootstrap().compare(edits, edits, [""] * 30)
    assert (compared.difference, compared.lowest, compared.probability_worse) == (0, 0, 0.5)


@pytest.mark.parametrize("utterances", [5, 20, 100])
def test_no_loss_seen_on_few_words_is_no_promise_that_there_is_none(utterances: int) -> None:
    """One word lost of n gives a bound near 3 / n by resampling; none lost must not give less by much."""
    faultless, speakers = [Edits(3)] * utterances, [""] * utterances
    none = Bootstrap().compare(faultless, faultless, speakers)
    assert none.highest == pytest.approx(1 - 0.05 ** (1 / (3 * utterances)))
    one = Bootstrap().compare([Edits(3, deletions=1), *faultless[1:]], faultless, speakers)
    assert none.highest == pytest.approx(one.highest, rel=0.15)


def test_too_few_utterances_show_nothing() -> None:
    compared = Bootstrap().compare([Edits(2)] * 4, [Edits(2, deletions=1)] * 4, [""] * 4)
    assert (compared.lowest, compared.highest) == (-1, 1)


def test_models_measured_on_different_texts_are_not_compared() -> None:
    with pytest.raises(WorkError, match="same utterances"):
        Bootstrap().compare([Edits(2)], [Edits(3)], ["a"])

"""Errors are those of the textbook, and intervals hold what they promise."""

from hypothesis import given
from hypothesis import strategies as st

from voxline.metrics.wer import (
    EditCounts,
    align_words,
    count_character_edits,
    count_confusions,
    count_word_edits,
    sum_edits,
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
    for edits, split in ((count_word_edits(said, heard), str.split), (count_character_edits(said, heard), list)):
        assert len(edits) == len(pairs)
        for edit, reference, hypothesis in zip(edits, said, heard, strict=True):
            assert edit.errors == edit_distance(split(reference), split(hypothesis))
            assert edit.length == len(split(reference))
            assert edit.length - edit.deletions + edit.insertions == len(split(hypothesis))
            assert min(edit.insertions, edit.deletions, edit.substitutions) >= 0
    assert sum_edits(count_word_edits(said, heard)).errors == sum(count for *_, count in count_confusions(said, heard))


@given(texts, texts)
def test_an_alignment_holds_both_texts_word_for_word(said: str, heard: str) -> None:
    pairs = align_words(said, heard)
    assert [left for left, _ in pairs if left] == said.split()
    assert [right for _, right in pairs if right] == heard.split()


def test_spacing_is_no_error() -> None:
    assert count_word_edits(["  a \t b"], ["a  b "]) == [EditCounts(2)]
    assert count_word_edits([], []) == []


def test_ten_times_the_words_are_all_counted() -> None:
    (wild,) = count_word_edits(["yes"], [" ".join(["yes"] * 20_000)])
    assert (wild.insertions, wild.rate) == (19_999, 19_999)

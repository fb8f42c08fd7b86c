"""Word and character errors agree with the textbook algorithm."""

from hypothesis import given
from hypothesis import strategies as st

from voxline.metrics.wer import (
    EditCounts,
    align_words,
    count_character_edits,
    count_confusions,
    count_syllable_edits,
    count_word_edits,
    sum_edits,
)

texts = st.lists(st.sampled_from(["a", "b", "cat", "d'", "é"]), max_size=8).map(" ".join)

compounds = st.lists(st.sampled_from(["a", "b", "ab", "ba", "aba"]), max_size=6).map(" ".join)


def edit_distance(reference: list[str], hypothesis: list[str]) -> int:
    """Wagner and Fischer 1974, the slow way."""
    previous = list(range(len(hypothesis) + 1))
    for row, word in enumerate(reference, start=1):
        current = [row]
        for column, other in enumerate(hypothesis, start=1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (word != other)))
        previous = current
    return previous[-1]


def is_one_word(run: list[str], spoken: list[str]) -> bool:
    return 1 in (len(run), len(spoken)) and "".join(run) == "".join(spoken)


def edit_distance_without_spaces(reference: list[str], hypothesis: list[str]) -> int:
    """The same, where a word is as good as words with the same letters in a row."""
    costs = {(0, 0): 0}
    for left in range(len(reference) + 1):
        for right in range(len(hypothesis) + 1):
            edits = [
                costs[before, other] + (0 if is_one_word(run, spoken) else max(len(run), len(spoken)))
                for before in range(left + 1)
                for other in range(right + 1)
                if (before, other) != (left, right)
                for run, spoken in [(reference[before:left], hypothesis[other:right])]
            ]
            costs[left, right] = min(edits, default=0)
    return costs[len(reference), len(hypothesis)]


@given(st.lists(st.tuples(compounds, compounds), min_size=1, max_size=4))
def test_what_differs_in_spaces_alone_is_no_error_where_spaces_do_not_count(pairs: list[tuple[str, str]]) -> None:
    references, hypotheses = [list(side) for side in zip(*pairs, strict=True)]
    counted = count_word_edits(references, hypotheses, spacing=False)
    for edits, reference, hypothesis in zip(counted, references, hypotheses, strict=True):
        assert edits.errors == edit_distance_without_spaces(reference.split(), hypothesis.split())
        assert edits.length == len(reference.split())


def test_words_between_long_runs_of_equal_ones_are_joined_too() -> None:
    around = "so many words that they are the same in both texts"
    (edits,) = count_word_edits(
        [f"mailbox {around} file name {around} backtick"],
        [f"mail box {around} filename {around} back ticks"],
        spacing=False,
    )
    assert (edits.substitutions, edits.insertions) == (1, 1)


def test_a_text_whose_words_are_all_wrong_takes_no_minutes() -> None:
    reference = " ".join(f"a{number}" for number in range(1_000))
    (edits,) = count_word_edits([reference], [reference.replace("a", "b")], spacing=False)
    assert edits.substitutions == 1_000


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_errors_are_the_fewest_that_turn_one_text_into_the_other(pairs: list[tuple[str, str]]) -> None:
    references, hypotheses = [list(side) for side in zip(*pairs, strict=True)]
    for edits, split in (
        (count_word_edits(references, hypotheses), str.split),
        (count_character_edits(references, hypotheses), list),
    ):
        assert len(edits) == len(pairs)
        for edit, reference, hypothesis in zip(edits, references, hypotheses, strict=True):
            assert edit.errors == edit_distance(split(reference), split(hypothesis))
            assert edit.length == len(split(reference))
            assert edit.length - edit.deletions + edit.insertions == len(split(hypothesis))
            assert min(edit.insertions, edit.deletions, edit.substitutions) >= 0
    assert sum_edits(count_word_edits(references, hypotheses)).errors == sum(
        count for *_, count in count_confusions(references, hypotheses)
    )


@given(texts, texts)
def test_an_alignment_contains_every_word_of_both_texts(reference: str, hypothesis: str) -> None:
    pairs = align_words(reference, hypothesis)
    assert [left for left, _ in pairs if left] == reference.split()
    assert [right for _, right in pairs if right] == hypothesis.split()


def test_spacing_is_not_an_error() -> None:
    assert count_word_edits(["  a \t b"], ["a  b "]) == [EditCounts(2)]
    assert count_word_edits([], []) == []


def test_ten_times_the_words_are_all_counted() -> None:
    (wild,) = count_word_edits(["yes"], [" ".join(["yes"] * 20_000)])
    assert (wild.insertions, wild.rate) == (19_999, 19_999)


syllables = st.lists(st.sampled_from(["ma1", "ma3", "ni3", "ni2", "hao3", "de5"]), max_size=8).map(" ".join)


@given(st.lists(st.tuples(syllables.filter(bool), syllables), min_size=1, max_size=6))
def test_syllables_and_tones_come_from_one_alignment(pairs: list[tuple[str, str]]) -> None:
    """Without tones it is the plain edit distance; with them no alignment is better than that of whole words."""
    references, hypotheses = [list(side) for side in zip(*pairs, strict=True)]
    counted = count_syllable_edits(references, hypotheses)
    assert counted is not None
    for one, words, (reference, hypothesis) in zip(
        counted, count_word_edits(references, hypotheses), pairs, strict=True
    ):
        plain = [[syllable[:-1] for syllable in side.split()] for side in (reference, hypothesis)]
        assert one.syllables.errors == edit_distance(*plain)
        assert one.syllables.length == words.length
        assert one.syllables.errors <= words.errors <= one.syllables.errors + one.tones


def test_hanzi_are_compared_by_how_they_sound() -> None:
    counted = count_syllable_edits(["长时间", "我买马"], ["常时间", "我卖"])
    assert counted is not None
    assert [(one.syllables.errors, one.tones, one.syllables.length) for one in counted] == [(0, 0, 3), (1, 1, 3)]
    assert count_syllable_edits(["长时间", "hello"], ["常", ""]) is None
    mostly = count_syllable_edits(["长时间", "我买马", "OK google"], ["长时间", "我买马", "ok"])
    assert mostly is not None  # one reference in Latin letters does not take the rates from a Mandarin set
    assert [(one.syllables.errors, one.syllables.length) for one in mostly] == [(0, 3), (0, 3), (1, 2)]
    latin = count_syllable_edits(["我用 app", "vip 客户"], ["我有 app", "客户"])  # as mandarin_transcript writes them
    assert latin is not None
    assert [(one.syllables.errors, one.tones, one.syllables.length) for one in latin] == [(1, 0, 3), (1, 0, 3)]
    (digit,) = count_syllable_edits(["ni3 hao3"], ["ni3 3 hao3"]) or []
    assert (digit.syllables.insertions, digit.tones) == (1, 0)
    assert count_syllable_edits(["长"], ["\U0002ebe0 x"])[0].syllables.errors == 2  # type: ignore[index]

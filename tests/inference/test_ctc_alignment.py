"""Forced alignment finds the best path: compared with a search over all paths."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.inference.ctc_alignment import align_words_in_audio, force_align
from voxline.text.alphabet import Alphabet, min_ctc_frames


def collapse(path: tuple[int, ...], blank: int) -> list[int]:
    """What CTC reads in a path."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 1), min_size=1, max_size=3), st.integers(1, 6))
def test_the_path_is_the_best_of_all_paths(seed: int, labels: list[int], frames: int) -> None:
    if min_ctc_frames(labels) > frames:
        return
    blank = 2
    values = np.log(np.random.default_rng(seed).dirichlet(np.ones(3), frames))

    def score(path: tuple[int, ...]) -> float:
        return float(sum(values[frame, label] for frame, label in enumerate(path)))

    best = max((p for p in itertools.product(range(3), repeat=frames) if collapse(p, blank) == labels), key=score)
    found = [blank] * frames
    for (start, end), label in zip(force_align(values, labels), labels, strict=True):
        found[start:end] = [label] * (end - start)
    assert tuple(found) == best


def test_a_word_that_the_model_does_not_expect_has_little_confidence() -> None:
    alphabet = Alphabet(" abc")
    values = np.log(np.eye(5)[[1, 1, 0, 2, 2, 4]] * 0.96 + 0.008)
    heard, other = (align_words_in_audio(values, text, alphabet, 0.02) for text in ("a b", "a c"))
    assert [word.confidence for word in heard] == [pytest.approx(0.968), pytest.approx(0.968)]
    assert other[1].confidence == pytest.approx(0.008)
    assert (heard[1].start, heard[1].end) == (pytest.approx(0.06), pytest.approx(0.10))


@pytest.mark.parametrize("text", ["", "abcabc", "aaa", "é"])
def test_what_cannot_be_aligned_gives_no_words(text: str) -> None:
    assert align_words_in_audio(np.zeros((4, 5)), text, Alphabet(" abc"), 0.02) == []


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_text_that_the_model_rules_out_is_aligned_without_confidence(value: float) -> None:
    words = align_words_in_audio(np.full((6, 5), value, np.float32), "a b", Alphabet(" abc"), 0.02)
    assert [(word.word, word.confidence) for word in words] == [("a", 0.0), ("b", 0.0)]

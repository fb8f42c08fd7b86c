"""Forced alignment finds the best path, and the loss is that of all paths: compared with a search over all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from voxline.inference.ctc_alignment import align_words_in_audio, force_align, text_loss
from voxline.text.alphabet import Alphabet, min_ctc_frames
from voxline.text.public_tokenizer import TOKENIZER_JSON, PublicTokenizer


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


def test_words_of_pieces_that_begin_with_a_space_have_their_times() -> None:
    """Each piece in two frames, then a blank; SentencePiece has no piece between two words."""
    folder = ROOT / "tests" / "families" / "networks" / "hub" / "fastconformer"
    alphabet = PublicTokenizer.of(TOKENIZER_JSON, (folder / TOKENIZER_JSON).read_bytes(), 48)
    labels = alphabet.encode("the cat sat")
    counts = [last - first for first, last in alphabet.label_words("the cat sat")]
    assert len(labels) == sum(counts) > 3
    frames = [label for each in labels for label in (each, each, alphabet.blank)]
    values = np.log(np.eye(alphabet.blank + 1)[frames] + 1e-3)
    words = align_words_in_audio(values, "the cat sat", alphabet, 0.08)
    assert [word.word for word in words] == ["the", "cat", "sat"]
    starts = np.cumsum([0, *counts[:-1]]) * 3 * 0.08
    assert [word.start for word in words] == pytest.approx(starts)
    assert [word.end for word in words] == pytest.approx(starts + (np.array(counts) * 3 - 1) * 0.08)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.text("ab", max_size=3), st.integers(0, 6))
def test_the_loss_is_that_of_all_paths_together(seed: int, text: str, frames: int) -> None:
    alphabet = Alphabet("ab")
    values = np.random.default_rng(seed).dirichlet(np.ones(3), frames).reshape(frames, 3)
    paths = (p for p in itertools.product(range(3), repeat=frames) if collapse(p, 2) == alphabet.encode(text))
    probability = sum(np.prod([values[at, label] for at, label in enumerate(path)]) for path in paths)
    with np.errstate(divide="ignore"):
        loss, note = text_loss(np.log(values), text, alphabet)
    if probability:
        assert (loss, note) == (pytest.approx(-np.log(probability), abs=1e-9), "")
    else:
        assert loss is None
        assert note.startswith(f"impossible: {frames} frames, and ")


def test_the_loss_is_tensorflows() -> None:
    import tensorflow as tf

    random = np.random.default_rng(5)
    alphabet = Alphabet(" abcdefgh")
    logits = random.normal(0, 3, (3, 60, 10)).astype(np.float32)
    texts, frames = ["a bad cabbage", "deaf", "he fed a bee"], [60, 33, 51]
    labels = tf.ragged.constant([alphabet.encode(text) for text in texts]).to_tensor()
    counts = [len(text) for text in texts]
    theirs = tf.nn.ctc_loss(labels, logits, counts, frames, logits_time_major=False, blank_index=alphabet.blank)
    values = tf.nn.log_softmax(logits).numpy()
    ours = [text_loss(row[:count], text, alphabet)[0] for row, count, text in zip(values, frames, texts, strict=True)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "text", "note"),
    [
        (-1.0, "é", r"'é' (U+00E9 LATIN SMALL LETTER E WITH ACUTE) not in the alphabet"),
        (-1.0, "aabb", "5 frames, and 6 are needed"),
        (-np.inf, "a", "the model's output is not finite"),
        (np.nan, "a", "the model's output is not finite"),
    ],
)
def test_a_text_that_the_model_cannot_output_has_no_loss_and_says_why(value: float, text: str, note: str) -> None:
    assert text_loss(np.full((5, 4), value), text, Alphabet(" ab")) == (None, f"impossible: {note}")


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


def test_words_of_subwords_have_the_times_of_their_symbols() -> None:
    alphabet = Alphabet((" ", "a", "b", "c", "ab", "abc"))
    best = [5, 6, 5, 0, 4, 3, 3, 6]  # abc, abc, space, ab, c; c after ab is spelled abc
    values = np.log(np.eye(7)[best] + 1e-3)
    words = align_words_in_audio(values, "abcabc b", alphabet, 0.5)
    assert [one.word for one in words] == ["abcabc", "b"]
    (first,) = align_words_in_audio(values[:3], "abcabc", alphabet, 0.5)
    assert (first.start, first.end) == (0.0, 1.5)
    assert first.confidence == pytest.approx(1.0, abs=0.01)

"""Words that a decoder wrote have the times at which its attention moves on."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from voxline.inference.ctc_alignment import AlignedWord
from voxline.inference.token_times import SpokenTokens, time_words
from voxline.inference.transcript import Transcript
from voxline.serving.subtitles import srt

FRAMES = 50
STARTS = [0, 4, 9, 14, 19, 24, 29, 34, 39, 43]
"""Of nine tokens and the end, by transformers 5.24's `_median_filter` and `_dynamic_time_warping` (generation_whisper),
on the softmax over the first 50 frames of `attention()`, standardized over the tokens."""


def attention() -> Any:
    """Scores of two heads, for a prompt of two tokens, nine tokens and the end, whose attention moves on evenly."""
    draw = np.random.default_rng(11)
    scores = draw.normal(0, 1, (2, 12, 60)).astype(np.float32)
    for row, center in enumerate(np.linspace(2, 46, 10)):
        scores[:, 1 + row] += 6 * np.exp(-0.5 * ((np.arange(60) - center) / 2.5) ** 2).astype(np.float32)
    return scores


def times_of(pieces: list[bytes], **how: Any) -> list[AlignedWord]:
    """Words with times in frames."""
    log_probabilities = [-0.1 * (number + 1) for number in range(9)]
    words = time_words(SpokenTokens(pieces, log_probabilities, attention(), 2), FRAMES, 0.02, **how)
    return [
        dataclasses.replace(word, start=round(word.start / 0.02, 6), end=round(word.end / 0.02, 6)) for word in words
    ]


def test_each_token_starts_where_that_of_transformers_does() -> None:
    words = times_of([f" {letter}".encode() for letter in "abcdefghi"])
    assert [word.word for word in words] == list("abcdefghi")
    assert [word.start for word in words] == STARTS[:-1]
    assert [word.end for word in words] == STARTS[1:]
    assert [word.confidence for word in words] == pytest.approx([np.exp(-0.1 * (n + 1)) for n in range(9)])


def test_marks_belong_to_a_word_and_take_no_time() -> None:
    words = times_of([b' "', b"He", b"llo", b",", b" two", b" wor", b"lds", b".", b'"'])
    assert [(word.word, word.end) for word in words] == [('"Hello,', 14), ("two", 24), ('worlds."', 34)]
    assert words[2].start == 24
    assert words[0].confidence == pytest.approx(np.exp(-(0.1 + 0.2 + 0.3 + 0.4) / 4))


def test_a_first_word_is_no_longer_than_two_others() -> None:
    """A pause before a sentence counts to its first word."""
    words = times_of([b"a", b"b", b"c", b" two.", b" f", b"o", b"ur", b" five", b" six"])
    assert [word.word for word in words] == ["abc", "two.", "four", "five", "six"]
    assert [word.end for word in words] == [14, 19, 34, 39, 43]
    # The median is 5 frames; the others keep their starts.
    assert [word.start for word in words] == [4, 14, 24, 34, 39]


def test_texts_without_spaces_have_a_word_for_each_character() -> None:
    hao = "好".encode()
    pieces = ["你".encode(), hao[:2], hao[2:], "，".encode(), b"AB", b"C", b" 3.5", "岁".encode(), "。".encode()]
    words = times_of(pieces, spaced=False)
    assert [word.word for word in words] == ["你", "好，", "ABC", "3.5", "岁。"]
    assert [word.end for word in words] == [STARTS[place] for place in (1, 3, 6, 7, 8)]
    assert all(word.start <= word.end for word in words)
    assert all(first.end <= second.start for first, second in itertools.pairwise(words))

    # Cues are written as the text is.
    words = [AlignedWord(word.word, 0.1 * number, 0.1 * number, 1.0) for number, word in enumerate(words)]
    assert "\n你好，ABC 3.5岁。\n" in srt(Transcript("你好，ABC 3.5岁。", words, 1.0, 5.0))


def test_what_is_no_character_and_what_is_short_have_times_too() -> None:
    (word,) = time_words(SpokenTokens([b" \xe4\xbd"], [-0.5], np.zeros((1, 4, 60), np.float32), 2), 2, 0.02)
    assert word.word == "�"
    assert 0 <= word.start <= word.end <= 0.04
    assert time_words(SpokenTokens([], [], np.zeros((1, 2, 60), np.float32), 2), 0, 0.02) == []
    assert time_words(SpokenTokens([b" "], [-0.5], np.zeros((1, 4, 60), np.float32), 2), 0, 0.02) == []

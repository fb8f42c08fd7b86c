"""When each word was spoken that a decoder wrote: dynamic time warping over its attention to the encodings.

As OpenAI's Whisper does it (whisper/timing.py): of the heads that follow the speech the attention to the real frames,
standardized over the tokens, smoothed by a median of 7 frames; through their mean leads the path with the highest sum,
which gives each token its first frame.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.dtw import align_by_cost
from voxline.inference.ctc_alignment import AlignedWord

Array = npt.NDArray[Any]
MEDIAN_FRAMES = 7
"""Of the smoothing; odd."""
LONGEST_MEDIAN = 0.7
"""Seconds that the median of the words counts as, at most."""
LONGEST_AFTER_PAUSE = 2.0
"""A first word, which pauses may precede, lasts this many medians at most."""
SENTENCE_ENDS = tuple(".。!！?？")
_SPACED = re.compile(r"\S+")
_UNSPACED = re.compile(r"[^\w\s]*(?:[A-Za-z0-9À-ɏ]+(?:['’.-][A-Za-z0-9À-ɏ]+)*|\w)[^\w\s]*|[^\w\s]+")
"""A word of a text without spaces: a character, or letters and digits of a European word, and the marks around it."""


@dataclasses.dataclass(frozen=True)
class SpokenTokens:
    """The tokens of a text, with what the decoder knows of each.

    Attributes:
      pieces: the bytes of each.
      log_probabilities: of each, in nats.
      attention: float32 [heads, prompt + tokens + 1, frames], of the prompt, the tokens and the end token; before the
        softmax. Without the end token where the text is as long as a text may be.
      prompt: tokens before the text.
    """

    pieces: Sequence[bytes]
    log_probabilities: Sequence[float]
    attention: Array
    prompt: int


def time_words(
    spoken: SpokenTokens, frames: int, seconds_per_frame: float, *, spaced: bool = True
) -> list[AlignedWord]:
    """The words of a text.

    Args:
      frames: real ones of the attention; the others are of silence behind the recording.
      spaced: False of a language whose words have no spaces between them: then each character is a word.

    Returns:
      Words as they are written, with the marks around them, which take no time; confidences are the geometric means
      of the probabilities of their tokens.
    """
    if not spoken.pieces:
        return []
    starts = _token_starts(spoken, max(frames, 1)) * seconds_per_frame

    # Bytes that are no whole character keep their places: [tokens + 1] where each token begins.
    text = b"".join(spoken.pieces).decode("utf-8", "surrogateescape")
    token_ends = np.cumsum([len(piece) for piece in spoken.pieces])
    places = np.cumsum([0, *(len(character.encode("utf-8", "surrogateescape")) for character in text)])

    words = []
    for match in (_SPACED if spaced else _UNSPACED).finditer(text):
        first, last = _tokens_within(token_ends, places[match.start()], places[match.end()])
        mean = math.fsum(spoken.log_probabilities[first : last + 1]) / (last + 1 - first)
        word = match[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")

        # Times without the marks around it.
        begin, end = _without_marks(match[0])
        inner = _tokens_within(token_ends, places[match.start() + begin], places[match.start() + end])
        words.append(AlignedWord(word, float(starts[inner[0]]), float(starts[inner[1] + 1]), math.exp(min(mean, 0.0))))
    return _shorten_after_pauses(words)


def _token_starts(spoken: SpokenTokens, frames: int) -> Array:
    """The first frame of each token and of what follows the last one, [tokens + 1]."""
    scores = spoken.attention[:, :, :frames].astype(np.float32)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    deviation = np.maximum(shares.std(axis=1, keepdims=True), np.float32(1e-10))
    standardized = (shares - shares.mean(axis=1, keepdims=True)) / deviation

    # A row predicts the next token: the last of the prompt the first one, and the last token the end.
    first = spoken.prompt - 1
    matrix = _median(standardized[:, first : first + len(spoken.pieces) + 1]).mean(axis=0)
    path = align_by_cost(-matrix.astype(np.float64)).path
    starts: Array = path[np.searchsorted(path[:, 0], np.arange(len(matrix))), 1]
    return starts


def _median(values: Array) -> Array:
    """The median over neighbors along the last axis, which is reflected at its ends; what is too short stays."""
    side = MEDIAN_FRAMES // 2
    if values.shape[-1] <= side:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(side, side)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_FRAMES, axis=-1)
    middle: Array = np.partition(windows, side, axis=-1)[..., side]
    return middle


def _tokens_within(token_ends: Array, begin: int, end: int) -> tuple[int, int]:
    """The first and the last token that write a byte of a stretch."""
    return int(np.searchsorted(token_ends, begin, "right")), int(np.searchsorted(token_ends, end, "left"))


def _without_marks(word: str) -> tuple[int, int]:
    """The stretch from the first to the last letter or digit; all of a word that has none.

    >>> _without_marks('"Well,"'), _without_marks("...")
    ((1, 5), (0, 3))
    """
    letters = [place for place, character in enumerate(word) if character.isalnum()]
    return (letters[0], letters[-1] + 1) if letters else (0, len(word))


def _shorten_after_pauses(words: list[AlignedWord]) -> list[AlignedWord]:
    """Lets the first word of the text and of a sentence begin later, where a pause before it counts to it."""
    durations = [word.end - word.start for word in words if word.end > word.start]
    longest = LONGEST_AFTER_PAUSE * min(LONGEST_MEDIAN, float(np.median(durations))) if durations else 0.0
    shortened = []
    for number, word in enumerate(words):
        begins = number == 0 or words[number - 1].word.endswith(SENTENCE_ENDS)
        if begins and word.end - word.start > longest:
            word = dataclasses.replace(word, start=word.end - longest)
        shortened.append(word)
    return shortened

"""CTC forced alignment: when each word of a text was spoken, and how sure the model is of it.

The alignment is the most probable path of the text through the model's log probabilities (Graves et al. 2006,
"Connectionist Temporal Classification", section 4; found by the Viterbi algorithm).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.text.alphabet import Alphabet, min_ctc_frames

Array = npt.NDArray[Any]
LEAST = -1e4
"""For a log probability of minus infinity, or one that is not a number: a path has to exist."""


@dataclasses.dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word in the audio.

    Attributes:
      start, end: seconds.
      confidence: from 0 to 1; the geometric mean, over the word's characters, of the highest probability of the
        character among its frames.
    """

    word: str
    start: float
    end: float
    confidence: float


def align_words_in_audio(
    log_probabilities: Array, text: str, alphabet: Alphabet, seconds_per_frame: float
) -> list[AlignedWord]:
    """Aligns a text with the output of a CTC model; [] if it has too few frames or characters it does not know.

    Args:
      log_probabilities: [frames, symbols + 1], the blank last.
      text: words between single spaces.

    >>> alphabet = Alphabet(" ab")
    >>> best = [1, 3, 1, 0, 2, 2]  # a a b, as CTC spells "aa b"
    >>> [
    ...     (one.word, one.start, one.end)
    ...     for one in align_words_in_audio(np.log(np.eye(4)[best] + 1e-3), "aa b", alphabet, 0.5)
    ... ]
    [('aa', 0.0, 1.5), ('b', 2.0, 3.0)]
    """
    labels = [] if alphabet.unknown(text) else alphabet.encode(text)
    if not labels or min_ctc_frames(labels) > len(log_probabilities):
        return []
    log_probabilities = np.fmax(log_probabilities, LEAST)
    spans = force_align(log_probabilities, labels)
    words, first = [], 0
    for word in text.split(" "):
        last = first + len(word)
        if word:
            best = [
                float(log_probabilities[start:end, label].max())
                for (start, end), label in zip(spans[first:last], labels[first:last], strict=True)
            ]
            start, end = spans[first][0] * seconds_per_frame, spans[last - 1][1] * seconds_per_frame
            words.append(AlignedWord(word, start, end, min(1.0, math.exp(math.fsum(best) / len(best)))))
        first = last + 1
    return words


def force_align(log_probabilities: Array, labels: Sequence[int]) -> list[tuple[int, int]]:
    """The frames of each label on the most probable path: (first, last + 1).

    Args:
      log_probabilities: [frames, classes], the blank last.
      labels: without blanks; there must be enough frames for them (`min_ctc_frames`).

    Raises:
      ValueError: there are too few frames.
    """
    frames, blank = len(log_probabilities), log_probabilities.shape[1] - 1
    if min_ctc_frames(labels) > frames or not labels:
        raise ValueError(f"{len(labels)} labels cannot be aligned with {frames} frames")
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    # From a label, the blank after it may be skipped, unless the next label is the same.
    may_skip = np.zeros(len(states), bool)
    may_skip[3::2] = states[3::2] != states[1:-2:2]
    score = np.full(len(states), -np.inf)
    score[:2] = log_probabilities[0, states[:2]]
    moves = np.zeros((frames, len(states)), np.int8)
    for frame in range(1, frames):
        options = np.full((3, len(states)), -np.inf)
        options[0], options[1, 1:] = score, score[:-1]
        options[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        moves[frame] = options.argmax(axis=0)
        score = options.max(axis=0) + log_probabilities[frame, states]
    state = len(states) - 1 if score[-1] >= score[-2] else len(states) - 2
    path = np.empty(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        state -= int(moves[frame, state])
    spans = []
    for position in range(len(labels)):
        (at,) = np.nonzero(path == 2 * position + 1)
        spans.append((int(at[0]), int(at[-1]) + 1))
    return spans

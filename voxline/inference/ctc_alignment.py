"""CTC forced alignment: when each word of a text was spoken, and how sure the model is of it; and the loss of a text.

The alignment is the most probable path of the text through the model's log probabilities (Graves et al. 2006,
"Connectionist Temporal Classification", section 4; found by the Viterbi algorithm).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.text.alphabet import Alphabet, min_ctc_frames, name_characters

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
    log_probabilities: Array, text: str, alphabet: Alphabet, seconds_per_frame: float, first_frame: float = 0.0
) -> list[AlignedWord]:
    """Aligns a text with the output of a CTC model; [] if it has too few frames or characters it does not know.

    Args:
      log_probabilities: [frames, symbols + 1], the blank last.
      text: words between single spaces.
      first_frame: seconds at which it begins, which is before the audio with frames of padding.

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

    # NaN and minus infinity become a low number: a path has to exist, and one NaN would spread to all of them.
    log_probabilities = np.fmax(log_probabilities, LEAST)
    spans = force_align(log_probabilities, labels)
    words = []

    # `spans` has one entry for each label, that of the space between two words included.
    for word, (first, last) in zip(text.split(" "), alphabet.label_words(text), strict=False):
        if last > first:
            best = [
                float(log_probabilities[start:end, label].max())
                for (start, end), label in zip(spans[first:last], labels[first:last], strict=True)
            ]
            start, end = (
                max(0.0, first_frame + frame * seconds_per_frame) for frame in (spans[first][0], spans[last - 1][1])
            )
            words.append(AlignedWord(word, start, end, min(1.0, math.exp(math.fsum(best) / len(best)))))
    return words


def text_loss(log_probabilities: Array, text: str, alphabet: Alphabet) -> tuple[float | None, str]:
    """The CTC loss of a text: minus the log probability of all its paths together (Graves et al. 2006, section 4.1).

    Args:
      log_probabilities: [frames, symbols + 1], the blank last.

    Returns:
      The loss in nats, and ""; None, and why the text has none: the model cannot output it.

    >>> even = np.log(np.full((2, 3), 1 / 3))  # of the 9 paths, "a" has three: a a, a blank, blank a
    >>> text_loss(even, "a", Alphabet("ab"))[0] == text_loss(even, "b", Alphabet("ab"))[0]
    True
    >>> round(text_loss(even, "a", Alphabet("ab"))[0], 4), text_loss(even, "aa", Alphabet("ab"))
    (1.0986, (None, 'impossible: 2 frames, and 3 are needed'))
    """
    if unknown := alphabet.unknown(text):
        return None, f"impossible: {name_characters(unknown)} not in the alphabet"
    labels = alphabet.encode(text)
    if (needed := min_ctc_frames(labels)) > len(log_probabilities):
        return None, f"impossible: {len(log_probabilities):,} frames, and {needed:,} are needed"

    # states [2 · labels + 1]; values [frames, states]
    states, may_skip = _states(labels, alphabet.blank)
    values = np.asarray(log_probabilities, np.float64)[:, states]
    never_skipped = np.where(may_skip, 0.0, -np.inf)

    # α of Graves et al. (section 4.1) in logarithms, with the predecessors of each state as shifted views of one array.
    before = np.full(len(states) + 2, -np.inf)  # two columns in front of the first state
    score = before[2:]
    moved = before[1:-1]
    skipped = before[:-2]
    score[0] = 0.0  # before the first frame: as after a blank
    with np.errstate(invalid="ignore"):
        for row in values:
            # From the same state, the one before it, and over a blank the one before that.
            after = np.logaddexp(score, moved)
            np.logaddexp(after, skipped + never_skipped, out=after)
            np.add(after, row, out=score)
        # A path ends in the last label or in the blank behind it.
        loss = -float(np.logaddexp.reduce(score[-2:]))
    return (max(loss, 0.0), "") if math.isfinite(loss) else (None, "impossible: the model's output is not finite")


def _states(labels: Sequence[int], blank: int) -> tuple[Array, Array]:
    """The labels with a blank around each, and before which of them the blank may be skipped."""
    # [2 · labels + 1], blanks at even places
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    may_skip = np.zeros(len(states), bool)
    may_skip[3::2] = states[3::2] != states[1:-2:2]  # unless the label before is the same
    return states, may_skip


def force_align(log_probabilities: Array, labels: Sequence[int]) -> list[tuple[int, int]]:
    """The frames of each label on the most probable path: (first, last + 1).

    Args:
      log_probabilities: [frames, classes], the blank last.
      labels: without blanks; there must be enough frames for them (`min_ctc_frames`).

    Raises:
      ValueError: there are too few frames.
    """
    frames = len(log_probabilities)
    blank = log_probabilities.shape[1] - 1
    if min_ctc_frames(labels) > frames or not labels:
        raise ValueError(f"{len(labels)} labels cannot be aligned with {frames} frames")

    states, may_skip = _states(labels, blank)
    score = np.full(len(states), -np.inf)
    score[:2] = log_probabilities[0, states[:2]]

    # [frames, states]: how many states each step advanced; 0, 1 or 2.
    moves = np.zeros((frames, len(states)), np.int8)

    # [3, states]: stay, advance, or skip a blank
    for frame in range(1, frames):
        options = np.full((3, len(states)), -np.inf)
        options[0] = score
        options[1, 1:] = score[:-1]
        options[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        moves[frame] = options.argmax(axis=0)
        score = options.max(axis=0) + log_probabilities[frame, states]

    # Back from the better of the last blank and the last label.
    state = len(states) - 1 if score[-1] >= score[-2] else len(states) - 2
    path = np.empty(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        state -= int(moves[frame, state])

    # The label at `position` is state 2 · position + 1.
    spans = []
    for position in range(len(labels)):
        (at,) = np.nonzero(path == 2 * position + 1)
        spans.append((int(at[0]), int(at[-1]) + 1))
    return spans

"""The Viterbi search of `alignment`, compiled by numba: the best path through a text with gaps on either side.

A word is a chain of CTC states. Before each word there is a boundary, where blanks and spaces pass, and beside it a
state for audio that the text lacks. From any boundary a path may skip to any later one: text that the audio lacks.

States of word `w`, from `base[w]` on: audio without text, boundary, first symbol, blank, second symbol, …, last symbol.
Two more follow the last word.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.inference.compiled import compiled

Array = npt.NDArray[Any]
NONE = -np.inf
ANY = -1
"""The label of a symbol that the model does not know: it passes as whatever the model hears."""
STAY = 0
SKIP = 100
FROM_BOUNDARY = 101
"""Moves of a path; any other is how many states back it came from."""


class GapCosts(NamedTuple):
    """The costs of gaps, in nats.

    Attributes:
      open_audio: once, for audio that the text lacks.
      symbol: for each symbol that the model hears in it.
      open_text: once, for words that the audio lacks.
      word: for each of them.
      line: where they begin within a line, and where they end within one; and for audio within one.
    """

    open_audio: float
    symbol: float
    open_text: float
    word: float
    line: float


class HeardFrames(NamedTuple):
    """The output of a model, [frames].

    Attributes:
      values: float32 [frames, symbols + 1], log probabilities.
      best: float32, the highest of each frame.
      pause: float32, the higher one of blank and space.
      begins: bool, whether a symbol other than a space begins there by greedy decoding.
    """

    values: Array
    best: Array
    pause: Array
    begins: Array


@compiled
def best_gapped_path(
    output: HeardFrames, labels: Array, first_label: Array, within: Array, blank: int, joined: bool, costs: GapCosts
) -> Any:
    """The state of each frame on the best path.

    Args:
      labels: int32, of all words.
      first_label: int32 [words + 1], where each word's begin.
      within: bool [words + 1], whether the word before is of the same line.
      joined: words may follow each other without a frame between.

    Returns:
      int32 [frames] the states; int32 [states] the word of each; int32 [states] its place in `labels`, -1: none.
    """
    values = output.values
    frames = len(output.best)
    words = len(first_label) - 1

    # States in a row: for each word its gap, its boundary, and its symbols with blanks between them.
    base = np.zeros(words + 1, np.int32)
    for word in range(words):
        base[word + 1] = base[word] + 2 * (first_label[word + 1] - first_label[word]) + 1
    states = base[words] + 2

    # [states]
    word_of = np.empty(states, np.int32)
    place_of = np.full(states, -1, np.int32)
    for word in range(words + 1):
        end = base[word + 1] if word < words else states
        word_of[base[word] : end] = word
        if word < words:
            for place in range(first_label[word], first_label[word + 1]):
                place_of[base[word] + 2 + 2 * (place - first_label[word])] = place
    path = np.empty(frames, np.int32)
    if frames == 0:
        return path, word_of, place_of

    # Viterbi: [frames, states] the move into each state, and [frames, words + 1] the source of a skip.
    moves = np.zeros((frames, states), np.uint8)
    jumps = np.zeros((frames, words + 1), np.int32)
    before = np.full(states, NONE)
    score = np.full(states, NONE)

    # One step beyond the last frame, in which words may still be skipped.
    for frame in range(frames + 1):
        skipped = NONE
        source = 0

        # [labels] the log probabilities of the frame
        row = values[min(frame, frames - 1)]
        last = frame == frames
        free = 0.0 if last else float(output.best[frame])
        gap = free - (costs.symbol if not last and output.begins[frame] else 0.0)
        anything = 0.5 * (free + gap)
        pause = 0.0 if last else float(output.pause[frame])
        # The loop goes through the words in order, so that a skip that begins at one is seen by all later ones.
        for word in range(words + 1):
            at = base[word]
            inside = costs.line if within[word] else 0.0
            opening = costs.open_audio + inside
            # The best way to be between the words, so far.
            arrived = NONE
            previous = at + 1
            if frame == 0:
                arrived = 0.0 if word == 0 else NONE
            else:
                arrived = before[at + 1]
                if before[at] > arrived:
                    arrived = before[at]
                    previous = at
                if word > 0 and before[at - 1] > arrived:
                    arrived = before[at - 1]
                    previous = at - 1
            if last:
                if word < words:
                    if arrived - costs.open_text - inside > skipped:
                        skipped = arrived - costs.open_text - inside
                        source = previous
                    skipped -= costs.word
                elif skipped - inside > arrived:
                    previous = source
                path[frames - 1] = previous
                continue

            # Audio without text.
            best = before[at]
            move = STAY
            entering = before[at + 1] - opening
            if entering > best:
                best = entering
                move = FROM_BOUNDARY
            if word > 0 and before[at - 1] - opening > best:
                best = before[at - 1] - opening
                move = 1
            if frame == 0 and word == 0:
                best = -opening
            if skipped - inside - opening > best:
                best = skipped - inside - opening
                move = SKIP
            score[at] = best + gap
            moves[frame, at] = move

            # The boundary.
            best = before[at + 1]
            move = STAY
            if before[at] > best:
                best = before[at]
                move = 1
            if word > 0 and before[at - 1] > best:
                best = before[at - 1]
                move = 2
            if frame == 0 and word == 0:
                best = 0.0
            if skipped - inside > best:
                best = skipped - inside
                move = SKIP
            score[at + 1] = best + pause
            moves[frame, at + 1] = move
            jumps[frame, word] = source
            if word == words:
                continue
            if arrived - costs.open_text - inside > skipped:
                skipped = arrived - costs.open_text - inside
                source = previous
            skipped -= costs.word

            # The symbols of the word, with blanks between.
            first = first_label[word]
            end = first_label[word + 1]
            for place in range(first, end):
                state = at + 2 + 2 * (place - first)
                label = labels[place]
                best = before[state]
                move = STAY
                if before[state - 1] > best:
                    best = before[state - 1]
                    move = 1
                if place == first:
                    if before[state - 2] > best:  # audio without text
                        best = before[state - 2]
                        move = 2
                    if joined and word > 0 and labels[place - 1] != label and before[state - 3] > best:
                        best = before[state - 3]
                        move = 3
                    if frame == 0 and word == 0:
                        best = 0.0
                        move = STAY
                elif labels[place - 1] != label and before[state - 2] > best:
                    best = before[state - 2]
                    move = 2
                score[state] = best + (anything if label == ANY else float(row[label]))
                moves[frame, state] = move
                if place + 1 < end:
                    best = before[state + 1]
                    move = STAY
                    if before[state] > best:
                        best = before[state]
                        move = 1
                    score[state + 1] = best + float(row[blank])
                    moves[frame, state + 1] = move
        if not last:
            before, score = score, before

    # Backtracking from the last state.
    state = path[frames - 1]
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        move = moves[frame, state]
        if move == SKIP:
            state = jumps[frame, word_of[state]]
        elif move == FROM_BOUNDARY:
            state += 1
        else:
            state -= move
    return path, word_of, place_of

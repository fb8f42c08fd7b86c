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
STAY, SKIP, FROM_BOUNDARY = 0, 100, 101
"""Moves of a path; any other is how many states back it came from."""


class GapCosts(NamedTuple):
    """What gaps cost, in nats.

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
    heard: HeardFrames, labels: Array, first_label: Array, within: Array, blank: int, joined: bool, costs: GapCosts
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
    values, frames, words = heard.values, len(heard.best), len(first_label) - 1
    base = np.zeros(words + 1, np.int32)
    for word in range(words):
        base[word + 1] = base[word] + 2 * (first_label[word + 1] - first_label[word]) + 1
    states = base[words] + 2
    word_of, place_of = np.empty(states, np.int32), np.full(states, -1, np.int32)
    for word in range(words + 1):
        end = base[word + 1] if word < words else states
        word_of[base[word] : end] = word
        if word < words:
            for place in range(first_label[word], first_label[word + 1]):
                place_of[base[word] + 2 + 2 * (place - first_label[word])] = place
    path = np.empty(frames, np.int32)
    if frames == 0:
        return path, word_of, place_of
    moves = np.zeros((frames, states), np.uint8)
    jumps = np.zeros((frames, words + 1), np.int32)
    before, score = np.full(states, NONE), np.full(states, NONE)
    for frame in range(frames + 1):
        skipped, source = NONE, 0
        row = values[min(frame, frames - 1)]
        last = frame == frames
        free = 0.0 if last else float(heard.best[frame])
        gap = free - (costs.symbol if not last and heard.begins[frame] else 0.0)
        anything = 0.5 * (free + gap)
        pause = 0.0 if last else float(heard.pause[frame])
        for word in range(words + 1):
            at = base[word]
            inside = costs.line if within[word] else 0.0
            opening = costs.open_audio + inside
            # The best way to be between the words, so far.
            arrived, came = NONE, at + 1
            if frame == 0:
                arrived = 0.0 if word == 0 else NONE
            else:
                arrived = before[at + 1]
                if before[at] > arrived:
                    arrived, came = before[at], at
                if word > 0 and before[at - 1] > arrived:
                    arrived, came = before[at - 1], at - 1
            if last:
                if word < words:
                    if arrived - costs.open_text - inside > skipped:
                        skipped, source = arrived - costs.open_text - inside, came
                    skipped -= costs.word
                elif skipped - inside > arrived:
                    came = source
                path[frames - 1] = came
                continue
            # Audio without text.
            best, move = before[at], STAY
            entering = before[at + 1] - opening
            if entering > best:
                best, move = entering, FROM_BOUNDARY
            if word > 0 and before[at - 1] - opening > best:
                best, move = before[at - 1] - opening, 1
            if frame == 0 and word == 0:
                best = -opening
            if skipped - inside - opening > best:
                best, move = skipped - inside - opening, SKIP
            score[at], moves[frame, at] = best + gap, move
            # The boundary.
            best, move = before[at + 1], STAY
            if before[at] > best:
                best, move = before[at], 1
            if word > 0 and before[at - 1] > best:
                best, move = before[at - 1], 2
            if frame == 0 and word == 0:
                best = 0.0
            if skipped - inside > best:
                best, move = skipped - inside, SKIP
            score[at + 1], moves[frame, at + 1] = best + pause, move
            jumps[frame, word] = source
            if word == words:
                continue
            if arrived - costs.open_text - inside > skipped:
                skipped, source = arrived - costs.open_text - inside, came
            skipped -= costs.word
            # The symbols of the word, with blanks between.
            first, end = first_label[word], first_label[word + 1]
            for place in range(first, end):
                state = at + 2 + 2 * (place - first)
                label = labels[place]
                best, move = before[state], STAY
                if before[state - 1] > best:
                    best, move = before[state - 1], 1
                if place == first:
                    if before[state - 2] > best:  # audio without text
                        best, move = before[state - 2], 2
                    if joined and word > 0 and labels[place - 1] != label and before[state - 3] > best:
                        best, move = before[state - 3], 3
                    if frame == 0 and word == 0:
                        best, move = 0.0, STAY
                elif labels[place - 1] != label and before[state - 2] > best:
                    best, move = before[state - 2], 2
                score[state] = best + (anything if label == ANY else float(row[label]))
                moves[frame, state] = move
                if place + 1 < end:
                    best, move = before[state + 1], STAY
                    if before[state] > best:
                        best, move = before[state], 1
                    score[state + 1], moves[frame, state + 1] = best + float(row[blank]), move
        if not last:
            before, score = score, before
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

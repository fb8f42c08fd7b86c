"""The search of `alignment`: a text as symbols, and the frames of each of its words in a recording that was heard.

Memory is bounded by `MAX_CELLS`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.inference.ctc_alignment import LEAST
from voxline.inference.heard_recording import HeardRecording, ValuesFile
from voxline.text.alphabet import Alphabet, is_ideograph, word_spans

Array = npt.NDArray[Any]
ANCHORS = (20, 10)
"""Characters that must agree; the smaller number only where sections would be too large. An ideograph counts three."""
ANCHOR_SPACING = 200
"""Characters between two anchors in a stretch that agrees."""
MAX_CELLS = 200_000_000
"""Frames times states of a section, each a byte. Where the model hears that little of a text, it is not searched."""
AUDIO_COST = 12.0
SYMBOL_COST = 2.0
TEXT_COST = 16.0
WORD_COST = 1.0
LINE_COST = 6.0
"""See `alignment_kernel.GapCosts`. A wrong text costs several nats a symbol, a right one less than one."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptWord:
    """A word of a text.

    Attributes:
      line: its index.
      start, end: of its characters in the line, punctuation around it included.
      spelled: as the model spells it.
      labels: of its symbols; -1 for a character that the alphabet lacks.
    """

    line: int
    start: int
    end: int
    spelled: str
    labels: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """The words of lines; a line may have none."""

    lines: Sequence[str]
    words: list[ScriptWord]

    @classmethod
    def of(cls, lines: Sequence[str], alphabet: Alphabet, normalize: Callable[[str], str]) -> "Script":
        """Splits lines into words; marks without a word belong to the word before, or to the first one."""
        words: list[ScriptWord] = []
        for number, line in enumerate(lines):
            first = 0
            for start, end in word_spans(line):
                spelled = normalize(line[start:end])
                begun = bool(words) and words[-1].line == number
                if any(map(str.isalnum, spelled)):
                    labels = _labels(spelled, alphabet)
                    words.append(ScriptWord(number, start if begun else first, end, spelled, labels))
                elif begun:
                    words[-1] = dataclasses.replace(words[-1], end=end)
        return cls(lines, words)


def _labels(spelled: str, alphabet: Alphabet) -> list[int]:
    if alphabet.unknown(spelled):
        return [-1 if alphabet.unknown(symbol) else alphabet.encode(symbol)[-1] for symbol in spelled]
    return alphabet.encode(spelled)


@dataclasses.dataclass(frozen=True, slots=True)
class WordPlaces:
    """The places of the words of a text.

    Attributes:
      first, last: int64 [words], frames; -1: the word was not found.
      confidence: float64 [words].
      unwritten: bool [frames], audio that the text lacks.
    """

    first: Array
    last: Array
    confidence: Array
    unwritten: Array


def find_words(script: Script, output: HeardRecording, alphabet: Alphabet) -> WordPlaces:
    """Finds the frames of each word."""
    symbols = greedy_symbols(output.best, alphabet)
    count = len(script.words)
    frames = len(output.best)
    missing = np.full(count, -1, np.int64)

    # Arrays of [words], filled section by section.
    places = WordPlaces(missing, missing.copy(), np.zeros(count), np.zeros(frames, bool))
    for section in _Anchors(script, symbols, alphabet).sections(frames):
        # Too large even between the finer anchors: hardly anything there agrees with the text.
        if section.cells > MAX_CELLS:
            places.unwritten[section.first_frame : section.last_frame] = True
        elif section.first_word < section.last_word:
            _search(script, output, section, alphabet, symbols.begins, places)
        elif section.first_frame < section.last_frame:
            places.unwritten[section.first_frame : section.last_frame] = True
    return places


@dataclasses.dataclass(frozen=True, slots=True)
class GreedySymbols:
    """The symbols of greedy decoding, without spaces.

    Attributes:
      labels, first, last: of each symbol; first and last are frames.
      begins: bool [frames], whether a symbol begins there.
    """

    labels: Array
    first: Array
    last: Array
    begins: Array


def _space(alphabet: Alphabet) -> int:
    """The label of the space; -1: there is none."""
    return alphabet.symbols.index(" ") if " " in alphabet.symbols else -1


def greedy_symbols(best: Array, alphabet: Alphabet) -> GreedySymbols:
    """
    Args:
      best: int [frames], the most probable labels.
    """
    changes = np.diff(best, prepend=-1) != 0
    begins = changes & (best != alphabet.blank) & (best != _space(alphabet))

    # Runs of equal labels: first and last frame of each, as in greedy decoding.
    (runs,) = np.nonzero(changes)
    last = np.append(runs[1:] - 1, len(best) - 1)[: len(runs)]
    spoken = begins[runs]
    return GreedySymbols(best[runs][spoken], runs[spoken], last[spoken], begins)


@dataclasses.dataclass(frozen=True, slots=True)
class _Section:
    """Words and frames between two anchors, the last ones excluded."""

    first_word: int
    last_word: int
    first_frame: int
    last_frame: int
    cells: int


class _Anchors:
    """The words at which a text agrees with the greedy transcript."""

    def __init__(self, script: Script, symbols: GreedySymbols, alphabet: Alphabet) -> None:
        from rapidfuzz.distance import Levenshtein

        self._symbols = symbols
        spelled = [word.spelled.replace(" ", "") for word in script.words]
        symbols_of_frames = [alphabet.symbols[label].replace(" ", "") for label in symbols.labels.tolist()]

        # A subword has several characters: each character knows the symbol that it came from.
        self._symbol_of = np.repeat(np.arange(len(symbols_of_frames)), [len(symbol) for symbol in symbols_of_frames])
        text = "".join(spelled)

        # Prefix sums over words: where each begins in the joined text, and how many states are before it.
        self._first = np.cumsum([0, *map(len, spelled)])
        self._states = np.cumsum([0, *(2 * len(word.labels) + 1 for word in script.words)])

        # Stretches in which text and transcript agree, as (start, end) in the text and start in the transcript.
        self._blocks = [
            (code.src_start, code.src_end, code.dest_start)
            for code in Levenshtein.opcodes(text, "".join(symbols_of_frames))
            if code.tag == "equal"
        ]
        self._weights = np.cumsum([0, *(3 if is_ideograph(character) else 1 for character in text)])

    def sections(self, frames: int) -> Iterator[_Section]:
        """The text and the recording, cut where long stretches agree, and at shorter ones where that is too coarse."""
        coarse, fine = (self._anchors(needed) for needed in ANCHORS)
        for section in self._between([(0, 0), *coarse, (len(self._first) - 1, frames)]):
            if section.cells <= MAX_CELLS:
                yield section
                continue

            # Only within the sections that are too large: a short stretch may agree by chance.
            inside = [
                (word, frame)
                for word, frame in fine
                if section.first_word < word < section.last_word and section.first_frame < frame < section.last_frame
            ]
            ends = (section.first_word, section.first_frame), (section.last_word, section.last_frame)
            yield from self._between([ends[0], *inside, ends[1]])

    def _between(self, anchors: Sequence[tuple[int, int]]) -> Iterator[_Section]:
        for (word, frame), (next_word, next_frame) in itertools.pairwise(anchors):
            states = int(self._states[next_word] - self._states[word]) + 2
            yield _Section(word, next_word, frame, next_frame, states * (next_frame - frame))

    def _anchors(self, needed: int) -> list[tuple[int, int]]:
        """Words, and the frames before which they begin."""
        anchors = []
        for start, end, at in self._blocks:
            if self._weights[end] - self._weights[start] < needed:
                continue

            # An anchor lies inside its stretch, away from both ends, where an agreement by chance is most likely.
            next_place = start + min(end - start, ANCHOR_SPACING) // 2
            for word in range(*np.searchsorted(self._first, [start + 1, end]).tolist()):
                first = int(self._first[word])
                sides = self._weights[first] - self._weights[start], self._weights[end] - self._weights[first]
                if first >= next_place and min(sides) >= needed // 4:
                    before = self._symbol_of[at + first - start - 1]
                    after = self._symbol_of[at + first - start]
                    # Halfway between the symbol before the word and its first symbol.
                    anchors.append((word, int(self._symbols.last[before] + 1 + self._symbols.first[after]) // 2))
                    next_place = first + ANCHOR_SPACING
        return anchors


def _search(
    script: Script, output: HeardRecording, section: _Section, alphabet: Alphabet, begins: Array, places: WordPlaces
) -> None:
    """Finds the words of a section."""
    from voxline.inference.alignment_kernel import (  # numba takes a second to import
        GapCosts,
        HeardFrames,
        best_gapped_path,
    )

    # labels int32 [labels], first_label int32 [words + 1], within bool [words + 1]
    frames = slice(section.first_frame, section.last_frame)
    words = script.words[section.first_word : section.last_word]
    labels = np.array([label for word in words for label in word.labels], np.int32)
    first_label = np.cumsum([0, *(len(word.labels) for word in words)]).astype(np.int32)
    within = np.array([False, *(token.line == other.line for token, other in itertools.pairwise(words)), False])
    joined = _space(alphabet) < 0 or alphabet.words_begin_with_space or any(map(is_ideograph, alphabet.characters))
    # Of the symbols, those of the section alone: a section in Mandarin has a few of thousands.
    used_labels = np.unique(labels[labels >= 0])
    labels = np.where(labels >= 0, np.searchsorted(used_labels, labels), labels).astype(np.int32)

    # values float32 [frames, labels of the section + 1]; best and pause float32 [frames]
    values, best, pause = _read_values(output.values, section, used_labels, alphabet)
    path, word_of, place_of = best_gapped_path(
        HeardFrames(values, best, pause, begins[frames]),
        labels, first_label, within, len(used_labels), joined,
        GapCosts(AUDIO_COST, SYMBOL_COST, TEXT_COST, WORD_COST, LINE_COST),
    )  # fmt: skip

    # The first state of each word is its gap: audio without text.
    places.unwritten[frames] = np.append(True, word_of[1:] != word_of[:-1])[path]
    place = place_of[path]
    (spoken,) = np.nonzero(place >= 0)
    if not len(spoken):
        return

    # [labels] the highest log probability of each symbol among its frames; an unknown one counts as certain.
    highest = np.full(len(labels), -np.inf)
    used_labels = labels[place[spoken]] >= 0
    spoken_values = values[spoken, np.where(used_labels, labels[place[spoken]], 0)]
    np.maximum.at(highest, place[spoken], np.where(used_labels, spoken_values, 0.0))

    of_word = word_of[path[spoken]]
    for word in np.unique(of_word).tolist():
        at = spoken[of_word == word]
        number = section.first_word + word
        places.first[number], places.last[number] = section.first_frame + at[0], section.first_frame + at[-1]
        word_values = highest[first_label[word] : first_label[word + 1]]
        places.confidence[number] = math.exp(min(0.0, float(word_values.mean())))


def _read_values(
    values: ValuesFile, section: _Section, used_labels: Array, alphabet: Alphabet
) -> tuple[Array, Array, Array]:
    """Reads the columns of the network's output that a search needs for a section.

    Args:
      used_labels: labels.

    Returns:
      float32 [frames, known + 1], log probabilities of those labels and of the blank; float32 [frames], the highest of
      all; float32 [frames], the higher one of blank and space.
    """
    frames = section.last_frame - section.first_frame
    space = _space(alphabet)
    blank = alphabet.blank
    columns = np.append(used_labels, blank)

    # [frames, labels of the section + 1], [frames] and [frames]
    log_probabilities = np.empty((frames, len(columns)), np.float32)
    best = np.empty(frames, np.float32)
    pause = np.empty(frames, np.float32)

    # Minus infinity and values that are no numbers become a very low one: a path has to exist.
    for rows, block in values.blocks(section.first_frame, section.last_frame):
        least = np.fmax(block, np.float32(LEAST))
        log_probabilities[rows] = least[:, columns]
        best[rows] = least.max(axis=1)
        pause[rows] = least[:, blank] if space < 0 else np.maximum(least[:, blank], least[:, space])
    return log_probabilities, best, pause

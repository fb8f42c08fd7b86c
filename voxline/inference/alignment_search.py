"""The parts of `alignment`: a text as symbols, a recording as a model hears it, and the frames of each word.

Memory is bounded by `MAX_CELLS`; of the recording, levels and what is heard greedily are kept, some megabytes an hour.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import Segment, decode_segments, read_header, resample
from voxline.errors import WorkError
from voxline.inference.ctc_alignment import LEAST
from voxline.rejects import BadAudioError
from voxline.text.alphabet import Alphabet, is_ideograph, word_spans

if TYPE_CHECKING:
    from voxline.inference.recognizer import Recognizer

Array = npt.NDArray[Any]
STRETCH_SECONDS, PAUSE_SECONDS, CONTEXT_SECONDS = (1.0, 20.0), 0.25, 1.0
"""Least and most audio that the network hears at a time, cut at pauses as long as the second; and what it hears besides
where there is no pause."""
QUIET_SECONDS, ABOVE_NOISE_DB = 30.0, 10.0
"""Of audio, in which a pause is no louder than this above the quietest parts."""
BATCH_SECONDS, _BLOCK = 120.0, 60.0
"""Of audio that is in memory at a time: for the network, and for its levels."""
ANCHORS = (20, 10)
"""Characters that must agree; the smaller number only where sections would be too large. An ideograph counts three."""
ANCHOR_SPACING = 200
"""Characters between two anchors in a stretch that agrees."""
MAX_CELLS = 200_000_000
"""Frames times states of a section, each a byte. Where the model hears that little of a text, it is not searched."""
LEVEL_SECONDS = 0.005
"""Between two levels."""
AUDIO_COST, SYMBOL_COST, TEXT_COST, WORD_COST, LINE_COST = 12.0, 2.0, 16.0, 1.0, 6.0
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
        return [-1 if alphabet.unknown(symbol) else alphabet.encode(symbol)[0] for symbol in spelled]
    return alphabet.encode(spelled)


@dataclasses.dataclass(frozen=True, slots=True)
class HeardRecording:
    """A recording as a model hears it.

    Attributes:
      values: float32 [frames, symbols + 1], log probabilities; in a file.
      times: float64 [frames], seconds at which each frame begins.
      frame_seconds: from one frame to the next.
      best: int32 [frames], the most probable label.
      levels: float32, dB of full scale, one each `LEVEL_SECONDS`.
      seconds: of the recording.
    """

    values: Array
    times: Array
    frame_seconds: float
    best: Array
    levels: Array
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class WordPlaces:
    """Where the words of a text are.

    Attributes:
      first, last: int64 [words], frames; -1: the word was not found.
      confidence: float64 [words].
      unwritten: bool [frames], audio that the text lacks.
    """

    first: Array
    last: Array
    confidence: Array
    unwritten: Array


def hear(recognizer: "Recognizer", recording: Path, file: IO[bytes]) -> HeardRecording:
    """Runs a recognizer over a recording, which is cut at pauses: networks hear utterances best.

    Args:
      file: for the network's output.

    Raises:
      WorkError: the recording is absent, damaged or not audio.
    """
    rate, classes = recognizer.sample_rate, recognizer.alphabet.blank + 1
    times: list[Array] = []
    best: list[Array] = []
    frame_seconds, batch = 0.0, list[tuple[_Stretch, Array]]()

    def run() -> None:
        nonlocal frame_seconds
        for (stretch, samples), values in zip(
            batch, recognizer.log_probabilities([samples for _, samples in batch]), strict=True
        ):
            first, frame_seconds = recognizer.frame_times(len(samples) / rate, len(values))
            begins = stretch.offset + first + frame_seconds * np.arange(len(values))
            center = begins + frame_seconds / 2
            # Frames of padding count: networks learn to write the first and last symbols of close cuts there.
            kept = (center >= stretch.first) & (center < stretch.last)
            file.write(np.ascontiguousarray(values[kept], np.float32).tobytes())
            times.append(np.clip(begins[kept], stretch.start, stretch.end))
            best.append(values[kept].argmax(axis=1).astype(np.int32))
        batch.clear()

    try:
        blocks = [Segment(start, _BLOCK) for start in _blocks(recording)]
        measured = [(_levels(samples, rate), len(samples)) for samples in _in_order(recording, blocks, rate)]
        levels, seconds = np.concatenate([one for one, _ in measured]), sum(count for _, count in measured) / rate
        stretches = list(_stretches(levels, seconds))
        for stretch, samples in zip(stretches, _in_order(recording, stretches, rate), strict=True):
            batch.append((stretch, samples))
            if sum(len(one) for _, one in batch) > BATCH_SECONDS * rate:
                run()
        run()
    except BadAudioError as bad:
        raise WorkError(f"{recording}: cannot be aligned: {bad.detail} ({bad.reason})") from None
    file.flush()
    frames = sum(map(len, times))
    values = np.memmap(file, np.float32, "r", shape=(frames, classes)) if frames else np.zeros((0, classes), np.float32)
    return HeardRecording(values, np.concatenate(times), frame_seconds, np.concatenate(best), levels, seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of a recording that the network hears at a time, in seconds.

    Attributes:
      offset, duration: with the context.
      start, end: of what counts.
      first, last: of the frames that count: those of padding too, where it was cut in a pause.
    """

    offset: float
    duration: float
    start: float
    end: float
    first: float
    last: float


def _stretches(levels: Array, seconds: float) -> Iterator[_Stretch]:
    """Cuts a recording at pauses; where there is none for long, at its quietest point, with context."""
    start, context = 0.0, 0.0
    pauses = list(_pauses(levels))
    while start < seconds:
        while pauses and pauses[0] < start + STRETCH_SECONDS[0]:
            pauses.pop(0)
        end, behind = seconds, 0.0
        if pauses and pauses[0] <= start + STRETCH_SECONDS[1]:
            end = pauses[0]
        elif seconds > start + STRETCH_SECONDS[1]:
            first, last = (round((start + one) / LEVEL_SECONDS) for one in (STRETCH_SECONDS[1] / 2, STRETCH_SECONDS[1]))
            end, behind = (first + int(levels[first:last].argmin())) * LEVEL_SECONDS, CONTEXT_SECONDS
        offset, to = max(0.0, start - context), min(end + behind, seconds)
        edges = start if context else -math.inf, end if behind else math.inf
        yield _Stretch(offset, to - offset, start, end, *edges)
        start, context = end, behind


def _pauses(levels: Array) -> Iterator[float]:
    """The middle of each pause, in seconds; what is quiet depends on the minute around."""
    step, least = round(QUIET_SECONDS / LEVEL_SECONDS), round(PAUSE_SECONDS / LEVEL_SECONDS)
    quiet = np.zeros(len(levels) + 2, bool)
    for first in range(0, len(levels), step):
        noise, speech = np.percentile(levels[max(0, first - step // 2) : first + step + step // 2], [5, 95])
        part = slice(first, min(first + step, len(levels)))
        quiet[1:-1][part] = levels[part] < min(noise + ABOVE_NOISE_DB, (noise + speech) / 2)
    edges = np.diff(quiet.astype(np.int8))
    for begins, ends in zip(np.nonzero(edges == 1)[0].tolist(), np.nonzero(edges == -1)[0].tolist(), strict=True):
        if ends - begins >= least:
            yield (begins + ends) / 2 * LEVEL_SECONDS


def _blocks(recording: Path) -> list[float]:
    total = read_header(recording).seconds
    return np.arange(0, max(total - _BLOCK / 4, 1e-3), _BLOCK).tolist()


def _in_order(recording: Path, parts: "Sequence[_Stretch | Segment]", rate: int) -> Iterator[Array]:
    """The samples of parts of a recording, float32; the last part reads to the end."""
    segments = [Segment(one.offset, None if one is parts[-1] else one.duration) for one in parts]
    arrived: dict[int, Array] = {}
    following = 0
    for index, decoded in decode_segments(recording, segments, rate):
        if isinstance(decoded, BadAudioError):
            raise decoded
        arrived[index] = resample(decoded.samples, rate, rate)
        while following in arrived:
            yield arrived.pop(following)
            following += 1


def _levels(samples: Array, rate: int) -> Array:
    """The RMS level each `LEVEL_SECONDS`, in dB of full scale, -100 at least."""
    edges = np.round(np.arange(math.ceil(len(samples) / (LEVEL_SECONDS * rate))) * LEVEL_SECONDS * rate).astype(int)
    if not len(edges):
        return np.zeros(0, np.float32)
    sums = np.add.reduceat(samples.astype(np.float64) ** 2, edges)
    return (10 * np.log10(sums / np.diff(edges, append=len(samples)) + 1e-10)).astype(np.float32)


def find_words(script: Script, heard: HeardRecording, alphabet: Alphabet) -> WordPlaces:
    """Finds the frames of each word."""
    symbols = greedy_symbols(heard.best, alphabet)
    count, frames = len(script.words), len(heard.best)
    missing = np.full(count, -1, np.int64)
    places = WordPlaces(missing, missing.copy(), np.zeros(count), np.zeros(frames, bool))
    for section in _Anchors(script, symbols, alphabet).sections(frames):
        if section.cells > MAX_CELLS:
            places.unwritten[section.first_frame : section.last_frame] = True
        elif section.first_word < section.last_word:
            _search(script, heard, section, alphabet, symbols.begins, places)
        elif section.first_frame < section.last_frame:
            places.unwritten[section.first_frame : section.last_frame] = True
    return places


@dataclasses.dataclass(frozen=True, slots=True)
class GreedySymbols:
    """What a model hears by greedy decoding, without spaces.

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
    return alphabet.encode(" ")[0] if " " in alphabet.symbols else -1


def greedy_symbols(best: Array, alphabet: Alphabet) -> GreedySymbols:
    """
    Args:
      best: int [frames], the most probable labels.
    """
    changes = np.diff(best, prepend=-1) != 0
    begins = changes & (best != alphabet.blank) & (best != _space(alphabet))
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
    """Where a text and what is heard agree."""

    def __init__(self, script: Script, symbols: GreedySymbols, alphabet: Alphabet) -> None:
        from rapidfuzz.distance import Levenshtein

        self._symbols = symbols
        spelled = [word.spelled.replace(" ", "") for word in script.words]
        heard = [alphabet.symbols[label] for label in symbols.labels.tolist()]
        self._symbol_of = np.repeat(np.arange(len(heard)), [len(symbol) for symbol in heard])
        text = "".join(spelled)
        self._first = np.cumsum([0, *map(len, spelled)])
        self._states = np.cumsum([0, *(2 * len(word.labels) + 1 for word in script.words)])
        self._blocks = [
            (code.src_start, code.src_end, code.dest_start)
            for code in Levenshtein.opcodes(text, "".join(heard))
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
        found = []
        for start, end, at in self._blocks:
            if self._weights[end] - self._weights[start] < needed:
                continue
            wanted = start + min(end - start, ANCHOR_SPACING) // 2
            for word in range(*np.searchsorted(self._first, [start + 1, end]).tolist()):
                first = int(self._first[word])
                sides = self._weights[first] - self._weights[start], self._weights[end] - self._weights[first]
                if first >= wanted and min(sides) >= needed // 4:
                    before, after = self._symbol_of[at + first - start - 1], self._symbol_of[at + first - start]
                    found.append((word, int(self._symbols.last[before] + 1 + self._symbols.first[after]) // 2))
                    wanted = first + ANCHOR_SPACING
        return found


def _search(
    script: Script, heard: HeardRecording, section: _Section, alphabet: Alphabet, begins: Array, places: WordPlaces
) -> None:
    """Finds the words of a section."""
    from voxline.inference.alignment_kernel import (  # numba takes a second to import
        GapCosts,
        HeardFrames,
        best_gapped_path,
    )

    frames = slice(section.first_frame, section.last_frame)
    values = np.fmax(np.asarray(heard.values[frames]), np.float32(LEAST))
    space, blank = _space(alphabet), alphabet.blank
    pause = values[:, blank] if space < 0 else np.maximum(values[:, blank], values[:, space])
    words = script.words[section.first_word : section.last_word]
    labels = np.array([label for word in words for label in word.labels], np.int32)
    first_label = np.cumsum([0, *(len(word.labels) for word in words)]).astype(np.int32)
    within = np.array([False, *(one.line == other.line for one, other in itertools.pairwise(words)), False])
    joined = space < 0 or any(map(is_ideograph, alphabet.characters))
    path, word_of, place_of = best_gapped_path(
        HeardFrames(values, values.max(axis=1, initial=LEAST), np.ascontiguousarray(pause), begins[frames]),
        labels, first_label, within, blank, joined, GapCosts(AUDIO_COST, SYMBOL_COST, TEXT_COST, WORD_COST, LINE_COST),
    )  # fmt: skip
    places.unwritten[frames] = np.append(True, word_of[1:] != word_of[:-1])[path]
    place = place_of[path]
    (spoken,) = np.nonzero(place >= 0)
    if not len(spoken):
        return
    highest = np.full(len(labels), -np.inf)
    known = labels[place[spoken]] >= 0
    chosen = values[spoken, np.where(known, labels[place[spoken]], 0)]
    np.maximum.at(highest, place[spoken], np.where(known, chosen, 0.0))
    of_word = word_of[path[spoken]]
    for word in np.unique(of_word).tolist():
        at = spoken[of_word == word]
        number = section.first_word + word
        places.first[number], places.last[number] = section.first_frame + at[0], section.first_frame + at[-1]
        found = highest[first_label[word] : first_label[word + 1]]
        places.confidence[number] = math.exp(min(0.0, float(found.mean())))

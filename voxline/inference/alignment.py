"""Alignment of a long recording with its text: where each line is spoken, what is not spoken, and what is not written.

  recognizer = voxline.load_recognizer("runs/demo/registry/asr")
  found = voxline.align_recording(recognizer, "lecture.flac", ["The first line.", "And the second."])
  [(one.text, one.start, one.end) for one in found.utterances]

1. The network hears the recording in stretches between pauses; its output is kept in a file.
2. What it hears, symbol by symbol, is compared with the whole text by edit distance. Long stretches that agree are
   anchors, between which sections are short.
3. In each section the Viterbi algorithm finds the best path through the text, in which audio without text and text
   without audio have a price (`alignment_kernel`).
4. The edges of utterances move to where the sound begins and ends.

Memory is bounded: a section is limited, and of the recording only levels and what is heard are kept.
"""

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError
from voxline.inference.alignment_search import Script, WordPlaces, find_words, greedy_symbols
from voxline.inference.ctc_alignment import AlignedWord
from voxline.inference.heard_recording import HeardRecording, hear
from voxline.inference.pauses import LEVEL_SECONDS
from voxline.inference.token_decoder import needs_ctc
from voxline.text.alphabet import Alphabet
from voxline.text.transcripts import normalize_transcript

if TYPE_CHECKING:
    from voxline.inference.recognizer import Recognizer

Array = npt.NDArray[Any]
PAUSE_SECONDS = 0.15
"""Of low level between two words, that are a pause; less is a closure, such as that before the last t of "eight"."""
BELOW_SPEECH_DB = 35.0
ABOVE_NOISE_DB = 6.0
"""Sound is above both: this far below the loud parts of an utterance, and above the quiet parts around it."""
NOISE_SECONDS = 3.0
"""Around an utterance, from whose quiet parts its noise is known."""
ONSET_DB = 50.0
"""Before a sound, what is no softer than this below the loud parts belongs to it, such as an f; behind it, it may be
reverberation."""
SMOOTH_SECONDS = 0.025
NOISE_SPREADS = 2.0
LEAST_SPREAD_DB = 0.3
"""Sound in noise is louder than the noise of its pause, over the first, by so many quartile distances of it."""
NO_WORD = "no word in it"
HEARD_SYMBOLS = 4
"""Symbols that the model must hear in audio without text, for it to be named."""


@dataclasses.dataclass(frozen=True, slots=True)
class AlignedUtterance:
    """A line of the text, or a part of one, in the recording.

    Attributes:
      line: its number, from 1.
      text: as it was given.
      start, end: seconds, at the edges of the sound.
      confidence: the geometric mean of the words' confidences; 0 to 1.
      words: see `ctc_alignment.AlignedWord`; as the model spells them.
    """

    line: int
    text: str
    start: float
    end: float
    confidence: float
    words: list[AlignedWord]


@dataclasses.dataclass(frozen=True, slots=True)
class MissingText:
    """A part of the text that was not found in the recording.

    Attributes:
      line: its number, from 1.
      after: seconds; where it would be.
      why: "not heard", or `NO_WORD`.
    """

    line: int
    text: str
    after: float
    why: str = "not heard"


@dataclasses.dataclass(frozen=True, slots=True)
class UnwrittenAudio:
    """A part of the recording that the text lacks.

    Attributes:
      start, end: seconds.
      hypothesis: what the recognizer outputs there, by greedy decoding.
    """

    start: float
    end: float
    hypothesis: str


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingAlignment:
    """A recording and its text.

    Attributes:
      utterances, missing, unwritten: in order of the recording.
      seconds: of the recording.
    """

    utterances: list[AlignedUtterance]
    missing: list[MissingText]
    unwritten: list[UnwrittenAudio]
    seconds: float


def align_recording(
    recognizer: "Recognizer",
    recording: Path | str,
    lines: Sequence[str],
    *,
    max_seconds: float = 20.0,
    normalize: Callable[[str], str] = normalize_transcript,
) -> RecordingAlignment:
    """Finds the lines of a text in a recording of any length.

    Args:
      recognizer: any recognizer; the better it hears, the more is found.
      recording: a file of any format.
      lines: in the order in which they are spoken. Each becomes an utterance; a longer one than `max_seconds` is cut at
        its longest pauses, and one that is partly missing is what remains of it.
      normalize: a word of the text as the model spells it. A character that it cannot spell may sound like anything.

    Raises:
      WorkError: the recording is absent, damaged or not audio.
      SettingsError: `max_seconds` is not above 1, `lines` have no word, or the model is no CTC model.
    """
    if not max_seconds > 1:
        raise SettingsError(f"max_seconds is {max_seconds!r}; a number of seconds above 1 is accepted")
    if not recognizer.has_ctc:
        raise needs_ctc(recognizer.folder, "an alignment")
    alphabet = recognizer.alphabet
    script = Script.of(lines, alphabet, normalize)
    if not script.words:
        raise SettingsError("the text has no word; give the words that are spoken in the recording")

    # An hour of network output is gigabytes, so it goes through a file; it is needed until the words are found.
    with tempfile.TemporaryFile(prefix="voxline-align-") as file:
        recording_output = hear(recognizer, Path(recording), file)
        places = find_words(script, recording_output, alphabet)
    return _Cutter(script, recording_output, places, alphabet).cut(max_seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Words of one line that follow each other in the recording; the last one is excluded."""

    first: int
    last: int


class _Cutter:
    """Makes utterances of words."""

    def __init__(self, script: Script, output: HeardRecording, places: WordPlaces, alphabet: Alphabet) -> None:
        self._script = script
        self._heard = output
        self._places = places
        self._alphabet = alphabet
        self._symbols = greedy_symbols(output.best, alphabet)

        # One time more than frames, so that the end of the last frame is the start of one beyond it.
        times = np.append(output.times, output.times[-1] + output.frame_seconds) if len(output.times) else np.zeros(1)
        self._times = np.clip(times, 0.0, output.seconds)

    def cut(self, max_seconds: float) -> RecordingAlignment:
        unwritten = list(self._unwritten())

        # A line is cut at audio without text first, and what is still too long at its pauses.
        runs = [part for run in self._runs([gap.start for gap in unwritten]) for part in self._short(run, max_seconds)]
        inner = [self._inner(run) for run in runs]
        spans = self._at_the_edges([self._span(run) for run in runs], inner, unwritten)
        utterances = [self._utterance(run, *span) for run, span in zip(runs, spans, strict=True)]
        missing = list(self._missing())
        return RecordingAlignment(utterances, missing, unwritten, self._heard.seconds)

    def _found(self, word: int) -> bool:
        return bool(self._places.first[word] >= 0)

    def _span(self, run: _Run) -> tuple[float, float]:
        """Seconds, by the network."""
        places = self._places
        return float(self._times[places.first[run.first]]), float(self._times[places.last[run.last - 1] + 1])

    def _inner(self, run: _Run) -> tuple[float, float]:
        """Seconds, by the network, at which the first word ends and the last one begins."""
        (_, first), (last, _) = (self._span(_Run(word, word + 1)) for word in (run.first, run.last - 1))
        return first, last

    def _unwritten(self) -> Iterator[UnwrittenAudio]:
        """Audio without text between two words that were found, if symbols are heard in it."""
        # Frames without text, in groups between the words that were found.
        frames = np.nonzero(self._places.unwritten)[0]
        first_frames = np.sort(self._places.first[self._places.first >= 0])
        for _, group in itertools.groupby(frames.tolist(), key=lambda frame: int(np.searchsorted(first_frames, frame))):
            inside = list(group)
            first = inside[0]
            last = inside[-1]
            is_inside = (self._symbols.first >= first) & (self._symbols.first <= last)
            if is_inside.sum() >= HEARD_SYMBOLS:
                best = self._heard.best[first : last + 1]

                # Greedy decoding: repeats merge, blanks go.
                labels = best[(np.diff(best, prepend=-1) != 0) & (best != self._alphabet.blank)]
                text = " ".join(self._alphabet.decode(labels.tolist()).split())
                starts = self._symbols.first[is_inside][0]
                ends = self._symbols.last[is_inside][-1]
                yield UnwrittenAudio(float(self._times[starts]), float(self._times[ends + 1]), text)

    def _runs(self, cuts: Sequence[float]) -> Iterator[_Run]:
        """Words of a line that were found, without missing words or audio without text between them.

        Args:
          cuts: seconds, in audio without text.
        """
        words = self._script.words
        places = self._places
        first = None
        for word in range(len(words) + 1):
            # A run ends at a missing word, at the end of a line, and at a cut.
            goes_on = (
                first is not None
                and word < len(words)
                and self._found(word)
                and words[word].line == words[word - 1].line
                and np.searchsorted(cuts, self._times[places.last[word - 1]])
                == np.searchsorted(cuts, self._times[places.first[word]])
            )
            if not goes_on:
                if first is not None:
                    yield _Run(first, word)
                first = word if word < len(words) and self._found(word) else None

    def _short(self, run: _Run, max_seconds: float) -> Iterator[_Run]:
        """Cuts at the longest pauses, until no part is longer."""
        start, end = self._span(run)
        if end - start <= max_seconds or run.last - run.first < 2:
            yield run
            return
        places = self._places
        pauses = places.first[run.first + 1 : run.last] - places.last[run.first : run.last - 1]

        # Among pauses of equal length, the one nearest to the middle.
        middle = np.abs(np.arange(len(pauses)) - (len(pauses) - 1) / 2)
        at = run.first + 1 + int(np.lexsort((middle, -pauses))[0])
        yield from self._short(_Run(run.first, at), max_seconds)
        yield from self._short(_Run(at, run.last), max_seconds)

    def _missing(self) -> Iterator[MissingText]:
        """Words that were not found, by line; and lines without words."""
        words = self._script.words

        # [words] the last frame of any word up to each
        ends = np.maximum.accumulate(self._places.last) if len(words) else self._places.last
        first_of = {word.line: index for index, word in reversed(list(enumerate(words)))}
        following = 0
        for line, text in enumerate(self._script.lines):
            if line not in first_of:
                if text.strip():
                    yield MissingText(line + 1, text.strip(), self._after(ends, following), NO_WORD)
                continue
            following = first_of[line]
            while following < len(words) and words[following].line == line:
                begun = following
                while following < len(words) and words[following].line == line and not self._found(following):
                    following += 1
                if following > begun:
                    lost = self._text(_Run(begun, following))
                    yield MissingText(line + 1, lost, self._after(ends, begun))
                else:
                    following += 1

    def _after(self, ends: Array, word: int) -> float:
        frame = int(ends[word - 1]) if word else -1
        return float(self._times[frame + 1]) if frame >= 0 else 0.0

    def _text(self, run: _Run) -> str:
        words = self._script.words
        return self._script.lines[words[run.first].line][words[run.first].start : words[run.last - 1].end].strip()

    def _utterance(self, run: _Run, start: float, end: float) -> AlignedUtterance:
        places = self._places
        words = []
        for number in range(run.first, run.last):
            spelled = self._script.words[number].spelled
            begins = start if number == run.first else float(self._times[places.first[number]])
            ends = end if number == run.last - 1 else float(self._times[places.last[number] + 1])
            confidence = float(places.confidence[number])
            words.append(AlignedWord(spelled, min(max(begins, start), end), min(max(ends, start), end), confidence))

        # The geometric mean: one word that is not there counts.
        logs = [math.log(max(word.confidence, 1e-12)) for word in words]
        confidence = math.exp(math.fsum(logs) / len(logs))
        line = self._script.words[run.first].line + 1
        return AlignedUtterance(line, self._text(run), start, end, confidence, words)

    def _at_the_edges(
        self,
        spans: Sequence[tuple[float, float]],
        inner: Sequence[tuple[float, float]],
        unwritten: Sequence[UnwrittenAudio],
    ) -> list[tuple[float, float]]:
        """Moves the starts and ends of utterances to where the sound begins and ends.

        Between two utterances, one ends where the first pause begins, and the other starts where the last one ends. An
        edge does not move past its word: without a pause, a soft word is as quiet as the quiet parts. It may move into
        the word beyond, since the network hears words early or late by more than a pause. Where two edges would cross,
        as only one of them could move or their levels differ, the utterances meet.
        """
        # Each entry: start of the first word, its end, start of the last word, its end; seconds.
        words = [(begin, first, last, end) for (begin, end), (first, last) in zip(spans, inner, strict=True)]
        words += [
            (left.start, middle, middle, left.end) for left in unwritten for middle in [(left.start + left.end) / 2]
        ]

        # Each span between its neighbors in time; -1 stands for the ends of the recording.
        order = sorted(range(len(words)), key=words.__getitem__)
        around = [-1, *order, -1]
        neighbors = {two: (left, three) for left, two, three in zip(around[:-2], order, around[2:], strict=True)}
        moved = []
        for number, (start, latest, earliest, end) in enumerate(words[: len(spans)]):
            left, three = neighbors[number]
            before = (*words[left][2:], start, latest) if left >= 0 else (0.0, 0.0, start, latest)
            after = (earliest, end, *words[three][:2]) if three >= 0 else (earliest, end, *2 * (self._heard.seconds,))
            quiet, speech = self._quiet(start, end)
            begins = start
            ends = end

            # The start moves to the end of the last pause before the first word.
            pauses = self._pauses(quiet, *before)
            if pauses and pauses[-1][1] < latest:
                begins = self._until_noise(pauses[-1], speech - ONSET_DB)[1]

            # The end moves to the start of the first pause after the last word.
            pauses = self._pauses(quiet, *after)
            if pauses and pauses[0][0] > earliest:
                ends = self._until_noise(pauses[0], speech - BELOW_SPEECH_DB)[0]
            moved.append((begins, ends))

        # Neighbors may now cross, since each edge was moved alone: then they meet.
        for left, two in itertools.pairwise(range(len(moved))):
            end = moved[left][1]
            begin = moved[two][0]
            if end > begin:
                meet = end if begin == spans[two][0] else begin if end == spans[left][1] else (end + begin) / 2
                moved[left], moved[two] = (moved[left][0], meet), (meet, moved[two][1])

        # A level's length at least: an utterance of no length has no sound to keep.
        return [(begins, max(ends, begins + LEVEL_SECONDS)) for begins, ends in moved]

    def _until_noise(self, pause: tuple[float, float], least: float) -> tuple[float, float]:
        """Shortens a pause by what is louder at its ends than its middle: soft sounds in noise.

        As Rabiner and Sambur (1975, "An Algorithm for Determining the Endpoints of Isolated Utterances"), the noise of
        the pause itself says what is louder.

        Args:
          least: dB, of what is not softer than all sound.
        """
        first = _step(pause[0])
        last = _step(pause[1])
        if (last - first) * LEVEL_SECONDS < PAUSE_SECONDS:
            return pause
        width = round(SMOOTH_SECONDS / LEVEL_SECONDS)

        # [steps - width + 1], dB
        smooth = np.convolve(self._heard.levels[first:last], np.full(width, 1 / width), "valid")
        quarter = len(smooth) // 4

        # Quartiles of the middle half: the ends may hold soft speech.
        low, center, high = np.percentile(smooth[quarter : len(smooth) - quarter], [25, 50, 75])
        (noise,) = np.nonzero(smooth <= max(center + NOISE_SPREADS * max(high - low, LEAST_SPREAD_DB), least))
        return (first + int(noise[0])) * LEVEL_SECONDS, (first + int(noise[-1]) + width) * LEVEL_SECONDS

    def _quiet(self, start: float, end: float) -> tuple[float, float]:
        """The level below which is no speech, and that of the loud parts, in dB."""
        # dB of full scale, one each `LEVEL_SECONDS`
        levels = self._heard.levels
        around = levels[_step(start - NOISE_SECONDS) : _step(end + NOISE_SECONDS)]
        inside = levels[_step(start) : _step(end) + 1]
        if not len(inside) or not len(around):
            return -math.inf, 0.0
        speech = float(np.percentile(inside, 95))
        noise = float(np.percentile(around, 5))

        # Where noise is loud, halfway between noise and speech: a fixed distance would cut speech or keep noise.
        return max(speech - BELOW_SPEECH_DB, min(noise + ABOVE_NOISE_DB, (speech + noise) / 2)), speech

    def _pauses(self, quiet: float, begin: float, end: float, start: float, last: float) -> list[tuple[float, float]]:
        """The pauses between two words that reach into the gap between them, in seconds.

        If there is none, the longest one that reaches into the half of a word beside the gap: the network may hear a
        word before the pause that precedes it, or after the one that follows. Then the longest quiet part that reaches
        into the gap, or the quietest point of it.

        Args:
          begin, end: of the word before, by the network, in seconds.
          start, last: of the word behind.
        """
        first = max(0, _step(begin) - 1)
        gap = (_step(min(end, start)), _step(max(end, start)))
        levels = self._heard.levels[first : _step(last) + 1]

        # [runs, 2]: first step of each quiet run, and the one behind it
        edges = np.diff(np.concatenate([[False], levels < quiet, [False]]).astype(np.int8))
        runs = np.stack([np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]], axis=1) + first
        lengths = (runs[:, 1] - runs[:, 0]) * LEVEL_SECONDS
        inside = (runs[:, 1] >= gap[0]) & (runs[:, 0] <= gap[1])
        beside = (runs[:, 1] >= _step((begin + end) / 2)) & (runs[:, 0] <= _step((start + last) / 2))
        pauses = lengths >= PAUSE_SECONDS
        pause_runs = runs[inside & pauses]
        # Each weaker choice only where the stronger has nothing.
        for some in (beside & pauses, inside):
            if not len(pause_runs) and some.any():
                pause_runs = runs[[np.where(some, lengths, 0.0).argmax()]]
        if len(pause_runs):
            return [(float(one) * LEVEL_SECONDS, float(other) * LEVEL_SECONDS) for one, other in pause_runs]

        # Nothing is quiet: the quietest point, as a pause of no length.
        between = self._heard.levels[gap[0] : gap[1] + 1]
        if not len(between):
            return []
        point = (gap[0] + int(between.argmin())) * LEVEL_SECONDS
        return [(point, point)]


def _step(seconds: float) -> int:
    return max(0, round(seconds / LEVEL_SECONDS))

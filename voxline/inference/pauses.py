"""Speech pauses of a recording, and the parts into which it is cut there. Networks hear utterances best.

A pause is found by the level, relative to the recording's own noise and speech, or by Silero VAD (`SileroFinder`). All
that hears long recordings cuts here: `transcribe`, the HTTP route, `evaluate`, `align` and `corpus label`.
"""

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from voxline.errors import SettingsError, WorkError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

LEVEL = "level"
SILERO = "silero"
OFF = "off"
"""How pauses are found. In place of `SILERO`, which is the file in the package silero-vad, the path of an ONNX file."""
LEVEL_SECONDS = 0.005
"""Between two levels."""
PAUSE_SECONDS = 0.25
"""A shorter one is a stop or a breath within a phrase."""
_SMOOTH = 5
"""Levels of which the median counts: one period of a low voice is not quiet."""
_MINUTE = 30.0
"""Seconds around, to each side, whose levels decide what is quiet."""
_DIGITAL_SILENCE_DB = -90.0
_FADED_DB = 1.0
"""Above the median level of a pause: what is no louder belongs to the pause."""
_LEAST_MARGIN_SECONDS = 0.05
"""Of a margin, where the pause's own level is reached within it, or behind weak speech."""
_WEAK_DB = 3.0
_WEAK_SECONDS = 0.02
_CLOSURE_SECONDS = 0.1
_WEAK_REACH_SECONDS = 0.5
"""Sound so much above a pause's level, and so long, is weak speech where it follows other speech within a stop's
closure, as the last consonants of "minutes" do; at most so far into the pause."""
_ABOVE_NOISE_DB = 12.0
"""A pause is no louder than this above the quiet parts of the minute around, nor than halfway to the speech."""
_LEAST_RANGE_DB = 20.0
"""Between noise and speech. With less there is no telling them apart by the level, and nothing is cut."""
_STEADY_DB = 8.0
"""Noise stays within so much, and speech mostly does not; some from far away, 10 dB above noise, is left out."""
_BURST_SECONDS = 0.04
_AROUND_BURST_SECONDS = 0.1
"""A shorter sound between two silences of at least so much is a click."""


@dataclasses.dataclass(frozen=True, slots=True)
class SpeechPause:
    """A part of a recording without speech, in seconds.

    Attributes:
      steady: whether nothing but noise is in it, so that no network need hear its middle.
    """

    start: float
    end: float
    steady: bool = True

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a recording that a network hears at a time, in seconds.

    Attributes:
      start, end: of what counts.
      offset, duration: of what is heard: with context, where it was not cut in a pause.
    """

    start: float
    end: float
    offset: float
    duration: float


@dataclasses.dataclass(frozen=True, slots=True)
class Cuts:
    """Rules by which a recording is cut.

    Attributes:
      always: seconds; a pause of so much is always a cut.
      longest: seconds; a longer part is cut at its longest pause, and so on.
      shortest: seconds; no cut makes a shorter part.
      margin: seconds of a pause that the parts beside it keep; infinite: they keep all of it.
      limit: seconds of a part in which there is no pause; it is cut at its quietest place.
      context: seconds that are heard to both sides of such a place.
      packed: parts are as long as `limit` allows; only then they are cut, at the longest pause of the second half.
    """

    always: float = math.inf
    longest: float = math.inf
    shortest: float = 0.0
    margin: float = math.inf
    limit: float = math.inf
    context: float = 0.0
    packed: bool = False


class PauseFinder(Protocol):
    """Finds pauses in a recording that is read in blocks."""

    def measure(self, samples: "Array", rate: int) -> "Array":
        """Returns what decides about the samples of a block, one value each so many seconds."""

    def pauses(self, measured: "Array", levels: "Array") -> list[SpeechPause]:
        """The pauses, in order.

        Args:
          measured: of all blocks.
          levels: dB of full scale, one each `LEVEL_SECONDS`.
        """

    def listener(self, rate: int) -> "Callable[[Array], Array] | None":
        """Measures a recording while it arrives: samples to the values that are known with them. None: nothing is."""


class LevelFinder:
    """Finds pauses by the level: a pause is little louder than the quiet parts of the minute around."""

    def measure(self, samples: "Array", rate: int) -> "Array":
        return samples[:0]

    def listener(self, rate: int) -> None:
        return None

    def pauses(self, measured: "Array", levels: "Array") -> list[SpeechPause]:
        import numpy as np

        # [levels] dB of full scale
        if not len(levels):
            return []
        smooth = _smoothed(levels)
        audible = smooth[smooth > _DIGITAL_SILENCE_DB]
        # Half a second of it is speech enough, however long the recording is.
        loud = min(len(audible), round(0.5 / LEVEL_SECONDS))
        loudest = float(np.partition(audible, -loud)[-loud]) if loud else 0.0

        # What is quiet depends on the minute around: half a minute is judged at a time.
        quiet = np.zeros(len(levels), bool)
        floor = np.zeros(len(levels))
        step = round(_MINUTE / LEVEL_SECONDS)
        for first in range(0, len(levels), step):
            around = smooth[max(0, first - step // 2) : first + step + step // 2]
            around = around[around > _DIGITAL_SILENCE_DB]
            part = slice(first, min(first + step, len(levels)))
            # Digital silence is none of the recording's noise.
            noise, speech = np.percentile(around, [5, 95]) if len(around) else (_DIGITAL_SILENCE_DB, 0.0)
            speech = max(speech, loudest)
            floor[part] = noise
            bound = min(noise + _ABOVE_NOISE_DB, (noise + speech) / 2)
            bound = bound if speech - noise >= _LEAST_RANGE_DB else _DIGITAL_SILENCE_DB
            quiet[part] = smooth[part] < bound

        return [
            SpeechPause(start * LEVEL_SECONDS, end * LEVEL_SECONDS, _is_steady(np.fmax(smooth, floor)[start:end]))
            for start, end in _quiet_runs(quiet, LEVEL_SECONDS)
        ]


class SileroFinder:
    """Finds pauses by Silero VAD, a small network that tells speech from all else (MIT licence; 6.2.3 was tried).

    Args:
      file: its `silero_vad.onnx`; None: that of the package silero-vad, which need not be importable.

    Raises:
      SettingsError: the file or the package is absent, or it is another network.

    https://github.com/snakers4/silero-vad
    """

    SECONDS = 0.032
    """Between two probabilities."""
    _RATE = 16_000
    _WINDOW = 512
    _CONTEXT = 64
    _SPEECH = 0.5
    _NO_SPEECH = 0.35
    """Probabilities at which speech begins and ends, as the package has them."""

    def __init__(self, file: Path | None = None) -> None:
        from voxline.inference.onnx_model import load_session

        path = file or _installed_silero()
        if not path.is_file():
            raise SettingsError(f"{path}: no such file; give the ONNX file of Silero VAD, {LEVEL} or {OFF}")
        try:
            self._session = load_session(path, threads=1)
        except WorkError as error:
            # It is no model of ours, and training again would not mend it.
            raise SettingsError(f"{str(error).removesuffix('; train again')}; give Silero VAD's own file") from None
        names = {value.name for value in self._session.get_inputs()}
        if names != {"input", "state", "sr"}:
            raise SettingsError(f"{path}: not Silero VAD: its inputs are {', '.join(sorted(names))}")

    def measure(self, samples: "Array", rate: int) -> "Array":
        """The probability of speech, float32, one each 32 ms."""
        import numpy as np

        from voxline.audio.decoding import resample

        audio = resample(samples.astype(np.float32), rate, self._RATE)
        count = -(-len(audio) // self._WINDOW)
        # [64 + samples]: each window is read with the end of the one before it
        padded = np.zeros(self._CONTEXT + count * self._WINDOW, np.float32)
        padded[self._CONTEXT : self._CONTEXT + len(audio)] = audio
        return self._probabilities(padded, count, np.zeros((2, 1, 128), np.float32))[0]

    def listener(self, rate: int) -> "Callable[[Array], Array]":
        import numpy as np
        import soxr

        resampler = None if rate == self._RATE else soxr.ResampleStream(rate, self._RATE, 1, dtype="float32")
        state = np.zeros((2, 1, 128), np.float32)
        waiting = np.zeros(self._CONTEXT, np.float32)  # with the end of the window before

        def listen(samples: "Array") -> "Array":
            nonlocal state, waiting
            audio = samples.astype(np.float32)
            waiting = np.concatenate([waiting, resampler.resample_chunk(audio) if resampler else audio])
            count = (len(waiting) - self._CONTEXT) // self._WINDOW
            probabilities, state = self._probabilities(waiting, count, state)
            waiting = waiting[count * self._WINDOW :]
            return probabilities

        return listen

    def _probabilities(self, padded: "Array", count: int, state: "Array") -> "tuple[Array, Array]":
        """The probabilities of `count` windows, each with the context before it; and the network's state."""
        import numpy as np

        probabilities = np.zeros(count, np.float32)
        for number in range(count):
            first = number * self._WINDOW
            window = padded[None, first : first + self._CONTEXT + self._WINDOW]
            output, state = self._session.run(
                None, {"input": window, "state": state, "sr": np.array(self._RATE, np.int64)}
            )
            probabilities[number] = output[0, 0]
        return probabilities, state

    def speaking(self, measured: "Array") -> "npt.NDArray[np.bool_]":
        """Marks the probabilities, one each `SECONDS`, at which somebody speaks."""
        import numpy as np

        # Speech lasts until its probability falls below the lower of both bounds.
        spoken = np.zeros(len(measured), bool)
        speaking = False
        for number, probability in enumerate(measured.tolist()):
            speaking = probability >= (self._NO_SPEECH if speaking else self._SPEECH)
            spoken[number] = speaking
        return spoken

    def pauses(self, measured: "Array", levels: "Array") -> list[SpeechPause]:
        quiet = ~self.speaking(measured)
        step = self._WINDOW / self._RATE
        end = len(levels) * LEVEL_SECONDS
        return [
            SpeechPause(first * step, min(last * step, end))
            for first, last in _quiet_runs(quiet, step)
            if first * step < end
        ]


def pause_finder(pauses: str) -> PauseFinder | None:
    """The finder that a setting names; None: nothing is cut.

    Raises:
      SettingsError: it is neither `LEVEL`, `OFF`, `SILERO` nor an ONNX file.
    """
    if pauses == OFF:
        return None
    if pauses == LEVEL:
        return LevelFinder()
    if pauses == SILERO:
        return SileroFinder()
    if pauses.endswith(".onnx"):
        return SileroFinder(Path(pauses))
    raise SettingsError(
        f"pauses is {pauses!r}; {LEVEL}, {SILERO}, {OFF} or the ONNX file of Silero VAD (….onnx) is accepted"
    )


def measure_levels(samples: "Array", rate: int) -> "Array":
    """The RMS level each `LEVEL_SECONDS`, float32, in dB of full scale, -100 at least."""
    import numpy as np

    # [levels] the sample at which each level begins
    edges = np.round(np.arange(math.ceil(len(samples) / (LEVEL_SECONDS * rate))) * LEVEL_SECONDS * rate).astype(int)
    if not len(edges):
        return np.zeros(0, np.float32)
    sums = np.add.reduceat(samples.astype(np.float64) ** 2, edges)
    # The floor of 1e-10 is -100 dB.
    return (10 * np.log10(sums / np.diff(edges, append=len(samples)) + 1e-10)).astype(np.float32)


def find_pauses(samples: "Array", rate: int, finder: PauseFinder) -> tuple[list[SpeechPause], "Array"]:
    """The pauses of a recording in memory, and its levels.

    Args:
      samples: float32 [samples], mono.
    """
    levels = measure_levels(samples, rate)
    return finder.pauses(finder.measure(samples, rate), levels), levels


def cut_at_pauses(pauses: Sequence[SpeechPause], levels: "Array", seconds: float, cuts: Cuts) -> list[Part]:
    """The parts of a recording, in order.

    Args:
      pauses: in order.
      levels: dB of full scale, one each `LEVEL_SECONDS`.
      seconds: of the recording.
    """
    # Long silence at both ends belongs to no part, but for the margin.
    start = 0.0
    end = seconds
    silences = [pause for pause in pauses if pause.steady and pause.seconds >= cuts.always]
    if silences and silences[0].start <= LEVEL_SECONDS:
        start = max(0.0, _margins(silences[0], levels, cuts)[1])
    if silences and silences[-1].end >= seconds - LEVEL_SECONDS:
        end = min(seconds, _margins(silences[-1], levels, cuts)[0])
    if start >= end:
        return [Part(0.0, seconds, 0.0, seconds)]
    return list(_parts(pauses, levels, start, end, cuts, seconds))


def _margins(pause: SpeechPause, levels: "Array", cuts: Cuts) -> tuple[float, float]:
    """Where the part before a pause ends, and the one behind it begins, in seconds.

    Weak speech at the pause's ends is kept, and what fades out, up to the margin; of what follows, little: no network
    needs to hear the pause, and few have heard digital silence or such noise.
    """
    if not math.isfinite(cuts.margin):
        return math.inf, -math.inf
    within = levels[round(pause.start / LEVEL_SECONDS) : round(pause.end / LEVEL_SECONDS)]
    left = pause.start + _kept_seconds(within, cuts.margin)
    right = pause.end - _kept_seconds(within[::-1], cuts.margin)
    return left, right


def _kept_seconds(levels: "Array", margin: float) -> float:
    """Returns the seconds that a part keeps of the pause behind it; of levels in reverse, of the pause before it."""
    import numpy as np

    if not len(levels):
        return margin
    median = float(np.median(levels))
    weak = _weak_speech(levels, median)
    (faded,) = np.nonzero(levels[weak:] <= max(median + _FADED_DB, _DIGITAL_SILENCE_DB))
    fading = LEVEL_SECONDS * (weak + int(faded[0])) if len(faded) else math.inf

    # Digital silence holds no sound that begins or ends gently.
    spoken = LEVEL_SECONDS * weak
    behind = _LEAST_MARGIN_SECONDS if weak and median > _DIGITAL_SILENCE_DB else 0.0
    least = max(min(margin, _LEAST_MARGIN_SECONDS), spoken + behind)
    return min(max(fading, least), spoken + margin)


def _weak_speech(levels: "Array", median: float) -> int:
    """Counts the levels at the beginning of a pause that are still speech."""
    begin = levels[: round(_WEAK_REACH_SECONDS / LEVEL_SECONDS)]
    weak = 0
    for start, end in _runs(_smoothed(begin) > median + _WEAK_DB):
        # A later sound is a breath or a creak of the room.
        if (start - weak) * LEVEL_SECONDS > _CLOSURE_SECONDS:
            break
        if (end - start) * LEVEL_SECONDS >= _WEAK_SECONDS:
            weak = end
    return weak


def _parts(
    pauses: Sequence[SpeechPause], levels: "Array", start: float, end: float, cuts: Cuts, seconds: float
) -> Iterator[Part]:
    """The parts between two times; without recursion, as a recording may have thousands."""
    # Spans that may need a cut, the next one last; `behind` and `before`: seconds heard beyond their ends.
    spans = [(start, end, 0.0, 0.0)]
    while spans:
        first, last, before, behind = spans.pop()
        pause = _longest_pause(pauses, first, last, cuts)
        if pause:
            # What is steady in a long pause belongs to neither side.
            left, right = _margins(pause, levels, cuts) if pause.steady else (math.inf, -math.inf)
            if left > right:
                left = right = pause.middle
            spans += [(right, last, 0.0, behind), (first, left, before, 0.0)]
        elif last - first > cuts.limit:
            place = _quietest(levels, first + cuts.limit / 2, first + cuts.limit)
            spans += [(place, last, cuts.context, behind), (first, place, before, cuts.context)]
        else:
            offset = max(0.0, first - before)
            yield Part(first, last, offset, min(last + behind, seconds) - offset)


def _longest_pause(pauses: Sequence[SpeechPause], first: float, last: float, cuts: Cuts) -> SpeechPause | None:
    """The pause at which a span is cut; None: at none."""
    import bisect

    seconds = last - first
    if cuts.packed:
        if seconds <= cuts.limit:
            return None
        earliest = first + cuts.limit / 2
        latest = first + cuts.limit
    else:
        earliest = first + cuts.shortest
        latest = last - cuts.shortest
    # Pauses are in order, and few of them are inside.
    begin = bisect.bisect_left(pauses, earliest, key=lambda pause: pause.middle)
    until = bisect.bisect_right(pauses, latest, key=lambda pause: pause.middle)
    inside = [pause for pause in pauses[begin:until] if pause.start > first and pause.end < last]
    longest = max(inside, key=lambda pause: pause.seconds, default=None)
    if longest is None or cuts.packed or longest.seconds >= cuts.always or seconds > cuts.longest:
        return longest
    return None


def _quietest(levels: "Array", first: float, last: float) -> float:
    """The middle of the quietest 0.2 s between two times."""
    import numpy as np

    width = round(0.2 / LEVEL_SECONDS)
    # In energies, which add up.
    begin = round(first / LEVEL_SECONDS)
    energies = 10 ** (levels[begin : round(last / LEVEL_SECONDS)].astype(np.float64) / 10)
    smooth = np.convolve(energies, np.ones(min(width, len(energies))), "valid")
    return (begin + int(smooth.argmin()) + width / 2) * LEVEL_SECONDS


def _smoothed(levels: "Array") -> "Array":
    """The median of each level and its neighbours: unlike a mean it leaves the edges of loud sounds where they are."""
    import numpy as np

    # [levels, 5]
    around = np.lib.stride_tricks.sliding_window_view(np.pad(levels, _SMOOTH // 2, mode="edge"), _SMOOTH)
    smooth: Array = np.median(around, axis=1)
    return smooth


def _runs(values: "npt.NDArray[np.bool_]") -> list[tuple[int, int]]:
    """Finds the runs of true values: first and last of each, the last excluded."""
    import numpy as np

    # A run needs a rise and a fall, so one value that is false is put at each end.
    edges = np.diff(np.concatenate([[False], values, [False]]).astype(np.int8))
    starts = np.flatnonzero(edges == 1).tolist()
    ends = np.flatnonzero(edges == -1).tolist()
    return list(zip(starts, ends, strict=True))


def _quiet_runs(quiet: "npt.NDArray[np.bool_]", step: float) -> list[tuple[int, int]]:
    """Runs of quiet values as long as a pause, the last value excluded; a click does not end one."""
    joined: list[tuple[int, int]] = []
    for start, end in _runs(quiet):
        before = joined[-1] if joined else (0, 0)
        silent = min(end - start, before[1] - before[0]) * step >= _AROUND_BURST_SECONDS
        if silent and (start - before[1]) * step < _BURST_SECONDS:
            joined[-1] = before[0], end
        else:
            joined.append((start, end))
    return [(start, end) for start, end in joined if (end - start) * step >= PAUSE_SECONDS - step / 2]


def is_noise(levels: "Array") -> bool:
    """Returns whether levels are of nothing but noise, or of digital silence: they hardly vary, as speech does."""
    import numpy as np

    audible = levels[levels > _DIGITAL_SILENCE_DB]
    return not len(audible) or bool(np.ptp(np.percentile(audible, [10, 95])) < _STEADY_DB)


def _is_steady(levels: "Array") -> bool:
    """Returns whether the levels of a pause, without its edges, are those of noise."""
    import numpy as np

    # Its edges are where speech fades.
    edge = min(len(levels) // 5, round(0.1 / LEVEL_SECONDS))
    median = float(np.median(levels))
    first = max(edge, _weak_speech(levels, median))
    last = len(levels) - max(edge, _weak_speech(levels[::-1], median))
    # All of it may be speech.
    if first >= last:
        return False
    low, high = np.percentile(levels[first:last], [10, 95])
    return bool(high - low < _STEADY_DB)


def _installed_silero() -> Path:
    """The file in the package, which is looked for without an import: it would need PyTorch."""
    found = importlib.util.find_spec("silero_vad")
    folders = list(found.submodule_search_locations or []) if found else []
    for folder in folders:
        if (path := Path(folder, "data", "silero_vad.onnx")).is_file():
            return path
    raise SettingsError(
        "the package silero-vad is not installed; `pip install --no-deps silero-vad==6.2.3`, or give the path of its "
        f"silero_vad.onnx, {LEVEL} or {OFF}"
    )

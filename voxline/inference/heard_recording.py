"""A long recording as a model hears it: stretches between pauses, and what the network puts out of them, in a file.

Of the recording, levels and what is heard greedily are kept in memory, some megabytes an hour.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import Segment, decode_segments, read_header, resample
from voxline.errors import WorkError
from voxline.rejects import BadAudioError

if TYPE_CHECKING:
    from voxline.inference.recognizer import Recognizer

Array = npt.NDArray[Any]
STRETCH_SECONDS = (1.0, 20.0)
PAUSE_SECONDS = 0.25
CONTEXT_SECONDS = 1.0
"""Least and most audio that the network hears at a time, cut at pauses as long as the second; and what it hears besides
where there is no pause."""
QUIET_SECONDS = 30.0
ABOVE_NOISE_DB = 10.0
"""Of audio, in which a pause is no louder than this above the quietest parts."""
BATCH_SECONDS = 120.0
_BLOCK = 60.0
"""Of audio that is in memory at a time: for the network, and for its levels."""
READ_VALUES = 2_000_000
"""Of the network's output that are read at a time."""
LEVEL_SECONDS = 0.005
"""Between two levels."""


@dataclasses.dataclass(frozen=True, slots=True)
class ValuesFile:
    """Log probabilities in a file, float32 [frames, symbols + 1]: an hour of 5,000 symbols has 2 GB."""

    file: IO[bytes]
    classes: int

    def blocks(self, first: int, last: int) -> Iterator[tuple[slice, Array]]:
        """The frames from `first` on, `last` excluded, some at a time: where they are among these, and their values."""
        # At least one frame, however large the alphabet.
        step = max(1, READ_VALUES // self.classes)
        for start in range(first, last, step):
            count = min(step, last - start)
            self.file.seek(4 * start * self.classes)
            values = np.frombuffer(self.file.read(4 * count * self.classes), np.float32).reshape(count, self.classes)
            yield slice(start - first, start - first + count), values


@dataclasses.dataclass(frozen=True, slots=True)
class HeardRecording:
    """A recording as a model hears it.

    Attributes:
      values: of each frame.
      times: float64 [frames], seconds at which each frame begins.
      frame_seconds: from one frame to the next.
      best: int32 [frames], the most probable label.
      levels: float32, dB of full scale, one each `LEVEL_SECONDS`.
      seconds: of the recording.
    """

    values: ValuesFile
    times: Array
    frame_seconds: float
    best: Array
    levels: Array
    seconds: float


def hear(recognizer: "Recognizer", recording: Path, file: IO[bytes]) -> HeardRecording:
    """Runs a recognizer over a recording, which is cut at pauses: networks hear utterances best.

    Args:
      file: for the network's output.

    Raises:
      WorkError: the recording is absent, damaged or not audio.
    """
    rate = recognizer.sample_rate
    classes = recognizer.alphabet.blank + 1
    times: list[Array] = []
    best: list[Array] = []
    frame_seconds, batch = 0.0, list[tuple[_Stretch, Array]]()

    def run() -> None:
        nonlocal frame_seconds
        # values [frames, symbols + 1] of each stretch
        for (stretch, samples), values in zip(
            batch, recognizer.log_probabilities([samples for _, samples in batch]), strict=True
        ):
            first, frame_seconds = recognizer.frame_times(len(samples) / rate, len(values))
            begins = stretch.offset + first + frame_seconds * np.arange(len(values))
            center = begins + frame_seconds / 2
            # Frames of padding count: networks learn to write the first and last symbols of close cuts there.
            inside = (center >= stretch.first) & (center < stretch.last)
            file.write(np.ascontiguousarray(values[inside], np.float32).tobytes())
            times.append(np.clip(begins[inside], stretch.start, stretch.end))
            best.append(values[inside].argmax(axis=1).astype(np.int32))
        batch.clear()

    # Two passes over the file: levels first, since the cuts depend on them, then the network.
    try:
        blocks = [Segment(start, _BLOCK) for start in _blocks(recording)]
        measured = [(_levels(samples, rate), len(samples)) for samples in _in_order(recording, blocks, rate)]
        levels, seconds = (
            np.concatenate([waveform for waveform, _ in measured]),
            sum(count for _, count in measured) / rate,
        )
        stretches = list(_stretches(levels, seconds))

        # Batches of limited seconds: memory does not grow with the recording.
        for stretch, samples in zip(stretches, _in_order(recording, stretches, rate), strict=True):
            batch.append((stretch, samples))
            if sum(len(waveform) for _, waveform in batch) > BATCH_SECONDS * rate:
                run()
        run()
    except BadAudioError as bad:
        raise WorkError(f"{recording}: cannot be aligned: {bad.detail} ({bad.reason})") from None
    return HeardRecording(
        ValuesFile(file, classes), np.concatenate(times), frame_seconds, np.concatenate(best), levels, seconds
    )


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
    start = 0.0
    context = 0.0
    pauses = list(_pauses(levels))
    while start < seconds:
        # A stretch of less than a second has too little context for the network.
        while pauses and pauses[0] < start + STRETCH_SECONDS[0]:
            pauses.pop(0)
        end = seconds
        behind = 0.0
        if pauses and pauses[0] <= start + STRETCH_SECONDS[1]:
            end = pauses[0]
        # No pause within reach: the quietest point of the second half, and both sides overlap there.
        elif seconds > start + STRETCH_SECONDS[1]:
            first, last = (
                round((start + length) / LEVEL_SECONDS) for length in (STRETCH_SECONDS[1] / 2, STRETCH_SECONDS[1])
            )
            end = (first + int(levels[first:last].argmin())) * LEVEL_SECONDS
            behind = CONTEXT_SECONDS

        # The context is heard, but its frames do not count.
        offset = max(0.0, start - context)
        to = min(end + behind, seconds)
        edges = start if context else -math.inf, end if behind else math.inf
        yield _Stretch(offset, to - offset, start, end, *edges)
        start = end
        context = behind


def _pauses(levels: Array) -> Iterator[float]:
    """The middle of each pause, in seconds; what is quiet depends on the minute around."""
    step = round(QUIET_SECONDS / LEVEL_SECONDS)
    least = round(PAUSE_SECONDS / LEVEL_SECONDS)

    # A pause needs a rise and a fall, so one value that is not quiet is put at each end.
    quiet = np.zeros(len(levels) + 2, bool)
    for first in range(0, len(levels), step):
        # 5th and 95th percentile of the minute around, in dB
        noise, speech = np.percentile(levels[max(0, first - step // 2) : first + step + step // 2], [5, 95])
        part = slice(first, min(first + step, len(levels)))
        # Never above the middle between noise and speech: in loud noise nothing but the speech would be left.
        quiet[1:-1][part] = levels[part] < min(noise + ABOVE_NOISE_DB, (noise + speech) / 2)
    edges = np.diff(quiet.astype(np.int8))
    for begins, ends in zip(np.nonzero(edges == 1)[0].tolist(), np.nonzero(edges == -1)[0].tolist(), strict=True):
        if ends - begins >= least:
            yield (begins + ends) / 2 * LEVEL_SECONDS


def _blocks(recording: Path) -> list[float]:
    total = read_header(recording).seconds

    # A last part shorter than a quarter block is read with the block before it.
    return np.arange(0, max(total - _BLOCK / 4, 1e-3), _BLOCK).tolist()


def _in_order(recording: Path, parts: "Sequence[_Stretch | Segment]", rate: int) -> Iterator[Array]:
    """The samples of parts of a recording, float32; the last part reads to the end."""
    segments = [Segment(part.offset, None if part is parts[-1] else part.duration) for part in parts]

    # Processes finish in any order; what came early waits here.
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
    # [levels] the sample at which each level begins
    edges = np.round(np.arange(math.ceil(len(samples) / (LEVEL_SECONDS * rate))) * LEVEL_SECONDS * rate).astype(int)
    if not len(edges):
        return np.zeros(0, np.float32)
    sums = np.add.reduceat(samples.astype(np.float64) ** 2, edges)
    # The floor of 1e-10 is -100 dB.
    return (10 * np.log10(sums / np.diff(edges, append=len(samples)) + 1e-10)).astype(np.float32)

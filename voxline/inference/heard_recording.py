"""A long recording as a model hears it: parts between pauses, and what the network puts out of them, in a file.

Of the recording, levels and what is heard greedily are kept in memory, some megabytes an hour.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import Segment, decode_segments, read_header, resample
from voxline.errors import WorkError
from voxline.inference.pauses import PAUSE_SECONDS, Cuts, Part, cut_at_pauses, measure_levels
from voxline.rejects import BadAudioError

if TYPE_CHECKING:
    from voxline.inference.recognizer import Recognizer

Array = npt.NDArray[Any]
CUTS = Cuts(always=PAUSE_SECONDS, shortest=1.0, longest=20.0, limit=20.0, context=1.0)
"""Each pause is a cut that leaves a second to both sides: with less the network has too little context. All of a pause
is heard, since an edge of a word may be in it."""
BATCH_SECONDS = 120.0
_BLOCK = 60.0
"""Of audio that is in memory at a time: for the network, and for its levels."""
READ_VALUES = 2_000_000
"""Of the network's output that are read at a time."""


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
    frame_seconds, batch = 0.0, list[tuple[Part, Array]]()

    def run() -> None:
        nonlocal frame_seconds
        # values [frames, symbols + 1] of each part
        for (part, samples), values in zip(
            batch, recognizer.log_probabilities([samples for _, samples in batch]), strict=True
        ):
            first, frame_seconds = recognizer.frame_times(len(samples) / rate, len(values))
            begins = part.offset + first + frame_seconds * np.arange(len(values))
            center = begins + frame_seconds / 2
            # Context is heard, but its frames do not count. Those of padding do: networks learn to write the first and
            # last symbols of close cuts there.
            inside = np.full(len(values), True)
            if part.offset < part.start:
                inside &= center >= part.start
            if part.offset + part.duration > part.end:
                inside &= center < part.end
            file.write(np.ascontiguousarray(values[inside], np.float32).tobytes())
            times.append(np.clip(begins[inside], part.start, part.end))
            best.append(values[inside].argmax(axis=1).astype(np.int32))
        batch.clear()

    # Two passes over the file: levels first, since the cuts depend on them, then the network.
    try:
        blocks = [Segment(start, _BLOCK) for start in _blocks(recording)]
        finder = recognizer.finder
        measured = [
            (measure_levels(samples, rate), finder.measure(samples, rate) if finder else samples[:0], len(samples))
            for samples in _in_order(recording, blocks, rate)
        ]
        levels = np.concatenate([block for block, _, _ in measured])
        seconds = sum(count for _, _, count in measured) / rate
        pauses = finder.pauses(np.concatenate([block for _, block, _ in measured]), levels) if finder else []
        parts = cut_at_pauses(pauses, levels, seconds, CUTS)

        # Batches of limited seconds: memory does not grow with the recording.
        for part, samples in zip(parts, _in_order(recording, parts, rate), strict=True):
            batch.append((part, samples))
            if sum(len(waveform) for _, waveform in batch) > BATCH_SECONDS * rate:
                run()
        run()
    except BadAudioError as bad:
        raise WorkError(f"{recording}: cannot be aligned: {bad.detail} ({bad.reason})") from None
    return HeardRecording(
        ValuesFile(file, classes), np.concatenate(times), frame_seconds, np.concatenate(best), levels, seconds
    )


def _blocks(recording: Path) -> list[float]:
    total = read_header(recording).seconds

    # A last part shorter than a quarter block is read with the block before it.
    return np.arange(0, max(total - _BLOCK / 4, 1e-3), _BLOCK).tolist()


def _in_order(recording: Path, parts: "Sequence[Part | Segment]", rate: int) -> Iterator[Array]:
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

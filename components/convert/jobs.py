"""A conversion's job and its results. The module imports nothing heavy, as the step plans with it."""

import dataclasses
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.audio.containers import CHANNEL_KEY, RAW_FORMAT_KEY, RawFormat, is_raw_name, parse_channel
from voxline.audio.process_pool import WorkerCrashed, map_in_processes
from voxline.data.manifest import Utterance
from voxline.rejects import Reason

CONVERT_RECORDINGS = "voxline.components.convert.recording:convert_recordings"
"""By name, so that this process does not import what reads audio."""
CLIPPED_FROM = "clipped_from"
"""Measured: the peak of float samples that were clipped, times full scale."""


@dataclasses.dataclass(frozen=True)
class Shaping:
    """Changes to the sound besides its sample rate; see ConvertSettings.

    Attributes:
      trim_db: dB below the loudest 10 ms; 0: nothing is trimmed.
      trim_keep_seconds: silence to keep at each end.
      loudness_lufs: the target loudness; None: unchanged.
    """

    trim_db: float = 0.0
    trim_keep_seconds: float = 0.0
    loudness_lufs: float | None = None

    def key_values(self) -> dict[str, Any]:
        """Its part of a WAV's name. A setting that changes nothing has none."""
        trim = {"trim": [self.trim_db, self.trim_keep_seconds]} if self.trim_db else {}
        return trim | ({} if self.loudness_lufs is None else {"loudness": self.loudness_lufs})


NO_SHAPING = Shaping()


@dataclasses.dataclass(frozen=True)
class ConversionJob:
    """A recording to convert.

    Attributes:
      source: the recording's path.
      audio_hash: of the source file, according to the manifest.
      offset, duration: seconds; without a duration, up to the end.
      wav: path of the WAV to write.
      silence_db: dB of full scale.
      shaping: other changes to the sound.
      max_seconds: where decoding stops.
      raw: the format of a source without a header.
      channel: of the source, counted from 0; None: all, mixed.
      prosody: whether to measure it.
      measured: the rest, JSON, where the WAV exists and a run without prosody measured it; "" else.
    """

    source: str
    audio_hash: str
    offset: float
    duration: float | None
    wav: Path
    sample_rate: int
    silence_db: float
    shaping: Shaping = NO_SHAPING
    max_seconds: float | None = None
    raw: RawFormat | None = None
    channel: int | None = None
    prosody: bool = False
    measured: str = ""


JobGroup = tuple[ConversionJob, ...]
"""Segments of one source that are cut from one decode of it; mostly a single recording."""


class Converted(msgspec.Struct, frozen=True, tag=True):
    """The WAV exists.

    Attributes:
      samples: its number of samples.
      measured: see `measure_level`, `apply_shaping` and `summarize_prosody`.
      decoded: False if the WAV existed and was only measured.
    """

    samples: int
    measured: dict[str, float | str]
    decoded: bool = True


class RejectedRecording(msgspec.Struct, frozen=True, tag=True):
    """The recording cannot be used. That depends on its content alone, so it holds for later runs too.

    Attributes:
      longer_than: seconds at which decoding stopped; a later run that accepts more decodes it again.
    """

    reason: Reason
    detail: str
    longer_than: float | None = None


class SourceChanged(msgspec.Struct, frozen=True, tag=True):
    """The source is no longer what the manifest says, which says nothing about the recording."""

    detail: str


JobResult = Converted | RejectedRecording | SourceChanged
"""Of a job, as a worker sends it."""
ConversionResult = JobResult | WorkerCrashed


def convert_in_processes(
    groups: Iterable[JobGroup], workers: int, limit_seconds: float, limit_megabytes: float
) -> Iterator[tuple[int, list[ConversionResult]]]:
    """Converts groups of jobs; yields (index of the group, a result for each of its jobs) as they come.

    Args:
      limit_seconds, limit_megabytes: for a group; see `map_in_processes`.
    """
    # The jobs are taken as workers need them, so that the size of a group is known only once it was taken. A crash says
    # nothing of the jobs in its group, and each of them needs a result.
    sizes = array("I")

    def counted() -> Iterator[JobGroup]:
        for group in groups:
            sizes.append(len(group))
            yield group

    results: Iterator[tuple[int, list[ConversionResult] | WorkerCrashed]] = map_in_processes(
        CONVERT_RECORDINGS, counted(), workers, limit_seconds, limit_megabytes, result_type=list[JobResult]
    )

    for index, result in results:
        if isinstance(result, WorkerCrashed):
            yield index, [result] * sizes[index]
        elif len(result) != sizes[index]:  # else the results of all later recordings would be those of others
            crash = WorkerCrashed(f"its process sent {len(result)} results for {sizes[index]} recordings")
            yield index, [crash] * sizes[index]
        else:
            yield index, result


def channel_of(utterance: Utterance) -> int | None:
    """The channel of its recording that the line names; None: all, mixed."""
    return parse_channel(utterance.extra.get(CHANNEL_KEY))


def raw_format_of(utterance: Utterance) -> RawFormat | None:
    """The format of a recording without a header, if its line says it."""
    # Only a line with a name such as .raw or .pcm: a WAV's header knows better than its line.
    stated = utterance.extra.get(RAW_FORMAT_KEY)
    if not isinstance(stated, dict) or not is_raw_name(utterance.audio_filepath):
        return None
    try:
        return RawFormat(**stated)
    except TypeError:  # another key: without a format it is rejected, and the reject says what is needed
        return None

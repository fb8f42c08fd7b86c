"""Reading recordings of any format: decode, mix to mono, resample, and name what is wrong with a bad one.

samples = load_audio("take.flac", 16_000)      # float32 [samples], mono, in [-1, 1]
recording = decode_audio("take.flac")          # neither mixed nor resampled
wav = to_int16(resample(to_mono(recording.samples), recording.sample_rate, 16_000))

Memory holds what is asked for, at the rate that is asked for, and a block of the file.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.containers import RawFormat
from voxline.audio.segments import AsInFile, DecodedAudio, Mono, Segment, collect, resample, to_mono
from voxline.audio.streams import AudioHeader, AudioStream, open_audio
from voxline.rejects import MAX_SECONDS, SAMPLES_A_SECOND, BadAudioError, Reason

__all__ = [
    "AudioHeader",
    "BadAudioError",
    "DecodedAudio",
    "Segment",
    "decode_audio",
    "decode_segments",
    "load_audio",
    "read_header",
    "resample",
    "to_mono",
]


MAX_SAMPLES = round(MAX_SECONDS * SAMPLES_A_SECOND)
"""Samples of all channels together of a file that is read whole by the library."""


def load_audio(
    path: Path | str,
    sample_rate: int,
    offset: float = 0.0,
    duration: float | None = None,
    max_seconds: float | None = None,
    max_samples: int | None = MAX_SAMPLES,
) -> npt.NDArray[np.float32]:
    """Reads a recording, or a segment of it, as mono samples at a given rate.

    Args:
      path: a file of any format.
      sample_rate: Hz of the result.
      offset, duration: seconds; the segment to read. None reads to the end.
      max_seconds: decoding stops there, and a longer recording is refused. None: no limit.
      max_samples: of the file, of all channels together; decoding stops there as well. None: no limit.

    Returns:
      float32 `[samples]` in [-1, 1]; resampling may overshoot slightly.

    Raises:
      BadAudioError: as `decode_audio`.
    """
    segments = [Segment(offset, duration)]
    for _, decoded in decode_segments(path, segments, sample_rate, max_seconds, max_samples=max_samples):
        if isinstance(decoded, BadAudioError):
            raise decoded
        return resample(decoded.samples, sample_rate, sample_rate)
    raise AssertionError  # each segment has a result


def decode_audio(path: Path | str, offset: float = 0.0, duration: float | None = None) -> DecodedAudio:
    """Reads a recording, or the segment of `duration` seconds that starts at `offset`, and checks it.

    A FLAC that is read whole is compared with its MD5. For a segment, only the segment is decoded, unless the format
    must be decoded from its start.

    Raises:
      BadAudioError: the file is missing, empty, unreadable or truncated, its MD5 differs, or the segment ends beyond
        the recording.
    """
    with open_audio(path) as stream:
        for _, decoded in collect(stream, [(0, Segment(offset, duration))], AsInFile, None):
            if isinstance(decoded, BadAudioError):
                raise decoded
            return decoded
    raise AssertionError  # each segment has a result


def decode_segments(
    path: Path | str,
    segments: Sequence[Segment],
    sample_rate: int,
    max_seconds: float | None = None,
    raw: RawFormat | None = None,
    max_samples: int | None = None,
) -> Iterator[tuple[int, DecodedAudio | BadAudioError]]:
    """Reads segments of one recording as mono samples at a given rate, decoding the file once.

    Args:
      segments: in any order; they may overlap.
      sample_rate: Hz of the results.
      max_seconds: decoding stops there, and a longer segment is `too_long`. None: no limit.
      raw: of a file without a header.
      max_samples: of all channels together, that are decoded for a segment; more are `too_long` too. None: no limit.

    Yields:
      (index of the segment, samples `[samples]`) in the order of their ends; integers where they are as in the file. Or
      the fault of a segment.

    Raises:
      BadAudioError: the file has a fault that concerns all of them. It may come after some results, as damage makes
        ffmpeg leave out samples, which moves what follows.
    """

    def collector(stream: AudioStream) -> Mono:
        return Mono(stream, sample_rate)

    # A stream that cannot seek may leave segments for a second decode: they stay in `waiting`.
    waiting = dict(enumerate(segments))
    while waiting:
        with open_audio(path, raw) as stream:
            for index, decoded in collect(stream, list(waiting.items()), collector, max_seconds, max_samples):
                del waiting[index]
                yield index, decoded


def read_header(path: Path | str) -> AudioHeader:
    """Reads a recording's length, rate and channels. Where no header states the length, the recording is decoded.

    Raises:
      BadAudioError: as `decode_audio`, for faults that show in the header.
    """
    with open_audio(path) as stream:
        header = stream.header
        # Counted block by block, without keeping any.
        if not header.frames:
            frames = sum(len(block) for block in stream.blocks(0, -1))
            if not frames:
                raise BadAudioError(Reason.EMPTY_AUDIO, "no samples")
            header = dataclasses.replace(header, frames=frames)
    return header

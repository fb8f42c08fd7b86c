"""Segments of an open recording, collected block by block: as they are in the file, or mono at another rate.

A stream that can seek is read once for each segment, and only there. Another is read once for all of them.
"""

import dataclasses
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.audio.streams import AudioHeader, AudioStream
from voxline.audio.wav import full_scale
from voxline.rejects import DURATION_TOLERANCE_SECONDS, BadAudioError, Reason

WHOLE_RECORDING_TOLERANCE = 0.01
"""A segment this close to the whole recording is the whole recording: manifests round durations."""

MAX_FLOAT_PEAK = 100.0
"""Full scale of float samples is 1. A peak 40 dB above it is no level; clipped, it would be a square wave."""

MOST_COMPARED = 16
"""Channels of a recording that are compared with each other."""

SEGMENTS_AT_ONCE_SECONDS = 600.0
"""Audio of the segments that are collected at the same time from one decode; more that overlap take another one."""


@dataclasses.dataclass(frozen=True)
class DecodedAudio:
    """Decoded samples.

    Attributes:
      samples: int16, int32 or float32 `[frames, channels]`, or `[samples]` if they were mixed to mono; integers use
        their full range.
      sample_rate: Hz.
      md5: of the samples, in hexadecimal, if they are as in the file, 16-bit, and it states it; else empty.
      notes: what the decoder remarked on the file.
      channel_correlation: of the two channels that are least alike of those that were mixed to mono, from -1, where
        they cancel each other, to 1; None if there were no two with sound.
      peak: the highest absolute value of float samples in the file, whose full scale is 1; 0 for integers.
    """

    samples: npt.NDArray[Any]
    sample_rate: int
    md5: str = ""
    notes: str = ""
    channel_correlation: float | None = None
    peak: float = 0.0


class Segment(NamedTuple):
    """A part of a recording.

    Attributes:
      offset, duration: seconds. None reads to the end.
      channel: counted from 0; None: all, mixed.
    """

    offset: float = 0.0
    duration: float | None = None
    channel: int | None = None


def to_mono(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The mean over channels, `[frames]`. One channel is returned unchanged, several as float32 in [-1, 1].

    >>> to_mono(np.array([[16384, -16384], [16384, 0]], np.int16))
    array([0.  , 0.25], dtype=float32)
    """
    if samples.shape[1] == 1:
        only: npt.NDArray[Any] = samples[:, 0]
        return only
    mean: npt.NDArray[np.float64] = samples.mean(axis=1, dtype=np.float64) / full_scale(samples.dtype)
    return mean.astype(np.float32)


def resample(samples: npt.NDArray[Any], rate: int, to: int) -> npt.NDArray[np.float32]:
    """Resamples to `to` Hz with soxr (HQ): float32 `[samples]`; integers are scaled to [-1, 1]."""
    if samples.dtype != np.float32:
        scale = np.float32(full_scale(samples.dtype))
        samples = samples.astype(np.float32)
        samples /= scale  # a power of two divides exactly, so float64 at twice the memory would change nothing
    if rate == to:
        return samples
    import soxr

    resampled: npt.NDArray[np.float32] = soxr.resample(samples, rate, to, quality="HQ")
    return resampled


class AsInFile:
    """Collects the blocks of a segment as they are."""

    def __init__(self, stream: AudioStream) -> None:
        self._stream = stream
        self.frames = 0
        self._parts: list[npt.NDArray[Any]] = []
        self._not_finite = 0
        self._peak = 0.0

    def add(self, block: npt.NDArray[Any]) -> None:
        """Adds the next frames."""
        self.frames += len(block)
        if block.dtype.kind == "f" and block.size:
            # One pass for the common case; NaN and infinity are counted only where the peak shows one.
            peak = float(np.abs(block).max())
            if np.isfinite(peak):
                self._peak = max(self._peak, peak)
            else:
                self._not_finite += int(np.count_nonzero(~np.isfinite(block)))
        self._keep(block)

    def result(self) -> DecodedAudio:
        """All of it, if it has samples, and they are finite and plausible."""
        if not self.frames:
            raise BadAudioError(Reason.EMPTY_AUDIO, "no samples")
        if self._not_finite:
            raise BadAudioError(Reason.UNREADABLE, f"{self._not_finite:,} samples are NaN or infinite")
        if self._peak > MAX_FLOAT_PEAK:
            raise BadAudioError(Reason.UNREADABLE, f"samples reach {self._peak:g}; full scale of float samples is 1")
        return self._join()

    def _keep(self, block: npt.NDArray[Any]) -> None:
        self._parts.append(block)

    def _joined(self) -> npt.NDArray[Any]:
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)

    def _join(self) -> DecodedAudio:
        stream = self._stream
        return DecodedAudio(self._joined(), stream.header.sample_rate, stream.md5, stream.notes, peak=self._peak)


class Mono(AsInFile):
    """Collects the blocks of a segment, mixed and resampled, block by block to the same samples as all at once."""

    def __init__(self, stream: AudioStream, sample_rate: int) -> None:
        super().__init__(stream)
        self._rate = sample_rate
        self._resampler = None
        if stream.header.sample_rate != sample_rate:
            import soxr

            self._resampler = soxr.ResampleStream(stream.header.sample_rate, sample_rate, 1, "float32", "HQ")
        # Sums of squares of the channels, and of their products.
        compared = min(stream.header.channels, MOST_COMPARED)
        self._products = np.zeros((compared, compared))

    # A resampler is fed block by block: it keeps the tail of its filter between them.
    def _keep(self, block: npt.NDArray[Any]) -> None:
        if block.shape[1] > 1:
            sides = block[:, :MOST_COMPARED] / full_scale(block.dtype)  # float [frames, channels]
            self._products += sides.T @ sides
        samples = to_mono(block)
        if self._resampler:
            samples = self._resampler.resample_chunk(resample(samples, self._rate, self._rate))
        self._parts.append(samples)

    def _join(self) -> DecodedAudio:
        # The filter's delay comes out at the end.
        if self._resampler:
            self._parts.append(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        samples = self._joined()
        if not len(samples):
            raise BadAudioError(Reason.EMPTY_AUDIO, f"nothing is left of {self.frames:,} samples at {self._rate:,} Hz")
        stream = self._stream

        # The MD5 is of the samples as in the file; mixed or resampled they are others.
        as_in_file = stream.header.channels == 1 and not self._resampler
        md5 = stream.md5 if as_in_file else ""
        return DecodedAudio(samples, self._rate, md5, stream.notes, self._channel_correlation(), self._peak)

    def _channel_correlation(self) -> float | None:
        """The lowest of any two channels; None without two that have sound."""
        power = np.diagonal(self._products)
        heard = np.flatnonzero(power > 0)
        if len(heard) < 2:
            return None
        scale = np.sqrt(power[heard])
        return float((self._products[np.ix_(heard, heard)] / np.outer(scale, scale)).min())


Waiting = Sequence[tuple[int, Segment]]
Result = tuple[int, DecodedAudio | BadAudioError]


def collect(
    stream: AudioStream,
    waiting: Waiting,
    collector: Callable[[AudioStream], AsInFile],
    max_seconds: float | None,
    max_samples: int | None = None,
) -> Iterator[Result]:
    """(index, result) of each segment; of some of them, where the others need another decode.

    Args:
      max_seconds: of a segment.
      max_samples: of all channels together, that are decoded for a segment.
    """
    # Faults that the header shows already cost no decode.
    ranges: list[_Range] = []
    for index, segment in waiting:
        try:
            ranges.append(_Range.of(index, segment, stream.header, max_seconds, max_samples))
        except BadAudioError as fault:
            yield index, fault
    if not ranges:
        return
    if not stream.can_seek:
        yield from _collect_forward(stream, ranges, collector, max_samples)
        return

    # A stream that can seek: each segment is read by itself.
    for range_ in ranges:
        range_.collector = collector(stream)
        try:
            at = range_.first
            for block in stream.blocks(range_.first, range_.count):
                range_.add(block, at)
                at += len(block)
            yield range_.index, range_.result(at)
        except BadAudioError as fault:
            yield range_.index, fault


def _collect_forward(
    stream: AudioStream,
    ranges: "list[_Range]",
    collector: Callable[[AudioStream], AsInFile],
    max_samples: int | None,
) -> Iterator[Result]:
    """Collects like `_collect`, in one pass from the start."""
    # In the order of their starts: the decode meets them one after the other.
    channels = stream.header.channels
    queue = deque(sorted(ranges, key=lambda segment: segment.first))
    active: list[_Range] = []
    stop = max(segment.slack for segment in queue)
    at = 0
    for block in stream.blocks(0, -1 if stop == _END else stop + 1):
        until = at + len(block)
        # Before any block of it is kept.
        if max_samples is not None and until * channels > max_samples:
            raise too_many_samples(until, stream.header, max_samples)
        while queue and queue[0].first < until:
            segment = queue.popleft()
            # Memory: more segments at a time would hold too much audio. The others wait for another decode.
            if not active or sum(range_.seconds for range_ in active) + segment.seconds <= SEGMENTS_AT_ONCE_SECONDS:
                segment.collector = collector(stream)
                active.append(segment)
        for segment in list(active):
            try:
                segment.add(block, at)
                if segment.slack < until:
                    active.remove(segment)
                    yield segment.index, segment.result(until)
            except BadAudioError as fault:
                active.remove(segment)
                yield segment.index, fault
        at = until
        if not queue and not active and stop == _END:
            return  # all that were to be read to the end are too long

    # The recording ended within these.
    for segment in [*active, *queue]:
        try:
            yield segment.index, segment.result(at)
        except BadAudioError as fault:
            yield segment.index, fault


_END = sys.maxsize


@dataclasses.dataclass
class _Range:
    """The frames of a segment.

    Attributes:
      first, last: frames; `last` is exclusive, `_END` reads to the end.
      slack: if the recording ends before this frame, the segment ends with it.
      most: frames after which the segment is too long.
      max_samples: of all channels together, that are decoded for the segment.
      channel: that is kept; None: all.
    """

    index: int
    first: int
    last: int
    slack: int
    header: AudioHeader
    most: float
    max_seconds: float | None
    max_samples: int | None
    channel: int | None = None
    collector: AsInFile | None = None
    tail: list[npt.NDArray[Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(
        cls, index: int, segment: Segment, header: AudioHeader, max_seconds: float | None, max_samples: int | None
    ) -> "_Range":
        """Raises BadAudioError if the segment is not in the recording, or too long, as far as the header says."""
        rate = header.sample_rate
        if segment.channel is not None and segment.channel >= header.channels:
            detail = (
                f"channel {segment.channel} is named, counted from 0, and it has {header.channels}; if the column says "
                "something else, give corpus.columns.channel the name of another"
            )
            raise BadAudioError(Reason.BAD_ENTRY, detail)
        first = round(segment.offset * rate)
        last = _END if segment.duration is None else round((segment.offset + segment.duration) * rate)
        slack = last
        if header.frames:
            last = slack = _last_frame(header, segment, first)
        elif first == 0 and last != _END:
            # The length is not known: read a little further, in case the recording ends there.
            slack = last + round(WHOLE_RECORDING_TOLERANCE * rate)
        most = math.inf if max_seconds is None else (max_seconds + DURATION_TOLERANCE_SECONDS) * rate
        frames = cls(index, first, last, slack, header, most, max_seconds, max_samples, segment.channel)
        if last != _END:
            frames.check(last - first)
        return frames

    @property
    def sample_rate(self) -> int:
        return self.header.sample_rate

    @property
    def count(self) -> int:
        return -1 if self.last == _END else self.last - self.first

    @property
    def seconds(self) -> float:
        """That it may take in memory."""
        return min(self.last - self.first, self.most) / self.sample_rate

    def add(self, block: npt.NDArray[Any], at: int) -> None:
        """Adds what belongs to it of a block that begins at a frame.

        Raises:
          BadAudioError: it is too long.
        """
        assert self.collector  # noqa: S101 -- it was started

        if self.channel is not None:
            block = block[:, self.channel : self.channel + 1]
        part = block[max(0, self.first - at) : max(0, self.last - at)]
        if len(part):
            self.collector.add(part)
        if self.slack > self.last:
            # Frames behind the segment, until it is clear whether the recording ends with them.
            self.tail.append(block[max(0, self.last - at) : max(0, self.slack - at)].copy())
        self.check(self.collector.frames)

    def result(self, at: int) -> DecodedAudio:
        """The segment, when `at` frames of the recording were read, or all that there are; it is kept no longer."""
        collector = self.collector
        self.collector = None

        tail = self.tail
        self.tail = []
        rate = self.sample_rate
        if collector is None or not collector.frames:
            if at <= self.first and at:
                raise _beyond_the_end(self.first / rate, self.last / rate, at / rate)
        elif self.last != _END and at < self.last - DURATION_TOLERANCE_SECONDS * self.sample_rate:
            raise _beyond_the_end(self.first / rate, self.last / rate, at / rate)
        if collector is None:
            raise BadAudioError(Reason.EMPTY_AUDIO, "no samples")

        # The recording ended within the tolerance: the segment ends with it.
        if at <= self.slack:
            for part in tail:
                collector.add(part)
        return collector.result()

    def check(self, frames: int) -> None:
        """
        Raises:
          BadAudioError: so many frames are too long, or too many samples.
        """
        if frames > self.most:
            raise BadAudioError(Reason.TOO_LONG, f"longer than {self.max_seconds:g} s, which is where decoding stopped")
        if self.max_samples is not None and frames * self.header.channels > self.max_samples:
            raise too_many_samples(frames, self.header, self.max_samples)


def too_many_samples(frames: int, header: AudioHeader, max_samples: int) -> BadAudioError:
    channels = header.channels
    return BadAudioError(
        Reason.TOO_LONG,
        f"{frames * channels:,} samples or more ({frames / header.sample_rate:.4g} s, {header.sample_rate:,} Hz, "
        f"{channels} channels); at most {max_samples:,} are decoded",
    )


def _last_frame(header: AudioHeader, segment: Segment, first: int) -> int:
    """The end of a segment of a recording whose length is known."""
    rate = header.sample_rate
    total = header.frames
    last = total if segment.duration is None else round((segment.offset + segment.duration) * rate)

    # Durations are rounded in manifests: the end of the recording is meant.
    if first == 0 and abs(last - total) <= WHOLE_RECORDING_TOLERANCE * rate:
        last = total
    if first >= total or last > total + DURATION_TOLERANCE_SECONDS * rate:
        raise _beyond_the_end(segment.offset, last / rate, header.seconds)
    return min(last, total)


def _beyond_the_end(start: float, end: float, total: float) -> BadAudioError:
    return BadAudioError(Reason.BAD_ENTRY, f"the segment is {start:g}-{end:g} s, the recording ends at {total:g} s")

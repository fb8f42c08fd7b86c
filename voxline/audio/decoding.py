"""Reading recordings of any format: decode, mix to mono, resample, and name what is wrong with a bad one.

samples = load_audio("take.flac", 16_000)      # float32 [samples], mono, in [-1, 1]
recording = decode_audio("take.flac")          # neither mixed nor resampled
wav = to_int16(resample(to_mono(recording.samples), recording.sample_rate, 16_000))
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from voxline.audio import flac, wav
from voxline.audio.ffmpeg import decode_with_ffmpeg, ffmpeg_format
from voxline.audio.wav import full_scale
from voxline.rejects import DURATION_TOLERANCE_SECONDS, BadAudioError, Reason

__all__ = [
    "AudioHeader",
    "BadAudioError",
    "DecodedAudio",
    "decode_audio",
    "load_audio",
    "read_header",
    "resample",
    "to_mono",
]

BLOCK_FRAMES = 1 << 20
"""Frames read at once, so that a header with a false length cannot claim the memory for it."""

WHOLE_RECORDING_TOLERANCE = 0.01
"""A segment this close to the whole recording is the whole recording: manifests round durations."""

MAX_FLOAT_PEAK = 100.0
"""Full scale of float samples is 1. A peak 40 dB above it is no level; clipped, it would be a square wave."""

MIN_SAMPLE_RATE = 1_000
"""Hz. A lower rate means a damaged header, and resampling from it would take gigabytes."""

_INT16_SUBTYPES = {"PCM_16": "int16", "PCM_S8": "int16", "PCM_U8": "int16", "ULAW": "int16", "ALAW": "int16"}
_INT32_SUBTYPES = {"PCM_24": "int32", "PCM_32": "int32"}


@dataclasses.dataclass(frozen=True)
class AudioHeader:
    """The length, rate and channels of a recording, read without decoding it.

    Attributes:
      frames: samples of one channel.
      sample_rate: Hz.
    """

    frames: int
    sample_rate: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.frames / self.sample_rate


@dataclasses.dataclass(frozen=True)
class DecodedAudio:
    """Decoded samples, neither mixed nor resampled.

    Attributes:
      samples: int16, int32 or float32 `[frames, channels]`; integers use their full range.
      sample_rate: Hz.
      md5: of the samples, in hexadecimal, if they are 16-bit and the file states it; else empty.
    """

    samples: npt.NDArray[Any]
    sample_rate: int
    md5: str = ""


def load_audio(
    path: Path | str, sample_rate: int, offset: float = 0.0, duration: float | None = None
) -> npt.NDArray[np.float32]:
    """Reads a recording, or a segment of it, as mono samples at a given rate.

    Args:
      path: a file of any format.
      sample_rate: Hz of the result.
      offset, duration: seconds; the segment to read. None reads to the end.

    Returns:
      float32 `[samples]` in [-1, 1]; resampling may overshoot slightly.

    Raises:
      BadAudioError: as `decode_audio`.
    """
    recording = decode_audio(path, offset, duration)
    return resample(to_mono(recording.samples), recording.sample_rate, sample_rate)


def decode_audio(path: Path | str, offset: float = 0.0, duration: float | None = None) -> DecodedAudio:
    """Reads a recording, or the segment of `duration` seconds that starts at `offset`, and checks it.

    A FLAC that is read whole is compared with its MD5. For a segment, only the segment is decoded.

    Raises:
      BadAudioError: the file is missing, empty, unreadable or truncated, its MD5 differs, or the segment ends beyond
        the recording.
    """
    path = Path(path)
    start = _read_first_bytes(path)
    if form := ffmpeg_format(start):
        samples, rate = decode_with_ffmpeg(path, form)
        first, count = _frame_range(AudioHeader(len(samples), rate, samples.shape[1]), offset, duration)
        return _check_samples(DecodedAudio(samples[first : first + count], rate))
    info = _check_container(path, start)
    try:
        with _ForwardSoundFile(os.fspath(path)) as file:
            head = _header_of(file)
            first, count = _frame_range(head, offset, duration)
            if first:
                file.seek(first)
            blocks = _read_blocks(file, count)
            rate = int(file.samplerate)
    except soundfile.LibsndfileError as error:
        raise _explain_failure(path, info, error) from None
    frames = sum(len(block) for block in blocks)
    if head.frames and frames < count:
        raise BadAudioError(
            Reason.TRUNCATED, f"the header says {head.frames:,} frames, the file has {first + frames:,}"
        )
    md5 = ""
    if info and frames and first == 0 and count == head.frames:
        flac.verify_md5(info, blocks)
        if info.bits == 16 and info.md5 != flac.NO_MD5:
            md5 = info.md5.hex()
    return _check_samples(DecodedAudio(blocks[0] if len(blocks) == 1 else np.concatenate(blocks), rate, md5))


def read_header(path: Path | str) -> AudioHeader:
    """Reads a recording's length, rate and channels. Formats that only ffmpeg reads are decoded for it.

    Raises:
      BadAudioError: as `decode_audio`, for faults that show in the header.
    """
    path = Path(path)
    start = _read_first_bytes(path)
    if form := ffmpeg_format(start):
        samples, rate = decode_with_ffmpeg(path, form)
        return AudioHeader(len(samples), rate, samples.shape[1])
    info = _check_container(path, start)
    try:
        with _ForwardSoundFile(os.fspath(path)) as file:
            head = _header_of(file)
    except soundfile.LibsndfileError as error:
        raise _explain_failure(path, info, error) from None
    if head.frames == 0:
        recording = decode_audio(path)  # a FLAC of unstated length; raises if there is no audio
        head = dataclasses.replace(head, frames=len(recording.samples))
    return head


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
        samples = (samples / full_scale(samples.dtype)).astype(np.float32)
    if rate == to:
        return samples
    import soxr

    resampled: npt.NDArray[np.float32] = soxr.resample(samples, rate, to, quality="HQ")
    return resampled


def _read_first_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(16)
    except FileNotFoundError:
        raise BadAudioError(Reason.MISSING_FILE, f"{path}: no such file") from None
    except OSError as error:
        raise BadAudioError(Reason.UNREADABLE, f"{path}: {error.strerror}") from None
    if not start:
        raise BadAudioError(Reason.EMPTY_AUDIO, "the file is empty (0 bytes)")
    return start


def _check_container(path: Path, start: bytes) -> flac.StreamInfo | None:
    """Makes the checks that libsndfile does not make; returns STREAMINFO of a FLAC file."""
    if wav.is_wav(start):
        wav.check_wav_complete(path)
    if start[:4] == flac.MAGIC or start[:3] == b"ID3":
        try:
            return flac.read_stream_info(path)
        except BadAudioError:
            if start[:4] == flac.MAGIC:
                raise
    return None


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """Reads forward only: soundfile seeks after every read, which fails at the end of a FLAC of unstated length."""

    def seekable(self) -> bool:
        return False


def _header_of(file: soundfile.SoundFile) -> AudioHeader:
    """The header as libsndfile reads it; 0 frames for a FLAC of unstated length."""
    frames = int(file.frames)
    if file.samplerate < MIN_SAMPLE_RATE:
        raise BadAudioError(
            Reason.UNREADABLE, f"the header says {file.samplerate} Hz; {MIN_SAMPLE_RATE:,} or more are accepted"
        )
    return AudioHeader(0 if frames >= 2**62 else frames, int(file.samplerate), int(file.channels))


def _frame_range(head: AudioHeader, offset: float, duration: float | None) -> tuple[int, int]:
    """The first frame and the number of frames; -1 reads a FLAC of unstated length to its end."""
    first = round(offset * head.sample_rate)
    if not head.frames:
        return first, -1 if duration is None else round(duration * head.sample_rate)
    last = head.frames if duration is None else round((offset + duration) * head.sample_rate)
    if first == 0 and abs(last - head.frames) <= WHOLE_RECORDING_TOLERANCE * head.sample_rate:
        last = head.frames
    if first >= head.frames or last > head.frames + DURATION_TOLERANCE_SECONDS * head.sample_rate:
        raise BadAudioError(
            Reason.BAD_ENTRY,
            f"the segment is {offset:g}-{last / head.sample_rate:g} s, the recording ends at {head.seconds:g} s",
        )
    return first, min(last, head.frames) - first


def _read_blocks(file: soundfile.SoundFile, count: int) -> list[npt.NDArray[Any]]:
    """Blocks `[frames, channels]` of the narrowest dtype that holds the file's samples exactly."""
    dtype = _INT16_SUBTYPES.get(file.subtype) or _INT32_SUBTYPES.get(file.subtype) or "float32"
    blocks: list[npt.NDArray[Any]] = []
    while count:
        block = file.read(min(count, BLOCK_FRAMES) if count > 0 else BLOCK_FRAMES, dtype=dtype, always_2d=True)
        blocks.append(block)
        if not len(block):
            break
        count -= len(block) if count > 0 else 0
    return blocks or [np.zeros((0, file.channels), dtype)]


def _check_samples(recording: DecodedAudio) -> DecodedAudio:
    """Returns the recording if it has samples, and all of them are finite and plausible."""
    if not len(recording.samples):
        raise BadAudioError(Reason.EMPTY_AUDIO, "no samples")
    if recording.samples.dtype.kind == "f":
        peak = float(np.abs(recording.samples).max())
        if not np.isfinite(peak):
            bad = int(np.count_nonzero(~np.isfinite(recording.samples)))
            raise BadAudioError(Reason.UNREADABLE, f"{bad:,} samples are NaN or infinite")
        if peak > MAX_FLOAT_PEAK:
            raise BadAudioError(Reason.UNREADABLE, f"samples reach {peak:g}; full scale of float samples is 1")
    return recording


def _explain_failure(path: Path, info: flac.StreamInfo | None, error: soundfile.LibsndfileError) -> BadAudioError:
    """Says why libsndfile failed: the end is missing, the middle is damaged, or the file is not audio."""
    reason = error.error_string.strip()
    if info is None:
        if "does not exist" in reason:  # its message for an MP3 without a frame; the file exists
            reason = "no audio in it"
        return BadAudioError(Reason.UNREADABLE, f"libsndfile: {reason}")
    if info.bits > 24:
        return BadAudioError(Reason.UNREADABLE, f"FLAC of {info.bits} bits; up to 24 are accepted, encode it again")
    if flac.ends_with_whole_frame(path):
        return BadAudioError(Reason.UNREADABLE, f"damaged in the middle; the end is intact (libsndfile: {reason})")
    return BadAudioError(Reason.TRUNCATED, f"ends before the {info.frames:,} frames that the header says ({reason})")

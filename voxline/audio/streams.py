"""Opens a recording of any format as a stream of blocks of samples, and names what is wrong with a bad one.

libsndfile decodes what it knows in this process; ffmpeg the rest, in its own (ffmpeg.py). Either way the blocks are
small and the file is never in memory as a whole, so a header with a false length claims nothing.
"""

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import soundfile

from voxline.audio import flac, wav
from voxline.audio.containers import (
    Container,
    MpegAudio,
    RawFormat,
    check_adts,
    check_asf,
    check_mp4,
    check_ogg,
    check_single,
    check_stated_size,
    count_mp3_frames,
    ffmpeg_must_decode,
    identify,
    is_raw_name,
)
from voxline.audio.ffmpeg import FfmpegDecoder
from voxline.progress import neutralize
from voxline.rejects import BadAudioError, Reason

BLOCK_SAMPLES = 1 << 19
"""Samples read at once, of all channels together."""

MIN_SAMPLE_RATE = 1_000
"""Hz. A lower rate means a damaged header, and resampling from it would take gigabytes."""

MAX_SAMPLE_RATE = 10_000_000
"""Hz. No recorder reaches it, and resampling from a far higher one takes minutes for a second of samples."""

MAX_LOST_FRAMES = 4
"""Frames of an MP3 that a decoder may leave out: padding, and those that refer to frames that are not there."""

RAW_HINT = (
    "; a file without a header needs corpus.raw.sample_rate (Hz), and corpus.raw.channels and "
    "corpus.raw.sample_format where they are not 1 and s16le"
)

_INT16_SUBTYPES = {"PCM_16": "int16", "PCM_S8": "int16", "PCM_U8": "int16", "ULAW": "int16", "ALAW": "int16"}
_INT32_SUBTYPES = {"PCM_24": "int32", "PCM_32": "int32"}
_START_BYTES = 64

Block = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class AudioHeader:
    """The length, rate and channels of a recording, read without decoding it.

    Attributes:
      frames: samples of one channel; 0: not known before all is decoded.
      sample_rate: Hz.
      remark: what contradicts it in the file, and leaves no doubt of the samples; empty if nothing does.
    """

    frames: int
    sample_rate: int
    channels: int
    remark: str = ""

    @property
    def seconds(self) -> float:
        return self.frames / self.sample_rate


class AudioStream:
    """An open recording.

    Attributes:
      header: its length, rate and channels.
      can_seek: whether any range can be read, and in any order; else only one, which costs what is before it too.
      md5: of the samples, in hexadecimal, once they are read whole, are 16-bit and agree with what the file states.
    """

    header: AudioHeader
    can_seek = True
    md5 = ""

    def blocks(self, first: int, count: int) -> Iterator[Block]:
        """`count` frames from the frame `first` on, or all that follow if it is negative.

        Yields:
          int16, int32 or float32 `[frames, channels]`, the narrowest that holds the file's samples exactly.

        Raises:
          BadAudioError: the file is damaged, or ends before.
        """
        raise NotImplementedError

    @property
    def notes(self) -> str:
        """The decoder's remarks on the file so far."""
        return ""


@contextlib.contextmanager
def open_audio(path: Path | str, raw: RawFormat | None = None) -> Generator[AudioStream, None, None]:
    """Opens a recording of any format.

    Args:
      raw: of a file without a header.

    Raises:
      BadAudioError: the file is missing, empty, unreadable or visibly truncated.
    """
    path = Path(path)
    start = _read_first_bytes(path)
    container = identify(start)
    raw = raw if is_raw_name(path) and container is not Container.WAV else None
    # Samples without a header may begin with any bytes, such as those of a container.
    if raw:
        container = Container.OTHER
    elif is_raw_name(path) and container in (Container.MP3, Container.ADTS):  # any two samples may look like these
        raise BadAudioError(Reason.UNREADABLE, f"samples without a header{RAW_HINT}")
    if ffmpeg_must_decode(container, start):
        _check_container(path, container)
        with FfmpegDecoder(path, container) as decoder:
            yield _FfmpegStream(decoder)
        return

    counted = count_mp3_frames(path) if container in (Container.MP3, Container.WAV) else None
    with _open_with_libsndfile(path, start, container, counted, raw) as stream:
        if not (counted and stream.stated_frames < counted.samples):
            yield stream
            return

    with FfmpegDecoder(path, container) as decoder:  # libsndfile stops at its own estimate of the length
        yield _FfmpegStream(decoder, counted)


def stated_seconds(path: Path | str) -> float:
    """The length of a recording that its header states, or that follows from its frames; 0.0 if neither."""
    try:
        start = _read_first_bytes(path)
        container = identify(start)
        if ffmpeg_must_decode(container, start) or (is_raw_name(path) and container is not Container.WAV):
            return 0.0
        if container in (Container.MP3, Container.WAV) and (counted := count_mp3_frames(path)):
            return counted.samples / counted.sample_rate
        with _LibmpgSilencer(active=container is Container.MP3).call(_SoundFile, *_opening(path, None)) as file:
            header = _header_of(file)
    except (BadAudioError, soundfile.LibsndfileError):
        return 0.0
    return header.seconds


def _read_first_bytes(path: Path | str) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(_START_BYTES)
    except FileNotFoundError:
        raise BadAudioError(Reason.MISSING_FILE, f"{path}: no such file") from None
    except OSError as error:
        raise BadAudioError(Reason.UNREADABLE, f"{path}: {error.strerror}") from None
    if not start:
        raise BadAudioError(Reason.EMPTY_AUDIO, "the file is empty (0 bytes)")
    return start


def _check_container(path: Path, container: Container) -> None:
    """Makes the checks that ffmpeg does not make."""
    checks = {Container.MP4: check_mp4, Container.ASF: check_asf, Container.ADTS: check_adts, Container.OGG: check_ogg}
    if check := checks.get(container):
        check(path)


class _FfmpegStream(AudioStream):
    can_seek = False

    def __init__(self, decoder: FfmpegDecoder, counted: MpegAudio | None = None) -> None:
        self._decoder = decoder
        self._counted = counted
        _check_rate(decoder.sample_rate)
        self.header = AudioHeader(counted.samples if counted else 0, decoder.sample_rate, decoder.channels)

    def blocks(self, first: int, count: int) -> Iterator[Block]:
        # ffmpeg cannot seek exactly: what is before the range is decoded and dropped.
        at = 0
        last = first + count if count >= 0 else sys.maxsize
        for block in self._decoder.blocks():
            part = block[max(0, first - at) : last - at]
            at += len(block)
            if len(part):
                yield part
            if at >= last:
                break
        if self._counted:  # a player of streams: it complains where a stream was joined, too
            # An end that was asked for must be there; a range within may stop anywhere.
            if count < 0 or last >= self._counted.samples:
                _check_counted(at, self._counted)
        elif fault := self._decoder.complaint(is_at_end=at < last):
            raise fault


class _SndfileStream(AudioStream):
    """Attributes: stated_frames: by libsndfile, an estimate where the frames had to be counted."""

    def __init__(
        self,
        path: Path,
        container: Container,
        file: "_SoundFile",
        silencer: "_LibmpgSilencer",
        info: flac.StreamInfo | None,
        counted: MpegAudio | None,
        remark: str,
    ) -> None:
        self._path = path
        self._container = container
        self._file = file
        self._silencer = silencer
        self._info = info
        self._counted = counted
        self.header = dataclasses.replace(_header_of(file), remark=remark)
        self.stated_frames = self.header.frames
        if counted:
            self.header = dataclasses.replace(self.header, frames=counted.samples)

    @property
    def notes(self) -> str:
        return "; ".join(filter(None, [self.header.remark, self._silencer.notes]))

    def blocks(self, first: int, count: int) -> Iterator[Block]:
        try:
            yield from self._blocks(first, count)
        except soundfile.LibsndfileError as error:
            raise _explain_failure(self._path, self._info, error, self.notes) from None

    def _blocks(self, first: int, count: int) -> Iterator[Block]:
        file = self._file
        total = self.header.frames
        if count < 0 or first + count >= total:
            if self._container is Container.OGG:
                check_ogg(self._path)
            elif self._info:
                flac.check_one_stream(self._path)
            elif self._container is Container.OTHER:
                check_single(self._path)
        if first:
            self._silencer.call(file.seek, first)

        # A digest needs all samples from the first to the last.
        digest = flac.SampleDigest(self._info) if self._info and first == 0 and count in (-1, total) else None
        dtype = _INT16_SUBTYPES.get(file.subtype) or _INT32_SUBTYPES.get(file.subtype) or "float32"

        most = max(1, BLOCK_SAMPLES // file.channels)
        read = 0
        while read != count:
            count_to_read = min(count - read, most) if count > 0 else most
            block = self._silencer.call(file.read, count_to_read, dtype=dtype, always_2d=True)
            if not len(block):
                break
            read += len(block)
            if digest:
                digest.add(block)
            yield block
        if self._counted:
            if first + count >= total:
                _check_counted(first + read, self._counted)
        elif total and read < count:
            remarks = f" ({self.notes})" if self.notes else ""
            detail = f"the header says {total:,} frames, the file has {first + read:,}{remarks}"
            raise BadAudioError(Reason.TRUNCATED, detail)
        if digest and self._info and read:
            digest.verify()
            # Only 16-bit samples have the MD5 of what is handed on: others are widened.
            if self._info.bits == 16 and self._info.md5 != flac.NO_MD5:
                self.md5 = self._info.md5.hex()


def _check_counted(frames: int, counted: MpegAudio) -> None:
    if frames < counted.samples - MAX_LOST_FRAMES * counted.frame_samples:
        detail = f"damaged: its MPEG frames hold {counted.samples:,} samples, {frames:,} of them can be decoded"
        raise BadAudioError(Reason.UNREADABLE, detail)


class _SoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """Reads forward only: soundfile seeks after every read, which fails at the end of a FLAC of unstated length."""

    def seekable(self) -> bool:
        return False


@contextlib.contextmanager
def _open_with_libsndfile(
    path: Path, start: bytes, container: Container, counted: MpegAudio | None, raw: RawFormat | None
) -> Generator[_SndfileStream, None, None]:
    info = None
    remark = ""
    if container is Container.WAV:
        remark = wav.check_wav_complete(path)
    elif container is Container.OTHER and raw is None:
        check_stated_size(path)
    # An ID3 tag may be in front of FLAC, too.
    if start[:4] == flac.MAGIC or start[:3] == b"ID3":
        try:
            info = flac.read_stream_info(path)
        except BadAudioError:
            if start[:4] == flac.MAGIC:
                raise
    silencer = _LibmpgSilencer(active=container is Container.MP3 or counted is not None)
    try:
        file = silencer.call(_SoundFile, *_opening(path, raw))
    except soundfile.LibsndfileError as error:
        raise _explain_failure(path, info, error, silencer.notes) from None
    try:
        yield _SndfileStream(path, container, file, silencer, info, counted, remark)
    finally:
        silencer.call(file.close)


def _opening(path: Path | str, raw: RawFormat | None) -> tuple[Any, ...]:
    """The arguments for soundfile, which takes a name in .raw for samples without a header; a number has no name."""
    if not is_raw_name(path):
        return (os.fspath(path),)
    file = os.open(path, os.O_RDONLY)
    if raw is None:
        return (file,)
    options = raw.soundfile_options()

    # Positional arguments of `SoundFile`, behind the mode.
    named = (options[key] for key in ("samplerate", "channels", "subtype", "endian", "format"))
    return (file, "r", *named)


def _header_of(file: soundfile.SoundFile) -> AudioHeader:
    """The header as libsndfile reads it; 0 frames for a FLAC of unstated length."""
    frames = int(file.frames)
    _check_rate(int(file.samplerate))

    # libsndfile states the largest number there is for a length that it does not know.
    return AudioHeader(0 if frames >= 2**62 else frames, int(file.samplerate), int(file.channels))


def _check_rate(rate: int) -> None:
    if not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
        detail = f"the header says {rate:,} Hz; {MIN_SAMPLE_RATE:,} to {MAX_SAMPLE_RATE:,} are accepted"
        raise BadAudioError(Reason.UNREADABLE, detail)


def _explain_failure(
    path: Path, info: flac.StreamInfo | None, error: soundfile.LibsndfileError, notes: str
) -> BadAudioError:
    """Says why libsndfile failed: the end is missing, the middle is damaged, or the file is not audio."""
    reason = error.error_string.strip()
    if "malloc" in reason:
        return BadAudioError(Reason.OUT_OF_MEMORY, f"libsndfile: {reason}")
    if info is None:
        if "does not exist" in reason:  # its message for an MP3 without a frame; the file exists
            reason = "no audio in it"
        detail = f"libsndfile: {reason}" + (f" ({notes})" if notes else "")
        if is_raw_name(path):
            detail += RAW_HINT
        return BadAudioError(Reason.UNREADABLE, detail)
    if info.bits > 24:
        return BadAudioError(Reason.UNREADABLE, f"FLAC of {info.bits} bits; up to 24 are accepted, encode it again")

    # Whole at its end, so the fault is before it.
    if flac.ends_with_whole_frame(path):
        return BadAudioError(Reason.UNREADABLE, f"damaged in the middle; the end is intact (libsndfile: {reason})")
    stated = f"ends before the {info.frames:,} frames that the header says" if info.frames else "ends inside a frame"
    return BadAudioError(Reason.TRUNCATED, f"{stated} ({reason})")


class _LibmpgSilencer:
    """Keeps libmpg123, which libsndfile decodes MP3 with, from writing to the terminal.

    Its remarks name no file and cannot be turned off through libsndfile, so the process' stderr is a file meanwhile.
    What others wrote there is passed on.

    Attributes:
      notes: its remarks, on one line.
    """

    _lock = threading.Lock()
    _REMARK = re.compile(r"\[.*mpg123.*\]|Warning: |Note: |Error: ")
    _MOST = 300

    def __init__(self, *, active: bool) -> None:
        self._active = active
        self.notes = ""

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._active:
            return function(*arguments, **named)
        # The lock: file descriptor 2 belongs to the whole process.
        with self._lock, tempfile.TemporaryFile() as messages:
            terminal = os.dup(2)
            os.dup2(messages.fileno(), 2)
            try:
                return function(*arguments, **named)
            finally:
                os.dup2(terminal, 2)
                os.close(terminal)
                messages.seek(0)
                self._sort(messages.read().decode("utf-8", "replace"))

    def _sort(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip()]
        remarks = [line.strip() for line in lines if self._REMARK.match(line)]
        self.notes = "; ".join(filter(None, [self.notes, *remarks]))[: self._MOST]
        if other_lines := [line for line in lines if not self._REMARK.match(line)]:
            os.write(2, neutralize("\n".join(other_lines) + "\n").encode())

"""Decoding formats that libsndfile cannot read (AAC, WMA, WebM and others) with pydub and a static ffmpeg.

Only the formats named here, recognized by their first bytes, ever reach ffmpeg: it decodes a damaged FLAC or WAV to
silence or noise without an error, and if left to guess it would open playlists, which name other files.
"""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.rejects import BadAudioError, Reason


def ffmpeg_format(start: bytes) -> str | None:
    """ffmpeg's name for the format of a file, from its first 16 bytes; None if libsndfile reads it.

    >>> ffmpeg_format(b"\\x00\\x00\\x00\\x1cftypM4A \\x00\\x00\\x02\\x00")
    'mov'
    """
    if start[4:8] == b"ftyp":
        return "mov"
    if start[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if start[:8] == b"\x30\x26\xb2\x75\x8e\x66\xcf\x11":
        return "asf"
    if len(start) > 1 and start[0] == 0xFF and start[1] & 0xF6 == 0xF0:  # ADTS; MP3 has its layer in these bits
        return "aac"
    return None


def decode_with_ffmpeg(path: Path, form: str) -> tuple[npt.NDArray[np.int16], int]:
    """Decodes a whole recording: int16 `[frames, channels]`, and its sample rate in Hz.

    Raises:
      BadAudioError: the file is truncated, or ffmpeg cannot decode it.
    """
    if form == "mov":
        _check_boxes(path)
    segment_type, could_not = _pydub()
    try:
        segment = segment_type.from_file(os.fspath(path.absolute()), format=form)
    except (could_not, IndexError, ValueError, struct.error) as error:
        raise BadAudioError(Reason.UNREADABLE, f"ffmpeg cannot decode it as {form}: {_last_line(error)}") from None
    samples = np.frombuffer(segment.raw_data, f"<i{segment.sample_width}").reshape(-1, segment.channels)
    return samples.astype(np.int16), int(segment.frame_rate)


def _check_boxes(path: Path) -> None:
    """Checks that no box of an MP4 is truncated; ffmpeg would silently read up to the cut."""
    total = path.stat().st_size
    at = 0
    with open(path, "rb") as file:
        while at < total:
            file.seek(at)
            head = file.read(16)
            size = int.from_bytes(head[:4])
            if size == 1:
                size = int.from_bytes(head[8:16])
            if size == 0:  # the last box extends to the end
                return
            if len(head) < 8 or size < 8 or at + size > total:
                raise BadAudioError(
                    Reason.TRUNCATED, f"box {head[4:8]!r} says {size:,} bytes, the file has {total - at:,}"
                )
            at += size


def _pydub() -> tuple[Any, type[Exception]]:
    """pydub's AudioSegment with the static ffmpeg of imageio-ffmpeg, and the error it raises.

    pydub would probe the stream with ffprobe, which no wheel contains. Without the probe ffmpeg writes 16-bit PCM, as
    wanted. pydub calls ffmpeg with a list of arguments, never through a shell.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if there is no ffmpeg on the PATH
        import imageio_ffmpeg
        import pydub.audio_segment
        from pydub.exceptions import CouldntDecodeError

    pydub.audio_segment.AudioSegment.converter = imageio_ffmpeg.get_ffmpeg_exe()
    pydub.audio_segment.mediainfo_json = lambda *_, **__: None
    return pydub.audio_segment.AudioSegment, CouldntDecodeError


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__

"""WAV files: whether one is all there, and the plain kind that Voxline writes and reads back.

libsndfile and ffmpeg cut a truncated WAV in silence, so the sizes in its chunks are compared with the file's.
"""

import os
import struct
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from voxline.rejects import BadAudioError, Reason
from voxline.store.files import atomic_write

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


HEADER_BYTES = 44
STREAMED_SIZES = {0xFFFFFFFF, 0x7FFFF000}
"""Data sizes that ffmpeg and SoX write into a pipe, where they cannot come back to fill them in."""

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def is_wav(start: bytes) -> bool:
    """Whether a file that begins so (12 bytes) is a WAV."""
    return start[:4] in (b"RIFF", b"RIFX", b"RF64") and start[8:12] == b"WAVE"


def check_wav_complete(path: Path) -> None:
    """Compares the size of the data chunk with what the file holds.

    A size that says "streamed" is taken as "up to the file's end". A size of 0 with bytes behind it is what a
    recorder leaves that was stopped before it could finish the header: the speech is cut at an unknown place.

    Raises:
      BadAudio: truncated; or unreadable, where there is no data chunk in a file that is otherwise whole.
    """
    total = path.stat().st_size
    with open(path, "rb") as file:
        kind, riff_size = struct.unpack("4sI", file.read(12)[:8])
        order = ">" if kind == b"RIFX" else "<"
        riff_size = struct.unpack(order + "I", struct.pack("=I", riff_size))[0]
        long_size: int | None = None
        while True:
            chunk = file.read(8)
            if len(chunk) < 8:
                if riff_size + 8 > total:
                    raise BadAudioError(Reason.TRUNCATED, f"ends after {total} bytes, before its samples begin")
                raise BadAudioError(Reason.UNREADABLE, "a WAV without a data chunk")
            name, size = struct.unpack(order + "4sI", chunk)
            if name == b"ds64":  # RF64: sizes of 64 bits stand here, and those of 32 bits are all ones
                sizes = file.read(16)
                if len(sizes) < 16:
                    raise BadAudioError(Reason.TRUNCATED, f"ends after {total} bytes, before its samples begin")
                long_size = struct.unpack("<8xQ", sizes)[0]
                file.seek(size - 16, os.SEEK_CUR)
            elif name == b"data":
                break
            else:
                file.seek(size + size % 2, os.SEEK_CUR)
        present = total - file.tell()
        if long_size is not None and size == 0xFFFFFFFF:
            size = long_size
        elif size in STREAMED_SIZES:
            return
        if size > present:
            raise BadAudioError(Reason.TRUNCATED, f"its header says {size:,} bytes of samples, {present:,} are there")
        if size == 0 and present > 0 and not _chunk_follows(file):
            raise BadAudioError(
                Reason.TRUNCATED, f"its header was never finished: it says no samples, and {present:,} bytes follow"
            )


def _chunk_follows(file: IO[bytes]) -> bool:
    name = file.read(4)
    return len(name) == 4 and name.isascii() and name.decode().isprintable()


def write_wav(path: Path | str, samples: "npt.NDArray[Any]", sample_rate: int, *, durable: bool = True) -> None:
    """Writes mono 16-bit PCM with a plain 44-byte header. The file appears whole or not at all.

    Args:
      samples: `[samples]`, int16; or float in [-1, 1], which is rounded to 16 bits and clipped.
      sample_rate: Hz.
      durable: whether to wait until the disk has the file; see `atomic_write`.

    Raises:
      ValueError: the samples have another shape or dtype, or are not finite.
    """
    import numpy as np

    if samples.ndim != 1 or not (samples.dtype == np.int16 or samples.dtype.kind == "f"):
        raise ValueError(
            f"samples of shape {samples.shape} and dtype {samples.dtype}; one channel, [samples], of int16 or of "
            "floats in [-1, 1] is accepted"
        )
    if samples.dtype != np.int16:
        from voxline.audio.decoding import to_int16

        if not np.isfinite(samples).all():
            raise ValueError("some samples are not finite; floats in [-1, 1] are accepted")
        samples = to_int16(samples)
    data = np.ascontiguousarray(samples, dtype="<i2").tobytes()
    with atomic_write(Path(path), durable=durable) as file:
        file.write(wav_header(len(samples), sample_rate) + data)


def wav_header(samples: int, sample_rate: int) -> bytes:
    """The 44 bytes before 16-bit mono samples."""
    size = 2 * samples
    return _HEADER.pack(
        b"RIFF", HEADER_BYTES - 8 + size, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data", size
    )


def read_wav(path: Path) -> "tuple[npt.NDArray[np.int16], int]":
    """Reads what `write_wav` wrote: int16 [samples], and Hz.

    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "two.wav"
    >>> write_wav(path, np.array([3, -4], np.int16), 16_000)
    >>> read_wav(path)
    (array([ 3, -4], dtype=int16), 16000)

    Raises:
      BadAudio: it is absent, cut short, or not such a file.
    """
    import numpy as np

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise BadAudioError(Reason.MISSING_FILE, f"{path} is not there") from None
    if len(content) < HEADER_BYTES:
        raise BadAudioError(Reason.TRUNCATED, f"{len(content)} bytes are too few for a WAV")
    sample_rate = _HEADER.unpack_from(content)[7]
    samples = (len(content) - HEADER_BYTES) // 2
    if content[:HEADER_BYTES] != wav_header(samples, sample_rate):
        raise BadAudioError(
            Reason.UNREADABLE, f"{path} is not a 16-bit mono WAV as convert writes it, or was cut short"
        )
    return np.frombuffer(content, "<i2", offset=HEADER_BYTES), sample_rate

"""WAV files: writing and reading plain 16-bit mono, and detecting truncated files of any kind.

libsndfile and ffmpeg read a truncated WAV without an error, so its chunk sizes are compared with the file size.
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
"""Data sizes that ffmpeg and SoX write to a pipe, where they cannot return to fill them in."""

MOST_PADDING = 64
"""Bytes at the end of a file that may be anything."""
_TAGS = (b"ID3", b"TAG", b"APET")
"""Starts of what players put behind a file of any kind."""
_KNOWN_CHUNKS = frozenset(
    b"LIST id3 ID3  bext iXML axml cue  fact smpl inst plst JUNK junk PAD  FLLR cart afsp".split()
)
"""Names of chunks behind the samples, without spaces; they are no samples even where their own size is wrong."""

HEADER_NOTE = "header: "
"""Begins a remark on a header that contradicts itself, of a file whose samples are clear all the same."""
MOST_UNLIKE = 0.001
"""Share by which the length by bytes a second may differ from that by the sample rate: some programs round."""

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def is_wav(start: bytes) -> bool:
    """Returns whether a file is a WAV, from its first 12 bytes."""
    return start[:4] in (b"RIFF", b"RIFX", b"RF64") and start[8:12] == b"WAVE"


def check_wav_complete(path: Path) -> str:
    """Compares the size of the data chunk with the size of the file.

    Returns:
      A remark on a header that says two lengths of the samples; empty if it has none.

    A size that means "streamed" extends to the end of the file. A size of 0 followed by bytes is left by a recorder
    that was stopped before it finished the header: the speech is cut at an unknown point.

    Raises:
      BadAudioError: the file is truncated, has no data chunk, or says two sizes of a frame.
    """
    total = path.stat().st_size
    remark = ""
    with open(path, "rb") as file:
        kind, riff_size = struct.unpack("4sI", file.read(12)[:8])

        # RIFX is big-endian; the size was read in this machine's order.
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
            if name == b"ds64":  # RF64: 64-bit sizes are here, and the 32-bit ones are all ones
                sizes = file.read(16)
                if len(sizes) < 16:
                    raise BadAudioError(Reason.TRUNCATED, f"ends after {total} bytes, before its samples begin")
                long_size = struct.unpack("<8xQ", sizes)[0]
                file.seek(size - 16, os.SEEK_CUR)
            elif name == b"data":
                break
            elif name == b"fmt ":
                remark = _check_frames(file.read(min(size, 40)), order)
                file.seek(size + size % 2 - min(size, 40), os.SEEK_CUR)
            else:
                file.seek(size + size % 2, os.SEEK_CUR)

        # Bytes behind the header of the data chunk, chunks after it included.
        present = total - file.tell()
        if long_size is not None and size == 0xFFFFFFFF:
            size = long_size
        elif size in STREAMED_SIZES:
            return remark
        if size > present:
            raise BadAudioError(
                Reason.TRUNCATED, f"the header says {size:,} bytes of samples, the file has {present:,}"
            )
        # Zero may be true, if another chunk follows.
        if size == 0 and present > 0 and not _chunk_follows(file):
            raise BadAudioError(
                Reason.TRUNCATED, f"the header was never finished: it says no samples, but {present:,} bytes follow"
            )
        if size > 0 and (unnamed := _unnamed_bytes(file, size, present, order)):
            raise BadAudioError(
                Reason.TRUNCATED,
                f"the header says {size:,} bytes of samples, and {unnamed:,} that no chunk names follow; write it "
                "again, with its own length",
            )
    return remark


def _check_frames(form: bytes, order: str) -> str:
    """Compares the bytes of a frame with channels and bits; a decoder goes by either, and reads noise by the wrong one.

    Args:
      form: the chunk `fmt `, of PCM, floats, A-law or µ-law; others are left to their decoders.

    Returns:
      A remark on what else contradicts the sample rate, and leaves no doubt of the samples; empty if nothing does.

    Raises:
      BadAudioError: they differ, and the bytes a second agree with neither or with the former.
    """
    if len(form) < 16:
        return ""
    kind, channels, rate, second, frame, bits = struct.unpack(order + "HHIIHH", form[:16])
    if kind == 0xFFFE and len(form) >= 26:  # extensible: the kind begins the GUID
        kind = struct.unpack(order + "H", form[24:26])[0]
    # A sample of A-law and µ-law is a byte, whatever bits say.
    expected = channels * (1 if kind in (6, 7) else (bits + 7) // 8)
    # Recorders of browsers write those of stereo beside one channel (Recorder.js): what they hold is mono.
    is_copied = (kind, channels, bits, frame, second) == (1, 1, 16, 4, 4 * rate)
    if kind not in (1, 3, 6, 7) or is_copied or not expected:
        return ""
    if frame not in (0, expected) and second != rate * expected:
        raise BadAudioError(
            Reason.UNREADABLE,
            f"its header says {channels} channels of {bits} bits, and {frame} bytes for a sample of each; write it "
            "again, with what it has",
        )
    if frame not in (0, expected):
        return f"{HEADER_NOTE}{channels} channels of {bits} bits, and {frame} bytes for a sample of each"
    if second and abs(second - rate * expected) > MOST_UNLIKE * rate * expected:
        return f"{HEADER_NOTE}{rate} Hz, and {second} bytes a second, as of {second / expected:g} Hz"
    return ""


def _chunk_follows(file: IO[bytes]) -> bool:
    name = file.read(4)
    return len(name) == 4 and name.isascii() and name.decode().isprintable()


def _unnamed_bytes(file: IO[bytes], size: int, present: int, order: str) -> int:
    """The bytes behind the samples that are no chunk, no tag and no padding: more samples, by all that is known.

    Args:
      file: at the first sample.
      size, present: bytes of samples by the header, and to the end of the file.
    """
    end = file.tell() + present
    place = file.tell() + size
    # A chunk of odd size has one more byte, which some programs forget.
    file.seek(place)
    place += size % 2 and file.read(4).strip() not in _KNOWN_CHUNKS
    while end - place > MOST_PADDING:
        file.seek(place)
        header = file.read(8)
        name = header[:4]
        if name.startswith(_TAGS):
            return 0
        # Another WAV, as `cat a.wav b.wav` leaves it: every player ends before it.
        if name == b"RIFF":
            return end - place
        length = struct.unpack(order + "I", header[4:])[0]
        is_name = name.isascii() and name.decode().isprintable()
        if is_name and place + 8 + length > end + 1 and name.strip() in _KNOWN_CHUNKS:
            return 0
        if not is_name or place + 8 + length > end + 1:
            return end - place if name.strip(b"\0") or file.read(MOST_PADDING).strip(b"\0") else 0
        place += 8 + length + length % 2
    return 0


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
        if not np.isfinite(samples).all():
            raise ValueError("some samples are not finite; floats in [-1, 1] are accepted")
        samples = to_int16(samples)

    # Little-endian, whatever the machine.
    data = np.ascontiguousarray(samples, dtype="<i2").tobytes()
    with atomic_write(Path(path), durable=durable) as file:
        file.write(wav_header(len(samples), sample_rate) + data)


def to_int16(samples: "npt.NDArray[Any]") -> "npt.NDArray[np.int16]":
    """Samples as int16, rounded to nearest and clipped at full scale. int16 is returned unchanged.

    >>> import numpy as np
    >>> to_int16(np.array([0.5, -1.0, 1.2, 0.00002], np.float32))
    array([ 16384, -32768,  32767,      1], dtype=int16)
    """
    import numpy as np

    if samples.dtype == np.int16:
        return samples
    scaled = samples * (32768.0 / full_scale(samples.dtype))
    return np.clip(np.rint(scaled), -32768, 32767).astype(np.int16)


def full_scale(dtype: "np.dtype[Any]") -> float:
    """The amplitude of a sample at full scale: 1.0 for floats, 2^(bits - 1) for integers."""
    return float(2 ** (8 * dtype.itemsize - 1)) if dtype.kind == "i" else 1.0


def wav_header(samples: int, sample_rate: int) -> bytes:
    """The 44-byte header of 16-bit mono samples."""
    size = 2 * samples

    # Format 1 is PCM; one channel; bytes a second, bytes a frame, bits.
    return _HEADER.pack(
        b"RIFF", HEADER_BYTES - 8 + size, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data", size
    )


def read_wav(path: Path) -> "tuple[npt.NDArray[np.int16], int]":
    """Reads a file that `write_wav` wrote: int16 `[samples]`, and the sample rate in Hz.

    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "two.wav"
    >>> write_wav(path, np.array([3, -4], np.int16), 16_000)
    >>> read_wav(path)
    (array([ 3, -4], dtype=int16), 16000)

    Raises:
      BadAudioError: the file is missing, truncated, or of another kind.
    """
    import numpy as np

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise BadAudioError(Reason.MISSING_FILE, f"{path}: no such file") from None
    if len(content) < HEADER_BYTES:
        raise BadAudioError(Reason.TRUNCATED, f"{len(content)} bytes are too few for a WAV")
    sample_rate = _HEADER.unpack_from(content)[7]
    samples = (len(content) - HEADER_BYTES) // 2

    # The whole header is compared, so a file with any other chunk is refused.
    if content[:HEADER_BYTES] != wav_header(samples, sample_rate):
        raise BadAudioError(Reason.UNREADABLE, f"{path}: not a 16-bit mono WAV with a 44-byte header, or truncated")
    return np.frombuffer(content, "<i2", offset=HEADER_BYTES), sample_rate

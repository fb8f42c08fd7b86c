"""FLAC checks that libsndfile does not make: the MD5 of the samples, and whether the end is there (RFC 9639)."""

import dataclasses
import functools
import hashlib
import mmap
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from voxline.rejects import BadAudioError, Reason

MAGIC = b"fLaC"
NO_MD5 = bytes(16)
MAX_FRAME_BYTES = 1 << 18
"""More than any encoder writes for one frame."""


_RATES = (0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)
"""Codes of the sample rate in the header of a frame; 0 and larger ones name it elsewhere."""
_MOST_BLOCKS = 128


@dataclasses.dataclass(frozen=True)
class StreamInfo:
    """The first metadata block of a FLAC file.

    Attributes:
      frames: samples of one channel; 0 if the encoder did not state it.
      bits: of a sample.
      md5: of the samples, interleaved, little-endian, in whole bytes; zeros if it was not set.
    """

    sample_rate: int
    channels: int
    bits: int
    frames: int
    md5: bytes


def read_stream_info(path: Path) -> StreamInfo:
    """Reads STREAMINFO.

    Raises:
      BadAudioError: the file is truncated, does not begin with STREAMINFO, or has frames of another sample rate.
    """
    with open(path, "rb") as file:
        start = file.read(10)
        if start[:3] == b"ID3" and len(start) == 10:  # a tag before the stream; its size has 7 bits a byte
            size = start[6] << 21 | start[7] << 14 | start[8] << 7 | start[9]
            file.seek(10 + size)
        else:
            file.seek(0)

        block = file.read(42)
        rate = _rate_of_frames(file, is_last=len(block) == 42 and block[4] > 0x7F)
    if block[:4] != MAGIC:
        raise BadAudioError(Reason.UNREADABLE, f"not a FLAC stream: begins with {block[:4]!r}")
    if len(block) < 42:
        raise BadAudioError(Reason.TRUNCATED, f"ends after {len(block)} bytes, inside the first FLAC header")
    if block[4] & 0x7F:
        raise BadAudioError(
            Reason.UNREADABLE, f"FLAC's first block is of type {block[4] & 0x7F}, it must be STREAMINFO (0)"
        )
    packed = int.from_bytes(block[18:26])  # 20 bits rate, 3 channels - 1, 5 bits - 1, 36 frames
    # Decoders go by either, and one of them plays too fast.
    if rate not in (0, packed >> 44):
        raise BadAudioError(
            Reason.UNREADABLE,
            f"its header says {packed >> 44:,} Hz and its frames {rate:,} Hz; write it again, with its own rate",
        )
    return StreamInfo(
        sample_rate=packed >> 44,
        channels=(packed >> 41 & 0b111) + 1,
        bits=(packed >> 36 & 0b11111) + 1,
        frames=packed & (1 << 36) - 1,
        md5=block[26:42],
    )


class SampleDigest:
    """Compares decoded samples with the MD5 that the encoder computed."""

    def __init__(self, info: StreamInfo) -> None:
        self._info = info
        self._digest = hashlib.md5(usedforsecurity=False)

    def add(self, block: npt.NDArray[Any]) -> None:
        """Adds int16 or int32 `[frames, channels]`, with the samples in the highest bits, as libsndfile has them."""
        if self._info.md5 != NO_MD5:
            self._digest.update(_packed(block, self._info.bits))

    def verify(self) -> None:
        """Compares, when all blocks are there.

        Raises:
          BadAudioError: they differ: the file was damaged after it was encoded, or was decoded wrongly.
        """
        if self._info.md5 not in (NO_MD5, self._digest.digest()):
            raise BadAudioError(
                Reason.MD5_MISMATCH,
                f"the samples have the MD5 {self._digest.hexdigest()}, the header says {self._info.md5.hex()}",
            )


def _packed(block: npt.NDArray[Any], bits: int) -> bytes | memoryview:
    """The samples as FLAC's MD5 covers them: little-endian, each in the fewest whole bytes."""
    # libsndfile puts the samples into the highest bits; the encoder hashed them in the lowest.
    unused = block.dtype.itemsize * 8 - bits
    samples = block >> unused if unused else block
    width = (bits + 7) // 8
    little = np.ascontiguousarray(samples.astype(samples.dtype.newbyteorder("<"), copy=False))
    if width == little.dtype.itemsize:
        return little.data.cast("B")

    # [samples, bytes]: three of four bytes for 24 bits
    return little.view(np.uint8).reshape(-1, little.dtype.itemsize)[:, :width].tobytes()


def _rate_of_frames(file: IO[bytes], is_last: bool) -> int:
    """The sample rate in Hz that the first frame states; 0 if it states none, or is not found.

    Args:
      file: behind STREAMINFO.
      is_last: no block of metadata follows it.
    """
    for _ in range(_MOST_BLOCKS):
        if is_last:
            break
        head = file.read(4)
        if len(head) < 4:
            return 0
        is_last = head[0] > 0x7F
        file.seek(int.from_bytes(head[1:], "big"), os.SEEK_CUR)
    frame = file.read(3)
    is_frame = len(frame) == 3 and frame[0] == 0xFF and frame[1] in (0xF8, 0xF9)
    code = frame[2] & 0x0F if is_frame else 0
    return _RATES[code] if code < len(_RATES) else 0


def check_one_stream(path: Path) -> None:
    """Checks that no second FLAC follows the first in a file, as `cat a.flac b.flac` makes it.

    Raises:
      BadAudioError: one does; libsndfile would not read it.
    """
    heads = [MAGIC + bytes((last, 0, 0, 34)) for last in (0, 0x80)]  # and a STREAMINFO of 34 bytes
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        first = content.find(MAGIC)
        seconds = [at for head in heads if (at := content.find(head, first + 1)) > 0]
    if seconds:
        raise BadAudioError(
            Reason.UNREADABLE,
            f"another recording begins at byte {min(seconds):,}, where the first has ended, and would not be heard: "
            "take them apart there, decode each, and join the samples",
        )


def ends_with_whole_frame(path: Path) -> bool:
    """Returns whether the file ends with an intact frame. If not, its end is missing.

    This distinguishes a truncated file from one that is damaged in the middle. A frame begins with a sync code and ends
    with a CRC-16 of itself, so the CRC of the whole frame is zero.
    """
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_FRAME_BYTES))
        tail = file.read()

    starts = [at for sync in (b"\xff\xf8", b"\xff\xf9") for at in _find_all(sync, tail)]
    # The latest candidates first; thirty-two are enough, since two bytes agree by chance seldom.
    return any(_crc16(tail[at:]) == 0 for at in sorted(starts, reverse=True)[:32])


def _find_all(needle: bytes, hay: bytes) -> list[int]:
    places = []
    at = hay.find(needle)
    while at >= 0:
        places.append(at)
        at = hay.find(needle, at + 1)
    return places


def _crc16(data: bytes) -> int:
    """CRC-16 with the polynomial 0x8005 (RFC 9639, section 9.3)."""
    crc = 0
    table = _crc16_table()
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ table[crc >> 8 ^ byte]
    return crc


@functools.cache
def _crc16_table() -> list[int]:
    table = []
    for value in range(256):
        crc = value << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return table

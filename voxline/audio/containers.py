"""Audio containers by their bytes: which one a file is, and what decoders do not check: cut ends and damage.

libsndfile and ffmpeg decode what is there, mostly without an error. The lengths and checksums that a container itself
states show the rest. Nothing is decoded here, and nothing heavy is imported.
"""

import dataclasses
import enum
import mmap
import os
import re
import struct
import zlib
from pathlib import Path
from typing import IO, Literal, NamedTuple

from voxline.audio import wav
from voxline.rejects import BadAudioError, Reason


class Container(enum.Enum):
    """A container that needs more than libsndfile: its value is the name of ffmpeg's demuxer for it."""

    MP4 = "mov"
    MATROSKA = "matroska"
    ASF = "asf"
    ADTS = "aac"
    OGG = "ogg"
    MP3 = "mp3"
    WAV = "wav"
    OTHER = ""


_RAW_SUBTYPES = {
    "s16le": ("PCM_16", "LITTLE"),
    "s16be": ("PCM_16", "BIG"),
    "s24le": ("PCM_24", "LITTLE"),
    "s32le": ("PCM_32", "LITTLE"),
    "f32le": ("FLOAT", "LITTLE"),
    "s8": ("PCM_S8", "FILE"),
    "u8": ("PCM_U8", "FILE"),
    "mulaw": ("ULAW", "FILE"),
    "alaw": ("ALAW", "FILE"),
}
SAMPLE_FORMATS = tuple(_RAW_SUBTYPES)
"""ffmpeg's names of what samples without a header may be: signed, unsigned or float, bits, byte order."""

RAW_EXTENSIONS = (".raw", ".pcm")
"""Extensions of files that are samples without a header."""


CHANNEL_KEY = "channel"
"""Of a manifest's line: the channel of the recording that is the utterance, counted from 0."""
RAW_FORMAT_KEY = "raw_format"
"""Key of a manifest's line that holds a `RawFormat`, as ingest was configured."""


@dataclasses.dataclass(frozen=True)
class RawFormat:
    """The format of a headerless file's samples.

    Attributes:
      sample_rate: Hz.
      sample_format: one of SAMPLE_FORMATS.
    """

    sample_rate: int
    channels: int = 1
    sample_format: str = "s16le"

    def soundfile_options(self) -> dict[str, int | str]:
        """Returns the options with which soundfile opens such a file."""
        subtype, order = _RAW_SUBTYPES[self.sample_format]
        layout = {"samplerate": self.sample_rate, "channels": self.channels}
        return {**layout, "format": "RAW", "subtype": subtype, "endian": order}


def is_raw_name(path: Path | str) -> bool:
    """Returns whether a file's name says that it has no header."""
    return str(path).lower().endswith(RAW_EXTENSIONS)


def identify(start: bytes) -> Container:
    """The container of a file, from its first 64 bytes. OTHER is left to libsndfile, which knows many or refuses.

    >>> identify(b"\\x00\\x00\\x00\\x1cftypM4A \\x00\\x00\\x02\\x00")
    <Container.MP4: 'mov'>
    """
    # Magic numbers, most specific first; those of MPEG frames are only a few bits, so they come last.
    if start[4:8] == b"ftyp":
        return Container.MP4
    if start[:4] == b"\x1aE\xdf\xa3":
        return Container.MATROSKA
    if start[:8] == b"\x30\x26\xb2\x75\x8e\x66\xcf\x11":
        return Container.ASF
    if start[:4] == b"OggS":
        return Container.OGG
    if wav.is_wav(start):
        return Container.WAV
    if len(start) > 1 and start[0] == 0xFF and start[1] & 0xF6 == 0xF0:  # MP3 has its layer in these bits
        return Container.ADTS
    if start[:3] == b"ID3" or (len(start) >= 4 and _frame_header(start) is not None):
        return Container.MP3
    return Container.OTHER


def ffmpeg_must_decode(container: Container, start: bytes) -> bool:
    """Returns whether libsndfile cannot decode it."""
    if container is Container.OGG:
        return start[28:35] not in (b"\x01vorbis", b"OpusHea")  # FLAC or Speex in Ogg
    return container in (Container.MP4, Container.MATROSKA, Container.ASF, Container.ADTS)


def shares_one_decode(path: Path | str) -> bool:
    """Returns whether a file's segments share one decode, as its decoder must start at the beginning."""
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError:
        return False

    # An MP3 that does not state its length is decoded from its start.
    container = identify(start)
    if ffmpeg_must_decode(container, start):
        return True
    return container in (Container.MP3, Container.WAV) and count_mp3_frames(Path(path)) is not None


# MPEG audio (ISO 11172-3, 13818-3)

_BIT_RATES = {
    (1, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""kbit/s by (MPEG 1 or 2, layer)."""
_SAMPLE_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_RESYNC_BYTES = 1 << 16
_XING_TAGS = (b"Xing", b"Info")
_XING_BYTES = 40
"""From the start of a frame to the end of such a tag."""
_XING_SLACK = 0.02
"""Share by which a file may be longer than its Xing header says: the header's own frame, tags at the end."""


class MpegAudio(NamedTuple):
    """The frames of an MPEG audio stream.

    Attributes:
      samples: of one channel.
      frame_samples: of one frame.
    """

    samples: int
    sample_rate: int
    frame_samples: int


class _Frame(NamedTuple):
    size: int
    samples: int
    sample_rate: int
    side_info: int


def _frame_header(head: bytes, at: int = 0) -> _Frame | None:
    """The frame that a header of four bytes begins; None if it is none, or of free format."""
    if head[at] != 0xFF or head[at + 1] & 0xE0 != 0xE0:
        return None

    # The fields of ISO 11172-3 after the sync word: version and layer, then bit rate and sample rate.
    version = head[at + 1] >> 3 & 3
    layer = 4 - (head[at + 1] >> 1 & 3)
    rate = head[at + 2] >> 4
    scale = head[at + 2] >> 2 & 3

    # Reserved values, and free format, whose frames have no computable size.
    if version == 1 or layer == 4 or scale == 3 or rate in (0, 15):
        return None
    first = version == 3
    bits = 1000 * _BIT_RATES[1 if first else 2, layer][rate]
    sample_rate = _SAMPLE_RATES[version][scale]
    padding = head[at + 2] >> 1 & 1

    # Samples of a frame, and its bytes: layer I counts in slots of four bytes.
    samples = 384 if layer == 1 else 576 if layer == 3 and not first else 1152
    size = (12 * bits // sample_rate + padding) * 4 if layer == 1 else samples // 8 * bits // sample_rate + padding
    mono = head[at + 3] >> 6 == 3
    return _Frame(size, samples, sample_rate, (17 if mono else 32) if first else (9 if mono else 17))


def count_mp3_frames(path: Path | str) -> MpegAudio | None:
    """Counts the frames of an MP3, or of one in a WAV, that does not state its length.

    Without that statement (a Xing header) decoders estimate the length from the bit rate of the first frame.

    Returns:
      None: it states its length, or is something else.
    """
    with open(path, "rb") as file:
        at, end = _stream_range(file)
        first = _next_frame(file, at, end)
        if first is None:
            return None
        frames, stated_bytes = _read_xing(file, *first)
        if frames and stated_bytes and _ends_there(file, *first, stated_bytes, end):
            return None
        frame = first[1]
        total = _count_samples(file, *first, end)

    # A header of frames alone is true if no more of them follow; that there are fewer is for the decoder to tell.
    if frames and not stated_bytes and total <= frames * frame.samples:
        return None
    return MpegAudio(total, frame.sample_rate, frame.samples)


def _count_samples(file: IO[bytes], at: int, frame: _Frame, end: int) -> int:
    total = 0
    while at + 4 <= end:
        file.seek(at)
        head = file.read(_XING_BYTES)
        here = _frame_header(head)
        if here is None or here.sample_rate != frame.sample_rate:
            behind_tag = at + (_id3_bytes(head) or 1)  # of a second MP3 that was appended, maybe with a picture
            if (next_frame := _next_frame(file, behind_tag, end)) is None:
                break
            at, here = next_frame
            file.seek(at)
            head = file.read(_XING_BYTES)
        # The last frame counts only if all of it is there.
        if at + here.size > end:
            break  # cut in this frame
        if head[4 + here.side_info :][:4] not in _XING_TAGS:  # of a second MP3 that was appended
            total += here.samples
        at += here.size
    return total


def _stream_range(file: IO[bytes]) -> tuple[int, int]:
    """The byte range of the MPEG stream in an MP3 file or in a WAV; an empty one where there is none."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(64)

    # A tag in front of MP3 or FLAC.
    if start[:3] == b"ID3" and len(start) >= 10:
        at = _id3_bytes(start)
        file.seek(at)
        return (0, 0) if file.read(4) == b"fLaC" else (at, size)
    if not wav.is_wav(start):
        return (0, size) if identify(start) is Container.MP3 else (0, 0)

    # A WAV may hold MPEG audio: codec 0x50 is MPEG, 0x55 MP3. Chunks are walked up to `data`.
    codec = None
    file.seek(12)
    while len(chunk := file.read(8)) == 8:
        name, length = struct.unpack("<4sI", chunk)
        if name == b"data":
            at = file.tell()
            return (at, min(size, at + length)) if codec in (0x50, 0x55) else (0, 0)
        if name == b"fmt ":
            codec = int.from_bytes(file.read(2), "little")
            length -= 2
        file.seek(length + length % 2, os.SEEK_CUR)
    return 0, 0


def _id3_bytes(start: bytes) -> int:
    """The length of the ID3v2 tag that begins so; 0 if none does."""
    if start[:3] != b"ID3" or len(start) < 10:
        return 0

    # Four bytes of seven bits each: a tag must not look like a frame's sync word.
    return 10 + (start[6] << 21 | start[7] << 14 | start[8] << 7 | start[9])


def _next_frame(file: IO[bytes], start: int, end: int) -> tuple[int, _Frame] | None:
    """The next frame whose successor begins where it ends, or that ends with the stream."""
    # Within 64 KiB: what has no frame there is not MPEG audio.
    file.seek(start)
    data = file.read(max(0, min(_RESYNC_BYTES, end - start)))
    at = 0
    while 0 <= (at := data.find(b"\xff", at)) <= len(data) - 4:
        if frame := _frame_header(data, at):
            after = at + frame.size
            # One sync word may be chance; two frames that meet are not.
            if start + after == end or (after + 4 <= len(data) and _frame_header(data, after)):
                return start + at, frame
        at += 1
    return None


def _read_xing(file: IO[bytes], at: int, frame: _Frame) -> tuple[int, int]:
    """The number of frames and the bytes that a Xing header in the first frame states; 0 for what it does not."""
    file.seek(at + 4 + frame.side_info)
    tag = file.read(16)
    if tag[:4] not in _XING_TAGS or len(tag) < 16:
        return 0, 0

    # Bit 0: the number of frames is stated, and first. Bit 1: the size in bytes is.
    flags = int.from_bytes(tag[4:8])
    frames = int.from_bytes(tag[8:12]) if flags & 1 else 0
    return frames, int.from_bytes(tag[12:16]) if flags & 3 == 3 else 0


def _ends_there(file: IO[bytes], at: int, frame: _Frame, stated: int, end: int) -> bool:
    """Returns whether the bytes that a Xing header states fit the file.

    A file that grew, such as two MP3s joined, has a Xing header that is no longer true. Some encoders leave out its
    own frame; tags at the end are no frames.
    """
    if end - at > stated * (1 + _XING_SLACK) + _RESYNC_BYTES:
        return False
    behind = at + stated + 2 * frame.size
    return behind >= end or _next_frame(file, behind, end) is None


def _joined(at: int) -> BadAudioError:
    """The fault of a file that is several recordings in a row, of which decoders read the first."""
    return BadAudioError(
        Reason.UNREADABLE,
        f"another recording begins at byte {at:,}, where the first has ended, and would not be heard: take them apart "
        "there, decode each, and join the samples",
    )


_HEADS = (
    b".snd\0\0\0",
    b"dns.\x18\0\0\0",
    b"dns.\x20\0\0\0",
    b"caff\0\1\0\0desc",
    b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\0\0",  # Sony Wave64
    b"NIST_1A\n",
    b"Creative Voice File\x1a",
    b" paf\0\0\0\0",
    b"fap \0\0\0\0",
)
"""How files of containers begin whose decoders end at the first's stated length, or take a further header for sound."""


def check_stated_size(path: Path) -> None:
    """Compares the size that the header of a SPHERE, AIFF, AU, CAF or Wave64 file states with the file's.

    Raises:
      BadAudioError: the file is shorter: libsndfile would read up to the cut.
    """
    total = path.stat().st_size
    with open(path, "rb") as file:
        stated = _stated_size(file, file.read(1024), total)
    if stated > total + 1:  # programs forget the byte that makes a size even
        raise BadAudioError(Reason.TRUNCATED, f"the header says {stated:,} bytes, the file has {total:,}")


def _stated_size(file: IO[bytes], head: bytes, total: int) -> int:
    """The bytes of a whole file by its header; 0: not stated."""
    if head.startswith(b"NIST_1A"):
        fields = dict(re.findall(rb"^(\w+) -i (\d{1,12})\s*$", head.partition(b"end_head")[0], re.MULTILINE))
        size = re.match(rb"NIST_1A\n\s*(\d{1,6})\n", head)
        if not size or b"sample_count" not in fields or re.search(rb"sample_coding .*(?:embedded|shorten)", head):
            return 0
        counts = [int(fields.get(name, b"1")) for name in (b"channel_count", b"sample_n_bytes")]
        return int(size[1]) + int(fields[b"sample_count"]) * counts[0] * counts[1]
    if head[:4] in (b".snd", b"dns.") and len(head) >= 12:
        order: Literal["big", "little"] = "big" if head[:1] == b"." else "little"
        size_of_data = int.from_bytes(head[8:12], order)
        return 0 if size_of_data == 0xFFFFFFFF else int.from_bytes(head[4:8], order) + size_of_data
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return 8 + int.from_bytes(head[4:8])
    if head.startswith(b"riff\x2e\x91\xcf\x11") and len(head) >= 24:
        size_of_file = int.from_bytes(head[16:24], "little")
        return size_of_file if size_of_file < 1 << 62 else 0
    if head.startswith(b"caff"):
        # Chunks, each with a size of 64 bits; -1: the samples go on to the end.
        at = 8
        while at + 12 <= total:
            file.seek(at)
            chunk = file.read(12)
            size_of_chunk = int.from_bytes(chunk[4:], "big", signed=True)
            if size_of_chunk < 0:
                return 0
            at += 12 + size_of_chunk
            if chunk[:4] == b"data":
                return at
    return 0


def check_single(path: Path) -> None:
    """Checks that no second recording follows in an AU, CAF, Wave64, SPHERE, VOC or PAF file.

    Raises:
      BadAudioError: one does.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content[:32]
        head = next((head for head in _HEADS if start.startswith(head)), None)
        if head and (at := content.find(head, len(head))) > 0:
            raise _joined(at)


# Ogg (RFC 3533)

_MIRRORED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def check_ogg(path: Path) -> None:
    """Checks that the pages of an Ogg file are whole and all there, up to the page that is marked as the last.

    Raises:
      BadAudioError: it is cut, a page is missing, one differs from its checksum, or another recording follows.
    """
    sequence: dict[int, int] = {}
    open_streams: set[int] = set()

    at = 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while (head := file.read(27)) and head[:4] == b"OggS":
            table = file.read(head[26]) if len(head) == 27 else b""
            body = file.read(sum(table))
            if len(head) < 27 or len(table) < head[26] or len(body) < sum(table):
                raise BadAudioError(Reason.TRUNCATED, f"ends inside the Ogg page at byte {at:,}")
            # Header of a page: flags, 64-bit position (skipped), serial number, sequence number, checksum.
            flags, serial, number, stated = struct.unpack_from("<5xB8xIII", head)
            # The checksum is of the page with its own field set to zero.
            if _ogg_checksum(head[:22] + bytes(4) + head[26:] + table + body) != stated:
                raise BadAudioError(Reason.UNREADABLE, f"the Ogg page at byte {at:,} differs from its checksum")
            # Flag 2 begins a stream, flag 4 ends it. Several streams may be interleaved.
            if flags & 2:
                if sequence and not open_streams:
                    raise _joined(at)
                open_streams.add(serial)
            elif number != sequence.get(serial, number - 1) + 1:
                raise BadAudioError(
                    Reason.UNREADABLE, f"Ogg pages are missing before byte {at:,} (page {number:,} follows another)"
                )
            sequence[serial] = number
            if flags & 4:
                open_streams.discard(serial)
            at += len(head) + len(table) + len(body)

    # What follows the end of the last stream is somebody's tag; within a stream it is damage.
    if at < size and open_streams:
        raise BadAudioError(Reason.UNREADABLE, f"byte {at:,} should begin an Ogg page")
    if open_streams:
        raise BadAudioError(
            Reason.TRUNCATED, "the last Ogg page lacks its end mark: the end of the recording is missing"
        )


def _ogg_checksum(page: bytes) -> int:
    """Ogg's CRC-32 has zlib's polynomial, but begins with the highest bits and with zero."""
    # Mirrored twice: the bits of each byte before, all 32 bits after.
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)


# MP4, ASF, ADTS


def check_mp4(path: Path) -> None:
    """Checks that no box of an MP4 is truncated, where ffmpeg would silently read up to the cut, and no MP4 follows.

    Raises:
      BadAudioError: one is, or does.
    """
    total = path.stat().st_size
    at = 0
    with open(path, "rb") as file:
        while at < total:
            file.seek(at)
            head = file.read(16)
            size = int.from_bytes(head[:4])
            # Size 1: the real size has 64 bits and follows.
            if size == 1:
                size = int.from_bytes(head[8:16])
            if size == 0:  # the last box extends to the end
                return
            if len(head) < 8 or size < 8 or at + size > total:
                raise BadAudioError(
                    Reason.TRUNCATED, f"box {head[4:8]!r} says {size:,} bytes, the file has {total - at:,}"
                )
            if at and head[4:8] == b"ftyp":
                raise _joined(at)
            at += size


_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


def check_asf(path: Path) -> None:
    """Compares the file size that an ASF (WMA) states with the file's; one that was streamed states none.

    Raises:
      BadAudioError: the file is shorter, or another recording follows.
    """
    total = path.stat().st_size
    with open(path, "rb") as file:
        # The object is near the start; its place depends on the objects before it.
        at = (head := file.read(1 << 16)).find(_FILE_PROPERTIES)
    if at < 0 or len(head) < at + 92:
        return

    # The size is at byte 40 of the object, the flags at 88; bit 0 says that it was streamed.
    (stated,) = struct.unpack_from("<Q", head, at + 40)
    is_broadcast = head[at + 88] & 1
    if not is_broadcast and stated > total:
        raise BadAudioError(Reason.TRUNCATED, f"the header says {stated:,} bytes, the file has {total:,}")
    if not is_broadcast and 0 < stated < total:
        with open(path, "rb") as file:
            file.seek(stated)
            if file.read(16) == head[:16]:
                raise _joined(stated)


_TAGS_AT_END = (b"TAG", b"APETAGEX", b"LYRICSBEGIN")


def check_adts(path: Path) -> None:
    """Checks that the frames of an AAC file follow each other up to the end of the file.

    Raises:
      BadAudioError: the last frame is cut, or what follows a frame is none.
    """
    at = 0
    total = path.stat().st_size
    with open(path, "rb") as file:
        while at < total:
            file.seek(at)
            head = file.read(16)
            # ADTS: 13 bits of the frame's length, header included.
            size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5 if len(head) >= 7 else 7
            if head[0] != 0xFF or (head[1:2] and head[1] & 0xF6 != 0xF0) or size < 7:
                # Tags and padding at the end are no audio, and no damage.
                if head.startswith(_TAGS_AT_END) or _ends_in_zeros(file, at):
                    return
                raise BadAudioError(Reason.UNREADABLE, f"byte {at:,} of {total:,} should begin an AAC frame")
            if at + size > total:
                raise BadAudioError(
                    Reason.TRUNCATED, f"the AAC frame at byte {at:,} says {size:,} bytes, the file has {total - at:,}"
                )
            at += size


def _ends_in_zeros(file: IO[bytes], at: int) -> bool:
    file.seek(at)
    return all(not piece.strip(b"\0") for piece in iter(lambda: file.read(1 << 16), b""))


def parse_channel(value: object) -> int | None:
    """The channel that a value names, counted from 0; None if it names none, such as that of a broadcaster.

    >>> parse_channel(1), parse_channel(" 0"), parse_channel("B"), parse_channel("left"), parse_channel("news")
    (1, 0, 1, 0, None)
    >>> parse_channel(1.0), parse_channel("1.0")  # as a table has them where some lines name none
    (1, 1)
    >>> [parse_channel(name) for name in ("ch1", "Ch_0", "Left channel", "FR", "mic 2", "second", "near")]
    [1, 0, 0, 1, 2, 1, None]
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and value >= 0 else None
    if isinstance(value, str):
        name = _CHANNEL_WORDS.sub("", re.sub(r"[\s_.:#-]+", " ", value.strip().lower().removesuffix(".0"))).strip()
        return int(name) if name.isdecimal() and len(name) <= 2 else _CHANNEL_NAMES.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_CHANNEL_WORDS = re.compile(r"\b(?:channel|chan|chn|ch|track|side|mic|microphone|audio|front|the)(?:\b|(?=\d))")
_CHANNEL_NAMES = {
    **dict.fromkeys(("a", "left", "l", "fl", "first", "1st"), 0),
    **dict.fromkeys(("b", "right", "r", "fr", "second", "2nd"), 1),
}

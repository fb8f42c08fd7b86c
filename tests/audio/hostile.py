"""Recordings that were made to exhaust what decodes them, and what the processes that decode them take."""

import os
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import imageio_ffmpeg
import pytest

TABLE = ("moov", "trak", "mdia", "minf", "stbl")
"""The boxes of an MP4 around the table of its packets, from outside."""


def encode(path: Path, source: str, *options: str) -> Path:
    """Writes a recording of a source of ffmpeg's lavfi."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    subprocess.run([ffmpeg, "-v", "error", "-y", "-f", "lavfi", "-i", source, *options, str(path)], check=True)
    return path


def wide_flac(path: Path, seconds: float) -> Path:
    """Silence of 655,350 Hz and 8 channels: 22 kB a second of 5 million samples, 1.7 MB with a frame of 65,535."""
    return encode(path, "anullsrc=r=655350:cl=7.1", "-t", str(seconds), "-c:a", "flac", "-frame_size", "65535")


def greedy_m4a(path: Path, packets: int) -> Path:
    """An MP4 of some kilobytes whose table has so many packets, of a byte each: ffmpeg reserves 24 bytes for each."""
    data = bytearray(encode(path, "sine=440:duration=2", "-ac", "1", "-c:a", "aac").read_bytes())
    places = []
    start, end = 0, len(data)
    for name in TABLE:
        at, size = _find(data, name, start, end)
        places.append(at)
        start, end = at + 8, at + size
    described, described_size = _find(data, "stsd", start, end)
    audio, _ = _find(data, "mdat", 0, len(data))
    assert audio < places[0]  # so its place stays, whatever the table takes
    table = _box(
        "stbl",
        bytes(data[described : described + described_size])
        + _box("stts", struct.pack(">IIII", 0, 1, packets, 1024))
        + _box("stsc", struct.pack(">IIIII", 0, 1, 1, packets, 1))
        + _box("stsz", struct.pack(">III", 0, 1, packets))
        + _box("stco", struct.pack(">III", 0, 1, audio + 8)),
    )
    grown = len(table) - (end - start + 8)
    for at in places[:-1]:
        (size,) = struct.unpack_from(">I", data, at)
        struct.pack_into(">I", data, at, size + grown)
    path.write_bytes(bytes(data[: start - 8]) + table + bytes(data[end:]))
    return path


def slow_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each read of a decoder take hours."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'voxline.audio.decode_pool' in sys.orig_argv:\n"
        "    import soundfile, time\n"
        "    soundfile.SoundFile.read = lambda *_, **__: time.sleep(10_000)\n"
    )
    monkeypatch.syspath_prepend(str(folder))


def children(process: int | str = "self") -> list[int]:
    """The ids of a process's processes; of this one, the decoders alone, since other tests may have servers."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    started = []
    for file in files:
        # A thread may end between the listing and the reading.
        with suppress(FileNotFoundError, ProcessLookupError):
            started += [int(child) for child in file.read_text().split()]
    return [child for child in started if process != "self" or is_decoder(child)]


def is_decoder(process: int) -> bool:
    """Whether a process is a worker of a `DecodePool`, or ffmpeg."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"voxline.audio.decode_pool" in command or b"ffmpeg" in command


def resident(process: int) -> int:
    """Bytes of memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0


def _find(data: bytearray, name: str, start: int, end: int) -> tuple[int, int]:
    """Place and size of a box."""
    while start < end:
        size, kind = struct.unpack_from(">I4s", data, start)
        if kind == name.encode():
            return start, size
        start += size
    raise ValueError(name)


def _box(name: str, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body) + 8, name.encode()) + body

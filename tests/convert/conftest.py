"""A folder with one recording of every kind, good and bad, and the manifest of it."""

import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import soundfile

from voxline.data.manifest import Utterance, write_manifest
from voxline.store.hashing import hash_file

RATE = 16_000
STREAM_INFO = 8


def speech(seconds: float = 1.0, seed: int = 0) -> np.ndarray:
    """Noise, as loud and as hard to compress as speech."""
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * RATE)).clip(-1, 1)


def good_flac(path: Path, seed: int = 0) -> None:
    soundfile.write(path, speech(seed=seed), RATE, format="FLAC")


def _cut(path: Path, form: str) -> None:
    soundfile.write(path, speech(), RATE, format=form)
    path.write_bytes(path.read_bytes()[:-9_000])


def _wrong_md5(path: Path) -> None:
    good_flac(path)
    content = bytearray(path.read_bytes())
    content[STREAM_INFO + 20] ^= 0xFF
    path.write_bytes(content)


def _damaged(path: Path) -> None:
    good_flac(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :][:64] = bytes(64)
    content[len(content) // 2 : len(content) // 2 + 64] = bytes(64)
    path.write_bytes(content)


def _m4a(path: Path) -> None:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "sine=440:d=1"]
    subprocess.run([*command, "-f", "ipod", path], check=True)


def _unfinished_header(path: Path) -> None:
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    path.write_bytes(b"RIFF\0\0\0\0WAVEfmt " + form + b"data\0\0\0\0" + bytes(range(256)) * 20)


def _float_with_nan(path: Path) -> None:
    soundfile.write(path, np.append(speech(), np.nan), RATE, format="WAV", subtype="FLOAT")


RECORDINGS: dict[str, tuple[str | None, Callable[[Path], object]]] = {
    "good.flac": (None, good_flac),
    "good.wav": (None, lambda path: soundfile.write(path, speech(seed=1), RATE)),
    "good stereo 44k.wav": (None, lambda path: soundfile.write(path, speech(1).reshape(-1, 2), 44_100, format="WAV")),
    "gut-ä.ogg": (None, lambda path: soundfile.write(path, speech(seed=2), RATE)),
    "good.m4a": (None, _m4a),
    "noise.flac": ("unreadable", lambda path: path.write_bytes(np.random.default_rng(0).bytes(9_999))),
    "damaged.flac": ("unreadable", _damaged),
    "nan.wav": ("unreadable", _float_with_nan),
    "cut.flac": ("truncated", lambda path: _cut(path, "FLAC")),
    "cut.wav": ("truncated", lambda path: _cut(path, "WAV")),
    "crashed recorder.wav": ("truncated", _unfinished_header),
    "md5.flac": ("md5_mismatch", _wrong_md5),
    "no bytes.flac": ("empty_audio", lambda path: path.touch()),
    "no samples.wav": ("empty_audio", lambda path: soundfile.write(path, np.zeros(0), RATE)),
    "zeros.flac": ("silent", lambda path: soundfile.write(path, np.zeros(RATE), RATE)),
    "faint.wav": ("silent", lambda path: soundfile.write(path, 0.0005 * speech(seed=4), RATE)),
    "short.wav": ("too_short", lambda path: soundfile.write(path, speech(0.05), RATE)),
    "long.flac": ("too_long", lambda path: soundfile.write(path, speech(11), RATE)),
    "gone.flac": ("missing_file", lambda path: None),
}
"""The reason of each recording's reject; None: it is converted."""

TRANSCRIPTS = {
    "": "transcript_missing",
    " \n": "transcript_missing",
    "…?!": "transcript_empty",
    "naïve 7": "outside_alphabet",
}


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of RECORDINGS, not to be changed."""
    folder = tmp_path_factory.mktemp("every kind of recording")
    for name, (_, make) in RECORDINGS.items():
        make(folder / name)
    return folder


def utterance(path: Path, text: str = "Hello.", **more: object) -> Utterance:
    """An utterance as ingest writes it if the header has no duration."""
    values = {"id": path.name, "duration": 0.0, "audio_hash": hash_file(path) if path.is_file() else "", **more}
    return Utterance(audio_filepath=str(path), text=text, **values)  # type: ignore[arg-type]


def manifest_of(folder: Path, utterances: Iterable[Utterance]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder

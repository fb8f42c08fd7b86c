"""Recordings as people have them: each format whole, cut at several places and damaged, written with ffmpeg.

The oracle is ffmpeg itself: left to guess the format, it decodes the whole files once more.
"""

import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import soundfile

RATE = 16_000
SECONDS = 1.7

MP3 = ("-c:a", "libmp3lame")
STEREO = ("-ac", "2", "-ar", "44100")
FORMATS: dict[str, tuple[str, ...]] = {
    "pcm.wav": (),
    "flac.flac": (),
    "vorbis.ogg": ("-c:a", "libvorbis"),
    "opus.opus": ("-c:a", "libopus"),
    "flac.oga": ("-c:a", "flac"),
    "aac.m4a": (),
    "aac faststart.m4a": ("-movflags", "+faststart"),
    "aac fragmented.mp4": ("-movflags", "+frag_keyframe+empty_moov"),
    "aac stereo.m4a": STEREO,
    "alac.m4a": ("-c:a", "alac"),
    "aac.aac": (),
    "aac stereo.aac": STEREO,
    "aac at 24 kbit.aac": ("-ar", "48000", "-b:a", "24k"),
    "opus.webm": (),
    "opus live.webm": ("-live", "1", "-f", "webm"),
    "vorbis.webm": ("-c:a", "libvorbis"),
    "aac.mkv": ("-c:a", "aac"),
    "flac.mka": ("-c:a", "flac"),
    "wma 2.wma": (),
    "wma 1.wma": ("-c:a", "wmav1"),
    "cbr.mp3": MP3,
    "vbr.mp3": (*MP3, "-q:a", "4"),
    "cbr without xing.mp3": (*MP3, "-write_xing", "0", "-b:a", "64k"),
    "vbr without xing.mp3": (*MP3, "-write_xing", "0", "-q:a", "4"),
    "vbr without xing, tagged.mp3": (*MP3, "-write_xing", "0", "-q:a", "4", "-write_id3v1", "1"),
    "vbr stereo without xing.mp3": (*MP3, *STEREO, "-write_xing", "0", "-q:a", "2"),
    "cbr 8 kHz without xing.mp3": (*MP3, "-ar", "8000", "-write_xing", "0"),
    "cbr mp3 in.wav": (*MP3, "-f", "wav"),
    "vbr mp3 in.wav": (*MP3, "-q:a", "4", "-f", "wav"),
    "layer 2.mp2": ("-c:a", "mp2"),
}
"""The options of ffmpeg for each file."""

CUT_UNNOTICED = {name for name in FORMATS if "without xing" in name or name.endswith(".mp2")}
"""Streams of frames without an end: a cut one is a shorter one."""

DAMAGE_UNNOTICED = CUT_UNNOTICED | {
    name for name in FORMATS if name.endswith((".webm", ".wma", "mp3 in.wav")) or name == "pcm.wav"
}
"""Nothing in them says what the bytes should be."""


def write_zoo(folder: Path) -> None:
    """Writes every format, and its variants: `cut 50 …`, `cut 95 …`, `cut 1 …` (its last byte), `damaged …`."""
    soundfile.write(folder / "source.wav", speech(), RATE)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-i", folder / "source.wav"]
    for name, options in FORMATS.items():
        command += [*options, folder / name]
    subprocess.run(command, check=True)
    for name in FORMATS:
        content = (folder / name).read_bytes()
        for share in (50, 95):
            (folder / f"cut {share} {name}").write_bytes(content[: len(content) * share // 100])
        damaged, middle = bytearray(content), len(content) // 2
        damaged[middle : middle + 200] = bytes(200)
        (folder / f"damaged {name}").write_bytes(damaged)


def decode_with_the_oracle(folder: Path, out: Path) -> dict[str, np.ndarray]:
    """What ffmpeg makes of each whole file: int16 `[samples]`, mono at RATE."""
    out.mkdir()
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    for name in FORMATS:
        command += ["-i", folder / name]
    for number in range(len(FORMATS)):
        command += ["-map", f"{number}:a:0", "-ac", "1", "-ar", str(RATE), out / f"{number}.wav"]
    subprocess.run(command, check=True)
    return {name: soundfile.read(out / f"{number}.wav", dtype="int16")[0] for number, name in enumerate(FORMATS)}


def speech(seconds: float = SECONDS) -> np.ndarray:
    """Harmonics of a gliding voice below 3 kHz, in syllables: resamplers agree on it, and encoders work."""
    time = np.arange(round(seconds * RATE)) / RATE
    pitch = np.cumsum(140 + 40 * np.sin(2 * np.pi * 1.3 * time)) / RATE
    voice = sum(np.sin(2 * np.pi * number * pitch) / number for number in range(1, 16))
    return 0.25 * voice * np.abs(np.sin(2 * np.pi * 2.5 * time))

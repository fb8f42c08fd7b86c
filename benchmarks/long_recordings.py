"""What long recordings cost: memory of hours of silence, and segments cut from one decode against one decode each.

python -m benchmarks.long_recordings      # the figures of docs/decisions/0045 and docs/corpora.md
"""

import contextlib
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import soundfile

from voxline.audio.decoding import BadAudioError, Segment, decode_audio, decode_segments, load_audio
from voxline.audio.process_pool import map_in_processes

RATE = 16_000
HOURS = 2
LIMIT_SECONDS = 60.0
TALK_SECONDS = 1_110
SEGMENT_SECONDS = 5.0
PEAK = "benchmarks.long_recordings:peak_megabytes"
SEVERAL = 10
"""Segments that are decoded one by one; more would take minutes."""


def peak_megabytes(path: str) -> tuple[float, float]:
    """The most memory that a fresh process had which decodes a file, and the ffmpeg below it."""
    with contextlib.suppress(BadAudioError):  # it is too long
        load_audio(path, RATE, max_seconds=LIMIT_SECONDS)
    own = int(Path("/proc/self/status").read_text(encoding="ascii").partition("VmHWM:")[2].split()[0])
    return own / 1_024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_024


def memory(folder: Path) -> None:
    silence = ["-f", "lavfi", "-i", "anullsrc=r=48000:cl=stereo", "-t", str(3_600 * HOURS)]
    for name, codec in (("silence.m4a", ["-c:a", "aac", "-b:a", "2k"]), ("silence.mka", ["-c:a", "flac"])):
        _ffmpeg(*silence, *codec, folder / name)
        [(_, (own, decoder))] = map_in_processes(PEAK, [str(folder / name)], 1, 3_600)
        size = (folder / name).stat().st_size / 1e6
        samples = HOURS * 3_600 * 48_000 * 2 * 2 / 1e6
        print(f"{name}: {size:.1f} MB, {samples:,.0f} MB as samples; peak {own:.0f} MB, ffmpeg {decoder:.0f} MB")


def segments(folder: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, TALK_SECONDS * RATE).clip(-1, 1)
    soundfile.write(folder / "talk.wav", noise, RATE)
    _ffmpeg("-i", folder / "talk.wav", folder / "talk.m4a")
    wanted = [Segment(start, SEGMENT_SECONDS - 0.5) for start in np.arange(0, TALK_SECONDS - 5, SEGMENT_SECONDS)]
    talk = folder / "talk.m4a"
    whole = _seconds(lambda: decode_audio(talk))
    together = _seconds(lambda: list(decode_segments(talk, wanted, RATE)))
    alone = _seconds(lambda: [decode_audio(talk, *one) for one in wanted[:: len(wanted) // SEVERAL]])
    each = alone / len(wanted[:: len(wanted) // SEVERAL])
    print(
        f"talk.m4a of {TALK_SECONDS / 60:.1f} minutes: decoded in {whole:.1f} s; its {len(wanted)} segments from one "
        f"decode in {together:.1f} s, from one decode each in {each * len(wanted):,.0f} s"
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _ffmpeg(*arguments: str | Path) -> None:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *arguments], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        memory(Path(place))
        segments(Path(place))

"""FLAC to 16-bit mono WAV on one core: ours, against one ffmpeg process per file.

Ours does more: it checks the file's hash and the FLAC's MD5, and measures levels. The peer is the ffmpeg on the PATH,
as people run it, or else the wheel's static one, which starts much faster than a dynamically linked one; the row says
which.

  python -m benchmarks.conversion
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.table import Row, print_table
from voxline.components.convert.jobs import ConversionJob, Converted
from voxline.components.convert.recording import convert_recordings
from voxline.store.hashing import hash_file

SAMPLE_RATE = 16_000
FILES = 40
ROUNDS = 7
TARGETS = {"ffmpeg on PATH": 15, "static ffmpeg": 5}
"""The static one starts five times as fast."""
PEER_FILES = 6
"""Files per round; the peer is slow, so more would only take longer."""


def conversion() -> Row:
    """Measures both alternately on one core, so that a busy machine slows both equally."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        with tempfile.TemporaryDirectory() as folder:
            sources = _flacs(Path(folder))
            hashes = [hash_file(source) for source in sources]
            ours, peer = [], []
            for number in range(ROUNDS + 1):
                wavs = Path(folder) / str(number)
                wavs.mkdir()
                jobs = [
                    ConversionJob(str(source), digest, 0.0, None, wavs / f"{source.stem}.wav", SAMPLE_RATE, -60.0)
                    for source, digest in zip(sources, hashes, strict=True)
                ]
                ours.append(_seconds(_ours, jobs))
                peer.append(_seconds(_ffmpeg, jobs[:PEER_FILES]))
    finally:
        os.sched_setaffinity(0, cores)
    ratio = statistics.median(theirs / mine for mine, theirs in zip(ours[1:], peer[1:], strict=True))
    return Row.of(
        "conversion, one core, FLAC 16 kHz, x ffmpeg a file",
        f"{statistics.median(ours[1:]) * 1000:.2f} ms a file",
        f"{statistics.median(peer[1:]) * 1000:.0f} ms a file, {_program()[1]}",
        ratio,
        ">=",
        TARGETS[_program()[1]],
    )


def _flacs(folder: Path) -> list[Path]:
    """Noise of 2 to 10 s with a speech-like spectrum, syllables and pauses."""
    generator = np.random.default_rng(7)
    files = []
    for number in range(FILES):
        seconds = generator.uniform(2, 10)
        noise = np.fft.rfft(generator.standard_normal(int(seconds * SAMPLE_RATE)))
        hertz = np.fft.rfftfreq(int(seconds * SAMPLE_RATE), 1 / SAMPLE_RATE)
        colored = np.fft.irfft(noise / (1 + (hertz / 500) ** 2), int(seconds * SAMPLE_RATE))
        peaks = np.arange(0, seconds, 0.15)
        loudness = generator.uniform(0, 1, len(peaks)) ** 2
        syllables = np.interp(np.arange(len(colored)) / SAMPLE_RATE, peaks, loudness)
        samples = 0.5 * colored / np.abs(colored).max() * syllables + 1e-3 * generator.standard_normal(len(colored))
        files.append(folder / f"{number}.flac")
        soundfile.write(files[-1], samples, SAMPLE_RATE, subtype="PCM_16")
    return files


def _seconds(work: Callable[[list[ConversionJob]], None], jobs: list[ConversionJob]) -> float:
    """Seconds per file."""
    start = time.perf_counter()
    work(jobs)
    return (time.perf_counter() - start) / len(jobs)


def _ours(jobs: list[ConversionJob]) -> None:
    for job in jobs:
        [outcome] = convert_recordings((job,))
        if not isinstance(outcome, Converted):
            raise TypeError(f"{job.source}: {outcome}")


def _ffmpeg(jobs: list[ConversionJob]) -> None:
    program, _ = _program()
    for job in jobs:
        target = job.wav.with_suffix(".ffmpeg.wav")
        options = ["-ac", "1", "-ar", str(job.sample_rate), "-c:a", "pcm_s16le"]
        subprocess.run([program, "-nostdin", "-v", "error", "-y", "-i", job.source, *options, target], check=True)


def _program() -> tuple[str, str]:
    """The peer's path, and its version."""
    if on_path := shutil.which("ffmpeg"):
        return on_path, "ffmpeg on PATH"
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe(), "static ffmpeg"


def main() -> None:
    print_table([conversion()])


if __name__ == "__main__":
    main()

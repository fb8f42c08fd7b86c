"""The features of one clip, and a guard against clips that crash the process that computes them.

While a worker writes a shard, a small file notes the clip that it is working on. The file is removed when the shard is
written or fails with an error. A file that remains means that a worker died at that clip. The clip need not be the
cause: a person, the system or another thread may have killed the worker. So a clip at which several workers died is
tried in a process of its own, and becomes a reject only if that dies too.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import decode_audio, resample, to_mono
from voxline.audio.features import FloatArray, compute_features
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import Utterance, parse_utterance
from voxline.rejects import BadAudioError, Reason

MAX_FEATURE = 1e6
"""No feature of speech comes near it. A single infinity would spoil the statistics of the dataset."""

CRASHES_BEFORE_TRIAL = 2
"""Workers that die at a clip before it is tried alone."""

CLIP_BYTES = 32
"""Bytes of a note: the name of a clip in hexadecimal."""


def utterance_features(utterance: Utterance, speed: float, settings: ExtractSettings) -> FloatArray:
    """The features of an utterance at a speed, float32 `[frames, bins]`.

    Raises:
      BadAudioError: as `read_samples`, or the features are not finite.
    """
    samples = change_speed(read_samples(utterance, settings.features.sample_rate), speed)
    features = compute_features(samples, settings.features)

    # "Not less", as a comparison with NaN is false both ways.
    if not np.abs(features).max() < MAX_FEATURE:
        raise BadAudioError(Reason.BAD_FEATURES, "features that are not finite: samples far beyond [-1, 1]")
    return features


def read_samples(utterance: Utterance, sample_rate: int) -> npt.NDArray[np.float32]:
    """The samples of an utterance, float32 `[samples]` in [-1, 1].

    Raises:
      BadAudioError: as `decode_audio`, or the recording has another rate than `sample_rate`, or is not mono.
    """
    recording = decode_audio(utterance.audio_filepath, utterance.offset, utterance.duration)
    channels = recording.samples.shape[1]
    if recording.sample_rate != sample_rate or channels != 1:
        raise BadAudioError(
            Reason.WRONG_FORMAT,
            f"{recording.sample_rate} Hz and {channels} channel(s); {sample_rate} Hz (features.sample_rate) and 1 "
            "are expected, as convert writes them",
        )
    return resample(to_mono(recording.samples), sample_rate, sample_rate)


def change_speed(samples: npt.NDArray[np.float32], speed: float) -> npt.NDArray[np.float32]:
    """Plays a recording faster (above 1) or slower, which changes its pitch too; by soxr.

    >>> len(change_speed(np.zeros(16_000, np.float32), 1.25))
    12800
    """
    import soxr

    if speed == 1.0:
        return samples
    changed: npt.NDArray[np.float32] = soxr.resample(samples, speed, 1.0, quality="HQ")
    return changed


@contextlib.contextmanager
def note_clips(folder: Path, shard: str) -> Iterator[Callable[[str], None]]:
    """Notes the clips of a shard while they are worked on, in a folder that all workers share.

    Yields:
      A function to call with each clip's name before its work begins. It costs one write of 32 bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)

    # A name of its own for each worker: two may write the same shard, where a runner repeats a task.
    note = folder / f"{shard}.{secrets.token_hex(6)}"
    file = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    # Only a process that dies leaves its note: any exception of Python's comes through here.
    try:
        yield lambda clip: _write_note(file, clip)
    finally:
        os.ftruncate(file, 0)  # a note that cannot be removed then names no clip
        os.close(file)
        note.unlink(missing_ok=True)


def suspect_clips(folder: Path, shard: str) -> dict[str, int]:
    """The clips of a shard to try alone, and how many workers died at each."""
    crashes = _count_crashes(folder, f"{shard}.*")
    return {clip: times for clip, times in crashes.items() if times >= CRASHES_BEFORE_TRIAL}


def crashed_clips(folder: Path) -> dict[str, int]:
    """The clips at which earlier runs died, for work in a single process: there, each note means a crash."""
    return _count_crashes(folder, "*")


def crashes_worker(utterance: Utterance, speed: float, settings: ExtractSettings) -> bool:
    """Returns whether a process that only computes the features of this clip is killed."""
    # By standard input, which has no limit of length, unlike a command line.
    arguments = json.dumps({"utterance": utterance.as_line(), "speed": speed, "settings": settings.plain()})
    command = [sys.executable, "-m", "voxline.components.extract.clip_features"]
    # An exit status is no crash. A process that cannot start, for one, says nothing of the recording.
    return subprocess.run(command, input=arguments, text=True, check=False).returncode < 0  # noqa: S603


def _count_crashes(folder: Path, pattern: str) -> dict[str, int]:
    crashes: Counter[str] = Counter()
    for note in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # its worker is alive, and has just finished
            crashes[note.read_text()] += 1

    # An empty note is one that could not be removed.
    return {clip: times for clip, times in crashes.items() if clip}


def _write_note(file: int, clip: str) -> None:
    os.pwrite(file, clip.encode().ljust(CLIP_BYTES)[:CLIP_BYTES], 0)


def _compute_alone() -> None:
    arguments = json.load(sys.stdin)
    utterance = parse_utterance(json.dumps(arguments["utterance"]), "stdin", str(Path.cwd()))
    with contextlib.suppress(BadAudioError):
        utterance_features(utterance, arguments["speed"], ExtractSettings.of(arguments["settings"]))


if __name__ == "__main__":
    _compute_alone()

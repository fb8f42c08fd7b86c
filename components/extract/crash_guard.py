"""Which clip a worker was at when it died: one that ends each worker becomes a reject, not a loop.

While a shard is written, a small file names the clip that is being worked on; it goes away when the shard is written or
fails in an orderly way. A file that is still there tells of a worker that died, and at which clip. That clip need not
be why: the worker may have been killed from outside, or by what a thread beside it did. So a clip at which several died
is tried in a process of its own first.
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

from voxline.components.extract.features import utterance_features
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import Utterance, parse_utterance
from voxline.rejects import BadAudioError

CRASHES_BEFORE_TRIAL = 2
"""As many workers die at a clip before it is tried alone."""

CLIP_BYTES = 32


@contextlib.contextmanager
def note_clips(folder: Path, shard: str) -> Iterator[Callable[[str], None]]:
    """Notes an attempt at a shard, in a folder that all workers share.

    Yields:
      What is to be told of each clip before it is touched: one write of 32 bytes, no file of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{shard}.{secrets.token_hex(6)}"
    file = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        yield lambda clip: _write_note(file, clip)
    finally:
        os.ftruncate(file, 0)  # one that cannot be removed names no clip
        os.close(file)
        note.unlink(missing_ok=True)


def suspect_clips(folder: Path, shard: str) -> dict[str, int]:
    """The clips of a shard at which so many workers died that they had better be tried alone, and how many did."""
    return {
        clip: times for clip, times in _count_crashes(folder, f"{shard}.*").items() if times >= CRASHES_BEFORE_TRIAL
    }


def crashed_clips(folder: Path) -> dict[str, int]:
    """The clips at which this work ended before, where one process does all of it: each note tells of a death."""
    return _count_crashes(folder, "*")


def crashes_worker(utterance: Utterance, speed: float, settings: ExtractSettings) -> bool:
    """Whether a process that does nothing but make the features of a clip dies by it."""
    asked = json.dumps({"utterance": utterance.as_line(), "speed": speed, "settings": settings.plain()})
    command = [sys.executable, "-m", "voxline.components.extract.crash_guard"]
    # A status of its own is no death: if it cannot start, say, that says nothing about the recording.
    return subprocess.run(command, input=asked, text=True, check=False).returncode < 0  # noqa: S603


def _count_crashes(folder: Path, pattern: str) -> dict[str, int]:
    deaths: Counter[str] = Counter()
    for note in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # its worker lives, and has just finished
            deaths[note.read_text()] += 1
    return {clip: times for clip, times in deaths.items() if clip}


def _write_note(file: int, clip: str) -> None:
    os.pwrite(file, clip.encode().ljust(CLIP_BYTES)[:CLIP_BYTES], 0)


def _compute_alone() -> None:
    asked = json.load(sys.stdin)
    utterance = parse_utterance(json.dumps(asked["utterance"]), "stdin", str(Path.cwd()))
    with contextlib.suppress(BadAudioError):
        utterance_features(utterance, asked["speed"], ExtractSettings.of(asked["settings"]))


if __name__ == "__main__":
    _compute_alone()

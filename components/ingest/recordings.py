"""What each audio file is named by, and how long it says it is; many files at once."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from components.speech.progress import Progress
from components.speech.storage import hash_file

_BATCH = 32
"""Files that a thread takes at a time: handing over each by itself would cost as much as hashing it."""
_LONGEST_SECONDS = 7 * 24 * 3600.0
"""A header that claims more is one that a stream left open, not a recording of more than a week."""


class Recording(NamedTuple):
    """An audio file, by its bytes.

    Attributes:
      hash: of the whole file; empty where it could not be read.
      seconds: by its header; 0.0 where the header cannot be read here (convert says why, or decodes it).
      fault: what the system said when the file could not be read.
    """

    hash: str
    seconds: float
    fault: str = ""


def measure(root: Path, paths: Collection[str], progress: Progress | None = None) -> dict[str, Recording]:
    """Hashes files and reads their headers, in threads: both wait for the disk or run outside Python's lock.

    Args:
      progress: is advanced; it may be of more files than these.
    """
    from concurrent.futures import ThreadPoolExecutor  # not at the top: mostly nothing has to be measured

    progress = progress or Progress("recordings", total=len(paths))
    ordered = list(paths)
    batches = [ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH)]
    measured: dict[str, Recording] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        for batch in threads.map(lambda batch: {path: _measure(root / path) for path in batch}, batches):
            measured |= batch
            progress.advance(len(batch))
    return measured


def _measure(path: Path) -> Recording:
    try:
        return Recording(hash_file(path), _seconds(path))
    except OSError as error:
        return Recording("", 0.0, fault=error.strerror or str(error))


def _seconds(path: Path) -> float:
    import soundfile  # not at the top: it brings numpy, which nothing else here needs

    try:
        with soundfile.SoundFile(str(path)) as file:
            frames, rate = file.frames, file.samplerate
    except (RuntimeError, TypeError):  # libsndfile's own errors are RuntimeErrors; TypeError: headerless .raw
        return 0.0
    seconds = frames / rate if rate > 0 else 0.0
    return seconds if 0 < seconds <= _LONGEST_SECONDS else 0.0

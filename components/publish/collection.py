"""Collection: shards that nothing leads to any more are taken away, some days after the last one who did.

A shard stays as long as
- a published version lists it, of whatever dataset;
- an extracted dataset in the store lists it that was made or used within the days of grace;
- it is younger than that itself;
- a process has it open for training.
Whoever extracts or publishes holds the pool meanwhile, and nothing is collected then; in a bucket whoever does anything
in the store, to train too. An extracted dataset whose shards were taken away is made again when it is wanted.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from components.publish.versions import Versions, names
from components.speech.buckets import is_remote
from components.speech.buckets.sharing import UNENDED
from components.speech.dataset import DATASET, Dataset
from components.speech.errors import WorkError
from components.speech.progress import say
from components.speech.shards import POOL, SHARD, pool_held

LEFTOVER_SECONDS = 86_400.0
"""What a killed process left half written may go after a day."""


@dataclasses.dataclass(frozen=True)
class Collected:
    """What was taken away, or would be.

    Attributes:
      shards, bytes: of them.
      in_use: shards that nothing lists, and that a process reads.
    """

    shards: int
    bytes: int
    in_use: int


def collect(store: Path | str, datasets: Iterable[Path | str], *, grace_days: float, look_only: bool) -> Collected:
    """Takes away what nothing leads to.

    Args:
      store: whose shards.
      datasets: all folders to which datasets of this store were published. One that is forgotten here loses its shards.
      look_only: takes nothing away.

    Raises:
      WorkError: a process adds to the store, in a bucket: works there at all; a purge of it did not end; or a version
        cannot be read, so that nobody knows what it needs.
    """
    if is_remote(store):
        from components.publish.collection_in_bucket import collect_in_bucket

        grace_time = datetime.timedelta(days=grace_days)
        return Collected(*collect_in_bucket(str(store), datasets, grace=grace_time, look_only=look_only), 0)
    store = Path(store).absolute()
    if any(store.glob(f"{UNENDED}*.json")):
        raise WorkError(f"{store}: a purge was begun here and did not end; end it first, by the same command")
    grace = grace_days * 86_400
    shards, size, in_use = 0, 0, 0
    for pool in sorted(path for path in (store / POOL).glob("*") if path.is_dir()):
        with pool_held(pool, alone=True):
            wanted = _wanted(store, datasets, grace)
            for folder in sorted(pool.iterdir()):
                if folder.name.startswith("."):
                    _clear(folder, look_only)
                elif folder.is_dir() and folder not in wanted and _older(folder / SHARD, grace):
                    weight = sum(file.stat().st_size for file in folder.iterdir())
                    if not _take_away(folder, look_only):
                        in_use += 1
                        continue
                    shards, size = shards + 1, size + weight
    return Collected(shards, size, in_use)


def _wanted(store: Path, datasets: Iterable[Path | str], grace: float) -> set[Path]:
    """The folders of the shards that something leads to."""
    found: set[Path] = set()
    for root in datasets:
        for name in names(root):
            versions = Versions(root, name)
            for number in versions.numbers():
                found |= _shards(versions.path(number))
    for file in (store / "extract").glob(f"*/{DATASET}"):
        if not _older(file, grace):
            found |= _shards(file.parent)
    return found


def _shards(folder: Path) -> set[Path]:
    dataset = Dataset.listed(folder)
    return {file.parent for file in dataset.files()}


def _older(file: Path, seconds: float) -> bool:
    """Whether a file is that old; one from the future is not: a clock was set back."""
    try:
        return time.time() - file.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def _take_away(folder: Path, look_only: bool) -> bool:
    """Removes a shard at once for everybody who looks; False where somebody has it open."""
    with contextlib.ExitStack() as held:
        for file in folder.glob("*.tfrecord"):
            records = held.enter_context(open(file, "rb"))
            try:
                fcntl.flock(records, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"datasets: {folder.name} is left: a process reads it")
                return False
        if not look_only:
            gone = folder.rename(folder.with_name(f".gone-{folder.name}-{secrets.token_hex(4)}"))
            shutil.rmtree(gone)
    return True


def _clear(folder: Path, look_only: bool) -> None:
    if folder.is_dir() and not look_only and _older(folder, LEFTOVER_SECONDS):
        shutil.rmtree(folder, ignore_errors=True)

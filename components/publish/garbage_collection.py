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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from voxline.components.publish.versions import DatasetVersions, list_datasets
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER, lock_shards
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import BucketCache, private_cache, uri_of
from voxline.store.bucket_locks import UNFINISHED_PURGE, exclusive_store_lock
from voxline.store.bucket_step import LAST_USE_FILE
from voxline.store.files import DONE
from voxline.store.objects import ObjectInfo, ObjectStore, is_remote, open_store

LEFTOVER_SECONDS = 86_400.0
"""What a killed process left half written may go after a day."""


@dataclasses.dataclass(frozen=True)
class GarbageCollected:
    """What was taken away, or would be.

    Attributes:
      shards, bytes: of them.
      in_use: shards that nothing lists, and that a process reads.
    """

    shards: int
    bytes: int
    in_use: int


def collect_garbage(
    store: Path | str, datasets: Iterable[Path | str], *, grace_days: float, look_only: bool
) -> GarbageCollected:
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
        grace_time = datetime.timedelta(days=grace_days)
        return GarbageCollected(*collect_in_bucket(str(store), datasets, grace=grace_time, look_only=look_only), 0)
    store = Path(store).absolute()
    if any(store.glob(f"{UNFINISHED_PURGE}*.json")):
        raise WorkError(f"{store}: a purge was begun here and did not end; end it first, by the same command")
    grace = grace_days * 86_400
    shards, size, in_use = 0, 0, 0
    for pool in sorted(path for path in (store / SHARDS_FOLDER).glob("*") if path.is_dir()):
        with lock_shards(pool, alone=True):
            wanted = _wanted(store, datasets, grace)
            for folder in sorted(pool.iterdir()):
                if folder.name.startswith("."):
                    _clear(folder, look_only)
                elif folder.is_dir() and folder not in wanted and _older(folder / SHARD_FILE, grace):
                    weight = sum(file.stat().st_size for file in folder.iterdir())
                    if not _take_away(folder, look_only):
                        in_use += 1
                        continue
                    shards, size = shards + 1, size + weight
    return GarbageCollected(shards, size, in_use)


def _wanted(store: Path, datasets: Iterable[Path | str], grace: float) -> set[Path]:
    """The folders of the shards that something leads to."""
    found: set[Path] = set()
    for root in datasets:
        for name in list_datasets(root):
            versions = DatasetVersions(root, name)
            for number in versions.numbers():
                found |= _shards(versions.path(number))
    for file in (store / "extract").glob(f"*/{DATASET_FILE}"):
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
                print_status(f"datasets: {folder.name} is left: a process reads it")
                return False
        if not look_only:
            gone = folder.rename(folder.with_name(f".gone-{folder.name}-{secrets.token_hex(4)}"))
            shutil.rmtree(gone)
    return True


def _clear(folder: Path, look_only: bool) -> None:
    if folder.is_dir() and not look_only and _older(folder, LEFTOVER_SECONDS):
        shutil.rmtree(folder, ignore_errors=True)


LEFTOVER = datetime.timedelta(days=1)
"""What a killed process has half sent may go after that."""


def collect_in_bucket(
    store: str, datasets: Iterable[Path | str], *, grace: datetime.timedelta, look_only: bool
) -> tuple[int, int]:
    """Takes away what nothing leads to.

    Returns:
      How many shards, and their bytes.

    Raises:
      WorkError: a process works in the store; a purge of it did not end; or a version cannot be read.
    """
    store = store.rstrip("/")
    with private_cache():
        if look_only:
            return _collected(store, datasets, grace, datetime.datetime.now(datetime.UTC), lambda entries: None)
        with exclusive_store_lock(store) as lease:

            def delete(entries: list[ObjectInfo]) -> None:
                lease.check()
                _delete(open_store(store), entries)

            return _collected(store, datasets, grace, lease.info.updated, delete)


def _collected(
    store: str,
    datasets: Iterable[Path | str],
    grace: datetime.timedelta,
    now: datetime.datetime,
    delete: Callable[[list[ObjectInfo]], None],
) -> tuple[int, int]:
    bucket = open_store(store)
    if any(bucket.list(UNFINISHED_PURGE)):
        raise WorkError(f"{store}: a purge was begun here and did not end; end it first, by the same command")
    folders: dict[str, list[ObjectInfo]] = {}
    for entry in bucket.list(f"{SHARDS_FOLDER}/"):
        folders.setdefault(entry.name.rpartition("/")[0], []).append(entry)
    made = _made(store)
    of_late = [folder for folder, one in made.items() if now - one.used <= grace]
    wanted = {
        address for folder in (*_published(datasets), *of_late) for address in _collection_in_bucket_shards(folder)
    }
    gone: dict[str, list[ObjectInfo]] = {}
    for folder, entries in sorted(folders.items()):
        index = [entry for entry in entries if entry.name == f"{folder}/{SHARD_FILE}"]
        if not index and now - max(entry.updated for entry in entries) > LEFTOVER:
            delete(entries)
        elif index and bucket.uri_of(folder) not in wanted and now - index[0].updated > grace:
            gone[bucket.uri_of(folder)] = index + [entry for entry in entries if entry not in index]
    # What leads there is made again when it is wanted: nobody would look whether its shards are there.
    delete(
        [
            one.done
            for folder, one in made.items()
            if one.done and not gone.keys().isdisjoint(_collection_in_bucket_shards(folder))
        ]
    )
    for entries in gone.values():
        delete(entries)
    return len(gone), sum(entry.size for entries in gone.values() for entry in entries)


@dataclasses.dataclass
class _Made:
    """An extracted dataset: when it was made or wanted last, and its marker, where it is the one that counts."""

    used: datetime.datetime
    done: ObjectInfo | None


def _published(datasets: Iterable[Path | str]) -> Iterator[Path]:
    for root in datasets:
        for name in list_datasets(root):
            versions = DatasetVersions(root, name)
            yield from map(versions.path, versions.numbers())


def _made(store: str) -> dict[Path, _Made]:
    """The extracted datasets, by the folder of their copies here."""
    mirror = BucketCache(store)
    works: dict[str, list[ObjectInfo]] = {}
    for entry in mirror.store.list("extract/"):
        if PurePosixPath(entry.name).name in (DATASET_FILE, DONE, LAST_USE_FILE):
            works.setdefault("/".join(entry.name.split("/")[:2]), []).append(entry)
    found = {}
    for work, entries in works.items():
        done = next((entry for entry in entries if entry.name == f"{work}/{DONE}"), None)
        made = [entry for entry in entries if PurePosixPath(entry.name).name == DATASET_FILE]
        mirror.download(made)
        for entry in made:
            found[(mirror.root / entry.name).parent] = _Made(max(one.updated for one in entries), done)
    return found


def _collection_in_bucket_shards(folder: Path) -> set[str]:
    return {uri_of(file.parent) for file in Dataset.listed(folder).files()}


def _delete(bucket: ObjectStore, entries: list[ObjectInfo]) -> None:
    for entry in entries:
        bucket.delete_if_unchanged(entry)

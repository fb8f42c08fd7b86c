"""Collection from a store in a bucket: what goes is decided as in a folder, while nobody else works in the store.

Ages are told by the storage's clock. What says which shards are wanted is brought anew: a copy that this machine has
may be older than the last purge. A shard's index goes first, and without one it is no shard.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from components.publish.versions import Versions, names
from components.speech.buckets import Bucket, Entry
from components.speech.buckets.sharing import UNENDED, alone
from components.speech.dataset import DATASET, Dataset
from components.speech.errors import WorkError
from components.speech.mirror import DONE, Mirror, address_of, mirror_apart
from components.speech.remote_work import USED
from components.speech.shards import POOL, SHARD

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
    with mirror_apart():
        if look_only:
            return _collected(store, datasets, grace, datetime.datetime.now(datetime.UTC), lambda entries: None)
        with alone(store) as lease:

            def delete(entries: list[Entry]) -> None:
                lease.check()
                _delete(Bucket(store), entries)

            return _collected(store, datasets, grace, lease.entry.updated, delete)


def _collected(
    store: str,
    datasets: Iterable[Path | str],
    grace: datetime.timedelta,
    now: datetime.datetime,
    delete: Callable[[list[Entry]], None],
) -> tuple[int, int]:
    bucket = Bucket(store)
    if any(bucket.list(UNENDED)):
        raise WorkError(f"{store}: a purge was begun here and did not end; end it first, by the same command")
    folders: dict[str, list[Entry]] = {}
    for entry in bucket.list(f"{POOL}/"):
        folders.setdefault(entry.name.rpartition("/")[0], []).append(entry)
    made = _made(store)
    of_late = [folder for folder, one in made.items() if now - one.used <= grace]
    wanted = {address for folder in (*_published(datasets), *of_late) for address in _shards(folder)}
    gone: dict[str, list[Entry]] = {}
    for folder, entries in sorted(folders.items()):
        index = [entry for entry in entries if entry.name == f"{folder}/{SHARD}"]
        if not index and now - max(entry.updated for entry in entries) > LEFTOVER:
            delete(entries)
        elif index and bucket.place(folder) not in wanted and now - index[0].updated > grace:
            gone[bucket.place(folder)] = index + [entry for entry in entries if entry not in index]
    # What leads there is made again when it is wanted: nobody would look whether its shards are there.
    delete([one.done for folder, one in made.items() if one.done and not gone.keys().isdisjoint(_shards(folder))])
    for entries in gone.values():
        delete(entries)
    return len(gone), sum(entry.size for entries in gone.values() for entry in entries)


@dataclasses.dataclass
class _Made:
    """An extracted dataset: when it was made or wanted last, and its marker, where it is the one that counts."""

    used: datetime.datetime
    done: Entry | None


def _published(datasets: Iterable[Path | str]) -> Iterator[Path]:
    for root in datasets:
        for name in names(root):
            versions = Versions(root, name)
            yield from map(versions.path, versions.numbers())


def _made(store: str) -> dict[Path, _Made]:
    """The extracted datasets, by the folder of their copies here."""
    mirror = Mirror.of(store)
    works: dict[str, list[Entry]] = {}
    for entry in mirror.bucket.list("extract/"):
        if PurePosixPath(entry.name).name in (DATASET, DONE, USED):
            works.setdefault("/".join(entry.name.split("/")[:2]), []).append(entry)
    found = {}
    for work, entries in works.items():
        done = next((entry for entry in entries if entry.name == f"{work}/{DONE}"), None)
        made = [entry for entry in entries if PurePosixPath(entry.name).name == DATASET]
        mirror.pull(made)
        for entry in made:
            found[(mirror.root / entry.name).parent] = _Made(max(one.updated for one in entries), done)
    return found


def _shards(folder: Path) -> set[str]:
    return {address_of(file.parent) for file in Dataset.listed(folder).files()}


def _delete(bucket: Bucket, entries: list[Entry]) -> None:
    for entry in entries:
        bucket.remove(entry.name, entry.generation)

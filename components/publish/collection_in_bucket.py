"""Collection from a store in a bucket: what goes is decided as in a folder, while nobody else works in the store.

Ages are told by the storage's clock. What says which shards are wanted is brought anew: a copy that this machine has
may be older than the last purge. A shard's index goes first, and without one it is no shard.
"""

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path

from components.publish.versions import Versions, names
from components.speech.buckets import Bucket, Changed, Entry
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
    wanted = {address for folder in _led_by(store, datasets, grace, now) for address in _shards(folder)}
    shards, size = 0, 0
    for folder, entries in sorted(folders.items()):
        index = [entry for entry in entries if entry.name == f"{folder}/{SHARD}"]
        if not index and now - max(entry.updated for entry in entries) > LEFTOVER:
            delete(entries)
        elif index and bucket.place(folder) not in wanted and now - index[0].updated > grace:
            delete(index + [entry for entry in entries if entry not in index])
            shards, size = shards + 1, size + sum(entry.size for entry in entries)
    return shards, size


def _led_by(
    store: str, datasets: Iterable[Path | str], grace: datetime.timedelta, now: datetime.datetime
) -> Iterable[Path]:
    """The folders of the datasets whose shards stay: all versions, and what was made or used of late."""
    for root in datasets:
        for name in names(root):
            versions = Versions(root, name)
            for number in versions.numbers():
                yield versions.path(number)
    mirror = Mirror.of(store)
    made, used = [], dict[str, datetime.datetime]()
    for entry in mirror.bucket.list("extract/"):
        work, _, file = entry.name.removeprefix("extract/").partition("/")
        if file.rpartition("/")[2] in (DATASET, DONE, USED):
            used[work] = max(entry.updated, used.get(work, entry.updated))
        if file.rpartition("/")[2] == DATASET:
            made.append((work, entry))
    wanted = [entry for work, entry in made if now - used[work] <= grace]
    mirror.pull(wanted)
    yield from ((mirror.root / entry.name).parent for entry in wanted)


def _shards(folder: Path) -> set[str]:
    return {address_of(file.parent) for file in Dataset.listed(folder).files()}


def _delete(bucket: Bucket, entries: list[Entry]) -> None:
    for entry in entries:
        try:
            bucket.delete(entry.name, if_generation=entry.generation)
        except Changed:
            if bucket.stat(entry.name) is not None:  # else it is the answer that was lost
                raise

"""Garbage collection of a whole store: what no dataset version, model or run needs, and nobody used for some time.

The markers of step outputs go first, so a process that is killed leaves nothing that a run could mistake for a result.
Then shards, WAVs and unpacked corpora go, and their manifests and rows last: a purge finds by these whose the rest is.
The same command completes the work.
"""

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from voxline.data.shards import SHARDS_FOLDER, lock_all_shards
from voxline.errors import SettingsError
from voxline.operations.shard_gc import lock_records
from voxline.operations.store_contents import StoredItem, StoreUsers, refuse_missing_datasets, survey_store
from voxline.progress import Progress
from voxline.store.file_locks import open_lock_file, try_lock
from voxline.store.layout import CORPORA, UNPACKED, WAVS
from voxline.store.objects import ObjectStore, open_store
from voxline.store.store_locks import check_no_purge, sole_access
from voxline.store.uris import is_remote

LEAST_BUCKET_AGE = datetime.timedelta(days=1)
"""In a bucket nothing tells that a run is between two of its steps, so what it used lately stays."""

_LISTED_KINDS = (SHARDS_FOLDER, UNPACKED, CORPORA)
"""Folders that manifests or rows of step outputs list."""


@dataclasses.dataclass(frozen=True)
class CollectedStore:
    """The items that were deleted, or would be.

    Attributes:
      items: all that nothing needs.
      in_use: those of them that stay, because a process of this machine works on them or reads them.
    """

    items: list[StoredItem]
    in_use: list[StoredItem]


def collect_store(
    store: Path | str, users: StoreUsers, *, older_than: datetime.timedelta, dry_run: bool
) -> CollectedStore:
    """Deletes what nothing needs and what was neither written nor used within a time.

    Args:
      users: all that may need something. The outputs of a run that is not among them go when they are old enough.
      dry_run: deletes nothing.

    Raises:
      SettingsError: a location is not what it should be, or the time is too short for a bucket.
      WorkError: a process works in the store; a purge of it is unfinished; or what may need something cannot be read.
    """
    if is_remote(store) and older_than < LEAST_BUCKET_AGE:
        raise SettingsError(
            f"{store}: in a bucket, only what was not used for a day or longer is deleted: a run on a cluster may be "
            "between two steps; give --older-than 1d or more"
        )

    objects = open_store(store)
    with contextlib.ExitStack() as stack:
        # The storage's clock, by which the ages of its files are measured.
        at, check_lock = stack.enter_context(sole_access(store, to_change=not dry_run))
        check_no_purge(objects)
        items = survey_store(store, users, now=at, recent=older_than)
        refuse_missing_datasets(users, items)
        unneeded = [item for item in items if not item.need]

        in_use: list[StoredItem] = []
        if not dry_run:
            stack.enter_context(lock_all_shards(store))
            in_use = _delete(objects, unneeded, check_lock)
    return CollectedStore(unneeded, in_use)


def _delete(objects: ObjectStore, items: Sequence[StoredItem], check_lock: Callable[[], None]) -> list[StoredItem]:
    """Deletes items, and returns those that stay because a process of this machine uses them."""
    in_use = []
    progress = Progress("items deleted", total=len(items))

    # First the markers: from here on no run takes these outputs for results.
    folders = [item for item in items if item.is_folder]
    for item in folders:
        if item.marker and item.kind not in _LISTED_KINDS:
            check_lock()
            with _lock_item(objects, item) as free:
                if free:
                    # Only the marker that was listed: one that was written since belongs to a run.
                    objects.delete(item.marker.name, if_version=item.marker.version)
                else:
                    in_use.append(item)

    # WAVs last among the files, after the logs that name them.
    files = sorted((item for item in items if not item.is_folder), key=lambda item: item.kind == WAVS)
    # In batches, with a look at the lock before each.
    for start in range(0, len(files), 1_000):
        check_lock()
        objects.map(objects.delete, [item.name for item in files[start : start + 1_000]])
        progress.advance(len(files[start : start + 1_000]))

    # Outputs that list others go last, since a purge finds by them whose the rest is.
    for item in sorted(folders, key=lambda item: item.kind not in _LISTED_KINDS):
        check_lock()
        with _lock_item(objects, item) as free:
            if free and item not in in_use:
                marker = (item.marker.name.rpartition("/")[2],) if item.marker else ()
                # The rest of an item whose marker could not be locked stays too.
                objects.delete_folder(item.name, first=marker)
            elif item not in in_use:
                in_use.append(item)
        progress.advance()
    return in_use


@contextlib.contextmanager
def _lock_item(objects: ObjectStore, item: StoredItem) -> Iterator[bool]:
    """Locks a folder against processes of this machine; yields False if one has it."""
    folder = objects.local_path(item.name)

    # A bucket has no locks of processes; readers of shards lock the records.
    if objects.is_remote or item.kind == SHARDS_FOLDER:
        with lock_records(folder) as free:
            yield free
        return

    lock = open_lock_file(folder.with_name(f"{folder.name}.lock"))
    try:
        yield try_lock(lock)
    finally:
        os.close(lock)

"""Garbage collection: deletes shards that no dataset has referenced for some days of grace.

A shard stays as long as
- a published version of any dataset lists it;
- an extracted dataset in the store lists it that was written or used within the days of grace;
- it is younger than that itself;
- a process of this machine has it open for training.
Extract and publish lock the shards while they work, and in a bucket every step does, so nothing is deleted meanwhile.
An extracted dataset whose shards were deleted is extracted again when a run needs it.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER, lock_all_shards, name_in_store
from voxline.data.versions import DatasetVersions, check_datasets, list_datasets
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.bucket_step import LAST_USE_FILE
from voxline.store.file_locks import try_lock
from voxline.store.files import DONE
from voxline.store.layout import check_store
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ObjectInfo
from voxline.store.store_locks import check_no_purge, sole_access
from voxline.store.uris import is_remote

ABANDONED = datetime.timedelta(days=1)
"""What a killed process left half written is deleted after that."""


@dataclasses.dataclass(frozen=True)
class GarbageCollected:
    """The shards that were deleted, or would be.

    Attributes:
      shards, bytes: of deleted shards.
      in_use: unreferenced shards that a process reads.
    """

    shards: int
    bytes: int
    in_use: int


def collect_garbage(
    store: Path | str, datasets: Iterable[Path | str], *, grace_days: float, dry_run: bool
) -> GarbageCollected:
    """Deletes unreferenced shards.

    Args:
      store: holds the shards.
      datasets: all folders or bucket URIs to which datasets of this store are published. The shards of a forgotten one
        are deleted.
      dry_run: deletes nothing.

    Raises:
      SettingsError: the store is none, or a folder of datasets holds none: their shards would be deleted.
      WorkError: a process adds to the store; a purge of it is unfinished; or a version cannot be read, so that its
        shards are unknown.
    """
    # Each location is checked before anything is deleted: a mistyped folder of datasets would leave its shards
    # unreferenced.
    datasets = [*datasets]
    check_store(store)
    for root in datasets:
        check_datasets(root)

    objects = open_store(store)
    grace = datetime.timedelta(days=grace_days)
    with _exclusive(store, dry_run) as (at, check_lock):
        # A purge that was killed may still need the shards that its record names.
        check_no_purge(objects)
        shards, abandoned = _list_shards(objects, at)
        extracted = _list_extracted(objects)
        recent = [dataset.folder for dataset in extracted if at - dataset.used <= grace]

        # Published versions count whatever their age, extracted datasets only if they were used lately.
        referenced = {shard for folder in (*_published(datasets), *recent) for shard in _shards_of(folder)}

        # A young shard may be of an extraction that has not written its dataset yet.
        unused = {
            name: infos
            for name, infos in shards.items()
            if name not in referenced and at - _age_of(infos, SHARD_FILE) > grace
        }

        deletable = {name: infos for name, infos in unused.items() if not _is_read(objects.local_path(name))}
        if not dry_run:
            _delete(objects, [*abandoned, *deletable], extracted, check_lock)

    size = sum(info.size for infos in deletable.values() for info in infos)
    return GarbageCollected(len(deletable), size, len(unused) - len(deletable))


def _delete(
    objects: ObjectStore, folders: Sequence[str], extracted: Sequence["_Extracted"], check_lock: Callable[[], None]
) -> None:
    """Deletes folders of shards, after the markers of extracted datasets that list them.

    Reuse of an extracted dataset in a bucket looks at its marker only, not at its shards.
    """
    # First no dataset claims these shards, then they go.
    for dataset in extracted:
        if dataset.marker and not dataset.shards().isdisjoint(folders):
            check_lock()
            objects.delete(dataset.marker.name, if_version=dataset.marker.version)

    for folder in folders:
        with lock_records(objects.local_path(folder)) as unread:
            if unread:
                # In a bucket another machine may have taken the lock over: it is looked at before each deletion.
                check_lock()
                objects.delete_folder(folder, first=(SHARD_FILE,))


@contextlib.contextmanager
def _exclusive(store: Path | str, dry_run: bool) -> Iterator[tuple[datetime.datetime, Callable[[], None]]]:
    """Locks the store against all who add to it; yields the storage's time and a check that the lock still holds."""
    # On a disk a training does not stop this: the shards that it reads stay.
    with contextlib.ExitStack() as stack:
        locked = stack.enter_context(sole_access(store, to_change=is_remote(store) and not dry_run))
        if not dry_run:
            stack.enter_context(lock_all_shards(store))
        yield locked


def _list_shards(objects: ObjectStore, at: datetime.datetime) -> tuple[dict[str, list[ObjectInfo]], list[str]]:
    """The objects of each shard, by the name of its folder; and folders that killed processes abandoned."""
    # Folders first, since one without any file is only seen so.
    folders: dict[str, list[ObjectInfo]] = {}
    for pool in objects.list_folders(f"{SHARDS_FOLDER}/"):
        for name in objects.list_folders(f"{SHARDS_FOLDER}/{pool}/"):
            folders[f"{SHARDS_FOLDER}/{pool}/{name}"] = []
    for info in objects.list(f"{SHARDS_FOLDER}/"):
        folder = "/".join(info.name.split("/")[:3])
        if folder != info.name:
            folders.setdefault(folder, []).append(info)

    shards = {}
    abandoned = []
    for folder, infos in sorted(folders.items()):
        # A shard counts from `shard.json` on; a folder without it belongs to a process, dead or alive.
        if any(info.name == f"{folder}/{SHARD_FILE}" for info in infos) and not folder.rpartition("/")[2].startswith(
            "."
        ):
            shards[folder] = infos
        # Something in it from the last day may be of a process that still works.
        elif all(at - info.updated > ABANDONED for info in infos):
            abandoned.append(folder)
    return shards, abandoned


def _age_of(infos: Sequence[ObjectInfo], file: str) -> datetime.datetime:
    return max(info.updated for info in infos if PurePosixPath(info.name).name == file)


@dataclasses.dataclass(frozen=True)
class _Extracted:
    """An extracted dataset.

    Attributes:
      folder: on this machine.
      used: when it was written or used last.
      marker: its `done.json`.
    """

    folder: Path
    used: datetime.datetime
    marker: ObjectInfo | None

    def shards(self) -> set[str]:
        try:
            return _shards_of(self.folder)
        except WorkError:  # damaged: its next use extracts it again
            return set()


def _list_extracted(objects: ObjectStore) -> list[_Extracted]:
    # In a bucket each attempt has a folder of its own below the output.
    outputs: dict[str, list[ObjectInfo]] = {}
    for info in objects.list("extract/"):
        if PurePosixPath(info.name).name in (DATASET_FILE, DONE, LAST_USE_FILE):
            outputs.setdefault("/".join(info.name.split("/")[:2]), []).append(info)

    extracted = []
    headers = []
    for output, infos in outputs.items():
        # Use is recorded by a file beside the output.
        used = max(info.updated for info in infos)
        marker = next((info for info in infos if info.name == f"{output}/{DONE}"), None)
        for info in infos:
            if PurePosixPath(info.name).name == DATASET_FILE:
                extracted.append(_Extracted(objects.local_path(info.name).parent, used, marker))
                headers.append(info)

    # All headers at once: many small downloads take longer.
    objects.pull(headers)
    return extracted


def _published(datasets: Iterable[Path | str]) -> Iterator[Path]:
    for root in datasets:
        for name in list_datasets(root):
            versions = DatasetVersions(root, name)
            yield from map(versions.path, versions.numbers())


def _shards_of(folder: Path) -> set[str]:
    """The names of a dataset's shards."""
    return {name_in_store(file.parent) for file in Dataset.read_header(folder).files()}


def _is_read(shard: Path) -> bool:
    with lock_records(shard) as unread:
        if not unread:
            print_status(f"datasets: {shard.name} stays: a process reads it")
        return not unread


@contextlib.contextmanager
def lock_records(shard: Path) -> Iterator[bool]:
    """Locks a shard against processes of this machine that want to read it; yields False if one does already."""
    with contextlib.ExitStack() as stack:
        yield all(try_lock(stack.enter_context(open(file, "rb"))) for file in shard.glob("*.tfrecord"))

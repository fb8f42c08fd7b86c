"""Publish: a dataset becomes a version that has a number and never changes."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.versions import PURGED_FILE, VERSION_FILE, DatasetVersions, VersionInfo
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.rows import ROWS_FILE
from voxline.data.shards import lock_shards
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.store.bucket_cache import localize
from voxline.store.bucket_locks import shared_store_lock
from voxline.store.files import explain_disk_errors
from voxline.store.step_cache import StepOutput


@dataclasses.dataclass
class PublishedVersion(StepOutput):
    """The folder of a version: where it lies is told by the versions, and not by keyed work."""

    address: str = ""

    @property
    def place(self) -> str:
        return self.address


def run(dataset: Path | str, store: Path | str, datasets: Path | str, settings: PublishSettings) -> StepOutput:
    """Publishes a dataset under the next number, unless the latest version has this very content.

    Args:
      dataset: the folder that extract wrote, or gs://…
      store: holds the shards.
      datasets: holds a folder for each dataset; a folder, or gs://…

    Raises:
      WorkError: the dataset is damaged, or `datasets` cannot be written.
    """
    start = time.monotonic()
    versions = DatasetVersions(datasets, settings.name)
    with contextlib.ExitStack() as held:
        held.enter_context(explain_disk_errors("publish", versions.folder))
        held.enter_context(shared_store_lock(store))  # before the dataset is read: a purge may change that
        folder = localize(dataset)
        read = held.enter_context(lock_dataset(folder))
        same, _ = _latest(versions, read)  # without the lock, which cannot be had where the disk may only be read
        if same is None:
            held.enter_context(versions.locked())
            same, damage = _latest(versions, read)
        if reused := same is not None:
            folder = versions.path(same)
            print_status(f"publish: version {same} of {settings.name} has this content already")
        else:
            folder = publish_version(read, store, versions, compact_below=settings.compact_below, note=damage)
    work = PublishedVersion("publish", folder, read.key, reused=reused, address=versions.uri_of(int(folder.name)))
    work.counts = {"version": int(folder.name), "utterances": sum(read.counts.values()), **read.counts}
    work.outputs = {"dataset": DATASET_FILE, "rows": ROWS_FILE, "version": VERSION_FILE}
    work.seconds = time.monotonic() - start
    return work


def _latest(versions: DatasetVersions, dataset: Dataset) -> tuple[int | None, str]:
    """The number of the latest version, if it has this content; if that cannot be read any more, why instead."""
    latest = versions.latest()
    if latest is None or (latest.key != dataset.key and not _is_purged(versions.path(latest.number), dataset)):
        return None, ""
    try:
        version = Dataset.read(versions.path(latest.number), shards=False)
    except WorkError as damage:
        told = f"version {latest.number} cannot be read any more: {damage}"
        print_status(f"publish: {told}")
        return None, told
    if latest.key == dataset.key and _held(version) != _held(dataset):
        told = f"version {latest.number} was made when other recordings could be read"
        print_status(f"publish: {told}")
        return None, told
    return latest.number, ""


def _held(dataset: Dataset) -> tuple[str, int]:
    """The rows, and how many records they have: fewer than they should where a recording was gone when it was read."""
    return dataset.rows_hash, sum(shard.live for shard in dataset.shards)


def _is_purged(version: Path, dataset: Dataset) -> bool:
    """Whether a purge has left of a version what this dataset holds: it bears another name then, and no other rows."""
    if not (version / PURGED_FILE).is_file():
        return False
    left = Dataset.listed(version)
    return all(
        getattr(left, name) == getattr(dataset, name)
        for name in ("rows_hash", "features", "alphabet", "reading", "speeds")
    )


@contextlib.contextmanager
def lock_dataset(folder: Path) -> Iterator[Dataset]:
    """A dataset whose shards nobody takes away meanwhile."""
    dataset = Dataset.read(folder, shards=False)
    pools = {file.parent.parent for file in dataset.files() if file.parent.parent.is_dir()}
    with contextlib.ExitStack() as held:
        for pool in sorted(pools):
            held.enter_context(lock_shards(pool))
        yield Dataset.read(folder, shards=False)  # what was there a moment ago may have gone in between


def publish_version(
    dataset: Dataset, store: Path | str, versions: DatasetVersions, *, compact_below: float, note: str = ""
) -> Path:
    """Publishes a dataset as a new version, with what is mostly dead of its shards left behind.

    To be called with the lock of the versions held.
    """
    latest = versions.latest()
    changes = _changes_since(versions.path(latest.number), dataset) if latest else {}

    def write(folder: Path, target: Path) -> None:
        if not (dead := low_live_shards(dataset, compact_below)):
            dataset.copy_to(folder, target)
            return
        from voxline.components.publish.compaction import compact_shards  # with numpy, which all else does without
        from voxline.data.rows import write_record_locations

        compacted = compact_shards(dataset, store, target, dead)
        dataset.copy_rows(folder)
        places = write_record_locations(folder, compacted.places)
        dataclasses.replace(dataset, shards=compacted.shards, places=places).write(folder)
        print_status(
            f"publish: {compacted.rewritten:,} shards were mostly dead: {compacted.bytes_alive / 1e6:,.1f} MB copied, "
            f"{compacted.bytes_dead / 1e6:,.1f} MB left behind"
        )

    def described(number: int) -> VersionInfo:
        replaces = latest.number if latest else None
        return VersionInfo(number, dataset.key, format_utc(time.time()), replaces, note, dict(dataset.counts), changes)

    folder = versions.publish(write, described)
    told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in changes.items() if count)
    print_status(
        f"publish: version {folder.name} of {versions.name}, {sum(dataset.counts.values()):,} utterances"
        + (f"; since version {latest.number}: {told}" if latest and told else "")
    )
    return folder


def low_live_shards(dataset: Dataset, below: float) -> list[int]:
    """The numbers of the shards of which less than this share is alive."""
    return [number for number, shard in enumerate(dataset.shards) if shard.live_bytes < below * shard.bytes]


def _changes_since(before: Path, dataset: Dataset) -> dict[str, int]:
    """How many changes of each kind; none are known where the version before lost what it held."""
    from voxline.components.publish.diff import count_changes

    try:
        return count_changes(Dataset.listed(before), dataset)
    except (WorkError, FileNotFoundError) as damage:
        print_status(f"publish: what changed is not known: {damage}")
        return {}

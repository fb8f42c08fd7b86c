"""Publish: gives a dataset a version, which has a number and never changes."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from voxline.components.publish.settings import PublishSettings
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.rows import ROWS_FILE
from voxline.data.shards import lock_shards
from voxline.data.versions import PURGED_FILE, VERSION_FILE, DatasetVersions, PublishedVersion, VersionInfo
from voxline.errors import VoxlineError, WorkError
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.store.files import explain_disk_errors
from voxline.store.objects import open_store
from voxline.store.step_cache import FORCE_ENV, local_inputs
from voxline.store.store_locks import shared_store_lock

_JUDGED = ("promoted", "candidate", "refused", "unchanged")
"""Verdicts of runs whose model the gate has seen."""


@local_inputs("dataset")
def run(
    dataset: Path | str,
    store: Path | str,
    datasets: Path | str,
    settings: PublishSettings,
    *,
    registry: Path | str = "",
    model_name: str = "",
) -> PublishedVersion:
    """Publishes a dataset under the next number, unless the latest version has the same content.

    With `publish.then`, the count `skipped` is 1 if the run ends here: nothing was published, and a model of this
    version was judged that was trained by these settings. A training that failed, or was killed, is thus started again,
    and so is one on a version that a purge has changed since.

    Args:
      dataset: the output of extract: a folder or bucket URI.
      store: holds the shards.
      datasets: holds a folder for each dataset: a folder or bucket URI.
      registry: folder or bucket URI of the registry, in which the history of runs is.
      model_name: in the registry.

    Raises:
      WorkError: the dataset is damaged, or `datasets` cannot be written.
    """
    start = time.monotonic()
    versions = DatasetVersions(datasets, settings.dataset)
    with contextlib.ExitStack() as stack:
        stack.enter_context(explain_disk_errors("publish", versions.folder))
        stack.enter_context(shared_store_lock(store))  # before the dataset is read, since a purge may change it
        source = stack.enter_context(lock_dataset(Path(dataset)))
        same, _ = _same_content(versions, source)  # without the lock, which a read-only disk cannot give
        if same is None:
            stack.enter_context(versions.locked())
            same, damage = _same_content(versions, source)
        if same is not None:
            number = same
            folder = versions.path(same)
            print_status(f"publish: version {same} of {settings.dataset} already has this content")
        else:
            folder = publish_version(source, store, versions, compact_below=settings.compact_below, note=damage)
            number = int(folder.name)

    output = PublishedVersion(
        "publish", folder, source.key, reused=same is not None, version_uri=versions.uri_of(number)
    )
    output.counts = {"version": number, "utterances": sum(source.counts.values()), **source.counts}
    if settings.then and output.reused and _was_judged(output, settings, registry, model_name):
        print_status(f"publish: nothing new, and version {number} was judged before, so nothing is trained")
        output.counts["skipped"] = 1
    output.outputs = {"dataset": DATASET_FILE, "rows": ROWS_FILE, "version": VERSION_FILE}
    output.seconds = time.monotonic() - start
    return output


def _was_judged(version: PublishedVersion, settings: PublishSettings, registry: Path | str, model_name: str) -> bool:
    """Returns whether a run has judged a model of a version and of these settings; False where nobody can tell."""
    if "train" in os.environ.get(FORCE_ENV, "").split(","):
        return False
    from voxline.notify.history import FOLDER, read_runs  # few runs need it

    try:
        runs = read_runs(settings.history or (open_store(registry) / FOLDER).uri, model=model_name)
    except (VoxlineError, OSError, ValueError):
        return False

    # A purge keeps the version's number, and a model from before it knows the speaker who was erased.
    purged = _last_purge(version.folder)

    # A run that ended after publish, as this one may, has a verdict on the dataset alone.
    return any(
        run.get("dataset_uri") == version.uri
        and run["run"].get("training", "") == settings.training
        and run["verdict"] in _JUDGED
        and run.get("digest")
        and run["run"].get("started", "") > purged
        for run in runs
    )


def _last_purge(version: Path) -> str:
    """When a version was purged last, as `format_utc` writes it; empty: never."""
    file = version / PURGED_FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return max((json.loads(line)["at"] for line in lines), default="")


def _same_content(versions: DatasetVersions, dataset: Dataset) -> tuple[int | None, str]:
    """The latest version if it has this content; else None, and a note if that version can no longer be read."""
    latest = versions.latest()
    if latest is None or (
        latest.key != dataset.key and not _equals_purged_version(versions.path(latest.number), dataset)
    ):
        return None, ""
    try:
        version = Dataset.read(versions.path(latest.number), shards=False)
    except WorkError as damage:
        note = f"version {latest.number} can no longer be read: {damage}"
        print_status(f"publish: {note}")
        return None, note

    # Recordings that could not be read then may be there now: a key does not show it, the rows and the records do.
    if latest.key == dataset.key and _rows_and_records(version) != _rows_and_records(dataset):
        note = f"version {latest.number} was published when other recordings could be read"
        print_status(f"publish: {note}")
        return None, note

    return latest.number, ""


def _rows_and_records(dataset: Dataset) -> tuple[str, int]:
    """The hash of the rows, and their records: fewer than usual if a recording was missing when it was read."""
    return dataset.rows_hash, sum(shard.live for shard in dataset.shards)


def _equals_purged_version(version: Path, dataset: Dataset) -> bool:
    """Returns whether a purged version has the same rows as this dataset, though their keys differ."""
    if not (version / PURGED_FILE).is_file():
        return False

    # A purge takes utterances out of a version and so changes its key; a dataset without them has the key of its own
    # inputs.
    purged = Dataset.read_header(version)
    return all(
        getattr(purged, name) == getattr(dataset, name)
        for name in ("rows_hash", "features", "alphabet", "frontend", "speeds")
    )


@contextlib.contextmanager
def lock_dataset(folder: Path) -> Iterator[Dataset]:
    """Reads a dataset and keeps others from deleting its shards."""
    pools = {file.parent.parent for file in Dataset.read_header(folder).files()}

    # Sorted, so that two processes that lock the same pools cannot wait for each other.
    with contextlib.ExitStack() as stack:
        for pool in sorted(filter(Path.is_dir, pools)):
            stack.enter_context(lock_shards(pool))
        yield Dataset.read(folder, shards=False)  # under the lock: shards may have been deleted before


def publish_version(
    dataset: Dataset, store: Path | str, versions: DatasetVersions, *, compact_below: float, note: str = ""
) -> Path:
    """Publishes a dataset as a new version, after compaction of shards with a low live ratio.

    Call it with the lock of the versions held. Returns the version's folder.
    """
    latest = versions.latest()
    changes = _count_changes(versions.path(latest.number), dataset) if latest else {}

    # Gets the unfinished folder, and the one that it is renamed to: references to shards are relative to the latter.
    def write(folder: Path, target: Path) -> None:
        if not (sparse := low_live_shards(dataset, compact_below)):
            dataset.copy_to(folder, target)
            return
        from voxline.components.publish.compaction import compact_shards  # imports numpy
        from voxline.data.record_locations import write_record_locations

        compacted = compact_shards(dataset, store, target, sparse)
        dataset.copy_rows(folder)
        places = write_record_locations(folder, compacted.locations)
        dataclasses.replace(dataset, shards=compacted.shards, record_locations_file=places).write(folder)
        print_status(
            f"publish: compacted {compacted.rewritten:,} shards: {compacted.bytes_copied / 1e6:,.1f} MB copied, "
            f"{compacted.bytes_dropped / 1e6:,.1f} MB dropped"
        )

    def describe(number: int) -> VersionInfo:
        replaces = latest.number if latest else None
        return VersionInfo(number, dataset.key, format_utc(time.time()), replaces, note, dict(dataset.counts), changes)

    folder = versions.publish(write, describe)
    changed = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in changes.items() if count)
    print_status(
        f"publish: version {folder.name} of {versions.name}, {sum(dataset.counts.values()):,} utterances"
        + (f"; since version {latest.number}: {changed}" if latest and changed else "")
    )
    return folder


def low_live_shards(dataset: Dataset, below: float) -> list[int]:
    """The numbers of the shards whose live ratio, live bytes over all bytes, is lower than this."""
    return [number for number, shard in enumerate(dataset.shards) if shard.live_bytes < below * shard.bytes]


def _count_changes(before: Path, dataset: Dataset) -> dict[str, int]:
    """The number of changes of each kind; empty if the version before is damaged."""
    from voxline.components.publish.diff import count_changes

    try:
        return count_changes(Dataset.read_header(before), dataset)
    except (WorkError, FileNotFoundError) as damage:
        print_status(f"publish: the changes are unknown: {damage}")
        return {}

"""The purge of shards and dataset versions: the one case in which a published version changes.

A shard never changes. The clips to keep are copied to a new shard, datasets are pointed at the copies, and then the old
shard is deleted.

A version that lists the speaker loses these rows: it is written to `.purged-<number>/`, which replaces the version.
`purged.jsonl` in it says when, and how many rows. Its key changes, because its content did, so no training on the old
content counts as one on the new. Its mean and deviation stay: they are statistics of all speakers together. A version
that does not list the speaker but shares a shard with one that does only gets a new list of shards.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.record_locations import write_record_locations
from voxline.data.rows import ROWS_FILE, read_rows
from voxline.data.shard_rewrite import RewrittenShard, RewrittenShards, copy_records, remap_records
from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER, ShardInfo
from voxline.data.tfrecord import RECORD_OVERHEAD
from voxline.data.versions import PURGE_STAGING, PURGED_FILE, VERSION_FILE, DatasetVersions, VersionInfo
from voxline.errors import SettingsError, WorkError
from voxline.operations.purge.locations import Workspace
from voxline.operations.shard_gc import lock_records
from voxline.store.files import DONE, SEAL, atomic_write, read_json, seal_marker, write_json
from voxline.store.finished import HASHES
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import load_npy


def find_shards(store: Path, clips: set[str]) -> Iterator[tuple[ShardInfo, int]]:
    """The shards that hold some of these clips, and the bytes of these clips."""
    for file in sorted((store / SHARDS_FOLDER).glob(f"*/[!.]*/{SHARD_FILE}")):
        info = ShardInfo.read(file.parent)
        sizes = [size + RECORD_OVERHEAD for clip, size in zip(info.clips, info.sizes, strict=True) if clip in clips]
        if sizes:
            yield info, sum(sizes)


def check_path_of_store(store: Path, versions: Iterable[Path]) -> None:
    """Checks that versions name the store as the purge does: by another path, none of their shards would be found.

    Raises:
      SettingsError: one leads there by another path, with a link in it.
    """
    for folder in versions:
        # `parents[3]` of a shard's file is its store. The same folder by another name would look like another store.
        for other_store in {file.parents[3] for file in Dataset.read_header(folder).files()} - {store}:
            if other_store.exists() and other_store.samefile(store):
                raise SettingsError(
                    f"{store}: datasets refer to this store as {other_store}, which is the same folder; give it, and "
                    "--datasets, by the paths with which refresh was run"
                )


def find_leftovers(store: Path, workspace: Workspace) -> list[Path]:
    """Folders among the shards that killed processes or damage left. They may hold anybody's clips."""
    folders = [folder for pool in workspace.folders(store / SHARDS_FOLDER) for folder in workspace.folders(pool)]
    return [folder for folder in folders if folder.name.startswith(".") or not workspace.exists(folder / SHARD_FILE)]


def check_not_read(shards: Iterable[ShardInfo], workspace: Workspace) -> None:
    """Checks that no process of this machine reads a shard. Readers in a bucket hold the lock of its store.

    Raises:
      WorkError: a process does, and would go on reading what was removed.
    """
    for info in shards:
        if not workspace.is_in_bucket(info.path):
            with lock_records(info.folder) as unread:
                if not unread:
                    raise WorkError(
                        f"{info.path}: a training reads it; stop that, or wait until it is over, and purge again"
                    )


def rewrite_shard(info: ShardInfo, clips: set[str], workspace: Workspace) -> RewrittenShard:
    """Copies the records of all clips but these to a new shard. Repeated, it gives the same shard."""
    # Repeated after a kill, it copies the same records and gives a shard of the same name.
    remaining = {offset for clip, offset in zip(info.clips, info.offsets, strict=True) if clip not in clips}
    if not remaining:
        return RewrittenShard(None, {})

    statistics = info.path.with_suffix(".npy")
    workspace.fetch(info.path, statistics)
    bins = load_npy(statistics).shape[-1]
    rewritten = copy_records([(info, remaining)], info.folder.parent, bins)[info.folder]

    # Records and statistics first, `shard.json` last: it makes the shard complete.
    if (new := rewritten.shard) and new.path.is_file():  # else the bucket has this very shard already
        workspace.upload_new(new.path, new.path.with_suffix(".npy"))
        workspace.upload_new(new.folder / SHARD_FILE)
    return rewritten


def recover_versions(versions: DatasetVersions, workspace: Workspace) -> None:
    """Completes or removes what a killed purge left of versions. Call it with their lock held."""
    # With `version.json` the copy is complete and replaces the version; without it the copy is made again.
    for staging in workspace.folders(versions.folder):
        if staging.name.startswith(PURGE_STAGING):
            if workspace.exists(staging / VERSION_FILE):
                number = staging.name.removeprefix(PURGE_STAGING)
                workspace.replace_folder(staging, versions.folder / number, VERSION_FILE)
            else:
                workspace.remove(staging)


def count_rows(dataset: Dataset, speaker: str) -> int:
    """The speaker's rows in a dataset."""
    return sum(row.speaker == speaker for row in read_rows(dataset.folder / ROWS_FILE))


def purge_version(
    versions: DatasetVersions, number: int, speaker: str, rewritten: RewrittenShards, at: str, workspace: Workspace
) -> int:
    """Removes a speaker's rows from a version; returns how many. Call it with the lock of the versions held."""
    target = versions.folder / str(number)
    dataset = Dataset.read_header(target)
    rows = count_rows(dataset, speaker)
    if not rows:
        remap_dataset(dataset, rewritten, workspace)
        return 0

    staging = versions.folder / f"{PURGE_STAGING}{number}"
    workspace.remove(staging)
    staging.mkdir()

    purged = _write_without(dataset, speaker, rewritten, staging, target)
    earlier = (target / PURGED_FILE).read_text(encoding="utf-8") if (target / PURGED_FILE).is_file() else ""
    # Purges before this one stay on record.
    with atomic_write(staging / PURGED_FILE, "w") as file:
        file.write(earlier + json.dumps({"at": at, "utterances": rows}) + "\n")

    workspace.upload(*sorted(staging.iterdir()))

    # `version.json` last, on the disk and in the bucket: from here on a killed purge is completed by
    # `recover_versions`.
    info = VersionInfo.of(read_json(target / VERSION_FILE))
    info = dataclasses.replace(info, key=purged.key, counts=purged.counts)
    write_json(staging / VERSION_FILE, dataclasses.asdict(info))
    workspace.upload(staging / VERSION_FILE)
    workspace.replace_folder(staging, target, VERSION_FILE)
    return rows


def remap_dataset(dataset: Dataset, rewritten: RewrittenShards, workspace: Workspace) -> None:
    """Points a dataset at the rewritten shards. Nothing else of it changes."""
    if not any(file.parent in rewritten for file in dataset.files()):
        return
    folder = dataset.folder

    workspace.fetch(folder / dataset.record_locations_file)
    shards, locations = remap_records(dataset, dataset.read_record_locations(), rewritten, folder)
    name = write_record_locations(folder, locations)  # named by its content: the old file serves until the next line

    # The locations before `dataset.json`, which names them.
    workspace.upload_new(folder / name)
    dataclasses.replace(dataset, shards=shards, record_locations_file=name).write(folder)
    workspace.upload(folder / DATASET_FILE)

    for file in workspace.files(folder):
        if file.name.startswith("record-locations-") and file.name != name:
            workspace.remove(file)

    for marker in (folder / DONE, folder.parent / DONE):  # records the size of dataset.json, else it counts as damaged
        if marker.is_file() and DATASET_FILE in (done := read_json(marker)).get("bytes", {}):
            done["bytes"][DATASET_FILE] = (folder / DATASET_FILE).stat().st_size
            # Hashes of the step's files, by which the next run trusts its output.
            if hashes := done.get(HASHES):
                hashes.pop(dataset.record_locations_file, None)
                hashes |= {file: hash_file(folder / file) for file in (DATASET_FILE, name)}
            write_json(marker, seal_marker(done) if SEAL in done else done)
            workspace.upload(marker)


def _write_without(dataset: Dataset, speaker: str, rewritten: RewrittenShards, folder: Path, target: Path) -> Dataset:
    """Writes a dataset without a speaker's rows to a folder that will be `target`."""
    rows = [row for row in dataset.rows() if row.speaker != speaker]
    numbers = {row.number for row in rows}

    # Line by line, so that the rows of all others keep their bytes.
    with open(dataset.folder / ROWS_FILE, encoding="utf-8") as lines, atomic_write(folder / ROWS_FILE, "w") as file:
        file.writelines(line for number, line in enumerate(lines) if number in numbers)
    shards, locations = remap_records(dataset, dataset.read_record_locations()[sorted(numbers)], rewritten, target)

    rows_hash = hash_file(folder / ROWS_FILE)
    counts = Counter(row.split for row in rows)
    seconds = dict.fromkeys(counts, 0.0)
    for row in rows:
        seconds[row.split] += row.duration

    # A new key and fingerprint: no training on the old content counts as one on the new.
    purged = dataclasses.replace(
        dataset,
        key=hash_value({"purged": dataset.key, "rows": rows_hash}),
        fingerprint=hash_value({"purged": dataset.fingerprint, "rows": rows_hash}),
        counts={split: counts[split] for split in dataset.counts if counts[split]},
        seconds={split: round(seconds[split], 3) for split in dataset.counts if counts[split]},
        shards=shards,
        rows_hash=rows_hash,
        record_locations_file=write_record_locations(folder, locations),
        folder=folder,
    )
    purged.write(folder)
    return purged

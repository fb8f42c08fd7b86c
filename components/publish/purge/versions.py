"""Dataset versions without a speaker: the one case in which a published version changes.

A version that lists the speaker loses these rows: it is built anew beside itself and put in its place by two renames,
in a bucket by copies within the storage, between the deletion of the old `version.json` and the writing of the new one.
`purged.jsonl` in it says when, and how many rows. Its key changes, since its content did: no training of the old
content counts as one of the new. Its mean and deviation stay, which are figures of all speakers together. A version
that does not list the speaker, and shares a shard with one that does, is laid anew in place.
"""

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path

from voxline.components.publish.purge.workspace import Workspace
from voxline.components.publish.versions import (
    PURGED_FILE,
    VERSION_FILE,
    DatasetVersions,
    VersionInfo,
)
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.rows import ROWS_FILE, read_rows, write_record_locations
from voxline.data.shard_rewrite import RewrittenShards, remap_records
from voxline.store.bucket_cache import is_cached
from voxline.store.files import DONE, atomic_write, fsync_folder, read_json, write_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.objects import CLAIM

_BUILT, _OLD = ".purged-", ".unpurged-"


def recover_versions(versions: DatasetVersions, ground: Workspace) -> None:
    """Finishes what a killed purge left between its two renames; to be called with the lock of the versions held."""
    if is_cached(versions.folder):
        _mend_in_bucket(versions.folder, ground)
        return
    for built in versions.folder.glob(f"{_BUILT}*"):
        target = versions.folder / built.name.removeprefix(_BUILT)
        old = versions.folder / f"{_OLD}{target.name}"
        if old.exists() and not target.exists():
            built.rename(target)
        else:
            shutil.rmtree(built)
    for old in versions.folder.glob(f"{_OLD}*"):
        shutil.rmtree(old)


def _mend_in_bucket(folder: Path, ground: Workspace) -> None:
    """A version that was sent whole takes its place; another one goes."""
    for built in ground.folders(folder):
        if built.name.startswith(_BUILT):
            if ground.exists(built / VERSION_FILE):
                ground.move(built, folder / built.name.removeprefix(_BUILT), VERSION_FILE, keep=[CLAIM])
            else:
                ground.remove(built)


def count_rows(dataset: Dataset, speaker: str) -> int:
    """How many rows of a dataset are a speaker's."""
    return sum(row.speaker == speaker for row in read_rows(dataset.folder / ROWS_FILE))


def remap_dataset(dataset: Dataset, layout: RewrittenShards, ground: Workspace) -> None:
    """Leads a dataset to where its clips are now; nothing else of it changes."""
    if not any(file.parent in layout for file in dataset.files()):
        return
    ground.bring([dataset.folder / dataset.places])
    shards, places = remap_records(dataset, dataset.read_record_locations(), layout, dataset.folder)
    name = write_record_locations(
        dataset.folder, places
    )  # under a name of its own: the old one serves until the next line
    ground.sent_new(dataset.folder / name)
    dataclasses.replace(dataset, shards=shards, places=name).write(dataset.folder)
    ground.sent(dataset.folder / DATASET_FILE)
    for old in ground.files(dataset.folder):
        if old.name.startswith("places-") and old.name != name:
            ground.remove(old)
    _note_bytes(dataset.folder, ground)


def _note_bytes(folder: Path, ground: Workspace) -> None:
    """Lets the marker of work tell the bytes of its dataset as it is now, else it would be made again."""
    for marker in (folder / DONE, folder.parent / DONE):
        if marker.is_file() and DATASET_FILE in (done := read_json(marker)).get("bytes", {}):
            done["bytes"][DATASET_FILE] = (folder / DATASET_FILE).stat().st_size
            write_json(marker, done)
            ground.sent(marker)


def purge_version(
    versions: DatasetVersions, number: int, speaker: str, layout: RewrittenShards, at: str, ground: Workspace
) -> int:
    """Takes a speaker's rows out of a version; returns how many. To be called with the lock of the versions held."""
    target = versions.folder / str(number)
    dataset = Dataset.listed(target)
    gone = count_rows(dataset, speaker)
    if not gone:
        remap_dataset(dataset, layout, ground)
        return 0
    built = versions.folder / f"{_BUILT}{number}"
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir()
    rewritten = _without(dataset, speaker, layout, built, target)
    published = VersionInfo.of(read_json(target / VERSION_FILE))
    write_json(
        built / VERSION_FILE,
        dataclasses.asdict(dataclasses.replace(published, key=rewritten.key, counts=rewritten.counts)),
    )
    said = (target / PURGED_FILE).read_text(encoding="utf-8") if (target / PURGED_FILE).is_file() else ""
    with atomic_write(built / PURGED_FILE, "w") as file:
        file.write(said + json.dumps({"at": at, "utterances": gone}) + "\n")
    _exchange(versions, built, target, ground)
    return gone


def _exchange(versions: DatasetVersions, built: Path, target: Path, ground: Workspace) -> None:
    if is_cached(target):
        ground.remove_there(built)
        ground.sent(*(file for file in sorted(built.iterdir()) if file.name != VERSION_FILE))
        ground.sent(built / VERSION_FILE)
        ground.move(built, target, VERSION_FILE, keep=[CLAIM])
        return
    fsync_folder(built)
    old = target.rename(versions.folder / f"{_OLD}{target.name}")
    built.rename(target)
    fsync_folder(versions.folder)
    shutil.rmtree(old)


def _without(dataset: Dataset, speaker: str, layout: RewrittenShards, folder: Path, target: Path) -> Dataset:
    """Writes a dataset without a speaker's rows into a folder that will be `target`."""
    rows = [row for row in dataset.rows() if row.speaker != speaker]
    stay = {row.number for row in rows}
    with open(dataset.folder / ROWS_FILE, encoding="utf-8") as lines, atomic_write(folder / ROWS_FILE, "w") as file:
        file.writelines(line for number, line in enumerate(lines) if number in stay)
    shards, places = remap_records(dataset, dataset.read_record_locations()[sorted(stay)], layout, target)
    rows_hash = hash_file(folder / ROWS_FILE)
    counts = Counter(row.split for row in rows)
    seconds = dict.fromkeys(counts, 0.0)
    for row in rows:
        seconds[row.split] += row.duration
    rewritten = dataclasses.replace(
        dataset,
        key=hash_value({"purged": dataset.key, "rows": rows_hash}),
        fingerprint=hash_value({"purged": dataset.fingerprint, "rows": rows_hash}),
        counts={split: counts[split] for split in dataset.counts if counts[split]},
        seconds={split: round(seconds[split], 3) for split in dataset.counts if counts[split]},
        shards=shards,
        rows_hash=rows_hash,
        places=write_record_locations(folder, places),
        folder=folder,
    )
    rewritten.write(folder)
    return rewritten

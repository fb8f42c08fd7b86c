"""The purge of a speaker, from looking to the record of it.

In this order, each part of which may be done twice: what was found is written down; new shards; versions and datasets
are led to them; old shards, work and WAVs go; then the lists of trainings and of the registry; the record; and what
was written down. A purge that was killed anywhere is finished by the same command.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.publish.purge import registry as served
from voxline.components.publish.purge import shards, store, versions
from voxline.components.publish.purge.footprint import Footprint, find_footprint, step_output_files
from voxline.components.publish.purge.locations import PurgeLocations, clear_caches
from voxline.components.publish.purge.old_generations import Retention, delete_old_versions, retention_of
from voxline.components.publish.purge.registry import RegistryUse
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.shard_rewrite import RewrittenShard, RewrittenShards
from voxline.data.shards import ShardInfo, lock_shards
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.registry.registry import EVALUATION
from voxline.registry.training_data import TRAINED_ON
from voxline.store.bucket_cache import is_cached, uri_of
from voxline.store.bucket_locks import UNFINISHED_PURGE, record_purge
from voxline.store.files import remove_unfinished, write_text
from voxline.store.objects import is_remote, open_store

RECORD = "purges.jsonl"


@dataclasses.dataclass
class PurgeFindings:
    """What is left of a speaker.

    Attributes:
      versions: rows in each version, by its folder.
      shards: that hold clips of theirs, and the bytes of these.
      leftovers: folders that killed processes left among the shards.
      unfinished: trainings of which nobody knows yet what they see.
      kept: what the buckets do with what is deleted; after a purge, what they keep.
      bytes: of clips, of work that goes with them, of WAVs and TensorBoard files.
    """

    traces: Footprint
    versions: dict[Path, int]
    shards: list[tuple[ShardInfo, int]]
    leftovers: list[Path]
    works: list[Path]
    wavs: list[Path]
    trainings: list[store.AffectedTraining]
    served: list[RegistryUse]
    unfinished: int
    kept: list[Retention] = dataclasses.field(default_factory=list)
    bytes: int = 0

    def anything(self, places: PurgeLocations) -> bool:
        events = any(training.events or training.listed for training in self.trainings)
        in_registry = any(one.listed or one.judged or one.shown for one in self.served)
        begun = self.traces.file(places.store).is_file()
        return bool(begun or self.versions or self.shards or self.works or self.wavs or events or in_registry)

    def counts(self) -> dict[str, int]:
        clips = sum(clip in self.traces.clips for index, _ in self.shards for clip in index.clips)
        return {
            "utterances": len(self.traces.ids),
            "rows": sum(self.versions.values()),
            "shards": len(self.shards),
            "clips": clips,
            "wavs": len(self.wavs),
            "works": len(self.works),
            "trainings": len(self.trainings),
            "served": len(self.served),
        }


def find_speaker(speaker: str, places: PurgeLocations) -> PurgeFindings:
    """Looks for all that is left of a speaker; nothing changes."""
    ground, store_folder = places.ground, places.store
    folders = [each.folder / str(number) for each in places.versions() for number in each.numbers()]
    traces = find_footprint(speaker, store_folder, folders)
    rows = {folder: versions.count_rows(Dataset.listed(folder), speaker) for folder in folders}
    found = PurgeFindings(
        traces,
        {folder: count for folder, count in rows.items() if count},
        list(shards.find_shards(store_folder, traces.clips)),
        shards.leftovers(store_folder, ground),
        store.find_outputs(store_folder, traces, ground),
        store.find_wavs(store_folder, traces, ground),
        store.find_trainings(store_folder, traces, ground),
        served.find_registry_uses(uri_of(places.registry), traces) if places.registry else [],
        store.count_unfinished_trainings(store_folder, ground),
        [retention_of(place) for place in places.in_buckets()],
    )
    events = (file for training in found.trainings for file in training.events)
    found.bytes = sum(size for _, size in found.shards)
    found.bytes += sum(map(ground.size, (*found.works, *found.wavs, *events)))
    return found


def purge_speaker(speaker: str, places: PurgeLocations, note: str = "") -> PurgeFindings:
    """Removes all that is left of a speaker, and writes down that it did.

    Returns:
      What there was.

    Raises:
      WorkError: a process works in the store, or reads a shard that is to go; nothing was removed then.
    """
    with contextlib.ExitStack() as held:
        _hold(places, held)
        for each in places.all_versions():
            held.enter_context(each.locked_here())
            versions.recover_versions(each, places.ground)
        found = find_speaker(speaker, places)
        if not found.anything(places):
            return found
        shards.check_not_read(index for index, _ in found.shards)
        found.traces.record = found.traces.record or _described(found, note)
        found.traces.touched |= _touched(found, places)
        for lease in places.leases:
            lease.check()
        _keep(found.traces, places)
        _purge(found, places)
    return found


def _hold(places: PurgeLocations, held: contextlib.ExitStack) -> None:
    """Holds a store in a folder; one in a bucket is held already."""
    if is_cached(places.store):
        return
    held.enter_context(store.lock_outputs(places.store))
    for pool in shards.list_pools(places.store):
        held.enter_context(lock_shards(pool, alone=True))


def _purge(found: PurgeFindings, places: PurgeLocations) -> None:
    traces, ground, at = found.traces, places.ground, str(found.traces.record["at"])
    for folder in found.leftovers:
        shards.delete_shard(folder, ground)
    layout: dict[Path, RewrittenShard] = {}
    for index, _ in found.shards:
        layout[index.folder] = shards.rewrite_without(index, traces.clips, ground)
    for each in places.versions():
        for number in each.numbers():
            if gone := versions.purge_version(each, number, traces.speaker, layout, at, ground):
                print_status(f"purge: {gone:,} rows taken out of version {number} of {each.name}")
    _lay_extracted(found, places, layout)
    for folder in layout:
        shards.delete_shard(folder, ground)
    for path in (*found.works, *found.wavs):
        ground.remove(path)
    store.forget_wavs(places.store, traces.wavs, ground)
    for training in found.trainings:
        store.purge_training(training, traces.speaker, ground)
    for one in found.served:
        served.purge_registry_use(uri_of(places.registry or Path()), one, traces, at, ground)
    _end(found, places)


def _end(found: PurgeFindings, places: PurgeLocations) -> None:
    """What is kept all the same goes as far as it can, and is written down; then what was written down goes."""
    traces = found.traces
    clear_caches(places)
    found.kept = delete_old_versions(places, traces)
    if found.kept and "kept" not in traces.record:
        traces.record["kept"] = [kept.plain() for kept in found.kept]
        _keep(traces, places)
    _record(traces, places)
    for folder in {places.store, *(file.parent for file in record_files(places))}:
        for name in (UNFINISHED_PURGE, RECORD):  # what a killed purge had half written of these
            remove_unfinished(folder, f".{name}*.part", older_than=0)
    for lease in places.leases:
        record_purge(lease)
    places.ground.remove(traces.file(places.store))


def _touched(found: PurgeFindings, places: PurgeLocations) -> set[str]:
    """Addresses of what goes or changes in buckets."""
    paths = {
        *found.versions,
        *(index.folder for index, _ in found.shards),
        *found.leftovers,
        *found.works,
        *found.wavs,
        *store.find_wav_logs(places.store, found.traces.wavs),
        *(file for training in found.trainings for file in (*training.events, *training.lists)),
        *(one.folder / name for one in found.served for name in (EVALUATION, TRAINED_ON)),
        found.traces.file(places.store),
    }
    return {uri_of(path) for path in paths if is_cached(path)}


def _keep(traces: Footprint, places: PurgeLocations) -> None:
    traces.keep(places.store)
    places.ground.sent(traces.file(places.store))


def _lay_extracted(found: PurgeFindings, places: PurgeLocations, layout: RewrittenShards) -> None:
    """Extracted datasets that do not list the speaker, and share a shard with one that does."""
    for folder in [file.parent for file in step_output_files(places.store, "extract", DATASET_FILE)]:
        if not any(folder.is_relative_to(work) for work in found.works):
            versions.remap_dataset(Dataset.listed(folder), layout, places.ground)


def record_files(places: PurgeLocations) -> list[Path]:
    """The files in which purges are written down."""
    return [root / RECORD for root in places.datasets or (places.store,)]


def _described(found: PurgeFindings, note: str) -> dict[str, Any]:
    """What is written down of a purge: whom it was of can be asked, and not read."""
    salt = secrets.token_hex(8)
    return {
        "at": format_utc(time.time()),
        "note": note,
        "salt": salt,
        "speaker": salted_hash(found.traces.speaker, salt),
        "bytes": found.bytes,
        **found.counts(),
        "versions": [f"{folder.parent.name}/{folder.name}" for folder in found.versions],
        "models": [one.name for one in found.served if one.saw],
        "trained": [training.folder.name for training in found.trainings],
    }


def _record(traces: Footprint, places: PurgeLocations) -> None:
    line = json.dumps(traces.record, ensure_ascii=False) + "\n"
    for file in record_files(places):
        written = file.read_text(encoding="utf-8") if file.is_file() else ""
        if line not in written:  # it was killed just here
            write_text(file, written + line)
            places.ground.sent(file)


def salted_hash(speaker: str, salt: str) -> str:
    """Names a speaker to nobody who does not know whom to look for."""
    return hashlib.blake2b(speaker.encode(), salt=bytes.fromhex(salt), digest_size=16).hexdigest()


def past_purges(speaker: str, datasets: Sequence[Path | str]) -> list[dict[str, Any]]:
    """The records of purges of a speaker, of where datasets are published."""
    lines = [json.loads(line) for root in datasets for line in _recorded(root).splitlines()]
    return [line for line in lines if line["speaker"] == salted_hash(speaker, line["salt"])]


def _recorded(root: Path | str) -> str:
    try:
        return (open_store(str(root)).read(RECORD) if is_remote(root) else (Path(root) / RECORD).read_bytes()).decode()
    except FileNotFoundError:
        return ""

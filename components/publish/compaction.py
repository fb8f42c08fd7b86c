"""Compaction: what is left alive of shards that are mostly dead goes to new shards. Nothing is taken away.

Refreshes leave clips behind that no row asks for any more: of removed speakers, of recordings that were made anew.
They cost no reader anything but room. Where less than a share of a shard is alive, its live records are copied, byte
by byte, with their sums; a dataset that leads to the copies has the same rows, and so the same content and key. Older
versions go on leading to the old shards, until these are collected (components/publish/garbage_collection.py).
"""

import dataclasses
import os
import tempfile
from pathlib import Path

import numpy as np

from voxline.data.dataset import OFFSET, SHARD, SIZE, Dataset, Shard, shard_path
from voxline.data.rows import RecordLocations
from voxline.data.shard_writer import ShardWriter, read_cmvn_stats
from voxline.data.shards import SHARD_FILE as INDEX
from voxline.data.shards import ShardInfo, localize_shards, report_damage, upload_shard
from voxline.data.tfrecord import RECORD_OVERHEAD, DamagedRecordError, read_record_at


@dataclasses.dataclass(frozen=True)
class CompactedLayout:
    """A dataset's new layout.

    Attributes:
      shards, places: of the dataset.
      rewritten: shards whose live records were copied.
      bytes_alive: that were copied.
      bytes_dead: that this dataset leads to no more.
    """

    shards: list[Shard]
    places: RecordLocations
    rewritten: int
    bytes_alive: int
    bytes_dead: int


def compact_shards(dataset: Dataset, store: Path | str, seen_from: Path, dead: list[int]) -> CompactedLayout:
    """Writes new shards into the pool, for what is left alive of some.

    Args:
      seen_from: the folder in which the new list of shards will lie.
      dead: the numbers of the shards that the dataset is to lead to no more.
    """
    places = dataset.read_places()
    files = [dataset.file(shard) for shard in dataset.shards]
    localize_shards(file for number in dead for file in _files_of(files[number]))
    kept = sorted(set(range(len(files))) - set(dead))
    shards = [dataclasses.replace(dataset.shards[number], path=shard_path(files[number], seen_from)) for number in kept]
    moved = {number: position for position, number in enumerate(kept)}
    where: dict[tuple[int, int], tuple[int, int]] = {}
    for group in _groups(dataset, dead, max((shard.bytes for shard in dataset.shards), default=0)):
        new, begins = _copied(dataset, group, places, files, store)
        where |= {old: (len(shards), begin) for old, begin in begins.items()}
        count, live_bytes = len(new.clips), sum(new.sizes) + RECORD_OVERHEAD * len(new.clips)
        shards.append(Shard(shard_path(new.path, seen_from), count, new.bytes, count, live_bytes, new.checksum))
    laid = places.copy()
    for row, column in np.argwhere(places[..., SHARD] >= 0).tolist():
        number, offset = places[row, column, :SIZE].tolist()
        laid[row, column, :SIZE] = where[number, offset] if number not in moved else (moved[number], offset)
    alive = sum(shard.bytes for shard in shards[len(kept) :])
    return CompactedLayout(shards, laid, len(dead), alive, sum(dataset.shards[number].bytes for number in dead) - alive)


def _files_of(records: Path) -> list[Path]:
    """All files of a shard."""
    return [records, records.with_suffix(".npy"), records.parent / INDEX]


def _groups(dataset: Dataset, dead: list[int], limit: int) -> list[list[int]]:
    """Shards whose live records together fill one."""
    groups: list[list[int]] = []
    size = 0
    for number in dead:
        more = dataset.shards[number].live_bytes
        if not groups or size + more > limit:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += more
    return groups


def _copied(
    dataset: Dataset, group: list[int], places: RecordLocations, files: list[Path], store: Path | str
) -> tuple[ShardInfo, dict[tuple[int, int], int]]:
    """A new shard of what is alive of some; and where each record begins in it, by where it began in which shard."""
    pool = files[group[0]].parent.parent
    where: dict[tuple[int, int], int] = {}
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=pool) as unfinished:
        writer = ShardWriter(Path(unfinished), dataset.features.bins)
        for number in group:
            index = ShardInfo.read(files[number].parent)
            sums = read_cmvn_stats(files[number], len(index.clips), dataset.features.bins, index.sums_crc32c)
            live = set(places[places[..., SHARD] == number][:, OFFSET].tolist())
            file = os.open(files[number], os.O_RDONLY)
            try:
                for position, offset in enumerate(index.offsets):
                    if offset in live:
                        data = _record(file, offset, index.sizes[position], files[number])
                        where[number, offset] = writer.size
                        writer.add_record(index.clips[position], data, index.frames[position], sums[position])
            finally:
                os.close(file)
        new = writer.close(pool)
    upload_shard(new, store)
    return new, where


def _record(file: int, offset: int, size: int, path: Path) -> bytes:
    try:
        return read_record_at(file, offset, size, path)
    except DamagedRecordError as damage:
        raise report_damage(path, damage.what) from None

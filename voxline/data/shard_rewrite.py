"""Copying records from shards to new shards, and pointing a dataset at the copies.

A shard never changes. Compaction and purge write new shards with the records that they keep, byte by byte, and point
each dataset at these before the old shards may be deleted.
"""

import dataclasses
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from voxline.data.dataset import Dataset, Shard, shard_path
from voxline.data.record_locations import RecordLocations, count_live
from voxline.data.shard_writer import ShardWriter, read_cmvn_stats
from voxline.data.shards import ShardInfo, report_damage
from voxline.data.tfrecord import DamagedRecordError, read_record_at
from voxline.errors import WorkError


@dataclasses.dataclass(frozen=True)
class RewrittenShard:
    """The new places of the records of a rewritten shard.

    Attributes:
      shard: the new shard; None if no record was kept.
      offsets: byte offset of each kept record in the new shard, by its offset in the old one.
    """

    shard: ShardInfo | None
    offsets: dict[int, int]


RewrittenShards = Mapping[Path, RewrittenShard]
"""By the folder of the old shard."""


def copy_records(
    sources: Sequence[tuple[ShardInfo, Collection[int]]], shards_folder: Path, bins: int
) -> dict[Path, RewrittenShard]:
    """Copies records of some shards to one new shard. The same records give the same shard.

    Args:
      sources: shards, each with the offsets of the records to copy.
      shards_folder: the folder that gets the new shard's folder.
      bins: features per frame.

    Raises:
      WorkError: a shard is damaged.
    """
    # By shard, the new offset of each old one: a location in a dataset is mapped by both.
    offsets: dict[Path, dict[int, int]] = {info.folder: {} for info, _ in sources}
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=shards_folder) as unfinished:
        writer = ShardWriter(Path(unfinished), bins)
        for info, offsets_to_copy in sources:
            stats = read_cmvn_stats(info.path, len(info.clips), bins, info.stats_crc32c)

            # In the order of the source, so that the same records give the same shard and the same name.
            with open(info.path, "rb") as file:
                for number, offset in enumerate(info.offsets):
                    if offset in offsets_to_copy:
                        data = _read_record(file.fileno(), offset, info.sizes[number], info.path)
                        offsets[info.folder][offset] = writer.size
                        writer.add_record(info.clips[number], data, info.frames[number], stats[number])

        # A purge may remove every record of a shard; then there is nothing to replace it.
        if not len(writer):
            writer.discard()
            return {folder: RewrittenShard(None, {}) for folder in offsets}
        shard = writer.close(shards_folder)
    return {folder: RewrittenShard(shard, moved) for folder, moved in offsets.items()}


def remap_records(
    dataset: Dataset, locations: RecordLocations, rewritten: RewrittenShards, relative_to: Path
) -> tuple[list[Shard], RecordLocations]:
    """Points rows of a dataset at the new shards.

    Args:
      locations: of the rows to keep, `[rows, speeds]`.
      rewritten: the shards that were rewritten; all other shards stay.
      relative_to: the folder that will hold `dataset.json`.

    Returns:
      The dataset's list of shards and its record locations.

    Raises:
      WorkError: a row needs a record that was not kept.
    """
    remapped = locations.copy()
    shards: dict[Path, Shard] = {}
    positions: dict[Path, int] = {}
    for number in np.unique(locations["shard"][locations["shard"] >= 0]).tolist():
        # All locations in one old shard move together.
        old_shard = dataset.shards[number]
        in_shard = locations["shard"] == number
        file = dataset.file(old_shard)

        # An old shard that was not rewritten stays listed; only its number may change.
        if new := rewritten.get(file.parent):
            offsets = locations["offset"][in_shard].tolist()
            if new.shard is None or not new.offsets.keys() >= set(offsets):
                raise WorkError(
                    f"{dataset.folder}: a row needs a record of {file} that was not kept; the dataset was not changed"
                )
            remapped["offset"][in_shard] = [new.offsets[offset] for offset in offsets]
            file = new.shard.path
            info = new.shard
            shard = Shard("", len(info.clips), info.bytes, 0, 0, info.checksum)
        else:
            shard = old_shard

        # Several old shards may have been copied to one new shard, which is listed once.
        shards.setdefault(file, dataclasses.replace(shard, path=shard_path(file, relative_to)))
        remapped["shard"][in_shard] = positions.setdefault(file, len(positions))

    # Some records may have lost their last row.
    live, live_bytes = count_live(remapped, len(shards))
    listed = zip(shards.values(), live, live_bytes, strict=True)
    return [dataclasses.replace(shard, live=count, live_bytes=size) for shard, count, size in listed], remapped


def _read_record(file: int, offset: int, size: int, path: Path) -> bytes:
    try:
        return read_record_at(file, offset, size, path)
    except DamagedRecordError as damage:
        raise report_damage(path, damage.what) from None

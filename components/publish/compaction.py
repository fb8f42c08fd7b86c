"""Compaction: copies the live records of shards with a low live ratio to new shards. It deletes nothing.

Refreshes leave records behind that no row needs: of removed speakers, of recordings that were replaced. They only cost
space. Compaction points a dataset at copies of its live records. Rows, content and key stay the same. Older versions
still refer to the old shards until garbage collection deletes these.
"""

import dataclasses
from pathlib import Path

from voxline.data.dataset import Dataset, Shard
from voxline.data.record_locations import RecordLocations
from voxline.data.shard_rewrite import RewrittenShard, copy_records, remap_records
from voxline.data.shards import SHARD_FILE, ShardInfo, localize_shards, upload_shard


@dataclasses.dataclass(frozen=True)
class CompactedLayout:
    """A dataset's shards after compaction.

    Attributes:
      shards, locations: of the dataset.
      rewritten: the number of shards whose live records were copied.
      bytes_copied: to new shards.
      bytes_dropped: that the dataset no longer refers to.
    """

    shards: list[Shard]
    locations: RecordLocations
    rewritten: int
    bytes_copied: int
    bytes_dropped: int


def compact_shards(dataset: Dataset, store: Path | str, relative_to: Path, sparse: list[int]) -> CompactedLayout:
    """Copies the live records of some shards to new shards in the store.

    Args:
      relative_to: the folder that will hold `dataset.json`.
      sparse: the numbers of the shards to replace.
    """
    locations = dataset.read_record_locations()

    # In a bucket the records, their index and shard.json are downloaded together, and only those of these shards.
    files = {number: dataset.file(dataset.shards[number]) for number in sparse}
    localize_shards(
        file
        for records in files.values()
        for file in (records, records.with_suffix(".npy"), records.parent / SHARD_FILE)
    )

    # A shard's live records are those that this dataset refers to, by their byte offsets.
    rewritten: dict[Path, RewrittenShard] = {}
    for group in _groups(dataset, sparse):
        sources = [
            (ShardInfo.read(files[number].parent), set(locations["offset"][locations["shard"] == number].tolist()))
            for number in group
        ]
        rewritten |= copy_records(sources, files[group[0]].parent.parent, dataset.features.bins)

    # A group's sources share one new shard. The upload comes before anything refers to it.
    new = {part.shard.folder: part.shard for part in rewritten.values() if part.shard}
    for shard in new.values():
        upload_shard(shard, store)

    shards, locations = remap_records(dataset, locations, rewritten, relative_to)
    copied = sum(shard.bytes for shard in new.values())
    dropped = sum(dataset.shards[number].bytes for number in sparse) - copied
    return CompactedLayout(shards, locations, len(sparse), copied, dropped)


def _groups(dataset: Dataset, sparse: list[int]) -> list[list[int]]:
    """Groups shards whose live records together fill one shard of the largest size so far."""

    limit = max((shard.bytes for shard in dataset.shards), default=0)
    groups: list[list[int]] = []
    size = 0
    for number in sparse:
        live_bytes = dataset.shards[number].live_bytes
        # In the order of the shards, so that records of neighbours stay together.
        if not groups or size + live_bytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += live_bytes
    return groups

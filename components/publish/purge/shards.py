"""Shards without a speaker's clips: the others are copied to a new shard, byte by byte, and the old one is taken away.

A shard is never changed in place. Between the copy and the removal each dataset that leads to the old one is laid anew
(components/publish/purge/versions.py), so nobody is ever led to what is not there.
"""

import dataclasses
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from voxline.components.publish.purge.workspace import Workspace
from voxline.data.dataset import FRAMES, SHARD, SIZE, Dataset, Shard, shard_path
from voxline.data.rows import RecordLocations
from voxline.data.shard_writer import CmvnStats, ShardWriter
from voxline.data.shards import SHARD_FILE as INDEX
from voxline.data.shards import SHARDS_FOLDER, ShardInfo
from voxline.data.tfrecord import RECORD_OVERHEAD, read_record_at
from voxline.errors import WorkError
from voxline.store.bucket_cache import is_cached


@dataclasses.dataclass(frozen=True)
class RewrittenShard:
    """Where the clips of a shard are now.

    Attributes:
      shard: the new one; None where nothing was left.
      offsets: byte at which each record begins there, by where it began.
    """

    shard: ShardInfo | None
    offsets: dict[int, int]


Layout = Mapping[Path, RewrittenShard]
"""By the folder of the old shard."""


def list_pools(store: Path) -> list[Path]:
    return sorted(path for path in (store / SHARDS_FOLDER).glob("*") if path.is_dir())


def find_shards(store: Path, clips: set[str]) -> Iterator[tuple[ShardInfo, int]]:
    """The shards that hold some of these clips, and how many bytes of them."""
    for folder in sorted(file.parent for pool in list_pools(store) for file in pool.glob(f"[!.]*/{INDEX}")):
        index = ShardInfo.read(folder)
        sizes = [size + RECORD_OVERHEAD for clip, size in zip(index.clips, index.sizes, strict=True) if clip in clips]
        if sizes:
            yield index, sum(sizes)


def leftovers(store: Path, ground: Workspace) -> list[Path]:
    """What killed processes or damage left in the pools: it may hold anybody."""
    folders = [folder for pool in ground.folders(store / SHARDS_FOLDER) for folder in ground.folders(pool)]
    return [
        folder
        for folder in folders
        if folder.name.startswith(".") or (is_cached(folder) and not ground.exists(folder / INDEX))
    ]


def check_not_read(shards: Iterable[ShardInfo]) -> None:
    """Sees that no process of this machine has a shard open; who reads one in a bucket holds its store.

    Raises:
      WorkError: one does; it would go on reading what was removed.
    """
    for index in (index for index in shards if not is_cached(index.path)):
        file = os.open(index.path, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkError(
                f"{index.path}: a training reads it; stop that, or wait until it is over, and purge again"
            ) from None
        finally:
            os.close(file)


def rewrite_without(index: ShardInfo, clips: set[str], ground: Workspace) -> RewrittenShard:
    """Copies what is to stay of a shard to a new one in the same pool; the same one, when it is done again."""
    kept = [position for position, clip in enumerate(index.clips) if clip not in clips]
    if not kept:
        return RewrittenShard(None, {})
    ground.bring([index.path, index.path.with_suffix(".npy")])
    sums: CmvnStats = np.load(index.path.with_suffix(".npy"), allow_pickle=False)
    pool = index.folder.parent
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=pool) as unfinished:
        writer = ShardWriter(Path(unfinished), sums.shape[-1])
        file = os.open(index.path, os.O_RDONLY)
        try:
            for at in kept:
                data = read_record_at(file, index.offsets[at], index.sizes[at], index.path)
                writer.add_record(index.clips[at], data, index.frames[at], sums[at])
        finally:
            os.close(file)
        new = writer.close(pool)
    if (new.path).is_file():  # else this very shard is in the bucket already
        ground.sent_new(new.path, new.path.with_suffix(".npy"))
        ground.sent_new(new.folder / INDEX)
    return RewrittenShard(new, {index.offsets[old]: begin for old, begin in zip(kept, new.offsets, strict=True)})


def delete_shard(folder: Path, ground: Workspace) -> None:
    """Removes a folder at once for everybody who looks."""
    if is_cached(folder):
        ground.remove(folder)
        return
    gone = folder.rename(folder.with_name(f".gone-{folder.name}-{secrets.token_hex(4)}"))
    shutil.rmtree(gone)


def remap_dataset_records(
    dataset: Dataset, places: RecordLocations, layout: Layout, seen_from: Path
) -> tuple[list[Shard], RecordLocations]:
    """The list of shards and the places of some rows of a dataset, led to where their clips are now.

    Args:
      places: of the rows that stay.
      seen_from: the folder in which the list will lie.

    Raises:
      WorkError: one of the rows leads to a clip that was purged.
    """
    laid = places.copy()
    sources: dict[tuple[int, bool], int] = {}
    numbers: list[ShardInfo | Shard] = []
    for row, column in np.argwhere(places[..., SHARD] >= 0).tolist():
        number, offset = places[row, column, :SIZE].tolist()
        moved = layout.get(dataset.file(dataset.shards[number]).parent)
        if moved:
            if moved.shard is None or offset not in moved.offsets:
                raise WorkError(
                    f"{dataset.folder}: a row that stays leads to a clip that is to be purged, in "
                    f"{dataset.file(dataset.shards[number])}; nothing was removed from it"
                )
            offset = moved.offsets[offset]
        key = (number, moved is not None)
        if key not in sources:
            sources[key] = len(numbers)
            numbers.append(moved.shard if moved and moved.shard else dataset.shards[number])
        laid[row, column, :SIZE] = sources[key], offset
    records = np.unique(laid[laid[..., SHARD] >= 0][:, :FRAMES], axis=0)
    live = np.bincount(records[:, SHARD], minlength=len(numbers)).tolist()
    live_bytes = np.bincount(records[:, SHARD], records[:, SIZE] + RECORD_OVERHEAD, len(numbers)).astype(int).tolist()
    listed = []
    for shard, count, size in zip(numbers, live, live_bytes, strict=True):
        if isinstance(shard, ShardInfo):
            path, examples, checksum = shard_path(shard.path, seen_from), len(shard.clips), shard.checksum
        else:
            path, examples, checksum = shard_path(dataset.file(shard), seen_from), shard.examples, shard.checksum
        listed.append(Shard(path, examples, shard.bytes, count, size, checksum))
    return listed, laid

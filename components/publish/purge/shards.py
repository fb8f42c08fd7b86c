"""Shards without a speaker's clips: the others are copied to a new shard, byte by byte, and the old one is taken away.

A shard is never changed in place. Between the copy and the removal each dataset that leads to the old one is laid anew
(components/publish/purge/versions.py), so nobody is ever led to what is not there.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from voxline.components.publish.purge.workspace import Workspace
from voxline.data.shard_rewrite import RewrittenShard, copy_records
from voxline.data.shards import SHARD_FILE as INDEX
from voxline.data.shards import SHARDS_FOLDER, ShardInfo
from voxline.data.tfrecord import RECORD_OVERHEAD
from voxline.errors import WorkError
from voxline.store.bucket_cache import is_cached


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
    """Copies the records of all other clips to a new shard in the same folder. Repeated, it gives the same shard."""
    kept = {offset for clip, offset in zip(index.clips, index.offsets, strict=True) if clip not in clips}
    ground.bring([index.path, index.path.with_suffix(".npy")])
    bins = np.load(index.path.with_suffix(".npy"), allow_pickle=False, mmap_mode="r").shape[-1]
    rewritten = copy_records([(index, kept)], index.folder.parent, bins)[index.folder]
    if (new := rewritten.shard) and new.path.is_file():  # else the bucket has this very shard already
        ground.sent_new(new.path, new.path.with_suffix(".npy"))
        ground.sent_new(new.folder / INDEX)
    return rewritten


def delete_shard(folder: Path, ground: Workspace) -> None:
    """Removes a folder at once for everybody who looks."""
    if is_cached(folder):
        ground.remove(folder)
        return
    gone = folder.rename(folder.with_name(f".gone-{folder.name}-{secrets.token_hex(4)}"))
    shutil.rmtree(gone)

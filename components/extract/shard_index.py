"""Where in a pool of shards each clip lies, looked up for many clips at once."""

import contextlib
import dataclasses
import os
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.extract.line_cache import Digests16
from voxline.components.extract.manifest_scan import CLIP_DTYPE
from voxline.data.dataset import FRAMES, OFFSET, SHARD, SIZE, shard_path
from voxline.data.dataset import Shard as Listed
from voxline.data.rows import RecordLocations
from voxline.data.shards import SHARD_FILE as INDEX
from voxline.data.shards import ShardInfo, shards_folder, verify_shard
from voxline.data.tfrecord import RECORD_OVERHEAD
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import BucketCache, is_cached
from voxline.store.objects import is_remote

NUMBER, FOUND = 4, 5
"""Columns of what is found: those of places, and the number in the shard."""


@dataclasses.dataclass(frozen=True)
class PooledShard:
    """A shard, without the list of its clips."""

    path: Path
    examples: int
    bytes: int
    checksum: str
    sums_crc32c: int | None


class DamagedShardError(WorkError):
    """A shard of the pool is damaged, which shows only when it is read.

    Attributes:
      number: in the pool's list.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(what)
        self.number = number


class PoolIndex:
    """The shards of one kind of features.

    Shards that other processes add are seen after the next `refresh`; none ever changes.
    """

    def __init__(self, store: Path | str, features: FeatureSettings) -> None:
        self.store, self.folder = store, shards_folder(store, features)
        self.shards: list[PooledShard] = []
        self._aside: list[PooledShard] = []
        self._known: set[str] = set()
        self._names: Digests16 = np.empty(0, CLIP_DTYPE)
        self._places: RecordLocations = np.empty((0, FOUND), np.int64)
        self.refresh()

    def refresh(self) -> None:
        """Reads the indices of shards that were not there before."""
        try:
            found = (
                self._brought()
                if is_remote(self.store)
                else {entry.name for entry in os.scandir(self.folder) if not entry.name.startswith(".")}
            )
        except (FileNotFoundError, NotADirectoryError):
            return
        names, places = [self._names], [self._places]
        for name in sorted(found - self._known):
            if (index := self._whole(name)) is None:
                continue
            count = len(index.clips)
            names.append(np.frombuffer(bytes.fromhex("".join(index.clips)), CLIP_DTYPE))
            here = np.empty((count, FOUND), np.int64)
            here[:, SHARD], here[:, NUMBER] = len(self.shards), np.arange(count)
            here[:, OFFSET], here[:, SIZE], here[:, FRAMES] = index.offsets, index.sizes, index.frames
            places.append(here)
            self.shards.append(PooledShard(index.path, count, index.bytes, index.checksum, index.sums_crc32c))
            self._known.add(name)
        self._names, self._places = np.concatenate(names), np.concatenate(places)

    def _brought(self) -> set[str]:
        """Of a pool in a bucket, only which clips there are and where; they themselves stay there.

        What lies in the mirror alone counts for nothing: no other machine would find it.
        """
        mirror = BucketCache(self.store)
        below = self.folder.relative_to(mirror.root).as_posix()
        indices = [entry for entry in mirror.store.list(f"{below}/") if entry.name.endswith(f"/{INDEX}")]
        mirror.download(indices)
        return {entry.name.split("/")[-2] for entry in indices}

    def _whole(self, name: str) -> ShardInfo | None:
        """The index of a shard; one that is damaged is put aside, so that its clips are made again."""
        folder = self.folder / name
        try:
            index = ShardInfo.read(folder)
            damage = "" if is_cached(folder) else verify_shard(index.path, index.bytes)
        except NotADirectoryError:
            return None  # nothing of ours
        except (FileNotFoundError, WorkError) as error:
            damage = str(error)
        if not damage:
            return index
        self._put_aside(folder, damage)
        return None

    def put_aside(self, damage: DamagedShardError) -> None:
        """Forgets a shard, whose clips are missing then.

        Raises:
          DamagedShardError: it lies in a bucket, where none is put aside; or it was, and is damaged again.
        """
        shard = self.shards[damage.number]
        folder = shard.path.parent
        if is_cached(folder) or shard in self._aside:
            raise damage
        self._aside.append(shard)
        self._put_aside(folder, str(damage))
        kept = self._places[:, SHARD] != damage.number
        self._names, self._places = self._names[kept], self._places[kept]
        self._known.discard(folder.name)

    def _put_aside(self, folder: Path, damage: str) -> None:
        if folder.is_dir():
            print_status(f"extract: a shard is damaged, and its clips are made again: {damage}")
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                folder.rename(self.folder / f".damaged-{folder.name}-{secrets.token_hex(4)}")

    def find(self, clips: Digests16) -> RecordLocations:
        """Where each clip lies: `[*clips.shape, 5]`, shard -1 where it lies nowhere or is none.

        As a dataset's places, and last the clip's number in its shard.

        One that lies in several shards is taken from the shard of which most is wanted: after a compaction from the
        new one, so that nothing asks for the old any more.
        """
        places = np.full((*clips.shape, FOUND), -1, np.int64)
        if not len(self._names) or not clips.size:
            return places
        order = np.argsort(self._names, kind="stable")
        names = self._names[order]
        if (names[1:] == names[:-1]).any():
            order = order[np.argsort(-self._share_wanted(clips)[self._places[order, SHARD]], kind="stable")]
            order = order[np.argsort(self._names[order], kind="stable")]
        at = np.minimum(np.searchsorted(names, clips), len(names) - 1)
        there = (names[at] == clips) & (clips != b"")
        places[there] = self._places[order[at[there]]]
        return places

    def listed(self, places: RecordLocations, seen_from: Path) -> tuple[list[Listed], RecordLocations]:
        """The shards that places lead to, as dataset.json lists them; and the places, counting in that list."""
        there = places[..., SHARD] >= 0
        used, numbers = np.unique(places[there][:, SHARD], return_inverse=True)
        # By name, in whatever order they were seen.
        by_name = np.argsort([str(self.shards[number].path) for number in used.tolist()])
        used, numbers = used[by_name], np.argsort(by_name)[numbers]
        counted = places[..., :NUMBER].copy()
        counted[there, SHARD] = numbers
        # A clip that several utterances share is one record.
        records = np.unique(counted[there][:, :FRAMES], axis=0)
        live = np.bincount(records[:, SHARD], minlength=len(used)).tolist()
        live_bytes = np.bincount(records[:, SHARD], records[:, SIZE] + RECORD_OVERHEAD, len(used)).astype(int).tolist()
        shards = [self.shards[number] for number in used.tolist()]
        listed = [
            Listed(shard_path(shard.path, seen_from), shard.examples, shard.bytes, *alive, shard.checksum)
            for shard, alive in zip(shards, zip(live, live_bytes, strict=True), strict=True)
        ]
        return listed, counted

    def _share_wanted(self, clips: Digests16) -> npt.NDArray[np.float64]:
        """Of each shard, the share of its bytes that is among these clips."""
        wanted = np.isin(self._names, clips.ravel())
        shard, size = self._places[:, SHARD], self._places[:, SIZE]
        of_each = np.bincount(shard, size * wanted, len(self.shards))
        return of_each / np.maximum(np.bincount(shard, size, len(self.shards)), 1)

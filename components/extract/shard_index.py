"""An index of a pool of shards: where each clip is, looked up for many clips at once."""

import contextlib
import dataclasses
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.extract.manifest_scan import CLIP_DTYPE, Clips
from voxline.data.dataset import Shard, shard_path
from voxline.data.record_locations import RECORD_LOCATION, RecordLocations, count_live
from voxline.data.shards import SHARD_FILE, ShardInfo, shards_folder, verify_shard
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

CLIP_LOCATION = np.dtype([*RECORD_LOCATION.descr, ("number", np.int64)])
"""As RECORD_LOCATION, with the shard counted as in the pool, and the clip's number in its shard."""


@dataclasses.dataclass(frozen=True)
class PooledShard:
    """A shard, without the list of its clips."""

    path: Path
    examples: int
    bytes: int
    checksum: str
    stats_crc32c: int | None


class DamagedShardError(WorkError):
    """A shard of the pool is damaged, which shows only when it is read.

    Attributes:
      number: in the pool's list.
    """

    def __init__(self, number: int, fault: str) -> None:
        super().__init__(fault)
        self.number = number


class PoolIndex:
    """The shards of one kind of features.

    `refresh` adds shards that other processes have written since. A shard never changes.

    Attributes:
      shards: as locations count them.
    """

    def __init__(self, store: Path | str, features: FeatureSettings) -> None:
        self.store = store
        self.folder = shards_folder(store, features)
        self.shards: list[PooledShard] = []
        self._set_aside: list[PooledShard] = []  # each at most once: a second one means a disk that damages files
        self._known: set[str] = set()
        self._clips: Clips = np.empty(0, CLIP_DTYPE)
        self._locations: RecordLocations = np.empty(0, CLIP_LOCATION)
        self.refresh()

    def refresh(self) -> None:
        """Reads the indices of new shards."""
        try:
            if is_remote(self.store):
                names = self._download_indices()
            else:
                names = {entry.name for entry in os.scandir(self.folder) if not entry.name.startswith(".")}
        except (FileNotFoundError, NotADirectoryError):
            return

        clips = [self._clips]
        locations = [self._locations]

        # Sorted by name, so that all processes count the shards of the same pool alike.
        for name in sorted(names - self._known):
            if (shard := self._read(name)) is None:
                continue

            # Columns of all clips of the pool, in step with each other: names of 16 bytes, and locations.
            count = len(shard.clips)
            clips.append(np.frombuffer(bytes.fromhex("".join(shard.clips)), CLIP_DTYPE))
            added = np.empty(count, CLIP_LOCATION)
            added["shard"] = len(self.shards)
            added["number"] = np.arange(count)
            added["offset"] = shard.offsets
            added["size"] = shard.sizes
            added["frames"] = shard.frames

            locations.append(added)
            self.shards.append(PooledShard(shard.path, count, shard.bytes, shard.checksum, shard.stats_crc32c))
            self._known.add(name)

        self._clips = np.concatenate(clips)
        self._locations = np.concatenate(locations)

    def _download_indices(self) -> set[str]:
        """Downloads the indices of a pool in a bucket, and no records. Returns the shards' names.

        A shard that is only in the bucket cache does not count: no other machine would find it.
        """
        store = open_store(self.store)
        below = self.folder.relative_to(store.local_path()).as_posix()
        indices = [entry for entry in store.list(f"{below}/") if entry.name.endswith(f"/{SHARD_FILE}")]
        store.pull(indices)
        return {entry.name.split("/")[-2] for entry in indices}

    def _read(self, name: str) -> ShardInfo | None:
        """The index of a shard. A damaged shard is set aside, and its clips are made again."""
        # In a bucket only the index is here; its records are verified when they are downloaded.
        folder = self.folder / name
        try:
            shard = ShardInfo.read(folder)
            damage = "" if is_remote(self.store) else verify_shard(shard.path, shard.bytes)
        except NotADirectoryError:
            return None  # not a shard
        except (FileNotFoundError, WorkError) as error:
            damage = str(error)
        if not damage:
            return shard
        self._move_aside(folder, damage)
        return None

    def set_aside(self, damage: DamagedShardError) -> None:
        """Forgets a damaged shard, so that its clips are missing.

        Raises:
          DamagedShardError: the shard is in a bucket, where none is set aside, or its replacement is damaged too.
        """
        shard = self.shards[damage.number]
        folder = shard.path.parent
        if is_remote(self.store) or shard in self._set_aside:
            raise damage

        # The shard keeps its number, as locations count by it; without clips nothing refers to it.
        self._set_aside.append(shard)
        self._move_aside(folder, str(damage))
        keep = self._locations["shard"] != damage.number
        self._clips = self._clips[keep]
        self._locations = self._locations[keep]
        self._known.discard(folder.name)

    def _move_aside(self, folder: Path, damage: str) -> None:
        if folder.is_dir():
            print_status(f"extract: a shard is damaged, and its clips are made again: {damage}")
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                folder.rename(self.folder / f".damaged-{folder.name}-{secrets.token_hex(4)}")

    def find(self, clips: Clips) -> RecordLocations:
        """The location of each clip, of dtype CLIP_LOCATION and the shape of `clips`; shard -1 where there is none.

        A clip that is in several shards is taken from the one of which the largest share is wanted: after a compaction
        from the new one, so that nothing needs the old one any more.
        """
        locations = np.full(clips.shape, -1, CLIP_LOCATION)
        if not len(self._clips) or not clips.size:
            return locations

        # A binary search for all clips at once, in the names in sorted order. By their first halves, which are numbers:
        # to compare texts takes four times as long.
        names: npt.NDArray[Any] = _first_halves(self._clips)
        requested: npt.NDArray[Any] = _first_halves(clips)
        order = np.argsort(names, kind="stable")
        sorted_names = names[order]

        # By whole names where a clip is in several shards, or other names have the same half. Stable sorts, the second
        # one by name: among equal names the shard with the largest wanted share comes first.
        if (sorted_names[1:] == sorted_names[:-1]).any():
            order = np.argsort(-self._wanted_share(clips)[self._locations["shard"]], kind="stable")
            order = order[np.argsort(self._clips[order], kind="stable")]
            sorted_names = self._clips[order]
            requested = clips

        # `searchsorted` finds the first of equal names. Past the end it names no clip, so the last one is compared.
        at = order[np.minimum(np.searchsorted(sorted_names, requested), len(sorted_names) - 1)]
        exists = (self._clips[at] == clips) & (clips != b"")
        locations[exists] = self._locations[at[exists]]
        return locations

    def list_shards(self, locations: RecordLocations, relative_to: Path) -> tuple[list[Shard], RecordLocations]:
        """The shards that hold some clips, as dataset.json lists them; and the locations, counted in that list."""
        # By path, so that dataset.json does not depend on the order in which this pool was filled.
        exists = locations["shard"] >= 0
        is_used = np.bincount(locations["shard"][exists], minlength=len(self.shards)) > 0
        used = np.flatnonzero(is_used)
        numbers = (np.cumsum(is_used) - 1)[locations["shard"][exists]]
        by_name = np.argsort([str(self.shards[number].path) for number in used.tolist()])
        used = used[by_name]
        numbers = np.argsort(by_name)[numbers]

        listed = locations[list(RECORD_LOCATION.names or ())].astype(RECORD_LOCATION)
        listed["shard"][exists] = numbers
        live, live_bytes = count_live(listed, len(used))

        pooled = [self.shards[number] for number in used.tolist()]
        shards = [
            Shard(shard_path(shard.path, relative_to), shard.examples, shard.bytes, count, size, shard.checksum)
            for shard, count, size in zip(pooled, live, live_bytes, strict=True)
        ]
        return shards, listed

    def _wanted_share(self, clips: Clips) -> npt.NDArray[np.float64]:
        """Returns for each shard the share of its bytes that is among these clips."""
        # [clips of the pool]; np.isin would import numpy.ma, and take four times as long.
        names = np.sort(clips.ravel())
        is_wanted = names[np.minimum(np.searchsorted(names, self._clips), len(names) - 1)] == self._clips

        # [shards], from columns that have a value for each clip of the pool.
        shard = self._locations["shard"]
        size = self._locations["size"]
        wanted_bytes = np.bincount(shard, size * is_wanted, len(self.shards))
        return wanted_bytes / np.maximum(np.bincount(shard, size, len(self.shards)), 1)


def _first_halves(clips: Clips) -> npt.NDArray[np.uint64]:
    """The first 8 bytes of each name, as numbers in the order of the names."""
    halves = np.ascontiguousarray(clips).view(">u8").reshape(*clips.shape, -1)
    return halves[..., 0].astype(np.uint64)

"""Plans which new clips go into which new shard, before any audio is read.

Clips are ordered by the hash of the utterance's id, which mixes speakers, chapters and lengths, and cut where a shard
is full. A shard holds clips of one split and one speed. So utterances that are removed together share shards only by
chance, and a copy at another speed is not next to its original. A recording longer than a shard has one to itself.
Existing shards are never changed.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.extract.manifest_scan import Clips, ScannedManifest
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import write_manifest
from voxline.data.shards import shard_name

SPLITS = ("train", "dev", "test")

ATTEMPTS_FOLDER = "attempts"
"""Subfolder of the unfinished work for the notes of `note_clips`."""


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard to write. It is small, since runners send it from process to process.

    Attributes:
      shard: its name if no recording fails.
      speed: of the clips.
      manifest: its utterances, in order. A file, or gs://… for workers on other machines.
      utterances: their number.
      bytes: size of the features, roughly.
    """

    shard: str
    speed: float
    manifest: Path | str
    number: int
    of: int
    utterances: int
    bytes: int


def plan_shards(
    scan: ScannedManifest, missing: npt.NDArray[np.bool_], settings: ExtractSettings, folder: Path
) -> list[ShardTask]:
    """The shards to write, in a fixed order.

    Args:
      missing: `[utterances, speeds]`, the clips that no shard has.
      folder: for the manifests.
    """
    groups = list(_group_clips(scan, missing, settings))
    tasks = []
    for number, (column, members) in enumerate(groups, start=1):
        # The name follows from the clips, so that a worker which finds the shard in the pool has nothing to do.
        name = shard_name(scan.clip(member, column) for member in members)
        manifest = folder / f"{name}.jsonl"
        write_manifest(manifest, scan.utterances(members))

        size = sum(_feature_bytes(scan.seconds[member], settings.speeds[column], settings) for member in members)
        tasks.append(ShardTask(name, settings.speeds[column], manifest, number, len(groups), len(members), int(size)))
    return tasks


def _group_clips(
    scan: ScannedManifest, missing: npt.NDArray[np.bool_], settings: ExtractSettings
) -> Iterator[tuple[int, list[int]]]:
    """(column of the speed, utterances) of each shard. Of utterances that share a clip, the first represents all."""
    # Hashed once an utterance, for all speeds.
    hashes = {number: _hash_order(scan.ids[number]) for number in np.flatnonzero(missing.any(axis=1)).tolist()}
    if not hashes:
        return

    # Utterances with equal audio share a clip, which is written once.
    first = np.stack([_first_of_each(scan.clips[:, column]) for column in range(len(settings.speeds))], axis=1)
    for split in sorted(set(scan.splits), key=split_rank):
        for column in range(len(settings.speeds)):
            wanted = missing[:, column] & first[:, column]
            clips = [n for n in np.flatnonzero(wanted).tolist() if scan.splits[n] == split]

            # Full is a shard that the next clip would make larger than the setting; a single clip may be.
            members: list[int] = []
            size = 0.0
            for number in sorted(clips, key=hashes.__getitem__):
                more = _feature_bytes(scan.seconds[number], settings.speeds[column], settings)
                if members and size + more > settings.shard_megabytes * 1e6:
                    yield column, members
                    members = []
                    size = 0.0

                members.append(number)
                size += more
            if members:
                yield column, members


def _first_of_each(names: Clips) -> npt.NDArray[np.bool_]:
    """Marks the first of equal names. `np.unique` would import `numpy.ma`."""
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    first = np.ones(len(names), bool)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first


def _feature_bytes(seconds: float, speed: float, settings: ExtractSettings) -> float:
    how = settings.features
    # float32, so 4 bytes a value.
    return how.count_frames(int(seconds / speed * how.sample_rate)) * how.bins * 4.0


def split_rank(split: str) -> tuple[int, str]:
    """Sort key of a split."""
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)


def _hash_order(identity: str) -> bytes:
    # The id breaks a tie of two hashes, so that the order is definite.
    return hashlib.blake2b(identity.encode(), digest_size=8).digest() + identity.encode()

"""Writes a shard (voxline/data/shards.py) outside its folder of shards, and moves it there by one rename."""

import dataclasses
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from voxline.data.shards import REBUILD_SHARD_HINT, SHARD_FILE, ShardInfo, shard_name
from voxline.data.tfrecord import encode_example, write_tfrecord
from voxline.errors import WorkError
from voxline.store.files import atomic_write, write_text
from voxline.store.hashing import HASH_CHARACTERS
from voxline.store.size_limits import load_npy

FeatureArray = npt.NDArray[np.float32]
CmvnStats = npt.NDArray[np.float64]


class ShardWriter:
    """Writes one shard; `close` moves it to its folder of shards.

    Args:
      unfinished: a folder on the same disk; what a killed process leaves there is not a shard.
    """

    def __init__(self, unfinished: Path, bins: int) -> None:
        # A random name: two processes may write the same shard at the same time.
        self._folder = unfinished / f"shard-{secrets.token_hex(6)}"
        self._bins = bins
        self._clips: list[str] = []
        self._offsets = list[int]()
        self._sizes = list[int]()
        self._frames = list[int]()
        self._sums: list[CmvnStats] = []
        self._size = 0
        self._folder.mkdir(parents=True)
        self._file = _Hashing(open(self._folder / "records", "wb"))  # noqa: SIM115 -- closed in close or discard

    def __len__(self) -> int:
        return len(self._clips)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._size

    def add(self, clip: str, features: FeatureArray, speed: float = 1.0) -> None:
        """Appends a clip's features `[frames, bins]`."""
        data = encode_example(
            {
                "clip": clip.encode(),
                "features": features.astype("<f4", copy=False).tobytes(),
                "frames": len(features),
                "speed": speed,
            }
        )
        self.add_record(clip, data, len(features), compute_cmvn_stats(features))

    def add_record(self, clip: str, data: bytes, frames: int, sums: CmvnStats) -> None:
        """Appends a record of another shard, unchanged."""
        self._clips.append(clip)
        self._offsets.append(self._size)
        self._sizes.append(len(data))
        self._frames.append(frames)
        self._sums.append(sums)
        self._size += write_tfrecord(self._file, data)

    def close(self, shards: Path) -> ShardInfo:
        """Moves the shard to a folder of shards, or discards it if another process has just written the same one."""
        # Files are named by content, so a reader's cached copy of a bucket can never be an older one.
        checksum = self._file.close()
        stem = checksum[:16]
        target = shards / shard_name(self._clips)
        os.replace(self._folder / "records", self._folder / f"{stem}.tfrecord")

        # float64 `[clips, 2, bins]`
        sums = io.BytesIO()
        np.save(sums, np.stack(self._sums) if self._sums else np.zeros((0, 2, self._bins)), allow_pickle=False)
        with atomic_write(self._folder / f"{stem}.npy") as file:
            file.write(sums.getvalue())
        index = ShardInfo(
            target,
            f"{stem}.tfrecord",
            self._size,
            checksum,
            self._clips,
            self._offsets,
            self._sizes,
            self._frames,
            google_crc32c.value(sums.getvalue()),
        )
        values = {field.name: getattr(index, field.name) for field in dataclasses.fields(index)}
        del values["folder"]

        # `shard.json` is written last: with it the shard is complete.
        write_text(self._folder / SHARD_FILE, json.dumps(values) + "\n")
        shards.mkdir(parents=True, exist_ok=True)
        try:
            # The rename is atomic. A folder that exists was written from the same clips.
            self._folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(self._folder)
            return ShardInfo.read(target)
        return index

    def discard(self) -> None:
        """Deletes what was written."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def compute_cmvn_stats(features: FeatureArray) -> CmvnStats:
    """The sum of each bin over the frames, and of its square: float64 `[2, bins]` (Kaldi's compute-cmvn-stats)."""
    # float64: the sum of a million squares in float32 would lose the small differences.
    exact = features.astype(np.float64)
    return np.stack([exact.sum(axis=0), np.einsum("fb,fb->b", exact, exact)])


def read_cmvn_stats(records: Path, examples: int, bins: int, crc32c: int | None) -> CmvnStats:
    """Reads the statistics of a shard's clips, `[examples, 2, bins]`.

    Raises:
      WorkError: the file is absent or damaged.
    """
    path = records.with_suffix(".npy")
    try:
        data = path.read_bytes()

        # Shards of an earlier version have no checksum.
        if crc32c not in (None, google_crc32c.value(data)):
            raise ValueError("its checksum does not match")
        sums: CmvnStats = load_npy(data, str(path))
        if sums.shape != (examples, 2, bins):
            raise ValueError(f"{sums.shape}, and {(examples, 2, bins)} is expected")
    except (OSError, EOFError, ValueError) as error:
        raise WorkError(f"{path}: damaged or absent ({error}); {REBUILD_SHARD_HINT}") from None
    return sums


class _Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def close(self) -> str:
        """Flushes the file to the disk. Returns the hash."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._hash.hexdigest()

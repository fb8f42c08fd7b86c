"""Shards: immutable files of features, each clip named by what its features were made of.

  <store>/shards/<how features are made>/<shard>/shard.json           which clips it holds, and where in the file
                                                 <checksum>.tfrecord  their features
                                                 <checksum>.npy       float64 [clips, 2, bins]: the sum of each bin
                                                                      over the frames, and of its square

A clip is some audio at one speed: no text, speaker, split or id is part of it, so a corrected transcript makes no
new clip. Which clips a dataset has is in its rows. A record is a `tf.train.Example` of

  clip      bytes   its name, 32 hexadecimal digits
  features  bytes   float32 [frames, bins], little-endian
  frames    int64
  speed     float   1.0; other where the audio was sped up or slowed down to augment

A shard's folder appears by one rename, so it is there whole or not at all, and nothing in it ever changes.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from components.speech.errors import WorkError
from components.speech.feature_settings import FeatureSettings
from components.speech.mirror import bring, folder_of, send
from components.speech.records import encode_example, write_record
from components.speech.storage import HASH_CHARACTERS, hash_bytes, hash_value, read_json, whole_file, write_text

POOL, SHARD = "shards", "shard.json"
REVISION = 1
"""Raised whenever the features of a clip change for the same audio and settings."""

Array = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]


def pool_folder(store: Path | str, features: FeatureSettings) -> Path:
    """Where shards of features that are made in this way lie."""
    return folder_of(store) / POOL / hash_value({"revision": REVISION, "features": features.plain()})


@contextlib.contextmanager
def pool_held(pool: Path, *, alone: bool = False) -> Iterator[None]:
    """Holds a pool: together with others who add to it or look clips up, or alone, to take shards away.

    Raises:
      WorkError: it is wanted alone, and somebody holds it.
    """
    if not alone:
        pool.mkdir(parents=True, exist_ok=True)
    with open(pool / ".lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            raise WorkError(f"{pool}: a process is adding to these shards; try again when it is done") from None
        yield


def clip_name(audio_hash: str, offset: float, duration: float, speed: float) -> str:
    """Names a clip, within a pool, by the audio that its features are made of."""
    return hash_bytes(f"{audio_hash} {float(offset)!r} {float(duration)!r} {float(speed)!r}".encode())


def shard_name(clips: Iterable[str]) -> str:
    return hash_bytes("\n".join(clips).encode())


@dataclasses.dataclass(frozen=True)
class ShardIndex:
    """What `shard.json` says.

    Attributes:
      folder: of the shard; not written.
      file: the file of records, in that folder.
      bytes, checksum: of that file.
      clips: names, in the order of the records.
      offsets: byte at which each record begins.
      sizes: bytes of each record's data.
      frames: of each clip.
    """

    folder: Path
    file: str
    bytes: int
    checksum: str
    clips: list[str]
    offsets: list[int]
    sizes: list[int]
    frames: list[int]

    @property
    def path(self) -> Path:
        return self.folder / self.file

    @classmethod
    def read(cls, folder: Path) -> "ShardIndex":
        """Reads the index of a shard.

        Raises:
          FileNotFoundError: there is no such shard.
          WorkError: the index is damaged.
        """
        try:
            return cls(folder, **read_json(folder / SHARD))
        except (ValueError, TypeError) as error:
            raise WorkError(f"{folder / SHARD}: damaged ({error}); delete that folder and run extract again") from None


class ShardWriter:
    """Writes one shard; `close` puts it into its pool.

    Args:
      unfinished: a folder on the pool's disk; what a killed process leaves there is no shard.
    """

    def __init__(self, unfinished: Path, bins: int) -> None:
        self._folder = unfinished / f"shard-{secrets.token_hex(6)}"
        self._bins = bins
        self._clips: list[str] = []
        self._offsets, self._sizes, self._frames = list[int](), list[int](), list[int]()
        self._sums: list[Sums] = []
        self._size = 0
        self._folder.mkdir(parents=True)
        self._file = _Hashing(open(self._folder / "records", "wb"))  # noqa: SIM115 -- closed in close or discard

    def __len__(self) -> int:
        return len(self._clips)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._size

    def add(self, clip: str, features: Array, speed: float = 1.0) -> None:
        """Appends a clip's features `[frames, bins]`."""
        data = encode_example(
            {
                "clip": clip.encode(),
                "features": features.astype("<f4", copy=False).tobytes(),
                "frames": len(features),
                "speed": speed,
            }
        )
        self.add_record(clip, data, len(features), sums_of(features))

    def add_record(self, clip: str, data: bytes, frames: int, sums: Sums) -> None:
        """Appends a record as it stands in another shard."""
        self._clips.append(clip)
        self._offsets.append(self._size)
        self._sizes.append(len(data))
        self._frames.append(frames)
        self._sums.append(sums)
        self._size += write_record(self._file, data)

    def close(self, pool: Path) -> ShardIndex:
        """Puts the shard into the pool, or discards it where another process has just put the same one there."""
        checksum = self._file.close()
        stem, target = checksum[:16], pool / shard_name(self._clips)
        os.replace(self._folder / "records", self._folder / f"{stem}.tfrecord")
        with whole_file(self._folder / f"{stem}.npy") as file:
            np.save(file, np.stack(self._sums) if self._sums else np.zeros((0, 2, self._bins)), allow_pickle=False)
        index = ShardIndex(
            target,
            f"{stem}.tfrecord",
            self._size,
            checksum,
            self._clips,
            self._offsets,
            self._sizes,
            self._frames,
        )
        values = {field.name: getattr(index, field.name) for field in dataclasses.fields(index)}
        del values["folder"]
        write_text(self._folder / SHARD, json.dumps(values) + "\n")
        pool.mkdir(parents=True, exist_ok=True)
        try:
            self._folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(self._folder)
            return ShardIndex.read(target)
        return index

    def discard(self) -> None:
        """Removes what was written."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def sums_of(features: Array) -> Sums:
    """The sum of each bin over the frames, and of its square: float64 `[2, bins]`."""
    exact = features.astype(np.float64)
    return np.stack([exact.sum(axis=0), np.einsum("fb,fb->b", exact, exact)])


def present(files: Iterable[Path]) -> None:
    """Makes files of shards present before they are read: the one door through which readers go."""
    bring(files)


def send_shard(index: ShardIndex, store: Path | str) -> None:
    """Sends a shard to a store that lies in a bucket, its index last: without one it is no shard."""
    send([index.path, index.path.with_suffix(".npy")], store)
    send([index.folder / SHARD], store)


class _Hashing:
    """A file that hashes what is written to it, so that it need not be read again."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def close(self) -> str:
        """Returns the hash, when all of the file is on the disk."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._hash.hexdigest()

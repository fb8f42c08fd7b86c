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
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from components.speech.claim import opened_lock
from components.speech.errors import WorkError
from components.speech.feature_settings import FeatureSettings
from components.speech.mirror import bring, folder_of, send
from components.speech.storage import hash_bytes, hash_value, read_json

POOL, SHARD = "shards", "shard.json"
REVISION = 1
"""Raised whenever the features of a clip change for the same audio and settings."""


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
    lock = opened_lock(pool / ".lock")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            raise WorkError(f"{pool}: a process is adding to these shards; try again when it is done") from None
        yield
    finally:
        os.close(lock)


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
      sums_crc32c: CRC-32C of the file of sums; none in shards of an earlier version of Voxline.
    """

    folder: Path
    file: str
    bytes: int
    checksum: str
    clips: list[str]
    offsets: list[int]
    sizes: list[int]
    frames: list[int]
    sums_crc32c: int | None = None

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


def present(files: Iterable[Path]) -> None:
    """Makes files of shards present before they are read: the one door through which readers go."""
    bring(files)


def send_shard(index: ShardIndex, store: Path | str) -> None:
    """Sends a shard to a store that lies in a bucket, its index last: without one it is no shard."""
    send([index.path, index.path.with_suffix(".npy")], store)
    send([index.folder / SHARD], store)

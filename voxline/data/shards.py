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

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import WorkError
from voxline.store.bucket_cache import ensure_local, is_cached, local_path, upload_new
from voxline.store.files import open_lock_file, read_json, write_text
from voxline.store.hashing import hash_bytes, hash_file, hash_value

SHARDS_FOLDER, SHARD_FILE = "shards", "shard.json"
REVISION = 1
"""Raised whenever the features of a clip change for the same audio and settings."""


def shards_folder(store: Path | str, features: FeatureSettings) -> Path:
    """Where shards of features that are made in this way lie."""
    return local_path(store) / SHARDS_FOLDER / hash_value({"revision": REVISION, "features": features.plain()})


@contextlib.contextmanager
def lock_shards(pool: Path, *, alone: bool = False) -> Iterator[None]:
    """Holds a pool: together with others who add to it or look clips up, or alone, to take shards away.

    Raises:
      WorkError: it is wanted alone, and somebody holds it.
    """
    if not alone:
        pool.mkdir(parents=True, exist_ok=True)
    lock = open_lock_file(pool / ".lock")
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
class ShardInfo:
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
    def read(cls, folder: Path) -> "ShardInfo":
        """Reads the index of a shard.

        Raises:
          FileNotFoundError: there is no such shard.
          WorkError: the index is damaged.
        """
        try:
            return cls(folder, **read_json(folder / SHARD_FILE))
        except (ValueError, TypeError) as error:
            raise WorkError(
                f"{folder / SHARD_FILE}: damaged ({error}); delete that folder and run extract again"
            ) from None


def localize_shards(files: Iterable[Path]) -> None:
    """Makes files of shards present before they are read: the one door through which readers go."""
    ensure_local(files)


def upload_shard(index: ShardInfo, store: Path | str) -> None:
    """Sends a shard to a store that lies in a bucket, its index last: without one it is no shard."""
    upload_new([index.path, index.path.with_suffix(".npy")], store)
    upload_new([index.folder / SHARD_FILE], store)


DAMAGE_FILE = "damaged"
REBUILD_SHARD_HINT = "run extract again (`voxline run refresh` does), which makes its clips anew"


def verify_shard(records: Path, size: int) -> str:
    """In words, what can be seen to be wrong with a shard on a disk of ours; empty where nothing.

    Args:
      records: its file of records.
      size: bytes of that file.
    """
    sums, index, note = records.with_suffix(".npy"), records.parent / SHARD_FILE, records.parent / DAMAGE_FILE
    try:
        found = records.stat()
        if found.st_size != size:
            return f"{records}: cut short, {found.st_size:,} of {size:,} bytes"
        youngest, told = max(found.st_mtime_ns, sums.stat().st_mtime_ns), index.stat().st_mtime_ns
        if note.exists():
            return f"{records}: damaged, as one who read it found ({note.read_text(encoding='utf-8').strip()})"
        return _looked_into(records) if youngest > told else ""
    except FileNotFoundError as error:
        return f"{error.filename}: absent"
    except (OSError, WorkError) as error:
        return str(error)


def report_damage(records: Path, what: str) -> WorkError:
    """What to raise where a record turns out to be damaged; leaves a note for the next extraction."""
    if is_cached(records):
        return WorkError(f"{records}: damaged {what}; delete that copy of what lies in the bucket, and start again")
    with contextlib.suppress(OSError):  # a store that may only be read
        write_text(records.parent / DAMAGE_FILE, f"{what}\n")
    return WorkError(f"{records}: damaged {what}; {REBUILD_SHARD_HINT}")


def _looked_into(records: Path) -> str:
    """Reads all of a shard, of which something is younger than its index."""
    import google_crc32c  # not at the top: who only looks whether shards are there needs none

    index = ShardInfo.read(records.parent)
    if hash_file(records) != index.checksum:
        return f"{records}: written to since it was made"
    if index.sums_crc32c not in (None, google_crc32c.value(records.with_suffix(".npy").read_bytes())):
        return f"{records.with_suffix('.npy')}: written to since it was made"
    with contextlib.suppress(OSError):  # it was only copied; a store that may only be read is looked at each time
        os.utime(index.folder / SHARD_FILE)
    return ""

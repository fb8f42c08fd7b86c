"""Shards: immutable files of features. The name of a clip is the hash of its audio.

  <store>/shards/<feature settings>/<shard>/shard.json           its clips, and the position of each in the file
                                            <checksum>.tfrecord  their features
                                            <checksum>.npy       float64 [clips, 2, bins]: the sum of each bin over
                                                                 the frames, and of its square

A clip is some audio at one speed. Text, speaker, split and id are not part of it, so a corrected transcript makes no
new clip. The rows of a dataset say which clips it has. A record is a `tf.train.Example` of

  clip      bytes   its name, 32 hexadecimal digits
  features  bytes   float32 [frames, bins], little-endian
  frames    int64
  speed     float   1.0; another one for copies that augment training

A shard's folder appears by one rename, so it is whole or absent, and nothing in it ever changes.
"""

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.json_codec import parse_json
from voxline.errors import WorkError
from voxline.store.bucket_cache import is_cached
from voxline.store.file_locks import open_lock_file
from voxline.store.files import write_text
from voxline.store.hashing import hash_bytes, hash_file, hash_value
from voxline.store.localize import ensure_local
from voxline.store.objects import open_store
from voxline.store.size_limits import read_bounded
from voxline.store.uris import is_remote

SHARDS_FOLDER = "shards"
SHARD_FILE = "shard.json"
REVISION = 1
"""Raise it when the features of a clip change for the same audio and settings."""


def shards_folder(store: Path | str, features: FeatureSettings) -> Path:
    """The folder of the shards with these feature settings."""
    return (
        open_store(store).local_path()
        / SHARDS_FOLDER
        / hash_value({"revision": REVISION, "features": features.key_values()})
    )


@contextlib.contextmanager
def lock_shards(folder: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Locks a folder of shards: shared to add or look up clips, exclusive to delete shards.

    Raises:
      WorkError: an exclusive lock is wanted, and another process has a lock.
    """
    # A lock file needs its folder, but an exclusive lock must not create a folder of shards that nobody has.
    if not exclusive:
        folder.mkdir(parents=True, exist_ok=True)
    lock = open_lock_file(folder / ".lock")
    try:
        try:
            # A process that adds waits for a deletion to end; one that deletes gives up, since adding may take hours.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            raise WorkError(f"{folder}: a process is adding to these shards; try again when it is done") from None
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def lock_all_shards(store: Path | str) -> Iterator[None]:
    """Locks all shards of a store on a disk, to delete some. In a bucket the lock of the store is all there is.

    Raises:
      WorkError: another process has a lock.
    """
    with contextlib.ExitStack() as stack:
        if not is_remote(store):
            for folder in sorted(Path(store, SHARDS_FOLDER).glob("*/")):
                stack.enter_context(lock_shards(folder, exclusive=True))
        yield


def name_in_store(shard: Path) -> str:
    """Returns the name of a shard in any store. The same shard has other paths where a link leads to its store.

    >>> name_in_store(Path("/data/store/shards/3f/9a"))
    'shards/3f/9a'
    """
    return f"{SHARDS_FOLDER}/{shard.parent.name}/{shard.name}"


def clip_name(audio_hash: str, offset: float, duration: float, speed: float) -> str:
    """The name of a clip: the hash of the audio that its features are computed from."""
    # `repr` of a float is exact: two speeds that print alike are still two clips.
    return hash_bytes(f"{audio_hash} {float(offset)!r} {float(duration)!r} {float(speed)!r}".encode())


def shard_name(clips: Iterable[str]) -> str:
    """The name of a shard: the hash of its clips' names."""
    return hash_bytes("\n".join(clips).encode())


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """The content of `shard.json`.

    Attributes:
      folder: of the shard; not written.
      file: the file of records, in that folder.
      bytes, checksum: of that file.
      clips: names, in the order of the records.
      offsets: byte at which each record begins.
      sizes: bytes of each record's data.
      frames: of each clip.
      stats_crc32c: CRC-32C of the file of sums; None in shards of an earlier version.
    """

    folder: Path
    file: str
    bytes: int
    checksum: str
    clips: list[str]
    offsets: list[int]
    sizes: list[int]
    frames: list[int]
    stats_crc32c: int | None = None

    @property
    def path(self) -> Path:
        return self.folder / self.file

    @classmethod
    def read(cls, folder: Path) -> "ShardInfo":
        """Reads the `shard.json` of a folder.

        Raises:
          FileNotFoundError: the shard does not exist.
          WorkError: the file is damaged.
        """
        try:
            return cls(folder, **parse_json(read_bounded(folder / SHARD_FILE)))
        except (ValueError, TypeError) as error:
            raise WorkError(
                f"{folder / SHARD_FILE}: damaged ({error}); delete that folder and run extract again"
            ) from None


def localize_shards(files: Iterable[Path]) -> None:
    """Downloads files of shards that are in a bucket; every reader calls this first."""
    ensure_local(files)


def upload_shard(info: ShardInfo, store: Path | str) -> None:
    """Uploads a shard to a store in a bucket; `shard.json` comes last, since it makes the shard complete."""
    objects = open_store(store)
    objects.upload_new([info.path, info.path.with_suffix(".npy")])
    objects.upload_new([info.folder / SHARD_FILE])


DAMAGE_FILE = "damaged"
REBUILD_SHARD_HINT = "run extract again (`voxline run refresh` does), which computes its clips again"


def verify_shard(records: Path, size: int) -> str:
    """Describes the damage of a shard on this machine; empty if there is none.

    Reads the whole shard only if a file is newer than `shard.json`.

    Args:
      records: the file of records.
      size: bytes of that file.
    """
    # Paths as text: of the time that this takes for every shard of a dataset, objects of them would be the half.
    folder = os.path.dirname(records)
    note = f"{folder}/{DAMAGE_FILE}"
    try:
        status = records.stat()
        if status.st_size != size:
            return f"{records}: cut short, {status.st_size:,} of {size:,} bytes"

        # `shard.json` is the newest file of a shard that nobody touched since it was verified.
        newest = max(status.st_mtime_ns, _changed_at(f"{folder}/{records.stem}.npy"))
        verified = _changed_at(f"{folder}/{SHARD_FILE}")
        if os.path.lexists(note):
            noted = Path(note).read_text(encoding="utf-8").strip()
            return f"{records}: damaged, as an earlier reader noted ({noted})"
        return _verify_content(records) if newest > verified else ""
    except FileNotFoundError as error:
        return f"{error.filename}: absent"
    except (OSError, WorkError) as error:
        return str(error)


def _changed_at(path: str) -> int:
    return os.stat(path).st_mtime_ns  # noqa: PTH116 - as text


def report_damage(records: Path, part: str) -> WorkError:
    """The error to raise for a damaged record; leaves a note for the next extraction."""
    # In a cache the note would go with the copy; the object in the bucket is what must be replaced.
    if is_cached(records):
        return WorkError(f"{records}: damaged {part}; delete this copy of the object in the bucket, and start again")
    with contextlib.suppress(OSError):  # a read-only store
        write_text(records.parent / DAMAGE_FILE, f"{part}\n")
    return WorkError(f"{records}: damaged {part}; {REBUILD_SHARD_HINT}")


def _verify_content(records: Path) -> str:
    """Compares a shard with its checksums."""
    import google_crc32c  # not at the top: checking whether shards exist does not need it

    info = ShardInfo.read(records.parent)
    if hash_file(records) != info.checksum:
        return f"{records}: changed since it was written"
    if info.stats_crc32c not in (None, google_crc32c.value(records.with_suffix(".npy").read_bytes())):
        return f"{records.with_suffix('.npy')}: changed since it was written"
    with contextlib.suppress(OSError):  # it was only copied; a read-only store is compared each time
        os.utime(info.folder / SHARD_FILE)
    return ""

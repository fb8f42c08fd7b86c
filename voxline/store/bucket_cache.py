"""A mirror of buckets on this machine: steps read and write files, and what they need is brought, what they made sent.

`gs://bucket/a/b` is `<mirror>/bucket/a/b`, whoever asks: so a path that a manifest gives relative to itself leads to
the same recording in every pod, and a file's own path says of which object it is the copy. The mirror holds nothing
that counts: it may be deleted whenever no process works in it.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from voxline.errors import TransientError, WorkError
from voxline.store.bucket import Bucket
from voxline.store.files import DONE, read_json
from voxline.store.objects import ObjectInfo, is_remote

CACHE_ENV = "VOXLINE_MIRROR"
"""Names the folder; else it is `voxline-mirror` where temporary files go."""

_APART, _LOCK = ".apart-", ".lock"


_apart: list[Path] = []


def cache_root() -> Path:
    """The folder of the mirror; it need not be there yet."""
    return (
        _apart[-1]
        if _apart
        else Path(os.environ.get(CACHE_ENV) or Path(tempfile.gettempdir(), "voxline-mirror")).absolute()
    )


@contextlib.contextmanager
def private_cache() -> Iterator[Path]:
    """Lets this process have a mirror of its own, which goes when the block ends; one that a killed one left goes too.

    Yields:
      The mirror that this machine has besides.
    """
    usual = _ours(cache_root())
    for left in usual.glob(f"{_APART}*"):
        with open(left / _LOCK, "ab") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_APART, dir=usual))
    with open(folder / _LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _apart.append(folder / "mirror")
        try:
            yield usual
        finally:
            _apart.pop()
            shutil.rmtree(folder, ignore_errors=True)


class BucketCache:
    """The local copy of a folder in a bucket.

    Attributes:
      bucket: that folder.
      root: the local one.
    """

    def __init__(self, uri: str) -> None:
        self.bucket = Bucket(uri)
        self.root = _ours(cache_root()) / self.bucket.bucket / self.bucket.prefix

    @classmethod
    def of(cls, uri: Path | str) -> "BucketCache":
        """The mirror of `gs://bucket/folder`.

        Raises:
          SettingsError: it is no such place.
          WorkError: the mirror's folder is somebody else's.
        """
        return cls(str(uri))

    def pull(self, names: Iterable[str | ObjectInfo]) -> None:
        """Brings objects; files that hold those bytes already stay.

        Raises:
          WorkError: one is not there; then nothing was brought.
        """
        self.bucket.download(names, self.root)

    def pull_below(self, prefix: str = "", *, without: Iterable[str] = ()) -> list[ObjectInfo]:
        """Brings all objects whose names begin with the prefix, but for those that begin with one of the others."""
        passed_over = tuple(without)
        entries = [entry for entry in self.bucket.list(prefix) if not entry.name.startswith(passed_over)]
        self.pull(entries)
        return entries

    def push(self, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Sends files. Returns the objects of these names as they are now.

        Args:
          absent_only: objects that are there stay, whatever they hold.
        """
        return self.bucket.upload(self.root, names, absent_only=absent_only)


def local_path(place: Path | str) -> Path:
    """The folder on this machine that stands for a place; nothing is brought there."""
    return BucketCache.of(place).root if is_remote(place) else Path(place).absolute()


def is_cached(path: Path) -> bool:
    """Whether a file is the copy of an object."""
    return path.is_relative_to(cache_root()) and path != cache_root()


def uri_of(path: Path | str) -> str:
    """Where a file lies for all machines: `gs://…` of what is in the mirror, else the path itself.

    >>> uri_of("/data/corpus")
    '/data/corpus'
    """
    path = Path(path).absolute()
    return f"gs://{path.relative_to(cache_root()).as_posix()}" if is_cached(path) else str(path)


def localize(place: Path | str, *, without: Iterable[str] = ()) -> Path:
    """A place that can be read here: what lies in a bucket is brought first.

    Args:
      place: a file or folder, on this machine or in a bucket. A folder of finished work stands for the attempt that
        counts.
      without: what is not brought, by how its names begin, relative to the folder.

    Raises:
      WorkError: nothing is there.
    """
    if not is_remote(place):
        return Path(place)
    mirror, passed_over = BucketCache.of(place), tuple(without)
    if attempt := _attempt(mirror):
        return localize(f"{mirror.bucket.uri}/{attempt}", without=passed_over)
    if mirror.pull_below(without=passed_over):
        return mirror.root
    parent, _, name = mirror.bucket.uri.rpartition("/")
    if not mirror.bucket.prefix or not Bucket(parent).stat(name):
        raise WorkError(f"{place}: there is nothing in the bucket; mend the address, or run the step that makes it")
    BucketCache.of(parent).pull([name])
    return mirror.root


def ensure_local(paths: Iterable[Path | str]) -> None:
    """Makes those of the files present that belong to the mirror and are not here; all others are left as they are.

    One that is not in its bucket either stays absent: whoever reads it says so.
    """
    absent: dict[str, list[str]] = {}
    for path in map(Path, paths):
        if is_cached(path) and not path.exists():
            bucket, *name = path.relative_to(cache_root()).parts
            absent.setdefault(bucket, []).append(str(PurePosixPath(*name)))
    for bucket, names in absent.items():
        _bring(BucketCache.of(f"gs://{bucket}"), list(dict.fromkeys(names)))


def upload_new(paths: Iterable[Path | str], store: Path | str) -> None:
    """Sends files below a remote store that are not there yet; their names name their content, so none is replaced.

    Files that lie elsewhere, as all do where the store is a folder, are left alone. What another machine was quicker to
    send counts for this one too (floating point differs between processors), and takes the file's place.
    """
    if not is_remote(store):
        return
    mirror = BucketCache.of(store)
    below = [Path(path) for path in paths if Path(path).is_relative_to(mirror.root)]
    mirror.pull(mirror.push(sorted({path.relative_to(mirror.root).as_posix() for path in below}), absent_only=True))


def _bring(mirror: BucketCache, names: list[str]) -> None:
    try:
        mirror.pull(names)
    except TransientError:
        raise
    except WorkError:  # one is not there; the others are wanted all the same
        wanted = set(names)
        below = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        mirror.pull([entry for entry in mirror.bucket.list(below) if entry.name in wanted])


def _attempt(mirror: BucketCache) -> str:
    """Which attempt counts, of work whose folder this is; empty: it is no such folder."""
    if not mirror.bucket.prefix or not mirror.bucket.stat(DONE):
        return ""
    mirror.pull([DONE])
    try:
        return str(read_json(mirror.root / DONE).get("attempt", ""))
    except (ValueError, AttributeError) as error:
        raise WorkError(
            f"{mirror.bucket.place(DONE)}: damaged ({error}); run the step that made it again, which replaces it"
        ) from None


def _ours(folder: Path) -> Path:
    """The folder, made if need be. Where all may write, nobody else must be able to lay files under our hands."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.environ.get(CACHE_ENV) or _apart:  # chosen by a person: a volume of a pod may well be root's
        return folder
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise WorkError(f"{folder}: the mirror must be a folder of whoever runs this; set {CACHE_ENV} to another one")
    return folder

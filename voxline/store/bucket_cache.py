"""The bucket cache: local copies of objects, so that step code reads and writes files.

`gs://bucket/a/b` is `<cache>/gs/bucket/a/b` in every process. So a path that a manifest gives relative to itself leads
to the same recording in every pod, and a file's own path says which object it is a copy of. The cache can be deleted
whenever no process uses it.
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
from voxline.store.files import DONE, read_json
from voxline.store.objects import ObjectInfo, is_remote, open_store, scheme_of, split_uri

CACHE_ENV = "VOXLINE_MIRROR"
"""The variable that sets the folder; else it is `voxline-mirror` in the folder of temporary files."""

_PRIVATE, _LOCK = ".private-", ".lock"


_private: list[Path] = []


def cache_root() -> Path:
    """The folder of the cache; it may not exist yet."""
    if _private:
        return _private[-1]
    return Path(os.environ.get(CACHE_ENV) or Path(tempfile.gettempdir(), "voxline-mirror")).absolute()


@contextlib.contextmanager
def private_cache() -> Iterator[Path]:
    """Gives this process a cache of its own, deleted when the block ends; those that killed processes left go too.

    Yields:
      The usual cache of this machine.
    """
    usual = _checked(cache_root())
    for left in usual.glob(f"{_PRIVATE}*"):
        with open(left / _LOCK, "ab") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=usual))
    with open(folder / _LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _private.append(folder / "cache")
        try:
            yield usual
        finally:
            _private.pop()
            shutil.rmtree(folder, ignore_errors=True)


class BucketCache:
    """The local copy of a folder in a bucket.

    Attributes:
      store: that folder.
      root: the local one.
    """

    def __init__(self, uri: Path | str) -> None:
        self.store = open_store(uri)
        bucket, prefix = split_uri(self.store.uri)
        self.root = _checked(cache_root()) / scheme_of(self.store.uri) / bucket / prefix

    def download(self, objects: Iterable[str | ObjectInfo]) -> None:
        """Downloads objects; files that hold those bytes already stay.

        Raises:
          WorkError: one does not exist; then nothing was downloaded.
        """
        self.store.download(objects, self.root)

    def download_below(self, prefix: str = "", *, without: Iterable[str] = ()) -> list[ObjectInfo]:
        """Downloads all objects whose names begin with the prefix, except those that begin with one of `without`."""
        excluded = tuple(without)
        infos = [info for info in self.store.list(prefix) if not info.name.startswith(excluded)]
        self.download(infos)
        return infos

    def upload(self, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Uploads files. Returns the objects of these names as they are now.

        Args:
          absent_only: objects that exist stay, whatever they hold.
        """
        return self.store.upload(self.root, names, absent_only=absent_only)


def local_path(uri: Path | str) -> Path:
    """The folder on this machine of a folder or bucket URI; nothing is downloaded."""
    return BucketCache(uri).root if is_remote(uri) else Path(uri).absolute()


def is_cached(path: Path) -> bool:
    """Whether a file is the copy of an object."""
    return path.is_relative_to(cache_root()) and path != cache_root()


def uri_of(path: Path | str) -> str:
    """What a file is called on all machines: the URI of a copy in the bucket cache, else the path itself.

    >>> uri_of("/data/corpus")
    '/data/corpus'
    """
    path = Path(path).absolute()
    if not is_cached(path):
        return str(path)
    scheme, *names = path.relative_to(cache_root()).parts
    return f"{scheme}://{'/'.join(names)}"


def localize(uri: Path | str, *, without: Iterable[str] = ()) -> Path:
    """A path that can be read here; what is in a bucket is downloaded first.

    Args:
      uri: a file or folder, on this machine or in a bucket. The folder of a finished step stands for the attempt that
        counts.
      without: objects that begin so, relative to the folder, are not downloaded.

    Raises:
      WorkError: there is nothing.
    """
    if not is_remote(uri):
        return Path(uri)
    cache, excluded = BucketCache(uri), tuple(without)
    if attempt := _attempt(cache):
        return localize(cache.store.uri_of(attempt), without=excluded)
    if cache.download_below(without=excluded):
        return cache.root
    parent, _, name = cache.store.uri.rpartition("/")
    if not split_uri(cache.store.uri)[1] or not open_store(parent).stat(name):
        raise WorkError(f"{uri}: there is nothing in the bucket; correct the URI, or run the step that makes it")
    BucketCache(parent).download([name])
    return cache.root


def ensure_local(paths: Iterable[Path | str]) -> None:
    """Downloads those files of the bucket cache that are not here yet; other paths are left as they are.

    A file that is not in its bucket either stays absent: the code that reads it reports that.
    """
    absent: dict[str, list[str]] = {}
    for path in map(Path, paths):
        if is_cached(path) and not path.exists():
            scheme, bucket, *name = path.relative_to(cache_root()).parts
            absent.setdefault(f"{scheme}://{bucket}", []).append(str(PurePosixPath(*name)))
    for uri, names in absent.items():
        _download_existing(BucketCache(uri), list(dict.fromkeys(names)))


def upload_new(paths: Iterable[Path | str], store: Path | str) -> None:
    """Uploads files below a remote store that are not there yet; their names name their content, so none is replaced.

    Files elsewhere are left alone, as are all where the store is a folder. If another machine was faster, its bytes
    count (floating point differs between processors) and replace the file.
    """
    if not is_remote(store):
        return
    cache = BucketCache(store)
    below = [Path(path) for path in paths if Path(path).is_relative_to(cache.root)]
    cache.download(cache.upload(sorted({path.relative_to(cache.root).as_posix() for path in below}), absent_only=True))


def _download_existing(cache: BucketCache, names: list[str]) -> None:
    try:
        cache.download(names)
    except TransientError:
        raise
    except WorkError:  # one does not exist; the others are wanted nevertheless
        wanted = set(names)
        below = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        cache.download([info for info in cache.store.list(below) if info.name in wanted])


def _attempt(cache: BucketCache) -> str:
    """The attempt that counts, of the folder of a finished step; empty for other folders."""
    if not split_uri(cache.store.uri)[1] or not cache.store.stat(DONE):
        return ""
    cache.download([DONE])
    try:
        return str(read_json(cache.root / DONE).get("attempt", ""))
    except (ValueError, AttributeError) as error:
        raise WorkError(
            f"{cache.store.uri_of(DONE)}: damaged ({error}); run the step that made it again, which replaces it"
        ) from None


def _checked(folder: Path) -> Path:
    """The folder, made if need be. In a folder that all may write, nobody else must be able to place files in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.environ.get(CACHE_ENV) or _private:  # chosen by a person: a volume of a pod may well be root's
        return folder
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise WorkError(f"{folder}: the bucket cache must be a folder of this user; set {CACHE_ENV} to another one")
    return folder

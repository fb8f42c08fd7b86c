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
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from voxline.errors import TransientError, WorkError
from voxline.store.files import DONE, read_json
from voxline.store.objects import ObjectStore, is_remote, open_store, scheme_of, split_uri

CACHE_ENV = "VOXLINE_BUCKET_CACHE"
"""The variable that sets the folder; else it is `voxline-bucket-cache` in the folder of temporary files."""

_PRIVATE, _LOCK = ".private-", ".lock"


_private: list[Path] = []


def cache_root() -> Path:
    """The folder of the cache; it may not exist yet."""
    if _private:
        return _private[-1]
    return Path(os.environ.get(CACHE_ENV) or Path(tempfile.gettempdir(), "voxline-bucket-cache")).absolute()


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


def local_path(uri: Path | str) -> Path:
    """The folder on this machine of a folder or bucket URI; nothing is downloaded."""
    if not is_remote(uri):
        return Path(uri).absolute()
    bucket, prefix = split_uri(str(uri))
    return _checked(cache_root()) / scheme_of(uri) / bucket / prefix


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
    store, excluded = open_store(uri), tuple(without)
    if attempt := _attempt(store):
        return localize(store.uri_of(attempt), without=excluded)
    if objects := [info for info in store.list() if not info.name.startswith(excluded)]:
        store.pull(objects)
        return store.local_path()
    parent, _, name = store.uri.rpartition("/")
    if not split_uri(store.uri)[1] or not open_store(parent).stat(name):
        raise WorkError(f"{uri}: there is nothing in the bucket; correct the URI, or run the step that makes it")
    open_store(parent).pull([name])
    return store.local_path()


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
        _pull_existing(open_store(uri), list(dict.fromkeys(names)))


def upload_new(paths: Iterable[Path | str], store: Path | str) -> None:
    """Uploads files below a remote store that are not there yet; their names name their content, so none is replaced.

    Files elsewhere are left alone, as are all where the store is a folder. If another machine was faster, its bytes
    count (floating point differs between processors) and replace the file.
    """
    if not is_remote(store):
        return
    remote = open_store(store)
    root = remote.local_path()
    below = [Path(path) for path in paths if Path(path).is_relative_to(root)]
    remote.pull(remote.push(sorted({path.relative_to(root).as_posix() for path in below}), absent_only=True))


def _pull_existing(store: ObjectStore, names: list[str]) -> None:
    try:
        store.pull(names)
    except TransientError:
        raise
    except WorkError:  # one does not exist; the others are wanted nevertheless
        wanted = set(names)
        below = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        store.pull([info for info in store.list(below) if info.name in wanted])


def _attempt(store: ObjectStore) -> str:
    """The attempt that counts, of the folder of a finished step; empty for other folders."""
    if not split_uri(store.uri)[1] or not store.stat(DONE):
        return ""
    store.pull([DONE])
    try:
        return str(read_json(store.local_path(DONE)).get("attempt", ""))
    except (ValueError, AttributeError) as error:
        raise WorkError(
            f"{store.uri_of(DONE)}: damaged ({error}); run the step that made it again, which replaces it"
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

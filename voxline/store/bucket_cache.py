"""The bucket cache: local copies of objects, so that step code reads and writes files.

`gs://bucket/a/b` is `<cache>/gs/bucket/a/b` in every process. So a path that a manifest gives relative to itself leads
to the same recording in every pod, and a file's own path says which object it is a copy of. The cache can be deleted
whenever no process uses it.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from voxline.errors import WorkError
from voxline.store.uris import is_remote, scheme_of, split_uri

CACHE_ENV = "VOXLINE_BUCKET_CACHE"
"""The variable that sets the folder; else it is `voxline-bucket-cache` in the folder of temporary files."""

_PRIVATE = ".private-"
_LOCK = ".lock"


_private: list[Path] = []


def cache_root() -> Path:
    """The folder of the cache; it may not exist yet."""
    if _private:
        return _private[-1]
    root = os.environ.get(CACHE_ENV) or f"{tempfile.gettempdir()}/voxline-bucket-cache"
    return _absolute_path(root, "" if root.startswith("/") else str(Path.cwd()))


@functools.lru_cache(maxsize=8)
def _absolute_path(path: str, folder: str) -> Path:
    """Kept, as each shard of a dataset asks for it, and to build a `Path` takes longer than all else of it."""
    return Path(folder, path)


@contextlib.contextmanager
def private_cache() -> Iterator[Path]:
    """Gives this process a cache of its own, deleted when the block ends; those that killed processes left go too.

    Yields:
      The usual cache of this machine.
    """
    usual = _checked(cache_root())

    # A private cache whose lock is free belongs to no process any more.
    for left in usual.glob(f"{_PRIVATE}*"):
        with open(left / _LOCK, "ab") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    # Locked before anything is in it, for as long as the block lasts.
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
    """The folder on this machine of a folder or bucket URI, without `..`, as manifests and datasets name their files.

    Nothing is downloaded.
    """
    if not is_remote(uri):
        return Path(os.path.abspath(uri))
    bucket, prefix = split_uri(str(uri))
    return _checked(cache_root()) / scheme_of(uri) / bucket / prefix


def is_cached(path: Path) -> bool:
    """Returns whether a file or folder is the copy of an object, or of a bucket's folder."""
    # Scheme and bucket at least: the cache's own folder is no copy of anything.
    root, file = str(cache_root()).rstrip("/") + "/", str(path)
    return file.startswith(root) and file.find("/", len(root)) > 0


def uri_of(path: Path | str) -> str:
    """Returns the name of a file that holds on all machines: the URI of a cached copy, else the path itself.

    >>> uri_of("/data/corpus")
    '/data/corpus'
    """
    path = Path(os.path.abspath(path))
    if not is_cached(path):
        return str(path)
    scheme, *names = path.relative_to(cache_root()).parts
    return f"{scheme}://{'/'.join(names)}"


def _checked(folder: Path) -> Path:
    """The folder, made if need be. In a folder that all may write, nobody else must be able to place files in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.environ.get(CACHE_ENV) or _private:  # chosen by a person: a volume of a pod may well be root's
        return folder

    # Another user could place a folder here first, and change what is downloaded to it.
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise WorkError(f"{folder}: the bucket cache must be a folder of this user; set {CACHE_ENV} to another one")
    return folder

"""Downloads of what is in a bucket, so that step code reads files of this machine."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from voxline.errors import TransientError, WorkError
from voxline.store.bucket_cache import cache_root, is_cached
from voxline.store.files import DONE, read_json
from voxline.store.objects import ObjectStore, open_store
from voxline.store.uris import is_remote, split_uri


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

    store = open_store(uri)
    excluded = tuple(without)
    # A finished step names the attempt that counts; its folder alone holds those of all.
    if attempt := _attempt(store):
        return localize(store.uri_of(attempt), without=excluded)
    if objects := [info for info in store.list() if not info.name.startswith(excluded)]:
        store.pull(objects)
        return store.local_path()

    # No folder of this name: an object, or nothing.
    parent, _, name = store.uri.rpartition("/")
    if not split_uri(store.uri)[1] or not open_store(parent).stat(name):
        raise WorkError(f"{uri}: there is nothing in the bucket; correct the URI, or run the step that makes it")
    open_store(parent).pull([name])
    return store.local_path()


def ensure_local(paths: Iterable[Path | str]) -> None:
    """Downloads those files of the bucket cache that are not here yet; other paths are left as they are.

    A file that is not in its bucket either stays absent: the code that reads it reports that.
    """
    # By bucket: one listing or a few requests for all of its files.
    absent: dict[str, list[str]] = {}
    for path in map(Path, paths):
        if is_cached(path) and not path.exists():
            scheme, bucket, *name = path.relative_to(cache_root()).parts
            absent.setdefault(f"{scheme}://{bucket}", []).append(str(PurePosixPath(*name)))
    for uri, names in absent.items():
        _pull_existing(open_store(uri), list(dict.fromkeys(names)))


def _pull_existing(store: ObjectStore, names: list[str]) -> None:
    try:
        store.pull(names)
    except TransientError:
        raise
    except WorkError:  # one does not exist; the others are wanted nevertheless
        requested = set(names)
        below = os.path.commonprefix(names)  # noqa: RUF071 - as buckets list them, character by character
        store.pull([info for info in store.list(below) if info.name in requested])


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

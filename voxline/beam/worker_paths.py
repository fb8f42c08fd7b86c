"""What workers on other machines call a file: its URI in a bucket, its path on a disk that all machines mount.

The process that waits for a pipeline turns paths into URIs before it describes the work; a worker turns them back, into
paths of its own machine.
"""

from collections.abc import Iterable
from pathlib import Path

from voxline.store.bucket_cache import local_path, uri_of
from voxline.store.localize import ensure_local


def worker_uri(path: Path | str) -> str:
    """The URI of a file in the bucket cache; of another file, its path."""
    return uri_of(path)


def worker_path(uri: str) -> Path:
    """Returns the path of a file or folder on this machine. Nothing is downloaded."""
    return local_path(uri)


def fetch_files(uris: Iterable[str]) -> list[Path]:
    """The files on this machine; those that are absent are downloaded. One that is gone stays absent."""
    paths = [local_path(uri) for uri in uris]
    ensure_local(paths)
    return paths

"""What buckets keep of a speaker after a purge: older object versions, which are deleted too, and soft-deleted objects.

A store that keeps no older versions lists none, so a disk needs no case of its own.
"""

import dataclasses
import time
from collections.abc import Collection
from typing import Any

from voxline.errors import TransientError, WorkError
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ObjectInfo


@dataclasses.dataclass(frozen=True)
class Retention:
    """The rules by which a bucket keeps deleted objects.

    Attributes:
      place: the bucket URI.
      known: whether the bucket's policy could be read.
      versioning: it keeps older versions.
      soft_until: UTC, until when it keeps what is deleted now; empty if it does not.
      removed: older versions of the speaker's objects that were deleted.
      left: those that could not be deleted.
      others: older versions of other objects, which nobody searched.
    """

    place: str
    known: bool
    versioning: bool
    soft_until: str
    removed: int = 0
    left: int = 0
    others: int = 0

    def plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def retention_of(uri: str) -> Retention:
    """Returns what a bucket keeps of objects that are deleted now."""
    policy = open_store(uri).retention_policy()
    if policy is None:
        return Retention(uri, False, False, "")
    # Buckets count from the deletion, so from now on.
    soft_until = format_utc(time.time() + policy.soft_delete_seconds) if policy.soft_delete_seconds else ""
    return Retention(uri, True, policy.versioning, soft_until)


def delete_old_versions(uri: str, changed_uris: Collection[str]) -> Retention:
    """Deletes older versions of what a purge removed or changed, and parts of unfinished uploads, where permitted.

    Args:
      uri: of the bucket.
      changed_uris: of files and folders.
    """
    store = open_store(uri)
    try:
        store.abort_uploads()  # of killed processes: their parts may hold anybody's clips
    except TransientError:
        raise
    except WorkError as error:
        print_status(f"purge: what unfinished uploads have left stays: {error}")

    speaker_versions: list[ObjectInfo] = []
    other_count = 0
    for info in store.object_versions():
        if _is_below(store.uri_of(info.name), changed_uris):
            speaker_versions.append(info)
        # Locks and claims of processes come and go; they hold nobody's data.
        elif not info.name.startswith((".alone", ".working/")):
            other_count += 1

    deleted = sum(store.map(lambda info: _try_delete(store, info), speaker_versions))
    return dataclasses.replace(
        retention_of(uri), removed=deleted, left=len(speaker_versions) - deleted, others=other_count
    )


def _try_delete(store: ObjectStore, info: ObjectInfo) -> bool:
    try:
        store.delete_version(info)
    except TransientError:
        raise
    except WorkError:  # no permission, or a hold: the record says how many are left
        return False
    return True


def _is_below(uri: str, folders: Collection[str]) -> bool:
    """Returns whether a URI is one of these or below one of them.

    >>> _is_below("gs://b/wavs/3f/3f9a.wav", {"gs://b/wavs/3f/3f9a.wav"}), _is_below("gs://b/ab", {"gs://b/a"})
    (True, False)
    """
    # A look-up for each folder above it: there may be millions of URIs, and thousands of folders.
    end = len(uri)
    while end > 0:
        if uri[:end] in folders:
            return True
        end = uri.rfind("/", 0, end)
    return False

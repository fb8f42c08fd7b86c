"""What buckets keep of a speaker after a purge: older generations, which go too, and what is softly deleted."""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

from voxline.components.publish.purge.footprint import Footprint
from voxline.components.publish.purge.locations import PurgeLocations
from voxline.errors import TransientError, WorkError
from voxline.registry.journal import format_utc
from voxline.store.objects import ObjectInfo, ObjectStore, open_store


@dataclasses.dataclass(frozen=True)
class Retention:
    """What a place in a bucket keeps.

    Attributes:
      place: its address.
      known: whether the bucket could be asked what it does with what is deleted.
      versioning: it keeps older generations.
      soft_until: UTC, until when it keeps what is deleted now; empty: it does not.
      removed: older generations of what was theirs, that went.
      left: of these, that could not be deleted.
      others: older generations of other objects, into which nobody looked.
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


def retention_of(place: str) -> Retention:
    """What a bucket does with what is deleted, before anything is."""
    found = open_store(place).retention_policy()
    if found is None:
        return Retention(place, False, False, "")
    soft = format_utc(time.time() + found.soft_delete_seconds) if found.soft_delete_seconds else ""
    return Retention(place, True, found.versioning, soft)


def delete_old_versions(places: PurgeLocations, traces: Footprint) -> list[Retention]:
    """Removes the older generations of all that was the speaker's, as far as that is permitted."""
    found = []
    for place in places.in_buckets():
        bucket = open_store(place)
        theirs: list[ObjectInfo] = []
        others = 0
        for entry in bucket.object_versions():
            if _is_below(bucket.uri_of(entry.name), traces.touched):
                theirs.append(entry)
            elif not entry.name.startswith((".alone", ".working/")):
                others += 1
        gone = _deleted(bucket, theirs)
        found.append(dataclasses.replace(retention_of(place), removed=gone, left=len(theirs) - gone, others=others))
    return found


def _deleted(bucket: ObjectStore, entries: Iterable[ObjectInfo]) -> int:
    def delete(entry: ObjectInfo) -> bool:
        try:
            bucket.delete_version(entry)
        except TransientError:
            raise
        except WorkError:  # a permission, a hold: it is told how many are left
            return False
        return True

    return sum(bucket.map(delete, entries))


def _is_below(address: str, touched: set[str]) -> bool:
    """Whether an object is one of these, or in a folder that is.

    >>> _is_below("gs://b/wavs/3f/3f9a.wav", {"gs://b/wavs/3f/3f9a.wav"}), _is_below("gs://b/ab", {"gs://b/a"})
    (True, False)
    """
    at = len(address)
    while at > 0:
        if address[:at] in touched:
            return True
        at = address.rfind("/", 0, at)
    return False

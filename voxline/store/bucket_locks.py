"""A store in a bucket, held together with others who add to it, or alone, to take away from it.

  .working/<random>   of each who adds; a lease that its holder renews
  .alone              of the one who takes away: a purge or a collection
  .purged             when the last purge ended: what a process has read before that may hold who was removed

Each writes its own object first and looks for the other kind then, so at least one of two sees the other. Who finds a
lease that was not renewed for its whole time removes it; age is told by the storage's clock alone, from one object to
another. A holder that slept meanwhile learns of it when it asks, which it does before it decides anything.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from voxline.errors import PreconditionError, WorkError
from voxline.progress import print_status
from voxline.store.bucket import Bucket
from voxline.store.gcs_client import gcs_connection
from voxline.store.objects import ObjectInfo, is_remote


@contextlib.contextmanager
def exclusive_lease(bucket: Bucket, name: str, waiting: str) -> Iterator[None]:
    """Holds the lock of this name.

    Args:
      waiting: is said where another one holds it.

    Raises:
      WorkError: the bucket cannot be written.
    """
    with hold_lease(bucket, name, waiting):
        yield


@contextlib.contextmanager
def hold_lease(bucket: Bucket, name: str, waiting: str = "") -> Iterator["Lease"]:
    """As `exclusive_lease`, for who wants to know whether it still has the lock."""
    holder = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
    held = Lease(bucket, name, holder, _taken(bucket, name, holder, waiting))
    renewing = threading.Thread(target=held.renew, daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        held.ended.set()
        renewing.join()
        held.release()


class Lease:
    """A lock that is held, as far as its holder knows.

    Attributes:
      entry: the object, as it was renewed last.
    """

    def __init__(self, bucket: Bucket, name: str, holder: bytes, entry: ObjectInfo) -> None:
        self.bucket, self.name, self.holder, self.entry = bucket, name, holder, entry
        self.ended = threading.Event()

    def renew(self) -> None:
        """Writes the object anew three times in a lease, until the end or until another one took it over."""
        while not self.ended.wait(gcs_connection().settings.lease_seconds / 3):
            try:
                self.entry = self.bucket.write(self.name, self.holder, if_generation=self.entry.generation)
            except PreconditionError:
                return
            except WorkError as error:  # the next one may succeed in time; what is done meanwhile is fenced
                print_status(f"the lock could not be renewed: {error}")

    def check(self) -> None:
        """Sees that nobody has taken it over.

        Raises:
          Changed: somebody has.
        """
        there = self.bucket.stat(self.name)
        if there is None or there.generation != self.entry.generation:
            there = self.bucket.stat(self.name)  # it may have been renewed in between
        if there is None or there.generation != self.entry.generation:
            raise PreconditionError(
                f"{self.bucket.place(self.name)}: held too long without a sign of life, and lost; start again"
            )

    def release(self) -> None:
        try:
            self.bucket.delete(self.name, if_generation=self.entry.generation)
        except PreconditionError:
            pass
        except WorkError as error:
            print_status(f"the lock stays until its lease is over: {error}")


def _taken(bucket: Bucket, name: str, holder: bytes, waiting: str) -> ObjectInfo:
    seen, since, told = 0, time.monotonic(), False
    while True:
        there = bucket.stat(name)
        lease = gcs_connection().settings.lease_seconds
        if there and there.generation != seen:
            seen, since = there.generation, time.monotonic()
        if there is None or time.monotonic() - since > lease:
            with contextlib.suppress(PreconditionError):
                return bucket.write(name, holder, if_generation=there.generation if there else 0)
            continue
        if not told:
            print_status(waiting)
            told = True
        time.sleep(min(1.0, lease / 20))


_since = [time.monotonic()]


def seconds_since_snapshot() -> float:
    return time.monotonic() - _since[0]


def reset_snapshot() -> None:
    """Nothing that was read before is used from now on."""
    _since[0] = time.monotonic()


EXCLUSIVE_LOCK, SHARED_LOCKS, LAST_PURGE = ".alone", ".working/", ".purged"
UNFINISHED_PURGE = ".purge-"
"""Begins the name of what a purge has written down, until it is over."""


@contextlib.contextmanager
def hold_shared_store_lock(place: str, reads_for: float) -> Iterator[Lease]:
    """Holds a place to add to it; waits while another one has it alone.

    Args:
      reads_for: seconds since the first was read of what is going to be used.

    Raises:
      Changed: a purge ended there since this process began.
      WorkError: a purge was begun there, and neither ended nor goes on.
    """
    bucket = Bucket(place)
    began = time.monotonic() - reads_for
    while True:
        read_for = time.monotonic() - began  # taken before the storage tells its time, so never too long
        with hold_lease(bucket, f"{SHARED_LOCKS}{secrets.token_hex(8)}") as lease:
            if (other := _alone(bucket, lease.entry, read_for)) is None:
                yield lease
                return
        _wait(bucket, other)


@contextlib.contextmanager
def exclusive_store_lock(place: str) -> Iterator[Lease]:
    """Holds a place to take away from it; waits while another one does so.

    Raises:
      WorkError: a process works there.
    """
    bucket = Bucket(place)
    with hold_lease(bucket, EXCLUSIVE_LOCK, f"waiting for another process that takes away from {bucket.uri}") as lease:
        for entry in bucket.list(SHARED_LOCKS):
            if not _forgotten(bucket, entry, lease.entry):
                raise WorkError(
                    f"{bucket.uri}: a process works here ({_holder(bucket, entry)}); stop it, or wait until it is "
                    f"done, and start again; of one that was killed the lock goes after {_seconds():.0f} s"
                )
        yield lease


def record_purge(lease: Lease) -> None:
    """Lets all who began to read before now know that a purge has ended; to be called by who is alone."""
    lease.bucket.write(LAST_PURGE, b"{}\n")
    reset_snapshot()


def _alone(bucket: Bucket, now: ObjectInfo, read_for: float) -> ObjectInfo | None:
    """The lock of who has the place alone."""
    unended = ""
    for entry in bucket.list("."):
        if entry.name == EXCLUSIVE_LOCK and not _forgotten(bucket, entry, now):
            return entry
        if entry.name == LAST_PURGE and (now.updated - entry.updated).total_seconds() < read_for:
            raise PreconditionError(
                f"{bucket.uri}: a purge has ended here since this process began, and what it has read may hold who was "
                "removed; start again"
            )
        if entry.name.startswith(UNFINISHED_PURGE):
            unended = entry.name
    if unended:
        raise WorkError(
            f"{bucket.uri}: a purge was begun here and did not end; end it by the same command (voxline datasets purge "
            f"--speaker … --yes); whom it is of stands in {bucket.place(unended)}"
        )
    return None


def _forgotten(bucket: Bucket, entry: ObjectInfo, now: ObjectInfo) -> bool:
    """Whether nobody has renewed a lease for its whole time; it is removed then."""
    if (now.updated - entry.updated).total_seconds() <= _seconds():
        return False
    with contextlib.suppress(PreconditionError):
        bucket.delete(entry.name, if_generation=entry.generation)
        return True
    return bucket.stat(entry.name) is None


def _wait(bucket: Bucket, other: ObjectInfo) -> None:
    print_status(f"waiting for a purge or a collection in {bucket.uri} ({_holder(bucket, other)})")
    since, seen = time.monotonic(), other.generation
    while (there := bucket.stat(EXCLUSIVE_LOCK)) is not None:
        if there.generation != seen:
            since, seen = time.monotonic(), there.generation
        if time.monotonic() - since > _seconds():
            return
        time.sleep(min(1.0, _seconds() / 20))


def _holder(bucket: Bucket, entry: ObjectInfo) -> str:
    try:
        holder = json.loads(bucket.read(entry.name))
        return f"process {holder['process']} of {holder['host']}"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "which has just ended"


def _seconds() -> float:
    return gcs_connection().settings.lease_seconds


@contextlib.contextmanager
def shared_store_lock(store: Path | str) -> Iterator[Callable[[], None]]:
    """Holds a store in a bucket against a purge and a collection; in a folder locks do, of what each step touches.

    Yields:
      What sees that it still is held; to be called before anything is decided.
    """
    if not is_remote(store):
        yield lambda: None
        return

    with hold_shared_store_lock(str(store), seconds_since_snapshot()) as lease:
        yield lease.check

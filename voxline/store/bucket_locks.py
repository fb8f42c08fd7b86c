"""Locks in a bucket: leases that their holders renew, and the lock of a store that several may share.

  .working/<random>   one for each process that adds to the store
  .alone              of the process that deletes from it: a purge or a garbage collection
  .purged             when the last purge ended: what a process has read before may hold a speaker who was removed

Each process writes its own object first and then looks for the other kind, so at least one of two sees the other. A
lease that was not renewed for its whole time is removed by the process that finds it. Age is the difference of two
objects' times, both by the storage's clock. A holder that slept meanwhile notices that it lost the lock when it checks,
which it does before it decides anything. Each renewal carries a nonce: on S3 equal bytes would have the same version.
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
from voxline.store.objects import ABSENT, ObjectInfo, ObjectStore, is_remote, open_store
from voxline.store.transfer import TransferSettings

EXCLUSIVE_LOCK, SHARED_LOCKS, LAST_PURGE = ".alone", ".working/", ".purged"
UNFINISHED_PURGE = ".purge-"
"""Prefix of the file that records an unfinished purge."""


@contextlib.contextmanager
def exclusive_lease(store: ObjectStore, name: str, waiting: str) -> Iterator[None]:
    """Holds the lock of this name, and waits while another process does.

    Args:
      waiting: is printed where another process holds it.

    Raises:
      WorkError: the bucket cannot be written.
    """
    with hold_lease(store, name, waiting):
        yield


@contextlib.contextmanager
def hold_lease(store: ObjectStore, name: str, waiting: str = "") -> Iterator["Lease"]:
    """As `exclusive_lease`, for callers that check whether they still have the lock."""
    lease = Lease(store, name, _acquire(store, name, waiting))
    renewing = threading.Thread(target=lease.renew, daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        lease.ended.set()
        renewing.join()
        lease.release()


class Lease:
    """A lock that is held, as far as its holder knows.

    Attributes:
      info: the lock's object, as it was renewed last.
    """

    def __init__(self, store: ObjectStore, name: str, info: ObjectInfo) -> None:
        self.store, self.name, self.info = store, name, info
        self.ended = threading.Event()

    def renew(self) -> None:
        """Writes the object again three times in a lease, until the end or until another process took it over."""
        while not self.ended.wait(_lease_seconds() / 3):
            try:
                self.info = self.store.write(self.name, _holder(), if_version=self.info.version)
            except PreconditionError:
                return
            except WorkError as error:  # the next one may succeed in time; what is done meanwhile is fenced
                print_status(f"the lock could not be renewed: {error}")

    def check(self) -> None:
        """Checks that no other process has taken the lock over.

        Raises:
          PreconditionError: one has.
        """
        for _ in range(2):  # it may be renewed between our request and its answer
            current = self.store.stat(self.name)
            if current and current.version == self.info.version:
                return
        raise PreconditionError(f"{self.store.uri_of(self.name)}: not renewed in time, and lost; start again")

    def release(self) -> None:
        try:
            self.store.delete(self.name, if_version=self.info.version)
        except PreconditionError:
            pass
        except WorkError as error:
            print_status(f"the lock stays until its lease is over: {error}")


_snapshot = [time.monotonic()]


def seconds_since_snapshot() -> float:
    """For how long this process has been reading what it uses."""
    return time.monotonic() - _snapshot[0]


def reset_snapshot() -> None:
    """From now on, nothing is used that was read before."""
    _snapshot[0] = time.monotonic()


@contextlib.contextmanager
def shared_store_lock(store: Path | str) -> Iterator[Callable[[], None]]:
    """Holds a store in a bucket against a purge and a garbage collection; in a folder each step locks what it touches.

    Yields:
      A function that checks that the lock is still held; to be called before anything is decided.

    Raises:
      PreconditionError: a purge ended there since this process began.
      WorkError: a purge was begun there, and did not end.
    """
    if not is_remote(store):
        yield lambda: None
        return
    with hold_shared_store_lock(str(store), seconds_since_snapshot()) as lease:
        yield lease.check


@contextlib.contextmanager
def hold_shared_store_lock(uri: str, snapshot_seconds: float) -> Iterator[Lease]:
    """Holds a store to add to it; waits while another process deletes from it.

    Args:
      snapshot_seconds: since the first was read of what is going to be used.

    Raises:
      PreconditionError: a purge ended there since.
      WorkError: a purge was begun there, and did not end.
    """
    store = open_store(uri)
    began = time.monotonic() - snapshot_seconds
    while True:
        age = time.monotonic() - began  # taken before the storage tells its time, so never too long
        with hold_lease(store, f"{SHARED_LOCKS}{secrets.token_hex(8)}") as lease:
            if (exclusive := _exclusive_lock(store, lease.info, age)) is None:
                yield lease
                return
        _wait(store, exclusive)


@contextlib.contextmanager
def exclusive_store_lock(uri: str) -> Iterator[Lease]:
    """Holds a store to delete from it; waits while another process does so.

    Raises:
      WorkError: a process adds to it.
    """
    store = open_store(uri)
    with hold_lease(store, EXCLUSIVE_LOCK, f"waiting for another process that deletes from {store.uri}") as lease:
        for info in store.list(SHARED_LOCKS):
            if not _expired(store, info, lease.info):
                raise WorkError(
                    f"{store.uri}: in use by {_describe_holder(store, info)}; stop it, or wait until it has finished, "
                    f"and start again; the lock of a killed process expires after {_lease_seconds():.0f} s"
                )
        yield lease


def record_purge(lease: Lease) -> None:
    """Tells all processes that began to read before now that a purge has ended; its caller holds the exclusive lock."""
    lease.store.write(LAST_PURGE, f'{{"nonce": "{secrets.token_hex(8)}"}}\n'.encode())
    reset_snapshot()


def _acquire(store: ObjectStore, name: str, waiting: str) -> ObjectInfo:
    seen, since, printed = "", time.monotonic(), False
    while True:
        current = store.stat(name)
        lease = _lease_seconds()
        if current and current.version != seen:
            seen, since = current.version, time.monotonic()
        if current is None or time.monotonic() - since > lease:
            with contextlib.suppress(PreconditionError):
                return store.write(name, _holder(), if_version=current.version if current else ABSENT)
            continue
        if not printed:
            print_status(waiting)
            printed = True
        time.sleep(min(1.0, lease / 20))


def _exclusive_lock(store: ObjectStore, now: ObjectInfo, age: float) -> ObjectInfo | None:
    """The lock of the process that deletes from the store, if any."""
    unfinished = ""
    for info in store.list("."):
        if info.name == EXCLUSIVE_LOCK and not _expired(store, info, now):
            return info
        if info.name == LAST_PURGE and (now.updated - info.updated).total_seconds() < age + store.clock_resolution:
            raise PreconditionError(
                f"{store.uri}: a purge has ended here since this process began, and what it has read may hold a "
                "speaker who was removed; start again"
            )
        if info.name.startswith(UNFINISHED_PURGE):
            unfinished = info.name
    if unfinished:
        raise WorkError(
            f"{store.uri}: a purge was begun here and did not end; run the same command again (voxline datasets purge "
            f"--speaker … --yes); {store.uri_of(unfinished)} names the speakers"
        )
    return None


def _expired(store: ObjectStore, info: ObjectInfo, now: ObjectInfo) -> bool:
    """Whether a lease was not renewed for its whole time; it is removed then."""
    if (now.updated - info.updated).total_seconds() <= _lease_seconds() + store.clock_resolution:
        return False
    with contextlib.suppress(PreconditionError):
        store.delete(info.name, if_version=info.version)
        return True
    return store.stat(info.name) is None


def _wait(store: ObjectStore, exclusive: ObjectInfo) -> None:
    print_status(f"waiting for a purge or a garbage collection in {store.uri} ({_describe_holder(store, exclusive)})")
    since, seen = time.monotonic(), exclusive.version
    while (current := store.stat(EXCLUSIVE_LOCK)) is not None:
        if current.version != seen:
            since, seen = time.monotonic(), current.version
        if time.monotonic() - since > _lease_seconds():
            return
        time.sleep(min(1.0, _lease_seconds() / 20))


def _holder() -> bytes:
    holder = {"host": socket.gethostname(), "process": os.getpid(), "nonce": secrets.token_hex(8)}
    return json.dumps(holder).encode()


def _describe_holder(store: ObjectStore, info: ObjectInfo) -> str:
    try:
        holder = json.loads(store.read(info.name))
        return f"process {holder['process']} of {holder['host']}"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "a process that has just ended"


def _lease_seconds() -> float:
    return TransferSettings.of_environment().lease_seconds

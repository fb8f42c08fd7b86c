"""The lock of a store: processes that add to it share it, one that deletes from it has it alone.

A folder is locked by the kernel (`.working.lock`, `.alone.lock`), so a killed process holds nothing. In a bucket there
are leases:

  .working/<random>   one for each process that adds to the store
  .alone              of the process that deletes from it: a purge or a garbage collection
  .purged             when the last purge ended: what a process has read before may hold a speaker who was removed

Each process writes its own object first and then looks for the other kind, so at least one of two sees the other. Age
is the difference of two objects' times, both by the storage's clock.
"""

import contextlib
import datetime
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from voxline.errors import PreconditionError, WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import private_cache
from voxline.store.file_locks import open_lock_file, try_lock, wait_for_lock
from voxline.store.leases import Lease, describe_holder, hold_lease, lease_seconds
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ObjectInfo
from voxline.store.uris import is_remote

EXCLUSIVE_LOCK = ".alone"
SHARED_LOCKS = ".working/"
LAST_PURGE = ".purged"
UNFINISHED_PURGE = ".purge-"
"""Prefix of the file that records an unfinished purge."""


_snapshot = [time.monotonic()]


def seconds_since_snapshot() -> float:
    """Returns for how many seconds this process has been reading its inputs."""
    return time.monotonic() - _snapshot[0]


def reset_snapshot() -> None:
    """Forgets the snapshot: from now on, nothing that was read before is used."""
    _snapshot[0] = time.monotonic()


@contextlib.contextmanager
def shared_store_lock(store: Path | str) -> Iterator[Callable[[], None]]:
    """Holds a store against a purge and a garbage collection, and waits while one is under way.

    Yields:
      A function that checks that the lock is still held; to be called before anything is decided.

    Raises:
      PreconditionError: a purge ended there since this process began.
      WorkError: a purge was started there, and did not finish.
    """
    if not is_remote(store):
        with _shared_folder_lock(Path(store)):
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
      WorkError: a purge was started there, and did not finish.
    """
    store = open_store(uri)

    # From the first thing that was read on: a purge that ended since has not seen it.
    began = time.monotonic() - snapshot_seconds
    while True:
        age = time.monotonic() - began  # taken before the storage tells its time, so never too long
        # Our own lock first, then a look at the other kind: the process that deletes does the reverse.
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
        # Our lock is there, so processes that come now wait; this looks for those that were here before.
        for info in store.list(SHARED_LOCKS):
            if not _expired(store, info, lease.info):
                raise WorkError(
                    f"{store.uri}: in use by {describe_holder(store, info)}; stop it, or wait until it has finished, "
                    f"and start again; the lock of a killed process expires after {lease_seconds():.0f} s"
                )
        yield lease


@contextlib.contextmanager
def exclusive_folder_lock(folder: Path) -> Iterator[None]:
    """Holds a store in a folder to delete from it; waits while another process does so.

    Raises:
      WorkError: a process adds to it.
    """
    waiting = f"waiting for another process that deletes from {folder}"

    # Two locks: the first lets one process delete at a time, the second keeps all others out.
    with open_store(folder).lock(f"{EXCLUSIVE_LOCK}.lock", waiting), _lock_file(folder) as lock:
        if not try_lock(lock):
            raise WorkError(
                f"{folder}: in use by another process of Voxline; stop it, or wait until it has finished, and start "
                "again"
            )
        yield


@contextlib.contextmanager
def sole_access(store: Path | str, *, to_change: bool) -> Iterator[tuple[datetime.datetime, Callable[[], None]]]:
    """Looks at a store as it is now, and not as this machine's bucket cache remembers it.

    Args:
      to_change: hold it exclusively, to delete from it.

    Yields:
      The time by the storage's clock, and a check that the lock still holds.

    Raises:
      WorkError: a process adds to it.
    """
    with contextlib.ExitStack() as stack:
        at: datetime.datetime = datetime.datetime.now(datetime.UTC)
        check: Callable[[], None] = lambda: None  # noqa: E731
        if is_remote(store):
            stack.enter_context(private_cache())
            if to_change:
                lease = stack.enter_context(exclusive_store_lock(str(store)))
                at = lease.info.updated
                check = lease.check
        elif to_change:
            stack.enter_context(exclusive_folder_lock(Path(store)))
        yield at, check


@contextlib.contextmanager
def _shared_folder_lock(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(_lock_file(folder))
        # A disk that is only read has no lock file, and nobody who could delete from it.
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            yield  # nobody can delete from a disk that cannot be written
            return
        wait_for_lock(lock, f"waiting for a purge or a garbage collection in {folder}", shared=True)
        yield


@contextlib.contextmanager
def _lock_file(folder: Path) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = open_lock_file(folder / ".working.lock")
    try:
        yield lock
    finally:
        os.close(lock)


def record_purge(lease: Lease) -> None:
    """Tells all processes that began to read before now that a purge has ended; its caller holds the exclusive lock."""
    lease.store.write(LAST_PURGE, f'{{"nonce": "{secrets.token_hex(8)}"}}\n'.encode())
    reset_snapshot()


def _exclusive_lock(store: ObjectStore, at: ObjectInfo, age: float) -> ObjectInfo | None:
    """The lock of the process that deletes from the store, if any."""
    unfinished = ""

    # One listing for all three: lock, last purge, unfinished purge.
    for info in store.list("."):
        if info.name == EXCLUSIVE_LOCK and not _expired(store, info, at):
            return info
        if info.name == LAST_PURGE and (at.updated - info.updated).total_seconds() < age + store.clock_resolution:
            raise PreconditionError(
                f"{store.uri}: a purge has ended here since this process began, and what it has read may hold a "
                "speaker who was removed; start again"
            )
        if info.name.startswith(UNFINISHED_PURGE):
            unfinished = info.name
    if unfinished:
        raise _unfinished_purge(store, unfinished)
    return None


def check_no_purge(store: ObjectStore) -> None:
    """Checks that no purge of a store was started that did not finish.

    Raises:
      WorkError: one was.
    """
    for info in store.list(UNFINISHED_PURGE):
        raise _unfinished_purge(store, info.name)


def _unfinished_purge(store: ObjectStore, name: str) -> WorkError:
    return WorkError(
        f"{store.uri}: a purge was started here and did not finish; run the same command again (voxline datasets purge "
        f"--speaker … --yes); {store.uri_of(name)} names the speakers"
    )


def _expired(store: ObjectStore, info: ObjectInfo, at: ObjectInfo) -> bool:
    """Returns whether a lease was not renewed in time; removes it then."""
    if (at.updated - info.updated).total_seconds() <= lease_seconds() + store.clock_resolution:
        return False
    # On condition of its version: a holder that renews it in this moment keeps it.
    with contextlib.suppress(PreconditionError):
        store.delete(info.name, if_version=info.version)
        return True
    return store.stat(info.name) is None


def _wait(store: ObjectStore, exclusive: ObjectInfo) -> None:
    print_status(f"waiting for a purge or a garbage collection in {store.uri} ({describe_holder(store, exclusive)})")

    # As in `leases`: the version is watched by our own clock.
    since = time.monotonic()
    seen = exclusive.version
    while (current := store.stat(EXCLUSIVE_LOCK)) is not None:
        if current.version != seen:
            since = time.monotonic()
            seen = current.version
        if time.monotonic() - since > lease_seconds():
            return
        time.sleep(min(1.0, lease_seconds() / 20))

"""Locks in a bucket: leases that their holders renew.

A lease that was not renewed for its whole time passes to the process that finds it. A holder that slept
meanwhile notices that it lost the lock when it checks, which it does before it decides anything. Each renewal carries a
nonce: on S3 equal bytes would have the same version.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator

from voxline.errors import PreconditionError, WorkError
from voxline.progress import print_status
from voxline.store.storage import ABSENT, ObjectInfo, Storage
from voxline.store.transfer import TransferSettings


@contextlib.contextmanager
def exclusive_lease(store: Storage, name: str, waiting: str) -> Iterator[None]:
    """Holds the lock of this name, and waits while another process does.

    Args:
      waiting: is printed where another process holds it.

    Raises:
      WorkError: the bucket cannot be written.
    """
    with hold_lease(store, name, waiting):
        yield


@contextlib.contextmanager
def hold_lease(store: Storage, name: str, waiting: str = "") -> Iterator["Lease"]:
    """Holds a lease like `exclusive_lease`, for callers that check whether they still have the lock."""
    lease = Lease(store, name, _acquire(store, name, waiting))

    # A daemon, so that a process that ends with the lock held does not wait for it.
    renewing = threading.Thread(target=lease.renew, daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        # The renewal ends before the release: it would write the lock again.
        lease.ended.set()
        renewing.join()
        lease.release()


class Lease:
    """A lock that is held, as far as its holder knows.

    Attributes:
      info: the lock's object, as it was renewed last.
    """

    def __init__(self, store: Storage, name: str, info: ObjectInfo) -> None:
        self.store = store
        self.name = name
        self.info = info
        self.ended = threading.Event()

    def renew(self) -> None:
        """Writes the object again three times in a lease, until the end or until another process took it over."""
        # A third of the lease: two renewals may fail before it is lost.
        while not self.ended.wait(lease_seconds() / 3):
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


def _acquire(store: Storage, name: str, waiting: str) -> ObjectInfo:
    seen = ""
    since = time.monotonic()
    printed = False
    while True:
        current = store.stat(name)
        lease = lease_seconds()

        # The holder's renewals change the version; by our own clock we only measure how long it stayed the same.
        if current and current.version != seen:
            seen = current.version
            since = time.monotonic()

        # Free, or not renewed for a whole lease: written on condition that it still is.
        if current is None or time.monotonic() - since > lease:
            with contextlib.suppress(PreconditionError):
                return store.write(name, _holder(), if_version=current.version if current else ABSENT)
            continue
        if not printed:
            print_status(waiting)
            printed = True
        time.sleep(min(1.0, lease / 20))


def _holder() -> bytes:
    holder = {"host": socket.gethostname(), "process": os.getpid(), "nonce": secrets.token_hex(8)}
    return json.dumps(holder).encode()


def describe_holder(store: Storage, info: ObjectInfo) -> str:
    try:
        holder = json.loads(store.read(info.name))
        return f"process {holder['process']} of {holder['host']}"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "a process that has just ended"


def lease_seconds() -> float:
    return TransferSettings.of_environment().lease_seconds

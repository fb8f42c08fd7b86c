"""A lock in a bucket: an object that its holder renews, so that it goes when the holder does.

No clocks are compared: whoever waits takes a lock over that nobody renewed for the whole lease, by the waiter's own
watch. A holder that was only asleep may then think that it still has it; so what is done under the lock must be fenced,
by a condition on the generation of what it writes. The lock saves work, and keeps nothing safe by itself.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

from components.speech.buckets.bucket import Bucket
from components.speech.buckets.connection import connection
from components.speech.buckets.entry import Entry
from components.speech.errors import Changed, WorkError
from components.speech.progress import say


@contextlib.contextmanager
def leased(bucket: Bucket, name: str, waiting: str) -> Iterator[None]:
    """Holds the lock of this name.

    Args:
      waiting: is said where another one holds it.

    Raises:
      WorkError: the bucket cannot be written.
    """
    with held_lease(bucket, name, waiting):
        yield


@contextlib.contextmanager
def held_lease(bucket: Bucket, name: str, waiting: str = "") -> Iterator["Lease"]:
    """As `leased`, for who wants to know whether it still has the lock."""
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

    def __init__(self, bucket: Bucket, name: str, holder: bytes, entry: Entry) -> None:
        self.bucket, self.name, self.holder, self.entry = bucket, name, holder, entry
        self.ended = threading.Event()

    def renew(self) -> None:
        """Writes the object anew three times in a lease, until the end or until another one took it over."""
        while not self.ended.wait(connection().settings.lease_seconds / 3):
            try:
                self.entry = self.bucket.write(self.name, self.holder, if_generation=self.entry.generation)
            except Changed:
                return
            except WorkError as error:  # the next one may succeed in time; what is done meanwhile is fenced
                say(f"the lock could not be renewed: {error}")

    def check(self) -> None:
        """Sees that nobody has taken it over.

        Raises:
          Changed: somebody has.
        """
        there = self.bucket.stat(self.name)
        if there is None or there.generation != self.entry.generation:
            there = self.bucket.stat(self.name)  # it may have been renewed in between
        if there is None or there.generation != self.entry.generation:
            raise Changed(
                f"{self.bucket.place(self.name)}: held too long without a sign of life, and lost; start again"
            )

    def release(self) -> None:
        try:
            self.bucket.delete(self.name, if_generation=self.entry.generation)
        except Changed:
            pass
        except WorkError as error:
            say(f"the lock stays until its lease is over: {error}")


def _taken(bucket: Bucket, name: str, holder: bytes, waiting: str) -> Entry:
    seen, since, told = 0, time.monotonic(), False
    while True:
        there = bucket.stat(name)
        lease = connection().settings.lease_seconds
        if there and there.generation != seen:
            seen, since = there.generation, time.monotonic()
        if there is None or time.monotonic() - since > lease:
            with contextlib.suppress(Changed):
                return bucket.write(name, holder, if_generation=there.generation if there else 0)
            continue
        if not told:
            say(waiting)
            told = True
        time.sleep(min(1.0, lease / 20))

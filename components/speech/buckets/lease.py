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
    holder = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
    held = _Held(bucket, name, holder, _taken(bucket, name, holder, waiting))
    renewing = threading.Thread(target=held.renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        held.ended.set()
        renewing.join()
        held.release()


class _Held:
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

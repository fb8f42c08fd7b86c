"""A store that is added to, held against what takes away from it: a purge, a collection."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from components.speech.buckets import is_remote
from components.speech.buckets.since import seconds_read


@contextlib.contextmanager
def adding_to(store: Path | str) -> Iterator[Callable[[], None]]:
    """Holds a store in a bucket against a purge and a collection; in a folder locks do, of what each step touches.

    Yields:
      What sees that it still is held; to be called before anything is decided.
    """
    if not is_remote(store):
        yield lambda: None
        return
    from components.speech.buckets.sharing import together

    with together(str(store), seconds_read()) as lease:
        yield lease.check

"""Since when this process reads, by its own watch: from about its start, or from the end of its own last purge."""

import time

_since = [time.monotonic()]


def seconds_read() -> float:
    return time.monotonic() - _since[0]


def read_anew() -> None:
    """Nothing that was read before is used from now on."""
    _since[0] = time.monotonic()

"""Waiting for another process: long enough for a busy machine, and not for ever."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 900
"""Longest wait. It ends a test that hangs; no busy machine gets there."""


def wait_until(true: Callable[[], object], what: str, interval: float = 0.01) -> None:
    """Returns once `true` is, which is asked every `interval` seconds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(interval)

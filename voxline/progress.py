"""Prints progress as plain lines that a terminal, a log and `voxline run` all read.

A status line begins with `▸ `. A line that the next one may overwrite, such as the progress of a loop, begins with
`▹ `. Everything else that a process prints goes to the full log only.
"""

import time

STATUS_PREFIX = "▸ "
PROGRESS_PREFIX = "▹ "


def print_status(text: str) -> None:
    """Prints one status line."""
    print(f"{STATUS_PREFIX}{text}", flush=True)


class Progress:
    """Counts the items of a long loop, and prints its progress at most once a second.

    The first items also take what is done once, such as starting processes or compiling a graph, so the rate is that of
    the items after them.

    >>> progress = Progress("recordings", total=3, clock=iter([0.0, 60.0, 62.0, 64.0]).__next__)
    >>> progress.advance()
    ▹ 1/3 recordings
    >>> progress.advance()
    ▹ 2/3 recordings, 0.5/s, 2 s left
    >>> progress.advance(note="nearly there")
    ▹ 3/3 recordings, 0.5/s, 0 s left, nearly there
    """

    def __init__(self, unit: str, total: int, *, clock=time.monotonic) -> None:  # type: ignore[no-untyped-def]
        self.unit, self.total, self.done = unit, total, 0
        self._clock = clock
        self._printed = clock()
        self._first: tuple[int, float] | None = None

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        now = self._clock()
        done, since = self._first = self._first or (self.done, now)
        if now - self._printed < 1:
            return
        self._printed = now
        parts = [f"{self.done:,}/{self.total:,} {self.unit}"]
        if self.done > done and now > since:
            rate = (self.done - done) / (now - since)
            parts += [
                f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s",
                f"{max(self.total - self.done, 0) / rate:,.0f} s left",
            ]
        print(PROGRESS_PREFIX + ", ".join(parts + [note] * bool(note)), flush=True)

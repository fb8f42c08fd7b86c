"""Prints progress as plain lines that a terminal, a log and `voxline run` all read.

A status line begins with `▸ `. A line that the next one may overwrite, such as the progress of a loop, begins with
`▹ `. Everything else that a process prints goes to the full log only.
"""

import io
import re
import sys
import time
from typing import Any, TextIO

STATUS_PREFIX = "▸ "
PROGRESS_PREFIX = "▹ "
_ERASE_LINE = "\r\x1b[K"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0 without tab and line feed, DEL, C1, separators of lines and paragraphs, and what turns the order of text."""


def neutralize(text: str) -> str:
    r"""Text for a terminal or a log: control characters as JSON escapes them, so that a JSON document stays one.

    A text, an id or a file name of a corpus, or a server's message, could otherwise set a terminal's title, erase what
    was printed, or show other words than are there.

    >>> print(neutralize("id\x1b]0;title\x07"))
    id\u001b]0;title\u0007
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class NeutralizedStream:
    """A text stream that neutralizes what is written to it, and is the stream otherwise.

    Attributes:
      stream: the stream as it is, for what Voxline itself tells a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(neutralize(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def encoding(self) -> str:
        """UTF-8, even where the stream is not: click would write around this to a stream that says ASCII."""
        return "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def neutralize_output() -> None:
    """Neutralizes all that this process prints from Python, until it ends: text, messages and tracebacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ▸ must not end the command
            setattr(sys, name, NeutralizedStream(stream))


def erase_line(stream: TextIO) -> None:
    """Erases the line of a terminal that the cursor is on."""
    stream = getattr(stream, "stream", stream)
    stream.write(_ERASE_LINE)
    stream.flush()


def print_status(text: str) -> None:
    """Prints one status line."""
    print(f"{STATUS_PREFIX}{neutralize(text)}", flush=True)


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
        print(PROGRESS_PREFIX + neutralize(", ".join(parts + [note] * bool(note))), flush=True)

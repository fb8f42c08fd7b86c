"""What a person sees of a run: from all that the steps print, the lines that were meant for them.

Everything goes to the full log. On the screen stand the steps as they start and end, and the lines
that `voxline.progress` marks: those that stay, and those that the next may overwrite.
"""

import contextlib
import io
import os
import re
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from voxline.progress import PROGRESS_PREFIX, STATUS_PREFIX, erase_line, neutralize

HEARTBEAT_SECONDS = 10.0
"""Silence after which a passing line is printed where it cannot be overwritten: a file, a CI log."""

_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def remove_colors(line: str) -> str:
    """The line without a terminal's colours."""
    return _COLORS.sub("", line)


def strip_colors(line: str) -> str:
    """The line without colours and without the indentation that kfp gives to what tasks print."""
    return remove_colors(line).strip()


_REASONS = re.compile(r"(?P<title>.*?\bNot pushed: )(?P<reasons>.*)", re.DOTALL)
LONG_VERDICT = 100
"""Characters from which the reasons of a verdict have a line each, and of such a line at most."""


def verdict_lines(text: str) -> list[str]:
    """A verdict, each of its reasons on a line, whose further lines are set in; one that is short stays one line.

    >>> for line in verdict_lines("Not pushed: " + "; ".join(["WER 31%, above the limit of 30% (limits.wer)"] * 2)):
    ...     print(line)
    Not pushed: WER 31%, above the limit of 30% (limits.wer)
                WER 31%, above the limit of 30% (limits.wer)
    >>> for line in verdict_lines("Not pushed: " + "word error rate of a slice, " * 4 + "is above"):
    ...     print(line)
    Not pushed: word error rate of a slice, word error rate of a slice, word error rate of a slice, word
                  error rate of a slice, is above
    """
    verdict = _REASONS.fullmatch(text)
    if verdict is None or len(text) < LONG_VERDICT:
        return [text]
    indent = " " * len(verdict["title"])
    wrapper = textwrap.TextWrapper(
        LONG_VERDICT,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A command in a reason stays on one line, so that it can be copied.
    lines = [
        line
        for reason in verdict["reasons"].split("; ")
        for line in ([indent + reason] if "voxline " in reason else wrapper.wrap(reason))
    ]
    if not lines:
        return [text]
    return [verdict["title"] + lines[0].removeprefix(indent), *lines[1:]]


class Console:
    """Prints lines that stay and lines that pass, on a terminal or into a file.

    >>> import sys
    >>> screen = Console(sys.stdout, clock=iter([0.0, 1.0, 2.0, 12.0]).__next__)
    >>> for line in ["    ▸ convert: 40 recordings", "noise", "▹ 1/40", "▹ 39/40"]:
    ...     screen.line(line)
    ▸ convert: 40 recordings
      39/40
    """

    def __init__(self, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._overwrites = out.isatty()
        self._passing = False
        self._printed = clock()

    def line(self, line: str) -> None:
        """Shows a line of output if it is meant for a person."""
        line = strip_colors(line)
        if line.startswith(STATUS_PREFIX):
            self.say("\n".join(verdict_lines(line)))
        elif line.startswith(PROGRESS_PREFIX):
            self._pass("  " + line.removeprefix(PROGRESS_PREFIX))

    def say(self, text: str) -> None:
        """Prints text that stays."""
        self._clear()
        self._printed = self._clock()
        self._print(text)

    def close(self) -> None:
        self._clear()

    def _pass(self, text: str) -> None:
        # One column less: a full line would wrap, and only its last row could be overwritten.
        if self._overwrites:
            width = shutil.get_terminal_size().columns - 1
            self._clear()
            self._print(text[:width], end="")
            self._passing = True
            return
        seconds = self._clock()
        if seconds - self._printed >= HEARTBEAT_SECONDS:
            self._printed = seconds
            self._print(text)

    def _clear(self) -> None:
        if self._passing:
            with contextlib.suppress(BrokenPipeError):
                erase_line(self._out)
            self._passing = False

    def _print(self, text: str, end: str = "\n") -> None:
        """Prints; the work continues where nobody reads any more (`voxline run ... | head`)."""
        try:
            print(neutralize(text), end=end, file=self._out, flush=True)
        except BrokenPipeError:
            # Later writes, and Python's own flush at the end, would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


@contextlib.contextmanager
def redirect_stdout_to(screen: Console) -> Iterator[None]:
    """Sends to the screen what this process prints in the block; unmarked lines stay as they are."""
    with contextlib.redirect_stdout(_LineStream(screen)):
        try:
            yield
        finally:
            screen.close()


class _LineStream(io.TextIOBase):
    """A stream that hands whole lines to a screen."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._begun = ""

    def write(self, text: str) -> int:
        # `print` writes a line in pieces; the last piece without a line break waits for the rest.
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            if line.startswith((STATUS_PREFIX, PROGRESS_PREFIX)):
                self._screen.line(line)
            else:
                self._screen.say(line)
        return len(text)

    def flush(self) -> None:
        pass

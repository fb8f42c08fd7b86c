"""Signals that ask a training to end: noted, so that it ends where a checkpoint can be saved.

signals = StopSignals()
with signals.noted():
    for batch in batches:
        train_step(batch)
        signals.check()           # raises StopRequested once Ctrl-C, SIGTERM or SIGHUP has arrived
        with signals.raised():    # a signal ends this block at once
            validate()
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C; what a scheduler or a machine that shuts down sends; a terminal that is closed."""


class StopRequested(BaseException):
    """A signal asked for the end. No `Exception`: code that handles errors must not take it for one.

    Attributes:
      number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopSignals:
    """The first signal that arrived in a block.

    Args:
      active: False: signals keep their meaning.
    """

    def __init__(self, *, active: bool = True) -> None:
        # Python lets the main thread alone set handlers: a training in another thread is ended as before.
        self._active = active and threading.current_thread() is threading.main_thread()
        self._number = 0
        self._raises = False

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Notes signals in the block. Those that are ignored stay ignored, such as SIGHUP under nohup."""
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS} if self._active else {}
        handlers = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
        self._number = 0
        for number in handlers:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._number:  # too late to be noticed in the block
            signal.raise_signal(self._number)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """A signal ends the block at once by `StopRequested`, also one that arrived before. Blocks may be nested."""
        outer = self._raises
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = outer

    def check(self) -> None:
        """
        Raises:
          StopRequested: a signal has arrived.
        """
        if self._number:
            raise StopRequested(self._number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A person presses Ctrl-C more than once: only the first counts, and what it began must not be interrupted.
        if self._number:
            return
        self._number = number
        if self._raises:
            raise StopRequested(number)

        # A step may take a minute. Straight to the file, as Python's stream may be in use where the signal arrived.
        with contextlib.suppress(OSError):
            os.write(2, b"stopping: the step that runs ends first, then its checkpoint is saved\n")

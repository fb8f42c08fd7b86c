"""Ends work early whose caller has gone: its processes, its networks, its loops.

cancellation = Cancellation()
with cancellation.active():        # in the thread that works
    recognizer.transcribe("a.flac")
cancellation.cancel()              # from any thread; the work raises WorkCancelledError
"""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Generator

from voxline.errors import WorkError


class WorkCancelledError(WorkError):
    """The work was ended early, as nobody waits for it any more."""


class Cancellation:
    """Whether some work should end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._enders: list[Callable[[], None]] = []
        self._cancelled = False

    def cancel(self) -> None:
        """Ends the work: what runs is stopped, and what follows does not begin."""
        with self._lock:  # held while they run: what ends a call must not end the next one of another caller
            self._cancelled = True
            for end in self._enders:
                end()

    def check(self) -> None:
        """
        Raises:
          WorkCancelledError: the work should end.
        """
        if self._cancelled:
            raise WorkCancelledError("the request was cancelled")

    @contextlib.contextmanager
    def active(self) -> Generator[None, None, None]:
        """Applies to the work of this thread in the context."""
        token = _current.set(self)
        try:
            self.check()
            yield
        finally:
            _current.reset(token)

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Generator[None, None, None]:
        """Calls `end`, which must not block, if the work is cancelled during the context."""
        with self._lock:
            self.check()
            self._enders.append(end)
        try:
            yield
        except Exception:
            self.check()  # a call that was ended fails in a way of its own
            raise
        finally:
            with self._lock:
                self._enders.remove(end)
        self.check()


@contextlib.contextmanager
def ends_early(end: Callable[[], None]) -> Generator[None, None, None]:
    """Calls `end`, which must not block, if the work of this thread is cancelled during the context.

    Raises:
      WorkCancelledError: it was, before or meanwhile.
    """
    if (current := _current.get()) is None:
        yield
        return
    with current.ending(end):
        yield


def check_cancelled() -> None:
    """
    Raises:
      WorkCancelledError: the work of this thread was cancelled.
    """
    if current := _current.get():
        current.check()


_current: contextvars.ContextVar[Cancellation | None] = contextvars.ContextVar("cancellation", default=None)

"""New WAVs on their way to a pool in a bucket, in batches, while others are still being converted."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from components.convert.job import Converted, Refused
from components.speech.mirror import Mirror

FIRST_BATCH = 500
"""Each further batch is twice as large: whatever is in the pool is listed once for each, to send nothing twice."""


class Sending:
    """What one conversion sends.

    Args:
      mirror: of the pool; None: it is a folder, and there is nothing to send.
      log: the conversion's, which grows meanwhile. That it may tell of WAVs which are still to be sent does no harm: a
        line counts where the WAV is there.
    """

    def __init__(self, mirror: Mirror | None, log: Path) -> None:
        self._mirror, self._log = mirror, log
        self._waiting: list[str] = []
        self._batch = FIRST_BATCH
        self._on_the_way: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "Sending":
        return self

    def add(self, wav: Path, outcome: Converted | Refused) -> None:
        """Takes note of a recording that is done with.

        Raises:
          WorkError: what was sent before did not arrive.
        """
        if self._mirror is None:
            return
        if isinstance(outcome, Converted):
            self._waiting.append(wav.relative_to(self._mirror.root).as_posix())
        if len(self._waiting) >= self._batch and (self._on_the_way is None or self._on_the_way.done()):
            self._send(self._mirror)
            self._batch *= 2

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._mirror and kind is None:
                self._send(self._mirror)
                self._arrived()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def _send(self, mirror: Mirror) -> None:
        self._arrived()
        names, self._waiting = self._waiting, []
        self._on_the_way = self._thread.submit(self._deliver, mirror, names)

    def _arrived(self) -> None:
        if self._on_the_way:
            self._on_the_way.result()

    def _deliver(self, mirror: Mirror, names: list[str]) -> None:
        mirror.push(names, absent_only=True)
        if not self._log.stat().st_size:
            return
        log = self._log.relative_to(mirror.root).as_posix()
        mirror.bucket.write(log, self._log.read_bytes())

"""A large file that arrives in ranges: unfinished beside its place, until all of it is there and its checksum agrees.

Which ranges have arrived is noted in a file of its own, so that a download that was killed fetches only the others.
"""

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from components.speech.buckets.entry import Entry, crc32c_of_file, is_same


class Ranges:
    """The unfinished file of an object; held by one process at a time, while another waits.

    Args:
      target: where it will lie.
      entry: the object.
      size: bytes of a range.
    """

    def __init__(self, target: Path, entry: Entry, size: int) -> None:
        self.target, self.entry, self.size = target, entry, size
        stem = f".{target.name[:100]}.{entry.generation}.{size}"
        self._unfinished, self._notes = target.with_name(stem + ".part"), target.with_name(stem + ".ranges")
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._descriptor = os.open(self._unfinished, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._unfinished.exists() and os.path.samestat(os.fstat(self._descriptor), self._unfinished.stat()):
                break
            os.close(self._descriptor)  # who held it has finished, or given up
            if is_same(self.target, self.entry):
                self._descriptor = -1
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def missing(self) -> list[tuple[int, int]]:
        """The ranges that have not arrived, each from its first byte up to the one behind its last."""
        if self._descriptor < 0 or is_same(self.target, self.entry):
            return []
        os.ftruncate(self._descriptor, self.entry.size)
        lines = self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []  # a last line may be cut
        arrived = {int(line) for line in lines}
        starts = range(0, self.entry.size, self.size)
        return [(start, min(start + self.size, self.entry.size)) for start in starts if start not in arrived]

    def write(self, start: int, data: bytes) -> None:
        """Takes a range that has arrived; from any thread."""
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], start + written)
        with self._writing, open(self._notes, "a") as notes:
            notes.write(f"{start}\n")

    def finish(self) -> bool:
        """Puts the file in its place, if its checksum agrees; else nothing is left of it."""
        whole = self._descriptor >= 0 and crc32c_of_file(self._unfinished) == self.entry.crc32c
        if whole:
            os.replace(self._unfinished, self.target)
        whole = whole or is_same(self.target, self.entry)
        if self._descriptor >= 0:
            self._notes.unlink(missing_ok=True)
            self._unfinished.unlink(missing_ok=True)
        return whole

"""A disk that fails at the n-th change below some folders: a write as the kernel gets it, a rename, a removal.

Python's doors to the disk are replaced, so what is tested is the code as it is, down to its buffers. One counter is
shared with the processes that are forked meanwhile, so that the change which fails may be a worker's.
"""

import builtins
import contextlib
import errno
import io
import mmap
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KILLED, HALF, FULL, BROKEN, WORKER, READ_ONLY = "killed", "half", "full", "broken", "worker", "read only"
"""At the change: everything is killed; half of it is written, then everything is killed; the disk is full from there
on; this one change fails; the process that does it is killed; nothing can be changed at all."""

GROWING = ("create", "write", "mkdir", "link")
"""What needs room on the disk."""

_COUNT = struct.Struct("q")


class FailingDisk:
    """Counts the changes below some folders, and lets one of them fail.

    Attributes:
      trace: the changes so far, as "who what", for who looks for those that are worth a fault.
    """

    def __init__(self, roots: list[Path], how: str = "", at: int = 0, trace: Path | None = None) -> None:
        self._roots = tuple(f"{os.path.realpath(root)}/" for root in roots)
        self._how, self._at, self._main = how, at, os.getpid()
        self._shared = mmap.mmap(-1, _COUNT.size)
        self._trace = trace
        self._turn = threading.Lock()  # of the threads of a process: training writes checkpoints in one

    def watches(self, path: Any) -> bool:
        if isinstance(path, int):
            return False
        return f"{os.path.abspath(os.fsdecode(path))}/".startswith(self._roots)

    def change(self, what: str) -> bool:
        """Takes note of a change that is about to happen; True if only half of it is to.

        Raises:
          OSError: it fails.
        """
        with self._turn:
            count = _COUNT.unpack_from(self._shared)[0] + 1
            _COUNT.pack_into(self._shared, 0, count)
            if self._trace is not None:
                with _OPEN(self._trace, "a") as file:
                    file.write(f"{'worker' if os.getpid() != self._main else 'main'} {what}\n")
        if self._how == READ_ONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if self._how == FULL and count >= self._at and what in GROWING:
            if what == "write" and count == self._at:
                return True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._how == HALF:  # the next write: threads do not always change things in the same order
            return what == "write" and count >= self._at
        if count == self._at:
            if self._how == KILLED:
                os.killpg(0, signal.SIGKILL)
            if self._how == WORKER:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._how == BROKEN:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return False

    def half_written(self) -> None:
        """What follows upon half a write."""
        if self._how == FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.killpg(0, signal.SIGKILL)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Replaces the doors to the disk until the block ends."""
        doors = [(os, name) for name in _CHANGES] + [(os, "open"), (os, "fsync"), (os, "sync"), (os, "sendfile")]
        before = [(module, name, getattr(module, name)) for module, name in doors]
        opened = builtins.open
        self._main = os.getpid()
        try:
            for name, what in _CHANGES.items():
                setattr(os, name, self._counted(getattr(os, name), what))
            os.open = self._os_open(os.open)
            # Nobody pulls the plug here, and where others work to wait for the disk takes seconds.
            os.fsync = self._counted_always("fsync")
            os.sync = self._counted_always("sync")
            os.sendfile = self._sendfile(os.sendfile)
            builtins.open = io.open = self._open  # type: ignore[assignment]
            yield
        finally:
            builtins.open = io.open = opened
            for module, name, door in before:
                setattr(module, name, door)

    def _counted(self, door: Callable[..., Any], what: str) -> Callable[..., Any]:
        def counted(path: Any, *rest: Any, **named: Any) -> Any:
            there_already = what == "mkdir" and self._exists(path)
            if named.get("dir_fd") is not None or (self.watches(path) and not there_already):
                self.change(what)
            return door(path, *rest, **named)

        return counted

    def _counted_always(self, what: str) -> Callable[..., None]:
        def counted(*_: Any) -> None:
            self.change(what)

        return counted

    def _os_open(self, door: Callable[..., int]) -> Callable[..., int]:
        def os_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if flags & os.O_CREAT and self.watches(path) and not (self._exists(path)):
                self.change("create")
            return door(path, flags, *rest, **named)

        return os_open

    def _sendfile(self, door: Callable[..., int]) -> Callable[..., int]:
        def sendfile(target: int, source: int, offset: int, count: int) -> int:
            if self.change("write"):
                door(target, source, offset, os.fstat(source).st_size // 2)
                self.half_written()
            return door(target, source, offset, count)

        return sendfile

    def _open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not set(mode) & set("wax+") or not self.watches(file):
            return _OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if "w" in mode or not self._exists(file):
            self.change("create")
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    @staticmethod
    def _exists(path: Any) -> bool:
        return os.path.lexists(path)


def nobody_pulls_the_plug() -> None:
    """Leaves out, in this process and its forks, to wait for the disk: where others use it that takes seconds."""

    def not_waited_for(*_: Any) -> None:
        pass

    os.fsync = os.sync = not_waited_for


class _Raw(io.FileIO):
    """A file below its buffer: each `write` is one of the kernel's."""

    def __init__(self, disk: FailingDisk, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        if self._disk.change("write"):
            super().write(memoryview(data).cast("B")[: memoryview(data).nbytes // 2])
            self._disk.half_written()
        return super().write(data)


_OPEN = builtins.open
_CHANGES = {
    "replace": "rename",
    "rename": "rename",
    "link": "link",
    "symlink": "link",
    "unlink": "remove",
    "remove": "remove",
    "rmdir": "remove",
    "mkdir": "mkdir",
    "truncate": "write",
    "utime": "utime",
}

"""A process of ours that works for this one: a fresh interpreter with a pipe, limits, and one way to end it."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

END_SECONDS = 5
"""What a worker has to end after its pipe is closed. After that it is killed."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""There is a worker for each core, and each thread of a worker would reserve memory."""


class WorkerProcess:
    """A worker and the processes that it starts, which are a process group of their own.

    Args:
      module: that is run with the number of the pipe's file descriptor and the arguments.
      environment: variables beside those of this process.

    Attributes:
      pipe: to the worker. A worker ends when it closes, also if this process was killed.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), environment: dict[str, str] | None = None) -> None:
        # Only the worker's end is inherited; all other descriptors are closed there.
        self.pipe, theirs = Pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    **(environment or {}),
                    # The worker finds what this process finds, however it was started.
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
                process_group=0,
            )
        finally:
            # The parent keeps no copy: else the worker's death would never close the pipe.
            theirs.close()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills it and what it started, such as an ffmpeg, at once."""
        # The group first: when its leader is gone, its id may be another's.
        self._kill_group()
        self._process.kill()

    def abandon(self) -> None:
        """Kills the process, and does not wait long: one that hangs in a dead disk ends only when that is back."""
        self.kill()
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_SECONDS)

    def end(self) -> str:
        """Closes the pipe, waits for the process to end, and says how it did."""
        self.pipe.close()
        try:
            status = self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()

        self._kill_group()  # an ffmpeg that a worker left, which crashed
        if status < 0:
            return f"killed its process: {signal.Signals(-status).name}"
        return f"ended its process with status {status}"

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def ignore_interrupts() -> None:
    """Leaves Ctrl-C to the parent, which closes the pipe. In a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_pipe(pipe: Connection) -> None:
    """Kills this process and those it started as soon as its parent has closed the pipe or died. In a worker."""

    def watch() -> None:
        poll = select.poll()
        poll.register(pipe.fileno(), 0)  # 0: that the other end is closed is always reported
        poll.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def limit_memory(megabytes: float, reserved: int | None = None) -> None:
    """Limits the address space of this process, and of those it starts, to what it has now and so much more.

    Memory that is reserved counts, used or not, so the limit is far above what a job takes. Only Linux says how much
    there is now, and other systems do not hold to the limit anyway.

    Args:
      reserved: bytes that it has, if not now's: see `reserved_memory`.
    """
    if reserved := reserved_memory() if reserved is None else reserved:
        # Address space, since Linux does not hold to a limit of resident memory.
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = reserved + int(megabytes * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def reserved_memory() -> int:
    """Bytes of address space that this process has; 0 where the system does not say."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def limit_cpu(seconds: float) -> None:
    """Limits the processor time of this process to what it has used and so much more, in whole seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)

    # A second is added, since the limit counts whole ones.
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))

"""A process of ours that works for this one: a fresh interpreter with a pipe, limits, and one way to end it.

A step that the graph's process has forked forks its workers too: what it has imported costs nothing then.
"""

import contextlib
import gc
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn, Protocol

END_SECONDS = 5
"""What a worker has to end after its pipe is closed. After that it is killed."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""There is a worker for each core, and each thread of a worker would reserve memory."""

_TASKS = Path("/proc/self/task")
_forks_workers = False


def fork_workers() -> None:
    """Lets this process fork its workers while it has a single thread. For a step that is a fork itself."""
    global _forks_workers
    _forks_workers = True


def can_fork() -> bool:
    """Returns whether a fork of this process is whole: no thread could hold a lock that the fork waits for."""
    # The system's threads, not Python's: those of a library count. Without /proc nobody can tell.
    return _forks_workers and _TASKS.is_dir() and len(list(_TASKS.iterdir())) == 1


class WorkerProcess:
    """A worker and the processes that it starts, which are a process group of their own.

    Args:
      module: that is run with the number of the pipe's file descriptor and the arguments.
      environment: variables beside those of this process.
      run: what the module does with its end of the pipe, for a fork; without it the worker is never a fork.

    Attributes:
      pipe: to the worker. A worker ends when it closes, also if this process was killed.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        run: Callable[[Connection], None] | None = None,
    ) -> None:
        # Only the worker's end is inherited; all other descriptors are closed there.
        self.pipe, theirs = Pipe()
        self._process: _Process
        try:
            if run and can_fork():
                self._process = _Fork(run, theirs, [module, str(theirs.fileno()), *arguments])
                return
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


class _Process(Protocol):
    """What a worker needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class _Fork:
    """A fork of this process that runs a worker; see `subprocess.Popen`."""

    def __init__(self, run: Callable[[Connection], None], pipe: Connection, arguments: list[str]) -> None:
        # What is buffered would be written twice.
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run_fork(run, pipe, arguments)

        # On both sides, so that neither has to wait for the other; the child may have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(self.pid, self.pid)
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """
        Raises:
          subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a worker", timeout or 0)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_fork(run: Callable[[Connection], None], pipe: Connection, arguments: list[str]) -> NoReturn:
    """Runs a worker in a forked process, as if Python had just started, and ends it."""
    status = 1
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

        # Objects of the parent are never collected here: what ends them would remove files that are the parent's.
        gc.freeze()

        # The descriptors of the parent, such as the pipes of other workers, lead nowhere. Their numbers stay taken,
        # so that an object of the parent cannot close a file of this process.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            if descriptor not in (1, 2, pipe.fileno(), nowhere):
                os.dup2(nowhere, descriptor, inheritable=descriptor == 0)
        sys.argv = arguments
        run(pipe)
        status = 0
    except (EOFError, ConnectionError):  # the parent has closed the pipe
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


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

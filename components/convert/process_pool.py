"""Work in several processes, where a job that kills its process costs that job and no other.

`concurrent.futures` gives up every pending job when one process dies, and cannot say which job did it. Here each
process has a pipe of its own and answers in order, so the job it died of is known. The processes are fresh
interpreters, not forks: nothing is inherited, neither threads and their locks nor a heavy `__main__`, and each ends
by itself when its pipe closes, however the parent ended.
"""

import contextlib
import dataclasses
import itertools
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from voxline.errors import WorkError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

GROW_SECONDS = 1.0
"""Starting a process costs as much as hundreds of recordings. So there is one at first, and as long as jobs wait there
are twice as many after each second."""

JOBS_AHEAD = 2
"""Jobs that a process holds at once: while the parent takes one answer, the next job is under way."""

MAX_ATTEMPTS = 2
"""A process may be killed from outside (memory, a person), so its job is tried once more."""


@dataclasses.dataclass(frozen=True)
class WorkerCrashed:
    """A job that has no result, and how its process ended."""

    detail: str


@dataclasses.dataclass(frozen=True)
class FunctionName(Generic[JobT, ResultT]):
    """A function by its name, as `package.module:function`: only the processes import what it needs."""

    place: str


def map_in_processes(
    function: Callable[[JobT], ResultT] | FunctionName[JobT, ResultT],
    jobs: Iterable[JobT],
    workers: int,
    limit_seconds: float,
) -> Generator[tuple[int, ResultT | WorkerCrashed], None, None]:
    """Applies the function to each job; yields (index of the job, result) as results come.

    Args:
      function: of a module's top level; a process imports it by its name.
      jobs: one is taken when a process is to have it, and kept until it is done.
      workers: how many processes; 0: as many as there are cores for us.
      limit_seconds: what one job may take before its process is ended.

    Raises:
      WorkError: a process could not even start.
      Exception: the first that the function raised.
    """
    waiting = _JobQueue(jobs)
    attempts: Counter[int] = Counter()
    crew: list[_Worker[JobT, ResultT]] = []
    up, failed_starts, grown = False, 0, time.monotonic()
    try:
        while waiting or any(worker.assigned for worker in crew):
            if waiting and (not crew or (up and time.monotonic() - grown >= GROW_SECONDS)):
                for _ in range(min(len(crew) or 1, (workers or available_cores()) - len(crew))):
                    crew.append(_Worker(function))  # one by one: those that started are ended, should one fail
                grown = time.monotonic()
            for worker in crew:
                while waiting and len(worker.assigned) < JOBS_AHEAD:
                    worker.assign(*waiting.next())
            busy = [worker for worker in crew if worker.assigned]
            patience = min(worker.left(limit_seconds) for worker in busy)
            ready = wait([worker.pipe for worker in busy], min(patience, GROW_SECONDS) if waiting else patience)
            for worker in busy:
                if worker.pipe in ready:
                    try:
                        if worker.greeted():
                            yield worker.answer()
                        elif not up:
                            up, grown = True, time.monotonic()
                        continue
                    except _NotStartedError:
                        # Where others work, the machine ended this one, and not a fault of the set-up.
                        failed_starts += 1
                        if not up or failed_starts > MAX_ATTEMPTS:
                            raise
                        waiting.again(worker.assigned)
                        crew[crew.index(worker)] = _Worker(function)
                        continue
                    except (EOFError, ConnectionError):
                        suspect = worker.assigned[0][0]
                        detail, attempts_left = worker.end(), MAX_ATTEMPTS - 1 - attempts[suspect]
                elif worker.left(limit_seconds) > 0:
                    continue
                else:
                    worker.give_up()
                    detail, attempts_left = f"took longer than {limit_seconds:g} s", 0
                (suspect, job), *innocent = worker.assigned
                attempts[suspect] += 1
                waiting.again([(suspect, job), *innocent] if attempts_left else innocent)
                crew[crew.index(worker)] = _Worker(function)
                if not attempts_left:
                    yield suspect, WorkerCrashed(detail)
    finally:
        for worker in crew:
            if worker.assigned:
                worker.kill()
            worker.end()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _JobQueue(Generic[JobT]):
    """Jobs that no process has, with their indices: those that come back first, then the others in order."""

    def __init__(self, jobs: Iterable[JobT]) -> None:
        self._others = enumerate(jobs)
        self._first: deque[tuple[int, JobT]] = deque()

    def __bool__(self) -> bool:
        if not self._first:
            self._first.extend(itertools.islice(self._others, 1))
        return bool(self._first)

    def next(self) -> tuple[int, JobT]:
        return self._first.popleft()

    def again(self, jobs: Iterable[tuple[int, JobT]]) -> None:
        self._first.extendleft(reversed([*jobs]))


class _NotStartedError(WorkError):
    """A process ended before it said that it was up, so no job is to blame."""


class _Worker(Generic[JobT, ResultT]):
    """A process, and the jobs that it has."""

    def __init__(self, function: Callable[[JobT], ResultT] | FunctionName[JobT, ResultT]) -> None:
        self.pipe, theirs = Pipe()
        self.assigned: deque[tuple[int, JobT]] = deque()
        self._since = time.monotonic()
        self._greeted = False
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        )
        theirs.close()
        with contextlib.suppress(ConnectionError):  # it has died; reading from it will show how
            self.pipe.send(function.place if isinstance(function, FunctionName) else function)

    def assign(self, index: int, job: JobT) -> None:
        if not self.assigned:
            self._since = time.monotonic()
        self.assigned.append((index, job))
        with contextlib.suppress(ConnectionError):  # as above
            self.pipe.send(job)

    def left(self, limit_seconds: float) -> float:
        """Seconds that the job under way may still take."""
        return max(0.0, self._since + limit_seconds - time.monotonic())

    def greeted(self) -> bool:
        """Whether the process has said before that it is up; takes its greeting otherwise.

        Raises:
          _NotStartedError: it ended without one.
        """
        if self._greeted:
            return True
        try:
            self.pipe.recv()
        except (EOFError, ConnectionError):
            raise _NotStartedError(
                f"a worker process could not start ({self.end()}); its own message stands above, or in the full log"
            ) from None
        self._greeted = True
        self._since = time.monotonic()
        return False

    def answer(self) -> tuple[int, ResultT | WorkerCrashed]:
        raised, result = self.pipe.recv()
        index, _ = self.assigned.popleft()
        self._since = time.monotonic()
        if isinstance(result, MemoryError):  # as where the system ends a process for it: this job asked for too much
            return index, WorkerCrashed(f"needs more memory than there is ({result})")
        if raised:
            raise result
        return index, result

    def kill(self) -> None:
        self._process.kill()

    def give_up(self) -> None:
        """Ends the process, and does not wait for long: one that a dead disk holds ends when that comes back."""
        self.kill()
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)

    def end(self) -> str:
        """Waits for the process, which ends when its pipe closes, and says in words how it did."""
        self.pipe.close()
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        if status < 0:
            return f"killed its process: {signal.Signals(-status).name}"
        return f"ended its process with status {status}"


def _worker_main(pipe: Connection) -> None:
    """The life of a process: the function first, then a job at a time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipe
    function = pipe.recv()
    if isinstance(function, str):
        function = pkgutil.resolve_name(function)
    pipe.send("up")
    while True:
        job = pipe.recv()
        try:
            answer: tuple[bool, Any] = (False, function(job))
        except Exception as error:  # nothing is lost: the parent raises it, or makes it a reject
            answer = (True, _picklable(error))
        pipe.send(answer)


def _picklable(error: Exception) -> Exception:
    """The exception, or one that says the same, where it would not arrive."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    with contextlib.suppress(EOFError, ConnectionError):
        _worker_main(Connection(int(sys.argv[1])))

"""Maps a function over jobs in several processes. A job that kills its process is lost; all others have a result.

Each worker has a pipe of its own and answers in order, so it is known which job a dead worker was doing. Workers are
fresh interpreters, not forks: they inherit no threads, no locks and no `__main__`. A worker ends when its pipe closes,
also if the parent was killed. `concurrent.futures` and pebble were tried and lose more; see docs/decisions/0038.
"""

import contextlib
import dataclasses
import itertools
import os
import pickle
import pkgutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from voxline.audio.worker_process import WorkerProcess, ignore_interrupts, limit_memory
from voxline.errors import WorkError
from voxline.garbage import collect_rarely

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

GROW_SECONDS = 1.0
"""To start a process costs as much as hundreds of recordings. So one is started first, and while jobs wait, the number
of processes doubles every second."""

JOBS_AHEAD = 2
"""Jobs that a worker has at once: while the parent takes a result, the next job is under way."""

MAX_ATTEMPTS = 2
"""A worker may be killed from outside (by the system, a person), so its job is tried once more."""


@dataclasses.dataclass(frozen=True)
class WorkerCrashed:
    """A job without a result, and how its worker ended.

    Attributes:
      out_of_memory: whether it needed more than it may have.
    """

    detail: str
    out_of_memory: bool = False


def map_in_processes(
    function: Callable[[JobT], ResultT] | str,
    jobs: Iterable[JobT],
    workers: int,
    limit_seconds: float,
    limit_megabytes: float = 0.0,
    grow_seconds: float = GROW_SECONDS,
) -> Generator[tuple[int, ResultT | WorkerCrashed], None, None]:
    """Applies the function to each job; yields (index of the job, result) as results come.

    Args:
      function: at the top level of a module, or its name as `package.module:function`, which only workers import.
      jobs: taken one by one, when a worker can have the next.
      workers: number of processes; 0: one per available core.
      limit_seconds: what one job may take before its worker is killed.
      limit_megabytes: what a worker may allocate beyond what it has when it starts (0: no limit). A job that needs
        more loses its result; without a limit the system would kill all processes of a container together.
      grow_seconds: after that, if jobs wait, the number of processes doubles.

    Raises:
      WorkError: no worker could start.
      Exception: the first that the function raised.
    """
    pool = _Pool(function, jobs, workers or available_cores(), limit_seconds, limit_megabytes, grow_seconds)
    try:
        yield from pool.results()
    finally:
        pool.stop()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool(Generic[JobT, ResultT]):
    """The workers, and the jobs that none of them has."""

    def __init__(
        self,
        function: Callable[[JobT], ResultT] | str,
        jobs: Iterable[JobT],
        size: int,
        limit_seconds: float,
        limit_megabytes: float,
        grow_seconds: float,
    ) -> None:
        self._function, self._size, self._limit, self._megabytes = function, size, limit_seconds, limit_megabytes
        self._grow_seconds = grow_seconds
        self._queue = _JobQueue(jobs)
        self._workers: list[_Worker[JobT, ResultT]] = []
        self._attempts: Counter[int] = Counter()
        self._any_started, self._failed_starts, self._grown = False, 0, 0.0

    def results(self) -> Iterator[tuple[int, ResultT | WorkerCrashed]]:
        while self._queue or any(worker.assigned for worker in self._workers):
            self._grow()
            for worker in self._workers:
                while self._queue and len(worker.assigned) < JOBS_AHEAD:
                    worker.assign(*self._queue.next())
            for worker in self._wait():
                if result := self._receive(worker):
                    yield result

    def stop(self) -> None:
        for worker in self._workers:
            if worker.assigned:
                worker.kill()
            worker.end()

    def _grow(self) -> None:
        """Starts the first worker, and more while jobs wait."""
        due = self._any_started and time.monotonic() - self._grown >= self._grow_seconds
        if self._queue and (due or not self._workers):
            for _ in range(min(len(self._workers) or 1, self._size - len(self._workers))):
                self._workers.append(_Worker(self._function, self._megabytes))
            self._grown = time.monotonic()

    def _wait(self) -> "list[_Worker[JobT, ResultT]]":
        """Waits for the workers that have sent something, ended, or exceeded the time limit."""
        busy = [worker for worker in self._workers if worker.assigned]
        timeout = min(worker.seconds_left(self._limit) for worker in busy)
        ready = wait([worker.pipe for worker in busy], min(timeout, self._grow_seconds) if self._queue else timeout)
        return [worker for worker in busy if worker.pipe in ready or not worker.seconds_left(self._limit)]

    def _receive(self, worker: "_Worker[JobT, ResultT]") -> tuple[int, ResultT | WorkerCrashed] | None:
        """What a worker sent; None if it has only started, or its job is tried again."""
        if not worker.pipe.poll():
            worker.abandon()
            return self._replace(worker, f"took longer than {self._limit:g} s", retry=False)
        try:
            if worker.started:
                return worker.result()
            worker.greet()
        except _NotStartedError:
            self._failed_starts += 1
            if not self._any_started or self._failed_starts > MAX_ATTEMPTS:
                raise
            # Other workers started, so the machine ended this one, and no job is to blame.
            self._queue.put_back(worker.assigned)
            self._workers[self._workers.index(worker)] = _Worker(self._function, self._megabytes)
        except (EOFError, ConnectionError):
            return self._replace(worker, worker.end(), retry=True)
        else:
            if not self._any_started:
                self._any_started, self._grown = True, time.monotonic()
        return None

    def _replace(
        self, worker: "_Worker[JobT, ResultT]", how_it_ended: str, *, retry: bool
    ) -> tuple[int, WorkerCrashed] | None:
        """Replaces a dead worker. Its current job is lost, unless it may be tried again."""
        index, _ = worker.assigned[0]
        self._attempts[index] += 1
        is_lost = not retry or self._attempts[index] == MAX_ATTEMPTS
        if is_lost:
            worker.assigned.popleft()
        self._queue.put_back(worker.assigned)
        self._workers[self._workers.index(worker)] = _Worker(self._function, self._megabytes)
        return (index, WorkerCrashed(how_it_ended)) if is_lost else None


class _JobQueue(Generic[JobT]):
    """Jobs that no worker has, with their indices: those that were put back first, then the others in order."""

    def __init__(self, jobs: Iterable[JobT]) -> None:
        self._others = enumerate(jobs)
        self._first: deque[tuple[int, JobT]] = deque()

    def __bool__(self) -> bool:
        if not self._first:
            self._first.extend(itertools.islice(self._others, 1))
        return bool(self._first)

    def next(self) -> tuple[int, JobT]:
        return self._first.popleft()

    def put_back(self, jobs: Iterable[tuple[int, JobT]]) -> None:
        self._first.extendleft(reversed([*jobs]))


class _NotStartedError(WorkError):
    """A worker ended before it said that it was up, so no job is to blame."""


class _Worker(Generic[JobT, ResultT]):
    """A process, and the jobs that it has.

    Attributes:
      started: whether it has said that it is up.
    """

    def __init__(self, function: Callable[[JobT], ResultT] | str, limit_megabytes: float) -> None:
        self._process = WorkerProcess(__name__, [str(limit_megabytes)])
        self.pipe = self._process.pipe
        self.assigned: deque[tuple[int, JobT]] = deque()
        self.started = False
        self._since = time.monotonic()
        self._send(function)

    def assign(self, index: int, job: JobT) -> None:
        if not self.assigned:
            self._since = time.monotonic()
        self.assigned.append((index, job))
        self._send(job)

    def seconds_left(self, limit_seconds: float) -> float:
        """Seconds that the current job may still take."""
        return max(0.0, self._since + limit_seconds - time.monotonic())

    def greet(self) -> None:
        """Receives the message that the worker is up.

        Raises:
          _NotStartedError: it ended without one.
        """
        try:
            self.pipe.recv()
        except (EOFError, ConnectionError):
            raise _NotStartedError(
                f"a worker process could not start ({self.end()}); its own message is above, or in the full log"
            ) from None
        self.started = True
        self._since = time.monotonic()

    def result(self) -> tuple[int, ResultT | WorkerCrashed]:
        """Receives a result.

        Raises:
          EOFError, ConnectionError: the worker died.
          Exception: the function raised it.
        """
        raised, result = self.pipe.recv()
        index, _ = self.assigned.popleft()
        self._since = time.monotonic()
        if isinstance(result, MemoryError):  # as if the system had killed the worker: this job needs too much
            return index, WorkerCrashed(f"needs more memory than there is ({result})", out_of_memory=True)
        if raised:
            raise result
        return index, result

    def kill(self) -> None:
        self._process.kill()

    def abandon(self) -> None:
        self._process.abandon()

    def end(self) -> str:
        return self._process.end()

    def _send(self, message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # it has died, which shows when its pipe is read
            self.pipe.send(message)


def _worker_main(pipe: Connection, limit_megabytes: float) -> None:
    """What a worker does: receives the function, then one job after the other."""
    ignore_interrupts()
    function = pipe.recv()
    if isinstance(function, str):
        function = pkgutil.resolve_name(function)
    if limit_megabytes:
        limit_memory(limit_megabytes)
    pipe.send("up")
    while True:
        job = pipe.recv()
        try:
            answer: tuple[bool, Any] = (False, function(job))
        except Exception as error:  # the parent raises it, or makes it a reject
            answer = (True, _picklable(error))
        pipe.send(answer)


def _picklable(error: Exception) -> Exception:
    """The exception, or a RuntimeError with the same message if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    collect_rarely()
    with contextlib.suppress(EOFError, ConnectionError):
        _worker_main(Connection(int(sys.argv[1])), float(sys.argv[2]))

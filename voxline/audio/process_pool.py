"""Maps a function over jobs in several processes. A job that kills its process is lost; all others have a result.

Jobs and results cross as MessagePack, and are checked against their types: a worker that a recording controls can send
values of the result's type, or the text of an error, and no object.

Each worker has a pipe of its own and answers in order, so it is known which job a dead worker was doing. Workers are
fresh interpreters: they inherit no threads, no locks and no `__main__`. Only a step with a single thread, which is a
fork itself, forks them (worker_process.py). A worker ends when its pipe closes, also if the parent was killed.
`concurrent.futures` and pebble were tried and lose more; see docs/decisions/0038.
"""

import contextlib
import functools
import itertools
import os
import pkgutil
import sys
import time
import typing
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from voxline.audio.worker_process import WorkerProcess, can_fork, ignore_interrupts, limit_memory
from voxline.errors import SettingsError, TransientError, WorkError
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

MAX_ANSWER_BYTES = 1 << 28
"""Of the results of one job, such as all segments of a long recording."""

_ERRORS: dict[str, type[Exception]] = {error.__name__: error for error in (WorkError, SettingsError, TransientError)}
"""Errors that the caller gets in their own type; so are those of the system."""


class WorkerCrashed(msgspec.Struct, frozen=True, tag=True):
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
    result_type: Any = Any,
) -> Generator[tuple[int, ResultT | WorkerCrashed], None, None]:
    """Applies the function to each job; yields (index of the job, result) as results come.

    Args:
      function: at the top level of a module, or its name as `package.module:function`, which only workers import.
        The type of its first parameter is that of a job; without one a job is plain values.
      jobs: taken one by one, when a worker can have the next.
      workers: number of processes; 0: one per available core.
      limit_seconds: what one job may take before its worker is killed.
      limit_megabytes: what a worker may allocate beyond what it has when it starts (0: no limit). A job that needs
        more loses its result; without a limit the system would kill all processes of a container together.
      grow_seconds: after that, if jobs wait, the number of processes doubles.
      result_type: of the function, for msgspec; an answer of another type is a crash of its worker.

    Raises:
      WorkError: no worker could start.
      OSError, WorkError, SettingsError: the first that the function raised.
      RuntimeError: the function raised another error; the message names its type.
    """
    # A function goes by its name: a fresh interpreter imports it, and no code crosses the pipe.
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    start: Callable[[], _Worker[JobT, ResultT]] = functools.partial(_Worker, name, limit_megabytes, result_type)

    pool = _Pool(start, jobs, workers or available_cores(), limit_seconds, grow_seconds)
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
        start_worker: "Callable[[], _Worker[JobT, ResultT]]",
        jobs: Iterable[JobT],
        size: int,
        limit_seconds: float,
        grow_seconds: float,
    ) -> None:
        self._start_worker = start_worker
        self._size = size
        self._limit = limit_seconds
        self._grow_seconds = grow_seconds

        self._queue = _JobQueue(jobs)
        self._workers: list[_Worker[JobT, ResultT]] = []

        self._attempts: Counter[int] = Counter()
        self._any_started = False
        self._failed_starts = 0
        self._grown = 0.0  # time.monotonic() of the last growth

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
        # A caller that stops early leaves jobs under way. An idle worker ends by itself when its pipe closes.
        for worker in self._workers:
            if worker.assigned:
                worker.kill()
            worker.end()

    def _grow(self) -> None:
        """Starts the first worker, and more while jobs wait."""
        # Not before the first one is up: if it cannot start, neither can the others.
        due = self._any_started and time.monotonic() - self._grown >= self._grow_seconds
        if self._queue and (due or not self._workers):
            for _ in range(min(len(self._workers) or 1, self._size - len(self._workers))):
                self._workers.append(self._start_worker())
            self._grown = time.monotonic()

    def _wait(self) -> "list[_Worker[JobT, ResultT]]":
        """Waits for the workers that have sent something, ended, or exceeded the time limit."""
        # While jobs wait, it wakes to start more workers too.
        busy = [worker for worker in self._workers if worker.assigned]
        timeout = min(worker.seconds_left(self._limit) for worker in busy)
        ready = wait([worker.pipe for worker in busy], min(timeout, self._grow_seconds) if self._queue else timeout)
        return [worker for worker in busy if worker.pipe in ready or not worker.seconds_left(self._limit)]

    def _receive(self, worker: "_Worker[JobT, ResultT]") -> tuple[int, ResultT | WorkerCrashed] | None:
        """The result that a worker sent; None if it has only started, or its job is tried again."""
        # `_wait` returned it with nothing to read, so its time is up. A retry would take as long.
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
            self._workers[self._workers.index(worker)] = self._start_worker()
        except _BrokenAnswerError:
            worker.abandon()
            return self._replace(worker, "its process sent something else than a result", retry=False)
        except _WorkerDiedError:
            return self._replace(worker, worker.end(), retry=True)
        else:
            if not self._any_started:
                self._any_started = True
                self._grown = time.monotonic()
        return None

    def _replace(
        self, worker: "_Worker[JobT, ResultT]", how_it_ended: str, *, retry: bool
    ) -> tuple[int, WorkerCrashed] | None:
        """Replaces a dead worker. Its current job is lost, unless it may be tried again."""
        # A worker answers in order, so it died of the first of its jobs. The others have done nothing, and come back.
        index, _ = worker.assigned[0]
        self._attempts[index] += 1
        is_lost = not retry or self._attempts[index] == MAX_ATTEMPTS
        if is_lost:
            worker.assigned.popleft()

        self._queue.put_back(worker.assigned)
        self._workers[self._workers.index(worker)] = self._start_worker()
        return (index, WorkerCrashed(how_it_ended)) if is_lost else None


class _JobQueue(Generic[JobT]):
    """Jobs that no worker has, with their indices: those that were put back first, then the others in order."""

    def __init__(self, jobs: Iterable[JobT]) -> None:
        self._others = enumerate(jobs)
        self._first: deque[tuple[int, JobT]] = deque()

    def __bool__(self) -> bool:
        # Jobs are taken one by one, since the iterable may read a manifest of millions of lines.
        if not self._first:
            self._first.extend(itertools.islice(self._others, 1))
        return bool(self._first)

    def next(self) -> tuple[int, JobT]:
        return self._first.popleft()

    def put_back(self, jobs: Iterable[tuple[int, JobT]]) -> None:
        self._first.extendleft(reversed([*jobs]))


class _NotStartedError(WorkError):
    """A worker ended before it said that it was up, so no job is to blame."""


class _WorkerDiedError(Exception):
    """A worker closed its pipe without an answer."""


class _BrokenAnswerError(Exception):
    """A worker sent bytes that are no result and no failure."""


class _Failure(msgspec.Struct, frozen=True):
    """An error that the function raised.

    Attributes:
      error: the name of its type; OSError for all errors of the system.
      number, file: of an error of the system.
    """

    error: str
    detail: str
    number: int | None = None
    file: str | None = None

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        if isinstance(error, OSError) and error.errno is not None:
            file = None if error.filename is None else _plain_text(error.filename)
            return cls("OSError", _plain_text(error.strerror), error.errno, file)
        return cls(type(error).__name__, _plain_text(error))

    def exception(self) -> Exception:
        if self.error == "OSError" and self.number is not None:
            return OSError(self.number, self.detail, *([] if self.file is None else [self.file]))
        if self.error in _ERRORS:
            return _ERRORS[self.error](self.detail)
        return RuntimeError(f"{self.error}: {self.detail}")


def _plain_text(value: object) -> str:
    """A text without half surrogate pairs, which file names of odd bytes have."""
    return str(value).encode(errors="backslashreplace").decode()


def _plain_value(value: object) -> bytes:
    """The plain form of a value that MessagePack lacks: of a path its bytes."""
    if isinstance(value, Path):
        return bytes(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent to a process")


def _typed_value(kind: type, value: bytes) -> object:
    """The inverse of `_plain_value`."""
    if issubclass(kind, Path) and isinstance(value, bytes):
        return Path(os.fsdecode(value))
    raise NotImplementedError(f"{kind.__name__} cannot be sent to a process")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain_value).encode


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_typed_value).decode


class _Worker(Generic[JobT, ResultT]):
    """A process, and the jobs that it has.

    Attributes:
      started: whether it has said that it is up.
    """

    def __init__(self, function: str, limit_megabytes: float, result_type: Any) -> None:
        if can_fork():
            pkgutil.resolve_name(function)  # imported once, for all forks
        run = functools.partial(_worker_main, limit_megabytes=limit_megabytes)
        self._process = WorkerProcess(__name__, [str(limit_megabytes)], run=run)
        self._decode = _decoder(tuple[_Failure | None, result_type | None])
        self.pipe = self._process.pipe
        self.assigned: deque[tuple[int, JobT]] = deque()
        self.started = False

        # Of the job under way, or of the start: both have the same limit.
        self._since = time.monotonic()
        self._send(function.encode())

    def assign(self, index: int, job: JobT) -> None:
        # The clock of a job starts when the worker turns to it, not when it is handed over ahead of time.
        if not self.assigned:
            self._since = time.monotonic()
        self.assigned.append((index, job))
        self._send(_encode(job))

    def seconds_left(self, limit_seconds: float) -> float:
        """Seconds that the current job may still take."""
        return max(0.0, self._since + limit_seconds - time.monotonic())

    def greet(self) -> None:
        """Receives the message that the worker is up.

        Raises:
          _NotStartedError: it ended without one.
        """
        try:
            self._receive()
        except _WorkerDiedError:
            raise _NotStartedError(
                f"a worker process could not start ({self.end()}); its own message is above, or in the full log"
            ) from None
        self.started = True
        self._since = time.monotonic()

    def result(self) -> tuple[int, ResultT | WorkerCrashed]:
        """Receives a result.

        Raises:
          _WorkerDiedError: the worker died.
          _BrokenAnswerError: it sent something else than a result.
          Exception: the function raised it.
        """
        try:
            failure, result = self._decode(self._receive())
        except (ValueError, NotImplementedError, RecursionError):
            raise _BrokenAnswerError from None

        index, _ = self.assigned.popleft()
        self._since = time.monotonic()
        if failure is None:
            return index, result
        if failure.error == "MemoryError":  # as if the system had killed the worker: this job needs too much
            return index, WorkerCrashed(f"needs more memory than there is ({failure.detail})", out_of_memory=True)
        raise failure.exception()

    def kill(self) -> None:
        self._process.kill()

    def abandon(self) -> None:
        self._process.abandon()

    def end(self) -> str:
        return self._process.end()

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it has died, which shows when its pipe is read
            self.pipe.send_bytes(message)

    def _receive(self) -> bytes:
        try:
            return self.pipe.recv_bytes(MAX_ANSWER_BYTES)
        except (EOFError, ConnectionError):
            raise _WorkerDiedError from None
        except OSError:  # longer than it may be
            raise _BrokenAnswerError from None


def _worker_main(pipe: Connection, limit_megabytes: float) -> None:
    """Receives the name of the function, then one job after the other. In a worker."""
    # Ctrl-C reaches all processes of a terminal; the parent decides what ends.
    ignore_interrupts()
    function = pkgutil.resolve_name(pipe.recv_bytes().decode())
    decode = _decoder(_job_type(function))

    # After the imports, since the limit is for what the jobs add to them.
    if limit_megabytes:
        limit_memory(limit_megabytes)

    pipe.send_bytes(b"up")

    while True:
        job = decode(pipe.recv_bytes())
        answer: tuple[_Failure | None, Any]
        try:
            answer = (None, function(job))
        except Exception as error:  # the parent raises it, or makes it a reject
            answer = (_Failure.of(error), None)
        pipe.send_bytes(_encode(answer))


def _job_type(function: Callable[..., Any]) -> Any:
    """The type of a function's first parameter."""
    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    return next(iter(hints.values()), Any)


if __name__ == "__main__":
    collect_rarely()
    with contextlib.suppress(EOFError, ConnectionError):
        _worker_main(Connection(int(sys.argv[1])), float(sys.argv[2]))

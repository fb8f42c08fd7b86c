"""Workers that die, hang or fail lose the job that they were doing, and no other."""

import dataclasses
import errno
import operator
import os
import pickle
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from voxline.audio import process_pool, worker_process
from voxline.audio.process_pool import WorkerCrashed, map_in_processes
from voxline.components.convert.jobs import ConversionJob, JobGroup, JobResult, SourceChanged, convert_in_processes
from voxline.errors import WorkError

HARMLESS, DEADLY = signal.SIGCONT, signal.SIGKILL


def _slow(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.fixture(autouse=True, params=["fresh", "fork"])
def _kind_of_worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is run with workers that are fresh interpreters, and with forks."""
    monkeypatch.setattr(worker_process, "can_fork", lambda: request.param == "fork")


def test_every_job_has_its_own_result() -> None:
    results = dict(map_in_processes(operator.neg, list(range(200)), 2, 60))
    assert results == {n: -n for n in range(200)}


@pytest.fixture
def _no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers end as soon as they start."""
    monkeypatch.setattr(worker_process, "can_fork", lambda: False)
    monkeypatch.setattr("sys.executable", "/bin/false")


@pytest.mark.usefixtures("_no_python")
def test_no_jobs_start_no_process() -> None:
    assert list(map_in_processes(operator.neg, [], 2, 60)) == []


def test_a_function_given_by_name_is_imported_by_the_workers_alone() -> None:
    assert dict(map_in_processes("operator:neg", [1, 2], 2, 60)) == {0: -1, 1: -2}


def test_jobs_are_taken_only_when_a_worker_is_free() -> None:
    taken = []
    results = map_in_processes(operator.neg, (taken.append(n) or n for n in range(100)), 2, 60)  # type: ignore[func-returns-value]
    next(results)
    results.close()
    assert len(taken) <= 2 * process_pool.JOBS_AHEAD + 1


@pytest.mark.slow
def test_few_jobs_start_one_process_and_slow_ones_start_more() -> None:
    for seconds, expected in ((60.0, {1}), (0.2, {2, 3, 4})):
        jobs = [0.05] * 60
        assert len({pid for _, pid in map_in_processes(_slow, jobs, 4, 60, grow_seconds=seconds)}) in expected


def test_a_job_that_kills_its_process_is_the_only_one_lost() -> None:
    jobs = [HARMLESS, HARMLESS, DEADLY, HARMLESS, signal.SIGSEGV, DEADLY, *[HARMLESS] * 20]
    results = dict(map_in_processes(signal.raise_signal, jobs, 2, 60))
    assert sorted(results) == list(range(26))
    assert {index: result.detail for index, result in results.items() if isinstance(result, WorkerCrashed)} == {
        2: "killed its process: SIGKILL",
        4: "killed its process: SIGSEGV",
        5: "killed its process: SIGKILL",
    }


def test_a_job_that_exits_its_process_is_lost() -> None:
    [(_, result)] = map_in_processes(os._exit, [3], 1, 60)
    assert result == WorkerCrashed("ended its process with status 3")


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_job_over_the_time_limit_is_lost() -> None:
    start = time.monotonic()
    results = dict(map_in_processes(time.sleep, [0, 6_000, 0, 0], 1, 2.0))
    assert results == {0: None, 1: WorkerCrashed("took longer than 2 s"), 2: None, 3: None}
    assert time.monotonic() - start < 3_000


def test_an_error_of_the_function_is_raised() -> None:
    with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
        list(map_in_processes(int, ["1", "one"], 1, 60))


def _fail(kind: str) -> None:
    if kind == "system":
        raise OSError(errno.ENOSPC, "No space left on device", "/full")
    raise WorkError("no ffmpeg")


@pytest.mark.slow
def test_an_error_that_a_person_can_fix_keeps_its_type() -> None:
    with pytest.raises(OSError, match="No space left on device: '/full'") as full:
        list(map_in_processes(_fail, ["system"], 1, 60))
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(WorkError, match="no ffmpeg"):
        list(map_in_processes(_fail, ["work"], 1, 60))


class _Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.file,)


def _send_pickle(file: str) -> str:
    """Sends a pickle over the pipe of this worker, as a decoder that a recording controls could."""
    if file:
        Connection(int(sys.argv[1])).send_bytes(pickle.dumps((False, _Trap(file))))
    return "result"


def test_a_pickle_of_a_worker_is_no_result(tmp_path: Path) -> None:
    results = dict(map_in_processes(_send_pickle, ["", str(tmp_path / "made"), ""], 1, 60, result_type=str))
    assert not (tmp_path / "made").exists()
    assert results == {0: "result", 1: WorkerCrashed("its process sent something else than a result"), 2: "result"}


def test_a_result_of_another_type_is_no_result() -> None:
    results = dict(map_in_processes(operator.neg, [1, 2], 1, 60, result_type=str))
    assert set(results.values()) == {WorkerCrashed("its process sent something else than a result")}


@dataclasses.dataclass(frozen=True)
class _Job:
    path: Path
    seconds: float | None = None


def _echo(jobs: tuple[_Job, ...]) -> list[_Job]:
    assert all(isinstance(job, _Job) for job in jobs)
    return list(jobs)


def test_values_have_their_types_on_both_sides() -> None:
    jobs = [(_Job(Path("/a"), 1e16), _Job(Path(os.fsdecode(b"/\xff")))), ()]
    assert dict(map_in_processes(_echo, jobs, 1, 60, result_type=list[_Job])) == {0: list(jobs[0]), 1: []}


def _too_few(jobs: JobGroup) -> list[JobResult]:
    return [SourceChanged(job.source) for job in jobs[1:]]


def test_too_few_results_are_taken_for_no_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("voxline.components.convert.jobs.CONVERT_RECORDINGS", f"{__name__}:_too_few")
    job = ConversionJob("a.wav", "hash", 0.0, None, tmp_path / "a.wav", 16_000, -60.0)
    crash = WorkerCrashed("its process sent 1 results for 2 recordings")
    assert list(convert_in_processes([(job, job)], 1, 60, 0)) == [(0, [crash, crash])]


def test_a_job_that_asks_for_too_much_memory_is_the_only_one_lost() -> None:
    results = dict(map_in_processes(bytes, [1, 1 << 62, 2], 1, 60))
    assert results == {0: b"\0", 1: WorkerCrashed("needs more memory than there is ()", out_of_memory=True), 2: b"\0\0"}


@pytest.mark.usefixtures("_no_python")
def test_processes_that_cannot_start_stop_the_run_instead_of_blaming_jobs() -> None:
    with pytest.raises(WorkError, match="could not start"):
        list(map_in_processes(operator.neg, [1, 2], 1, 60))


def test_no_process_is_left_when_the_caller_stops_early() -> None:
    before = _children()
    results = map_in_processes(time.sleep, [0.1] * 50, 2, 60, grow_seconds=0.01)
    for _ in range(10):
        next(results)
    assert len(_children() - before) == 2
    results.close()
    assert _children() == before  # ended, and waited for


def test_a_fork_has_no_descriptor_of_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_process, "can_fork", lambda: True)
    (tmp_path / "file").write_text("of the parent")
    with open(tmp_path / "file") as file:
        results = dict(map_in_processes(_targets, [file.fileno()] * 3, 2, 60, grow_seconds=0.0))
        assert file.read() == "of the parent"
    assert set(results.values()) == {os.devnull}


def _targets(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def test_workers_are_forked_only_by_a_step_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not worker_process.can_fork()
    monkeypatch.setattr(worker_process, "_forks_workers", True)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        assert not worker_process.can_fork()


def _children() -> set[str]:
    """The ids of this process's processes, also of those that have ended."""
    return {child for file in Path("/proc/self/task").glob("*/children") for child in file.read_text().split()}

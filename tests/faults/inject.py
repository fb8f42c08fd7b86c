"""Runs a step repeatedly, with a fault at each of its changes in turn, and prints the results as JSON.

  python -m tests.faults.inject convert /a/new/folder

Everything is imported once, and each trial is a fork. A trial runs the step with the fault, then the step again, and
the step with other input after that; and, on a copy of what the fault left, the step with other input at once.
"""

import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.faults.failing import BROKEN, FULL, GROWING, HALF, KILLED, WORKER, FailingDisk, nobody_pulls_the_plug
from tests.faults.steps import BEAM, STEPS, end_state, fresh, leftovers, make_corpus
from voxline.audio import worker_process
from voxline.components.convert import process_pool

REFUSED = 3
KINDS = {
    "convert": (KILLED, HALF, FULL, BROKEN, WORKER),
    "extract": (KILLED, HALF, FULL, BROKEN),
    "beam": (KILLED, HALF),
    "publish": (KILLED, HALF, FULL, BROKEN),
}
"""Of faults, by the step that they befall: only convert has workers; Beam writes as extract does without it."""


def main(name: str, root: Path) -> dict[str, list[dict[str, Any]]]:
    step, corpus, prepared = {**STEPS, "beam": BEAM}[name], root / "corpus", root / "prepared"
    nobody_pulls_the_plug()
    gc.freeze()  # or the first collection of each fork would copy all memory that holds an object
    worker_process.subprocess.Popen = Forked  # type: ignore[misc]
    process_pool.JOBS_AHEAD = 1  # else worker and parent write at once, and the n-th change is now this one, now that
    make_corpus(corpus)
    prepared.mkdir()
    step.prepare(corpus, prepared)
    undisturbed, straight = fresh(prepared, root / "undisturbed"), fresh(prepared, root / "straight")
    states = _both(step, corpus, undisturbed)
    content = step.content(step.second(corpus, straight).folder)
    fresh(prepared, root / "traced")
    disk = FailingDisk([root / "traced"], trace=root / "trace")
    assert _in_fork(lambda: _disturbed(step.first, corpus, root / "traced", disk)) == 0
    changes = (root / "trace").read_text().splitlines()

    def tried(how: str, number: int) -> dict[str, Any]:
        trial, report = fresh(prepared, root / f"{how}-{number}"), root / "report"
        disk = FailingDisk([trial], how, number)
        status = _in_fork(lambda: _disturbed(step.first, corpus, trial, disk))
        other = fresh(trial, root / "other") if how == KILLED else root / "none"
        again = _in_fork(lambda: _judged(step, corpus, trial, other, states, content, report))
        found = report.read_text() if report.is_file() else f"ended with status {again}"
        report.unlink(missing_ok=True)
        for folder in (trial, other):
            shutil.rmtree(folder, ignore_errors=True)
        return {"at": number, "change": changes[number - 1], "status": status, "found": found}

    return {
        how: [tried(how, number) for number, change in enumerate(changes, start=1) if _worth_it(change, how)]
        for how in KINDS[name]
    }


def _worth_it(change: str, how: str) -> bool:
    """Whether it differs from the fault at another change, or from another fault at this one."""
    who, what = change.split()
    return {
        # Neither `fsync` nor `sync` changes anything here: as at the next one. A write is left half done, see HALF.
        KILLED: what not in ("fsync", "sync", "write"),
        HALF: what == "write",
        FULL: what in GROWING,
        BROKEN: what not in GROWING,
        WORKER: who == "worker",
    }[how]


def _both(step: Any, corpus: Path, folder: Path) -> list[dict[str, str]]:
    states = []
    for run in (step.first, step.second):
        run(corpus, folder)
        states.append(end_state(folder))
    return states


def _disturbed(run: Callable[[Path, Path], object], corpus: Path, folder: Path, disk: FailingDisk) -> int:
    with disk.in_place():
        try:
            run(corpus, folder)
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            return REFUSED
    return 0


def _judged(
    step: Any, corpus: Path, trial: Path, other: Path, states: list[dict[str, str]], content: Any, report: Path
) -> int:
    faults = []
    _age(trial)
    try:
        for number, (found, expected) in enumerate(zip(_both(step, corpus, trial), states, strict=True), start=1):
            if found != expected:
                differing = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
                faults.append(f"after run {number}: {sorted(differing)}")
        step.tidy(trial)
        if lying := leftovers(trial):
            faults.append(f"left over: {lying}")
        if other.is_dir() and step.content(step.second(corpus, other).folder) != content:
            faults.append("other content where other input follows upon the fault")
    except Exception:
        faults.append(traceback.format_exc())
    report.write_text("\n".join(faults))
    return 0


def _age(folder: Path) -> None:
    """Makes unfinished files two days old, as if their process had been killed long ago."""
    for name in leftovers(folder):
        for path in (folder / name, *(folder / name).rglob("*")):
            os.utime(path, (time.time() - 2 * 86_400,) * 2)


def _in_fork(work: Callable[[], int]) -> int:
    """The exit status of a process of its own, and of its own group; minus the signal that killed it."""
    sys.stdout.flush()
    if (process := os.fork()) == 0:
        os.setpgid(0, 0)
        status = 1
        with contextlib.suppress(BaseException):
            status = work()
        os._exit(status)
    with contextlib.suppress(OSError):
        os.setpgid(process, process)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


class Forked:
    """In the place of `subprocess.Popen`: a fork in which the counter continues, and nothing is imported again."""

    def __init__(self, command: list[str], pass_fds: list[int], **_: object) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                os.closerange(3, pass_fds[0])
                os.closerange(pass_fds[0] + 1, 1_000)
                process_pool._worker_main(Connection(pass_fds[0]), 0.0)
            os._exit(0)

    def wait(self, timeout: float | None = None) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.stdout, printed = sys.stderr, sys.stdout
    result = main(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps(result, indent=1), file=printed, flush=True)

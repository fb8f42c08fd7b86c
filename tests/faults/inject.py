"""Runs a step repeatedly, with a fault at each of its changes in turn, and prints the results as JSON.

  python -m tests.faults.inject convert /a/new/folder

Everything is imported once, and each trial is a fork. A trial runs the step with the fault, then the step again, and
the step with other input after that; and, on a copy of what the fault left, the step with other input at once.
"""

import contextlib
import gc
import importlib
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
from tests.faults.steps import BEAM, EVERY_STEP, Step, fresh, leftovers
from voxline.audio import process_pool, worker_process
from voxline.families.family import register

REFUSED = 3
ANY_DISK = (KILLED, HALF, FULL, BROKEN)
KINDS = {
    "ingest": ANY_DISK,
    "convert": (*ANY_DISK, WORKER),
    "validate": ANY_DISK,
    "extract": ANY_DISK,
    "beam": (KILLED, HALF),
    "train": ANY_DISK,
    "language": ANY_DISK,
    "evaluate": ANY_DISK,
    "push": ANY_DISK,
    "publish": ANY_DISK,
}
"""Of faults, by the step that they befall: only convert has workers; Beam writes as extract does without it."""
EVERY = "VOXLINE_TEST_EVERY_CHANGE"
"""If set, a fault hits every change: `make test-faults`. Else it hits a few of each kind: last, first and between."""
FEW = "VOXLINE_TEST_FEW_CHANGES"
"""If set, a kill hits the first and the last change of each kind alone, any other fault the last: `make test`."""


def find_step(name: str) -> Step:
    if name == "train":
        from tests.faults.train_step import TRAIN, GraphFamily  # it imports TensorFlow

        register(GraphFamily())
        return TRAIN
    if name in ("language", "evaluate", "push"):
        from tests.faults.model_steps import MODEL_STEPS  # it imports ONNX Runtime
        from tests.push.test_add_a_family import WordCountFamily

        # Here and not in the module: pytest imports that for doctests, and other tests list all families.
        register(WordCountFamily())
        return MODEL_STEPS[name]
    return {**EVERY_STEP, "beam": BEAM}[name]


def main(name: str, root: Path) -> dict[str, list[dict[str, Any]]]:
    step, corpus, prepared, report = find_step(name), root / "corpus", root / "prepared", root / "report"
    nobody_pulls_the_plug()
    if name == "convert":
        worker_process.subprocess.Popen = Forked  # type: ignore[misc]
        process_pool.JOBS_AHEAD = 1  # else worker and parent write at once, and the n-th change differs
    prepared.mkdir(parents=True)
    states, content = _answer(step, report, lambda: _undisturbed(step, corpus, prepared, root))
    gc.freeze()  # or the first collection of each fork would copy all memory that holds an object
    fresh(prepared, root / "traced")
    disk = FailingDisk([root / "traced"], trace=root / "trace")
    assert _in_fork(lambda: _disturbed(step.first, corpus, root / "traced", disk)) == 0
    changes = (root / "trace").read_text().splitlines()

    def tried(how: str, number: int) -> dict[str, Any]:
        trial = fresh(prepared, root / f"{how}-{number}")
        disk = FailingDisk([trial], how, number)
        status = _in_fork(lambda: _disturbed(step.first, corpus, trial, disk))
        other = fresh(trial, root / "other") if how == KILLED and step.second else root / "none"
        again = _in_fork(lambda: _judged(step, corpus, trial, other, states, content, report))
        found = report.read_text() if report.is_file() else f"ended with status {again}"
        report.unlink(missing_ok=True)
        for folder in (trial, other):
            shutil.rmtree(folder, ignore_errors=True)
        return {"at": number, "change": changes[number - 1], "status": status, "found": found}

    return {how: [tried(how, number) for number in _chosen(changes, how, step.sample)] for how in KINDS[name]}


def _undisturbed(step: Step, corpus: Path, prepared: Path, root: Path) -> list[Any]:
    """The states after each run without a fault; the content of the second where the first was never done."""
    step.corpus(corpus)
    step.prepare(corpus, prepared)
    states = _states(step, corpus, fresh(prepared, root / "undisturbed"))
    if step.second is None:
        return [states, None]
    straight = fresh(prepared, root / "straight")
    return [states, _plain(step.content(step.second(corpus, straight).folder))]


def _answer(step: Step, report: Path, work: Callable[[], Any]) -> Any:
    """What the work returns; done in a fork if the step needs one, after which what it imported is imported here."""
    if not step.forks:
        return work()

    def write() -> int:
        report.write_text(json.dumps([work(), list(sys.modules)]))
        return 0

    assert _in_fork(write) == 0
    answer, modules = json.loads(report.read_text())
    report.unlink()
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    return answer


def _plain(value: Any) -> Any:
    """As JSON returns it: without tuples."""
    return json.loads(json.dumps(value))


def _chosen(changes: list[str], how: str, sample: int) -> list[int]:
    """The numbers of the changes that are worth a fault; a sample of each kind of change, unless all are asked for.

    A kill gets twice as many as another fault, after which the process can still tidy up.
    """
    worth = [number for number, change in enumerate(changes, start=1) if _worth_it(change, how)]
    if os.environ.get(EVERY):
        return worth
    kinds: dict[str, list[int]] = {}
    for number in worth:
        kinds.setdefault(changes[number - 1], []).append(number)
    sampled = set()
    for numbers in kinds.values():
        wanted = 2 if os.environ.get(FEW) else sample
        places = min(wanted if how == KILLED else wanted // 2, len(numbers))
        # The last first: it is the one that publishes.
        sampled |= {numbers[-1 - place * (len(numbers) - 1) // max(places - 1, 1)] for place in range(places)}
    return sorted(sampled)


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


def _states(step: Step, corpus: Path, folder: Path) -> list[Any]:
    states = []
    for run in step.runs:
        run(corpus, folder)
        states.append(_plain(step.state(folder)))
    return states


def _disturbed(run: Callable[[Path, Path], object], corpus: Path, folder: Path, disk: FailingDisk) -> int:
    with disk.in_place():
        try:
            run(corpus, folder)
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            return REFUSED
    return 0


def _judged(step: Step, corpus: Path, trial: Path, other: Path, states: list[Any], content: Any, report: Path) -> int:
    faults = []
    _age(trial)
    try:
        for number, (found, expected) in enumerate(zip(_states(step, corpus, trial), states, strict=True), start=1):
            if found != expected:
                faults.append(f"after run {number}: {_difference(found, expected)}")
        step.tidy(trial)
        if lying := leftovers(trial):
            faults.append(f"left over: {lying}")
        if step.second and other.is_dir() and _plain(step.content(step.second(corpus, other).folder)) != content:
            faults.append("other content where other input follows upon the fault")
    except Exception:
        faults.append(traceback.format_exc())
    report.write_text("\n".join(faults))
    return 0


def _difference(found: Any, expected: Any) -> Any:
    if isinstance(found, dict) and isinstance(expected, dict):
        return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return f"{found} in place of {expected}"


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
        try:
            status = work()
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
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

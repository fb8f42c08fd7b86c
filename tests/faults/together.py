"""Runs a step with two inputs in six concurrent processes on one store, and prints the faults as JSON.

Of each three that have the same input one is killed half a second after the start.

  python -m tests.faults.together extract /a/new/folder
"""

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.faults.steps import STEPS, fresh, make_corpus


def main(name: str, root: Path) -> list[str]:
    step, corpus, alone, shared = STEPS[name], root / "corpus", root / "alone", root / "shared"
    make_corpus(corpus)
    shared.mkdir()
    step.prepare(corpus, shared)
    fresh(shared, alone)
    runs = (step.first, step.second)
    expected = [step.content(run(corpus, alone).folder) for run in runs]
    reports = [root / f"report-{number}" for number in range(6)]
    crew = [_forked(step, runs[n % 2], expected[n % 2], corpus, shared, report) for n, report in enumerate(reports)]
    time.sleep(0.5)
    for process in crew[:2]:
        os.kill(process, signal.SIGKILL)
    ends = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in crew]
    faults = [report.read_text() for report in reports if report.is_file() and report.read_text()]
    faults += [f"process {n} ended with {status}" for n, status in enumerate(ends) if status and n > 1]
    for run, content in zip(runs, expected, strict=True):
        made = run(corpus, shared)
        if step.content(made.folder) != content or (not made.reused and name != "publish"):
            faults.append(f"{made.folder}: not what it is when one works alone, or made again")
    return faults


def _forked(step: Any, run: Any, expected: Any, corpus: Path, shared: Path, report: Path) -> int:
    if process := os.fork():
        return process
    status = 1
    with contextlib.suppress(BaseException):
        try:
            found = step.content(run(corpus, shared).folder)
            report.write_text("" if found == expected else "other content than when one works alone")
            status = 0
        except Exception:
            report.write_text(traceback.format_exc())
    os._exit(status)


if __name__ == "__main__":
    sys.stdout, printed = sys.stderr, sys.stdout
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2])), indent=1), file=printed)

"""What a step is asked after a fault at each of its changes; a file of tests a step, so that they run at once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.faults.failing import BROKEN, FULL, HALF, KILLED, WORKER
from tests.faults.inject import FEW, KINDS, REFUSED

ENDS = {KILLED: {-9}, HALF: {-9}, FULL: {REFUSED, 0}, BROKEN: {REFUSED, 0}, WORKER: {0}}
"""How the disturbed process may end: on a full disk well, where what it could not write is of no importance."""


def disturbed(step: str, folder: Path, few: bool = False) -> dict[str, list[dict[str, Any]]]:
    """All trials of a step, by the kind of fault.

    Args:
      few: of the first and the last change of each kind alone.
    """
    command = [sys.executable, "-m", "tests.faults.inject", step, str(folder)]
    environment = os.environ | ({FEW: "1"} if few else {})
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    trials: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert trials.keys() == set(KINDS[step])
    return trials


def judge(trials: list[dict[str, Any]], how: str) -> None:
    assert trials
    assert {trial["status"] for trial in trials} <= ENDS[how]
    assert [trial for trial in trials if trial["found"]] == []

"""convert, extract and publish, disturbed at every change that they make on a disk: the end is as if they were not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.failing import BROKEN, FULL, HALF, KILLED, WORKER
from tests.faults.inject import REFUSED
from tests.faults.steps import STEPS

ENDS = {KILLED: {-9}, HALF: {-9}, FULL: {REFUSED, 0}, BROKEN: {REFUSED, 0}, WORKER: {0}}
"""How the disturbed process may end: on a full disk well, where what it could not write is of no importance."""


@pytest.mark.parametrize(
    ("step", "how"), [(step, how) for step in STEPS for how in ENDS if how != WORKER or step == "convert"]
)
def test_a_fault_at_any_change_leaves_the_end_state_as_it_is(step: str, how: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.inject", step, how, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    trials = json.loads(done.stdout)["trials"]
    assert trials
    assert {trial["status"] for trial in trials} <= ENDS[how]
    assert [trial for trial in trials if trial["found"]] == []

"""Concurrent processes on one store, some of them killed, each get the result that they would get alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.steps import STEPS


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_processes_that_share_a_store_do_not_disturb_each_other(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.together", name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout) == []

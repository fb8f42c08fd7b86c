"""A real disk that is full or read-only, mounted for the test where the system permits it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.steps import STEPS

UNSHARE = ["unshare", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def own_mounts() -> list[str]:
    """The start of a command that may mount disks that only it sees."""
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk (unshare --map-root-user --mount)")
    return UNSHARE


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_step_resumes_once_there_is_room(name: str, own_mounts: list[str], tmp_path: Path) -> None:
    command = [*own_mounts, sys.executable, "-m", "tests.faults.small_disk", name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout)
    assert "No space left on device" in told["full"]
    assert "make room" in told["full"]
    assert told["same once there is room"]
    assert told["reused"], "finished work is used on a disk that may only be read"
    assert "Read-only file system" in told["read only"]
    assert told["same once it may be written"]

"""Where TFX is: in the environment of `make test-tfx`, or in the image of validate in `make test-containers`."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("VOXLINE_TFX_PYTHON", "")
"""Of the environment, which `make test-tfx` names."""

Ran = Callable[..., "subprocess.CompletedProcess[str]"]

if os.environ.get("VOXLINE_TEST_CONTAINERS"):
    # Fixtures: the same tests, in the image that ships.
    from tests.containers.conftest import base as base
    from tests.containers.conftest import image as image
    from tests.containers.conftest import ran as ran
    from tests.containers.conftest import running_engine as running_engine
    from tests.containers.conftest import tag as tag
elif PYTHON:

    @pytest.fixture(scope="session")
    def ran() -> Ran:
        """Runs a program in the environment, whatever the image: `ran("validate", "python3", "-c", PROGRAM)`."""

        def run(
            which: str, *command: str, flags: Sequence[str] = (), status: int = 0
        ) -> "subprocess.CompletedProcess[str]":
            whole = [PYTHON, "-W", "ignore", *command[1:]]
            quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
            ended = subprocess.run(
                whole, capture_output=True, text=True, timeout=1500, check=False, env={**os.environ, **quiet}
            )
            assert ended.returncode == status, f"{' '.join(whole)}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
            return ended

        return run

else:
    collect_ignore_glob = ["test_*"]

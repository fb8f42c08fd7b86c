"""TensorFlow starts in silence on a machine without a GPU, unless it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from voxline.inference.tensorflow_import import has_accelerator_driver

START = "from voxline.inference.tensorflow_import import import_tensorflow; import_tensorflow()"


def start(**variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{START}; print('started')"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    has_accelerator_driver(), reason="this machine has a driver of a GPU, so TensorFlow's notes are shown"
)
def test_no_note_on_missing_gpus_is_printed() -> None:
    started = start()
    assert (started.stdout, started.stderr) == ("started\n", "")


def test_what_a_failed_import_prints_is_shown(tmp_path: Path) -> None:
    """C++ writes to file descriptor 2."""
    broken = "import os; os.write(2, b'illegal instruction'); raise ImportError('no AVX')"
    (tmp_path / "tensorflow.py").write_text(broken, encoding="utf-8")
    failed = start(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert failed.returncode == 1
    assert "illegal instruction" in failed.stderr
    assert "no AVX" in failed.stderr

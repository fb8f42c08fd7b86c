"""A real training that is stopped while it exports, or whose disk fills under TensorFlow's own writes, resumes.

The trials of `inject` put faults into Python's writes. TensorFlow writes variables and graphs in C++, which a signal to
the process and a small disk reach.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.inject import EVERY
from tests.training.tones import make_utterances, write_dataset
from tests.waiting import wait_until
from voxline.store.hashing import hash_file

pytestmark = pytest.mark.skipif(not os.environ.get(EVERY), reason="six real trainings take a minute: make test-faults")

UNSHARE = ["unshare", "--map-root-user", "--mount"]
CONFIG = """
name: tones
corpus: {uri: nowhere}
train:
  epochs: 2
  batch_size: 8
  checkpoint_steps: 2
  strategy: one
  model: {layers: 1, units: 8, convolutions: [{channels: 4, kernel: [5, 5], stride: [2, 2]}]}
  export: {onnx: float32}
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and the config that trains on it."""
    folder = tmp_path_factory.mktemp("tones")
    write_dataset(folder / "dataset", make_utterances(24, 8))
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


def command(corpus: Path, run_dir: Path) -> list[str]:
    config = ["--config", str(corpus / "config.yaml"), "--dataset", str(corpus / "dataset")]
    return [sys.executable, "-m", "voxline", "step", "train", *config, "--run-dir", str(run_dir)]


def weights(run_dir: Path) -> str:
    """The hash of the exported weights."""
    (variables,) = run_dir.glob("store/train/*/model/variables/variables.data*")
    return hash_file(variables)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    run_dir = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(command(corpus, run_dir), cwd=ROOT, check=True, capture_output=True)
    return weights(run_dir)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_training_that_is_stopped_while_it_exports_resumes(
    number: signal.Signals, corpus: Path, undisturbed: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        command(corpus, tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    wait_until(lambda: any(tmp_path.glob("store/train/*/.model.*")), "the export")
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0
    resumed = subprocess.run(command(corpus, tmp_path), cwd=ROOT, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "resuming from the checkpoint" in resumed.stdout
    assert weights(tmp_path) == undisturbed
    assert not list(tmp_path.glob("store/train/*/.*.part"))


@pytest.mark.parametrize("kilobytes", [200, 400, 500])
def test_a_training_on_a_disk_that_fills_resumes_once_there_is_room(
    kilobytes: int, corpus: Path, undisturbed: str, tmp_path: Path
) -> None:
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk (unshare --map-root-user --mount)")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
        set -e
        mount -t tmpfs -o size=$1k none "$2"; shift
        disk=$1; shift
        if "$@" > "$disk/../full" 2>&1; then echo fitted; else echo full; fi
        mount -o remount,size=64m "$disk"
        "$@" > "$disk/../resumed" 2>&1
        cp -r "$disk/run" "$disk/../kept"
    """
    shell = [*UNSHARE, "bash", "-c", script, "bash", str(kilobytes), str(disk)]
    ended = subprocess.run([*shell, *command(corpus, disk / "run")], cwd=ROOT, capture_output=True, text=True)
    printed = (tmp_path / "full").read_text(encoding="utf-8")
    assert ended.returncode == 0, ended.stderr + printed + (tmp_path / "resumed").read_text(encoding="utf-8")
    assert ended.stdout == "full\n", printed
    assert "space" in printed.lower()
    assert weights(tmp_path / "kept") == undisturbed

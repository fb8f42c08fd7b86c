"""All but push work where the registry is mounted read-only."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.faults.test_real_disk import own_mounts as own_mounts
from tests.serving.test_server import push
from tests.tone_asr_model import MakeAsrModel, write_corpus


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_steps_and_servers_read_a_registry_that_they_cannot_write(
    own_mounts: list[str], tmp_path: Path, make_asr_model: MakeAsrModel
) -> None:
    root = tmp_path / "registry"
    push(root, make_asr_model())
    for lock in root.rglob(".*lock"):
        lock.unlink()  # a reader must not need to make one
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three"), ("ada", "four five")])
    before = files(root)

    arguments = [root, make_asr_model({"two": "three"}), corpus, tmp_path]
    command = [*own_mounts, sys.executable, "-m", "tests.registry.read_only", *map(str, arguments)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert "Read-only file system" in result.pop("push")
    assert result == {
        "evaluate": 1,
        "train": "asr@1",
        "validate": "asr, version 1 does not say what it was trained on",
        "forecast": "",
        "anchor": 1,
        "model": "1",
        "names": ["asr"],
        "config": True,
        "serve": ["", ""],
        "copy": {"asr": 1},
    }
    assert files(root) == before

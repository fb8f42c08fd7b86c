"""A stand-in for a KFP server, and the `voxline` command in this process, in a home of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.kfp_stand_in import StandIn, running

# Nothing here is collected but by `make test-cluster`, which says so in its environment.
collect_ignore_glob = [] if os.environ.get("VOXLINE_TEST_CLUSTER") else ["test_*.py", "kubeflow", "operators"]

CONFIG = """
name: nightly
store: gs://voxline-work/store
registry: gs://voxline-work/registry
corpus: {uri: gs://voxline-corpora/LibriSpeech}
"""


@dataclass
class Ended:
    """What a command has printed, and its exit status."""

    status: int
    out: str
    err: str


class Shell:
    """Types commands in a folder that holds `nightly.yaml`."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capture = folder, capture
        (folder / "nightly.yaml").write_text(CONFIG, encoding="utf-8")

    def __call__(self, *arguments: str) -> Ended:
        from voxline.pipelines.cli.main import main

        status = 0
        self._capture.readouterr()
        try:
            main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        seen = self._capture.readouterr()
        return Ended(status, seen.out, seen.err)

    def submit(self, *arguments: str) -> Ended:
        return self("submit", "asr", "--config", "nightly.yaml", *arguments)


@pytest.fixture
def kfp() -> Iterator[StandIn]:
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def shell(tmp_path: Path, kfp: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kfp.host)
    for name in (
        "VOXLINE_KFP_TOKEN",
        "VOXLINE_KFP_TOKEN_FILE",
        "VOXLINE_KFP_NAMESPACE",
        "VOXLINE_KFP_CA",
        "KUBECONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)

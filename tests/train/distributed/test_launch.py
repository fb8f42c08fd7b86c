"""When the train step asks a cluster for workers, and when this machine trains by itself."""

import pytest

from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.settings import WorkersSettings
from voxline.components.train.step import _wants_workers

FOUR = AsrTrainSettings(workers=WorkersSettings(count=4))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_CONFIG", "KFP_POD_NAME", "POD_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_on_one_machine_it_says_that_it_trains_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert not _wants_workers(FOUR)
    assert "train.workers.count is 4, for a cluster; this machine trains alone" in capsys.readouterr().out


def test_in_a_pod_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    assert _wants_workers(FOUR)


def test_in_a_pod_with_one_worker_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    assert not _wants_workers(AsrTrainSettings())


def test_a_worker_asks_for_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    assert not _wants_workers(FOUR)

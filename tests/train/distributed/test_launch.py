"""When the train step launches workers, and when it trains by itself."""

import pytest

from voxline.components.train.step import _wants_workers
from voxline.families.asr.settings import AsrTrainSettings
from voxline.training.settings import WorkersSettings

FOUR = AsrTrainSettings(workers=WorkersSettings(count=4))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_CONFIG", "KFP_POD_NAME", "POD_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_outside_a_pod_this_machine_trains_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert not _wants_workers(FOUR)
    assert "train.workers.count is 4, for a cluster; this machine trains alone" in capsys.readouterr().out


def test_in_a_pod_workers_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    assert _wants_workers(FOUR)


def test_in_a_pod_one_worker_trains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    assert not _wants_workers(AsrTrainSettings())


def test_a_worker_launches_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "asr-train-1")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    assert not _wants_workers(FOUR)

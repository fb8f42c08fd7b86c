"""The train step on a cluster: it launches a job of workers, follows it, survives kills, and deletes it."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.cluster.workers.conftest import IMAGE, POD, Namespace, worker_settings
from voxline.data.dataset import Dataset
from voxline.store.files import DONE
from voxline.store.finished import read_done

pytestmark = pytest.mark.timeout(2400)


def test_a_train_job_trains_the_model(namespace: Namespace, tones: Dataset, tmp_path: Path) -> None:
    operator = namespace.operate()
    launcher = namespace.launch(
        str(tones.folder), worker_settings(workers={"queue": "speech"}), tmp_path / "launcher.log"
    )
    _wait(lambda: bool(namespace.jobs()))
    job = json.loads(json.dumps(namespace.jobs()[0]))
    assert launcher.wait(900) == 0, _text(tmp_path / "launcher.log")
    output = _text(tmp_path / "launcher.log")
    assert "▸ train: launched 2 workers (TrainJob voxline-train-" in output
    assert "on 2 devices" in output, "the chief's log is shown"
    assert "dev WER" in output
    assert "ended: reused False, TensorFlow imported: False" in output
    assert namespace.jobs() == [], "it takes the job away"
    assert len(operator.processes) == 2
    (done,) = (tmp_path / "store").glob(f"train/*/{DONE}")
    assert job["metadata"]["name"] == f"voxline-train-{read_done(done.parent)['key'][:24]}"
    assert [owner["name"] for owner in job["metadata"]["ownerReferences"]] == [POD]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "speech"
    assert job["spec"]["trainer"]["image"] == IMAGE, "workers run the code of the step that asks"
    assert "workers" not in read_done(done.parent)["settings"]


def test_a_killed_worker_does_not_change_the_result(namespace: Namespace, tones: Dataset, tmp_path: Path) -> None:
    settings = worker_settings(epochs=30, evaluate_epochs=5, checkpoint_steps=10, model={"dropout": 0.1})
    operator = namespace.operate()
    launcher = namespace.launch(str(tones.folder), settings, tmp_path / "launcher.log")
    _wait(lambda: any((tmp_path / "store").glob("train/*/checkpoints/step-*")), 300)
    operator.kill_worker(namespace.jobs()[0]["metadata"]["name"], 1)
    assert launcher.wait(900) == 0, _text(tmp_path / "launcher.log")
    output = _text(tmp_path / "launcher.log")
    assert "▸ train: the workers restarted" in output
    assert "train: resuming from the checkpoint of step" in output
    assert len(operator.processes) == 4, "all workers were started again, once"
    (broken,) = (tmp_path / "store").glob(f"train/*/{DONE}")
    (tmp_path / "store").rename(tmp_path / "broken")
    again = namespace.launch(str(tones.folder), settings, tmp_path / "whole.log")
    assert again.wait(900) == 0, _text(tmp_path / "whole.log")
    assert "resuming from" not in _text(tmp_path / "whole.log")
    whole = broken.parent
    found = tmp_path / "broken" / "train" / whole.name
    _assert_same(whole, found)


def test_bad_data_is_reported_by_the_worker_and_not_retried(
    namespace: Namespace, tones: Dataset, tmp_path: Path
) -> None:
    operator = namespace.operate()
    settings = worker_settings(max_infeasible_share=0, model={"convolutions": [{"stride": [40, 2]}]})
    launcher = namespace.launch(str(tones.folder), settings, tmp_path / "launcher.log")
    assert launcher.wait(900) == 1, _text(tmp_path / "launcher.log")
    output = _text(tmp_path / "launcher.log")
    assert "error: worker 0: train: " in output or "error: worker 1: train: " in output
    assert "utterances have too few frames for their labels" in output
    assert len(operator.processes) == 2, "starting again would not help"
    _wait(lambda: not namespace.jobs())


def test_sigterm_deletes_the_workers(namespace: Namespace, tones: Dataset, tmp_path: Path) -> None:
    operator = namespace.operate(hold=True)
    launcher = namespace.launch(str(tones.folder), worker_settings(), tmp_path / "launcher.log")
    _wait(lambda: "worker 0 is waiting: Unschedulable 0/3 nodes are available" in _text(tmp_path / "launcher.log"))
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(60) == 128 + signal.SIGTERM
    _wait(lambda: not namespace.jobs())
    assert operator.processes == {}


def test_a_restarted_pod_follows_the_existing_job(namespace: Namespace, tones: Dataset, tmp_path: Path) -> None:
    operator = namespace.operate(hold=True)
    first = namespace.launch(str(tones.folder), worker_settings(), tmp_path / "first.log")
    _wait(lambda: bool(namespace.jobs()))
    first.kill()  # no time to take anything away
    namespace.add_pod("asr-nightly-train-second")
    second = namespace.launch(
        str(tones.folder), worker_settings(), tmp_path / "launcher.log", "asr-nightly-train-second"
    )
    _wait(lambda: "exists already, and this pod follows it" in _text(tmp_path / "launcher.log"))
    _wait(lambda: len(namespace.jobs()[0]["metadata"]["ownerReferences"]) == 2)
    operator.hold = False
    assert second.wait(900) == 0, _text(tmp_path / "launcher.log")
    assert len(operator.processes) == 2
    assert namespace.state.calls.count("POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/voxline/trainjobs") == 1


def test_a_cached_result_launches_nothing(namespace: Namespace, tones: Dataset, tmp_path: Path) -> None:
    namespace.operate()
    for log, asks in (("once.log", True), ("twice.log", False)):
        before = len(namespace.state.calls)
        launcher = namespace.launch(str(tones.folder), worker_settings(epochs=1), tmp_path / log)
        assert launcher.wait(900) == 0, _text(tmp_path / log)
        assert (len(namespace.state.calls) > before) == asks
    assert "ended: reused True" in _text(tmp_path / "twice.log")


def _assert_same(expected_folder: Path, found_folder: Path) -> None:
    expected, found = read_done(expected_folder), read_done(found_folder)
    assert found["counts"] == expected["counts"]
    assert {**found["metrics"], "data_wait": 0} == pytest.approx({**expected["metrics"], "data_wait": 0}, rel=1e-3)
    step = expected["metrics"]["best_step"]
    arrays = [np.load(one / "best" / f"step-{step:08d}" / "arrays.npz") for one in (expected_folder, found_folder)]
    for name in arrays[0].files:
        assert_close(arrays[1][name], arrays[0][name], relative_to_peak=1e-4)


def _wait(until: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "this did not come about in time"
        time.sleep(0.05)


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""

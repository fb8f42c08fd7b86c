"""One worker of a training job: how it finds its peers, and what its exit status says."""

import json

import pytest

from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.distributed import worker
from voxline.components.train.distributed.jobs import JOB_KINDS, JobSpec, job_outcome
from voxline.components.train.distributed.worker import make_tf_config
from voxline.components.train.settings import WorkersSettings
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.errors import SettingsError, TransientError

JOB = "voxline-train-0f0f"


def arguments(**changes: str) -> list[str]:
    named = {
        "job": JOB,
        "family": "asr",
        "dataset": "/nowhere",
        "store": "/nowhere",
        "settings": "{}",
        **changes,
    }
    return [part for name, value in named.items() for part in (f"--{name}", value)]


def test_workers_of_a_train_job_look_for_each_other_where_a_job_set_puts_them() -> None:
    configs = [
        json.loads(make_tf_config(JOB, 3, {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{JOB}-node-0-{index}"}))
        for index in range(3)
    ]
    assert [config["task"]["index"] for config in configs] == [0, 1, 2]
    assert {json.dumps(config["cluster"]) for config in configs} == {json.dumps(configs[0]["cluster"])}
    assert configs[0]["cluster"]["worker"][2] == f"{JOB}-node-0-2.{JOB}:2222"


@pytest.mark.parametrize("index", ["", "3", "-1", "one"])
def test_an_index_that_no_worker_has_is_refused(index: str) -> None:
    with pytest.raises(SettingsError, match="JOB_COMPLETION_INDEX"):
        make_tf_config(JOB, 3, {"JOB_COMPLETION_INDEX": index, "HOSTNAME": f"{JOB}-node-0-0"})


def test_a_pod_of_another_name_than_the_others_expect_is_refused() -> None:
    with pytest.raises(SettingsError, match="TrainingRuntime's only replicated job must be called 'node'"):
        make_tf_config(JOB, 2, {"JOB_COMPLETION_INDEX": "0", "HOSTNAME": f"{JOB}-worker-0-0"})


def test_the_longest_job_leaves_room_for_the_names_of_its_hosts() -> None:
    settings = AsrTrainSettings(workers=WorkersSettings(count=256))
    assert len(f"{JobSpec('0f' * 16, '', '', settings).name}-node-0-255") <= 63


def test_a_wrong_setting_ends_a_worker_for_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert worker.main(arguments(settings='{"epochs": 0}')) == 2
    assert "✗ train: 'epochs' is 0" in capsys.readouterr().err


def test_a_dataset_that_is_not_there_ends_a_worker_for_good(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert worker.main(arguments()) == 1
    assert "✗ /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("status", [75, 138])
def test_what_may_go_on_ends_a_worker_as_its_operator_understands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    def interrupted(*_: object) -> None:
        raise TransientError("the bucket does not answer")

    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(worker, "run", interrupted)
    assert worker.main([*arguments(), "--retry-status", str(status)]) == status
    assert "✗ the bucket does not answer" in capsys.readouterr().err


def test_lost_peers_are_no_fault_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def lost(*_: object) -> None:
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: connection reset by peer")

    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(worker, "run", lost)
    assert worker.main(arguments()) == TransientError.exit_status


def test_a_bug_is_shown_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(worker, "run", broken)
    with pytest.raises(KeyError):
        worker.main(arguments())


@pytest.mark.parametrize("settings", [AsrTrainSettings(epochs=3), TtsTrainSettings(name="voice", seed=7)])
def test_a_worker_reads_the_settings_that_the_step_has(
    monkeypatch: pytest.MonkeyPatch, settings: AsrTrainSettings | TtsTrainSettings
) -> None:
    seen = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(worker, "run", lambda *given: seen.append(given))
    assert worker.main(worker.worker_arguments(settings, "gs://b/dataset", "gs://b/store", JOB, 75)) == 0
    assert seen == [("gs://b/dataset", "gs://b/store", settings)]


def test_the_number_of_workers_names_no_work() -> None:
    alone = AsrTrainSettings()
    four = AsrTrainSettings(workers=WorkersSettings(count=4, kind="tf_job", template="mine"))
    assert alone.key_settings().plain() == four.key_settings().plain()
    assert set(alone.plain()) - set(alone.key_settings().plain()) == {"workers"}
    assert AsrTrainSettings(seed=2).key_settings().plain() != alone.key_settings().plain()


@pytest.mark.parametrize("strategy", ["one", "mirrored"])
def test_workers_that_would_each_train_a_model_of_their_own_are_refused(strategy: str) -> None:
    with pytest.raises(SettingsError, match=r"workers.count is 2: each worker would train its own model"):
        AsrTrainSettings.of({"strategy": strategy, "workers": {"count": 2}}, "train")


def test_a_tf_job_is_made_of_a_template_whose_container_is_called_as_expected() -> None:
    template = {"metadata": {"name": "t"}, "template": {"spec": {"containers": [{"name": "main"}]}}}
    task = JobSpec("0f" * 16, "", "", AsrTrainSettings())
    with pytest.raises(SettingsError, match="first container is called 'main'; 'node' is accepted"):
        JOB_KINDS["tf_job"].body(task, {}, template)


@pytest.mark.parametrize(("kind", "succeeded"), [("Complete", True), ("Succeeded", True), ("Failed", False)])
def test_a_job_has_ended_when_its_operator_says_so(kind: str, succeeded: bool) -> None:
    job = {"status": {"conditions": [{"type": "Suspended", "status": "False"}, {"type": kind, "status": "True"}]}}
    found = job_outcome(job)
    assert found is not None
    assert found.succeeded == succeeded
    assert job_outcome({"status": {"conditions": [{"type": kind, "status": "False"}]}}) is None
    assert job_outcome({}) is None

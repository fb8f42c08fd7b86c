"""One worker of a training job: how it finds its peers, and its exit status."""

import json
from typing import Any

import pytest

from voxline.components.train.distributed import worker
from voxline.components.train.distributed.jobs import JobSpec, job_outcome, worker_arguments
from voxline.components.train.distributed.worker import make_tf_config
from voxline.errors import SettingsError, TransientError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.tts.settings import TtsTrainSettings
from voxline.training.settings import WorkersSettings

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


def test_tf_config_has_the_host_names_that_a_job_set_gives() -> None:
    configs = [
        json.loads(make_tf_config(JOB, 3, {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{JOB}-node-0-{index}"}))
        for index in range(3)
    ]
    assert [config["task"]["index"] for config in configs] == [0, 1, 2]
    assert {json.dumps(config["cluster"]) for config in configs} == {json.dumps(configs[0]["cluster"])}
    assert configs[0]["cluster"]["worker"][2] == f"{JOB}-node-0-2.{JOB}:2222"


@pytest.mark.parametrize("index", ["", "3", "-1", "one"])
def test_an_invalid_completion_index_is_refused(index: str) -> None:
    with pytest.raises(SettingsError, match="JOB_COMPLETION_INDEX"):
        make_tf_config(JOB, 3, {"JOB_COMPLETION_INDEX": index, "HOSTNAME": f"{JOB}-node-0-0"})


def test_an_unexpected_host_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="TrainingRuntime's only replicated job must be called 'node'"):
        make_tf_config(JOB, 2, {"JOB_COMPLETION_INDEX": "0", "HOSTNAME": f"{JOB}-worker-0-0"})


def test_host_names_of_the_largest_job_are_short_enough() -> None:
    settings = AsrTrainSettings(workers=WorkersSettings(count=256))
    assert len(f"{JobSpec('0f' * 16, '', '', settings).name}-node-0-255") <= 63


def test_a_wrong_setting_fails_a_worker_permanently(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert worker.main(arguments(settings='{"epochs": 0}')) == 2
    assert "✗ train: 'epochs' is 0" in capsys.readouterr().err


def test_a_missing_dataset_fails_a_worker_permanently(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert worker.main(arguments()) == 1
    assert "✗ /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("status", [75, 138])
def test_a_transient_error_exits_with_the_retry_status_of_the_operator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    def interrupted(*_: object) -> None:
        raise TransientError("the bucket does not answer")

    monkeypatch.setenv("TF_CONFIG", "{}")
    assert worker.main([*arguments(), "--retry-status", str(status)], interrupted) == status
    assert "✗ the bucket does not answer" in capsys.readouterr().err


def test_lost_peers_ask_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def lost(*_: object) -> None:
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: connection reset by peer")

    monkeypatch.setenv("TF_CONFIG", "{}")
    assert worker.main(arguments(), lost) == TransientError.exit_status


def test_a_bug_raises_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(KeyError):
        worker.main(arguments(), broken)


@pytest.mark.parametrize("settings", [AsrTrainSettings(epochs=3), TtsTrainSettings(name="voice", seed=7)])
def test_worker_arguments_keep_the_settings(
    monkeypatch: pytest.MonkeyPatch, settings: AsrTrainSettings | TtsTrainSettings
) -> None:
    seen = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    given = worker_arguments(settings, "gs://b/dataset", "gs://b/store", JOB, 75)
    assert worker.main(given, lambda *given: seen.append(given)) == 0
    assert seen == [("gs://b/dataset", "gs://b/store", settings, "")]


def test_workers_start_from_the_version_that_the_launcher_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may go into service before they start."""
    seen: list[Any] = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    settings = AsrTrainSettings.of({"start": {"model": "asr@production"}}).started_from("asr@3")
    arguments = worker_arguments(settings, "gs://b/dataset", "gs://b/store", JOB, 75, "gs://b/registry")
    assert worker.main(arguments, train=lambda *given: seen.append(given)) == 0
    assert seen == [("gs://b/dataset", "gs://b/store", settings, "gs://b/registry")]
    assert seen[0][2].started_from("asr@3") == settings


def test_workers_are_not_part_of_the_key() -> None:
    alone = AsrTrainSettings()
    four = AsrTrainSettings(workers=WorkersSettings(count=4, template="mine"))
    assert alone.key_values() == four.key_values()
    assert AsrTrainSettings(seed=2).key_values() != alone.key_values()


@pytest.mark.parametrize("strategy", ["one", "mirrored"])
def test_a_strategy_that_ignores_workers_is_refused(strategy: str) -> None:
    with pytest.raises(SettingsError, match=r"workers.count is 2: each worker would train its own model"):
        AsrTrainSettings.of({"strategy": strategy, "workers": {"count": 2}}, "train")


@pytest.mark.parametrize(("kind", "succeeded"), [("Complete", True), ("Succeeded", True), ("Failed", False)])
def test_the_outcome_of_a_job_is_its_condition(kind: str, succeeded: bool) -> None:
    job = {"status": {"conditions": [{"type": "Suspended", "status": "False"}, {"type": kind, "status": "True"}]}}
    outcome = job_outcome(job)
    assert outcome is not None
    assert outcome.succeeded == succeeded
    assert job_outcome({"status": {"conditions": [{"type": kind, "status": "False"}]}}) is None
    assert job_outcome({}) is None

"""A run in MLflow's file store and in a file of Weights & Biases, read back; one that cannot be logged is not lost."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from tests.waiting import wait_until
from voxline.metrics.evaluation import SummaryInfo
from voxline.pipelines.local import tracking
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.pipelines.local.tracking import log_run
from voxline.store.files import write_json


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    metrics = {"wer": metric_info(0.031, 0.02, 0.05)}
    noisy = SummaryInfo(utterances=4, seconds=4.0, metrics=metrics)
    info = evaluation_info(metrics=metrics, slices={"snr": {"20-30 dB": noisy}})
    write_json(tmp_path / "metrics.json", info.to_dict())
    curves = {"train": [{"step": 20, "loss": 3.5}], "dev": [{"epoch": 1, "step": 40, "wer": 0.5}]}
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    (tmp_path / "report.html").write_text("<!DOCTYPE html><title>x</title>")
    config = {
        "name": "nightly", "model": "asr", "corpus": {"uri": "/data"}, "train": {"epochs": 6},
        "tracking": {"mlflow": str(tmp_path / "mlruns"), "experiment": "", "wandb": ""},
    }  # fmt: skip
    run = RunRecord("asr", "nightly", tmp_path, config, status="succeeded", model="/r/asr/3", pushed=True)
    run.steps = [
        StepRecord("train", "succeeded", 12.5, outputs={"curves": str(tmp_path / "curves.json")}),
        StepRecord("evaluate", "succeeded", outputs={"metrics": str(tmp_path / "metrics.json")}),
    ]
    return run


def test_mlflow_reads_parameters_metrics_version_and_report(record: RunRecord) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    log_run(record)
    client = mlflow.MlflowClient(tracking_uri=(record.run_dir / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("asr")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("nightly", "FINISHED")
    assert run.data.params["train.epochs"] == "6"
    assert run.data.metrics["wer"] == 0.031
    assert run.data.metrics["wer_high"] == 0.05
    assert run.data.metrics["snr/20-30 dB/wer_low"] == 0.02
    assert [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "dev/wer")] == [(40, 0.5)]
    assert run.data.tags["voxline.model_version"] == "3"
    assert "report.html" in {one.path for one in client.list_artifacts(run.info.run_id)}


def _records(file: Path) -> Iterator[Any]:
    """The records of W&B's file: LevelDB's log of blocks, after 7 bytes that name it."""
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content = file.read_bytes()
    place, payload = 7, b""
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        if place + 7 + size > len(content):
            return  # it is being written
        payload += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = records.Record()
            record.ParseFromString(payload)
            payload = b""
            yield record


def test_wandb_keeps_parameters_metrics_version_and_report(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a key nobody is asked for one: the run is in its folder, as its client would send it."""
    pytest.importorskip("wandb", reason="wandb is not installed: make test-tracking")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(record.run_dir))
    record.config["tracking"] |= {"mlflow": "", "wandb": "team/speech"}
    log_run(record)
    assert "`wandb sync " in capsys.readouterr().out
    (report,) = record.run_dir.glob("wandb/offline-run-*/files/report.html")
    assert not report.is_symlink(), "the folder can be sent from elsewhere"

    # Its own process writes the file, and may end later than the run.
    (file,) = record.run_dir.glob("wandb/offline-run-*/run-*.wandb")
    wait_until(lambda: any(entry.HasField("exit") for entry in _records(file)), "the end of the file")
    config: dict[str, Any] = {}
    history: dict[int, Any] = {}
    summary: dict[str, Any] = {}
    files: set[str] = set()
    for entry in _records(file):
        if entry.HasField("run"):
            assert (entry.run.entity, entry.run.project, entry.run.display_name) == ("team", "speech", "nightly")
            assert entry.run.host == "-", "the name of the machine is not sent"
            config |= {item.key: json.loads(item.value_json) for item in entry.run.config.update}
        elif entry.HasField("history"):
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in entry.history.item}
            history[values["_step"]] = values
        elif entry.HasField("summary"):
            summary |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in entry.summary.update}
        elif entry.HasField("files"):
            files |= {item.path for item in entry.files.files}
        elif entry.HasField("exit"):
            assert entry.exit.exit_code == 0
    assert config["train.epochs"] == "6"
    assert config["voxline.model_version"] == "3"
    assert (history[20]["train/loss"], history[40]["dev/wer"]) == (3.5, 0.5)
    assert (summary["wer"], summary["wer_high"], summary["snr/20-30 dB/wer_low"]) == (0.031, 0.05, 0.02)
    assert files == {"report.html"}, "no list of what is installed"


def test_a_run_stays_in_its_folder_where_no_server_answers_wandb(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: make test-tracking")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(record.run_dir))
    monkeypatch.setattr(tracking, "SYNC_SECONDS", 20)
    record.config["tracking"] |= {"mlflow": "", "wandb": "speech"}
    log_run(record)
    printed = capsys.readouterr().out
    assert "Weights & Biases: not sent" in printed
    assert "`wandb sync " in printed
    assert len([*record.run_dir.glob("wandb/offline-run-*/run-*.wandb")]) == 1


def test_a_run_is_not_lost_when_it_cannot_be_logged(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    log_run(record)
    assert "pip install mlflow-skinny" in capsys.readouterr().out
    record.config["tracking"]["mlflow"] = ""
    log_run(record)
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "wandb", None)
    record.config["tracking"]["wandb"] = "speech"
    log_run(record)
    assert "pip install wandb" in capsys.readouterr().out

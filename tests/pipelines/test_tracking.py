"""A run in MLflow's file store, read back by MLflow; and a run that cannot be logged is not lost."""

import json
import sys
from pathlib import Path

import pytest

from tests.evaluations import evaluation_info, metric_info
from voxline.metrics.evaluation import SummaryInfo
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.pipelines.local.tracking import log_to_mlflow
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
        "tracking": {"mlflow": str(tmp_path / "mlruns"), "experiment": ""},
    }  # fmt: skip
    run = RunRecord("asr", "nightly", tmp_path, config, status="succeeded", model="/r/asr/3", pushed=True)
    run.steps = [
        StepRecord("train", "succeeded", 12.5, outputs={"curves": str(tmp_path / "curves.json")}),
        StepRecord("evaluate", "succeeded", outputs={"metrics": str(tmp_path / "metrics.json")}),
    ]
    return run


def test_mlflow_reads_parameters_metrics_version_and_report(record: RunRecord) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    log_to_mlflow(record)
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


def test_a_run_is_not_lost_when_it_cannot_be_logged(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    log_to_mlflow(record)
    assert "pip install mlflow-skinny" in capsys.readouterr().out
    record.config["tracking"]["mlflow"] = ""
    log_to_mlflow(record)
    assert capsys.readouterr().out == ""

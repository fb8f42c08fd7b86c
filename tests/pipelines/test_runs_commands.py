"""`voxline runs list|show|compare` and `voxline doctor` on a machine without a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.waiting import PATIENCE_SECONDS
from voxline.errors import WorkError
from voxline.notify.event import FigureAnomaly
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.local import doctor
from voxline.pipelines.local.run_record import RunRecord, StepRecord


def voxline(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def leave_run(folder: Path, name: str, epochs: int, wer: float, **values: Any) -> Path:
    config = load_config({"name": name, "corpus": {"uri": "/c"}, "train": {"epochs": epochs}})
    (folder / name).mkdir(parents=True)
    (folder / name / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    record = RunRecord("asr", name, folder / name, config.plain(), metrics={"wer": wer, "cer": wer / 2}, **values)
    record.steps.append(StepRecord("ingest", "succeeded", counts={"utterances": 40 + epochs, "train": 30 + epochs}))
    record.write()
    return folder / name


def test_runs_are_listed_with_verdict_and_metric(tmp_path: Path) -> None:
    leave_run(tmp_path, "old", 3, 0.05, status="succeeded", reason="Pushed as version 1", started=0.0)
    leave_run(tmp_path / "more", "new", 5, 0.04, status="failed", reason="convert: x\n  y", failed_step="convert")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{}", encoding="utf-8")
    shown = voxline("runs", "list", tmp_path)
    lines = [line for line in shown.output.splitlines() if not line.startswith("voxline:")]
    assert [line.split()[0] for line in lines] == [str(tmp_path / "old"), str(tmp_path / "more/new")]
    assert lines[0].endswith("1970-01-01 00:00  word error rate 5.00%     Pushed as version 1")
    assert lines[1].endswith("failed in convert: convert: x")
    assert "broken/run.json: not the record of a run" in shown.output
    assert json.loads(voxline("runs", "list", tmp_path / "old", "--json").stdout)[0]["metrics"]["wer"] == 0.05


def test_a_run_that_stands_out_is_marked(tmp_path: Path) -> None:
    anomaly = FigureAnomaly("wer", 0.09, 0.05, 0.001)
    leave_run(tmp_path, "usual", 3, 0.05, status="succeeded", reason="Pushed as version 1", started=0.0)
    leave_run(tmp_path, "bad", 3, 0.09, status="succeeded", reason="Not pushed: worse", anomalies=[anomaly])
    usual, bad = voxline("runs", "list", tmp_path).output.splitlines()
    assert usual.endswith("Pushed as version 1")
    assert bad.endswith("Not pushed: worse  (stands out: wer)")
    (_, told) = json.loads(voxline("runs", "list", tmp_path, "--json").stdout)
    assert told["anomalies"] == [{"figure": "wer", "value": 0.09, "expected": 0.05, "deviation": 0.001}]


def test_a_run_is_shown_with_its_steps(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "reason": "Pushed as version 1",
        "warnings": ["unseen_words: 0.4"],
        "report": "report.html",
    }
    anomaly = FigureAnomaly("hours", 0.1, 0.2, 0.001)
    run = leave_run(tmp_path, "a", 3, 0.05, status="succeeded", started=0.0, anomalies=[anomaly], **values)
    rows = dict(line.split("  ", 1) for line in voxline("runs", "show", run).output.splitlines())
    assert {name: value.strip() for name, value in rows.items()} == {
        "run": "a (asr), 1970-01-01 00:00 UTC",
        "verdict": "Pushed as version 1",
        "word error rate": "5.00%",
        "character errors": "2.50%",
        "stands out": "hours",
        "warning": "unseen_words: 0.4",
        "ingest": "succeeded, 0 s, 43 utterances, 33 train",
        "report": str(run / "report.html"),
    }
    assert json.loads(voxline("runs", "show", run, "--json").stdout) == json.loads((run / "run.json").read_text())


def test_a_run_to_its_last_step_keeps_its_verdict_and_odd_folders_hide_no_run(tmp_path: Path) -> None:
    leave_run(tmp_path, "whole", 3, 0.05, status="succeeded", reason="Pushed as version 1", until="push")
    leave_run(tmp_path, "part", 3, 0.05, status="succeeded", until="evaluate")
    odd = leave_run(tmp_path, "odd", 3, 0.05) / "run.json"
    odd.write_text(json.dumps({**json.loads(odd.read_text()), "metrics": None}), encoding="utf-8")
    shown = voxline("runs", "list", tmp_path)
    assert shown.exit_code == 0, shown.exception
    verdicts = [line.rpartition("  ")[2] for line in shown.output.splitlines() if "word error rate" in line]
    assert sorted(verdicts) == ["Pushed as version 1", "stopped after evaluate"]
    assert "odd/run.json: not the record of a run" in shown.output


def test_two_runs_are_compared_by_settings_data_and_metrics(tmp_path: Path) -> None:
    before, after = (leave_run(tmp_path, name, epochs, wer) for name, epochs, wer in (("a", 3, 0.05), ("b", 5, 0.04)))
    rows = [line.split() for line in voxline("runs", "compare", before, after).output.splitlines()]
    assert ["train.epochs", "3", "5"] in rows
    assert ["utterances", "in", "train", "33", "35"] in rows
    assert ["word", "error", "rate", "5.00%", "4.00%", "-1.00", "points"] in rows
    assert not any(row[0] == "name" for row in rows)
    document = json.loads(voxline("runs", "compare", before, after, "--json").stdout)
    assert document["settings"] == {"train.epochs": ["3", "5"]}
    assert document["metrics"]["cer"] == [0.025, 0.02]


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        with pytest.raises(WorkError, match="no run is here; `voxline run` makes one"):
            CliRunner().invoke(app, ["runs", "list", str(tmp_path), *options], catch_exceptions=False)
    with pytest.raises(Exception, match=r"no run\.json is here"):
        CliRunner().invoke(app, ["runs", "compare", str(tmp_path), str(tmp_path)], catch_exceptions=False)
    with pytest.raises(Exception, match=r"no run\.json is here"):
        CliRunner().invoke(app, ["runs", "show", str(tmp_path)], catch_exceptions=False)


def test_the_doctor_checks_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = "[SimpleNamespace(name='GPU:0', device_type='GPU'), SimpleNamespace(name='CPU:0', device_type='CPU')]"
    (tmp_path / "stub").mkdir()  # the real one takes seconds to import, and would see what this machine has
    (tmp_path / "stub" / "tensorflow.py").write_text(
        "from types import SimpleNamespace\n__version__ = '2.21'\n"
        f"config = SimpleNamespace(list_physical_devices=lambda: {found})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.setattr(doctor, "has_accelerator_driver", lambda: True)
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "file").write_text("", encoding="utf-8")
    config = tmp_path / "run.yaml"
    config.write_text("name: x\ncorpus: {uri: nowhere}\n", encoding="utf-8")
    shown = voxline("doctor", "-c", config, "--run-dir", tmp_path / "file" / "run", "--json")
    assert shown.exit_code == 1
    states = {one["what"]: one["state"] for one in json.loads(shown.stdout)}
    assert states["corpus"] == states["run folder"] == "problem"
    assert {states[what] for what in ("python", "system", "scratch", "ffmpeg", "tensorflow")} == {"ok"}
    assert states["memory"] in ("ok", "problem")  # a busy machine may have less than a training takes
    (tmp_path / "nowhere").mkdir()
    well = voxline("doctor", "-c", config, "--run-dir", tmp_path / "run")
    assert well.exit_code == 0, well.output
    assert "tensorflow   2.21: GPU:0" in well.output

    # Without a driver it is not imported.
    (tmp_path / "stub" / "tensorflow.py").write_text("raise ImportError", encoding="utf-8")
    monkeypatch.setattr(doctor, "has_accelerator_driver", lambda: False)
    assert "no driver of a GPU or TPU; training runs on the CPU" in voxline("doctor").output


def test_a_faulty_package_hides_no_run_and_is_named_where_it_matters(tmp_path: Path) -> None:
    run = leave_run(tmp_path / "runs", "old", 3, 0.05, status="succeeded", started=0.0)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    record["metrics"]["of_no_package"] = 1.0
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    about = tmp_path / "faulty-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[voxline.families]\nfaulty = faulty:Family\n", encoding="utf-8")
    (tmp_path / "faulty.py").write_text("import absent_engine", encoding="utf-8")

    def in_process(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "voxline", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    shown = in_process("runs", "list", tmp_path / "runs")
    assert (shown.returncode, "word error rate 5.00%" in shown.stdout) == (0, True), shown.stderr
    explained = in_process("config", "explain", "train.epochs")
    assert explained.returncode == 2
    assert "package faulty 1.0" in explained.stderr
    assert "Traceback" not in explained.stderr

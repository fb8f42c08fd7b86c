"""The page in a run's folder: what only the run knows, and a page for a run that failed."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from voxline.data.manifest import write_rejects
from voxline.metrics.evaluation import RUN_DETAILS_SLOT, RUN_SLOT
from voxline.notify.event import MetricValue, RunEvent, RunIdentity
from voxline.notify.history import FOLDER, record_run
from voxline.pipelines.console import Console
from voxline.pipelines.local.run_record import RunRecord, StepRecord, read_previous_run
from voxline.pipelines.local.run_report import name_logs, write_run_report
from voxline.pipelines.local.summary import finalize, summary_lines
from voxline.rejects import Reason, Reject
from voxline.report import Page, slot
from voxline.store.files import write_json


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A run whose validate warned; the config of the last run in the folder had other epochs."""
    config: dict[str, Any] = {
        "name": "nightly", "model": "asr", "store": str(tmp_path / "store"), "corpus": {"uri": "/data/commands"},
        "train": {"epochs": 6}, "cluster": {"kept_days": 7.0},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text("name: nightly\ntrain:\n  epochs: 5\n", encoding="utf-8")
    (tmp_path / "run.json").write_text(json.dumps({"started": "2026-11-20T02:00:00Z"}))
    validate = tmp_path / "store" / "validate" / "k"
    validate.mkdir(parents=True)
    Page("Is this corpus fit to train on?").write(validate / "report.html")
    check = {"name": "sentence_overlap", "severity": "warning", "outcome": "failed", "detail": "68.2% of <dev>"}
    (validate / "validation.json").write_text(json.dumps({"checks": [check]}))
    outputs = {"report": str(validate / "report.html"), "validation": str(validate / "validation.json")}
    run = RunRecord("asr", "nightly", tmp_path, config)
    run.steps = [StepRecord("validate", "succeeded", folder=str(validate), outputs=outputs)]
    run.previous = read_previous_run(tmp_path)
    return run


def test_the_page_has_the_runs_name_its_warnings_and_the_settings_that_changed(record: RunRecord) -> None:
    evaluated = record.run_dir / "evaluated.html"
    page = Page("Evaluation of asr")
    page.add_opening(slot(RUN_SLOT), slot(RUN_DETAILS_SLOT))
    page.write(evaluated)
    record.steps.append(StepRecord("evaluate", "succeeded", folder="x", outputs={"report": str(evaluated)}))
    record.status = "succeeded"
    write_run_report(record)
    text = (record.run_dir / "report.html").read_text(encoding="utf-8")
    assert "<title>nightly: evaluation of asr</title>" in text
    assert "1 warning about the corpus" in text
    assert "68.2% of &lt;dev&gt;" in text
    assert 'href="validation.html"' in text
    assert (record.run_dir / "validation.html").is_file()
    assert re.search("<td>train.epochs</td><td[^>]*>5</td><td[^>]*>6</td>", text)
    assert "2026-11-20 02:00:00 UTC" in text
    assert "cluster" not in text
    assert record.report == "report.html"


def test_the_page_names_the_figures_that_stand_out_from_the_runs_before(record: RunRecord) -> None:
    """The run is compared with its history at its end, and the report writer puts it on the evaluation's page."""
    history = record.run_dir / "registry" / FOLDER
    for night in range(12):
        identity = RunIdentity("asr", "nightly", "asr", id=f"night-{night}", started=1_790_000_000 + 86_400 * night)
        metrics = {"wer": MetricValue(0.05 + 0.001 * (night % 3))}
        record_run(RunEvent(identity, "refused", "", identity.started + 60, metrics=metrics), history)
    metrics_file = record.run_dir / "metrics.json"
    write_json(metrics_file, evaluation_info(metrics={"wer": metric_info(0.12, 0.11, 0.13)}).to_dict())
    (record.run_dir / "verdict.json").write_text(
        json.dumps({"pushed": False, "version": None, "model": None, "digest": "ab", "heading": "Not pushed: worse"})
    )
    page = Page("Evaluation of asr")
    page.add_opening(slot(RUN_SLOT), slot(RUN_DETAILS_SLOT))
    page.write(record.run_dir / "evaluated.html")
    outputs = {"report": str(record.run_dir / "evaluated.html"), "verdict": str(record.run_dir / "verdict.json")}
    record.steps += [
        StepRecord("evaluate", "succeeded", folder="x", outputs={"metrics": str(metrics_file)}),
        StepRecord("push", "succeeded", folder="x", outputs=outputs),
    ]
    record.status = "succeeded"
    finalize(record, str(history))
    text = (record.run_dir / "report.html").read_text(encoding="utf-8")
    assert "outside what the runs before lead to expect" in text
    assert re.search(r"<td>word error rate</td><td[^>]*>12.00%</td><td[^>]*>5.\d\d% ± 0.\d\d%</td>", text)
    assert any(line.startswith("stands out       word error rate 12.00%") for line in summary_lines(record))
    record.config["registry"] = str(history.parent)
    record.write()
    (wer,) = [
        one for one in json.loads((record.run_dir / "run.json").read_text())["anomalies"] if one["figure"] == "wer"
    ]
    assert wer["value"] == 0.12


def test_a_run_that_fails_in_convert_leaves_a_page_with_the_rejects_by_reason(record: RunRecord) -> None:
    step = record.run_dir / "store" / "convert" / "broken"
    step.mkdir(parents=True)
    record.started -= 5
    write_rejects(step / "rejects.jsonl", [Reject(f"u{n}", Reason.OUTSIDE_ALPHABET, "'7' in <b>") for n in range(5)])
    record.steps = [
        StepRecord("ingest", "succeeded", folder=str(record.run_dir / "none")),
        StepRecord("convert", "failed"),
    ]
    others = record.run_dir / "store" / "convert" / "of another run"
    others.mkdir()
    write_rejects(others / "rejects.jsonl", [Reject("theirs", Reason.SILENT, "-90 dB")])
    reason = f"5 of 5 utterances were rejected\n  all of them: {step / 'rejects.jsonl'}"
    record.status, record.failed_step, record.reason = "failed", "convert", reason
    write_run_report(record)
    text = (record.run_dir / "report.html").read_text(encoding="utf-8")
    assert "<title>nightly: failed in convert</title>" in text
    assert "5 of 5 utterances were rejected" in text
    assert '<td>outside_alphabet</td><td class="number">5</td><td>u0</td>' in text
    assert "&#39;7&#39; in &lt;b&gt;" in text
    assert "theirs" not in text  # a store may have several runs at once


def test_a_run_that_fails_in_train_shows_why_and_not_only_that_the_corpus_is_fit(record: RunRecord) -> None:
    record.steps.append(StepRecord("train", "failed"))
    record.status, record.failed_step, record.reason = "failed", "train", "the loss is not finite"
    write_run_report(record)
    text = (record.run_dir / "report.html").read_text(encoding="utf-8")
    assert "the loss is not finite" in text
    assert (record.run_dir / "validation.html").is_file()


def test_tensorboard_logs_are_copied_once_under_a_name_for_people(record: RunRecord) -> None:
    logs = record.run_dir / "store" / "train" / "k" / "logs"
    logs.mkdir(parents=True)
    (logs / "events.out.tfevents.1").write_bytes(b"x")
    record.started = 1795354017.0
    record.config["train"] = {"epochs": 6, "learning_rate": 0.005, "seed": 1, "model": {"kind": "deepspeech2"}}
    record.steps.append(StepRecord("train", "succeeded", key="0123456789", outputs={"logs": str(logs)}))
    name_logs(record)
    record.started += 3600
    name_logs(record)
    (folder,) = (record.run_dir / "tensorboard").iterdir()
    assert folder.name == "nightly 2026-11-22 13.26, deepspeech2, 6 epochs, rate 0.005, seed 1, 012345"
    assert (folder / "events.out.tfevents.1").read_bytes() == b"x"


def test_a_verdict_of_several_reasons_is_printed_a_line_each(record: RunRecord) -> None:
    reasons = [f"word error rate of {name} {number}% is above the limit" for number, name in enumerate("abcd", 31)]
    record.status, record.reason = "succeeded", f"Not pushed: {'; '.join(reasons)}"
    lines = summary_lines(record)[-4:]
    assert lines[0] == f"Not pushed: {reasons[0]}"
    assert [line.strip() for line in lines[1:]] == reasons[1:]
    assert all(len(line) < 100 for line in lines)

    # What a step prints is shown so too, and the log has the line whole.
    screen = io.StringIO()
    Console(screen).line(f"▸ push: {record.reason}")
    assert screen.getvalue().splitlines()[1].strip() == reasons[1]

    record.reason = "Not pushed: already in service as version 1"
    assert summary_lines(record)[-1] == record.reason

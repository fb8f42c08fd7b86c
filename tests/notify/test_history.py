"""The history of runs: what is recorded, listed, exported, drawn and forecast."""

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.command import voxline
from tests.notify.conftest import REFUSED, RUN, WAITS, MakeEvent
from voxline.errors import WorkError
from voxline.notify.event import MetricValue, RunEvent
from voxline.notify.history import FOLDER, figure_of, read_runs, record_run


@pytest.fixture
def registry(tmp_path: Path, make_event: MakeEvent) -> Path:
    """A registry with the history of 20 nights; in the last one the error rate doubled."""
    noise = np.random.default_rng(7)
    for night in range(20):
        wer = 0.05 + 0.001 * noise.normal() + 0.05 * (night == 19)
        started = RUN.started + night * 86_400
        record_run(_night(make_event(), f"{night:02d}", started, wer), tmp_path / "registry" / FOLDER)
    return tmp_path / "registry"


def _night(event: RunEvent, identity: str, started: float, wer: float) -> RunEvent:
    run = dataclasses.replace(event.run, id=identity, started=started)
    metrics = {"wer": MetricValue(wer, wer - 0.01, wer + 0.01)}
    return dataclasses.replace(event, run=run, ended=started + 600, metrics=metrics)


def test_a_run_is_recorded_once_and_stays_as_it_is(tmp_path: Path, make_event: MakeEvent) -> None:
    event = dataclasses.replace(make_event(), ended=RUN.started + 9)
    first = record_run(event, tmp_path)
    assert record_run(dataclasses.replace(event, reason="another"), tmp_path) == first
    (run,) = read_runs(tmp_path)
    assert (run["verdict"], run["version"], run["model_uri"]) == ("promoted", 7, event.model_uri)
    assert "links" not in run, "paths of the machine"
    assert figure_of(run, "seconds") == 9.0
    assert figure_of(run, "missing") is None


def test_a_failure_keeps_the_first_line_of_its_reason(tmp_path: Path, make_event: MakeEvent) -> None:
    record_run(dataclasses.replace(make_event(None), reason="x" * 500 + "\nand more"), tmp_path)
    (run,) = read_runs(tmp_path)
    assert run["verdict"] == "failed"
    assert run["reason"] == "x" * 298 + " …"


def test_a_long_reason_ends_behind_a_word_and_says_so(tmp_path: Path, make_event: MakeEvent) -> None:
    record_run(dataclasses.replace(make_event(None), reason="worse than before " * 30), tmp_path)
    (run,) = read_runs(tmp_path)
    assert run["reason"].endswith((" than …", " worse …", " before …"))
    assert 280 < len(run["reason"]) <= 300


def test_the_list_has_the_first_reason_of_a_refusal_and_all_of_a_failure(tmp_path: Path, make_event: MakeEvent) -> None:
    refused = dataclasses.replace(make_event(REFUSED), reason="WER is 31%; slice b is worse; WER rose")
    record_run(_night(refused, "1", RUN.started, 0.3), tmp_path)
    failed = dataclasses.replace(make_event(None), reason="a speaker was erased; the loss is NaN; lower the rate")
    record_run(_night(failed, "2", RUN.started + 9, 0.3), tmp_path)
    printed = voxline("runs", "history", tmp_path).stdout
    assert "WER is 31% (and 2 more: --json)" in printed
    assert "the loss is NaN; lower the rate" in printed


def test_what_is_no_run_is_named_and_left_out(tmp_path: Path, make_event: MakeEvent, capsys: object) -> None:
    record_run(make_event(REFUSED), tmp_path)
    (tmp_path / "20260101T000000Z-half.json").write_text("{")
    (tmp_path / "notes.txt").write_text("mine")
    assert len(read_runs(tmp_path)) == 1
    with pytest.raises(WorkError, match="no run of config other is recorded here"):
        read_runs(tmp_path, name="other")


def test_the_commands_list_and_export(registry: Path, tmp_path: Path) -> None:
    listed = voxline("runs", "history", registry, "--name", RUN.name)
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert len(lines) == 20
    assert "promoted" in lines[0]
    assert "word error rate 5.00% (4.00% to 6.00%)" in lines[0]
    assert "version 7" in lines[0]
    assert voxline("runs", "export", registry, tmp_path / "runs.sqlite").returncode == 0
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as database:
        rows = database.execute(
            "SELECT value, low FROM metrics JOIN runs ON run = id WHERE verdict = 'promoted' ORDER BY ended"
        ).fetchall()
    assert len(rows) == 20
    assert rows[-1][0] > 0.09
    refused = voxline("runs", "export", registry, tmp_path / "runs.csv")
    assert refused.returncode == 2
    assert ".sqlite or .jsonl" in refused.stderr


@pytest.mark.slow
def test_the_page_has_curves_and_a_table(registry: Path, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    assert voxline("runs", "history", registry, "--page", page).returncode == 0
    html = page.read_text()
    assert html.count("<svg") >= 2
    assert html.count("promoted") >= 20
    assert "next run" in html


def test_the_forecast_names_the_night_that_stands_out(registry: Path) -> None:
    printed = voxline("runs", "forecast", registry, "--figure", "wer", "--check")
    assert printed.returncode == 1
    assert "stands out" in printed.stdout
    assert "stands out in wer" in printed.stderr
    documents = json.loads(voxline("runs", "forecast", registry, "--json").stdout)
    wer = next(document for document in documents if document["figure"] == "wer")
    assert wer["stands_out"]
    assert [one["value"] > 0.09 for one in wer["anomalies"]][-1]
    unknown = voxline("runs", "forecast", registry, "--figure", "wre")
    assert unknown.returncode == 2
    assert "not a figure of these runs" in unknown.stderr


def test_a_candidate_counts_as_a_run_that_passed(tmp_path: Path, make_event: MakeEvent) -> None:
    record_run(_night(make_event(WAITS), "1", RUN.started, 0.02), tmp_path)
    assert "version 7" in voxline("runs", "history", tmp_path).stdout
    assert "1 runs of the 8" in voxline("runs", "forecast", tmp_path, "--figure", "wer").stdout


def test_too_few_runs_are_said(tmp_path: Path, make_event: MakeEvent) -> None:
    record_run(_night(make_event(), "1", RUN.started, 0.02), tmp_path)
    printed = voxline("runs", "forecast", tmp_path, "--figure", "wer", "--check")
    assert printed.returncode == 0
    assert "1 runs of the 8" in printed.stdout


def test_a_season_needs_its_runs_and_failed_runs_are_none(
    registry: Path, tmp_path: Path, make_event: MakeEvent
) -> None:
    printed = voxline("runs", "forecast", registry, "--figure", "wer", "--period", "30")
    assert printed.returncode == 0, printed.stderr
    assert "20 runs of the 68 that a forecast needs" in printed.stdout
    record_run(make_event(None), tmp_path / "failed")
    refused = voxline("runs", "forecast", tmp_path / "failed", "--check")
    assert refused.returncode == 1
    assert "none of its 1 runs did all of its work" in refused.stderr


def test_candidates_are_forecast_like_runs_that_went_into_service(tmp_path: Path, make_event: MakeEvent) -> None:
    for night in range(8):
        event = _night(make_event(), str(night), RUN.started + night * 86_400, 0.05 + 0.001 * (night % 3))
        record_run(dataclasses.replace(event, verdict="candidate"), tmp_path)
    assert "next run 5." in voxline("runs", "forecast", tmp_path, "--figure", "wer").stdout


def test_the_share_of_rejects_is_of_what_ingest_found() -> None:
    """100 found: ingest leaves out 20, and convert 10 of the other 80."""
    ingested = {"name": "ingest", "counts": {"train": 60, "dev": 10, "test": 10}}
    run = {"metrics": {}, "steps": [ingested], "rejects": {"ingest": {"absent": 20}, "convert": {"too short": 10}}}
    assert figure_of(run, "rejects") == 0.3
    assert figure_of(run, "utterances") == 80

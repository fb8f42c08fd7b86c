"""What a history leads to expect: anomalies, promotions, the state of a model, and the page of all of it."""

import dataclasses
import html.parser
import json
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.command import voxline
from tests.evaluations import evaluation_info, metric_info
from tests.notify.conftest import RUN
from tests.registry.published import exported
from voxline.errors import SettingsError
from voxline.forecast.freshness import freshness
from voxline.forecast.run_forecast import (
    expected_hours,
    find_anomalies,
    forecast_figure,
    predict_promotion_of_run,
    skipped_in_a_row,
    with_anomalies,
)
from voxline.inference.saved_model import model_digest
from voxline.notify.event import FigureAnomaly, MetricValue, RunEvent, RunVerdict, StepRecord
from voxline.notify.history import FOLDER, Run, figure_of, read_runs, record_run
from voxline.notify.prometheus import samples
from voxline.notify.settings import NotifySettings
from voxline.pipelines.cli.history_page import history_page
from voxline.pipelines.cluster.compiler import compile_pipeline
from voxline.pipelines.config.load import load_config
from voxline.pipelines.kfp_graph import load_pipeline
from voxline.registry.journal import RegistryEvent
from voxline.registry.registry import Registry
from voxline.store.files import write_json

DAY = 86_400


def night(
    number: int, verdict: RunVerdict = "refused", wer: float = 0.05, hours: float = 10.0, version: int | None = None
) -> RunEvent:
    started = RUN.started + number * DAY
    steps = (
        StepRecord("validate", "succeeded", 2.0, counts={"utterances": 90, "drifted": 0}),
        StepRecord("extract", "succeeded", 3.0, metrics={"train_hours": hours, "dev_hours": 1.0}),
    )
    return RunEvent(
        dataclasses.replace(RUN, id=f"night-{number:03d}", started=started),
        verdict,
        {"refused": "Not pushed: WER is higher", "promoted": f"Pushed as version {version}"}.get(verdict, ""),
        started + 600 + 5 * math.sin(number),
        steps=steps,
        metrics={} if verdict == "skipped" else {"wer": MetricValue(wer, wer - 0.01, wer + 0.01)},
        version=version,
    )


def runs_of(*events: RunEvent) -> list[Run]:
    return [json.loads(json.dumps(event.to_dict())) for event in events]


def wer_of(number: int) -> float:
    return 0.05 + 0.001 * float(np.random.default_rng(number).normal())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions, the third one rolled back; 20 nights, of which the last one is twice as bad and has more data."""
    folder = tmp_path_factory.mktemp("forecast")
    root = folder / "registry"
    versions = Registry(root, RUN.model)
    for number in (1, 2, 3):
        model = exported(folder / f"model-{number}", f"weights {number}")
        wer = metric_info(0.06 - 0.01 * number, 0.05 - 0.01 * number, 0.07 - 0.01 * number)
        info = evaluation_info(metrics={"wer": wer})
        with versions.locked(), versions.publishing(model, model_digest(model), "push") as (_, incoming):
            (incoming / "evaluation").mkdir()
            write_json(incoming / "evaluation" / "metrics.json", info.to_dict())
    versions.rollback(note="hears <nothing> & nobody")
    promoted = {0: 1, 5: 2, 10: 3}
    for number in range(20):
        verdict: RunVerdict = "promoted" if number in promoted else "refused"
        last = number == 19
        event = night(number, verdict, 0.11 if last else wer_of(number), 11.0 if last else 10.0, promoted.get(number))
        record_run(event if 8 < number < 18 else with_anomalies(event, str(root / FOLDER)), root / FOLDER)
    return root


def test_a_run_that_stands_out_is_marked_in_history_export_and_gauges(registry: Path, tmp_path: Path) -> None:
    *before, last = read_runs(registry / FOLDER)
    assert {one["figure"] for one in last["anomalies"]} == {"wer", "hours"}
    (wer,) = [one for one in last["anomalies"] if one["figure"] == "wer"]
    assert wer["value"] == 0.11
    assert abs(wer["expected"] - 0.05) < 0.003
    assert not any(run["anomalies"] for run in before)
    lines = voxline("runs", "history", registry).stdout.splitlines()
    assert lines[-1].endswith("(stands out: wer, hours)")
    assert "stands out" not in "".join(lines[:-1])
    assert voxline("runs", "export", registry, tmp_path / "runs.sqlite").returncode == 0
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as database:
        rows = database.execute("SELECT figure, value, hours FROM anomalies JOIN runs ON run = id").fetchall()
    assert sorted(rows) == [("hours", 11.0, 11.0), ("wer", 0.11, 11.0)]
    event = dataclasses.replace(night(19), anomalies=(FigureAnomaly("wer", 0.11, 0.05, 0.001),))
    assert [one.value for one in samples(event, NotifySettings()) if one.gauge == "voxline_anomalies"] == [1.0]


def test_a_run_that_did_not_do_its_work_does_not_stand_out(registry: Path) -> None:
    runs = read_runs(registry / FOLDER)
    failed = {**runs[-1], "verdict": "failed"}
    assert find_anomalies(runs[:-1], failed) == ()


def test_the_first_run_has_nothing_to_stand_out_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = night(0, "promoted", version=1)
    assert with_anomalies(event, str(tmp_path / "none")) == event
    assert capsys.readouterr().out == ""


class Reader(html.parser.HTMLParser):
    """What a browser without scripts shows, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.loads, self.scripts, self._hidden = "", list[str](), 0, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self._hidden = tag if tag in ("script", "style") else self._hidden
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data


def test_the_page_is_whole_without_scripts_and_requests(registry: Path, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    assert voxline("runs", "history", registry, "--page", page).returncode == 0
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert [one for one in reader.loads if not one.startswith(("#", "data:"))] == []
    assert reader.scripts <= 1, "the one that sorts and searches the table of runs"
    told = " ".join(reader.text.split())
    for expected in (
        "It is stale",
        "There are 11 h of audio to train on, 10% more than it was trained on.",
        "9 runs since then were refused by the gate (Not pushed: WER is higher).",
        "Version 4 is a copy of version 2: version 3 was rolled back (hears <nothing> & nobody).",
        "version 3 was taken out, version 2 is back",
        "version 4, in service",
        "3.00%", "2.00% to 4.00%",  # version 3, as its own evaluation has it
        "audio to train on",
        "word error rate 11.00%, expected 5.",
        "1 run stood out",
    ):  # fmt: skip
        assert expected in told, expected
    assert told.count("refused") >= 17, "each with its reason"


@pytest.mark.parametrize(("apart", "unit"), [(DAY, "days"), (3_600, "hours"), (120, "minutes"), (0, "minutes")])
def test_the_axis_of_time_has_the_unit_that_suits_the_runs(apart: int, unit: str) -> None:
    started = [RUN.started + number * apart for number in range(3)]
    events = [
        dataclasses.replace(night(0), run=dataclasses.replace(RUN, started=moment), ended=moment + 60.0)
        for moment in started
    ]
    runs = runs_of(*events)
    page = history_page(runs, "registry", datetime.fromtimestamp(RUN.started, UTC)).html()
    assert f"{unit} since the first run" in page
    assert "duration (s)" in page


def test_a_history_without_a_registry_has_the_state_of_the_model_too(tmp_path: Path) -> None:
    runs = runs_of(night(0, "promoted", version=1), *(night(number, "skipped") for number in (1, 2)))
    text = history_page(runs, str(tmp_path), datetime.fromtimestamp(RUN.started + 3 * DAY, UTC)).html()
    assert "2 runs since then were skipped as not worth a training." in text
    assert "Pushed as version 1" in text


@pytest.mark.parametrize(
    ("events", "days", "expected"),
    [
        ([night(0, "promoted", version=1)], 1, "current"),
        ([night(0, "promoted", version=1), night(1, hours=10.05), night(2, "unchanged")], 3, "current"),
        ([night(0, "promoted", version=1), night(1, "failed")], 2, "stale: 1 run since then failed"),
        ([night(0)], 1, "absent: no run has promoted a model"),
        ([night(0, "promoted", version=1), night(1, "unchanged", hours=8.0), night(2, hours=6.0)], 3,
         "stale: there are 6 h of audio to train on, 25% less than it was trained on; 1 run since then was refused "
         "by the gate (Not pushed: WER is higher)"),
        ([night(number, "unchanged") for number in range(5)], 14,
         "stale: the last run that did its work ended 240.0 h ago, usually it is 24.0 h"),
    ],
)  # fmt: skip
def test_freshness_is_a_state_of_the_model(events: list[RunEvent], days: int, expected: str) -> None:
    now = datetime.fromtimestamp(RUN.started + days * DAY + 600, UTC)
    assert freshness(runs_of(*events), now).text == expected


def test_a_candidate_that_a_person_promoted_is_current() -> None:
    runs = runs_of(night(0, "promoted", version=1), night(1, "candidate", version=2))
    now = datetime.fromtimestamp(RUN.started + 2 * DAY, UTC)
    pushed = [RegistryEvent(1, "push", "", "a"), RegistryEvent(2, "push", "", "b", alias="candidate")]
    assert freshness(runs, now, pushed).text == "stale: 1 run since then made a candidate that waits to be promoted"
    promoted = RegistryEvent(2, "promote", "", "b", replaces=1)
    assert freshness(runs, now, [*pushed, promoted]).state == "current"


def test_a_metric_that_is_not_finite_was_not_measured(tmp_path: Path) -> None:
    wers = [0.05, math.inf, math.nan, *(wer_of(number) for number in range(7))]
    runs = runs_of(*(night(number, wer=wer) for number, wer in enumerate(wers)))
    assert [figure_of(run, "wer") for run in runs[:3]] == [0.05, None, None]
    assert forecast_figure(runs, "wer") is not None
    assert forecast_figure(runs[:9], "wer") is None, "7 of 9 nights have one"
    assert find_anomalies(runs[:-1], runs[-1]) == ()
    assert "word error rate" in history_page(runs, str(tmp_path), datetime.fromtimestamp(RUN.started, UTC)).html()


def test_a_promotion_is_predicted_from_the_models_runs() -> None:
    runs = runs_of(night(0, "promoted"), *(night(number, wer=wer_of(number)) for number in range(1, 25)))
    same, more = predict_promotion_of_run(runs, 10.0), predict_promotion_of_run(runs, 14.0)
    assert same is not None
    assert more is not None
    assert same.probability < 0.1 < more.probability
    assert predict_promotion_of_run(runs[:8], 10.0) is None
    assert expected_hours(runs) == pytest.approx(10.0)


def test_the_forecast_tells_the_promotion_and_the_state(registry: Path) -> None:
    printed = voxline("runs", "forecast", registry).stdout.splitlines()
    (line,) = [line for line in printed if line.startswith("promotion")]
    assert " h to train on" in line
    assert "  2 of 19 judged runs were promoted" in printed[printed.index(line) + 1]
    assert any(line.split()[:2] == ["freshness", "stale"] for line in printed)
    documents = json.loads(voxline("runs", "forecast", registry, "--hours", "20", "--json").stdout)
    promotion = next(one for one in documents if one["figure"] == "promotion")
    assert promotion["hours"] == 20.0
    assert 0 < promotion["probability"] < 1


def test_failed_runs_do_not_end_a_series_of_skipped_ones() -> None:
    runs = runs_of(night(0), night(1, "skipped"), night(2, "failed"), night(3, "skipped"))
    assert skipped_in_a_row(runs) == 2


def test_the_steps_after_the_forecast_run_only_if_it_says_so() -> None:
    assert "forecast" not in load_pipeline("asr").pipeline_spec.root.dag.tasks
    for name in ("asr", "tts", "vocoder", "intents"):
        spec = load_pipeline(name, optional=("forecast",)).pipeline_spec
        tasks = spec.root.dag.tasks
        assert set(tasks) == {"ingest", "convert", "validate", "extract", "forecast", "condition-1"}
        condition = tasks["condition-1"].trigger_policy.condition
        assert condition == "inputs.parameter_values['pipelinechannel--forecast-Output'] == 'yes'"
        assert set(spec.components["comp-condition-1"].dag.tasks) == {"train", "evaluate", "push"}


def test_on_a_cluster_a_forecast_needs_a_history(tmp_path: Path) -> None:
    config = load_config({"name": "nightly", "corpus": {"uri": "gs://speech/c"}, "forecast": {"skip_below": 0.1}})
    with pytest.raises(SettingsError, match=r"notify\.history is not"):
        compile_pipeline(config, tmp_path / "asr.yaml")


def test_a_config_turns_the_forecast_on() -> None:
    config = load_config({"name": "nightly", "corpus": {"uri": "c"}, "language": {"kind": "ngram"}})
    assert config.optional_steps() == ("language",)
    given = {"forecast": {"skip_below": 0.1}, "publish": {}, "notify": {"history": "gs://speech/history"}}
    asked = load_config({**config.plain(), **given})
    assert asked.optional_steps() == ("forecast", "language")
    assert asked.section("forecast").plain()["history"] == "gs://speech/history"

"""What a run will take: a range from earlier runs, from a timed sample or from limits; and a budget that refuses it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from voxline.errors import SettingsError, WorkError
from voxline.notify.cost import CostSettings, RunCost
from voxline.notify.event import RunEvent, RunIdentity, StepRecord
from voxline.notify.history import record_run
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local import training_time
from voxline.pipelines.local.cost_estimate import (
    CostEstimate,
    check_budget,
    estimate_run,
    estimate_submission,
    refuse_above_budget,
)
from voxline.pipelines.local.plan import PlannedStep
from voxline.pipelines.local.training_time import TrainingTime

PLAN = [
    PlannedStep("ingest", "reuse", "", "store/ingest"),
    PlannedStep("extract", "reuse", "", "store/extract"),
    PlannedStep("train", "run", "train.epochs 2 → 4"),
    PlannedStep("evaluate", "depends", ""),
    PlannedStep("push", "run", ""),
]


def config_with(folder: Path, **values: Any) -> RunConfig:
    basic = {"name": "night", "pipeline": "asr", "model": "asr", "corpus": {"uri": str(folder)}}
    return load_config([{**basic, "train": {"epochs": 2}, **values}])


def record(config: RunConfig, history: Path, hours: float, *, on_cluster: bool = False, reused: bool = False) -> None:
    """Adds a run whose training took some hours with two cores, and its evaluation a tenth of that."""
    train = StepRecord("train", "succeeded", seconds=3600 * hours, cpu_seconds=7200 * hours, reused=reused)
    train.metrics = {"epochs": 2.0}
    evaluate = StepRecord("evaluate", "succeeded", seconds=360 * hours, cpu_seconds=360 * hours, reused=reused)
    push = StepRecord("push", "succeeded")
    cost = RunCost.of([train, evaluate], config.cost, like=config.cost_digest(on_cluster=on_cluster))
    run = RunIdentity("asr", config.name, "asr")
    event = RunEvent(run, "refused", "", 0.0, (train, evaluate, push), cost=cost)
    record_run(dataclasses.replace(event, ended=1_790_000_000 + 1000 * hours), history)


def test_earlier_runs_with_the_same_training_give_a_range(tmp_path: Path) -> None:
    config = config_with(tmp_path, cost={"cpu_hour": 0.5, "currency": "EUR"})
    record(config, tmp_path / "runs", 1.0)
    record(config, tmp_path / "runs", 2.0)
    record(config, tmp_path / "runs", 3.0, reused=True)  # a night without news tells nothing
    record(config_with(tmp_path, train={"epochs": 2, "batch_size": 64}), tmp_path / "runs", 50.0)
    estimate = estimate_run(config, PLAN, str(tmp_path / "runs"), timing=False)
    # The shortest training × 0.75; the longest one with its evaluation × 1.5: evaluate may be reused.
    assert estimate.hours == pytest.approx((0.75, 2 * 1.5 * 1.1))
    assert estimate.cpu_hours == pytest.approx((1.5, 4 * 1.5 + 0.2 * 1.5))
    assert estimate.amount == pytest.approx((0.75, 3.15))
    assert estimate.lines == ["estimate   0.75 to 3.3 h, 1.5 to 6.3 CPU-hours, 0.75 to 3.1 EUR; from 2 runs like it"]
    assert estimate.to_dict("ingest") is None
    assert (estimate.to_dict("train") or {})["hours"] == [0.75, 3.0]


@pytest.mark.parametrize(("patience", "hours"), [(0, (1.5, 3.0)), (3, (0.75, 3.0))])
def test_more_epochs_take_longer_unless_training_stops_early(tmp_path: Path, patience: int, hours: Any) -> None:
    config = config_with(tmp_path, train={"epochs": 2, "patience": patience})
    record(config, tmp_path / "runs", 1.0)
    longer = config_with(tmp_path, train={"epochs": 4, "patience": patience})
    assert estimate_run(longer, PLAN[:3], str(tmp_path / "runs"), timing=False).hours == pytest.approx(hours)


def test_without_a_run_like_it_steps_are_timed_and_the_range_is_wider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def time_run(config: RunConfig, dataset: str, manifest: str) -> TrainingTime:
        seen.append((dataset, manifest))
        return TrainingTime(step=1.0, timed=5, total=7200.0, alone=3600.0, accelerators=2)

    config = config_with(tmp_path, cost={"cpu_hour": 1.0})
    untimed = estimate_run(config, PLAN, "", timing=False)
    assert untimed.lines == [
        "estimate   not known: nothing like it ran here before; --timing times some steps of the training"
    ]
    monkeypatch.setattr(training_time, "time_run", time_run)
    estimate = estimate_run(config, PLAN, "")
    assert seen == [("store/extract", "store/ingest")]
    assert (estimate.hours, estimate.cpu_hours) == ((1.0, 4.0), (0.5, 2.0))
    assert estimate.accelerator_hours == (2.0, 8.0)
    assert estimate.amount is None  # the devices have no price
    assert estimate.lines == [
        "estimate   1 to 4 h, 0.5 to 2 CPU-hours, 2 to 8 accelerator-hours; from 5 steps of the training timed here, "
        "half to twice their time",
        "           without evaluate",
    ]


def test_a_budget_refuses_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        training_time, "time_run", lambda *_: TrainingTime(step=1.0, timed=5, total=3600.0, alone=3600.0)
    )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "manifest.jsonl").touch()
    file = tmp_path / "night.yaml"
    file.write_text(f"name: night\ncorpus: {{uri: {corpus}}}\ncost: {{cpu_hour: 3.0, currency: EUR, budget: 5}}\n")
    arguments = ["asr", "-c", str(file), "--run-dir", str(tmp_path / "run")]
    for command in (["run", *arguments], ["run", *arguments, "--dry-run"]):
        ended = CliRunner().invoke(app, command)
        assert isinstance(ended.exception, SettingsError)
        assert str(ended.exception) == (
            "cost.budget is 5.00 EUR, and this run is estimated at 1.5 to 6 EUR (from 5 steps of the training timed "
            "here, half to twice their time); nothing was started. Raise cost.budget, or lower what it takes, such as "
            "train.epochs"
        )
    assert not (tmp_path / "run").exists()
    accepted = load_config([file], ["cost.budget=6"])
    assert "the estimate is without ingest, convert" in check_budget(accepted, tmp_path / "run", "", [], "")


def test_a_budget_that_cannot_be_checked_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise WorkError("gs://speech is not one folder on this machine; run until extract first")

    monkeypatch.setattr(training_time, "time_run", refuse)
    config = config_with(tmp_path, cost={"cpu_hour": 3.0, "budget": 5})
    remark = refuse_above_budget(estimate_run(config, PLAN, ""), config)
    assert remark == (
        "cost.budget is 5.00 USD and is not checked: gs://speech is not one folder on this machine; run until extract "
        "first"
    )
    assert refuse_above_budget(CostEstimate({}, "", "unknown"), config_with(tmp_path)) == ""


def test_what_is_submitted_takes_what_earlier_runs_took_by_what_its_pods_reserve(tmp_path: Path) -> None:
    cluster = {"steps": {"train": {"cpu": 8, "accelerator": {"kind": "gpu", "count": 2}}}}
    config = config_with(
        tmp_path, cluster=cluster, notify={"history": str(tmp_path / "runs")}, cost={"accelerator_hour": 2.0}
    )
    record(config, tmp_path / "runs", 1.0)  # on this machine: it says nothing about the cluster
    record(config, tmp_path / "runs", 4.0, on_cluster=True)
    estimate = estimate_submission(config)
    assert estimate.steps["train"].hours == pytest.approx((3.0, 6.0))
    assert estimate.steps["train"].cpu_hours == pytest.approx((24.0, 48.0))
    assert estimate.accelerator_hours == pytest.approx((6.0, 12.0))
    assert estimate.amount == pytest.approx((12.0, 24.0))


def test_the_first_run_on_a_cluster_takes_what_its_limits_allow_at_most(tmp_path: Path) -> None:
    steps = {"train": {"cpu": 8, "retries": 1, "timeout_hours": 10, "accelerator": {"kind": "gpu", "count": 2}}}
    config = config_with(tmp_path, cluster={"deadline_hours": 24, "steps": steps})
    assert estimate_submission(config).lines == [
        "estimate   not known: nothing like it ran before, or notify.history cannot be read here"
    ]
    priced = config.model_copy(update={"cost": CostSettings(accelerator_hour=2.0, budget=50)})
    estimate = estimate_submission(priced)
    # Two attempts of ten hours; the other steps share the four hours that the deadline leaves.
    assert estimate.hours == (0.0, 24.0)
    assert estimate.amount == (0.0, 80.0)
    with pytest.raises(SettingsError, match=r"cost.budget is 50.00 USD, .* at most 80 USD \(by timeout_hours"):
        refuse_above_budget(estimate, priced)

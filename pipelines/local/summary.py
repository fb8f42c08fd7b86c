"""The result of a run: its metrics, the verdict, and the last lines that the command prints."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.forecast.run_forecast import describe_anomaly, with_anomalies
from voxline.metrics.catalog import headline_metrics
from voxline.notify.cost import CostSettings, RunCost, cost_phrases
from voxline.notify.event import Erasure, PublishedModel, RunEvent
from voxline.pipelines.console import verdict_lines
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.pipelines.local.run_report import name_logs, write_run_report
from voxline.pipelines.steps import STEPS, writer_of
from voxline.report.page import format_duration
from voxline.store.files import read_json
from voxline.store.uris import is_remote


def finalize(record: RunRecord, history: str = "") -> None:
    """Fills in the results of the steps that finished.

    Args:
      history: location of the runs before; empty: nothing is compared with them.
    """
    # Steps are found by what they wrote, so that a run that was stopped early has the results of those that ended.
    if validated := record.step_with("validation"):
        with contextlib.suppress(WorkError):  # a bucket that cannot be read now; the run has ended
            record.warnings = _warnings(read_json(validated.output("validation")))
    if evaluated := record.step_with("metrics"):
        record.metrics = dict(evaluated.metrics)
    forecast_step = record.step_with("forecast")
    if forecast_step and forecast_step.counts.get("skipped"):
        record.reason = read_json(forecast_step.output("forecast"))["heading"]

    verdict: dict[str, Any] | None = None

    # A push that failed, or was killed, may have published the model before: the registry's journal knows.
    pushed = record.step(writer_of("registry"))
    if pushed and pushed.status == "succeeded":
        verdict = read_json(pushed.output("verdict"))
        record.pushed = bool(verdict["pushed"])
        record.reason = verdict["heading"]
        record.model = verdict["model"]
    elif pushed:
        _find_published(record)

    published = record.step(writer_of("datasets"))
    if published and published.status == "succeeded":
        record.dataset = published.folder
        if record.steps[-1] is published:
            record.reason = _publish_reason(record, published)
    opened = record.step("dataset")
    if opened and opened.status == "succeeded":
        record.dataset = opened.folder

    # A run that ends before push says it too; the reason of a refusal begins with it.
    record.erasure = Erasure.find(record.config.get("registry", ""), record.config.get("model", ""))
    if record.erasure.warning and record.erasure.warning not in record.reason:
        record.warnings.append(record.erasure.warning)

    prices = CostSettings.of(record.config.get("cost", {}), "cost")
    record.cost = RunCost.of(record.steps, prices, like=record.like, energy_kwh=record.energy_kwh, verdict=verdict)

    # The forecast compares what was filled in above, and the pages show all of it.
    if history and record.status == "succeeded":
        with contextlib.suppress(WorkError, OSError, ValueError, KeyError):  # the run has ended
            event = RunEvent.of(record.identity, record.steps, record.status, record.reason, {})
            priced = dataclasses.replace(event, cost=record.cost)
            record.anomalies = list(with_anomalies(priced, history).anomalies)
    write_run_report(record)
    name_logs(record)


def _find_published(record: RunRecord) -> None:
    """Takes from the registry's journal what a push has published that then failed or was killed."""
    registry = record.config["registry"]
    published = PublishedModel.find(registry, record.config["model"], record.step_with("metrics"), record.started)
    if published:
        record.published = published
        record.pushed = True
        record.model = published.uri
        record.reason = published.explain(record.reason)


def _warnings(validation: dict[str, Any]) -> list[str]:
    """The warnings of validate, a line each."""
    return [f"{check['name']}: {check['detail']}" for check in validation["checks"] if check["outcome"] == "failed"]


def _publish_reason(record: RunRecord, step: StepRecord) -> str:
    name = record.config[STEPS[step.name].config_section]["dataset"]
    number = step.counts["version"]
    if step.reused:
        return f"Nothing has changed since version {number} of {name}"
    return f"Published as version {number} of {name}"


def summary_lines(record: RunRecord) -> list[str]:
    """The last lines of a run; the verdict comes last."""
    spent = sum(step.cpu_seconds for step in record.steps)
    reused = [step.name for step in record.steps if step.reused]

    # Every line has its label in the first 17 columns.
    lines = [""]
    lines += _metric_lines(record)
    lines += _step_lines(record)
    lines += [f"{'warning':<17}{warning}" for warning in record.warnings]
    lines += [f"{'stands out':<17}{describe_anomaly(anomaly)}" for anomaly in record.anomalies]
    lines.append(f"{'time':<17}{format_duration(record.seconds)}, {format_duration(spent)} of processor time")
    used = cost_phrases(record.cost.to_dict() if record.cost else None)
    if len(used) > 1:  # processor time alone is in the line above
        lines.append(f"{'cost':<17}{', '.join(used)}")
    if reused:
        lines.append(f"reused           {', '.join(reused)}: unchanged input")

    # Places to look at, for a run that failed as well.
    if record.report:
        lines.append(f"report           {_relative(record.run_dir / record.report)}")
    lines.append(f"log              {_relative(record.run_dir / 'run.log')}")
    if record.model:
        lines.append(f"in service       {_relative(record.model)}")
    if record.dataset:
        lines.append(f"dataset          {_relative(record.dataset)}")

    # The reason of a run that failed is the command's error, which follows.
    if record.status == "succeeded":
        lines += verdict_lines(record.reason or f"Stopped after {record.until}, as --until says")
    return lines


def _step_lines(record: RunRecord) -> list[str]:
    """A line for each step that `steps.py` gives one."""
    return [
        f"{step.name:<17}{STEPS[step.name].summary.format(**step.counts, **step.metrics)}"
        for step in record.steps
        if step.status == "succeeded" and STEPS[step.name].summary
    ]


def _metric_lines(record: RunRecord) -> list[str]:
    """A line for each headline metric, with its interval if it is known."""
    if not record.metrics and (published := record.step(writer_of("datasets"))):
        splits = [
            f"{published.counts[split]:,} {split}" for split in ("train", "dev", "test") if split in published.counts
        ]
        return [f"{'utterances':<17}{', '.join(splits)}"] if splits else []
    if not record.metrics:
        return []

    confidence = f"{100 * record.config['evaluate']['confidence']:g}%"
    lines = []
    for metric in headline_metrics(record.pipeline):
        value, low, high = (record.metric(metric.name + end) for end in ("", "_low", "_high"))
        if value is None:
            named = metric.setting and not metric.optional
            lines += [f"{metric.label:<16} not measured: set {metric.setting}"] if named else []
            continue
        interval = f"  ({confidence} interval {metric.format(low)} to {metric.format(high)})"
        lines.append(f"{metric.label:<16} {metric.format(value)}{'' if low is None or high is None else interval}")

        # What the public model that the training started from had.
        if (before := record.metric(f"before_{metric.name}")) is not None:
            low, high = (record.metric(f"before_{metric.name}_difference_{end}") for end in ("low", "high"))
            ends = f"{metric.format_difference(low)} to {metric.format_difference(high)}"
            difference = "" if low is None or high is None else f"  ({confidence} interval of the difference {ends})"
            lines.append(f"{'  before tuning':<16} {metric.format(before)}{difference}")
    return lines


def _relative(path: Path | str) -> str:
    """The path relative to the current folder, if it is below it."""
    if is_remote(str(path)):
        return str(path)
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

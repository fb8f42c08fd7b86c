"""Push's part of the report of an evaluation: the verdict, what differs from the model in service, the history."""

import dataclasses
import json
from typing import Any

from voxline.components.push.gate import Verdict
from voxline.errors import WorkError
from voxline.metrics.catalog import Metric, headline_metrics
from voxline.metrics.evaluation import (
    HISTORY_SLOT,
    METRICS_FILE,
    REPORT_FILE,
    VERDICT_SLOT,
    Evaluation,
    EvaluationInfo,
    IntervalInfo,
)
from voxline.registry.registry import EVALUATION, PROVENANCE, Registry
from voxline.report import (
    Block,
    badge,
    bar_plot,
    data_table,
    details,
    figure,
    fill_slot,
    item_list,
    plural,
    sentence_case,
    small_print,
    verdict_banner,
)
from voxline.report.page import Tone
from voxline.settings import changed_settings
from voxline.store.versioned_json import parse_versioned

MAX_VERSIONS = 15
"""Newest versions in the history."""

_TONES: dict[str, Tone] = {"passed": "good", "failed": "bad", "not checked": "plain"}


@dataclasses.dataclass(frozen=True)
class MeasuredVersion:
    """A version of the registry, as its own evaluation measured it: a row of the history."""

    version: int
    at: str
    action: str
    value: float | None
    interval: IntervalInfo
    test_fingerprint: str


def judged_report(verdict: Verdict, measured: Evaluation, models: Registry, config: dict[str, Any]) -> str:
    """The evaluation's page with the verdict, the history, and the settings that differ from the model in service.

    Args:
      config: the settings of the new model, as in its provenance.
    """
    html = (measured.folder / REPORT_FILE).read_text(encoding="utf-8")
    judged = small_print(f"Judged: model {measured.digest}, evaluation {measured.content_digest()}.")
    html = fill_slot(html, VERDICT_SLOT, _verdict(verdict) + judged + _differences(verdict, models, config))

    # The history is of the first metric that the gate judges by.
    headlines = headline_metrics(measured.info.family)
    metric = next((metric for metric in headlines if metric.name in measured.info.metrics), None)
    if metric is None:
        return html
    return fill_slot(html, HISTORY_SLOT, _history(verdict, measured, models, metric))


def _verdict(verdict: Verdict) -> Block:
    """The banner, and the checks of the gate folded away below it."""
    tone: Tone = "plain" if verdict.version else "bad"
    if verdict.pushed:
        tone = "caution" if verdict.unjudged else "good"
    heading = verdict.heading if verdict.pushed else "Not pushed"
    reasons = verdict.reasons
    if verdict.pushed:
        # A model that passed shows its first comparison, which is of the most important metric.
        reasons = [check.detail for check in verdict.checks if "against" in check.name and check.limit is not None][:1]
    sentences = [f"{sentence_case(reason)}." for reason in reasons]
    text = item_list(*map(Block.escape, sentences)) if len(sentences) > 1 else "".join(sentences)
    blocks = verdict_banner(heading, text, tone)

    if verdict.checks:
        results = [check.status for check in verdict.checks]
        rows = [
            [badge(result, _TONES[result]), check.name, check.detail]
            for result, check in zip(results, verdict.checks, strict=True)
        ]
        counts = ", ".join(f"{results.count(result)} {result}" for result in _TONES if result in results)
        table = data_table(["result", "check", "finding"], rows, label="Checks of the gate")
        blocks += details(f"Checks of the gate: {counts}", table)
    return blocks


def _differences(verdict: Verdict, models: Registry, config: dict[str, Any]) -> Block:
    """The settings that differ from those of the model in service."""
    if verdict.in_service is None or verdict.in_service == verdict.version:
        return Block("")

    # The page does without this part where the provenance is absent or damaged.
    data = models.read_file(verdict.in_service, PROVENANCE)
    if data is None:
        return Block("")
    try:
        before = json.loads(data).get("config", {})
    except ValueError:
        return Block("")

    changed = changed_settings(before, config)
    version = f"version {verdict.in_service}"
    if not changed:
        return small_print(f"Features, training, evaluation and gate have the settings of {version}.")
    table = data_table(["setting", version, "this model"], changed, label=f"Settings that differ from {version}")
    return details(f"{plural(len(changed), 'setting')} differ{'s' * (len(changed) == 1)} from {version}", table)


def _history(verdict: Verdict, measured: Evaluation, models: Registry, metric: Metric) -> Block:
    """This model and the versions before it, each with the interval of its own evaluation."""
    numbers = [number for number in models.versions() if number != verdict.version][-MAX_VERSIONS:]
    versions = [version for number in numbers if (version := measured_version(models, number, metric)) is not None]
    rows: list[list[Any]] = []
    values: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}

    # Bars of other test data are labelled: their heights cannot be compared with the others'.
    for version in versions:
        same = version.test_fingerprint == measured.test_fingerprint
        name = f"version {version.version}"
        interval = metric.format_range(version.interval.low, version.interval.high)
        test_data = "same" if same else "other"
        rows.append([name, version.at, version.action, metric.format(version.value), interval, test_data])
        if version.value is not None:
            label = name if same else f"{name}, other test data"
            values[label] = version.value
            intervals |= _drawn(label, version.interval)

    # This model comes last, at the end of the line of versions.
    own = measured.info.metrics[metric.name]
    name = f"version {verdict.version}, this model" if verdict.version else "this model"
    interval = metric.format_range(own.interval.low, own.interval.high)
    rows.append([name, None, None, metric.format(own.value), interval, "same"])
    values[name] = own.value or 0.0
    intervals |= _drawn(name, own.interval)

    title = f"{metric.title}, versions of {measured.info.model.name}"
    caption = f"{sentence_case(metric.title)} by version, with intervals, each as its own evaluation measured it."
    columns = ["version", "published", "by", metric.title, "interval", "test data"]
    omitted = len(models.versions()) - len(versions)
    note = small_print(f"{plural(omitted, 'older version')} not shown.") if omitted > 1 else Block("")
    plot = figure(bar_plot(values, metric.title, intervals=intervals, percent=metric.unit == "%"), caption, title)
    return plot + data_table(columns, rows, label=title) + note


def _drawn(name: str, interval: IntervalInfo) -> dict[str, tuple[float, float]]:
    """The interval as the plot takes it; empty if it is not known."""
    if interval.low is None or interval.high is None:
        return {}
    return {name: (interval.low, interval.high)}


def measured_version(models: Registry, number: int, metric: Metric) -> MeasuredVersion | None:
    """Reads the evaluation in a version's folder; None if it has none, or one that this release cannot read."""
    file = f"{EVALUATION}/{METRICS_FILE}"
    try:
        data = models.read_file(number, file)
        event = models.event(number)
        if data is None:
            return None
        info = parse_versioned(json.loads(data), EvaluationInfo, f"version {number}, {file}")
        measured = info.metrics[metric.name]
    except (WorkError, ValueError, KeyError):
        return None
    return MeasuredVersion(number, event.at, event.action, measured.value, measured.interval, info.test.fingerprint)

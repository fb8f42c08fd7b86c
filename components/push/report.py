"""What push adds to the report of an evaluation: the verdict, what differs from the model in service, the history."""

import dataclasses
import json
from typing import Any

from voxline.components.push.gate import Verdict
from voxline.errors import WorkError
from voxline.metrics.catalog import Metric, headline_metrics
from voxline.metrics.evaluation import HISTORY_SLOT, METRICS_FILE, REPORT_FILE, VERDICT_SLOT, Evaluation
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
    small_print,
    verdict_banner,
)
from voxline.report.page import Tone
from voxline.settings import changed_settings

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
    interval: dict[str, Any]
    test_fingerprint: str


def judged_report(verdict: Verdict, measured: Evaluation, models: Registry, config: dict[str, Any]) -> str:
    """The evaluation's page with the verdict, the history, and the settings that differ from the model in service.

    Args:
      config: the settings of the new model, as in its provenance.
    """
    html = (measured.folder / REPORT_FILE).read_text(encoding="utf-8")
    judged = small_print(f"Judged: model {measured.digest}, evaluation {measured.content_digest()}.")
    html = fill_slot(html, VERDICT_SLOT, _verdict(verdict) + judged + _differences(verdict, models, config))
    metric = next(iter(headline_metrics(measured.metrics["family"])), None)
    if metric is None or metric.name not in measured.metrics["metrics"]:
        return html
    return fill_slot(html, HISTORY_SLOT, _history(verdict, measured, models, metric))


def _verdict(verdict: Verdict) -> Block:
    tone: Tone = "good" if verdict.pushed else "plain" if verdict.version else "bad"
    heading = verdict.heading if verdict.pushed else "Not pushed"
    why = [f"{reason[:1].upper()}{reason[1:]}." for reason in verdict.reasons]
    if verdict.pushed:
        compared = [check.detail for check in verdict.checks if "against" in check.name and check.limit is not None]
        why = [f"{detail[:1].upper()}{detail[1:]}." for detail in compared[:1]]
    blocks = verdict_banner(heading, item_list(*map(Block.escape, why)) if len(why) > 1 else "".join(why), tone)
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
    versions = [number for number in models.versions() if number != verdict.version][-MAX_VERSIONS:]
    known = [one for number in versions if (one := measured_version(models, number, metric)) is not None]
    own = measured.metrics["metrics"][metric.name]
    name = f"version {verdict.version}, this model" if verdict.version else "this model"
    rows: list[list[Any]] = []
    values: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for one in known:
        same = one.test_fingerprint == measured.test_fingerprint
        label = f"version {one.version}" + ("" if same else ", other test data")
        shown = metric.format(one.value), metric.format_interval(one.interval)
        rows.append([f"version {one.version}", one.at, one.action, *shown, "same" if same else "other"])
        if one.value is not None:
            values[label] = one.value
            intervals |= _drawn(label, one.interval)
    rows.append([name, None, None, metric.format(own["value"]), metric.format_interval(own["interval"]), "same"])
    values[name] = own["value"] or 0.0
    intervals |= _drawn(name, own["interval"])
    title = f"{metric.title}, versions of {measured.metrics['model']['name']}"
    caption = f"{metric.title.capitalize()} by version, with intervals, each as its own evaluation measured it."
    columns = ["version", "published", "by", metric.title, "interval", "test data"]
    omitted = len(models.versions()) - len(known)
    note = small_print(f"{plural(omitted, 'older version')} not shown.") if omitted > 1 else Block("")
    plot = figure(bar_plot(values, metric.title, intervals=intervals, percent=metric.unit == "%"), caption, title)
    return plot + data_table(columns, rows, label=title) + note


def _drawn(name: str, interval: dict[str, Any]) -> dict[str, tuple[float, float]]:
    low, high = interval["low"], interval["high"]
    return {} if low is None or high is None else {name: (low, high)}


def measured_version(models: Registry, number: int, metric: Metric) -> MeasuredVersion | None:
    """What the evaluation in a version's folder says; None if it has none."""
    try:
        data, event = models.read_file(number, f"{EVALUATION}/{METRICS_FILE}"), models.event(number)
        if data is None:
            return None
        found = json.loads(data)
        measured = found["metrics"][metric.name]
        fingerprint = found["test"]["fingerprint"]
        return MeasuredVersion(number, event.at, event.action, measured["value"], measured["interval"], fingerprint)
    except (WorkError, ValueError, KeyError):
        return None

"""The report of an evaluation: one page for every family, with the family's own sections in it."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from voxline.components.evaluate.measurement import SLICES
from voxline.inference.model_info import ModelInfo
from voxline.metrics.bootstrap import MIN_UNITS
from voxline.metrics.catalog import CATALOG, Metric, headline_metrics
from voxline.metrics.evaluation import HISTORY_SLOT, RUN_DETAILS_SLOT, RUN_SLOT, VERDICT_SLOT
from voxline.report import (
    Block,
    Page,
    bar_plot,
    data_table,
    details,
    figure,
    format_duration,
    line_plot,
    paragraphs,
    plural,
    side_by_side,
    slot,
    small_print,
    stat_cards,
)

ERROR_KINDS = ("substitution_rate", "deletion_rate", "insertion_rate")
SLICING_TITLES = {"snr": "signal-to-noise ratio (estimate)", "level": "level", "words": "length in words"}
MAX_SLICES = 30
"""Slices drawn in one plot; the table below it has up to ten times as many."""


def write_report(
    path: Path,
    metrics: dict[str, Any],
    sections: Sequence[tuple[str, list[Block]]],
    method: str,
    curves: dict[str, Any] | None,
) -> None:
    """Writes the page. Push fills the slots of its verdict and of the history, the run that of its facts.

    Args:
      metrics: the contents of `metrics.json`.
      sections: the family's own; (SLICES, []) among them is the place of the shared section.
      method: how the family measures, in paragraphs.
      curves: the contents of train's `curves.json`.
    """
    name, digest = metrics["model"]["name"], metrics["model"]["digest"]
    page = Page(
        f"Evaluation of {name}",
        lead=f"Model {digest[:12]} on {metrics['utterances']:,} utterances of the split “{metrics['test']['split']}”, "
        f"{format_duration(metrics['seconds'])} by {plural(metrics['test']['speakers'], 'speaker')}.",
        footer=f"Evaluation {metrics['key']}. Model {digest}. Test utterances {metrics['test']['fingerprint']}.",
    )
    verdict = slot(VERDICT_SLOT, small_print("Not judged yet; push writes its verdict here."))
    page.add_opening(slot(RUN_SLOT), verdict, _cards(metrics), slot(RUN_DETAILS_SLOT))
    page.add_section("Metrics", *_metrics_table(metrics))
    page.add_section("Comparison with the model in service", *_comparison(metrics))
    if SLICES not in dict(sections):
        sections = [*sections, (SLICES, [])]
    for heading, blocks in sections:
        page.add_section(heading, *(_slices(metrics) if heading == SLICES else blocks))
    if curves and curves["train"]:
        page.add_section("Training", *_training(curves, msgspec.convert(metrics["model"]["about"], ModelInfo)))
    page.add_section("Data", *_data(metrics))
    page.add_section("History", slot(HISTORY_SLOT, small_print("Push lists the versions of the registry here.")))
    page.add_section("How this was measured", paragraphs(f"{method}\n\n{_describe_intervals(metrics)}"))
    page.write(path)


def _training(curves: dict[str, Any], info: ModelInfo) -> list[Block]:
    """The curves of the training, with the checkpoint that was exported."""
    train, dev = curves["train"], curves["dev"]
    best = info.provenance.trained.get("best_step")
    mark = None if best is None else (float(best), "checkpoint")
    steps = sorted({float(point["step"]) for point in (*train, *dev)})
    plots = [_curve(steps, {"train": train, "dev": dev}, "loss", mark)]
    names = [name for name in (dev[0] if dev else {}) if name not in ("epoch", "step", "loss")]
    plots += [_curve(steps, {"dev": dev}, name, mark) for name in names[:3]]
    others = [name for name in ("learning_rate", "gradient_norm") if name in train[0]]
    more = [_curve(steps, {"train": train}, name, mark) for name in others]
    blocks: list[Block] = [side_by_side(*plots)]
    if best is not None:
        blocks.insert(0, small_print(f"The weights of step {best:,} were exported: the best on dev."))
    return [*blocks, details("Learning rate and gradient norm", side_by_side(*more))] if more else blocks


def _curve(
    steps: list[float], points: dict[str, list[dict[str, float]]], name: str, mark: tuple[float, str] | None
) -> Block:
    values = {}
    for series, of in points.items():
        known = {float(point["step"]): point[name] for point in of if name in point}
        if known:
            values[series] = [known.get(step, math.nan) for step in steps]
    metric = CATALOG.get(name)
    title = f"dev {metric.title}" if metric else name.replace("_", " ")
    connected = {series: _without_gaps(column) for series, column in values.items()}
    plot = line_plot(steps, connected, "step", title, percent=bool(metric and metric.unit == "%"), mark=mark)
    return figure(plot, f"{title.capitalize()} by training step.")


def _without_gaps(values: list[float]) -> list[float]:
    """Interpolates between known values, since train and dev are measured at different steps."""
    known = [index for index, value in enumerate(values) if math.isfinite(value)]
    filled = list(values)
    for left, right in itertools.pairwise(known):
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            filled[index] = values[left] + share * (values[right] - values[left])
    return filled


def _data(metrics: dict[str, Any]) -> list[Block]:
    rows = [
        [split, int(of["utterances"]), format_duration(of["seconds"]), int(of["speakers"]) or None]
        for split, of in metrics["data"].items()
    ]
    seen, count = metrics["test"]["also_in_train"], metrics["utterances"]
    note = f"{seen:,} of the {count:,} test utterances have a sentence that train contains too ({seen / count:.0%})."
    return [data_table(["split", "utterances", "audio", "speakers"], rows, label="Data by split"), small_print(note)]


def _headline(metrics: dict[str, Any]) -> list[Metric]:
    return [metric for metric in headline_metrics(metrics["family"]) if metric.name in metrics["metrics"]]


def _cards(metrics: dict[str, Any]) -> Block:
    values = metrics["metrics"]
    cards = {metric.title: metric.format(values[metric.name]["value"]) for metric in _headline(metrics)}
    rtf = values["rtf"]["value"]
    return stat_cards(
        {**cards, "speed, × real time": "—" if not rtf else f"{1 / rtf:,.0f}" if rtf < 0.01 else f"{1 / rtf:.3g}"}
    )


def _metrics_table(metrics: dict[str, Any]) -> list[Block]:
    champion = metrics["champion"]
    columns = ["metric", "measured", f"{100 * metrics['bootstrap']['confidence']:g}% interval", "utterances"]
    if champion:
        columns += [f"version {champion['version']}", "difference", "worse with probability"]
    rows = []
    for name, measured in metrics["metrics"].items():
        metric, compared = CATALOG[name], measured["comparison"]
        row: list[Any] = [
            metric.title,
            metric.format(measured["value"]),
            metric.format_interval(measured["interval"]),
            measured["measured"],
        ]
        if champion:
            worse = compared and compared["probability_worse"]
            row += [
                metric.format(compared["champion_value"]) if compared else None,
                metric.format_difference(compared["difference"]) if compared else None,
                None if worse is None else f"{worse:.0%}",
            ]
        rows.append(row)
    return [data_table(columns, rows, label="Metrics")]


def baseline_table(metrics: dict[str, Any], baseline: dict[str, dict[str, Any]], name: str) -> Block:
    """The metrics of this model beside those of a baseline.

    Args:
      baseline: as `compare_with` returned it.
      name: of the baseline.
    """
    rows = []
    for key, compared in baseline.items():
        metric, interval = CATALOG[key], compared["interval"]
        low, high = (metric.format_difference(interval[end]) for end in ("low", "high"))
        rows.append(
            [
                metric.title,
                metric.format(compared["value"]),
                metric.format(metrics["metrics"][key]["value"]),
                metric.format_difference(compared["difference"]),
                "—" if interval["low"] is None or interval["high"] is None else f"{low} to {high}",
            ]
        )
    confidence = f"{100 * metrics['bootstrap']['confidence']:g}%"
    columns = ["metric", name, "this model", "difference", f"{confidence} interval of the difference"]
    return data_table(columns, rows, label=f"This model beside {name}")


def _comparison(metrics: dict[str, Any]) -> list[Block]:
    """The first headline metric of both models."""
    headline = _headline(metrics)
    if not metrics["champion"] or not headline:
        return [small_print("No other model is in service under this name, so there is nothing to compare with.")]
    metric, version = headline[0], f"version {metrics['champion']['version']}"
    measured = metrics["metrics"][metric.name]
    compared = measured["comparison"]
    values = {"this model": measured["value"], version: compared["champion_value"]}
    ends = {"this model": measured["interval"], version: compared["champion_interval"]}
    worse = compared["probability_worse"]
    low, high = (metric.format_difference(compared["interval"][end]) for end in ("low", "high"))
    blocks = [
        stat_cards(
            {
                f"{metric.title}, {version}": metric.format(compared["champion_value"]),
                "difference": metric.format_difference(compared["difference"]),
                "interval of the difference": f"{low} to {high}",
                "probability of being worse": "—" if worse is None else f"{worse:.0%}",
            }
        )
    ]
    if None not in values.values():
        caption = f"{metric.title.capitalize()} of both models on the same utterances, with intervals."
        blocks.append(figure(_bars(metric, values, ends), caption))
    better = "Above zero is worse" if metric.better == "lower" else "Below zero is worse"
    return [*blocks, small_print(f"The difference is computed utterance by utterance. {better}.")]


def _slices(metrics: dict[str, Any]) -> list[Block]:
    plots: list[Block] = []
    tables: list[Block] = []
    headline = _headline(metrics)
    for name, slices in metrics["slices"].items():
        title = SLICING_TITLES.get(name, name.replace("_", " "))
        if headline:
            metric = headline[0]
            values = {value: of["metrics"][metric.name]["value"] or 0.0 for value, of in slices.items()}
            ends = {value: of["metrics"][metric.name]["interval"] for value, of in slices.items()}
            shown, note = values, ""
            if len(values) > MAX_SLICES:
                worst = sorted(values, key=lambda value: -metric.sign * values[value])[:MAX_SLICES]
                shown = {value: values[value] for value in worst}
                note = f", the {MAX_SLICES} worst of {len(values):,}"
            caption = f"{metric.title.capitalize()} by {title}{note}, with intervals."
            plots.append(figure(_bars(metric, shown, ends), caption))
        table = _slice_table(title, list(slices.items())[: 10 * MAX_SLICES], metrics)
        tables.append(details(f"Table by {title}", table))
    return [side_by_side(*plots), *tables] if plots else tables


def _slice_table(title: str, slices: Sequence[tuple[str, dict[str, Any]]], metrics: dict[str, Any]) -> Block:
    headline = _headline(metrics)
    kinds = [CATALOG[name] for name in ERROR_KINDS if name in metrics["metrics"]]
    rows = []
    for value, of in slices:
        row: list[Any] = [value, of["utterances"]]
        row += [metric.format(of["metrics"][metric.name]["value"]) for metric in headline]
        if headline:
            first = of["metrics"][headline[0].name]
            row.append(headline[0].format_interval(first["interval"]))
            row += [metric.format(of["metrics"][metric.name]["value"]) for metric in kinds]
            if metrics["champion"]:
                row.append(headline[0].format_difference((first["comparison"] or {}).get("difference")))
        rows.append(row)
    columns = [title, "utterances", *(metric.title for metric in headline)]
    if headline:
        columns += ["interval", *(metric.title.partition(" ")[0] for metric in kinds)]
        columns += [f"over version {metrics['champion']['version']}"] if metrics["champion"] else []
    return data_table(columns, rows, label=f"Metrics by {title}")


def _bars(metric: Metric, values: dict[str, float], ends: dict[str, dict[str, Any]]) -> Block:
    # Of a few utterances the interval is the widest possible, and would flatten the other bars.
    intervals = {
        name: (ends[name]["low"], ends[name]["high"])
        for name in values
        if ends[name]["low"] is not None and ends[name]["high"] is not None and ends[name]["units"] >= MIN_UNITS
    }
    return bar_plot(values, metric.title, intervals=intervals, percent=metric.unit == "%")


def _describe_intervals(metrics: dict[str, Any]) -> str:
    bootstrap = metrics["bootstrap"]
    headline = _headline(metrics)
    over = metrics["metrics"][headline[0].name]["interval"] if headline else {"over": "utterances"}
    return (
        f"Intervals contain {100 * bootstrap['confidence']:g}% of {bootstrap['samples']:,} resamples over "
        f"{over['over']} (seed {bootstrap['seed']}). With {bootstrap['min_speakers']} known speakers or more, speakers "
        "are resampled instead of utterances, because the utterances of a speaker are correlated. With fewer than five "
        "of either, the interval is the widest possible. If no error was counted, its upper end is the exact binomial "
        "bound.\n\n"
        "The probability of being worse is the share of resamples in which this model is worse than the model in "
        "service; ties count half. The real-time factor is seconds of computing per second of speech on the machine "
        "that evaluated; it is not compared."
    )

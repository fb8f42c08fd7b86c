"""The report of an evaluation: one page for every family, with the family's own sections in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.metrics.catalog import CATALOG, Metric, headline_metrics
from voxline.metrics.evaluation import VERDICT_SLOT
from voxline.report import (
    Block,
    Page,
    bar_plot,
    data_table,
    details,
    figure,
    paragraphs,
    slot,
    small_print,
    stat_cards,
)

MAX_SLICES = 30
"""Slices drawn in one plot; the table below it has up to ten times as many."""


def write_report(path: Path, metrics: dict[str, Any], sections: Sequence[tuple[str, list[Block]]], method: str) -> None:
    """Writes the page. Push fills its slot with the verdict.

    Args:
      metrics: the contents of `metrics.json`.
      sections: the family's own.
      method: how the family measures, in paragraphs.
    """
    name, digest = metrics["model"]["name"], metrics["model"]["digest"]
    page = Page(
        f"Evaluation of {name}",
        lead=f"Model {digest[:12]} on {metrics['utterances']:,} utterances of the split “{metrics['test']['split']}”, "
        f"{metrics['seconds'] / 60:.1f} minutes by {metrics['test']['speakers']:,} speakers.",
        footer=f"Evaluation {metrics['key']}. Model {digest}. Test utterances {metrics['test']['fingerprint']}.",
    )
    page.add_opening(slot(VERDICT_SLOT, small_print("Not judged yet; push writes its verdict here.")), _cards(metrics))
    page.add_section("Metrics", *_metrics_table(metrics))
    page.add_section("Comparison with the model in service", *_comparison(metrics))
    for heading, blocks in sections:
        page.add_section(heading, *blocks)
    page.add_section("Slices", *_slices(metrics))
    page.add_section("How this was measured", paragraphs(f"{method}\n\n{_describe_intervals(metrics)}"))
    page.write(path)


def _headline(metrics: dict[str, Any]) -> list[Metric]:
    return [metric for metric in headline_metrics(metrics["family"]) if metric.name in metrics["metrics"]]


def _cards(metrics: dict[str, Any]) -> Block:
    values = metrics["metrics"]
    cards = {metric.title: metric.format(values[metric.name]["value"]) for metric in _headline(metrics)}
    rtf = values["rtf"]["value"]
    return stat_cards({**cards, "real-time factor": f"{rtf:.3g} ({1 / rtf:.3g}× real time)" if rtf else "—"})


def _metrics_table(metrics: dict[str, Any]) -> list[Block]:
    champion = metrics["champion"]
    columns = ["", "measured", f"{100 * metrics['bootstrap']['confidence']:g}% interval", "utterances"]
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
    return [data_table(columns, rows)]


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
        blocks.append(figure(_bars(metric, values, ends), "Both models on the same utterances."))
    better = "Above zero is worse" if metric.better == "lower" else "Below zero is worse"
    return [*blocks, small_print(f"The difference is computed utterance by utterance. {better}.")]


def _slices(metrics: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    headline = _headline(metrics)
    for name, slices in metrics["slices"].items():
        title = name.replace("_", " ")
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
            blocks.append(figure(_bars(metric, shown, ends), caption))
        table = _slice_table(title, list(slices.items())[: 10 * MAX_SLICES], headline)
        blocks.append(details(f"Table by {title}", table, opened=len(slices) <= MAX_SLICES))
    return blocks


def _slice_table(title: str, slices: Sequence[tuple[str, dict[str, Any]]], headline: Sequence[Metric]) -> Block:
    rows = []
    for value, of in slices:
        row: list[Any] = [value, of["utterances"]]
        for metric in headline:
            measured = of["metrics"][metric.name]
            row.append(metric.format(measured["value"]))
        first = of["metrics"][headline[0].name] if headline else None
        if first:
            row.append(headline[0].format_interval(first["interval"]))
            row.append(headline[0].format_difference((first["comparison"] or {}).get("difference")))
        rows.append(row)
    columns = [title, "utterances", *(metric.title for metric in headline)]
    return data_table([*columns, "interval", "over the model in service"] if headline else columns, rows)


def _bars(metric: Metric, values: dict[str, float], ends: dict[str, dict[str, Any]]) -> Block:
    intervals = {
        name: (ends[name]["low"], ends[name]["high"])
        for name in values
        if ends[name]["low"] is not None and ends[name]["high"] is not None
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

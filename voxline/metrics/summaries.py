"""The metrics of an evaluation with their intervals, from what each utterance adds to them."""

import dataclasses
from collections.abc import Mapping, Sequence

from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric, headline_metrics
from voxline.metrics.evaluation import (
    UNKNOWN_INTERVAL,
    ComparisonInfo,
    EvaluationInfo,
    IntervalInfo,
    MetricInfo,
    SummaryInfo,
    UtteranceResult,
    group_by_slice,
)


def summarize_slices(
    results: Sequence[UtteranceResult], slice_order: Mapping[str, Sequence[str]], bootstrap: Bootstrap
) -> dict[str, dict[str, SummaryInfo]]:
    """Every metric with its interval, in each slice of each slicing.

    Args:
      slice_order: the slices of each slicing, as the report is to show them.
    """
    # A slice without an utterance is left out: an empty band has no metrics.
    slices = {}
    for name, order in slice_order.items():
        groups = group_by_slice(results, name)
        slices[name] = {value: summarize_results(groups[value], bootstrap) for value in order if value in groups}
    return slices


def summarize_results(results: Sequence[UtteranceResult], bootstrap: Bootstrap) -> SummaryInfo:
    """Every metric of the results with its interval, and beside that of the model in service."""
    # A family measures the same metrics on every utterance, some of them with a weight of 0.
    measured = results[0].metrics
    return SummaryInfo(
        utterances=len(results),
        seconds=round(sum(result.duration for result in results), 3),
        metrics={name: _summarize_metric(results, CATALOG[name], bootstrap) for name in CATALOG if name in measured},
    )


def _summarize_metric(results: Sequence[UtteranceResult], metric: Metric, bootstrap: Bootstrap) -> MetricInfo:
    values = [result.metrics[metric.name] for result in results]
    speakers = [result.speaker for result in results]
    champion = [result.champion[metric.name] for result in results if result.champion is not None]
    return MetricInfo(
        value=aggregate(values, metric.kind),
        # A rate is over all utterances, even over those without a word; a mean leaves out those without a value.
        measured=len(results) if metric.kind == "rate" else sum(value.weight > 0 for value in values),
        interval=IntervalInfo.of(bootstrap.interval(values, speakers, metric.kind)),
        comparison=_compare_metric(values, champion, speakers, metric, bootstrap) if champion else None,
    )


def _compare_metric(
    values: Sequence[SumAndWeight],
    champion: Sequence[SumAndWeight],
    speakers: Sequence[str],
    metric: Metric,
    bootstrap: Bootstrap,
) -> ComparisonInfo:
    compared = bootstrap.compare(values, champion, speakers, metric.kind, sign=metric.sign)
    paired = compared.interval.units > 0

    # The bootstrap counts in "worse"; the file has the difference of the values, whichever direction is better.
    low, high = sorted(metric.sign * end for end in (compared.interval.low, compared.interval.high))
    return ComparisonInfo(
        champion_value=aggregate(champion, metric.kind),
        champion_interval=IntervalInfo.of(bootstrap.interval(champion, speakers, metric.kind)),
        difference=metric.sign * compared.difference if paired else None,
        interval=IntervalInfo.of(dataclasses.replace(compared.interval, low=low, high=high)),
        probability_worse=compared.probability_worse if paired and metric.better != "neither" else None,
        measured=compared.interval.units,
    )


def speed_metric(value: float | None, champion_value: float | None, utterances: int) -> MetricInfo:
    """A metric of the whole run, such as the real-time factor: without an interval."""
    comparison = ComparisonInfo(
        champion_value=champion_value,
        champion_interval=UNKNOWN_INTERVAL,
        difference=None,
        interval=UNKNOWN_INTERVAL,
        probability_worse=None,
        measured=0,
    )
    return MetricInfo(
        value=value,
        measured=utterances,
        interval=UNKNOWN_INTERVAL,
        comparison=None if champion_value is None else comparison,
    )


def headline_values(metrics: Mapping[str, MetricInfo]) -> dict[str, float]:
    """The metrics for run.json: every value, the intervals of headline metrics, and the main comparison."""
    # run.json is for overviews: intervals of headline metrics alone, and one comparison.
    values: dict[str, float | None] = {}
    compared = False
    for name, metric in metrics.items():
        values[name] = metric.value
        if not CATALOG[name].headline:
            continue
        values |= {f"{name}_low": metric.interval.low, f"{name}_high": metric.interval.high}

        # The first headline metric is the main one.
        if metric.comparison and not compared:
            compared = True
            values |= {
                f"champion_{name}": metric.comparison.champion_value,
                f"{name}_difference": metric.comparison.difference,
                "probability_worse": metric.comparison.probability_worse,
            }
    return {name: round(value, 6) for name, value in values.items() if value is not None}


def values_before(info: EvaluationInfo) -> dict[str, float]:
    """The headline metrics of the untouched parent on the evaluated split, for run.json.

    `before_wer`, and the ends of the interval of the difference, `before_wer_difference_low` and `_high`.
    """
    summary = info.before.parts.get(info.test.split) if info.before else None
    values: dict[str, float | None] = {}
    for name, metric in (summary.metrics if summary else {}).items():
        compared = metric.comparison
        if compared is None or not CATALOG[name].headline:
            continue
        values[f"before_{name}"] = compared.champion_value
        values[f"before_{name}_difference_low"] = compared.interval.low
        values[f"before_{name}_difference_high"] = compared.interval.high
    return {name: round(value, 6) for name, value in values.items() if value is not None}


def describe_before(info: EvaluationInfo) -> str:
    """The main metric of the untouched parent and of the model, to end a line: `; before: 25.0%, after: 1.2%`.

    Of recognizers that write capitals and marks, the normalized one too: `; normalized before: 8.1%, after: 1.1%`.
    """
    before = values_before(info)
    headline = [metric for metric in headline_metrics(info.family) if f"before_{metric.name}" in before]
    if not headline:
        return ""
    main = headline[0]
    normalized = [metric for metric in headline if metric.name == f"{main.name}_normalized"]
    phrases = [
        f"{label}before: {metric.format(before[f'before_{metric.name}'])}, "
        f"after: {metric.format(info.metrics[metric.name].value)}"
        for label, metric in [("", main), *(("normalized ", metric) for metric in normalized)]
    ]
    return "".join(f"; {line}" for line in phrases)


def before_cells(family: str, summary: SummaryInfo) -> list[list[str]]:
    """The headline metrics of a part, for a table: metric, before, after, difference, interval of the difference."""
    rows = []
    headline = {metric.name: metric for metric in headline_metrics(family)}
    for name, measured in summary.metrics.items():
        compared = measured.comparison
        if name not in headline or compared is None:
            continue
        metric = headline[name]
        low = metric.format_difference(compared.interval.low)
        high = metric.format_difference(compared.interval.high)
        values = [metric.format(compared.champion_value), metric.format(measured.value)]
        rows.append([metric.title, *values, metric.format_difference(compared.difference), f"{low} to {high}"])
    return rows

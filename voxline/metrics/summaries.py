"""The metrics of an evaluation with their intervals, from what each utterance adds to them."""

import dataclasses
from collections.abc import Mapping, Sequence

from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import (
    UNKNOWN_INTERVAL,
    ComparisonInfo,
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

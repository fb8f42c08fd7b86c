"""What the runs of a history lead to expect of the next one, and what in a run was not to be expected."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from voxline.errors import SettingsError, VoxlineError
from voxline.forecast.forecast import LIMIT, Forecast, forecast, observations_needed
from voxline.forecast.promotion import JudgedRun, PromotionForecast, predict_promotion
from voxline.metrics.catalog import CATALOG
from voxline.notify.event import FigureAnomaly, RunEvent
from voxline.notify.history import FIGURES, Run, figure_names, figure_of, read_runs
from voxline.progress import print_status

COMPLETE_VERDICTS = ("promoted", "candidate", "refused", "unchanged", "published")
"""Of runs whose figures are comparable; a run that failed, was stopped or skipped did not do all of its work."""
_ACCEPTED = ("promoted", "candidate")
_JUDGED = (*_ACCEPTED, "refused")
PERIODS = (1, 7)
"""Seasons that are tried."""
_LATEST = 200
"""Runs by which a run's figures are checked at its end."""


def complete_runs(runs: Iterable[Run]) -> list[Run]:
    """Those of the runs that did all of their work."""
    return [run for run in runs if run["verdict"] in COMPLETE_VERDICTS]


def is_headline(figure: str) -> bool:
    """Returns whether pages show the figure: headline metrics do, and what is no metric."""
    metric = CATALOG.find(figure)
    return metric is None or metric.headline


def format_figure(figure: str, value: float) -> str:
    """A figure's value with its unit.

    >>> format_figure("wer", 0.031), format_figure("seconds", 61.5)
    ('3.10%', '61.5 s')
    """
    unit = figure_unit(figure)
    return f"{value:.2%}" if unit == "%" else f"{value:,.4g} {unit}".rstrip()


def figure_unit(figure: str) -> str:
    """The unit of a figure; "%" of a share, empty of a count.

    >>> figure_unit("seconds"), figure_unit("wer")
    ('s', '%')
    """
    metric = None if figure in FIGURES else CATALOG.find(figure)
    return metric.unit if metric else FIGURES.get(figure, ("", ""))[1]


def title_of(figure: str) -> str:
    """Names a figure in words."""
    if figure in FIGURES:
        return FIGURES[figure][0]
    metric = CATALOG.find(figure)
    return metric.title if metric else figure


def describe_anomaly(anomaly: FigureAnomaly) -> str:
    """One line on a figure that stands out."""
    value, expected, deviation = (
        format_figure(anomaly.figure, number) for number in (anomaly.value, anomaly.expected, anomaly.deviation)
    )
    return f"{title_of(anomaly.figure)} {value}, expected {expected} ± {deviation}"


def forecast_figure(
    runs: Sequence[Run],
    figure: str,
    periods: Sequence[int] = PERIODS,
    limit: float = LIMIT,
    fitted: int | None = None,
) -> Forecast | None:
    """The forecast of a figure over complete runs, oldest first; None where too few of them have it.

    Args:
      fitted: how many of the first runs the model is fitted to; None: all.
    """
    # Runs without the figure are gaps, which the filter passes over.
    values = [figure_of(run, figure) for run in runs]
    if sum(value is not None for value in values[:fitted]) < observations_needed(periods):
        return None
    series = [math.nan if value is None else value for value in values]
    return forecast(series, periods=periods, limit=limit, fitted=fitted)


def find_anomalies(runs: Sequence[Run], last: Run) -> tuple[FigureAnomaly, ...]:
    """The figures of the last run that stand out from those of the complete runs before it.

    Args:
      runs: of the same config, oldest first.
    """
    # A run that failed has no figures to compare.
    if last["verdict"] not in COMPLETE_VERDICTS:
        return ()
    anomalies = []

    # The last run is forecast from those before it, with no more of them than the time at a run's end allows.
    series = [*complete_runs(runs), last][-_LATEST:]
    for figure in filter(is_headline, figure_names([last])):
        prediction = forecast_figure(series, figure)
        value = figure_of(last, figure)
        # The last observation's index says that it is the run in question.
        if prediction is not None and value is not None and len(series) - 1 in prediction.anomalies:
            expected = float(prediction.expected[-1])
            deviation = float(prediction.deviation[-1])
            anomalies.append(FigureAnomaly(figure, value, expected, deviation))
    return tuple(anomalies)


def with_anomalies(event: RunEvent, history: str) -> RunEvent:
    """The event with what stands out from the history in which it will be recorded; never fails."""
    try:
        # A repeated delivery finds the run itself in its history.
        before = read_runs(history, name=event.run.name, latest=_LATEST)
        earlier = [run for run in before if run["run"]["id"] != event.run.id]
        return dataclasses.replace(event, anomalies=find_anomalies(earlier, event.to_dict()))
    except (VoxlineError, OSError, ValueError, KeyError, TypeError) as error:
        if "no run" not in str(error):  # the first run has no history
            print_status(f"the run was not compared with those before it: {error}")
        return event


def judged_run(run: Run) -> JudgedRun:
    """Returns the values of a run from which its promotion is predicted."""
    # The first that was measured of the headline metrics of which less is better.
    metrics = CATALOG.select(run["metrics"])
    headline = (metric for metric in metrics if metric.headline and metric.better == "lower")
    values = (figure_of(run, metric.name) for metric in headline)
    value = next((number for number in values if number is not None), None)
    drift = figure_of(run, "drift") or 0.0
    return JudgedRun(run["verdict"] in _ACCEPTED, figure_of(run, "hours"), value, drift)


def predict_promotion_of_run(runs: Sequence[Run], hours: float | None, drift: float = 0.0) -> PromotionForecast | None:
    """Predicts whether the next run of a model will promote it; None where too few were judged.

    Args:
      runs: of one model, oldest first, all of them.
      hours: of audio that it trains on; None: not known.
      drift: features of its data that drifted from those of the model in service.
    """
    try:
        return predict_promotion([judged_run(run) for run in runs if run["verdict"] in _JUDGED], hours, drift)
    except SettingsError:
        return None


def expected_hours(runs: Sequence[Run]) -> float | None:
    """The hours that the next run will train on: those of the last run, or more by their forecast; None: not known."""
    measured_runs = [run for run in runs if figure_of(run, "hours") is not None]
    if not measured_runs:
        return None

    # A corpus grows; a forecast below the last run would be of a temporary loss.
    last = figure_of(measured_runs[-1], "hours") or 0.0
    prediction = forecast_figure(measured_runs, "hours")
    return last if prediction is None else max(last, float(prediction.ahead[0]))


def describe_prediction(prediction: PromotionForecast) -> str:
    """Describes in one line what a forecast of a promotion rests on."""
    return (
        f"{prediction.promoted} of {prediction.runs} judged runs were promoted; "
        f"predicted from the runs before them with a "
        f"Brier score of {prediction.brier:.3f}, by their share alone of {prediction.share_brier:.3f}"
    )


def skipped_in_a_row(runs: Sequence[dict[str, Any]]) -> int:
    """Counts the last runs that were skipped in a row.

    >>> skipped_in_a_row([{"verdict": "skipped"}, {"verdict": "refused"}, {"verdict": "skipped"}])
    1
    """
    count = 0
    for run in reversed(runs):
        if run["verdict"] == "skipped":
            count += 1
        elif run["verdict"] in COMPLETE_VERDICTS:  # a run that failed neither trained nor was skipped
            break
    return count

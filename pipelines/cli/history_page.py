"""The page of a history: the state and the versions of each model, and the figures and runs of each config."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from voxline.components.push.report import MeasuredVersion, measured_version
from voxline.errors import VoxlineError
from voxline.forecast.freshness import Freshness, freshness
from voxline.forecast.run_forecast import (
    complete_runs,
    describe_anomaly,
    figure_unit,
    forecast_figure,
    format_figure,
    is_headline,
    title_of,
)
from voxline.metrics.catalog import CATALOG, Metric
from voxline.notify.cost import cost_phrases
from voxline.notify.event import FigureAnomaly
from voxline.notify.history import Run, figure_names, figure_of
from voxline.registry.anchor import current_anchor
from voxline.registry.journal import CANDIDATE, PROMOTE, WITHDRAW, RegistryEvent
from voxline.registry.models import model_names
from voxline.registry.registry import Registry
from voxline.report import (
    Block,
    Page,
    bar_plot,
    data_table,
    details,
    explorer_table,
    figure,
    item_list,
    line_plot,
    sentence_case,
    small_print,
    stat_cards,
    verdict_banner,
)

MAX_VERSIONS = 30
"""Newest versions that are drawn, and newest events that are not folded."""
TIME_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60))
"""Units of the time between runs, and their seconds: the first of which two or more have passed."""


def history_page(runs: Sequence[Run], location: str, moment: datetime | None = None) -> Page:
    """A page without requests, complete without scripts.

    Args:
      runs: oldest first.
      location: of the registry, or of a history; without a registry the page has no versions.
      moment: at which models are current or stale, with a time zone; None: now.
    """
    page = Page("History of models and runs", lead=f"{len(runs)} runs, from {location}.")

    # Models and configs in the order of their first runs; several configs may push one model.
    names = dict.fromkeys(run["run"]["model"] for run in runs if run["run"]["model"])
    for name in names:
        page.add_section(f"Model {name}", *_model(name, runs, location, moment or datetime.now(UTC)))
    for name in dict.fromkeys(run["run"]["name"] for run in runs):
        of_config = [run for run in runs if run["run"]["name"] == name]
        page.add_section(f"Runs of {name}", *_figures(of_config), _runs_table(of_config, name))

    page.add_section("Source", small_print(f"Each run is one JSON object in {location}."))
    return page


def _model(name: str, runs: Sequence[Run], location: str, moment: datetime) -> list[Block]:
    """The state of a model, its versions, and the runs that made none, with the reasons."""
    those = [run for run in runs if run["run"]["model"] == name and run["run"]["pipeline"] != "refresh"]
    registry = open_model(location, name)
    events = registry.journal() if registry else []
    blocks = [_state(freshness(those, moment, events))]

    # Of a history elsewhere there is no registry: then the runs are all that is known.
    if registry:
        in_service = registry.in_service()
        anchor = current_anchor(registry)
        cards = {
            "in service": f"version {in_service}" if in_service else "none",
            "anchor": f"version {anchor}" if anchor else "none",
            "versions": len(registry.versions()),
        }
        hours = next((hours for run in reversed(those) if (hours := figure_of(run, "hours"))), None)
        blocks.append(stat_cards({**cards, **({"audio to train on": format_figure("hours", hours)} if hours else {})}))
        blocks += _versions(registry, those, anchor)

    # Rows begin with their time, so that sorting them backwards puts the newest first.
    rows = sorted([*_event_rows(events), *_run_rows(those, without_versions=bool(events))], reverse=True)
    columns = ("when (UTC)", "what", "version", "why")
    label = f"What happened to model {name}"
    blocks.append(data_table(columns, rows[:MAX_VERSIONS], label=label))
    if older := rows[MAX_VERSIONS:]:
        blocks.append(details(f"{len(older)} older", data_table(columns, older, label=f"{label}, older")))
    return blocks


def open_model(location: str, model: str) -> Registry | None:
    """The model's folder, if the location is a registry that has it."""
    try:
        return Registry(location, model) if model in model_names(location) else None
    except (VoxlineError, OSError):
        return None


def _state(status: Freshness) -> Block:
    heading = {"current": "It is current", "stale": "It is stale", "absent": "Nothing is in service"}[status.state]
    why = [Block.escape(f"{reason[:1].upper()}{reason[1:]}.") for reason in status.reasons]
    text = item_list(*why) if len(why) > 1 else "".join(why)
    return verdict_banner(heading, text, "good" if status.state == "current" else "caution")


def _versions(registry: Registry, runs: Sequence[Run], anchor: int | None) -> list[Block]:
    """The headline metric of each version with its interval, and the hours that it was trained on."""
    # The first headline metric of the catalog that a run has is the one of the model's family.
    names = {name for run in runs for name in run["metrics"]}
    metric = next((metric for metric in CATALOG.select(names) if metric.headline), None)
    if metric is None:
        return []
    numbers = registry.versions()[-MAX_VERSIONS:]
    versions = [version for number in numbers if (version := measured_version(registry, number, metric)) is not None]
    if not versions:
        return []

    # Values on different test data cannot be compared, so each version names its test data by a number.
    hours = {run["version"]: figure_of(run, "hours") for run in runs if run["verdict"] in ("promoted", "candidate")}
    in_service = registry.in_service()
    tests = list(dict.fromkeys(version.test_fingerprint for version in versions))

    bars: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    rows = []
    for version in versions:
        marks = [word for word, number in (("in service", in_service), ("anchor", anchor)) if number == version.version]
        label = ", ".join([f"version {version.version}", *marks])
        if version.value is not None:
            bars[label] = version.value
        if version.interval.low is not None and version.interval.high is not None:
            intervals[label] = version.interval.low, version.interval.high
        trained_hours = hours.get(version.version)
        test = f"test {tests.index(version.test_fingerprint) + 1}" if len(tests) > 1 else "the same"
        rows.append(_version_row(version, metric, label, test, trained_hours))

    # The table has the figures of the plot, for those who do not see it.
    title = f"{metric.title} of the versions"
    plot = bar_plot(bars, metric.title, intervals=intervals, percent=metric.unit == "%")
    columns = ("version", "published (UTC)", "by", metric.title, "interval", "test data", "hours")
    caption = f"{sentence_case(metric.title)} by version with intervals, each as its own evaluation measured it."
    return [figure(plot, caption, f"{title}, {registry.model}"), details(title, data_table(columns, rows, label=title))]


def _version_row(
    version: MeasuredVersion, metric: Metric, label: str, test: str, hours: float | None
) -> tuple[str | float | None, ...]:
    at = version.at.replace("T", " ").rstrip("Z")
    value = metric.format(version.value)
    interval = metric.format_range(version.interval.low, version.interval.high)
    return label, at, version.action, value, interval, test, hours


def _event_rows(events: Sequence[RegistryEvent]) -> list[tuple[str, str, str, str]]:
    """The events of a journal in words: when (UTC), what, version, why."""
    labels = {"push": "promoted", PROMOTE: "promoted by a person", "rollback": "rolled back"}
    rows = []
    for event in events:
        # A push to the candidate promotes nothing, and neither does a withdrawal.
        label = labels.get(event.action, event.action)
        if event.alias == CANDIDATE:
            label = "candidate withdrawn" if event.action == WITHDRAW else "candidate"
        why = event.note
        if event.action == "rollback":
            why = f"version {event.replaces} was taken out, version {event.copy_of} is back. {event.note}".strip()
        rows.append((event.at.replace("T", " ").rstrip("Z"), label, str(event.version), why))
    return rows


def _run_rows(runs: Sequence[Run], *, without_versions: bool) -> list[tuple[str, str, str, str]]:
    """The runs that made no version, and where no journal tells of them those that did."""
    hidden = {"unchanged", "stopped", *(("promoted", "candidate") if without_versions else ())}
    return [
        (run["run"]["ended"].replace("T", " ").rstrip("Z"), run["verdict"], str(run["version"] or ""), run["reason"])
        for run in runs
        if run["verdict"] not in hidden
    ]


def _figures(runs: Sequence[Run]) -> list[Block]:
    """A curve of each figure, with its interval, its forecast and what stands out."""
    judged = complete_runs(runs)
    if len(judged) < 2:  # a point is no curve
        return []

    # Runs are drawn at their times, not evenly: a week without runs is a gap.
    start = _moment(judged[0])
    since = [(_moment(run) - start).total_seconds() for run in judged]
    unit, unit_seconds = next(((unit, size) for unit, size in TIME_UNITS if max(since) >= 2 * size), TIME_UNITS[-1])
    times = [seconds / unit_seconds for seconds in since]
    blocks = []
    for name in filter(is_headline, figure_names(judged)):
        values = [figure_of(run, name) for run in judged]
        series = {title_of(name): _gaps(values)}

        # Metrics have intervals, figures such as the duration of a run have none.
        for end, title in (("low", "lower end of its interval"), ("high", "upper end")):
            ends = [run["metrics"].get(name, {}).get(end) for run in judged]
            if any(value is not None for value in ends):
                series[title] = _gaps(ends)

        # Runs that stand out are a series of their own, NaN elsewhere.
        caption = ""
        forecast = forecast_figure(judged, name)
        if forecast is not None:
            caption = (
                f"{title_of(name)}: next run {format_figure(name, forecast.ahead[0])} ± "
                f"{format_figure(name, forecast.ahead_deviation[0])}"
            )
            marked = [math.nan] * len(judged)
            for at in forecast.anomalies:
                marked[at] = series[title_of(name)][at]
            if forecast.anomalies:
                series["stands out"] = marked
                count = len(forecast.anomalies)
                caption += f"; {count} run{'s' * (count > 1)} stood out"

        percent = figure_unit(name) == "%"
        axis = title_of(name) if percent or not figure_unit(name) else f"{title_of(name)} ({figure_unit(name)})"
        plot = line_plot(times, series, f"{unit} since the first run", axis, percent=percent)
        blocks.append(
            figure(plot, f"{caption}." if caption else "", f"{title_of(name)} of the runs of {runs[0]['run']['name']}")
        )
    return blocks


def _gaps(values: Sequence[float | None]) -> list[float]:
    """The values of a curve, with NaN, which a plot leaves out, where nothing was measured."""
    return [math.nan if value is None or not math.isfinite(value) else value for value in values]


def _runs_table(runs: Sequence[Run], name: str) -> Block:
    rows = [
        (
            run["run"]["ended"].replace("T", " ").rstrip("Z"),
            run["verdict"],
            headline(run),
            run["reason"],
            "; ".join(describe_anomaly(FigureAnomaly(**anomaly)) for anomaly in run.get("anomalies", [])),
            run["version"] or "",
            run["dataset_version"] or "",
            f"{run['run']['seconds']:.0f}",
            ", ".join(cost_phrases(run.get("cost"))),
        )
        for run in reversed(runs)
    ]

    # Newest first, also where no script can sort the rows. What matters most is seen without scrolling sideways.
    columns = ("ended (UTC)", "verdict", "metric", "reason", "stands out", "version", "dataset", "seconds", "cost")
    return explorer_table(columns, rows, f"runs of {name}")


def _moment(run: Run) -> datetime:
    return datetime.fromisoformat(run["run"]["ended"])


def headline(run: Run) -> str:
    """The headline metric with its interval; empty if nothing was evaluated."""
    for metric in CATALOG.select(run["metrics"]):
        if metric.headline and (measured := run["metrics"][metric.name]):
            low = measured["low"]
            interval = "" if low is None else f" ({metric.format(low)} to {metric.format(measured['high'])})"
            return f"{metric.label} {metric.format(measured['value'])}{interval}"
    return ""

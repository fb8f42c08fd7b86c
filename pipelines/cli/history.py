"""The commands of the history of runs: list it, draw it, export it, and forecast its figures."""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.options import AsJson, CommandGroup, machine_path

if TYPE_CHECKING:
    from voxline.notify.history import Run

Location = Annotated[
    str, typer.Argument(metavar="REGISTRY", help="Registry or datasets folder that the runs wrote to, or a history.")
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Only runs of configs with this name.")]
Model = Annotated[str, typer.Option("--model", metavar="NAME", help="Only runs for this model.")]
CHECKED_VERDICTS = ("promoted", "candidate", "refused", "unchanged", "published")
"""Of runs whose figures are comparable; a run that failed or was stopped did not do all of its work."""


def add_history_commands(group: CommandGroup) -> None:
    """Adds the commands to those of runs."""
    group.command("history")(show_history)
    group.command("export")(export_history)
    group.command("forecast")(forecast_figures)


def show_history(
    location: Location,
    name: Name = "",
    model: Model = "",
    page: Annotated[
        Path | None, typer.Option(parser=machine_path, metavar="FILE", help="Write an HTML page with curves instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all runs that wrote to a registry, failed ones too.

    Example: voxline runs history runs/demo/registry --page history.html
    """
    runs = _read(location, name, model)
    if page:
        _page(runs, location).write(page)
        typer.echo(f"{page}: {len(runs)} runs")
        return
    if as_json:
        typer.echo(json.dumps(runs, indent=2, ensure_ascii=False))
        return
    for run in runs:
        about = run["run"]
        what = f"version {run['version']}" if run["verdict"] in ("promoted", "candidate") else run["reason"]
        ended = about["ended"][:16].replace("T", " ")
        typer.echo(f"{ended}  {about['name']:<20}  {run['verdict']:<11}  {_headline(run):<34}  {what}".rstrip())


def export_history(
    location: Location,
    output: Annotated[
        Path, typer.Argument(parser=machine_path, metavar="FILE", help="New file; it ends in .sqlite or .jsonl.")
    ],
    name: Name = "",
    model: Model = "",
) -> None:
    """Export all runs as an SQLite database or as JSON lines.

    Example: voxline runs export runs/demo/registry runs.sqlite
    """
    from voxline.notify.history import write_sqlite
    from voxline.store.files import write_text

    if output.suffix not in (".sqlite", ".jsonl"):
        raise SettingsError(f"{output}: the name of the file ends in .sqlite or .jsonl")
    runs = _read(location, name, model)
    if output.suffix == ".sqlite":
        write_sqlite(runs, output)
    else:
        write_text(output, "".join(json.dumps(run, ensure_ascii=False) + "\n" for run in runs))
    typer.echo(f"{output}: {len(runs)} runs")


def forecast_figures(
    location: Location,
    name: Name = "",
    model: Model = "",
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", metavar="NAME", help="Figure, such as wer or seconds; repeatable. Default: all."),
    ] = None,
    period: Annotated[int, typer.Option(min=0, max=366, help="Runs in a season; 0: 7, if they show one.")] = 0,
    limit: Annotated[float, typer.Option(min=1.0, max=10.0, help="Deviations beyond which a run stands out.")] = 2.8,
    check: Annotated[bool, typer.Option("--check", help="Exit with status 1 if the last run stands out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forecast the next run's figures; name runs that stand out.

    Example: voxline runs forecast gs://speech/registry --name nightly --check
    """
    from voxline.notify import history

    recorded = _read(location, name, model)
    if not (runs := [run for run in recorded if run["verdict"] in CHECKED_VERDICTS]):
        raise WorkError(f"{location}: none of its {len(recorded)} runs did all of its work, so nothing is forecast")
    if len(names := sorted({run["run"]["name"] for run in runs})) > 1:
        raise SettingsError(f"{location} has runs of several configs: {', '.join(names)}; choose one with --name")
    known = history.figure_names(runs)
    if unknown := [one for one in figure or [] if one not in known]:
        raise SettingsError(f"--figure {', '.join(unknown)}: not a figure of these runs; accepted: {', '.join(known)}")
    documents, alarms = [], []
    for one in figure or known:
        document = _forecast(runs, one, (1, 7) if period == 0 else (max(1, period),), limit)
        documents.append(document)
        if document["stands_out"]:
            alarms.append(one)
    if as_json:
        typer.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        for document in documents:
            typer.echo(document["text"])
    if alarms and check:
        raise WorkError(f"the last run of {runs[-1]['run']['name']} stands out in {', '.join(alarms)}")


def _read(location: str, name: str, model: str) -> "list[Run]":
    from voxline.notify.history import history_of, read_runs

    return read_runs(history_of(location), name=name, model=model)


def _forecast(runs: "list[Run]", name: str, periods: tuple[int, ...], limit: float) -> dict[str, Any]:
    """The forecast of one figure, as JSON values."""
    from voxline.metrics.forecast import forecast, observations_needed
    from voxline.notify.history import figure_of

    values = [figure_of(run, name) for run in runs]
    measured, needed = sum(value is not None for value in values), observations_needed(periods)
    document: dict[str, Any] = {"figure": name, "runs": measured, "stands_out": False}
    if measured < needed:
        text = f"{_title(name):<28}  {measured} runs of the {needed} that a forecast needs"
        return document | {"text": text}
    found = forecast([math.nan if value is None else value for value in values], periods=periods, limit=limit)
    moments = [run["run"]["ended"] for run in runs]
    document |= {
        "next": {"value": found.ahead[0], "deviation": found.ahead_deviation[0]},
        "period": found.period,
        "trend": found.trend,
        "anomalies": [
            {
                "ended": moments[at],
                "value": values[at],
                "expected": found.expected[at],
                "deviation": found.deviation[at],
                "new_level": at in found.shifts,
            }
            for at in found.anomalies
        ],
        "stands_out": len(runs) - 1 in found.anomalies,
    }
    band = f"{_format(name, found.ahead[0])} ± {_format(name, found.ahead_deviation[0])}"
    text = f"{_title(name):<28}  next run {band}"
    for one in document["anomalies"]:
        kind = "a new level" if one["new_level"] else "stands out"
        expected = f"{_format(name, one['expected'])} ± {_format(name, one['deviation'])}"
        text += f"\n  {one['ended'][:16].replace('T', ' ')}  {_format(name, one['value'])}, expected {expected}: {kind}"
    return document | {"text": text}


def _page(runs: "list[Run]", location: str) -> Any:
    """The page of a history: for each config the curves of its figures, and a table of its runs."""
    from voxline.notify import history
    from voxline.report import Page, explorer_table, figure, line_plot, small_print

    page = Page("History of runs", lead=f"{len(runs)} runs, from {location}.")
    for name in dict.fromkeys(run["run"]["name"] for run in runs):
        those = [run for run in runs if run["run"]["name"] == name]
        judged = [run for run in those if run["verdict"] in CHECKED_VERDICTS]
        blocks = []
        for one in history.figure_names(judged) if len(judged) > 1 else []:
            if not _is_shown(one):
                continue
            values = [history.figure_of(run, one) for run in judged]
            series = {_title(one): [math.nan if value is None else value for value in values]}
            if any(run["metrics"].get(one, {}).get("low") is not None for run in judged):
                for end, title in (("low", "lower end of its interval"), ("high", "upper end")):
                    ends = [run["metrics"].get(one, {}).get(end) for run in judged]
                    series[title] = [math.nan if value is None else value for value in ends]
            days = [(_moment(run) - _moment(judged[0])).total_seconds() / 86_400 for run in judged]
            percent = _unit(one) == "%"
            plot = line_plot(days, series, "days since the first run", _title(one), percent=percent)
            caption = ""
            if len([value for value in values if value is not None]) >= 8:
                caption = str(_forecast(judged, one, (1, 7), 2.8)["text"].partition("\n")[0])
            blocks.append(figure(plot, caption))
        rows = [
            (
                run["run"]["ended"].replace("T", " ").rstrip("Z"),
                run["verdict"],
                _headline(run),
                run["version"] or "",
                run["dataset_version"] or "",
                f"{run['run']['seconds']:.0f}",
                run["reason"],
            )
            for run in reversed(those)
        ]
        columns = ("ended (UTC)", "verdict", "metric", "version", "dataset", "seconds", "reason")
        page.add_section(name, *blocks, explorer_table(columns, rows, f"runs of {name}"))
    page.add_section("Source", small_print(f"Each run is one JSON object in {location}."))
    return page


def _moment(run: "Run") -> datetime:
    return datetime.fromisoformat(run["run"]["ended"])


def _headline(run: "Run") -> str:
    """The headline metric with its interval; empty if nothing was evaluated."""
    from voxline.metrics.catalog import CATALOG

    for metric in CATALOG.values():
        if metric.headline and (of := run["metrics"].get(metric.name)):
            ends = "" if of["low"] is None else f" ({metric.format(of['low'])} to {metric.format(of['high'])})"
            return f"{metric.label} {metric.format(of['value'])}{ends}"
    return ""


def _is_shown(name: str) -> bool:
    """Whether the page draws the figure: the headline metrics and what is no metric."""
    from voxline.metrics.catalog import CATALOG

    return name not in CATALOG or CATALOG[name].headline


def _title(name: str) -> str:
    from voxline.metrics.catalog import CATALOG
    from voxline.notify.history import FIGURES

    return FIGURES[name][0] if name in FIGURES else CATALOG[name].title if name in CATALOG else name


def _unit(name: str) -> str:
    from voxline.metrics.catalog import CATALOG
    from voxline.notify.history import FIGURES

    return FIGURES[name][1] if name in FIGURES else CATALOG[name].unit if name in CATALOG else ""


def _format(name: str, value: float) -> str:
    return f"{value:.2%}" if _unit(name) == "%" else f"{value:,.4g} {_unit(name)}".rstrip()

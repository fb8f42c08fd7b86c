"""The commands of the history of runs: list it, draw it, export it, and forecast its figures."""

import json
from datetime import UTC, datetime
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
    from voxline.pipelines.cli.history_page import headline, history_page

    if page:
        history_page(runs, location).write(page)
        typer.echo(f"{page}: {len(runs)} runs")
        return
    if as_json:
        typer.echo(json.dumps(runs, indent=2, ensure_ascii=False))
        return
    for run in runs:
        about = run["run"]
        what = f"version {run['version']}" if run["verdict"] in ("promoted", "candidate") else run["reason"]
        ended = about["ended"][:16].replace("T", " ")
        what += (
            f"  (stands out: {', '.join(one['figure'] for one in found)})" if (found := run.get("anomalies")) else ""
        )
        typer.echo(f"{ended}  {about['name']:<20}  {run['verdict']:<11}  {headline(run):<34}  {what}".rstrip())


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
    hours: Annotated[
        float, typer.Option(min=0, help="Audio that the next run trains on, in hours.  [default: as forecast]")
    ] = 0.0,
    check: Annotated[bool, typer.Option("--check", help="Exit with status 1 if the last run stands out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forecast the next run's figures; name runs that stand out.

    Example: voxline runs forecast gs://speech/registry --name nightly --check
    """
    from voxline.notify import foresight, history

    recorded = _read(location, name, model)
    if not (runs := foresight.complete_runs(recorded)):
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
    if not figure and runs[-1]["run"]["model"]:
        documents += [_foretell_promotion(recorded, hours), _freshness(recorded, location)]
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
    from voxline.metrics.forecast import observations_needed
    from voxline.notify.event import FigureAnomaly
    from voxline.notify.foresight import describe_anomaly, forecast_figure, format_figure, title_of
    from voxline.notify.history import figure_of

    values = [figure_of(run, name) for run in runs]
    measured = sum(value is not None for value in values)
    document: dict[str, Any] = {"figure": name, "runs": measured, "stands_out": False}
    found = forecast_figure(runs, name, periods, limit)
    if found is None:
        text = f"{title_of(name):<28}  {measured} runs of the {observations_needed(periods)} that a forecast needs"
        return document | {"text": text}
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
    band = f"{format_figure(name, found.ahead[0])} ± {format_figure(name, found.ahead_deviation[0])}"
    text = f"{title_of(name):<28}  next run {band}"
    for one in document["anomalies"]:
        kind = "a new level" if one["new_level"] else "stands out"
        told = describe_anomaly(FigureAnomaly(name, one["value"], one["expected"], one["deviation"]))
        text += f"\n  {one['ended'][:16].replace('T', ' ')}  {told.removeprefix(title_of(name)).lstrip()}: {kind}"
    return document | {"text": text}


def _foretell_promotion(runs: "list[Run]", hours: float) -> dict[str, Any]:
    """Whether the next run promotes its model, as JSON values."""
    from voxline.notify.foresight import describe_foretold, expected_hours, foretell_run

    known = hours or expected_hours(runs)
    found = foretell_run(runs, known)
    document: dict[str, Any] = {"figure": "promotion", "stands_out": False}
    if found is None:
        text = "too few runs were judged against a model in service"
        return document | {"text": f"{'promotion':<28}  {text}"}
    data = "" if known is None else f" with {known:,.4g} h to train on"
    document |= {
        "probability": found.probability, "hours": known, "runs": found.runs, "promoted": found.promoted,
        "brier": found.brier, "share_brier": found.share_brier,
    }  # fmt: skip
    text = f"{'promotion':<28}  next run {found.probability:.0%}{data}\n  {describe_foretold(found)}"
    return document | {"text": text}


def _freshness(runs: "list[Run]", location: str) -> dict[str, Any]:
    """Whether the model is current, as JSON values."""
    from voxline.notify.freshness import freshness
    from voxline.pipelines.cli.history_page import open_model

    registry = open_model(location, runs[-1]["run"]["model"])
    found = freshness(runs, datetime.now(UTC), registry.journal() if registry else ())
    document = {"figure": "freshness", "state": found.state, "reasons": list(found.reasons), "stands_out": False}
    return document | {"text": "\n".join([f"{'freshness':<28}  {found.state}", *(f"  {one}" for one in found.reasons)])}

"""The commands of the history of runs: list it, draw it, export it, and forecast its figures."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.options import AsJson, CommandGroup, machine_path

if TYPE_CHECKING:
    from voxline.notify.history import Run

USUAL = 0.75
"""Share of the runs that must have a figure for the LSTM to read it."""
METHODS = ("structural", "lstm", "best")
"""Of forecasts."""
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
        identity = run["run"]
        what = f"version {run['version']}" if run["verdict"] in ("promoted", "candidate") else run["reason"]
        ended = identity["ended"][:16].replace("T", " ")
        what += (
            f"  (stands out: {', '.join(one['figure'] for one in found)})" if (found := run.get("anomalies")) else ""
        )
        typer.echo(f"{ended}  {identity['name']:<20}  {run['verdict']:<11}  {headline(run):<34}  {what}".rstrip())


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
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="structural; lstm, of all figures together; best: the one with the smaller error over the last runs.",
        ),
    ] = "structural",
    check: Annotated[bool, typer.Option("--check", help="Exit with status 1 if the last run stands out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forecast the next run's figures; name runs that stand out.

    Example: voxline runs forecast gs://speech/registry --name nightly --check
    """
    from voxline.forecast import run_forecast
    from voxline.notify import history
    from voxline.notify.history import figure_of

    recorded = _read(location, name, model)
    if not (runs := run_forecast.complete_runs(recorded)):
        raise WorkError(f"{location}: none of its {len(recorded)} runs did all of its work, so nothing is forecast")
    if len(names := sorted({run["run"]["name"] for run in runs})) > 1:
        raise SettingsError(f"{location} has runs of several configs: {', '.join(names)}; choose one with --name")
    known = history.figure_names(runs)
    if unknown := [one for one in figure or [] if one not in known]:
        raise SettingsError(f"--figure {', '.join(unknown)}: not a figure of these runs; accepted: {', '.join(known)}")
    if method not in METHODS:
        raise SettingsError(f"--method {method!r}: accepted: {', '.join(METHODS)}")
    together = {} if method == "structural" else _forecast_together(runs, known)
    if method == "lstm" and not together:
        raise WorkError(f"{location}: {len(runs)} runs are too few for the LSTM; give --method structural")
    documents, alarms = [], []
    periods = (1, 7) if period == 0 else (max(1, period),)
    for one in figure or known:
        document = _forecast(runs, one, periods, limit)
        if one in together:
            tested = run_forecast.forecast_figure(runs, one, periods, limit, fitted=together[one]["start"])
            expected = tested.expected.tolist() if tested else []
            values = [figure_of(run, one) for run in runs]
            document = _choose(document, expected, together[one], values, method, limit)
        documents.append(document)
        if document["stands_out"]:
            alarms.append(one)
    if not figure and (of_model := runs[-1]["run"]["model"]):
        whole = _read(location, "", of_model)  # other configs may push it too
        documents += [_predict_promotion(whole, hours), _freshness(whole, location)]
    if as_json:
        for document in documents:
            document.pop("expected", None)
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
    from voxline.forecast.forecast import observations_needed
    from voxline.forecast.run_forecast import forecast_figure, title_of
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
        "method": "structural",
        "next": {"value": found.ahead[0], "deviation": found.ahead_deviation[0]},
        "period": found.period,
        "trend": found.trend,
        "expected": found.expected.tolist(),
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
    return document | {"text": _describe(document)}


def _describe(document: dict[str, Any]) -> str:
    """A forecast in lines."""
    from voxline.forecast.run_forecast import describe_anomaly, format_figure, title_of
    from voxline.notify.event import FigureAnomaly

    name, following = document["figure"], document["next"]
    band = f"{format_figure(name, following['value'])} ± {format_figure(name, following['deviation'])}"
    text = f"{title_of(name):<28}  next run {band}"
    for one in document["anomalies"]:
        kind = "a new level" if one["new_level"] else "stands out"
        note = describe_anomaly(FigureAnomaly(name, one["value"], one["expected"], one["deviation"]))
        text += f"\n  {one['ended'][:16].replace('T', ' ')}  {note.removeprefix(title_of(name)).lstrip()}: {kind}"
    return text


def _forecast_together(runs: "list[Run]", names: list[str]) -> "dict[str, dict[str, Any]]":
    """The LSTM's forecast of each figure that most runs have; empty if there are too few runs."""
    import numpy as np

    from voxline.notify.history import figure_of

    table = np.array([[figure_of(run, name) for name in names] for run in runs], np.float64)
    usual = np.isfinite(table).mean(axis=0) >= USUAL
    chosen = [name for name, most in zip(names, usual, strict=True) if most]
    try:
        from voxline.forecast.lstm_forecaster import forecast_together

        found = forecast_together(table[:, usual])
    except SettingsError:
        return {}
    ended = [run["run"]["ended"] for run in runs]
    return {
        name: {
            "start": found.start,
            "ended": ended,
            "expected": found.expected[:, at].tolist(),
            "deviation": found.deviation[:, at].tolist(),
            "next": {"value": float(found.ahead[0, at]), "deviation": float(found.ahead_deviation[0, at])},
        }
        for at, name in enumerate(chosen)
    }


def _choose(
    structural: dict[str, Any],
    tested: list[float],
    lstm: dict[str, Any],
    values: list[float | None],
    method: str,
    limit: float,
) -> dict[str, Any]:
    """The forecast of a figure by the method that is asked for, or by the one with the smaller error.

    Both errors are means of what lay between a one-step forecast and the value, over the runs that neither model was
    fitted to.

    Args:
      structural: the forecast of the model that is fitted to all runs.
      tested: what the one that is not expected of each run; empty: there were too few to fit it to.
    """
    from voxline.forecast.run_forecast import format_figure

    held_out = [at for at in range(lstm["start"], len(values)) if values[at] is not None]
    errors = {}
    for name, expected in (("structural", tested), ("lstm", lstm["expected"])):
        gaps = [abs(value - expected[at]) for at in held_out if expected and (value := values[at]) is not None]
        if gaps and all(math.isfinite(gap) for gap in gaps):
            errors[name] = sum(gaps) / len(gaps)
    document = structural | {"errors": errors}
    if method == "best" and errors.get("structural", math.inf) <= errors.get("lstm", math.inf):
        chosen = document
    else:
        outside = [
            at
            for at in held_out
            if (value := values[at]) is not None and abs(value - lstm["expected"][at]) > limit * lstm["deviation"][at]
        ]
        chosen = {key: value for key, value in document.items() if key not in ("period", "trend")} | {
            "method": "lstm",
            "next": lstm["next"],
            "expected": lstm["expected"],
            "anomalies": [
                {
                    "ended": lstm["ended"][at],
                    "value": values[at],
                    "expected": lstm["expected"][at],
                    "deviation": lstm["deviation"][at],
                    "new_level": False,
                }
                for at in outside
            ],
            "stands_out": len(values) - 1 in outside,
        }
        chosen["text"] = _describe(chosen)
    note = ", ".join(f"{name} {format_figure(chosen['figure'], error)}" for name, error in errors.items())
    head, _, rest = chosen["text"].partition("\n")
    head += f" by {chosen['method']} (mean error over the last {len(held_out)} runs: {note})"
    return chosen | {"text": head + ("\n" if rest else "") + rest}


def _predict_promotion(runs: "list[Run]", hours: float) -> dict[str, Any]:
    """Whether the next run promotes its model, as JSON values."""
    from voxline.forecast.run_forecast import describe_prediction, expected_hours, predict_promotion_of_run

    known = hours or expected_hours(runs)
    found = predict_promotion_of_run(runs, known)
    document: dict[str, Any] = {"figure": "promotion", "stands_out": False}
    if found is None:
        text = "too few runs were judged against a model in service"
        return document | {"text": f"{'promotion':<28}  {text}"}
    data = "" if known is None else f" with {known:,.4g} h to train on"
    document |= {
        "probability": found.probability, "hours": known, "runs": found.runs, "promoted": found.promoted,
        "brier": found.brier, "share_brier": found.share_brier,
    }  # fmt: skip
    text = f"{'promotion':<28}  next run {found.probability:.0%}{data}\n  {describe_prediction(found)}"
    return document | {"text": text}


def _freshness(runs: "list[Run]", location: str) -> dict[str, Any]:
    """Whether the model is current, as JSON values."""
    from voxline.forecast.freshness import freshness
    from voxline.pipelines.cli.history_page import open_model

    registry = open_model(location, runs[-1]["run"]["model"])
    found = freshness(runs, datetime.now(UTC), registry.journal() if registry else ())
    document = {"figure": "freshness", "state": found.state, "reasons": list(found.reasons), "stands_out": False}
    return document | {"text": "\n".join([f"{'freshness':<28}  {found.state}", *(f"  {one}" for one in found.reasons)])}

"""The commands of the history of runs: list it, draw it, export it, and forecast its figures."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voxline.errors import SettingsError, WorkError
from voxline.forecast import LONGEST
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
LATEST_ROWS = 1_000
"""Rows of a CSV file that are forecast from, or four seasons if that is more: a filter's time grows with them."""
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
    from voxline.notify.cost import cost_phrases
    from voxline.pipelines.cli.history_page import headline, history_page

    if page:
        history_page(runs, location).write(page)
        typer.echo(f"{page}: {len(runs)} runs")
        return
    if as_json:
        typer.echo(json.dumps(runs, indent=2, ensure_ascii=False))
        return

    # A run is the event that `notify.event` writes, as JSON values; times are UTC.
    for run in runs:
        identity = run["run"]
        ended = identity["ended"][:16].replace("T", " ")
        # Of several reasons of the gate the first one; the whole of why a run failed.
        reason, *others = run["reason"].split("; ") if run["verdict"] != "failed" else [run["reason"]]
        if others:
            reason += f" (and {len(others)} more: --json)"
        result = f"version {run['version']}" if run["verdict"] in ("promoted", "candidate") else reason
        if anomalies := run.get("anomalies"):
            result += f"  (stands out: {', '.join(anomaly['figure'] for anomaly in anomalies)})"
        if used := cost_phrases(run.get("cost")):
            result += f"  ({', '.join(used)})"
        typer.echo(f"{ended}  {identity['name']:<20}  {run['verdict']:<11}  {headline(run):<34}  {result}".rstrip())


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
    location: Annotated[
        str,
        typer.Argument(metavar="REGISTRY|FILE.csv", help="As of `runs history`; or a CSV file, with a row a step."),
    ],
    name: Name = "",
    model: Model = "",
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", metavar="NAME", help="Figure, such as wer, or column; repeatable. Default: all."),
    ] = None,
    period: Annotated[
        int, typer.Option(min=0, max=LONGEST, help="Runs or rows in a season; 0: 7, if they show one.")
    ] = 0,
    ahead: Annotated[
        int, typer.Option(min=1, max=LONGEST, help="Rows of a CSV file to forecast after the last one.")
    ] = 1,
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

    \b
    Examples:
      voxline runs forecast gs://speech/registry --name nightly --check
      voxline runs forecast visitors.csv --figure visitors --period 366 --ahead 30
    """
    periods = (1, 7) if period == 0 else (max(1, period),)
    if Path(location).suffix.lower() == ".csv":
        # Options that select or describe runs would be ignored.
        of_runs = {"--name": name, "--model": model, "--hours": hours, "--method": method != METHODS[0]}
        if given := [option for option, value in of_runs.items() if value]:
            raise SettingsError(f"{', '.join(given)}: of runs; a CSV file has columns, which --figure selects")
        documents = _forecast_columns(Path(location), figure or [], periods, limit, ahead)
        _print_documents(documents, as_json=as_json)
        alarms = [document["figure"] for document in documents if document["stands_out"]]
        if alarms and check:
            raise WorkError(f"the last row of {location} stands out in {', '.join(alarms)}")
        return
    if ahead > 1:
        raise SettingsError(f"--ahead {ahead}: of runs only the next one is forecast; it is accepted for a CSV file")

    from voxline.forecast import run_forecast
    from voxline.notify import history
    from voxline.notify.history import figure_of

    # Runs that failed or stopped early have other figures, and runs of different configs are different series.
    recorded = _read(location, name, model)
    if not (runs := run_forecast.complete_runs(recorded)):
        raise WorkError(f"{location}: none of its {len(recorded)} runs did all of its work, so nothing is forecast")
    if len(names := sorted({run["run"]["name"] for run in runs})) > 1:
        raise SettingsError(f"{location} has runs of several configs: {', '.join(names)}; choose one with --name")
    figure_names = history.figure_names(runs)
    if unknown := [figure_name for figure_name in figure or [] if figure_name not in figure_names]:
        accepted = ", ".join(figure_names)
        raise SettingsError(f"--figure {', '.join(unknown)}: not a figure of these runs; accepted: {accepted}")
    if method not in METHODS:
        raise SettingsError(f"--method {method!r}: accepted: {', '.join(METHODS)}")

    # The LSTM reads all figures at once; the structural model is fitted to each by itself.
    together = {} if method == "structural" else _forecast_together(runs, figure_names)
    if method == "lstm" and not together:
        raise WorkError(f"{location}: {len(runs)} runs are too few for the LSTM; give --method structural")

    documents = []
    alarms = []
    for figure_name in figure or figure_names:
        document = _forecast(runs, figure_name, periods, limit)
        if figure_name in together:
            # For a fair comparison the structural model is fitted again, to the runs that the LSTM has seen.
            lstm = together[figure_name]
            structural = run_forecast.forecast_figure(runs, figure_name, periods, limit, fitted=lstm["start"])
            expected = structural.expected.tolist() if structural else []
            values = [figure_of(run, figure_name) for run in runs]
            document = _choose(document, expected, lstm, values, method, limit)
        documents.append(document)
        if document["stands_out"]:
            alarms.append(figure_name)

    # Of a model, more than figures can be said.
    if not figure and (of_model := runs[-1]["run"]["model"]):
        whole = _read(location, "", of_model)  # other configs may push it too
        documents += [_predict_promotion(whole, hours), _freshness(whole, location)]

    _print_documents(documents, as_json=as_json)
    if alarms and check:
        raise WorkError(f"the last run of {runs[-1]['run']['name']} stands out in {', '.join(alarms)}")


def _print_documents(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for document in documents:
            document.pop("expected", None)  # NaN before the first forecast, which JSON has no word for
        typer.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        for document in documents:
            typer.echo(document["text"])


def _forecast_columns(
    file: Path, names: list[str], periods: tuple[int, ...], limit: float, ahead: int
) -> list[dict[str, Any]]:
    """The forecast of each column of a CSV file, as JSON values."""
    from voxline.forecast.forecast import forecast, observations_needed
    from voxline.forecast.table import read_columns

    # Each column by itself, from its latest rows.
    latest = max(LATEST_ROWS, 4 * max(periods))
    table = read_columns(file, names, latest)
    documents = []
    for name, values in table.columns.items():
        measured = sum(math.isfinite(value) for value in values)
        document: dict[str, Any] = {"figure": name, "rows": table.total, "used": len(values), "stands_out": False}
        if measured < observations_needed(periods):
            needed = observations_needed(periods)
            text = f"{name:<28}  {measured:,} values of the {needed:,} that a forecast needs"
            documents.append(document | {"text": text})
            continue

        result = forecast(values, periods=periods, horizon=ahead, limit=limit)
        document |= {
            "method": "structural",
            "period": result.period,
            "trend": result.trend,
            "ahead": [
                {"value": value, "deviation": deviation}
                for value, deviation in zip(result.ahead.tolist(), result.ahead_deviation.tolist(), strict=True)
            ],
            "anomalies": [
                {
                    "row": table.rows[at],
                    "value": values[at],
                    "expected": float(result.expected[at]),
                    "deviation": float(result.deviation[at]),
                    "new_level": at in result.shifts,
                }
                for at in result.anomalies
            ],
            "stands_out": len(values) - 1 in result.anomalies,
        }
        documents.append(document | {"text": _describe_column(document)})
    return documents


def _describe_column(document: dict[str, Any]) -> str:
    """A forecast of a column in lines."""
    season = f"season of {document['period']} rows" if document["period"] > 1 else "no season"
    note = f"{season}, {'a' if document['trend'] else 'no'} trend"
    if document["used"] < document["rows"]:
        note += f"; from the last {document['used']:,} of {document['rows']:,} rows"
    lines = [
        f"{document['figure']:<28}  next row {step['value']:,.4g} ± {step['deviation']:,.4g} ({note})"
        if number == 1
        else f"  +{number:<3} {step['value']:,.4g} ± {step['deviation']:,.4g}"
        for number, step in enumerate(document["ahead"], 1)
    ]
    # Rows have names of their own, by which a person finds them in the file.
    for anomaly in document["anomalies"]:
        kind = "a new level" if anomaly["new_level"] else "stands out"
        expected = f"expected {anomaly['expected']:,.4g} ± {anomaly['deviation']:,.4g}"
        lines.append(f"  {anomaly['row']}  {anomaly['value']:,.4g}, {expected}: {kind}")
    return "\n".join(lines)


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

    forecast = forecast_figure(runs, name, periods, limit)
    if forecast is None:
        text = f"{title_of(name):<28}  {measured} runs of the {observations_needed(periods)} that a forecast needs"
        return document | {"text": text}

    # Positions in `anomalies` and `shifts` are those of runs; only the last run is news.
    moments = [run["run"]["ended"] for run in runs]
    document |= {
        "method": "structural",
        "next": {"value": forecast.ahead[0], "deviation": forecast.ahead_deviation[0]},
        "period": forecast.period,
        "trend": forecast.trend,
        "expected": forecast.expected.tolist(),
        "anomalies": [
            {
                "ended": moments[at],
                "value": values[at],
                "expected": forecast.expected[at],
                "deviation": forecast.deviation[at],
                "new_level": at in forecast.shifts,
            }
            for at in forecast.anomalies
        ],
        "stands_out": len(runs) - 1 in forecast.anomalies,
    }
    return document | {"text": _describe(document)}


def _describe(document: dict[str, Any]) -> str:
    """A forecast in lines."""
    from voxline.forecast.run_forecast import describe_anomaly, format_figure, title_of
    from voxline.notify.event import FigureAnomaly

    name = document["figure"]
    following = document["next"]
    band = f"{format_figure(name, following['value'])} ± {format_figure(name, following['deviation'])}"
    text = f"{title_of(name):<28}  next run {band}"

    # The first line names the figure; the indented ones for runs do not repeat it.
    for anomaly in document["anomalies"]:
        kind = "a new level" if anomaly["new_level"] else "stands out"
        note = describe_anomaly(FigureAnomaly(name, anomaly["value"], anomaly["expected"], anomaly["deviation"]))
        text += f"\n  {anomaly['ended'][:16].replace('T', ' ')}  {note.removeprefix(title_of(name)).lstrip()}: {kind}"
    return text


def _forecast_together(runs: "list[Run]", names: list[str]) -> "dict[str, dict[str, Any]]":
    """The LSTM's forecast of each figure that most runs have; empty if there are too few runs."""
    import numpy as np

    from voxline.notify.history import figure_of

    # float64 [runs, figures], NaN (from None) where a run did not measure a figure.
    table = np.array([[figure_of(run, name) for name in names] for run in runs], np.float64)
    usual = np.isfinite(table).mean(axis=0) >= USUAL
    usual_names = [name for name, is_usual in zip(names, usual, strict=True) if is_usual]

    try:
        from voxline.forecast.lstm_forecaster import forecast_together

        forecast = forecast_together(table[:, usual])
    except SettingsError:  # too few runs
        return {}

    ended = [run["run"]["ended"] for run in runs]
    return {
        name: {
            "start": forecast.start,
            "ended": ended,
            "expected": forecast.expected[:, at].tolist(),
            "deviation": forecast.deviation[:, at].tolist(),
            "next": {"value": float(forecast.ahead[0, at]), "deviation": float(forecast.ahead_deviation[0, at])},
        }
        for at, name in enumerate(usual_names)
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

    # A method that expected nothing, or something that is not finite, has no error, and loses.
    held_out = [at for at in range(lstm["start"], len(values)) if values[at] is not None]
    errors = {}
    for name, expected in (("structural", tested), ("lstm", lstm["expected"])):
        gaps = [abs(value - expected[at]) for at in held_out if expected and (value := values[at]) is not None]
        if gaps and all(math.isfinite(gap) for gap in gaps):
            errors[name] = sum(gaps) / len(gaps)

    # With equal errors the structural model is preferred, because it explains itself: period, trend, new levels.
    document = structural | {"errors": errors}
    if method == "best" and errors.get("structural", math.inf) <= errors.get("lstm", math.inf):
        better = document
    else:
        outside = [
            at
            for at in held_out
            if (value := values[at]) is not None and abs(value - lstm["expected"][at]) > limit * lstm["deviation"][at]
        ]
        better = {key: value for key, value in document.items() if key not in ("period", "trend")} | {
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
        better["text"] = _describe(better)

    # The errors go to the end of the first line, before the lines of anomalies.
    note = ", ".join(f"{name} {format_figure(better['figure'], error)}" for name, error in errors.items())
    head, newline, anomaly_lines = better["text"].partition("\n")
    head += f" by {better['method']} (mean error over the last {len(held_out)} runs: {note})"
    return better | {"text": head + newline + anomaly_lines}


def _predict_promotion(runs: "list[Run]", hours: float) -> dict[str, Any]:
    """The probability that the next run promotes its model, as JSON values."""
    from voxline.forecast.run_forecast import describe_prediction, expected_hours, predict_promotion_of_run

    training_hours = hours or expected_hours(runs)
    prediction = predict_promotion_of_run(runs, training_hours)
    document: dict[str, Any] = {"figure": "promotion", "stands_out": False}
    if prediction is None:
        text = "too few runs were judged against a model in service"
        return document | {"text": f"{'promotion':<28}  {text}"}

    # `brier` is the error of past predictions, and `share_brier` that of always giving the share of promotions.
    data = "" if training_hours is None else f" with {training_hours:,.4g} h to train on"
    document |= {
        "probability": prediction.probability,
        "hours": training_hours,
        "runs": prediction.runs,
        "promoted": prediction.promoted,
        "brier": prediction.brier,
        "share_brier": prediction.share_brier,
    }
    text = f"{'promotion':<28}  next run {prediction.probability:.0%}{data}\n  {describe_prediction(prediction)}"
    return document | {"text": text}


def _freshness(runs: "list[Run]", location: str) -> dict[str, Any]:
    """The state of the model, current or stale, as JSON values."""
    from voxline.forecast.freshness import freshness
    from voxline.pipelines.cli.history_page import open_model

    # The journal knows of rollbacks and promotions by a person, which are no runs.
    registry = open_model(location, runs[-1]["run"]["model"])
    status = freshness(runs, datetime.now(UTC), registry.journal() if registry else ())
    document = {"figure": "freshness", "state": status.state, "reasons": list(status.reasons), "stands_out": False}
    lines = [f"{'freshness':<28}  {status.state}", *(f"  {reason}" for reason in status.reasons)]
    return document | {"text": "\n".join(lines)}

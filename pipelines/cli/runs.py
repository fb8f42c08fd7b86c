"""The commands of runs: list, show and compare the folders that `voxline run` left on this machine."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.options import AsJson, CommandGroup, machine_path

run_commands = CommandGroup(help="List, show, compare runs; a registry's history and forecast.", no_args_is_help=True)

RUN_FILE = "run.json"
CONFIG_FILE = "config.yaml"
LOCATIONS = ("store", "registry", "datasets", "name")
"""Keys of a config that say where a run is, not what it does."""
SUMMARY_KEYS = (
    "pipeline", "name", "started", "seconds", "status", "pushed", "reason", "failed_step", "metrics", "model"
)  # fmt: skip
MAX_DEPTH = 3


@run_commands.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(parser=machine_path, metavar="FOLDER", help="Of the runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs: name, date, verdict, headline metric.

    Example: voxline runs list
    """
    runs = sorted(_find_runs(folder), key=lambda run: str(run.record["started"]))

    # A script gets a document in any case: [] where the exit status says that there is no run.
    if as_json:
        typer.echo(json.dumps([run.summary() for run in runs], indent=2, ensure_ascii=False))
    if not runs:
        raise WorkError(f"{folder}: no run is here; `voxline run` makes one")
    if as_json:
        return

    width = max(len(str(run.folder)) for run in runs)
    for run in runs:
        started = str(run.record["started"])[:16].replace("T", " ")
        note = f"  (stands out: {', '.join(run.anomalies)})" if run.anomalies else ""
        typer.echo(f"{run.folder!s:<{width}}  {started}  {run.headline:<24}  {run.verdict}{note}")


@run_commands.command("show")
def show_run(
    folder: Annotated[Path, typer.Argument(parser=machine_path, metavar="FOLDER", help="Of a run.")],
    as_json: AsJson = False,
) -> None:
    """Show a run: verdict, metrics, steps, what stands out.

    Example: voxline runs show runs/demo
    """
    from voxline.metrics.catalog import CATALOG
    from voxline.report.page import format_duration

    run = _RunFolder.read(folder)
    record = run.record
    if as_json:
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
        return

    # In the catalog's order, not in that of the record.
    metrics = CATALOG.select(run.metrics)
    rows = [("run", f"{record['name']} ({record['pipeline']}), {str(record['started'])[:16].replace('T', ' ')} UTC")]
    rows += [("verdict", run.verdict)]
    rows += [(metric.label or metric.title, metric.format(run.metrics[metric.name])) for metric in metrics]
    rows += [("stands out", ", ".join(run.anomalies))] if run.anomalies else []
    rows += [("warning", str(warning)) for warning in record.get("warnings", [])]

    # Keys that a record may lack are optional here: the run may go on, or be of an earlier version.
    for step in record["steps"]:
        done = "reused" if step.get("reused") else f"{step['status']}, {format_duration(step.get('seconds', 0.0))}"
        rows.append((step["name"], ", ".join([done, *(f"{value:,} {name}" for name, value in step["counts"].items())])))
    rows += [(key, str(record[key])) for key in ("model", "dataset") if record.get(key)]
    rows += [("report", str(run.folder / record["report"]))] if record.get("report") else []

    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name.ljust(width)}  {value}")


@run_commands.command("compare")
def compare_runs(
    before: Annotated[Path, typer.Argument(parser=machine_path, metavar="BEFORE", help="A run's folder.")],
    after: Annotated[Path, typer.Argument(parser=machine_path, metavar="AFTER", help="Another run's.")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs: settings, data and metrics.

    Example: voxline runs compare runs/demo runs/demo-longer
    """
    from voxline.metrics.catalog import CATALOG
    from voxline.settings import changed_settings

    run_before = _RunFolder.read(before)
    run_after = _RunFolder.read(after)

    # Settings and counts that are equal are left out; metrics are all there, since an equal one is a result too.
    settings = changed_settings(run_before.settings, run_after.settings)
    counts = changed_settings(run_before.counts, run_after.counts)
    measured = CATALOG.select({*run_before.metrics, *run_after.metrics})
    metrics = {metric.name: (run_before.metric(metric.name), run_after.metric(metric.name)) for metric in measured}
    if as_json:
        document = {
            "settings": {key: [value_before, value_after] for key, value_before, value_after in settings},
            "data": {key: [value_before, value_after] for key, value_before, value_after in counts},
            "metrics": metrics,
            "verdicts": [run_before.verdict, run_after.verdict],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return

    # Four columns: name, before, after, difference.
    rows = [("run", str(before), str(after), ""), ("verdict", run_before.verdict, run_after.verdict, "")]
    rows += [(key, value_before, value_after, "") for key, value_before, value_after in [*settings, *counts]]
    for metric in measured:
        value_before, value_after = metrics[metric.name]
        difference = ""
        if value_before is not None and value_after is not None and value_before != value_after:
            difference = metric.format_difference(value_after - value_before)
        rows.append((metric.label or metric.title, metric.format(value_before), metric.format(value_after), difference))

    # The last column is not padded, so that no line ends in blanks.
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip())


@dataclasses.dataclass(frozen=True)
class _RunFolder:
    """A run's folder and its record."""

    folder: Path
    record: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "_RunFolder":
        from voxline.store.files import read_json

        file = folder / RUN_FILE if folder.is_dir() else folder
        if not file.is_file():
            raise SettingsError(f"{folder}: no {RUN_FILE} is here; give the folder of a run, such as runs/demo")

        # The file may be another program's: what the properties below read is checked here, once.
        try:
            record = read_json(file)
            if not {"pipeline", "name", "started", "status", "metrics", "steps"} <= record.keys():
                raise ValueError("keys are missing")
            if not isinstance(record["metrics"], dict) or not isinstance(record["steps"], list):
                raise TypeError("metrics or steps have another type")
        except (ValueError, TypeError, AttributeError) as error:
            raise WorkError(f"{file}: not the record of a run ({error})") from None
        return cls(file.parent, record)

    @property
    def metrics(self) -> dict[str, float]:
        return dict(self.record["metrics"])

    def metric(self, name: str) -> float | None:
        """A metric of the model; None if evaluate did not measure it."""
        return self.metrics.get(name)

    @property
    def settings(self) -> dict[str, Any]:
        """The effective config, without the locations of its output."""
        from voxline.pipelines.config.load import read_yaml

        file = self.folder / CONFIG_FILE
        values = read_yaml(file) if file.is_file() else {}
        return {key: value for key, value in values.items() if key not in LOCATIONS}

    @property
    def counts(self) -> dict[str, Any]:
        """Utterances of each split after convert, by name."""
        counts = {step["name"]: step["counts"] for step in self.record["steps"]}
        ingested = counts.get("ingest", {})
        converted = counts.get("convert", {})
        data = {f"utterances in {split}": ingested[split] for split in ("train", "dev", "test") if split in ingested}
        return data | ({"rejects of convert": converted["rejects"]} if "rejects" in converted else {})

    @property
    def anomalies(self) -> list[str]:
        """The figures that stood out from the runs before."""
        return [anomaly["figure"] for anomaly in self.record.get("anomalies", [])]

    @property
    def headline(self) -> str:
        from voxline.metrics.catalog import CATALOG

        headlines = [metric for metric in CATALOG.select(self.metrics) if metric.headline]
        if not headlines:
            return ""
        metric = headlines[0]
        return f"{metric.label} {metric.format(self.metrics[metric.name])}"

    @property
    def verdict(self) -> str:
        """The outcome of the run, in one line."""
        status = str(self.record["status"])
        reason = str(self.record.get("reason") or "").partition("\n")[0]
        if status == "failed":
            return f"failed in {self.record.get('failed_step') or 'the graph'}: {reason}"

        # A run that --until ended has no verdict, unless the last step was a gate; a gate's reasons follow a semicolon.
        if self.record.get("until") and status == "succeeded" and not reason:
            return f"stopped after {self.record['until']}"
        return reason.partition(";")[0] if status == "succeeded" and reason else status

    def summary(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            **{key: self.record.get(key) for key in SUMMARY_KEYS},
            "verdict": self.verdict,
            "anomalies": self.record.get("anomalies", []),
        }


def _find_runs(folder: Path, depth: int = 0) -> Iterator[_RunFolder]:
    """The runs in a folder, and in folders below it that are no runs themselves."""
    if not folder.is_dir():
        raise SettingsError(f"{folder}: not a folder; give the folder of the runs")
    inside: list[Path] = []
    try:
        inside = sorted(folder.iterdir())
        if (folder / RUN_FILE).is_file():
            yield _RunFolder.read(folder)
    except WorkError as error:
        typer.echo(f"voxline: {error}", err=True)
    except OSError as error:  # one folder that cannot be read must not hide the others
        typer.echo(f"voxline: {error.filename}: {error.strerror}; the runs in it are not listed", err=True)

    # A run's own folders have no runs in them, and thousands of files; a link may lead back up.
    for below in inside if depth < MAX_DEPTH else []:
        if below.is_dir() and not below.is_symlink() and below.name not in ("store", "registry", "datasets", "kfp"):
            yield from _find_runs(below, depth + 1)

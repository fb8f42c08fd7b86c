"""The history of runs: one JSON object a run, in a folder or a bucket, and the figures of successive runs.

A run's object is created and never changed, but for the purge of a speaker, so runs on several machines need no lock,
which a database in a bucket would.
"""

import contextlib
import json
import math
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import PreconditionError, WorkError
from voxline.notify.event import RunEvent
from voxline.notify.settings import NotifySettings
from voxline.progress import print_status
from voxline.store.files import atomic_write
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT

if TYPE_CHECKING:
    import requests

FOLDER = ".runs"
"""Of a registry, or of a folder of datasets: the runs that wrote to it, unless `notify.history` names another place."""
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9._-]{1,80}\.json")
_REASON = 300
"""Characters of a reason that are kept."""
FIGURES = {
    "seconds": ("duration", "s"),
    "work_seconds": ("work that was not reused", "s"),
    "cpu_seconds": ("processor time of the steps", "s"),
    "accelerator_hours": ("hours of accelerators", "h"),
    "energy_kwh": ("energy of processors and memory", "kWh"),
    "amount": ("money that the run cost", ""),
    "utterances": ("utterances of the corpus", ""),
    "hours": ("audio to train on", "h"),
    "drift": ("features that drifted", ""),
    "rejects": ("share of recordings left out", "%"),
}
"""Figures of a run that are not metrics: what each is, and its unit."""

Run = dict[str, Any]
"""As `RunEvent.to_dict` writes it."""


def record_run(event: RunEvent, location: Path | str) -> str:
    """Adds a run to a history. Returns the URI of its object; a run that is there already stays as it is."""
    document = event.to_dict()

    # A history is kept for years: one line of the reason, and no path of this machine.
    reason = document["reason"].partition("\n")[0]
    if len(reason) > _REASON:
        head = reason[: _REASON - 2]
        reason = f"{head.rpartition(' ')[0] or head} …"
    document["reason"] = reason
    del document["links"]  # paths of this machine

    # A name sorts by time, so that a reader lists the runs in order; the run's id makes it unique.
    stamp = re.sub(r"[-:]|\.[0-9]+", "", document["run"]["ended"])
    name = f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]', '_', event.run.id)[:80]}.json"

    store = open_store(location)
    with contextlib.suppress(PreconditionError):  # a repeated delivery
        store.write(name, json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n", if_version=ABSENT)
    return store.uri_of(name)


def send_history(event: RunEvent, settings: NotifySettings, _session: "requests.Session") -> str:
    """The receiver `notify.history`."""
    return record_run(event, settings.history)


def read_runs(location: Path | str, *, name: str = "", model: str = "", latest: int = 0) -> list[Run]:
    """The runs of a history, oldest first.

    Args:
      name: of the config; empty: any.
      model: of the registry; empty: any.
      latest: reads so many at most, the last ones of all configs; 0: all.

    Raises:
      WorkError: no run is there.
    """
    store = open_store(location)
    names = sorted(info.name for info in store.list() if _NAME.fullmatch(info.name))

    # Names sort by time: the last ones are known without reading any.
    names = names[-latest:] if latest else names

    runs = []
    for data, at in zip(store.map(store.read, names), names, strict=True):
        # One damaged object must not hide all other runs.
        try:
            run = json.loads(data)
            if run["schema"] != "voxline.run/1":
                raise ValueError(f"schema {run['schema']!r}")
            if (not name or run["run"]["name"] == name) and (not model or run["run"]["model"] == model):
                runs.append(run)
        except (ValueError, KeyError, TypeError) as error:
            print_status(f"{store.uri_of(at)}: not the record of a run ({error}); it is left out")

    if not runs:
        which = "".join(f" of {kind} {value}" for kind, value in (("config", name), ("model", model)) if value)
        raise WorkError(f"{store.uri}: no run{which} is recorded here; give the registry that runs push to")
    return sorted(runs, key=lambda run: str(run["run"]["ended"]))


def history_of(location: Path | str) -> str:
    """The history that a location means: itself, or that of a registry or a folder of datasets."""
    store = open_store(location)

    # A registry has its history in a folder of its own.
    below = store / FOLDER
    return below.uri if any(True for _ in below.list()) else store.uri


def figure_of(run: Run, name: str) -> float | None:
    """A figure of a run; None if it was not measured, or is not finite.

    >>> figure_of({"metrics": {"wer": {"value": 0.02}}, "steps": []}, "wer")
    0.02
    """
    if name in run["metrics"]:
        return _number(run["metrics"][name]["value"])

    steps = {step["name"]: step for step in run["steps"]}
    counts = {step: step_values["counts"] for step, step_values in steps.items()}
    total = sum(counts.get("ingest", {}).get(split, 0) for split in ("train", "dev", "test"))

    if name == "seconds":
        return float(run["run"]["seconds"])
    if name == "work_seconds":
        return float(sum(step["seconds"] for step in run["steps"] if not step["reused"]))
    if name == "cpu_seconds":
        spent = [step["cpu_seconds"] for step in run["steps"] if "cpu_seconds" in step]
        return float(sum(spent)) if spent else None
    if name in ("accelerator_hours", "energy_kwh", "amount"):
        return _number((run.get("cost") or {}).get(name)) or None  # a zero is the lack of them
    if name == "hours":
        return _number(run.get("hours", {}).get("train"))
    if name == "drift":
        return _number(counts.get("validate", {}).get("drifted"))
    if name == "utterances":
        return float(total) if total else None

    if name == "rejects":
        rejects = {step: sum(reasons.values()) for step, reasons in run["rejects"].items()}
        listed = total + rejects.get("ingest", 0)  # what a later step left out is among what ingest let through
        return sum(rejects.values()) / listed if listed and "ingest" in counts else None
    return None


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def figure_names(runs: Iterable[Run]) -> list[str]:
    """The names of the figures that some of the runs have, metrics first."""
    runs = list(runs)
    measured = dict.fromkeys(name for run in runs for name in run["metrics"])
    return [*measured, *(name for name in FIGURES if any(figure_of(run, name) is not None for run in runs))]


def write_sqlite(runs: Sequence[Run], path: Path) -> None:
    """Writes runs to a new SQLite database, tables `runs`, `metrics`, `steps`, `anomalies`; replaces the file."""
    # In memory first: a database on a network disk would be locked and half written.
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        for run in runs:
            # A repeated run replaces its own rows: histories may be merged.
            fields = run["run"]
            cost = run.get("cost") or {}
            database.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    fields["id"], fields["pipeline"], fields["name"], fields["model"], fields["started"],
                    fields["ended"], fields["seconds"], figure_of(run, "work_seconds"), run["verdict"], run["reason"],
                    run["failed_step"], run["version"], run["digest"], run["dataset_version"],
                    figure_of(run, "utterances"), figure_of(run, "rejects"),
                    figure_of(run, "hours"), cost.get("cpu_hours"), cost.get("accelerator_hours"),
                    cost.get("energy_kwh"), cost.get("amount"), cost.get("currency"),
                ),
            )  # fmt: skip

            database.executemany(
                "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)",
                [(fields["id"], name, of["value"], of["low"], of["high"]) for name, of in run["metrics"].items()],
            )

            database.executemany(
                "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?)",
                [
                    (fields["id"], step["name"], step["status"], step["seconds"], step["reused"])
                    for step in run["steps"]
                ],
            )

            database.executemany(
                "INSERT OR REPLACE INTO anomalies VALUES (?, ?, ?, ?, ?)",
                [
                    (fields["id"], anomaly["figure"], anomaly["value"], anomaly["expected"], anomaly["deviation"])
                    for anomaly in run.get("anomalies", [])
                ],
            )

        database.commit()
        with atomic_write(path) as file:
            file.write(database.serialize())


_SCHEMA = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, pipeline TEXT, name TEXT, model TEXT, started TEXT, ended TEXT, seconds REAL,
  work_seconds REAL, verdict TEXT, reason TEXT, failed_step TEXT, version INTEGER, digest TEXT,
  dataset_version INTEGER, utterances INTEGER, rejects REAL, hours REAL, cpu_hours REAL, accelerator_hours REAL,
  energy_kwh REAL, amount REAL, currency TEXT
);
CREATE TABLE metrics (run TEXT REFERENCES runs (id), name TEXT, value REAL, low REAL, high REAL,
  PRIMARY KEY (run, name));
CREATE TABLE steps (run TEXT REFERENCES runs (id), name TEXT, status TEXT, seconds REAL, reused INTEGER,
  PRIMARY KEY (run, name));
CREATE TABLE anomalies (run TEXT REFERENCES runs (id), figure TEXT, value REAL, expected REAL, deviation REAL,
  PRIMARY KEY (run, figure));
"""

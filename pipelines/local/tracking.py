"""Logs a run to MLflow and to Weights & Biases, if the config names them: parameters, metrics, version and report.

Neither is among the locked requirements (docs/decisions/0048-mlflow-is-optional.md); `pip install mlflow-skinny` and
`pip install wandb` add them. A run never fails because it could not be logged.
"""

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.pipelines.config.locations import corpus_uris
from voxline.pipelines.local.run_record import CONFIG_FILE, RUN_FILE, RunRecord
from voxline.pipelines.steps import STEPS
from voxline.progress import print_status
from voxline.provenance import git_revision
from voxline.settings import changed_settings
from voxline.store.files import atomic_write, read_json
from voxline.store.versioned_json import parse_versioned

if TYPE_CHECKING:
    from voxline.metrics.evaluation import MetricInfo

ARTIFACTS = ("report.html", *(step.page for step in STEPS.values() if step.page), CONFIG_FILE, RUN_FILE)
STATUSES = {"succeeded": "FINISHED", "interrupted": "KILLED"}
SYNC_SECONDS = 300
"""For sending a run to Weights & Biases."""
BATCH = 100
"""Parameters or tags that MLflow takes in one call."""

_NOT_IN_A_NAME = re.compile(r"[^\w\-. /]+")


def log_run(record: RunRecord) -> None:
    """Logs a run that ended to what `tracking` names. What goes wrong is printed."""
    _log_to_mlflow(record)
    _log_to_wandb(record)


def _log_to_mlflow(record: RunRecord) -> None:
    uri = record.config.get("tracking", {}).get("mlflow", "")
    if not uri:
        return
    try:
        client = _client(uri if "://" in uri or uri == "databricks" else Path(uri).absolute().as_uri())
        run_id = _log(client, record)
    except ImportError:
        print_status("MLflow is not installed, so the run was not logged; `pip install mlflow-skinny` adds it")
    except Exception as error:  # of a server, a disk, MLflow itself: the run is done, whatever happens here
        print_status(f"MLflow: the run was not logged to {uri}: {type(error).__name__}: {error}")
    else:
        print_status(f"MLflow: logged as run {run_id} in {uri}")


def _log_to_wandb(record: RunRecord) -> None:
    project = record.config.get("tracking", {}).get("wandb", "")
    if not project:
        return
    try:
        place = _log_with_wandb(importlib.import_module("wandb"), record, project)
    except ImportError:
        print_status("Weights & Biases is not installed, so the run was not logged; `pip install wandb` adds it")
    except Exception as error:  # of a server, a disk, its client: the run is done, whatever happens here
        print_status(f"Weights & Biases: the run was not logged to {project}: {type(error).__name__}: {error}")
    else:
        print_status(f"Weights & Biases: logged as {place}")


def _log_with_wandb(wandb: Any, record: RunRecord, project: str) -> str:
    """Writes the run into its folder, then sends it where there is a login. Returns where it is."""
    # What cannot be read ends this before the run. A step of a history is given once, in ascending order.
    points: dict[int, dict[str, float]] = {}
    for key, value, _, step in _curves(record, 0):
        points.setdefault(step, {})[key] = value
    summary = {**_metrics(record), **{f"seconds/{step.name}": step.seconds for step in record.steps}}
    tags = {key: value for key, value in _tags(record).items() if key.startswith("voxline.")}

    # Nothing about this machine is in it.
    quiet = wandb.Settings(
        silent=True,
        console="off",
        host="-",
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    entity, _, name = project.rpartition("/")
    run = wandb.init(
        project=name,
        entity=entity or None,
        name=record.name,
        job_type=record.pipeline,
        dir=record.run_dir,
        mode="offline",
        config={key: value for key, _, value in changed_settings({}, record.config)} | tags,
        settings=quiet,
    )
    exit_code = 1
    try:
        for step in sorted(points):
            run.log(points[step], step=step)
        run.summary.update(summary)
        for artifact in ARTIFACTS:
            if (record.run_dir / artifact).is_file():
                run.save(record.run_dir / artifact, base_path=record.run_dir, policy="now")
        exit_code = 0 if record.status == "succeeded" else 1
    finally:
        run.finish(exit_code=exit_code)

    # Copies in place of links, so that the folder may be sent from elsewhere.
    folder = Path(run.dir).parent
    for link in [file for file in Path(run.dir).rglob("*") if file.is_symlink()]:
        content = link.read_bytes()
        with atomic_write(link) as copy:
            copy.write(content)
    return f"{project}" if _send_to_wandb(wandb, folder) else f"{folder}; `wandb sync {folder}` sends it"


def _send_to_wandb(wandb: Any, folder: Path) -> bool:
    """Sends a run where there is a login, for which nobody is asked, and a server that answers in time."""
    try:
        if os.environ.get("WANDB_MODE", "online") != "online" or not wandb.login(prompt=False, timeout=SYNC_SECONDS):
            return False
        command = [sys.executable, "-m", "wandb", "sync", str(folder)]
        sent = subprocess.run(  # noqa: S603 - our own Python, and a folder of ours
            command, capture_output=True, timeout=SYNC_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except Exception as error:  # the run is in its folder, whatever happens here
        print_status(f"Weights & Biases: not sent: {type(error).__name__}: {error}")
        return False
    if sent.returncode:
        print_status(f"Weights & Biases: not sent: {sent.stderr.decode(errors='replace').strip()[-300:]}")
    return sent.returncode == 0


def _client(uri: str) -> Any:
    # The folder is our default, though MLflow would rather have a database.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return importlib.import_module("mlflow").MlflowClient(tracking_uri=uri)


def _log(client: Any, record: RunRecord) -> str:
    """Creates the run and ends it, so that MLflow never shows it as running. Returns its id."""
    entities = importlib.import_module("mlflow.entities")

    # The first run of an experiment makes it. MLflow's times are in milliseconds.
    name = record.config["tracking"]["experiment"] or record.config["model"] or record.pipeline
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    started = round(record.started * 1000)
    run = client.create_run(experiment_id, start_time=started, tags=_tags(record), run_name=record.name)
    run_id = str(run.info.run_id)

    # MLflow refuses parameters of more than 6,000 characters, and more than 1,000 metrics in a call.
    timestamp = round(time.time() * 1000)
    parameters = [entities.Param(key, value[:6000]) for key, _, value in changed_settings({}, record.config)]
    for start in range(0, len(parameters), BATCH):
        client.log_batch(run_id, params=parameters[start : start + BATCH])
    values = {**_metrics(record), **{f"seconds/{step.name}": step.seconds for step in record.steps}}
    client.log_batch(run_id, metrics=[entities.Metric(key, value, timestamp, 0) for key, value in values.items()])
    client.log_batch(run_id, metrics=[entities.Metric(*point) for point in _curves(record, timestamp)][:1000])

    # A run that failed or stopped early lacks some of the files.
    for artifact in ARTIFACTS:
        if (record.run_dir / artifact).is_file():
            client.log_artifact(run_id, str(record.run_dir / artifact))
    client.set_terminated(run_id, STATUSES.get(record.status, "FAILED"))
    return run_id


def _tags(record: RunRecord) -> dict[str, str]:
    """Tags to filter runs by; the version that the run put into service, and why or why not."""
    tags = {
        "mlflow.source.git.commit": (git_revision() or "").removesuffix("+changes"),
        "voxline.pipeline": record.pipeline,
        "voxline.corpus": corpus_uris(record.config),
        "voxline.pushed": str(record.pushed).lower(),
        "voxline.reason": record.reason[:5000],
        "voxline.model": str(record.model or ""),
        "voxline.dataset": str(record.dataset or ""),
    }
    if record.model:  # <registry>/<model>/<version>
        tags["voxline.model_version"] = record.model.rstrip("/").rpartition("/")[2]
    return {key: value for key, value in tags.items() if value}


def _metrics(record: RunRecord) -> dict[str, float]:
    """Every metric of evaluate with the ends of its interval, and those of its slices."""
    evaluated = record.step_with("metrics")
    if evaluated is None:
        return {name: float(value) for name, value in record.metrics.items() if isinstance(value, int | float)}
    from voxline.metrics.evaluation import EvaluationInfo  # NumPy, which a run that is not logged does not need here

    metrics_file = evaluated.output("metrics")
    info = parse_versioned(read_json(metrics_file), EvaluationInfo, metrics_file)
    values = _with_intervals("", info.metrics)

    # A name of MLflow may not have every character that a slice's name has.
    for slicing, slices in info.slices.items():
        for name, summary in slices.items():
            values |= _with_intervals(_NOT_IN_A_NAME.sub("_", f"{slicing}/{name}/"), summary.metrics)
    return dict(list(values.items())[:1000])  # MLflow takes so many at once


def _with_intervals(prefix: str, metrics: "Mapping[str, MetricInfo]") -> dict[str, float]:
    """The values and the ends of their intervals, by name."""
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        points = {"": metric.value, "_low": metric.interval.low, "_high": metric.interval.high}
        values |= {f"{prefix}{name}{end}": value for end, value in points.items() if value is not None}
    return values


def _curves(record: RunRecord, timestamp: int) -> list[tuple[str, float, int, int]]:
    """Points of the training curves, dev first: (name, value, milliseconds, step)."""
    trained = record.step_with("curves")
    if trained is None:
        return []
    curves = read_json(trained.output("curves"))
    return [
        (f"{split}/{name}", float(value), timestamp, int(point["step"]))
        for split in ("dev", "train")
        for point in curves[split]
        for name, value in point.items()
        if name not in ("step", "epoch")
    ]

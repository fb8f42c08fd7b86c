"""`run.json`: what ran, how long, its inputs and its results; rewritten after each step."""

import dataclasses
import platform
import time
import uuid
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.notify.cost import RunCost
from voxline.notify.event import Erasure, FigureAnomaly, PublishedModel, RunIdentity
from voxline.notify.event import StepRecord as StepRecord
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import read_yaml
from voxline.pipelines.config.locations import corpus_locations, corpus_uris
from voxline.provenance import git_revision, package_versions
from voxline.store.files import read_json, write_json

RUN_FILE = "run.json"
CONFIG_FILE = "config.yaml"
# Packages whose version may change what a run computes.
PACKAGES = ("voxline", "kfp", "apache-beam", "tensorflow", "keras", "numpy", "librosa", "soundfile", "jiwer")


@dataclasses.dataclass
class RunRecord:
    """The content of run.json.

    Attributes:
      status: "running", "succeeded", "failed" or "interrupted".
      id: a UUID, new for each run.
      metrics: of the exported model, from evaluate.
      pushed: whether this run put a new version into service, as the registry's journal says, also if push failed
        after that.
      reason: why the model was pushed or not, or why the run stopped.
      warnings: of validate: the check and what it found; and that of `erasure`.
      erasure: what the version in production knows of erased speakers after the run.
      anomalies: of `notify.event.FigureAnomaly`: figures that stand out from the runs before.
      model: location of the version that this run put into service.
      dataset: location of the dataset version with the corpus' content.
      report: relative to the run's folder.
      until: the last step, if not the whole graph was to run.
      cost: what the run used; None while it runs.
      energy_kwh: of the machine while the steps ran; None if it does not tell. In run.json it is part of the cost.
      like: `RunCost.like`. In run.json it is part of the cost.
      published: the version that a push published before it failed or was killed. Not part of run.json.
      previous: of the last run in this folder, `config` and `started`; None if there was none. Not part of run.json.
    """

    pipeline: str
    name: str
    run_dir: Path
    config: dict[str, Any]
    status: str = "running"
    id: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))
    started: float = dataclasses.field(default_factory=time.time)
    seconds: float = 0.0
    steps: list[StepRecord] = dataclasses.field(default_factory=list)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    pushed: bool = False
    reason: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)
    anomalies: list[FigureAnomaly] = dataclasses.field(default_factory=list)
    model: str | None = None
    dataset: str | None = None
    failed_step: str | None = None
    report: str | None = None
    until: str | None = None
    cost: RunCost | None = None
    energy_kwh: float | None = None
    like: str = ""
    published: PublishedModel | None = None
    erasure: Erasure = dataclasses.field(default_factory=Erasure)
    previous: dict[str, Any] | None = None

    def metric(self, name: str) -> float | None:
        """A metric of the exported model, such as `wer`; None if evaluate did not measure it."""
        return self.metrics.get(name)

    def step(self, name: str) -> StepRecord | None:
        return next((step for step in self.steps if step.name == name), None)

    def step_with(self, output: str) -> StepRecord | None:
        """The last step that has written an output of that name; None if none has, a step that failed, say."""
        return next((step for step in reversed(self.steps) if output in step.outputs), None)

    @property
    def identity(self) -> RunIdentity:
        """The names of the run, for receivers of its outcome."""
        model = self.config.get("model", "")  # a pipeline that trains nothing has none
        corpora = tuple(corpus_locations(self.config))
        training = str(get_key(self.config, "publish.training") or "")
        return RunIdentity(self.pipeline, self.name, model, corpora, self.id, self.started, training)

    def write(self) -> None:
        """Writes run.json. It replaces the file at once, so readers of a run in progress see a whole record."""
        self.seconds = time.time() - self.started

        # Scripts read these keys: they stay when an attribute gets another name.
        write_json(
            self.run_dir / RUN_FILE,
            {
                "pipeline": self.pipeline,
                "name": self.name,
                "id": self.id,
                "status": self.status,
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
                "seconds": round(self.seconds, 1),
                "steps": [_round_seconds(dataclasses.asdict(step)) for step in self.steps],
                "metrics": self.metrics,
                "pushed": self.pushed,
                "reason": self.reason,
                "warnings": self.warnings,
                "anomalies": [dataclasses.asdict(anomaly) for anomaly in self.anomalies],
                "erased_in_production": self.erasure.utterances,
                "cost": self.cost.to_dict() if self.cost else None,
                "model": self.model,
                "dataset": self.dataset,
                "failed_step": self.failed_step,
                "report": self.report,
                "until": self.until,
                "inputs": {"corpus": corpus_uris(self.config), "config": "config.yaml"},
                "store": self.config["store"],
                "registry": self.config["registry"],
                "versions": {"python": platform.python_version(), **package_versions(PACKAGES)},
                "git_revision": git_revision(),
            },
        )


def read_previous_run(run_dir: Path) -> dict[str, Any] | None:
    """The config and the start of the last run in a folder; None if there was none that can be read."""
    try:
        return {
            "config": read_yaml(run_dir / CONFIG_FILE),
            "started": read_json(run_dir / RUN_FILE)["started"].replace("T", " ").replace("Z", " UTC"),
        }
    except (OSError, ValueError, KeyError, SettingsError, WorkError):
        return None


def read_task_output(folder: Path, step: StepRecord) -> None:
    """Fills in a finished step from the metadata that its task left in `executor_output.json`."""
    # kfp.local has a folder for each run of a pipeline, with one for each task in it.
    for file in folder.glob(f"*/{step.name}/executor_output.json"):
        for artifacts in read_json(file).get("artifacts", {}).values():
            for artifact in artifacts["artifacts"]:
                metadata = artifact.get("metadata", {})
                if metadata.get("step") != step.name:
                    continue
                step.take_metadata(metadata)


def _round_seconds(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, **{name: round(step[name], 2) for name in ("seconds", "work_seconds", "cpu_seconds")}}

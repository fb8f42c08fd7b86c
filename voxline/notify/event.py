"""The outcome of a run as one record, which every receiver takes its part of."""

import collections
import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voxline.errors import VoxlineError, WorkError
from voxline.notify.cost import RunCost
from voxline.provenance import git_revision, package_versions
from voxline.registry.erasures import erased_in_production, erasure_warning
from voxline.registry.journal import PRODUCTION, RegistryEvent, format_utc
from voxline.registry.registry import Registry
from voxline.store.objects import open_store
from voxline.store.versioned_json import parse_versioned

if TYPE_CHECKING:
    from voxline.metrics.evaluation import EvaluationInfo

RunVerdict = Literal[
    "promoted", "candidate", "refused", "unchanged", "published", "skipped", "stopped", "failed", "interrupted"
]
VERDICTS: dict[RunVerdict, str] = {
    "promoted": "a new version went into service",
    "candidate": "a new version passed the gate and waits to be promoted",
    "refused": "the gate kept the version in service",
    "unchanged": "nothing had changed since the version in service, or since the dataset version",
    "published": "a new dataset version was published",
    "skipped": "nothing was trained: by the forecast, a promotion was not likely enough",
    "stopped": "the run ended after the step that `--until` named",
    "failed": "a step failed",
    "interrupted": "a signal stopped the run",
}
_WITHOUT_RESULT: dict[str, RunVerdict] = {"succeeded": "stopped", "failed": "failed", "interrupted": "interrupted"}
"""Status of a run → the verdict on it if neither push nor publish has ended."""
SUCCESSES: tuple[RunVerdict, ...] = ("promoted", "candidate", "unchanged", "published")
"""Verdicts after which the model or the dataset in use is current, or a newer model waits for a person."""


@dataclasses.dataclass
class StepRecord:
    """One step of a run.

    Attributes:
      seconds: from start to end, including the start of its process.
      work_seconds: the part that the step itself took.
      cpu_seconds: its processor time.
      key: of its output in the store; empty if the step did not finish.
      folder: the location of its output, a path or a URI.
      outputs: name → file of the output.
    """

    name: str
    status: str = "running"
    seconds: float = 0.0
    work_seconds: float = 0.0
    cpu_seconds: float = 0.0
    reused: bool = False
    key: str = ""
    folder: str = ""
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    outputs: dict[str, str] = dataclasses.field(default_factory=dict)

    def output(self, name: str) -> Path:
        """An output on this machine; downloaded if it is in a bucket.

        Raises:
          WorkError: it is gone.
        """
        folder, _, file = self.outputs[name].rpartition("/")
        path = open_store(folder).localize(file)
        if not path.exists():
            raise WorkError(f"{self.outputs[name]}: it is gone; run {self.name} again")
        return path

    def read_output(self, name: str) -> bytes:
        """The bytes of an output that is a file.

        Raises:
          FileNotFoundError: it is gone.
        """
        folder, _, file = self.outputs[name].rpartition("/")
        return open_store(folder).read(file)

    def take_metadata(self, metadata: dict[str, Any]) -> None:
        """Fills in what `StepOutput.publish` wrote as the metadata of the step's artifact."""
        self.folder = metadata["uri"]
        self.key = metadata["key"]
        self.reused = bool(metadata["reused"])
        self.work_seconds = float(metadata["seconds"])
        self.cpu_seconds = float(metadata.get("cpu_seconds", 0.0))
        self.counts = {name: int(count) for name, count in metadata["counts"].items()}
        self.metrics = dict(metadata["metrics"])

        # Paths of outputs are relative to the step's folder, which may be in a bucket.
        self.outputs = {name: f"{self.folder}/{path}" for name, path in metadata["outputs"].items()}


@dataclasses.dataclass(frozen=True)
class RunIdentity:
    """The names of a run, known before it starts.

    Attributes:
      id: a UUID; on a cluster that of KFP.
      name: of the config; the runs of a schedule share it.
      model: the model's name in the registry; empty for a run without one.
      corpora: locations of the recordings.
      started: seconds since 1970.
      training: digest of the settings of train and of the steps after it; empty if nothing depends on it.
    """

    pipeline: str
    name: str
    model: str = ""
    corpora: tuple[str, ...] = ()
    id: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))
    started: float = dataclasses.field(default_factory=time.time)
    training: str = ""


@dataclasses.dataclass(frozen=True)
class MetricValue:
    """A metric of the evaluated model, with the ends of its interval if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class FigureAnomaly:
    """A figure of a run outside the band that the runs before it lead to expect.

    Attributes:
      figure: a metric, or one of `history.FIGURES`.
      expected, deviation: the forecast, and its standard deviation.
    """

    figure: str
    value: float
    expected: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class PublishedModel:
    """A version that a push published before it failed or was killed, as the registry's journal has it.

    Attributes:
      uri: the version's folder.
    """

    event: RegistryEvent
    uri: str

    @classmethod
    def find(cls, registry: str, model: str, evaluated: StepRecord | None, since: float) -> "PublishedModel | None":
        """The version that a run published; None if it published none, or the registry cannot be read.

        Args:
          evaluated: the run's evaluation, which names the model by its digest.
          since: the run's start, in seconds since 1970.
        """
        if evaluated is None or not registry:
            return None

        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, VoxlineError):
            digest = _read_evaluation(evaluated).model.digest

            # The journal is read from its end: an earlier run may have pushed the same digest.
            models = Registry(registry, model)
            for event in reversed(models.journal()):
                if event.action == "push" and event.digest == digest and event.at >= format_utc(since):
                    # The version may have been removed since.
                    exists = event.version in models.versions()
                    return cls(event, f"{models.uri}/{event.version}") if exists else None
        return None

    def explain(self, reason: str) -> str:
        """Explains why the run did not succeed, with the version first."""
        where = "in service" if self.event.alias == PRODUCTION else "the candidate"
        named = f"version {self.event.version}"

        # A reason that names the version says it better.
        return reason if named in reason else f"{named} is {where}, though push did not end: {reason}"


@dataclasses.dataclass(frozen=True)
class Erasure:
    """The utterances of erased speakers that the version in production was trained on.

    Attributes:
      utterances: how many; None if nobody can tell: the registry or the list of the version cannot be read.
      warning: which version it is, and what ends it; empty without such utterances.
    """

    utterances: int | None = 0
    warning: str = ""

    @classmethod
    def find(cls, registry: str, model: str) -> "Erasure":
        """Looks whatever a run did: one that ended before push leaves in production what is there."""
        if registry and model:
            with contextlib.suppress(OSError, ValueError, VoxlineError):
                models = Registry(registry, model)
                # Most nights end with the first of these.
                count = erased_in_production(models)
                return cls(count, erasure_warning(models) if count else "")
            return cls(None)
        return cls()


@dataclasses.dataclass(frozen=True)
class RunEvent:
    """The outcome of a run.

    Attributes:
      verdict: see `VERDICTS`.
      reason: why: the gate's reasons, or the error.
      rejects: step → reason → recordings left out.
      metrics: of the evaluated model.
      version: of the model in service after the run, if this run put it there or found it unchanged; of a candidate,
        its own.
      model_uri: location of that version.
      digest: of the model that was judged.
      dataset_version, dataset_uri: that were published, found unchanged, or trained on.
      revision: of the code.
      anomalies: figures that stand out from the runs before; see `run_forecast.find_anomalies`.
      erased_in_production: utterances of erased speakers that the version in production was trained on; None if nobody
        can tell.
      cost: what the run used; None where nobody measured it.
    """

    run: RunIdentity
    verdict: RunVerdict
    reason: str
    ended: float
    steps: tuple[StepRecord, ...] = ()
    rejects: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    metrics: dict[str, MetricValue] = dataclasses.field(default_factory=dict)
    version: int | None = None
    model_uri: str = ""
    digest: str = ""
    dataset_version: int | None = None
    dataset_uri: str = ""
    links: dict[str, str] = dataclasses.field(default_factory=dict)
    revision: str = ""
    anomalies: tuple[FigureAnomaly, ...] = ()
    erased_in_production: int | None = 0
    cost: RunCost | None = None

    @classmethod
    def of(
        cls,
        run: RunIdentity,
        steps: Sequence[StepRecord],
        status: str,
        reason: str,
        links: dict[str, str],
        published: "PublishedModel | None" = None,
    ) -> "RunEvent":
        """The event of a run that ended.

        Args:
          status: "succeeded", "failed" or "interrupted".
          reason: of a failure; that of a verdict is read from the output of push.
          published: what a push that did not end has published.
        """
        named = {step.name: step for step in steps}
        result: dict[str, Any] = {}
        verdict = _WITHOUT_RESULT[status]

        # What a later step says counts more: the blocks below go from the first step to the last.
        if (forecast_step := named.get("forecast")) and forecast_step.counts.get("skipped") and status == "succeeded":
            verdict = "skipped"
            reason = json.loads(forecast_step.read_output("forecast"))["heading"]

        if (pushed := named.get("push")) and pushed.status == "succeeded":
            judged = json.loads(pushed.read_output("verdict"))
            result = {
                "version": judged["version"],
                "model_uri": judged["model"] or "",
                "digest": judged["digest"],
            }
            verdict = "unchanged" if judged["version"] else "refused"
            # A push without an alias in its output is of a release before candidates.
            if judged["pushed"]:
                verdict = "promoted" if judged.get("alias", PRODUCTION) == PRODUCTION else "candidate"
            reason = judged["heading"]
        elif published:
            event = published.event
            result = {"version": event.version, "model_uri": published.uri, "digest": event.digest}
            verdict = "promoted" if event.alias == PRODUCTION else "candidate"

        # A run that trained on a version has the verdict of its model; one that only published, that of the dataset.
        opened = named.get("publish") or named.get("dataset")
        if opened and opened.status == "succeeded":
            result |= {"dataset_version": opened.counts["version"], "dataset_uri": opened.folder}
            if opened.name == "publish" and steps[-1] is opened:
                verdict = "unchanged" if opened.reused else "published"

        return cls(
            run, verdict, reason, time.time(), tuple(steps),
            rejects={step.name: rejects_of_step for step in steps if (rejects_of_step := _count_rejects(step))},
            metrics=_metrics(named.get("evaluate")),
            links={name: link for name, link in links.items() if link},
            revision=git_revision() or "",
            **result,
        )  # fmt: skip

    @property
    def succeeded(self) -> bool:
        """Returns whether the model or the dataset in use is current after the run, and knows no erased speaker."""
        return self.verdict in SUCCESSES and not self.erased_in_production

    def with_erasure(self, erasure: "Erasure") -> "RunEvent":
        """This, with what is still in production, which the reason begins with."""
        if not erasure.utterances:
            return dataclasses.replace(self, erased_in_production=erasure.utterances)
        # The verdict of a refusal begins with it already.
        reason = self.reason if erasure.warning in self.reason else f"{erasure.warning}; {self.reason}".rstrip("; ")
        return dataclasses.replace(self, reason=reason, erased_in_production=erasure.utterances)

    @property
    def hours(self) -> dict[str, float]:
        """Split → hours of audio in the dataset; empty if the run made none."""
        metrics = next((step.metrics for step in self.steps if step.name in ("extract", "dataset")), {})
        return {name.removesuffix("_hours"): hours for name, hours in metrics.items() if name.endswith("_hours")}

    @property
    def failed_step(self) -> str:
        """The step that failed; empty if none did."""
        return next((step.name for step in self.steps if step.status == "failed"), "")

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON values; the schema of the webhook's body."""
        # Receivers parse this: keys are added, never renamed, or the number of the schema changes.
        return {
            "schema": "voxline.run/1",
            "run": {
                "id": self.run.id,
                "pipeline": self.run.pipeline,
                "name": self.run.name,
                "model": self.run.model,
                "corpora": list(self.run.corpora),
                "training": self.run.training,
                "started": format_utc(self.run.started),
                "ended": format_utc(self.ended),
                "seconds": round(max(0.0, self.ended - self.run.started), 1),
            },
            "verdict": self.verdict,
            "succeeded": self.succeeded,
            "reason": self.reason,
            "failed_step": self.failed_step,
            "steps": [
                {
                    "name": step.name,
                    "status": step.status,
                    "seconds": round(step.seconds, 2),
                    "cpu_seconds": round(step.cpu_seconds, 2),
                    "reused": step.reused,
                    "counts": step.counts,
                }
                for step in self.steps
            ],
            "rejects": self.rejects,
            "hours": self.hours,
            "metrics": {name: dataclasses.asdict(metric) for name, metric in self.metrics.items()},
            "anomalies": [dataclasses.asdict(anomaly) for anomaly in self.anomalies],
            "erased_in_production": self.erased_in_production,
            "cost": self.cost.to_dict() if self.cost else None,
            "version": self.version,
            "model_uri": self.model_uri,
            "digest": self.digest,
            "dataset_version": self.dataset_version,
            "dataset_uri": self.dataset_uri,
            "links": self.links,
            "versions": {"git_revision": self.revision, **package_versions(("voxline",))},
        }


def _count_rejects(step: StepRecord) -> dict[str, int]:
    """Reason → recordings that the step left out."""
    if not step.counts.get("rejects"):
        return {}
    reasons: collections.Counter[str] = collections.Counter()

    with contextlib.suppress(OSError, ValueError, KeyError, WorkError):  # gone since; the total is known
        reasons.update(json.loads(line)["reason"] for line in step.read_output("rejects").splitlines())
        return dict(reasons)
    return {"unknown": step.counts["rejects"]}


def _read_evaluation(evaluated: StepRecord) -> "EvaluationInfo":
    """The contents of metrics.json."""
    from voxline.metrics.evaluation import EvaluationInfo  # NumPy, which a command that only lists runs does without

    return parse_versioned(json.loads(evaluated.read_output("metrics")), EvaluationInfo, evaluated.output("metrics"))


def _metrics(evaluated: StepRecord | None) -> dict[str, MetricValue]:
    """Every metric of the evaluation with its interval; the headline metrics alone if its file cannot be read."""
    if evaluated is None or evaluated.status != "succeeded":
        return {}
    if "metrics" in evaluated.outputs:
        # The headline metrics of the step are there, even if its file is gone.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, WorkError):
            return {
                name: MetricValue(metric.value, metric.interval.low, metric.interval.high)
                for name, metric in _read_evaluation(evaluated).metrics.items()
                if metric.value is not None
            }

    # Low and high ends are metrics of their own in the step's record.
    values = {name: value for name, value in evaluated.metrics.items() if value is not None}
    return {
        name: MetricValue(value, values.get(f"{name}_low"), values.get(f"{name}_high"))
        for name, value in values.items()
        if not name.endswith(("_low", "_high"))
    }

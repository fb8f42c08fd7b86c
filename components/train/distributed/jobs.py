"""The training job of Kubeflow Trainer v2: the object to create, and its outcome.

A TrainingRuntime of the namespace defines the pods; the TrainJob adds image, command and count.
"""

import dataclasses
from typing import Any

from voxline.training.settings import TrainSettings

Object = dict[str, Any]
REPLICATED_JOB = "node"
"""Kubeflow Trainer's name for the replicated job of its trainers, and for the container in it."""
PORT = 2222
"""Of TensorFlow's server in each worker; NetworkPolicies let workers reach each other there."""
FAILURE_PREFIX = "✗ "
"""Starts the line with the reason why a worker failed; `pods` looks for it."""
WORKER_MODULE = "voxline.components.train.distributed.worker"
LABELS = {"app.kubernetes.io/part-of": "voxline", "app.kubernetes.io/component": "train-worker"}
"""Of everything that belongs to a job."""


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """The work of a job: dataset, store and settings.

    Attributes:
      key: key of the step's output; the job's name contains it, so that a restarted pod finds its job.
      image: image of the workers: that of the pod that launches them.
      registry: that has the model to start from.
    """

    key: str
    dataset: str
    store: str
    settings: TrainSettings
    image: str = ""
    registry: str = ""

    @property
    def name(self) -> str:
        """The name of the job. Short enough that `-node-0-255` fits into a host name of 63 characters."""
        return f"voxline-train-{self.key[:24]}"

    @property
    def count(self) -> int:
        return self.settings.workers.count


@dataclasses.dataclass(frozen=True)
class JobOutcome:
    """The end of a job; `reason` and `message` come from the operator."""

    succeeded: bool
    reason: str = ""
    message: str = ""


class TrainJob:
    """The object of Kubeflow Trainer v2."""

    # The path of the API: /apis/<api>/namespaces/<namespace>/<plural>/<name>.
    api = "trainer.kubeflow.org/v1alpha1"
    plural = "trainjobs"
    container = REPLICATED_JOB
    templates_api = "trainer.kubeflow.org/v1alpha1"
    templates = "trainingruntimes"

    # A TrainJob becomes a JobSet, whose indexed Job labels each pod with the index of its worker.
    index_label = "batch.kubernetes.io/job-completion-index"
    installed_by = "Kubeflow Trainer v2"
    # EX_TEMPFAIL: the TrainingRuntime restarts all workers after any status but 1 and 2.
    retry_status = 75

    def body(self, spec: JobSpec, metadata: Object, template: Object) -> Object:
        return {
            "apiVersion": self.api,
            "kind": "TrainJob",
            "metadata": metadata,
            "spec": {
                "labels": LABELS,  # of the JobSet, to which Trainer passes on no others
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "TrainingRuntime",
                    "name": spec.settings.workers.template,
                },
                "trainer": {
                    "image": spec.image,
                    "command": ["python", "-m", WORKER_MODULE],
                    "args": _arguments(spec, self.retry_status),
                    "numNodes": spec.count,
                },
            },
        }

    def selector(self, job: str) -> str:
        return f"jobset.sigs.k8s.io/jobset-name={job}"


TRAIN_JOB = TrainJob()
_SUCCEEDED = ("Complete", "Succeeded")


def job_outcome(job: Object) -> JobOutcome | None:
    """The outcome of a job; None while it runs.

    >>> job_outcome({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "MaxRestarts"}]}})
    JobOutcome(succeeded=False, reason='MaxRestarts', message='')
    """

    # Kubernetes keeps the conditions of earlier states, with the status "False".
    for condition in job.get("status", {}).get("conditions", []):
        kind = condition["type"]
        if condition["status"] == "True" and kind in (*_SUCCEEDED, "Failed"):
            return JobOutcome(kind in _SUCCEEDED, condition.get("reason", ""), condition.get("message", ""))
    return None


def suspension(job: Object) -> str:
    """The operator's message on a job that is suspended, by Kueue or by a person, and so has no pods; else "".

    >>> suspension({"status": {"conditions": [{"type": "Suspended", "status": "True", "message": "It is suspended"}]}})
    'It is suspended'
    """
    for condition in job.get("status", {}).get("conditions", []):
        # A job that was admitted keeps the condition, with the status "False".
        if condition["type"] == "Suspended" and condition["status"] == "True":
            return str(condition.get("message") or condition.get("reason") or "suspended")
    return ""


def _arguments(spec: JobSpec, retry_status: int) -> list[str]:
    return worker_arguments(spec.settings, spec.dataset, spec.store, spec.name, retry_status, spec.registry)


def worker_arguments(
    settings: TrainSettings, dataset: str, store: str, job: str, retry_status: int, registry: str = ""
) -> list[str]:
    """The arguments of `worker.main`."""

    # The registry holds the models to start from; a training from random weights reads none.
    values = {
        "job": job,
        "family": settings.family,
        "dataset": dataset,
        "store": store,
        **({"registry": registry} if settings.start.model or getattr(settings, "voice", "") else {}),
        "retry-status": str(retry_status),
        "settings": settings.model_dump_json(),
    }

    return [part for name, value in values.items() for part in (f"--{name}", value)]

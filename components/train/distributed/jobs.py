"""The two kinds of training job that Kubeflow has: what is asked for, and what comes back.

TrainJob (Trainer v2): the pod's shape stands in a TrainingRuntime of the namespace; the job adds image, command, count.
TFJob (the training operator before it): the job holds the whole pod, made here from a PodTemplate of the namespace.
"""

import copy
import dataclasses
from typing import Any

from voxline.components.train.distributed.tf_config import PORT, REPLICATED_JOB
from voxline.components.train.distributed.worker import worker_arguments
from voxline.components.train.settings import TrainSettings
from voxline.errors import SettingsError

Object = dict[str, Any]
WORKER_MODULE = "voxline.components.train.distributed.worker"


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """What workers are to train.

    Attributes:
      key: of the work; the job's name comes from it, so that a pod that was started again finds its job.
      image: what the workers run in: that of the pod that asks.
    """

    key: str
    dataset: str
    store: str
    settings: TrainSettings
    image: str = ""

    @property
    def job(self) -> str:
        """Short enough that `-node-0-255` fits into a host's name of 63 characters."""
        return f"voxline-train-{self.key[:24]}"

    @property
    def count(self) -> int:
        return self.settings.workers.count


@dataclasses.dataclass(frozen=True)
class JobOutcome:
    """How a job ended: `reason` and `message` are the operator's words."""

    succeeded: bool
    reason: str = ""
    message: str = ""


class TrainJob:
    """Kubeflow Trainer v2."""

    api, plural, container = "trainer.kubeflow.org/v1alpha1", "trainjobs", REPLICATED_JOB
    templates_api, templates = "trainer.kubeflow.org/v1alpha1", "trainingruntimes"
    index_label = "batch.kubernetes.io/job-completion-index"
    installed_by = "Kubeflow Trainer v2"
    retry_status = 75

    def body(self, task: JobSpec, metadata: Object, template: Object) -> Object:
        return {
            "apiVersion": self.api,
            "kind": "TrainJob",
            "metadata": metadata,
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "TrainingRuntime",
                    "name": task.settings.workers.template,
                },
                "trainer": {
                    "image": task.image,
                    "command": ["python", "-m", WORKER_MODULE],
                    "args": _arguments(task, self.retry_status),
                    "numNodes": task.count,
                },
            },
        }

    def selector(self, job: str) -> str:
        return f"jobset.sigs.k8s.io/jobset-name={job}"


class TFJob:
    """The training operator before Trainer v2."""

    api, plural, container = "kubeflow.org/v1", "tfjobs", "tensorflow"
    templates_api, templates = "v1", "podtemplates"
    index_label = "training.kubeflow.org/replica-index"
    installed_by = "the Kubeflow training operator"
    retry_status = 138
    """Of restartPolicy ExitCode: 1 to 127 end the job, and of those above, 138 is left to the program."""
    restarts = 10

    def body(self, task: JobSpec, metadata: Object, template: Object) -> Object:
        pod = copy.deepcopy(template["template"])
        first = pod["spec"]["containers"][0]
        if first["name"] != REPLICATED_JOB:
            raise SettingsError(
                f"PodTemplate {template['metadata']['name']}: its first container is called {first['name']!r}; "
                f"{REPLICATED_JOB!r} is accepted"
            )
        first.update(
            name=self.container,
            image=task.image,
            command=["python", "-m", WORKER_MODULE],
            args=_arguments(task, self.retry_status),
            ports=[{"name": "tfjob-port", "containerPort": PORT}],
        )
        pod["spec"].pop("restartPolicy", None)  # the operator's own, below, takes its place
        return {
            "apiVersion": self.api,
            "kind": "TFJob",
            "metadata": metadata,
            "spec": {
                "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": self.restarts},
                "tfReplicaSpecs": {
                    "Worker": {
                        "replicas": task.count,
                        "restartPolicy": "ExitCode",
                        "template": {"metadata": pod.get("metadata", {}), "spec": pod["spec"]},
                    }
                },
            },
        }

    def selector(self, job: str) -> str:
        return f"training.kubeflow.org/job-name={job}"


JOB_KINDS: dict[str, TrainJob | TFJob] = {"train_job": TrainJob(), "tf_job": TFJob()}
_SUCCEEDED = ("Complete", "Succeeded")


def job_outcome(job: Object) -> JobOutcome | None:
    """How a job ended; None while it runs.

    >>> job_outcome({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "MaxRestarts"}]}})
    End(succeeded=False, reason='MaxRestarts', message='')
    """
    for condition in job.get("status", {}).get("conditions", []):
        kind = condition["type"]
        if condition["status"] == "True" and kind in (*_SUCCEEDED, "Failed"):
            return JobOutcome(kind in _SUCCEEDED, condition.get("reason", ""), condition.get("message", ""))
    return None


def _arguments(task: JobSpec, retry_status: int) -> list[str]:
    return worker_arguments(task.settings, task.dataset, task.store, task.job, retry_status)

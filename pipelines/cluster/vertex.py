"""Vertex AI Pipelines: what a task says there, and a run or a schedule by Google's own client.

Vertex AI takes the same graph as one document, without Kubernetes' settings: it chooses a machine by the limits of CPU
and memory and by the accelerator. Its client comes with Beam, and is loaded by name.
"""

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, TransientError, WorkError

if TYPE_CHECKING:
    from voxline.pipelines.config.cluster import Accelerator, Placement
    from voxline.pipelines.config.run_config import RunConfig

GPU_TYPES = (
    "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100", "NVIDIA_TESLA_P4", "NVIDIA_TESLA_T4", "NVIDIA_L4", "NVIDIA_TESLA_A100",
    "NVIDIA_A100_80GB", "NVIDIA_H100_80GB", "NVIDIA_H100_MEGA_80GB", "NVIDIA_H200_141GB", "NVIDIA_B200",
)  # fmt: skip
TPU_TYPES = {
    "tpu-v2": "TPU_V2",
    "tpu-v3": "TPU_V3",
    "tpu-v4-podslice": "TPU_V4_POD",
    "tpu-v5-lite-podslice": "TPU_V5_LITEPOD",
}
"""Type of a TPU, as GKE calls it → its name on Vertex AI."""

IMPOSSIBLE = ("node_selector", "tolerations", "spot", "secrets", "annotations", "claims", "scratch_class")
"""Settings of pods; nothing on Vertex AI does what they do."""
UNUSED = (
    "deadline_hours", "kept_days", "uid", "gid", "pull_policy", "shared_memory", "scratch", "timeout_hours",
)  # fmt: skip
"""Settings that a run does without there."""


def accelerator_type(accelerator: "Accelerator", step: str) -> str:
    """Vertex AI's name of an accelerator.

    Raises:
      SettingsError: the type is not set, or Vertex AI has none of it.
    """
    # A config may have GKE's name of a type (`nvidia-l4`) or Vertex AI's (`NVIDIA_L4`).
    name = accelerator.type
    types = TPU_TYPES if accelerator.kind == "tpu" else {gpu.lower().replace("_", "-"): gpu for gpu in GPU_TYPES}
    if name in types.values():
        return name

    if name not in types:
        raise SettingsError(
            f"cluster.steps.{step}.accelerator.type is {name!r}; Vertex AI has {', '.join(types)}; set one of them"
        )
    return types[name]


def apply_limits(task: Any, step: str, own: Any) -> None:
    """Sets what Vertex AI chooses a machine by.

    Args:
      task: a KFP task.
      own: the step's `StepPlacement`.
    """
    task.set_cpu_limit(own.cpu_limit or own.cpu)
    task.set_memory_limit(own.memory_limit or own.memory)
    if own.devices:
        task.set_accelerator_type(accelerator_type(own.devices, step))
        task.set_accelerator_limit(own.devices.count)


def check_config(config: "RunConfig") -> list[str]:
    """A line for each setting that a run on Vertex AI does without.

    Raises:
      SettingsError: the config has what no pod of Vertex AI can have, or a location that it cannot see.
    """
    from voxline.pipelines.config.keys import get_key
    from voxline.pipelines.config.locations import path_keys
    from voxline.pipelines.graphs import steps_until

    # All faults at once: a person mends them in one go, before anything is uploaded.
    values = config.plain()
    faults = []
    for key in path_keys(values):
        value = get_key(values, key) or []
        places = value if isinstance(value, list) else [value]
        faults += [f"{key} is {place}, a path; give a bucket, gs://…" for place in places if "://" not in place]

    steps = steps_until(config.pipeline, optional=config.optional_steps())
    placements: dict[str, Placement] = {"cluster": config.cluster}
    placements |= {f"cluster.steps.{step}": config.cluster.steps.for_step(step) for step in steps}
    for key, placement in placements.items():
        refused = [name for name in IMPOSSIBLE if getattr(placement, name, None)]
        if key != "cluster" and placement.labels:  # those of `cluster` become the run's
            refused.append("labels")
        faults += [f"{key}.{name} is set, and Vertex AI has nothing like it; remove it" for name in refused]
        if devices := getattr(placement, "devices", None):
            accelerator_type(devices, key.rpartition(".")[2])

    if config.cluster.images.pull_secrets:
        faults.append("cluster.images.pull_secrets is set; give the service account the right to read the registry")
    if config.signing.environment():
        faults.append("signing is set, and Vertex AI mounts no key; leave it empty, and push from a run on Kubernetes")
    if not config.cluster.vertex.pipeline_root:
        faults.append("cluster.vertex.pipeline_root is not set; give a folder for artifacts, gs://bucket/artifacts")
    if faults:
        raise SettingsError("\n".join(faults))

    unused = [key for key in _changed(config, steps) if key.rpartition(".")[2] in UNUSED]
    if config.notify.addresses():
        unused.append("notify")  # a pod there does not know the id of its run
    return [f"{key} is not used on Vertex AI" for key in unused]


def _changed(config: "RunConfig", steps: list[str]) -> list[str]:
    """The keys of the section `cluster` that are not as by default."""
    from voxline.settings import changed_settings

    changed = changed_settings(type(config).example()["cluster"], config.plain()["cluster"])
    keys = [f"cluster.{key}" for key, _, _ in changed]
    return [key for key in keys if not key.startswith("cluster.steps.") or key.split(".")[2] in steps]


@dataclass(frozen=True)
class VertexProject:
    """The project that a run goes to, and the account that it runs as.

    Attributes:
      location: a region, such as europe-west4.
      pipeline_root: folder of a bucket for KFP's artifacts.
      service_account: address of the account of all pods; empty: the project's Compute Engine account.
      network: full name of a VPC network; empty: none.
      labels: of runs.
    """

    project: str
    location: str
    pipeline_root: str = ""
    service_account: str = ""
    network: str = ""
    labels: dict[str, str] | None = None

    def job(self, template: Path, name: str) -> Any:
        """A run that is not started yet: Google's `PipelineJob`, which checks the file.

        Raises:
          SettingsError: the project or the region is not set, or the client is not installed.
        """
        for key in ("project", "location"):
            if not getattr(self, key):
                raise SettingsError(f"cluster.vertex.{key} is not set; a run on Vertex AI needs it")

        # Vertex AI takes lower-case letters, digits and - alone, in the id of a job and in labels.
        with translated_errors():
            return client().PipelineJob(
                display_name=name,
                template_path=str(template),
                job_id=re.sub(r"[^a-z0-9]+", "-", f"voxline-{name}".lower()).strip("-"),
                pipeline_root=self.pipeline_root or None,
                labels={key.lower(): value.lower() for key, value in (self.labels or {}).items()},
                project=self.project,
                location=self.location,
            )

    def submit(self, template: Path, name: str, say: Callable[[str], None], *, wait: bool = False) -> None:
        """Starts a run.

        Args:
          template: the compiled pipeline.
          say: gets a line of text.
          wait: follow it until it ends.

        Raises:
          WorkError: Vertex AI refuses it; with `wait` also: it failed.
        """
        job = self.job(template, name)
        with translated_errors():
            job.submit(service_account=self.service_account or None, network=self.network or None)
        say(f"run      {name}\nid       {job.resource_name}\nsee      {job._dashboard_uri()}")
        if not wait:
            return
        with translated_errors(job):
            job.wait()
        say("succeeded")

    def schedule(self, template: Path, name: str, cron: str, zone: str, say: Callable[[str], None]) -> None:
        """Creates a schedule, or replaces the one of this name; one run at a time.

        The old one is paused first, so that two are never active at once. If this is interrupted, the same call
        repairs it.

        Args:
          cron: an expression of five fields.
          zone: the time zone in which it is read, such as Europe/Berlin.
        """
        job = self.job(template, name)
        schedules = client().PipelineJobSchedule
        with translated_errors():
            place = {"project": self.project, "location": self.location}
            replaced = schedules.list(filter=f'display_name="{name}"', **place)
            for schedule in replaced:
                if schedule.state.name == "ACTIVE":
                    schedule.pause()

            new = schedules(pipeline_job=job, display_name=name, **place)
            new.create(
                cron=f"TZ={zone} {cron}",
                max_concurrent_run_count=1,
                service_account=self.service_account or None,
                network=self.network or None,
            )

            # Deleted only now: if the new one is refused, the old ones are paused, and a person can resume them.
            for schedule in replaced:
                schedule.delete()
        say(f"schedule {name}\nid       {new.resource_name}\ncron     {cron}, read in {zone}")


def client() -> Any:
    """Google's module.

    Raises:
      SettingsError: it is not installed.
    """
    try:
        return importlib.import_module("google.cloud.aiplatform")
    except ImportError as error:
        raise SettingsError(
            f"google-cloud-aiplatform is not installed ({error}); `pip install 'voxline[vertex]'` adds it. "
            "Without it, `voxline compile --platform vertex` writes the file, which the console takes too"
        ) from None


@contextlib.contextmanager
def translated_errors(job: Any = None) -> Iterator[None]:
    """Turns what Google's client raises into errors that say what to do.

    Args:
      job: a started run; its failed task is named.
    """
    calls: Any = importlib.import_module("google.api_core.exceptions")
    login: Any = importlib.import_module("google.auth.exceptions")

    # The order matters: a ServerError is a GoogleAPICallError too.
    try:
        yield
    except login.DefaultCredentialsError as error:
        raise SettingsError(
            f"Google Cloud: no credentials ({error}); run `gcloud auth application-default login`"
        ) from None
    except (calls.ServerError, calls.TooManyRequests, calls.RetryError, login.TransportError) as error:
        raise TransientError(f"Vertex AI does not respond: {error}; run the same command again") from None
    except calls.GoogleAPICallError as error:
        raise WorkError(f"Vertex AI refuses: {error}") from None
    except ValueError as error:  # the client's own checks of names, labels and the file
        raise SettingsError(f"Vertex AI's client refuses: {error}") from None
    except RuntimeError as error:
        if job is None:
            raise

        # The client's error names one task in its text, and a task only says that it failed.
        failed = [task for task in job.task_details if task.state.name == "FAILED" and task.task_name in str(error)]
        failed = failed or [task for task in job.task_details if task.state.name == "FAILED"]
        why = f"{failed[0].task_name}: {failed[0].error.message}" if failed else str(error)
        raise WorkError(f"the run failed: {why}; see {job._dashboard_uri()}") from None

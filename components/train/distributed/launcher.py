"""What the step's own pod does where several machines train: it asks for a job, follows it, and takes it away again.

The job's name comes from the work's key. That makes the API server the one that decides whose job it is: a pod that
was started again, and another run that wants the same work, find the job instead of making a second one.
"""

import contextlib
import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from voxline.components.train.distributed.jobs import JOB_KINDS, JobOutcome, JobSpec, job_outcome
from voxline.components.train.distributed.kubernetes import JobExists, KubernetesClient, Object, own_pod_name
from voxline.components.train.distributed.pods import PodWatcher
from voxline.components.train.settings import TrainSettings
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.progress import print_status

POLL_SECONDS = 2.0
DELETE_TIMEOUT_SECONDS = 600.0
"""That a job may take to go, with all of its pods."""
STEP_CONTAINER = "main"
"""What Kubeflow Pipelines calls the container that a step runs in; others of its pods are its own."""
PERMANENT_STATUSES = (1, 2)
"""Exit statuses of a worker that would end the same way again."""


def launch_workers(key: str, dataset: str, store: str, settings: TrainSettings, finished: Callable[[], bool]) -> bool:
    """Has a job of workers do a piece of work. Returns whether there was any to do.

    Args:
      key: that names the work.
      finished: whether the store holds the result.

    Raises:
      WorkError: it cannot be done; with the words of the worker that says why.
      Interruption: it did not get done, and may be when it is tried again.
    """
    if finished():
        return False
    JobLauncher(KubernetesClient(), JobSpec(key, dataset, store, settings), finished).run()
    return True


class JobLauncher:
    """One training job, from the asking to the taking away.

    Args:
      finished: whether the store holds the result.
    """

    def __init__(
        self,
        cluster: KubernetesClient,
        task: JobSpec,
        finished: Callable[[], bool],
        *,
        poll: float = POLL_SECONDS,
    ) -> None:
        self.cluster, self.finished, self.poll = cluster, finished, poll
        self.kind = JOB_KINDS[task.settings.workers.kind]
        self.pod = cluster.pod(own_pod_name())
        self.task = dataclasses.replace(task, image=_image(self.pod))
        self.uid = ""
        self.pods = PodWatcher(cluster, self.kind, task.job)

    def run(self) -> None:
        """Returns when the work is done; raises as `launch_workers` does."""
        with _exit_on_sigterm(), self._taken_away():
            while not self.finished():
                self._ask()
                end = self._follow()
                if end is not None:
                    self._judge(end)
                    return

    def _ask(self) -> None:
        """Sees to it that the job is there and has this pod among its owners."""
        found = self._found()
        if found and job_outcome(found):
            print_status(f"train: {self.task.job} has ended before, and its work is not done; asking for it anew")
            self._remove(found)
            found = None
        while found is None:
            try:
                found = self.cluster.create(self.kind.api, self.kind.plural, self._body())
                print_status(f"train: asked for {self.task.count} workers ({found['kind']} {self.task.job})")
            except JobExists:
                found = self._found()
        self.uid = found["metadata"]["uid"]
        self._own(found)

    def _own(self, job: Object) -> None:
        owners = job["metadata"].get("ownerReferences", [])
        mine = self._owner()
        if any(owner["uid"] == mine["uid"] for owner in owners):
            return
        print_status(f"train: {self.task.job} is there already, and this pod follows it")
        change = {
            "metadata": {"resourceVersion": job["metadata"]["resourceVersion"], "ownerReferences": [*owners, mine]}
        }
        self.cluster.merge(self.kind.api, self.kind.plural, self.task.job, change)

    def _found(self) -> Object | None:
        """The job, unless it is on its way out; then none, once it is gone."""
        found = self.cluster.get(self.kind.api, self.kind.plural, self.task.job)
        if found and found["metadata"].get("deletionTimestamp"):
            self._await_gone(found["metadata"]["uid"])
            return None
        return found

    def _body(self) -> Object:
        metadata = {
            "name": self.task.job,
            "namespace": self.cluster.namespace,
            "labels": {"app.kubernetes.io/part-of": "voxline", "app.kubernetes.io/component": "train-worker"},
            "annotations": {"voxline/work": self.task.key, "voxline/store": self.task.store},
            "ownerReferences": [self._owner()],
        }
        workers = self.task.settings.workers
        template = self.cluster.get(self.kind.templates_api, self.kind.templates, workers.template)
        if template is None:
            raise SettingsError(
                f"train.workers.template is {workers.template!r}, and namespace {self.cluster.namespace} has no such "
                f"{self.kind.templates}; apply one of k8s/ (docs/cluster/multi-worker.md), and see that "
                f"{self.kind.installed_by} is installed (train.workers.kind is {workers.kind!r})"
            )
        return self.kind.body(self.task, metadata, template)

    def _owner(self) -> Object:
        metadata = self.pod["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}

    def _follow(self) -> JobOutcome | None:
        """Tells what the workers say until the job has ended; None where somebody else took it away."""
        deadline = time.monotonic() + 60 * self.task.settings.workers.start_minutes
        while True:
            job = self._found()
            if job is None or job["metadata"]["uid"] != self.uid:
                print_status(f"train: {self.task.job} was taken away")
                return None
            end = job_outcome(job)
            self.pods.tell(self.task.count)
            if end:
                return end
            if self.pods.training:
                deadline = time.monotonic() + 60 * self.task.settings.workers.start_minutes
            elif time.monotonic() > deadline:
                raise TransientError(
                    f"train: {self.task.job}: its workers were not all running within "
                    f"{self.task.settings.workers.start_minutes:g} minutes (train.workers.start_minutes)"
                    f"{self.pods.obstacles}; what was trained is kept"
                )
            time.sleep(self.poll)

    def _judge(self, end: JobOutcome) -> None:
        if end.succeeded:
            if not self.finished():
                raise WorkError(
                    f"train: the workers of {self.task.job} are done, and {self.task.store} as this pod sees it has "
                    f"not their result; mount the same volume at the same place in the template "
                    f"{self.task.settings.workers.template!r} and in this step (cluster.claims), or use a bucket"
                )
            return
        fault = self.pods.fault()
        words = f"{end.reason} {end.message}".strip()
        if fault and fault.status in PERMANENT_STATUSES:
            raise (SettingsError if fault.status == 2 else WorkError)(f"worker {fault.index}: {fault.message}")
        last = f"; worker {fault.index} ended with status {fault.status}: {fault.message}" if fault else ""
        raise TransientError(f"train: {self.task.job} failed ({words}){last}; what was trained is kept, start again")

    @contextlib.contextmanager
    def _taken_away(self) -> Iterator[None]:
        """Deletes the job however the block ends: its pods must not train on for a run that nobody waits for."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(WorkError):  # the first error is the one to tell
                self._delete()
            raise
        self._delete()

    def _delete(self) -> None:
        if self.uid:
            self.cluster.delete(self.kind.api, self.kind.plural, self.task.job, self.uid)

    def _remove(self, job: Object) -> None:
        uid = job["metadata"]["uid"]
        self.cluster.delete(self.kind.api, self.kind.plural, self.task.job, uid)
        self._await_gone(uid)

    def _await_gone(self, uid: str) -> None:
        deadline = time.monotonic() + DELETE_TIMEOUT_SECONDS
        while (job := self.cluster.get(self.kind.api, self.kind.plural, self.task.job)) is not None:
            if job["metadata"]["uid"] != uid:
                return
            if time.monotonic() > deadline:
                raise TransientError(
                    f"train: {self.task.job} was deleted {DELETE_TIMEOUT_SECONDS / 60:.0f} minutes ago and exists; "
                    f"look at its finalizers (kubectl get {self.kind.plural} {self.task.job} -o yaml)"
                )
            time.sleep(self.poll)


def _image(pod: Object) -> str:
    """What the step runs in: workers run the same code."""
    containers = pod["spec"]["containers"]
    found = next((one for one in containers if one["name"] == STEP_CONTAINER), containers[0])
    image: str = found["image"]
    return image


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Makes of SIGTERM, which a cancelled or evicted pod gets, an exit that lets the blocks around it end."""

    def stop(number: int, frame: FrameType | None) -> None:
        print_status("train: told to stop; taking the workers away")
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Launches a job of workers from the step's own pod, follows it, and deletes it.

The job is named by the key of the step's output, so the API server decides who creates it: a restarted pod, and another
run with the same key, find the job instead of creating a second one.
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

from voxline.components.train.distributed.jobs import (
    LABELS,
    TRAIN_JOB,
    JobOutcome,
    JobSpec,
    job_outcome,
    suspension,
)
from voxline.components.train.distributed.kubernetes import JobExists, KubernetesClient, Object, own_pod_name
from voxline.components.train.distributed.pods import PodWatcher
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.progress import print_status
from voxline.training.settings import TrainSettings

POLL_SECONDS = 2.0
DELETE_TIMEOUT_SECONDS = 600.0
"""How long the deletion of a job may take, and then the end of its pods."""
STEP_CONTAINER = "main"
"""Kubeflow Pipelines' name for the container that a step runs in; the pod has others."""
PERMANENT_STATUSES = (1, 2)
"""Exit statuses of a worker that would fail the same way again."""


def launch_workers(
    key: str, dataset: str, store: str, settings: TrainSettings, finished: Callable[[], bool], registry: str = ""
) -> bool:
    """Trains with a job of workers. Returns False if the result was there already.

    Args:
      key: key of the step's output.
      finished: whether the store holds the result.
      registry: that has the model to start from.

    Raises:
      WorkError: training failed; the message is that of the worker.
      TransientError: training was interrupted; a retry may succeed.
    """
    if finished():
        return False
    JobLauncher(KubernetesClient(), JobSpec(key, dataset, store, settings, registry=registry), finished).run()
    return True


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue's webhook suspends a job with this label until its queue admits it."""


class JobLauncher:
    """Creates one training job, follows it to its end, and deletes it.

    Args:
      finished: whether the store holds the result.
      poll: seconds between two looks.
      delete_seconds: in which a job is deleted, and then its pods.
    """

    def __init__(
        self,
        cluster: KubernetesClient,
        spec: JobSpec,
        finished: Callable[[], bool],
        *,
        poll: float = POLL_SECONDS,
        delete_seconds: float = DELETE_TIMEOUT_SECONDS,
    ) -> None:
        self.cluster = cluster
        self.finished = finished
        self.poll = poll
        self.delete_seconds = delete_seconds

        self.kind = TRAIN_JOB
        self.pod = cluster.pod(own_pod_name())
        self.spec = dataclasses.replace(spec, image=_image(self.pod))
        # Set once a job is created or joined: before that there is nothing to delete.
        self.uid = ""

        self.pods = PodWatcher(cluster, self.kind, spec.name)

    def run(self) -> None:
        """Returns when the result is in the store; raises as `launch_workers` does."""
        with _exit_on_sigterm(), self._delete_at_exit():
            # Again if somebody deleted the job under way: its checkpoints are in the store.
            while not self.finished():
                self._create()
                outcome = self._follow()
                if outcome is not None:
                    self._check(outcome)
                    return

    def _create(self) -> None:
        """Creates the job unless it exists, and makes this pod one of its owners."""
        job = self._find()
        if job and job_outcome(job):
            print_status(f"train: {self.spec.name} ended before without a result; creating it again")
            self._remove(job)
            job = None

        waited = 0.0  # seconds; for pods alone: `_find` may wait for a deletion, which has as much time of its own
        while job is None:
            if leftover_pods := self.cluster.pods(self.kind.selector(self.spec.name)):
                # Of a job that is gone. They end within their grace period: an old worker must not answer a new one.
                if waited > self.delete_seconds:
                    raise TransientError(
                        f"train: {self.spec.name} is gone, but its pod {leftover_pods[0]['metadata']['name']} still "
                        f"exists after {self.delete_seconds / 60:.0f} minutes; delete it (kubectl delete pod), and "
                        "start again"
                    )
                time.sleep(self.poll)
                waited += self.poll
                job = self._find()
                continue

            # Another pod with the same key may create it at the same time; the API server lets one of them.
            try:
                job = self.cluster.create(self.kind.api, self.kind.plural, self._body())
                print_status(f"train: launched {self.spec.count} workers ({job['kind']} {self.spec.name})")
            except JobExists:
                job = self._find()

        self.uid = job["metadata"]["uid"]
        self._own(job)

    def _own(self, job: Object) -> None:
        owners = job["metadata"].get("ownerReferences", [])
        this_pod = self._owner()
        if any(owner["uid"] == this_pod["uid"] for owner in owners):
            return

        # Kubernetes deletes a job when its last owner is gone. The resource version makes the API server refuse the
        # change if another pod has added itself since the job was read.
        print_status(f"train: {self.spec.name} exists already, and this pod follows it")
        change = {
            "metadata": {"resourceVersion": job["metadata"]["resourceVersion"], "ownerReferences": [*owners, this_pod]}
        }
        self.cluster.merge(self.kind.api, self.kind.plural, self.spec.name, change)

    def _find(self) -> Object | None:
        """The job; None if there is none. Waits for a job that is being deleted, and returns None."""
        job = self.cluster.get(self.kind.api, self.kind.plural, self.spec.name)
        if job and job["metadata"].get("deletionTimestamp"):
            self._await_gone(job["metadata"]["uid"])
            return None
        return job

    def _body(self) -> Object:
        queue = self.spec.settings.workers.queue

        # The annotations are for a person who finds the job: which work it is, and in which store.
        metadata = {
            "name": self.spec.name,
            "namespace": self.cluster.namespace,
            "labels": {**LABELS, **({QUEUE_LABEL: queue} if queue else {})},
            "annotations": {"voxline/work": self.spec.key, "voxline/store": self.spec.store},
            "ownerReferences": [self._owner()],
        }

        # Looked up before the job is created, for a message that says what to apply.
        workers = self.spec.settings.workers
        template = self.cluster.get(self.kind.templates_api, self.kind.templates, workers.template)
        if template is None:
            raise SettingsError(
                f"train.workers.template is {workers.template!r}, but namespace {self.cluster.namespace} has no such "
                f"{self.kind.templates}; apply one of k8s/ (docs/cluster/multi-worker.md), and check that "
                f"{self.kind.installed_by} is installed"
            )
        return self.kind.body(self.spec, metadata, template)

    def _owner(self) -> Object:
        metadata = self.pod["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}

    def _follow(self) -> JobOutcome | None:
        """Prints what the workers do until the job has ended; None if somebody else deleted the job."""
        # A job that waits in a queue, or for a machine, may do so for a while; then the step ends and can be retried.
        deadline = time.monotonic() + 60 * self.spec.settings.workers.start_minutes
        suspended = ""
        while True:
            job = self._find()
            if job is None or job["metadata"]["uid"] != self.uid:
                print_status(f"train: {self.spec.name} was deleted by somebody else")
                return None

            # The pods are read after the job and before its end is reported, so that the last lines and failures are
            # seen.
            outcome = job_outcome(job)
            self.pods.poll(self.spec.count)
            if outcome:
                return outcome

            if (why := suspension(job)) != suspended:
                suspended = why
                print_status(f"train: {self.spec.name} " + (f"is waiting: {why}" if why else "is admitted"))

            # While all workers run, the deadline moves on: it bounds each start, also that after a failure.
            if self.pods.training:
                deadline = time.monotonic() + 60 * self.spec.settings.workers.start_minutes
            elif time.monotonic() > deadline:
                reasons = (f"; {suspended}" if suspended else "") + self.pods.waiting_reasons
                raise TransientError(
                    f"train: {self.spec.name}: not all workers were running within "
                    f"{self.spec.settings.workers.start_minutes:g} minutes (train.workers.start_minutes)"
                    f"{reasons}; checkpoints are kept, start again"
                )

            time.sleep(self.poll)

    def _check(self, outcome: JobOutcome) -> None:
        if outcome.succeeded:
            if not self.finished():
                raise WorkError(
                    f"train: the workers of {self.spec.name} succeeded, but their result is not in {self.spec.store} "
                    f"as this pod sees it; mount the same volume at the same path in the template "
                    f"{self.spec.settings.workers.template!r} and in this step (cluster.claims), or use a bucket"
                )
            return

        # The operator says only that a pod failed. Why is in the pod's exit status and its last line.
        failure = self.pods.failure()
        reason = f"{outcome.reason} {outcome.message}".strip()
        if failure and failure.status in PERMANENT_STATUSES:
            raise (SettingsError if failure.status == 2 else WorkError)(f"worker {failure.index}: {failure.message}")

        last = f"; worker {failure.index} failed with status {failure.status}: {failure.message}" if failure else ""
        raise TransientError(f"train: {self.spec.name} failed ({reason}){last}; checkpoints are kept, start again")

    @contextlib.contextmanager
    def _delete_at_exit(self) -> Iterator[None]:
        """Deletes the job however the block ends: its pods must not keep training for a run that has ended."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(WorkError):  # report the first error
                self._delete()
            raise
        self._delete()

    def _delete(self) -> None:
        if self.uid:
            self.cluster.delete(self.kind.api, self.kind.plural, self.spec.name, self.uid)

    def _remove(self, job: Object) -> None:
        uid = job["metadata"]["uid"]
        self.cluster.delete(self.kind.api, self.kind.plural, self.spec.name, uid)
        self._await_gone(uid)

    def _await_gone(self, uid: str) -> None:
        deadline = time.monotonic() + self.delete_seconds
        while (job := self.cluster.get(self.kind.api, self.kind.plural, self.spec.name)) is not None:
            if job["metadata"]["uid"] != uid:
                return
            if time.monotonic() > deadline:
                raise TransientError(
                    f"train: {self.spec.name} was deleted {self.delete_seconds / 60:.0f} minutes ago and still "
                    f"exists; look at its finalizers (kubectl get {self.kind.plural} {self.spec.name} -o yaml)"
                )
            time.sleep(self.poll)


def _image(pod: Object) -> str:
    """The image of this step: workers run the same code."""
    containers = pod["spec"]["containers"]
    # A service mesh may put its own container first.
    own = next((container for container in containers if container["name"] == STEP_CONTAINER), containers[0])
    image: str = own["image"]
    return image


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM, which a canceled or evicted pod gets, into an exit that runs the cleanup of enclosing blocks."""

    def stop(number: int, frame: FrameType | None) -> None:
        print_status("train: stopping; deleting the workers")
        sys.exit(128 + number)

    # Python allows signal handlers in the main thread alone; a test may run the step in another one.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before: Any = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Follows the pods of a training job and prints what happens: why they wait, the chief's log, how they fail."""

import dataclasses
from typing import Any

from voxline.components.train.distributed.jobs import FAILURE_PREFIX
from voxline.components.train.distributed.kubernetes import KubernetesClient, Object
from voxline.progress import print_status

CHIEF = 0


@dataclasses.dataclass(frozen=True)
class WorkerFailure:
    """The failure of a worker: index, exit status, and the last line that says why."""

    index: int
    status: int
    message: str


class PodWatcher:
    """The pods of one job."""

    def __init__(self, cluster: KubernetesClient, kind: Any, job: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.selector = kind.selector(job)
        self.training = False
        self._printed: dict[str, str] = {}
        """Time of the last line printed, by uid of the chief's pod."""
        self._waiting: dict[int, str] = {}
        self._failures: dict[str, WorkerFailure] = {}
        """By uid of the pod; the pods may be gone once the job has failed."""

    def poll(self, count: int) -> None:
        """Reads the state of all pods, and prints what is new.

        Args:
          count: number of workers that the job should have.
        """
        pods = self.cluster.pods(self.selector)

        # A pod is deleted with its log when the job restarts, so failures are recorded at each look.
        for pod in sorted(pods, key=self._index):
            self._record_failure(pod)
            if self._index(pod) == CHIEF:
                self._print_log(pod)

        self._print_waiting(pods)
        self.training = sum(pod.get("status", {}).get("phase") in ("Running", "Succeeded") for pod in pods) >= count

    @property
    def waiting_reasons(self) -> str:
        """The reasons why workers do not run yet, as the end of a sentence."""
        return "".join(f"; worker {index}: {why}" for index, why in sorted(self._waiting.items()) if why)

    def failure(self) -> WorkerFailure | None:
        """The failure that ended the job: a worker's own before the loss of a peer, the latest one first."""

        # When one worker fails, the others lose it and exit too, with the status of a retry: the cause is in 1 and 2.
        # Of equal ones the lowest index counts, which is the chief's.
        failures = sorted(self._failures.values(), key=lambda failure: (failure.status in (1, 2), -failure.index))
        return failures[-1] if failures else None

    def _index(self, pod: Object) -> int:
        return int(pod["metadata"].get("labels", {}).get(self.kind.index_label, -1))

    def _record_failure(self, pod: Object) -> None:
        """Records how a worker failed, if it did."""
        ended = self._state(pod).get("terminated")
        uid = pod["metadata"]["uid"]
        if not ended or not ended["exitCode"] or uid in self._failures:
            return

        index = self._index(pod)
        status = ended["exitCode"]
        message = _last_error(ended.get("message", "")) or ended.get("reason", "")

        self._failures[uid] = WorkerFailure(index, status, message)
        print_status(f"train: worker {index} failed with status {status}: {message[:500]}")

    def _state(self, pod: Object) -> Object:
        statuses = pod.get("status", {}).get("containerStatuses", [])
        state: Object = next(
            (status.get("state", {}) for status in statuses if status["name"] == self.kind.container), {}
        )
        return state

    def _print_log(self, pod: Object) -> None:
        """Prints the new lines of the chief's log, as if this step had printed them."""
        uid = pod["metadata"]["uid"]
        name = pod["metadata"]["name"]
        if pod.get("status", {}).get("phase") not in ("Running", "Succeeded", "Failed"):
            return

        if self._printed and uid not in self._printed:  # the failures may be gone with their pods
            print_status("train: the workers restarted; they resume from the last checkpoint")

        # Times are RFC 3339 in UTC, with nanoseconds, so that text order is time order. The API may repeat the last
        # second.
        since = self._printed.setdefault(uid, "")
        for stamp, line in self.cluster.log(name, self.kind.container, since):
            if stamp > since:
                print(line, flush=True)
                self._printed[uid] = stamp

    def _print_waiting(self, pods: list[Object]) -> None:
        waiting = {self._index(pod): self._waiting_reason(pod) for pod in pods}
        for index, why in sorted(waiting.items()):
            if why and why != self._waiting.get(index):
                print_status(f"train: worker {index} is waiting: {why}")
        self._waiting = waiting

    def _waiting_reason(self, pod: Object) -> str:
        """Kubernetes' reason why a pod does not run yet; "" if it runs."""
        status = pod.get("status", {})
        if status.get("phase") != "Pending":
            return ""

        # A container that cannot start, as with ImagePullBackOff, says so itself. The two reasons left out are normal.
        state = self._state(pod).get("waiting", {})
        if state.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{state['reason']} {state.get('message', '')}".strip()[:500]

        # No node has room, or none has the GPU that the template wants.
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()[:500]
        return ""


def _last_error(log: str) -> str:
    """The reason of a worker's failure: the line that it printed, else the last line of the log that Kubernetes kept.

    >>> _last_error("noise\\n✗ dataset.json is gone\\nmore noise")
    'dataset.json is gone'
    >>> _last_error("Traceback\\nKeyError: 'x'\\n")
    "KeyError: 'x'"
    """

    # A native library may print after the worker's own line, as at the end of a process.
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    own_lines = [line.removeprefix(FAILURE_PREFIX) for line in lines if line.startswith(FAILURE_PREFIX)]
    return (own_lines or lines or [""])[-1]

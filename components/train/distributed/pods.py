"""What the pods of a training job do, told to the person who waits: their obstacles, the chief's log, their ends."""

import dataclasses
from typing import Any

from voxline.components.train.distributed.kubernetes import KubernetesClient, Object
from voxline.components.train.distributed.worker import FAILURE_PREFIX
from voxline.progress import print_status

CHIEF = 0


@dataclasses.dataclass(frozen=True)
class WorkerFailure:
    """How a worker ended that did not succeed."""

    index: int
    status: int
    message: str


class PodWatcher:
    """The pods of one job, as they come and go."""

    def __init__(self, cluster: KubernetesClient, kind: Any, job: str) -> None:
        self.cluster, self.kind, self.selector = cluster, kind, kind.selector(job)
        self.training = False
        self._read: dict[str, str] = {}
        """Uid of a chief's pod → time of the last line that was told."""
        self._waiting: dict[int, str] = {}
        self._faults: dict[str, WorkerFailure] = {}
        """By uid of the pod; the pods themselves may be gone when the job has failed."""

    def tell(self, count: int) -> None:
        """Looks at all pods, and says what is new.

        Args:
          count: workers that there are to be.
        """
        pods = self.cluster.pods(self.selector)
        for pod in sorted(pods, key=self._index):
            self._note(pod)
            if self._index(pod) == CHIEF:
                self._tell_log(pod)
        self._tell_obstacles(pods)
        self.training = sum(pod.get("status", {}).get("phase") in ("Running", "Succeeded") for pod in pods) >= count

    @property
    def obstacles(self) -> str:
        """Why workers do not run, as the end of a sentence."""
        return "".join(f"; worker {index}: {why}" for index, why in sorted(self._waiting.items()) if why)

    def fault(self) -> WorkerFailure | None:
        """What ended the job: a worker's own fault before the loss of a peer, the last one before those before it."""
        faults = sorted(self._faults.values(), key=lambda fault: (fault.status in (1, 2), -fault.index))
        return faults[-1] if faults else None

    def _index(self, pod: Object) -> int:
        return int(pod["metadata"].get("labels", {}).get(self.kind.index_label, -1))

    def _note(self, pod: Object) -> None:
        """Keeps how a worker ended."""
        ended = self._state(pod).get("terminated")
        uid = pod["metadata"]["uid"]
        if not ended or not ended["exitCode"] or uid in self._faults:
            return
        index, status = self._index(pod), ended["exitCode"]
        message = _last_error(ended.get("message", "")) or ended.get("reason", "")
        self._faults[uid] = WorkerFailure(index, status, message)
        print_status(f"train: worker {index} ended with status {status}: {message[:500]}")

    def _state(self, pod: Object) -> Object:
        statuses = pod.get("status", {}).get("containerStatuses", [])
        found: Object = next((one.get("state", {}) for one in statuses if one["name"] == self.kind.container), {})
        return found

    def _tell_log(self, pod: Object) -> None:
        """The chief's lines, as they came: progress is shown where this step's own would be."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if pod.get("status", {}).get("phase") not in ("Running", "Succeeded", "Failed"):
            return
        if self._read and uid not in self._read:  # how the ones before ended may have gone with their pods
            print_status("train: the workers were started again; they go on from the last checkpoint")
        since = self._read.setdefault(uid, "")
        for stamp, line in self.cluster.log(name, self.kind.container, since):
            if stamp > since:
                print(line, flush=True)
                self._read[uid] = stamp

    def _tell_obstacles(self, pods: list[Object]) -> None:
        waiting = {self._index(pod): self._obstacle(pod) for pod in pods}
        for index, why in sorted(waiting.items()):
            if why and why != self._waiting.get(index):
                print_status(f"train: worker {index} waits: {why}")
        self._waiting = waiting

    def _obstacle(self, pod: Object) -> str:
        """Why a pod does not run yet, in Kubernetes' words."""
        status = pod.get("status", {})
        if status.get("phase") != "Pending":
            return ""
        state = self._state(pod).get("waiting", {})
        if state.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{state['reason']} {state.get('message', '')}".strip()[:500]
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()[:500]
        return ""


def _last_error(log: str) -> str:
    """What a worker said of its end: its own line, else the last of the log that Kubernetes kept.

    >>> _last_error("noise\\n✗ dataset.json is gone\\nmore noise")
    'dataset.json is gone'
    >>> _last_error("Traceback\\nKeyError: 'x'\\n")
    "KeyError: 'x'"
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    own = [line.removeprefix(FAILURE_PREFIX) for line in lines if line.startswith(FAILURE_PREFIX)]
    return (own or lines or [""])[-1]

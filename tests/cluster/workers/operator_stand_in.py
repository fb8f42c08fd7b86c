"""A stand-in for the operators and the kubelet: pods of training jobs, each run as a process of this machine.

What Trainer and JobSet say of a TrainJob and put on its pods is recorded (tests/cluster/operators). Kubernetes' part is
imitated: JOB_COMPLETION_INDEX and HOSTNAME, the end of a job by an exit status, the last lines of a log as termination
message. Pods have no network of their own: the names by which workers find
each other become ports of this machine.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.cluster.workers.api_stand_in import Object, State, now
from voxline.components.train.distributed.worker import make_tf_config

TRAIN_JOBS = ("trainer.kubeflow.org/v1alpha1", "trainjobs")
PODS = ("v1", "pods")
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
ENDED = ("Complete", "Succeeded", "Failed")
ANSWERS = Path(__file__).resolve().parents[1] / "operators" / "answers.json"
"""Written by test_trainer.py there."""


def answered(what: str, job: str) -> Any:
    """What the operators' own code said of a job, under the name of this one."""
    recorded = json.loads(ANSWERS.read_text())
    return json.loads(json.dumps(recorded[what]).replace(recorded["job"], job))


class Operator:
    """Runs what jobs ask for, until it is closed.

    Args:
      hold: True keeps new pods pending until it is set to False.
    """

    def __init__(self, state: State, folder: Path, *, hold: bool = False, max_restarts: int = 3) -> None:
        self.state, self.folder, self.hold, self.max_restarts = state, folder, hold, max_restarts
        self.processes: dict[str, subprocess.Popen[str]] = {}
        """By the pod's uid."""
        self.generations: dict[str, int] = {}
        """Job's uid → how often its workers were started."""
        self.fault: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def kill_worker(self, job: str, index: int) -> None:
        """As if its node had gone."""
        pod = next(one for one in self._pods(job) if self._index(one) == index)
        self.processes[pod["metadata"]["uid"]].kill()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        for process in self.processes.values():
            _end(process)
        if self.fault:
            raise self.fault

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                for job in self.state.all(*TRAIN_JOBS):
                    self._reconcile(TRAIN_JOBS, job)
                self._collect_garbage()
            except Exception as fault:
                self.fault = fault
                return

    def _reconcile(self, kind: tuple[str, str], job: Object) -> None:
        name = job["metadata"]["name"]
        if job["metadata"].get("deletionTimestamp"):
            self._remove_pods(name)
            self.state.remove(*kind, name)
            return
        if any(one["type"] in ENDED for one in job.get("status", {}).get("conditions", [])):
            return
        count, container = self._wanted(kind, job)
        pods = {self._index(pod): pod for pod in self._pods(name)}
        for index in range(count):
            if index not in pods:
                pods[index] = self._make(job, index, container, kind)
            if not self.hold and pods[index]["metadata"]["uid"] not in self.processes:
                self._start(kind, job, pods[index], index, count)
        if not self.hold:
            self._look(kind, job, list(pods.values()))

    def _wanted(self, kind: tuple[str, str], job: Object) -> tuple[int, Object]:
        """How many pods, of which container."""
        if kind == TRAIN_JOBS:
            runtime = self.state.get(TRAIN_JOBS[0], "trainingruntimes", job["spec"]["runtimeRef"]["name"])
            node = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
            assert node["name"] == "node"
            container = {**node["template"]["spec"]["template"]["spec"]["containers"][0]}
            trainer = job["spec"]["trainer"]
            container.update(image=trainer["image"], command=trainer["command"], args=trainer["args"])
            return trainer["numNodes"], container
        worker = job["spec"]["tfReplicaSpecs"]["Worker"]
        assert worker["restartPolicy"] == "ExitCode"
        return worker["replicas"], worker["template"]["spec"]["containers"][0]

    def _make(self, job: Object, index: int, container: Object, kind: tuple[str, str]) -> Object:
        name = job["metadata"]["name"]
        if kind == TRAIN_JOBS:
            pod_name, host = f"{name}-node-0-{index}-{os.urandom(3).hex()}", f"{name}-node-0-{index}"
            labels = {**answered("labels", name), "batch.kubernetes.io/job-completion-index": str(index)}
        else:
            pod_name = host = f"{name}-worker-{index}"
            labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-index": str(index)}
        return self.state.put(
            *PODS,
            {
                "kind": "Pod",
                "metadata": {"name": pod_name, "labels": labels, "annotations": {"host": host, "job": name}},
                "spec": {"containers": [container]},
                "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE] if self.hold else []},
            },
        )

    def _start(self, kind: tuple[str, str], job: Object, pod: Object, index: int, count: int) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if index == 0:
            self.generations[uid] = self.generations.get(uid, 0) + 1
        environment = {**os.environ, "HOSTNAME": pod["metadata"]["annotations"]["host"]}
        for inherited in ("TF_CONFIG", "KUBECONFIG", "KFP_POD_NAME"):
            environment.pop(inherited, None)
        environment["PYTHONPATH"] = str(Path.cwd())
        environment["VOXLINE_BUCKET_CACHE"] = str(self.folder / "disks" / pod["metadata"]["uid"])  # its own, and empty
        environment["JOB_COMPLETION_INDEX"] = str(index)
        config = json.loads(make_tf_config(name, count, environment))
        ports = self._ports(f"{uid}-{self.generations[uid]}", count)
        config["cluster"]["worker"] = [f"127.0.0.1:{port}" for port in ports]
        environment["TF_CONFIG"] = json.dumps(config)
        container = pod["spec"]["containers"][0]
        command = [sys.executable if part == "python" else part for part in container["command"]]
        process = subprocess.Popen(
            [*command, *container["args"]],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.processes[pod["metadata"]["uid"]] = process
        lines = self.state.logs.setdefault(pod["metadata"]["uid"], [])
        reader = threading.Thread(target=_keep, args=(process, lines), daemon=True)
        reader.start()
        process.reader = reader  # type: ignore[attr-defined]
        pod["status"] = {
            "phase": "Running",
            "containerStatuses": [{"name": container["name"], "state": {"running": {}}}],
        }

    def _ports(self, key: str, count: int) -> list[int]:
        kept: dict[str, list[int]] = self.__dict__.setdefault("_kept_ports", {})
        if key not in kept:
            kept[key] = [_free_port() for _ in range(count)]
        return kept[key]

    def _look(self, kind: tuple[str, str], job: Object, pods: list[Object]) -> None:
        for pod in pods:
            self._note_end(pod)
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        phases = [pod["status"]["phase"] for pod in pods]
        failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
        statuses = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in failed]
        if all(phase == "Succeeded" for phase in phases):
            self._say(job, answered("trained", name))
        elif any(status in (1, 2) for status in statuses):
            self._stop_pods(pods)
            self._say(job, answered("bad data", name))
        elif failed and self.generations[uid] > self.max_restarts:
            self._say(job, answered("lost worker", name))
        elif failed:
            time.sleep(0.5)  # the step that follows may read the ends
            self._remove_pods(name)

    def _note_end(self, pod: Object) -> None:
        process = self.processes.get(pod["metadata"]["uid"])
        if process is None or process.poll() is None or pod["status"]["phase"] != "Running":
            return
        process.reader.join(10)  # type: ignore[attr-defined]
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        ended: dict[str, Any] = {"exitCode": status, "reason": "Completed" if status == 0 else "Error"}
        if status:
            last = [line for _, line in self.state.logs[pod["metadata"]["uid"]]][-80:]
            ended["message"] = "\n".join(last)[-2048:]
        pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
        pod["status"]["phase"] = "Failed" if status else "Succeeded"

    def _say(self, job: Object, conditions: list[Object]) -> None:
        with self.state.lock:
            job["status"] = {"conditions": conditions}
            self.state.changed(job)

    def _stop_pods(self, pods: list[Object]) -> None:
        for pod in pods:
            if process := self.processes.get(pod["metadata"]["uid"]):
                _end(process)

    def _collect_garbage(self) -> None:
        """As Kubernetes does with the pods of a job that is gone."""
        jobs = {job["metadata"]["name"] for job in self.state.all(*TRAIN_JOBS)}
        owners = {pod["metadata"].get("annotations", {}).get("job") for pod in self.state.all(*PODS)}
        for job in owners - jobs - {None}:
            self._remove_pods(job)

    def _remove_pods(self, job: str) -> None:
        pods = self._pods(job)
        self._stop_pods(pods)
        for pod in pods:
            self.state.remove(*PODS, pod["metadata"]["name"])

    def _pods(self, job: str) -> list[Object]:
        return [one for one in self.state.all(*PODS) if one["metadata"].get("annotations", {}).get("job") == job]

    def _index(self, pod: Object) -> int:
        labels = pod["metadata"]["labels"]
        known = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
        return int(next(labels[one] for one in known if one in labels))


def _keep(process: subprocess.Popen[str], lines: list[tuple[str, str]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append((now(), line.rstrip("\n")))


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait(10)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

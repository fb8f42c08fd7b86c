"""A training on two workers, as docs/cluster/multi-worker.md has it, by Kubeflow Trainer and JobSet in real pods."""

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.k8s.built import TRAIN_JOB, built
from tests.kubeflow.cluster import STEPS, WAIT_SECONDS, Cluster, printed_id, succeeded
from tests.kubeflow.control_plane import Object
from tests.kubeflow.operators import Operators
from tests.kubeflow.pipelines_server import NAMESPACE
from voxline.store.files import read_json

RIGHTS = {("Role", "voxline-train"), ("RoleBinding", "voxline-train"), ("TrainingRuntime", "voxline-train")}
LEAD = {"cluster__service_account": "voxline-lead", "cluster__steps__train__cpu": "100m"}
WORKERS = {**LEAD, "train__workers__count": 2, "push__limits__wer": 10}
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
WATCHED = {
    "TrainJob": "trainjobs.trainer.kubeflow.org",
    "JobSet": "jobsets.jobset.x-k8s.io",
    "Job": "jobs.batch",
    "Pod": "pods",
}


@pytest.fixture(scope="module")
def runtime(operators: Operators) -> Object:
    """What one-node and train-job have for workers, in KFP's namespace; returns the TrainingRuntime."""
    operators.require(WATCHED["TrainJob"], WATCHED["JobSet"])
    team = copy.deepcopy(built(f"overlays/one-node+{TRAIN_JOB}"))
    objects = [one for one in team if (one["kind"], one["metadata"]["name"]) in RIGHTS]
    for one in objects:
        one["metadata"]["namespace"] = NAMESPACE
        for subject in one.get("subjects", []):
            subject["namespace"] = NAMESPACE
    (runtime,) = (one for one in objects if one["kind"] == "TrainingRuntime")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    # This node may have two cores, and does not measure its disk.
    pod["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    operators.kubernetes.apply(objects)
    return runtime


class Watch:
    """Objects of the namespace, as they were at each moment since."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        kubectl = ["kubectl", "--kubeconfig", str(cluster.kubernetes.kubeconfig), "-n", NAMESPACE, "get", "-o", "json"]
        self._processes = []
        for kind, resource in WATCHED.items():
            with open(self._file(kind), "w") as output:
                self._processes.append(subprocess.Popen([*kubectl, "--watch", resource], stdout=output))

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()

    def _file(self, kind: str) -> Path:
        return self.folder / f"watched-{kind}.json"

    def states(self, kind: str) -> list[Object]:
        """Of a kind, the oldest first."""
        text, at, found = self._file(kind).read_text(), 0, []
        while (at := text.find("{", at)) >= 0:
            try:
                one, at = json.JSONDecoder().raw_decode(text, at)
            except ValueError:  # the last object is not whole yet
                break
            found.append(one)
        return found

    def conditions(self, kind: str) -> list[str]:
        """The conditions that became true, in their order."""
        seen = [
            condition["type"]
            for state in self.states(kind)
            for condition in (state.get("status") or {}).get("conditions") or []
            if condition["status"] == "True"
        ]
        return list(dict.fromkeys(seen))

    def workers(self) -> dict[str, Any]:
        """The last state of each worker's pod, by its name."""
        return {
            one["metadata"]["name"]: one for one in self.states("Pod") if JOB_SET in one["metadata"].get("labels", {})
        }


@pytest.fixture
def watch(cluster: Cluster, runtime: Object, tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(cluster, tmp_path)
    yield watch
    watch.end()


def test_two_workers_train_and_their_job_is_complete(cluster: Cluster, watch: Watch) -> None:
    before = set(cluster.volumes.glob("store/train/*/done.json"))
    ended = cluster.submit("--wait", "--poll", "1", train__seed=21, **WORKERS)
    run_id = printed_id(ended)
    log = cluster.shell("logs", run_id, "train").out
    print(log)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    assert watch.conditions("TrainJob")[-1] == "Complete", watch.conditions("TrainJob")
    assert watch.conditions("JobSet")[-1] == "Completed", watch.conditions("JobSet")
    print({kind: watch.conditions(kind) for kind in ("TrainJob", "JobSet", "Job")})
    workers = watch.workers().values()
    assert sorted(one["metadata"]["labels"][INDEX] for one in workers) == ["0", "1"]
    assert {one["spec"]["containers"][0]["image"] for one in workers} == {"voxline/model:1"}
    (done,) = set(cluster.volumes.glob("store/train/*/done.json")) - before
    assert read_json(done)["metrics"]["dev_wer"] >= 0
    left = cluster.kubernetes.read(WATCHED["TrainJob"], "-n", NAMESPACE)["items"]
    assert not left, "the step deletes its job"


def test_all_workers_start_again_when_one_is_lost(cluster: Cluster, watch: Watch) -> None:
    """JobSet starts all of them again, and they resume from the last checkpoint."""
    long = {"train__epochs": 30, "train__checkpoint_steps": 1}
    run_id = cluster.start(**WORKERS, **long, train__seed=31)
    servers = cluster.kubernetes.servers
    servers.wait(lambda: _chief_log(cluster).count(", dev loss ") >= 2, "the second epoch", WAIT_SECONDS)
    lost = next(one for one in watch.workers().values() if one["status"]["phase"] == "Running")
    killed = ("delete", "pod", lost["metadata"]["name"], "-n", NAMESPACE, "--grace-period=0", "--force")
    assert not cluster.kubernetes.kubectl(*killed).returncode
    servers.wait(lambda: "resuming from the checkpoint of step" in _chief_log(cluster), "the restart", WAIT_SECONDS)
    print(cluster.wait_for(run_id, "train", "succeeded"))
    log = cluster.shell("logs", run_id, "train").out
    print(log)
    assert "the workers restarted; they resume from the last checkpoint" in log
    assert max((one.get("status") or {}).get("restarts", 0) for one in watch.states("JobSet")) == 1
    assert watch.conditions("TrainJob")[-1] == "Complete", watch.conditions("TrainJob")
    name = lost["metadata"]["labels"][JOB_SET]
    assert len([one for one in watch.workers().values() if one["metadata"]["labels"][JOB_SET] == name]) == 4
    cluster.cancel(run_id)


def _chief_log(cluster: Cluster) -> str:
    """What the chief of the only job has printed."""
    chief = ("-l", f"{INDEX}=0,app.kubernetes.io/component=train-worker", "--tail=-1")
    return cluster.kubernetes.kubectl("logs", "-n", NAMESPACE, *chief).stdout

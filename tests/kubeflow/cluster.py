"""The `voxline` command on a real Kubeflow: it submits a tiny pipeline, and this reads what happens to it."""

import os
import re
import time
from pathlib import Path
from typing import Any

from tests.cluster.conftest import Ended, Shell
from tests.cluster.kfp_runs import REAL_ANSWERS, real_answers
from tests.kubeflow.control_plane import Kubernetes
from tests.kubeflow.pipelines_server import HOST, NAMESPACE
from tests.pipelines.conftest import CONFIG
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.cluster.run_steps import read_workflow
from voxline.store.files import write_json

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["ingest", "convert", "validate", "extract", "train", "evaluate", "push"]
WAIT_SECONDS = 900.0
NODE_FIELDS = {"id", "name", "type", "phase", "message", "startedAt", "finishedAt", "templateName"}
ONE_NODE = str(ROOT / "configs/cluster/one-node.yaml")
REFUSED = {"name": "refused", "validate__small_splits": "{severity: error, threshold: 0}"}
"""Settings with which validate refuses the corpus."""
ACCOUNT = "cluster.service_account=voxline-train"


class Cluster:
    """Types `voxline submit asr` with a tiny config on the overlay `one-node`."""

    def __init__(self, shell: Shell, volumes: Path, kubernetes: Kubernetes) -> None:
        self.shell, self.volumes, self.kubernetes = shell, volumes, kubernetes
        (shell.folder / "tiny.yaml").write_text(CONFIG.format(corpus="/mnt/store/corpora/LibriSpeech"))

    def submit(self, *arguments: str, **settings: Any) -> Ended:
        given = [ACCOUNT, *(f"{name.replace('__', '.')}={value}" for name, value in settings.items())]
        sets = [part for one in given for part in ("--set", one)]
        ended = self.shell("submit", "asr", "--config", "tiny.yaml", "--config", ONE_NODE, *arguments, *sets)
        print(ended.out, ended.err)
        return ended

    def compile(self) -> Path:
        """The file that `submit` uploads."""
        file = self.shell.folder / "asr.yaml"
        ended = self.shell(
            "compile", "asr", "--config", "tiny.yaml", "--config", ONE_NODE, "--set", ACCOUNT, "--output", str(file)
        )
        assert ended.status == 0, ended.err
        return file

    def start(self, **settings: Any) -> str:
        """Submits without waiting. Returns the run's id."""
        ended = self.submit(**settings)
        assert ended.status == 0, ended.err
        return printed_id(ended)

    def last_success(self) -> str:
        """The id of the last run that succeeded."""
        workflows = self.kubernetes.read("workflows.argoproj.io", "-n", NAMESPACE)["items"]
        done = [one for one in workflows if one["status"].get("phase") == "Succeeded"]
        last = max(done, key=lambda one: one["metadata"]["creationTimestamp"])
        return str(last["metadata"]["labels"]["pipeline/runid"])

    def versions(self) -> list[str]:
        """Of the model in the registry."""
        registry = self.volumes / "registry" / "asr"
        return sorted(path.name for path in registry.iterdir() if path.name.isdigit())

    def cancel(self, run_id: str) -> None:
        ended = self.shell("cancel", run_id)
        assert ended.status == 0, ended.err
        self.wait_for(run_id, "", "canceled")

    def status(self, run_id: str) -> dict[str, str]:
        """Step → its line; the run's own is under ""."""
        first, *lines = self.shell("status", run_id).out.splitlines()
        return {"": first, **{line.split()[0]: line for line in lines if line.split()}}

    def record(self, name: str, run_id: str) -> None:
        """Writes what the server answers about a run for tests/cluster, if VOXLINE_WRITE_GOLDEN is set."""
        if not os.environ.get("VOXLINE_WRITE_GOLDEN"):
            return
        server = KfpServer(KfpEndpoint(HOST))
        workflow, run = read_workflow(server, run_id), server.get(f"/apis/v2beta1/runs/{run_id}")
        assert workflow is not None
        metadata, status = workflow["metadata"], workflow["status"]
        nodes = {
            key: {field: node[field] for field in NODE_FIELDS & node.keys()} for key, node in status["nodes"].items()
        }
        annotations = {key: text for key, text in metadata["annotations"].items() if key.endswith("pod-name-format")}
        details = [
            {field: one.get(field) for field in ("display_name", "state", "start_time", "end_time")}
            for one in run["run_details"]["task_details"]
        ]
        kept = {
            "metadata": {"name": metadata["name"], "annotations": annotations},
            "spec": {"activeDeadlineSeconds": workflow["spec"].get("activeDeadlineSeconds")},
            "status": {"phase": status.get("phase"), "message": status.get("message"), "nodes": nodes},
        }
        answers = {**real_answers(), name: {"workflow": kept, "task_details": details, "state": run["state"]}}
        write_json(REAL_ANSWERS, answers)

    def pods(self, run_id: str, step: str) -> list[dict[str, Any]]:
        selector = f"pipeline/runid={run_id},app.kubernetes.io/component={step}"
        return list(self.kubernetes.read("pods", "-n", NAMESPACE, "-l", selector)["items"])

    def running_pod(self, run_id: str, step: str, other_than: str = "") -> dict[str, Any]:
        """Waits until a container of the step runs, in another pod than the one with a uid. Returns the pod."""
        self.wait_for(run_id, step, "running")  # from its driver on
        end = time.monotonic() + WAIT_SECONDS
        while True:
            for pod in self.pods(run_id, step):
                states = {one["name"]: one["state"] for one in pod["status"].get("containerStatuses", [])}
                if "running" in states.get("main", {}) and pod["metadata"]["uid"] != other_than:
                    return pod
            assert time.monotonic() < end, self.status(run_id)
            time.sleep(0.5)

    def wait_for(self, run_id: str, step: str, words: str, seconds: float = WAIT_SECONDS) -> str:
        """Waits until the line of a step has these words. Returns it."""
        end, line = time.monotonic() + seconds, ""
        while words not in line:
            assert time.monotonic() < end, (words, self.status(run_id))
            time.sleep(1)
            line = self.status(run_id).get(step, "")
        return line


def printed_id(submitted: Ended) -> str:
    return next(line.split()[1] for line in submitted.out.splitlines() if line.startswith("id "))


def succeeded(printed: str) -> list[str]:
    return [line.split()[0] for line in printed.splitlines() if re.match(r"\w+ +succeeded ", line)]

"""A namespace to train in: a stand-in of the API server with the Roles of k8s/, templates, and a dataset of tones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.workers.api_stand_in import ApiServer
from tests.cluster.workers.operator_stand_in import PODS, Operator
from tests.training.tones import make_utterances, tiny_asr_settings, write_dataset
from voxline.data.dataset import Dataset
from voxline.families.asr.settings import AsrTrainSettings

collect_ignore_glob = [] if os.environ.get("VOXLINE_TEST_CLUSTER") else ["test_*.py"]
K8S = Path(__file__).resolve().parents[3] / "k8s"
POD = "asr-nightly-train-1234"
IMAGE = "registry.example/model:0123abc"


class Namespace:
    """What the step's pod sees of the cluster, and what its operators do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ApiServer([K8S / "base" / "roles.yaml"], "voxline-train")
        self.state = self.server.state
        template = yaml.safe_load((K8S / "base" / "worker-template.yaml").read_text())
        runtime = yaml.safe_load((K8S / "components" / "train-job" / "runtime.yaml").read_text())
        node = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
        node["template"]["spec"]["template"] = template["template"]  # as kustomize puts it there
        self.state.put("trainer.kubeflow.org/v1alpha1", "trainingruntimes", runtime)
        self.add_pod(POD)
        self.operator: Operator | None = None
        self.launchers: list[subprocess.Popen[str]] = []

    def add_pod(self, name: str) -> None:
        containers = [{"name": "wait", "image": "argoexec:v3"}, {"name": "main", "image": IMAGE}]
        metadata = {"name": name, "labels": {}}
        body = {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Running"}}
        self.state.put(*PODS, body)

    def operate(self, **how: Any) -> Operator:
        self.operator = Operator(self.state, self.folder, **how)
        return self.operator

    def launch(
        self, dataset: str, settings: AsrTrainSettings, log: Path, pod: str = POD, store: str = ""
    ) -> "subprocess.Popen[str]":
        environment = {
            **os.environ,
            "VOXLINE_BUCKET_CACHE": str(self.folder / "disks" / f"{pod}-{log.name}"),
            "KUBECONFIG": str(self.server.kubeconfig(self.folder / "kubeconfig")),
            "KFP_POD_NAME": pod,
            "PYTHONPATH": str(K8S.parent),
        }
        command = [
            sys.executable,
            str(Path(__file__).with_name("launch_process.py")),
            dataset,
            store or str(self.folder / "store"),
        ]
        with open(log, "w") as output:
            process = subprocess.Popen(
                [*command, settings.model_dump_json()],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.launchers.append(process)
        return process

    def jobs(self, plural: str = "trainjobs") -> list[dict[str, Any]]:
        api = {"trainjobs": "trainer.kubeflow.org/v1alpha1"}[plural]
        return self.state.all(api, plural)

    def close(self) -> None:
        for process in self.launchers:
            process.kill()
            process.wait()
        try:
            if self.operator:
                self.operator.close()
        finally:
            self.server.close()


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    made = Namespace(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("tones") / "dataset", make_utterances(96, 16))


def worker_settings(**changes: Any) -> AsrTrainSettings:
    """Settings that two workers train by."""
    workers = {"count": 2, **changes.pop("workers", {})}
    return tiny_asr_settings(**{"epochs": 2, "strategy": "auto", "workers": workers, **changes})

"""The operators of the tests: those of a given cluster, or Kubeflow Trainer and JobSet as processes of the test.

The processes have the rights of their own accounts. Their manifests are applied as they are, without their Deployments,
and with webhooks that the API server finds by the address of the process.
"""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.k8s.fetched import module
from tests.cluster.operators.sources import TRAINER
from tests.kubeflow.control_plane import SERVICES, ControlPlane, Kubernetes, Object, documents
from tests.kubeflow.given import program
from tests.kubeflow.processes import answers

JOB_SET = "sigs.k8s.io/jobset@v0.10.1"
NOT_APPLIED = ("Deployment", "PersistentVolumeClaim")
TRAINER_NAMESPACE = "kubeflow-system"


class Operators:
    """The operators of a cluster that is given. Skips the test where the cluster lacks the kinds it needs."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes

    def require(self, *kinds: str) -> None:
        """Skips the test unless the cluster serves these kinds, such as `trainjobs.trainer.kubeflow.org`."""
        absent = [kind for kind in kinds if self.kubernetes.kubectl("get", f"crd/{kind}").returncode]
        if absent:
            pytest.skip(f"the cluster does not serve {', '.join(absent)}: install its operator")


class StartedOperators(Operators):
    """Trainer and JobSet of the programs that are given."""

    kubernetes: ControlPlane

    def __init__(self, kubernetes: Kubernetes) -> None:
        assert isinstance(kubernetes, ControlPlane)
        self.kubernetes = kubernetes
        self.servers = kubernetes.servers
        self.folder = kubernetes.folder / "operators"
        self._certificates = Path("/run/operators")  # of this mount namespace, and not below /tmp

    def start(self) -> None:
        """Starts all, and returns once their webhooks answer."""
        self.folder.mkdir()
        self._certificates.mkdir()
        for source, name in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
            shutil.copy(self.kubernetes.folder / source, self._certificates / name)
        self._start_job_set()
        self._start_trainer()

    def _start_job_set(self) -> None:
        self._apply(_kustomize(module(JOB_SET) / "config/default"), 9444)
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
            "webhook": {"port": 9444, "certDir": str(self._certificates)},
        }  # fmt: skip
        self.servers.start(
            "jobset", program("jobset"), "--config", self._write("jobset.yaml", configuration),
            "--metrics-bind-address=0", "--health-probe-bind-address=:8092",
            KUBECONFIG=str(self.kubernetes.account_kubeconfig("jobset-system", "jobset-controller-manager")),
        )  # fmt: skip
        self.servers.wait(lambda: answers(f"http://{SERVICES}:8092/readyz"), "JobSet")

    def _start_trainer(self) -> None:
        base = module(TRAINER) / "manifests/base"
        objects: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TRAINER_NAMESPACE}}]
        for part in ("crds", "rbac", "webhook"):
            objects += _kustomize(base / part)
        for one in objects:
            for subject in one.get("subjects", []):
                subject["namespace"] = TRAINER_NAMESPACE
            if one["kind"] == "ServiceAccount":
                one["metadata"]["namespace"] = TRAINER_NAMESPACE
        self._apply(objects, 9443)
        (configuration,) = documents((base / "manager/controller_manager_config.yaml").read_text())
        configuration["certManagement"] = {"enable": False}
        configuration["leaderElection"] = {**configuration["leaderElection"], "leaderElect": False}
        configuration["metrics"] = {"bindAddress": "0"}
        configuration["health"]["healthProbeBindAddress"] = ":8091"
        temporary = self._certificates / "trainer"  # its library looks for certificates below the folder of such files
        (temporary / "k8s-webhook-server").mkdir(parents=True)
        (temporary / "k8s-webhook-server/serving-certs").symlink_to(self._certificates)
        account = "kubeflow-trainer-controller-manager"
        self.servers.start(
            "trainer", program("trainer"), "--config", self._write("trainer.yaml", configuration),
            KUBECONFIG=str(self.kubernetes.account_kubeconfig(TRAINER_NAMESPACE, account)), TMPDIR=str(temporary),
        )  # fmt: skip
        self.servers.wait(lambda: answers(f"http://{SERVICES}:8091/readyz"), "Kubeflow Trainer")

    def _apply(self, objects: list[Object], port: int) -> None:
        """Applies an operator's manifests; its webhooks are at a port."""
        authority = base64.b64encode((self.kubernetes.folder / "server.crt").read_bytes()).decode()
        for one in objects:
            for hook in one.get("webhooks", []):
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": f"https://{SERVICES}:{port}{path}", "caBundle": authority}
        kept = [one for one in objects if one["kind"] not in NOT_APPLIED]
        order = ("Namespace", "CustomResourceDefinition")
        self.kubernetes.apply([one for one in kept if one["kind"] in order])
        self.kubernetes.apply([one for one in kept if one["kind"] not in order])

    def _write(self, name: str, content: Object) -> Path:
        file = self.folder / name
        file.write_text(yaml.safe_dump(content))
        return file


def _kustomize(folder: Path) -> list[Object]:
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return list(documents(done.stdout))

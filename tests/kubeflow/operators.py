"""Kubeflow Trainer with JobSet, and Katib: their own controllers, as processes with the rights of their own accounts.

Their manifests are applied as they are, without their Deployments, and with webhooks that the API server finds by the
address of the process. Katib's service for TPE, and its collector, run in pods, from images made here.
"""

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.cluster.k8s.fetched import TOOLS, module
from tests.cluster.operators.sources import KATIB, TRAINER
from tests.kubeflow.control_plane import SERVICES, Kubernetes, Object, documents
from tests.kubeflow.node import Node
from tests.kubeflow.processes import answers

JOB_SET = "sigs.k8s.io/jobset@v0.10.1"
PACKAGES = {
    "trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
    "jobset": "sigs.k8s.io/jobset",
    "katib-controller": "github.com/kubeflow/katib/cmd/katib-controller/v1beta1",
    "katib-db-manager": "github.com/kubeflow/katib/cmd/db-manager/v1beta1",
    "katib-collector": "github.com/kubeflow/katib/cmd/metricscollector/v1beta1/file-metricscollector",
}
SOURCES = Path(__file__).with_name("operators_build")
HYPEROPT = TOOLS / "hyperopt"
HYPEROPT_PACKAGES = ("hyperopt==0.2.5", "future==1.0.0", "cloudpickle==0.5.6", "setuptools==75.8.0")
"""As Katib's image has it; what else it needs is in this environment."""
COLLECTOR_IMAGE, SUGGESTION_IMAGE = "katib/collector:1", "katib/suggestion-hyperopt:1"
NO_DISK = {"ephemeral-storage": "-1"}
RESOURCES = {"requests": NO_DISK, "limits": {"cpu": "1", "memory": "500Mi", **NO_DISK}}
"""Of Katib's pods: -1 asks for none, as this node does not measure its disk."""
NOT_APPLIED = ("Deployment", "PersistentVolumeClaim")
TRAINER_NAMESPACE, KATIB_NAMESPACE = "kubeflow-system", "kubeflow"


def binary(name: str) -> Path:
    return TOOLS / "operators" / name


def build() -> str:
    """Builds what is not there yet. Returns why it cannot be, or ""."""
    environment = {
        **os.environ,
        "GOMODCACHE": str(TOOLS / "modules"),
        "GOCACHE": str(TOOLS / "cache"),
        "GOFLAGS": "-modcacherw -mod=readonly",
        "GOSUMDB": "off",  # every hash is in go.sum
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    for name, package in PACKAGES.items():
        if binary(name).is_file():
            continue
        print(f"test-kubeflow: building {name}", flush=True)
        partial = binary(f"{name}.partial")
        command = ["nice", "go", "build", "-ldflags", "-s -w", "-o", str(partial), package]
        done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{name} cannot be built: {done.stderr.strip()[-500:]}"
        partial.rename(binary(name))
    return _install_hyperopt()


def _install_hyperopt() -> str:
    if HYPEROPT.is_dir():
        return ""
    partial = HYPEROPT.with_name("hyperopt.partial")
    shutil.rmtree(partial, ignore_errors=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", str(partial)]
    done = subprocess.run([*install, *HYPEROPT_PACKAGES], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        return f"Hyperopt cannot be installed: {done.stderr.strip()[-300:]}"
    partial.rename(HYPEROPT)
    return ""


def missing() -> str:
    """What is not there to run the operators; "" where nothing is."""
    absent = [file.name for file in (*(binary(name) for name in PACKAGES), HYPEROPT) if not file.exists()]
    return f"no {', '.join(absent)}; `python -m tests.kubeflow.build` makes them" if absent else ""


class Operators:
    """Running operators.

    Args:
      node: for the images of Katib's pods.
    """

    def __init__(self, kubernetes: Kubernetes, node: Node) -> None:
        self.kubernetes, self.servers, self.node = kubernetes, kubernetes.servers, node
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
        self._start_katib()

    def _start_job_set(self) -> None:
        self._apply(_kustomize(module(JOB_SET) / "config/default"), 9444)
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
            "webhook": {"port": 9444, "certDir": str(self._certificates)},
        }  # fmt: skip
        self.servers.start(
            "jobset", binary("jobset"), "--config", self._write("jobset.yaml", configuration),
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
            "trainer", binary("trainer"), "--config", self._write("trainer.yaml", configuration),
            KUBECONFIG=str(self.kubernetes.account_kubeconfig(TRAINER_NAMESPACE, account)), TMPDIR=str(temporary),
        )  # fmt: skip
        self.servers.wait(lambda: answers(f"http://{SERVICES}:8091/readyz"), "Kubeflow Trainer")

    def _start_katib(self) -> None:
        """With a security context for its collector, as docs/search.md says for pods that are `restricted`."""
        sources = module(KATIB)
        objects = _kustomize(sources / "manifests/v1beta1/installs/katib-standalone")
        (config_map,) = (one for one in objects if one["metadata"]["name"] == "katib-config")
        configuration = yaml.safe_load(config_map["data"]["katib-config.yaml"])
        configuration["init"]["certGenerator"]["enable"] = False
        controller = {"metricsAddr": ":8093", "healthzAddr": ":8094", "injectSecurityContext": True}
        configuration["init"]["controller"] |= controller
        own = {"imagePullPolicy": "Never", "resources": RESOURCES}
        for one in configuration["runtime"]["metricsCollectors"]:
            if one["kind"] == "StdOut":
                one |= {"image": COLLECTOR_IMAGE, **own}
        for one in configuration["runtime"]["suggestions"]:
            if "hyperopt" in one["image"]:
                one |= {"image": SUGGESTION_IMAGE, **own}
        config_map["data"]["katib-config.yaml"] = yaml.safe_dump(configuration)
        self._apply(objects, 8443)
        self._import_images(sources)
        self.servers.start(
            "katib-db-manager", binary("katib-db-manager"), DB_NAME="mysql", DB_PASSWORD="", DB_USER="root",
            KATIB_MYSQL_DB_HOST=SERVICES, KATIB_MYSQL_DB_PORT="3306", KATIB_MYSQL_DB_DATABASE="katib",
        )  # fmt: skip
        # Its certificates are in /tmp/cert, so it gets a /tmp of its own.
        place = self._certificates / "katib"
        place.mkdir()
        config = place / "katib-config.yaml"
        config.write_text(config_map["data"]["katib-config.yaml"])
        kubeconfig = self.kubernetes.account_kubeconfig(KATIB_NAMESPACE, "katib-controller")
        text = kubeconfig.read_text().replace(str(self.kubernetes.folder / "server.crt"), f"{place.parent}/tls.crt")
        (place / "kubeconfig").write_text(text)
        script = 'mount -t tmpfs tmpfs /tmp && ln -s "$1" /tmp/cert && shift && exec "$@"'
        self.servers.start(
            "katib-controller", "unshare", "--mount", "sh", "-c", script, "sh", self._certificates,
            self._copied("katib-controller"), f"--katib-config={config}", KUBECONFIG=str(place / "kubeconfig"),
            KATIB_CORE_NAMESPACE=KATIB_NAMESPACE,
        )  # fmt: skip
        self.servers.wait(lambda: answers(f"http://{SERVICES}:8094/readyz"), "Katib")

    def _copied(self, name: str) -> Path:
        """A binary where a process without this /tmp finds it."""
        return Path(shutil.copy(binary(name), self._certificates / name))

    def _import_images(self, sources: Path) -> None:
        collector = {"/bin/collector": binary("katib-collector")}
        self.node.import_image((COLLECTOR_IMAGE,), collector, entry=("/bin/collector",))
        service = "/opt/katib/cmd/suggestion/hyperopt/v1beta1"
        contents = {f"/opt/katib/{part}": sources / part for part in ("pkg/apis", "pkg/suggestion")}
        contents |= {service: sources / "cmd/suggestion/hyperopt/v1beta1", "/opt/hyperopt": HYPEROPT}
        generated = [f"/opt/katib/pkg/apis/manager/{one}/python" for one in ("v1beta1", "health")]
        environment = (f"PYTHONPATH={':'.join(['/opt/hyperopt', '/opt/katib', *generated])}", "HOME=/tmp")
        entry = ("python", "-u", f"{service}/main.py")
        self.node.import_image((SUGGESTION_IMAGE,), contents, entry=entry, links=True, environment=environment)

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

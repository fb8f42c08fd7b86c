"""A real Kubeflow in this process' own namespaces. Only `make test-kubeflow` collects these tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shell
from tests.kubeflow.build import missing_api, missing_cluster, missing_node
from tests.kubeflow.cluster import Cluster
from tests.kubeflow.control_plane import Kubernetes, Object, documents
from tests.kubeflow.node import Node
from tests.kubeflow.operators import Operators
from tests.kubeflow.operators import missing as missing_operators
from tests.kubeflow.pipelines_server import HOST, NAMESPACE, PipelinesServer
from tests.kubeflow.processes import Servers
from voxline.components.demo_corpus.settings import DemoCorpusSettings
from voxline.components.demo_corpus.step import run as generate

ROOT = Path(__file__).resolve().parents[2]
if not os.environ.get("VOXLINE_TEST_KUBEFLOW"):
    collect_ignore_glob = ["test_*"]


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelinesServer]:
    """Kubeflow Pipelines; without Kubernetes behind it where that is not built."""
    if what := missing_api():
        pytest.skip(what)
    kept = os.environ.get("VOXLINE_KUBEFLOW_LOGS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("kubeflow")
    folder.mkdir(parents=True, exist_ok=True)
    with Servers(folder) as servers:
        kubernetes = Kubernetes(servers)
        kubernetes.prepare()
        server = PipelinesServer(kubernetes)
        if missing_cluster():
            server.start_api()
        else:
            server.start()
        yield server


@pytest.fixture(scope="session")
def kubernetes(pipelines: PipelinesServer) -> Kubernetes:
    """The control plane on which `pipelines` starts runs."""
    if what := missing_cluster():
        pytest.skip(what)
    return pipelines.kubernetes


@pytest.fixture(scope="session")
def volumes(kubernetes: Kubernetes) -> Path:
    """Applies k8s/overlays/standalone. Returns the folder of its two volumes, `store` and `registry`."""
    folder = kubernetes.folder / "volumes"
    built = ["kubectl", "kustomize", str(ROOT / "k8s/overlays/standalone")]
    done = subprocess.run(built, capture_output=True, text=True, check=True)
    objects = [one for one in documents(done.stdout) if one["kind"] != "Deployment"]  # serving has an image of its own
    for claim in [one for one in objects if one["kind"] == "PersistentVolumeClaim"]:
        name = claim["metadata"]["name"]
        place = folder / name.removeprefix("voxline-")
        place.mkdir(parents=True)
        place.chmod(0o777)
        objects.append(_volume(name, place, claim))
    kubernetes.apply(objects)
    return folder


def _volume(name: str, place: Path, claim: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "hostPath": {"path": str(place)},
            "claimRef": {"namespace": NAMESPACE, "name": name},
        },
    }


@pytest.fixture(scope="session")
def node(kubernetes: Kubernetes) -> Iterator[Node]:
    """A node on which pods run, from the first test on that asks for it."""
    if what := missing_node():
        pytest.skip(what)
    node = Node(kubernetes)
    node.start()
    yield node
    kubernetes.servers.end("kubelet")
    node.end_containers()
    kubernetes.servers.end("containerd")
    node.remove_cgroups()


@pytest.fixture(scope="session")
def operators(kubernetes: Kubernetes, node: Node) -> Operators:
    """Trainer, JobSet and Katib, from the first test on that asks for them."""
    if what := missing_operators():
        pytest.skip(what)
    running = Operators(kubernetes, node)
    running.start()
    return running


@pytest.fixture
def shell(
    tmp_path: Path, pipelines: PipelinesServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """The `voxline` command, in a home of its own."""
    (tmp_path / "home").mkdir()
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "KF_PIPELINES_ENDPOINT": HOST,
        "KUBECONFIG": str(pipelines.kubernetes.kubeconfig),
        "VOXLINE_IMAGE_REGISTRY": "voxline",
        "VOXLINE_IMAGE_TAG": "1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("VOXLINE_KFP_TOKEN", "VOXLINE_KFP_TOKEN_FILE", "VOXLINE_KFP_NAMESPACE", "VOXLINE_KFP_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


@pytest.fixture(scope="session")
def corpus(volumes: Path) -> None:
    """A corpus on the volume of the store."""
    chosen = DemoCorpusSettings.of(
        train_speakers=2, dev_speakers=1, test_speakers=1, utterances_per_speaker=10, dev_utterances_per_speaker=4
    )
    generate(volumes / "store" / "corpora", chosen)


@pytest.fixture
def cluster(shell: Shell, volumes: Path, pipelines: PipelinesServer, corpus: None, node: Node) -> Cluster:
    return Cluster(shell, volumes, pipelines.kubernetes)

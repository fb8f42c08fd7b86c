"""The Kubeflow that is given. Only `make test-kubeflow` collects these tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shell
from tests.kubeflow import given
from tests.kubeflow.cluster import Cluster
from tests.kubeflow.control_plane import ControlPlane, Kubernetes, Object, documents
from tests.kubeflow.node import Node, StartedNode
from tests.kubeflow.operators import Operators, StartedOperators
from tests.kubeflow.pipelines_server import HOST, NAMESPACE, PipelinesServer, StartedPipelines
from tests.kubeflow.processes import Servers
from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate

ROOT = Path(__file__).resolve().parents[2]
if not os.environ.get("VOXLINE_TEST_KUBEFLOW"):
    collect_ignore_glob = ["test_*"]


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelinesServer]:
    """Kubeflow Pipelines; without Kubernetes behind it where that is not given."""
    if what := given.missing_api():
        pytest.skip(what)
    kept = os.environ.get("VOXLINE_KUBEFLOW_LOGS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("kubeflow")
    folder.mkdir(parents=True, exist_ok=True)
    with Servers(folder) as servers:
        if given.ENDPOINT:
            yield PipelinesServer(Kubernetes(servers, Path(given.KUBECONFIG or folder / "kubeconfig").resolve()))
            return
        control_plane = ControlPlane(servers)
        control_plane.prepare()
        server = StartedPipelines(control_plane)
        if given.missing_cluster():
            server.start_api()
        else:
            server.start()
        yield server


@pytest.fixture(scope="session")
def kubernetes(pipelines: PipelinesServer) -> Kubernetes:
    """The cluster on which `pipelines` starts runs."""
    if what := given.missing_cluster():
        pytest.skip(what)
    return pipelines.kubernetes


@pytest.fixture(scope="session")
def volumes(kubernetes: Kubernetes) -> Path:
    """Applies k8s/overlays/standalone. Returns the folder of its two volumes, `store` and `registry`."""
    folder = Path(given.VOLUMES).resolve() if given.VOLUMES else kubernetes.folder / "volumes"
    built = ["kubectl", "kustomize", str(ROOT / "k8s/overlays/standalone")]
    done = subprocess.run(built, capture_output=True, text=True, check=True)
    objects = [one for one in documents(done.stdout) if one["kind"] != "Deployment"]  # serving has an image of its own
    for claim in [one for one in objects if one["kind"] == "PersistentVolumeClaim"]:
        name = claim["metadata"]["name"]
        place = folder / name.removeprefix("voxline-")
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        claim["spec"]["storageClassName"] = ""  # a cluster's default class would make another volume for the claim
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
    if what := given.missing_node():
        pytest.skip(what)
    node = Node(kubernetes) if given.ENDPOINT else StartedNode(kubernetes)
    node.start()
    yield node
    node.end()


@pytest.fixture(scope="session")
def operators(kubernetes: Kubernetes, node: Node) -> Operators:
    """Trainer and JobSet, from the first test on that asks for them."""
    if what := given.missing_operators():
        pytest.skip(what)
    if given.ENDPOINT:
        return Operators(kubernetes)
    started = StartedOperators(kubernetes)
    started.start()
    return started


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
        "VOXLINE_IMAGE_REGISTRY": os.environ.get("VOXLINE_IMAGE_REGISTRY", "voxline"),
        "VOXLINE_IMAGE_TAG": os.environ.get("VOXLINE_IMAGE_TAG", "1"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("VOXLINE_KFP_TOKEN", "VOXLINE_KFP_TOKEN_FILE", "VOXLINE_KFP_NAMESPACE", "VOXLINE_KFP_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


@pytest.fixture(scope="session")
def corpus(volumes: Path) -> None:
    """A corpus on the volume of the store."""
    chosen = corpus_settings(
        train_speakers=2, dev_speakers=1, test_speakers=1, utterances_per_speaker=10, dev_utterances_per_speaker=4
    )
    generate(volumes / "store" / "corpora", chosen)


@pytest.fixture
def cluster(shell: Shell, volumes: Path, pipelines: PipelinesServer, corpus: None, node: Node) -> Cluster:
    return Cluster(shell, volumes, pipelines.kubernetes)

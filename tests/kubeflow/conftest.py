"""A real Kubeflow in this process' own namespaces. Only `make test-kubeflow` collects these tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shell
from tests.kubeflow.build import missing_api, missing_cluster, missing_node
from tests.kubeflow.control_plane import Kubernetes
from tests.kubeflow.node import Node
from tests.kubeflow.pipelines_server import HOST, PipelinesServer
from tests.kubeflow.processes import Servers

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

"""What `voxline doctor` and `voxline logs` ask of the Kubernetes API itself, against a stand-in of its few calls."""

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cluster.conftest import Shell
from tests.cluster.kfp_stand_in import StandIn

STOCK_DEFAULTS = """
spec:
  templateDefaults:
    retryStrategy: {limit: "2", retryPolicy: OnError}
"""
"""Of the workflow controller, as KFP 2.17 installs it."""


@dataclass
class Kubernetes:
    """A STAND-IN for a Kubernetes API server: what is there, what is allowed, pods and their logs."""

    there: set[str] = field(default_factory=set)
    """Paths of objects below /api/v1."""
    allowed: bool = True
    pods: dict[str, tuple[dict[str, str], dict[str, str], str]] = field(default_factory=dict)
    """Name → labels, annotations, log."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the namespace."""
    quota: dict[str, str] = field(default_factory=dict)
    """`spec.hard` of its ResourceQuota."""
    patch: str = ""
    """COMPILED_PIPELINE_SPEC_PATCH of KFP's API server."""


@pytest.fixture
def kubernetes(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    """One that a kubeconfig leads to."""
    kept = Kubernetes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path = url.path.removeprefix("/api/v1/").removeprefix("/apis/apps/v1/")
            *_, kind, name = path.split("/")
            if path.endswith("/log"):
                self._answer(200, kept.pods[path.split("/")[-2]][2])
            elif name == "workflow-controller-configmap":
                self._answer(200, {"metadata": {"name": name}, "data": {"workflowDefaults": STOCK_DEFAULTS}})
            elif name == "ml-pipeline":
                env = [{"name": "COMPILED_PIPELINE_SPEC_PATCH", "value": kept.patch}]
                pod = {"spec": {"containers": [{"name": "ml-pipeline-api-server", "env": env}]}}
                spec = {"selector": {"matchLabels": {"app": "ml-pipeline"}}, "template": pod}
                self._answer(200, {"metadata": {"name": name}, "spec": spec})
            elif name == "resourcequotas":
                items = [{"metadata": {"name": "voxline"}, "spec": {"hard": kept.quota}}] if kept.quota else []
                self._answer(200, {"kind": "ResourceQuotaList", "metadata": {}, "items": items})
            elif kind != "pods" and name == "pods":
                wanted = dict(one.split("=") for one in parse_qs(url.query)["labelSelector"][0].split(","))
                items = [
                    {
                        "metadata": {
                            "name": pod,
                            "namespace": "team-speech",
                            "labels": labels,
                            "annotations": annotations,
                            "creationTimestamp": "2026-01-01T00:00:00Z",
                        }
                    }
                    for pod, (labels, annotations, _) in kept.pods.items()
                    if wanted.items() <= labels.items()
                ]
                self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
            elif path in kept.there:
                self._answer(200, {"metadata": {"name": name, "labels": kept.labels}})
            else:
                self._answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(201, {**asked, "status": {"allowed": kept.allowed}})

        def _answer(self, status: int, body: object) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    (tmp_path / "home" / ".kube").mkdir()
    (tmp_path / "home" / ".kube" / "config").write_text(json.dumps(config), encoding="utf-8")
    # The library has worked out its place when it was imported, in another home.
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "home" / ".kube" / "config")
    )
    yield kept
    server.shutdown()
    server.server_close()


def test_accounts_volumes_and_permissions_are_checked(shell: Shell, kfp: StandIn, kubernetes: Kubernetes) -> None:
    kfp.state.multi_user = True
    given = (
        "--config", "nightly.yaml", "--namespace", "team-speech",
        "--set", "cluster.service_account=voxline-steps", "--set", "cluster.claims=[{name: work, mount: /mnt/voxline}]",
        "--set", "store=/mnt/voxline/store", "--set", "registry=/mnt/voxline/registry",
        "--set", "corpus.uri=/mnt/voxline/corpus",
    )  # fmt: skip
    ended = shell("doctor", *given)
    assert "problem      namespace    there is no namespace team-speech; fix: kubectl apply -k k8s" in ended.out
    kubernetes.there = {"namespaces/team-speech", "namespaces/team-speech/serviceaccounts/voxline-steps"}
    kubernetes.allowed = False
    ended = shell("doctor", *given)
    assert ended.status == 1
    assert "ok           account      service account voxline-steps" in ended.out
    assert "problem      volume       team-speech has no volume claim work" in ended.out
    assert "may not create experiments, runs, schedules, pipelines in team-speech; fix: kubectl -n team-s" in ended.out
    assert "has the label pipelines.kubeflow.org/enabled=, and steps cannot store" in ended.out
    assert "team-speech has no ConfigMap kfp-launcher" in ended.out
    kubernetes.there |= {
        f"namespaces/team-speech/{one}" for one in ("persistentvolumeclaims/work", "configmaps/kfp-launcher")
    }
    kubernetes.labels = {"pipelines.kubeflow.org/enabled": "true", "app.kubernetes.io/part-of": "kubeflow-profile"}
    kubernetes.quota = {"requests.cpu": "8", "limits.memory": "12Gi", "requests.nvidia.com/gpu": "0"}
    kubernetes.allowed = True
    gpus = ("--set", "cluster.steps.train.accelerator={kind: gpu, count: 2}")
    ended = shell("doctor", *given, *gpus)
    assert ended.status == 1
    assert "problem      quota        train requests 16Gi memory of at most 12Gi (ResourceQuota voxline)" in ended.out
    assert "train requests 2 nvidia.com/gpu of at most 0" in ended.out
    assert "ok           retries      OnError: lost pods are tried again; failed ones" in ended.out
    kubernetes.quota |= {"limits.memory": "16Gi"}
    kubernetes.patch = '{"templateDefaults": {"retryStrategy": {"retryPolicy": "Always"}}}'
    ended = shell("doctor", *given)
    assert ended.status == 0, ended.out
    assert "can be created in team-speech" in ended.out
    assert "ok           quota        team-speech admits each step" in ended.out
    assert "ok           retries      Always: lost and failed pods are tried again" in ended.out


def test_logs_that_the_server_has_lost_come_from_kubernetes(shell: Shell, kfp: StandIn, kubernetes: Kubernetes) -> None:
    kfp.state.hanging = True
    shell.submit()
    (run_id,) = kfp.state.runs
    shell("status", run_id)
    kfp.state.pods_are_gone = True
    lost = shell("logs", run_id, "ingest", "--deadline", "3")
    assert lost.status == 1
    assert "the logs of ingest are not available" in lost.err
    name, step = "workflows.argoproj.io/node-name", "app.kubernetes.io/component"
    mine = {"pipeline/runid": run_id, step: "ingest"}
    kubernetes.pods = {  # named as KFP 2.17's controller does, in an order that is not that of the attempts
        "z": (mine, {name: "asr-x7k(0).root(0).ingest(0).executor(0)"}, "▸ 11 recordings\n"),
        "a": (mine, {name: "asr-x7k(0).root(0).ingest(0).executor(1)"}, "▸ 12 recordings\n"),
        "b": ({"pipeline/runid": run_id}, {name: "asr-x7k(0).root(0).ingest-driver(0)"}, "a driver\n"),
        "c": ({**mine, step: "convert"}, {name: "asr-x7k(0).root(0).convert(0).executor(0)"}, "another step\n"),
        "d": ({**mine, "pipeline/runid": "other"}, {name: "asr-y.root.ingest.executor"}, "another run\n"),
    }
    found = shell("logs", run_id, "ingest", "--deadline", "3")
    assert found.status == 0, found.err
    assert found.out.splitlines() == ["== ingest, pod z", "▸ 11 recordings", "== ingest, pod a", "▸ 12 recordings"]


def test_an_unknown_step_of_a_run_is_refused(shell: Shell, kfp: StandIn) -> None:
    kfp.state.hanging = True
    shell.submit()
    (run_id,) = kfp.state.runs
    shell("status", run_id)
    ended = shell("logs", run_id, "trian")
    assert ended.status == 1
    assert "no step 'trian'; it has ingest" in ended.err

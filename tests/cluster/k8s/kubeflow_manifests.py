"""Kubeflow Pipelines' own manifests, put together by kustomize: its pods, services and network policies.

KUBEFLOW_MANIFESTS names their folder, `manifests/kustomize` of KFP 2.17; nothing fetches it. They refer to Argo's
manifests by GitHub addresses; the files of Argo's Go module, whose hash is pinned, replace those.
"""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.cluster.k8s.built import Object, builder
from tests.cluster.k8s.fetched import ARGO, module
from tests.cluster.k8s.network import End

INSTALLATIONS = {"standalone": "env/platform-agnostic", "multi-user": "env/platform-agnostic-multi-user"}
"""Installation → its folder in KFP's manifests/kustomize."""
REMOTE = re.compile(r"https://github\.com/argoproj/argo-workflows/manifests/([^?\s]+)\?\S*")


@functools.cache
def installed(name: str) -> list[Object]:
    """All objects of an installation in the namespace kubeflow. Skips where they cannot be built, and says why."""
    command = builder()
    if command is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds KFP's manifests")
    manifests = os.environ.get("KUBEFLOW_MANIFESTS", "")
    if not manifests:
        pytest.skip(
            "no manifests of Kubeflow Pipelines: KUBEFLOW_MANIFESTS names their folder, manifests/kustomize of 2.17"
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "kustomize"
        shutil.copytree(manifests, root)
        shutil.copytree(module(ARGO) / "manifests", root / "argo-manifests", copy_function=shutil.copyfile)
        for file in root.rglob("kustomization.yaml"):
            text = file.read_text(encoding="utf-8")
            beside = functools.partial(_beside, file.parent, root / "argo-manifests")
            if REMOTE.search(text):
                file.write_text(REMOTE.sub(beside, text), encoding="utf-8")
        built = [*command, str(root / INSTALLATIONS[name])]
        done = subprocess.run(built, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(yaml.load_all(done.stdout, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _beside(folder: Path, manifests: Path, match: "re.Match[str]") -> str:
    return os.path.relpath(manifests / match[1], folder)


def pods(name: str) -> dict[str, End]:
    """Workload → a pod of it."""
    return {
        one["metadata"]["name"]: End("kubeflow", one["spec"]["template"]["metadata"]["labels"])
        for one in installed(name)
        if one["kind"] in ("Deployment", "StatefulSet")
    }


def ports(name: str) -> list[int]:
    """Every port that a container of the installation listens on."""
    templates = [one["spec"]["template"]["spec"] for one in installed(name) if one["kind"] == "Deployment"]
    containers = [container for spec in templates for container in spec["containers"]]
    return sorted({port["containerPort"] for container in containers for port in container.get("ports", [])})


def behind(name: str, service: str, port: int) -> tuple[End, int]:
    """The pod and its port that a connection to a service's port ends at: network policies see those.

    Raises:
      StopIteration: the installation lacks the service, the port or the pod.
    """
    spec = next(
        one["spec"] for one in installed(name) if one["kind"] == "Service" and one["metadata"]["name"] == service
    )
    target = next(one.get("targetPort") or one["port"] for one in spec["ports"] if one["port"] == port)
    pod = next(pod for pod in pods(name).values() if spec["selector"].items() <= pod.labels.items())
    assert isinstance(target, int), f"{service}:{port} names its port"
    return pod, target

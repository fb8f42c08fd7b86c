"""Kubeflow Pipelines' own manifests, as kustomize prints them: its pods, services and network policies.

KUBEFLOW_MANIFESTS names a folder with `standalone.yaml` and `multi-user.yaml`: what `kubectl kustomize` prints of
`manifests/kustomize/env/platform-agnostic` and `.../platform-agnostic-multi-user` of KFP 2.17. Nothing fetches them.
"""

import functools
import os
from pathlib import Path

import pytest
import yaml

from tests.cluster.k8s.built import Object
from tests.cluster.k8s.network import End


@functools.cache
def installed(name: str) -> list[Object]:
    """All objects of an installation, `standalone` or `multi-user`. Skips where its file is not given, and says so."""
    folder = os.environ.get("KUBEFLOW_MANIFESTS", "")
    if not folder:
        pytest.skip("no manifests of Kubeflow Pipelines: KUBEFLOW_MANIFESTS names no folder with standalone.yaml")
    text = (Path(folder) / f"{name}.yaml").read_text(encoding="utf-8")
    return [document for document in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if document]


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

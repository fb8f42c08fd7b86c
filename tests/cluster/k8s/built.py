"""What kustomize makes of k8s/: the objects of each overlay, and the pods that they will become."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
K8S = Path(__file__).resolve().parents[3] / "k8s"
OVERLAYS = sorted(path.parent.relative_to(K8S).as_posix() for path in K8S.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.relative_to(K8S).as_posix() for path in K8S.glob("components/*/kustomization.yaml"))
OVERLAYS.remove("overlays/standalone")  # it goes to another namespace; test_network.py has it
TRAIN_JOB = "components/train-job"
WITH_WORKERS = [f"{path}+{TRAIN_JOB}" for path in OVERLAYS if path not in ("overlays/gpu-pool", "overlays/tpu-pool")]
"""Overlays with workers in addition, as the overlay of a team lists both; gpu-pool has them."""
BUILDABLE = ["base", *OVERLAYS, *WITH_WORKERS, *COMPONENTS]
"""Folders of k8s/; a component is built over the base, or over the overlay that is named before it."""

POD_FIELDS = {"serviceAccountName", "automountServiceAccountToken", "securityContext", "volumes"}
"""What an InferenceService says of its pods; the rest of it is KServe's own."""


def builder() -> list[str] | None:
    """The command that builds a folder; None where there is none."""
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    return ["kustomize", "build"] if shutil.which("kustomize") else None


@functools.cache
def built(path: str) -> list[Object]:
    command = builder()
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        below, _, component = path.rpartition("+")
        target = _team_overlay(below or "base", component, Path(folder)) if component in COMPONENTS else K8S / path
        done = subprocess.run([*command, str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def _team_overlay(below: str, component: str, folder: Path) -> Path:
    """An overlay over another folder, with this component."""
    there = os.path.relpath(K8S, folder.resolve())
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "voxline",
        "labels": [{"pairs": {"app.kubernetes.io/part-of": "voxline"}}],
        "resources": [f"{there}/{below}"],
        "components": [f"{there}/{component}"],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


def named(one: Object) -> str:
    return f"{one['kind']} {one['metadata']['name']}"


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Each object that makes pods by a template, and that template: {"metadata", "spec"}."""
    for one in objects:
        for template in _templates(one):
            yield named(one), template
        if one["kind"] == "InferenceService":
            yield named(one), _served(one, objects)


def containers(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Each container, by name, and the spec of its pod."""
    for name, template in pods(objects):
        spec = template["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{name}: {container['name']}", container, spec


def values(one: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value, at whatever depth."""
    if isinstance(one, dict):
        for key, value in one.items():
            yield key, value
            yield from values(value)
    elif isinstance(one, list):
        for value in one:
            yield from values(value)


def _served(service: Object, objects: list[Object]) -> Object:
    """The pod that KServe makes: what the service says of the pod, and the container of its runtime."""
    predictor = service["spec"]["predictor"]
    name = predictor["model"]["runtime"]
    runtime = next(one for one in objects if one["kind"] == "ServingRuntime" and one["metadata"]["name"] == name)
    (container,) = runtime["spec"]["containers"]
    mounts = [*container.get("volumeMounts", []), *predictor["model"]["volumeMounts"]]
    pod = {key: value for key, value in predictor.items() if key in POD_FIELDS}
    return {
        "metadata": {"labels": service["metadata"]["labels"]},
        "spec": {**pod, "containers": [{**container, "volumeMounts": mounts}]},
    }


def _templates(one: Any) -> Iterator[Object]:
    if isinstance(one, dict):
        for key, value in one.items():
            if key in ("template", "podTemplate") and isinstance(value, dict) and "containers" in value.get("spec", {}):
                yield value
            else:
                yield from _templates(value)
    elif isinstance(one, list):
        for value in one:
            yield from _templates(value)

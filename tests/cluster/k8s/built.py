"""What kustomize makes of k8s/: the objects of each overlay, and the pods that they will become."""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
K8S = Path(__file__).resolve().parents[3] / "k8s"
BUILDABLE = [
    "base",
    *sorted(path.parent.relative_to(K8S).as_posix() for path in K8S.glob("overlays/*/kustomization.yaml")),
]


def builder() -> list[str] | None:
    """The command that builds a folder; None where there is none."""
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    return ["kustomize", "build"] if shutil.which("kustomize") else None


@functools.cache
def built(path: str) -> list[Object]:
    command = builder()
    assert command is not None
    done = subprocess.run([*command, str(K8S / path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def named(one: Object) -> str:
    return f"{one['kind']} {one['metadata']['name']}"


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Each object that makes pods by a template, and that template: {"metadata", "spec"}."""
    for one in objects:
        for template in _templates(one):
            yield named(one), template


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

"""JSON schemas that know every field: of Kubernetes from its OpenAPI document, of extensions from their definitions.

A field that a schema does not name is refused, as `kubectl apply --validate=strict` would refuse it. Each file holds
one kind with all that it refers to: `<group>_<version>_<kind>.json`.
"""

import json
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]
PREFIX = "#/definitions/"
EITHER = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
LOOSE = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": EITHER,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
"""Types that OpenAPI calls strings, and that numbers stand for too."""


def write_kubernetes(swagger: Path, folder: Path) -> None:
    definitions: dict[str, Schema] = {
        name: LOOSE.get(name) or _closed(schema)
        for name, schema in json.loads(swagger.read_text())["definitions"].items()
    }
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            needed = {one: definitions[one] for one in _reached(definitions, name)}
            _write(folder, kind, {"$ref": PREFIX + name, "definitions": needed})


def write_definitions(files: list[Path], folder: Path) -> None:
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            spec = document["spec"]
            for version in spec["versions"]:
                named = {"group": spec["group"], "version": version["name"], "kind": spec["names"]["kind"]}
                _write(folder, named, _closed(version["schema"]["openAPIV3Schema"]))


def _write(folder: Path, named: dict[str, str], schema: Schema) -> None:
    group = named["group"] or named["version"]  # kubeconform calls the core group by its version
    name = f"{group}_{named['version']}_{named['kind']}".lower()
    (folder / f"{name}.json").write_text(json.dumps(schema))


def _closed(schema: Any) -> Any:
    """The schema, in which no object has fields that are not named."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return EITHER
    if made.pop("nullable", False) is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type", "object") == "object"
    if is_object and "additionalProperties" not in schema:
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made


def _reached(definitions: dict[str, Schema], first: str) -> set[str]:
    reached, left = {first}, [first]
    while left:
        for name in _references(definitions[left.pop()]) - reached:
            reached.add(name)
            left.append(name)
    return reached


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for one in schema for name in _references(one)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].removeprefix(PREFIX)} if isinstance(schema.get("$ref"), str) else set()
    return own | {name for value in schema.values() for name in _references(value)}

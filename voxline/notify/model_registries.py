"""Registers the version in service, or a candidate, with other model registries: Kubeflow's and MLflow's.

A run that finds its model in service registers it too, if it is not there yet. So a registration that was cut off is
completed by the next run, and one that is repeated changes nothing.
"""

import importlib
import os
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import requests

from voxline.errors import WorkError
from voxline.notify.event import RunEvent
from voxline.notify.prometheus import check_answer
from voxline.notify.settings import NotifySettings
from voxline.registry.journal import CANDIDATE

API_VERSIONS = ("v1", "v1alpha3")
"""Of Kubeflow's REST API: the present one, and that of servers before 0.3."""
ALIAS = "in-service"
"""MLflow's alias of the version in service; a candidate's is `candidate`."""

Json = dict[str, Any]


def register_in_kubeflow(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Registers the model, the version and its location, each unless it is there already.

    The names are those of our registry: the model `asr`, the version `7`, whose artifact has the location of the
    exported model as its uri.
    """
    if event.version is None:
        return ""

    registry = _KubeflowRegistry(settings, session)
    version = str(event.version)

    # Each is looked up first: a run that was cut off may have created some of them.
    model = registry.find("registered_model", name=event.run.model) or registry.create(
        "registered_models", {"name": event.run.model, "state": "LIVE"}
    )

    model_version = registry.find("model_version", name=version, parentResourceId=model["id"]) or registry.create(
        "model_versions",
        {
            "name": version,
            "registeredModelId": model["id"],
            "description": event.reason,
            "state": "LIVE",
            "customProperties": {name: _property(value) for name, value in _properties(event)},
        },
    )

    if not registry.find("model_artifact", name=event.run.model, parentResourceId=model_version["id"]):
        artifact = {
            "artifactType": "model-artifact", "name": event.run.model, "uri": event.model_uri, "state": "LIVE",
            "modelFormatName": "tensorflow", "modelFormatVersion": "2",
        }  # fmt: skip
        registry.create(f"model_versions/{model_version['id']}/artifacts", artifact)
    return f"{settings.kubeflow_registry.url}, as version {version} of {event.run.model}"


class _KubeflowRegistry:
    """The few calls of the REST API that a registration needs."""

    def __init__(self, settings: NotifySettings, session: requests.Session) -> None:
        self._session = session
        self._timeout = settings.timeout_seconds
        session.headers.update(settings.kubeflow_registry.headers("notify.kubeflow_registry"))

        # The API's version is found by asking: the wrong one answers 404.
        for version in API_VERSIONS:
            self._root = f"{settings.kubeflow_registry.url.rstrip('/')}/api/model_registry/{version}"
            answer = session.get(f"{self._root}/registered_models", params={"pageSize": 1}, timeout=self._timeout)
            if answer.status_code != HTTPStatus.NOT_FOUND:
                break

        check_answer(answer)

    def find(self, kind: str, **query: str) -> Json | None:
        answer = self._session.get(f"{self._root}/{kind}", params=query, timeout=self._timeout)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        return self._json(answer)

    def create(self, collection: str, body: Json) -> Json:
        return self._json(self._session.post(f"{self._root}/{collection}", json=body, timeout=self._timeout))

    def _json(self, answer: requests.Response) -> Json:
        check_answer(answer)
        document = answer.json()
        if not isinstance(document, dict) or "id" not in document:
            raise WorkError(f"{answer.url}: the answer has no id; is this a Kubeflow Model Registry?")
        return document


def _properties(event: RunEvent) -> Iterator[tuple[str, str | float]]:
    """Returns the properties of a version besides its location, by name."""
    yield "digest", event.digest
    yield "verdict", event.verdict
    yield "reason", event.reason
    yield "run", event.run.id
    yield "pipeline", event.run.pipeline
    yield "corpora", ", ".join(event.run.corpora)

    if event.revision:
        yield "git_revision", event.revision

    for name, metric in event.metrics.items():
        for end, value in (("", metric.value), ("_low", metric.low), ("_high", metric.high)):
            if value is not None:
                yield f"{name}{end}", float(value)


def _property(value: str | float) -> Json:
    if isinstance(value, str):
        return {"metadataType": "MetadataStringValue", "string_value": value}
    return {"metadataType": "MetadataDoubleValue", "double_value": value}


def register_in_mlflow(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Registers the version with MLflow, unless one with its number is there, and gives it its alias.

    MLflow numbers versions itself, so ours is the tag `voxline.version`.
    """
    if event.version is None:
        return ""
    uri = settings.mlflow_registry.uri
    name = event.run.model

    # Recent releases refuse a folder as a store without it.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")

    try:
        tracking = importlib.import_module("mlflow")
    except ImportError:
        raise WorkError("MLflow is not installed; `pip install mlflow-skinny` adds it") from None

    client = tracking.MlflowClient(tracking_uri=uri, registry_uri=uri)

    # MLflow's client raises for a model that exists, so it is looked up.
    if not client.search_registered_models(filter_string=f"name = '{name}'"):
        client.create_registered_model(name)

    number = str(event.version)
    versions = client.search_model_versions(f"name = '{name}'")
    model_version = next((version_ for version_ in versions if version_.tags.get("voxline.version") == number), None)

    if model_version is None:
        # MLflow bounds the length of a tag.
        tags = {f"voxline.{key}": str(value)[:5000] for key, value in _properties(event)}
        model_version = client.create_model_version(
            name, source=event.model_uri, tags={**tags, "voxline.version": number}, description=event.reason
        )

    # The alias moves in one request: readers see the version before or this one.
    client.set_registered_model_alias(name, CANDIDATE if event.verdict == CANDIDATE else ALIAS, model_version.version)
    return f"{uri}, as version {model_version.version} of {name}"

"""What the stand-in for a KFP server keeps, and what it refuses, as kubeflow/pipelines' own server does.

Statuses and rules follow backend/src/apiserver of KFP 2: names are unique, recurring runs cannot be changed, cron is
robfig/cron 1.2 (five or six fields, no time zone), concurrency is 1 to 10, a spec must parse as a PipelineSpec.
"""

import itertools
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

Item = dict[str, Any]
CRON_BOUNDS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


class Refusal(Exception):  # noqa: N818 - it is an answer
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class State:
    """Everything that survives a request; a test reads and bends it."""

    multi_user: bool = False
    namespaces: tuple[str, ...] = ("team-speech",)
    pipelines: dict[str, Item] = field(default_factory=dict)
    versions: dict[str, Item] = field(default_factory=dict)
    experiments: dict[str, Item] = field(default_factory=dict)
    runs: dict[str, Item] = field(default_factory=dict)
    recurring: dict[str, Item] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    """Step → the message with which it fails."""
    version: str = "2.17.0"
    """What the server says of itself."""
    scenario: str = ""
    """The recorded state in which every run stays; empty: runs advance with each request."""
    hanging: bool = False
    """Runs go on for ever."""
    pods_are_gone: bool = False
    enabled_at_each_moment: list[int] = field(default_factory=list)
    """How many recurring runs were enabled after each change."""
    _seconds: Any = field(default_factory=itertools.count)

    def check_namespace(self, given: str | None, kind: str, *, reads: bool) -> None:
        if self.multi_user and not given and kind == "pipelines":  # those of no namespace are shared
            if reads:
                return
            raise Refusal(403, "Failed to access shared pipeline. Check if you have permission to create them")
        if self.multi_user and not given:
            raise Refusal(400, f"{kind} cannot have an empty namespace in multi-user mode")
        # A single-user server of 2.17 ignores it; earlier ones refuse it.
        if self.multi_user and given and given not in self.namespaces:
            raise Refusal(403, f"User 'robot' is not authorized to access namespace {given!r}")

    def add(self, kind: dict[str, Item], key: str, item: Item, unique: tuple[str, ...] = ("display_name",)) -> Item:
        if not item.get("display_name"):
            raise Refusal(500, "Internal Server Error: the name is empty")
        for other in kind.values():
            if unique and all(other.get(one) == item.get(one) for one in unique):
                raise Refusal(409, f"The name {item['display_name']} already exists. Please specify a new name")
        item = {**item, key: str(uuid.uuid4()), "created_at": self.now()}
        kind[item[key]] = item
        return item

    def now(self) -> str:
        """Times that differ, so that an order is visible."""
        return (datetime.now(UTC) + timedelta(seconds=next(self._seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def upload(self, pipeline_id: str, name: str, text: bytes) -> Item:
        get(self.pipelines, pipeline_id, "Pipeline")
        spec = parsed(text)
        item = {"pipeline_id": pipeline_id, "display_name": name, "name": name, "pipeline_spec": spec}
        return self.add(self.versions, "pipeline_version_id", item, ("display_name", "pipeline_id"))

    def create_run(self, body: Item) -> Item:
        version = self._version_of(body)
        get(self.experiments, body.get("experiment_id"), "Experiment")
        given = (body.get("runtime_config") or {}).get("parameters") or {}
        parameters = spec_root(version).get("inputDefinitions", {}).get("parameters", {})
        for name in given:
            if name not in parameters:
                raise Refusal(400, f"unknown parameter {name}")
        for name, parameter in parameters.items():
            if "defaultValue" not in parameter and not parameter.get("isOptional") and name not in given:
                raise Refusal(400, f"parameter {name} is required, and has no value")
        return self.add(self.runs, "run_id", {**body, "state": "PENDING", "polls": 0}, ())

    def create_recurring(self, body: Item) -> Item:
        self._version_of(body)
        get(self.experiments, body.get("experiment_id"), "Experiment")
        concurrency = int(body.get("max_concurrency") or 0)
        if not 1 <= concurrency <= 10:
            raise Refusal(400, f"The max concurrency of the recurring run is out of range. Support 1-10: {concurrency}")
        if "cron_schedule" in body.get("trigger", {}):
            check_cron(body["trigger"]["cron_schedule"].get("cron", ""))
        status = "ENABLED" if body.get("mode") == "ENABLE" else "DISABLED"
        item = self.add(self.recurring, "recurring_run_id", {**body, "status": status}, ())
        self._count()
        return item

    def switch(self, recurring_id: str, status: str) -> None:
        get(self.recurring, recurring_id, "Recurring run")["status"] = status
        self._count()

    def delete_recurring(self, recurring_id: str) -> None:
        get(self.recurring, recurring_id, "Recurring run")
        del self.recurring[recurring_id]
        self._count()

    def enabled(self) -> list[Item]:
        return [one for one in self.recurring.values() if one["status"] == "ENABLED"]

    def _count(self) -> None:
        self.enabled_at_each_moment.append(len(self.enabled()))

    def _version_of(self, body: Item) -> Item:
        reference = body.get("pipeline_version_reference")
        if not reference:
            raise Refusal(500, "Failed to fetch a template: give a spec or a version reference")
        if reference.get("pipeline_version_id") not in self.versions:
            raise Refusal(500, "Failed to fetch a template: the pipeline version was not found")
        return self.versions[reference["pipeline_version_id"]]


def get(kind: dict[str, Item], key: str | None, what: str) -> Item:
    if key not in kind:
        raise Refusal(404, f"{what} {key} not found")
    return kind[key]


def spec_root(version: Item) -> Item:
    root: Item = version["pipeline_spec"]["root"]
    return root


def parsed(text: bytes) -> Item:
    """The PipelineSpec in an uploaded file, checked against its protocol buffer."""
    try:
        documents = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        spec = json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
        for document in documents[1:]:
            json_format.ParseDict(document, pipeline_spec_pb2.PlatformSpec())
    except (yaml.YAMLError, json_format.ParseError, IndexError, TypeError, AttributeError) as error:
        raise Refusal(400, f"Failed to parse the pipeline spec: {error}") from None
    if not spec.pipeline_info.name or not spec.root.dag.tasks:
        raise Refusal(400, "Invalid input error: pipeline spec is invalid: it has no name or no tasks")
    return {key: documents[0][key] for key in ("pipelineInfo", "root")}


def check_cron(text: str) -> None:
    """As robfig/cron 1.2 parses it, names of months and days left out."""
    fields = text.split()
    if not 5 <= len(fields) <= 6:
        raise Refusal(400, f"Schedule cron is not a supported format. Expected 5 to 6 fields, found {len(fields)}")
    for value, (low, high) in zip(fields, CRON_BOUNDS, strict=False):
        for number in map(int, re.findall(r"(?<!/)\b\d+", value)):
            if not low <= number <= high:
                raise Refusal(400, f"Schedule cron is not a supported format. {number} is out of range in {value}")

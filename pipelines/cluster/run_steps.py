"""The steps of a run, from what a KFP server knows of them.

A server keeps the Argo workflow of each run, with its nodes, messages and pods, and returns it by its v1beta1 API; the
v2beta1 API has only the nodes' names and states. KFP 3 lists tasks instead. `read_steps` uses the first that has any.
"""

import graphlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from voxline.pipelines.cluster.kfp_client import KfpServer, RequestRefusedError, printable


@dataclass(frozen=True)
class Attempt:
    """One pod of a step."""

    pod: str
    state: str
    message: str = ""
    log_uri: str = ""
    """Where KFP 2.16 or later stores a copy of the log: `minio://bucket/key`, `s3://…` or `gs://…`."""


@dataclass(frozen=True)
class StepStatus:
    """A step's state (`RUNNING`, …), duration, the server's message and its attempts, oldest first."""

    name: str
    state: str
    started: datetime | None
    seconds: float | None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()

    @property
    def component(self) -> str:
        """The component that the step runs; `trial` for every trial of a search."""
        return _TRIAL.sub("trial", self.name)


def read_steps(cluster: KfpServer, run: Any, workflow: dict[str, Any] | None) -> list[StepStatus]:
    """The steps in the order in which they started; waiting steps come last.

    Args:
      run: the v2beta1 run, as the generated client returns it.
      workflow: from `read_workflow`.
    """
    # From the source that says most to the one that says least.
    steps = list(steps_of_workflow(workflow)) if workflow else []
    if not steps:
        steps = list(steps_of_tasks(_tasks(cluster, run.run_id)))
    if not steps and run.run_details:
        steps = list(steps_of_details(run.run_details.task_details or []))
    return sorted(steps, key=lambda step: (step.started is None, step.started or datetime.max.replace(tzinfo=UTC)))


def read_workflow(cluster: KfpServer, run_id: str) -> dict[str, Any] | None:
    """The Argo workflow of a run, as the server last saw it; None if the server does not tell."""
    try:
        answer = cluster.get(f"/apis/v1beta1/runs/{run_id}")
        manifest = json.loads((answer.get("pipeline_runtime") or {}).get("workflow_manifest") or "null")
    except (RequestRefusedError, ValueError, AttributeError):  # a gateway may close the old API
        return None
    return manifest if isinstance(manifest, dict) else None


def is_terminated(workflow: dict[str, Any] | None) -> bool:
    """True if a person ended the run: KFP then sets the deadline to 0, and reports the run as failed."""
    return workflow is not None and (workflow.get("spec") or {}).get("activeDeadlineSeconds") == 0


def start_message(workflow: dict[str, Any]) -> str:
    """The reason why the first pod of a run waits or failed; "" if it has started or says nothing."""
    # The driver of the root: it reads the pipeline, and every step comes after it.
    nodes = ((workflow.get("status") or {}).get("nodes") or {}).values()
    first = [
        node
        for node in nodes
        if node.get("type") == "Pod" and _unnumbered(str(node.get("name"))).endswith(".root-driver")
    ]
    last: dict[str, Any] = max(first, key=lambda node: _number(str(node["name"])), default={})
    return _text(last.get("message")) if last.get("phase") in ("Pending", "Failed", "Error") else ""


_CONDITION = re.compile(r"condition-\d+(-driver)?")
"""The part of a graph that runs only if the step forecast says so; its steps are nodes below it."""

_LOOP = re.compile(r"for-loop-\d+")
"""The trials of a search: Argo makes a node of the loop, and one of each iteration with its number."""
_ITERATION = re.compile(r"iteration-iterations\((\d+):[^)]*\)")
_TRIAL = re.compile(r"^trial-\d+$")


def _tasks(cluster: KfpServer, run_id: str) -> list[Any]:
    """The tasks of a run by KFP 3's call; earlier servers refuse it."""
    try:
        answer = cluster.get(f"/apis/v2beta1/runs/{run_id}/tasks", {"page_size": "200"})
    except RequestRefusedError:
        return []
    return list(answer.get("tasks") or []) if isinstance(answer, dict) else []


def steps_of_workflow(workflow: dict[str, Any]) -> Iterator[StepStatus]:
    """The steps of an Argo workflow.

    A node is named by its path, such as `asr-x7k2p.root.train.executor(1)`; where the controller retries every
    template, as KFP 2.17 configures it, `asr-x7k2p(0).root(0).train(0).executor(1)`. The driver is `train-driver`.
    Argo omits the steps after one that failed: they do not come, like those after a step that runs. Steps of a part
    that the step forecast has not let run are `SKIPPED`: they have no nodes, and are read from the workflow's template.
    """
    name = str(workflow["metadata"]["name"])
    nodes: dict[str, dict[str, list[dict[str, Any]]]] = {}  # step → driver, executor or whole → its nodes
    skipped: list[str] = []
    for node in ((workflow.get("status") or {}).get("nodes") or {}).values():
        path = str(node.get("name", "")).removeprefix(name).split(".")[1:]
        if path and _CONDITION.fullmatch(_unnumbered(path[-1])) and node.get("phase") == "Skipped":
            skipped += _steps_of_template(workflow, str(node.get("templateName")))
        if named := _step_and_kind(path):
            nodes.setdefault(named[0], {}).setdefault(named[1], []).append(node)

    # The loop is a step only as long as none of its trials has started: they are what a person follows.
    if any(_TRIAL.fullmatch(step) for step in nodes):
        nodes = {step: kinds for step, kinds in nodes.items() if not _LOOP.fullmatch(step)}

    for step, kinds in nodes.items():
        if any(node.get("phase") != "Omitted" for group in kinds.values() for node in group):
            yield _step_of_nodes(step, kinds, workflow)
    yield from (StepStatus(step, "SKIPPED", None, None) for step in dict.fromkeys(skipped))  # the root may be retried


def _step_and_kind(path: list[str]) -> tuple[str, str] | None:
    """The step of a node by its path below the workflow, and `driver`, `executor` or `whole`; None if of no step.

    The trials of a search are the iterations of a loop, and each is a step of its own, by its number.

    >>> _step_and_kind(["root(0)", "train(0)", "executor(1)"]), _step_and_kind(["root(0)"])
    (('train', 'executor'), None)
    >>> _step_and_kind("root.for-loop-1.iteration-iterations(3:3)(0).iteration-item(0).trial-driver(0)".split("."))
    ('trial-3', 'driver')
    """
    parts = [_unnumbered(part) for part in path]
    parts = [part for part in parts if not _CONDITION.fullmatch(part)]
    if len(parts) < 2 or parts[0] != "root":
        return None

    step = parts[1]
    inner = parts[2:]
    if _LOOP.fullmatch(step):
        if inner and (iteration := _ITERATION.fullmatch(inner[0])):
            step = f"trial-{iteration[1]}"
            inner = inner[1:]
    elif len(inner) > 1:  # a part of a step, such as the retries of its executor
        return None

    # The part that ends the path says what the node is; a step of one node has no inner path.
    last = inner[-1] if inner else parts[1]
    kind = "driver" if last.endswith("-driver") else "executor" if last == "executor" else "whole"
    return step.removesuffix("-driver"), kind


def _steps_of_template(workflow: dict[str, Any], name: str) -> list[str]:
    """The steps of a graph in their order, which Argo writes as `depends: extract.Succeeded && train.Succeeded`."""
    templates = (workflow.get("spec") or {}).get("templates") or []
    graphs = (template["dag"]["tasks"] for template in templates if template.get("name") == name and "dag" in template)

    # A step depends on its driver, and that on the steps before: together they are one node of the order.
    after: dict[str, set[str]] = {}
    for task in next(graphs, []):
        before = re.findall(r"([\w-]+)\.", str(task.get("depends") or ""))
        after.setdefault(task["name"].removesuffix("-driver"), set()).update(
            predecessor for predecessor in before if not predecessor.endswith("-driver")
        )
    return list(graphlib.TopologicalSorter(after).static_order())


def _step_of_nodes(step: str, kinds: dict[str, list[dict[str, Any]]], workflow: dict[str, Any]) -> StepStatus:
    executors = [node for node in kinds.get("executor", []) if node.get("type") == "Pod"]
    executors.sort(key=lambda node: _number(str(node["name"])))
    drivers = kinds.get("driver", [])

    # A retried node contains its attempts, and has the shortest name of them.
    wholes = sorted(kinds.get("whole", []) or drivers, key=lambda node: len(str(node["name"])))
    whole = next((node for node in wholes if node.get("phase") not in (None, "", "Omitted")), wholes[0])
    state = _state(str(whole.get("phase") or ""))

    # A step whose driver failed never gets an executor, and its own node may stay without a phase.
    if any(node.get("phase") in ("Failed", "Error") for node in drivers) and state != "SUCCEEDED" and not executors:
        state = "FAILED" if all(_has_ended(node) for node in drivers) else state

    # Argo calls a step running from its first node on, also while the pod waits for a machine.
    pods = [node for node in (*drivers, *executors) if node.get("type") == "Pod"]
    if state == "RUNNING" and pods and pods[-1].get("phase") == "Pending":
        state = "PENDING"

    # The last pod knows most of a failure, the whole step least.
    starts = [moment for node in (*wholes, *drivers) if (moment := _moment(node.get("startedAt")))]
    texts = [text for node in reversed([*wholes, *pods]) if (text := _text(node.get("message")))]
    return _timed(
        step, state, min(starts, default=None), _moment(whole.get("finishedAt")),
        message="" if state == "SUCCEEDED" else next(iter(texts), ""),
        attempts=tuple(
            Attempt(
                pod_name(workflow, node), _state(str(node.get("phase"))), _text(node.get("message")), _log_uri(node)
            )
            for node in executors
        ),
    )  # fmt: skip


def pod_name(workflow: dict[str, Any], node: dict[str, Any]) -> str:
    """The name of a node's pod, as Argo forms it since 3.4: workflow, template and the hash of the node's name."""
    annotations = workflow["metadata"].get("annotations") or {}
    if annotations.get("workflows.argoproj.io/pod-name-format") == "v1":
        return str(node["id"])
    template = node.get("templateName") or (node.get("templateRef") or {}).get("template", "")
    return f"{workflow['metadata']['name']}-{template}-{str(node['id']).rpartition('-')[2]}"


def _log_uri(node: dict[str, Any]) -> str:
    """The URI of the artifact `executor-logs`, which the driver put into the arguments of the launcher."""
    for parameter in (node.get("inputs") or {}).get("parameters") or []:
        uri = re.search(r'[a-z0-9]+://[^"\\]*/executor-logs(?=[\\"])', str(parameter.get("value") or ""))
        if parameter.get("name") == "pod-spec-patch" and uri:
            return f"{uri[0]}-{_number(str(node['name']))}"  # KFP appends the attempt's number
    return ""


def steps_of_tasks(tasks: Iterable[dict[str, Any]]) -> Iterator[StepStatus]:
    """The steps among KFP 3's tasks."""
    for task in tasks:
        if task.get("type", "RUNTIME") != "RUNTIME":
            continue
        state = str(task.get("state") or "PENDING")
        why = _text((task.get("status_metadata") or {}).get("message"))
        pods = [pod["name"] for pod in task.get("pods") or [] if pod.get("type") == "EXECUTOR"]
        yield _timed(
            str(task.get("name") or task.get("display_name")), "SKIPPED" if state == "CACHED" else state,
            _moment(task.get("create_time")), _moment(task.get("end_time")),
            message=why, attempts=tuple(Attempt(pod, state, why) for pod in pods),
        )  # fmt: skip


def steps_of_details(details: Iterable[Any]) -> Iterator[StepStatus]:
    """The steps among the task details of a v2beta1 run, which have names and states, but neither pods nor messages."""
    named: dict[str, list[Any]] = {}
    for detail in details:
        named.setdefault(_unnumbered(detail.display_name or ""), []).append(detail)

    # Every step has a driver, and so have the parts of a graph that are none.
    steps = [name.removesuffix("-driver") for name in named if name.endswith("-driver")]
    for step in steps:
        if step == "root" or _CONDITION.fullmatch(step) or step in ("iteration", "iteration-item"):
            continue

        nodes = sorted(named.get(step) or named[f"{step}-driver"], key=lambda detail: len(detail.display_name))
        driver = named[f"{step}-driver"][0]
        if not driver.state and _moment(driver.end_time):  # the server has no word for what Argo omitted
            continue

        yield _timed(
            step, str(nodes[0].state or "PENDING"), _moment(driver.start_time) or _moment(nodes[0].start_time),
            _moment(nodes[0].end_time),
        )  # fmt: skip


def _timed(step: str, state: str, started: datetime | None, ended: datetime | None, **more: Any) -> StepStatus:
    until = ended or (datetime.now(UTC) if state in ("RUNNING", "PENDING") else None)
    seconds = (until - started).total_seconds() if started and until else None
    return StepStatus(step, state, started, seconds, **more)


def _unnumbered(name: str) -> str:
    """
    >>> _unnumbered("executor(1)")
    'executor'
    """
    return re.sub(r"\(\d+\)$", "", name)


def _number(name: str) -> int:
    number = re.search(r"\((\d+)\)$", name)
    return int(number[1]) if number else 0


STATES = {"Error": "FAILED", "Omitted": "SKIPPED", "": "PENDING"}


def _state(phase: str) -> str:
    """KFP's word for the phase of an Argo node.

    >>> _state("Succeeded"), _state("Error")
    ('SUCCEEDED', 'FAILED')
    """
    return STATES.get(phase, phase.upper())


def _has_ended(node: dict[str, Any]) -> bool:
    return bool(_moment(node.get("finishedAt")))


def _moment(value: Any) -> datetime | None:
    """A time of an answer. KFP writes the year 1970 for an event that has not happened yet."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime) or value.year <= 1970:
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _text(message: Any) -> str:
    """A message on one line. Argo names the container that ended, which is the step's unless it says otherwise.

    >>> _text("main: Error (exit code 1)"), _text("init: OOMKilled (exit code 137)")
    ('Error (exit code 1)', 'init: OOMKilled (exit code 137)')
    """
    return printable(" ".join(str(message or "").split())).removeprefix("main: ")

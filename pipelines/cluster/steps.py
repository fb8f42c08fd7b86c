"""A run's steps, as a person counts them, out of the nodes that a server tells of.

KFP runs a step as three nodes: the step, a driver that prepares it, and an executor with the pod that does the work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.cluster.terminal import harmless

OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
"""States of a run or a step that do not change any more."""


@dataclass(frozen=True)
class Step:
    """A step, its state (`RUNNING`, …), its time and what went wrong."""

    name: str
    state: str
    started: datetime | None
    seconds: float | None
    message: str
    pods: tuple[str, ...]
    """Names of the executors' nodes, oldest first: one an attempt."""


def steps_of(run: Any) -> list[Step]:
    """The steps in the order in which they started; those that wait come last."""
    details = list(run.run_details.task_details or []) if run.run_details else []
    nodes = {key: detail for detail in details for key in (detail.task_id, detail.pod_name) if key}
    children = {key for detail in details for child in detail.child_tasks or [] for key in _keys(child)}
    children |= {detail.task_id for detail in details if detail.parent_task_id}
    steps = [_step(detail, _below(detail, nodes)) for detail in details if _is_step(detail, children)]
    return sorted(steps, key=lambda step: (step.started is None, step.started or datetime.max.replace(tzinfo=UTC)))


def failed_step(run: Any) -> Step | None:
    """The first that failed."""
    return next((step for step in steps_of(run) if step.state == "FAILED"), None)


def message_of(run: Any) -> str:
    """What the server says of a run that failed."""
    return _message(run)


def state_of(item: Any) -> str:
    """`RUNNING` and the like; a run that has just been made has none yet."""
    return str(item.state or "PENDING")


def _keys(node: Any) -> list[str]:
    return [key for key in (node.task_id, node.pod_name) if key]


def _is_step(detail: Any, children: set[str]) -> bool:
    name = detail.display_name or ""
    made_by_kfp = name in ("", "root", "executor") or name.endswith("-driver")
    # The whole workflow is a node too, under a name that the cluster makes up: it is nobody's child.
    is_workflow = bool(children) and children.isdisjoint(_keys(detail))
    return not made_by_kfp and not is_workflow


def _below(detail: Any, nodes: dict[str, Any]) -> list[Any]:
    """The nodes under a step, itself first."""

    def walk(one: Any, seen: set[int]) -> Iterator[Any]:
        if id(one) in seen:
            return
        seen.add(id(one))
        yield one
        for child in one.child_tasks or []:
            for key in _keys(child):
                if key in nodes:
                    yield from walk(nodes[key], seen)

    return list(walk(detail, set()))


def _step(detail: Any, nodes: list[Any]) -> Step:
    started, ended = _time(detail.start_time), _time(detail.end_time)
    until = ended or (datetime.now(UTC) if state_of(detail) == "RUNNING" else None)
    executors = [node for node in nodes if (node.display_name or "").startswith("executor")] or nodes[:1]
    return Step(
        name=detail.display_name,
        state=state_of(detail),
        started=started,
        seconds=(until - started).total_seconds() if started and until else None,
        message=next((text for text in map(_message, reversed(nodes)) if text), ""),
        pods=tuple(node.pod_name for node in executors if node.pod_name),
    )


def _time(moment: datetime | None) -> datetime | None:
    """KFP writes the year 1970 where nothing has happened yet."""
    if moment is None or moment.year <= 1970:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _message(item: Any) -> str:
    if item.error and item.error.message:
        return harmless(" ".join(str(item.error.message).split()))
    for status in reversed(item.state_history or []):
        if status.error and status.error.message:
            return harmless(" ".join(str(status.error.message).split()))
    return ""

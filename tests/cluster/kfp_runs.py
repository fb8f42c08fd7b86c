"""How a run of the stand-in advances: one step with each request, in the nodes that KFP reports."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.kfp_state import Item, State, spec_root

START = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = "1970-01-01T00:00:00Z"


def advanced(state: State, run: Item) -> Item:
    """The run as it is answered, and as it is kept."""
    if run["state"] in ("PENDING", "RUNNING", "CANCELING"):
        run["polls"] += 1
    order = in_order(spec_root(state.versions[run["pipeline_version_reference"]["pipeline_version_id"]]))
    if run["state"] == "CANCELING":
        run["state"] = "CANCELED"
    elif run["state"] not in ("CANCELED", "SUCCEEDED", "FAILED"):
        done = min(run["polls"] - 1, 1 if state.hanging else len(order))
        failed = next((step for step in order[:done] if step in state.failing), None)
        run["done"], run["failed_step"] = done, failed
        run["state"] = "FAILED" if failed else "SUCCEEDED" if done == len(order) else "RUNNING"
        if failed:
            run["error"] = {"code": 13, "message": "the workflow failed"}
    return {**run, "run_details": {"task_details": _nodes(state, run, order)}}


def in_order(root: Item) -> list[str]:
    """The steps, each after those that it waits for."""
    tasks, order = dict(root["dag"]["tasks"]), []
    while tasks:
        ready = sorted(name for name, task in tasks.items() if not set(task.get("dependentTasks", [])) & set(tasks))
        order.append(ready[0])
        del tasks[ready[0]]
    return order


def pod_of(run_id: str, step: str) -> str:
    return f"workflow-{run_id[:8]}-{step}-main"


def log_of(state: State, run: Item, pod: str) -> str | None:
    """What a pod has printed; None where Kubernetes has no such pod any more."""
    started = {pod_of(run["run_id"], step): step for step in _started(state, run)}
    if state.pods_are_gone or pod not in started:
        return None
    return f"▸ {started[pod]} works\n\x1b]0;a title\x07{state.failing.get(started[pod], 'done')}\n"


def _started(state: State, run: Item) -> list[str]:
    order = in_order(spec_root(state.versions[run["pipeline_version_reference"]["pipeline_version_id"]]))
    return order[: run.get("done", 0) + 1]


def _nodes(state: State, run: Item, order: list[str]) -> list[Item]:
    workflow = f"workflow-{run['run_id'][:8]}"
    nodes = [
        _node(workflow, workflow, "RUNNING", [f"{workflow}-root", f"{workflow}-root-driver"]),
        _node("root-driver", f"{workflow}-root-driver", "SUCCEEDED", []),
        _node("root", f"{workflow}-root", "RUNNING", [f"{workflow}-{step}" for step in order]),
    ]
    for number, step in enumerate(order):
        if number > run.get("done", 0):
            break
        status = "SUCCEEDED" if number < run.get("done", 0) else "RUNNING"
        if number == run.get("done", 0) and run["state"] not in ("RUNNING", "CANCELING"):
            break
        message = ""
        if step == run.get("failed_step"):
            status, message = "FAILED", state.failing[step]
        pod = pod_of(run["run_id"], step)
        nodes += [
            _node("executor", pod, status, [], message, number),
            _node(step, f"{workflow}-{step}", status, [pod, f"{workflow}-{step}-driver"], "", number),
            _node(f"{step}-driver", f"{workflow}-{step}-driver", "SUCCEEDED", [], "", number),
        ]
        if status == "FAILED":
            break
    return nodes


def _node(name: str, pod: str, state: str, children: list[str], message: str = "", at: int = 0) -> dict[str, Any]:
    start = START + timedelta(minutes=at)
    node: dict[str, Any] = {
        "display_name": name,
        "task_id": f"id-{pod}",
        "pod_name": pod,
        "state": state,
        "start_time": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "end_time": NEVER if state == "RUNNING" else (start + timedelta(seconds=42)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "child_tasks": [{"pod_name": child} for child in children],
    }
    if message:
        node["error"] = {"code": 13, "message": message}
    return node

"""Runs on a KFP server: finding one by name or id, printing its state and logs, following it to its end."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from voxline.errors import VoxlineError, WorkError
from voxline.pipelines.cluster.kfp_client import KfpServer, NoResponse, RequestRefusedError, list_named, printable

TERMINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
"""States of a run or a step that are final."""


@dataclass(frozen=True)
class StepStatus:
    """A step's state (`RUNNING`, …), duration and error."""

    name: str
    state: str
    started: datetime | None
    seconds: float | None
    message: str
    pods: tuple[str, ...]
    """Names of the executors' nodes, oldest first: one for each attempt."""


def list_steps(run: Any) -> list[StepStatus]:
    """The steps in the order in which they started; waiting steps come last."""
    details = list(run.run_details.task_details or []) if run.run_details else []
    nodes = {key: detail for detail in details for key in (detail.task_id, detail.pod_name) if key}
    children = {key for detail in details for child in detail.child_tasks or [] for key in _keys(child)}
    children |= {detail.task_id for detail in details if detail.parent_task_id}
    steps = [_step(detail, _subtree(detail, nodes)) for detail in details if _is_step(detail, children)]
    return sorted(steps, key=lambda step: (step.started is None, step.started or datetime.max.replace(tzinfo=UTC)))


def find_failed_step(run: Any) -> StepStatus | None:
    """The first step that failed; None if none did."""
    return next((step for step in list_steps(run) if step.state == "FAILED"), None)


def error_message(run: Any) -> str:
    """The server's message on a failed run."""
    return _message(run)


def run_state(item: Any) -> str:
    """`RUNNING`, …; a new run has no state yet and counts as `PENDING`."""
    return str(item.state or "PENDING")


def _keys(node: Any) -> list[str]:
    return [key for key in (node.task_id, node.pod_name) if key]


def _is_step(detail: Any, children: set[str]) -> bool:
    name = detail.display_name or ""
    is_internal = name in ("", "root", "executor") or name.endswith("-driver")
    # The whole workflow is a node, too, with a generated name and without a parent.
    is_workflow = bool(children) and children.isdisjoint(_keys(detail))
    return not is_internal and not is_workflow


def _subtree(detail: Any, nodes: dict[str, Any]) -> list[Any]:
    """A step's node and those below it."""

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


def _step(detail: Any, nodes: list[Any]) -> StepStatus:
    started, ended = _time(detail.start_time), _time(detail.end_time)
    until = ended or (datetime.now(UTC) if run_state(detail) == "RUNNING" else None)
    executors = [node for node in nodes if (node.display_name or "").startswith("executor")] or nodes[:1]
    return StepStatus(
        name=detail.display_name,
        state=run_state(detail),
        started=started,
        seconds=(until - started).total_seconds() if started and until else None,
        message=next((text for text in map(_message, reversed(nodes)) if text), ""),
        pods=tuple(node.pod_name for node in executors if node.pod_name),
    )


def _time(moment: datetime | None) -> datetime | None:
    """KFP writes the year 1970 for an event that has not happened yet."""
    if moment is None or moment.year <= 1970:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _message(item: Any) -> str:
    if item.error and item.error.message:
        return printable(" ".join(str(item.error.message).split()))
    for status in reversed(item.state_history or []):
        if status.error and status.error.message:
            return printable(" ".join(str(status.error.message).split()))
    return ""


POLL_SECONDS = 5.0
HEARTBEAT_SECONDS = 60.0
"""Seconds after which a line shows progress: CI systems end silent jobs."""
OUTAGE_SECONDS = 900.0
"""Seconds without a response after which following ends; the run continues."""
STATE_WORDS = {"RUNNING": "running", "PENDING": "waiting", "CANCELING": "canceling", "CANCELED": "canceled"}

Write = Callable[[str], None]


def find_run(cluster: KfpServer, run: str) -> Any:
    """The run with an id, or with a unique name.

    Raises:
      WorkError: there is none, or there are several with the name.
    """
    runs = cluster.client.runs
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run):
        try:
            return runs.run_service_get_run(run)
        except RequestRefusedError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise WorkError(f"run {run}: {cluster.access.host} has no run with this id; see its list of runs") from None
    found = list_named(runs.run_service_list_runs, "runs", run, namespace=cluster.namespace or "")
    if len(found) == 1:
        return runs.run_service_get_run(found[0].run_id)
    if not found:
        raise WorkError(
            f"run {run!r}: {cluster.access.host} has no run with this name; give the id that submit printed"
        )
    ids = ", ".join(one.run_id for one in found)
    raise WorkError(f"run {run!r}: {len(found)} runs have this name; give one of the ids {ids}")


def follow_run(
    cluster: KfpServer, run_id: str, write: Write, *, poll: float = POLL_SECONDS, outage: float = OUTAGE_SECONDS
) -> Any:
    """Writes each change of a step, until the run is over.

    Raises:
      NoResponse: the server has not responded for `outage` seconds; the run continues.
      RequestRefusedError: the server refuses further requests; the run continues.
    """
    written: dict[str, str] = {}
    answered = last_line = time.monotonic()
    while True:
        try:
            run = cluster.client.runs.run_service_get_run(run_id)
            answered = time.monotonic()
        except NoResponse as silence:
            if time.monotonic() - answered > outage:
                raise NoResponse(f"{silence}; the run continues; `voxline status {run_id}` shows it") from None
            write("the server does not respond; the run continues, trying again")
            time.sleep(poll)
            continue
        except RequestRefusedError as refusal:  # such as an expired token
            again = f"the run continues; `voxline status {run_id}` shows it"
            raise RequestRefusedError(f"{refusal}; {again}", refusal.status) from None
        for step in list_steps(run):
            if written.get(step.name) != step.state:
                written[step.name], last_line = step.state, time.monotonic()
                write(format_step(step))
        if run_state(run) in TERMINAL_STATES:
            return run
        if time.monotonic() - last_line > HEARTBEAT_SECONDS:
            last_line = time.monotonic()
            write(", ".join(format_step(step) for step in list_steps(run) if step.state == "RUNNING") or "waiting")
        time.sleep(poll)


def raise_if_failed(run: Any) -> None:
    """Raises:
    WorkError: the run has ended and not succeeded; names the step, the reason and the command for its logs.
    """
    state = run_state(run)
    if state == "SUCCEEDED":
        return
    if state == "CANCELED":
        raise WorkError(f"run {run.run_id} was canceled; submit it again, and its finished steps are reused")
    step = find_failed_step(run)
    where = f" at {step.name}" if step else ""
    why = (step.message if step else "") or error_message(run) or f"the server reports {state} without a reason"
    logs = f"voxline logs {run.run_id}" + (f" {step.name}" if step else "")
    raise WorkError(f"run {run.run_id} failed{where}: {why}; `{logs}` prints its logs")


def format_run(run: Any) -> Iterator[str]:
    """A line for the run and each of its steps."""
    yield f"{run.display_name}  {run.run_id}  {STATE_WORDS.get(run_state(run), run_state(run).lower())}"
    for step in list_steps(run):
        yield f"  {format_step(step)}"
    if run_state(run) == "FAILED" and error_message(run):
        yield f"  {error_message(run)}"


def format_step(step: StepStatus) -> str:
    """Such as `train      failed     12 s  out of memory`."""
    state = STATE_WORDS.get(step.state, step.state.lower())
    time_ = "" if step.seconds is None else _duration(step.seconds)
    why = f"  {step.message}" if step.state == "FAILED" and step.message else ""
    return f"{step.name:<10} {state:<10} {time_:>9}{why}".rstrip()


def _duration(seconds: float) -> str:
    """
    >>> _duration(42.4), _duration(3700)
    ('42 s', '1 h 02 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


MAIN_CONTAINER = "main"
"""Argo's name of a pod's main container."""
RUN_LABEL = "pipeline/runid"
NODE_ANNOTATION = "workflows.argoproj.io/node-name"
"""Such as `refresh-x7k.root.convert.executor`."""


def print_logs(cluster: KfpServer, run: Any, step: str, write: Callable[[str], None]) -> None:
    """Writes the logs of one step, or of all: from the KFP server, or from Kubernetes if the server has lost the pods.

    Raises:
      WorkError: the run does not have this step, or the logs are gone.
    """
    steps = list_steps(run)
    chosen = [one for one in steps if step in ("", one.name)]
    if not chosen:
        names = ", ".join(one.name for one in steps) or "none yet"
        raise WorkError(f"run {run.run_id}: no step {step!r}; it has {names}")
    written = 0
    reasons: list[str] = []
    for one in chosen:
        for title, text in _step_logs(cluster, run, one, reasons):
            if len(chosen) > 1 or title:
                write(f"== {one.name}{title}")
            for line in text.splitlines():
                write(printable(line))
            written += 1
    if not written:
        why = reasons[-1] if reasons else "no pod has started yet"
        raise WorkError(
            f"run {run.run_id}: the logs of {step or 'its steps'} are not available: {why}; pods are kept "
            "for `cluster.kept_days` after the run ends, and later only the cluster's log collector has their logs"
        )


def _step_logs(cluster: KfpServer, run: Any, step: StepStatus, reasons: list[str]) -> Iterator[tuple[str, str]]:
    """The title and the log of each attempt."""
    found = False
    for number, pod in enumerate(step.pods, start=1):
        try:
            text = _log_from_kfp(cluster, run.run_id, pod)
        except VoxlineError as error:
            reasons.append(str(error))
            continue
        found = True
        yield (f", attempt {number}" if len(step.pods) > 1 else ""), text
    if not found:
        yield from _logs_from_kubernetes(cluster, run.run_id, step.name, reasons)


def _log_from_kfp(cluster: KfpServer, run_id: str, pod: str) -> str:
    """By KFP 2's only call for logs, which is in an API version that its client does not know."""
    answer = cluster.api.call_api(
        "/apis/v1alpha1/runs/{run_id}/nodes/{node_id}/log", "GET", path_params={"run_id": run_id, "node_id": pod},
        auth_settings=["Bearer"], _preload_content=False, _return_http_data_only=True,
    )  # fmt: skip
    return str(answer.data.decode("utf-8", errors="replace"))


def _logs_from_kubernetes(cluster: KfpServer, run_id: str, step: str, reasons: list[str]) -> Iterator[tuple[str, str]]:
    from kubernetes.client import ApiException

    from voxline.pipelines.cluster.kubernetes_api import core_api

    try:
        core = core_api()
        pods = core.list_namespaced_pod(
            cluster.access.namespace or "kubeflow", label_selector=f"{RUN_LABEL}={run_id}", _request_timeout=30
        ).items
        for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp):
            if f".{step}." in f"{(pod.metadata.annotations or {}).get(NODE_ANNOTATION, '')}.":
                if ".executor" not in pod.metadata.annotations[NODE_ANNOTATION]:
                    continue  # the driver
                text = core.read_namespaced_pod_log(
                    pod.metadata.name, pod.metadata.namespace, container=MAIN_CONTAINER, _request_timeout=60
                )
                yield f", pod {pod.metadata.name}", str(text)
    except ApiException as error:
        reasons.append(f"Kubernetes returns {error.status} {error.reason}")
    except (RequestRefusedError, WorkError) as error:
        reasons.append(str(error))
    except Exception as error:  # urllib3 and a kubeconfig with plugins raise many kinds
        reasons.append(f"Kubernetes: {type(error).__name__}")

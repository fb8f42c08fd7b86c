"""Runs on a KFP server: finding one by name or id, printing its state, following it to its end."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from voxline.errors import WorkError
from voxline.pipelines.cluster.kfp_client import KfpServer, NoResponse, RequestRefusedError, list_named, printable
from voxline.pipelines.cluster.run_steps import StepStatus, is_terminated, read_steps, read_workflow, start_message

TERMINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
"""States of a run or a step that are final."""


@dataclass(frozen=True)
class ClusterRun:
    """A run as a server describes it at one moment."""

    id: str
    name: str
    state: str
    """`RUNNING`, …; a new run has no state yet and counts as `PENDING`."""
    message: str
    """The server's error, or why the run has not come to a step yet; empty for a run without one."""
    steps: tuple[StepStatus, ...]

    @classmethod
    def read(cls, cluster: KfpServer, run_id: str) -> "ClusterRun":
        """Raises:
        RequestRefusedError: there is no run with this id, among others.
        """
        run = cluster.client.runs.run_service_get_run(run_id)
        workflow = read_workflow(cluster, run_id)

        # A canceled run is FAILED for KFP; only its workflow says that a person ended it.
        state = str(run.state or "PENDING")
        if state == "FAILED" and is_terminated(workflow):
            state = "CANCELED"

        steps = tuple(read_steps(cluster, run, workflow))
        waiting = start_message(workflow) if workflow and not steps else ""
        return cls(str(run.run_id), printable(str(run.display_name)), state, waiting or _message(run, workflow), steps)

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def failed_step(self) -> StepStatus | None:
        """The first step that failed; None if none did."""
        return next((step for step in self.steps if step.state == "FAILED"), None)


def _message(run: Any, workflow: dict[str, Any] | None) -> str:
    # The latest message is the one of interest: a run may have been retried.
    errors = [run.error, *(status.error for status in reversed(run.state_history or []))]
    texts = [error.message for error in errors if error] + [((workflow or {}).get("status") or {}).get("message")]
    return next((printable(" ".join(text.split())) for text in texts if text), "")


POLL_SECONDS = 5.0
HEARTBEAT_SECONDS = 60.0
"""Seconds after which a line shows progress: CI systems end silent jobs."""
OUTAGE_SECONDS = 900.0
"""Seconds without a response after which following ends; the run continues."""
STATE_WORDS = {"RUNNING": "running", "PENDING": "waiting", "CANCELING": "canceling", "CANCELED": "canceled"}

Write = Callable[[str], None]


def find_run(cluster: KfpServer, run: str) -> ClusterRun:
    """The run with an id, or with a unique name.

    Raises:
      WorkError: there is none, or there are several with the name.
    """
    runs = cluster.client.runs

    # KFP's ids are UUIDs. A name could look like one, but `voxline submit` gives none that does.
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run):
        try:
            return ClusterRun.read(cluster, run)
        except RequestRefusedError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise WorkError(f"run {run}: {cluster.access.host} has no run with this id; see its list of runs") from None

    matches = list_named(runs.run_service_list_runs, "runs", run, namespace=cluster.namespace or "")
    if len(matches) == 1:
        return ClusterRun.read(cluster, matches[0].run_id)
    if not matches:
        raise WorkError(
            f"run {run!r}: {cluster.access.host} has no run with this name; give the id that submit printed"
        )
    ids = ", ".join(match.run_id for match in matches)
    raise WorkError(f"run {run!r}: {len(matches)} runs have this name; give one of the ids {ids}")


def follow_run(
    cluster: KfpServer, run_id: str, write: Write, *, poll: float = POLL_SECONDS, outage: float = OUTAGE_SECONDS
) -> ClusterRun:
    """Writes each change of a step, until the run is over.

    Raises:
      NoResponse: the server has not responded for `outage` seconds; the run continues.
      RequestRefusedError: the server refuses further requests; the run continues.
    """
    shown: dict[str, str] = {}  # step, or "" for the run → its state as last printed
    last_response = last_line = time.monotonic()
    while True:
        # The run needs no one who follows it, so an outage of the server is waited out.
        try:
            run = ClusterRun.read(cluster, run_id)
            last_response = time.monotonic()
        except NoResponse as silence:
            if time.monotonic() - last_response > outage:
                raise NoResponse(f"{silence}; the run continues; `voxline status {run_id}` shows it") from None
            write("the server does not respond; the run continues, trying again")
            time.sleep(poll)
            continue
        except RequestRefusedError as refusal:  # such as an expired token
            again = f"the run continues; `voxline status {run_id}` shows it"
            raise RequestRefusedError(f"{refusal}; {again}", refusal.status) from None

        for step in run.steps:
            status = f"{step.state} {step.message} {len(step.attempts)}"
            if shown.get(step.name) != status:
                shown[step.name] = status
                last_line = time.monotonic()
                write(format_step(step))
        if run.has_ended:
            return run

        # Before the first step there is only the run's own message, such as that no node has room for the driver.
        if run.message and not run.steps and shown.get("") != run.message:
            shown[""] = run.message
            last_line = time.monotonic()
            write(f"waiting: {run.message}")

        if time.monotonic() - last_line > HEARTBEAT_SECONDS:
            last_line = time.monotonic()
            write(", ".join(format_step(step) for step in run.steps if step.state == "RUNNING") or "waiting")
        time.sleep(poll)


def raise_if_failed(run: ClusterRun, step_error: str = "") -> None:
    """Raises a WorkError if the run has not succeeded.

    Args:
      step_error: what the failed step's log says, if it is known.

    Raises:
      WorkError: names the step, the reason and the command for its logs.
    """
    if run.state == "SUCCEEDED":
        return
    if run.state == "CANCELED":
        raise WorkError(f"run {run.id} was canceled; submit it again, and its finished steps are reused")

    # The server knows that a pod ended with status 1; the log of the step knows why.
    step = run.failed_step
    where = f" at {step.name}" if step else ""
    reasons = [text for text in ((step.message if step else "") or run.message, step_error) if text]
    why = ": ".join(reasons) or f"the server reports {run.state} without a reason"

    logs = f"voxline logs {run.id}" + (f" {step.name}" if step else "")
    raise WorkError(f"run {run.id} failed{where}: {why}; `{logs}` prints its logs")


def format_run(run: ClusterRun) -> Iterator[str]:
    """A line for the run and each of its steps."""
    yield f"{run.name}  {run.id}  {STATE_WORDS.get(run.state, run.state.lower())}"
    for step in run.steps:
        yield f"  {format_step(step)}"
    if run.message and (run.state == "FAILED" or not (run.steps or run.has_ended)):
        yield f"  {run.message}"


def format_step(step: StepStatus) -> str:
    """A step's line, such as `train      failed     12 s  attempt 2  OOMKilled (exit code 137)`."""
    state = STATE_WORDS.get(step.state, step.state.lower())
    time_ = "" if step.seconds is None else _duration(step.seconds)
    attempt = f"  attempt {len(step.attempts)}" if len(step.attempts) > 1 else ""
    why = f"  {step.message}" if step.message and step.state != "SUCCEEDED" else ""
    return f"{step.name:<10} {state:<10} {time_:>9}{attempt}{why}".rstrip()


def _duration(seconds: float) -> str:
    """
    >>> _duration(42.4), _duration(3700)
    ('42 s', '1 h 02 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"

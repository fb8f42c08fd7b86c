"""A run, found by its name or id, told to a person, and followed until it is over."""

import re
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from components.speech.errors import WorkError
from pipelines.cluster.calls import NoAnswer, RefusalError
from pipelines.cluster.client import Cluster
from pipelines.cluster.listing import named
from pipelines.cluster.steps import OVER, Step, failed_step, message_of, state_of, steps_of

POLL = 5.0
HEARTBEAT = 60.0
"""Seconds after which a line says that all goes on: CI systems end jobs that are silent."""
OUTAGE = 900.0
"""Seconds without an answer after which following ends; the run does not."""
STATES = {"RUNNING": "running", "PENDING": "waiting", "CANCELING": "being cancelled", "CANCELED": "cancelled"}

Tell = Callable[[str], None]


def run_named(cluster: Cluster, run: str) -> Any:
    """The run of an id, or of a name that only one has.

    Raises:
      WorkError: there is none, or several.
    """
    runs = cluster.client.runs
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run):
        try:
            return runs.run_service_get_run(run)
        except RefusalError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            raise WorkError(
                f"run {run}: {cluster.access.host} knows none of that id; look at its list of runs"
            ) from None
    found = named(runs.run_service_list_runs, "runs", run, namespace=cluster.namespace or "")
    if len(found) == 1:
        return runs.run_service_get_run(found[0].run_id)
    if not found:
        raise WorkError(f"run {run!r}: {cluster.access.host} knows none of that name; give the id that submit printed")
    ids = ", ".join(one.run_id for one in found)
    raise WorkError(f"run {run!r}: {len(found)} have that name; give one of the ids {ids}")


def follow(cluster: Cluster, run_id: str, tell: Tell, *, poll: float = POLL, outage: float = OUTAGE) -> Any:
    """Tells each change of a step, until the run is over.

    Raises:
      NoAnswer: the server has been silent for long; the run goes on.
      RefusalError: it does not let us look any more; the run goes on all the same.
    """
    told: dict[str, str] = {}
    answered = spoken = time.monotonic()
    while True:
        try:
            run = cluster.client.runs.run_service_get_run(run_id)
            answered = time.monotonic()
        except NoAnswer as silence:
            if time.monotonic() - answered > outage:
                raise NoAnswer(f"{silence}; the run goes on, `voxline status {run_id}` asks again") from None
            tell("the server does not answer; the run goes on, trying again")
            time.sleep(poll)
            continue
        except RefusalError as refusal:  # a token that has expired is one
            again = f"the run goes on, `voxline status {run_id}` asks again"
            raise RefusalError(f"{refusal}; {again}", refusal.status) from None
        for step in steps_of(run):
            if told.get(step.name) != step.state:
                told[step.name], spoken = step.state, time.monotonic()
                tell(line_of(step))
        if state_of(run) in OVER:
            return run
        if time.monotonic() - spoken > HEARTBEAT:
            spoken = time.monotonic()
            tell(", ".join(line_of(step) for step in steps_of(run) if step.state == "RUNNING") or "waiting")
        time.sleep(poll)


def verdict(run: Any) -> None:
    """Raises:
    WorkError: the run is over and has not succeeded: which step, why, and how to see more.
    """
    state = state_of(run)
    if state == "SUCCEEDED":
        return
    if state == "CANCELED":
        raise WorkError(f"run {run.run_id} was cancelled; submit it again, what was done by then is reused")
    step = failed_step(run)
    where = f" at {step.name}" if step else ""
    why = (step.message if step else "") or message_of(run) or f"the server says {state}, and not why"
    logs = f"voxline logs {run.run_id}" + (f" {step.name}" if step else "")
    raise WorkError(f"run {run.run_id} failed{where}: {why}; `{logs}` prints what it said")


def lines_of(run: Any) -> Iterator[str]:
    """The run and its steps, a line each."""
    yield f"{run.display_name}  {run.run_id}  {STATES.get(state_of(run), state_of(run).lower())}"
    for step in steps_of(run):
        yield f"  {line_of(step)}"
    if state_of(run) == "FAILED" and message_of(run):
        yield f"  {message_of(run)}"


def line_of(step: Step) -> str:
    """Such as `train      failed     12 s  out of memory`."""
    state = STATES.get(step.state, step.state.lower())
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

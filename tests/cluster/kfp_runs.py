"""What the stand-in answers about a run: recorded answers of KFP's own code, one state further with each request."""

import functools
import json
import re
from pathlib import Path
from typing import Any

from tests.cluster.kfp_state import Item, State

ANSWERS = Path(__file__).parent / "kubeflow" / "answers.json"
"""What KFP 2.17's converter made of workflows in each state of a run. `running-N` and `failed-N` have N finished steps;
names with `plain-` are from a server older than 2.17, whose nodes have no number."""
STEPS = ("ingest", "convert", "validate", "extract", "train", "evaluate", "push")
"""Of the recorded runs, in order."""
RECORDED_RUN = "0d6d40b5-7b17-4c1e-8f2d-111111111111"


@functools.cache
def recorded() -> dict[str, Any]:
    return dict(json.loads(ANSWERS.read_text(encoding="utf-8")))


REAL_ANSWERS = ANSWERS.with_name("real_answers.json")
"""Written by tests/kubeflow: what a real server said about runs in real pods, without what the client does not read."""


def real_answers() -> dict[str, Any]:
    return dict(json.loads(REAL_ANSWERS.read_text(encoding="utf-8"))) if REAL_ANSWERS.is_file() else {}


def advance(state: State, run: Item) -> None:
    """One step further, unless the run has ended or a test holds it."""
    if run["state"] in ("PENDING", "RUNNING", "CANCELING"):
        run["polls"] += 1
    if run["state"] == "CANCELING":
        run["scenario"], run["state"] = "canceled", "CANCELED"
    elif run["state"] in ("PENDING", "RUNNING"):
        done = min(run["polls"] - 1, 1 if state.hanging else len(STEPS))
        failed = next((number for number, step in enumerate(STEPS[:done]) if step in state.failing), None)
        ended = failed is not None or done == len(STEPS)
        run["state"] = "FAILED" if failed is not None else "SUCCEEDED" if ended else "RUNNING"
        run["scenario"] = "succeeded" if done == len(STEPS) else f"running-{done}"
        if failed is not None:
            run["scenario"] = f"failed-{failed}"


def answer(state: State, run: Item, version: str) -> Item:
    """What GET run returns, of `v1beta1` or `v2beta1`."""
    text = json.dumps(recorded()[state.scenario or run.get("scenario", "queued")][version])
    answered = dict(json.loads(text.replace(RECORDED_RUN, run["run_id"])))
    if version != "v2beta1":
        return answered
    # Of its parameters a run has only those that it was given: toApiRun, and the same is said of a schedule.
    given = {key: run[key] for key in ("display_name", "runtime_config") if key in run}
    return {**answered, **given}


def log_of(state: State, run: Item, pod: str) -> str:
    """What the server answers, always with status 200: a pod's log, or the error that the pod is gone."""
    nodes = recorded()[state.scenario or run.get("scenario", "queued")]["pods"]
    found = re.search(r"([a-z]+)(?:\(0\))?\.executor\((\d+)\)$", nodes.get(pod, ""))
    if state.pods_are_gone or not found:
        return str(recorded()["log-of-a-lost-pod"]["body"])
    return f"▸ {found[1]} works\x1b]0;a title\x07\n{state.failing.get(found[1], 'done')}\n"

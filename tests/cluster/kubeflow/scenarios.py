"""States of a run of `asr` on a server; `answers_test.go` writes what KFP answers about each.

The stand-in for a KFP server replays those answers from `answers.json`. To record them again, after a change here or
of KFP: VOXLINE_WRITE_GOLDEN=1 make test-cluster.
"""

from typing import Any

STEPS = ("ingest", "convert", "validate", "extract", "train", "evaluate", "push")
DONE, FAILED = {"phase": "Succeeded"}, {"phase": "Failed", "message": "Error (exit code 1)"}
OUT_OF_MEMORY = {"phase": "Failed", "message": "OOMKilled (exit code 137)"}
NODE_LOST = {"phase": "Error", "message": "pod deleted"}
CANCELLED = {"phase": "Failed", "message": "Step exceeded its deadline"}
WAITING = {
    "phase": "Pending",
    "message": "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}

Scenario = dict[str, Any]


def run_until(count: int, last: dict[str, str] | None = None, **more: Any) -> Scenario:
    """A run whose first `count` steps have succeeded, and whose next step, if there is one, has one attempt `last`."""
    steps = [{"name": step, "attempts": [DONE]} for step in STEPS[:count]]
    if count < len(STEPS):
        steps.append({"name": STEPS[count], "attempts": [last or {"phase": "Running"}]})
    phase = (
        "Succeeded" if count == len(STEPS) else "Failed" if last and last["phase"] in ("Failed", "Error") else "Running"
    )
    return {"phase": phase, "steps": steps, **more}


def scenarios() -> list[Scenario]:
    """Each with a name; nodes are named as KFP 2.17's controller does, or as that of earlier servers."""
    found: dict[str, Scenario] = {f"running-{count}": run_until(count, numbered=True) for count in range(len(STEPS))}
    found |= {f"failed-{count}": run_until(count, OUT_OF_MEMORY, numbered=True) for count in range(len(STEPS))}
    found["succeeded"] = run_until(len(STEPS), numbered=True)
    found["canceling"] = run_until(0, numbered=True, cancelled=True)
    found["canceled"] = run_until(0, CANCELLED, numbered=True, cancelled=True)
    found["waiting"] = run_until(4, WAITING, numbered=True)
    found["retried"] = run_until(4, numbered=True)
    found["retried"]["steps"][4]["attempts"] = [NODE_LOST, {"phase": "Running"}]
    found["driver"] = run_until(1, numbered=True, phase="Failed")
    found["driver"]["steps"][1] = {
        "name": "convert", "driver": "Failed", "message": "Error (exit code 1): the driver failed", "attempts": []
    }  # fmt: skip
    found["cached"] = run_until(1, numbered=True)
    found["cached"]["steps"][0] = {"name": "ingest", "cached": True, "attempts": []}
    found["queued"] = {"phase": "Running", "numbered": True, "steps": []}
    # Without the controller's retries of every template, as before 2.17.
    found["plain-running"] = run_until(3)
    found["plain-failed"] = run_until(4, FAILED)
    found["plain-failed"]["steps"][4]["attempts"] = [NODE_LOST, FAILED]
    return [{"name": name, **scenario} for name, scenario in found.items()]

"""What the client reads from the recorded answers of KFP's own code: steps, messages, attempts, pods."""

import copy
import dataclasses
import json
import re
import types
from typing import Any

import kfp_server_api
import pytest

from tests.cluster.conftest import Shell
from tests.cluster.kfp_runs import STEPS, real_answers, recorded
from tests.cluster.kfp_stand_in import StandIn
from voxline.pipelines.cluster.run_steps import StepStatus, steps_of_details, steps_of_tasks, steps_of_workflow


def read(name: str) -> dict[str, StepStatus]:
    workflow = json.loads(recorded()[name]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])
    return {step.name: step for step in steps_of_workflow(workflow)}


def details(name: str) -> list[Any]:
    """As the generated client reads the v2beta1 answer."""
    answer = types.SimpleNamespace(data=json.dumps(recorded()[name]["v2beta1"]))
    run = kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")
    return list(run.run_details.task_details)


def test_each_step_has_its_state_and_the_pods_that_kfp_derives() -> None:
    for count in range(len(STEPS)):
        steps = read(f"running-{count}")
        assert set(steps) == set(STEPS[: count + 1])
        assert [steps[name].state for name in STEPS[:count]] == ["SUCCEEDED"] * count
        assert steps[STEPS[count]].state == "RUNNING"
        assert all(steps[name].seconds == pytest.approx(42) for name in STEPS[:count])
        pods = {attempt.pod for step in steps.values() for attempt in step.attempts}
        executors = {pod for pod, node in recorded()[f"running-{count}"]["pods"].items() if ".executor(" in node}
        assert pods == executors


@pytest.mark.parametrize("name", ["retried", "plain-failed"])
def test_attempts_are_told_apart(name: str) -> None:
    train = read(name)["train"]
    assert (train.attempts[0].state, train.attempts[0].message) == ("FAILED", "pod deleted")
    assert train.state == ("RUNNING" if name == "retried" else "FAILED")
    assert len(train.attempts) == 2
    assert [one.log_uri.rpartition("/")[2] for one in train.attempts] == ["executor-logs-0", "executor-logs-1"]


def test_steps_below_a_condition_are_steps_like_others() -> None:
    """Where the step forecast decides whether to train, KFP runs the rest as a graph of its own, `condition-1`."""
    workflow = json.loads(recorded()["retried"]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])

    def timeless() -> dict[str, StepStatus]:
        return {step.name: dataclasses.replace(step, seconds=None) for step in steps_of_workflow(workflow)}

    plain = timeless()
    nodes = workflow["status"]["nodes"]
    for node in nodes.values():
        node["name"] = re.sub(r"(\.root)(\(\d+\))?\.train", r"\1\2.condition-1\2.train", node["name"])
    for number, kind in enumerate(("condition-1", "condition-1-driver")):
        root = next(node for node in nodes.values() if re.fullmatch(r"[^.]+\.root(\(\d+\))?", node["name"]))
        nodes[f"condition-{number}"] = {**root, "name": f"{root['name']}.{kind}"}
    assert timeless() == plain
    assert len(plain["train"].attempts) == 2


def test_each_trial_of_a_search_is_a_step_of_its_own() -> None:
    """Trials are iterations of KFP's loop; tests/kubeflow/test_trials.py has them on a server."""
    workflow = json.loads(recorded()["retried"]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])
    name, nodes = workflow["metadata"]["name"], workflow["status"]["nodes"]
    train = next(step for step in steps_of_workflow(workflow) if step.name == "train")
    loop = {"type": "DAG", "phase": "Running", "name": f"{name}(0).root(0).for-loop-1(0)", "id": "loop"}
    made = {"loop": loop, "group": {**loop, "name": f"{loop['name']}.iteration-iterations", "id": "group"}}
    made["driver"] = {**loop, "type": "Pod", "phase": "Succeeded", "name": f"{loop['name']}.iteration-driver(0)"}
    for key, node in list(nodes.items()):
        if ".train" in node["name"]:
            del nodes[key]
            for number in (0, 1):
                inside = f"for-loop-1(0).iteration-iterations({number}:{number})(0).iteration-item(0).trial"
                named = node["name"].replace("train", inside)
                made[f"{key}-{number}"] = {**node, "name": named, "id": f"{number}-{key}"}
    waiting = {**loop, "phase": "Pending", "name": f"{loop['name']}.iteration-iterations(2:2)", "id": "waits"}
    nodes |= {**made, "waits": waiting}
    steps = {step.name: step for step in steps_of_workflow(workflow)}
    assert [name for name in steps if name not in STEPS] == ["trial-0", "trial-1", "trial-2"]
    assert [(steps[name].state, len(steps[name].attempts)) for name in ("trial-0", "trial-2")] == [
        (train.state, 2), ("PENDING", 0)
    ]  # fmt: skip
    workflow["status"]["nodes"] = {key: node for key, node in nodes.items() if "iteration-" not in node["name"]}
    assert "for-loop-1" in [step.name for step in steps_of_workflow(workflow)], "before the first trial"


def test_status_says_that_a_training_was_skipped_and_why(
    shell: Shell, kfp: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the step forecast says no, Argo makes one node of the rest; tests/kubeflow has a real one."""
    ended = copy.deepcopy(recorded()["succeeded"])
    workflow = json.loads(ended["v1beta1"]["pipeline_runtime"]["workflow_manifest"])
    nodes = workflow["status"]["nodes"]
    (root,) = (one["name"] for one in nodes.values() if one["type"] == "DAG" and one["displayName"] == "root(0)")
    for key, node in list(nodes.items()):
        if any(f".{step}" in node["name"] for step in ("train", "evaluate")):
            del nodes[key]
        node["name"] = node["name"].replace(".push", ".forecast")
    driver = {"type": "Pod", "phase": "Succeeded", "name": f"{root}.condition-1-driver(0)", "id": "a"}
    why = "when 'false != false' evaluated false"
    left_out = {"type": "Skipped", "phase": "Skipped", "name": f"{root}.condition-1", "id": "b", "message": why}
    nodes |= {"a": driver, "b": {**left_out, "templateName": "comp-condition-1"}}
    nodes["c"] = {**nodes["b"], "name": left_out["name"].replace("root(0)", "root(1)"), "id": "c"}  # Argo retried it
    depends = {"evaluate": "evaluate-driver.Succeeded", "evaluate-driver": "language.Succeeded && train.Succeeded"}
    depends |= {"language": "language-driver.Succeeded", "language-driver": "train.Succeeded"}
    depends |= {"push": "push-driver.Succeeded", "push-driver": "evaluate.Succeeded && train.Succeeded"}
    depends |= {"train": "train-driver.Succeeded", "train-driver": ""}
    tasks = [{"name": name, "depends": before} for name, before in depends.items()]
    workflow["spec"]["templates"] = [{"name": "comp-condition-1", "dag": {"tasks": tasks}}]
    ended["v1beta1"]["pipeline_runtime"]["workflow_manifest"] = json.dumps(workflow)
    ended["pods"] = {pod: name.replace(".push", ".forecast") for pod, name in ended["pods"].items()}
    monkeypatch.setitem(recorded(), "skipped", ended)
    kfp.state.failing["forecast"] = (
        "▸ forecast: Nothing was trained: a promotion has a probability of 3%\n▸ notify.history: sent to gs://b/run.json"
    )
    shell.submit()
    (run_id,) = kfp.state.runs
    kfp.state.scenario = "skipped"
    first, *lines = shell("status", run_id).out.splitlines()
    assert first.endswith("succeeded")
    steps = [line.split()[:2] for line in lines[:-1]]
    assert steps[:5] == [[step, "succeeded"] for step in (*STEPS[:4], "forecast")]
    assert steps[5:] == [[step, "skipped"] for step in ("train", "language", "evaluate", "push")]
    assert lines[-1] == "  forecast: Nothing was trained: a promotion has a probability of 3%"
    assert lines[-1].strip() in shell.submit("--wait", "--poll", "0.05").out


def test_messages_say_why_a_step_failed_or_waits() -> None:
    assert read("failed-4")["train"].message == "OOMKilled (exit code 137)"
    assert read("plain-failed")["train"].message == "Error (exit code 1)"
    assert read("waiting")["train"].message.startswith("Unschedulable: 0/3 nodes are available")
    assert read("waiting")["train"].state == "PENDING"
    driver = read("driver")["convert"]
    assert (driver.state, driver.message) == ("FAILED", "Error (exit code 1): the driver failed")
    assert read("cached")["ingest"].state == "SUCCEEDED"
    assert read("queued") == {}


@pytest.mark.parametrize("name", ["running-3", "plain-running", "succeeded", "failed-4", "plain-failed", "cached"])
def test_names_and_states_are_enough_where_the_workflow_is_not_told(name: str) -> None:
    whole, named = read(name), {step.name: step for step in steps_of_details(details(name))}
    assert {step: (one.state, one.started) for step, one in named.items()} == {
        step: (one.state, one.started) for step, one in whole.items()
    }


def test_the_tasks_of_kfp_3_are_read() -> None:
    """By the messages of backend/api/v2beta1/run.proto in kubeflow/pipelines#13986."""
    pods = [{"name": "a-driver", "type": "DRIVER"}, {"name": "a-0", "type": "EXECUTOR"}]
    tasks = [
        {"name": "root", "type": "ROOT", "state": "RUNNING"},
        {"name": "ingest", "type": "RUNTIME", "state": "FAILED", "create_time": "2026-01-01T00:00:00Z",
         "end_time": "2026-01-01T00:00:42Z", "status_metadata": {"message": "no corpus"}, "pods": pods},
        {"name": "convert", "type": "RUNTIME", "state": "CACHED"},
    ]  # fmt: skip
    ingest, convert = steps_of_tasks(tasks)
    assert (ingest.state, ingest.seconds, ingest.message) == ("FAILED", 42.0, "no corpus")
    assert [attempt.pod for attempt in ingest.attempts] == ["a-0"]
    assert convert.state == "SKIPPED"


def test_status_shows_attempts_and_why_a_step_waits(shell: Shell, kfp: StandIn) -> None:
    shell.submit()
    (run_id,) = kfp.state.runs
    kfp.state.scenario = "waiting"
    assert "train      waiting" in shell("status", run_id).out
    assert "3 Insufficient nvidia.com/gpu." in shell("status", run_id).out
    kfp.state.scenario = "retried"
    assert "attempt 2  pod deleted" in shell("status", run_id).out
    kfp.state.scenario = "canceled"
    assert shell("status", run_id).out.splitlines()[0].endswith("canceled")


def test_status_says_why_a_run_comes_to_no_step(shell: Shell, kfp: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a real server answers while the first pod, which belongs to no step, finds no node (tests/kubeflow)."""
    queued = copy.deepcopy(recorded()["queued"])
    workflow = json.loads(queued["v1beta1"]["pipeline_runtime"]["workflow_manifest"])
    for node in workflow["status"]["nodes"].values():
        if node["name"].endswith("root-driver(0)"):
            node |= {"phase": "Pending", "message": "Unschedulable: no nodes available to schedule pods"}
    queued["v1beta1"]["pipeline_runtime"]["workflow_manifest"] = json.dumps(workflow)
    monkeypatch.setitem(recorded(), "unschedulable", queued)
    shell.submit()
    (run_id,) = kfp.state.runs
    kfp.state.scenario = "unschedulable"
    assert shell("status", run_id).out.splitlines()[1:] == ["  Unschedulable: no nodes available to schedule pods"]
    kfp.state.scenario = "queued"
    assert len(shell("status", run_id).out.splitlines()) == 1


def test_a_step_whose_driver_waits_is_waiting() -> None:
    workflow = json.loads(recorded()["running-1"]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])
    nodes = workflow["status"]["nodes"]
    for key, node in list(nodes.items()):
        if ".convert(0)" in node["name"] or node["name"].endswith(".convert"):
            del nodes[key]
        elif ".convert-driver" in node["name"]:
            node |= {"phase": "Pending" if node["type"] == "Pod" else "Running", "message": "exceeded quota"}
    (convert,) = [step for step in steps_of_workflow(workflow) if step.name == "convert"]
    assert (convert.state, convert.message) == ("PENDING", "exceeded quota")


def test_the_log_of_a_lost_pod_is_an_error_and_not_a_log(shell: Shell, kfp: StandIn) -> None:
    shell.submit()
    (run_id,) = kfp.state.runs
    kfp.state.scenario, kfp.state.pods_are_gone = "failed-4", True
    ended = shell("logs", run_id, "train", "--deadline", "2")
    assert ended.status == 1
    assert "error_message" not in ended.out
    assert "not found" in ended.err
    assert "executor-logs-0" in ended.err, "where its copy is"


def test_the_steps_after_one_that_failed_are_not_listed() -> None:
    """As a real server answered about a run in real pods (tests/kubeflow/test_steps.py), where Argo omits them."""
    real = real_answers()["failed"]
    steps = list(steps_of_workflow(real["workflow"]))
    assert [(step.name, step.state, step.message) for step in steps] == [("ingest", "FAILED", "Error (exit code 1)")]
    assert len(steps[0].attempts) == 1
    answer = types.SimpleNamespace(data=json.dumps({"run_details": {"task_details": real["task_details"]}}))
    run = kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")
    assert [(step.name, step.state) for step in steps_of_details(run.run_details.task_details)] == [
        ("ingest", "FAILED")
    ]

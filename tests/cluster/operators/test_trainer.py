"""What Kubeflow Trainer and JobSet, in their own code, make of the jobs of the train step, and what the step reads."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.k8s.built import BUILDABLE, Object, builder, built
from tests.cluster.operators import sources
from tests.cluster.workers.operator_stand_in import ANSWERS
from voxline.components.train.distributed.jobs import TRAIN_JOB, JobSpec, job_outcome
from voxline.components.train.distributed.launcher import QUEUE_LABEL, JobLauncher
from voxline.components.train.distributed.worker import make_tf_config
from voxline.families.family import family_names, find_family
from voxline.training.settings import TrainSettings

IMAGE = "registry.example/model:1"
COUNT = 4
ENDED = {
    "trained": ("Complete", "CompletionsReached", "Reached expected number of succeeded pods"),
    "bad data": (
        "Failed",
        "PodFailurePolicy",
        "Container node for pod voxline/w-0-x failed with exit code 1 matching FailJob rule at index 0",
    ),
    "lost worker": ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
}
"""How Kubernetes' job controller ends a Job: type, reason and message of its condition."""
RESTARTS = 10


class Pod:
    """What a launcher asks of the cluster before it creates a job."""

    namespace = "voxline"

    def pod(self, name: str) -> Object:
        container = {"name": "main", "image": IMAGE}
        return {"metadata": {"name": "asr-nightly-1", "uid": "1234"}, "spec": {"containers": [container]}}

    def get(self, api: str, plural: str, name: str) -> Object:
        return {"metadata": {"name": name}}


def train_job(settings: TrainSettings) -> Object:
    spec = JobSpec("0f" * 16, "/mnt/store/extract/ab", "/mnt/store", settings)
    return JobLauncher(Pod(), spec, lambda: False)._body()  # type: ignore[arg-type]


def settings_of(family: str = "asr", **workers: Any) -> TrainSettings:
    return find_family(family).train_settings.of({"workers": {"count": COUNT, **workers}}, "train")


def runtime_of(path: str) -> Object | None:
    return next((one for one in built(path) if one["kind"] == "TrainingRuntime"), None)


def ends(how: str) -> Object:
    kind, reason, message = ENDED[how]
    return {"job": {"type": kind, "status": "True", "reason": reason, "message": message}}


def scenarios() -> list[Object]:
    runtime = runtime_of("overlays/gpu-pool")
    assert runtime is not None
    job = train_job(settings_of())
    restart = [ends("lost worker"), {"delete": True}]
    unlike = copy.deepcopy(runtime)
    unlike["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "name"
    ] = "trainer"
    waiting = copy.deepcopy(job)
    waiting["spec"]["suspend"] = True
    return [
        *(
            {"name": f"{path} {family}", "runtime": runtime_of(path), "trainJob": train_job(settings_of(family))}
            for path in BUILDABLE
            if runtime_of(path)
            for family in family_names()
        ),
        {"name": "largest", "runtime": runtime, "trainJob": train_job(settings_of(count=256))},
        {"name": "trained", "runtime": runtime, "trainJob": job, "events": [ends("trained")]},
        {"name": "bad data", "runtime": runtime, "trainJob": job, "events": [ends("bad data")]},
        {"name": "lost worker", "runtime": runtime, "trainJob": job, "events": restart * (RESTARTS + 1)},
        {"name": "queue", "runtime": runtime, "trainJob": waiting, "events": [{"suspend": False}]},
        {
            "name": "preempted",
            "runtime": runtime,
            "trainJob": job,
            "events": [{"suspend": True}, {"suspend": False}, ends("trained")],
        },
        {"name": "no runtime", "trainJob": job},
        {"name": "another container", "runtime": unlike, "trainJob": job},
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By scenario: `refused`, why a webhook refuses it, or `states`, one at first and one after each event."""
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "scenarios.json").write_text(json.dumps(scenarios()))
    sources.run(folder)
    found = {one["name"]: one for one in json.loads((folder / "played.json").read_text())}
    for one in found.values():
        for state in one["states"] or []:
            assert not state["faults"], one["name"]
    return found


def said(played: dict[str, Any]) -> Object:
    """What the stand-in of tests/cluster/workers repeats: conditions of TrainJobs, labels of pods."""

    def conditions(name: str, state: int = -1) -> list[Object]:
        found = played[name]["states"][state]["trainJob"]["status"]["conditions"]
        return [{key: value for key, value in one.items() if key != "lastTransitionTime"} for one in found]

    first = played["trained"]["states"][0]
    return {
        "job": first["trainJob"]["metadata"]["name"],
        "labels": first["jobs"][0]["spec"]["template"]["metadata"]["labels"],
        "trained": conditions("trained"),
        "bad data": conditions("bad data"),
        "lost worker": conditions("lost worker"),
        "queued": conditions("queue", 0),
        "admitted": conditions("queue", 1),
    }


def test_the_stand_in_repeats_what_the_controllers_say(played: dict[str, Any]) -> None:
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        ANSWERS.write_text(json.dumps(said(played), indent=1) + "\n")
    assert json.loads(ANSWERS.read_text()) == said(played)


def outcomes(one: Any) -> list[Any]:
    return [job_outcome(state["trainJob"]) for state in one["states"]]


@pytest.mark.parametrize("family", family_names())
@pytest.mark.parametrize("path", BUILDABLE)
def test_workers_are_what_the_template_and_the_step_say(played: dict[str, Any], path: str, family: str) -> None:
    if runtime_of(path) is None:
        assert f"{path} {family}" not in played
        return
    (state,) = played[f"{path} {family}"]["states"]
    (job,), (service,), (job_set,) = state["jobs"], state["services"], state["jobSets"]
    asked = state["trainJob"]
    name = asked["metadata"]["name"]
    spec = job["spec"]
    assert job["metadata"]["name"] == f"{name}-node-0"
    assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", COUNT, COUNT)
    assert (spec["backoffLimit"], spec["suspend"]) == (0, False)
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 2]
    assert not job_set["spec"].get("suspend")
    template = next(one for one in built(path) if one["kind"] == "PodTemplate" and "train" in one["metadata"]["name"])
    pod, expected = spec["template"], copy.deepcopy(template["template"])
    expected["spec"]["containers"][0].update(
        image=IMAGE, command=asked["spec"]["trainer"]["command"], args=asked["spec"]["trainer"]["args"]
    )
    assert expected["metadata"]["labels"].items() <= pod["metadata"]["labels"].items(), "for network policies"
    assert expected["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items()
    assert pod["spec"].pop("subdomain") == service["metadata"]["name"]
    assert comparable(pod["spec"]) == comparable(expected["spec"]), "nothing added, nothing lost"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"], "workers wait for each other before they are ready"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    # The job controller's own part: the host name and the index of a pod.
    for index in range(COUNT):
        environment = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{job['metadata']['name']}-{index}"}
        config = json.loads(make_tf_config(name, COUNT, environment))
        assert config["cluster"]["worker"][index] == f"{environment['HOSTNAME']}.{service['metadata']['name']}:2222"


def comparable(value: Any) -> Any:
    """Without empty values, quantities as numbers."""
    if isinstance(value, dict):
        found = {key: comparable(one) for key, one in value.items()}
        return {key: one for key, one in found.items() if one not in (None, {}, [], "")}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return value


def test_the_pods_and_all_above_them_have_the_labels_that_the_page_names(played: dict[str, Any]) -> None:
    (state,) = played["overlays/gpu-pool asr"]["states"]
    selector = TRAIN_JOB.selector(state["trainJob"]["metadata"]["name"]).partition("=")
    for one in (state["trainJob"], *state["jobSets"]):
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "voxline", one["kind"]
    labels = state["jobs"][0]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "voxline"
    assert labels[selector[0]] == selector[2]


def test_the_largest_job_has_names_that_fit(played: dict[str, Any]) -> None:
    (state,) = played["largest"]["states"]
    assert state["jobs"][0]["spec"]["completions"] == 256


def test_success_is_read_as_success(played: dict[str, Any]) -> None:
    running, ended = outcomes(played["trained"])
    assert running is None
    assert (ended.succeeded, ended.reason) == (True, "AllJobsCompleted")


def test_bad_data_ends_the_job_at_once(played: dict[str, Any]) -> None:
    running, ended = outcomes(played["bad data"])
    assert running is None
    assert (ended.succeeded, ended.reason) == (False, "FailJobSetFailurePolicyAction")
    assert len(played["bad data"]["states"][-1]["jobs"]) == 1, "its pods stay, and say why"


def test_a_lost_worker_restarts_all_and_ten_restarts_are_enough(played: dict[str, Any]) -> None:
    states = played["lost worker"]["states"]
    attempts = [job["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for job in states[2]["jobs"]]
    assert attempts == ["1"], "a new Job, once the old one and its pods are gone"
    assert [bool(job["metadata"].get("deletionTimestamp")) for job in states[1]["jobs"]] == [True]
    found = outcomes(played["lost worker"])
    assert found[: 2 * RESTARTS + 1] == [None] * (2 * RESTARTS + 1)
    assert (found[-1].succeeded, found[-1].reason) == (False, "ReachedMaxRestarts")


def test_a_queued_job_has_no_pods_until_it_is_admitted(played: dict[str, Any]) -> None:
    queued, admitted = played["queue"]["states"]
    assert [job["spec"]["suspend"] for job in queued["jobs"]] == [True]
    assert [job["spec"]["suspend"] for job in admitted["jobs"]] == [False]
    assert outcomes(played["queue"]) == [None, None]


def test_a_preempted_job_waits_and_goes_on(played: dict[str, Any]) -> None:
    _, suspended, _, ended = played["preempted"]["states"]
    assert [job["spec"]["suspend"] for job in suspended["jobs"]] == [True]
    assert outcomes(played["preempted"])[:3] == [None] * 3
    assert job_outcome(ended["trainJob"]).succeeded  # type: ignore[union-attr]


def test_a_job_without_its_runtime_is_refused(played: dict[str, Any]) -> None:
    (why,) = played["no runtime"]["refused"]
    assert "must be created before the TrainJob" in why


def test_a_runtime_whose_container_has_another_name_is_refused(played: dict[str, Any]) -> None:
    (why,) = played["another container"]["refused"]
    assert "must contain the required container for the ancestor: trainer" in why


def test_the_queue_is_named_where_kueue_looks(tmp_path: Path) -> None:
    assert train_job(settings_of(queue="speech"))["metadata"]["labels"][QUEUE_LABEL] == "speech"

"""`voxline submit` with pods that run: from an empty cluster to a promoted model, and what ends a step otherwise."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kfp_runs import recorded
from tests.kubeflow.cluster import ACCOUNT, ONE_NODE, REFUSED, ROOT, STEPS, Cluster, printed_id, succeeded
from tests.kubeflow.control_plane import SERVICES, documents
from tests.kubeflow.node import Node
from tests.kubeflow.pipelines_server import HOST, KEYS, NAMESPACE, S3, PipelinesServer
from voxline.data.dataset import Dataset
from voxline.notify.event import MetricValue, RunEvent, RunIdentity, RunVerdict, StepRecord
from voxline.notify.history import read_runs, record_run
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.cluster.run_steps import read_workflow
from voxline.store.files import read_json


def test_from_an_empty_cluster_to_a_promoted_model(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer=10)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    assert cluster.versions() == ["1"]
    assert (cluster.volumes / "registry" / "asr" / "1" / "saved_model.pb").is_file()


def test_a_step_is_a_numbered_user_on_a_read_only_root(cluster: Cluster) -> None:
    """The account and the policy of the cluster decide; the step writes to its volumes alone."""
    policy = cluster.kubernetes.kubectl("get", "mutatingadmissionpolicy/read-only-root")
    if policy.returncode:
        pytest.skip(f"the cluster has no policy for a read-only root: {policy.stderr.strip()}")
    run_id = cluster.last_success()
    for step in STEPS:
        (pod,) = cluster.pods(run_id, step)
        (main,) = (one for one in pod["spec"]["containers"] if one["name"] == "main")
        context = main["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert (context["runAsUser"], context["runAsNonRoot"]) == (65532, True)


def test_a_second_run_reuses_every_step(cluster: Cluster) -> None:
    def works() -> dict[str, str]:
        """What is finished, with its contents: reuse sets the time of the file alone."""
        store = cluster.volumes / "store"
        files = [file for step in STEPS[:-1] for file in store.glob(f"{step}/*/done.json")]  # push compares again
        return {str(file.relative_to(store)): file.read_text() for file in files}

    before = works()
    assert {name.partition("/")[0] for name in before} == set(STEPS[:-1])
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer=10)
    assert ended.status == 0, ended.err
    assert "already uploaded" in ended.out
    assert succeeded(ended.out) == STEPS
    assert works() == before


def test_the_recorded_answers_have_the_nodes_of_a_real_run(cluster: Cluster) -> None:
    """What the stand-in replays was made by KFP's converter from workflows written by hand."""
    real = read_workflow(KfpServer(KfpEndpoint(HOST)), cluster.last_success())
    assert real is not None
    hand = json.loads(recorded()["succeeded"]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])

    def nodes(workflow: dict[str, Any]) -> set[tuple[str, str]]:
        name = workflow["metadata"]["name"]
        return {(one["name"].removeprefix(name), one["type"]) for one in workflow["status"]["nodes"].values()}

    assert nodes(hand) == nodes(real)


def test_logs_are_read_while_pods_are_there_and_after_they_are_gone(cluster: Cluster) -> None:
    run_id = cluster.last_success()
    seen = cluster.shell("logs", run_id, "train")
    assert seen.status == 0, seen.err
    assert "train" in seen.out
    done = cluster.kubernetes.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"pipeline/runid={run_id}", "--wait")
    assert done.returncode == 0, done.stderr
    later = cluster.shell("logs", run_id, "train")
    print(later.out, later.err)
    assert later.status == 0, later.err
    assert later.out.split() == seen.out.split()


def test_a_refused_corpus_ends_the_run_and_keeps_its_page(cluster: Cluster, pipelines: PipelinesServer) -> None:
    """Validate succeeds with its page, and the next step fails, once."""
    ended = cluster.submit("--wait", "--poll", "1", "--resubmit", "2", **REFUSED)
    assert ended.status == 1
    assert "failed at extract" in ended.err
    assert "small_splits" in ended.err, "the message of validate"
    assert "submitting it again" not in ended.err
    assert succeeded(ended.out) == STEPS[:3]
    run_id = printed_id(ended)
    status = cluster.status(run_id)
    print(json.dumps(status, indent=1))
    assert " failed" in status["extract"]
    assert "train" not in status
    pages = [name for name in pipelines.artifacts(run_id, "validate") if name.endswith("/report")]
    assert pages
    assert "<html" in pipelines.read_artifact(pages[0])
    assert "small_splits" in cluster.shell("logs", run_id, "extract").out


def test_a_killed_pod_is_started_again(cluster: Cluster) -> None:
    """Argo makes it again: under its name, within the attempt, or as the next one. The status follows either."""
    run_id = cluster.start(train__seed=7, cluster__steps__train__retry_seconds=1)
    killed = cluster.running_pod(run_id, "train")
    uid = killed["metadata"]["uid"]
    cluster.kubernetes.kubectl(
        "delete", "pod", killed["metadata"]["name"], "-n", NAMESPACE, "--grace-period=0", "--force"
    )
    again = cluster.running_pod(run_id, "train", other_than=uid)
    print(line := cluster.wait_for(run_id, "train", "succeeded"))
    renamed = again["metadata"]["name"] != killed["metadata"]["name"]
    assert ("attempt 2" in line) == renamed
    logs = cluster.shell("logs", run_id, "train")
    assert logs.status == 0, logs.err
    assert ("== train, attempt 2" in logs.out) == renamed
    cluster.cancel(run_id)


def test_a_refused_model_is_not_promoted(cluster: Cluster) -> None:
    """A refusal is a result: the run succeeds, and says why. Train is reused."""
    ended = cluster.submit("--wait", "--poll", "1", train__seed=7, push__limits__wer="0.0001")
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    assert cluster.versions() == ["1"]
    assert "limits.wer" in ended.out.splitlines()[-2]
    log = cluster.shell("logs", printed_id(ended), "push").out
    (line,) = (one for one in log.splitlines() if "Not pushed" in one)
    assert "limits.wer" in line


def test_a_step_goes_on_at_another_node_when_its_own_is_taken_away(cluster: Cluster, node: Node) -> None:
    run_id = cluster.start(train__seed=8, cluster__steps__train__retry_seconds=1)
    cluster.running_pod(run_id, "train")
    node.take_away()
    try:  # Argo calls the pod deleted, and makes it again: under its name, or as another attempt
        print(line := cluster.wait_for(run_id, "train", "no nodes available"))
        assert "waiting" in line
    finally:
        node.bring_back()
    print(cluster.wait_for(run_id, "train", "succeeded"))
    cluster.cancel(run_id)


def test_memory_that_is_not_enough_is_named(cluster: Cluster) -> None:
    """TensorFlow alone takes more than this."""
    memory = {"cluster__steps__train__memory": "120Mi", "cluster__steps__train__shared_memory": "''"}
    little = {**memory, "cluster__steps__train__retries": 0, "train__seed": 9}
    ended = cluster.submit("--wait", "--poll", "1", "--resubmit", "1", **little)
    assert ended.status == 1
    assert "failed at train: OOMKilled" in ended.err
    assert "submitting it again (1 of 1)" in ended.err, "more memory may be free the next time"
    print(cluster.status(printed_id(ended)))


def test_a_step_waits_for_a_storage_that_is_away(cluster: Cluster, pipelines: PipelinesServer) -> None:
    """Exit status 75 ends a command; in a pod the step tries again, and at last the run fails."""
    keys = {"id": "AWS_ACCESS_KEY_ID", "key": "AWS_SECRET_ACCESS_KEY"}
    secret = {"metadata": {"name": "away", "namespace": NAMESPACE}, "stringData": dict.fromkeys(keys, "any")}
    cluster.kubernetes.apply([{"apiVersion": "v1", "kind": "Secret", **secret}])
    place = {"AWS_ENDPOINT_URL": f"http://{SERVICES}:9009", "AWS_DEFAULT_REGION": "us-east-1"}
    place["VOXLINE_BUCKETS_DEADLINE_SECONDS"] = "5"
    given = {
        "corpus__uri": "s3://corpora/LibriSpeech",
        "cluster__env": json.dumps(place),
        "cluster__secrets": json.dumps([{"name": "away", "env": keys}]),
    }
    often = {"cluster__steps__ingest__retries": 1, "cluster__steps__ingest__retry_seconds": 1}
    ended = cluster.submit("--wait", "--poll", "1", "--resubmit", "1", **given, **often)
    assert ended.status == 1
    assert "submitting it again (1 of 1)" in ended.err
    _, last = (line for line in ended.err.splitlines() if "failed at ingest" in line)
    assert "s3://corpora/LibriSpeech" in last, last
    log = cluster.shell("logs", printed_id(ended), "ingest").out
    print(log)
    assert "TransientError" in log


def test_a_full_quota_is_named_while_the_run_waits(cluster: Cluster) -> None:
    """The namespace's own limits, with less memory: without its defaults, a quota refuses the containers of Argo."""
    limits = [
        {**one, "metadata": {**one["metadata"], "namespace": NAMESPACE}}
        for one in documents((ROOT / "k8s/base/limits.yaml").read_text())
    ]
    (quota,) = (one for one in limits if one["kind"] == "ResourceQuota")
    quota["spec"] = {"hard": {"requests.memory": "1Gi"}}
    (defaults,) = (one for one in limits if one["kind"] == "LimitRange")
    del defaults["spec"]["limits"][0]["defaultRequest"]["ephemeral-storage"]  # this node does not measure its disk
    cluster.kubernetes.apply(limits)
    try:
        run_id = cluster.start()
        line = cluster.wait_for(run_id, "ingest", "exceeded quota: voxline")
        print(line)
        assert "waiting" in line
        cluster.kubernetes.kubectl("delete", "resourcequota", "voxline", "-n", NAMESPACE)
        print(cluster.wait_for(run_id, "ingest", "succeeded"))
        cluster.cancel(run_id)
    finally:
        cluster.kubernetes.kubectl("delete", "resourcequota,limitrange", "voxline", "-n", NAMESPACE)


def test_an_image_that_is_missing_is_named(cluster: Cluster) -> None:
    run_id = cluster.start(cluster__images__tag="absent", cluster__images__pull_policy="Never")
    line = cluster.wait_for(run_id, "ingest", "ErrImageNeverPull")
    print(line)
    assert "waiting" in line
    cluster.cancel(run_id)


def test_the_artifact_model_opens_as_a_saved_model(
    cluster: Cluster, pipelines: PipelinesServer, tmp_path: Path
) -> None:
    """From KFP's own store, as an importer or a registry of models fetches it."""
    import tensorflow as tf

    (uri,) = pipelines.uris(cluster.last_success(), "train", "model")
    bucket, _, prefix = uri.removeprefix("minio://").partition("/")
    for one in pipelines.s3().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]:
        file = tmp_path / "model" / one["Key"].removeprefix(f"{prefix}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        pipelines.s3().download_file(bucket, one["Key"], str(file))
    assert "serving_default" in tf.saved_model.load(str(tmp_path / "model")).signatures


def test_the_store_of_a_run_is_read_from_here(cluster: Cluster) -> None:
    """What the pods wrote is what a run on this machine writes."""
    done = [read_json(file) for file in (cluster.volumes / "store").glob("train/*/done.json")]
    assert done
    assert all(one["metrics"] for one in done)


def test_the_second_night_of_a_schedule_reuses_what_the_first_one_made(cluster: Cluster) -> None:
    """Both fire by the clock, and their steps run in pods."""
    client = KfpServer(KfpEndpoint(HOST)).client.runs
    sets = [part for one in (ACCOUNT, "train.seed=13", "push.limits.wer=10") for part in ("--set", one)]
    ended = cluster.shell(
        "schedule", "asr", "--config", "tiny.yaml", "--config", ONE_NODE, *sets,
        "--cron", "* * * * *", "--name", "nights",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    schedule = cluster.shell("schedule", "list").out.split()[8]

    def nights() -> list[str]:
        found = client.run_service_list_runs(page_size=100, sort_by="created_at asc").runs or []
        return [one.run_id for one in found if one.recurring_run_id == schedule]

    def works() -> dict[str, str]:
        files = [file for step in STEPS[:-1] for file in (cluster.volumes / "store").glob(f"{step}/*/done.json")]
        return {str(file): file.read_text() for file in files}

    try:
        before, made = works(), []
        for number in (1, 2):
            cluster.kubernetes.servers.wait(lambda number=number: len(nights()) >= number, f"night {number}", 300)  # type: ignore[misc]
            cluster.wait_for(nights()[number - 1], "", "succeeded")
            made.append(works())
    finally:
        assert cluster.shell("schedule", "remove", "nights").status == 0
    status = cluster.shell("status", nights()[1]).out
    print(status)
    assert succeeded(status.replace("\n  ", "\n")) == STEPS
    assert len(made[0]) > len(before), "the first night trained"
    assert made[1] == made[0], "the second one computed nothing"
    for run_id in nights()[2:]:
        cluster.cancel(run_id)


def test_store_and_registry_are_in_s3(cluster: Cluster, pipelines: PipelinesServer) -> None:
    """The cluster's own server: nothing but the corpus is on a volume."""
    bucket = "speech"
    pipelines.s3().create_bucket(Bucket=bucket)
    keys = {"id": "AWS_ACCESS_KEY_ID", "key": "AWS_SECRET_ACCESS_KEY"}
    values = {"id": KEYS["accesskey"], "key": KEYS["secretkey"]}
    secret = {"metadata": {"name": "speech-s3", "namespace": NAMESPACE}, "stringData": values}
    cluster.kubernetes.apply([{"apiVersion": "v1", "kind": "Secret", **secret}])
    before = set(cluster.volumes.glob("*/*/*"))
    given = {
        "store": f"s3://{bucket}/store",
        "registry": f"s3://{bucket}/registry",
        "cluster__env": json.dumps({"AWS_ENDPOINT_URL_S3": S3, "AWS_DEFAULT_REGION": "us-east-1"}),
        "cluster__secrets": json.dumps([{"name": "speech-s3", "env": keys}]),
        "push__limits__wer": 10,
    }
    ended = cluster.submit("--wait", "--poll", "1", **given)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    listed = pipelines.s3().get_paginator("list_objects_v2").paginate(Bucket=bucket)
    names = [one["Key"] for page in listed for one in page.get("Contents", [])]
    done = {name.split("/")[1] for name in names if name.startswith("store/") and name.endswith("/done.json")}
    assert set(STEPS[:-1]) <= done
    assert [name for name in names if name.startswith("registry/asr/1/") and name.endswith("saved_model.pb")]
    assert set(cluster.volumes.glob("*/*/*")) == before


def test_a_training_that_is_not_worth_it_is_skipped(cluster: Cluster) -> None:
    """After a month of refusals no pod of train starts. The last test, as its run has no model."""
    folder, versions = cluster.volumes / "store" / "history", cluster.versions()
    extracted = next(cluster.volumes.glob("store/extract/*/done.json")).parent
    _record_refusals(folder, Dataset.read(extracted, shards=False))
    given = {"name": "doubtful", "forecast__skip_below": 0.5, "notify__history": "/mnt/store/history"}
    ended = cluster.submit("--wait", "--poll", "1", **given)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == [*STEPS[:4], "forecast"]
    why = "forecast: Nothing was trained: a promotion has a probability of "
    assert ended.out.splitlines()[-2].startswith(why)
    run_id = printed_id(ended)
    status = cluster.status(run_id)
    print(json.dumps(status, indent=1))
    assert status[""].endswith(" succeeded")
    assert all(" skipped" in status[step] for step in STEPS[4:])
    assert status["forecast:"].strip().startswith(why)
    assert not [pod for step in STEPS[4:] for pod in cluster.pods(run_id, step)]
    assert cluster.versions() == versions
    last = read_runs(folder, model="asr")[-1]
    assert (last["run"]["id"], last["verdict"]) == (run_id, "skipped"), "a pod writes the history"


def _record_refusals(folder: Path, dataset: Dataset) -> None:
    """A month of nights until yesterday: the first model was promoted, the others refused."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    steps = (StepRecord("extract", "succeeded", metrics={"train_hours": dataset.seconds["train"] / 3600}),)
    for night in range(30):
        ended = time.time() - (30 - night) * 86_400
        identity = RunIdentity("asr", "doubtful", "asr", id=f"night-{night:02d}", started=ended - 600)
        verdict: RunVerdict = "refused" if night else "promoted"
        metrics = {"wer": MetricValue(0.05 + 0.001 * (night % 3))}
        record_run(RunEvent(identity, verdict, "", ended, steps=steps, metrics=metrics), folder)
    for written in folder.rglob("*"):
        written.chmod(0o777)  # for the pods, which run as another user

"""`voxline submit` with pods that run: from an empty cluster to a promoted model, and what ends a step otherwise."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Ended, Shell
from tests.cluster.kfp_runs import REAL_ANSWERS, real_answers, recorded
from tests.kubeflow.control_plane import Kubernetes
from tests.kubeflow.node import Node
from tests.kubeflow.pipelines_server import HOST, NAMESPACE, PipelinesServer
from tests.pipelines.conftest import CONFIG
from voxline.components.demo_corpus.settings import DemoCorpusSettings
from voxline.components.demo_corpus.step import run as generate
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.cluster.run_steps import read_workflow
from voxline.store.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["ingest", "convert", "validate", "extract", "train", "evaluate", "push"]
NODE_FIELDS = {"id", "name", "type", "phase", "message", "startedAt", "finishedAt", "templateName"}
ACCOUNT = "cluster.service_account=voxline-train"


@pytest.fixture(scope="module")
def corpus(volumes: Path) -> None:
    """A corpus on the volume of the store."""
    chosen = DemoCorpusSettings.of(
        train_speakers=2, dev_speakers=1, test_speakers=1, utterances_per_speaker=10, dev_utterances_per_speaker=4
    )
    generate(volumes / "store" / "corpora", chosen)


class Cluster:
    """Types `voxline submit asr` with a tiny config on the overlay `one-node`."""

    def __init__(self, shell: Shell, volumes: Path, kubernetes: Kubernetes) -> None:
        self.shell, self.volumes, self.kubernetes = shell, volumes, kubernetes
        (shell.folder / "tiny.yaml").write_text(CONFIG.format(corpus="/mnt/store/corpora/LibriSpeech"))

    def submit(self, *arguments: str, **settings: Any) -> Ended:
        given = [ACCOUNT, *(f"{name.replace('__', '.')}={value}" for name, value in settings.items())]
        overlay = str(ROOT / "configs/cluster/one-node.yaml")
        sets = [part for one in given for part in ("--set", one)]
        ended = self.shell("submit", "asr", "--config", "tiny.yaml", "--config", overlay, *arguments, *sets)
        print(ended.out, ended.err)
        return ended

    def start(self, **settings: Any) -> str:
        """Submits without waiting. Returns the run's id."""
        ended = self.submit(**settings)
        assert ended.status == 0, ended.err
        return printed_id(ended)

    def last_success(self) -> str:
        """The id of the last run that succeeded."""
        workflows = self.kubernetes.read("workflows.argoproj.io", "-n", NAMESPACE)["items"]
        done = [one for one in workflows if one["status"].get("phase") == "Succeeded"]
        last = max(done, key=lambda one: one["metadata"]["creationTimestamp"])
        return str(last["metadata"]["labels"]["pipeline/runid"])

    def versions(self) -> list[str]:
        """Of the model in the registry."""
        registry = self.volumes / "registry" / "asr"
        return sorted(path.name for path in registry.iterdir() if path.name.isdigit())

    def cancel(self, run_id: str) -> None:
        ended = self.shell("cancel", run_id)
        assert ended.status == 0, ended.err
        self.wait_for(run_id, "", "canceled")

    def status(self, run_id: str) -> dict[str, str]:
        """Step → its line; the run's own is under ""."""
        first, *lines = self.shell("status", run_id).out.splitlines()
        return {"": first, **{line.split()[0]: line for line in lines if line.split()}}

    def record(self, name: str, run_id: str) -> None:
        """Writes what the server answers about a run for tests/cluster, if VOXLINE_WRITE_GOLDEN is set."""
        if not os.environ.get("VOXLINE_WRITE_GOLDEN"):
            return
        server = KfpServer(KfpEndpoint(HOST))
        workflow, run = read_workflow(server, run_id), server.get(f"/apis/v2beta1/runs/{run_id}")
        assert workflow is not None
        metadata, status = workflow["metadata"], workflow["status"]
        nodes = {
            key: {field: node[field] for field in NODE_FIELDS & node.keys()} for key, node in status["nodes"].items()
        }
        annotations = {key: text for key, text in metadata["annotations"].items() if key.endswith("pod-name-format")}
        details = [
            {field: one.get(field) for field in ("display_name", "state", "start_time", "end_time")}
            for one in run["run_details"]["task_details"]
        ]
        kept = {
            "metadata": {"name": metadata["name"], "annotations": annotations},
            "spec": {"activeDeadlineSeconds": workflow["spec"].get("activeDeadlineSeconds")},
            "status": {"phase": status.get("phase"), "message": status.get("message"), "nodes": nodes},
        }
        answers = {**real_answers(), name: {"workflow": kept, "task_details": details, "state": run["state"]}}
        write_json(REAL_ANSWERS, answers)

    def pods(self, run_id: str, step: str) -> list[dict[str, Any]]:
        selector = f"pipeline/runid={run_id},app.kubernetes.io/component={step}"
        return list(self.kubernetes.read("pods", "-n", NAMESPACE, "-l", selector)["items"])

    def wait_for(self, run_id: str, step: str, words: str, seconds: float = 900) -> str:
        """Waits until the line of a step has these words. Returns it."""
        end, line = time.monotonic() + seconds, ""
        while words not in line:
            assert time.monotonic() < end, (words, self.status(run_id))
            time.sleep(1)
            line = self.status(run_id).get(step, "")
        return line


@pytest.fixture
def cluster(shell: Shell, volumes: Path, pipelines: PipelinesServer, corpus: None, node: Node) -> Cluster:
    return Cluster(shell, volumes, pipelines.kubernetes)


def printed_id(submitted: Ended) -> str:
    return next(line.split()[1] for line in submitted.out.splitlines() if line.startswith("id "))


def succeeded(printed: str) -> list[str]:
    return [line.split()[0] for line in printed.splitlines() if re.match(r"\w+ +succeeded ", line)]


def test_from_an_empty_cluster_to_a_promoted_model(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer=10)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    assert cluster.versions() == ["1"]
    assert (cluster.volumes / "registry" / "asr" / "1" / "saved_model.pb").is_file()


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
    """By decision 49: validate succeeds with its page, and the next step fails, once."""
    refused = "{severity: error, threshold: 0}"
    ended = cluster.submit("--wait", "--poll", "1", "--resubmit", "2", validate__small_splits=refused)
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


def test_a_refused_model_is_not_promoted(cluster: Cluster, pipelines: PipelinesServer) -> None:
    """A refusal is a result: the run succeeds, and the page of push says why."""
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer="0.0001")
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    assert cluster.versions() == ["1"]
    log = cluster.shell("logs", printed_id(ended), "push").out
    print(log)
    assert "refused" in log


def test_a_killed_pod_is_started_again(cluster: Cluster) -> None:
    run_id = cluster.start(train__seed=7, cluster__steps__train__retry_seconds=1)
    cluster.wait_for(run_id, "train", "running")
    while not (pods := cluster.pods(run_id, "train")):  # the step runs from its driver on
        time.sleep(1)
    (pod,) = pods
    cluster.kubernetes.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--grace-period=0", "--force")
    line = cluster.wait_for(run_id, "train", "attempt 2")
    print(line)
    print(cluster.wait_for(run_id, "train", "succeeded"))
    assert "== train, attempt 2" in cluster.shell("logs", run_id, "train").out
    cluster.cancel(run_id)


def test_a_full_quota_is_named_while_the_run_waits(cluster: Cluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.memory": "1Gi"}},
    }
    cluster.kubernetes.apply([quota])
    try:
        run_id = cluster.start()
        line = cluster.wait_for(run_id, "ingest", "exceeded quota: full")
        print(json.dumps(cluster.status(run_id), indent=1))
        assert "waiting" in line
        cluster.cancel(run_id)
    finally:
        cluster.kubernetes.kubectl("delete", "resourcequota", "full", "-n", NAMESPACE)


def test_an_image_that_is_missing_is_named(cluster: Cluster) -> None:
    run_id = cluster.start(cluster__images__tag="absent", cluster__images__pull_policy="Never")
    line = cluster.wait_for(run_id, "ingest", "ErrImageNeverPull")
    print(line)
    assert "waiting" in line
    cluster.cancel(run_id)


def test_the_store_of_a_run_is_read_from_here(cluster: Cluster) -> None:
    """What the pods wrote is what a run on this machine writes."""
    done = [read_json(file) for file in (cluster.volumes / "store").glob("train/*/done.json")]
    assert done
    assert all(one["metrics"] for one in done)

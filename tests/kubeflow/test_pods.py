"""`voxline submit` with pods that run: from an empty cluster to a promoted model, and what ends a step otherwise."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Ended, Shell
from tests.cluster.kfp_runs import recorded
from tests.kubeflow.control_plane import Kubernetes
from tests.kubeflow.node import Node
from tests.kubeflow.pipelines_server import HOST, NAMESPACE, PipelinesServer
from tests.pipelines.conftest import CONFIG
from voxline.components.demo_corpus.settings import DemoCorpusSettings
from voxline.components.demo_corpus.step import run as generate
from voxline.store.files import read_json

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["ingest", "convert", "validate", "extract", "train", "evaluate", "push"]
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
        return next(line.split()[1] for line in ended.out.splitlines() if line.startswith("id "))

    def status(self, run_id: str) -> dict[str, str]:
        """Step → its line; the run's own is under ""."""
        first, *lines = self.shell("status", run_id).out.splitlines()
        return {"": first, **{line.split()[0]: line for line in lines if line.split()}}

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


def succeeded(printed: str) -> list[str]:
    return [line.split()[0] for line in printed.splitlines() if re.match(r"\w+ +succeeded ", line)]


def test_from_an_empty_cluster_to_a_promoted_model(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer=10)
    assert ended.status == 0, ended.err
    assert succeeded(ended.out) == STEPS
    registry = cluster.volumes / "registry" / "asr"
    assert [path.name for path in registry.iterdir() if path.name.isdigit()] == ["1"]
    assert (registry / "1" / "saved_model.pb").is_file()


def test_a_second_run_reuses_every_step(cluster: Cluster) -> None:
    works = {file: file.stat().st_mtime_ns for file in (cluster.volumes / "store").glob("*/*/done.json")}
    assert works
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer=10)
    assert ended.status == 0, ended.err
    assert "already uploaded" in ended.out
    assert succeeded(ended.out) == STEPS
    after = {file: file.stat().st_mtime_ns for file in (cluster.volumes / "store").glob("*/*/done.json")}
    reused = {file.parent.parent.name for file in works if after[file] == works[file]}
    assert set(STEPS[:-1]) <= reused
    assert len([one for one in after if one.parent.parent.name != "push"]) == len(
        [one for one in works if one.parent.parent.name != "push"]
    )


def test_the_recorded_answers_have_the_nodes_of_a_real_run(cluster: Cluster) -> None:
    """What the stand-in replays was made by KFP's converter from workflows written by hand."""
    from voxline.pipelines.cluster.access import KfpEndpoint
    from voxline.pipelines.cluster.kfp_client import KfpServer
    from voxline.pipelines.cluster.run_steps import read_workflow

    real = read_workflow(KfpServer(KfpEndpoint(HOST)), _last_run(cluster))
    assert real is not None
    hand = json.loads(recorded()["succeeded"]["v1beta1"]["pipeline_runtime"]["workflow_manifest"])

    def nodes(workflow: dict[str, Any]) -> set[tuple[str, str]]:
        name = workflow["metadata"]["name"]
        return {(one["name"].removeprefix(name), one["type"]) for one in workflow["status"]["nodes"].values()}

    assert nodes(hand) == nodes(real)


def test_logs_are_read_while_pods_are_there_and_after_they_are_gone(cluster: Cluster) -> None:
    run_id = _last_run(cluster)
    seen = cluster.shell("logs", run_id, "train")
    assert seen.status == 0, seen.err
    assert "train" in seen.out
    done = cluster.kubernetes.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"pipeline/runid={run_id}", "--wait")
    assert done.returncode == 0, done.stderr
    later = cluster.shell("logs", run_id, "train")
    print(later.out, later.err)
    assert later.status == 0, later.err
    assert later.out.split() == seen.out.split()


def _last_run(cluster: Cluster) -> str:
    workflows = cluster.kubernetes.read("workflows.argoproj.io", "-n", NAMESPACE)["items"]
    last = max(workflows, key=lambda one: one["metadata"]["creationTimestamp"])
    return str(last["metadata"]["labels"]["pipeline/runid"])


def test_a_refused_corpus_ends_the_run_with_its_reason(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", "--resubmit", "2", validate__max_reject_rate="0",
                           convert__max_seconds="0.2")  # fmt: skip
    assert ended.status == 1
    print(ended.err)


def test_a_refused_model_is_not_promoted(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", push__limits__wer="0.0001")
    registry = cluster.volumes / "registry" / "asr"
    assert [path.name for path in registry.iterdir() if path.name.isdigit()] == ["1"]
    print(ended.status, ended.out, ended.err)


def test_a_killed_pod_is_started_again(cluster: Cluster) -> None:
    run_id = cluster.start(train__seed=7, push__limits__wer=10)
    cluster.wait_for(run_id, "train", "running")
    (pod,) = cluster.pods(run_id, "train")
    cluster.kubernetes.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--grace-period=0", "--force")
    line = cluster.wait_for(run_id, "train", "attempt 2")
    cluster.wait_for(run_id, "push", "succeeded")
    print(line, json.dumps(cluster.status(run_id), indent=1))


def test_memory_that_is_not_enough_is_named(cluster: Cluster) -> None:
    ended = cluster.submit("--wait", "--poll", "1", train__seed=8, cluster__steps__train__memory="64Mi",
                           cluster__steps__train__retries=0)  # fmt: skip
    assert ended.status == 1
    assert "OOMKilled (exit code 137)" in ended.err


def test_a_full_quota_is_named_while_the_run_waits(cluster: Cluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.memory": "1Gi"}},
    }
    cluster.kubernetes.apply([quota])
    try:
        run_id = cluster.start(train__seed=9)
        time.sleep(30)
        print(cluster.status(run_id))
    finally:
        cluster.kubernetes.kubectl("delete", "resourcequota", "full", "-n", NAMESPACE)


def test_a_node_that_is_missing_an_image_is_named(cluster: Cluster) -> None:
    run_id = cluster.start(cluster__images__tag="absent", cluster__images__pull_policy="Never")
    line = cluster.wait_for(run_id, "ingest", "ErrImageNeverPull")
    assert "waiting" in line
    assert cluster.shell("cancel", run_id).status == 0
    cluster.wait_for(run_id, "", "canceled")


def test_the_store_of_a_run_is_read_from_here(cluster: Cluster) -> None:
    """What the pods wrote is what a run on this machine writes."""
    done = [read_json(file) for file in (cluster.volumes / "store").glob("train/*/done.json")]
    assert done
    assert all(one["metrics"] for one in done)

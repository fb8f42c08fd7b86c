"""`voxline search --compile kfp`: a graph of trials on Kubeflow Pipelines, whose pods train."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tests.kubeflow.cluster import ACCOUNT, ONE_NODE, Cluster
from tests.kubeflow.pipelines_server import HOST
from voxline.store.files import read_json

SPACE = {"train.learning_rate": {"log": [0.001, 0.01]}}
METRIC = "dev_loss"  # models of one epoch get every word wrong
SETS = (
    ACCOUNT, "cluster.steps.train.cpu=100m", "cluster.steps.train.memory=2Gi",
    "push.limits.wer=10", "push.max_relative_regression.wer=1",  # of words too many, now more, now fewer
)  # fmt: skip


def compile_search(cluster: Cluster, target: str, *arguments: str) -> Path:
    """The file that `voxline search --compile` writes for two trials."""
    folder = cluster.shell.folder
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    file = folder / f"{target}.yaml"
    sets = [part for one in SETS for part in ("--set", one)]
    ended = cluster.shell(
        "search", "asr", "--config", "tiny.yaml", "--config", ONE_NODE, *sets, "--space", "space.yaml",
        "--trials", "2", "--jobs", "2", "--seed", "3", "--metric", METRIC,
        "--compile", target, "--output", str(file), *arguments,
    )  # fmt: skip
    assert ended.status == 0, ended.err
    return file


def trained(cluster: Cluster) -> list[float]:
    """The metric of each training in the store."""
    finished = cluster.volumes.glob("store/train/*/done.json")
    return [float(read_json(done)["metrics"][METRIC]) for done in finished]


def test_the_graph_of_trials_ends_with_the_better_model_pushed(cluster: Cluster) -> None:
    file = compile_search(cluster, "kfp")
    create = [str(Path(sys.executable).with_name("kfp")), "--endpoint", HOST, "--output", "json", "run", "create"]
    done = subprocess.run([*create, "-e", "speech", "-f", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout[done.stdout.index("{") :])["run_id"]
    before = cluster.versions()
    cluster.wait_for(run_id, "", "succeeded")
    print(cluster.shell("status", run_id).out)
    status = cluster.status(run_id)
    steps = ["ingest", "convert", "validate", "extract", "trial-0", "trial-1", "choose", "evaluate", "push"]
    assert sorted(set(status) - {""}) == sorted(steps)
    assert all(" succeeded" in status[step] for step in steps)
    logs = {step: cluster.shell("logs", run_id, step).out for step in ("trial-0", "trial-1", "choose")}
    print(logs["choose"], cluster.shell("logs", run_id, "push").out)
    assert logs["trial-0"] != logs["trial-1"]
    assert f"of 2 is the best: {METRIC}" in logs["choose"]
    assert len(cluster.versions()) == len(before) + 1

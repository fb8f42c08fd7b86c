"""What Katib's webhook says of the Experiments that `voxline search --compile katib` writes, and the Job of a trial."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.cluster.k8s.built import Object, built
from tests.cluster.k8s.fetched import module
from tests.cluster.operators import sources
from tests.conftest import ROOT
from voxline.pipelines.cli.main import app

RANGES = {
    "train.learning_rate": {"log": [1e-4, 2e-2]},
    "train.batch_size": {"log_integer": [8, 64]},
    "train.model.convolutions": [[{"stride": [2, 1]}], [{"stride": [2, 2]}]],
}
"""The last value has what a shell would read: spaces, braces, quotes."""
CLUSTERS = sorted(path.stem for path in ROOT.glob("configs/cluster/*.yaml") if path.stem not in ("vertex", "gke-tpu"))
CONFIGS = ("asr/librispeech", "tts/ljspeech", "vocoder/ljspeech-vocos")


def experiment(config: str, cluster: str, folder: Path) -> Object:
    """The Experiment that the command writes for a config on an overlay."""
    graph = config.partition("/")[0]
    (folder / "space.yaml").write_text(yaml.safe_dump(RANGES if graph == "asr" else dict(list(RANGES.items())[:2])))
    out = folder / "experiment.yaml"
    files = ["-c", str(ROOT / f"configs/{config}.yaml"), "-c", str(ROOT / f"configs/cluster/{cluster}.yaml")]
    files += ["--set", "cluster.images.tag=v1", "--set", "store=/mnt/store", "--space", str(folder / "space.yaml")]
    target = ["--compile", "katib", "--dataset", "/mnt/store/extract/0f3c", "-o", str(out)]
    result = CliRunner().invoke(app, ["search", graph, *files, *target])
    assert result.exit_code == 0, f"{config} {cluster}: {result.output} {result.exception}"
    return next(one for one in yaml.safe_load_all(out.read_text()) if one["kind"] == "Experiment")


def assignment(parameter: Object) -> Object:
    space = parameter["feasibleSpace"]
    return {"name": parameter["name"], "value": space["list"][-1] if "list" in space else space["max"]}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By name: `refused`, why the webhook refuses the Experiment, or `trial`, the Job of a trial."""
    folder = tmp_path_factory.mktemp("katib")
    binary = sources.built(sources.KATIB)
    assert binary.is_file()
    (namespace,) = built("namespace")
    asked = []
    for config, cluster in itertools.product(CONFIGS, CLUSTERS):
        one = experiment(config, cluster, folder)
        values = [assignment(parameter) for parameter in one["spec"]["parameters"]]
        asked.append({"name": f"{config} {cluster}", "namespace": namespace, "experiment": one, "assignments": values})
    labels = {key: value for key, value in namespace["metadata"]["labels"].items() if "katib" not in key}
    unlabeled = {**namespace, "metadata": {**namespace["metadata"], "labels": labels}}
    asked.append({**asked[0], "name": "unlabeled", "namespace": unlabeled})
    (folder / "asked.json").write_text(json.dumps(asked))
    config_file = module(sources.KATIB) / "manifests/v1beta1/installs/katib-standalone/katib-config.yaml"
    (folder / "katib-config.yaml").write_text(config_file.read_text())
    sources.run(sources.KATIB, folder)
    return {one["name"]: one for one in json.loads((folder / "answered.json").read_text())}


@pytest.mark.parametrize(("config", "cluster"), list(itertools.product(CONFIGS, CLUSTERS)))
def test_katib_accepts_the_experiment_and_fills_in_a_trial(answered: dict[str, Any], config: str, cluster: str) -> None:
    one = answered[f"{config} {cluster}"]
    assert one["refused"] == ""
    (container,) = one["trial"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["sh", "-c"], "else Katib joins the arguments without quotes"
    arguments = shlex.split(container["command"][2])
    given = (arguments[index + 1] for index, part in enumerate(arguments) if part == "--set")
    values = dict(one.split("=", 1) for one in given)
    assert (values["train.learning_rate"], values["train.batch_size"]) == ("0.02", "64")
    if config.startswith("asr"):
        key = "train.model.convolutions"
        assert yaml.safe_load(values[key]) == RANGES[key][-1]  # type: ignore[index]


def test_katib_refuses_a_namespace_without_its_label(answered: dict[str, Any]) -> None:
    assert 'lacks label "katib.kubeflow.org/metrics-collector-injection: enabled"' in answered["unlabeled"]["refused"]

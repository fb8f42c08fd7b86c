"""Vertex AI Pipelines: one document, machines by limits, and what its own client makes of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec
from typer.testing import CliRunner

from tests.pipelines.conftest import compile_to_yaml
from tests.pipelines.test_compiled import layers
from voxline.errors import SettingsError
from voxline.pipelines.cli.main import app
from voxline.pipelines.cluster.vertex import check_config
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import pipeline_names

ROOT = Path(__file__).resolve().parents[3]
FILES = [ROOT / "configs/asr/librispeech.yaml", ROOT / "configs/cluster/vertex.yaml"]


def config(*settings: str) -> RunConfig:
    return load_config(FILES, ["corpus.uri=gs://speech/LibriSpeech", *settings], pipeline="asr")


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The compiled graphs by name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    compiled = {}
    for graph in pipeline_names():
        folder = tmp_path_factory.mktemp(graph)
        config = load_config(layers(graph, folder, "vertex"))
        text = compile_to_yaml(config, folder / "ir.yaml", platform="vertex")
        compiled[graph] = yaml.load(text, loader)  # noqa: S506
    return compiled


@pytest.mark.parametrize("graph", pipeline_names())
def test_it_is_one_strict_document_with_limits_and_without_kubernetes(
    graph: str, specs: dict[str, dict[str, Any]]
) -> None:
    spec = specs[graph]
    assert json_format.MessageToDict(json_format.ParseDict(spec, PipelineSpec())) == spec
    assert "kubernetes" not in json.dumps(spec)
    assert spec["defaultPipelineRoot"] == "gs://your-bucket/voxline/artifacts"
    for name, executor in spec["deploymentSpec"]["executors"].items():
        container = executor["container"]
        assert not [key for key in container["resources"] if "Request" in key], name
        assert {"cpuLimit", "memoryLimit", "resourceCpuLimit", "resourceMemoryLimit"} <= set(container["resources"])
        assert {"name": "VOXLINE_ARTIFACT_URIS", "value": "1"} in container["env"]
    assert all(task["cachingOptions"] == {} for task in spec["root"]["dag"]["tasks"].values())
    if graph == "refresh":
        return
    accelerator = spec["deploymentSpec"]["executors"]["exec-train"]["container"]["resources"]["accelerator"]
    assert (accelerator["type"], accelerator["count"]) == ("NVIDIA_L4", "1")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            ["cluster.steps.train.accelerator.type=nvidia-gtx"],
            r"accelerator\.type is 'nvidia-gtx'; Vertex AI has .*-l4",
        ),
        (["cluster.spot=true"], r"cluster\.spot is set, and Vertex AI has nothing like it; remove it"),
        (["cluster.steps.train.node_selector={a: b}"], r"cluster\.steps\.train\.node_selector is set"),
        (["cluster.claims=[{name: a, mount: /mnt/store}]"], r"cluster\.claims is set"),
        (["store=/mnt/store"], r"store is /mnt/store, a path; give a bucket, gs://"),
        (["language.text=[gs://speech/a.txt, /mnt/b.txt]"], r"language\.text is /mnt/b\.txt, a path; give a bucket"),
        (["cluster.vertex.pipeline_root=''"], r"cluster\.vertex\.pipeline_root is not set"),
    ],
)
def test_what_vertex_cannot_do_is_refused_by_key(settings: list[str], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        check_config(config(*settings))


def test_settings_without_effect_are_named() -> None:
    lines = check_config(config("cluster.kept_days=3"))
    assert "cluster.kept_days is not used on Vertex AI" in lines
    assert "cluster.steps.train.shared_memory is not used on Vertex AI" in lines
    assert not [line for line in lines if "publish" in line or "cpu" in line or "accelerator" in line]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--platform", "sagemaker"], "--platform 'sagemaker': accepted: kfp, vertex"),
        (["--platform", "vertex", "--host", "http://here"], "--host: not for --platform vertex"),
        (["--platform", "vertex", "--wait", "--resubmit", "2"], "--resubmit: not for --platform vertex"),
        (["--platform", "vertex"], "google-cloud-aiplatform is not installed"),
    ],
)
def test_submit_says_what_vertex_lacks(arguments: list[str], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.aiplatform", None)  # as if it were not installed
    configs = [text for file in FILES for text in ("-c", str(file))]
    given = ["submit", "asr", *configs, "--set", "corpus.uri=gs://speech/LibriSpeech", *arguments]
    with pytest.raises(SettingsError, match=fault):
        CliRunner().invoke(app, given, catch_exceptions=False)


@pytest.mark.skipif(not os.environ.get("VOXLINE_TEST_VERTEX"), reason="it is not in the lock: make test-vertex")
def test_googles_client_takes_the_run_and_the_schedule(specs: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    vertex = tmp_path / "asr-vertex.yaml"
    vertex.write_text(yaml.safe_dump(specs["asr"], sort_keys=False), encoding="utf-8")
    kubernetes = Path(__file__).parents[1] / "golden" / "asr.yaml"
    files = [str(vertex), str(kubernetes), str(tmp_path / "calls.json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}  # where the target put it
    script = str(Path(__file__).with_name("vertex_client.py"))
    done = subprocess.run(
        [sys.executable, script, *files], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "calls.json").read_text(encoding="utf-8"))
    assert found["unknown"] == [], "accelerators that Google's client does not know"
    assert [kind for kind, _ in found["calls"]] == ["run", "get", "list", "look", "pause", "schedule", "delete"]
    requests = dict(found["calls"])
    run, nightly = requests["run"]["pipeline_job"], requests["schedule"]["schedule"]
    assert requests["run"]["pipeline_job_id"] == "voxline-nightly-20260131-020000-0a1b2c"
    for job in (run, nightly["createPipelineJobRequest"]["pipelineJob"]):
        assert json_format.ParseDict(job["pipelineSpec"], PipelineSpec()) == json_format.ParseDict(
            specs["asr"], PipelineSpec()
        )
        assert job["serviceAccount"] == "voxline@team-speech.iam.gserviceaccount.com"
        assert job["runtimeConfig"]["gcsOutputDirectory"] == "gs://speech/artifacts"
        assert job["labels"] == {"team": "speech"}
    assert (nightly["cron"], nightly["maxConcurrentRunCount"]) == ("TZ=Europe/Berlin 0 2 * * *", "1")
    assert "expected a single document" in found["refused"], "what is compiled for Kubernetes has two"

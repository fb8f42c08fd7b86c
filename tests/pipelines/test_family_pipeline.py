"""A family of another package has a pipeline: nothing in pipelines/ or components/ changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import load_ir
from tests.waiting import PATIENCE_SECONDS
from voxline.pipelines.graphs import graph_of
from voxline.store.files import read_json

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = "[voxline.families]\ntopics = topics.family:TopicsFamily\n"
CONFIG = """
pipeline: topics
name: tiny
corpus: {{uri: {corpus}, format: manifest}}
extract: {{features: {{mels: 16}}}}
train: {{field: command, epochs: 1, baseline: false}}
evaluate: {{bootstrap_samples: 100}}
push: {{limits: {{text_topic_error_rate: 1.0}}}}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with a copy of the family `intents`, by another name."""
    folder = tmp_path_factory.mktemp("package")
    source = ROOT / "voxline" / "families" / "intents"
    files = {file.relative_to(source): file for file in source.rglob("*.py")}
    for name, file in files.items():
        text = file.read_text(encoding="utf-8")
        text = text.replace("voxline.families.intents", "topics")
        text = text.replace('"intents"', '"topics"').replace("intent_error_rate", "topic_error_rate")
        text = text.replace("class IntentsFamily", "class TopicsFamily")
        target = folder / "topics" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    about = folder / "topics-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: topics\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return folder


def voxline(package: Path, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "voxline", *arguments],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.slow
def test_a_family_of_another_package_has_a_pipeline(package: Path, corpus: Path) -> None:
    """It is planned, explained, compiled and run from the corpus to the registry."""
    manifest = next(corpus.parent.glob("*.jsonl"))
    (package / "tiny.yaml").write_text(CONFIG.format(corpus=manifest.parent), encoding="utf-8")
    assert "topics" in voxline(package, "config", "explain", "train.field")
    settings = [f"--set={name}=gs://bucket/{name}" for name in ("store", "registry", "corpus.uri")]
    voxline(package, "compile", "topics", "--config", "tiny.yaml", *settings, "--output", "tiny.ir.yaml")
    pipeline, _ = load_ir((package / "tiny.ir.yaml").read_text(encoding="utf-8"))
    assert {"exec-train", "exec-evaluate", "exec-push"} < set(pipeline["deploymentSpec"]["executors"])

    voxline(package, "run", "topics", "--config", "tiny.yaml", "--run-dir", "run")
    record = read_json(package / "run" / "run.json")
    assert (record["pipeline"], record["status"]) == ("topics", "succeeded")
    assert [step["name"] for step in record["steps"]] == list(graph_of("intents"))

    # Metrics of the package are known to the commands, which import nothing of it themselves.
    assert "of the texts" in voxline(package, "models", "show", "topics", "--registry", "run/registry")
    assert 0 <= record["metrics"]["text_topic_error_rate"] <= 1

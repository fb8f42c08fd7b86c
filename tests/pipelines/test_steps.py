"""A step is a line: a new one is its folder, an entry of `STEPS`, and its name in a graph. Nothing else changes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.pipelines.conftest import load_ir
from tests.waiting import PATIENCE_SECONDS
from voxline.notify.settings import NOTIFY_ENV
from voxline.pipelines.graphs import graph_of, optional_steps, pipeline_names, steps_by_config, steps_of
from voxline.pipelines.steps import STEPS
from voxline.store.files import read_json

ROOT = Path(__file__).parents[2]
SETTINGS = '''"""Settings of vocabulary."""

import pydantic

from voxline.settings import Settings


class VocabularySettings(Settings):
    """Words of the corpus."""

    most: int = pydantic.Field(100, ge=1, description="words that are listed")
    stop_words: str = pydantic.Field("", description="file of words that are not listed")
'''
STEP = '''"""Lists the words of the corpus."""

import collections
from pathlib import Path

from voxline.components.vocabulary.settings import VocabularySettings
from voxline.data.manifest import read_manifest
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput, cached_step


def run(manifest: Path | str, store: Path | str, settings: VocabularySettings) -> StepOutput:
    """Lists the words."""
    words = collections.Counter(word for utterance in read_manifest(manifest) for word in utterance.text.split())
    inputs = {"words": hash_value(sorted(words.items()))}
    with cached_step(store, "vocabulary", settings, inputs, revision=1) as work:
        listed = [word for word, _ in words.most_common(settings.most)]
        (work.folder / "words.txt").write_text("\\n".join(listed), encoding="utf-8")
        work.outputs = {"words": "words.txt"}
        work.counts = {"words": len(listed)}
    return work
'''
COMPONENT = '''"""vocabulary as a KFP component."""

from __future__ import annotations

from kfp import dsl

from voxline.components.images import DATA_IMAGE
from voxline.components.step_component import step_component
from voxline.components.vocabulary.settings import VocabularySettings


@step_component(DATA_IMAGE, section="vocabulary")
def vocabulary(
    wavs: dsl.Input[dsl.Dataset],
    words: dsl.Output[dsl.Dataset],
    store: str,
    settings: VocabularySettings,
) -> None:
    """Lists the words of the corpus.

    Args:
      wavs: the output of convert.
      words: the words.
      store: folder or bucket URI of all cached step outputs.
    """
    from voxline.components.vocabulary.step import run
    from voxline.store.artifacts import artifact_uri, publish_artifact

    publish_artifact(run(artifact_uri(wavs), store, settings), words)
'''
LINE = """    Step(
        name="vocabulary",
        description="the words of the corpus",
        settings=VocabularySettings,
        inputs=("manifest",),
        outputs=("words",),
        pod={"memory": "3Gi"},
        paths=("stop_words",),
        link="words",
        summary="{words} words listed",
    ),
)

STEPS:"""
CONFIG = """
pipeline: refresh
name: tiny
corpus: {{uri: {corpus}}}
extract: {{features: {{mels: 16}}}}
vocabulary: {{most: 7}}
publish: {{dataset: commands}}
"""


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with one more step."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("voxline", "components", "pipelines", "configs"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    added = folder / "components" / "vocabulary"
    added.mkdir()
    for name, text in {"settings": SETTINGS, "step": STEP, "component": COMPONENT}.items():
        (added / f"{name}.py").write_text(text, encoding="utf-8")
    (added / "__init__.py").write_text('"""Lists the words of the corpus."""\n', encoding="utf-8")
    steps = folder / "pipelines" / "steps.py"
    replace(steps, ")\n\nSTEPS:", LINE)
    line = "from voxline.components.validate.settings import ValidateSettings\n"
    replace(steps, line, f"{line}from voxline.components.vocabulary.settings import VocabularySettings\n")
    replace(folder / "pipelines" / "graphs.py", '(*_DATASET, "publish")', '(*_DATASET, "vocabulary", "publish")')
    return folder


def voxline(house: Path, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "voxline", *arguments],
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house), "VOXLINE_IMAGE_TAG": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.slow
def test_a_new_step_changes_two_files_of_the_product(house: Path, corpus: Path) -> None:
    """It has a section in configs and on clusters, is compiled, planned, run, reused and summarized."""
    changed = {
        str(file.relative_to(house))
        for file in house.rglob("*.py")
        if not (ROOT / file.relative_to(house)).is_file()
        or file.read_bytes() != (ROOT / file.relative_to(house)).read_bytes()
    }
    assert {file for file in changed if "vocabulary" not in file} == {"pipelines/steps.py", "pipelines/graphs.py"}

    (house / "tiny.yaml").write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    assert "words that are listed" in voxline(house, "config", "explain", "vocabulary.most")
    assert "3Gi" in voxline(house, "config", "explain", "cluster.steps.vocabulary.memory")

    shown = json.loads(
        voxline(house, "config", "show", "-c", "tiny.yaml", "--set=vocabulary.stop_words=a.txt", "--json")
    )
    assert shown["config"]["vocabulary"]["stop_words"] == str(house / "a.txt")

    settings = [f"--set={name}=gs://bucket/{name}" for name in ("store", "datasets", "corpus.uri")]
    settings.append("--set=notify.webhook.url=https://hooks.example.com")
    voxline(house, "compile", "refresh", "--config", "tiny.yaml", *settings, "--output", "tiny.ir.yaml")
    pipeline, _ = load_ir((house / "tiny.ir.yaml").read_text(encoding="utf-8"))
    container = pipeline["deploymentSpec"]["executors"]["exec-vocabulary"]["container"]
    assert container["image"] == "voxline/data:1"
    assert container["resources"]["resourceMemoryRequest"] == "3Gi"
    assert yaml.safe_load(
        pipeline["root"]["inputDefinitions"]["parameters"]["vocabulary__settings"]["defaultValue"]
    ) == {"most": 7, "stop_words": ""}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert json.loads(variables[NOTIFY_ENV])["links"] == {"validate": "validation", "vocabulary": "words"}

    run = ("run", "refresh", "--config", "tiny.yaml", "--run-dir", "run")
    printed = voxline(house, *run)
    assert "vocabulary       7 words listed" in printed
    record = read_json(house / "run" / "run.json")
    assert {step["name"] for step in record["steps"]} == {*graph_of("refresh"), "vocabulary"}
    planned = voxline(house, *run, "--set=vocabulary.most=8", "--dry-run")
    assert "vocabulary run      most 7 → 8" in planned
    assert "vocabulary reuse    unchanged" in voxline(house, *run, "--dry-run")


def test_graphs_follow_from_the_inputs_of_steps() -> None:
    for pipeline in pipeline_names():
        alternatives = [[name] for name in steps_by_config(pipeline) if STEPS[name].replaces_steps]
        for optional in ([], optional_steps(pipeline), *alternatives):
            graph = graph_of(pipeline, optional)
            for number, step in enumerate(graph):
                assert set(graph[step].values()) <= set(list(graph)[:number])
    assert optional_steps("asr") == ["publish", "forecast", "export", "language"]
    assert list(graph_of("asr", ["dataset"])) == ["dataset", "train", "evaluate", "push"]
    assert graph_of("asr", ["publish"])["train"] == {"dataset": "publish"}
    assert graph_of("asr", ["export", "language"])["language"] == {"model": "export", "manifest": "convert"}
    assert graph_of("tts", ["export"])["push"] == {"model": "export", "evaluation": "evaluate"}
    assert graph_of("asr", ["language"])["push"] == {"model": "language", "evaluation": "evaluate"}


@pytest.mark.parametrize("name", STEPS)
def test_a_component_names_the_image_of_its_step(name: str) -> None:
    """The image of a component that is compiled without a config."""
    from voxline.pipelines.kfp_graph import load_pipeline

    pipeline = next(pipeline for pipeline in pipeline_names() if name in steps_of(pipeline))
    spec = load_pipeline(pipeline, optional=[name]).pipeline_spec
    image = spec.deployment_spec["executors"][f"exec-{name}"]["container"]["image"]
    assert image.rpartition("/")[2].partition(":")[0] == STEPS[name].image

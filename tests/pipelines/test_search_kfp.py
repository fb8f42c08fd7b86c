"""`voxline search --compile kfp`: the graph by kfp's own types, and its trials run by kfp.local."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from google.protobuf import json_format
from kfp import dsl
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.waiting import PATIENCE_SECONDS
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.step import REVISION
from voxline.components.train.trials.component import rank_trials, with_changes
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.search.kfp_trials import _changes, grid
from voxline.pipelines.search.space import Space
from voxline.pipelines.search.study import Study
from voxline.pipelines.search.trial_files import Training
from voxline.store.artifacts import artifact_metadata
from voxline.store.step_cache import cached_step
from voxline.text.alphabet import Alphabet

RANGES = {"train.learning_rate": {"log": [1e-4, 2e-2]}, "train.model.units": [48, 96]}
GRID = {"train.learning_rate": [1e-3, 5e-3], "train.batch_size": {"integer": [8, 10]}}


def compile_kfp(folder: Path, *arguments: str, ranges: Any = RANGES) -> list[Any]:
    """The documents that the command writes."""
    (folder / "space.yaml").write_text(yaml.safe_dump(ranges, sort_keys=False), encoding="utf-8")
    files = ["-c", str(ROOT / "configs/asr/librispeech.yaml"), "-c", str(ROOT / "configs/cluster/gke-gpu.yaml")]
    given = ["--set", "cluster.images.tag=v1", "--set", "language.kind=ngram", "--space", str(folder / "space.yaml")]
    given += ["--set", "corpus.uri=gs://speech/corpora/LibriSpeech"]
    target = ["--compile", "kfp", "-o", str(folder / "out.yaml")]
    result = CliRunner().invoke(app, ["search", "asr", *files, *given, *target, *arguments])
    if isinstance(result.exception, SettingsError):
        raise result.exception
    assert result.exit_code == 0, result.output
    if "publish.dataset=digits" in arguments:
        assert "the graph leaves out publish, since a trial always trains" in result.stderr
    return list(yaml.safe_load_all((folder / "out.yaml").read_text(encoding="utf-8")))


def loop_of(spec: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The task of the trials, and what each trial is given."""
    (task,) = (one for name, one in spec["root"]["dag"]["tasks"].items() if name.startswith("for-loop-"))
    return task, [json.loads(item) for item in json.loads(task["parameterIterator"]["items"]["raw"])]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The graph of five random trials, three at a time."""
    return compile_kfp(tmp_path_factory.mktemp("kfp"), "--trials", "5", "--jobs", "3", "--seed", "2")


def test_the_graph_has_parallel_trials_and_one_gate(compiled: list[Any]) -> None:
    spec, platform = compiled
    json_format.ParseDict(spec, PipelineSpec())  # an unknown field or a wrong type raises
    assert spec["pipelineInfo"]["name"] == "asr-search"
    tasks = spec["root"]["dag"]["tasks"]
    loop, items = loop_of(spec)
    name = next(name for name in tasks if name.startswith("for-loop-"))
    assert set(tasks) == {"ingest", "convert", "validate", "extract", name, "choose", "language", "evaluate", "push"}
    assert loop["iteratorPolicy"] == {"parallelismLimit": 3}
    assert [item["trial"] for item in items] == [0, 1, 2, 3, 4]
    trials = spec["components"][loop["componentRef"]["name"]]["dag"]["tasks"]
    assert set(trials) == {"trial"}
    model = tasks["choose"]["inputs"]["artifacts"]["trials"]["taskOutputArtifact"]
    assert (model["producerTask"], tasks["choose"]["dependentTasks"]) == (name, [name])
    after = tasks["language"]["inputs"]["artifacts"]["model"]
    assert after["taskOutputArtifact"] == {"outputArtifactKey": "model", "producerTask": "choose"}
    assert not [name for name in spec["root"]["inputDefinitions"]["parameters"] if name.startswith("train__")]
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    nodes = executors["exec-trial"]["nodeSelector"]["labels"]
    assert nodes["cloud.google.com/gke-accelerator"] == "nvidia-l4", "a trial has the nodes of train"
    assert "nodeSelector" not in executors["exec-choose"] or "nvidia-l4" not in str(executors["exec-choose"])
    image = spec["deploymentSpec"]["executors"]["exec-trial"]["container"]["image"]
    assert image.endswith("/model-gpu:v1")


def test_a_step_that_the_graph_leaves_out_is_named(tmp_path: Path) -> None:
    spec, _ = compile_kfp(tmp_path, "--trials", "2", "--set", "publish.dataset=digits")
    assert "publish" not in spec["root"]["dag"]["tasks"]


def test_the_trials_are_those_of_a_random_search_here(compiled: list[Any], tmp_path: Path) -> None:
    """By the same seed, so that the store holds those that were trained before; each is a config's section `train`."""
    config = load_config(
        [ROOT / "configs/asr/librispeech.yaml", ROOT / "configs/cluster/gke-gpu.yaml"],
        ["language.kind=ngram", "cluster.images.tag=v1"],
    )
    space = Space(RANGES)
    study = Study(tmp_path / "study", space, "random", 40, 2, space.values_of(config))
    study.run(lambda trial, epochs: Training(epochs, 0.5, {}), 5)
    _, items = loop_of(compiled[0])
    assert [item["settings"] for item in items] == [trial.settings for trial in study.trials]
    loop = next(one for name, one in compiled[0]["components"].items() if name.startswith("comp-for-loop-"))
    base = loop["dag"]["tasks"]["trial"]["inputs"]["parameters"]["base"]["runtimeValue"]["constant"]
    assert json.loads(base) == config.plain()["train"]
    for item in items:
        made = with_changes(json.loads(base), item["train"])
        assert made["learning_rate"] == item["settings"]["train.learning_rate"]
        assert made["model"]["units"] == item["settings"]["train.model.units"]
        assert {**made, "learning_rate": 0, "model": 0} == {
            **config.plain()["train"], "learning_rate": 0, "model": 0
        }  # fmt: skip


@pytest.mark.slow
def test_as_many_trials_as_are_accepted_fit_into_an_argument_of_a_program(tmp_path: Path) -> None:
    """KFP's compiler gives a driver the task as JSON, by `--task`; Linux takes no argument above 128 KiB."""
    spec, _ = compile_kfp(tmp_path, "--trials", "200", ranges={**RANGES, "train.weight_decay": {"linear": [0, 0.01]}})
    task, items = loop_of(spec)
    assert len(items) == 200
    assert len(json.dumps(task)) < 128 * 1024
    long = {**RANGES, "train.start.model": ["gs://speech/registry/" + "a" * 400, "gs://speech/registry/" + "b" * 400]}
    with pytest.raises(SettingsError, match="bytes, and at most 100,000 are accepted"):
        compile_kfp(tmp_path, "--trials", "200", ranges=long)


def test_a_trial_may_have_a_model_of_other_settings() -> None:
    base = {"epochs": 5, "model": {"kind": "deepspeech2", "units": 96}, "stop": {"rule": "patience", "validations": 4}}
    other = {"epochs": 5, "model": {"kind": "tcn", "channels": 8}, "stop": {"rule": "patience", "validations": 9}}
    changes = dict(_changes(base, other))
    assert changes == {"model": {"kind": "tcn", "channels": 8}, "stop.validations": 9}
    assert with_changes(base, changes) == other


def test_a_grid_has_every_combination() -> None:
    found = [(one["train.learning_rate"], one["train.batch_size"]) for one in grid(Space(GRID))]
    assert found == [(1e-3, 8), (1e-3, 9), (1e-3, 10), (5e-3, 8), (5e-3, 9), (5e-3, 10)]
    with pytest.raises(SettingsError, match="more than 200"):
        grid(Space({"train.batch_size": {"integer": [1, 201]}}))


@pytest.mark.parametrize(
    ("arguments", "ranges", "expected"),
    [
        (["--method", "tpe"], RANGES, "with --compile kfp, accepted: random, grid"),
        (["--method", "grid"], RANGES, "train.learning_rate: give its values"),
        (["--method", "grid", "--trials", "5"], GRID, "6 combinations, more than 5"),
        (["--method", "grid", "--seed", "0"], GRID, "--seed 0: it has no effect with --method grid"),
        (["--trials", "201"], RANGES, "at most 200 are accepted"),
        ([], {"language.alpha": {"linear": [0, 2]}}, "only train.* can vary"),
        (["--goal", "0.1"], RANGES, "--goal: it has no effect with --compile"),
        (["--seeds", "2"], RANGES, "--seeds: it has no effect with --compile"),
        (["--no-gate"], RANGES, "--no-gate: it has no effect with --compile"),
    ],
)
def test_what_the_graph_cannot_do_is_refused(tmp_path: Path, arguments: list[str], ranges: Any, expected: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(expected)):
        compile_kfp(tmp_path, *arguments, ranges=ranges)
    assert not (tmp_path / "out.yaml").exists()


def test_trials_are_ranked_by_the_metric_then_by_the_loss() -> None:
    values = [(0.5, 3.0), (0.2, 2.0), (math.nan, 1.0), (0.2, 1.0), (0.2, math.nan)]
    metadata: list[dict[str, Any]] = [{"metrics": {"dev_wer": wer, "dev_loss": loss}} for wer, loss in values]
    assert rank_trials([*metadata, {"failed": "out of memory"}], "dev_wer") == [3, 1, 4, 0, 2]
    with pytest.raises(WorkError, match="accepted: dev_loss, dev_wer"):
        rank_trials(metadata, "dev_cer")
    with pytest.raises(WorkError, match="none of the 2 trials came to a model: a"):
        rank_trials([{"failed": "b"}, {"failed": "a"}], "dev_wer")
    with pytest.raises(WorkError, match="every trial is not finite"):
        rank_trials(metadata[2:3], "dev_wer")


def test_metadata_is_read_as_it_was_published() -> None:
    """From a KFP server, whose ML Metadata wraps objects and lists, and from kfp.local, which does not."""
    published = {"uri": "gs://speech/store/train/0f3c", "metrics": {"dev_wer": 0.2}, "counts": {}, "names": ["a"]}
    kept = {**published, "metrics": {"struct": {"dev_wer": 0.2}}, "counts": {"struct": {}}, "names": {"list": ["a"]}}
    for metadata in (published, kept):
        assert artifact_metadata(dsl.Model(uri="minio://a", metadata=metadata)) == published


RUN = """
import json, sys
from kfp import dsl, local
from voxline.pipelines.kfp_graph import ParallelTrials

request = json.loads(sys.stdin.read())
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=request["root"])
trials = ParallelTrials(tuple(request["items"]), request["base"], 2, "dev_wer", "asr")


@dsl.pipeline(name="trials")
def graph(store: str, registry: str) -> dsl.Model:
    about = {"uri": request["dataset"]}
    dataset = dsl.importer(artifact_uri=request["dataset"], artifact_class=dsl.Dataset, metadata=about)
    return trials.add({"store": store, "registry": registry}, dataset.output)


task = graph(store=request["store"], registry="")
model = task.outputs["Output"]
print("RESULT", json.dumps({"uri": model.uri, "metadata": model.metadata}))
"""


def store_training(store: str, config: RunConfig, dataset: str, about: dict[str, Any], wer: float) -> None:
    """Finished work of train, as a search leaves it; `model.json` says `about`."""
    with cached_step(store, "train", config.train, {"dataset": dataset}, revision=REVISION) as work:
        (work.folder / "model").mkdir()
        for name in ("model.json", "saved_model.pb"):
            (work.folder / "model" / name).write_text(json.dumps(about), encoding="utf-8")
        work.outputs = {"model": "model"}
        work.metrics = {"dev_wer": wer, "dev_loss": 1.0}


def write_small_dataset(folder: Path) -> Dataset:
    noise = np.random.default_rng(0)
    examples = [
        NewExample(f"u{at}", "yes no", split, noise.normal(size=(60, 16)).astype(np.float32), f"s{at}")
        for at, split in enumerate(["train"] * 3 + ["dev", "test"])
    ]
    return write_dataset(folder, examples, FeatureSettings(mels=16), Alphabet.from_name("english"))


@pytest.mark.slow
def test_kfp_runs_the_trials_and_passes_on_the_best_one(tmp_path: Path) -> None:
    """Three trials that the store holds, one that is refused, and one in which TensorFlow fails: these are no trials
    to rank, and the run goes to its end.
    """
    dataset = write_small_dataset(tmp_path / "dataset")
    base: dict[str, Any] = {"name": "tiny", "store": str(tmp_path / "store"), "corpus": {"uri": "c"}}
    items = []
    for number, wer in enumerate([0.5, 0.2, 0.4]):
        config = load_config({**base, "train": {"learning_rate": 0.001 * (1 + number)}})
        assert config.pipeline == "asr"
        store_training(base["store"], config, dataset.key, {"number": number}, wer)
        settings = {"train.learning_rate": 0.001 * (1 + number)}
        changes = {"learning_rate": config.train.learning_rate}
        items.append(json.dumps({"trial": number, "settings": settings, "train": changes}))
    broken = {"start.model": str(tmp_path / "no model")}
    items.append(json.dumps({"trial": 3, "settings": {"train.start.model": "no model"}, "train": broken}))
    items.append(json.dumps({"trial": 4, "settings": {"train.batch_size": 999}, "train": {"batch_size": 999}}))
    (tmp_path / "full" / "tensorflow").mkdir(parents=True)
    (tmp_path / "full" / "tensorflow" / "__init__.py").write_text('raise MemoryError("no memory left on the GPU")\n')
    shared = json.dumps(load_config(base).plain()["train"])
    request = {"items": items, "base": shared, "root": str(tmp_path / "root")}
    request |= {"store": base["store"], "dataset": str(tmp_path / "dataset")}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(request), capture_output=True, text=True, cwd=tmp_path,
        timeout=PATIENCE_SECONDS, env={**os.environ, "PYTHONPATH": str(tmp_path / "full")},
    )  # fmt: skip
    lines = [one.strip() for one in done.stdout.splitlines()]
    line = next((one for one in lines if one.startswith("RESULT ")), "")
    assert line, done.stdout + done.stderr
    found = json.loads(line.removeprefix("RESULT "))
    assert json.loads(found["metadata"]["trial"]) == {"number": 1, "settings": {"train.learning_rate": 0.002}}
    assert json.loads((Path(found["uri"]) / "model.json").read_text(encoding="utf-8")) == {"number": 1}
    assert found["metadata"]["metrics"]["dev_wer"] == 0.2
    assert found["metadata"]["reused"] is True
    (page,) = (tmp_path / "root").rglob("choose/report")
    text = page.read_text(encoding="utf-8")
    assert "learning_rate 0.002" in text
    assert "no model" in text, "the trial that failed, with its reason"
    assert "MemoryError: no memory left on the GPU" in text

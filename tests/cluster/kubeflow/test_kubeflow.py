"""KFP's own code on every graph that we compile: parser, compiler, driver, launcher, and its answers about runs."""

import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kfp_runs import ANSWERS
from tests.cluster.kubeflow import sources
from tests.cluster.kubeflow.scenarios import scenarios
from tests.pipelines.conftest import CONFIG as TINY_ASR
from tests.pipelines.test_search_kfp import store_training, write_small_dataset
from tests.pipelines.test_tts_run import CONFIG as TINY_TTS
from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import compile_pipeline
from voxline.pipelines.cluster.run_steps import steps_of_workflow
from voxline.pipelines.cluster.submit import CompiledPipeline
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.pipeline_configs import AsrConfig
from voxline.pipelines.graph import GRAPHS, OPTIONAL_STEPS, steps_until
from voxline.pipelines.search.kfp_trials import MAX_TRIALS, compile_trials
from voxline.pipelines.search.space import Space

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted(file for graph in GRAPHS for file in ROOT.glob(f"configs/{graph}/*.yaml"))
OVERLAYS = sorted(file for file in ROOT.glob("configs/cluster/*.yaml") if file.stem != "vertex")
PLACES = ["store=/mnt/store", "registry=/mnt/registry", "datasets=/mnt/store/datasets"]
REFUSED = {
    ("librispeech-960", "gke-tpu"): "image model-gpu cannot use the accelerator",
    ("librispeech-conformer-960", "gke-tpu"): "image model-gpu cannot use the accelerator",
    ("fastspeech", "gke-tpu"): "accelerator is a TPU, and XLA cannot compile the sum over alignments",
    ("phrases", "gke-tpu"): "accelerator is a TPU, and XLA cannot compile the sum over alignments",
    ("fsdd-unseen-speaker", "aks"): "corpora has fsdd, voices, and uri or sha256 is set too",
    ("fsdd-unseen-speaker", "one-node"): "corpora has fsdd, voices, and uri or sha256 is set too",
    ("several-corpora", "aks"): "corpora has librispeech, ours, and uri or sha256 is set too",
    ("several-corpora", "one-node"): "corpora has librispeech, ours, and uri or sha256 is set too",
}
"""A config and an overlay that do not go together, with why: an image is for GPUs; a TPU runs what XLA compiles; an
overlay names one corpus."""
MAY_SKIP = (
    ROOT / "configs/asr/demo.yaml",
    ROOT / "configs/cluster/one-node.yaml",
    "forecast.skip_below=0.05 notify.history=/mnt/store/history",
)
"""A run that trains nothing where its forecast says so."""
SEARCH = "asr-search"
"""A graph with as many parallel trials as are accepted."""
ARGUMENT_BYTES = 128 * 1024
"""Linux' limit for one argument."""
WORKFLOW_BYTES = 1024 * 1024
"""etcd's for one object is 1.5 MiB; the status of the nodes needs the rest."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the IR of every config on every overlay, compiled for KFP 2.17, and the parameters of its runs."""
    folder = tmp_path_factory.mktemp("ir")
    os.environ["VOXLINE_IMAGE_REGISTRY"], os.environ["VOXLINE_IMAGE_TAG"] = "registry.example/voxline", "1"
    runs = [(*files, "") for files in itertools.product(CONFIGS, OVERLAYS)]
    for config, overlay, more in [*runs, MAY_SKIP]:
        graph = _graph(config)
        name = f"{graph}-{config.stem}-{overlay.stem}{'-may-skip' if more else ''}"
        given = [one for one in PLACES if graph == "refresh" or not one.startswith("datasets")] + more.split()
        if (config.stem, overlay.stem) in REFUSED:
            with pytest.raises(SettingsError, match=REFUSED[config.stem, overlay.stem]):
                CompiledPipeline.of(load_config([config, overlay], given, pipeline=graph), (2, 17, 0))
            continue
        chosen = load_config([config, overlay], given, pipeline=graph)
        pipeline = CompiledPipeline.of(chosen, (2, 17, 0))
        (folder / f"{name}.yaml").write_bytes(pipeline.text)
        (folder / f"{name}.json").write_text(json.dumps(pipeline.parameters), encoding="utf-8")
    _compile_search(folder / f"{SEARCH}.yaml")
    return folder


def _compile_search(file: Path) -> None:
    """For `kfp run create -f`, which gives no parameters."""
    chosen = load_config([ROOT / "configs/asr/librispeech.yaml", ROOT / "configs/cluster/one-node.yaml"], PLACES[:2])
    ranges = {"train.learning_rate": {"log": [1e-4, 2e-2]}, "train.weight_decay": {"linear": [0, 0.01]}}
    compile_trials(
        chosen, Space(ranges), file, metric="dev_wer", trials=MAX_TRIALS, jobs=4, kfp_version=(2, 17, 0)
    )  # fmt: skip
    file.with_suffix(".json").write_text("{}", encoding="utf-8")


def _graph(config: Path) -> str:
    if config.parent.name == "tts" and "recognizer" in config.stem:
        return "asr"
    return config.parent.name


@pytest.fixture(scope="module")
def results(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What KFP makes of each."""
    folder = tmp_path_factory.mktemp("pods")
    (patch,) = re.findall(r"'COMPILED_PIPELINE_SPEC_PATCH=(.*)'", (ROOT / "docs/cluster/compiling.md").read_text())
    sources.run("pods_test.go", folder, VOXLINE_IR=str(compiled), VOXLINE_SPEC_PATCH=patch)
    found = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    assert len(found) == len(list(compiled.glob("*.yaml")))
    return found


def test_kfp_takes_every_pipeline_and_makes_a_pod_of_each_step(results: dict[str, Any]) -> None:
    assert {name: result["errors"] for name, result in results.items() if result["errors"]} == {}
    for name, result in results.items():
        optional = result["pods"].keys() & OPTIONAL_STEPS.keys()
        steps = set(steps_until(name.partition("-")[0], optional=optional))
        assert result["pods"].keys() == (steps - {"train"} | {"trial", "choose"} if name == SEARCH else steps), name
        assert result["workflow_bytes"] < WORKFLOW_BYTES, name
        assert result["longest_parameter"] < ARGUMENT_BYTES, name


def test_the_driver_of_a_search_starts_every_trial(results: dict[str, Any]) -> None:
    assert [name for name, result in results.items() if result["loops"]] == [SEARCH]
    (items,) = results[SEARCH]["loops"].values()
    assert [json.loads(item)["trial"] for item in items] == list(range(MAX_TRIALS))


def test_every_pod_passes_the_restricted_pod_security_standard(results: dict[str, Any]) -> None:
    for name, result in results.items():
        for step, pod in result["pods"].items():
            assert not pod["violations"], (name, step, pod["violations"])
            assert pod["longest_argument"] < ARGUMENT_BYTES, (name, step)
            (main,) = (one for one in pod["spec"]["containers"] if one["name"] == "main")
            mounts = [mount["mountPath"] for mount in main["volumeMounts"]]
            assert len(mounts) == len(set(mounts)), (name, step, mounts)


def test_the_controllers_defaults_change_neither_times_nor_deadline(results: dict[str, Any]) -> None:
    """KFP installs Argo with times of an hour to keep a finished run, and with its own policy of retries."""
    for name, result in results.items():
        week = 7 * 86400
        wanted = {"secondsAfterCompletion": week, "secondsAfterSuccess": week, "secondsAfterFailure": week}
        assert result["merged_ttl"] == wanted, name
        assert result["deadline"] == 192 * 3600, name
        policies = {policy for template, policy in result["retry_policies"].items() if "retry" in template}
        assert policies == {"OnError"}, "docs/cluster says that a stock server retries lost pods alone"
        patched = {policy for template, policy in result["patched_policies"].items() if "retry" in template}
        assert patched == {"Always"}, "docs/cluster says that its line makes the server retry both"


def test_a_training_that_is_not_worth_it_is_left_out(results: dict[str, Any]) -> None:
    """By KFP's driver and compiler; status reads the names of the steps from the workflow."""
    assert [name for name, result in results.items() if result["conditions"]] == ["asr-demo-one-node-may-skip"]
    (name, condition), *others = results["asr-demo-one-node-may-skip"]["conditions"].items()
    assert (condition["triggers"], others) == ({"yes": True, "no": False}, [])
    assert condition["when"] == f"{{{{tasks.{name}-driver.outputs.parameters.condition}}}} != false"
    (template,) = (
        task["template"] for one in condition["templates"] for task in one["dag"]["tasks"] if task["name"] == name
    )
    node = {"type": "Skipped", "phase": "Skipped", "name": f"asr-x7k2p(0).root(0).{name}", "templateName": template}
    workflow = {
        "metadata": {"name": "asr-x7k2p"},
        "spec": {"templates": condition["templates"]},
        "status": {"nodes": {"1": node}},
    }
    steps = [(step.name, step.state) for step in steps_of_workflow(workflow)]
    assert steps == [(step, "SKIPPED") for step in ("train", "language", "evaluate", "push")]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a pod has that runs KFP's launcher: this Python; and a folder `ir`."""
    if not os.access("/", os.W_OK) or Path("/minio").exists():
        pytest.skip("the launcher writes below /minio, which cannot be made here")
    (tmp_path / "ir").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    yield tmp_path
    shutil.rmtree("/minio", ignore_errors=True)


@pytest.fixture
def launch(pod: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a graph on a small corpus by KFP's launcher, with these settings; gives its artifacts and objects."""
    from voxline.components.demo_corpus.settings import DemoCorpusSettings
    from voxline.components.demo_corpus.step import run as generate

    generate(pod / "corpus", DemoCorpusSettings.of({"kind": "commands"}))
    given = [f"corpus.uri={pod}/corpus/LibriSpeech", f"store={pod}/store", f"registry={pod}/registry"]

    def run(*settings: str, graph: str = "refresh", config: Path | None = None, fails_in: str = "") -> dict[str, Any]:
        places = [*given, f"datasets={pod}/datasets"] if graph == "refresh" else given
        chosen = load_config([config or ROOT / f"configs/{graph}/demo.yaml"], [*places, *settings], pipeline=graph)
        compile_pipeline(chosen, pod / "ir" / f"{graph}.yaml", (2, 17, 0))
        # What the compiler sets for a pod, which the launcher's test does not have.
        monkeypatch.setenv("VOXLINE_REFUSE_LATER", "1")
        values = {"VOXLINE_GRAPH": graph, "VOXLINE_STEPS": ",".join(steps_until(graph)), "VOXLINE_FAILS_IN": fails_in}
        sources.run("launcher_test.go", pod, VOXLINE_IR=str(pod / "ir"), **values)
        found: dict[str, Any] = json.loads((pod / "launcher.json").read_text())
        return found

    return run


def test_the_launcher_runs_the_whole_refresh(launch: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = launch()
    assert any(key.endswith("executor-logs-0") for key in found["objects"]), found["objects"]
    steps = {"ingest", "convert", "validate", "extract", "publish"}
    assert {name.partition("/")[0] for name in found["artifacts"]} == steps
    assert list((tmp_path / "datasets").rglob("*.json")), "no dataset was published"


def test_the_launcher_runs_a_recognizer_and_the_intents_of_what_it_hears(
    launch: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """From recordings to versions in the registry: models that have learned little, and gates that let them pass."""
    tiny = tmp_path / "tiny.yaml"
    tiny.write_text(TINY_ASR.format(corpus=tmp_path / "corpus" / "LibriSpeech"), encoding="utf-8")
    found = launch("push.limits.wer=2", graph="asr", config=tiny)
    assert {name.partition("/")[0] for name in found["artifacts"]} == set(steps_until("asr"))
    assert (tmp_path / "registry" / "asr" / "1" / "saved_model.pb").is_file()
    limits = "push.limits={text_intent_error_rate: 1, intent_error_rate: 1}"
    given = [f"corpus.uri={tmp_path}/corpus", "train.epochs=1", "extract.speeds=[1.0]", limits]
    found = launch(*given, graph="intents")
    assert {name.partition("/")[0] for name in found["artifacts"]} == set(steps_until("intents"))
    assert (tmp_path / "registry" / "intents" / "1" / "saved_model.pb").is_file()


TINY_VOCODER = """
pipeline: vocoder
name: tiny
corpus: {{uri: {corpus}}}
convert: {{sample_rate: 16000}}
extract: {{features: {{mels: 16, fft_size: 512, window_seconds: 0.03, hop_seconds: 0.0125}}}}
train: {{epochs: 1, batch_size: 4, segment_frames: 16, model: {{kind: vocos, channels: 8, hidden: 8, layers: 1}}}}
"""


def test_the_launcher_runs_a_voice_and_a_vocoder(launch: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    from voxline.components.demo_corpus.settings import DemoCorpusSettings
    from voxline.components.demo_corpus.step import run as generate

    chosen = DemoCorpusSettings.of(kind="digits", train=8, dev=2, test=2, long_sentences=1)
    corpus = generate(tmp_path / "voice", chosen, workers=1).path("corpus")
    for graph, text in (("tts", TINY_TTS), ("vocoder", TINY_VOCODER)):
        tiny = tmp_path / f"{graph}.yaml"
        tiny.write_text(text.format(corpus=corpus), encoding="utf-8")
        found = launch(f"corpus.uri={corpus}", graph=graph, config=tiny)
        assert {name.partition("/")[0] for name in found["artifacts"]} == set(steps_until(graph)), graph


def test_the_launcher_registers_the_page_of_a_refused_corpus(
    launch: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    found = launch("validate.small_splits.severity=error", "validate.small_splits.train=100000", fails_in="extract")
    for page in ("report", "statistics_page"):
        assert found["artifacts"][f"validate/{page}"]["uri"].startswith("minio://"), page
        assert any(key.endswith(f"/validate/salt/{page}") for key in found["objects"]), found["objects"]
    assert "small_splits" in str(found["artifacts"]["validate/validation"]["metadata"])
    assert not [name for name in found["artifacts"] if name.startswith(("extract/", "publish/"))]
    assert not (tmp_path / "datasets").exists()


def test_the_launcher_runs_the_trials_and_the_choice(pod: Path) -> None:
    """Trials that the store holds, each beside one that fails; `choose` reads all of them from ML Metadata."""
    dataset = write_small_dataset(pod / "dataset")
    places = [f"store={pod}/store", f"registry={pod}/registry", "corpus.uri=unread"]
    config = load_config([ROOT / "configs/asr/demo.yaml"], places)
    rates, missing = [0.001, 0.002, 0.003], f"{pod}/no model"
    for rate, wer in zip(rates, [0.5, 0.2, 0.4], strict=True):
        trained = load_config([ROOT / "configs/asr/demo.yaml"], [*places, f"train.learning_rate={rate}"])
        assert isinstance(trained, AsrConfig)
        store_training(f"{pod}/store", trained, dataset.key, {"rate": rate}, wer)
    space = Space({"train.learning_rate": rates, "train.start.model": ["", missing]})
    target = pod / "ir" / "search.yaml"
    compile_trials(config, space, target, metric="dev_wer", method="grid", jobs=2, kfp_version=(2, 17, 0))
    sources.run(
        "launcher_test.go", pod, VOXLINE_IR=str(pod / "ir"), VOXLINE_DATASET=json.dumps({"uri": f"{pod}/dataset"})
    )
    found = json.loads((pod / "trials.json").read_text(encoding="utf-8"))
    trials = [one["metadata"] for one in found["trials"]]
    assert trials[2]["metrics"] == {"struct": {"dev_wer": 0.2, "dev_loss": 1.0}}, "as ML Metadata gives it back"
    assert [json.loads(one["trial"])["number"] for one in trials] == list(range(6))
    assert ["failed" in one for one in trials] == [False, True] * 3
    assert "no model" in trials[1]["failed"]
    chosen = found["model"][0]["metadata"]
    assert json.loads(chosen["trial"])["settings"] == {"train.learning_rate": 0.002, "train.start.model": ""}
    assert (chosen["digest"], chosen["metrics"]) == (trials[2]["digest"], trials[2]["metrics"])
    assert found["metrics"][0]["metadata"]["dev_wer"] == 0.2
    assert "learning_rate 0.002" in found["report"][0]


def test_the_recorded_answers_are_those_of_kfp(tmp_path: Path) -> None:
    given = tmp_path / "scenarios.json"
    given.write_text(json.dumps(scenarios()))
    sources.run("answers_test.go", tmp_path, VOXLINE_SCENARIOS=str(given))
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    lost = json.loads(answers["log-of-a-lost-pod"]["body"])
    answers["log-of-a-lost-pod"]["body"] = json.dumps({**lost, "error_details": "a stack trace of this machine"})
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        lines = [f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items()]
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert answers == json.loads(ANSWERS.read_text(encoding="utf-8")), "record them again, if it is meant"

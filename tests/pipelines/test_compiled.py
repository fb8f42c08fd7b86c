"""The compiled graphs: a golden file each, the same whatever the process. VOXLINE_WRITE_GOLDEN=1 rewrites them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.compiler import Compiler
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec, PlatformSpec

from tests.pipelines.conftest import compile_to_yaml, load_ir
from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cluster.compiler import compile_pipeline
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of

GOLDEN = Path(__file__).parent / "golden"
OVERLAYS = Path(__file__).parents[2] / "configs" / "cluster"
IMAGES = "cluster: {images: {registry: registry.example/voxline, tag: 4f1c2b9}}\n"
RUNS = {
    "asr": """
name: nightly
store: gs://speech/store
registry: gs://speech/registry
model: english
corpus: {uri: gs://speech/corpora/LibriSpeech}
train: {epochs: 40, model: {layers: 5, units: 800}}
push: {limits: {wer: 0.15}}
""",
    "tts": """
pipeline: tts
name: nightly
store: gs://speech/store
registry: gs://speech/registry
model: linda
corpus: {uri: gs://speech/corpora/LJSpeech-1.1}
convert: {sample_rate: 22050}
train: {epochs: 500, model: {kind: tacotron2, reduction: 2}}
evaluate: {round_trip_recognizer: english}
push: {limits: {round_trip_wer: 0.15}}
""",
    "vocoder": """
pipeline: vocoder
name: nightly
store: gs://speech/store
registry: gs://speech/registry
model: linda-vocoder
corpus: {uri: gs://speech/corpora/LJSpeech-1.1}
train: {epochs: 500, batch_size: 32}
push: {limits: {log_stft_reduction: 0.25}}
""",
    "intents": """
pipeline: intents
name: nightly
store: gs://speech/store
registry: gs://speech/registry
model: house-intents
corpus: {uri: gs://speech/corpora/house, format: manifest}
train: {field: command, epochs: 30}
evaluate: {recognizer: english}
push: {limits: {intent_error_rate: 0.02}}
""",
    "refresh": """
pipeline: refresh
name: nightly
store: gs://speech/store
datasets: gs://speech/datasets
registry: gs://speech/registry
corpus: {uri: gs://speech/corpora/LibriSpeech}
extract: {features: {mels: 40}}
publish: {dataset: librispeech}
""",
}
CASES = {
    "asr": ("asr", ""),
    "tts": ("tts", ""),
    "vocoder": ("vocoder", ""),
    "intents": ("intents", ""),
    "refresh": ("refresh", ""),
    "asr-one-node": ("asr", "one-node"),
    "asr-gpu": ("asr", "gke-gpu"),
    "asr-tpu": ("asr", "gke-tpu"),
    "tts-gpu": ("tts", "gke-gpu"),
}
"""Case → its run, and the overlay of its cluster."""
WHOLE = ("asr", "refresh")
"""Cases whose compiled graph is compared as a whole."""


def layers(case: str, folder: Path, platform: str = "") -> list[Path]:
    pipeline, overlay = CASES[case]
    overlay = platform or overlay
    files = {"run.yaml": RUNS[pipeline], "images.yaml": IMAGES}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / "run.yaml", *([OVERLAYS / f"{overlay}.yaml"] if overlay else []), folder / "images.yaml"]


def masked(ir: str) -> str:
    return re.sub(r"^sdkVersion: .*$", "sdkVersion: masked", ir, flags=re.MULTILINE)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ir(case: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp(case)
    return masked(compile_to_yaml(load_config(layers(case, folder)), folder / "out" / "ir.yaml", (2, 17, 0)))


@pytest.fixture(scope="module")
def documents(ir: str) -> tuple[Any, Any]:
    return load_ir(ir)


def test_the_graph_compiles_to_the_golden_file(case: str, ir: str) -> None:
    if case not in WHOLE:
        return  # held by what differs in it: below, in test_placement.py and in cluster/test_vertex.py
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        golden.write_text(ir, encoding="utf-8")
    assert ir == golden.read_text(encoding="utf-8"), "look at the difference, and run `make golden` if it is meant"


@pytest.mark.slow
def test_another_process_compiles_the_same(tmp_path: Path) -> None:
    command = (
        "import voxline.components.push.component; import sys; from voxline.pipelines.cli.main import main; "
        "sys.argv[0] = 'voxline'; main()"
    )
    configs = [text for file in layers("asr", tmp_path) for text in ("--config", str(file))]
    (tmp_path / "out").mkdir()
    subprocess.run(
        [
            sys.executable,
            "-c",
            command,
            "compile",
            "asr",
            *configs,
            "--output",
            "out/ir.yaml",
            "--kfp-version",
            "2.17.0",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "2"},
        check=True,
        capture_output=True,
    )
    assert masked((tmp_path / "out" / "ir.yaml").read_text(encoding="utf-8")) == (GOLDEN / "asr.yaml").read_text(
        encoding="utf-8"
    )


def test_the_graph_matches_kfps_schemas(documents: tuple[Any, Any]) -> None:
    """Strict: a key that the schema does not have, or a value of another type, raises; nothing is lost on the way."""
    spec, platform = documents
    assert json_format.MessageToDict(json_format.ParseDict(spec, PipelineSpec())) == spec
    assert json_format.MessageToDict(json_format.ParseDict(platform, PlatformSpec())) == platform
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors.keys() == spec["deploymentSpec"]["executors"].keys()
    for executor in executors.values():
        assert json_format.MessageToDict(json_format.ParseDict(executor, KubernetesExecutorConfig())) == executor


def test_the_config_becomes_the_defaults_of_the_form(case: str, documents: tuple[Any, Any]) -> None:
    form = documents[0]["root"]["inputDefinitions"]["parameters"]
    expected = {
        "asr": {"train__epochs": 40, "push__limits__wer": 0.15, "model": "english"},
        "tts": {
            "train__epochs": 500,
            "train__model__reduction": 2,
            "push__limits__round_trip_wer": 0.15,
            "convert__sample_rate": 22050,
            "evaluate__round_trip_recognizer": "english",
            "model": "linda",
        },
        "vocoder": {
            "train__epochs": 500,
            "train__batch_size": 32,
            "push__limits__log_stft_reduction": 0.25,
            "model": "linda-vocoder",
        },
        "intents": {
            "train__field": "command",
            "evaluate__recognizer": "english",
            "push__limits__intent_error_rate": 0.02,
            "model": "house-intents",
        },
        "refresh": {"datasets": "gs://speech/datasets", "extract__features__mels": 40},
    }[CASES[case][0]]
    assert {name: form[name]["defaultValue"] for name in expected} == expected
    assert form["convert__sample_rate"]["parameterType"] == "NUMBER_INTEGER"


def test_every_field_of_the_form_and_every_input_of_a_step_is_described(documents: tuple[Any, Any]) -> None:
    spec = documents[0]
    definitions = [spec["root"], *spec["components"].values()]
    for definition in definitions:
        for fields in definition["inputDefinitions"].values():
            for name, field in fields.items():
                assert field.get("description"), name


def test_steps_run_in_order_from_images_with_a_version(case: str, documents: tuple[Any, Any]) -> None:
    spec = documents[0]
    tasks = spec["root"]["dag"]["tasks"]
    steps = graph_of(CASES[case][0])
    assert set(tasks) == set(steps)
    for step, inputs in steps.items():
        assert set(inputs.values()) <= set(tasks[step].get("dependentTasks", []))
    assert "validate" in tasks["extract"]["dependentTasks"]
    for executor in spec["deploymentSpec"]["executors"].values():
        repository, _, tag = executor["container"]["image"].rpartition(":")
        assert tag == "4f1c2b9"
        assert repository.rpartition("/")[0] in ("registry.example/voxline",)
        assert "pip install" not in str(executor["container"]["command"])


def test_settings_that_no_pod_can_start_with_are_refused(tmp_path: Path) -> None:
    """Field case U3: a lexicon of 1,000 words is accepted, one of 4,900 is not."""

    def config(words: int) -> Any:
        reading = "chuang2 qian2 ming2 yue4 guang1"
        lexicon = {f"{chr(0x4E00 + word // 128)}{chr(0x5000 + word % 128)}三四五": reading for word in range(words)}
        convert = {"frontend": {"kind": "mandarin", "lexicon": lexicon}}
        corpus = {"uri": "gs://b/c", "format": "thchs30"}
        return load_config(json.dumps({"name": "x", "pipeline": "tts", "corpus": corpus, "convert": convert}))

    compile_pipeline(config(1_000), tmp_path / "o.yaml")
    with pytest.raises(SettingsError, match=r"convert: its settings have [0-9,]+ bytes.*shorten convert__settings"):
        compile_pipeline(config(4_900), tmp_path / "other.yaml")
    assert not (tmp_path / "other.yaml").exists()


def test_a_pipeline_of_several_corpora_needs_no_location_of_one(tmp_path: Path) -> None:
    """KFP refuses a run whose parameter has neither a default nor a value."""
    config = load_config([Path(__file__).parents[2] / "configs/asr/several-corpora.yaml"])
    spec, _ = load_ir(compile_to_yaml(config, tmp_path / "ir.yaml"))
    assert spec["root"]["inputDefinitions"]["parameters"]["corpus__uri"]["defaultValue"] == ""


VERSION = """
name: nightly
store: gs://speech/store
registry: gs://speech/registry
datasets: gs://speech/datasets
corpus: {dataset: digits@latest}
language: {kind: ngram}
"""


def test_a_run_on_a_version_has_its_name_as_a_parameter(tmp_path: Path) -> None:
    """A schedule compiles `latest` once, and each of its runs resolves it."""
    spec, _ = load_ir(compile_to_yaml(load_config(VERSION), tmp_path / "ir.yaml"))
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert parameters["corpus__dataset"]["defaultValue"] == "digits@latest"
    assert parameters["datasets"]["defaultValue"] == "gs://speech/datasets"
    assert not {"corpus__uri", "convert__alphabet"} & set(parameters)

    tasks = spec["root"]["dag"]["tasks"]
    assert set(tasks) == {"dataset", "train", "language", "evaluate", "push"}
    for step, name, output in (("train", "dataset", "version"), ("evaluate", "wavs", "rows")):
        source = tasks[step]["inputs"]["artifacts"][name]["taskOutputArtifact"]
        assert source == {"outputArtifactKey": output, "producerTask": "dataset"}

    # Without a default, the form of the UI requires a value.
    unset = VERSION.replace("datasets: gs://speech/datasets\n", "")
    spec, _ = load_ir(compile_to_yaml(load_config(unset), tmp_path / "unset.yaml"))
    assert "defaultValue" not in spec["root"]["inputDefinitions"]["parameters"]["datasets"]


@pytest.mark.parametrize("pipeline", ["asr", "refresh"])
def test_a_publication_starts_the_training_in_the_same_graph(pipeline: str, tmp_path: Path) -> None:
    published = VERSION.replace("{dataset: digits@latest}", "{uri: gs://speech/digits}").replace("language", "publish")
    text = f"pipeline: {pipeline}\n" + published.replace("{kind: ngram}", "{dataset: digits, then: asr}")
    spec, _ = load_ir(compile_to_yaml(load_config(text), tmp_path / "ir.yaml"))
    tasks = spec["root"]["dag"]["tasks"]
    assert set(tasks) == {"ingest", "convert", "validate", "extract", "publish", "condition-1"}
    condition = tasks["condition-1"]["triggerPolicy"]["condition"]
    assert condition == "inputs.parameter_values['pipelinechannel--publish-Output'] == 'yes'"

    training = spec["components"]["comp-condition-1"]["dag"]["tasks"]
    assert set(training) == {"train", "evaluate", "push"}
    artifacts = training["train"]["inputs"]["artifacts"]
    assert artifacts["dataset"] == {"componentInputArtifact": "pipelinechannel--publish-version"}


@pytest.mark.parametrize(
    ("written", "instead", "fault"),
    [
        ("english", "engIish", "has 'engIish' for .*, and not 'english'"),
        ("components:", "\x07", "cannot be read back"),
    ],
)
def test_a_file_that_says_something_else_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, instead: str, fault: str
) -> None:
    """Field case F10: what is written is read back."""
    compile_as_kfp_does = Compiler.compile

    def compile_wrongly(self: Compiler, pipeline: Any, package_path: str, **more: Any) -> None:
        compile_as_kfp_does(self, pipeline, package_path, **more)
        file = Path(package_path)
        file.write_text(file.read_text(encoding="utf-8").replace(written, instead), encoding="utf-8")

    monkeypatch.setattr(Compiler, "compile", compile_wrongly)
    with pytest.raises(WorkError, match=fault):
        compile_pipeline(load_config(RUNS["asr"] + IMAGES), tmp_path / "asr.yaml")
    assert list(tmp_path.iterdir()) == []

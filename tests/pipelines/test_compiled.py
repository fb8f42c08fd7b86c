"""The compiled graphs: a golden file each, the same whatever the process. VOXLINE_WRITE_GOLDEN=1 writes them anew."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

GOLDEN = Path(__file__).parent / "golden"
CONFIGS = {
    "asr": """
name: nightly
store: /mnt/voxline/store
registry: /mnt/voxline/registry
model: english
corpus: {uri: /mnt/corpora/LibriSpeech}
train: {epochs: 40, model: {layers: 5, units: 800}}
push: {max_wer: 0.15}
""",
    "tts": """
pipeline: tts
name: nightly
store: /mnt/voxline/store
registry: /mnt/voxline/registry
model: linda
corpus: {uri: /mnt/corpora/LJSpeech-1.1}
convert: {sample_rate: 22050}
train: {epochs: 500, model: {kind: tacotron2, reduction: 2}}
evaluate: {listener: english}
push: {max_round_trip_wer: 0.15}
""",
}


def compiled(pipeline: str, folder: Path, hash_seed: str, first: str) -> str:
    """The IR YAML as a fresh process writes it, which imports the module `first` before all others."""
    (folder / "run.yaml").write_text(CONFIGS[pipeline], encoding="utf-8")
    command = f"import {first}; import sys; from pipelines.cli import main; sys.argv[0] = 'voxline'; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VOXLINE_IMAGE")}
    subprocess.run(
        [sys.executable, "-c", command, "compile", pipeline, "--config", "run.yaml", "--output", "out/ir.yaml"],
        cwd=folder,
        env={**environment, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
    )
    text = (folder / "out" / "ir.yaml").read_text(encoding="utf-8")
    return re.sub(r"^sdkVersion: .*$", "sdkVersion: masked", text, flags=re.MULTILINE)


@pytest.fixture(scope="module", params=CONFIGS)
def pipeline(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ir(pipeline: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(pipeline, tmp_path_factory.mktemp("compiled"), "1", "components.push.recognition.component")


def parameters(ir: str) -> Any:
    return yaml.safe_load(ir)["root"]["inputDefinitions"]["parameters"]


def test_the_graph_compiles_to_the_golden_file(pipeline: str, ir: str) -> None:
    golden = GOLDEN / f"{pipeline}.yaml"
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        golden.write_text(ir, encoding="utf-8")
    assert ir == golden.read_text(encoding="utf-8"), "look at the difference, and run `make golden` if it is meant"


def test_another_process_compiles_the_same(pipeline: str, ir: str, tmp_path: Path) -> None:
    assert compiled(pipeline, tmp_path, "2", "components.ingest.component") == ir


def test_the_config_becomes_the_defaults_of_the_form(pipeline: str, ir: str) -> None:
    form = parameters(ir)
    expected = {
        "asr": {"train_epochs": 40, "push_max_wer": 0.15, "model": "english"},
        "tts": {
            "train_epochs": 500,
            "train_model_reduction": 2,
            "push_max_round_trip_wer": 0.15,
            "convert_sample_rate": 22050,
            "evaluate_listener": "english",
            "model": "linda",
        },
    }
    assert {name: form[name]["defaultValue"] for name in expected[pipeline]} == expected[pipeline]
    assert form["train_epochs"]["parameterType"] == "NUMBER_INTEGER"
    assert all(parameter["description"] for parameter in form.values())


def test_steps_run_in_order_from_images_with_a_version(ir: str) -> None:
    document = yaml.safe_load(ir)
    tasks = document["root"]["dag"]["tasks"]
    assert list(tasks) == ["convert", "evaluate", "extract", "ingest", "push", "train", "validate"]
    assert set(tasks["extract"]["dependentTasks"]) == {"convert", "validate"}
    assert set(tasks["push"]["dependentTasks"]) == {"train", "evaluate"}
    for executor in document["deploymentSpec"]["executors"].values():
        tag = executor["container"]["image"].rpartition(":")[2]
        assert tag not in ("", "latest")
        assert "pip install" not in str(executor["container"]["command"])

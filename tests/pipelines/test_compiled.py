"""The compiled graph: a golden file, the same whatever the process. VOXLINE_WRITE_GOLDEN=1 writes it anew."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

GOLDEN = Path(__file__).parent / "golden" / "asr.yaml"
CONFIG = """
name: nightly
store: /mnt/voxline/store
registry: /mnt/voxline/registry
model: english
corpus: {uri: /mnt/corpora/LibriSpeech}
train: {epochs: 40, model: {layers: 5, units: 800}}
push: {max_wer: 0.15}
"""


def compiled(folder: Path, hash_seed: str, first: str) -> str:
    """The IR YAML as a fresh process writes it, which imports the module `first` before all others."""
    (folder / "run.yaml").write_text(CONFIG, encoding="utf-8")
    command = f"import {first}; import sys; from pipelines.cli import main; sys.argv[0] = 'voxline'; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VOXLINE_IMAGE")}
    subprocess.run(
        [sys.executable, "-c", command, "compile", "asr", "--config", "run.yaml", "--output", "out/asr.yaml"],
        cwd=folder,
        env={**environment, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
    )
    text = (folder / "out" / "asr.yaml").read_text(encoding="utf-8")
    return re.sub(r"^sdkVersion: .*$", "sdkVersion: masked", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def ir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("compiled"), "1", "components.push.recognition.component")


def test_the_graph_compiles_to_the_golden_file(ir: str) -> None:
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        GOLDEN.write_text(ir, encoding="utf-8")
    assert ir == GOLDEN.read_text(encoding="utf-8"), "look at the difference, and run `make golden` if it is meant"


def test_another_process_compiles_the_same(ir: str, tmp_path: Path) -> None:
    assert compiled(tmp_path, "2", "components.ingest.component") == ir


def test_the_config_becomes_the_defaults_of_the_form(ir: str) -> None:
    parameters = yaml.safe_load(ir)["root"]["inputDefinitions"]["parameters"]
    assert parameters["train_epochs"]["defaultValue"] == 40
    assert parameters["train_epochs"]["parameterType"] == "NUMBER_INTEGER"
    assert parameters["push_max_wer"]["defaultValue"] == 0.15
    assert parameters["model"]["defaultValue"] == "english"
    assert all(parameter["description"] for parameter in parameters.values())


def test_steps_run_in_order_from_images_with_a_version(ir: str) -> None:
    document = yaml.safe_load(ir)
    tasks = document["root"]["dag"]["tasks"]
    assert set(tasks["extract"]["dependentTasks"]) == {"convert", "validate"}
    assert set(tasks["push"]["dependentTasks"]) == {"train", "evaluate"}
    for executor in document["deploymentSpec"]["executors"].values():
        tag = executor["container"]["image"].rpartition(":")[2]
        assert tag not in ("", "latest")
        assert "pip install" not in str(executor["container"]["command"])

"""A corpus and a config that are just large enough to go through every step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import PATIENCE_SECONDS
from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate
from voxline.pipelines.cluster.compiler import Platform, compile_pipeline
from voxline.pipelines.config.run_config import RunConfig
from voxline.store.files import read_json

# Two small layers, one loop and an epoch: it learns nothing, and goes through everything.
CONFIG = """
name: tiny
corpus: {{uri: {corpus}}}
extract: {{features: {{mels: 16}}}}
train:
  epochs: 1
  batch_size: 8
  model: {{layers: 1, units: 8, rnn: simple, directions: forward, convolutions: [{{channels: 2, stride: [3, 2]}}]}}
evaluate: {{bootstrap_samples: 200}}
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three generated speakers in LibriSpeech's layout, one a split."""
    folder = tmp_path_factory.mktemp("corpus é") / "generated speech"
    chosen = corpus_settings(
        train_speakers=2, dev_speakers=1, test_speakers=1, utterances_per_speaker=10, dev_utterances_per_speaker=4
    )
    return generate(folder, chosen).path("corpus")


class House:
    """A folder to type the command in: with a space, another letter, and packages that are named like ours."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.folder = folder / "a folder é"
        self.run_dir = self.folder / "runs" / "tiny"
        for decoy in ("components", "docker", "kfp"):
            (self.folder / decoy).mkdir(parents=True)
            (self.folder / decoy / "__init__.py").write_text("raise ImportError('the wrong one')\n", encoding="utf-8")
        (self.folder / "tiny.yaml").write_text(CONFIG.format(corpus=corpus), encoding="utf-8")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "voxline", *arguments],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit status, and the lines that a person saw."""
        process = self.start("run", "asr", "--config", "tiny.yaml", *arguments)
        seen, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode, seen.splitlines()


@pytest.fixture
def house(tmp_path: Path, corpus: Path) -> House:
    return House(tmp_path, corpus)


def compile_to_yaml(
    config: RunConfig, file: Path, kfp_version: tuple[int, ...] = (), platform: Platform = "kfp"
) -> str:
    """The IR YAML of a config."""
    compile_pipeline(config, file, kfp_version, platform)
    return file.read_text(encoding="utf-8")


def load_ir(ir: str) -> tuple[Any, Any]:
    """What KFP calls the pipeline, and what it calls the platform."""
    spec, platform = yaml.load_all(ir, yaml.CSafeLoader)
    return spec, platform


KEYS = Path(__file__).parent / "golden" / "step_keys.json"


def check_step_keys(pipeline: str, record: dict[str, Any]) -> None:
    """Holds what each step's key is made of against the golden file; VOXLINE_WRITE_GOLDEN=1 writes it.

    A difference means that every store computes this step again at its next run. Where that is not the purpose of a
    change, the change is wrong.
    """
    folders = {step["name"]: Path(step["folder"]) for step in record["steps"]}
    parts = {name: _key_parts(folder) for name, folder in folders.items() if (folder / "done.json").exists()}
    golden = json.loads(KEYS.read_text(encoding="utf-8")) if KEYS.exists() else {}
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        golden[pipeline] = parts
        KEYS.write_text(json.dumps(golden, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    assert parts == golden[pipeline]


def _key_parts(folder: Path) -> dict[str, Any]:
    done = read_json(folder / "done.json")
    return {"revision": done["revision"], "settings": done["settings"], "inputs": _names(done["inputs"])}


def _names(value: Any) -> Any:
    """The names of the inputs without their values, which are hashes of generated audio and of library versions."""
    return {key: _names(below) for key, below in value.items()} if isinstance(value, dict) else "…"

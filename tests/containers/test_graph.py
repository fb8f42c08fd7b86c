"""The asr graph in its images, by kfp.local.DockerRunner: what comes out is what comes out of processes."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.containers.conftest import ROOT, Image
from tests.pipelines.conftest import House
from voxline.pipelines.config.load import load_config
from voxline.pipelines.console import strip_colors
from voxline.store.files import read_json

pytest.importorskip("docker.types", reason="the Docker SDK that kfp's runner needs is not installed; make setup")

SETTINGS = ["push.limits.wer=10", "validate.tfdv=off", "language.kind=ngram", "language.alpha=1", "language.beta=1"]
"""With the optional step language, for which evaluate compiles the beam search where only /tmp can be written. TFX's
statistics are made in their image alone, so that with them the runs would differ; test_tfdv is about them."""

STEPS = ("ingest", "convert", "validate", "extract", "train", "export", "language", "evaluate", "push")
OUTPUTS = {*STEPS, "ngrams"}
"""Folders of the store with a marker: language keeps its n-grams beside its model."""


@pytest.fixture(scope="module")
def stores(image: Image, tag: str, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a run in processes and of one in containers, each with a store and a registry."""
    registry = {image(name).rpartition("/")[0] for name in ("data", "model", "validate")}.pop()
    here = House(tmp_path_factory.mktemp("processes"), corpus)
    status, seen = here.run(*(part for setting in SETTINGS for part in ("--set", setting)))
    assert status == 0, seen

    there = tmp_path_factory.mktemp("containers")
    for name in ("store", "registry", "kfp"):
        (there / name).mkdir()
        (there / name).chmod(0o777)
    config = load_config(here.folder / "tiny.yaml", SETTINGS, pipeline="asr").with_default_folders(there)
    request = {
        "config": config.plain(),
        "optional": config.optional_steps(),
        "pipeline_root": str(there / "kfp"),
        "read": [str(corpus)],
        "written": [config.store, config.registry],
    }
    (there / "request.json").write_text(json.dumps(request), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "tests.containers.graph_in_containers", str(there / "request.json")],
        cwd=there,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "VOXLINE_IMAGE_REGISTRY": registry,
            "VOXLINE_IMAGE_TAG": tag,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-4000:]}"
    told = strip_colors(ran.stdout + ran.stderr)
    assert [step for step in STEPS if f"Task {step!r} finished with status SUCCESS" not in told] == []
    return here.run_dir, there


def works(run: Path) -> dict[str, dict[str, Any]]:
    """Step → the done.json of its work in a run's store."""
    return {file.parent.parent.name: read_json(file) for file in (run / "store").glob("*/*/done.json")}


def digests(run: Path, pattern: str) -> dict[str, str]:
    """Path below the store → hash of its bytes."""
    files = sorted(file for file in (run / "store").glob(pattern) if file.is_file())
    return {str(file.relative_to(run / "store")): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_steps_have_the_same_keys(stores: tuple[Path, Path]) -> None:
    """Up to train; what evaluates a model is keyed by its bytes, in which training's last digits are."""
    here, there = map(works, stores)
    assert set(there) == set(here) == OUTPUTS
    for step in ("ngrams", *STEPS[: STEPS.index("train") + 1]):
        assert there[step]["key"] == here[step]["key"], step


@pytest.mark.parametrize("pattern", ["wavs/*/*.wav", "shards/**/*.tfrecord", "extract/*/rows.jsonl"])
def test_the_dataset_has_the_same_bytes(stores: tuple[Path, Path], pattern: str) -> None:
    here, there = (digests(run, pattern) for run in stores)
    assert here
    assert there == here


def test_the_model_has_the_same_metrics_and_is_pushed(stores: tuple[Path, Path]) -> None:
    here, there = map(works, stores)
    for step in STEPS:
        assert there[step]["counts"] == here[step]["counts"], step
        figures = [
            {name: value for name, value in run[step]["metrics"].items() if name != "rtf"} for run in (here, there)
        ]
        assert figures[1] == pytest.approx(figures[0], rel=1e-5), step
    for run in stores:
        assert [path.name for path in (run / "registry" / "asr").iterdir() if path.name.isdigit()] == ["1"]


def test_files_belong_to_the_numeric_user(stores: tuple[Path, Path]) -> None:
    written = [path for path in (stores[1] / "store").rglob("*") if path.is_file()]
    assert {path.stat().st_uid for path in written} == {65532}

"""A family of tests is trained, exported, resumed and reused; docs/extend/family.md has a whole one."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.training.toy_family import ToyFamily, ToyTrainSettings
from voxline.components.train.distributed import worker
from voxline.components.train.distributed.jobs import worker_arguments
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.families.family import find_family, register, unregister
from voxline.store.step_cache import StepOutput
from voxline.training.settings import TrainSettings

TRAINING = {"epochs": 4, "learning_rate": 0.5, "warm_up_steps": 5, "strategy": "one"}


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register(ToyFamily())
    yield
    unregister("toy")


def test_a_new_family_is_trained_exported_and_reused(
    tones: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(tones.folder, tmp_path, ToyTrainSettings.of(TRAINING))
    assert output.metrics["steps"] == 40
    curves = json.loads((output.path("logs") / "curves.json").read_text())
    assert curves["dev"][-1]["mse"] < curves["dev"][0]["mse"]
    metadata = json.loads((output.path("model") / "model.json").read_text())
    assert (metadata["family"], metadata["kind"]) == ("toy", "mean")
    predicted = tf.saved_model.load(str(output.path("model"))).signatures["predict"]()["mean"].numpy()
    assert abs(predicted - tones.mean).mean() < abs(predicted * 0 - tones.mean).mean()
    assert "dev MSE" in capsys.readouterr().out
    assert run(tones.folder, tmp_path, ToyTrainSettings.of(TRAINING)).reused


def test_an_interrupted_export_resumes(
    tones: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk is full in the middle of the model folder, and then a killed process leaves half of one."""
    settings = ToyTrainSettings.of({**TRAINING, "epochs": 1})

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("voxline.training.export.write_model_info", fill)
        with pytest.raises(WorkError, match="make room"):
            run(tones.folder, tmp_path, settings)
    (folder,) = (path for path in (tmp_path / "train").iterdir() if path.is_dir())
    assert not list(folder.glob(".*.part"))
    (folder / ".model.0123456789ab.part" / "variables").mkdir(parents=True)
    work = run(tones.folder, tmp_path, settings)
    assert "resuming from the checkpoint of step 10 of 10" in capsys.readouterr().out
    assert (work.path("model") / "model.json").is_file()
    assert not list(folder.glob(".*.part"))


TRAIN_ONCE = """
import sys
from pathlib import Path

from voxline.components.train.step import run
from voxline.families.family import register
from voxline.inference.saved_model import model_digest
from voxline.inference.tensorflow_import import hidden_packages

# As a training imports it.
with hidden_packages("sklearn", "matplotlib"):
    import keras

from tests.training.toy_family import ToyFamily, ToyTrainSettings

register(ToyFamily())
output = run(Path(sys.argv[1]), Path(sys.argv[2]), ToyTrainSettings(epochs=1, strategy="one"))
print(model_digest(output.path("model")))
"""


@pytest.mark.slow
def test_two_trainings_with_the_same_result_have_one_digest(tones: Dataset, tmp_path: Path) -> None:
    """In processes of their own, whose sets and names of functions differ."""
    trainings = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN_ONCE, str(tones.folder), str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (training.communicate()[0].splitlines()[-1] for training in trainings)
    assert first == second


def test_a_worker_trains_a_new_family(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    settings = ToyTrainSettings(seed=5)
    given = worker_arguments(settings, "/dataset", "/store", "job", 75)
    assert worker.main(given, lambda *given: calls.append(given)) == 0
    assert calls == [("/dataset", "/store", settings, "")]


@pytest.mark.parametrize("name", ["asr", "tts", "vocoder", "intents", "conversion"])
def test_settings_name_their_family(name: str) -> None:
    assert find_family(name).train_settings.family == name


def _files(folder: Path) -> dict[str, bytes]:
    """What a training leaves for later steps, without when it was made."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for name in ("model", "curves.json")
        for file in sorted([folder / name, *(folder / name).rglob("*")])
        if file.is_file() and file.name not in ("saved_model.pb", "model.json")
    }


@pytest.mark.slow
def test_a_longer_training_continues_a_shorter_one(
    tones: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the same result as from the first step, with the rate that does not depend on the last one."""
    settings = ToyTrainSettings.of({**TRAINING, "schedule": "inverse_square_root", "average": {"ema_decay": 0.9}})
    whole = run(tones.folder, tmp_path / "whole", settings)
    for epochs in (1, 3):
        run(tones.folder, tmp_path / "store", settings.model_copy(update={"epochs": epochs}))
    (tmp_path / "store" / "train" / whole.key).mkdir()
    (tmp_path / "store" / "train" / whole.key / ".checkpoints.12ab.part").mkdir()  # killed while it copied
    capsys.readouterr()
    work = run(tones.folder, tmp_path / "store", settings)
    printed = capsys.readouterr().out
    assert "continues a training of 3 epochs" in printed
    assert "resuming from the checkpoint of step 30 of 40" in printed
    assert work.counts == {**whole.counts, "continued_epochs": 3}
    data_wait = {"data_wait": 0.0}  # the share of a step spent waiting: the machine's, not the weights'
    assert (work.key, {**work.metrics, **data_wait}) == (whole.key, {**whole.metrics, **data_wait})
    assert _files(work.folder) == _files(whole.folder)
    assert not list(work.folder.glob(".*"))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 3),
        ({"schedule": "cosine"}, None),
        ({"evaluate_epochs": 2}, None),
        ({"evaluate_epochs": 3}, 3),
        ({"evaluate_steps": 5}, None),
        ({"seed": 2}, None),
    ],
)
def test_only_the_beginning_of_a_training_is_continued(
    tones: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], expected: int | None
) -> None:
    def train(dataset: Dataset, store: Path, settings: TrainSettings, work: StepOutput, *_: object) -> None:
        for name in ("checkpoints", "best", "logs"):
            (work.folder / name).mkdir(exist_ok=True)

    monkeypatch.setattr("voxline.components.train.step._train", train)
    settings = ToyTrainSettings.of({**TRAINING, "schedule": "inverse_square_root", **changed})
    run(tones.folder, tmp_path, settings.model_copy(update={"epochs": 3, "seed": 1}))
    assert run(tones.folder, tmp_path, settings).counts.get("continued_epochs") == expected

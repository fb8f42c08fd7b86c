"""A family is a folder and one line in `FAMILIES`: docs/extend/family.md, executed."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from tests.train.toy_family import ToyTrainSettings
from voxline.components.train.distributed import worker
from voxline.components.train.families import FAMILIES, Family
from voxline.components.train.step import run
from voxline.data.dataset import Dataset

TRAINING = {"epochs": 4, "learning_rate": 0.5, "warm_up_steps": 5, "strategy": "one"}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "toy", Family(ToyTrainSettings, "tests.train.toy_family:ToyTask"))


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


def test_a_worker_trains_a_new_family(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setenv("TF_CONFIG", "{}")
    settings = ToyTrainSettings(seed=5)
    given = worker.worker_arguments(settings, "/dataset", "/store", "job", 75)
    assert worker.main(given, lambda *given: calls.append(given)) == 0
    assert calls == [("/dataset", "/store", settings, "")]


@pytest.mark.parametrize("name", ["asr", "tts", "vocoder"])
def test_settings_name_their_family(name: str) -> None:
    assert FAMILIES[name].settings.family == name

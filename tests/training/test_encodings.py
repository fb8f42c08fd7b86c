"""Frozen parts of a public network are computed once, and training goes as if they were computed in every step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families.networks.test_whisper import HUB
from tests.training.tones import make_utterances, tiny_asr_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.inference.saved_model import read_model_info
from voxline.training import encodings
from voxline.training.task import TrainingTask
from voxline.training.warm_start import read_exported_weights

WHISPER = {
    "kind": "whisper",
    "layers": 2,
    "units": 16,
    "heads": 2,
    "positions": 32,
    "decoder_layers": 2,
    "tokens": 60,
    "token_positions": 16,
    "padding": 4,
}
PARTS = ["encoder/convolutions", "encoder/positions", "encoder/blocks/0"]


@pytest.fixture(scope="module")
def sayings(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("sayings")
    return write_dataset(folder, make_utterances(32, 8), how=FeatureSettings(kind="whisper", mels=8))


def train(dataset: Dataset, store: Path, **changes: Any) -> dict[str, Any]:
    """The trained weights by name."""
    values = {"model": WHISPER, "start": {"model": str(HUB)}, "freeze": PARTS, "epochs": 2, **changes}
    folder = run(dataset.folder, store, tiny_asr_settings(**values)).path("model")
    return dict(zip(read_model_info(folder).weights, read_exported_weights(folder), strict=True))


@pytest.fixture(scope="module")
def encoded_once(sayings: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(sayings, tmp_path_factory.mktemp("store"))


def test_the_weights_are_those_of_a_training_that_computes_every_part_in_each_step(
    sayings: Dataset, encoded_once: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from voxline.families.asr.task import AsrTask

    monkeypatch.setattr(AsrTask, "encode_frozen_parts", TrainingTask.encode_frozen_parts)
    weights = train(sayings, tmp_path)
    assert not np.array_equal(weights["classifier/kernel"], np.zeros_like(weights["classifier/kernel"]))
    for name, value in weights.items():
        np.testing.assert_allclose(encoded_once[name], value, atol=2e-3 * max(abs(value).max(), 1e-3), err_msg=name)


def test_the_parts_that_come_first_are_those_that_are_computed_once(
    sayings: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of the tones, few are one symbol each.
    pooled = {"model": {**WHISPER, "pooling": "utterance"}, "subwords": 300, "max_infeasible_share": 1}
    train(sayings, tmp_path, freeze=["encoder"], epochs=1, **pooled)
    printed = capsys.readouterr().out
    assert "utterances of train once" in printed
    assert "utterances of dev once" in printed
    assert not list(tmp_path.glob("train/*/encodings"))


@pytest.mark.parametrize(
    "changes",
    [{"augment": {"noise": 0.1}}, {"freeze": ["encoder/blocks/1"]}, {"model": {**WHISPER, "dropout": 0.1}}],
    ids=["augmented", "not the first parts", "dropout"],
)
def test_nothing_is_computed_once_where_it_would_differ(
    changes: dict[str, Any], sayings: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(sayings, tmp_path, **{"epochs": 1, **changes})
    assert "once" not in capsys.readouterr().out


def test_a_training_that_was_killed_finds_what_it_encoded(sayings: Dataset, tmp_path: Path) -> None:
    from voxline.training.batches import Batches

    batches = Batches(sayings, "dev", batch_size=8)
    calls = []

    def encode(features: Any, frames: Any) -> Any:
        calls.append(len(frames))
        return features[:, ::2] * 2, (frames + 1) // 2

    first = encodings.encode_split(batches, tmp_path, "dev", encode)
    again = encodings.encode_split(batches, tmp_path, "dev", encode)
    assert sum(calls) == 8
    assert first is not None
    assert again is not None
    for row in range(8):
        np.testing.assert_array_equal(again[row], batches.features(row)[::2] * 2)
        np.testing.assert_array_equal(first[row], again[row])

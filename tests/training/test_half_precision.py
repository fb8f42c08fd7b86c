"""Steps in float16 are those of float32 but for rounding, and no batch is lost where gradients overflow."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.families.vocoder.test_vocoder_training import settings as vocoder_settings
from tests.training.test_xla import NO_DROPOUT, ONE_DEVICE, TERMS, VOCODERS, make_vocoder
from tests.training.tones import make_utterances, tiny_asr_settings, tiny_tts_settings, write_dataset
from voxline.data.dataset import Dataset
from voxline.families.asr.task import AsrTrainModule
from voxline.families.tts.train_module import TtsTrainModule
from voxline.families.vocoder.train_module import VocoderTrainModule
from voxline.training.batches import Batch, Batches
from voxline.training.optimizer import LossScale

HALF = "mixed_float16"
RATE = 0.01


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("half") / "dataset", make_utterances(8))


@pytest.fixture(scope="module")
def batch(dataset: Dataset) -> Batch:
    return next(Batches(dataset, "train", batch_size=8, time_stride=2).epoch(0))


def recognizer(dataset: Dataset, precision: str = HALF, **settings: Any) -> AsrTrainModule:
    return AsrTrainModule(tiny_asr_settings(precision=precision, **settings), dataset, ONE_DEVICE)


@pytest.mark.parametrize(
    "model",
    [
        {"rnn": "simple"},
        pytest.param({"kind": "conformer"}, marks=pytest.mark.slow),
        pytest.param({"kind": "deepspeech"}, marks=pytest.mark.slow),
    ],
)
def test_a_step_of_a_recognizer_equals_that_of_float32(model: Any, dataset: Dataset, batch: Batch) -> None:
    check_steps(recognizer(dataset, "float32", model=model), recognizer(dataset, model=model), batch)


def test_parts_of_a_batch_add_up_as_in_float32(dataset: Dataset, batch: Batch) -> None:
    check_steps(recognizer(dataset, "float32", accumulate=2), recognizer(dataset, accumulate=2), batch)


@pytest.mark.slow
def test_a_step_of_a_voice_equals_that_of_float32(dataset: Dataset, batch: Batch) -> None:
    voices = [
        TtsTrainModule(
            tiny_tts_settings("tacotron2", model=NO_DROPOUT, precision=precision, **TERMS), dataset, ONE_DEVICE
        )
        for precision in ("float32", HALF)
    ]
    check_steps(*voices, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", VOCODERS)
def test_a_step_of_a_vocoder_and_its_discriminators_equals_that_of_float32(name: str, tmp_path: Path) -> None:
    batches, make = make_vocoder(name, tmp_path)
    exact = make(False)
    half = vocoder_settings(**{**exact.settings.plain(), "precision": HALF})
    check_steps(
        exact,
        VocoderTrainModule(half, Dataset.read(tmp_path / "store" / "dataset"), ONE_DEVICE),
        next(batches.epoch(0)),
    )


def check_steps(exact: Any, half: Any, batch: Batch) -> None:
    half.restore({**half.state(), **exact.state()})
    for step in range(2):
        expected = exact.train_step(batch, RATE / 10, step)
        result = half.train_step(batch, RATE / 10, step)
        assert result.accepted
        assert result.losses == pytest.approx(expected.losses, rel=0.01)
        assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=0.03)
    assert {array.dtype for array in half.weights().values()} == {np.dtype("float32")}


def test_a_step_that_overflows_is_computed_again_and_loses_no_batch(dataset: Dataset, batch: Batch) -> None:
    calm = recognizer(dataset)
    overflowing = recognizer(dataset)
    overflowing.restore(calm.state())
    factor = overflowing.loss_scale.factor  # type: ignore[union-attr]
    factor.assign(2.0**24)

    expected = calm.train_step(batch, RATE, 0)
    result = overflowing.train_step(batch, RATE, 0)
    assert result.accepted
    assert float(factor) < 2.0**24
    assert result.loss == expected.loss
    # The factor is a power of two: gradients that neither overflow nor vanish are the same.
    assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3)

    # A checkpoint has the factor.
    resumed = recognizer(dataset)
    resumed.restore(overflowing.state())
    assert float(resumed.loss_scale.factor) == float(factor)  # type: ignore[union-attr]


def test_a_batch_that_no_factor_makes_finite_is_skipped_and_changes_nothing(dataset: Dataset, batch: Batch) -> None:
    module = recognizer(dataset)
    before = module.state()
    poisoned = dataclasses.replace(batch, features=batch.features * np.nan)
    assert not module.train_step(poisoned, RATE, 0).accepted
    for name, value in module.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_small_gradients_vanish_without_the_factor() -> None:
    """Half of the smallest float16, times a weight's gradient."""
    weight = tf.Variable(1.0)

    @tf.function(autograph=False)
    def gradient(factor: float) -> Any:
        rounded = tf.cast(weight, tf.float16) * tf.constant(1.0, tf.float16)
        loss = tf.cast(rounded, tf.float32) * 2.0**-26
        return tf.gradients(loss * factor, [weight])[0] / factor

    assert float(gradient(1.0)) == 0
    assert float(gradient(LossScale.FIRST)) == 2.0**-26


def test_the_factor_doubles_after_many_accepted_steps_and_never_passes_its_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LossScale, "PATIENCE", 3)
    scale = LossScale()
    for _ in range(3):
        assert not scale.note(accepted=True, loss=1.0)
    assert float(scale.factor) == 2 * LossScale.FIRST
    for _ in range(3 * 20):
        scale.note(accepted=True, loss=1.0)
    assert float(scale.factor) == LossScale.MOST

    # After an overflow the steps are counted from zero.
    assert scale.note(accepted=False, loss=1.0)
    for _ in range(2):
        scale.note(accepted=True, loss=1.0)
    assert float(scale.factor) == LossScale.MOST / 2

    retries = 0
    while scale.note(accepted=False, loss=1.0):
        retries += 1
    assert (float(scale.factor), retries) == (1.0, 23)
    scale.factor.assign(8.0)
    assert not scale.note(accepted=False, loss=float("nan"))
    assert float(scale.factor) == 8.0

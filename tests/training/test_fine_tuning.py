"""Fine-tuning that fits a machine: parts of a network that are frozen, learn more slowly, or wait for the head."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.training.processes import read_log, start_process
from tests.training.tones import ONE_LOOP, tiny_asr_settings
from tests.training.toy_family import ToyTask, ToyTrainSettings
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask, AsrTrainModule
from voxline.inference.saved_model import read_model_info
from voxline.training import devices
from voxline.training.batches import Batch, Batches
from voxline.training.low_rank import LowRankKernel
from voxline.training.optimizer import learning_rate
from voxline.training.task import ValidationResult, should_stop_early
from voxline.training.train_module import BatchTensors, TrainModule
from voxline.training.trainer import Trainer
from voxline.training.warm_start import read_exported_weights

pytestmark = pytest.mark.parents

ONE_DEVICE = tf.distribute.get_strategy()
TWO_BLOCKS = {"kind": "conformer", "layers": 2}


def tuned(model: dict[str, Any], **settings: Any) -> AsrTrainSettings:
    """Settings of a training that starts from some model."""
    start = {"model": "parent", **settings.pop("start", {})}
    return tiny_asr_settings(model=model, start=start, **settings)


def first_batch(dataset: Dataset, rows: int = 8) -> Batch:
    return next(Batches(dataset, "train", batch_size=rows, time_stride=2).epoch(0))


def arrays_of(batch: Batch) -> list[Any]:
    return [batch.features, batch.frames, batch.labels, batch.counts]


def named_weights(module: TrainModule) -> dict[str, Any]:
    return dict(zip(module.weight_names(), module.weights().values(), strict=True))


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name, values in before.items() if not np.array_equal(values, after[name])}


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ({**ONE_LOOP, "rnn_batch_norm": True, "layers": 2}, ["convolutions", "recurrent/0"]),
        (TWO_BLOCKS, ["blocks/0-0"]),
    ],
)
def test_a_frozen_part_keeps_its_weights_and_statistics_and_has_no_moments(
    model: dict[str, Any], parts: list[str], few: Dataset
) -> None:
    settings = tuned(model, freeze=parts, weight_decay=0.1, average={"ema_decay": 0.5})
    module = AsrTrainModule(settings, few, ONE_DEVICE)
    before = named_weights(module)
    batch = first_batch(few)
    for step in range(2):
        assert module.train_step(batch, 0.01, step).accepted
    frozen = {name for name in before if name.startswith(tuple(part.partition("-")[0] for part in parts))}
    assert any(name.endswith("moving_mean") for name in frozen)
    assert changed(before, named_weights(module)) == before.keys() - frozen
    state = module.state()
    trained = [values for name, values in before.items() if name not in frozen and "moving" not in name]
    moments = [values for name, values in state.items() if name.startswith("optimizer/") and values.ndim]
    assert sorted(values.shape for values in moments) == sorted(2 * [values.shape for values in trained])
    assert module.trained_count == sum(values.size for values in trained) < module.parameter_count

    averages = dict(zip(module.weight_names(), (module.averaged_weights() or {}).values(), strict=True))
    assert changed({name: before[name] for name in frozen}, averages) == set()

    again = AsrTrainModule(settings, few, ONE_DEVICE)
    again.restore(state)
    for each in (module, again):
        each.train_step(batch, 0.01, 2)
    assert changed(module.state(), again.state()) == set()


def test_a_frozen_normalization_does_in_training_what_it_does_afterwards(few: Dataset) -> None:
    """Without it the parts above would learn from other values than those that they get in service."""
    batch = first_batch(few)

    def losses(freeze: list[str]) -> tuple[float, float]:
        module = AsrTrainModule(tuned(ONE_LOOP, freeze=freeze), few, ONE_DEVICE)
        validated = np.mean([each.loss for each in module.transcribe(batch)])
        return module.train_step(batch, 0.0, 0).loss, float(validated)

    trained, validated = losses(["convolutions/*/norm"])
    assert trained == pytest.approx(validated, rel=1e-5)
    trained, validated = losses(["convolutions/*/convolution"])
    assert trained != pytest.approx(validated, rel=1e-2)


def test_parts_that_do_not_exist_and_settings_that_mean_nothing_are_refused(few: Dataset) -> None:
    for setting, value in (("freeze", ["blocks/1-2"]), ("rates", {"block": 0.1})):
        with pytest.raises(
            SettingsError, match=rf"train\.{setting}: '.*it has subsampling/0, projection, blocks/0-1, cl"
        ):
            AsrTrainModule(tuned(TWO_BLOCKS, **{setting: value}), few, ONE_DEVICE)
    with pytest.raises(SettingsError, match="nothing is left to train"):
        AsrTrainModule(tuned(TWO_BLOCKS, freeze=["*"]), few, ONE_DEVICE)
    with pytest.raises(SettingsError, match=r"start\.model is empty: random weights would stay random"):
        tiny_asr_settings(freeze=["blocks"])
    with pytest.raises(SettingsError, match=r"start\.head_epochs is 6, and the training has 6 epochs"):
        tuned(TWO_BLOCKS, start={"head_epochs": 6})
    # The first night of a schedule has nothing to start from.
    assert tuned(TWO_BLOCKS, freeze=["blocks"]).started_from("").freeze == []


def test_each_part_learns_at_its_own_rate(few: Dataset) -> None:
    """Adam's first step is as long as the rate, whatever the gradient."""
    rates = {"blocks": 0.1, "blocks/1": 0.3, "blocks/*/output_norm/beta": 2.0}
    module = AsrTrainModule(tuned(TWO_BLOCKS, rates=rates, weight_decay=0.0), few, ONE_DEVICE)
    before = named_weights(module)
    module.train_step(first_batch(few), 0.01, 0)
    steps = {name: np.median(np.abs(values - before[name])) / 0.01 for name, values in named_weights(module).items()}
    for name, factor in {
        "classifier/kernel": 1.0,
        "projection/kernel": 1.0,
        "blocks/0/attended/kernel": 0.1,
        "blocks/1/attended/kernel": 0.3,
        "blocks/0/output_norm/gamma": 0.1,
        "blocks/1/output_norm/beta": 2.0,
    }.items():
        assert steps[name] == pytest.approx(factor, rel=0.01), name


def test_both_phases_warm_up_and_decay_and_the_heads_validations_stop_nothing() -> None:
    settings = tiny_asr_settings(
        epochs=9, learning_rate=1.0, warm_up_steps=2, patience=1, earliest_stop_epoch=1, start={"head_epochs": 3}
    )
    rates = [learning_rate(settings, step, 18, 6) for step in range(18)]
    assert rates[:6] == [learning_rate(settings, step, 6) for step in range(6)]
    assert rates[6:] == [learning_rate(settings, step, 12) for step in range(12)]
    results = [ValidationResult(epoch, 2 * epoch, (0.5, 1.0)) for epoch in range(1, 6)]
    assert [should_stop_early(settings, results[:count]) for count in range(1, 6)] == [False] * 4 + [True]


WITHOUT_STATISTICS = {"kind": "deepspeech"}
"""A network without batch normalization, whose statistics would be those of a part."""


@pytest.mark.parametrize(("rows", "size", "parts"), [(16, 4, 4), (7, 3, 3)])
def test_parts_of_a_batch_learn_what_the_batch_learns(rows: int, size: int, parts: int, few: Dataset) -> None:
    """The last part of seven rows is one row, and the loss the mean over seven."""
    batch = first_batch(few, rows)
    whole = AsrTrainModule(tuned(WITHOUT_STATISTICS, batch_size=size * parts), few, ONE_DEVICE)
    in_parts = AsrTrainModule(tuned(WITHOUT_STATISTICS, batch_size=size, accumulate=parts), few, ONE_DEVICE)
    assert len(list(in_parts._to_parts(batch))) == parts
    for step in range(4):
        expected, result = (module.train_step(batch, 0.01, step) for module in (whole, in_parts))
        assert result.loss == pytest.approx(expected.loss, rel=1e-6 if step == 0 else 1e-5)
        assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
        assert result.losses == pytest.approx(expected.losses, rel=1e-5)
    expected_state = whole.state()
    for name, values in in_parts.state().items():
        assert_close(values, expected_state[name], relative_to_peak=1e-4)


def test_a_part_that_is_not_finite_skips_the_whole_step(few: Dataset) -> None:
    batch = first_batch(few)
    module = AsrTrainModule(tuned(ONE_LOOP, batch_size=2, accumulate=4), few, ONE_DEVICE)
    module.train_step(batch, 0.01, 0)
    before = module.state()
    features = batch.features.copy()
    features[5, 2] = np.nan
    assert not module.train_step(dataclasses.replace(batch, features=features), 0.01, 1).accepted
    assert changed(before, module.state()) == set()
    assert module.train_step(batch, 0.01, 2).accepted


def test_statistics_of_parts_count_by_their_utterances(few: Dataset) -> None:
    """Of three utterances in parts of two: two thirds and one third."""
    batch = first_batch(few, 3)
    module = AsrTrainModule(tuned(ONE_LOOP, batch_size=2, accumulate=2), few, ONE_DEVICE)
    means = [AsrTrainModule(tuned(ONE_LOOP), few, ONE_DEVICE) for _ in range(2)]
    for each, rows in zip(means, (slice(0, 2), slice(2, 3)), strict=True):
        part = Batch(*(values[rows] for values in (batch.ids, batch.texts, *arrays_of(batch))))
        each.train_step(part, 0.0, 0)
    module.train_step(batch, 0.0, 0)
    name = "convolutions/0/norm/moving_mean"
    first, second = (named_weights(each)[name] for each in means)
    assert_close(named_weights(module)[name], (2 * first + second) / 3, relative_to_peak=1e-5)


@pytest.mark.slow
def test_steps_of_parts_are_counted_and_resumed_as_steps(
    few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of 2 x 4 utterances is that of 8: the same batches, steps and rates, and the weights up to rounding."""
    sizes = ({"batch_size": 8}, {"batch_size": 2, "accumulate": 4})
    settings = [tiny_asr_settings(model=WITHOUT_STATISTICS, epochs=2, checkpoint_steps=1, **size) for size in sizes]
    whole, in_parts = (run(few.folder, tmp_path / "store", each) for each in settings)
    assert whole.key != in_parts.key
    assert whole.metrics["steps"] == in_parts.metrics["steps"] == 8
    last = "checkpoints/step-00000008/arrays.npz"
    with np.load(whole.folder / last) as one, np.load(in_parts.folder / last) as other:
        for name in one.files:
            assert_close(other[name], one[name], relative_to_peak=1e-3)

    part_of = TrainModule._noise
    parts_left = [4 * 3 + 2]

    def killed(module: TrainModule, *arguments: int) -> Any:
        parts_left[0] -= 1
        if parts_left[0] < 0:
            raise KeyboardInterrupt
        return part_of(module, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainModule, "_noise", killed)
        with pytest.raises(KeyboardInterrupt):
            run(few.folder, tmp_path / "killed", settings[1])
    resumed = run(few.folder, tmp_path / "killed", settings[1])
    with np.load(in_parts.folder / last) as one, np.load(resumed.folder / last) as other:
        assert changed(dict(one), dict(other)) == set()


LORA = {"rank": 3, "alpha": 6.0, "parts": ["blocks/*/query_key_value", "blocks/1/convolution"], "also": ["classifier"]}


def low_rank_losses(module: TrainModule, batch: Batch) -> tuple[Any, Any]:
    """The loss of a batch with the kernels computed from their factors in the step, and the factors' gradients."""
    parts = list(module.low_rank.values())
    tensors = BatchTensors(*(tf.constant(values) for values in arrays_of(batch)))
    factors = [tf.convert_to_tensor(part.factors) for part in parts]
    with tf.GradientTape() as tape:
        tape.watch(factors)
        kernels = []
        for part, both in zip(parts, factors, strict=True):
            inputs = int(np.prod(part.kernel.shape[:-1]))
            update = 6.0 / 3 * tf.einsum("ir,or->io", both[:inputs], both[inputs:])
            kernels.append((part.kernel, part.base + tf.reshape(update, part.kernel.shape)))
        with keras.StatelessScope(state_mapping=kernels):
            rows = module.compute_losses(tensors, tf.constant([1, 0]), {}, None)
        loss = tf.reduce_mean(tf.add_n(list(rows.values())))
    return loss, tape.gradient(loss, factors)


def test_low_rank_kernels_learn_as_if_they_were_computed_from_their_factors(few: Dataset) -> None:
    """Against automatic differentiation of the factors, and Adam in numpy."""
    settings = tuned(TWO_BLOCKS, lora=LORA, weight_decay=0.0, clip_norm=1e9, epsilon=1e-3)
    module = AsrTrainModule(settings, few, ONE_DEVICE)
    before = named_weights(module)
    kernels = {"blocks/0/query_key_value/kernel", "blocks/1/query_key_value/kernel", "blocks/1/convolution/kernel"}
    batch = first_batch(few)
    parts = list(module.low_rank.values())
    means = [np.zeros(part.factors.shape) for part in parts]
    squares = [np.zeros(part.factors.shape) for part in parts]
    for step in range(4):
        loss, gradients = low_rank_losses(module, batch)
        factors = [np.asarray(part.factors) for part in parts]
        result = module.train_step(batch, 0.01, step)
        assert result.loss == pytest.approx(float(loss), rel=1e-5)
        for index, part in enumerate(parts):
            gradient = gradients[index].numpy().astype(np.float64)
            means[index] = settings.beta_1 * means[index] + (1 - settings.beta_1) * gradient
            squares[index] = settings.beta_2 * squares[index] + (1 - settings.beta_2) * gradient**2
            mean = means[index] / (1 - settings.beta_1 ** (step + 1))
            square = squares[index] / (1 - settings.beta_2 ** (step + 1))
            expected = factors[index] - 0.01 * mean / (np.sqrt(square) + 1e-3)
            far = np.sqrt(square) > 1e-5  # Adam divides by the gradient: a tiny one is rounding
            assert_close(np.asarray(part.factors)[far], expected[far], relative_to_peak=1e-4)
    assert changed(before, named_weights(module)) == kernels | {"classifier/kernel", "classifier/bias"}
    assert module.trained_count == sum(
        3 * (before[name][..., 0].size + before[name].shape[-1]) for name in kernels
    ) + sum(before[name].size for name in ("classifier/kernel", "classifier/bias"))


def test_the_gradients_of_the_factors_are_those_of_the_product(few: Dataset) -> None:
    """In numpy, for a dense kernel: y = x (W + α/r A B), without ∂L/∂W."""
    random = np.random.default_rng(0)
    kernel = keras.Variable(random.standard_normal((6, 2, 4)).astype(np.float32))
    part = LowRankKernel(kernel, rank=2, alpha=5.0, seed=[1])
    assert np.array_equal(part.base.numpy(), np.asarray(kernel))
    factors = random.standard_normal(part.factors.shape).astype(np.float32)
    part.factors.assign(factors)
    a, b = factors[:12], factors[12:].T
    x, slope = random.standard_normal((9, 12)), random.standard_normal((9, 4))
    of_a, of_b = 2.5 * x.T @ (slope @ b.T), 2.5 * (x @ a).T @ slope
    found = part.project(tf.constant((x.T @ slope).reshape(6, 2, 4), tf.float32)).numpy()
    np.testing.assert_allclose(found, np.concatenate([of_a, of_b.T]), rtol=1e-4, atol=1e-4)
    part.merge(ONE_DEVICE)
    np.testing.assert_allclose(np.asarray(kernel), part.base.numpy() + 2.5 * (a @ b).reshape(6, 2, 4), rtol=1e-5)


def test_a_low_rank_training_begins_as_its_parent_and_resumes_as_it_was(few: Dataset) -> None:
    """An average that a validation loads for a while changes nothing either."""
    settings = tuned(TWO_BLOCKS, lora=LORA, average={"ema_decay": 0.5})
    module, other = (AsrTrainModule(settings, few, ONE_DEVICE) for _ in range(2))
    parent = {name: values + np.float32(0.01) for name, values in module.weights().items()}
    module.start_with(parent)
    assert changed(parent, module.weights()) == set()
    batch = first_batch(few)
    features = batch.features * np.float32(np.nan)
    assert not module.train_step(dataclasses.replace(batch, features=features), 0.01, 0).accepted
    assert changed(parent, module.weights()) == set()

    module.train_step(batch, 0.01, 1)
    weights = module.weights()
    module.load_weights(module.averaged_weights() or {})
    module.load_weights(weights)
    other.restore(module.state())
    for each in (module, other):
        each.train_step(batch, 0.01, 2)
    assert changed(module.state(), other.state()) == set()
    for part in module.low_rank.values():
        factors = np.asarray(part.factors)
        inputs = int(np.prod(part.kernel.shape[:-1]))
        update = 2.0 * factors[:inputs] @ factors[inputs:].T
        assert_close(part.kernel, part.base.numpy() + update.reshape(part.kernel.shape), relative_to_peak=1e-5)


def test_settings_of_low_rank_kernels_that_mean_nothing_are_refused(few: Dataset) -> None:
    for lora, told in (
        ({"rank": 2}, r"lora\.parts is empty"),
        ({"parts": ["blocks"]}, r"lora\.rank is 0"),
        ({"also": ["blocks"]}, r"lora\.rank is 0"),
    ):
        with pytest.raises(SettingsError, match=told):
            tuned(TWO_BLOCKS, lora=lora)
    with pytest.raises(SettingsError, match=r"start\.model is empty: LoRA freezes"):
        tiny_asr_settings(lora=LORA)
    with pytest.raises(SettingsError, match="freeze is set: LoRA freezes"):
        tuned(TWO_BLOCKS, lora=LORA, freeze=["blocks"])
    for parts, also, told in (
        (["blocks/*/query"], [], r"train\.lora\.parts: 'blocks/\*/query': .*it has subsampling/0"),
        (["blocks/*/output_norm"], [], "no kernel, a weight of two or more dimensions"),
        (["blocks"], ["block"], r"train\.lora\.also: 'block'"),
    ):
        with pytest.raises(SettingsError, match=told):
            AsrTrainModule(tuned(TWO_BLOCKS, lora={"rank": 2, "parts": parts, "also": also}), few, ONE_DEVICE)
    module = AsrTrainModule(tuned(TWO_BLOCKS, lora={"rank": 2, "parts": ["blocks"]}), few, ONE_DEVICE)
    with pytest.raises(SettingsError, match=r"classifier is left random.*name it in train\.lora\.also"):
        module.start_with(module.weights(), ["classifier/kernel"])
    assert tuned(TWO_BLOCKS, lora=LORA).started_from("").lora.rank == 0


@pytest.mark.slow
def test_a_model_trained_by_low_rank_is_a_parent_as_any_other(
    few: Dataset, parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Head first, then factors, in parts of batches; the export holds the sums."""
    start = {"model": str(parent), "keep": "encoder", "replay": 1.0, "head_epochs": 1, "rate_share": 1.0}
    lora = {"rank": 2, "parts": ["recurrent"], "also": ["classifier"]}
    settings = tiny_asr_settings(
        model=ONE_LOOP, epochs=2, batch_size=4, accumulate=2, start=start, lora=lora, average={"best_checkpoints": 2}
    )
    tuned_run = run(few.folder, tmp_path, settings)
    told = capsys.readouterr().out
    assert re.search(r"parameters, [\d,]+ of them trained \(\d+\.\d%\)", told)
    with np.load(tuned_run.folder / "checkpoints/step-00000008/arrays.npz") as arrays:
        recurrent = dict(zip(read_model_info(parent).weights, read_exported_weights(parent), strict=True))
        base = arrays["low_rank/0"]
        assert np.array_equal(base, recurrent["recurrent/0/cell/kernel"])

    start = {"model": str(tuned_run.path("model")), "replay": 1.0}
    child = run(few.folder, tmp_path, tiny_asr_settings(model=ONE_LOOP, epochs=1, start=start))
    assert child.metrics["epochs"] == 1
    names = read_model_info(parent).weights
    assert read_model_info(tuned_run.path("model")).weights == names
    found = dict(zip(names, read_exported_weights(tuned_run.path("model")), strict=True))
    assert changed(recurrent, found) == {
        "recurrent/0/cell/kernel", "recurrent/0/cell/recurrent_kernel", "classifier/kernel", "classifier/bias",
    }  # fmt: skip


@pytest.mark.slow
def test_batches_by_seconds_are_trained_and_resumed(
    few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tiny_asr_settings(
        model=WITHOUT_STATISTICS, epochs=2, batch_seconds=0.8, accumulate=2, checkpoint_steps=1
    )
    whole = run(few.folder, tmp_path / "whole", settings)
    assert re.search(r"batches of up to 0\.8 s have 2, 4[\d, ]* utterances", capsys.readouterr().out)
    train_step = TrainModule.train_step
    rows = []

    def killed(module: TrainModule, batch: Batch, rate: float, step: int) -> Any:
        rows.append(len(batch.ids))
        if len(rows) == 5:
            raise KeyboardInterrupt
        return train_step(module, batch, rate, step)

    with monkeypatch.context() as patch:
        patch.setattr(TrainModule, "train_step", killed)
        with pytest.raises(KeyboardInterrupt):
            run(few.folder, tmp_path / "killed", settings)
        resumed = run(few.folder, tmp_path / "killed", settings)
    assert len(rows) == whole.metrics["steps"] + 1
    assert len(set(rows)) > 1
    last = f"checkpoints/step-{int(whole.metrics['steps']):08d}/arrays.npz"
    with np.load(whole.folder / last) as one, np.load(resumed.folder / last) as other:
        assert changed(dict(one), dict(other)) == set()


def test_a_network_without_loops_has_one_graph_for_any_number_of_rows(few: Dataset) -> None:
    """A recurrent one has one for each: with the rows left open its steps take 1.4 times as long."""
    batches = [first_batch(few, rows) for rows in (2, 3)]
    for network, graphs in ((TWO_BLOCKS, 1), (ONE_LOOP, 2)):
        fixed, by_seconds = (AsrTrainModule(tuned(network, batch_seconds=each), few, ONE_DEVICE) for each in (0.0, 5.0))
        for step, batch in enumerate(batches):
            expected, result = (module.train_step(batch, 0.01, step) for module in (fixed, by_seconds))
            assert result.loss == pytest.approx(expected.loss, rel=1e-4)
        assert by_seconds._train_graph.cache_info().currsize == graphs


def test_batches_by_seconds_are_refused_where_they_cannot_be(few: Dataset) -> None:
    with pytest.raises(SettingsError, match=r"train\.batch_seconds is 5, and steps are compiled for static shapes"):
        AsrTask(tiny_asr_settings(batch_seconds=5.0, xla=True), few)
    with pytest.raises(SettingsError, match=r"train\.batch_seconds is 5, and the family 'toy' has no batches of whole"):
        ToyTask(ToyTrainSettings(batch_seconds=5.0), few)


def test_activations_that_are_computed_again_give_the_same_gradients(few: Dataset) -> None:
    """With dropout, whose seed must be the same both times, and with the statistics of the first time."""
    network = {**TWO_BLOCKS, "dropout": 0.3}
    batch = first_batch(few)
    plain = AsrTrainModule(tuned(network), few, ONE_DEVICE)
    calls: list[int] = []
    seen = plain.model.blocks[0].call
    again = AsrTrainModule(tuned(network, recompute=True), few, ONE_DEVICE)
    convolve = again.model.blocks[0]._convolve
    again.model.blocks[0]._convolve = lambda *arguments: (calls.append(1), convolve(*arguments))[1]
    assert again.model.blocks[0].call is not seen
    for step in range(3):
        expected, result = (module.train_step(batch, 0.01, step) for module in (plain, again))
        assert result.loss == pytest.approx(expected.loss, rel=1e-4 if step else 1e-6)
        assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3 if step else 1e-6)
        # After the first step Adam divides gradients that should be zero by each other.
        if step == 0:
            peak = max(float(np.abs(mean).max()) for mean in plain.optimizer.means)
            for mean, wanted in zip(again.optimizer.means, plain.optimizer.means, strict=True):
                np.testing.assert_allclose(np.asarray(mean), np.asarray(wanted), rtol=0, atol=1e-6 * peak)
    assert len(calls) == 2  # in the graph: forward, and once more for the gradients
    for name, values in named_weights(again).items():
        if "moving" in name:
            assert_close(values, named_weights(plain)[name], relative_to_peak=1e-4)
    assert tuned(network, recompute=True).key_values() == tuned(network).key_values()
    with pytest.raises(SettingsError, match=r"train\.recompute is true, and DeepSpeech2 has no blocks"):
        AsrTrainModule(tuned(ONE_LOOP, recompute=True), few, ONE_DEVICE)


@pytest.fixture(scope="module")
def parent(few: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model, and so a parent."""
    settings = tiny_asr_settings(model=ONE_LOOP, epochs=1)
    return run(few.folder, tmp_path_factory.mktemp("parent"), settings).path("model")


@pytest.mark.slow
def test_the_head_is_trained_first_and_a_killed_run_resumes_to_the_same_weights(
    few: Dataset, parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in each phase, and right between them."""
    start = {"model": str(parent), "keep": "encoder", "replay": 1.0, "head_epochs": 1, "rate_share": 1.0}
    settings = tiny_asr_settings(model=ONE_LOOP, epochs=3, checkpoint_steps=1, start=start)
    train_step = TrainModule.train_step
    seen: dict[int, dict[str, Any]] = {}
    kills: set[int] = set()

    def observed(module: TrainModule, batch: Batch, rate: float, step: int) -> Any:
        if step in kills:
            kills.remove(step)
            raise KeyboardInterrupt
        seen[step] = named_weights(module)
        return train_step(module, batch, rate, step)

    monkeypatch.setattr(TrainModule, "train_step", observed)
    whole = run(few.folder, tmp_path / "whole", settings)
    assert changed(seen[0], seen[4]) == {"classifier/kernel", "classifier/bias"}
    assert changed(seen[4], seen[5]) == seen[0].keys()

    kills |= {2, 4, 5, 9}
    while kills:
        with pytest.raises(KeyboardInterrupt):
            run(few.folder, tmp_path / "killed", settings)
    resumed = run(few.folder, tmp_path / "killed", settings)
    assert "resuming from the checkpoint of step 4 of 12" in capsys.readouterr().out
    with np.load(whole.folder / "checkpoints/step-00000012/arrays.npz") as arrays:
        assert arrays["optimizer/0"] == 8  # it starts afresh after the head's four steps
    for file in ("checkpoints/step-00000012", f"best/step-{int(whole.metrics['best_step']):08d}"):
        with np.load(whole.folder / file / "arrays.npz") as one, np.load(resumed.folder / file / "arrays.npz") as other:
            assert changed(dict(one), dict(other)) == set()


def test_without_a_head_that_is_left_random_there_is_no_phase_for_it(few: Dataset) -> None:
    module = AsrTrainModule(tuned(TWO_BLOCKS), few, ONE_DEVICE)
    with pytest.raises(SettingsError, match=r"train\.start\.head_epochs: .*no head to train first"):
        module.train_head_first([], 4)
    with pytest.raises(SettingsError, match="no head to train first"):
        AsrTrainModule(tuned(TWO_BLOCKS, freeze=["classifier"]), few, ONE_DEVICE).train_head_first(
            ["classifier/bias"], 4
        )


@pytest.mark.slow
def test_the_plan_says_how_much_is_trained(few: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = AsrTask(tuned(ONE_LOOP, epochs=1, freeze=["convolutions", "recurrent"]), few)
    Trainer(task, tmp_path).fit()
    count = task.module.trained_count
    share = count / task.module.parameter_count
    assert f"parameters, {count:,} of them trained ({share:.1%})" in capsys.readouterr().out


@pytest.mark.slow
def test_two_devices_tune_as_one_does(few: Dataset, tmp_path: Path) -> None:
    """Frozen parts, rates and the phase of the head, on replicas."""
    process = start_process(tune_on_one_and_two_devices, few.folder, tmp_path / "result.json", log=tmp_path / "log")
    process.join()
    assert process.exitcode == 0, read_log(tmp_path / "log")[-3_000:]
    result = json.loads((tmp_path / "result.json").read_text())
    for one, two in zip(result["losses"][::2], result["losses"][1::2], strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    assert result["difference"] < 1e-3


def tune_on_one_and_two_devices(folder: Path, answer: Path) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    dataset = Dataset.read(folder)
    # One strategy of two devices: a second one would reuse the keys of its reductions.
    strategies = {name: devices.choose_strategy(name) for name in ("one", "mirrored")}
    settings = tuned(ONE_LOOP, freeze=["convolutions"], rates={"recurrent": 0.3})
    batch = first_batch(dataset)
    losses = []
    states = []
    for strategy in strategies.values():
        module = AsrTrainModule(settings, dataset, strategy)
        head = [name for name in module.weight_names() if name.startswith("classifier/")]
        module.train_head_first(head, 2)
        before = named_weights(module)
        losses.append([module.train_step(batch, 0.01, step).loss for step in range(2)])
        assert changed(before, named_weights(module)) == set(head)
        losses[-1] += [module.train_step(batch, 0.01, step).loss for step in range(2, 4)]
        states.append(module.state())
    # Without batch statistics a network of blocks is the same on two devices: all of it but the head is frozen.
    for strategy in strategies.values():
        chosen = tuned(TWO_BLOCKS, recompute=True, batch_seconds=5.0, lora={**LORA, "parts": ["blocks"]})
        module = AsrTrainModule(chosen, dataset, strategy)
        losses.append([module.train_step(batch, 0.01, step).loss for step in range(3)])

    # Five utterances in parts of two on each device: the second device has none of the last part.
    five = first_batch(dataset, 5)
    results = []
    for name, size in (("one", {"batch_size": 5}), ("mirrored", {"batch_size": 3, "accumulate": 2})):
        lora = {"rank": 2, "parts": ["before"], "also": ["after", "classifier"]}
        module = AsrTrainModule(tuned(WITHOUT_STATISTICS, lora=lora, **size), dataset, strategies[name])
        losses.append([module.train_step(five, 0.01, step).loss for step in range(3)])
        results.append(module.state())
    states[0] |= {f"parts/{name}": values for name, values in results[0].items()}
    states[1] |= {f"parts/{name}": values for name, values in results[1].items()}
    difference = max(float(np.abs(states[0][name] - states[1][name]).max()) for name in states[0])
    answer.write_text(json.dumps({"losses": losses, "difference": difference}))

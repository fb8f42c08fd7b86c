"""One training step: what it changes, and that a step that is not finite changes nothing."""

import dataclasses
import json
import os
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close, assert_pinned
from tests.training.processes import read_log, start_process
from tests.training.tones import ONE_LOOP, make_utterances, tiny_asr_settings, write_dataset
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask, AsrTrainModule
from voxline.training import devices
from voxline.training.batches import Batch, Batches
from voxline.training.ctc import consistency_loss, ctc_loss
from voxline.training.optimizer import AdamW
from voxline.training.pruner import PairedPruner, PrunedError
from voxline.training.settings import ACCELERATOR_ENV
from voxline.training.trainer import Trainer


@pytest.fixture(scope="module")
def module(tones: Dataset) -> AsrTrainModule:
    return AsrTrainModule(tiny_asr_settings(model={"dropout": 0.1}), tones, tf.distribute.get_strategy())


def first_batch(dataset: Dataset) -> Batch:
    return next(Batches(dataset, "train", batch_size=8, time_stride=2).epoch(0))


@pytest.mark.slow
def test_a_step_changes_every_weight_and_statistic_and_repeats(module: AsrTrainModule, tones: Dataset) -> None:
    batch, before = first_batch(tones), module.state()
    step = module.train_step(batch, 0.01, 0)
    after = module.state()
    assert step.accepted
    assert step.loss > 0
    assert step.gradient_norm > 0
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    module.restore(before)
    assert module.train_step(batch, 0.01, 0) == step
    for name, value in module.state().items():
        np.testing.assert_array_equal(value, after[name])
    assert_pinned("deepspeech2", before, after, loss=step.loss, gradient_norm=step.gradient_norm)


@pytest.mark.slow
@pytest.mark.parametrize("poison", [np.nan, np.inf, 3e38])
def test_a_step_that_is_not_finite_changes_nothing(module: AsrTrainModule, tones: Dataset, poison: float) -> None:
    batch, before = first_batch(tones), module.state()
    features = batch.features.copy()
    features[2, 3, 4] = poison
    step = module.train_step(dataclasses.replace(batch, features=features), 0.01, 0)
    assert not step.accepted
    for name, value in module.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_weights_and_moments_are_logged_one_by_one_and_not_copied(module: AsrTrainModule) -> None:
    """All of them at once took the memory of two models more in each validation."""
    variables = [each for pair in zip(module._trainable, module.optimizer.means, strict=True) for each in pair]
    distributions = module.distributions()
    before: weakref.ref[Any] | None = None
    for variable, (name, array) in zip(variables, distributions, strict=True):
        assert before is None or before() is None
        before = weakref.ref(array)
        assert name.startswith(("weights/", "gradients/"))
        np.testing.assert_array_equal(array, variable.numpy())
        assert devices.has_accelerator() or np.shares_memory(array, np.asarray(tf.convert_to_tensor(variable)))


def test_memorizes_a_batch(module: AsrTrainModule, tones: Dataset) -> None:
    batch = first_batch(tones)
    for step in range(120):
        module.train_step(batch, 0.02, step)
    texts = {each.row: each.text for each in module.transcribe(batch)}
    assert [texts[row] for row in range(len(batch.ids))] == batch.texts


def test_two_views_have_the_mean_of_their_losses_and_their_consistency(tones: Dataset) -> None:
    task = AsrTask(tiny_asr_settings(cr_ctc={"weight": 0.5}, augment={"noise": 0.5}), tones)
    tensors = task.module._to_tensors(next(task.train.epoch(0)))[0]
    bins, rows = tones.features.bins, len(tensors.frames)
    assert tensors.features.shape[-1] == 2 * bins
    found = task.module.compute_losses(tensors, tf.constant([1, 2]), {}, None)
    assert list(found) == ["ctc", "consistency"]
    # Batch normalization has the statistics of both views together.
    joined = tf.concat([tensors.features[..., :bins], tensors.features[..., bins:]], 0)
    logits, frames = task.module.model(joined, tf.tile(tensors.frames, [2]), training=True)
    labels, counts = tf.tile(tensors.labels, [2, 1]), tf.tile(tensors.counts, [2])
    losses = ctc_loss(logits, frames, labels, counts).numpy().reshape(2, rows)
    np.testing.assert_allclose(found["ctc"], losses.mean(0), rtol=1e-4)
    apart = 0.5 * consistency_loss(logits[:rows], logits[rows:], frames[:rows])
    np.testing.assert_allclose(found["consistency"], apart, rtol=1e-4)
    assert (apart.numpy() > 0).all()


@pytest.mark.slow
def test_the_optimizer_of_graphs_is_off_within_a_training_and_then_as_before(tmp_path: Path) -> None:
    def is_off() -> bool:
        return bool(tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer"))

    seen: list[bool] = []
    task = AsrTask(tiny_asr_settings(epochs=1, model=ONE_LOOP), write_dataset(tmp_path, make_utterances(8)))
    off_in_tests = is_off()
    try:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
        Trainer(task, tmp_path / "run", on_checkpoint=lambda: seen.append(is_off())).fit()
        assert seen == [True]
        assert not is_off()
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        with devices.without_graph_optimizer():
            pass
        assert is_off()
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off_in_tests})


def test_adamw_is_keras_adamw() -> None:
    random = np.random.default_rng(0)
    shapes = [(4, 3), (3,)]
    starts = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    settings = AsrTrainSettings(weight_decay=0.1, clip_norm=1.0)
    theirs = [keras.Variable(start) for start in starts]
    reference = keras.optimizers.AdamW(
        0.01, weight_decay=0.1, beta_1=settings.beta_1, beta_2=settings.beta_2, global_clipnorm=1.0
    )
    reference.build(theirs)
    reference.exclude_from_weight_decay(var_list=[theirs[1]])
    ours = [keras.Variable(start) for start in starts]
    optimizer = AdamW(ours, settings)
    for _ in range(20):
        gradients = [tf.constant(3 * random.standard_normal(shape).astype(np.float32)) for shape in shapes]
        norm = tf.linalg.global_norm(gradients)
        optimizer.update(tf.distribute.get_strategy(), gradients, norm, tf.constant(0.01), tf.constant(True))
        reference.apply(gradients, theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert_close(our, their, relative_to_peak=1e-5)


@pytest.mark.slow
def test_too_many_bad_steps_stop_the_run_and_name_the_utterances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = make_utterances(24)
    bad = {spoken[3].id, spoken[20].id}

    def spoil(each: Any, features: Any) -> Any:
        return (
            np.where(np.arange(features.size).reshape(features.shape) == 5, np.nan, features)
            if each.id in bad
            else features
        )

    dataset = write_dataset(tmp_path / "dataset", spoken, spoil)
    with pytest.raises(WorkError, match=r"3 steps.*max_bad_steps") as caught:
        Trainer(AsrTask(tiny_asr_settings(max_bad_steps=2, model=ONE_LOOP), dataset), tmp_path / "stops").fit()
    assert all(name in str(caught.value) for name in bad)
    assert spoken[0].id not in str(caught.value)
    settings = tiny_asr_settings(max_bad_steps=20, epochs=3, summary_steps=2, model=ONE_LOOP)
    trainer = Trainer(AsrTask(settings, dataset), tmp_path / "continues")
    trained = trainer.fit()
    assert {name for names in trained.state.skipped for name in names} == bad
    assert trained.counts["skipped_steps"] == len(trained.state.skipped) >= 3
    assert all(np.isfinite(weight).all() for weight in trained.weights.values())
    assert "skipped" in capsys.readouterr().out

    # As on a GPU: results are read some steps late, and nothing else differs, to the last bit.
    late = Trainer(AsrTask(settings, dataset), tmp_path / "late")
    late.read_late = 5
    read_late = late.fit()
    assert (read_late.state.skipped, read_late.state.curve) == (trained.state.skipped, trained.state.curve)
    states = late.module.state(), trainer.module.state()
    assert all(np.array_equal(states[0][name], values) for name, values in states[1].items())


@pytest.mark.slow
def test_a_trial_that_is_worse_is_stopped_and_can_be_trained_to_its_end(tmp_path: Path, tones: Dataset) -> None:
    """Its rival makes no error. The stop is repeated from the checkpoint; without a pruner it resumes there."""
    settings, rival = tiny_asr_settings(epochs=3, learning_rate=1e-5, model=ONE_LOOP), tmp_path / "rival"
    whole = Trainer(AsrTask(settings, tones), tmp_path / "whole").fit()
    written = sorted((tmp_path / "whole" / "logs" / "dev_errors").iterdir())
    assert [file.name for file in written] == ["00001.json", "00002.json", "00003.json"]
    errors = json.loads(written[0].read_text(encoding="utf-8"))["errors"]
    assert len(errors) == whole.counts["dev"]
    assert sum(errors) > 0
    folder = rival / "logs" / "dev_errors"
    folder.mkdir(parents=True)
    about = json.loads(written[0].read_text(encoding="utf-8"))
    (folder / "00001.json").write_text(json.dumps({**about, "errors": [0.0] * len(errors)}), encoding="utf-8")
    for resumed in (False, True):
        with pytest.raises(PrunedError, match="stopped after epoch 1") as stopped:
            Trainer(AsrTask(settings, tones), tmp_path / "trial", pruner=PairedPruner(rival, 0.9, 3)).fit()
        assert stopped.value.resumed is resumed
        assert stopped.value.metrics["dev_wer"] == whole.state.validations[0].metrics["wer"]
    continued = Trainer(AsrTask(settings, tones), tmp_path / "trial").fit()
    assert [one.metrics for one in continued.state.validations] == [one.metrics for one in whole.state.validations]


@pytest.mark.slow
def test_too_many_infeasible_utterances_stop_the_run_and_few_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = [each for each in make_utterances(40) if len(each.text) > 1][:20]
    dataset = write_dataset(tmp_path / "dataset", spoken, lambda e, f: f[:1] if e.id == spoken[4].id else f)
    with pytest.raises(WorkError, match=rf"1 of 20 utterances have too few frames.*{spoken[4].id}"):
        Trainer(AsrTask(tiny_asr_settings(), dataset), tmp_path / "stops").fit()
    settings = tiny_asr_settings(max_infeasible_share=0.1, epochs=1, model=ONE_LOOP)
    trained = Trainer(AsrTask(settings, dataset), tmp_path / "continues").fit()
    assert (trained.counts["utterances"], trained.counts["infeasible"]) == (19, 1)
    assert f"are left out: {spoken[4].id}" in capsys.readouterr().out


def test_multi_worker_without_tf_config_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(SettingsError, match="TF_CONFIG"):
        devices.choose_strategy("multi_worker")


@pytest.mark.parametrize(
    ("booked", "message"),
    [
        ("gpu:64", "requests 64 GPUs and TensorFlow sees .*nvidia-smi"),
        ("tpu:4", "requests 4 TPU chips and TensorFlow cannot start them .*model-tpu"),
    ],
)
def test_a_booked_accelerator_that_is_not_there_ends_the_step(
    monkeypatch: pytest.MonkeyPatch, booked: str, message: str
) -> None:
    monkeypatch.setenv(ACCELERATOR_ENV, booked)
    with pytest.raises(WorkError, match=message):
        devices.choose_strategy("auto")


def test_chips_that_the_pod_may_not_use_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vfio").mkdir()
    for name in ("0", "1", "vfio"):  # the last one is no chip
        (tmp_path / "vfio" / name).touch()
    assert devices._barriers(-1, tmp_path) == ""
    monkeypatch.setattr("voxline.training.devices.os.access", lambda path, _: Path(path).name == "0")
    told = devices._barriers(8 * 2**20, tmp_path)
    assert (
        f"user {os.getuid()} may not open {tmp_path}/vfio/1; it may lock 8 MiB of memory, and GKE asks for 64" in told
    )
    assert devices._barriers(8 * 2**20, tmp_path / "none") == ""


@pytest.mark.parametrize("strategy", ["one", "multi_worker"])
def test_a_strategy_that_does_not_suit_a_tpu_is_refused(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    monkeypatch.setenv(ACCELERATOR_ENV, "tpu:4")
    with pytest.raises(SettingsError, match=r"train\.strategy is .* 'auto' and 'mirrored' use all chips of one host"):
        devices.choose_strategy(strategy)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_several_devices_learn_the_same_as_one(tones: Dataset, tmp_path: Path, count: int) -> None:
    answer = tmp_path / "result.json"
    process = start_process(on_one_and_several_devices, tones.folder, answer, count, log=tmp_path / "log")
    process.join()
    assert process.exitcode == 0, read_log(tmp_path / "log")[-3_000:]
    result = json.loads((tmp_path / "result.json").read_text())
    np.testing.assert_allclose(result["steps"][0], result["steps"][1], rtol=1e-4)
    assert result["difference"] < 1e-3
    one, several = result["hypotheses"]
    assert [row[:2] for row in one] == [row[:2] for row in several]
    assert [row[0] for row in several] == list(range(5))
    assert result["kept"]
    assert f"train.xla is true, and training uses {count} devices" in result["refused"]


def on_one_and_several_devices(folder: Path, answer: Path, count: int) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    dataset = Dataset.read(folder)
    some = next(Batches(dataset, "train", batch_size=5, time_stride=2).epoch(0))
    # Each utterance on each device, so that all hear the same and batch normalisation sees the same.
    rows = np.repeat(np.arange(5), count)
    ids, texts = [some.ids[row] for row in rows], [some.texts[row] for row in rows]
    batch = Batch(ids, texts, some.features[rows], some.frames[rows], some.labels[rows], some.counts[rows])
    states, steps, hypotheses = [], [], []
    for name in ("one", "mirrored"):
        strategy = devices.choose_strategy(name)
        module = AsrTrainModule(tiny_asr_settings(model=ONE_LOOP), dataset, strategy)
        steps.append([module.train_step(batch, 0.01, step).loss for step in range(5)])
        states.append(module.state())
        hypotheses.append(sorted(dataclasses.astuple(each) for each in module.transcribe(some)))
    assert strategy.num_replicas_in_sync == count
    difference = max(float(np.abs(states[0][name] - states[1][name]).max()) for name in states[0])
    bad = module.train_step(dataclasses.replace(batch, features=batch.features * np.nan), 0.01, 9)
    kept = all(np.array_equal(states[1][name], value) for name, value in module.state().items())
    result = {"steps": steps, "difference": difference, "hypotheses": hypotheses, "kept": kept and not bad.accepted}
    with pytest.raises(SettingsError) as refused:
        AsrTask(tiny_asr_settings(xla=True, strategy="mirrored"), dataset)
    result["refused"] = str(refused.value)
    answer.write_text(json.dumps(result))

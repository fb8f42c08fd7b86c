"""One TTS training step, validation, and two devices."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_pinned
from tests.training.processes import read_log, start_process
from tests.training.tones import FEATURES, make_utterances, tiny_tts_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.settings import GuidedAttentionSettings
from voxline.families.tts.task import TtsTask
from voxline.families.tts.train_module import TtsTrainModule
from voxline.training.batches import Batch, Batches
from voxline.training.trainer import Trainer, TrainResult

LINEAR = FeatureSettings(**{**FEATURES.plain(), "kind": "mel_and_linear"})
EVERYTHING: dict[str, Any] = {
    "guided_attention": {"weight": 0.5},
    "mel_ctc": {"weight": 0.1, "units": 8},
    "teacher_forcing": {"from_share": 0.8, "to_share": 0.8},
}
FEW_LOOPS = {"encoder_lstm": 0, "decoder_layers": 1, "postnet_layers": 1}
"""Without what takes the most time to build, for tests that are about something else."""
SMALL: dict[str, dict[str, Any]] = {
    "tacotron2": FEW_LOOPS,
    "tacotron": {**dict.fromkeys(("encoder_bank", "postnet_bank"), 1), "encoder_gru": 0},
}
"""That gradients reach every weight of larger ones is in `tests/families/networks/test_tacotron.py`."""


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("linear") / "dataset", make_utterances(16, 8), how=LINEAR)


def long_batch(dataset: Dataset) -> Batch:
    """The longest utterances: in a text of one symbol, attention has nothing to learn."""
    return list(Batches(dataset, "train", batch_size=8).epoch(0))[-1]


@pytest.fixture(scope="module", params=["tacotron2", pytest.param("tacotron", marks=pytest.mark.slow)])
def module_and_dataset(
    request: pytest.FixtureRequest, tones: Dataset, linear: Dataset
) -> tuple[TtsTrainModule, Dataset]:
    dataset = tones if request.param == "tacotron2" else linear
    settings = tiny_tts_settings(request.param, model=SMALL[request.param], **EVERYTHING)
    return TtsTrainModule(settings, dataset, tf.distribute.get_strategy()), dataset


@pytest.mark.slow
def test_a_step_changes_every_weight_and_statistic_and_repeats(
    module_and_dataset: tuple[TtsTrainModule, Dataset],
) -> None:
    module, dataset = module_and_dataset
    batch, before = long_batch(dataset), module.state()
    step = module.train_step(batch, 0.01, 0)
    after = module.state()
    assert step.accepted
    assert step.loss == pytest.approx(sum(step.losses.values()), rel=1e-5)
    assert {"mel", "stop", "guided_attention", "mel_ctc"} <= set(step.losses)
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    module.restore(before)
    assert module.train_step(batch, 0.01, 0) == step
    for name, value in module.state().items():
        np.testing.assert_array_equal(value, after[name])
    assert_pinned(module.settings.model.kind, before, after, loss=step.loss, gradient_norm=step.gradient_norm)


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_nothing(module_and_dataset: tuple[TtsTrainModule, Dataset]) -> None:
    module, dataset = module_and_dataset
    batch, before = long_batch(dataset), module.state()
    features = batch.features.copy()
    features[2, 3, 4] = np.nan
    assert not module.train_step(dataclasses.replace(batch, features=features), 0.01, 0).accepted
    for name, value in module.state().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.slow
def test_padding_does_not_affect_training(module_and_dataset: tuple[TtsTrainModule, Dataset]) -> None:
    module, dataset = module_and_dataset
    batch, before = long_batch(dataset), module.state()
    clean = module.train_step(batch, 0.01, 0)
    module.restore(before)
    real = np.arange(batch.features.shape[1]) < batch.frames[:, None]
    noisy = dataclasses.replace(batch, features=np.where(real[..., None], batch.features, 9).astype(np.float32))
    assert module.train_step(noisy, 0.01, 0).loss == pytest.approx(clean.loss, rel=1e-5)
    module.restore(before)


def test_the_weight_of_guided_attention_scales_its_loss(module_and_dataset: tuple[TtsTrainModule, Dataset]) -> None:
    module, dataset = module_and_dataset
    batch, before, settings = long_batch(dataset), module.state(), module.settings
    light = module.train_step(batch, 0.01, 0)
    module.restore(before)
    module.settings = settings.model_copy(update={"guided_attention": GuidedAttentionSettings(weight=1.0)})
    heavy = module.train_step(batch, 0.01, 0)
    module.restore(before)
    module.settings = settings
    assert light.losses["guided_attention"] > 0.01
    assert heavy.losses["guided_attention"] == pytest.approx(2 * light.losses["guided_attention"], rel=1e-4)
    assert heavy.loss - light.loss == pytest.approx(light.losses["guided_attention"], rel=1e-3)


@pytest.mark.slow
def test_each_remedy_teaches_the_voice(module_and_dataset: tuple[TtsTrainModule, Dataset]) -> None:
    """The auxiliary CTC reaches the decoder's frames, guided attention the attention."""
    module, dataset = module_and_dataset
    batch = module._to_tensors(Batches(dataset, "train", batch_size=8).read(np.arange(2)))[0]
    schedule = {"guided_attention": tf.constant(0.5), "teacher_forcing": tf.constant(1.0)}
    decoder = module.model.decoder
    with tf.GradientTape(persistent=True) as tape:
        terms = module.compute_losses(batch, tf.constant([1, 0]), schedule, (3, False))
    assert np.any(tape.gradient(terms["mel_ctc"], decoder.frame_kernel.value))
    assert np.any(tape.gradient(terms["guided_attention"], decoder.attention.query.value))


def test_learns_a_batch(module_and_dataset: tuple[TtsTrainModule, Dataset]) -> None:
    module, dataset = module_and_dataset
    batch = long_batch(dataset)
    losses = [module.train_step(batch, 0.01, step).loss for step in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_a_text_with_more_symbols_than_frames_is_left_out_or_stops_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = make_utterances(6, 2)
    for place in (2, 7):  # of train, and of dev
        spoken[place] = dataclasses.replace(spoken[place], text="abcd" * 2_500)
    dataset = write_dataset(tmp_path / "dataset", spoken)
    with pytest.raises(WorkError, match=r"1 of 6 .*too few frames.*train-002\. .*belong to their recordings"):
        TtsTask(tiny_tts_settings(), dataset)
    task = TtsTask(tiny_tts_settings(max_infeasible_share=0.5), dataset)
    assert (task.train.infeasible, task.dev.infeasible) == (["train-002"], ["dev-007"])
    assert (task.train.utterances, task.dev.utterances) == (5, 1)
    output = capsys.readouterr().out
    assert "left out: train-002" in output
    assert "left out: dev-007" in output


def test_features_of_the_wrong_kind_are_refused(tones: Dataset) -> None:
    with pytest.raises(SettingsError, match=r"mel_and_linear.*extract\.features\.kind"):
        TtsTask(tiny_tts_settings("tacotron"), tones)


@pytest.fixture(scope="module")
def fitted(tones: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Path]:
    settings = tiny_tts_settings(epochs=2, evaluate_steps=15, summary_steps=5, model=FEW_LOOPS)
    folder = tmp_path_factory.mktemp("fitted")
    return Trainer(TtsTask(settings, tones), folder).fit(), folder


@pytest.mark.slow
def test_validations_score_free_synthesis_at_given_steps(fitted: tuple[TrainResult, Path]) -> None:
    trained, _ = fitted
    results = trained.state.validations
    assert [result.step for result in results] == [15, 30, 40]
    for result in results:
        metrics = result.metrics
        assert result.score is not None
        assert result.score[0] == pytest.approx(
            metrics["mel_dtw"] + 1 - metrics["attention_diagonality"] + metrics["hit_limit"]
        )
        assert result.score[1] == metrics["loss"]
    assert trained.best == min(results, key=lambda result: result.score or ())


@pytest.mark.slow
def test_validation_at_the_start_of_a_stage_uses_the_previous_reduction(tones: Dataset) -> None:
    stages = [{"step": 0, "reduction": 3}, {"step": 20, "reduction": 2}]
    task = TtsTask(tiny_tts_settings(reduction_schedule=stages, validation_utterances=1, model=FEW_LOOPS), tones)
    stop = task.module.model.decoder.stop_bias
    stop.assign(stop - 100.0)  # else it may stop at once: the same frame, whatever the reduction
    before, begins, after = (task.validate(step).metrics for step in (19, 20, 21))
    assert begins == before
    assert after["mel_dtw"] != before["mel_dtw"]
    assert after["loss"] != before["loss"]


@pytest.mark.slow
def test_tensorboard_has_images_and_audio(fitted: tuple[TrainResult, Path]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(fitted[1] / "logs"))
    events.Reload()
    pictures = {"dev/mel_0", "dev/alignment_0", "dev/speech_0", "dev/texts"}
    curves = {"train/mel", "train/stop", "train/learning_rate", "dev/attention_diagonality", "dev/mel_dtw"}
    assert pictures | curves <= set(events.Tags()["tensors"])
    steps = [result.step for result in fitted[0].state.validations]
    for name in (*pictures, "dev/attention_diagonality"):
        assert [event.step for event in events.Tensors(name)] == steps


@pytest.mark.slow
def test_two_devices_learn_the_same_as_one(tones: Dataset, tmp_path: Path) -> None:
    process = start_process(on_one_and_two_devices, tones.folder, tmp_path / "result.json", log=tmp_path / "log")
    process.join()
    assert process.exitcode == 0, read_log(tmp_path / "log")[-3_000:]
    result = json.loads((tmp_path / "result.json").read_text())
    np.testing.assert_allclose(result["steps"][0], result["steps"][1], rtol=1e-4)
    # Four steps of 0.01 each. Of a tiny gradient, as attention has, Adam takes a whole step: the order of sums shows.
    assert result["difference"] < 1e-2
    one, two = result["results"]
    assert one == pytest.approx(two, rel=1e-2, abs=1e-3)


def on_one_and_two_devices(folder: Path, answer: Path) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    dataset = Dataset.read(folder)
    some = next(Batches(dataset, "train", batch_size=4).epoch(0))
    # Each utterance twice, so that batch normalisation sees the same on both devices; nothing is drawn by chance.
    twice = np.repeat(np.arange(4), 2)
    ids, texts = [some.ids[row] for row in twice], [some.texts[row] for row in twice]
    batch = Batch(ids, texts, some.features[twice], some.frames[twice], some.labels[twice], some.counts[twice])
    model = {"prenet_dropout": 0, "zoneout": 0, "encoder_dropout": 0, "decoder_dropout": 0, "postnet_dropout": 0}
    states, steps, results = [], [], []
    for name in ("one", "mirrored"):
        settings = tiny_tts_settings(strategy=name, guided_attention={"weight": 0.3}, model={**model, **FEW_LOOPS})
        task = TtsTask(settings, dataset)
        steps.append([task.module.train_step(batch, 0.01, step).loss for step in range(4)])
        states.append(task.module.state())
        results.append(task.validate(4).metrics)
    assert task.strategy.num_replicas_in_sync == 2
    difference = max(float(np.abs(states[0][name] - states[1][name]).max()) for name in states[0])
    answer.write_text(json.dumps({"steps": steps, "difference": difference, "results": results}))

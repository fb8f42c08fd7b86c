"""A voice learns: what a step changes, what it may not, and what every look sees."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.speech.dataset import Dataset
from components.speech.errors import SettingsError, WorkError
from components.speech.feature_settings import FeatureSettings
from components.train.batches import Batch, Batches
from components.train.loop import fit
from components.train.synthesis.learner import SynthesisLearner
from components.train.synthesis.teacher import SynthesisTeacher
from tests.train.tones import FEATURES, sayings, tiny_voice, write_dataset

LINEAR = FeatureSettings(**{**FEATURES.plain(), "kind": "mel_and_linear"})
EVERYTHING: dict[str, Any] = {
    "guided_attention": {"weight": 0.5},
    "mutual_information": {"weight": 0.1, "units": 8},
    "teacher_forcing": {"from_share": 0.8, "to_share": 0.8},
}


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("linear") / "dataset", sayings(16, 8), how=LINEAR)


def long_batch(dataset: Dataset) -> Batch:
    """The longest utterances: in a text of one symbol, attention has nothing to learn."""
    return list(Batches(dataset, "train", batch_size=8).epoch(0))[-1]


@pytest.fixture(scope="module", params=["tacotron2", "tacotron"])
def learner(request: pytest.FixtureRequest, tones: Dataset, linear: Dataset) -> tuple[SynthesisLearner, Dataset]:
    dataset = tones if request.param == "tacotron2" else linear
    settings = tiny_voice(request.param, **EVERYTHING)
    return SynthesisLearner(settings, dataset, tf.distribute.get_strategy()), dataset


def test_a_step_changes_every_weight_and_statistic_and_repeats(learner: tuple[SynthesisLearner, Dataset]) -> None:
    voice, dataset = learner
    batch, before = long_batch(dataset), voice.state()
    step = voice.learn(batch, 0.01, 0)
    after = voice.state()
    assert step.accepted
    assert step.loss == pytest.approx(sum(step.parts.values()), rel=1e-5)
    assert {"mel", "stop", "guided_attention", "mutual_information"} <= set(step.parts)
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    voice.restore(before)
    assert voice.learn(batch, 0.01, 0) == step
    for name, value in voice.state().items():
        np.testing.assert_array_equal(value, after[name])


def test_a_step_that_is_not_finite_changes_nothing(learner: tuple[SynthesisLearner, Dataset]) -> None:
    voice, dataset = learner
    batch, before = long_batch(dataset), voice.state()
    features = batch.features.copy()
    features[2, 3, 4] = np.nan
    assert not voice.learn(dataclasses.replace(batch, features=features), 0.01, 0).accepted
    for name, value in voice.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_what_stands_in_the_padding_is_not_learnt(learner: tuple[SynthesisLearner, Dataset]) -> None:
    voice, dataset = learner
    batch, before = long_batch(dataset), voice.state()
    clean = voice.learn(batch, 0.01, 0)
    voice.restore(before)
    real = np.arange(batch.features.shape[1]) < batch.frames[:, None]
    noisy = dataclasses.replace(batch, features=np.where(real[..., None], batch.features, 9).astype(np.float32))
    assert voice.learn(noisy, 0.01, 0).loss == pytest.approx(clean.loss, rel=1e-5)
    voice.restore(before)


def test_a_few_utterances_are_learnt(learner: tuple[SynthesisLearner, Dataset]) -> None:
    voice, dataset = learner
    batch = long_batch(dataset)
    losses = [voice.learn(batch, 0.01, step).loss for step in range(60)]
    assert losses[-1] < 0.7 * losses[0]


def test_features_of_another_kind_are_refused(tones: Dataset) -> None:
    with pytest.raises(SettingsError, match=r"mel_and_linear.*extract\.features\.kind"):
        SynthesisTeacher(tiny_voice("tacotron"), tones)


def test_a_run_past_its_limit_of_bad_steps_names_the_utterance(tmp_path: Path) -> None:
    spoken = sayings(16)

    def spoil(each: Any, features: Any) -> Any:
        return np.full_like(features, np.inf) if each.id == spoken[3].id else features

    dataset = write_dataset(tmp_path / "dataset", spoken, spoil)
    dataset = dataclasses.replace(dataset, mean=[0.0] * 16, deviation=[1.0] * 16)
    with pytest.raises(WorkError, match=rf"2 steps.*{spoken[3].id}\."):
        fit(SynthesisTeacher(tiny_voice(epochs=3, max_bad_steps=1), dataset), tmp_path / "run")


def test_looks_come_by_steps_and_choose_by_free_running(tones: Dataset, tmp_path: Path) -> None:
    stages = [{"step": 0, "reduction": 3}, {"step": 20, "reduction": 2}]
    settings = tiny_voice(epochs=2, evaluate_steps=15, reductions=stages, **EVERYTHING)
    trained = fit(SynthesisTeacher(settings, tones), tmp_path)
    looks = trained.standing.looks
    assert [look.step for look in looks] == [15, 30, 40]
    for look in looks:
        seen = look.figures
        assert look.score is not None
        assert look.score[0] == pytest.approx(seen["mel_dtw"] + 1 - seen["attention_diagonality"] + seen["hit_limit"])
        assert look.score[1] == seen["loss"]
    assert trained.best == min(looks, key=lambda look: look.score or ())


def test_tensorboard_has_pictures_and_sound(tones: Dataset, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(SynthesisTeacher(tiny_voice(epochs=1, summary_steps=5), tones), tmp_path)
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    pictures = {"dev/mel_0", "dev/alignment_0", "dev/speech_0", "dev/texts"}
    curves = {"train/mel", "train/stop", "train/learning_rate", "dev/attention_diagonality", "dev/mel_dtw"}
    assert pictures | curves <= set(events.Tags()["tensors"])


TWO_DEVICES = """
import json, sys
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from components.speech.dataset import Dataset
from components.train import devices
from components.train.batches import Batch, Batches
from components.train.synthesis.teacher import SynthesisTeacher
from tests.train.tones import tiny_voice
dataset = Dataset.read(sys.argv[1])
some = next(Batches(dataset, "train", batch_size=4).epoch(0))
# Each utterance twice, so that batch normalisation sees the same on both devices; nothing is drawn by chance.
twice = np.repeat(np.arange(4), 2)
batch = Batch([some.ids[i] for i in twice], [some.texts[i] for i in twice],
    *(array[twice] for array in (some.features, some.frames, some.labels, some.counts)))
states, steps, looks = [], [], []
for name in ("one", "mirrored"):
    model = {"prenet_dropout": 0, "zoneout": 0, "encoder_dropout": 0, "decoder_dropout": 0, "postnet_dropout": 0}
    settings = tiny_voice(strategy=name, guided_attention={"weight": 0.3}, model=model)
    teacher = SynthesisTeacher(settings, dataset)
    steps.append([teacher.learner.learn(batch, 0.01, step).loss for step in range(4)])
    states.append(teacher.learner.state())
    looks.append(teacher.look(4).figures)
assert teacher.strategy.num_replicas_in_sync == 2
difference = max(float(np.abs(states[0][name] - states[1][name]).max()) for name in states[0])
print(json.dumps({"steps": steps, "difference": difference, "looks": looks}))
"""


def test_two_devices_learn_what_one_learns(tones: Dataset) -> None:
    command = [sys.executable, "-c", TWO_DEVICES, str(tones.folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3_000:]
    result = json.loads(found.stdout.splitlines()[-1])
    np.testing.assert_allclose(result["steps"][0], result["steps"][1], rtol=1e-4)
    assert result["difference"] < 1e-3
    one, two = result["looks"]
    assert one == pytest.approx(two, rel=1e-2, abs=1e-3)

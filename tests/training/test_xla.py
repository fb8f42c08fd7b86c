"""Steps that XLA compiles as a whole, for static shapes, as a TPU needs them: equal to the ordinary step.

Compiling is slow, so `make test-all` has the smallest network; `make test-xla` has all.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.families.vocoder.test_vocoder_training import HIFIGAN, NETWORK, WAVEGLOW, place_recordings
from tests.families.vocoder.test_vocoder_training import settings as vocoder_settings
from tests.training.tones import FEATURES, make_utterances, tiny_asr_settings, tiny_tts_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.data import testing as by_hand
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr.task import AsrTask, AsrTrainModule
from voxline.families.intents.settings import IntentsTrainSettings
from voxline.families.intents.task import IntentsTrainModule, TextBatches, Vocabulary
from voxline.families.tts.train_module import TtsTrainModule
from voxline.families.vocoder.train_module import VocoderTrainModule
from voxline.text.alphabet import Alphabet
from voxline.training.batches import WHOLE, Batches
from voxline.training.devices import check_strategy
from voxline.training.segments import SegmentBatches

LINEAR = FeatureSettings(**{**FEATURES.plain(), "kind": "mel_and_linear"})
# XLA draws other random numbers than TensorFlow's kernels, so nothing is dropped where steps are compared.
NO_DROPOUT = {"prenet_dropout": 0, "zoneout": 0, "encoder_dropout": 0, "decoder_dropout": 0, "postnet_dropout": 0}
TERMS = {"guided_attention": {"weight": 0.5}, "mel_ctc": {"weight": 0.1, "units": 8}}
SETTINGS: dict[str, dict[str, Any]] = {
    "simple": {"model": {"rnn": "simple"}, "average": {"ema_decay": 0.9}},
    "gru": {"model": {"rnn_batch_norm": True, "layers": 2}},
    "lstm": {"model": {"rnn": "lstm"}},
    "conformer": {"model": {"kind": "conformer"}},
    "deepspeech": {"model": {"kind": "deepspeech"}},
    "bfloat16": {"precision": "mixed_bfloat16"},
    "tacotron": {"model": {"prenet_dropout": 0}, **TERMS},
    "tacotron2": {"model": NO_DROPOUT, **TERMS},
    "tacotron2 bfloat16": {"model": NO_DROPOUT, "precision": "mixed_bfloat16"},
}
ALL = "VOXLINE_TEST_XLA"
CHEAP = {"simple"}
ONE_DEVICE = tf.distribute.get_strategy()


def make_module(name: str, dataset: Dataset, xla: bool) -> Any:
    settings = {**SETTINGS[name], "xla": xla}
    if "tacotron" in name:
        return TtsTrainModule(tiny_tts_settings(name.split()[0], **settings), dataset, tf.distribute.get_strategy())
    return AsrTrainModule(tiny_asr_settings(**settings), dataset, tf.distribute.get_strategy())


VOCODERS = {"vocos": NETWORK, "hifigan": HIFIGAN, "waveglow": WAVEGLOW}


def make_vocoder(name: str, folder: Path) -> tuple[Batches, Callable[[bool], Any]]:
    """Batches of segments, and what makes the module, with discriminators from the first step on."""
    dataset = write_dataset(folder / "store" / "dataset", utterances := make_utterances(12))
    place_recordings(dataset, utterances)
    judges = {} if name == "waveglow" else {"start_step": 0, "periods": [3], "scales": 1, "width": 0.01}
    chosen = {"model": VOCODERS[name], "discriminators": judges}
    batches = SegmentBatches(dataset, "train", 16, batch_size=4, seed=1, shuffled=True, share=WHOLE, buckets=1)
    return batches, lambda xla: VocoderTrainModule(vocoder_settings(**chosen, xla=xla), dataset, ONE_DEVICE)


def make_classifier(name: str, folder: Path) -> tuple[Batches, Callable[[bool], Any]]:
    """Batches of texts with their intents, and what makes the module of capsules and of mean pooling."""
    texts = [f"{first} {rest}" for first in "abc" for rest in ("x", "y z", "x y z", "z")]
    features = np.zeros((4, FEATURES.bins), np.float32)
    examples = [
        by_hand.NewExample(f"train-{number}", text, "train", features, extra={"intent": text[0]})
        for number, text in enumerate(texts)
    ]
    dataset = by_hand.write_dataset(folder / "dataset", examples, FEATURES, Alphabet("abcxyz "))
    model = {"embedding": 8, "units": [8], "capsules": 3, "capsule_size": 4, "dropout": 0}
    settings = {"batch_size": 8, "strategy": "one", "warm_up_steps": 0, "model": model}
    vocabulary = Vocabulary.of(dataset, IntentsTrainSettings.of(settings))
    batches = TextBatches(dataset, "train", vocabulary, "intent", batch_size=8, share=WHOLE, buckets=1)

    def make(xla: bool) -> IntentsTrainModule:
        return IntentsTrainModule(IntentsTrainSettings.of({**settings, "xla": xla}), vocabulary, ONE_DEVICE)

    return batches, make


@pytest.mark.parametrize("name", [*VOCODERS, "capsules"])
def test_a_compiled_step_of_a_vocoder_or_a_classifier_equals_the_ordinary_one(name: str, tmp_path: Path) -> None:
    if not os.environ.get(ALL):
        pytest.skip("make test-xla compiles this network")
    batches, make = (make_classifier if name == "capsules" else make_vocoder)(name, tmp_path)
    batch = next(batches.epoch(0))
    modules = [make(xla) for xla in (False, True)]
    modules[1].restore(modules[0].state())
    steps = [[module.train_step(batch, 0.001, step) for step in range(3)] for module in modules]
    for ordinary, compiled in zip(*steps, strict=True):
        assert ordinary.accepted
        assert compiled.accepted
        assert compiled.losses == pytest.approx(ordinary.losses, rel=1e-3)
        assert compiled.gradient_norm == pytest.approx(ordinary.gradient_norm, rel=1e-3)
    states = [module.state() for module in modules]
    for key, value in states[0].items():
        assert_close(states[1][key], value, relative_to_peak=3e-3, name=key)


def test_a_voice_that_xla_cannot_compile_is_refused_where_a_step_must_be_compiled() -> None:
    with pytest.raises(SettingsError, match="alignment that fastspeech learns by; set xla to false"):
        tiny_tts_settings("fastspeech", xla=True)
    voice = tiny_tts_settings("fastspeech")
    with pytest.raises(SettingsError, match=r"train\.model\.kind: XLA cannot .* fastspeech .*cluster\.steps\.train"):
        check_strategy(FourCores(), voice)
    check_strategy(tf.distribute.get_strategy(), voice)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_compiled_step_equals_the_ordinary_one(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if name not in CHEAP and not os.environ.get(ALL):
        pytest.skip("make test-xla compiles this network")
    how = LINEAR if name == "tacotron" else FEATURES
    dataset = write_dataset(tmp_path_factory.mktemp(name.replace(" ", "-")) / "dataset", make_utterances(12), how=how)
    batches = Batches(dataset, "train", batch_size=8, time_stride=2, share=WHOLE, buckets=1)
    padded, last = batches.epoch(0)  # 8 rows, and 4 that are filled up to 8
    assert padded.features.shape == last.features.shape == (8, *batches.shapes[0][:1], dataset.features.bins)
    modules = [make_module(name, dataset, xla) for xla in (False, True)]
    steps = [[module.train_step(padded, 0.01, step) for step in range(3)] for module in modules]
    half = "bfloat16" in name  # whose gradients differ by some percent from those of float32, compiled or not
    for ordinary, compiled in zip(*steps, strict=True):
        assert ordinary.accepted
        assert compiled.accepted
        assert compiled.losses == pytest.approx(ordinary.losses, rel=0.02 if half else 1e-4)
        assert compiled.gradient_norm == pytest.approx(ordinary.gradient_norm, rel=0.1 if half else 1e-4)
    states = [module.state() for module in modules]
    for key, value in states[0].items() if not half else ():
        assert_close(states[1][key], value, relative_to_peak=1e-3, name=key)
    if name in CHEAP:
        poisoned = padded.features * np.nan
        bad = modules[1].train_step(type(padded)(**{**vars(padded), "features": poisoned}), 0.01, 3)
        assert not bad.accepted
        for key, value in modules[1].state().items():
            np.testing.assert_array_equal(value, states[1][key])
        tight = Batches(dataset, "train", batch_size=8, time_stride=2)
        before = modules[0].train_step(padded, 0.0, 3).loss  # at a rate of 0
        unpadded = modules[0].train_step(next(tight.epoch(0)), 0.0, 3)
        assert unpadded.loss == pytest.approx(before, rel=1e-5)
        modules[0].restore(states[0])
        heard = [{row: out["loss"] for row, out in module.run_eval(last)} for module in modules]
        assert heard[1] == pytest.approx(heard[0], rel=1e-3)
        assert sorted(heard[1]) == [0, 1, 2, 3]


def test_every_batch_has_one_of_the_static_shapes(tones: Dataset) -> None:
    """With augmentation that lengthens, too; there are as many shapes as there are buckets, so as many compilations."""
    settings = tiny_asr_settings(xla=True, buckets=3, augment={"speed": 0.2, "silence": 0.4})
    task = AsrTask(settings, tones)
    shapes = {
        (batch.features.shape[:2], batch.labels.shape)
        for epoch in range(2)
        for batch in (*task.train.epoch(epoch), *task.dev.epoch(epoch))
    }
    known = {*task.train.shapes, *task.dev.shapes}
    assert len(task.train.shapes) <= 3
    assert shapes <= {((8, frames), (8, labels)) for frames, labels in known}


def test_compiling_is_not_part_of_the_key() -> None:
    ordinary, compiled = tiny_asr_settings(), tiny_asr_settings(xla=True, buckets=2)
    assert compiled.key_values() == ordinary.key_values()


class FourCores(tf.distribute.TPUStrategy):  # type: ignore[misc]
    """The strategy of a TPU, without the TPU."""

    num_replicas_in_sync = 4

    def __init__(self) -> None:
        pass


def test_float16_is_refused_on_a_tpu() -> None:
    with pytest.raises(SettingsError, match=r"train\.precision is mixed_float16, and TPUs multiply in bfloat16"):
        check_strategy(FourCores(), tiny_asr_settings(precision="mixed_float16"))


@pytest.mark.parametrize("xla", [False, True])
def test_a_batch_that_the_cores_of_a_tpu_cannot_share_evenly_is_refused(xla: bool) -> None:
    """Several devices that are no TPU are refused in asr/test_train_module.py."""
    with pytest.raises(SettingsError, match=r"train\.batch_size is 6, and 4 devices .* set it to 8"):
        check_strategy(FourCores(), tiny_asr_settings(xla=xla, batch_size=6))
    check_strategy(FourCores(), tiny_asr_settings(xla=xla, batch_size=8))


def test_a_tpu_compiles_by_its_strategy(tones: Dataset) -> None:
    """Its host must not compile the function that starts the TPU's program."""
    module = make_module("simple", tones, xla=True)
    on_one_device = module._compile(lambda: tf.constant(1), ())
    module.strategy = FourCores()
    assert (on_one_device._jit_compile, module._compile(lambda: tf.constant(1), ())._jit_compile) == (True, None)

"""Voice conversion: the networks against numpy, their losses, their training, and augmentation by it."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.closeness import assert_close, assert_pinned
from tests.command import voxline
from tests.training.tones import FEATURES, LETTERS, make_utterances, tiny_asr_settings
from voxline.audio.features import compute_features
from voxline.audio.griffin_lim import features_to_waveform
from voxline.audio.wav import read_wav, write_wav
from voxline.components.train.step import run
from voxline.data import testing as by_hand
from voxline.data.dataset import Dataset
from voxline.data.reader import DatasetReader
from voxline.errors import SettingsError, WorkError
from voxline.families.conversion.evaluate import evaluate_conversion
from voxline.families.conversion.networks.attgan import AttGan, MelDiscriminator
from voxline.families.conversion.settings import AttributeSettings, ConversionTrainSettings
from voxline.families.conversion.task import (
    CONVERTER,
    CRITIC,
    ConversionTask,
    ConversionTrainModule,
    cross_entropy,
    one_hots,
    signs,
)
from voxline.inference.recognizer import Recognizer
from voxline.inference.voice_converter import VoiceConverter
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.store.layout import WAVS
from voxline.text.alphabet import Alphabet
from voxline.training.train_module import BatchTensors
from voxline.training.trainer import Trainer

FRAMES = 16
TINY: dict[str, Any] = {
    "attributes": [{"field": "sex"}, {"field": "reader", "pattern": "[+](.+)"}],
    "model": {"channels": 2, "layers": 2, "units": 4}, "segment_frames": FRAMES, "batch_size": 4, "epochs": 2,
    "critic_steps": 2, "learning_rate": 1e-3, "evaluate_epochs": 1, "strategy": "one",
}  # fmt: skip
Array = npt.NDArray[Any]


def tiny(**changes: Any) -> ConversionTrainSettings:
    return ConversionTrainSettings.of({**TINY, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Tones: those of F a band higher than those of M; two readers of each, and one utterance of nobody."""
    made, store = [], tmp_path_factory.mktemp("store")
    for number, each in enumerate(make_utterances(13, 4, seed=5)):
        sex, reader = "FM"[number % 2], f"en-us+v{number // 2 % 2}"
        mels = np.roll(compute_features(each.waveform, FEATURES), 2 if sex == "F" else 0, axis=1)
        extra = {} if number == 12 else {"sex": sex, "reader": reader}
        made.append(by_hand.NewExample(each.id, each.text, each.split, mels, f"speaker{number % 4}", extra))
        recording = store / "extract" / WAVS / each.id[:2] / f"{each.id}.wav"
        recording.parent.mkdir(parents=True, exist_ok=True)
        write_wav(recording, np.pad(each.waveform, (0, FEATURES.hop_length)), FEATURES.sample_rate)
    return by_hand.write_dataset(store / "extract" / "voices", made, FEATURES, Alphabet(LETTERS))


@pytest.fixture(scope="module")
def task(dataset: Dataset) -> ConversionTask:
    """One for all tests: tracing its steps takes seconds."""
    return ConversionTask(tiny(), dataset)


@pytest.fixture(scope="module")
def untrained(task: ConversionTask) -> dict[str, Any]:
    return {name: np.copy(value) for name, value in task.module.state().items()}


def randomize(model: Any, seed: int = 1) -> None:
    random = np.random.default_rng(seed)
    for weight in model.weights:
        variance = "variance" in weight.path
        weight.assign(random.uniform(0.5, 2, weight.shape) if variance else 0.4 * random.standard_normal(weight.shape))


def convolve(x: Array, kernel: Array) -> Array:
    """4×4, stride 2, one zero around: the sum of the definition. x [height, width, in], kernel [4, 4, in, out]."""
    padded = np.pad(x, [(1, 1), (1, 1), (0, 0)])
    height, width = x.shape[0] // 2, x.shape[1] // 2
    return np.array(
        [
            [
                np.einsum("abi,abio->o", padded[2 * row : 2 * row + 4, 2 * col : 2 * col + 4], kernel)
                for col in range(width)
            ]
            for row in range(height)
        ]
    )


def spread(x: Array, kernel: Array) -> Array:
    """The transposed convolution: each position adds 4×4 values, of which the outermost fall off."""
    height, width = x.shape[:2]
    made = np.zeros((2 * height + 2, 2 * width + 2, kernel.shape[2]))
    for row in range(height):
        for col in range(width):
            made[2 * row : 2 * row + 4, 2 * col : 2 * col + 4] += np.einsum("i,aboi->abo", x[row, col], kernel)
    return made[1:-1, 1:-1]


def leaky(x: Array) -> Array:
    return np.where(x > 0, x, 0.2 * x)


def normalize(x: Array, norm: Any) -> Array:
    mean, variance = norm.moving_mean.numpy(), norm.moving_variance.numpy()
    return norm.gamma.numpy() * (x - mean) / np.sqrt(variance + norm.epsilon) + norm.beta.numpy()


def attgan(model: AttGan, mels: Array, attributes: Array) -> Array:
    """One row, as He et al. 2017, table 1, with one short cut and one injection."""
    x = np.pad(mels, [(0, 0), (0, -mels.shape[1] % model.factor)])[..., None].astype(np.float64)
    down = []
    for layer, norm in zip(model.down, model.down_norms, strict=True):
        x = leaky(normalize(convolve(x, layer.kernel.numpy()), norm))
        down.append(x)

    def inject(x: Array) -> Array:
        return np.concatenate([x, np.broadcast_to(attributes, (*x.shape[:2], len(attributes)))], axis=-1)

    x = inject(down[-1])
    for number, (layer, norm) in enumerate(zip(model.up, model.up_norms, strict=True)):
        x = np.maximum(normalize(spread(x, layer.kernel.numpy()), norm), 0)
        if number == 0:
            x = inject(np.concatenate([x, down[-2]], axis=-1))
    return (spread(x, model.last.kernel.numpy()) + model.last.bias.numpy())[:, : mels.shape[1], 0]


def test_the_network_has_one_short_cut_and_injects_the_attributes_twice() -> None:
    random = np.random.default_rng(2)
    model = AttGan(bins=6, values=3, channels=2, depth=3)
    randomize(model)
    mels = random.standard_normal((2, 16, 6)).astype(np.float32)
    wanted = random.choice([-0.5, 0.5, 1.0], (2, 3)).astype(np.float32)
    made = model(mels, wanted).numpy()
    for row in range(2):
        assert_close(made[row], attgan(model, mels[row], wanted[row]), relative_to_peak=1e-4)


@pytest.mark.parametrize("criticizes", [True, False])
def test_the_critic_and_the_classifier_use_instance_norm(criticizes: bool) -> None:
    model = MelDiscriminator(frames=8, bins=5, values=3, channels=2, depth=2, units=4, criticizes=criticizes)
    randomize(model)
    mels = np.random.default_rng(3).standard_normal((2, 8, 5)).astype(np.float32)
    scores, logits = (each.numpy() for each in model(mels))
    for row in range(2):
        # "same" of Keras pads an odd size after its end, one zero more.
        x = mels[row][..., None].astype(np.float64)
        for layer, norm in zip(model.convolutions, model.norms, strict=True):
            x = convolve(np.pad(x, [(0, x.shape[0] % 2), (0, x.shape[1] % 2), (0, 0)]), layer.kernel.numpy())
            x = (x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5) * norm.gamma.numpy() + norm.beta.numpy()
            x = leaky(x)

        def head(layers: list[Any], x: Array = x) -> Array:
            first, last = ((each.kernel.numpy(), each.bias.numpy()) for each in layers)
            return leaky(x.reshape(-1) @ first[0] + first[1]) @ last[0] + last[1]

        assert_close(logits[row], head(model.attribute_head), relative_to_peak=1e-4)
        wanted = head(model.critic_head)[0] if criticizes else 0.0
        assert_close(scores[row], wanted, relative_to_peak=1e-4)


def test_attributes_come_from_the_manifest_and_rows_without_them_are_left_out(task: ConversionTask) -> None:
    assert task.attributes.values == {"sex": ["F", "M"], "reader": ["v0", "v1"]}
    rows = {row.id: row for row in task.dataset.rows()}
    assert (task.train.utterances, task.dev.utterances) == (12, 4)
    for batch in task.train.epoch(0):
        assert batch.features.shape == (4, FRAMES, FEATURES.bins)
        for id, labels in zip(batch.ids, batch.labels.tolist(), strict=True):
            assert labels == [int(rows[id].extra["sex"] == "M"), int(rows[id].extra["reader"][-1])]


def losses(module: ConversionTrainModule, batch: Any, noise: Array, turn: str) -> dict[str, Array]:
    tensors = BatchTensors(batch.features, batch.frames, batch.labels, batch.counts)
    compute = tf.function(lambda: module.compute_losses(tensors, noise, {}, turn), autograph=False)
    return {name: value.numpy() for name, value in compute().items()}


def test_the_losses_are_the_papers(dataset: Dataset, task: ConversionTask, untrained: dict[str, Any]) -> None:
    """The gradient's penalty by finite differences, all else by the networks' outputs."""
    module = task.module
    module.restore(untrained)
    batch, noise = next(task.train.epoch(0)), np.array([1, 3], np.int32)
    mels = ((batch.features - np.float32(dataset.mean)) / np.float32(dataset.deviation)).astype(np.float32)
    ones = np.concatenate([np.eye(2)[batch.labels[:, 0]], np.eye(2)[batch.labels[:, 1]]], axis=1)
    order = np.argsort(tf.random.stateless_uniform([4], noise).numpy())
    assert not np.array_equal(order, np.arange(4))
    own, wanted = (2 * ones - 1) / 2, (2 * ones[order] - 1) / 2

    def entropy(logits: Array, labels: Array) -> Array:
        parts = [logits[:, :2], logits[:, 2:]]
        each = [np.log(np.exp(part).sum(1)) - part[np.arange(4), labels[:, index]] for index, part in enumerate(parts)]
        return np.mean(each, axis=0)

    found = losses(module, batch, noise, CRITIC)
    encoded = module.model.converter.encode(mels, training=True)
    made = module.model.converter.decode(encoded, wanted.astype(np.float32), training=True).numpy()
    share = tf.random.stateless_uniform([4, 1, 1], noise + np.array([0, 7])).numpy()
    between = share * mels + (1 - share) * made
    penalties = []
    for row in between:
        step = 1e-2 * np.eye(row.size, dtype=np.float32).reshape(-1, *row.shape)
        up, down = (module.critic(row + sign * step)[0].numpy().astype(np.float64) for sign in (1, -1))
        penalties.append(10 * (np.sqrt(np.sum(((up - down) / 2e-2) ** 2)) - 1) ** 2)
    scores, logits = (each.numpy() for each in module.critic(mels))
    np.testing.assert_allclose(
        found["critic"], module.critic(made)[0].numpy() - scores + penalties, rtol=0.02, atol=0.02
    )
    np.testing.assert_allclose(found["critic_attributes"], entropy(logits, batch.labels), rtol=1e-4)
    assert set(found) == {"critic", "critic_attributes", "classifier"}

    found = losses(module, batch, noise, CONVERTER)
    twice = [np.concatenate([part, part]) for part in encoded]
    both = np.concatenate([wanted, own]).astype(np.float32)
    made, again = np.split(module.model.converter.decode(twice, both, training=True).numpy(), 2)
    scores, logits = (each.numpy() for each in module.critic(made))
    np.testing.assert_allclose(found["reconstruction"], 100 * np.abs(again - mels).mean((1, 2)), rtol=1e-4)
    assert_close(found["adversarial"], -scores, relative_to_peak=1e-5)
    np.testing.assert_allclose(found["attributes"], 10 * entropy(logits, batch.labels[order]), rtol=1e-4)
    assert set(found) == {"reconstruction", "adversarial", "attributes"}


def test_one_value_of_an_attribute_is_wanted_at_a_time() -> None:
    labels = np.array([[1, 2], [0, 0]], np.int32)
    assert signs(one_hots(labels, [2, 3])).numpy().tolist() == [
        [-0.5, 0.5, -0.5, -0.5, 0.5],
        [0.5, -0.5, 0.5, -0.5, -0.5],
    ]
    sure = 100 * one_hots(labels, [2, 3])
    assert_close(cross_entropy(sure, labels, [2, 3]), [0, 0], relative_to_peak=1e-6)


def changed(before: dict[str, Any], after: dict[str, Any], module: ConversionTrainModule) -> set[str]:
    """Which networks' trainable weights differ."""
    names = {id(weight): number for number, weight in enumerate(module.model.weights)}
    parts = {"converter": module.model.converter, "classifier": module.model.classifier}
    found = {
        part
        for part, network in parts.items()
        for weight in network.trainable_variables
        if not np.array_equal(before[f"model/{names[id(weight)]}"], after[f"model/{names[id(weight)]}"])
    }
    critics = [name for name in before if name.startswith("critic/")]
    return found | ({"critic"} if any(not np.array_equal(before[name], after[name]) for name in critics) else set())


@pytest.mark.slow
def test_the_converter_has_its_turn_after_the_critics_steps(task: ConversionTask, untrained: dict[str, Any]) -> None:
    module, batches = task.module, list(task.train.epoch(0))
    assert [module.graph_key(step) for step in range(6)] == [CRITIC, CRITIC, CONVERTER] * 2
    module.restore(untrained)
    states = [module.state()]
    for step in range(3):
        assert module.train_step(batches[step], 1e-3, step).accepted
        states.append(module.state())
    assert_pinned("stargan", states[0], states[-1])
    turns = [changed(before, after, module) for before, after in itertools.pairwise(states)]
    assert turns == [{"critic", "classifier"}, {"critic", "classifier"}, {"converter"}]


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_nothing_and_a_restored_module_repeats(
    task: ConversionTask, untrained: dict[str, Any]
) -> None:
    module, batches = task.module, list(task.train.epoch(0))
    module.restore(untrained)
    broken = dataclasses.replace(batches[1], features=batches[1].features * np.float32(np.nan))
    for step in (0, 2):  # a turn of each
        saved = module.state()
        assert not module.train_step(broken, 1e-3, step).accepted
        assert all(np.array_equal(saved[name], value) for name, value in module.state().items())
        first = module.train_step(batches[0], 1e-3, step)
        after = module.state()
        module.restore(saved)
        assert module.train_step(batches[0], 1e-3, step) == first
        assert all(np.array_equal(after[name], value) for name, value in module.state().items())


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def trained(dataset: Dataset, task: ConversionTask, untrained: dict[str, Any], tmp_path_factory: Any) -> Path:
    """The exported model of a training by the step; traced once, in `task`."""
    with pytest.MonkeyPatch.context() as patch:
        task.module.restore(untrained)
        patch.setattr(ConversionTask, "build_module", lambda self: task.module)
        output = run(dataset.folder, tmp_path_factory.mktemp("store"), tiny())
    assert output.metrics["steps"] == 6
    assert {"dev_converted_sex", "dev_recorded_reader", "dev_distance", "dev_score"} <= output.metrics.keys()
    return output.path("model")


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(
    dataset: Dataset, task: ConversionTask, untrained: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again() -> ConversionTask:
        task.module.restore(untrained)
        return ConversionTask(tiny(evaluate_epochs=2), dataset)

    monkeypatch.setattr(ConversionTask, "build_module", lambda self: task.module)
    whole = Trainer(again(), tmp_path / "whole").fit()

    def kill() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        Trainer(again(), tmp_path / "killed", kill).fit()
    resumed = Trainer(again(), tmp_path / "killed").fit()
    assert resumed.state.step == whole.state.step == 6
    assert all(np.array_equal(whole.weights[name], value) for name, value in resumed.weights.items())


@pytest.mark.slow
def test_the_exported_converter_reads_mels_of_any_length(trained: Path, task: ConversionTask) -> None:
    converter = VoiceConverter(trained)
    assert converter.attributes == {"sex": ["F", "M"], "reader": ["v0", "v1"]}
    network = task.module.model.converter  # its weights are those of the last step, and so are the exported ones or not
    mean, deviation = np.float32(task.dataset.mean), np.float32(task.dataset.deviation)
    exported = tf.train.load_checkpoint(str(trained / "variables" / "variables"))
    for index, weight in enumerate(task.module.model.weights):
        weight.assign(exported.get_tensor(f"weights/{index}/.ATTRIBUTES/VARIABLE_VALUE"))
    for frames in (16, 9, 1, 35):
        mels = np.random.default_rng(frames).normal(-5, 2, (frames, FEATURES.bins)).astype(np.float32)
        made = converter.convert(mels, {"sex": "F", "reader": "v1"})
        silence = compute_features(np.zeros(1, np.float32), FEATURES)[[0] * (-frames % 4)].reshape(-1, FEATURES.bins)
        padded = (np.concatenate([mels, silence]) - mean) / deviation
        wanted = network(padded[None], np.array([[0.75, -0.75, -0.75, 0.75]], np.float32)).numpy()[0, :frames]
        assert_close(made, wanted * deviation + mean, relative_to_peak=1e-3)
        read = converter.read(mels)
        assert all(sum(values.values()) == pytest.approx(1, abs=1e-5) for values in read.values())
        # What is not named keeps what the classifier reads, at the strength of training.
        likeliest = max(read["reader"], key=read["reader"].__getitem__)
        vector = [0.75, -0.75, *(0.5 if value == likeliest else -0.5 for value in ("v0", "v1"))]
        wanted = network(padded[None], np.array([vector], np.float32)).numpy()[0, :frames]
        assert_close(converter.convert(mels, {"sex": "F"}), wanted * deviation + mean, relative_to_peak=1e-3)
    with pytest.raises(SettingsError, match=r"sex=X: the converter .* knows sex: F, M; reader: v0, v1"):
        converter.convert(mels, {"sex": "X"})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recognizers")


@pytest.fixture(scope="module")
def recognizer(dataset: Dataset, store: Path) -> Path:
    return run(dataset.folder, store, tiny_asr_settings(epochs=1)).path("model")


def test_what_is_wrong_is_said(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="segment_frames is 18; with 2 layers a multiple of 4 is accepted"):
        tiny(segment_frames=18)
    with pytest.raises(SettingsError, match="no group"):
        tiny(attributes=[{"field": "reader", "pattern": "v."}])
    with pytest.raises(SettingsError, match="the field 'sex' twice"):
        tiny(attributes=[{"field": "sex"}, {"field": "sex"}])
    with pytest.raises(WorkError, match=r"the field 'age', .* in train are \[\]; .* fields are: reader, sex, speaker"):
        ConversionTask(tiny(attributes=[{"field": "age"}]), dataset)
    mels = np.zeros((20, FEATURES.bins), np.float32)
    apart = [by_hand.NewExample(f"a{n}", "a", "train", mels, f"speaker{n}") for n in range(2)]
    apart.append(by_hand.NewExample("b", "a", "dev", mels, "speaker2"))
    by_speaker = by_hand.write_dataset(tmp_path / "by-speaker", apart, FEATURES, Alphabet("a"))
    with pytest.raises(WorkError, match="no utterance of dev has values that train has of speaker"):
        ConversionTask(tiny(attributes=[{"field": "speaker"}]), by_speaker)
    spectra = dataclasses.replace(dataset, features=FEATURES.model_copy(update={"kind": "linear"}))
    with pytest.raises(SettingsError, match=r"extract\.features\.kind is 'linear'; .* needs log_mel"):
        ConversionTask(tiny(), spectra)
    assert AttributeSettings(field="speaker").pattern == ""


@pytest.mark.slow
def test_the_command_evaluates_what_is_read_and_what_is_heard(
    trained: Path, recognizer: Path, dataset: Dataset
) -> None:
    done = voxline(
        "voices", "evaluate", trained, dataset.folder, "--recognizer", recognizer, "--split", "dev", "--json"
    )
    assert done.returncode == 0, done.stderr
    shares = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])}
    read = {f"read/{of}/{name}" for of in ("recorded", "converted") for name in ("sex", "reader")}
    assert set(shares) == read | {"wer/recorded", "wer/resynthesized", "wer/converted"}
    assert {name: one["count"] for name, one in shares.items()} == dict.fromkeys(shares, 4) | {"wer/converted": 8}
    # One utterance of train has no attributes: it is converted, and what its recording should be read as is not known.
    shares_of_train = evaluate_conversion(VoiceConverter(trained), dataset.folder, "train", None)
    assert {one.name: one.count for one in shares_of_train} == {
        f"read/{of}/{name}": count for of, count in (("recorded", 12), ("converted", 13)) for name in ("sex", "reader")
    }
    converter, listener = VoiceConverter(trained), Recognizer(recognizer)
    examples, rows = list(DatasetReader(dataset.folder).examples("dev")), {row.id: row for row in dataset.rows()}
    verdicts = [converter.read(one.features)["sex"] for one in examples]
    right = [
        max(one, key=one.__getitem__) == rows[each.id].extra["sex"]
        for one, each in zip(verdicts, examples, strict=True)
    ]
    assert shares["read/recorded/sex"]["value"] == np.mean(right)
    heard = listener.transcribe_waveforms(
        [np.clip(features_to_waveform(one.features, FEATURES), -1, 1) for one in examples]
    )
    errors = sum_edits(count_word_edits([one.text for one in examples], heard))
    assert shares["wer/resynthesized"]["value"] == pytest.approx(errors.rate)


@pytest.mark.slow
def test_the_command_converts_recordings_and_says_what_the_classifier_reads(
    trained: Path, dataset: Dataset, tmp_path: Path
) -> None:
    (recording,) = dataset.recordings(["dev-013"])
    done = voxline("voices", "convert", trained, recording, "--to", "sex=F", "-o", tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'made' / 'dev-013.wav'}  sex " in done.stdout
    assert " → " in done.stdout
    samples, rate = read_wav(tmp_path / "made" / "dev-013.wav")
    assert (rate, bool(samples.any())) == (FEATURES.sample_rate, True)
    for given, message in (
        (("--to", "sex"), "NAME=VALUE is accepted"),
        (("--to", "sex=X"), "knows sex: F, M"),
        (("--to", "sex=F", "-o", recording.parent), "a recording would be replaced"),
        (("--to", "sex=F", "-o", tmp_path / "made"), "dev-013.wav is there already"),
        (("--to", "sex=F", "--to", "sex=M"), "names an attribute twice"),
    ):
        refused = voxline("voices", "convert", trained, recording, "-o", tmp_path, *given)
        assert refused.returncode == 2, refused.stderr
        assert message in refused.stderr

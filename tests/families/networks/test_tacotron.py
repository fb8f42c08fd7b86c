"""Tacotron and Tacotron 2: shapes, padding, gradients, and synthesis."""

from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close, needs_bfloat16
from voxline.families.tts.networks.settings import AttentionSettings, Tacotron2Settings, TacotronSettings
from voxline.families.tts.networks.tacotron import Tacotron
from voxline.families.tts.networks.tacotron2 import Tacotron2

MELS, LINEAR, SYMBOLS = 4, 6, 7
NOISE = np.array([7, 0], np.int32)
TEXTS = (tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32))
"""Symbols and counts of any batch: a graph is built once for all."""
ATTENTION = AttentionSettings(units=16, location_filters=4, location_kernel=5)
SIZES: dict[str, dict[str, Any]] = {
    "tacotron": {
        "embedding": 16,
        "prenet": (16, 16),
        "encoder_bank": 3,
        "encoder_channels": 16,
        "encoder_gru": 8,
        "highways": 1,
        "decoder_units": 32,
        "postnet_bank": 2,
        "postnet_channels": 16,
        "postnet_projection": 8,
        "postnet_gru": 8,
        "attention": ATTENTION.model_copy(update={"location": "cumulative"}),
    },
    "tacotron2": {
        "embedding": 16,
        "prenet": (16, 16),
        "encoder_convolutions": 1,
        "encoder_channels": 16,
        "encoder_lstm": 8,
        "decoder_units": 32,
        "postnet_layers": 2,
        "postnet_channels": 8,
        "zoneout": 0.1,
        "attention": ATTENTION,
    },
    "smallest": {
        "embedding": 32,
        "prenet": (32,),
        "encoder_convolutions": 1,
        "encoder_channels": 32,
        "encoder_dropout": 0.0,
        "encoder_lstm": 0,
        "decoder_units": 48,
        "decoder_layers": 1,
        "decoder_dropout": 0.0,
        "postnet_layers": 0,
        "attention": ATTENTION.model_copy(update={"smoothing": True}),
    },
}


def make(kind: str, reduction: int = 5, **changes: Any) -> Any:
    sizes = {**SIZES[kind], "reduction": reduction, **changes}
    if kind == "tacotron":
        bins = MELS + LINEAR
        settings: Any = TacotronSettings(**sizes)
        return Tacotron(settings, symbols=SYMBOLS, bins=bins, mels=MELS, mean=[0.5] * bins, deviation=[2.0] * bins)
    settings = Tacotron2Settings(**sizes)
    return Tacotron2(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, mean=[0.5] * MELS, deviation=[2.0] * MELS)


def batch(model: Any, counts: list[int], frames: list[int], seed: int = 0) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, SYMBOLS, (len(counts), max(counts))).astype(np.int32)
    features = random.standard_normal((len(frames), max(frames), model.bins)).astype(np.float32)
    return labels, np.array(counts, np.int32), features, np.array(frames, np.int32)


@pytest.fixture(
    scope="module",
    params=["tacotron2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tacotron", "smallest"))],
)
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str) -> Any:
    made = make(kind)
    for norm in made.normalizations:  # as after some training
        norm.moving_mean.assign(norm.moving_mean + 0.3)
    return made


def test_shapes_follow_the_reduction(model: Any, kind: str) -> None:
    for reduction, steps in ((5, 3), (3, 4), (1, 11)):
        spoken = model(*batch(model, [4, 2], [11, 6]), reduction=reduction, noise=NOISE)
        assert spoken.mels.shape == spoken.before.shape == (2, steps * reduction, MELS)
        assert spoken.stop.shape == (2, steps * reduction)
        assert spoken.alignment.shape == (2, steps, 4)
        assert (spoken.linear is None) == (kind != "tacotron")
        if kind == "tacotron":
            assert spoken.linear.shape == (2, steps * reduction, LINEAR)


def test_a_reduction_above_that_of_the_settings_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="reduction 6 is more than the 5"):
        model(*batch(model, [4], [11]), reduction=6)


def test_denormalize_inverts_normalize(model: Any) -> None:
    raw = np.random.default_rng(1).standard_normal((2, 3, model.bins)).astype(np.float32)
    assert_close(model.denormalize(model.normalize(raw)), raw, relative_to_peak=1e-6)
    assert_close(model.normalize(raw[..., :MELS]), model.normalize(raw)[..., :MELS], relative_to_peak=1e-6)


def test_a_mixed_batch_equals_its_rows_one_by_one(model: Any) -> None:
    labels, counts, features, frames = batch(model, [6, 3, 2], [14, 9, 3])
    labels[1, 3:], features[1, 9:] = 5, 1e3  # padding must not matter
    whole = model(labels, counts, features, frames, noise=NOISE)
    assert_close(np.sum(whole.alignment, -1), 1.0, relative_to_peak=1e-5)
    assert not np.any(np.asarray(whole.alignment)[1, :, 3:])
    for row, (count, length) in enumerate(zip(counts, frames, strict=True)):
        one = slice(row, row + 1)
        alone = model(labels[one, :count], counts[one], features[one, :length], frames[one], noise=NOISE)
        steps = -(-length // 5)
        assert_close(whole.mels[row, :length], alone.mels[0, :length], relative_to_peak=1e-5)
        assert_close(whole.stop[row, :length], alone.stop[0, :length], relative_to_peak=1e-5)
        assert_close(whole.alignment[row, :steps, :count], alone.alignment[0, :steps], relative_to_peak=1e-5)
        if whole.linear is not None:
            assert_close(whole.linear[row, :length], alone.linear[0, :length], relative_to_peak=1e-5)


def test_synthesis_in_a_batch_equals_synthesis_alone(model: Any) -> None:
    labels, counts, *_ = batch(model, [6, 3, 2], [1, 1, 1])

    @tf.function(input_signature=TEXTS, autograph=False)
    def synthesize(labels: Any, counts: Any) -> Any:
        return model.synthesize(labels, counts, max_steps=40, noise=NOISE)

    whole = synthesize(labels, counts)
    for row, count in enumerate(counts):
        alone = synthesize(labels[row : row + 1, :count], counts[row : row + 1])
        length = int(alone.frames[0])
        assert length == int(whole.frames[row])
        assert_close(whole.mels[row, :length], alone.mels[0, :length], relative_to_peak=1e-5)
        assert not np.any(np.asarray(whole.mels)[row, length:])


def test_synthesis_depends_on_the_seed_only(kind: str) -> None:
    network = make(kind)
    network.decoder.stop_bias.assign(network.decoder.stop_bias - 100.0)
    text = batch(network, [4, 2], [1, 1])[:2]
    first, again, other = (
        network.synthesize(*text, max_steps=3, noise=noise).before
        for noise in (NOISE, NOISE, np.array([8, 0], np.int32))
    )
    np.testing.assert_array_equal(first, again)
    # Tacotron's pre-net drops nothing when it speaks, Tacotron 2's does.
    assert np.array_equal(first, other) == (kind == "tacotron")


@pytest.mark.slow
def test_a_compiled_loop_gives_the_same_result() -> None:
    network = make("tacotron2")
    text = batch(network, [6, 3], [1, 1])[:2]
    plain = network.synthesize(*text, max_steps=9, noise=NOISE)
    jit = partial(tf.function, autograph=False, jit_compile=True)
    fast = network.synthesize(*text, max_steps=9, noise=NOISE, compiler=jit)
    for name, one in plain._asdict().items():
        if one is not None:
            assert_close(one, getattr(fast, name), relative_to_peak=1e-5, name=name)


@pytest.mark.slow
def test_results_follow_the_order_of_the_batch(model: Any) -> None:
    inputs = batch(model, [6, 3, 2], [14, 9, 3])
    order = [2, 0, 1]
    forward = model(*inputs, noise=NOISE)
    shuffled = model(*(part[order] for part in inputs), noise=NOISE)
    assert_close(np.asarray(forward.mels)[order], shuffled.mels, relative_to_peak=1e-5)


def weights_without_gradient(model: Any, teacher_forcing: float | None) -> list[str]:
    """Weights that no gradient reaches."""
    inputs = batch(model, [4, 3], [15, 12])  # the state is zero up to the second step
    with tf.GradientTape() as tape:
        spoken = model(*inputs, training=True, noise=NOISE, teacher_forcing=teacher_forcing)
        loss = sum(
            tf.reduce_sum(tf.square(part)) for part in (spoken.mels, spoken.stop, spoken.linear) if part is not None
        )
    found = zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True)
    return [variable.path for variable, gradient in found if gradient is None or not np.any(gradient)]


def test_gradient_reaches_every_weight(model: Any) -> None:
    assert weights_without_gradient(model, teacher_forcing=None) == []


def test_gradient_reaches_every_weight_in_the_mixed_loop() -> None:
    assert weights_without_gradient(make("tacotron2"), teacher_forcing=0.5) == []


def test_the_mixed_loop_with_recorded_frames_only_equals_teacher_forcing(model: Any) -> None:
    inputs = batch(model, [6, 3], [10, 7])
    fast, mixed = model(*inputs, noise=NOISE), model(*inputs, noise=NOISE, teacher_forcing=1.0)
    assert_close(fast.mels, mixed.mels, relative_to_peak=1e-5)
    assert_close(fast.alignment, mixed.alignment, relative_to_peak=1e-5)


@pytest.mark.slow
def test_the_mixed_loop_with_its_own_frames_only_equals_synthesis(model: Any) -> None:
    labels, counts, features, frames = batch(model, [6, 3], [20, 20])
    mixed = model(labels, counts, features, frames, noise=NOISE, teacher_forcing=0.0)
    spoken = model.synthesize(labels, counts, max_steps=4, noise=NOISE)
    made = int(np.min(spoken.frames))
    assert_close(mixed.before[:, :made], spoken.before[:, :made], relative_to_peak=1e-5)


@pytest.mark.slow
def test_learns_and_synthesizes_two_utterances(tmp_path: Path) -> None:
    """That each kind learns is in `tests/families/tts/test_train_module.py`."""
    network = make("smallest", prenet_dropout=0.1)
    labels, counts, _, frames = batch(network, [4, 3], [20, 15])
    labels[0], labels[1, :3] = [1, 2, 3, 4], [6, 3, 1]
    random = np.random.default_rng(3).standard_normal((SYMBOLS, network.bins))
    features = np.repeat(random[labels], 5, axis=1).astype(np.float32)
    optimizer = keras.optimizers.Adam(4e-3, global_clipnorm=1.0)
    optimizer.build(network.trainable_variables)
    real = np.arange(20) < frames[:, None]
    target = (np.arange(20) == frames[:, None] - 1).astype(np.float32)

    @tf.function(autograph=False)
    def learn(noise: Any) -> Any:
        with tf.GradientTape() as tape:
            spoken = network(labels, counts, features, frames, training=True, noise=noise)
            error = tf.abs(spoken.mels - features)
            stop = tf.nn.sigmoid_cross_entropy_with_logits(target, spoken.stop)
            loss = tf.reduce_mean((tf.reduce_mean(error, -1) + stop)[real])
        variables = network.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        for norm in network.normalizations:
            for moving, seen in zip((norm.moving_mean, norm.moving_variance), norm.batch_statistics, strict=True):
                moving.assign(0.9 * moving + 0.1 * seen)
        return loss

    losses = [float(learn(tf.constant([1, step]))) for step in range(200)]
    assert np.mean(losses[-5:]) < 0.1 * losses[0]

    class Graph(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = [variable.value for variable in network.weights]
            self._synthesize = lambda *texts: network.synthesize(*texts, max_steps=12, noise=tf.constant([7, 0]))

        @tf.function(input_signature=TEXTS, autograph=False)
        def synthesize(self, labels: Any, counts: Any) -> Any:
            spoken = self._synthesize(labels, counts)._asdict()
            return {name: value for name, value in spoken.items() if value is not None}

    graph = Graph()
    spoken = graph.synthesize(labels, counts)
    assert spoken["frames"].numpy().tolist() == [20, 15]
    assert not np.any(spoken["hit_limit"])
    assert np.mean(np.abs(spoken["mels"] - features)[real]) < 0.3
    tf.saved_model.save(graph, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    again = loaded.synthesize(labels, counts)
    for name, value in spoken.items():
        np.testing.assert_array_equal(value, again[name])
    alone = graph.synthesize(labels[1:, :3], counts[1:])
    assert_close(alone["mels"][0], spoken["mels"][1, :15], relative_to_peak=1e-5)


@pytest.mark.parametrize(("bias", "cut", "frames"), [(-100.0, True, 37 * 5), (100.0, False, 1)])
def test_hit_limit_marks_a_row_that_was_cut_off(bias: float, cut: bool, frames: int) -> None:
    network = make("smallest")
    network.decoder.stop_bias.assign(network.decoder.stop_bias + bias)
    synthesize = tf.function(lambda *text: network.synthesize(*text, max_steps=37, noise=NOISE), autograph=False)
    spoken = synthesize(*batch(network, [4, 2], [1, 1])[:2])
    assert spoken.hit_limit.numpy().tolist() == [cut] * 2
    assert spoken.frames.numpy().tolist() == [frames] * 2
    assert spoken.alignment.shape == (2, 37 if cut else 1, 4)


def test_the_stop_frame_is_the_last() -> None:
    network = make("smallest")
    network.decoder.stop_bias.assign([-100.0, -100.0, 100.0, -100.0, 100.0])
    spoken = network.synthesize(*batch(network, [4], [1])[:2], max_steps=4, noise=NOISE)
    assert spoken.frames.numpy().tolist() == [3]
    assert spoken.before.shape == (1, 5, MELS)
    assert np.any(spoken.before[0, 2])
    assert not np.any(spoken.before[0, 3:])


@pytest.mark.slow
@needs_bfloat16
def test_outputs_stay_float32_in_mixed_precision() -> None:
    settings = Tacotron2Settings(**SIZES["tacotron2"])
    common: dict[str, Any] = {"mean": [0.0] * MELS, "deviation": [1.0] * MELS, "precision": "mixed_bfloat16"}
    network = Tacotron2(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, **common)
    inputs = batch(network, [4, 2], [11, 6])
    for spoken in (
        network(*inputs, noise=NOISE, training=True),
        network(*inputs, noise=NOISE, teacher_forcing=0.5),
        network.synthesize(*inputs[:2], max_steps=5, noise=NOISE),
    ):
        assert {part.dtype for part in (spoken.mels, spoken.before, spoken.stop, spoken.alignment)} == {tf.float32}

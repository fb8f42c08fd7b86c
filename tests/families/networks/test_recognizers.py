"""The CTC networks: shapes, padding, gradients, and sizes."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close, needs_bfloat16
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.asr.networks.conformer import Conformer, rotary_angles, rotate
from voxline.families.asr.networks.deepspeech import DeepSpeech
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.fastconformer import FastConformer
from voxline.families.asr.networks.settings import (
    ConformerSettings,
    ConvolutionSettings,
    DeepSpeech2Settings,
    DeepSpeechSettings,
    FastConformerSettings,
)
from voxline.families.asr.settings import AsrTrainSettings
from voxline.pipelines.config.pipeline_configs import config_class_of
from voxline.training.ctc import ctc_loss
from voxline.training.layers import FeatureNormalizer

BINS = 13
KINDS: dict[str, dict[str, Any]] = {
    "gru": {
        "convolutions": (
            ConvolutionSettings(channels=3, stride=(3, 2)),
            ConvolutionSettings(channels=2, kernel=(4 + 1, 3)),
        )
    },
    "lstm": {"rnn": "lstm", "rnn_batch_norm": True, "dropout": 0.2},
    "simple": {"rnn": "simple", "layers": 1, "convolutions": (ConvolutionSettings(channels=2, stride=(2, 2)),)},
    "deployed": {
        "layers": 1,
        "directions": "forward",
        "lookahead": 3,
        "convolutions": (ConvolutionSettings(channels=2, stride=(2, 2)),),
    },
    "relative": {"top_db": 50, "layers": 1, "convolutions": (ConvolutionSettings(channels=2, stride=(2, 2)),)},
    "pooled": {
        "pooling": "utterance",
        "layers": 1,
        "convolutions": (ConvolutionSettings(channels=2, stride=(2, 2)),),
        "dropout": 0.2,
    },
    "deepspeech": {"context": 2, "units": 8},
    "conformer": {"units": 8, "heads": 2, "layers": 1, "kernel": 5, "subsampling": 2},
    "fastconformer": {"units": 8, "heads": 2, "layers": 1, "kernel": 5, "channels": 4},
}
OFTEN = ("gru", "deepspeech", "conformer")
EACH_KIND = [kind if kind in OFTEN else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
NETWORKS: dict[str, Any] = {
    "deepspeech": (DeepSpeech, DeepSpeechSettings),
    "conformer": (Conformer, ConformerSettings),
    "fastconformer": (FastConformer, FastConformerSettings),
}


def model(kind: str = "gru", **changes: Any) -> Any:
    """A network with few units; `kind` is one of `KINDS`."""
    network, settings = NETWORKS.get(kind, (DeepSpeech2, DeepSpeech2Settings))
    values = settings(**{"units": 5, "padding": 4, **KINDS[kind]})
    return network(values, **{"mean": [0.5] * BINS, "deviation": [2.0] * BINS, "classes": 7, **changes})


def batch(lengths: list[int], seed: int = 0) -> tuple[Any, Any]:
    features = np.random.default_rng(seed).standard_normal((len(lengths), max(lengths), BINS)).astype(np.float32)
    return features, np.array(lengths, np.int32)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_the_time_stride_is_what_the_settings_say(kind: str) -> None:
    network = model(kind)
    features, lengths = batch([19, 18, 1])
    logits, frames = network(features, lengths)
    stride = network.settings.time_stride
    assert frames.numpy().tolist() == [-(-(length + 8) // stride) for length in (19, 18, 1)]
    assert logits.shape == (3, -(-27 // stride), 7)  # one where it is pooled


@pytest.mark.parametrize("kind", EACH_KIND)
def test_a_batch_of_mixed_lengths_equals_its_rows_one_by_one(kind: str) -> None:
    network = model(kind)
    features, lengths = batch([20, 13, 8, 3])
    for norm in network.normalizations:  # as after some training
        norm.moving_mean.assign(norm.moving_mean + 0.3)
    features[1, 13:] = 1e3  # padding must not matter
    logits, frames = network(features, lengths)
    for row, length in enumerate(lengths):
        alone, _ = network(features[row : row + 1, :length], lengths[row : row + 1])
        assert_close(logits[row, : frames[row]], alone[0], relative_to_peak=2e-5)


@pytest.mark.parametrize("kind", ["lstm", "conformer", "fastconformer"])
def test_batch_statistics_exclude_padding(kind: str) -> None:
    network = model(kind)
    features, lengths = batch([12, 12])
    network(features, lengths, training=True)
    alone = [value.numpy() for norm in network.normalizations for value in norm.batch_statistics]
    padded = np.concatenate([features, np.zeros((2, 15, BINS), np.float32)], axis=1)
    network(padded, lengths, training=True)
    for norm_value, expected in zip(
        [value for norm in network.normalizations for value in norm.batch_statistics], alone, strict=True
    ):
        assert_close(norm_value, expected, relative_to_peak=1e-5)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_gradient_reaches_every_weight(kind: str) -> None:
    network = model(kind)
    features, lengths = batch([20, 17])
    with tf.GradientTape() as tape:
        logits, frames = network(features, lengths, training=True, noise=tf.constant([1, 2]))
        labels, counts = np.array([[1, 2, 3], [4, 4, 0]]), np.array([1, 1] if kind == "pooled" else [3, 2])
        loss = tf.reduce_sum(ctc_loss(logits, frames, labels, counts))
    gradients = tape.gradient(loss, network.trainable_variables)
    dead = [
        variable.path
        for variable, gradient in zip(network.trainable_variables, gradients, strict=True)
        if gradient is None or not np.any(gradient)
    ]
    assert dead == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "deepspeech", "conformer", "fastconformer"])
def test_dropout_depends_on_the_given_seed(kind: str) -> None:
    network = model(kind)
    features, lengths = batch([15])
    first, again, other = (
        network(features, lengths, training=True, noise=tf.constant(noise))[0].numpy()
        for noise in ([1, 1000], [1, 1000], [1, 2000])
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gru", "deepspeech", "conformer", "fastconformer"])
def test_equal_seeds_give_equal_weights(kind: str) -> None:
    one, same, other = model(kind, seed=3), model(kind, seed=3), model(kind, seed=4)
    for left, right in zip(one.weights, same.weights, strict=True):
        np.testing.assert_array_equal(left, right)
    assert any(np.any(left.numpy() != right.numpy()) for left, right in zip(one.weights, other.weights, strict=True))


@pytest.mark.slow
@needs_bfloat16
@pytest.mark.parametrize("kind", ["gru", "deepspeech", "conformer"])
def test_half_precision_gives_float32_logits_near_those_of_float32(kind: str) -> None:
    features, lengths = batch([20, 12])
    whole, _ = model(kind)(features, lengths)
    half, _ = model(kind, precision="mixed_bfloat16")(features, lengths)
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, whole, atol=0.05)
    # Features are normalized before they are rounded to 8 bits: near 100 those are half a unit apart.
    raw, statistics = features * 0.02 + 100, {"mean": [100.0] * BINS, "deviation": [0.04] * BINS}
    whole, half = (model(kind, precision=each, **statistics)(raw, lengths)[0] for each in ("float32", "mixed_bfloat16"))
    np.testing.assert_allclose(half, whole, atol=0.05)


@pytest.mark.parametrize("kind", ["relative", "deepspeech", "conformer"])
def test_with_top_db_a_recording_at_another_gain_has_the_same_logits(kind: str) -> None:
    values = {**KINDS[kind], "top_db": 50}
    network, settings = NETWORKS.get(kind, (DeepSpeech2, DeepSpeech2Settings))
    built = network(settings(**{"units": 5, **values}), mean=[0.5] * BINS, deviation=[2.0] * BINS, classes=7)
    features, lengths = batch([20, 13, 3])
    logits, _ = built(features, lengths)
    louder, _ = built(features + np.float32(np.log(10.0) * 3), lengths)  # 30 dB
    assert_close(louder, logits, relative_to_peak=1e-5)
    dynamics, _ = built(features * 2, lengths)
    assert np.abs(dynamics[0] - logits[0]).max() > 1e-3


def test_the_level_is_that_of_the_loudest_frames_and_what_is_far_below_it_is_silence() -> None:
    features, lengths = batch([40, 23, 3])
    features *= 5
    features[1, 23:] = np.nan
    relative = FeatureNormalizer([0.0] * BINS, [1.0] * BINS, top_db=50.0)(features, lengths).numpy()
    for row, length in enumerate(lengths):
        decibels = 10 * np.log10(np.exp(features[row, :length].astype(np.float64)))
        loud = np.sort(decibels.max(axis=1))[-min(8, length) :].mean()
        expected = 4 * (np.maximum(decibels - loud, -50) + 50) / 50
        assert_close(relative[row, :length], expected, relative_to_peak=1e-5)
        assert (expected == 0).any()


def test_forward_layers_hear_no_more_of_the_future_than_the_lookahead() -> None:
    network = model("deployed")
    features, lengths = batch([60])
    before = network(features, lengths)[0].numpy()
    features[0, 40:] += 5.0
    changed = np.abs(network(features, lengths)[0].numpy() - before).max(axis=(0, 2)) > 1e-6
    first = int(np.argmax(changed))
    # Frame 40 is padded frame 44, output frame 22; the kernel of 5 reaches it one output frame before.
    assert first == 22 - 1 - network.settings.lookahead
    assert changed[first:].all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lookahead": 5}, "lookahead is 5 and directions is 'concatenated'.* set directions to 'forward'"),
        ({"rnn_activation": "clipped_relu"}, "rnn_activation is for rnn 'simple', and rnn is 'gru'"),
        ({"kind": "conformer", "units": 60}, "units is 60 and heads is 4.* a multiple of 8"),
        ({"kind": "conformer", "kernel": 6}, "a kernel of 6 has no center"),
    ],
)
def test_forms_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        AsrTrainSettings.of({"model": changes})


PAPER: dict[str, Any] = {
    "convolutions": (
        ConvolutionSettings(channels=32, kernel=(11, 41), stride=(2, 2)),
        ConvolutionSettings(channels=32, kernel=(11, 21), stride=(1, 2)),
        ConvolutionSettings(channels=96, kernel=(11, 21), stride=(1, 2)),
    ),
    "rnn": "simple",
    "rnn_activation": "clipped_relu",
    "layers": 7,
    "units": 1760,
    "rnn_batch_norm": True,
}


@pytest.mark.slow
@pytest.mark.parametrize("directions", ["summed", "forward"])
def test_the_network_of_the_paper_is_built(directions: str) -> None:
    """161 bins, 29 symbols. Built as a graph: its half a gigabyte of weights is not drawn."""
    ahead = 19 if directions == "forward" else 0
    settings = DeepSpeech2Settings(**PAPER, directions=directions, lookahead=ahead)
    with tf.Graph().as_default():
        network = DeepSpeech2(settings, mean=[0.0] * 161, deviation=[1.0] * 161, classes=29)
    taps = 11 * 41 * 32 + 11 * 21 * 32 * 32 + 11 * 21 * 32 * 96
    scales = 4 * (32 + 32 + 96) + 4 * 7 * 1760  # of each normalization: scale, shift, mean, variance
    one = [(inputs + 1760 + 1) * 1760 for inputs in (21 * 96, *[1760] * 6)]  # 161 bins, halved three times, are 21
    ways = 1 if directions == "forward" else 2
    row = (ahead + 1) * 1760 if ahead else 0
    assert network.count_params() == taps + scales + ways * sum(one) + row + 1761 * 29


@pytest.mark.parametrize(("units", "weights"), [(2048, 47_224_861), (1024, 12_078_109), (128, 248_221)])
def test_mozillas_deepspeech_has_as_many_weights(units: int, weights: int) -> None:
    """19 frames of 26 coefficients, 28 symbols and the blank."""
    with tf.Graph().as_default():
        network = DeepSpeech(DeepSpeechSettings(units=units), mean=[0.0] * 26, deviation=[1.0] * 26, classes=29)
    layer, lstm = (units + 1) * units, 4 * (2 * units + 1) * units
    assert network.count_params() == (19 * 26 + 1) * units + 3 * layer + lstm + (units + 1) * 29 == weights


@pytest.mark.slow
def test_each_layer_of_deepspeech_has_its_own_dropout() -> None:
    """With a rate of nearly 1 in one layer the logits are those of its bias."""
    features, lengths = batch([12])
    for layer in range(5):
        rates = tuple(1 - 1e-7 if index == layer else 0.0 for index in range(5))
        network = DeepSpeech(
            DeepSpeechSettings(context=1, units=4, dropout=rates), mean=[0.0] * BINS, deviation=[1.0] * BINS, classes=3
        )
        network.before[-1].bias.assign(np.ones(4))
        dropped, _ = network(features, lengths, training=True, noise=tf.constant([1, 2]))
        kept, _ = network(features, lengths)
        assert np.abs(dropped - kept).max() > 1e-3, layer


def test_the_forget_gate_of_deepspeech_begins_open() -> None:
    bias = model("deepspeech").recurrent.cell.bias.numpy()
    assert bias.tolist() == [*[0] * 8, *[1] * 8, *[0] * 16]  # input, forget, cell, output


def test_deepspeech_refuses_frames_that_are_stacked_already() -> None:
    stacked = {
        "name": "a",
        "corpus": {"uri": "a"},
        "extract": {"features": {"kind": "mfcc", "context": 9}},
        "train": {"model": {"kind": "deepspeech"}},
    }
    with pytest.raises(SettingsError, match=r"features\.context is 9 and train\.model\.context is 9.* set extract"):
        config_class_of("asr").of(stacked)
    DeepSpeechSettings(context=0).check_features(FeatureSettings(kind="mfcc", context=9))


def test_relative_levels_of_cepstral_coefficients_are_refused() -> None:
    for settings in (DeepSpeech2Settings(top_db=50), DeepSpeechSettings(top_db=50), ConformerSettings(top_db=50)):
        with pytest.raises(SettingsError, match=r"train\.model\.top_db is 50.*mfcc.*set top_db to 0"):
            settings.check_features(FeatureSettings(kind="mfcc"))


def test_pooling_takes_mean_and_maximum_over_the_real_frames() -> None:
    network = model("pooled")
    features, lengths = batch([40, 23, 3])
    frames_of_top: list[Any] = []
    recurrent = network.recurrent[0]
    network.recurrent = [lambda x, mask: frames_of_top.append((recurrent(x, mask=mask), mask)) or frames_of_top[-1][0]]
    logits, frames = network(features, lengths)
    top, mask = (np.asarray(each) for each in frames_of_top[0])
    kernel, bias = network.classifier.get_weights()
    assert frames.numpy().tolist() == [1, 1, 1]
    for row in range(3):
        real = top[row][mask[row]]
        pooled = np.concatenate([real.mean(axis=0), real.max(axis=0)])
        assert_close(logits[row, 0], pooled @ kernel + bias, relative_to_peak=1e-5)


@pytest.mark.slow
def test_the_output_may_have_a_dropout_of_its_own() -> None:
    features, lengths = batch([30])

    def dropped(**rates: float) -> Any:
        settings = DeepSpeech2Settings(units=5, padding=4, **{**KINDS["pooled"], "dropout": 0.0, **rates})
        network = DeepSpeech2(settings, mean=[0.5] * BINS, deviation=[2.0] * BINS, classes=7)
        inputs: list[Any] = []
        classifier = network.classifier
        network.classifier = lambda x: inputs.append(x) or classifier(x)
        network(features, lengths, training=True, noise=tf.constant([1, 2]))
        return np.asarray(inputs[0])[0, 0]

    whole, half = dropped(), dropped(output_dropout=0.5)
    left = half != 0
    assert 0 < left.sum() < len(half)
    np.testing.assert_allclose(half[left], 2 * whole[left], rtol=1e-5)  # what is before it has none


def test_rotated_vectors_meet_by_their_distance() -> None:
    """Su et al. 2021, equation 11: the product depends on the distance of the positions alone."""
    query, key = np.random.default_rng(0).standard_normal((2, 1, 1, 1, 8)).astype(np.float32)
    rotation = rotary_angles(40, 8)
    queries, keys = (rotate(np.repeat(x, 40, axis=1), rotation).numpy()[0, :, 0] for x in (query, key))
    assert_close(queries[0], query[0, 0, 0], relative_to_peak=1e-6)
    products = queries @ keys.T
    for distance in (-7, 0, 3):
        along = np.diagonal(products, distance)
        assert_close(along, along[0], relative_to_peak=1e-5)
    assert np.ptp(products[0]) > 0.5


def test_a_block_of_the_small_conformer_has_as_many_weights_as_its_layers() -> None:
    """80 bins, 29 classes. With 16 blocks 8.4 million; the paper's 10.3 million have a decoder too."""
    settings = ConformerSettings(units=144, layers=1, heads=4, kernel=31)
    with tf.Graph().as_default():
        network = Conformer(settings, mean=[0.0] * 80, deviation=[1.0] * 80, classes=29)
    units, wide = 144, 4 * 144
    feed_forward = 2 * units + (units + 1) * wide + (wide + 1) * units
    attention = 2 * units + (units + 1) * 3 * units + (units + 1) * units
    convolution = 2 * units + (units + 1) * 2 * units + 31 * units + 4 * units + (units + 1) * units
    block = 2 * feed_forward + attention + convolution + 2 * units
    subsampling = (9 + 1) * units + (9 * units + 1) * units + (20 * units + 1) * units
    assert network.count_params() == subsampling + block + (units + 1) * 29 == 8_380_973 - 15 * block

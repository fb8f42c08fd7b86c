"""FastConformer against transformers' Parakeet: logits, gradients, sizes. `make oracles` computes the files of hub/."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.families.networks.pytorch_oracle import HUB, write_hub_models
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.errors import SettingsError
from voxline.families.asr.augmentation import Augmentation
from voxline.families.asr.frontend import graph_features
from voxline.families.asr.hub_weights import expand, fastconformer, read_weights, to_our_layout, write_weights
from voxline.families.asr.networks.fastconformer import FastConformer
from voxline.families.asr.networks.settings import FastConformerSettings
from voxline.families.asr.settings import AsrTrainSettings, AugmentSettings
from voxline.registry.hub import open_hub_model
from voxline.training.weight_names import weight_names

KEY_BIAS = "attention/key/bias"
"""It shifts all scores of a query alike, so it changes nothing."""
DEPTHWISE_BIAS = "convolution/depthwise/bias"
"""In training the batch's mean takes it away."""
VARIANTS = ("fastconformer", "fastconformer-without-biases")


class Parakeet:
    """A stored model: our network with its weights, the table of their names, and what transformers computes."""

    def __init__(self, name: str, **changes: Any) -> None:
        write_hub_models("fastconformer_transformers.py")
        self.hub = open_hub_model(str(HUB / name), "train.start.model", weights=True)
        with np.load(self.hub.folder / "outputs.npz", allow_pickle=False) as outputs:
            self.outputs = dict(outputs)
        encoder = self.hub.config["encoder_config"]
        self.settings = FastConformerSettings(
            channels=encoder["subsampling_conv_channels"],
            layers=encoder["num_hidden_layers"],
            units=encoder["hidden_size"],
            heads=encoder["num_attention_heads"],
            feed_forward=encoder["intermediate_size"] // encoder["hidden_size"],
            kernel=encoder["conv_kernel_size"],
            **{key: encoder[key] for key in ("attention_bias", "convolution_bias", "scale_input")},
            **changes,
        )
        biases = {key: encoder[key] for key in ("attention_bias", "convolution_bias")}
        self.names = expand(fastconformer(**biases), self.settings.layers)
        bins = encoder["num_mel_bins"]
        classes = self.hub.config["vocab_size"]
        self.network = FastConformer(self.settings, mean=[0.0] * bins, deviation=[1.0] * bins, classes=classes)
        weights = read_weights(self.hub, self.names)
        self.variables = dict(zip(weight_names(self.network), self.network.weights, strict=True))
        assert weights.keys() == self.variables.keys()
        for ours, variable in self.variables.items():
            variable.assign(weights[ours])

    def gradients(self, features: Any, lengths: Any, training: bool) -> tuple[Any, dict[str, Any]]:
        """Logits, and the gradients of the sum of their squares over real frames by our names."""
        with tf.GradientTape() as tape:
            logits, frames = self.network(features, lengths, training=training)
            real = tf.sequence_mask(frames, tf.shape(logits)[1], tf.float32)[..., None]
            loss = tf.reduce_sum(tf.square(logits) * real)
        trainable = [name for name, variable in self.variables.items() if variable.trainable]
        return logits, dict(zip(trainable, tape.gradient(loss, self.network.trainable_variables), strict=True))

    def assert_gradients_equal(self, gradients: dict[str, Any], prefix: str, zero: tuple[str, ...]) -> None:
        """Compares all gradients but those that are rounding around zero, of names that end with one of `zero`."""
        for row in self.names:
            if row.ours in gradients:
                expected = to_our_layout(self.outputs[f"{prefix}{row.hub}"], row.layout)
                gradient = gradients.pop(row.ours)
                if not row.ours.endswith(zero):
                    assert_close(gradient, expected, relative_to_peak=1e-3, name=row.ours)
        assert gradients == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_gradients_equal_those_of_transformers_in_a_padded_batch(name: str) -> None:
    parakeet = Parakeet(name)
    features = parakeet.outputs["features"]
    lengths = parakeet.outputs["lengths"]
    padded = features.copy()
    for row, length in enumerate(lengths):
        padded[row, length:] = 1e3  # beyond the end nothing is listened to
    logits, gradients = parakeet.gradients(padded, lengths, training=False)
    for row, frames in enumerate(-(-lengths // 8)):
        np.testing.assert_allclose(logits[row, :frames], parakeet.outputs["logits"][row, :frames], rtol=0, atol=1e-4)
        alone, _ = parakeet.network(features[row : row + 1, : lengths[row]], lengths[row : row + 1])
        assert_close(alone[0], logits[row, :frames], relative_to_peak=1e-5)
    parakeet.assert_gradients_equal(gradients, "gradient/", (KEY_BIAS,))


@pytest.mark.parametrize("name", VARIANTS)
def test_training_on_whole_rows_normalizes_as_pytorch_does(name: str) -> None:
    """Rows of one length, since PyTorch counts frames of padding. Its moving variance is the unbiased one."""
    parakeet = Parakeet(name)
    expected = {key.removeprefix("training/"): value for key, value in parakeet.outputs.items() if "training/" in key}
    rows, length, _ = expected["features"].shape
    lengths = np.full(rows, length, np.int32)
    logits, gradients = parakeet.gradients(expected["features"], lengths, training=True)
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)
    parakeet.assert_gradients_equal(gradients, "training/gradient/", (KEY_BIAS, DEPTHWISE_BIAS))
    count = rows * length // 8
    for number, layer in enumerate(parakeet.network.normalizations):
        mean, variance = layer.batch_statistics
        for key, moving, batch in (
            ("mean", layer.moving_mean, mean),
            ("var", layer.moving_variance, variance * count / (count - 1)),
        ):
            moved = layer.momentum * moving + (1 - layer.momentum) * batch
            assert_close(moved, expected[f"encoder.layers.{number}.conv.norm.running_{key}"], relative_to_peak=1e-5)


@pytest.mark.parametrize("bins", [80, 128])
def test_features_equal_those_of_transformers_in_extract_and_in_the_graph(bins: int) -> None:
    """A voice with pauses, over noise. Rows of several lengths, NaN beyond their ends."""
    with np.load(HUB / "fastconformer" / "outputs.npz", allow_pickle=False) as arrays:
        waveforms = arrays["waveforms"]
        samples = arrays["samples"]
        frames = arrays["frames"]
        expected = arrays[f"mels/{bins}"]
    settings = FeatureSettings(kind="nemo_mel", mels=bins)
    for row, count in enumerate(samples):
        waveforms[row, count:] = np.nan
    in_graph, counted = graph_features(waveforms, samples, settings)
    assert counted.numpy().tolist() == frames.tolist() == [settings.count_frames(count) for count in samples]
    for row, count in enumerate(samples):
        ours = compute_features(waveforms[row, :count], settings)
        np.testing.assert_allclose(ours, expected[row, : frames[row]], rtol=0, atol=1e-4)
        np.testing.assert_allclose(in_graph[row, : frames[row]], ours, rtol=0, atol=1e-4)
        assert not np.any(in_graph[row, frames[row] :])


def test_silence_has_features_of_zero() -> None:
    settings = FeatureSettings(kind="nemo_mel")
    silence = np.zeros((1, 4_000), np.float32)
    assert not compute_features(silence[0], settings).any()
    assert not np.any(graph_features(silence, np.array([4_000], np.int32), settings)[0])


def test_features_and_changes_of_level_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"kind is fastconformer.* is log_mel; set it to nemo_mel"):
        FastConformerSettings().check_features(FeatureSettings())
    with pytest.raises(SettingsError, match=r"top_db is 50.*set top_db to 0"):
        FastConformerSettings(top_db=50).check_features(FeatureSettings(kind="nemo_mel"))
    for key in ("volume", "silence"):
        with pytest.raises(SettingsError, match=rf"augment\.{key}: features of kind nemo_mel are normalized"):
            Augmentation(AugmentSettings(**{key: 0.5}), FeatureSettings(kind="nemo_mel"), None, np.ones(80, np.float32))


def test_fixed_statistics_make_training_normalize_as_inference_does() -> None:
    parakeet = Parakeet("fastconformer", fixed_statistics=True)
    features = parakeet.outputs["features"]
    lengths = parakeet.outputs["lengths"]
    trained, _ = parakeet.network(features, lengths, training=True)
    inferred, _ = parakeet.network(features, lengths)
    np.testing.assert_array_equal(trained, inferred)
    assert parakeet.network.normalizations == []


def test_a_graph_of_the_training_need_not_know_the_number_of_bins() -> None:
    parakeet = Parakeet("fastconformer")
    shapes = [tf.TensorSpec([None, None, None], tf.float32), tf.TensorSpec([None], tf.int32)]
    logits, _ = tf.function(parakeet.network, input_signature=shapes)(
        parakeet.outputs["features"], parakeet.outputs["lengths"]
    )
    assert_close(logits[0], parakeet.outputs["logits"][0], relative_to_peak=1e-4)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_stages_one_after_the_other_compute_what_the_network_does(stage: int) -> None:
    parakeet = Parakeet("fastconformer", padding=3)
    features = parakeet.outputs["features"]
    lengths = parakeet.outputs["lengths"]
    expected, expected_frames = parakeet.network(features, lengths)
    values, positions = parakeet.network.begin(features, lengths, stage)
    assert values.shape[2] == parakeet.settings.units
    logits, frames = parakeet.network.resume(values, positions, stage)
    assert frames.numpy().tolist() == expected_frames.numpy().tolist()
    assert_close(logits, expected, relative_to_peak=1e-6)
    assert [len(variables) for variables in parakeet.network.stages] == [12, 39, 39, 2]
    assert sum(map(len, parakeet.network.stages)) == len(parakeet.network.weights)


def test_weights_are_written_as_they_were_read(tmp_path: Path) -> None:
    parakeet = Parakeet("fastconformer")
    weights = {name: variable.numpy() for name, variable in parakeet.variables.items()}
    write_weights(tmp_path / "model.safetensors", weights, parakeet.names)
    (tmp_path / "config.json").write_text(json.dumps(parakeet.hub.config))
    again = read_weights(open_hub_model(str(tmp_path), "train.start.model", weights=True), parakeet.names)
    for name, weight in weights.items():
        np.testing.assert_array_equal(again[name], weight)


@pytest.mark.parametrize(("size", "layers", "units"), [("0.6b", 24, 1024), ("110m", 17, 512)])
def test_public_sizes_have_as_many_weights_as_in_transformers(size: str, layers: int, units: int) -> None:
    """1,024 tokens, 80 bins. Built as a graph, with one block: 2 GB of weights are not drawn."""
    settings = FastConformerSettings(layers=1, units=units, heads=8, channels=256)
    with tf.Graph().as_default():
        network = FastConformer(settings, mean=[0.0] * 80, deviation=[1.0] * 80, classes=1025)
    with np.load(HUB / "fastconformer" / "outputs.npz", allow_pickle=False) as outputs:
        expected = outputs[f"weights/{size}"]
    assert network.count_params() + (layers - 1) * network.blocks[0].count_params() == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": 60, "heads": 8}, "units is 60 and heads is 8"),
        ({"units": 9, "heads": 3}, "units is 9 and heads is 3"),
        ({"kernel": 6}, "a kernel of 6 has no center"),
    ],
)
def test_forms_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        AsrTrainSettings.of({"model": {"kind": "fastconformer", **changes}})

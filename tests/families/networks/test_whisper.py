"""Whisper: the encoder and the decoder beside those of `transformers`, whose weights and outputs are stored in hub/."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from voxline.errors import SettingsError, WorkError
from voxline.families.asr.hub_weights import WHISPER_DECODER, WHISPER_ENCODER, expand, read_weights, write_weights
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.families.asr.networks.whisper import Whisper, WhisperCtc, fill_with_silence, sinusoids
from voxline.registry.hub import open_hub_model
from voxline.training.weight_names import weight_names

HUB = Path(__file__).parent / "hub" / "whisper"
SETTINGS = WhisperSettings(
    layers=2, units=16, heads=2, positions=32, decoder_layers=2, tokens=60, token_positions=16, padding=0
)
NAMES = [*expand(WHISPER_ENCODER, 2), *expand(WHISPER_DECODER, 2)]


@pytest.fixture(scope="module")
def outputs() -> dict[str, Any]:
    with np.load(HUB / "outputs.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def load(network: Any) -> Any:
    """The network with the stored weights."""
    weights = read_weights(open_hub_model(str(HUB), "train.start.model", weights=True), NAMES)
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        variable.assign(weights[name])
    return network


@pytest.fixture(scope="module")
def whisper() -> Any:
    return load(Whisper(SETTINGS, bins=8))


def full(rows: int = 2) -> Any:
    return np.full(rows, 64, np.int32)


def test_every_weight_has_a_name_in_the_hub(whisper: Any) -> None:
    assert sorted(weight_names(whisper)) == sorted(row.ours for row in NAMES)


def test_the_encoder_equals_that_of_transformers(whisper: Any, outputs: dict[str, Any]) -> None:
    encoded, _ = whisper.encode(outputs["features"], full())
    np.testing.assert_allclose(encoded, outputs["encoded"], atol=1e-4)


def test_the_logits_of_the_decoder_equal_those_of_transformers(whisper: Any, outputs: dict[str, Any]) -> None:
    logits = whisper(outputs["features"], full(), outputs["tokens"])
    np.testing.assert_allclose(logits, outputs["logits"], atol=1e-4)


def test_gradients_equal_those_of_transformers(whisper: Any, outputs: dict[str, Any]) -> None:
    next_tokens = np.roll(outputs["tokens"], -1, axis=1)
    with tf.GradientTape() as tape:
        logits = whisper(outputs["features"], full(), outputs["tokens"])
        loss = tf.reduce_mean(ops.sparse_categorical_crossentropy(next_tokens, logits, from_logits=True))
    gradients = tape.gradient(loss, [variable.value for variable in whisper.trainable_variables])
    assert float(loss) == pytest.approx(float(outputs["loss"]), rel=1e-5)

    names = dict(zip((id(variable) for variable in whisper.weights), weight_names(whisper), strict=True))
    by_name = {
        names[id(variable)]: value for variable, value in zip(whisper.trainable_variables, gradients, strict=True)
    }
    for row in NAMES:
        if row.ours == "encoder/positions":  # not trained
            continue
        expected = outputs[f"gradients/{row.hub}"]
        value = tf.convert_to_tensor(by_name[row.ours]).numpy()
        value = value.T if row.layout == "dense" else value.transpose(2, 1, 0) if row.layout == "conv1d" else value
        np.testing.assert_allclose(value, expected, atol=1e-3 * abs(expected).max(), err_msg=row.hub)


def test_decoding_step_by_step_equals_decoding_at_once(whisper: Any, outputs: dict[str, Any]) -> None:
    encoded, mask = whisper.encode(outputs["features"], full())
    decoder = whisper.decoder
    memories = decoder.memories_of(encoded)
    cache = decoder.empty_cache(2)

    # A prompt of two tokens, then one at a time.
    tokens = outputs["tokens"]
    logits, cache = decoder.step(tokens[:, :2], cache, memories, mask)
    parts = [logits]
    for position in range(2, tokens.shape[1]):
        logits, cache = decoder.step(tokens[:, position : position + 1], cache, memories, mask)
        parts.append(logits)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), outputs["logits"], atol=1e-4)


def test_a_short_recording_is_heard_as_if_silence_followed_it(whisper: Any, outputs: dict[str, Any]) -> None:
    features = outputs["features"].copy()
    silence = max(features[1, :20].max() - 2, -1.5)
    features[1, 20:] = silence
    expected = whisper(features, full(), outputs["tokens"])

    features[1, 20:] = np.nan
    logits = whisper(features, np.array([64, 20]), outputs["tokens"])
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("padding", [0, 3])
def test_with_a_ctc_head_a_row_of_a_batch_equals_the_utterance_alone(padding: int, outputs: dict[str, Any]) -> None:
    settings = SETTINGS.model_copy(update={"padding": padding})
    network = WhisperCtc(settings, mean=[0.0] * 8, deviation=[1.0] * 8, classes=5, seed=3)
    features = outputs["features"][:, :50].copy()
    features[1, 21:] = np.nan
    logits, frames = network(features, np.array([50, 21]))
    assert frames.numpy().tolist() == [25 + padding, -(-(21 + 2 * padding) // 2)]

    alone, _ = network(features[1:, :21], np.array([21]))
    np.testing.assert_allclose(logits[1, : frames[1]], alone[0], atol=1e-5)


def test_silence_is_80_db_below_the_loudest_frame_and_no_less_than_digital_silence() -> None:
    features = np.array([[[1.0], [0.5], [9.0]], [[0.2], [-1.0], [9.0]]], np.float32)
    filled, frames = fill_with_silence(features, np.array([2, 2]), 4)
    assert frames.numpy().tolist() == [4, 4]
    np.testing.assert_allclose(filled[..., 0], [[1, 0.5, -1, -1], [0.2, -1, -1.5, -1.5]])


def test_positions_are_sinusoids() -> None:
    weights = read_weights(open_hub_model(str(HUB), "train.start.model", weights=True), NAMES)
    np.testing.assert_allclose(sinusoids(32, 16), weights["encoder/positions"], atol=1e-6)


def test_weights_are_written_as_the_hub_has_them(tmp_path: Path) -> None:
    model = open_hub_model(str(HUB), "train.start.model", weights=True)
    weights = read_weights(model, NAMES)
    write_weights(tmp_path / "model.safetensors", weights, NAMES)
    (tmp_path / "config.json").write_bytes((HUB / "config.json").read_bytes())
    again = read_weights(open_hub_model(str(tmp_path), "train.start.model", weights=True), NAMES)
    for name, value in weights.items():
        np.testing.assert_array_equal(again[name], value)


def test_another_network_s_weights_are_refused(tmp_path: Path) -> None:
    model = open_hub_model(str(HUB), "train.start.model", weights=True)
    with pytest.raises(WorkError, match=r"without model\.encoder\.layers\.2\.self_attn_layer_norm\.weight"):
        read_weights(model, expand(WHISPER_ENCODER, 3))


def test_heads_divide_the_units() -> None:
    with pytest.raises(SettingsError, match="multiple of heads"):
        WhisperSettings.of({"units": 16, "heads": 3})


@pytest.mark.parametrize("pooling", ["none", "utterance"])
@pytest.mark.parametrize("stage", [1, 2, 3, 4])
def test_stages_one_after_the_other_compute_what_the_network_does(
    stage: int, pooling: str, outputs: dict[str, Any]
) -> None:
    settings = SETTINGS.model_copy(update={"padding": 3, "pooling": pooling})
    network = WhisperCtc(settings, mean=[0.0] * 8, deviation=[1.0] * 8, classes=5, seed=3)
    features = outputs["features"][:, :50]
    lengths = np.array([50, 21])
    expected, expected_frames = network(features, lengths)

    values, positions = network.begin(features, lengths, stage)
    logits, frames = network.resume(values, positions, stage)
    np.testing.assert_array_equal(frames, expected_frames)
    for row, count in enumerate(frames.numpy()):
        np.testing.assert_allclose(logits[row, :count], expected[row, :count], atol=1e-5)
    assert sum(map(len, network.stages)) == len(network.weights)


def test_pooling_leaves_out_the_silence_around_an_utterance(outputs: dict[str, Any]) -> None:
    settings = SETTINGS.model_copy(update={"padding": 4, "pooling": "utterance"})
    network = WhisperCtc(settings, mean=[0.0] * 8, deviation=[1.0] * 8, classes=5, seed=3)
    values, frames = network.begin(outputs["features"][:, :20], np.array([20, 9]), 4)
    assert frames.numpy().tolist() == [1, 1]

    # 4 frames are 2 positions.
    padded, counts = network.begin(outputs["features"][:, :20], np.array([20, 9]), 3)
    for row, (count, real) in enumerate(zip(counts.numpy(), (10, 5), strict=True)):
        assert count == real + 4
        encoded = network.encoder.norm(padded[row : row + 1])[0, 2 : 2 + real].numpy()
        np.testing.assert_allclose(values[row, 0], np.concatenate([encoded.mean(0), encoded.max(0)]), atol=1e-5)

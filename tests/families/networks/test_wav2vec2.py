"""wav2vec 2.0, XLS-R, MMS and HuBERT against `transformers`: small models of random weights that the tests keep.

`make oracles` writes them again: benchmarks/peers/wav2vec2_transformers.py.
"""

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close, needs_bfloat16
from tests.conftest import ROOT
from tests.families.networks.pytorch_oracle import PEERS, WRITE
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.frontend import graph_features
from voxline.families.asr.hub_weights import (
    merge_weight_norm,
    read_weights,
    split_weight_norm,
    wav2vec2_names,
    write_weights,
)
from voxline.families.asr.networks import wav2vec2
from voxline.families.asr.networks.settings import DeepSpeech2Settings, Wav2Vec2Settings
from voxline.families.asr.networks.wav2vec2 import Wav2Vec2, draw_spans
from voxline.registry.hub import HubModel, open_hub_model
from voxline.training.weight_names import weight_names

HUB = Path(__file__).parent / "hub"
MODELS = ("wav2vec2", "xlsr", "mms", "hubert")
WAVEFORM = FeatureSettings(kind="waveform")


pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1 of a tensor of shape")
"""An utterance of one output frame has a softmax over one key."""


@pytest.fixture(scope="module", autouse=True)
def _written() -> None:
    if os.environ.get(WRITE):
        peer = ROOT / "benchmarks" / "peers" / "wav2vec2_transformers.py"
        subprocess.run([str(PEERS), str(peer), str(HUB)], check=True)


def open_model(name: str) -> HubModel:
    return open_hub_model(str(HUB / name), "train.start.model", weights=True)


def names_of(model: HubModel, settings: Wav2Vec2Settings) -> Any:
    return wav2vec2_names(settings, f"{model.config['model_type']}.")


@functools.cache
def network(name: str, *, language: str = "", precision: str = "float32", **changes: Any) -> Any:
    """A network with the weights of a public model."""
    model = open_model(name)
    settings = Wav2Vec2Settings.from_hub(model.config, **changes)
    weights = read_weights(model, names_of(model, settings), language)
    classes = weights["classifier/bias"].shape[0]
    wav2vec = Wav2Vec2(settings, mean=[0.0], deviation=[1.0], classes=classes, precision=precision)

    ours = weight_names(wav2vec)
    assert set(ours) == set(weights)
    for weight, variable in zip(ours, wav2vec.weights, strict=True):
        variable.assign(weights[weight])
    return wav2vec


@functools.cache
def outputs(name: str) -> dict[str, Any]:
    with np.load(HUB / name / "outputs.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def padded_features(name: str) -> tuple[Any, Any]:
    """Features [rows, samples, 1] with NaN beyond each row's end, and lengths."""
    arrays = outputs(name)
    lengths = arrays["lengths"].astype(np.int32)
    features = arrays["features"][:, :, None].copy()
    for row, length in enumerate(lengths):
        features[row, length:] = np.nan
    return features, lengths


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_each_row_of_a_padded_batch_are_those_of_the_row_alone_in_transformers(name: str) -> None:
    features, lengths = padded_features(name)
    logits, frames = network(name)(features, lengths)
    for row in range(len(lengths)):
        expected = outputs(name)[f"logits/{row}"]
        assert frames[row] == len(expected)
        np.testing.assert_allclose(logits[row, : frames[row]], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["xlsr", "mms"])
def test_logits_are_those_of_a_batch_with_an_attention_mask(name: str) -> None:
    features, lengths = padded_features(name)
    logits, frames = network(name)(features, lengths)
    for row, count in enumerate(frames.numpy()):
        np.testing.assert_allclose(logits[row, :count], outputs(name)["batch"][row, :count], rtol=0, atol=1e-4)


def test_a_language_of_mms_has_its_own_adapters_and_output_layer() -> None:
    features, lengths = padded_features("mms")
    logits, frames = network("mms", language="fra")(features, lengths)
    assert logits.shape[-1] == 12
    for row, count in enumerate(frames.numpy()):
        np.testing.assert_allclose(logits[row, :count], outputs("mms")[f"fra/logits/{row}"], rtol=0, atol=1e-4)
    with pytest.raises(SettingsError, match=r"mms: no adapter.deu.safetensors; .* languages are here: fra"):
        network("mms", language="deu")


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_a_step_are_those_of_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every weight, with spans of frames hidden; that of the positional kernel is of the merged one."""
    arrays = outputs(name)
    features, lengths = padded_features(name)
    wav2vec = network(name)
    monkeypatch.setattr(wav2vec2, "draw_spans", lambda *_, **__: tf.constant(arrays["hidden"]))
    with tf.GradientTape() as tape:
        logits, frames = wav2vec(features, lengths, training=True, noise=tf.constant([1, 2]))
        real = tf.sequence_mask(frames, tf.shape(logits)[1], tf.float32)[:, :, None]
        loss = tf.reduce_sum(tf.square(logits) * real) / len(lengths)
    gradients = dict(zip(weight_names(wav2vec), tape.gradient(loss, wav2vec.trainable_weights), strict=True))
    assert float(loss) == pytest.approx(float(arrays["loss"]), rel=1e-4)

    model = open_model(name)
    expected = {row.ours: (arrays[f"gradients/{row.hub}"], row.layout) for row in names_of(model, wav2vec.settings)}
    assert expected.keys() == gradients.keys()
    largest = max(float(np.abs(gradient).max()) for gradient, _ in expected.values())
    for weight, (gradient, layout) in expected.items():
        theirs = wav2vec2_layout(gradient, layout)
        difference = float(np.linalg.norm(gradients[weight] - theirs))
        # Keys' biases have no effect at all, so their gradients are rounding alone.
        assert difference <= 1e-3 * float(np.linalg.norm(theirs)) + 1e-6 * largest, weight


def wav2vec2_layout(value: Any, layout: str) -> Any:
    from voxline.families.asr.hub_weights import to_our_layout

    return to_our_layout(value, layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["wav2vec2", "mms"])
def test_weights_written_for_the_hub_are_those_that_were_read(name: str, tmp_path: Path) -> None:
    model = open_model(name)
    settings = Wav2Vec2Settings.from_hub(model.config)
    names = names_of(model, settings)
    weights = read_weights(model, names)
    write_weights(tmp_path / "model.safetensors", weights, names)
    (tmp_path / "config.json").write_bytes((model.folder / "config.json").read_bytes())
    again = read_weights(open_hub_model(str(tmp_path), "train.start.model", weights=True), names)
    assert again.keys() == weights.keys()
    for weight, value in weights.items():
        np.testing.assert_allclose(again[weight], value, rtol=1e-6, atol=0)


def test_a_kernel_with_weight_norm_is_split_into_its_norms_and_itself() -> None:
    random = np.random.default_rng(0)
    kernel = random.standard_normal((6, 2, 5)).astype(np.float32)
    magnitude, direction = split_weight_norm(kernel)
    assert magnitude.shape == (1, 1, 5)
    np.testing.assert_allclose(merge_weight_norm(2 * magnitude, 3 * direction), 2 * kernel, rtol=1e-6)


def test_a_weight_that_is_absent_is_named_unless_it_is_the_mask(tmp_path: Path) -> None:
    model = open_model("hubert")
    settings = Wav2Vec2Settings.from_hub(model.config)
    names = names_of(model, settings)
    weights = read_weights(model, names)
    (tmp_path / "config.json").write_bytes((model.folder / "config.json").read_bytes())

    write_weights(tmp_path / "model.safetensors", weights, [row for row in names if row.ours != "mask"])
    copy = open_hub_model(str(tmp_path), "train.start.model", weights=True)
    assert weights.keys() - read_weights(copy, names).keys() == {"mask"}

    write_weights(tmp_path / "model.safetensors", weights, [row for row in names if row.ours != "positions/kernel"])
    with pytest.raises(WorkError, match=r"without hubert\.encoder\.pos_conv_embed\.conv\.weight; weights of another"):
        read_weights(copy, names)


@pytest.mark.parametrize(
    ("changes", "classes", "expected"),
    [
        ({}, 32, 94_396_320),
        (
            {
                "convolution_norm": "layer",
                "convolution_bias": True,
                "norm_first": True,
                "layers": 24,
                "units": 1_024,
                "heads": 16,
                "feed_forward_units": 4_096,
            },
            32,
            315_471_520,
        ),
        (
            {
                "convolution_norm": "layer",
                "convolution_bias": True,
                "norm_first": True,
                "layers": 48,
                "units": 1_280,
                "heads": 16,
                "feed_forward_units": 5_120,
                "adapter": 16,
            },
            154,
            964_845_850,
        ),
    ],
    ids=["base", "large", "mms-1b"],
)
def test_full_sizes_have_as_many_weights_as_in_transformers(
    changes: dict[str, Any], classes: int, expected: int
) -> None:
    """Theirs, counted on PyTorch's meta device, have the magnitudes of the positional kernel besides."""
    settings = Wav2Vec2Settings(**changes)
    with keras.StatelessScope(initialize_variables=False):
        wav2vec = Wav2Vec2(settings, mean=[0.0], deviation=[1.0], classes=classes)
    assert wav2vec.count_params() + settings.position_kernel == expected


def test_output_frames_are_those_that_the_settings_promise() -> None:
    wav2vec = network("hubert")
    settings = wav2vec.settings
    assert (settings.window_frames, settings.time_stride) == (400, 320)
    lengths = np.array([1_039, 719, 720, 400, 399, 1], np.int32)
    logits, frames = wav2vec(np.ones((6, 1_039, 1), np.float32), lengths)
    assert frames.numpy().tolist() == [max((n - 400) // 320 + 1, 1) for n in lengths] == [2, 1, 2, 1, 1, 1]
    assert logits.shape == (6, 2, 11)
    short, _ = wav2vec(np.ones((1, 399, 1), np.float32), lengths[4:5])
    assert_close(short[0], logits[4, :1], relative_to_peak=1e-4)


@pytest.mark.parametrize("name", ["wav2vec2", "xlsr"])
def test_padding_samples_are_zeros_around_the_utterance(name: str) -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((1, 900, 1)).astype(np.float32)
    logits, frames = network(name, padding=250)(features, np.array([900]))
    around = np.pad(features, [(0, 0), (250, 250), (0, 0)])
    expected, _ = network(name)(around, np.array([1_400]))
    assert frames.numpy().tolist() == [(1_400 - 400) // 320 + 1]
    assert_close(logits, expected, relative_to_peak=1e-5)


def step(wav2vec: Any, noise: list[int], *, training: bool = True) -> Any:
    features, lengths = padded_features("mms")
    logits, _ = wav2vec(features[1:2, :2_311], lengths[1:2], training=training, noise=tf.constant(noise))
    return logits.numpy()


EVERY_DROPOUT = ("hidden_dropout", "attention_dropout", "activation_dropout", "projection_dropout", "final_dropout")


@pytest.mark.parametrize("key", [*EVERY_DROPOUT, "layer_drop", "time_masks", "unit_masks"])
def test_noise_determines_what_a_step_hides_and_nothing_is_hidden_outside_training(key: str) -> None:
    none = {"time_masks": 0.0, "least_time_masks": 0, "time_mask_frames": 2, "unit_mask_width": 3}
    quiet = network("mms", **none)
    noisy = network("mms", **{**none, key: 0.4})
    plain = step(quiet, [3, 5])
    np.testing.assert_array_equal(plain, step(noisy, [3, 5], training=False))
    drawn = [step(noisy, [3, number]) for number in range(3)]
    np.testing.assert_array_equal(drawn[1], step(noisy, [3, 1]))
    assert any(np.abs(values - plain).max() > 1e-2 for values in drawn)
    assert any(np.abs(values - drawn[0]).max() > 1e-2 for values in drawn)


def test_spans_are_whole_within_their_row_and_as_many_as_their_share() -> None:
    lengths = np.array([200, 57, 12, 10, 9, 0], np.int32)
    draw_hidden = tf.function(functools.partial(draw_spans, lengths, 200, share=0.3, width=10, least=1, stream=3))
    covered = np.zeros((400, 6))
    shares = np.zeros((400, 200))
    for draw in range(400):
        hidden = draw_hidden(noise=tf.constant([11, draw])).numpy()
        covered[draw] = hidden.sum(axis=1)
        shares[draw] = hidden[0]
        for row, length in enumerate(lengths):
            assert not hidden[row, length:].any()
            runs = np.diff(np.flatnonzero(np.diff(np.pad(hidden[row], 1).astype(int)))[: 2 * length])[::2]
            assert (runs >= 10).all()

    # 200 · 0.3 / 10 is 6 spans exactly; of 57 frames 1.71, so one or two; one where there is room, else none.
    assert covered[:, 0].min() > 10
    assert covered[:, 0].max() == 60
    assert 0.6 < np.mean(covered[:, 1] > 10) < 0.82
    assert (covered[:, 2:4] == 10).all()
    assert (covered[:, 4:] == 0).all()
    # Starts are uniform, so the middle is hidden everywhere alike, by 10 of 191 starts for each of 6 spans.
    expected = 1 - np.prod([1 - 10 / (191 - span) for span in range(6)])
    assert abs(shares[:, 20:180].mean() - expected) < 0.01
    assert shares[:, 20:180].mean(axis=0).std() < 0.035


@pytest.mark.parametrize(("name", "masks"), [("hubert", 0.0), ("mms", 0.0), ("xlsr", 0.4)])
def test_stages_one_after_the_other_are_the_network(name: str, masks: float) -> None:
    """With masks only the convolutions are a stage of their own, and the step hides the same spans."""
    wav2vec = network(name, time_masks=masks, least_time_masks=1, time_mask_frames=2)
    features, lengths = padded_features(name)
    how = {"training": True, "noise": tf.constant([1, 2])}
    expected, frames = wav2vec(features, lengths, **how)
    stages = wav2vec.stages
    assert len(stages) == (2 if masks else 6)
    of_stages = [id(variable) for variables in stages for variable in variables]
    assert len(set(of_stages)) == len(of_stages)
    assert len(of_stages) == len(wav2vec.weights) - (0 if masks else 1)  # nothing is hidden, so the mask is in no stage
    for number in range(1, len(stages)):
        values, positions = wav2vec.begin(features, lengths, number)
        np.testing.assert_array_equal(positions, frames)
        logits, _ = wav2vec.resume(values, positions, number, **how)
        assert_close(logits, expected, relative_to_peak=1e-5)


def test_the_exported_graph_takes_any_length_and_is_the_network() -> None:
    wav2vec = network("wav2vec2")
    graph = tf.function(
        lambda features, frames: wav2vec(features, frames),
        input_signature=[tf.TensorSpec([None, None, 1]), tf.TensorSpec([None], tf.int32)],
    )
    features, lengths = padded_features("wav2vec2")
    for rows, samples in ((3, 5_000), (1, 160)):
        logits, frames = graph(features[:rows, :samples], np.minimum(lengths[:rows], samples))
        expected, same = wav2vec(features[:rows, :samples], np.minimum(lengths[:rows], samples))
        np.testing.assert_array_equal(frames, same)
        assert_close(logits[0, : frames[0]], expected[0, : frames[0]], relative_to_peak=1e-5)


@needs_bfloat16
def test_in_bfloat16_logits_differ_by_rounding() -> None:
    features, lengths = padded_features("xlsr")
    exact, frames = network("xlsr")(features, lengths)
    logits, _ = network("xlsr", precision="mixed_bfloat16")(features, lengths)
    assert logits.dtype == tf.float32
    for row, count in enumerate(frames.numpy()):
        assert_close(logits[row, :count], exact[row, :count], relative_to_peak=0.06)


@pytest.mark.parametrize("name", MODELS)
def test_features_are_those_of_the_feature_extractor(name: str) -> None:
    arrays = outputs(name)
    lengths = arrays["lengths"].astype(np.int32)
    waveforms = arrays["waveforms"].copy()
    for row, length in enumerate(lengths):
        expected = arrays["features"][row, :length, None]
        np.testing.assert_allclose(compute_features(waveforms[row, :length], WAVEFORM), expected, rtol=0, atol=1e-4)
        waveforms[row, length:] = np.nan

    waveforms_of_graph, frames = graph_features(waveforms, lengths, WAVEFORM)
    np.testing.assert_array_equal(frames, lengths)
    np.testing.assert_allclose(waveforms_of_graph[:, :, 0], arrays["features"], rtol=0, atol=1e-4)


def test_the_network_and_the_features_of_waveforms_belong_together() -> None:
    with pytest.raises(SettingsError, match=r"kind is wav2vec2, .*kind is log_mel.*set extract.features.kind to that"):
        Wav2Vec2Settings().check_features(FeatureSettings())
    with pytest.raises(SettingsError, match=r"kind is deepspeech2, .*kind is waveform.*log_mel, mfcc or linear"):
        DeepSpeech2Settings().check_features(WAVEFORM)
    with pytest.raises(SettingsError, match=r"train\.model\.top_db is 50, and samples have no level"):
        Wav2Vec2Settings(top_db=50).check_features(WAVEFORM)
    Wav2Vec2Settings().check_features(WAVEFORM)


def test_parts_that_the_network_lacks_are_refused_by_their_key() -> None:
    config = open_model("hubert").config
    with pytest.raises(SettingsError, match=r"conv_pos_batch_norm is True, .*accepted: False or None"):
        Wav2Vec2Settings.from_hub({**config, "conv_pos_batch_norm": True})
    with pytest.raises(SettingsError, match=r"model_type is 'wavlm', .*accepted: 'wav2vec2' or 'hubert'"):
        Wav2Vec2Settings.from_hub({**config, "model_type": "wavlm"})
    with pytest.raises(SettingsError, match=r"adapter is 16, and norm_first is false"):
        Wav2Vec2Settings.from_hub({**config, "adapter_attn_dim": 16})

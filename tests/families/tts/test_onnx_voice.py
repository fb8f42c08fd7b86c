"""The ONNX graph of a voice computes what its network computes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.closeness import assert_close
from tests.training.tones import TTS_SIZES
from voxline.errors import SettingsError
from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.settings import FastSpeechSettings, Tacotron2Settings
from voxline.families.tts.networks.tacotron2 import Tacotron2
from voxline.families.tts.onnx import check_onnx_voice, export_onnx_voice

RANDOM = np.random.default_rng(7)
SYMBOLS, MELS = 9, 5


def normalization(bins: int = MELS) -> dict[str, Any]:
    return {"mean": RANDOM.normal(-3, 1, bins).tolist(), "deviation": RANDOM.uniform(0.5, 2, bins).tolist()}


def check_against(model: Any, max_steps: int, reduction: int = 1, speakers: Sequence[int] = ()) -> Any:
    """Both forms on a padded batch, as speakers of these rows; returns the network's output."""
    who: dict[str, Any] = {"speakers": np.array(speakers, np.int32)} if speakers else {}
    labels, counts = RANDOM.integers(0, SYMBOLS, (3, 11)).astype(np.int32), np.array([11, 4, 1], np.int32)
    wanted = model.synthesize(labels, counts, max_steps=max_steps, noise=(7, 0), reduction=reduction, **who)
    graph = export_onnx_voice(
        model, max_steps=max_steps, reduction=reduction, noise=(7, 0), several_speakers=bool(speakers)
    )
    session = onnxruntime.InferenceSession(graph)
    mels, frames, alignments, hit_limit = session.run(None, {"symbols": labels, "lengths": counts, **who})
    np.testing.assert_array_equal(frames, wanted.frames)
    np.testing.assert_array_equal(hit_limit, wanted.hit_limit)
    assert_close(alignments, wanted.alignment, relative_to_peak=1e-5)
    raw = model.denormalize(wanted.mels).numpy()
    for row, length in enumerate(frames):
        assert_close(mels[row, :length], raw[row, :length], relative_to_peak=1e-4)
        assert not mels[row, length:].any()
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("energy", "pitch", "max_steps"),
    [(True, False, 40), (False, False, 400), (True, True, 400), (False, True, 40)],
)
def test_fastspeech_is_the_networks(energy: bool, pitch: bool, max_steps: int) -> None:
    settings = FastSpeechSettings.of({**TTS_SIZES["fastspeech"], "energy": energy, "pitch": pitch})
    bins = MELS + 3 * pitch
    model = FastSpeech(settings, symbols=SYMBOLS, bins=bins, mels=MELS, **normalization(bins))
    for weight in model.weights:
        weight.assign(RANDOM.standard_normal(weight.shape) * (0.6 if weight.ndim == 1 else 0.3))
    model.duration.last.kernel.assign(0.2 * model.duration.last.kernel)
    model.duration.last.bias.assign([2.0])
    output = check_against(model, max_steps)
    assert output.hit_limit.numpy().any() == (max_steps == 40)
    assert len(set(output.frames.numpy().tolist())) == 3


@pytest.mark.parametrize("speakers", [(), (2, 0, 1)])
def test_fastspeech_of_several_speakers_is_the_networks(speakers: tuple[int, ...]) -> None:
    """Without the input, the settings' speaker says all texts."""
    table = {"speakers": 3, "speaker_units": 4, "speaker": 2}
    settings = FastSpeechSettings.of({**TTS_SIZES["fastspeech"], **table})
    model = FastSpeech(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, **normalization())
    for weight in model.weights:
        weight.assign(RANDOM.standard_normal(weight.shape) * (0.6 if weight.ndim == 1 else 0.3))
    model.duration.last.bias.assign([2.0])
    check_against(model, 400, speakers=speakers)


def test_a_network_without_a_graph_is_refused_by_name() -> None:
    with pytest.raises(
        SettingsError,
        match=r"train\.export\.onnx: no ONNX graph is known for .*'tacotron'; accepted: fastspeech, tacotron2",
    ):
        check_onnx_voice("tacotron", "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reduction"),
    [
        ({"reduction": 2}, 2),
        ({"decoder_layers": 1, "encoder_convolutions": 0, "postnet_layers": 0, "zoneout": 0.0,
          "attention": {"smoothing": True, "location": "cumulative"}}, 1),
    ],
)  # fmt: skip
def test_tacotron2_is_the_networks(changes: dict[str, Any], reduction: int) -> None:
    settings = Tacotron2Settings.of({**TTS_SIZES["tacotron2"], **changes})
    model = Tacotron2(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, **normalization())
    for weight in model.weights:
        spread = RANDOM.standard_normal(weight.shape) * 0.25
        weight.assign(np.abs(spread) + 0.5 if weight.name == "moving_variance" else spread)
    model.decoder.stop_kernel.assign(8 * model.decoder.stop_kernel)
    model.decoder.stop_bias.assign(model.decoder.stop_bias - 1)
    output = check_against(model, 12, reduction)
    assert not output.hit_limit.numpy().all()


@pytest.fixture(scope="module", params=[{}, {"decoder_layers": 1}], ids=["two layers", "one layer"])
def talker(request: pytest.FixtureRequest) -> Tacotron2:
    """Random weights of which each layer matters, and widths that are no multiple of a block."""
    settings = Tacotron2Settings.of({**TTS_SIZES["tacotron2"], "decoder_units": 130, **request.param})
    model = Tacotron2(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, **normalization())
    chance = np.random.default_rng(5)
    for weight in model.weights:
        spread = chance.standard_normal(weight.shape) * 0.13  # more, and an error grows from step to step
        weight.assign(np.abs(spread) + 0.5 if weight.name == "moving_variance" else spread)
    model.decoder.stop_bias.assign(model.decoder.stop_bias - 99)
    return model


def speak(model: Any, precision: Any, labels: Any, counts: Any) -> Any:
    session = onnxruntime.InferenceSession(export_onnx_voice(model, max_steps=6, reduction=1, precision=precision))
    return session.run(None, {"symbols": labels, "lengths": counts})[0]


def test_weights_of_8_bits_hardly_change_tacotron2(talker: Tacotron2) -> None:
    precision, error = "int8", 0.02
    labels, counts = np.arange(33, dtype=np.int32).reshape(3, 11) % SYMBOLS, np.array([11, 4, 1], np.int32)
    whole, rounded = (speak(talker, each, labels, counts) for each in ("float32", precision))
    assert error / 20 < np.sqrt(np.square(whole - rounded).mean()) / whole.std() < error
    for row, length in enumerate(counts):
        alone = speak(talker, precision, labels[row : row + 1, :length], counts[row : row + 1])
        np.testing.assert_allclose(alone[0], rounded[row], atol=2e-3 * whole.std())

"""Exports in half precision compute what those in float32 do but for rounding, and keep their weights in float32."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from tests.families.test_exported_ops import (
    FEATURES,
    LINEAR,
    PROSODY,
    SIZES_OF_VOCODERS,
    SMALL_TACOTRON,
    dataset_of,
    public_voice,
    recognizer,
    vocoder,
    voice,
    weights_of,
)
from tests.training.tones import make_utterances, tiny_asr_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.asr.settings import AsrExportForm
from voxline.families.asr.task import AsrTask
from voxline.families.family import find_family
from voxline.families.tts.settings import TtsExportForm
from voxline.families.vocoder.settings import VocoderExportForm, VocoderTrainSettings
from voxline.families.vocoder.task import export_vocoder
from voxline.families.vocoder.train_module import build_vocoder
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import check_graph, read_model_info
from voxline.inference.timing import TimingInput, time_model
from voxline.training.export import VARIABLES
from voxline.training.trainer import Trainer

BFLOAT16 = "mixed_bfloat16"
FLOAT16 = "mixed_float16"
MANTISSA = {BFLOAT16: 2.0**-8, FLOAT16: 2.0**-11}
"""The rounding of a number."""
RECOGNIZERS = {
    "deepspeech": recognizer(kind="deepspeech"),
    "deepspeech2": recognizer(kind="deepspeech2", export={"frequency_warps": [0.9, 1]}),
    "conformer": recognizer(kind="conformer"),
    "fastconformer": recognizer(FeatureSettings(kind="nemo_mel"), kind="fastconformer"),
    "whisper": recognizer(FeatureSettings(kind="whisper"), kind="whisper", layers=1, units=16, heads=2),
    "wav2vec2": recognizer(FeatureSettings(kind="waveform"), kind="wav2vec2"),
}
VOICES = {
    "tacotron": voice("tacotron", LINEAR, model=SMALL_TACOTRON),
    "tacotron2": voice("tacotron2"),
    "fastspeech": voice("fastspeech", PROSODY, sharpened=True, model={"pitch": True}),
}


def stirred_waveglow(folder: Path) -> None:
    """With random weights where a WaveGlow begins at zero, so that its network counts."""
    settings = VocoderTrainSettings.of({"model": {"kind": "waveglow", **SIZES_OF_VOCODERS["waveglow"]}})
    dataset = dataset_of(FEATURES)
    random = np.random.default_rng(0)
    weights = {
        name: (value + random.normal(0, 0.02, value.shape)).astype(np.float32)
        for name, value in weights_of(build_vocoder(settings, dataset, "float32")).items()
    }
    export_vocoder(folder, settings, dataset, weights, {})


VOCODERS = {
    **{kind: vocoder(kind=kind, **SIZES_OF_VOCODERS[kind]) for kind in ("vocos", "hifigan")},
    "waveglow": stirred_waveglow,
}
FORMS: dict[str, Any] = {"asr": AsrExportForm, "tts": TtsExportForm, "vocoder": VocoderExportForm}


def trials(networks: Iterable[str]) -> list[tuple[str, str]]:
    """Each network in bfloat16, the last one in float16 too."""
    names = list(networks)
    return [*((name, BFLOAT16) for name in names), (names[-1], FLOAT16)]


def in_precision(model: Path, precision: str, folder: Path) -> Path:
    """The model exported again; all else of its form stays."""
    info = read_model_info(model)
    export = {**info.settings["export"], "precision": precision}
    form = FORMS[info.family].of({"export": {key: value for key, value in export.items() if value != ""}})
    find_family(info.family).export_again(model, form, folder)
    return folder


def pair(write: Callable[[Path], None], precision: str, folder: Path) -> tuple[Any, Any]:
    """The signatures of a model in float32 and in another precision, whose files hold the same weights."""
    write(folder / "float32")
    other = in_precision(folder / "float32", precision, folder / precision)
    check_graph(other)
    weights, others = (tf.train.load_checkpoint(str(each / VARIABLES)) for each in (folder / "float32", other))
    names = [name for name in weights.get_variable_to_dtype_map() if name.startswith("weights/")]
    assert names
    for name in names:
        assert others.get_variable_to_dtype_map()[name] == tf.float32
        np.testing.assert_array_equal(others.get_tensor(name), weights.get_tensor(name))

    # Half precision is there at all: a product of the network has it.
    graph = parse_saved_model(str(other)).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    half = tf.bfloat16.as_datatype_enum if precision == BFLOAT16 else tf.float16.as_datatype_enum
    assert any(node.attr["T"].type == half for node in nodes if "MatMul" in node.op or "Conv" in node.op)
    return tuple(tf.saved_model.load(str(each)).signatures for each in (folder / "float32", other))  # type: ignore[return-value]


def assert_rounded(outputs: Any, expected: Any, precision: str, roundings: float) -> None:
    """Checks float32 outputs: their distance is so many roundings of the spread of what is expected, by the mean."""
    assert outputs.dtype == tf.float32
    difference = np.abs(outputs.numpy() - expected.numpy()).mean()
    spread = np.abs(expected.numpy() - expected.numpy().mean()).mean()
    assert difference <= roundings * MANTISSA[precision] * spread
    assert difference > 0


@pytest.mark.slow
@pytest.mark.parametrize(("network", "precision"), trials(RECOGNIZERS))
def test_a_recognizer_hears_the_same_but_for_rounding(network: str, precision: str, tmp_path: Path) -> None:
    whole, half = pair(RECOGNIZERS[network], precision, tmp_path)
    waveforms = np.random.default_rng(0).normal(0, 0.1, (2, 8_000)).astype(np.float32)
    inputs = {"waveforms": tf.constant(waveforms), "lengths": tf.constant([8_000, 6_000])}
    expected = whole["logits"](**inputs)
    outputs = half["logits"](**inputs)
    np.testing.assert_array_equal(outputs["frames"], expected["frames"])
    assert_rounded(outputs["logits"], expected["logits"], precision, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "precision"), trials(VOICES))
def test_a_voice_says_the_same_but_for_rounding(network: str, precision: str, tmp_path: Path) -> None:
    whole, half = pair(VOICES[network], precision, tmp_path)
    bins = {"tacotron": LINEAR, "tacotron2": FEATURES, "fastspeech": PROSODY}[network].bins
    inputs = {
        "symbols": tf.constant([[0, 1, 2, 3], [1, 2, 0, 0]]),
        "lengths": tf.constant([4, 2]),
        "features": tf.random.stateless_normal([2, 12, bins], [0, 1]),
        "frames": tf.constant([12, 8]),
    }
    expected = whole["teacher_forced"](**inputs)
    outputs = half["teacher_forced"](**inputs)
    assert_rounded(outputs["mels"], expected["mels"], precision, 4)
    spoken = half["synthesize"](symbols=inputs["symbols"], lengths=inputs["lengths"])
    assert np.isfinite(spoken["waveforms"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("network", "precision"), trials(VOCODERS))
def test_a_vocoder_makes_the_same_but_for_rounding(network: str, precision: str, tmp_path: Path) -> None:
    whole, half = pair(VOCODERS[network], precision, tmp_path)
    inputs = {"mels": tf.random.stateless_normal([2, 20, FEATURES.mels], [0, 1]), "frames": tf.constant([20, 12])}
    expected = whole["vocode"](**inputs)
    outputs = half["vocode"](**inputs)
    np.testing.assert_array_equal(outputs["samples"], expected["samples"])
    assert_rounded(outputs["waveforms"], expected["waveforms"], precision, 4)


@pytest.mark.slow
def test_a_vits_makes_the_same_but_for_rounding_of_its_decoder(tmp_path: Path) -> None:
    whole, half = pair(public_voice, BFLOAT16, tmp_path)
    inputs = {
        "symbols": tf.constant([[1, 2, 3, 4]]),
        "lengths": tf.constant([4]),
        "rates": tf.ones([1, 4]),
        "scales": tf.constant([0.0, 1.0, 0.0]),
    }
    expected = whole["synthesize"](**inputs)
    outputs = half["synthesize"](**inputs)
    np.testing.assert_array_equal(outputs["frames"], expected["frames"])
    assert_rounded(outputs["waveforms"], expected["waveforms"], BFLOAT16, 4)


@pytest.mark.slow
def test_a_trained_recognizer_has_the_error_rate_of_float32(tmp_path: Path) -> None:
    spoken = make_utterances(160, 24)
    task = AsrTask(tiny_asr_settings(epochs=12), write_dataset(tmp_path / "dataset", spoken))
    trained = Trainer(task, tmp_path / "run").fit()
    task.export(tmp_path / "float32", trained.weights, {})
    waveforms = [each.waveform for each in spoken if each.split == "dev"]
    texts = [each.text for each in spoken if each.split == "dev"]
    heard = {}
    for precision in ("float32", BFLOAT16, FLOAT16):
        folder = tmp_path / "float32"
        if precision != "float32":
            folder = in_precision(folder, precision, tmp_path / precision)
        heard[precision] = [transcript.text for transcript in Recognizer(folder).recognize_waveforms(waveforms)]
        timing = time_model(folder, TimingInput(length=1.0, iterations=1))
        assert timing["model"]["arithmetic"] == precision
    assert np.mean([text == said for text, said in zip(heard["float32"], texts, strict=True)]) > 0.8
    assert heard[BFLOAT16] == heard[FLOAT16] == heard["float32"]


def test_half_precision_is_refused_beside_onnx() -> None:
    for form in FORMS.values():
        with pytest.raises(SettingsError, match="ONNX graphs compute on processors and in float32; set onnx to none"):
            form.of({"export": {"precision": BFLOAT16, "onnx": "float32"}})

"""An export with an int8 decoder: close to float32, and judged as it ships."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.train.tones import FEATURES, LETTERS, make_utterances, tiny_tts_settings, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.tts.export import export_tts
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.components.train.tts.train_module import INFERENCE_NOISE, build_tts_model, denormalize_output
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.inference.int8_decoder import Int8Decoder
from voxline.inference.saved_model import model_digest
from voxline.inference.synthesizer import Synthesizer

TEXTS = ["abcd", "a", "ddbcacbd"]
LINEAR = FeatureSettings(**{**FEATURES.plain(), "kind": "mel_and_linear"})
# As small as possible around the decoder, which alone is int8.
CASES: dict[str, dict[str, Any]] = {
    "tacotron2": {"postnet_layers": 1},
    "one LSTM, no location, smoothing, no dropout": {
        "decoder_layers": 1,
        "prenet_dropout_at_inference": False,
        "encoder_lstm": 0,
        "postnet_layers": 0,
        "attention": {"units": 16, "location_filters": 0, "smoothing": True},
    },
    "tacotron": {
        "kind": "tacotron",
        **dict.fromkeys(("encoder_bank", "postnet_bank"), 1),
        **dict.fromkeys(("encoder_gru", "postnet_gru", "highways"), 0),
        "attention": {"units": 16, "location_filters": 4, "location_kernel": 7, "location": "cumulative"},
    },
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder, spoken = tmp_path_factory.mktemp("datasets"), make_utterances(6, 2)
    return {
        "tacotron2": write_dataset(folder / "mels", spoken),
        "tacotron": write_dataset(folder / "both", spoken, how=LINEAR),
    }


def untrained(dataset: Dataset, decoder: str, stop: tuple[float, ...], **model: Any) -> tuple[Any, TtsTrainSettings]:
    """A network of random weights, the same each time, that ends where `stop`, the biases of a step's frames, says."""
    kind = model.pop("kind", "tacotron2")
    settings = tiny_tts_settings(kind, model=model, export={"decoder": decoder}, max_seconds=0.5)
    made = build_tts_model(settings, dataset, portable=True)
    made.decoder.stop_bias.assign(np.array(stop, np.float32))
    return made, settings


def exported(folder: Path, dataset: Dataset, decoder: str, stop: tuple[float, ...], **model: Any) -> Path:
    made, settings = untrained(dataset, decoder, stop, **model)
    weights = {f"model/{index}": np.asarray(variable) for index, variable in enumerate(made.weights)}
    export_tts(folder, settings, dataset, weights, {"best_step": 0})
    return folder


NEVER = (-9.0, -9.0, -9.0)


@pytest.fixture(scope="module")
def voice(datasets: dict[str, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The int8 export of the first case."""
    folder = tmp_path_factory.mktemp("voice") / "model"
    return exported(folder, datasets["tacotron2"], "int8", NEVER, **CASES["tacotron2"])


@pytest.mark.parametrize("case", CASES)
def test_int8_synthesis_is_close_to_float32(
    case: str, datasets: dict[str, Dataset], voice: Path, tmp_path: Path
) -> None:
    model = CASES[case]
    dataset = datasets[model.get("kind", "tacotron2")]
    folder = voice if case == "tacotron2" else exported(tmp_path / "int8", dataset, "int8", NEVER, **model)
    speaker = Synthesizer(folder)
    spoken = speaker.synthesize_symbols(TEXTS)
    network, _ = untrained(dataset, "float32", NEVER, **model)
    reduction, steps = speaker.about["reduction"], speaker.about["max_steps"]
    labels = np.zeros((len(TEXTS), max(map(len, TEXTS))), np.int32)
    for row, text in enumerate(TEXTS):
        labels[row, : len(text)] = [LETTERS.index(letter) for letter in text]
    wanted = network.synthesize(
        labels, np.array([*map(len, TEXTS)], np.int32), max_steps=steps, noise=INFERENCE_NOISE, reduction=reduction
    )
    mels, _ = denormalize_output(network, wanted.mels, wanted.linear)
    mean, deviation = (np.array(each[: dataset.features.mels]) for each in (dataset.mean, dataset.deviation))
    for row, (text, found) in enumerate(zip(TEXTS, spoken, strict=True)):
        assert found.symbols == text
        assert found.hit_limit
        assert len(found.mels) == wanted.frames[row] == reduction * steps
        assert len(found.waveform) == dataset.features.count_samples(len(found.mels))
        apart = np.abs(found.mels - mels[row, : len(found.mels)]) / deviation
        said = np.abs(mels[row, : len(found.mels)] - mean) / deviation
        assert 0 < apart.mean() < 0.03 * said.mean()  # not 0: or the weights would not have been rounded
        np.testing.assert_allclose(found.alignment, wanted.alignment[row, :, : len(text)], atol=0.02)
    if case == "tacotron":  # test_step.py has the float32 export of the other kind
        whole = Synthesizer(exported(tmp_path / "float32", dataset, "float32", NEVER, **model))
        for row, (found, rounded) in enumerate(zip(whole.synthesize_symbols(TEXTS), spoken, strict=True)):
            assert_close(found.mels, mels[row, : len(found.mels)], relative_to_peak=1e-4)
            assert found.hit_limit
            assert found.waveform.shape == rounded.waveform.shape


def test_synthesis_ends_at_the_first_stop_frame(datasets: dict[str, Dataset], tmp_path: Path) -> None:
    model = {"encoder_lstm": 0, "decoder_layers": 1, "postnet_layers": 0}
    folder = exported(tmp_path / "model", datasets["tacotron2"], "int8", (-9.0, 9.0, -9.0), **model)
    (spoken,) = Synthesizer(folder).synthesize_symbols(["abc"])
    assert len(spoken.mels) == 2
    assert not spoken.hit_limit


def test_a_text_sounds_the_same_alone_and_in_a_batch(voice: Path) -> None:
    speaker = Synthesizer(voice)
    for text, together in zip(TEXTS, speaker.synthesize_symbols(TEXTS), strict=True):
        (alone,) = speaker.synthesize_symbols([text])
        assert_close(alone.mels, together.mels, relative_to_peak=1e-3)


def test_the_digest_of_a_model_covers_its_decoder(voice: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(voice, tmp_path / "model"))
    assert model_digest(other) == model_digest(voice)
    decoder = other / "decoder.tflite"
    decoder.write_bytes(decoder.read_bytes()[:-1] + b"\x07")
    assert model_digest(other) != model_digest(voice)


def test_an_int8_export_has_no_float32_synthesis_signature(voice: Path) -> None:
    import tensorflow as tf

    assert sorted(tf.saved_model.load(str(voice)).signatures) == ["encode", "refine", "refine_mels", "teacher_forced"]
    assert json.loads((voice / "model.json").read_text())["decoder"] == "int8"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"no decoder\.tflite.*run train again"),
        (b"", "not a decoder step"),
        (b"not a model" * 9, "not a decoder step"),
    ],
)
def test_a_missing_or_damaged_decoder_is_named(content: bytes | None, why: str, voice: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(voice, tmp_path / "model"))
    if content is None:
        (folder / "decoder.tflite").unlink()
    else:
        (folder / "decoder.tflite").write_bytes(content)
    with pytest.raises(WorkError, match=why):
        Synthesizer(folder)


def test_a_truncated_decoder_is_named(voice: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(voice, tmp_path / "model"))
    decoder = folder / "decoder.tflite"
    decoder.write_bytes(decoder.read_bytes()[: decoder.stat().st_size // 2])
    with pytest.raises(WorkError, match="not a decoder step"):
        Synthesizer(folder)


def test_a_decoder_that_reads_a_file_is_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32, "own")])
    def step(own: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"made": own + tf.cast(tf.strings.length(tf.io.read_file("/etc/hostname")), tf.float32)}

    converter = tf.lite.TFLiteConverter.from_concrete_functions([step.get_concrete_function()])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    (tmp_path / "decoder.tflite").write_bytes(converter.convert())
    with pytest.raises(WorkError, match=r"decoder\.tflite: uses ReadFile.*not loaded"):
        Int8Decoder(tmp_path)


def test_an_unknown_kind_of_decoder_is_refused(voice: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(voice, tmp_path / "model"))
    model_info = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**model_info, "decoder": "int4"}))
    with pytest.raises(WorkError, match="'int4'; this Voxline knows float32 and int8"):
        Synthesizer(folder)


FRESH = """
import sys
from voxline.inference.synthesizer import Synthesizer
(spoken,) = Synthesizer(sys.argv[1]).synthesize_symbols(["abcd"])
print(len(spoken.mels), "keras" in sys.modules, "voxline.components.train" in sys.modules)
"""


def test_a_new_process_synthesizes_without_keras_and_without_warnings(voice: Path) -> None:
    command = [sys.executable, "-c", FRESH, str(voice)]
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr[-2_000:]
    assert process.stdout.split()[1:] == ["False", "False"]
    assert "TensorFlow Lite" not in process.stderr
    assert "deprecated" not in process.stderr

"""The step export: the weights of a trained model in the form that a config asks for, and nothing trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.families.test_exported_ops import PROSODY, SIZES_OF_VOCODERS, Export, recognizer, vocoder, voice
from tests.training.tones import tiny_asr_settings, tiny_tts_settings
from voxline.components.export.step import run
from voxline.components.train import step as training
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import CURVES_FILE, load_saved_model, model_digest, read_model_info
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.inference.synthesizer import FULL_SIGNATURES
from voxline.inference.vocoder import Vocoder
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.store.files import write_json
from voxline.store.step_cache import StepWouldRunError, cached_step, plan_steps
from voxline.training.settings import TrainSettings

RANDOM = np.random.default_rng(0)
WAVEFORMS = [RANDOM.standard_normal(4_000).astype(np.float32) * np.float32(0.1)]
MELS = RANDOM.standard_normal((9, 20)).astype(np.float32)
HEARING = {"kind": "deepspeech", "units": 8}


def train(write: Export, folder: Path) -> Path:
    """The output of a training that did nothing: an exported model, its training data and its curves."""
    write(folder / "model")
    line = {"id": "a", "split": "train", "speaker": "anna", "audio_hash": "a", "offset": 0.0, "duration": 1.0,
            "text_hash": "t"}  # fmt: skip
    TrainingData("k", "r", 0, [line]).write(folder / "model" / TRAINED_ON)
    write_json(folder / CURVES_FILE, {"train": [], "dev": []})
    return folder


def heard(model: Path) -> list[Any]:
    return [np.asarray(values) for values in Recognizer(model, engine="tensorflow").log_probabilities(WAVEFORMS)]


def spoken(model: Path) -> Any:
    _, signatures = load_saved_model(model, FULL_SIGNATURES)
    outputs = signatures["synthesize"](symbols=np.array([[1, 2, 3]], np.int32), lengths=np.array([3], np.int32))
    return outputs["waveforms"].numpy()


def vocoded(model: Path) -> Any:
    return Vocoder(model, engine="tensorflow").vocode([MELS])[0]


FORMS: dict[str, tuple[Export, Export, Callable[[], TrainSettings], Callable[[Path], Any]]] = {
    "recognizer for streaming": (
        recognizer(**HEARING),
        recognizer(**HEARING, export={"onnx": "float32", "streaming": True}),
        lambda: tiny_asr_settings(model=HEARING, export={"onnx": "float32", "streaming": True}),
        heard,
    ),
    "recognizer with warps": (
        recognizer(kind="deepspeech2"),
        recognizer(kind="deepspeech2", export={"frequency_warps": [0.9, 1.0]}),
        lambda: tiny_asr_settings(model={"kind": "deepspeech2"}, export={"frequency_warps": [0.9, 1.0]}),
        heard,
    ),
    "sharpened voice": (
        voice("fastspeech", PROSODY, sharpened=True, sharpen={"kind": "gan", "channels": 2, "blocks": 1}),
        voice("fastspeech", PROSODY, sharpened=True, sharpen={"kind": "gan", "channels": 2, "blocks": 1},
              griffin_lim={"iterations": 9}, export={"onnx": "float32"}),
        lambda: tiny_tts_settings("fastspeech", griffin_lim={"iterations": 9}, export={"onnx": "float32"}),
        spoken,
    ),
    "vocos": (
        vocoder(kind="vocos", **SIZES_OF_VOCODERS["vocos"]),
        vocoder(kind="vocos", **SIZES_OF_VOCODERS["vocos"]),
        lambda: VocoderTrainSettings.of({"export": {"onnx": "float32"}}),
        vocoded,
    ),
    "waveglow": (
        vocoder(kind="waveglow", **SIZES_OF_VOCODERS["waveglow"]),
        vocoder(kind="waveglow", **SIZES_OF_VOCODERS["waveglow"], sampling_sigma=0.9, denoiser=0.3),
        lambda: VocoderTrainSettings.of({"model": {"kind": "waveglow", "sampling_sigma": 0.9, "denoiser": 0.3}}),
        vocoded,
    ),
}  # fmt: skip
"""The plain export, one in another form, the settings that ask for it, and what the model makes."""


@pytest.mark.parametrize("case", FORMS)
def test_a_trained_model_gets_the_form_that_training_with_it_would_have_given(case: str, tmp_path: Path) -> None:
    plain, direct, settings, outputs = FORMS[case]
    trained = train(plain, tmp_path / "train")
    direct(tmp_path / "direct")
    work = run(trained, tmp_path / "store", settings())

    model = work.path("model")
    for again, wanted in zip(outputs(model), outputs(tmp_path / "direct"), strict=True):
        assert_close(again, wanted, relative_to_peak=1e-5)
    for graph in (ONNX_FILE, STREAM_FILE):
        if (tmp_path / "direct" / graph).is_file():
            assert (model / graph).read_bytes() == (tmp_path / "direct" / graph).read_bytes()
    if settings().export_form().plain()["export"].get("onnx", "none") != "none":
        assert (model / ONNX_FILE).is_file()

    # It is the same training: what the model was made of, and what it says of itself.
    before, after = read_model_info(trained / "model"), read_model_info(model)
    assert (after.dataset, after.provenance, after.start) == (before.dataset, before.provenance, before.start)
    assert (after.weights, after.normalization, after.name) == (before.weights, before.normalization, before.name)
    assert (model / TRAINED_ON).read_bytes() == (trained / "model" / TRAINED_ON).read_bytes()
    assert (work.folder / CURVES_FILE).read_bytes() == (trained / CURVES_FILE).read_bytes()
    form = settings().export_form().plain()
    for section, values in form.items():
        assert values.items() <= after.settings[section].items()
    assert run(trained, tmp_path / "store", settings()).reused


def test_another_form_of_one_training_is_another_output_and_leaves_the_first(tmp_path: Path) -> None:
    trained = train(recognizer(**HEARING), tmp_path / "train")
    forms: list[dict[str, Any]] = [{"onnx": "float32"}, {"onnx": "int8"}, {"onnx": "float32", "streaming": True}]
    works = [run(trained, tmp_path / "store", tiny_asr_settings(model=HEARING, export=form)) for form in forms]
    assert len({work.key for work in works}) == 3
    assert not any(work.reused for work in works)
    assert [work.step for work in works] == ["export"] * 3
    models = [work.path("model") for work in works]
    assert [(model / STREAM_FILE).is_file() for model in models] == [False, False, True]

    # The graph of the SavedModel does not depend on ONNX: it is that of the training, byte for byte.
    graphs = {(model / "saved_model.pb").read_bytes() for model in (trained / "model", *models)}
    assert len(graphs) == 1
    assert len({model_digest(model) for model in (trained / "model", *models)}) == 4
    sizes = [(model / ONNX_FILE).stat().st_size for model in models]
    assert sizes[1] < sizes[0] == sizes[2]


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (tiny_asr_settings(), {"export": {"onnx": "int8", "streaming": True}}),
        (tiny_asr_settings(), {"export": {"frequency_warps": [0.9, 1.1]}}),
        (TtsTrainSettings(), {"export": {"onnx": "int8"}, "griffin_lim": {"iterations": 3, "power": 1.2}}),
        (VocoderTrainSettings(), {"export": {"onnx": "float32"}}),
        (
            VocoderTrainSettings.of({"model": {"kind": "waveglow"}}),
            {"model": {"kind": "waveglow", "sampling_sigma": 0.5, "denoiser": 0.1}},
        ),
    ],
)
def test_a_form_is_no_part_of_the_key_of_train(settings: TrainSettings, changes: dict[str, Any]) -> None:
    other = type(settings).of({**settings.plain(), **changes})
    assert other.key_values() == settings.key_values()
    assert other.exports
    assert not settings.exports
    assert other.export_form().key_values() != settings.export_form().key_values() == {}

    # What train writes depends on its key alone.
    assert other.weights_alone().plain() == settings.weights_alone().plain() == settings.plain()


def test_a_model_of_another_network_is_refused(tmp_path: Path) -> None:
    trained = train(recognizer(**HEARING), tmp_path / "train")
    with pytest.raises(SettingsError, match=r"a model of the kind 'deepspeech', and train.model.kind is 'deepspeech2'"):
        run(trained, tmp_path / "store", tiny_asr_settings(export={"onnx": "float32"}))
    with pytest.raises(WorkError, match="asr"):
        run(trained, tmp_path / "store", VocoderTrainSettings())


def test_a_model_without_the_statistics_of_its_features_is_named(tmp_path: Path) -> None:
    trained = train(recognizer(**HEARING), tmp_path / "train")
    file = trained / "model" / "model.json"
    write_json(file, {**json.loads(file.read_text()), "normalization": None})
    with pytest.raises(WorkError, match=r"an earlier Voxline exported it.*run train again"):
        run(trained, tmp_path / "store", tiny_asr_settings(model=HEARING, export={"onnx": "float32"}))


def test_a_form_that_the_network_has_not_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    trained = train(recognizer(kind="deepspeech2", rnn="gru"), tmp_path / "train")
    settings = tiny_asr_settings(model={"kind": "deepspeech2", "rnn": "gru"}, export={"onnx": "int8"})
    with pytest.raises(SettingsError, match=r"no 8-bit kernel for train.model.rnn 'gru'"):
        run(trained, tmp_path / "store", settings)
    assert not list((tmp_path / "store").glob("export/*/done.json"))


def test_what_an_earlier_release_has_trained_is_taken_over(
    tones: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its keys had the form of the export. Its weights are exported in the plain form, under the key of today."""
    settings = tiny_asr_settings(model=HEARING, export={"onnx": "float32"})

    class Earlier(AsrTrainSettings):
        NOT_IN_KEY = AsrTrainSettings.NOT_IN_KEY - {"export"}

    earlier = Earlier.of(settings.plain())
    assert earlier.key_values() == settings.key_values() | {"export": {"onnx": "float32"}}
    with cached_step(tmp_path, "train", earlier, {"dataset": tones.key}) as work:
        train(recognizer(**HEARING, export={"onnx": "float32"}), work.folder)
        (work.folder / "logs").mkdir()
        write_json(work.folder / "logs" / CURVES_FILE, {"train": [], "dev": []})
        work.outputs.update(model="model", logs="logs")
        work.metrics["dev_wer"] = 0.25

    monkeypatch.setattr(training, "_train", lambda *_: pytest.fail("it trains again"))
    with plan_steps(), pytest.raises(StepWouldRunError) as planned:  # as a dry run does
        training.run(tones.folder, tmp_path, settings)
    assert planned.value.earlier == work.uri
    taken = training.run(tones.folder, tmp_path, settings)
    assert "takes over the weights that an earlier Voxline trained" in capsys.readouterr().out
    assert taken.key != work.key
    assert taken.metrics == {"dev_wer": 0.25}
    assert not (taken.path("model") / ONNX_FILE).exists()
    assert (taken.path("model") / TRAINED_ON).read_bytes() == (work.path("model") / TRAINED_ON).read_bytes()
    for again, wanted in zip(heard(taken.path("model")), heard(work.path("model")), strict=True):
        assert_close(again, wanted, relative_to_peak=1e-6)

    # From now on it is an output like any other.
    other = tiny_asr_settings(model=HEARING, export={"onnx": "int8"})
    assert training.run(tones.folder, tmp_path, other).reused
    exported = run(taken.folder, tmp_path, settings).path("model")
    assert (exported / ONNX_FILE).read_bytes() == (work.path("model") / ONNX_FILE).read_bytes()

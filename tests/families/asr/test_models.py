"""A CTC model is a network, a settings class and one line in `MODELS`: docs/extend/ctc-model.md, executed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.families.asr.toy_model import FrameClassifier, FrameClassifierSettings
from tests.training.tones import ToneUtterance, make_utterances, render_letters, tiny_asr_settings, write_dataset
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.networks.settings import MODELS, CtcModelSettings, ModelEntry, model_settings_type
from voxline.families.asr.settings import AsrTrainSettings
from voxline.inference.recognizer import Recognizer

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "ctc-model.md"
WARPED = {"frequency_warps": [0.95, 1.0, 1.05]}
TRAINING = {"epochs": 8, "batch_size": 16, "learning_rate": 0.02, "warm_up_steps": 10, "strategy": "one"}


@pytest.fixture
def settings_class(monkeypatch: pytest.MonkeyPatch) -> type[AsrTrainSettings]:
    """`AsrTrainSettings` as it would be with one more line in `MODELS`."""
    entry = ModelEntry(FrameClassifierSettings, "tests.families.asr.toy_model:FrameClassifier")
    monkeypatch.setitem(MODELS, "frame_classifier", entry)

    class ExtendedSettings(AsrTrainSettings):
        model: model_settings_type() = tiny_asr_settings().model  # type: ignore[valid-type]

    return ExtendedSettings


@pytest.mark.slow
def test_a_new_model_is_trained_exported_and_recognizes(
    settings_class: type[AsrTrainSettings], tones: Dataset, tmp_path: Path
) -> None:
    settings = settings_class.of({**TRAINING, "model": {"kind": "frame_classifier", "padding": 0}})
    output = run(tones.folder, tmp_path, settings)
    assert output.metrics["dev_wer"] < 0.3
    metadata = json.loads((output.path("model") / "model.json").read_text())
    assert metadata["settings"]["model"] == {"kind": "frame_classifier", "padding": 0, "top_db": 0, "units": 32}
    assert settings.key_values()["model"]["kind"] == "frame_classifier"
    unseen = make_utterances(0, 12, seed=5)
    texts = Recognizer(output.path("model")).transcribe([each.waveform for each in unseen], 8_000)
    assert sum(text == each.text for text, each in zip(texts, unseen, strict=True)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "epochs"), [("deepspeech", 8), ("conformer", 2)])
def test_each_network_is_trained_exported_and_recognizes(
    kind: str, epochs: int, tones: Dataset, tmp_path: Path
) -> None:
    """Deep Speech 2 is in test_step."""
    output = run(tones.folder, tmp_path, tiny_asr_settings(model={"kind": kind}, epochs=epochs))
    assert output.metrics["dev_wer"] < 0.2
    unseen = make_utterances(0, 12, seed=5)
    recognizer = Recognizer(output.path("model"))
    texts = recognizer.transcribe([each.waveform for each in unseen], 8_000)
    assert sum(text == each.text for text, each in zip(texts, unseen, strict=True)) >= 8
    for each, values in zip(unseen, recognizer.log_probabilities([each.waveform for each in unseen]), strict=True):
        seconds = len(each.waveform) / 8_000
        first, step = recognizer.frame_times(seconds, len(values))
        assert first < 0, "frames of padding come before the recording"
        assert first + step * len(values) - seconds == pytest.approx(-first, abs=1.5 * step)  # and as many after it


@pytest.mark.slow
def test_a_pooled_network_recognizes_the_words_of_a_small_vocabulary(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = ["ab", "ba", "cd", "dcd"]
    spoken = [
        ToneUtterance(f"{split}-{number:03}", word, split, 0.1 * render_letters(word, random))
        for split, count in (("train", 40), ("dev", 4), ("test", 8))
        for number, word in enumerate(words * count)
    ]
    heard, unseen = [one for one in spoken if one.split != "test"], [one for one in spoken if one.split == "test"]
    dataset = write_dataset(tmp_path / "dataset", heard)
    settings = tiny_asr_settings(model={"pooling": "utterance", "top_db": 50}, subwords=9, export=WARPED, epochs=4)
    output = run(dataset.folder, tmp_path, settings)
    assert output.metrics["dev_wer"] < 0.1
    recognizer = Recognizer(export(output.folder, tmp_path, settings).path("model"))
    texts = recognizer.transcribe([10 * one.waveform for one in unseen], 8_000)  # at another gain
    assert sum(text == one.text for text, one in zip(texts, unseen, strict=True)) >= 30
    (word,) = recognizer.recognize(unseen[0].waveform, 8_000).words
    assert (word.start, word.end) == (0.0, pytest.approx(len(unseen[0].waveform) / 8_000, abs=0.01))
    with pytest.raises(
        WorkError, match=r"utterances are not one symbol each, .*: raise train.subwords, or set pooling to"
    ):
        run(dataset.folder, tmp_path, settings.model_copy(update={"subwords": 0}))


def test_the_network_of_the_page_follows_every_setting_that_it_inherits() -> None:
    features, frames = np.random.default_rng(0).standard_normal((1, 9, 6)).astype(np.float32), np.array([9])

    def logits(louder: float, **settings: int) -> Any:
        network = FrameClassifier(
            FrameClassifierSettings(units=4, **settings),
            mean=[0.0] * 6, deviation=[1.0] * 6, classes=3, seed=1, precision="float32", portable=False,
        )  # fmt: skip
        return np.asarray(network(features + np.float32(louder), frames)[0])

    assert logits(0, padding=2).shape == (1, 13, 3)
    assert_close(logits(5, top_db=50), logits(0, top_db=50), relative_to_peak=1e-5)
    assert np.abs(logits(5) - logits(0)).max() > 0.1


def test_without_a_kind_the_model_is_deep_speech_2(settings_class: type[AsrTrainSettings]) -> None:
    assert settings_class.of({"model": {"layers": 3}}).model.kind == "deepspeech2"
    assert settings_class().model.kind == "deepspeech2"


def test_an_unknown_kind_or_key_is_refused_by_name(settings_class: type[AsrTrainSettings]) -> None:
    with pytest.raises(SettingsError, match=r"'model\.kind' is 'lstm'; accepted: 'deepspeech2', .*'frame_classifier'"):
        settings_class.of({"model": {"kind": "lstm"}}, "train")
    with pytest.raises(SettingsError, match=r"unknown key 'model\.unit'; did you mean 'model\.units'"):
        settings_class.of({"model": {"kind": "frame_classifier", "unit": 3}}, "train")
    with pytest.raises(SettingsError, match=r"'model\.kind' is 'lstm'.*'deepspeech2'"):
        AsrTrainSettings.of({"model": {"kind": "lstm"}}, "train")


@pytest.mark.parametrize("kind", MODELS)
def test_every_entry_names_its_kind(kind: str) -> None:
    settings = MODELS[kind].settings()
    assert isinstance(settings, CtcModelSettings)
    assert settings.kind == kind
    assert settings.time_stride >= 1


def test_the_page_shows_the_model_of_this_test() -> None:
    source = Path(__file__).with_name("toy_model.py").read_text(encoding="utf-8")
    settings, network = source[source.index("class FrameClassifierSettings") :].split("\n\n\n")
    page = PAGE.read_text(encoding="utf-8")
    assert settings.strip() in page
    assert network.strip() in page

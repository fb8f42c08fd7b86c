"""Public models that read samples as parents: wav2vec 2.0, MMS in a language, HuBERT; tuned, exported and served."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.conftest import ROOT
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.public_parents import find_public_parent, public_config
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_info
from voxline.text.alphabet import Alphabet
from voxline.training.warm_start import read_parent, start_from, with_normalization_of

HUB = ROOT / "tests" / "families" / "networks" / "hub"
ALPHABET = Alphabet(" aents'")
TEXTS = ("sea", "a tea", "neat", "ten")
WAVEFORM = FeatureSettings(kind="waveform")


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("spoken"), ALPHABET)


def make_dataset(folder: Path, alphabet: Alphabet) -> Dataset:
    draw = np.random.default_rng(0)
    examples = [
        NewExample(
            f"{split}-{number}",
            text,
            split,
            compute_features(draw.standard_normal(4_000).astype(np.float32), WAVEFORM),
            "speaker",
        )
        for split in ("train", "dev")
        for number, text in enumerate(TEXTS)
    ]
    return write_dataset(folder, examples, WAVEFORM, alphabet)


def settings_from(location: str, **changes: Any) -> AsrTrainSettings:
    network = {**public_config(location)["train"]["model"], **changes.pop("model", {})}
    values = {"epochs": 1, "batch_size": 4, "strategy": "one", "model": network, "start": {"model": location}}
    return AsrTrainSettings.of({**values, **changes})


def tuned(location: str, dataset: Dataset) -> Any:
    """A task at its first step."""
    settings = settings_from(location)
    weights = read_parent(find_public_parent(location))
    task = AsrTask(settings, AsrTask.prepare(settings, with_normalization_of(dataset, weights), weights.info))
    start_from(task, weights)
    return task


@pytest.mark.parametrize(
    ("name", "logits", "columns"),
    [
        ("wav2vec2", "logits", [4, 6, 5, 8, 7, 10, 9, 0]),
        ("hubert", "logits", [4, 6, 5, 8, 7, 10, 9, 0]),
        ("mms#eng", "logits", [4, 6, 5, 8, 7, 10, 9, 0]),
        ("mms#fra", "fra/logits", [4, 6, 5, 8, 7, 10, 9, 0]),
    ],
)
def test_a_training_begins_with_the_logits_of_the_public_model(
    name: str, logits: str, columns: list[int], spoken: Dataset, tmp_path: Path
) -> None:
    """Those of transformers, in the order of the dataset's symbols, the blank last."""
    folder = name.partition("#")[0]
    location = HUB / name
    if name == "mms#eng":  # as in the Hub, where each language has its file
        location = tmp_path / name
        shutil.copytree(HUB / folder, tmp_path / folder)
        shutil.copy(tmp_path / "mms" / "model.safetensors", tmp_path / "mms" / "adapter.eng.safetensors")
    task = tuned(str(location), spoken)
    with np.load(HUB / folder / "outputs.npz", allow_pickle=False) as arrays:
        features = arrays["features"][:, :, None]
        expected = [arrays[f"{logits}/{row}"][:, columns] for row in range(3)]
        found, frames = task.module.model(features, arrays["lengths"])
    for row, count in enumerate(frames.numpy()):
        assert_close(found[row, :count], expected[row], relative_to_peak=1e-4)


def test_the_config_of_a_public_model_is_its_network_and_its_features(tmp_path: Path) -> None:
    config = public_config(str(HUB / "xlsr"))
    assert config["train"]["model"]["kind"] == "wav2vec2"
    assert config["train"]["model"]["norm_first"] is True
    assert config["extract"]["features"] == {"kind": "waveform", "unit_variance": True}
    shutil.copytree(HUB / "xlsr", tmp_path / "model")
    (tmp_path / "model" / "preprocessor_config.json").write_text('{"do_normalize": false}')
    assert public_config(str(tmp_path / "model"))["extract"]["features"]["unit_variance"] is False
    assert find_public_parent(str(tmp_path / "model")).info.alphabet == list(" eatn's")


def test_languages_are_part_of_a_models_name_and_of_its_digest() -> None:
    french = find_public_parent(str(HUB / "mms#fra"))
    english = find_public_parent(str(HUB / "mms"))
    assert french.info.alphabet == list(" eatn'sé")
    assert french.ancestor.digest != english.ancestor.digest
    with pytest.raises(SettingsError, match=r"none for 'deu'; give one of eng, fra"):
        find_public_parent(str(HUB / "mms#deu"))


def test_a_model_that_is_pre_trained_only_has_no_output_layer(spoken: Dataset, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    for name, kept in (("Wav2Vec2ForPreTraining", "wav2vec2."), ("Wav2Vec2Model", "")):
        folder = tmp_path / name
        folder.mkdir()
        config = json.loads((HUB / "wav2vec2" / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
        weights = load_file(HUB / "wav2vec2" / "model.safetensors")
        encoder = {key: value for key, value in weights.items() if not key.startswith("lm_head")}
        save_file(
            {key.replace("wav2vec2.", kept): value for key, value in encoder.items()}, folder / "model.safetensors"
        )

        task = tuned(str(folder), spoken)
        kernel = task.module.model.projection.kernel
        np.testing.assert_array_equal(kernel, weights["wav2vec2.feature_projection.projection.weight"].T)
        assert find_public_parent(str(folder)).info.alphabet == []


def test_a_vocabulary_beyond_the_models_outputs_is_refused(tmp_path: Path) -> None:
    shutil.copytree(HUB / "wav2vec2", tmp_path / "model")
    (tmp_path / "model" / "vocab.json").write_text('{"<pad>": 0, "A": 1, "B": 11}')
    with pytest.raises(WorkError, match="a token has the number 11, and the model 11 outputs"):
        find_public_parent(str(tmp_path / "model"))


@pytest.mark.slow
def test_a_tuned_model_hears_recordings(spoken: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained for an epoch on what the frozen convolutions gave once, exported with the features, and read back."""
    masks = {"least_time_masks": 1, "time_mask_frames": 2}
    settings = settings_from(str(HUB / "xlsr"), model=masks, freeze=["convolutions"], recompute=True)
    model = run(spoken.folder, tmp_path / "store", settings).path("model")
    assert "the frozen parts encoded 4 utterances of train once" in capsys.readouterr().out
    recognizer = Recognizer(model)
    waveform = 0.1 * np.random.default_rng(1).standard_normal(16_000).astype(np.float32)
    assert ALPHABET.unknown(recognizer.transcribe(waveform, 16_000)) == ""

    # The center of the first output frame is 200 samples in, and it lasts 320.
    times = read_model_info(model).output_frames
    assert times is not None
    assert times.seconds == pytest.approx(0.02)
    assert times.start == pytest.approx((199.5 - 160) / 16_000)

    # The same recording, softer, is the same to the network.
    assert recognizer.transcribe(0.2 * waveform, 16_000) == recognizer.transcribe(waveform, 16_000)

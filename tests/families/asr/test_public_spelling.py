"""A public model that spells by its own tokenizer: tuned, exported, served and tuned again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.conftest import ROOT
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.public_parents import find_public_parent, public_config
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.text.alphabet import Alphabet
from voxline.text.public_tokenizer import TOKENIZER_JSON, PublicTokenizer
from voxline.training.warm_start import read_parent, start_from, with_normalization_of, with_tokenizer_of

PARAKEET = ROOT / "tests" / "families" / "networks" / "hub" / "fastconformer"
TEXTS = ("the cat sat", "she sells sea shells", "how much wood", "a quick brown fox")


def make_dataset(folder: Path, alphabet: Alphabet, texts: tuple[str, ...] = TEXTS) -> Dataset:
    features = FeatureSettings(kind="nemo_mel")
    draw = np.random.default_rng(0)
    examples = [
        NewExample(f"{split}-{number}", text, split, draw.standard_normal((320, 80)).astype(np.float32), "speaker")
        for split in ("train", "dev")
        for number, text in enumerate(texts)
    ]
    return write_dataset(folder, examples, features, alphabet)


def settings_from(model: Path, **changes: Any) -> AsrTrainSettings:
    network = public_config(str(PARAKEET))["train"]["model"]
    values = {"epochs": 1, "batch_size": 4, "strategy": "one", "model": network, "start": {"model": str(model)}}
    return AsrTrainSettings.of({**values, **changes})


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("spoken"), Alphabet.from_name("english"))


def test_the_tuned_network_begins_with_the_logits_of_the_public_one(spoken: Dataset) -> None:
    """Those of transformers, in the order of our symbols: without the unknown piece, the blank last."""
    settings = settings_from(PARAKEET)
    weights = read_parent(find_public_parent(str(PARAKEET)))
    dataset = with_tokenizer_of(with_normalization_of(spoken, weights), weights, settings.start)
    assert isinstance(dataset.alphabet, PublicTokenizer)
    task = AsrTask(settings, AsrTask.prepare(settings, dataset, weights.info))
    start_from(task, weights)
    with np.load(PARAKEET / "outputs.npz", allow_pickle=False) as arrays:
        expected = arrays["logits"][..., list(dataset.alphabet.columns)]
        logits, frames = task.module.model(arrays["features"], arrays["lengths"])
    for row, count in enumerate(frames.numpy()):
        assert_close(logits[row, :count], expected[row, :count], relative_to_peak=1e-4)
    # Statistics stay those of the parent.
    assert task.module.model.normalizations == []


def test_with_its_encoder_alone_a_corpus_keeps_its_own_alphabet(spoken: Dataset) -> None:
    weights = read_parent(find_public_parent(str(PARAKEET)))
    settings = settings_from(PARAKEET, start={"model": str(PARAKEET), "keep": "encoder"})
    assert with_tokenizer_of(spoken, weights, settings.start) is spoken


def test_what_the_tokenizer_cannot_spell_is_refused_before_training(spoken: Dataset, tmp_path: Path) -> None:
    settings = settings_from(PARAKEET)
    weights = read_parent(find_public_parent(str(PARAKEET)))
    cased = Alphabet(" abcdefghijklmnopqrstuvwxyzT")
    used = make_dataset(tmp_path / "used", cased, ("the cat", "The cat"))
    with pytest.raises(SettingsError, match=r"no piece for 'T' .* transcript of dev-1: 'The cat'.*keep: encoder"):
        with_tokenizer_of(used, weights, settings.start)
    unused = make_dataset(tmp_path / "unused", cased, ("the cat",))
    dataset = with_tokenizer_of(unused, weights, settings.start)
    with pytest.raises(SettingsError, match="subwords is 60, and the model to start from spells by a tokenizer"):
        AsrTask.prepare(settings_from(PARAKEET, subwords=60), dataset, weights.info)


def test_a_tokenizer_beyond_the_models_outputs_is_refused(tmp_path: Path) -> None:
    for file in PARAKEET.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text().replace('size": 49', 'size": 40'))
    with pytest.raises(WorkError, match="a piece has the number 48, and the model 40 outputs"):
        find_public_parent(str(tmp_path))
    (tmp_path / TOKENIZER_JSON).unlink()
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(WorkError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        find_public_parent(str(tmp_path))


@pytest.mark.slow
def test_a_tuned_model_has_the_tokenizer_in_its_folder_and_a_child_keeps_it(spoken: Dataset, tmp_path: Path) -> None:
    model = run(spoken.folder, tmp_path / "store", settings_from(PARAKEET)).path("model")
    content = (PARAKEET / TOKENIZER_JSON).read_bytes()
    assert (model / TOKENIZER_JSON).read_bytes() == content
    info = read_model_info(model)
    assert info.tokenizer is not None
    assert (info.tokenizer.file, info.tokenizer.blank) == (TOKENIZER_JSON, 48)

    # Times of words need the segmentation; a search with words needs their spellings.
    recognizer = Recognizer(model)
    assert isinstance(recognizer.alphabet, PublicTokenizer)
    assert list(recognizer.alphabet.symbols) == info.alphabet
    waveform = 0.1 * np.random.default_rng(1).standard_normal(32_000).astype(np.float32)
    greedy = recognizer.transcribe(waveform, 16_000)
    assert recognizer.alphabet.unknown(greedy) == ""
    hot = Recognizer(model, hot_words={"shells": 200.0}).transcribe(waveform, 16_000)
    assert "shells" in hot.split()

    # A child has the graph of its parent, and the tokenizer.
    child = run(spoken.folder, tmp_path / "store", settings_from(model, learning_rate=0.002)).path("model")
    assert (child / TOKENIZER_JSON).read_bytes() == content
    assert read_model_info(child).graph == info.graph

    # The tokenizer is a part of the model.
    before = model_digest(child)
    (child / TOKENIZER_JSON).write_bytes(content.replace(b'"the"', b'"teh"') + b" ")
    assert model_digest(child) != before
    with pytest.raises(WorkError, match="not the tokenizer that the model was exported with"):
        _ = Recognizer(child).alphabet

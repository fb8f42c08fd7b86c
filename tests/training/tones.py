"""A language of tones that a network of a few hundred weights learns in seconds, as a real dataset."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.data import testing as by_hand
from voxline.data.dataset import Dataset
from voxline.families.asr.networks.settings import DEFAULT_KIND
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.tts.settings import TtsTrainSettings
from voxline.text.alphabet import Alphabet

LETTERS = "abcd"
FEATURES = FeatureSettings(sample_rate=8_000, mels=16, window_seconds=0.032, hop_seconds=0.016)
MakeDataset = Callable[..., Dataset]


def render_letters(text: str, random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Each letter is a tenth of a second of its own tone, with a breath of noise after it."""
    parts = []
    for letter in text:
        hz, samples = 300 * 1.7 ** LETTERS.index(letter), int(random.uniform(600, 900))
        parts.append(np.sin(2 * np.pi * hz * np.arange(samples) / FEATURES.sample_rate) * random.uniform(0.2, 0.6))
        parts.append(np.zeros(int(random.uniform(300, 500))))
    waveform = np.concatenate(parts)
    return (waveform + 0.003 * random.standard_normal(len(waveform))).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class ToneUtterance:
    id: str
    text: str
    split: str
    waveform: npt.NDArray[np.float32]
    speaker: str = "tone"


def make_utterances(train: int, dev: int = 0, seed: int = 0, letters: tuple[int, int] = (1, 4)) -> list[ToneUtterance]:
    """Sayings of one word of at least and at most so many letters."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(train + dev):
        text = "".join(random.choice(list(LETTERS), random.integers(letters[0], letters[1] + 1)))
        split = "train" if number < train else "dev"
        found.append(ToneUtterance(f"{split}-{number:03}", text, split, render_letters(text, random)))
    return found


def write_dataset(
    folder: Path,
    spoken: list[ToneUtterance],
    change: Callable[[ToneUtterance, Any], Any] | None = None,
    how: FeatureSettings = FEATURES,
    alphabet: str = LETTERS,
) -> Dataset:
    """Writes shards and dataset.json, as extract does; `change` may spoil the features of an utterance."""
    heard = {each.id: compute_features(each.waveform, how) for each in spoken}
    made = [
        by_hand.NewExample(
            each.id,
            each.text,
            each.split,
            heard[each.id] if change is None else change(each, heard[each.id]),
            each.speaker,
        )
        for each in spoken
    ]
    dataset = by_hand.write_dataset(folder, made, how, Alphabet(alphabet), shards=2)
    train = np.concatenate([heard[each.id] for each in spoken if each.split == "train"])
    # Of what was heard: what is spoilt may have no mean.
    dataclasses.replace(dataset, mean=train.mean(0).tolist(), deviation=train.std(0).tolist()).write(folder)
    return Dataset.read(folder)


ASR_SIZES: dict[str, dict[str, Any]] = {
    "deepspeech2": {
        "convolutions": [{"channels": 4, "kernel": [5, 5], "stride": [2, 2]}],
        "layers": 1,
        "units": 12,
    },
    "conformer": {"layers": 1, "units": 16, "heads": 2, "kernel": 5, "subsampling": 2, "dropout": 0.0},
    "fastconformer": {"layers": 1, "units": 16, "heads": 2, "kernel": 5, "channels": 4, "dropout": 0.0},
    "deepspeech": {"context": 3, "units": 24, "dropout": [0, 0, 0, 0, 0]},
    "whisper": {},
    "wav2vec2": {"channels": [8] * 7, "layers": 1, "units": 16, "heads": 2, "feed_forward_units": 16},
}


ONE_LOOP = {"rnn": "simple", "directions": "forward"}
"""Of `deepspeech2`, for tests of what is around a network: its loops take longest to build."""


def tiny_asr_settings(**changes: Any) -> AsrTrainSettings:
    """Settings of a model that learns the tones in a few epochs."""
    model = changes.pop("model", {})
    model = {**ASR_SIZES[model.get("kind", DEFAULT_KIND)], "padding": 0, **model}
    defaults = {"epochs": 6, "batch_size": 8, "learning_rate": 0.01, "warm_up_steps": 10, "strategy": "one"}
    return AsrTrainSettings.of({**defaults, "model": model, **changes})


TTS_SIZES: dict[str, dict[str, Any]] = {
    "tacotron2": {
        "encoder_convolutions": 1,
        "encoder_channels": 16,
        "encoder_dropout": 0.1,
        "encoder_lstm": 8,
        "decoder_units": 24,
        "zoneout": 0.1,
        "postnet_layers": 2,
        "postnet_channels": 8,
        "postnet_dropout": 0.1,
    },
    "tacotron": {
        "encoder_bank": 2,
        "encoder_channels": 8,
        "encoder_gru": 8,
        "highways": 1,
        "decoder_units": 16,
        "postnet_bank": 2,
        "postnet_channels": 8,
        "postnet_projection": 8,
        "postnet_gru": 0,  # a loop takes seconds to build: the encoder has one, and test_tacotron both
    },
    "fastspeech": {"channels": 32, "hidden": 48, "encoder_layers": 1, "decoder_layers": 2, "kernel": 5},
}


def tiny_tts_settings(kind: str = "tacotron2", **changes: Any) -> TtsTrainSettings:
    """Settings of a TTS model of a few thousand weights."""
    attention = {"units": 16, "location_filters": 4, "location_kernel": 7}
    decoder = {"reduction": 3, "embedding": 16, "prenet": [16, 12], "attention": attention}
    model = {"kind": kind, **({} if kind == "fastspeech" else decoder), **TTS_SIZES[kind]}
    model |= changes.pop("model", {})
    defaults = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "warm_up_steps": 5, "strategy": "one"}
    defaults |= {"evaluate_steps": 10, "validation_utterances": 4, "max_seconds": 2.0, "griffin_lim": {"iterations": 3}}
    return TtsTrainSettings.of({**defaults, "model": model, **changes})

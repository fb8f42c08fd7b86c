"""A recognizer makes as few errors in recordings with pauses as in single utterances."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.conftest import ROOT
from tests.training.tones import FEATURES, LETTERS, ToneUtterance, make_utterances, tiny_asr_settings, write_dataset
from voxline.components.train.step import run as train
from voxline.data.dataset import read_utterances
from voxline.data.manifest import Utterance
from voxline.families.asr.details import JoinedInfo
from voxline.families.asr.joined import measure_joined
from voxline.inference.recognizer import Recognizer
from voxline.registry.models import find_model

DEMO = ROOT / "runs/demo"
POINTS = 0.01


def measured(pauses: str) -> JoinedInfo:
    manifest = max((DEMO / "store/convert").glob("*/manifest.jsonl"), key=lambda path: path.stat().st_mtime)
    utterances = [utterance for utterance in read_utterances(manifest.parent) if utterance.split == "test"]
    recognizer = Recognizer(find_model(str(DEMO / "registry/asr")), pauses=pauses)
    joined = measure_joined(recognizer, utterances, 600.0, str)
    assert joined is not None
    return joined


def check(cut: JoinedInfo, whole: JoinedInfo) -> None:
    """Checks both: with pauses at which recordings are cut, and what is heard whole, which shows that it matters."""
    for kind in cut.kinds:
        assert kind.words.rate <= cut.single.rate + POINTS, kind
        assert kind.words_in_pauses <= 0.01 * cut.utterances
    assert min(kind.words.rate for kind in whole.kinds) > whole.single.rate + 10 * POINTS


def measured_words(model: Path, utterances: Sequence[Utterance], pauses: str) -> JoinedInfo:
    joined = measure_joined(Recognizer(model, pauses=pauses), utterances, 90.0, str)
    assert joined is not None
    return joined


def in_a_room(sayings: list[ToneUtterance]) -> list[ToneUtterance]:
    """The sayings with a tenth of a second and more of their room's noise at both ends, which is -50 dB."""
    random = np.random.default_rng(5)
    rooms = []
    for saying in sayings:
        before, behind = (0.003 * random.standard_normal(int(random.uniform(900, 1_500))) for _ in range(2))
        waveform = np.concatenate([before, saying.waveform, behind]).astype(np.float32)
        rooms.append(dataclasses.replace(saying, waveform=waveform))
    return rooms


@pytest.mark.slow
def test_a_recognizer_of_single_words_loses_at_most_a_point_to_pauses(tmp_path: Path) -> None:
    """It has learned single words alone, so that it writes no space between two."""
    sayings = in_a_room(make_utterances(200, 16, letters=(3, 5)))
    dataset = write_dataset(tmp_path / "words", sayings, alphabet=f"{LETTERS} ")
    trained = train(dataset.folder, tmp_path / "store", tiny_asr_settings(epochs=6, model={"rnn": "simple"}))
    utterances = []
    for saying in in_a_room(make_utterances(0, 110, seed=9, letters=(3, 5))):
        file = tmp_path / f"{saying.id}.wav"
        soundfile.write(file, saying.waveform, FEATURES.sample_rate)
        utterances.append(Utterance(saying.id, str(file), len(saying.waveform) / FEATURES.sample_rate, saying.text))
    cut, whole = (measured_words(trained.path("model"), utterances, pauses) for pauses in ("level", "off"))
    assert cut.single.rate <= 0.02
    check(cut, whole)


@pytest.mark.slow
@pytest.mark.skipif(not (DEMO / "registry/asr").is_dir(), reason="no demo: run make demo, a quarter of an hour")
def test_the_demo_loses_at_most_a_point_to_pauses() -> None:
    """Field case F5."""
    check(measured("level"), measured("off"))

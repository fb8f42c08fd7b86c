"""The probe is checked before a training, and before a run: a night does not end with a folder that cannot be read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.tone_asr_model import write_corpus
from tests.training.tones import make_utterances, tiny_asr_settings, write_dataset
from voxline.components.probe import read_probe, validate_probe
from voxline.components.train.step import run as train
from voxline.data.drafts import DRAFTED_BY
from voxline.data.manifest import read_manifest, write_manifest
from voxline.errors import SettingsError
from voxline.pipelines.config.load import load_config
from voxline.pipelines.local.runner import check_run
from voxline.text.alphabet import Alphabet


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "probe", [("eve", "zero one"), ("eve", "two three")])


def remove(folder: Path) -> None:
    (folder / "manifest.jsonl").unlink()


def empty(folder: Path) -> None:
    write_manifest(folder / "manifest.jsonl", [])


def repeat(folder: Path) -> None:
    write_manifest(folder / "manifest.jsonl", [*read_manifest(folder)[:1]] * 2)


def draft(folder: Path) -> None:
    first, second = read_manifest(folder)
    second = second.replace(extra={DRAFTED_BY: "asr@3 (4f1c09aa2be0)"})
    write_manifest(folder / "manifest.jsonl", [first, second])


def shout(folder: Path) -> None:
    write_manifest(folder / "manifest.jsonl", [line.replace(text=line.text.upper()) for line in read_manifest(folder)])


def telephone(folder: Path) -> None:
    soundfile.write(folder / "wavs" / "0001.wav", np.zeros(800, np.float32), 8_000)


def lose(folder: Path) -> None:
    (folder / "wavs" / "0001.wav").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove, "no such manifest.*a manifest of recordings, or convert's folder, is accepted"),
        (empty, "its manifest has no utterance"),
        (repeat, "eve-0000 appears 2 times"),
        (draft, "a model wrote the text of eve-0001; nothing is judged by a draft"),
        (
            shout,
            r"2 of its 2 transcripts have characters outside the alphabet \(convert.alphabet\), eve-0000 first: 'Z'",
        ),
        (telephone, "eve-0001 has 8,000 Hz, where convert.sample_rate is 16,000; convert it with"),
        (lose, "utterance eve-0001 cannot be read"),
    ],
)
def test_a_probe_that_no_model_could_be_measured_on_is_refused(
    change: Callable[[Path], None], message: str, probe: Path
) -> None:
    validate_probe(str(probe), Alphabet.from_name("english"), 16_000)
    change(probe)
    with pytest.raises(SettingsError, match=rf"evaluate\.probe is '{probe}'.*{message}"):
        validate_probe(str(probe), Alphabet.from_name("english"), 16_000)


def test_a_probe_has_its_test_split_alone(probe: Path) -> None:
    first, second = read_manifest(probe)
    write_manifest(probe / "manifest.jsonl", [first, second.replace(split="train")])
    assert [utterance.id for utterance in read_probe(str(probe))] == ["eve-0000"]


def test_a_run_and_its_dry_run_refuse_a_wrong_probe_before_any_step(probe: Path, tmp_path: Path) -> None:
    """`probe` is relative to the config's file, and train has the same path."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "run.yaml").write_text("name: run\ncorpus: {uri: corpus}\nevaluate: {probe: probe}\n")
    config = load_config(tmp_path / "run.yaml").with_default_folders(tmp_path / "run")
    assert config.plain()["train"]["probe"] == str(probe)
    check_run(config, tmp_path / "run", "", [])
    lose(probe)
    with pytest.raises(SettingsError, match=r"evaluate\.probe is .*cannot be read"):
        check_run(config, tmp_path / "run", "", [])


def test_train_refuses_a_wrong_probe_before_it_trains(probe: Path, tmp_path: Path) -> None:
    """On a cluster nothing else has seen it before."""
    dataset = write_dataset(tmp_path / "dataset", make_utterances(4, 2))
    settings = tiny_asr_settings(epochs=1, probe=str(probe))
    with pytest.raises(SettingsError, match="2 of its 2 transcripts have characters outside the alphabet"):
        train(dataset.folder, tmp_path / "store", settings)
    assert not (tmp_path / "store").exists()
    assert settings.key_values() == tiny_asr_settings(epochs=1).key_values()

"""Real recordings, as their publishers lay them out."""

import shutil
import tarfile
from pathlib import Path

import pytest
import soundfile

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.data.manifest import fingerprint_utterances, read_manifest, read_rejects

TEN = [
    *(f"1988-24833-000{number}" for number in range(4)),
    *(f"2412-153948-000{number}" for number in range(3)),
    *(f"3752-4944-000{number}" for number in range(3)),
]


@pytest.mark.parametrize("root", ["LibriSpeech", "LibriSpeech/dev-clean-2"])
def test_all_ten_librispeech_utterances_arrive(real_data: Path, tmp_path: Path, root: str) -> None:
    work = run(tmp_path, CorpusSettings(uri=str(real_data / root), format="librispeech"))
    utterances = read_manifest(work.folder)
    assert [one.id for one in utterances] == TEN
    assert read_rejects(work.folder) == []
    assert work.counts == {"utterances": 10, "rejects": 0, "train": 0, "dev": 10, "test": 0}
    first = utterances[0]
    assert first.text == "THE TWO STRAY KITTENS GRADUALLY MAKE THEMSELVES AT HOME"
    assert (first.speaker, first.split, first.extra) == ("1988", "dev", {"corpus_split": "dev-clean-2"})
    for one in utterances:
        samples, rate = soundfile.read(one.audio_filepath)
        assert one.duration == len(samples) / rate


def test_librispeech_is_the_same_from_the_folder_above_it_and_from_an_archive(real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "LibriSpeech", tmp_path / "mine" / "LibriSpeech")
    with tarfile.open(tmp_path / "dev-clean-2.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "mine" / "LibriSpeech", arcname="LibriSpeech")
    shutil.make_archive(str(tmp_path / "zipped"), "zip", tmp_path / "mine")
    prints = set()
    for uri in ("mine", "mine/LibriSpeech", "mine/LibriSpeech/dev-clean-2", "dev-clean-2.tar.gz", "zipped.zip"):
        work = run(tmp_path / "store", CorpusSettings(uri=str(tmp_path / uri), format="librispeech"))
        prints.add(fingerprint_utterances(read_manifest(work.folder)))
    assert len(prints) == 1


@pytest.mark.slow
def test_fsdd_has_its_official_split_and_a_dev_split_carved_out_of_train(real_data: Path, tmp_path: Path) -> None:
    work = run(tmp_path, CorpusSettings(uri=str(real_data / "fsdd"), format="fsdd"))
    utterances = {one.id: one for one in read_manifest(work.folder)}
    assert work.counts["utterances"] == 3000
    assert work.counts["rejects"] == 0
    assert work.counts["test"] == 300
    assert work.counts["train"] + work.counts["dev"] == 2700
    assert 80 < work.counts["dev"] < 190  # 5% by hash
    assert utterances["7_jackson_32"].text == "seven"
    assert utterances["7_jackson_32"].speaker == "jackson"
    for one in utterances.values():
        assert (one.split == "test") == (int(one.id.rsplit("_", 1)[1]) < 5)


@pytest.mark.slow
@pytest.mark.parametrize("dev_by", ["speaker", "utterance"])
def test_fsdd_with_one_speaker_held_out(real_data: Path, tmp_path: Path, dev_by: str) -> None:
    split = {"by": "speaker", "test_speakers": ["theo"], "dev_by": dev_by}
    work = run(tmp_path, CorpusSettings.of({"uri": str(real_data / "fsdd"), "format": "fsdd", "split": split}))
    speakers: dict[str, set[str]] = {"train": set(), "dev": set(), "test": set()}
    for one in read_manifest(work.folder):
        speakers[one.split].add(one.speaker)
    assert speakers["test"] == {"theo"}
    assert work.counts["test"] == 500
    assert "theo" not in speakers["train"] | speakers["dev"]
    assert len(speakers["train"] | speakers["dev"]) == 5
    assert bool(speakers["train"] & speakers["dev"]) == (dev_by == "utterance")

"""A WAV that has changed since convert wrote it is named, not used, and made again."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.faults.steps import CONVERT, EXTRACT, make_corpus
from tests.store.test_step_cache import flip
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.step import run as extract
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.data.recordings import logged_hashes, refuse_changed_audio, refuse_changed_wavs, remove_changed_audio
from voxline.errors import WorkError
from voxline.store.hashing import hash_file

FORMATS = {
    "16 bits.flac": (16_000, 1, "PCM_16"),
    "24 bits.flac": (16_000, 1, "PCM_24"),
    "8 bits.flac": (16_000, 1, "PCM_S8"),
    "stereo 44k.flac": (44_100, 2, "PCM_16"),
    "stereo 16k.wav": (16_000, 2, "PCM_16"),
    "float.wav": (16_000, 1, "FLOAT"),
    "lossy.ogg": (22_050, 1, "VORBIS"),
}
"""Name → rate, channels and subtype."""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    utterances = []
    for number, (name, (rate, channels, subtype)) in enumerate(FORMATS.items()):
        noise = np.random.default_rng(number).normal(0, 0.1, (rate, channels))
        soundfile.write(folder / name, noise, rate, subtype=subtype)
        utterances.append(Utterance(name, str(folder / name), 1.0, "one", audio_hash=hash_file(folder / name)))
    whole = utterances[0]
    utterances.append(whole.replace(id="a part", offset=0.25, duration=0.5))
    write_manifest(folder / "manifest.jsonl", utterances)
    return folder


@pytest.mark.parametrize("shaping", [{}, {"trim_db": 40, "loudness_lufs": -23}])
def test_no_recording_of_any_format_is_taken_for_changed(shaping: dict[str, float], zoo: Path, tmp_path: Path) -> None:
    made = convert(zoo, tmp_path / "store", ConvertSettings.of({"workers": 1, **shaping}))
    utterances = read_manifest(made.folder)
    assert len(utterances) == len(FORMATS) + 1
    assert remove_changed_audio(utterances) == []
    hashes = logged_hashes(tmp_path / "store" / "wavs", [one.audio_hash for one in utterances])
    assert hashes == {one.audio_hash: one.measured["pcm_hash"] for one in utterances}


@pytest.mark.parametrize("at", [4, 24, 44, 1001, -1], ids=["size", "rate", "first sample", "a sample", "last byte"])
def test_a_flipped_bit_in_a_wav_is_left_out_named_and_made_again(
    at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, store = tmp_path / "corpus", tmp_path / "store"
    make_corpus(corpus)
    manifest = convert(corpus / "all", store, CONVERT).folder
    wav = Path(read_manifest(manifest)[1].audio_filepath)
    before = wav.read_bytes()
    flip(wav, at)
    lenient = EXTRACT.model_copy(update={"max_reject_share": 0.5})
    made = extract(manifest, store, lenient)
    assert (made.counts["utterances"], made.counts["rejects"]) == (7, 1)
    assert f"extract: 1 WAVs had changed since convert wrote them ({wav}), and were removed" in capsys.readouterr().out
    manifest = convert(corpus / "all", store, CONVERT).folder
    assert wav.read_bytes() == before
    again = extract(manifest, store, lenient)
    assert (again.reused, again.counts["utterances"], again.counts["rejects"]) == (False, 8, 0)


def test_steps_that_cannot_leave_a_recording_out_refuse_it(tmp_path: Path) -> None:
    corpus, store = tmp_path / "corpus", tmp_path / "store"
    make_corpus(corpus)
    utterances = read_manifest(convert(corpus / "all", store, CONVERT).folder)
    refuse_changed_audio(utterances, "evaluate")
    names = [one.audio_hash for one in utterances]
    refuse_changed_wavs(store / "wavs", names, 16_000, "train")
    for number, refuse in enumerate(
        (
            lambda: refuse_changed_audio(utterances, "evaluate"),
            lambda: refuse_changed_wavs(store / "wavs", names, 16_000, "train"),
        )
    ):
        wav = Path(utterances[number].audio_filepath)
        flip(wav, 200)
        with pytest.raises(WorkError, match=rf"1 WAVs had changed .*{wav.name}.*run the same command again"):
            refuse()
        assert not wav.exists()

"""The texts of a converted line: what the model reads, and what is spoken."""

from pathlib import Path

import pytest

from tests.convert.conftest import good_flac, manifest_of, utterance
from voxline.components.convert.output import converted_utterance, prepare_transcript
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import Utterance, read_manifest
from voxline.rejects import Reason, Reject
from voxline.text.alphabet import Alphabet
from voxline.text.frontend import FrontendOutput
from voxline.text.settings import FrontendKind, FrontendSettings

VOICE = ConvertSettings(alphabet="english_speech", frontend=FrontendSettings(kind="english"), workers=1)


def test_a_line_has_the_text_for_the_model_and_the_normalized_text(tmp_path: Path) -> None:
    good_flac(tmp_path / "good.flac")
    line = utterance(tmp_path / "good.flac", "Dr. Bell has $5!")
    [converted] = read_manifest(run(manifest_of(tmp_path / "in", [line]), tmp_path / "store", VOICE).folder)
    assert converted.text == "doctor bell has five dollars!"
    assert converted.extra["normalized_text"] == "doctor bell has five dollars"


def test_normalized_text_is_written_only_where_it_differs() -> None:
    before = Utterance("a", "a.wav", 1.0, "Yes", extra={"normalized_text": "of another frontend", "accent": "us"})
    assert converted_utterance(before, FrontendOutput("yes", "yes"), "/wavs/9f.wav", "9f", 1.0).extra == {
        "accent": "us"
    }


def test_an_unsupported_text_is_a_reject_that_names_it() -> None:
    found = prepare_transcript(Utterance("a", "a.wav", 1.0, "snow ☃"), VOICE, Alphabet.from_name(VOICE.alphabet))
    assert isinstance(found, Reject)
    assert found.reason is Reason.OUTSIDE_ALPHABET
    assert "U+2603 SNOWMAN" in found.detail


@pytest.mark.parametrize("kind", ["english", "english_phonemes", "mandarin", "pinyin"])
def test_punctuation_alone_is_an_empty_transcript(kind: FrontendKind) -> None:
    settings = VOICE.model_copy(update={"frontend": FrontendSettings(kind=kind)})
    found = prepare_transcript(Utterance("a", "a.wav", 1.0, "?!… —"), settings, Alphabet.from_name(VOICE.alphabet))
    assert isinstance(found, Reject)
    assert found.reason is Reason.TRANSCRIPT_EMPTY
    assert "'?!… —' has n" in found.detail


def test_a_new_dictionary_version_changes_only_the_keys_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_flac(tmp_path / "a.flac")
    hanzi = manifest_of(tmp_path, [utterance(tmp_path / "a.flac", "你好")])
    words = manifest_of(tmp_path / "english", [utterance(tmp_path / "a.flac", "Well, then!")])
    mandarin = ConvertSettings(alphabet="pinyin_speech", frontend=FrontendSettings(kind="mandarin"), workers=1)
    before = run(hanzi, tmp_path / "store", mandarin)
    plain = run(words, tmp_path / "store", ConvertSettings(workers=1))
    assert run(hanzi, tmp_path / "store", mandarin).reused
    newer = tmp_path / "newer" / "pypinyin-99.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: pypinyin\nVersion: 99.0\n")
    monkeypatch.syspath_prepend(newer.parent)
    after = run(hanzi, tmp_path / "store", mandarin)
    assert (after.reused, after.counts["decoded"]) == (False, 0)
    assert after.key != before.key
    assert run(words, tmp_path / "store", ConvertSettings(workers=1)).key == plain.key

"""Corpora for synthesis, LJSpeech and THCHS-30: each text with its recording, and what is wrong by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.data.manifest import read_manifest, read_rejects
from voxline.errors import SettingsError, WorkError

Ingest = Callable[..., Any]
Record = Callable[..., Path]
TRN = "绿 是 阳春\nlv4 shi4 yang2 chun1\nl v4 sh ix4 ii iang2 ch un1\n"


# LJSpeech


def test_ljspeech_reads_the_normalized_text_and_keeps_the_raw_one(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("LJSpeech-1.1/wavs/LJ001-0007.wav")
    _write(corpus / "LJSpeech-1.1/metadata.csv", 'LJ001-0007|the "42-line" Bible|the "forty-two line" Bible\n')
    one = ingest("ljspeech").utterances["LJ001-0007"]
    assert (one.text, one.speaker) == ('the "forty-two line" Bible', "LJSpeech-1.1")
    assert one.extra == {"corpus_split": "LJ001", "raw": 'the "42-line" Bible'}
    assert ingest("ljspeech", text_key="raw").utterances["LJ001-0007"].text == 'the "42-line" Bible'


def test_ljspeech_bad_lines_are_rejects_by_name_and_the_rest_stays(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in "abcdefg":
        record(f"wavs/{name}.wav")
    lines = [
        "a|A.|a.",
        "b|only two fields",
        "c|1|2|four fields",
        "d|D.|",
        "a|again|again",
        "e|E.|e.",
        "x|no recording|no recording",
        "|no id|no id",
        "../../secret|x|x",
    ]
    (corpus / "metadata.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    out = ingest("ljspeech")
    assert out.ids == ["a", "e"]
    assert [one.text for one in out.utterances.values()] == ["a.", "e."]
    assert out.rejects == {
        "a": "duplicate_id",
        "b": "bad_entry",
        "c": "bad_entry",
        "d": "transcript_missing",
        "f": "transcript_missing",
        "g": "transcript_missing",
        "x": "missing_file",
        "metadata.csv:8": "bad_entry",
        "../../secret": "outside_corpus",
    }
    assert out.details["b"].startswith(
        "metadata.csv:2: 2 fields in 'b|only two fields', the table has 3; accepted: id|text|"
    )
    assert out.details["a"] == "metadata.csv:5: metadata.csv:1 has the same id"
    assert "wavs/f.wav: no line of metadata.csv names it" in out.details["f"]


@pytest.mark.parametrize("parted", ["\t", ",", ";"])
def test_ljspeech_rejects_lines_with_another_separator(
    parted: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    for id in "ab":
        record(f"wavs/{id}.wav")
    _write(corpus / "metadata.csv", f"a|A.|a.\n{parted.join(('b', 'B.' * 5_000, 'b.'))}\n")
    out = ingest("ljspeech")
    assert out.ids == ["a"]
    assert out.rejects == {"metadata.csv:2": "bad_entry", "b": "transcript_missing"}
    assert out.details["metadata.csv:2"].endswith("accepted: id|text|normalized text, separated by |")
    assert len(out.details["metadata.csv:2"]) < 300


def test_ljspeech_in_latin_1_is_refused_by_the_name_of_the_file(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("wavs/a.wav")
    (corpus / "metadata.csv").write_bytes("a|café|café\n".encode("latin-1"))
    with pytest.raises(WorkError, match=r"metadata\.csv: not UTF-8 \(byte 5\); .* iconv"):
        ingest("ljspeech")


def test_sections_of_books_are_splits_of_the_corpus_and_a_share_of_utterances_will_do_too(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    ids = [f"LJ{book:03d}-{line:04d}" for book in (1, 2, 17, 50) for line in range(5)]
    for id in ids:
        record(f"wavs/{id}.wav", seconds=0.1)
    _write(corpus / "metadata.csv", "".join(f"{id}|x|x\n" for id in ids))
    books = {"test": ["LJ001"], "dev": ["LJ002"], "train": ["LJ00[3-9]", "LJ0[1-5]?"]}
    assert ingest("ljspeech", splits=books).splits == {"train": 10, "dev": 5, "test": 5}
    drawn = ingest("ljspeech", splits={}, split={"by": "utterance", "dev": 0.2, "test": 0.2})
    assert set(drawn.splits) == {"train", "dev", "test"}
    with pytest.raises(SettingsError, match=r"covers the corpus' split 'LJ001'.*or utterance"):
        ingest("ljspeech", splits={})


def test_the_sixteen_recordings_of_ljspeech_are_ingested(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "LJSpeech-1.1"
    split = {"by": "utterance", "dev": 0.1, "test": 0.1}
    work = run(tmp_path, CorpusSettings.of({"uri": str(folder), "format": "ljspeech", "split": split}))
    out = {one.id: one for one in read_manifest(work.folder)}
    assert sorted(out) == [f"LJ001-{number:04d}" for number in range(1, 17)]
    assert read_rejects(work.path("rejects")) == []
    assert "about fourteen fifty-five" in out["LJ001-0007"].text
    assert "about 1455" in out["LJ001-0007"].extra["raw"]
    assert {one.speaker for one in out.values()} == {"LJSpeech-1.1"}
    assert 1 < min(one.duration for one in out.values()) < max(one.duration for one in out.values()) < 11


# THCHS-30


def test_thchs30_as_its_publisher_lays_it_out_with_links(corpus: Path, record: Record, ingest: Ingest) -> None:
    for split, id in (("train", "A11_0"), ("dev", "A11_1"), ("test", "D4_750")):
        for suffix in (".wav", ".wav.trn"):
            place = corpus / "data_thchs30" / split / f"{id}{suffix}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(f"../data/{id}{suffix}")
        record(f"data_thchs30/data/{id}.wav")
        _write(corpus / f"data_thchs30/data/{id}.wav.trn", TRN)
    out = ingest("thchs30", splits={}, split={})
    assert {id: one.split for id, one in out.utterances.items()} == {"A11_0": "train", "A11_1": "dev", "D4_750": "test"}
    assert out.rejects == {}
    one = out.utterances["A11_0"]
    hanzi, pinyin, phones = TRN.splitlines()
    assert (one.text, one.speaker) == (hanzi, "A11")
    assert one.extra == {"corpus_split": "train", "hanzi": hanzi, "pinyin": pinyin, "phones": phones}
    assert one.audio_filepath.endswith("data/A11_0.wav")
    assert ingest("thchs30", splits={}, split={}, text_key="pinyin").utterances["A11_0"].text == pinyin


def test_thchs30_follows_the_path_in_the_transcript_of_a_split(corpus: Path, record: Record, ingest: Ingest) -> None:
    for split, id in (("train", "A11_0"), ("test", "A11_1"), ("test", "A11_2")):
        record(f"{split}/{id}.wav")
        _write(corpus / split / f"{id}.wav.trn", f"../data/{id}.wav.trn\n")
    _write(corpus / "data/A11_0.wav.trn", TRN)
    (corpus / "data/A11_1.wav.trn").write_bytes(b"\xef\xbb\xbf" + TRN.replace("\n", "\r\n").encode())
    out = ingest("thchs30", splits={}, split={"dev": 0})
    assert {id: (one.split, one.text) for id, one in out.utterances.items()} == {
        "A11_0": ("train", "绿 是 阳春"),
        "A11_1": ("test", "绿 是 阳春"),
    }
    assert out.rejects == {"A11_2": "bad_entry"}
    assert "leads to ../data/A11_2.wav.trn, which does not exist" in out.details["A11_2"]


def test_thchs30_by_its_lists_of_syllables_whose_numbers_are_padded(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for id in ("A11_0", "A2_7", "A2_8", "C6_100"):
        record(f"data_thchs30/data/{id}.wav")
    _write(corpus / "doc/trans/train.syllable.txt", "A11_000 lv4 shi4\nA02_007 qi1\n")
    _write(corpus / "doc/trans/test.syllable.txt", "C06_100 bai3\nC06_101 yi1\n")
    _write(corpus / "doc/trans/train.word.txt", "A11_000 绿 是\n")
    out = ingest("thchs30", splits={}, split={"dev": 0}, text_key="pinyin")
    assert {id: (one.split, one.text) for id, one in out.utterances.items()} == {
        "A11_0": ("train", "lv4 shi4"),
        "A2_7": ("train", "qi1"),
        "C6_100": ("test", "bai3"),
    }
    assert out.utterances["A11_0"].extra["hanzi"] == "绿 是"
    assert out.rejects == {"C6_101": "missing_file", "A2_8": "transcript_missing"}
    assert ingest("thchs30", splits={}, split={"dev": 0}, text_key="hanzi").rejects["A2_7"] == "transcript_missing"


def test_thchs30_rejects_each_fault_by_its_id(corpus: Path, record: Record, ingest: Ingest) -> None:
    for number in range(8):
        record(f"data/A1_{number}.wav")
    _write(corpus / "data/A1_0.wav.trn", TRN)
    _write(corpus / "data/A1_1.wav.trn", "一\n")
    _write(corpus / "data/A1_2.wav.trn", "")
    _write(corpus / "data/A1_3.wav.trn", TRN + "a fourth line\n")
    (corpus / "data/A1_4.wav.trn").write_bytes("绿\nlv4\nl v4\n".encode("gb18030"))
    _write(corpus / "data/A1_6.wav.trn", TRN)
    _write(corpus / "train/A1_6.wav.trn", "../data/A1_6.wav.trn\n")
    _write(corpus / "test/A1_6.wav.trn", "../data/A1_6.wav.trn\n")
    _write(corpus / "data/A1_7.wav.trn", TRN)
    _write(corpus / "more/A1_7.wav.trn", TRN.replace("是", "的"))
    _write(corpus / "data/A1_9.wav.trn", TRN)
    _write(corpus / "data/A1_10.wav.trn", "一\n" * 600_000)
    out = ingest("thchs30", splits={"train": ["*"], "dev": [], "test": []}, split={"dev": 0})
    assert {id: utterance.text for id, utterance in out.utterances.items()} == {"A1_0": "绿 是 阳春", "A1_2": ""}
    assert out.rejects == {
        **dict.fromkeys(("A1_1", "A1_3", "A1_4", "A1_6", "A1_7", "A1_10"), "bad_entry"),
        "A1_5": "transcript_missing",
        "A1_9": "missing_file",
    }
    assert "1 lines; accepted: hanzi, pinyin and phones" in out.details["A1_1"]
    assert "not UTF-8" in out.details["A1_4"]
    assert "is in test and in train" in out.details["A1_6"]
    assert "more than the 1,000,000 characters" in out.details["A1_10"]
    assert "other words than in" in out.details["A1_7"]


@pytest.mark.parametrize(
    ("kind", "format", "text_key"),
    [("digits", "ljspeech", ""), ("mandarin", "thchs30", "pinyin"), ("round_trip", "", "")],
)
def test_a_generated_corpus_is_ingested_with_its_own_splits(
    tmp_path: Path, kind: str, format: str, text_key: str
) -> None:
    chosen = corpus_settings(
        {
            "kind": kind,
            "train": 8,
            "dev": 2,
            "test": 3,
            "long_sentences": 1,
            **({"other_voices": 0} if not format else {}),
        }
    )
    corpus = generate(tmp_path / "voice", chosen).path("corpus")
    values = {"uri": str(corpus), "format": format or "librispeech", "text_key": text_key, "max_reject_share": 0}
    work = run(tmp_path / "store", CorpusSettings.of(values))
    train = 8 if format else 24
    assert work.counts == {"utterances": train + 6, "rejects": 0, "train": train, "dev": 2, "test": 4}
    assert {len({one.speaker}) for one in read_manifest(work.folder)} == {1}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

"""Tables as other people write them: no field is shifted, dropped or read as a different one in silence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.conftest import RATE
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.ingest.corpora.ljspeech import LJSPEECH, Fields, tell_fields
from voxline.errors import WorkError

Record = Callable[..., Path]
Ingest = Callable[..., Any]
TEXTS = ["The quick brown fox jumps.", "She sells sea shells.", "A stitch in time saves 9.", "He met her at noon."]
READ = [text.replace("9", "nine") for text in TEXTS]


def write_table(corpus: Path, lines: list[str], name: str = "metadata.csv", encoding: str = "utf-8") -> None:
    (corpus / name).write_bytes(("\n".join(lines) + "\n").encode(encoding))


@pytest.mark.parametrize(
    ("line", "texts", "speaker", "extra"),
    [
        ("a{0}|{1}", TEXTS, "", set()),
        ("a{0}.wav|{1}|{2}", READ, "", {"raw"}),
        ("./wavs/a{0}.wav|{1}|{2}", READ, "", {"raw"}),
        ("wavs\\a{0}.wav|{1}|{2}", READ, "", {"raw"}),
        ("C:\\voices\\ann\\wavs\\a{0}.wav|{1}|{2}", READ, "", {"raw"}),
        ("/home/ann/voice/wavs/a{0}.wav|{1}", TEXTS, "", set()),
        ("voice/wavs/a{0}|{1}", TEXTS, "", set()),
        ("a{0}|{1}|{2}|1.23", READ, "", {"raw", "length"}),
        ("a{0}|{1}|4{0}", TEXTS, "", {"length"}),
        ("a{0}|{1}|speaker_0", TEXTS, "speaker_0", set()),
        ("./wavs/a{0}.wav|male1|{2}", READ, "male1", set()),
        ("a{0}|{1}|hˈɪɹ ɑːɹ sˌʌm", TEXTS, "", {"phonemes"}),
        ("a{0}|{1}|HH IH1 R AA1 R, S AH0 M", TEXTS, "", {"phonemes"}),
        ("a{0}|{1}|{{HH IH1 R}} {{AA1 R}}.", TEXTS, "", {"phonemes"}),
        ("a{0}|{1}|{2}", READ, "", {"raw"}),
    ],
)
def test_metadata_csv_of_others_is_read_for_what_it_is(
    line: str, texts: list[str], speaker: str, extra: set[str], corpus: Path, record: Record, ingest: Ingest
) -> None:
    """Field cases F3 and F12: two to four fields, with paths, speakers, lengths and phonemes."""
    for number in range(4):
        record(f"wavs/a{number}.wav")
    write_table(corpus, [line.format(number, TEXTS[number], READ[number]) for number in range(4)])
    out = ingest("ljspeech")
    assert out.rejects == {}
    assert out.ids == ["a0", "a1", "a2", "a3"]
    assert [utterance.text for utterance in out.utterances.values()] == texts
    assert {utterance.speaker for utterance in out.utterances.values()} == {speaker or corpus.name}
    assert {key for utterance in out.utterances.values() for key in utterance.extra} == extra


def test_recordings_may_lie_beside_the_table(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("b.wav")
    record("clips/a.flac")
    write_table(corpus, ["clips/a.flac|good day", "b.wav|go on"])
    out = ingest("ljspeech")
    assert (out.rejects, out.ids) == ({}, ["b", "clips/a"])
    write_table(corpus, ["/|good day", "b.wav|go on"])
    assert ingest("ljspeech").ids == ["b"]


def test_a_third_field_that_is_nothing_known_stops_and_says_so(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("wavs/a0.wav")
    write_table(corpus, [f"a{number}|{text}|zxvw qkj {number}{number} pp" for number, text in enumerate(TEXTS)])
    with pytest.raises(
        WorkError, match=r"the third field should be a reading of the second, and it is 'zxvw qkj 00 pp'"
    ):
        ingest("ljspeech")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("{text}|ann|happy", Fields(4, text=1, speaker=2, extra={"emotion": 3})),
        ("{text}|ann|1.2", Fields(4, text=1, speaker=2, extra={"length": 3})),
        ("{text}|happy|ann", Fields(4, text=1, speaker=3, extra={"emotion": 2})),
        ("{text}|44|ann", Fields(4, text=1, speaker=3, extra={"length": 2})),
        ("ann|{text}|en", Fields(4, text=2, speaker=1, extra={"language": 3})),
        ("{text}|{text}|train", Fields(4, text=2, raw=1, split=3)),
        ("{text}|test", Fields(3, text=1, split=2)),
    ],
)
def test_the_third_of_four_fields_may_be_anything(fields: str, told: Fields) -> None:
    assert tell_fields([f"a|{fields.format(text=text)}".split("|") for text in TEXTS], "t") == told


def test_fields_are_told_by_most_lines() -> None:
    rows = [["a", text, reading] for text, reading in zip(TEXTS, READ, strict=True)]
    assert tell_fields([*rows, ["b", "two fields"]], "t") == LJSPEECH
    assert tell_fields([], "t") == tell_fields([["no bar"]], "t") == LJSPEECH
    assert tell_fields([["a", "ja", "ja"], ["b", "nein", "nein"]], "t") == LJSPEECH  # commands of one word
    assert tell_fields([["a", "1", "one"], ["b", "2", "two"], ["c", "3", "three"]], "t") == LJSPEECH
    assert tell_fields([["a", "你好吗", "ni3 hao3 ma5"], ["b", "今天", "jin1 tian1"]], "t") == LJSPEECH
    assert tell_fields([["a", "да нет", "da net"], ["b", "не надо", "ne nado"], ["c", "дом", "dom"]], "t") == LJSPEECH
    with pytest.raises(WorkError, match="the third field should be a reading of the second"):
        tell_fields([["a", "да нет", "yes no"], ["b", "не надо", "do not"], ["c", "дом", "house"]], "t")
    assert tell_fields([["a", "電車が来た", "でんしゃがきた"], ["b", "水を飲む", "みずをのむ"]], "t") == LJSPEECH
    assert tell_fields([["a", "open 5 doors", "ann"], ["b", "close 7 doors", "ann"]], "t") == Fields(
        3, text=1, speaker=2
    )
    assert tell_fields([["a", "ab" * 60_000, "ba" * 60_000]] * 9, "t") == LJSPEECH  # and takes no hour
    assert tell_fields([["a", "你好吗", "ann"], ["b", "今天", "ann"]], "t") == Fields(3, text=1, speaker=2)
    assert tell_fields([["wavs/a.wav", "ann", "good day"], ["wavs/b.wav", "ann", "go on"]], "t") == Fields(
        3, text=2, speaker=1
    )
    # Speakers that are numbers; and numbers that are read out, in one way or the other.
    piper = [["a", str(place % 2), text] for place, text in enumerate(TEXTS)]
    assert tell_fields(piper, "t") == Fields(3, text=2, speaker=1)
    assert tell_fields([["a", "0", "zero"], ["b", "0", "oh"], ["c", "1", "one"], ["d", "1", "one"]], "t") == LJSPEECH


def test_common_voice_rejects_a_row_that_a_tab_or_a_line_feed_has_shifted(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    """Field case F1."""
    columns = "client_id\tpath\tsentence\tup_votes\tage"
    for number in range(4):
        record(f"clips/c{number}.wav")
    rows = [
        "ann\tc0.wav\tA good line.\t2\t",
        "ann\tc1.wav\tA tab\tsits here inside.\t2\ttwenties",
        "ann\tc2.wav\tThis line is broken",
        "in two parts.\t2\ttwenties",
        "bob\tc3.wav\tAnother good line.\t2\tthirties",
    ]
    write_table(corpus, [columns, *rows], "validated.tsv")
    out = ingest("common_voice", split={"by": "speaker", "dev": 0, "test": 0})
    assert out.ids == ["c0", "c3"]
    assert out.details["c1"] == "validated.tsv:3: 6 fields, the header has 5"
    assert out.details["c2"] == "validated.tsv:4: 3 fields, the header has 5"
    assert set(out.rejects.values()) == {"bad_entry"}
    assert len(out.rejects) == 3


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_spreadsheet_may_save_a_table_in_its_own_way(
    separator: str, encoding: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("clips/a.wav")
    lines = ["path,sentence", "clips/a.wav,dreh das Licht an"]
    write_table(corpus, [line.replace(",", separator) for line in lines], "table.csv", encoding)
    assert [utterance.text for utterance in ingest("csv").utterances.values()] == ["dreh das Licht an"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_table_of_two_bytes_a_character_without_a_mark_is_named(
    encoding: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("clips/a.wav")
    write_table(corpus, ["path\tsentence", "clips/a.wav\tgood morning"], "table.tsv", encoding)
    with pytest.raises(WorkError, match=f"zero bytes, as {encoding.replace('-le', 'le').replace('-be', 'be').upper()}"):
        ingest("csv")


def test_a_duration_that_cuts_speech_is_said(
    corpus: Path, record: Record, ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field case F4."""
    for number in range(3):
        record(f"clips/{number}.wav", seconds=1.6)
    write_table(corpus, ["path,duration,sentence", *[f"clips/{number}.wav,1,good day" for number in range(3)]], "t.csv")
    out = ingest("csv")
    assert [utterance.duration for utterance in out.utterances.values()] == [1.0, 1.0, 1.0]
    assert out.work.counts["shorter_than_recording"] == 3
    assert "3 utterances end before their recordings do, and none has an offset: clips/0.wav has 1 of 1.60 s" in (
        capsys.readouterr().out
    )


def test_parts_of_recordings_are_meant_to_end_before_them(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, ["path,start,end,sentence", "talk.wav,0,1,good day", "talk.wav,1.5,2,go on"], "t.csv")
    assert "shorter_than_recording" not in ingest("csv").work.counts


def test_times_have_several_names_and_others_are_said(
    corpus: Path, record: Record, ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, ["path,begin,stop,sentence", "talk.wav,0.5,1,good day"], "t.csv")
    [utterance] = ingest("csv").utterances.values()
    assert (utterance.offset, utterance.duration) == (0.5, 0.5)

    # A row without a duration ends where it says.
    write_table(corpus, ["path,start,duration,end,sentence", "talk.wav,0.5,,2,good day", "talk.wav,1,1,2,on"], "t.csv")
    assert [utterance.duration for utterance in ingest("csv").utterances.values()] == [1.5, 1.0]

    write_table(corpus, ["path,start_frame,end_frame,sentence", "talk.wav,50,100,good day"], "t.csv")
    [utterance] = ingest("csv").utterances.values()
    assert utterance.extra["start_frame"] == "50"
    assert "t.csv: start_frame and end_frame are kept, and cut no recording" in capsys.readouterr().out


def test_a_zero_byte_in_a_table_is_no_other_encoding(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write_table(corpus, ["path,sentence", "a.wav,good\0 day"], "t.csv")
    assert ingest("csv").utterances["a.wav"].text == "good\0 day"


def test_a_duration_beside_a_whole_recording_of_the_hub_is_kept_only(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    """Field case F4, as the Hub has it."""
    record("0.wav", seconds=1.6)
    write_table(corpus, ["file_name,duration,transcription", "0.wav,1,turn on the light"])
    utterance = ingest("huggingface").utterances["0.wav"]
    assert (utterance.duration, utterance.extra["corpus_duration"]) == (1.6, 1.0)
    assert ingest("huggingface", columns={"duration": "duration"}).utterances["0.wav"].duration == 1.0


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_part_of_the_hub_that_begins_at_0_is_a_part(
    ending: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("0.wav", seconds=1.6)
    lines = ["file_name,start,duration,text", "0.wav,0,0.5,good day", "0.wav,0.5,1,go on"]
    if ending == "jsonl":
        rows = [dict(zip(lines[0].split(","), ["0.wav", start, 0.5, "go on"], strict=True)) for start in (0, 0.5)]
        lines = [json.dumps(row) for row in rows]
    write_table(corpus, lines, f"metadata.{ending}")
    assert ingest("huggingface").utterances["0.wav"].duration == 0.5


def test_names_in_a_header_stand_for_one_column_each(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write_table(corpus, ["path,text,accent,accent", "a.wav,hello,us,en"], "t.csv")
    assert ingest("csv").utterances["a.wav"].extra == {"corpus_split": "t", "accent": "us", "accent_2": "en"}
    write_table(corpus, ["path,text,text", "a.wav,hello,goodbye"], "t.csv")
    with pytest.raises(WorkError, match="its header has text more than once"):
        ingest("csv")


@pytest.mark.parametrize("path", ["clips\\a.wav", ".\\clips\\a.wav", "clips/a", "clips\\a"])
def test_a_path_may_have_backslashes_or_lack_its_ending(
    path: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("clips/a.wav")
    write_table(corpus, ["path,sentence", f"{path},good morning"], "table.csv")
    out = ingest("csv")
    assert out.rejects == {}
    assert [utterance.text for utterance in out.utterances.values()] == ["good morning"]


def test_a_text_beside_each_recording(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F13: the most usual layout of a private corpus."""
    for name in ("1.wav", "2.flac", "3.WAV", "alone.wav"):
        record(name)
    for name, text in {"1.txt": "good\nday", "2.lab": "go on", "3.TXT": "stop", "4.txt": "no sound"}.items():
        (corpus / name).write_text(text + "\n", encoding="utf-8")
    (corpus / "README.txt").write_text("Recordings of ann.", encoding="utf-8")
    out = ingest("text_files")
    assert {id: utterance.text for id, utterance in out.utterances.items()} == {
        "1": "good day",
        "2": "go on",
        "3": "stop",
    }
    assert out.rejects == {"alone.wav": "transcript_missing", "4.txt": "missing_file"}


def test_the_two_trees_of_vctk(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F13."""
    for name in ("p225/p225_001_mic1.flac", "p225/p225_001_mic2.flac", "p226/p226_001_mic1.flac", "p315/p315_1.flac"):
        record(f"wav48_silence_trimmed/{name}")
    for name, text in {"p225/p225_001.txt": "Please call Stella.", "p226/p226_001.txt": "Ask her."}.items():
        (corpus / "txt" / name).parent.mkdir(parents=True)
        (corpus / "txt" / name).write_text(text, encoding="utf-8")
    (corpus / "speaker-info.txt").write_text("p225 23 F English", encoding="utf-8")
    out = ingest("text_files")
    stem = "wav48_silence_trimmed/p225/p225_001_mic"
    assert {id: (utterance.speaker, utterance.text) for id, utterance in out.utterances.items()} == {
        f"{stem}1": ("p225", "Please call Stella."),
        f"{stem}2": ("p225", "Please call Stella."),
        "wav48_silence_trimmed/p226/p226_001_mic1": ("p226", "Ask her."),
    }
    assert list(out.rejects.values()) == ["transcript_missing"]


def test_libritts_and_timit_keep_their_texts_beside(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train-clean-100/103/1241/103_1241_000000_000001.wav")
    stem = corpus / "train-clean-100/103/1241/103_1241_000000_000001"
    stem.with_name(stem.name + ".original.txt").write_text("Matthew waited, no. 2.", encoding="utf-8")
    stem.with_name(stem.name + ".normalized.txt").write_text("Matthew waited, number two.", encoding="utf-8")
    (utterance,) = ingest("text_files").utterances.values()
    assert (utterance.speaker, utterance.text) == ("103", "Matthew waited, number two.")
    assert (utterance.extra["raw"], utterance.extra["corpus_split"]) == ("Matthew waited, no. 2.", "train-clean-100")


def test_the_samples_of_timit_are_no_words(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("TRAIN/DR1/FCJF0/SA1.WAV")
    (corpus / "TRAIN/DR1/FCJF0/SA1.TXT").write_text("0 46797 She had your dark suit. \n", encoding="utf-8")
    (utterance,) = ingest("text_files").utterances.values()
    assert (utterance.speaker, utterance.text) == ("FCJF0", "She had your dark suit.")


def test_a_recording_with_two_texts_is_a_reject(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("wav/a.wav")
    for folder in ("txt", "notes"):
        (corpus / folder).mkdir()
        (corpus / folder / "a.txt").write_text("good day", encoding="utf-8")
    record("b.wav")
    (corpus / "b.txt").write_text("go", encoding="utf-8")
    assert ingest("text_files").rejects == {"wav/a.wav": "bad_entry"}


@pytest.mark.parametrize("text", ["nan", "None", "null", "NaN", "#N/A", "NAN", "Null", "#DIV/0!", "No transcript"])
def test_what_stands_for_an_empty_cell_is_no_transcript(
    text: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    """Field case U4."""
    record("a.wav")
    record("b.wav")
    write_table(corpus, ["path,sentence", f"a.wav,{text}", "b.wav,none of them"], "t.csv")
    out = ingest("csv")
    assert (out.ids, out.rejects) == (["b.wav"], {"a.wav": "transcript_missing"})
    assert f"the text is {text!r}, as pandas" in out.details["a.wav"]
    assert "take it out of corpus.missing_texts" in out.details["a.wav"]
    assert ingest("csv", missing_texts=[]).utterances["a.wav"].text == text


@pytest.mark.parametrize("layout", ["[{0},{1}]", "[\n{0},\n{1}\n]\n", "[{0},\n{1}]", "\ufeff[{0}, {1}]"])
def test_a_manifest_may_be_one_list(layout: str, corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F18."""
    elements = []
    for number, text in enumerate(("good day", "go on")):
        record(f"{number}.wav")
        elements.append(json.dumps({"audio_filepath": f"{number}.wav", "text": text}, indent=1))
    (corpus / "manifest.json").write_text(layout.format(*elements), encoding="utf-8")
    out = ingest("manifest")
    assert [utterance.text for utterance in out.utterances.values()] == ["good day", "go on"]
    (corpus / "manifest.json").write_text(layout.format(elements[0], "7"), encoding="utf-8")
    out = ingest("manifest")
    assert out.details["manifest.json, element 2"].endswith("a mapping is accepted, not int")


def test_a_list_that_is_cut_is_refused_by_name(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    (corpus / "manifest.json").write_text('[{"audio_filepath": "a.wav", "text": "go"},\n', encoding="utf-8")
    with pytest.raises(WorkError, match=r"manifest\.json: it is one value in JSON.*Expecting value.*jq -c"):
        ingest("manifest")


@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\n', "\n", "\n\n;;\n", "sep=;\n\n"])
def test_lines_before_a_header_are_no_header(first: str, corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F18, as Excel and people write them."""
    record("a.wav")
    (corpus / "t.csv").write_text(f"{first}path;sentence\na.wav;good day, all\n", encoding="utf-8")
    assert [utterance.text for utterance in ingest("csv").utterances.values()] == ["good day, all"]
    (corpus / "t.csv").unlink()
    (corpus / "t.tsv").write_text("\n\t\npath\tsentence\na.wav\tgood day\n", encoding="utf-8")
    assert [utterance.text for utterance in ingest("csv").utterances.values()] == ["good day"]


def test_a_text_that_is_something_else_is_marked_for_validate(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field cases F3, F4 and F6: validate counts what the transcripts, normalized, no longer show."""
    texts = ["44", "ann", "clips/4.wav", "so [Noise] it is (sic)", "forty-four", ""]
    for number in range(len(texts)):
        record(f"clips/{number}.wav", seconds=1.6)
    lines = [f"clips/{number}.wav,1.6,{text},ann" for number, text in enumerate(texts)]
    lines[4] = lines[4].replace("1.6", "1")
    write_table(corpus, ["path,duration,sentence,speaker", *lines], "t.csv")
    doubts = {id: utterance.extra.get("text_doubt", "") for id, utterance in ingest("csv").utterances.items()}
    assert list(doubts.values()) == ["number", "speaker", "path", "[noise]\n(sic)", "duration", ""]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("SPEAKER 1: go on", "speaker 1:"),
        ("Speaker_02: go on [noise]", "speaker_02:\n[noise]"),
        ("A: go on", "a:"),
        ("DR. JONES: go on", "dr. jones:"),
        ("Ann: go on", "ann:"),
        ("说话人1：你好", "说话人1："),
        (">> go on", ">>"),
        ("AT 7:30 go on", ""),
        ("we said: go on", ""),
        ("Note: go on", ""),
        ("John: go on", "john:"),
        ("Éva Nagy: go on", "éva nagy:"),
        ("Иван: да", "иван:"),
        ("At noon: go on", ""),
        ("a.wav go on", "id:"),
        ("1. go on", "number:"),
        ("(12) go on", "number:\n(12)"),
        ("3 go on", ""),
        ("1.5 of it", ""),
        ("00:12 go on", "time:"),
        ("0:01:12.5 go on", "time:"),
        ("7:30 is late", ""),
        ("none", "placeholder"),
        ("none of them", ""),
    ],
)
def test_a_label_in_front_of_a_text_is_marked_for_validate(
    text: str, label: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    """Field case F6, and transcripts of meetings."""
    record("a.wav")
    write_table(corpus, ["path,sentence,speaker", f"a.wav,{text},ann"], "t.csv")
    assert ingest("csv").utterances["a.wav"].extra.get("text_doubt", "") == label


def test_keys_of_a_manifest_that_look_like_times_are_said(
    corpus: Path, record: Record, ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    record("a.wav", seconds=1.6)
    line = {"id": "a", "audio_filepath": "a.wav", "text": "go", "speaker": "s", "split": "t", "duration": 0.5}
    for times in ({"start_frame": 50, "end_frame": 100}, {"start_frame": 50}):
        write_table(corpus, [json.dumps(line | times)] * 2, "m.jsonl")
        assert ingest("manifest").utterances["a"].extra["start_frame"] == 50
        said = capsys.readouterr().out
        assert said.count("no recording: seconds are read from offset or start") == 1
        assert f"m.jsonl:1: {' and '.join(times)} " in said
    write_table(corpus, [json.dumps(line | {"offset": 0.5, "start_ms": 500})], "m.jsonl")
    ingest("manifest")
    assert "no recording" not in capsys.readouterr().out


def test_the_key_of_a_list_of_wenet_is_the_id(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write_table(corpus, [json.dumps({"key": "utt 1", "wav": "a.wav", "txt": "good day"})], "m.jsonl")
    assert ingest("manifest").ids == ["utt 1"]


def test_a_key_that_is_there_twice_is_a_reject(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    lines = [
        '{"id": "a", "audio_filepath": "a.wav", "text": "go", "text": "stop"}',
        '{"id": "b", "audio_filepath": "a.wav", "text" : "go", "text" : "stop"}',
        '{"id": "c", "audio_filepath": "a.wav", "text": "go", "text": "go"}',
        '{"id": "d", "audio_filepath": "a.wav", "text": "say \\"go\\": now", "more": {"id": 1, "a": 1, "a": 1.0}}',
        '{"id": "e", "audio_filepath": "a.wav", "text": "go", "more": [{"a": 1, "a": 2}]}',
    ]
    write_table(corpus, lines, "m.jsonl")
    out = ingest("manifest")
    assert out.ids == ["c", "d"]
    assert out.details["m.jsonl:1"] == "m.jsonl:1: the key `text` is there twice, with two values"
    assert list(out.rejects) == ["m.jsonl:1", "m.jsonl:2", "m.jsonl:5"]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("form", [{"data": [0, 1]}, {"version": "1", "n": 2, "utterances": [0, 1], "tags": []}])
def test_a_manifest_may_be_a_mapping_with_a_list(
    form: dict[str, Any], indent: int | None, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("a.wav")
    record("b.wav")
    utterances = [{"audio": f"{name}.wav", "sentence": "good day"} for name in "ab"]
    whole = {key: utterances if value == [0, 1] else value for key, value in form.items()}
    (corpus / "manifest.json").write_text(json.dumps(whole, indent=indent), encoding="utf-8")
    out = ingest("manifest")
    assert (out.ids, out.rejects) == (["a.wav", "b.wav"], {})


def test_json_over_several_lines_is_read_or_refused_by_name(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    utterance = json.dumps({"audio_filepath": "a.wav", "text": "good day", "more": {"a": 1}}, indent=2)
    (corpus / "manifest.json").write_text(utterance, encoding="utf-8")
    assert ingest("manifest").utterances["a.wav"].text == "good day"
    for content, fault in (
        (f"{utterance}\n{utterance}\n", "Extra data"),
        (json.dumps({"audio": ["a.wav"], "text": ["go"]}, indent=2), "a mapping of audio, text"),
        (json.dumps({"a.wav": {"text": "go"}}, indent=2), "a mapping of a.wav, and no list"),
    ):
        (corpus / "manifest.json").write_text(content, encoding="utf-8")
        with pytest.raises(WorkError, match=rf"manifest\.json: it is one value in JSON.*{fault}.*jq -c"):
            ingest("manifest")


@pytest.mark.parametrize("count", [1, 3])
def test_tables_may_end_their_lines_as_old_macs_do(count: int, corpus: Path, record: Record, ingest: Ingest) -> None:
    for number in range(count):
        record(f"{number}.wav")
    lines = ["path\tsentence", *(f"{number}.wav\tgood day {number}" for number in range(count))]
    (corpus / "t.tsv").write_bytes("\r".join(lines).encode() + b"\r")
    assert [utterance.text for utterance in ingest("csv").utterances.values()] == [
        f"good day {n}" for n in range(count)
    ]
    (corpus / "t.tsv").unlink()
    (corpus / "t.csv").write_bytes("\r".join(lines).replace("\t", ",").encode() + b"\r")
    assert len(ingest("csv").ids) == count
    (corpus / "metadata.csv").write_bytes(b"a|good day\rb|go on\r")
    with pytest.raises(WorkError, match=r"metadata\.csv: its lines end in carriage returns alone.*tr "):
        ingest("ljspeech")


def test_a_fraction_with_a_comma_is_no_number_of_seconds(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav", seconds=1.6)
    write_table(corpus, ["path;start;end;sentence", "a.wav;0,5;1,25;good day", "a.wav;0.5;1.25;go on"], "t.csv")
    assert ingest("csv").details["a.wav"] == (
        "t.csv, row 2: start '0,5', end '1,25'; seconds are accepted; write a point where the fraction begins, as in "
        "0.5"
    )


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (["a,Good day.", "b,Go on, now."], r"no \| between their fields, but a comma.*corpus\.format csv"),
        (["a;Good day.;good day", "b;Go on.;go on"], "no .* but a semicolon"),
        (["a\tGood day.", "b\tGo on."], "no .* but a tab"),
        (["a|en|Good day.|good day x", "b|en|Go on.|go on y"], "4 fields, such as 'a|en|Good day.*a header"),
        (["a|A.|a.|1.2|ann", "b|B.|b.|1.3|ann"], r"5 fields.*corpus\.format csv"),
    ],
)
def test_a_metadata_csv_of_other_fields_says_what_to_do(
    lines: list[str], refused: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("wavs/a.wav")
    write_table(corpus, lines)
    with pytest.raises(WorkError, match=refused):
        ingest("ljspeech")


def test_a_fourth_field_may_be_the_speaker(corpus: Path, record: Record, ingest: Ingest) -> None:
    for number in range(4):
        record(f"wavs/a{number}.wav")
    write_table(corpus, [f"a{n}|{TEXTS[n]}|{READ[n]}|{'ann' if n % 2 else 'bob'}" for n in range(4)])
    assert {utterance.speaker for utterance in ingest("ljspeech").utterances.values()} == {"ann", "bob"}


def test_a_speaker_of_two_words_is_a_reject(corpus: Path, record: Record, ingest: Ingest) -> None:
    for name in "ab":
        record(f"{name}.wav")
    tables = {"wav.scp": "a a.wav\nb b.wav\n", "text": "a go\nb on\n", "utt2spk": "a ann\nb bob f\n"}
    for name, content in tables.items():
        (corpus / name).write_text(content, encoding="utf-8")
    out = ingest("kaldi")
    assert (out.ids, out.details) == (["a"], {"b": "utt2spk:2: 'bob f' for a speaker; one word is accepted"})


@pytest.mark.parametrize("format", ["ljspeech", "thchs30", "librispeech", "text_files", "common_voice", "kaldi"])
def test_recordings_in_which_nobody_speaks_reach_convert_in_every_format(
    format: str, corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    """Field case U1."""
    tables = {
        "ljspeech": {"metadata.csv": "1-2-0|Good day.|good day\n1-2-1||\n"},
        "thchs30": {"data/A1_0.wav.trn": "绿\nlv4\nl v4\n", "data/A1_1.wav.trn": "\n"},
        "librispeech": {"1/2/1-2.trans.txt": "1-2-0 GOOD DAY\n1-2-1\n"},
        "text_files": {"1-2-0.txt": "good day\n", "1-2-1.txt": "\n"},
        "common_voice": {"validated.tsv": "client_id\tpath\tsentence\nann\t1-2-0.wav\tgood\nann\t1-2-1.wav\t\n"},
        "kaldi": {"wav.scp": "1-2-0 1-2-0.wav\n1-2-1 1-2-1.wav\n", "text": "1-2-0 go\n1-2-1\n"},
    }[format]
    folder = {"ljspeech": "wavs/", "thchs30": "data/", "librispeech": "1/2/", "common_voice": "clips/"}.get(format, "")
    for number in range(2):
        record(
            f"{folder}{'A1_' if format == 'thchs30' else '1-2-'}{number}.{'flac' if format == 'librispeech' else 'wav'}"
        )
    for name, content in tables.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(content, encoding="utf-8")
    out = ingest(format, splits={}, split={"by": "utterance", "dev": 0, "test": 0})
    assert [bool(utterance.text) for utterance in out.utterances.values()] == [True, False]
    settings = {"sample_rate": RATE, "alphabet": "abcdefghijklmnopqrstuvwxyz 绿", "silence_db": -90}
    accepted = convert(out.work.folder, tmp_path / "store", ConvertSettings.of({**settings, "max_negative_share": 0.5}))
    assert accepted.counts["negatives"] == 1
    with pytest.raises(WorkError, match=r"1 × transcript_missing, .* convert\.max_negative_share accepts"):
        convert(out.work.folder, tmp_path / "store", ConvertSettings.of(settings))

"""Tables and folders of others whose rows, fields and names mislead: nothing is taken for what it is not in silence."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import soundfile

from tests.ingest.conftest import RATE
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.ingest.corpora.ljspeech import LJSPEECH, Fields, tell_fields
from voxline.data.manifest import read_manifest
from voxline.errors import WorkError

Record = Callable[..., Path]
Ingest = Callable[..., Any]
Captured = pytest.CaptureFixture[str]


def write(corpus: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_bytes(text.encode())


def texts_by_id(ingested: Any) -> dict[str, str]:
    return {id: utterance.text for id, utterance in ingested.utterances.items()}


@pytest.mark.parametrize(
    ("recordings", "texts", "read", "rejected"),
    [
        ("ann/0 ann/1 bob/0 bob/1", "ann/0 bob/0 bob/1", "ann/0 bob/0 bob/1", "ann/1"),
        ("train/0 test/0", "train/0", "train/0", "test/0"),
        ("ann/0 ann/1 bob/1", "ann/0 bob/1", "ann/0 bob/1", "ann/1"),
        ("ann/0 ann/1", "ann/0 old/1", "ann/0", "ann/1"),
        ("wav/a/0 wav/a/1", "txt/a/0", "wav/a/0", "wav/a/1"),
    ],
)
def test_a_text_among_recordings_is_of_none_in_another_folder(
    recordings: str, texts: str, read: str, rejected: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in recordings.split():
        record(f"{name}.wav")
    write(corpus, {f"{name}.txt": f"words of {name}" for name in texts.split()})
    out = ingest("text_files")
    assert texts_by_id(out) == {
        name: f"words of {name}" if name in texts.split() else "words of txt/a/0" for name in read.split()
    }
    assert out.rejects[f"{rejected}.wav"] == "transcript_missing"


@pytest.mark.parametrize(
    ("format", "name", "begin", "row"),
    [
        ("csv", "t.tsv", "path\tsentence\n", "{0}.wav\t{1}\n"),
        ("csv", "t.csv", "path,sentence\n", "{0}.wav,{1}\n"),
        ("csv", "t.csv", "speaker|path|text\n", "ann|{0}|{1}\n"),
        ("ljspeech", "metadata.csv", "", "{0}|{1}\n"),
        ("ljspeech", "metadata.csv", "", "{0}|{1}|{1}\n"),
        ("kaldi", "text", "", "{0} {1}\n"),
    ],
)
@pytest.mark.parametrize("rest", ["in two parts.", "in two, parts.", "\n\nin three\nparts.", "parts"])
def test_a_text_that_a_line_feed_cuts_is_a_reject_also_at_the_end_of_a_row(
    rest: str, format: str, name: str, begin: str, row: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    ids = ["a-0", "a-1", "a-2"]
    for id in ids:
        record(f"{id}.wav")
    texts = {"a-0": "Good day.", "a-1": f"This line is broken\n{rest}", "a-2": "Go on."}
    write(corpus, {name: begin + "".join(row.format(id, text) for id, text in texts.items())})
    if format == "kaldi":
        write(corpus, {"wav.scp": "".join(f"{id} {id}.wav\n" for id in ids)})
    out = ingest(format)
    assert sorted(texts_by_id(out).values()) == ["Go on.", "Good day."]
    if row.count("{1}") == 1:
        cut = {id: detail for id, detail in out.details.items() if "seems to go on in the next line" in detail}
        assert [id.removesuffix(".wav") for id in cut] == ["a-1"]


def test_a_sentence_of_common_voice_that_a_line_feed_cuts_is_a_reject(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in ("c0", "c1"):
        record(f"clips/{name}.wav")
    lines = ["client_id\tpath\tsentence", "ann\tc0.wav\tThis line is broken", "in two parts.", "ann\tc1.wav\tGo on."]
    write(corpus, {"validated.tsv": "\n".join(lines) + "\n"})
    out = ingest("common_voice", split={"by": "speaker", "dev": 0, "test": 0})
    assert out.ids == ["c1"]
    assert "its text seems to go on in the next line, 'in two parts.'" in out.details["c0"]


def test_rows_that_are_short_or_without_a_recording_leave_the_one_before(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in ("a0", "a1", "a2"):
        record(f"{name}.wav")
    write(corpus, {"t.csv": "id,path,text\na0,a0.wav,one\na1,a1.wav\na2,gone.wav,three\n"})
    assert texts_by_id(ingest("csv")) == {"a0": "one"}
    write(corpus, {"t.csv": "path,text\na0.wav,one\ngone7,two\na1.wav,three\n"})
    assert sorted(texts_by_id(ingest("csv")).values()) == ["one", "three"]
    write(corpus, {"t.csv": "path,text\na0,one\ngone,two\na2,a, b\na1,three\n"})
    assert sorted(texts_by_id(ingest("csv")).values()) == ["one", "three"]
    write(corpus, {"metadata.csv": "a0|one\ngone|two\na1\na2|three\na9\n"})
    assert texts_by_id(ingest("ljspeech")) == {"a0": "one", "a2": "three"}
    write(corpus, {"wav.scp": "a0 a0.wav\na1 a1.wav\na2 a2.wav\n", "text": "a0 one\na1 two\na15 left out\na2 three\n"})
    assert len(ingest("kaldi").utterances) == 3


def write_channels(path: Path, channels: int = 2) -> None:
    samples = np.random.default_rng(3).uniform(-0.3, 0.3, (RATE // 2, channels))
    soundfile.write(path, samples, RATE)


@pytest.mark.parametrize(
    ("first", "second", "channels"),
    [
        ("ch1", "ch2", [0, 1]),
        ("Ch_0", "Ch_1", [0, 1]),
        ("FL", "FR", [0, 1]),
        ("channel 1", "channel 2", [0, 1]),
        ("Left channel", "Right channel", [0, 1]),
        ("mic1", "mic2", [0, 1]),
        ("first", "second", [0, 1]),
        ("both", "mono", ["both", "mono"]),
        ("incoming", "outgoing", None),
        ("near", "far", None),
        ("1.5", "center", None),
    ],
)
def test_a_channel_that_a_column_names_is_obeyed_or_a_reject(
    first: str, second: str, channels: list[int] | None, corpus: Path, ingest: Ingest
) -> None:
    write_channels(corpus / "call.wav")
    write(corpus, {"t.csv": f"id,path,text,channel\na,call.wav,one,{first}\nb,call.wav,two,{second}\n"})
    if channels:
        assert [utterance.extra["channel"] for utterance in ingest("csv").utterances.values()] == channels
        return
    with pytest.raises(WorkError, match=rf"channel '{first}' is not understood, and call.wav has 2; a number, A or B"):
        ingest("csv")


def test_a_channel_of_one_is_no_loss_whatever_it_is_called(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write(corpus, {"t.csv": "path,text,channel\na.wav,one,Evening News\n"})
    assert ingest("csv").ids == ["a.wav"]


def test_the_channels_of_an_array_are_compared_and_named_as_those_of_a_call(
    corpus: Path, ingest: Ingest, tmp_path: Path
) -> None:
    write_channels(corpus / "array.wav", channels=4)
    write(corpus, {"t.csv": "path,text\narray.wav,one\n"})
    settings = ConvertSettings.of({"sample_rate": RATE})
    (converted,) = read_manifest(convert(ingest("csv").work.folder, tmp_path / "store", settings).folder)
    assert abs(float(converted.measured["channel_correlation"])) < 0.1
    sides = {"wav.scp": "a array.wav\n", "text": "a one\n", "reco2file_and_channel": "a array B\n"}
    write(corpus, sides)
    assert ingest("kaldi").utterances["a"].extra["channel"] == 1


def write_parquet(corpus: Path, record: Record, **columns: Any) -> None:
    audio = [{"bytes": record(f"made/{number}.wav").read_bytes(), "path": f"{number}.wav"} for number in range(2)]
    table = pyarrow.table({"audio": audio, **columns})
    shutil.rmtree(corpus / "made")
    pyarrow.parquet.write_table(table, corpus / "train.parquet")


def category(values: list[str]) -> Any:
    """A column as pandas writes a category."""
    return pyarrow.array(values).dictionary_encode()


@pytest.mark.parametrize(
    ("columns", "speakers", "texts", "told"),
    [
        ({"text": ["one", "two"], "speaker_id": category(["ann", "bob"])}, ["ann", "bob"], ["one", "two"], ""),
        ({"text": category(["one", "two"]), "sentence": ["en", "en"]}, ["", ""], ["one", "two"], "sentence differs"),
        (
            {"text": ["one", "two"], "speaker": [{"id": 7, "age": 3}, {"id": 8, "age": 4}]},
            ["7", "8"],
            ["one", "two"],
            "",
        ),
        (
            {"text": ["one", "two"], "mfcc": [[0.5], [1.5]]},
            ["", ""],
            ["one", "two"],
            "left out, as they are no numbers",
        ),
        (
            {"text": ["one", "two"], "start_ms": [10, 20], "end_ms": [90, 95]},
            ["", ""],
            ["one", "two"],
            "cut no recording",
        ),
    ],
)
def test_a_column_of_parquet_is_read_or_named(
    columns: dict[str, Any],
    speakers: list[str],
    texts: list[str],
    told: str,
    corpus: Path,
    record: Record,
    ingest: Ingest,
    capsys: Captured,
) -> None:
    write_parquet(corpus, record, **columns)
    out = ingest("huggingface")
    assert sorted((utterance.speaker, utterance.text) for utterance in out.utterances.values()) == sorted(
        zip(speakers, texts, strict=True)
    )
    assert told in capsys.readouterr().out


def test_a_list_of_a_channel_in_parquet_selects_it(corpus: Path, record: Record, ingest: Ingest) -> None:
    write_parquet(corpus, record, text=["one", "two"], channel=[[0], [0]])
    assert [utterance.extra["channel"] for utterance in ingest("huggingface").utterances.values()] == [0, 0]


def test_webdataset_says_which_times_and_texts_it_does_not_read(
    corpus: Path, record: Record, ingest: Ingest, capsys: Captured
) -> None:
    record("a.wav")
    write(corpus, {"a.json": '{"text": "one", "sentence": "en", "start_ms": 10, "end_ms": 20}'})
    with tarfile.open(corpus / "train-0.tar", "w") as tar:
        for name in ("a.wav", "a.json"):
            tar.add(corpus / name, name)
            (corpus / name).unlink()
    assert [utterance.text for utterance in ingest("webdataset").utterances.values()] == ["one"]
    told = capsys.readouterr().out
    assert "sentence differs: 'en' beside 'one'" in told
    assert "start_ms and end_ms are kept, and cut no recording" in told


@pytest.mark.parametrize(
    "name", ["Speaker ID", "Speaker Name", "spk-id", "participant", "narrator", "talker", "user", "reader", "说话人"]
)
@pytest.mark.parametrize("format", ["csv", "manifest"])
def test_a_speaker_is_read_by_any_usual_word(
    format: str, name: str, corpus: Path, record: Record, ingest: Ingest, capsys: Captured
) -> None:
    record("a.wav")
    row = {"path": "a.wav", "text": "one", "speaker_age": "33", name: "ann"}
    write(corpus, {"t.csv": f"{','.join(row)}\n{','.join(row.values())}\n", "t.jsonl": json.dumps(row)})
    assert ingest(format).utterances["a.wav"].speaker == "ann"
    assert f"speakers are read from {name}" in capsys.readouterr().out


def test_a_speaker_that_is_not_read_or_names_nobody_is_told(
    corpus: Path, record: Record, ingest: Ingest, capsys: Captured
) -> None:
    record("a.wav")
    record("b.wav")
    write(corpus, {"t.csv": "path,text,call_speaker_tag\na.wav,one,s1\nb.wav,two,s2\n"})
    assert ingest("csv").utterances["a.wav"].speaker == ""
    assert "call_speaker_tag is kept, and no speaker is read: corpus.columns.speaker" in capsys.readouterr().out
    write(corpus, {"t.csv": "path,text,speaker\na.wav,one,nan\nb.wav,two,1.23E+12\n"})
    ingest("csv")
    told = capsys.readouterr().out
    assert "1 utterances have the speaker 'nan', as t.csv, row 2, which names nobody" in told
    assert "1 utterances have the speaker '1.23E+12'" in told


@pytest.mark.parametrize(
    ("folder", "speaker", "split"),
    [
        ("ann/session1", "ann", ""),
        ("train/ann/session2", "ann", "train"),
        ("english/12", "12", ""),
        ("devon", "devon", ""),
        ("testa", "testa", ""),
        ("Valentina/takes", "Valentina", ""),
        ("test-other/ann", "ann", "test-other"),
        ("Training/ann", "ann", "Training"),
        ("validation_set/ann", "ann", "validation_set"),
    ],
)
def test_the_folder_of_a_speaker_is_no_session_and_no_split(
    folder: str, speaker: str, split: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record(f"{folder}/1.wav")
    write(corpus, {f"{folder}/1.txt": "one"})
    (utterance,) = ingest("text_files").utterances.values()
    assert utterance.speaker == speaker
    assert utterance.extra["corpus_split"] == (split or corpus.name)


def test_a_number_in_the_folders_of_several_speakers_is_a_session(
    corpus: Path, record: Record, ingest: Ingest, capsys: Captured
) -> None:
    for folder in ("ann/1", "bob/1", "noisy/cyd", "clean/cyd"):
        record(f"{folder}/a.wav")
        write(corpus, {f"{folder}/a.txt": "one"})
    out = ingest("text_files")
    assert [utterance.speaker for utterance in out.utterances.values()] == ["ann", "bob", "cyd", "cyd"]
    assert "folders with the name '1' are in several" in capsys.readouterr().out


def test_times_in_whole_seconds_are_told(corpus: Path, record: Record, ingest: Ingest, capsys: Captured) -> None:
    record("a.wav", seconds=20)
    rows = [f"a.wav,words {start},0:{start:02},0:{start + 3:02}" for start in (0, 4, 8, 12)]
    write(corpus, {"t.csv": "\n".join(["path,text,start,end", *rows]) + "\n"})
    assert ingest("csv").work.counts["in_whole_seconds"] == 3
    assert "3 of 3 utterances begin and end at whole seconds, such as a.wav@12.0 from 12 to 15 s" in (
        capsys.readouterr().out
    )
    write(corpus, {"t.csv": "\n".join(["path,text,start,end", *[f"{row}.2" for row in rows]]) + "\n"})
    assert "in_whole_seconds" not in ingest("csv").work.counts


def test_a_line_with_an_offset_leaves_the_durations_of_others_to_be_checked(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    names = [f"{number:02}" for number in range(20)]
    for name in names:
        record(f"{name}.wav", seconds=1.6)
    rows = [{"audio_filepath": f"{name}.wav", "text": "one", "duration": 1.0} for name in names]
    rows.append({"audio_filepath": "00.wav", "text": "two", "offset": 1.1, "duration": 0.4})
    write(corpus, {"t.jsonl": "\n".join(map(json.dumps, rows))})
    out = ingest("manifest")
    assert out.work.counts["shorter_than_recording"] == 19  # 00.wav has two parts
    rows += [{"audio_filepath": f"{name}.wav", "text": "two", "offset": 1.1, "duration": 0.4} for name in names[1:4]]
    write(corpus, {"t.jsonl": "\n".join(map(json.dumps, rows))})
    assert "shorter_than_recording" not in ingest("manifest").work.counts


@pytest.mark.parametrize("place", [0, 1])
def test_a_quotation_mark_of_any_column_swallows_no_row_in_silence(
    place: int, corpus: Path, record: Record, ingest: Ingest
) -> None:
    notes = ['"best TV', "plain", "plain too", 'TV 32"', "end"]
    lines = ["path,text,note" if not place else "note,path,text"]
    for number, note in enumerate(notes):
        record(f"{number}.wav")
        lines.append(f"{number}.wav,words,{note}" if not place else f"{note},{number}.wav,words")
    write(corpus, {"t.csv": "\n".join(lines) + "\n"})
    out = ingest("csv")
    assert out.ids == ["4.wav"]
    (detail,) = out.details.values()
    assert "a quotation mark before it is not closed" in detail


def test_a_note_of_several_lines_stays(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write(corpus, {"t.csv": 'path,text,note\na.wav,words,"first, then\nsecond, third, fourth"\n'})
    assert ingest("csv").ids == ["a.wav"]


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        (["Доброе утро.", "Как дела?"], ["Good morning.", "How are you?"]),
        (["Good morning.", "How are you?"], ["早上好。", "你好吗？"]),
        (["早上好。", "你好吗？"], ["Good morning.", "How are you?"]),
        (["शुभ प्रभात", "ठीक है OK", "OK"], ["Good morning", "all right", "OK"]),
    ],
)
def test_a_translation_behind_a_text_is_not_taken_for_it(printed: list[str], read: list[str]) -> None:
    rows = [[f"a{number}", *pair] for number, pair in enumerate(zip(printed, read, strict=True))]
    with pytest.raises(WorkError, match="the third field should be a reading of the second"):
        tell_fields(rows, "t")


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("你好吗", "nǐ hǎo ma"),
        ("我们去上学", "women qu shangxue"),
        ("電車が来た", "densha ga kita"),
        ("日本に行きます", "にほんにいきます"),
        ("學校", "학교"),
        ("12", "двенадцать"),
    ],
)
def test_a_reading_in_other_letters_is_the_text(printed: str, read: str) -> None:
    assert tell_fields([["a", printed, read], ["b", printed + "。", read + "."]], "t") == LJSPEECH


def test_a_number_with_several_texts_is_a_speaker() -> None:
    texts = ["Good day to you.", "Go on then.", "So long, ann."]
    rows = [[f"a{number}", speaker, text] for number, speaker, text in zip(range(3), "449", texts, strict=True)]
    assert tell_fields(rows, "t") == Fields(3, text=2, speaker=1)
    read_out = [["a", "12", "twelve of them"], ["b", "12", "twelve of them"], ["c", "7", "seven of them"]]
    assert tell_fields(read_out, "t") == LJSPEECH


def test_a_translation_is_no_transcript(corpus: Path, record: Record, ingest: Ingest) -> None:
    rows = [("a.wav", "en", "de"), ("b.wav", "en", "en-US"), ("c.wav", "en", "")]
    for name, _, _ in rows:
        record(name)
    header = ("audio_filepath", "text", "source_lang", "target_lang")
    lines = [(name, "guten Tag", source, target) for name, source, target in rows]
    write(corpus, {"t.csv": "\n".join(map(",".join, (header, *lines)))})
    write(corpus, {"t.jsonl": "\n".join(json.dumps(dict(zip(header, line, strict=True))) for line in lines)})
    for format in ("csv", "manifest"):
        out = ingest(format)
        assert out.ids == ["b.wav", "c.wav"]
        assert "a translation is no transcript" in out.all_rejects[0].detail


def test_the_sex_of_a_voice_is_no_speaker(corpus: Path, record: Record, ingest: Ingest, capsys: Captured) -> None:
    for name in ("a", "b"):
        record(f"{name}.wav")
    write(corpus, {"t.csv": "path,text,voice\na.wav,one,Male\nb.wav,two,female\n"})
    assert ingest("csv").utterances["a.wav"].speaker == ""
    assert "voice is kept, and no speaker is read" in capsys.readouterr().out


def test_a_rating_is_no_speaker() -> None:
    rows = [[f"a{number}", f"text {number} of many", "good"] for number in range(4)]
    assert tell_fields(rows, "t") == Fields(3, text=1, extra={"rating": 2})


def test_each_table_counts_channels_in_its_own_way(corpus: Path, ingest: Ingest, capsys: Captured) -> None:
    write_channels(corpus / "call.wav")
    write_channels(corpus / "array.wav", channels=3)
    rows = {"train": ("call", 1, 2), "test": ("call", 0, 1), "dev": ("array", 1, 2)}
    for table, (name, *channels) in rows.items():
        lines = [f"{table}{channel},{name}.wav,words,{channel}" for channel in channels]
        write(corpus, {f"{table}.csv": "\n".join(["id,path,text,channel", *lines]) + "\n"})
    channels = {id: utterance.extra["channel"] for id, utterance in ingest("csv").utterances.items()}
    assert channels == {"train1": 0, "train2": 1, "test0": 0, "test1": 1, "dev1": 1, "dev2": 2}
    assert "ingest: train.csv: channels are counted from 1, as recordings have 2" in capsys.readouterr().out


def test_a_clip_of_two_languages_with_one_name_is_a_reject(corpus: Path, record: Record, ingest: Ingest) -> None:
    for language in ("cv-corpus-21.0/de", "cv-corpus-21.0/en", "cv-corpus-20.0/en"):
        record(f"{language}/clips/clip.wav")
        write(corpus, {f"{language}/validated.tsv": "client_id\tpath\tsentence\nann\tclip.wav\twords\n"})
    out = ingest("common_voice", split={"by": "speaker", "dev": 0, "test": 0})
    assert out.ids == ["clip"]
    assert out.rejects == {"clip": "duplicate_id"}


@pytest.mark.parametrize(("seconds", "are_unlike"), [(2.0, False), (3.0, True)])
def test_recordings_in_two_formats_are_told(
    seconds: float, are_unlike: bool, corpus: Path, record: Record, ingest: Ingest, capsys: Captured
) -> None:
    record("1.wav", seconds=2.0)
    record("1.mp3", seconds=seconds)
    write(corpus, {"1.txt": "one"})
    assert ingest("text_files").utterances["1"].audio_filepath.endswith("1.wav")
    told = capsys.readouterr().out
    assert "1 recordings are there in two formats, such as 1.wav and 1.mp3; the first is read" in told
    assert ("1.wav has 2.00 s and 1.mp3 3." in told) == are_unlike


def test_a_manifest_has_speakers_and_times_as_tables_have_them(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav", seconds=4.0)
    row = {"wav": "a.wav", "txt": "words", "speaker": 1.0, "offset": "0:01.5", "duration": "2.0"}
    write(corpus, {"data.jsonl": json.dumps(row)})
    (utterance,) = ingest("manifest").utterances.values()
    assert (utterance.text, utterance.speaker) == ("words", "1")
    assert (utterance.offset, utterance.duration) == (1.5, 2.0)
    row = {"audio_filepath": "a.wav", "text": "words", "speaker": 1.0, "duration": "0:01"}
    write(corpus, {"data.jsonl": json.dumps(row)})
    (utterance,) = ingest("manifest").utterances.values()
    assert (utterance.speaker, utterance.duration) == ("1", 1.0)


def test_an_encoding_of_escapes_is_named(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    (corpus / "t.csv").write_bytes("path,text\na.wav,おはよう\n".encode("iso-2022-jp"))
    with pytest.raises(WorkError, match="iconv -f iso-2022-jp -t utf-8"):
        ingest("csv")

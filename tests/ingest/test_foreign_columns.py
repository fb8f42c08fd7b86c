"""Columns of times, channels and texts under the names that people give them: read, or named where they are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.conftest import RATE
from tests.ingest.test_channels import SIDES, pitches, write_call
from tests.ingest.test_foreign_tables import READ, TEXTS, Ingest, Record, write_table
from tests.ingest.test_released_formats import write_tar
from voxline.components.ingest.corpora.ljspeech import LJSPEECH, Fields, tell_fields
from voxline.components.ingest.settings import ColumnNames
from voxline.components.ingest.table_columns import (
    describe_texts,
    describe_unread,
    map_columns,
    read_times,
)

Said = pytest.CaptureFixture[str]
MANIFEST_LINE = {"audio_filepath": "talk.wav", "text": "good day"}


@pytest.mark.parametrize(
    ("header", "times"),
    [
        ("start,length", "0.5,1"),
        ("begin,finish", "0.5,1.5"),
        ("start,end_ms", "0.5,1500"),
        ("tmin,tmax", "0.5,1.5"),
        ("xmin,xmax", "0.5,1.5"),
        ("time_start,time_end", "0.5,1.5"),
        ("startTime,endTime", "0.5,1.5"),
        ("StartTimeMs,EndTimeMs", "500,1500"),
        ("Start (s),End (s)", "0.5,1.5"),
        ("Begin Time - ss.msec,End Time - ss.msec", "0.500,1.500"),
        ("Begin Time - hh:mm:ss.ms,Duration - hh:mm:ss.ms", "00:00:00.500,00:00:01.000"),
        ("Begin Time - msec,End Time - msec", "500,1500"),
        ("start_sample,end_sample", f"{RATE // 2},{RATE * 3 // 2}"),
        ("begin_sample,num_samples", f"{RATE // 2},{RATE}"),
        ("onset,offset", "0.5,1.5"),
        ("von,bis", "0.5,1.5"),
        ("onset,duration", "0.5,1"),
        ("from,to", "0.5,1.5"),
        ("segment_start,segment_end", "0.5,1.5"),
        ("audio_start,audio_duration", "0.5,1"),
        ("start,end,start_ms,end_ms", "0.5,1.5,500,1500"),
        ("start,end,duration", "0.5,1.5,1"),
        ("start_timestamp,end_timestamp", "0:00.5,0:01.5"),
        ("开始时间,结束时间", "0.5,1.5"),
        ("t0,t1", "0.5,1.5"),
    ],
)
def test_times_are_read_under_the_names_that_people_give_them(
    header: str, times: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, [f"path,text,{header}", f"talk.wav,good day,{times}"], "t.csv")
    (utterance,) = ingest("csv").utterances.values()
    assert (utterance.offset, utterance.duration) == (0.5, 1.0)
    assert "cut no recording" not in capsys.readouterr().out

    # The same keys of a manifest.
    (corpus / "t.csv").unlink()
    values = dict(zip(header.split(","), times.split(","), strict=True))
    numbers = {name: float(value) if ":" not in value else value for name, value in values.items()}
    write_table(corpus, [json.dumps(MANIFEST_LINE | numbers)], "m.jsonl")
    (utterance,) = ingest("manifest").utterances.values()
    assert (utterance.offset, utterance.duration) == (0.5, 1.0)


@pytest.mark.parametrize(
    "times",
    [
        {"segment": {"start": 0.5, "end": 1.5}},
        {"segment": {"start_ms": 500, "duration_ms": 1_000, "speaker": "a"}},
        {"audio_filepath": None, "audio": {"path": "talk.wav", "start": 0.5, "duration": 1.0}},
    ],
)
def test_times_of_a_manifest_may_be_in_a_mapping(
    times: dict[str, Any], corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, [json.dumps(MANIFEST_LINE | times)], "m.jsonl")
    (utterance,) = ingest("manifest").utterances.values()
    assert (utterance.offset, utterance.duration) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("end", "1.5"),
        ("timestamp", "00:00:00.100-00:00:01.100"),
        ("time", "1.25"),
        ("segment", "0.5-1.5"),
        ("start_ms", "500"),
        ("start_frame", "50"),
        ("start_idx", "8000"),
        ("where", "00:00:01.25"),
        ("Start Timecode", "01:00:01:12"),
        ("StartTime", "01:00:01;12"),
    ],
)
def test_a_column_that_looks_like_a_time_and_is_not_read_is_named(
    header: str, values: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, [f"path,text,{header}", f"talk.wav,good day,{values}"], "t.csv")
    (utterance,) = ingest("csv").utterances.values()
    assert (utterance.duration, utterance.extra[header]) == (3.0, values)
    assert f"t.csv: {header} is kept, and cuts no recording" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("end", "of story"),
        ("from,to", "Rome,Paris"),
        ("timestamp", "1614556800"),
        ("time", "2021-03-01 10:00"),
        ("to", ""),
    ],
)
def test_a_column_that_has_only_the_name_of_a_time_is_kept_unsaid(
    header: str, values: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, [f"path,text,{header}", f"talk.wav,good day,{values}"], "t.csv")
    assert ingest("csv").utterances["talk.wav"].duration == 3.0
    assert "recording: seconds" not in capsys.readouterr().out


def test_fractions_of_which_the_second_is_larger_in_each_row_look_like_times(
    corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    rows = [f"{number}.wav,go,{number}.5,{number}.{number + 6}" for number in range(3)]
    for number in range(3):
        record(f"{number}.wav", seconds=3.0)
    write_table(corpus, ["path,text,in,out", *rows], "t.csv")
    ingest("csv")
    assert "t.csv: in and out are kept, and cut no recording" in capsys.readouterr().out
    write_table(corpus, ["path,text,mark_in,mark_out", "0.wav,go,1,2"], "t.csv")
    ingest("csv")
    assert "t.csv: mark_in and mark_out are kept, and cut no recording" in capsys.readouterr().out
    write_table(corpus, ["path,text,in,out", *rows[:2], "2.wav,go,2.5,2.1"], "t.csv")
    ingest("csv")
    assert "no recording" not in capsys.readouterr().out


def test_a_start_without_an_end_is_said_with_count_and_example(
    corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav", seconds=3.0)
    write_table(corpus, ["path,text,start", "talk.wav,good day,0.5", "talk.wav,go on,1", "talk.wav,so,0"], "t.csv")
    out = ingest("csv")
    assert out.work.counts["without_end"] == 2
    assert (
        "2 utterances have a start and no end or duration: they last to the end of their recordings, such as "
        "talk.wav@0.5 from 0.5 to 3.00 s"
    ) in capsys.readouterr().out


def test_rows_without_times_among_rows_with_them_are_said(
    corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    for name, seconds in {"talk": 3.0, "long": 2.0}.items():
        record(f"{name}.wav", seconds=seconds)
    times = [{"offset": 0.5, "duration": 0.5}, {"offset": 1.2, "duration": 0.8}, {"offset": 0, "duration": 0.4}]
    rows = [json.dumps({"audio_filepath": "talk.wav", "text": "go on", **timed}) for timed in times]
    write_table(corpus, [*rows, json.dumps({"audio_filepath": "long.wav", "text": "well then"})], "m.jsonl")
    out = ingest("manifest")
    assert out.work.counts["without_times"] == 1
    assert out.utterances["long.wav"].duration == 2.0
    said = capsys.readouterr().out
    assert (
        "1 utterances have neither a start nor an end, and 2 have both: the first are whole recordings, such as "
        in said
    )
    write_table(corpus, rows, "m.jsonl")
    assert "without_times" not in ingest("manifest").work.counts


def test_times_that_contradict_each_other_are_a_reject_with_all_of_them(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("talk.wav", seconds=3.0)
    rows = ["talk.wav,good day,0.5,1.5,1", "talk.wav,go on,1,1.5,3", "talk.wav,so,,2,", "talk.wav,or,2,1,"]
    write_table(corpus, ["path,text,start,end,duration", *rows, "talk.wav,well,1_0,20,"], "t.csv")
    out = ingest("csv")
    details = [reject.detail.partition(": ")[2] for reject in sorted(out.all_rejects, key=lambda reject: reject.detail)]
    assert len(out.ids) == 1
    assert details[0].startswith(
        "start '1', end '1.5', duration '3' contradict each other: from start to end it is 0.5"
    )
    assert details[1:] == [
        "start '', end '2', duration ''; an end without a start",
        "start '2', end '1', duration ''; seconds are accepted, the end after the start",
        "start '1_0', end '20', duration ''; seconds are accepted",
    ]

    # The length of the recording is not that of the utterance.
    assert len(ingest("csv", columns={"duration": "none"}).ids) == 2
    write_table(corpus, [json.dumps(MANIFEST_LINE | {"start": 1, "end": 1.5, "duration": 3})], "m.jsonl")
    (corpus / "t.csv").unlink()
    with pytest.raises(Exception, match=r"start 1, end 1\.5, duration 3 contradict each other"):
        ingest("manifest")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("audio_channel", "01"),
        ("channel_id", "12"),
        ("side", "AB"),
        ("Side", ["left", "right"]),
        ("speakerChannel", "01"),
        ("channels", [[0], [1]]),
        ("channel", [[0], [1]]),
    ],
)
def test_channels_are_read_under_the_names_that_people_give_them(
    name: str, values: Any, corpus: Path, ingest: Ingest, tmp_path: Path
) -> None:
    write_call(corpus / "call.wav")
    rows = [
        {"id": id, "path": "call.wav", "text": text, name: value}
        for id, text, value in zip("AB", SIDES, values, strict=True)
    ]
    write_table(corpus, list(map(json.dumps, rows)), "m.jsonl")
    assert pitches(ingest("manifest"), tmp_path / "store") == {"A": 300, "B": 1_000}
    if not isinstance(values[0], list):
        (corpus / "m.jsonl").unlink()
        write_table(corpus, [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)], "t.csv")
        assert pitches(ingest("csv"), tmp_path / "store") == {"A": 300, "B": 1_000}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["channel", "0", "1", ""], "1 utterances name no channel, as t.csv, row 4, and 2 do"),
        (["channel", "0", "both", "1"], "1 utterances name no channel, as t.csv, row 3, and 2 do"),
        (["channel", "0", "both", "1"], "channel is kept, and selects no channel (both)"),
        (["side", "agent", "customer", "agent"], "side is kept, and selects no channel (agent)"),
        (["side", "A", "B", "A"], "channels are read from side"),
        (["mic", "left", "right", "left"], "mic is kept, and selects no channel (left)"),
    ],
)
def test_a_channel_that_is_not_read_is_said(
    rows: list[str], said: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    name, *values = rows
    for number in range(len(values)):
        record(f"{number}.wav")
    write_table(
        corpus, [f"path,text,{name}", *[f"{number}.wav,go,{value}" for number, value in enumerate(values)]], "t.csv"
    )
    ingest("csv")
    assert said in capsys.readouterr().out


def test_a_count_of_channels_selects_none(corpus: Path, record: Record, ingest: Ingest, capsys: Said) -> None:
    record("talk.wav")
    for name in ("channels", "num_channels", "n_channels", "nchannels"):
        write_table(corpus, [json.dumps(MANIFEST_LINE | {name: 1})], "m.jsonl")
        assert ingest("manifest").utterances["talk.wav"].extra[name] == 1
    assert "channels are" not in (said := capsys.readouterr().out)
    assert "no channel" not in said


STARTS = ("start", "begin", "Start", "BEGIN", "onset", "tmin", "t_min", "xmin")
ENDS = ("end", "stop", "End", "FINISH", "until", "tmax", "t_max", "xmax")
AROUND = ("{}", "{}_time", "time_{}", "{}Time", "segment {}", "utt_{}", "seg.{}", "{} timestamp", "audio_{}", "{}-at")
UNITS = {"": 1.0, "_s": 1.0, " (sec)": 1.0, "_ms": 1e3, " [ms]": 1e3, "Msec": 1e3, "_seconds": 1.0, " in millis": 1e3}
OTHERS = ("speaker", "age", "accent", "up_votes", "snr", "client_id", "created", "source", "locale")


@settings(max_examples=200, deadline=None)
@given(
    start=st.sampled_from(STARTS),
    end=st.sampled_from(ENDS),
    around=st.sampled_from(AROUND),
    units=st.tuples(*[st.sampled_from(list(UNITS))] * 2),
    others=st.lists(st.sampled_from(OTHERS), unique=True),
    as_text=st.booleans(),
    data=st.data(),
)
def test_a_start_and_an_end_are_read_whatever_they_are_called(
    start: str, end: str, around: str, units: tuple[str, str], others: list[str], as_text: bool, data: st.DataObject
) -> None:
    names = [around.format(word) + unit for word, unit in zip((start, end), units, strict=True)]
    times = [seconds * UNITS[unit] for seconds, unit in zip((0.5, 1.5), units, strict=True)]
    values: dict[str, Any] = dict.fromkeys(others, "x")
    values |= {name: str(time) if as_text else time for name, time in zip(names, times, strict=True)}
    values = {name: values[name] for name in data.draw(st.permutations(list(values)))}
    sample = {name: [value] for name, value in values.items()}
    columns = map_columns(values, ColumnNames(), sample)
    assert read_times(values, columns, ColumnNames(), lambda: RATE) == (0.5, 1.0)
    assert describe_unread(values, columns, sample) == []


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(
        st.builds(
            lambda around, word, unit: around.format(word) + unit,
            *map(st.sampled_from, (AROUND, (*STARTS, *ENDS), list(UNITS))),
        ),
        max_size=4,
        unique_by=str.lower,
    ),
    times=st.lists(st.floats(0.01, 9), min_size=4, max_size=4),
)
def test_no_time_is_left_out_unsaid(names: list[str], times: list[float]) -> None:
    """Each is read, or named, or says what those that are read say; or the row is a reject."""
    values = dict(zip(names, times, strict=False))
    sample = {name: [value] for name, value in values.items()}
    columns = map_columns(values, ColumnNames(), sample)
    told = " ".join(describe_unread(values, columns, sample))
    fault = ""
    offset, duration = 0.0, None
    try:
        offset, duration = read_times(values, columns, ColumnNames(), lambda: RATE)
    except ValueError as error:
        fault = str(error)
    if fault:
        assert all(name in fault for name in columns.values())
        return
    accepted = [offset, offset + (duration or 0)]
    for name, value in values.items():
        seconds = [value, value / 1e3]
        same = any(abs(number - read) < 0.11 for number in seconds for read in accepted)
        assert name in columns.values() or name in told or same


def test_a_manifest_whose_keys_are_all_its_own_has_an_end(
    corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav", 3.0)
    lines = [
        MANIFEST_LINE | {"id": "a", "offset": 0.5, "end": 1.5},
        MANIFEST_LINE | {"id": "b", "offset": 0.5, "duration": 1.0, "end": 1.5},
        MANIFEST_LINE | {"id": "c", "offset": 0.5, "duration": 1.0, "end": 2.5},
    ]
    write_table(corpus, list(map(json.dumps, lines)), "m.jsonl")
    out = ingest("manifest")
    assert {id: (one.offset, one.duration) for id, one in out.utterances.items()} == dict.fromkeys("ab", (0.5, 1.0))
    assert "contradict each other: from start to end it is 2 s" in out.details["c"]
    assert "no end or duration" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("further", "told"),
    [
        ({"sentence": "Good day!"}, "the text is read from text, and sentence differs: 'Good day!' beside 'good day'"),
        ({"text_pc": "Good day!"}, "the text is read from text, and text_pc differs"),
        ({"text": "", "transcript": "Good day!"}, "transcript differs: 'Good day!' beside ''"),
        ({"pred_text": "could day"}, ""),
        ({"channels": [0, 1]}, "channels is kept, and selects no channel ([0, 1])"),
    ],
)
def test_further_keys_beside_those_of_a_manifest_are_named(
    further: dict[str, Any], told: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    record("talk.wav")
    write_table(corpus, [json.dumps(MANIFEST_LINE | further)], "m.jsonl")
    ingest("manifest")
    out = capsys.readouterr().out
    assert told in out
    assert ("m.jsonl:1:" in out) == bool(told)
    assert "cuts no recording" not in out


def test_another_text_that_differs_is_said(corpus: Path, record: Record, ingest: Ingest, capsys: Said) -> None:
    for number in range(2):
        record(f"{number}.wav")
    rows = [{"path": f"{number}.wav", "text": str(number), "transcript": TEXTS[number]} for number in range(2)]
    write_table(corpus, [",".join(rows[0]), *(",".join(row.values()) for row in rows)], "t.csv")
    ingest("csv")
    said = f"the text is read from text, and transcript differs: {TEXTS[0]!r} beside '0'; corpus.columns.text names"
    assert f"t.csv: {said}" in capsys.readouterr().out
    ingest("csv", columns={"text": "transcript"})
    assert "differs:" not in capsys.readouterr().out

    # A manifest in which only the second line has another text.
    (corpus / "t.csv").unlink()
    rows[0]["text"] = TEXTS[0]
    write_table(corpus, list(map(json.dumps, rows)), "m.jsonl")
    ingest("manifest")
    assert "m.jsonl:2: the text is read from text, and transcript differs: 'She sells" in capsys.readouterr().out


def test_a_tsv_that_excel_has_quoted_is_read_as_it_was_typed(corpus: Path, record: Record, ingest: Ingest) -> None:
    for number in range(2):
        record(f"{number}.wav")
    write_table(corpus, ["path\tsentence", '0.wav\t"He said ""no"", twice"', '1.wav\t"One, two."'], "t.tsv")
    texts = [utterance.text for utterance in ingest("csv").utterances.values()]
    assert texts == ['He said "no", twice', "One, two."]

    # Marks that are part of the text stay.
    write_table(corpus, ["path\tsentence", '0.wav\t"No," he said, "no"', '1.wav\t"One ""two"""'], "t.tsv")
    texts = [utterance.text for utterance in ingest("csv").utterances.values()]
    assert texts == ['"No," he said, "no"', '"One ""two"""']


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1\n00:00:00,000 --> 00:00:01,500\nGood day.\n", "subtitles (SRT or WebVTT), with times"),
        ("\ufeff1\r\n00:00:00,000 --> 00:00:01,500\r\nGood day.\r\n", "subtitles (SRT or WebVTT), with times"),
        ("WEBVTT\n\n00:00.000 --> 00:01.500\nGood day.\n", "subtitles (SRT or WebVTT), with times"),
        ("[00:00.000 --> 00:01.500]  Good day.\n", "subtitles (SRT or WebVTT), with times"),
        ("0.000000\t1.500000\tGood day.\n", "labels with times, as Audacity writes them"),
        ("0.0 1.5 good\n1.5 2.0 day\n2.0 2.5\n", "labels with times, as Audacity writes them"),
        ("[ar:ann]\n[00:12.00]Good day.\n", "lyrics with times (LRC)"),
        ("a 1 ann 0.00 1.50 <o,f0,female> good day\n", "segments with times (STM or CTM)"),
        (";; a comment\na 1 0.00 0.35 good\n", "segments with times (STM or CTM)"),
        ('File type = "ooTextFile"\nObject class = "TextGrid"\n', "a TextGrid of Praat"),
        ('{"text": "good day"}', "JSON"),
        ("<?xml version='1.0'?><a>good day</a>", "a document of XML or HTML"),
        ("{\\rtf1\\ansi good day}", "a document in RTF"),
        ("0.0\t1.5\tgood\n\\\t100.0\t200.0\n", "labels with times, as Audacity writes them"),
        ("@UTF8\n@Begin\n*CHI:\tgood day .\n", "a transcript of CHAT, with headers and who speaks"),
        ("@home we go on", ""),
        ("text: good day\nspeaker: ann\n", "fields with names"),
        ("# speaker: ann\ngood day\n", "fields with names"),
        ("Text: it is\ngood day\n", ""),
        ("Speaker 1 00:00\ngood day\n", "who speaks, and when"),
        ("Unknown Speaker  [00:01:05]\ngood day\n", "who speaks, and when"),
        ("The host of 7:30\ngood day\n", ""),
        ("Guest of 7:30\ngood day\n", ""),
        ("00:01 good\n00:02 day\n", "lines with times"),
        ("7:30 is when we go on.", ""),
        ("at 0.5 1.5 or so", ""),
        ("{laughs} good day", ""),
        ("[1] good day", ""),
    ],
)
def test_a_text_file_with_times_is_no_transcript(
    text: str, form: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("0.wav")
    record("1.wav")
    (corpus / "0.txt").write_text(text, encoding="utf-8", newline="")
    (corpus / "1.txt").write_text("go on", encoding="utf-8")
    out = ingest("text_files")
    assert out.rejects == ({"0.wav": "bad_entry"} if form else {})
    assert out.details.get("0.wav", "").startswith(f"0.txt: {form}, and no transcript: " if form else "")


@pytest.mark.parametrize("name", ["transcript_confidence", "text_score", "sentence_number", "dataset"])
def test_a_number_of_a_text_is_no_text_and_a_corpus_no_split(name: str) -> None:
    value = "test_ted" if name == "dataset" else "0.93"
    columns = map_columns(["path", "text", name], ColumnNames(), {name: [value]})
    assert name not in columns.values()
    assert describe_unread(["path", "text", name], columns, {name: [value]}) == []
    assert describe_texts(columns, ColumnNames(), [{"path": "0.wav", "text": "go on", name: value}]) == ""


def test_speakers_and_times_of_rows_with_blank_cells(corpus: Path, record: Record, ingest: Ingest) -> None:
    for name in ("a", "b", "c"):
        record(f"{name}.wav")
    rows = ["a.wav,go on,12.0,0.1,0.4", "b.wav,good day,12,0.1,0.3", "c.wav,well,,,"]
    write_table(corpus, ["path,text,speaker,start,end", *rows], "t.csv")
    out = ingest("csv")
    assert {utterance.speaker for utterance in out.utterances.values()} == {"12"}
    assert "its times are blank, and other rows have some" in out.details["c.wav"]


def test_speakers_of_kaldi_by_their_utterances(corpus: Path, record: Record, ingest: Ingest, capsys: Said) -> None:
    for name in ("a", "b", "c"):
        record(f"{name}.wav")
    tables = {"wav.scp": "a a.wav\nb b.wav\nc c.wav\n", "text": "a go\nb on\nc so\n", "spk2utt": "ann a b\n"}
    for name, content in tables.items():
        (corpus / name).write_text(content, encoding="utf-8")
    out = ingest("kaldi")
    assert {id: utterance.speaker for id, utterance in out.utterances.items()} == {"a": "ann", "b": "ann", "c": ""}
    assert "1 of 3 utterances have no speaker: c" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listed", "speakers", "told"),
    [
        ("ann a b\nben c\n", ["ann", "ann", "ben"], ""),
        (
            "ann a\nben b c\n",
            ["ann", "ann", "ben"],
            "1 of 3 utterances have another speaker than in utt2spk, which is ",
        ),
        ("ann a b\nben b c\n", ["ann", "ann", "ben"], "read: b is of ann and ben, and of ann there"),
        ("ann a b\n", ["ann", "ann", "ben"], "spk2utt: 1 utterances of utt2spk are not in it: c"),
        ("ann a b\nben c d\n", ["ann", "ann", "ben", "ben"], "1 utterances are in it and not in utt2spk, and read"),
    ],
)
def test_speakers_of_kaldi_that_its_two_tables_name_differently_are_said(
    listed: str, speakers: list[str], told: str, corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    ids = "abcd"[: len(speakers)]
    for id in ids:
        record(f"{id}.wav")
    tables = {"utt2spk": "a ann\nb ann\nc ben\n", "spk2utt": listed}
    tables["wav.scp"] = "".join(f"{id} {id}.wav\n" for id in ids)
    tables["text"] = "".join(f"{id} go {id}\n" for id in ids)
    for name, content in tables.items():
        (corpus / name).write_text(content, encoding="utf-8")
    out = ingest("kaldi")
    assert [utterance.speaker for utterance in out.utterances.values()] == speakers
    said = capsys.readouterr().out
    assert told in said
    assert told or "spk2utt" not in said


def test_an_utterance_of_two_speakers_is_rejected(corpus: Path, record: Record, ingest: Ingest) -> None:
    for id in "ab":
        record(f"{id}.wav")
    tables = {"wav.scp": "a a.wav\nb b.wav\n", "text": "a go\nb on\n", "spk2utt": "ann a b\nben b\n"}
    for name, content in tables.items():
        (corpus / name).write_text(content, encoding="utf-8")
    out = ingest("kaldi")
    assert out.ids == ["a"]
    assert out.details["b"] == "spk2utt:1: ann and ben for the speaker; one is accepted"


@pytest.mark.parametrize(
    ("values", "key"),
    [(["neutral", "happy"], "emotion"), (["de_DE", "en"], "language"), (["en", "en"], "language"), (["F", "M"], "sex")],
)
def test_an_emotion_or_a_language_is_no_speaker(
    values: list[str], key: str, corpus: Path, record: Record, ingest: Ingest
) -> None:
    for number in range(4):
        record(f"wavs/a{number}.wav")
    lines: list[Callable[[int, str], str]] = [
        lambda number, value: f"a{number}|{TEXTS[number]}|{value}",
        lambda number, value: f"a{number}|{value}|{TEXTS[number]}",
        lambda number, value: f"a{number}|{TEXTS[number]}|{TEXTS[number]}|{value}",
    ]
    for line in lines:
        write_table(corpus, [line(number, values[number % 2]) for number in range(4)])
        out = ingest("ljspeech")
        assert [utterance.text for utterance in out.utterances.values()] == TEXTS
        assert [utterance.extra[key] for utterance in out.utterances.values()] == values * 2
        assert {utterance.speaker for utterance in out.utterances.values()} == {corpus.name}


def test_texts_of_a_sample_and_of_further_columns_that_differ_are_said(
    corpus: Path, record: Record, ingest: Ingest, capsys: Said
) -> None:
    audio = record("a.wav").read_bytes()
    write_tar(corpus / "train-0.tar", {"b.wav": audio, "b.txt": "go on", "b.json": json.dumps({"text": "Go on!"})})
    out = ingest("webdataset").utterances["b"]
    assert (out.text, out.extra["json_text"]) == ("go on", "Go on!")
    assert "the text is read from text, and json_text differs: 'Go on!' beside 'go on'" in capsys.readouterr().out
    write_table(corpus, ["path,raw_text,clean_text,text_id", "a.wav,5 km,five kilometers,7"], "t.csv")
    ingest("csv")
    assert "and clean_text differs: 'five kilometers' beside '5 km'" in capsys.readouterr().out


def test_the_times_of_htk_are_no_words(corpus: Path, record: Record, ingest: Ingest) -> None:
    for name, text in {"a.lab": "0 5000000 The\n", "b.txt": "0 100 h#\n100 200 sh\n", "c.txt": "go on"}.items():
        record(f"{name[0]}.wav")
        (corpus / name).write_text(text, encoding="utf-8")
    out = ingest("text_files")
    assert (out.ids, out.rejects) == (["c"], {"a.wav": "bad_entry", "b.wav": "bad_entry"})
    assert out.details["a.wav"].startswith("a.lab: labels with times, as HTK and TIMIT have them, and no transcript")


def test_a_text_with_times_in_a_tar_is_no_transcript(corpus: Path, record: Record, ingest: Ingest) -> None:
    audio = record("a.wav").read_bytes()
    (corpus / "a.wav").unlink()
    subtitles = "1\n00:00:00,000 --> 00:00:01,500\nGood day.\n"
    write_tar(corpus / "train-0.tar", {"a.wav": audio, "a.txt": subtitles, "b.wav": audio, "b.txt": "go on"})
    out = ingest("webdataset")
    assert (out.ids, out.rejects) == (["b"], {"a": "bad_entry"})
    assert "its .txt is subtitles (SRT or WebVTT), with times, and no transcript" in out.details["a"]


def test_lines_with_a_list_each_are_lines(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Lhotse's recordings have a list of sources; beside them a manifest is read."""
    record("talk.wav")
    write_table(corpus, [json.dumps({"id": "r", "sources": [{"type": "file"}]})] * 2, "recordings.jsonl")
    write_table(corpus, [json.dumps(MANIFEST_LINE)], "m.jsonl")
    assert ingest("manifest").ids == ["talk.wav"]


def test_names_and_commands_are_no_labels() -> None:
    named = [["a", text, name] for text, name in zip(TEXTS, ["en", "ann", "en", "ann"], strict=True)]
    assert tell_fields(named, "t") == Fields(3, text=1, speaker=2)
    assert tell_fields([["a", "is", "is"], ["b", "it", "it"]], "t") == LJSPEECH
    assert tell_fields([["a", text, read] for text, read in zip(TEXTS, READ, strict=True)], "t") == LJSPEECH

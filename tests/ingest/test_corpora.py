"""Each format that Voxline reads, and what it does with an entry that is wrong."""

import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.speech.errors import WorkError
from components.speech.utterances import fingerprint

Ingest = Callable[..., Any]
Record = Callable[..., Path]
NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))


# LibriSpeech


def test_librispeech_takes_sex_and_reader_from_speakers_txt(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("LibriSpeech/train-clean-100/19/198/19-198-0000.flac")
    _write(corpus / "LibriSpeech/train-clean-100/19/198/19-198.trans.txt", "19-198-0000 NORTHANGER ABBEY\n")
    _write(
        corpus / "LibriSpeech/SPEAKERS.TXT",
        "; ID |SEX| SUBSET\n19   | F | train-clean-100 | 25.19 | Kara Shallenberg\n",
    )
    out = ingest("librispeech")
    extra = {"corpus_split": "train-clean-100", "sex": "F", "reader": "Kara Shallenberg"}
    assert out.utterances["19-198-0000"].extra == extra


def test_librispeech_rejects_a_line_without_recording_and_a_recording_without_line(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for number in (0, 1, 3):
        record(f"dev-clean/1/2/1-2-000{number}.flac")
    record("dev-clean/1/9/1-9-0000.flac")
    _write(corpus / "dev-clean/1/2/1-2.trans.txt", "1-2-0000 A\n1-2-0001 B\n1-2-0002 C\n")
    out = ingest("librispeech")
    assert out.ids == ["1-2-0000", "1-2-0001"]
    assert out.rejects == {
        "1-2-0002": "missing_file",
        "1-2-0003": "transcript_missing",
        "1-9-0000": "transcript_missing",
    }


def test_librispeech_reads_bom_crlf_wav_and_any_case_of_an_extension(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("dev-clean/1/2/1-2-0000.FLAC")
    record("dev-clean/1/2/1-2-0001.wav")
    record("dev-clean/1/2/1-2-0002.wav")
    record("dev-clean/1/2/1-2-0002.flac")
    lines = "1-2-0000 A WORD\r\n\r\n1-2-0001 CAFE\u0301\r\n1-2-0002\r\n"
    (corpus / "dev-clean/1/2/1-2.Trans.TXT").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    out = ingest("librispeech")
    assert [one.text for one in out.utterances.values()] == ["A WORD", "CAFÉ", ""]
    assert out.utterances["1-2-0002"].audio_filepath.endswith(".flac")
    assert out.rejects == {}


def test_librispeech_knows_a_recording_whatever_unicode_form_its_name_has(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record(f"dev-clean/1/2/{NFD}-0000.flac")
    _write(corpus / "dev-clean/1/2/1-2.trans.txt", f"{NFC}-0000 A\n")
    out = ingest("librispeech")
    assert (out.ids, out.rejects) == ([f"{NFC}-0000"], {})


def test_a_link_out_of_the_corpus_is_rejected_whether_file_or_folder(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    inside = record("dev-clean/1/2/1-2-0000.flac")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.flac").write_bytes(inside.read_bytes())
    (inside.parent / "1-2-0001.flac").symlink_to(elsewhere / "secret.flac")
    (inside.parent / "1-2-0002.flac").symlink_to(inside)
    (corpus / "test-clean").symlink_to(elsewhere)
    _write(inside.parent / "1-2.trans.txt", "1-2-0000 A\n1-2-0001 B\n1-2-0002 C\n")
    out = ingest("librispeech")
    assert out.ids == ["1-2-0000", "1-2-0002"]
    assert out.rejects == {"1-2-0001": "outside_corpus", "test-clean": "outside_corpus"}


def test_hidden_files_of_a_mac_are_no_recordings(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("recordings/7_ann_0.wav")
    _write(corpus / "recordings/._7_ann_0.wav", "Mac OS X")
    _write(corpus / "__MACOSX/recordings/7_ann_0.wav", "Mac OS X")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0"]
    assert out.rejects == {}


# FSDD


def test_fsdd_rejects_a_name_that_is_not_digit_speaker_index(corpus: Path, record: Record, ingest: Ingest) -> None:
    for name in ("7_ann_0", "12_ann_0", "seven_ann_0", "7_ann", "7_ann_x"):
        record(f"recordings/{name}.wav")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0"]
    assert len(out.rejects) == 4
    assert set(out.rejects.values()) == {"bad_entry"}


# JSONL


def test_a_manifest_keeps_unknown_keys_and_reads_segments(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("audio/long one.wav", seconds=10)
    long = {"audio_filepath": "../audio/long one.wav", "text": "x"}
    _jsonl(
        corpus / "lists/train_manifest.json",
        {**long, "duration": 10.02, "accent": "us", "speaker": 7},
        {**long, "duration": 2.5, "offset": 1.25, "id": "named"},
        {**long, "duration": 2.5, "offset": 4.0, "nested": {"a": [1]}},
        {**long, "offset": 9.0},
    )
    out = ingest("manifest")
    whole, last, third, named = (
        out.utterances[id] for id in ("audio/long one.wav", "audio/long one.wav@9.0", "audio/long one.wav@4.0", "named")
    )
    assert (whole.duration, whole.offset, whole.speaker, whole.extra["accent"]) == (10.0, 0.0, "7", "us")
    assert (named.duration, named.offset) == (2.5, 1.25)
    assert (third.duration, third.offset, third.extra["nested"]) == (2.5, 4.0, {"a": [1]})
    assert (last.duration, last.offset) == (1.0, 9.0)
    assert whole.extra["corpus_split"] == "train_manifest"
    assert len({one.audio_hash for one in out.utterances.values()}) == 1


def test_derived_ids_stay_when_lines_come_and_go(corpus: Path, record: Record, ingest: Ingest) -> None:
    lines = [{"audio_filepath": str(record(f"{name}.wav")), "text": name} for name in "abc"]
    _jsonl(corpus / "train.jsonl", *lines)
    before = ingest("manifest").utterances
    _jsonl(corpus / "train.jsonl", lines[2], lines[0])
    after = ingest("manifest").utterances
    assert set(before) == {"a.wav", "b.wav", "c.wav"}
    assert {id: one.identity() for id, one in before.items() if id != "b.wav"} == {
        id: one.identity() for id, one in after.items()
    }


def test_the_second_of_two_alike_is_a_duplicate(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    line = {"audio_filepath": "a.wav", "text": "x"}
    _jsonl(corpus / "train.jsonl", line, line, {**line, "id": "b"})
    _jsonl(corpus / "zzz.jsonl", {**line, "id": "b"})
    out = ingest("manifest")
    assert out.ids == ["a.wav", "b"]
    assert sorted(out.rejects.items()) == [("a.wav", "duplicate_id"), ("b", "duplicate_id")]
    assert "train.jsonl:3" in out.details["b"]
    assert out.details["b"].startswith("zzz.jsonl:1")


BAD_LINES = [
    ("{not json", "bad_entry"),
    ("[1, 2]", "bad_entry"),
    ("[" * 100_000, "bad_entry"),
    ('{"audio_filepath": "a.wav"}', "transcript_missing"),
    ('{"text": "x"}', "bad_entry"),
    ('{"text": 5, "audio_filepath": "a.wav"}', "bad_entry"),
    ('{"text": "x", "audio_filepath": ["a.wav"]}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a\\u0000.wav"}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "id": [1]}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "offset": -1}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "offset": "1"}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "duration": NaN}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "duration": true}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "a.wav", "gain": 1e999}', "bad_entry"),
    ('{"text": "half \\ud800 a pair", "audio_filepath": "a.wav"}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "b.wav"}', "missing_file"),
    ('{"text": "x", "audio_filepath": "folder"}', "missing_file"),
    ('{"text": "x", "audio_filepath": "../store/secret.wav"}', "outside_corpus"),
    ('{"text": "x", "audio_filepath": "/etc/passwd"}', "outside_corpus"),
    ('{"text": "x", "audio_filepath": "pipe.wav"}', "bad_entry"),
    ('{"text": "x", "audio_filepath": "dangling.wav"}', "missing_file"),
    ('{"text": "x", "audio_filepath": "a.wav", "offset": 0.6}', "truncated"),
    ('{"text": "x", "audio_filepath": "a.wav", "duration": 7.5}', "truncated"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[line[:60] for line, _ in BAD_LINES])
def test_a_bad_line_of_a_manifest_is_one_reject_and_the_rest_stays(
    corpus: Path, record: Record, ingest: Ingest, line: str, reason: str
) -> None:
    record("a.wav", seconds=0.5)
    (corpus / "folder").mkdir()
    (corpus / "dangling.wav").symlink_to("nowhere.wav")
    os.mkfifo(corpus / "pipe.wav")
    good = '{"text": "x", "audio_filepath": "a.wav", "id": "good"}'
    _write(corpus / "train.jsonl", f"{good}\n{line}\n")
    out = ingest("manifest")
    assert out.ids == ["good"]
    assert [str(reject.reason) for reject in out.all_rejects] == [reason]
    assert "train.jsonl:2" in out.all_rejects[0].detail


def test_absolute_paths_inside_the_corpus_hold_also_through_a_link_to_it(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    record("a.wav")
    (tmp_path / "link").symlink_to(corpus)
    _jsonl(corpus / "train.jsonl", {"audio_filepath": str(tmp_path / "link" / "a.wav"), "text": "x"})
    out = ingest("manifest")
    assert out.ids == ["a.wav"]
    assert Path(out.utterances["a.wav"].audio_filepath).samefile(corpus / "a.wav")


@pytest.mark.parametrize(("stored", "named"), [(NFC, NFD), (NFD, NFC), ("日本 a", "日本 a"), ("x.WAV", "x.wav")])
def test_names_are_found_whatever_unicode_form_or_case_of_extension(
    corpus: Path, record: Record, ingest: Ingest, stored: str, named: str
) -> None:
    stored, named = (name if "." in name else f"{name}.wav" for name in (stored, named))
    record(f"wavs {stored[:-4]}/{stored}")
    _jsonl(corpus / "train.jsonl", {"audio_filepath": f"wavs {named[:-4]}/{named}", "text": "x"})
    out = ingest("manifest")
    assert out.rejects == {}
    assert all(unicodedata.is_normalized("NFC", id) for id in out.ids)
    assert Path(out.utterances[out.ids[0]].audio_filepath).is_file()


def test_a_file_name_that_is_not_unicode_is_a_reject(corpus: Path, record: Record, ingest: Ingest) -> None:
    good = record("7_ann_0.wav")
    Path(os.fsdecode(os.fsencode(corpus) + b"/7_b\xff_0.wav")).write_bytes(good.read_bytes())
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0"]
    assert list(out.rejects.values()) == ["bad_entry"]


def test_a_recording_whose_header_cannot_be_read_is_left_to_convert(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("7_ann_0.wav")
    _write(corpus / "7_bob_0.wav", "no audio at all")
    _write(corpus / "7_cat_0.m4a", "")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0", "7_bob_0", "7_cat_0"]
    assert out.utterances["7_bob_0"].duration == 0.0
    assert out.utterances["7_bob_0"].audio_hash != ""


def test_our_own_manifest_can_be_ingested_again(corpus: Path, record: Record, ingest: Ingest, tmp_path: Path) -> None:
    lines = [{"audio_filepath": str(record(f"{name}.wav")), "text": name, "accent": "us"} for name in "ab"]
    _jsonl(corpus / "train.jsonl", *lines)
    first = ingest("manifest")
    (corpus / "train.jsonl").unlink()
    text = first.work.path("manifest").read_text()
    _write(corpus / "manifest.jsonl", text.replace(str(os.path.relpath(corpus, first.work.folder)) + "/", ""))
    _write(corpus / "rejects.jsonl", first.work.path("rejects").read_text())
    again = ingest("manifest")
    assert again.rejects == {}
    assert fingerprint(again.utterances.values()) == fingerprint(first.utterances.values())


# CSV


def test_a_deepspeech_csv_with_relative_and_absolute_paths(corpus: Path, record: Record, ingest: Ingest) -> None:
    rows = ["wav_filename,wav_filesize,transcript,accent"]
    for name, path in (("a b", "../wavs/a b.wav"), ("c", str(corpus / "wavs/c.wav"))):
        rows.append(f'{path},{record(f"wavs/{name}.wav").stat().st_size},"hello, {name}",us')
    (corpus / "lists").mkdir()
    (corpus / "lists/train.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode() + b"\r\n")
    _write(corpus / "notes.csv", "a,b\n1,2\n")
    out = ingest("csv")
    texts = {id: one.text for id, one in out.utterances.items()}
    assert texts == {
        "wavs/a b.wav": "hello, a b",
        "wavs/c.wav": "hello, c",
    }
    assert out.utterances["wavs/c.wav"].extra == {"corpus_split": "train", "accent": "us"}


def test_bad_rows_of_a_csv_are_rejects(corpus: Path, record: Record, ingest: Ingest) -> None:
    size = record("a.wav").stat().st_size
    rows = [
        "wav_filename,wav_filesize,transcript",
        f"a.wav,{size},fine",
        f"./a.wav,{size - 1},cut short",
        "b.wav,12,not there",
        f"a.wav,{size}",
        "a.wav,large,words",
        f",{size},words",
        f"../x.wav,{size},words",
        f'a.wav,{size},"not closed',
        f"a.wav,{size},swallowed",
        f'a.wav,{size},until here"',
    ]
    _write(corpus / "train.csv", "\n".join(rows) + "\n")
    out = ingest("csv")
    assert out.ids == ["a.wav"]
    assert sorted((str(one.reason), one.detail.split(":")[0]) for one in out.all_rejects) == [
        ("bad_entry", "train.csv, row 5"),
        ("bad_entry", "train.csv, row 6"),
        ("bad_entry", "train.csv, row 7"),
        ("bad_entry", "train.csv, row 9"),
        ("missing_file", "train.csv, row 4"),
        ("outside_corpus", "train.csv, row 8"),
        ("truncated", "train.csv, row 3"),
    ]


def test_a_quotation_mark_that_is_never_closed_stops_the_step(corpus: Path, record: Record, ingest: Ingest) -> None:
    _write(corpus / "train.csv", f'wav_filename,wav_filesize,transcript\n{record("a.wav")},5,"open\n')
    with pytest.raises(WorkError, match=r"train.csv.*quotation mark"):
        ingest("csv")


# Kaldi


def test_kaldi_with_segments_speakers_and_sexes(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("audio/talk 1.wav", seconds=5)
    data = corpus / "data/train"
    _write(data / "wav.scp", "talk-1 audio/talk 1.wav\n")
    _write(data / "segments", "ann-a talk-1 0.50 3.20\nann-b talk-1 3.2 -1\n")
    _write(data / "text", "ann-a  GOOD MORNING\nann-b BYE\n")
    _write(data / "utt2spk", "ann-a ann\nann-b ann\n")
    _write(data / "spk2gender", "ann f\n")
    out = ingest("kaldi")
    a, b = out.utterances["ann-a"], out.utterances["ann-b"]
    assert (a.text, a.speaker, a.offset, a.duration) == ("GOOD MORNING", "ann", 0.5, 2.7)
    assert (b.offset, b.duration) == (3.2, pytest.approx(1.8))
    assert a.extra == {"corpus_split": "train", "sex": "F"}


def test_kaldi_without_segments_reads_paths_beside_wav_scp(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/a.wav")
    _write(corpus / "train/wav.scp", f"a a.wav\nb {record('b.wav')}\n")
    _write(corpus / "train/text", "a A\nb B\n")
    out = ingest("kaldi")
    assert out.ids == ["a", "b"]


def test_kaldi_never_runs_a_command_and_loses_nobody(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    scp = ["a a.wav", f"b touch '{corpus}/ran' |", "c -", "d raw.ark:17", "e nowhere.wav", "f a.wav", "g", "a a.wav"]
    _write(corpus / "wav.scp", "\n".join(scp) + "\n")
    _write(corpus / "text", "a A\nb B\nc C\nd D\ne E\ng G\nh H\n")
    out = ingest("kaldi")
    assert out.ids == ["a"]
    assert not (corpus / "ran").exists()
    assert "wav.scp:2" in out.details["b"]
    assert "command" in out.details["b"]
    assert sorted(out.rejects.items()) == [
        ("a", "duplicate_id"),
        ("b", "bad_entry"),
        ("c", "bad_entry"),
        ("d", "bad_entry"),
        ("e", "missing_file"),
        ("f", "transcript_missing"),
        ("g", "missing_file"),
        ("h", "missing_file"),
    ]


def test_bad_segments_of_kaldi_are_rejects(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav", seconds=2)
    _write(corpus / "wav.scp", "r a.wav\n")
    segments = ["a r 0 1", "b r 1 1", "c r x 2", "d r 1", "e other 0 1", "f r 1 9", "g r nan 2", "h r 0 inf"]
    _write(corpus / "segments", "\n".join(segments) + "\n")
    _write(corpus / "text", "".join(f"{name} WORD\n" for name in "abcdefgh"))
    out = ingest("kaldi")
    assert out.ids == ["a"]
    assert out.rejects == {**dict.fromkeys("bcdgh", "bad_entry"), "e": "missing_file", "f": "truncated"}


# All


@pytest.mark.parametrize("format", ["librispeech", "ljspeech", "thchs30", "fsdd", "manifest", "csv", "kaldi"])
def test_a_folder_of_something_else_is_an_error_that_names_the_format(
    corpus: Path, ingest: Ingest, format: str
) -> None:
    _write(corpus / "readme.txt", "nothing here\n")
    with pytest.raises(WorkError, match=r"corpus\.format"):
        ingest(format)


@pytest.mark.parametrize("format", ["manifest", "csv"])
def test_a_list_that_is_not_utf8_is_an_error_that_names_the_file(corpus: Path, ingest: Ingest, format: str) -> None:
    (corpus / ("train.jsonl" if format == "manifest" else "train.csv")).write_bytes("café".encode("latin-1"))
    with pytest.raises(WorkError, match=r"train\..*not UTF-8.*iconv"):
        ingest(format)


@pytest.mark.parametrize("format", ["librispeech", "ljspeech", "thchs30", "fsdd", "manifest", "csv", "kaldi"])
def test_a_folder_that_is_a_link_out_of_the_corpus_is_named_whatever_the_format(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path, format: str
) -> None:
    audio = record("wavs/7_ann_0.wav")
    _write(corpus / "wavs/7_ann_0.wav.trn", "七\nqi1\nq i1\n")
    _write(corpus / "wavs/a.trans.txt", "7_ann_0 SEVEN\n")
    _write(corpus / "metadata.csv", "7_ann_0|7|seven\n")
    _write(corpus / "wav.scp", f"a {audio}\n")
    _write(corpus / "text", "a seven\n")
    _jsonl(corpus / "train.jsonl", {"audio_filepath": str(audio), "text": "x"})
    _write(corpus / "train.csv", f"wav_filename,wav_filesize,transcript\n{audio},{audio.stat().st_size},x\n")
    (tmp_path / "elsewhere").mkdir()
    (corpus / "more").symlink_to(tmp_path / "elsewhere")
    out = ingest(format)
    assert len(out.ids) == 1
    assert out.rejects == {"more": "outside_corpus"}
    assert "copy it in" in out.details["more"]


def test_a_transcript_that_is_a_book_is_a_reject_and_the_table_goes_on(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    rows = [f"{name}.wav,{record(f'{name}.wav').stat().st_size}" for name in "abc"]
    texts = ["fine", "word " * 30_000, "fine too"]
    lines = [f"{row},{text}" for row, text in zip(rows, texts, strict=True)]
    _write(corpus / "train.csv", "\n".join(["wav_filename,wav_filesize,transcript", *lines]) + "\n")
    out = ingest("csv")
    assert out.ids == ["a.wav", "c.wav"]
    assert out.rejects == {"b.wav": "bad_entry"}
    assert "149,999 characters" in out.details["b.wav"]
    assert len(out.details["b.wav"]) < 200


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _jsonl(path: Path, *lines: dict[str, Any]) -> None:
    _write(path, "".join(json.dumps(line) + "\n" for line in lines))


def test_a_link_to_itself_is_a_missing_file(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/1/2/1-2-0.flac")
    (corpus / "train/1/2/1-2-1.flac").symlink_to("1-2-1.flac")
    _write(corpus / "train/1/2/1-2.trans.txt", "1-2-0 HELLO\n1-2-1 LOOP\n")
    out = ingest("librispeech")
    assert out.ids == ["1-2-0"]
    assert out.rejects == {"1-2-1": "missing_file"}


def test_librispeech_takes_a_tab_for_the_space(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/1/2/1-2-0.flac")
    _write(corpus / "train/1/2/1-2.trans.txt", "1-2-0\tHELLO THERE\n")
    assert {id: one.text for id, one in ingest("librispeech").utterances.items()} == {"1-2-0": "HELLO THERE"}


def test_numbers_beyond_all_measure_are_rejects(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    line = '{"audio_filepath": "a.wav", "text": "x", "duration": %s}\n'
    _write(corpus / "train.jsonl", line % "0.5" + line % ("9" * 400) + line % ("9" * 5_000))
    assert [str(one.reason) for one in ingest("manifest").all_rejects] == ["bad_entry", "bad_entry"]
    size = record("b.wav").stat().st_size
    _write(corpus / "train.csv", f"wav_filename,wav_filesize,transcript\na.wav,{'9' * 5_000},x\nb.wav,{size},y\n")
    _write(corpus / "huge.csv", '"' + "x" * 200_000 + '"')
    assert [str(one.reason) for one in ingest("csv").all_rejects] == ["bad_entry"]

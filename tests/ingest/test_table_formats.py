"""DeepSpeech's CSV and Kaldi's tables, and what holds of every format."""

import re
import sys
import tarfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.listed import write, write_lines
from voxline.components.ingest.corpora import BUILT_IN
from voxline.errors import WorkError

Ingest = Callable[..., Any]
Record = Callable[..., Path]
NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))


def test_a_deepspeech_csv_with_relative_and_absolute_paths(corpus: Path, record: Record, ingest: Ingest) -> None:
    rows = ["wav_filename,wav_filesize,transcript,accent"]
    for name, path in (("a b", "../wavs/a b.wav"), ("c", str(corpus / "wavs/c.wav"))):
        rows.append(f'{path},{record(f"wavs/{name}.wav").stat().st_size},"hello, {name}",us')
    (corpus / "lists").mkdir()
    (corpus / "lists/train.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode() + b"\r\n")
    write(corpus / "notes.csv", "a,b\n1,2\n")
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
    write(corpus / "train.csv", "\n".join(rows) + "\n")
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
    write(corpus / "train.csv", f'wav_filename,wav_filesize,transcript\n{record("a.wav")},5,"open\n')
    with pytest.raises(WorkError, match=r"train.csv.*quotation mark"):
        ingest("csv")


def test_kaldi_with_segments_speakers_and_sexes(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("audio/talk 1.wav", seconds=5)
    data = corpus / "data/train"
    write(data / "wav.scp", "talk-1 audio/talk 1.wav\n")
    write(data / "segments", "ann-a talk-1 0.50 3.20\nann-b talk-1 3.2 -1\n")
    write(data / "text", "ann-a  GOOD MORNING\nann-b BYE\n")
    write(data / "utt2spk", "ann-a ann\nann-b ann\n")
    write(data / "spk2gender", "ann f\n")
    out = ingest("kaldi")
    a, b = out.utterances["ann-a"], out.utterances["ann-b"]
    assert (a.text, a.speaker, a.offset, a.duration) == ("GOOD MORNING", "ann", 0.5, 2.7)
    assert (b.offset, b.duration) == (3.2, pytest.approx(1.8))
    assert a.extra == {"corpus_split": "train", "sex": "F"}


def test_kaldi_without_segments_reads_paths_beside_wav_scp(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/a.wav")
    write(corpus / "train/wav.scp", f"a a.wav\nb {record('b.wav')}\n")
    write(corpus / "train/text", "a A\nb B\n")
    out = ingest("kaldi")
    assert out.ids == ["a", "b"]


def test_kaldi_never_runs_a_command_and_loses_nobody(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    scp = ["a a.wav", f"b touch '{corpus}/ran' |", "c -", "d raw.ark:17", "e nowhere.wav", "f a.wav", "g", "a a.wav"]
    write(corpus / "wav.scp", "\n".join(scp) + "\n")
    write(corpus / "text", "a A\nb B\nc C\nd D\ne E\ng G\nh H\n")
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
    write(corpus / "wav.scp", "r a.wav\n")
    segments = ["a r 0 1", "b r 1 1", "c r x 2", "d r 1", "e other 0 1", "f r 1 9", "g r nan 2", "h r 0 inf"]
    write(corpus / "segments", "\n".join(segments) + "\n")
    write(corpus / "text", "".join(f"{name} WORD\n" for name in "abcdefgh"))
    out = ingest("kaldi")
    assert out.ids == ["a"]
    assert out.rejects == {**dict.fromkeys("bcdgh", "bad_entry"), "e": "missing_file", "f": "truncated"}


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("Привет, как дела?", "windows-1251"), ("今天天气很好", "gb18030"), ("schöne Grüße", "windows-1252")],
)
def test_the_encodings_of_a_table_are_shown_by_what_they_read(
    corpus: Path, ingest: Ingest, text: str, encoding: str
) -> None:
    (corpus / "train.tsv").write_bytes(f"path\ttext\na.wav\t{text}\n".encode(encoding))
    with pytest.raises(WorkError, match="not UTF-8") as told:
        ingest("csv")
    assert f"{encoding} {text.split(maxsplit=1)[0]!r}" in str(told.value)
    assert "utf-8" not in re.findall(r"(\S+) '", str(told.value))


@pytest.mark.parametrize("format", BUILT_IN)
def test_every_format_refuses_a_folder_of_another_format(corpus: Path, ingest: Ingest, format: str) -> None:
    write(corpus / "readme.txt", "nothing here\n")
    with pytest.raises(WorkError, match=r"corpus\.format"):
        ingest(format)


@pytest.mark.parametrize("format", ["manifest", "csv"])
def test_a_list_that_is_not_utf8_is_an_error_that_names_the_file(corpus: Path, ingest: Ingest, format: str) -> None:
    (corpus / ("train.jsonl" if format == "manifest" else "train.csv")).write_bytes("café".encode("latin-1"))
    with pytest.raises(WorkError, match=r"train\..*not UTF-8.*iconv"):
        ingest(format)


@pytest.mark.parametrize("format", BUILT_IN)
def test_every_format_rejects_a_folder_that_links_out_of_the_corpus(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path, format: str
) -> None:
    audio = record("wavs/7_ann_0.wav")
    write(corpus / "wavs/7_ann_0.wav.trn", "七\nqi1\nq i1\n")
    write(corpus / "wavs/a.trans.txt", "7_ann_0 SEVEN\n")
    write(corpus / "metadata.csv", "7_ann_0|7|seven\n")
    write(corpus / "wav.scp", f"a {audio}\n")
    write(corpus / "text", "a seven\n")
    write_lines(corpus / "train.jsonl", {"audio_filepath": str(audio), "text": "x"})
    write(corpus / "train.csv", f"wav_filename,wav_filesize,transcript\n{audio},{audio.stat().st_size},x\n")
    if format == "common_voice":
        (corpus / "train.csv").rename(corpus / "none.txt")
        write(corpus / "validated.tsv", "client_id\tpath\tsentence\nann\t../wavs/7_ann_0.wav\tx\n")
    elif format == "lhotse":
        recording = {"sources": [{"type": "file", "channels": [0], "source": str(audio)}], "duration": 9.0}
        spoken = {"id": "a", "start": 0.0, "duration": 0.1, "text": "seven"}
        cut = {"id": "a", "start": 0.0, "duration": 0.1, "channel": 0, "supervisions": [spoken]}
        write_lines(corpus / "train_cuts.jsonl", cut | {"recording": recording | {"sampling_rate": 8_000}})
    elif format == "huggingface":
        write(corpus / "metadata.csv", f"file_name,text\n{audio},seven\n")
    elif format in ("webdataset", "nemo_tarred"):
        with tarfile.open(corpus / "audio_0.tar", "w") as tar:
            tar.add(audio, "a.wav")
            tar.add(corpus / "text", "a.txt")
        write_lines(corpus / "a_manifest.json", {"audio_filepath": "a.wav", "text": "x", "shard_id": 0})
        (corpus / "train.jsonl").unlink()
    elif format == "text_files":
        write(corpus / "wavs/7_ann_0.txt", "seven\n")
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
    write(corpus / "train.csv", "\n".join(["wav_filename,wav_filesize,transcript", *lines]) + "\n")
    out = ingest("csv")
    assert out.ids == ["a.wav", "c.wav"]
    assert out.rejects == {"b.wav": "bad_entry"}
    assert "149,999 characters" in out.details["b.wav"]
    assert len(out.details["b.wav"]) < 200


def test_numbers_beyond_all_measure_are_rejects(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    line = '{"audio_filepath": "a.wav", "text": "x", "duration": %s}\n'
    write(corpus / "train.jsonl", line % "0.5" + line % ("9" * 400) + line % ("9" * 5_000))
    assert [str(one.reason) for one in ingest("manifest").all_rejects] == ["bad_entry", "bad_entry"]
    size = record("b.wav").stat().st_size
    write(corpus / "train.csv", f"wav_filename,wav_filesize,transcript\na.wav,{'9' * 5_000},x\nb.wav,{size},y\n")
    write(corpus / "huge.csv", '"' + "x" * 200_000 + '"')
    assert [str(one.reason) for one in ingest("csv").all_rejects] == ["bad_entry"]


def test_values_within_values_are_kept_or_make_a_reject_however_deep(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("a.wav")
    lines = [
        f'{{"id": "{depth}", "audio_filepath": "a.wav", "text": "x", "far": {"[" * depth}{"]" * depth}}}\n'
        for depth in (*range(880, sys.getrecursionlimit()), 50_000)  # those near the limit can be read, and not written
    ]
    write(corpus / "train.jsonl", "".join(lines))
    out = ingest("manifest")
    assert len(out.ids) + len(out.all_rejects) == len(lines)
    assert {str(one.reason) for one in out.all_rejects} == {"bad_entry"}

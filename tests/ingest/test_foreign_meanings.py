"""Tables and folders of others whose rows, fields and names mislead: nothing is taken for what it is not in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_rows_that_are_short_or_without_a_recording_leave_the_one_before(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    for name in ("a0", "a1", "a2"):
        record(f"{name}.wav")
    write(corpus, {"t.csv": "id,path,text\na0,a0.wav,one\na1,a1.wav\na2,gone.wav,three\n"})
    assert texts_by_id(ingest("csv")) == {"a0": "one"}
    write(corpus, {"t.csv": "path,text\na0,one\ngone,two\na2,a, b\na1,three\n"})
    assert sorted(texts_by_id(ingest("csv")).values()) == ["one", "three"]
    write(corpus, {"metadata.csv": "a0|one\ngone|two\na1\na2|three\n"})
    assert texts_by_id(ingest("ljspeech")) == {"a0": "one", "a2": "three"}
    write(corpus, {"wav.scp": "a0 a0.wav\na1 a1.wav\na2 a2.wav\n", "text": "a0 one\na1 two\na15 left out\na2 three\n"})
    assert len(ingest("kaldi").utterances) == 3

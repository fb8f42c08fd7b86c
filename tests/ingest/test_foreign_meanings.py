"""Tables and folders of others whose rows, fields and names mislead: nothing is taken for what it is not in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.ingest.conftest import RATE
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
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

"""Channels as other people name them: each is obeyed, or a reject, or named.

A file of its own: these tests share a call of two sides, which other tables do not have.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.ingest.conftest import RATE
from tests.ingest.test_foreign_tables import Ingest, Record, write_table
from voxline.audio.wav import read_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.data.manifest import read_manifest, read_rejects
from voxline.errors import WorkError

SIDES = ["turn on the light", "play a song"]


def write_call(path: Path) -> None:
    """A call of two people: each side has a tone of its own."""
    times = np.arange(RATE) / RATE
    sides = [0.3 * np.sin(2 * np.pi * frequency * times) for frequency in (300, 1_000)]
    soundfile.write(path, np.stack(sides, axis=1), RATE)


def pitches(out: Any, store: Path) -> dict[str, int]:
    """The frequency of each converted utterance in Hz."""
    settings = ConvertSettings.of({"sample_rate": RATE, "max_reject_share": 1.0})
    converted = convert(out.work.folder, store, settings)
    spectra = {}
    for utterance in read_manifest(converted.folder):
        samples, rate = read_wav(Path(utterance.audio_filepath))
        spectra[utterance.id] = round(np.abs(np.fft.rfft(samples)).argmax() * rate / len(samples))
    return spectra


def test_the_channels_of_a_call_are_the_two_who_speak(corpus: Path, ingest: Ingest, tmp_path: Path) -> None:
    """Field case F2."""
    write_call(corpus / "call.wav")
    lines = [f"call.wav,{name},{text}" for name, text in zip("AB", SIDES, strict=True)]
    write_table(corpus, ["path,channel,sentence,id", *[f"{line},{line[9]}" for line in lines]], "calls.csv")
    out = ingest("csv")
    assert [utterance.extra["channel"] for utterance in out.utterances.values()] == [0, 1]
    assert pitches(out, tmp_path / "store") == {"A": 300, "B": 1_000}


def test_two_sides_without_ids_are_two_utterances(corpus: Path, ingest: Ingest, tmp_path: Path) -> None:
    """As a table has them whose channels were read as fractions, with no ids and both from the start."""
    write_call(corpus / "call.wav")
    write_table(corpus, ["path,channel,sentence", f"call.wav,0.0,{SIDES[0]}", f"call.wav,1.0,{SIDES[1]}"], "calls.csv")
    out = ingest("csv")
    assert out.rejects == {}
    assert pitches(out, tmp_path / "store") == {"call.wav": 300, "call.wav#1": 1_000}


def test_a_manifest_with_all_other_keys_may_name_a_channel_and_a_start(corpus: Path, ingest: Ingest) -> None:
    write_call(corpus / "call.wav")
    line = {"id": "a", "audio_filepath": "call.wav", "text": "go", "speaker": "s", "split": "test", "duration": 0.4}
    write_table(corpus, [json.dumps(line | {"channel_selector": 1, "start": 0.5})], "m.jsonl")
    utterance = ingest("manifest").utterances["a"]
    assert (utterance.offset, utterance.extra["channel"]) == (0.5, 1)


@pytest.mark.parametrize("named_by", ["segments", "reco2file_and_channel"])
def test_the_channels_of_a_kaldi_folder(named_by: str, corpus: Path, ingest: Ingest, tmp_path: Path) -> None:
    """Field case F2, as Kaldi has it."""
    write_call(corpus / "call.wav")
    tables = {"text": "".join(f"u{name} {text}\n" for name, text in zip("AB", SIDES, strict=True))}
    if named_by == "segments":
        tables |= {"wav.scp": "call call.wav\n", "segments": "uA call 0.1 0.9 0\nuB call 0.1 0.9 1\n"}
    else:
        tables |= {"wav.scp": "uA call.wav\nuB call.wav\n", named_by: "uA call A\nuB call B\n"}
    for name, content in tables.items():
        (corpus / name).write_text(content)
    assert pitches(ingest("kaldi"), tmp_path / "store") == {"uA": 300, "uB": 1_000}
    if named_by != "segments":
        (corpus / named_by).write_text("uA call A\nuB call outbound\n")
        assert list(ingest("kaldi").rejects) == ["uB"]


def test_a_side_of_a_kaldi_file_that_one_recording_names(corpus: Path, record: Record, ingest: Ingest) -> None:
    write_call(corpus / "call.wav")
    record("cut.wav")
    (corpus / "wav.scp").write_text("uB call.wav\nuC cut.wav\nuD absent.wav\n")
    (corpus / "text").write_text("uB go\nuC stop\nuD stay\n")
    (corpus / "reco2file_and_channel").write_text("uB call B\nuC talk B\nuD talk A\n")
    out = ingest("kaldi")
    assert {id: utterance.extra.get("channel") for id, utterance in out.utterances.items()} == {"uB": 1, "uC": None}
    assert out.rejects == {"uD": "missing_file"}

    # The recording decides, so the entries of the last run are not taken.
    record("call.wav")
    assert ingest("kaldi").utterances["uB"].extra.get("channel") is None


def test_a_channel_that_is_not_there_is_a_reject(corpus: Path, record: Record, ingest: Ingest, tmp_path: Path) -> None:
    record("mono.wav")
    write_table(corpus, ["path,channel,sentence", "mono.wav,1,hello"], "calls.csv")
    out = ingest("csv")
    with pytest.raises(WorkError, match=r"channel 1 is named, counted from 0, and it has 1; if the column says"):
        convert(out.work.folder, tmp_path / "store", ConvertSettings.of({"max_reject_share": 1.0}))


def test_a_column_that_is_no_channel_of_a_recording_is_kept(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write_table(corpus, ["path,channel,sentence", "a.wav,news,hello"], "t.csv")
    assert ingest("csv").utterances["a.wav"].extra["channel"] == "news"
    write_table(corpus, ["path,channel,sentence", "a.wav,7,hello"], "t.csv")
    kept = ingest("csv", columns={"channel": "none"}).utterances["a.wav"].extra
    assert kept == {"corpus_split": "t", "corpus_channel": "7"}


def test_channels_that_are_counted_from_1_are_those_of_a_call(
    corpus: Path, ingest: Ingest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field case F2: a table whose channels are 1 and 2."""
    write_call(corpus / "call.wav")
    write_table(corpus, ["path,channel,sentence", f"call.wav,1,{SIDES[0]}", f"call.wav,2,{SIDES[1]}"], "calls.csv")
    out = ingest("csv")
    assert "channels are counted from 1, as none is 0: they are 1, 2" in capsys.readouterr().out
    assert {utterance.text: utterance.extra["channel"] for utterance in out.utterances.values()} == {
        SIDES[0]: 0,
        SIDES[1]: 1,
    }
    assert sorted(pitches(out, tmp_path / "store").values()) == [300, 1_000]

    # With a 0 they are counted from 0, and one alone is the second.
    write_table(corpus, ["path,channel,sentence", f"call.wav,0,{SIDES[0]}", f"call.wav,2,{SIDES[1]}"], "calls.csv")
    assert [utterance.extra["channel"] for utterance in ingest("csv").utterances.values()] == [0, 2]
    write_table(corpus, ["path,channel,sentence", f"call.wav,1,{SIDES[1]}"], "calls.csv")
    assert [utterance.extra["channel"] for utterance in ingest("csv").utterances.values()] == [1]
    assert "all channels are 1, the second one" in capsys.readouterr().out


def test_the_channel_of_a_cut_is_the_utterance(corpus: Path, ingest: Ingest, tmp_path: Path) -> None:
    """Field case F2, as Lhotse has it."""
    write_call(corpus / "call.wav")
    source = {"type": "file", "channels": [0, 1], "source": "call.wav"}
    recording = {"id": "r", "sources": [source], "sampling_rate": RATE, "num_samples": RATE, "duration": 1.0}
    lines = []
    for channel, text in enumerate(SIDES):
        timed = {"start": 0.0, "duration": 1.0, "channel": channel}
        spoken = {"id": "AB"[channel], "recording_id": "r", "text": text, **timed}
        lines.append(
            {"id": f"c{channel}", **timed, "type": "MonoCut", "supervisions": [spoken], "recording": recording}
        )
    lines.append(lines[1] | {"id": "c2", "channel": 2})
    other = [{**lines[1]["supervisions"][0], "id": "C", "channel": 0}]
    lines.append(lines[1] | {"id": "c3", "supervisions": other})
    write_table(corpus, list(map(json.dumps, lines)), "cuts.jsonl")
    out = ingest("lhotse")
    assert pitches(out, tmp_path / "store") == {"A": 300, "B": 1_000}
    assert out.rejects == {"c2": "bad_entry", "C": "bad_entry"}
    assert "the supervision is of channel 0, its cut of 1" in out.details["C"]


def test_a_second_channel_alone_of_a_stereo_file_is_no_mixture(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F2: the second side has a file of its own, or the recording lacks the other channel."""
    write_call(corpus / "call.wav")
    record("b.wav", 1.0)
    lines = []
    for name in ("call", "b"):
        source = {"type": "file", "channels": [1], "source": f"{name}.wav"}
        recording = {"id": name, "sources": [source], "sampling_rate": RATE, "num_samples": RATE, "duration": 1.0}
        timed = {"start": 0.0, "duration": 1.0, "channel": 1}
        spoken = {"id": name, "recording_id": name, "text": SIDES[1], **timed}
        lines.append({"id": name, **timed, "type": "MonoCut", "supervisions": [spoken], "recording": recording})
    write_table(corpus, list(map(json.dumps, lines)), "cuts.jsonl")
    out = ingest("lhotse")
    assert out.ids == ["b"]
    assert "its recording has channel 1 alone, and call.wav has 2" in out.details["call"]


def test_two_sides_in_one_row_are_named(corpus: Path, record: Record, ingest: Ingest) -> None:
    """Field case F2: one row for both sides."""
    record("a.wav")
    write_table(corpus, ["path,text_left,text_right", "a.wav,good day,go on"], "t.csv")
    with pytest.raises(WorkError, match="text_left and text_right are the two sides of a call: give each a row"):
        ingest("csv")
    (corpus / "t.csv").unlink()
    lines = [{"audio_filepath": "a.wav", "text_left": "a", "text_right": "b"}, {"audio_filepath": "a.wav", "text": "a"}]
    write_table(corpus, list(map(json.dumps, lines)), "m.jsonl")
    assert "text_left and text_right are the two sides of a call" in ingest("manifest").details["m.jsonl:1"]


def test_channels_that_are_mixed_are_compared(corpus: Path, record: Record, ingest: Ingest, tmp_path: Path) -> None:
    """Field case F2, and microphones whose wires are swapped: their mixture is silence."""
    noise = np.random.default_rng(2).uniform(-0.3, 0.3, (2, RATE))
    shapes = {
        "calls": noise,
        "same": noise[[0, 0]],
        "swapped": [noise[0], -noise[0]],
        "half": [noise[0], -0.5 * noise[0]],
    }
    for name, channels in shapes.items():
        soundfile.write(corpus / f"{name}.wav", np.stack(channels, axis=1), RATE)
    record("mono.wav")
    write_table(corpus, ["path,sentence", *[f"{name}.wav,good day" for name in (*shapes, "mono")]], "t.csv")
    settings = ConvertSettings.of({"sample_rate": 16_000, "max_reject_share": 1.0})
    converted = convert(ingest("csv").work.folder, tmp_path / "store", settings)
    correlations = {
        utterance.id: round(float(utterance.measured["channel_correlation"]), 1)
        for utterance in read_manifest(converted.folder)
        if "channel_correlation" in utterance.measured
    }
    assert correlations == {"calls.wav": 0.0, "same.wav": 1.0, "half.wav": -1.0}
    (silent,) = read_rejects(converted.path("rejects"))
    assert (silent.id, str(silent.reason)) == ("swapped.wav", "silent")
    assert (
        "its two channels cancel each other when they are mixed: name one of them in a column channel" in silent.detail
    )


@pytest.mark.parametrize("name", ["ch", "chan"])
def test_a_channel_has_short_names_too(name: str, corpus: Path, ingest: Ingest) -> None:
    write_call(corpus / "call.wav")
    write_table(corpus, [f"path,{name},sentence", f"call.wav,0,{SIDES[0]}", f"call.wav,1,{SIDES[1]}"], "calls.csv")
    assert [utterance.extra["channel"] for utterance in ingest("csv").utterances.values()] == [0, 1]

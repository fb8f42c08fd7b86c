"""LibriSpeech, FSDD and JSON-lines manifests, and what is done with an entry that is wrong."""

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.listed import write, write_lines
from voxline.data.manifest import fingerprint_utterances

Ingest = Callable[..., Any]
Record = Callable[..., Path]
NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))


def test_librispeech_takes_sex_and_reader_from_speakers_txt(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("LibriSpeech/train-clean-100/19/198/19-198-0000.flac")
    write(corpus / "LibriSpeech/train-clean-100/19/198/19-198.trans.txt", "19-198-0000 NORTHANGER ABBEY\n")
    write(
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
    write(corpus / "dev-clean/1/2/1-2.trans.txt", "1-2-0000 A\n1-2-0001 B\n1-2-0002 C\n")
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
    write(corpus / "dev-clean/1/2/1-2.trans.txt", f"{NFC}-0000 A\n")
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
    write(inside.parent / "1-2.trans.txt", "1-2-0000 A\n1-2-0001 B\n1-2-0002 C\n")
    out = ingest("librispeech")
    assert out.ids == ["1-2-0000", "1-2-0002"]
    assert out.rejects == {"1-2-0001": "outside_corpus", "test-clean": "outside_corpus"}


def test_hidden_files_of_a_mac_are_no_recordings(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("recordings/7_ann_0.wav")
    write(corpus / "recordings/._7_ann_0.wav", "Mac OS X")
    write(corpus / "__MACOSX/recordings/7_ann_0.wav", "Mac OS X")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0"]
    assert out.rejects == {}


def test_fsdd_rejects_a_name_that_is_not_digit_speaker_index(corpus: Path, record: Record, ingest: Ingest) -> None:
    for name in ("7_ann_0", "12_ann_0", "seven_ann_0", "7_ann", "7_ann_x"):
        record(f"recordings/{name}.wav")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0"]
    assert len(out.rejects) == 4
    assert set(out.rejects.values()) == {"bad_entry"}


def test_a_manifest_keeps_unknown_keys_and_reads_segments(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("audio/long one.wav", seconds=10)
    long = {"audio_filepath": "../audio/long one.wav", "text": "x"}
    write_lines(
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
    write_lines(corpus / "train.jsonl", *lines)
    before = ingest("manifest").utterances
    write_lines(corpus / "train.jsonl", lines[2], lines[0])
    after = ingest("manifest").utterances
    assert set(before) == {"a.wav", "b.wav", "c.wav"}
    assert {id: one.identity() for id, one in before.items() if id != "b.wav"} == {
        id: one.identity() for id, one in after.items()
    }


def test_parts_that_begin_together_and_names_that_differ_in_unicode_form_have_ids_of_their_own(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record("talk.wav", seconds=3)
    record(f"{NFC}.wav")
    record(f"{NFD}.wav")
    parts = [{"audio_filepath": "talk.wav", "text": "x", "offset": 1.0, "duration": d} for d in (0.5, 1.0, 1.0)]
    names = [{"audio_filepath": f"{name}.wav", "text": "x"} for name in (NFC, NFD)]
    write_lines(corpus / "train.jsonl", *parts, *names)
    out = ingest("manifest")
    assert out.rejects == {"talk.wav": "duplicate_id"}
    assert out.utterances["talk.wav@1.0"].duration == 0.5
    assert out.utterances["talk.wav@1.0+1.0"].duration == 1.0
    composed, decomposed = (one for one in out.ids if not one.startswith("talk"))
    assert composed == f"{NFC}.wav"
    assert decomposed.startswith(f"{NFC}.wav~")
    assert out.utterances[composed].audio_hash != out.utterances[decomposed].audio_hash


def test_the_second_of_two_alike_is_a_duplicate(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    line = {"audio_filepath": "a.wav", "text": "x"}
    write_lines(corpus / "train.jsonl", line, line, {**line, "id": "b"})
    write_lines(corpus / "zzz.jsonl", {**line, "id": "b"})
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
    ('{"text": "x", "audio_filepath": "a.wav", "offset": "soon"}', "bad_entry"),
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
    write(corpus / "train.jsonl", f"{good}\n{line}\n")
    out = ingest("manifest")
    assert out.ids == ["good"]
    assert [str(reject.reason) for reject in out.all_rejects] == [reason]
    assert "train.jsonl:2" in out.all_rejects[0].detail


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        ("duration", "NaN", "`duration` is nan, seconds from 0 on are accepted"),
        ("gain", "-Infinity", "Out of range float values are not JSON compliant"),
        ("gain", "1e999", "Out of range float values are not JSON compliant"),
        ("accent", '"\\ud800"', "surrogates not allowed"),
    ],
)
def test_a_line_with_a_value_that_json_has_not_is_rejected_by_its_id_and_its_fault(
    corpus: Path, record: Record, ingest: Ingest, key: str, value: str, detail: str
) -> None:
    record("a.wav")
    good = '{"text": "x", "audio_filepath": "a.wav", "id": "good"}'
    line = f'{{"text": "x", "audio_filepath": "a.wav", "id": "odd", "{key}": {value}}}'
    write(corpus / "train.jsonl", f"{good}\n{line}\n")
    out = ingest("manifest")
    assert out.rejects == {"odd": "bad_entry"}
    assert detail in out.details["odd"]


def test_absolute_paths_inside_the_corpus_hold_also_through_a_link_to_it(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    record("a.wav")
    (tmp_path / "link").symlink_to(corpus)
    write_lines(corpus / "train.jsonl", {"audio_filepath": str(tmp_path / "link" / "a.wav"), "text": "x"})
    out = ingest("manifest")
    assert out.ids == ["a.wav"]
    assert Path(out.utterances["a.wav"].audio_filepath).samefile(corpus / "a.wav")


@pytest.mark.parametrize(("stored", "named"), [(NFC, NFD), (NFD, NFC), ("日本 a", "日本 a"), ("x.WAV", "x.wav")])
def test_names_are_found_whatever_unicode_form_or_case_of_extension(
    corpus: Path, record: Record, ingest: Ingest, stored: str, named: str
) -> None:
    stored, named = (name if "." in name else f"{name}.wav" for name in (stored, named))
    record(f"wavs {stored[:-4]}/{stored}")
    write_lines(corpus / "train.jsonl", {"audio_filepath": f"wavs {named[:-4]}/{named}", "text": "x"})
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
    write(corpus / "7_bob_0.wav", "no audio at all")
    write(corpus / "7_cat_0.m4a", "")
    out = ingest("fsdd")
    assert out.ids == ["7_ann_0", "7_bob_0", "7_cat_0"]
    assert out.utterances["7_bob_0"].duration == 0.0
    assert out.utterances["7_bob_0"].audio_hash != ""


def test_our_own_manifest_can_be_ingested_again(corpus: Path, record: Record, ingest: Ingest, tmp_path: Path) -> None:
    lines = [{"audio_filepath": str(record(f"{name}.wav")), "text": name, "accent": "us"} for name in "ab"]
    write_lines(corpus / "train.jsonl", *lines)
    first = ingest("manifest")
    (corpus / "train.jsonl").unlink()
    text = first.work.path("manifest").read_text()
    write(corpus / "manifest.jsonl", text.replace(str(os.path.relpath(corpus, first.work.folder)) + "/", ""))
    write(corpus / "rejects.jsonl", first.work.path("rejects").read_text())
    again = ingest("manifest")
    assert again.rejects == {}
    assert fingerprint_utterances(again.utterances.values()) == fingerprint_utterances(first.utterances.values())


def test_a_link_to_itself_is_a_missing_file(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/1/2/1-2-0.flac")
    (corpus / "train/1/2/1-2-1.flac").symlink_to("1-2-1.flac")
    write(corpus / "train/1/2/1-2.trans.txt", "1-2-0 HELLO\n1-2-1 LOOP\n")
    out = ingest("librispeech")
    assert out.ids == ["1-2-0"]
    assert out.rejects == {"1-2-1": "missing_file"}


def test_librispeech_takes_a_tab_for_the_space(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/1/2/1-2-0.flac")
    write(corpus / "train/1/2/1-2.trans.txt", "1-2-0\tHELLO THERE\n")
    assert {id: one.text for id, one in ingest("librispeech").utterances.items()} == {"1-2-0": "HELLO THERE"}

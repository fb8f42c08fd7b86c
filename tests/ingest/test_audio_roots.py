"""Absolute paths, links to where the audio is, a manifest file as the corpus, and columns of any name."""

import csv
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.ingest.listed import write, write_lines
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.settings import ColumnNames, CorpusSettings
from voxline.errors import SettingsError
from voxline.store.files import read_json

Ingest = Callable[..., Any]
Record = Callable[..., Path]


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """A folder of recordings that is not in the corpus."""
    folder = tmp_path / "disk 2" / "clips"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(3)
    for name in ("a", "b"):
        soundfile.write(folder / f"{name}.wav", noise.uniform(-0.3, 0.3, 4_000), 8_000)
    return folder


def test_a_nemo_manifest_of_absolute_paths_is_read_below_the_audio_roots_alone(
    corpus: Path, clips: Path, ingest: Ingest, tmp_path: Path
) -> None:
    (tmp_path / "private.wav").write_bytes((clips / "a.wav").read_bytes())
    (clips / "linked.wav").symlink_to(tmp_path / "private.wav")
    named = [clips / "a.wav", clips / "b.wav", clips / "gone.wav", clips / "linked.wav", tmp_path / "private.wav"]
    lines = [{"audio_filepath": str(path), "duration": 0.5, "text": path.stem} for path in named]
    write_lines(corpus / "train_manifest.json", *lines, {"audio_filepath": "/etc/passwd", "text": "x"})
    refused = ingest("manifest", audio_roots=[str(clips)])
    assert {id: one.audio_filepath for id, one in refused.utterances.items()} == {
        "clips/a.wav": str(clips / "a.wav"),
        "clips/b.wav": str(clips / "b.wav"),
    }
    outside = {str(clips / "linked.wav"), str(tmp_path / "private.wav"), "/etc/passwd"}
    assert refused.rejects == {str(clips / "gone.wav"): "missing_file"} | dict.fromkeys(outside, "outside_corpus")
    assert all("corpus.audio_roots" in refused.details[path] for path in outside)


def test_a_change_of_a_recording_below_an_audio_root_is_seen(corpus: Path, clips: Path, ingest: Ingest) -> None:
    write_lines(corpus / "train.jsonl", {"audio_filepath": str(clips / "a.wav"), "text": "x"})
    first = ingest("manifest", audio_roots=[str(clips)])
    assert ingest("manifest", audio_roots=[str(clips)]).work.reused
    write(clips / "not named.txt", "the folder changes, what is named does not")
    assert ingest("manifest", audio_roots=[str(clips)]).work.reused
    (clips / "a.wav").write_bytes((clips / "b.wav").read_bytes())
    changed = ingest("manifest", audio_roots=[str(clips)])
    assert not changed.work.reused
    assert changed.utterances["clips/a.wav"].audio_hash != first.utterances["clips/a.wav"].audio_hash


def test_a_linked_folder_is_entered_below_an_audio_root_and_no_loop_of_links_is_followed(
    corpus: Path, clips: Path, record: Record, ingest: Ingest
) -> None:
    (corpus / "audio").symlink_to(clips, target_is_directory=True)
    (clips / "back").symlink_to(corpus, target_is_directory=True)
    (clips / "itself").symlink_to(clips, target_is_directory=True)
    record("own.wav")
    write_lines(corpus / "train.jsonl", *({"audio_filepath": path, "text": "x"} for path in ("audio/a.wav", "own.wav")))
    assert ingest("manifest").rejects == {"audio": "outside_corpus", "audio/a.wav": "outside_corpus"}
    allowed = ingest("manifest", audio_roots=[str(clips.parent)])
    assert (allowed.ids, allowed.rejects) == (["audio/a.wav", "own.wav"], {})
    settings = CorpusSettings.of({"audio_roots": [str(clips.parent)]})
    assert list(Corpus(corpus, settings=settings).files) == ["audio/a.wav", "audio/b.wav", "own.wav", "train.jsonl"]


def test_kaldi_s_absolute_paths_are_read_and_its_pipes_are_named(corpus: Path, clips: Path, ingest: Ingest) -> None:
    pipe = f"sph2pipe -f wav -p -c 1 {clips / 'b.wav'} |"
    write(corpus / "data/train/wav.scp", f"ann-a {clips / 'a.wav'}\nann-b {pipe}\n")
    write(corpus / "data/train/text", "ann-a GOOD MORNING\nann-b GOOD NIGHT\n")
    write(corpus / "data/train/utt2spk", "ann-a ann\nann-b ann\n")
    for uri in (corpus, corpus / "data/train", corpus / "data/train/wav.scp"):
        out = ingest("kaldi", uri=str(uri), audio_roots=[str(clips)])
        assert [(one.id, one.speaker) for one in out.utterances.values()] == [("ann-a", "ann")]
        assert out.rejects == {"ann-b": "bad_entry"}
        assert pipe in out.details["ann-b"]
        assert "a command" in out.details["ann-b"]


def test_a_manifest_file_is_a_corpus_and_its_folder_the_root(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("audio/a.wav")
    record("audio/b.wav")
    write_lines(corpus / "train.jsonl", {"audio_filepath": "audio/a.wav", "text": "x"})
    write_lines(corpus / "other.jsonl", {"audio_filepath": "audio/b.wav", "text": "y"})
    uri = str(corpus / "train.jsonl")
    assert ingest("manifest", uri=uri).ids == ["audio/a.wav"]
    record("audio/c.wav")
    assert ingest("manifest", uri=uri).work.reused  # what the manifest does not name is not looked at
    record("audio/a.wav")
    assert not ingest("manifest", uri=uri).work.reused
    with pytest.raises(SettingsError, match=r"is the file .*train\.jsonl.*wav\.scp is accepted, or a folder"):
        ingest("kaldi", uri=uri)


def test_a_list_of_cuts_leads_to_no_file_outside_its_folder(
    corpus: Path, clips: Path, record: Record, ingest: Ingest
) -> None:
    record("own.wav")
    (corpus / "linked.wav").symlink_to(clips / "a.wav")
    paths = ["own.wav", "linked.wav", "../disk 2/clips/a.wav", str(clips / "b.wav")]
    write_lines(corpus / "cuts_train.jsonl", *(cut(str(number), path) for number, path in enumerate(paths)))
    assert (corpus / paths[2]).samefile(clips / "a.wav")
    for uri in (corpus, corpus / "cuts_train.jsonl"):
        out = ingest("lhotse", uri=str(uri))
        assert (out.ids, out.rejects) == (["0"], dict.fromkeys("123", "outside_corpus"))
    allowed = ingest("lhotse", uri=str(corpus / "cuts_train.jsonl"), audio_roots=[str(clips)])
    assert allowed.rejects == {}


def cut(id: str, path: str) -> dict[str, Any]:
    span = {"start": 0.0, "duration": 0.5, "channel": 0}
    recording = {
        "sampling_rate": 8_000,
        "duration": 0.5,
        "sources": [{"type": "file", "channels": [0], "source": path}],
    }
    return {"id": id, **span, "supervisions": [{"id": id, **span, "text": "x"}], "recording": recording}


def test_segments_of_a_file_that_is_stored_in_another_unicode_form_are_read_from_a_manifest_file(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    record(unicodedata.normalize("NFD", "café.wav"), seconds=2)
    lines = [{"audio_filepath": "café.wav", "text": "x", "offset": at, "duration": 0.5} for at in (0.0, 0.5, 1.0)]
    write_lines(corpus / "train.jsonl", *lines)
    out = ingest("manifest", uri=str(corpus / "train.jsonl"))
    assert (out.ids, out.rejects) == (["café.wav", "café.wav@0.5", "café.wav@1.0"], {})


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv"])
def test_an_end_without_a_duration_ends_the_utterance(corpus: Path, record: Record, ingest: Ingest, kind: str) -> None:
    record("a.wav", seconds=2)
    times: list[tuple[float, float | None]] = [(0.25, 1.0), (0.5, None), (1.5, 1.5), (1.0, 0.5)]
    rows = [{"id": f"u{n}", "path": "a.wav", "text": "x", "start": a, "end": b} for n, (a, b) in enumerate(times)]
    if kind == "jsonl":
        write_lines(corpus / "all.jsonl", *rows)
    else:
        with open(corpus / f"all.{kind}", "w", newline="") as file:
            table = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            table.writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    out = ingest("manifest" if kind == "jsonl" else "csv", splits={"train": ["all"]})
    spans = {id: (one.offset, one.duration) for id, one in out.utterances.items()}
    assert spans == {"u0": (0.25, 0.75), "u1": (0.5, 1.5)}
    assert set(out.rejects.values()) == {"bad_entry"}
    assert out.work.counts["rejects"] == 2


@pytest.mark.parametrize(
    ("roots", "message"),
    [(["relative"], "no absolute path"), (["gs://speech/clips"], "no absolute path"), (["/no/such"], "not a folder")],
)
def test_an_audio_root_that_is_not_a_folder_is_refused(
    corpus: Path, record: Record, ingest: Ingest, roots: list[str], message: str
) -> None:
    with pytest.raises(SettingsError, match=rf"audio_roots.*{message}"):
        ingest("fsdd", audio_roots=roots)


NAMINGS = {
    "nemo": {"id": "id", "audio": "audio_filepath", "text": "text", "speaker": "speaker"},
    "hugging face": {"id": "id", "audio": "path", "text": "transcription", "speaker": "speaker_id"},
    "common voice": {"id": "id", "audio": "path", "text": "sentence", "speaker": "client_id"},
    "speechbrain": {"id": "ID", "audio": "wav", "text": "wrd", "speaker": "spk_id"},
    "coqui": {"id": "utterance_id", "audio": "file_name", "text": "transcript", "speaker": "speaker"},
}


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv"])
def test_the_field_s_usual_names_of_columns_are_understood(
    corpus: Path, record: Record, ingest: Ingest, naming: str, kind: str
) -> None:
    record("a.wav", seconds=2)
    names = NAMINGS[naming]
    row = {names["id"]: "u1", names["audio"]: "a.wav", names["text"]: "good morning", names["speaker"]: "7"}
    row |= {"start": "0.25", "duration": "1.5", "subset": "dev", "accent": "us"}
    if kind == "jsonl":
        values: dict[str, Any] = {**row, "start": 0.25, "duration": 1.5, names["speaker"]: 7}
        write_lines(corpus / "all.jsonl", values)
    else:
        with open(corpus / f"all.{kind}", "w", newline="") as file:
            csv.writer(file, delimiter="," if kind == "csv" else "\t").writerows([list(row), list(row.values())])
    out = ingest("manifest" if kind == "jsonl" else "csv").utterances["u1"]
    assert (out.text, out.speaker, out.offset, out.duration) == ("good morning", "7", 0.25, 1.5)
    assert out.extra == {"corpus_split": "dev", "accent": "us"}


def test_a_chosen_column_wins_and_what_it_displaces_is_kept(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("a.wav")
    write_lines(corpus / "train.jsonl", {"audio": "a.wav", "text": "Good Morning!", "spoken": "good morning"})
    out = ingest("manifest", columns={"text": "spoken"})
    assert (out.utterances["a.wav"].text, out.utterances["a.wav"].extra["corpus_text"]) == (
        "good morning",
        "Good Morning!",
    )
    write_lines(corpus / "more.jsonl", {"audio": "a.wav", "text": "x", "id": "u2"})
    missing = ingest("manifest", columns={"text": "spoken"})
    assert missing.rejects == {"u2": "transcript_missing"}
    assert "no `spoken`; corpus.columns.text" in missing.details["u2"]


def test_settings_at_their_defaults_are_in_no_key(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("7_ann_0.wav")
    for settings, keys in (({}, set()), ({"columns": {"text": "x"}}, {"columns"})):
        done = read_json(ingest("fsdd", **settings).work.folder / "done.json")
        assert {"audio_roots", "columns"} & done["settings"].keys() == keys
    assert CorpusSettings.of({"columns": {}}).columns == ColumnNames()


def test_a_gzipped_manifest_is_read_and_a_cut_one_is_an_error(corpus: Path, record: Record, ingest: Ingest) -> None:
    import gzip

    record("a.wav")
    packed = gzip.compress((json.dumps({"audio_filepath": "a.wav", "text": "早上好"}) + "\n").encode())
    (corpus / "train.jsonl.gz").write_bytes(packed)
    assert [one.text for one in ingest("manifest").utterances.values()] == ["早上好"]
    assert ingest("manifest").utterances["a.wav"].extra == {"corpus_split": "train"}
    (corpus / "train.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(Exception, match=r"train\.jsonl\.gz: damaged"):
        ingest("manifest")

"""Common Voice and its deltas, Lhotse's cuts, Hugging Face's folders, WebDataset's and NeMo's tars."""

import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.ingest.listed import write, write_lines
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.ingest.settings import CorpusSettings
from voxline.errors import WorkError
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import purge_speaker

Ingest = Callable[..., Any]
Record = Callable[..., Path]

HEADER = [
    *("client_id", "path", "sentence_id", "sentence", "sentence_domain", "up_votes", "down_votes", "age", "gender"),
    *("accents", "variant", "locale", "segment"),
]


def release(folder: Path, name: str, **clips: str) -> None:
    """Writes one list of a release: the speaker of each clip, separated from the sentence by a colon."""
    rows = [dict(zip(HEADER, HEADER, strict=True))]
    for clip, said in clips.items():
        speaker, _, sentence = said.partition(":")
        row = dict.fromkeys(HEADER, "") | {"client_id": speaker, "path": f"{clip}.mp3", "locale": "en"}
        row["sentence"] = sentence or f"Sentence {clip}."
        rows.append(row | {"up_votes": str(len(folder.parts)), "age": "fifties"})
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w", encoding="utf-8", newline="") as file:
        file.writelines("\t".join(row.values()) + "\n" for row in rows)


FULL, DELTA = "cv-corpus-21.0-2025-03-14/en", "cv-corpus-22.0-delta-2025-06-20/en"


@pytest.fixture
def common_voice(corpus: Path, record: Record) -> Path:
    """A full release of four clips, of two speakers, whose lists quote as releases do."""
    for clip in ("c1", "c2", "c3", "c4", "bad"):
        record(f"{FULL}/clips/{clip}.mp3", seconds=0.6)
    quoted = 'ann:"""Yes,"" he said."'
    release(corpus / FULL, "validated.tsv", c1=quoted, c2="ann", c3="ben", c4="ben:早上好")
    release(corpus / FULL, "invalidated.tsv", bad="ben")
    release(corpus / FULL, "other.tsv", bad="ben")
    release(corpus / FULL, "train.tsv", c1="ann")
    release(corpus / FULL, "test.tsv", c3="ben")
    return corpus


def test_common_voice_is_its_validated_clips_split_by_speaker(common_voice: Path, ingest: Ingest) -> None:
    out = ingest("common_voice", split={"test": 0.5, "dev": 0})
    assert {id: (one.text, one.speaker) for id, one in out.utterances.items()} == {
        "c1": ('"Yes," he said.', "ann"),
        "c2": ("Sentence c2.", "ann"),
        "c3": ("Sentence c3.", "ben"),
        "c4": ("早上好", "ben"),
    }
    assert out.utterances["c1"].extra == {"age": "fifties", "locale": "en"}
    assert out.rejects == {}
    assert {one.split for one in out.utterances.values()} == {"train", "test"}
    assert len({(one.speaker, one.split) for one in out.utterances.values()}) == 2
    official = {"train": ["train"], "test": ["test"], "leave_out": ["unlisted"]}
    own = ingest("common_voice", splits=official, split={"by": "corpus", "dev": 0})
    assert {id: one.split for id, one in own.utterances.items()} == {"c1": "train", "c3": "test"}
    assert own.work.counts["left_out"] == 2


def test_no_line_of_a_list_ends_it_or_disappears(common_voice: Path, ingest: Ingest) -> None:
    with open(common_voice / FULL / "validated.tsv", "a", newline="") as file:
        end = "\t" * (len(HEADER) - 4)
        file.write(f"\r\nann\t\t\tNo path.{end}\r\nann\t\t\tNo path.{end}\r\n")
        file.write(f"ann\tbad.mp3\t\tA\rreturn.{end}\r\nann\tc1.mp3\t\tAgain.{end}\n")
    release(common_voice / FULL, "invalidated.tsv")
    out = ingest("common_voice")
    assert out.utterances["bad"].text == "A\rreturn."
    assert out.rejects == {"c1": "duplicate_id"} | {f"{FULL}/validated.tsv:{number}": "bad_entry" for number in (7, 8)}


@pytest.mark.slow
def test_a_delta_costs_its_own_clips_and_withdraws_what_it_invalidates(
    common_voice: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    def decoded(out: Any) -> int:
        settings = ConvertSettings.of({"workers": 1, "alphabet": "abcdefghijklmnopqrstuvwxyz 0123456789早上好"})
        return convert(out.work.folder, tmp_path / "store", settings).counts["decoded"]

    before = ingest("common_voice")
    assert decoded(before) == 4
    record(f"{DELTA}/clips/c5.mp3", seconds=0.6)
    release(common_voice / DELTA, "validated.tsv", c5="cyd", c2="ann:Sentence c2, mended.")
    release(common_voice / DELTA, "invalidated.tsv", c3="ben")
    after = ingest("common_voice")
    assert decoded(after) == 1
    assert after.ids == ["c1", "c2", "c4", "c5"]
    assert after.rejects == {"c3": "invalidated"}
    assert "cv-corpus-22.0-delta" in after.details["c3"]
    unchanged = [before.utterances[id].identity() == after.utterances[id].identity() for id in ("c1", "c2", "c4")]
    assert unchanged == [True, False, True]
    assert after.utterances["c2"].text == "Sentence c2, mended."
    assert after.utterances["c2"].audio_filepath.endswith(f"{FULL}/clips/c2.mp3")


def test_a_speaker_keeps_their_split_when_others_come_and_go(corpus: Path, record: Record, ingest: Ingest) -> None:
    clip = record(f"{FULL}/clips/x.mp3", seconds=0.6).read_bytes()

    def splits(speakers: Iterable[int], folder: str) -> dict[str, str]:
        listed = {f"c{number}": f"speaker {number}" for number in speakers}
        for name in listed:
            (corpus / folder / "clips").mkdir(parents=True, exist_ok=True)
            (corpus / folder / "clips" / f"{name}.mp3").write_bytes(clip)
        release(corpus / folder, "validated.tsv", **listed)
        shares = {"dev": 0.2, "test": 0.3}
        return {one.speaker: one.split for one in ingest("common_voice", split=shares).utterances.values()}

    first = splits(range(40), FULL)
    second = splits(range(20, 90), "cv-corpus-30.0-2027-03-14/en")
    assert set(first.values()) == {"train", "dev", "test"}
    assert {speaker: second[speaker] for speaker in first} == first
    assert len(second) == 90


def cut(id: str, path: str, **changes: Any) -> dict[str, Any]:
    recording = {"id": id, "sampling_rate": 8_000, "num_samples": 16_000, "duration": 2.0, "channel_ids": [0]}
    recording["sources"] = [{"type": "file", "channels": [0], "source": path}]
    spoken = {"id": f"{id}-s", "recording_id": id, "start": 0.5, "duration": 1.0, "channel": 0, "text": "good morning"}
    spoken |= {"speaker": "ann", "language": "English", "custom": {"snr": 21.5}}
    return {
        **{"id": id, "start": 0.25, "duration": 1.75, "channel": 0, "supervisions": [spoken], "recording": recording},
        **{"type": "MonoCut", **changes},
    }


def test_each_supervision_of_a_cut_is_an_utterance(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("data/audio/a.wav", seconds=2)
    two = cut("b", "audio/a.wav", custom={"accent": "us"}, start=0.0, duration=2.0)
    two["supervisions"].append(
        {**two["supervisions"][0], "id": "b-t", "start": 0.0, "duration": 2.0, "text": "all of it"}
    )
    command = cut("c", "x")
    command["recording"]["sources"] = [{"type": "command", "channels": [0], "source": "sph2pipe a.sph"}]
    stereo = cut("d", "audio/a.wav", channel=1)
    faster = cut("g", "audio/a.wav")
    faster["recording"]["transforms"] = [{"name": "Speed", "kwargs": {"factor": 1.1}}]
    two["recording"]["transforms"] = [{"name": "Resample", "kwargs": {}}]
    lines = [cut("a", "data/audio/a.wav"), two, command, stereo, {"id": "m", "type": "MixedCut", "tracks": []}, 7, {}]
    lines += [cut("e", "audio/gone.wav"), cut("f", "audio/a.wav", supervisions=[]), faster]
    packed = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    (corpus / "data/my_cuts_train-clean.jsonl.gz").write_bytes(packed)
    out = ingest("lhotse")
    assert {id: (one.text, one.offset, one.duration) for id, one in out.utterances.items()} == {
        "a-s": ("good morning", 0.75, 1.0),
        "b-s": ("good morning", 0.5, 1.0),
        "b-t": ("all of it", 0.0, 2.0),
    }
    known = {"corpus_split": "train-clean", "language": "English", "snr": 21.5}
    assert out.utterances["a-s"].extra == known
    assert out.utterances["b-t"].extra == {**known, "accent": "us"}
    assert out.utterances["a-s"].speaker == "ann"
    name = "data/my_cuts_train-clean.jsonl.gz"
    assert out.rejects == {
        **dict.fromkeys(("c", "d", "g", "m", f"{name}:6", f"{name}:7"), "bad_entry"),
        "e-s": "missing_file",
        "f": "transcript_missing",
    }
    assert "sph2pipe" in out.details["c"]
    assert "changed by Speed" in out.details["g"]


def test_a_cut_as_long_as_its_recording_ends_where_its_manifest_says(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    lines = []
    for name, seconds in {"same": 2.05, "longer": 4.0, "shorter": 1.0}.items():
        record(f"{name}.wav", seconds=seconds)
        lines.append(cut(name, f"{name}.wav", start=0.0, duration=2.0))
        lines[-1]["supervisions"][0] |= {"start": 0.0, "duration": 2.0}
    write_lines(corpus / "cuts.jsonl", *lines)
    out = ingest("lhotse")
    assert {id: round(one.duration, 2) for id, one in out.utterances.items()} == {"same-s": 2.05, "longer-s": 2.0}
    assert out.rejects == {"shorter-s": "truncated"}
    assert out.work.counts["shorter_than_recording"] == 1


def spoken_rows(record: Record, count: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "audio": {"bytes": record(f"tmp/{number}.flac").read_bytes(), "path": f"ann {number}.flac"},
            "sentence": f"你好 {number}",
            "speaker_id": number % 2,
            "duration_ms": 500,
        }
        for number in range(count)
    ]


def as_lines(out: Any) -> list[tuple[str, str, bytes]]:
    return [(one.text, one.speaker, Path(one.audio_filepath).read_bytes()) for one in out.utterances.values()]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_table_with_audio_is_unpacked_once_and_its_columns_are_understood(
    corpus: Path, record: Record, ingest: Ingest, kind: str, tmp_path: Path
) -> None:
    rows = spoken_rows(record)
    table = pyarrow.Table.from_pylist([*rows, {**rows[0], "audio": None}])
    if kind == "parquet":
        (corpus / "data").mkdir()
        pyarrow.parquet.write_table(table, corpus / "data/train-00000-of-00001.parquet")
    else:
        (corpus / "train").mkdir()
        with pyarrow.ipc.new_stream(corpus / "train/data-00000-of-00001.arrow", table.schema) as file:
            file.write_table(table)
    out = ingest("huggingface")
    assert as_lines(out) == [(row["sentence"], str(row["speaker_id"]), row["audio"]["bytes"]) for row in rows]
    assert [id[:5] for id in out.ids] == ["ann_0", "ann_1", "ann_2"]
    assert out.utterances[out.ids[0]].extra == {"corpus_split": "train", "duration_ms": 500}
    assert list(out.rejects.values()) == ["missing_file"]
    unpacked = {path: path.stat().st_mtime_ns for path in (tmp_path / "store/unpacked").rglob("*.flac")}
    assert len(unpacked) == 3
    more = pyarrow.Table.from_pylist([{**rows[0], "sentence": "more"}])
    (corpus / "more").mkdir()
    pyarrow.parquet.write_table(more, corpus / "more/test-00000-of-00001.parquet")
    assert len(ingest("huggingface").ids) == 3  # the same recording with the same name
    assert {path: path.stat().st_mtime_ns for path in unpacked} == unpacked


def test_rows_of_one_recording_with_other_texts_are_utterances_of_their_own(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    row = spoken_rows(record, 1)[0]
    rows = [row, {**row, "sentence": "other words"}, row]  # the last is the first again
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), corpus / "train.parquet")
    out = ingest("huggingface", max_reject_share=0.5)
    assert sorted(one.text for one in out.utterances.values()) == sorted([row["sentence"], "other words"])
    assert list(out.rejects.values()) == ["duplicate_id"]


def test_a_recording_in_a_table_may_have_a_long_name_and_is_not_cut_by_a_start(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    row = spoken_rows(record, 1)[0]
    row |= {"audio": {**row["audio"], "path": f"{'早' * 100}.flac"}, "start": 0.1, "end": 61.5}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), corpus / "train.parquet")
    (out,) = ingest("huggingface").utterances.values()
    assert (out.id[0], out.offset, out.extra["start"], out.extra["end"]) == ("早", 0.0, 0.1, 61.5)


def test_a_table_without_audio_or_text_is_an_error_that_lists_its_columns(corpus: Path, ingest: Ingest) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "text": ["x"]}), corpus / "train.parquet")
    with pytest.raises(WorkError, match=r"0 columns of audio as \{bytes, path\}; it has a \(int64\), text \(string\)"):
        ingest("huggingface")
    (corpus / "train.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(WorkError, match=r"train\.parquet: damaged"):
        ingest("huggingface")


def test_metadata_whose_header_cannot_be_read_is_an_error_of_the_corpus(
    corpus: Path, record: Record, ingest: Ingest, capfd: pytest.CaptureFixture[str]
) -> None:
    record("a.wav")
    write(corpus / "metadata.csv", 'file_name,"transcription\na.wav,x\n')
    with pytest.raises(WorkError, match=r"no metadata\.csv"):
        ingest("huggingface")
    assert "metadata.csv: left out: its header cannot be read" in "".join(capfd.readouterr())


def test_an_audiofolder_is_read_by_its_metadata(corpus: Path, record: Record, ingest: Ingest) -> None:
    record("train/a.wav")
    record("test/clips/b.wav")
    write(corpus / "train/metadata.csv", "file_name,transcription,speaker_id\na.wav,good morning,ann\n")
    write_lines(corpus / "test/metadata.jsonl", {"file_name": "clips/b.wav", "transcription": "good night"})
    out = ingest("huggingface", splits={"train": ["train"], "test": ["test"]})
    assert {id: (one.text, one.speaker, one.split) for id, one in out.utterances.items()} == {
        "train/a.wav": ("good morning", "ann", "train"),
        "test/clips/b.wav": ("good night", "", "test"),
    }


def write_tar(path: Path, members: dict[str, bytes | str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))


def test_a_webdataset_s_samples_are_read_from_their_shards(corpus: Path, record: Record, ingest: Ingest) -> None:
    audio = {number: record(f"tmp/{number}.wav").read_bytes() for number in range(4)}
    for file in (corpus / "tmp").iterdir():
        file.unlink()
    values = {"speaker_id": "ann", "transcript": "from the JSON", "accent": "us", "audio": "elsewhere.wav"}
    speaker = json.dumps({**values, "start": 0.1, "end": 61.5})  # in the recording that the sample was cut from
    write_tar(
        corpus / "train-000000.tar", {"a.wav": audio[0], "a.txt": "早上好\n", "b.json": speaker, "b.wav": audio[1]}
    )
    members = {"sub/a.wav": audio[2], "sub/a.txt": "other folder", "c.txt": "no audio", "d.wav": audio[3], "d.cls": "3"}
    write_tar(corpus / "test-{000000..000000}.tar", {**members, "e.wav": audio[0], "e.json": "[1]", "f.png": "image"})
    write_tar(corpus / "test-000001.tar", {"g.1.wav": audio[0], "g.1.txt": "dots", "g.2.wav": audio[1]})
    out = ingest("webdataset", splits={"train": ["train"], "test": ["test"]})
    found = {id: (one.text, one.speaker, one.split) for id, one in out.utterances.items()}
    assert found == {
        "a": ("早上好", "", "train"),
        "b": ("from the JSON", "ann", "train"),
        "sub/a": ("other folder", "", "test"),
    }
    assert out.utterances["b"].extra["accent"] == "us"
    assert (out.utterances["b"].offset, out.utterances["b"].extra["start"]) == (0.0, 0.1)
    assert Path(out.utterances["b"].audio_filepath).read_bytes() == audio[1]
    dotted = {"g.1.wav": "bad_entry", "g.2.wav": "bad_entry"}
    assert out.rejects == {"c": "missing_file", "d": "transcript_missing", "e": "bad_entry", **dotted}


def test_a_sample_whose_key_an_earlier_shard_has_is_named_by_its_shard(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    audio = [record(f"tmp/{number}.wav").read_bytes() for number in range(4)]
    for file in (corpus / "tmp").iterdir():
        file.unlink()
    for shard in range(2):
        named = {"1.json": json.dumps({"id": f"own-{shard}", "text": "named"}), "1.wav": audio[2 * shard + 1]}
        write_tar(corpus / f"train-{shard:06}.tar", {"0.wav": audio[2 * shard], "0.txt": f"shard {shard}", **named})
    out = ingest("webdataset")
    assert (out.ids, out.rejects) == (["0", "own-0", "own-1", "train-000001/0"], {})
    assert [out.utterances[id].text for id in ("0", "train-000001/0")] == ["shard 0", "shard 1"]  # 0 stays when 1 comes


def test_a_purge_removes_the_recordings_that_were_unpacked(
    corpus: Path, record: Record, ingest: Ingest, tmp_path: Path
) -> None:
    members: dict[str, bytes | str] = {}
    for number in range(4):
        members[f"{number}.wav"] = record(f"tmp/{number}.wav").read_bytes()
        members[f"{number}.json"] = json.dumps({"text": "one", "speaker": ("ann", "ben")[number % 2]})
    write_tar(corpus / "train-0.tar", members)
    before = ingest("webdataset")
    unpacked = [Path(one.audio_filepath) for one in before.utterances.values()]
    assert all(file.is_relative_to(tmp_path / "store/unpacked") and file.is_file() for file in unpacked)
    purge_speaker("ann", PurgeScope(str(tmp_path / "store")))
    assert not any(file.exists() for file in unpacked)
    assert ingest("webdataset").utterances == before.utterances  # the corpus itself still has them


def test_a_member_that_would_leave_the_store_ends_the_run(corpus: Path, record: Record, ingest: Ingest) -> None:
    content = record("tmp/a.wav").read_bytes()
    write_tar(corpus / "train-0.tar", {"a.wav": content, "../../a.txt": "x"})
    with pytest.raises(WorkError, match=r"train-0\.tar: member '\.\./\.\./a\.txt' would leave the folder"):
        ingest("webdataset")


def test_nemo_s_tars_are_read_by_either_manifest(corpus: Path, record: Record, ingest: Ingest) -> None:
    audio = {number: record(f"tmp/{number}.wav", seconds=2).read_bytes() for number in range(3)}
    for shard in range(2):
        write_tar(corpus / f"train/audio_{shard}.tar", {f"talk_{shard}.wav": audio[shard]})
    lines: list[dict[str, Any]] = [
        {"audio_filepath": "talk_0.wav", "duration": 2.0, "text": "whole", "shard_id": 0, "lang": "en"},
        {"audio_filepath": "talk/1-sub2.wav", "offset": 0.5, "duration": 1.0, "text": "a part", "shard_id": 1},
        {"audio_filepath": "talk_9.wav", "duration": 1.0, "text": "gone", "shard_id": 1},
        {"audio_filepath": "talk_0.wav", "duration": 1.0, "text": "which tar", "shard_id": 7},
    ]
    sharded = corpus / "train/sharded_manifests"
    for shard in range(2):
        own = [{k: v for k, v in line.items() if k != "shard_id"} for line in lines if line["shard_id"] == shard]
        write_lines(sharded / f"manifest_{shard}.json", *own)
    by_shard = ingest("nemo_tarred")
    write_lines(corpus / "train/tarred_audio_manifest.json", *lines)
    out = ingest("nemo_tarred")
    parts = {id: (one.text, one.offset, one.duration) for id, one in out.utterances.items()}
    assert parts == {"talk_0.wav": ("whole", 0.0, 2.0), "talk_1.wav@0.5": ("a part", 0.5, 1.0)}
    assert {id: one.identity() for id, one in by_shard.utterances.items()} == {
        id: one.identity() for id, one in out.utterances.items()
    }
    assert out.utterances["talk_0.wav"].extra == {"corpus_split": "train", "lang": "en"}
    assert sorted(out.rejects.items()) == [("talk_0.wav", "bad_entry"), ("talk_9.wav", "missing_file")]


def test_of_two_recordings_in_a_nemo_tar_none_is_taken_for_the_other(
    corpus: Path, record: Record, ingest: Ingest
) -> None:
    audio = [record(f"tmp/{number}.wav", seconds=1 + number).read_bytes() for number in range(2)]
    write_tar(corpus / "audio_0.tar", {"x/a.wav": audio[0], "y/a.wav": audio[1]})
    lines = [{"audio_filepath": path, "text": path, "shard_id": 0} for path in ("x/a.wav", "y/a.wav", "a.wav")]
    write_lines(corpus / "tarred_audio_manifest.json", *lines)
    out = ingest("nemo_tarred", splits={"train": ["*"], "dev": [], "test": []})
    assert {one.text: one.duration for one in out.utterances.values()} == {"x/a.wav": 1.0, "y/a.wav": 2.0}
    assert out.rejects == {"a.wav": "missing_file"}


def test_common_voice_is_split_by_speaker_unless_a_config_says_otherwise() -> None:
    def by(**settings: Any) -> str:
        return CorpusSettings.of(settings).split.by

    assert by(format="common_voice") == by(format="common_voice", split={"dev": 0.1}) == "speaker"
    assert by(format="common_voice", split={"by": "corpus"}) == by(format="lhotse") == "corpus"


def test_lines_of_the_lists_are_read_as_the_publisher_s_own_code_writes_them(tmp_path: Path) -> None:
    from voxline.components.ingest.corpora.common_voice import _unquote

    for quoting, escape in ((csv.QUOTE_MINIMAL, None), (csv.QUOTE_NONE, '"')):
        for sentence in ("Plain.", 'He said "no" twice.', '"All of it."', "x" * 5):
            out = io.StringIO()
            csv.writer(out, delimiter="\t", quoting=quoting, escapechar=escape, lineterminator="").writerow(
                ["c", sentence]
            )
            assert _unquote(out.getvalue().partition("\t")[2]) == sentence, (quoting, sentence)

"""Which clips a person is asked about, and how the answers come back as a corpus that ingest reads."""

import dataclasses
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.feedback.judged_model import capture, push_judged, recordings, sentences
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.manifest import read_manifest
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import CapturedClip, CaptureStore, erase_recordings, expire_recordings, find_recordings
from voxline.feedback.labeling import collect_labels, select_clips, write_selection
from voxline.feedback.watch import statistics_of_clips
from voxline.pipelines.cli.main import app


def clip(number: int, confidence: float, level: float = -20.0, speaker: str = "", note: str = "") -> CapturedClip:
    return CapturedClip(
        f"capture-{number}", "asr", 1, "d", "2026-11-23T18:00:00Z", "2999-01-01", "yes", 1.0, "one", confidence, [],
        note, level, 30.0, [], speaker,
    )  # fmt: skip


def reference() -> dict[str, list[float]]:
    random = np.random.default_rng(0)
    return statistics_of_clips([clip(index, 0.9, -20 + float(random.normal())) for index in range(100)])


def test_copies_of_one_doubtful_clip_count_once() -> None:
    copies = [clip(index, 0.2, -35.0) for index in range(50)]
    distinct = [clip(100 + index, 0.6, -45.0 + 25 * index) for index in range(3)]
    chosen = {one.id for one in select_clips([*copies, *distinct], reference(), 3)}
    assert len(chosen & {one.id for one in copies}) == 1
    assert len(chosen & {one.id for one in distinct}) == 2


def test_doubt_counts_where_nothing_is_new_and_silence_is_not_asked_about() -> None:
    clips = [clip(index, 0.99) for index in range(20)] + [clip(50, 0.1)] + [clip(60, 0.0, note="no speech")]
    assert select_clips(clips, reference(), 1)[0].id == "capture-50"
    assert len(select_clips(clips, reference(), 100)) == 21


def test_a_speaker_is_asked_for_a_few_only() -> None:
    clips = [clip(index, 0.1, -60, "loud") for index in range(20)] + [clip(90, 0.9)]
    assert len(select_clips(clips, reference(), 20, per_speaker=4)) == 5


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry and captures of 40 clips with noise."""
    folder = tmp_path_factory.mktemp("service")
    push_judged(folder / "registry", folder / "model", {"seven": "six"})
    texts = sentences(40, seed=3)
    capture(folder / "registry", folder / "captures", texts, recordings(texts, 4, noise=0.02), "p-7")
    return folder


def select(service: Path, folder: Path) -> list[dict[str, object]]:
    arguments = ["--registry", service / "registry", "--captures", service / "captures", "--count", 12, "-o", folder]
    result = CliRunner().invoke(app, ["captures", "select", "asr", *map(str, arguments), "--per-speaker", "40"])
    assert result.exit_code == 0, result.output
    return list(json.loads((folder / "label-studio.json").read_text(encoding="utf-8")))


def annotated(task: dict[str, object], text: str, leave_out: bool = False) -> dict[str, object]:
    result = [{"from_name": "transcription", "type": "textarea", "value": {"text": [text]}}]
    if leave_out:
        result.append({"from_name": "verdict", "type": "choices", "value": {"choices": ["leave out"]}})
    return {**task, "annotations": [{"result": result}]}


@pytest.mark.slow
def test_labels_of_label_studio_come_back_as_a_corpus_that_ingest_reads(service: Path, tmp_path: Path) -> None:
    tasks = select(service, tmp_path / "to-label")
    assert len(tasks) == 12
    export = [annotated(tasks[0], "zéro  eins"), annotated(tasks[1], str(tasks[1]["data"]["text"]))]
    export += [annotated(tasks[2], "x", leave_out=True), {**tasks[3], "annotations": []}]
    export += [annotated(task, "six") for task in tasks[4:]]
    (tmp_path / "labeled.json").write_text(json.dumps(export))
    arguments = [tmp_path / "labeled.json", "--selection", tmp_path / "to-label", "-o", tmp_path / "corpus"]
    result = CliRunner().invoke(app, ["captures", "label", *map(str, arguments), "--test-share", "0"])
    assert result.exit_code == 0, result.output
    assert "10 clips labeled" in result.output
    settings = CorpusSettings.of({"uri": str(tmp_path / "corpus"), "format": "manifest"}, "corpus")
    found = {one.id: one for one in read_manifest(ingest(str(tmp_path / "store"), settings).path("manifest"))}
    assert len(found) == 10
    first = found[str(tasks[0]["data"]["id"])]
    assert (first.text, first.speaker, first.extra["consent"]) == ("zéro eins", "p-7", "terms-1")
    assert (first.extra["expires"], first.extra["model"]) == ("2999-01-01", "asr@1")
    assert find_recordings(tmp_path / "corpus", "p-7")
    assert expire_recordings(tmp_path / "corpus", "2999-01-01") == 10
    assert list((tmp_path / "corpus" / "audio").iterdir()) == []


def test_later_labels_replace_earlier_ones_and_expired_clips_do_not_come_back(service: Path, tmp_path: Path) -> None:
    select(service, tmp_path / "to-label")
    manifest = tmp_path / "to-label" / "manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    corpus = tmp_path / "corpus"
    assert collect_labels(manifest, tmp_path / "to-label", corpus).total == 12, "a manifest is taken as it is"
    (tmp_path / "again.jsonl").write_text(
        json.dumps({"id": lines[0]["id"], "text": "nine"})
        + "\n"
        + json.dumps({"id": lines[1]["id"], "leave_out": True})
    )
    counts = collect_labels(tmp_path / "again.jsonl", tmp_path / "to-label", corpus)
    assert dataclasses.astuple(counts) == (1, 1, 1, 0, 11)
    found = {one.id: one.text for one in read_manifest(corpus / "manifest.jsonl")}
    assert found[lines[0]["id"]] == "nine"
    assert not (corpus / "audio" / f"{lines[1]['id']}.flac").exists()
    manifest.write_text("".join(json.dumps({**line, "expires": "2020-01-01"}) + "\n" for line in lines))
    counts = collect_labels(tmp_path / "again.jsonl", tmp_path / "to-label", corpus)
    assert (counts.expired, counts.labeled) == (1, 0)
    assert lines[0]["id"] not in {one.id for one in read_manifest(corpus / "manifest.jsonl")}


def test_a_selection_into_the_same_folder_leaves_nothing_of_the_earlier_one(service: Path, tmp_path: Path) -> None:
    clips = list(CaptureStore(service / "captures").clips())
    write_selection(CaptureStore(service / "captures"), clips[:3], tmp_path)
    write_selection(CaptureStore(service / "captures"), clips[2:4], tmp_path)
    assert {path.stem for path in (tmp_path / "audio").iterdir()} == {one.id for one in clips[2:4]}


def test_recordings_that_no_line_names_are_deleted_after_a_day(service: Path, tmp_path: Path) -> None:
    clips = list(CaptureStore(service / "captures").clips())
    manifest = write_selection(CaptureStore(service / "captures"), clips[:1], tmp_path)
    for name in ("capture-old.flac", "capture-new.flac", "theirs.flac", ".capture-old.flac.ab.part"):
        (tmp_path / "audio" / name).write_bytes(b"fLaC")
        if "new" not in name:
            os.utime(tmp_path / "audio" / name, (0, 0))
    manifest.write_text(manifest.read_text() + "\n")  # as an editor leaves it
    assert expire_recordings(tmp_path) == 0
    left = {path.name for path in (tmp_path / "audio").iterdir()}
    assert left == {f"{clips[0].id}.flac", "capture-new.flac", "theirs.flac"}
    manifest.write_text(manifest.read_text().replace('"2999-01-01"', "29990101"))
    with pytest.raises(WorkError, match="`expires` is 29990101"):
        expire_recordings(tmp_path)


def test_a_caller_stays_in_one_split_whatever_the_shares_are(service: Path, tmp_path: Path) -> None:
    clips = list(CaptureStore(service / "captures").clips())[:4]
    write_selection(CaptureStore(service / "captures"), clips, tmp_path / "to-label")
    for part, share in ((clips[:2], 1.0), (clips[2:], 0.0)):
        (tmp_path / "labels.jsonl").write_text("".join(f'{{"id": "{one.id}", "text": "one"}}\n' for one in part))
        collect_labels(
            tmp_path / "labels.jsonl", tmp_path / "to-label", tmp_path / "corpus", test_share=share, dev_share=0
        )
    assert {one.split for one in read_manifest(tmp_path / "corpus")} == {"test"}
    with pytest.raises(SettingsError, match="this is the selection"):
        collect_labels(tmp_path / "labels.jsonl", tmp_path / "to-label", tmp_path / "to-label")


def test_a_selection_replaces_no_corpus(service: Path, tmp_path: Path) -> None:
    folder, corpus = tmp_path / "to-label", tmp_path / "corpus"
    select(service, folder)
    collect_labels(folder / "manifest.jsonl", folder, corpus)
    assert (folder.stat().st_mode | corpus.stat().st_mode) & 0o077 == 0, "both hold recordings of callers"
    with pytest.raises(SettingsError, match=r"corpus: it holds another manifest\.jsonl"):
        write_selection(CaptureStore(service / "captures"), [], corpus)
    assert len(read_manifest(corpus)) == 12


@pytest.mark.parametrize("erased", ["to-label", "corpus"])
def test_a_purge_waits_for_labels_that_are_taken(service: Path, tmp_path: Path, erased: str) -> None:
    clips = list(CaptureStore(service / "captures").clips())[:2]
    manifest = write_selection(CaptureStore(service / "captures"), clips, tmp_path / "to-label")
    (tmp_path / "labels.jsonl").write_text(f'{{"id": "{clips[0].id}", "text": "one"}}\n')
    collect_labels(tmp_path / "labels.jsonl", tmp_path / "to-label", tmp_path / "corpus")
    last = tmp_path / "to-label" / "audio" / f"{clips[1].id}.flac"
    last.unlink()
    os.mkfifo(last)  # the labels wait here

    waited: list[bool] = []

    def erase() -> None:
        purge = threading.Thread(target=erase_recordings, args=(tmp_path / erased, clips[0].person))
        with open(last, "wb") as audio:
            purge.start()
            purge.join(0.2)
            waited.append(purge.is_alive())
            audio.write(b"fLaC")
        purge.join()

    meanwhile = threading.Thread(target=erase)
    meanwhile.start()
    assert collect_labels(manifest, tmp_path / "to-label", tmp_path / "corpus").labeled == 2
    meanwhile.join()
    assert waited == [True], "a purge waits until the labels are there, and then finds all of them"
    assert find_recordings(tmp_path / erased, clips[0].person) == []
    assert [one for one in read_manifest(tmp_path / erased) if one.speaker == clips[0].person] == []


def test_a_purge_waits_for_a_selection_that_is_written(service: Path, tmp_path: Path) -> None:
    captures = CaptureStore(service / "captures")
    clips = list(captures.clips())[:2]
    write_selection(captures, clips[:1], tmp_path)
    reading, purged = threading.Event(), threading.Event()

    class SlowCaptures(CaptureStore):
        def audio(self, clip: CapturedClip) -> bytes:
            reading.set()
            assert not purged.wait(0.2), "a purge waits until the selection is there, and then finds all of it"
            return super().audio(clip)

    def purge() -> None:
        reading.wait()
        erase_recordings(tmp_path, clips[1].person)
        purged.set()

    meanwhile = threading.Thread(target=purge)
    meanwhile.start()
    write_selection(SlowCaptures(service / "captures"), clips, tmp_path)
    meanwhile.join()
    assert purged.is_set()
    assert find_recordings(tmp_path, clips[1].person) == []
    assert [one for one in read_manifest(tmp_path) if one.speaker == clips[1].person] == []


def test_labels_of_other_clips_are_refused(service: Path, tmp_path: Path) -> None:
    select(service, tmp_path / "to-label")
    (tmp_path / "other.jsonl").write_text('{"id": "capture-other", "text": "one"}\n')
    with pytest.raises(WorkError, match=r"1 clip not in .*, such as capture-other"):
        collect_labels(tmp_path / "other.jsonl", tmp_path / "to-label", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    manifest = tmp_path / "to-label" / "manifest.jsonl"
    known = json.loads(manifest.read_text().splitlines()[0])
    (tmp_path / "some.jsonl").write_text(
        json.dumps({"id": known["id"], "text": "one"}) + '\n{"id": "capture-erased", "text": "one"}\n'
    )
    counts = collect_labels(tmp_path / "some.jsonl", tmp_path / "to-label", tmp_path / "some")
    assert (counts.labeled, counts.expired) == (1, 1), "a purge of one clip holds up no other label"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "manifest.jsonl").write_text(json.dumps(known | {"id": "../../a"}) + "\n")
    with pytest.raises(WorkError, match=r"'\.\./\.\./a' was not captured"):
        collect_labels(tmp_path / "some.jsonl", theirs, tmp_path / "corpus")
    (tmp_path / "other.jsonl").write_text('{"id": 3}\n')
    with pytest.raises(WorkError, match=r"other.jsonl:1: .*is not a labeled line"):
        collect_labels(tmp_path / "other.jsonl", tmp_path / "to-label", tmp_path / "corpus")
    with pytest.raises(SettingsError, match=r"--test-share 0\.9, --dev-share 0\.2: 0 or more"):
        collect_labels(tmp_path / "other.jsonl", tmp_path / "to-label", tmp_path, test_share=0.9, dev_share=0.2)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(WorkError, match="not an export of Label Studio"):
        collect_labels(tmp_path / "deep.json", tmp_path / "to-label", tmp_path / "corpus")
    with pytest.raises(SettingsError, match=r"no manifest\.jsonl here"):
        collect_labels(tmp_path / "other.jsonl", tmp_path, tmp_path / "corpus")


def test_an_erasure_takes_the_tasks_and_leaves_other_corpora_alone(service: Path, tmp_path: Path) -> None:
    select(service, tmp_path / "to-label")
    erase_recordings(tmp_path / "to-label", "p-7")
    left = {path.name for path in (tmp_path / "to-label").rglob("[!.]*") if path.is_file()}
    assert left == {"label-studio.xml", "manifest.jsonl"}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a.wav").write_bytes(b"RIFF")
    line = {"id": "a", "audio_filepath": "a.wav", "duration": 1.0, "text": "one", "speaker": "p-7"}
    (tmp_path / "theirs" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    erase_recordings(tmp_path / "theirs", "p-7")
    assert expire_recordings(tmp_path / "theirs", "2999-01-01") == 0
    assert (tmp_path / "theirs" / "a.wav").exists()


def test_captures_are_counted_and_expired_by_commands(service: Path) -> None:
    listed = CliRunner().invoke(app, ["captures", "list", "--captures", str(service / "captures")])
    assert listed.output.startswith("asr 1: 40 clips, "), listed.output
    assert "1 pseudonyms" in listed.output
    counted = CliRunner().invoke(app, ["captures", "list", "--captures", str(service / "captures"), "--json"])
    assert json.loads(counted.output)[0]["clips"] == 40
    expired = CliRunner().invoke(app, ["captures", "expire", str(service / "captures")])
    assert expired.output == f"{service / 'captures'}: 0 clips have expired\n"
    wrong = CliRunner().invoke(app, ["captures", "expire", str(service)])
    assert isinstance(wrong.exception, SettingsError)

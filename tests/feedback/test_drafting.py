"""Drafts of recordings without a transcript: what is kept, what is left out and why, and what a killed run keeps."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.feedback.judged_model import capture, push_judged, recordings, sentences
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run as ingest
from voxline.data.drafts import CONFIDENCE, DISAGREEMENT, DRAFTED_BY
from voxline.data.manifest import read_manifest, read_rejects
from voxline.errors import PreconditionError, SettingsError, WorkError
from voxline.feedback import drafting
from voxline.feedback.captures import CaptureStore, check_captures, erase_recordings, expire_recordings, find_recordings
from voxline.feedback.drafting import DraftCounts, DraftSettings, draft_corpus
from voxline.feedback.labeling import write_selection
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import app

WAV = (".wav",)
TEXTS = [["one", "two"], ["six"], ["three", "four", "five"], ["two"], ["seven", "eight"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models that differ in one word."""
    folder = tmp_path_factory.mktemp("models")
    return export_onnx_tones(folder / "first", {}), export_onnx_tones(folder / "second", {"two": "three"})


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Recordings in a folder for each of two speakers."""
    for number, waveform in enumerate(recordings(TEXTS, 0)):
        file = tmp_path / "calls" / ("ada" if number % 2 else "bo") / f"{number}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, waveform, RATE)
    return tmp_path / "calls"


def draft(audio: Path, models: tuple[Path, Path], corpus: Path, **changes: Any) -> DraftCounts:
    values = {"second": str(models[1]), "max_wer": 0.0, "speakers_by_folder": True} | changes
    return draft_corpus(audio, models[0], corpus, DraftSettings(**values), WAV)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_draft_is_kept_where_two_models_agree_and_marked(
    calls: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    counts = draft(calls, models, tmp_path / "drafts")
    assert (counts.drafts, counts.rejects, counts.new) == (3, 2, 5)
    assert counts.drafted_by == f"asr ({model_digest(models[0])[:12]})"

    kept = {line.id: line for line in read_manifest(tmp_path / "drafts")}
    assert {id: line.text for id, line in kept.items()} == {
        "ada/1": "six", "bo/2": "three four five", "bo/4": "seven eight"
    }  # fmt: skip
    line = kept["bo/2"]
    assert (line.speaker, line.split, line.duration) == ("bo", "train", pytest.approx(0.3))
    assert line.extra[DRAFTED_BY] == counts.drafted_by
    assert line.extra[DISAGREEMENT] == 0
    heard = Recognizer(models[0]).recognize(calls / "bo" / "2.wav")
    assert line.extra[CONFIDENCE] == pytest.approx(heard.confidence, abs=1e-3)
    assert Path(line.audio_filepath).read_bytes() == (calls / "bo" / "2.wav").read_bytes()

    left_out = {reject.id: reject for reject in read_rejects(tmp_path / "drafts")}
    assert {id: str(reject.reason) for id, reject in left_out.items()} == {
        "bo/0": "disagreement", "ada/3": "disagreement"
    }  # fmt: skip
    assert "'one two' and 'one three': 50% of the words differ" in left_out["bo/0"].detail

    # Ingest reads it as it is.
    settings = CorpusSettings.of({"uri": str(tmp_path / "drafts"), "format": "manifest"})
    ingested = read_manifest(ingest(tmp_path / "store", settings).folder)
    assert {line.id: (line.text, line.speaker) for line in ingested} == {
        id: (line.text, line.speaker) for id, line in kept.items()
    }
    assert all(kept[line.id].extra.items() <= line.extra.items() for line in ingested)


def test_other_bounds_hear_nothing_again(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    draft(calls, models, tmp_path / "drafts")
    looser = draft(calls, models, tmp_path / "drafts", max_wer=0.5)
    assert (looser.drafts, looser.rejects, looser.new) == (4, 1, 0)
    assert {line.id: line.extra[DISAGREEMENT] for line in read_manifest(tmp_path / "drafts")}["bo/0"] == 0.5

    # What is not kept any more is gone, and again with its reason.
    strict = draft(calls, models, tmp_path / "drafts", min_confidence=0.99)
    assert (strict.drafts, strict.rejects) == (0, 5)
    reasons = [str(reject.reason) for reject in read_rejects(tmp_path / "drafts")]
    assert sorted(reasons) == ["disagreement"] * 2 + ["low_confidence"] * 3
    assert not list((tmp_path / "drafts" / "audio").iterdir())


def test_further_recordings_are_heard_alone(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    draft(calls, models, tmp_path / "drafts")
    soundfile.write(calls / "ada" / "new.wav", recordings([["four"]], 9)[0], RATE)
    soundfile.write(calls / "ada" / "1.wav", recordings([["eight"]], 9)[0], RATE)  # another one in its place
    again = draft(calls, models, tmp_path / "drafts")
    assert (again.drafts, again.new) == (4, 2)
    kept = {line.id: line for line in read_manifest(tmp_path / "drafts")}
    assert (kept["ada/1"].text, kept["ada/new"].text) == ("eight", "four")
    assert Path(kept["ada/1"].audio_filepath).read_bytes() == (calls / "ada" / "1.wav").read_bytes()


def test_bad_recordings_are_left_out_and_hide_no_other(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    (calls / "bo" / "damaged.wav").write_bytes(b"RIFF no audio")
    soundfile.write(calls / "bo" / "silent.wav", np.zeros(RATE), RATE)
    soundfile.write(calls / "bo" / "long.wav", render_words(["one"] * 40), RATE)
    counts = draft(calls, models, tmp_path / "drafts", max_seconds=2)
    assert counts.drafts == 3
    reasons = {reject.id: str(reject.reason) for reject in read_rejects(tmp_path / "drafts")}
    assert reasons["bo/damaged"] == "unreadable"
    assert reasons["bo/silent"] == "nothing_heard"
    assert reasons["bo/long"] == "too_long"
    assert counts.drafts + counts.rejects == 8


def test_a_model_that_hears_something_else_in_noise_does_not_agree(
    calls: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    quiet = draft(calls, models, tmp_path / "quiet", second="noise", noise_db=80)
    loud = draft(calls, models, tmp_path / "loud", second="noise", noise_db=-10)
    assert quiet.drafts == 5
    assert loud.drafts < quiet.drafts

    # The same noise each time.
    again = draft(calls, models, tmp_path / "again", second="noise", noise_db=-10)
    assert again == loud
    heard = (tmp_path / "loud" / "drafting" / "00000001.drafts").read_bytes()
    assert (tmp_path / "again" / "drafting" / "00000001.drafts").read_bytes() == heard


def test_a_manifest_gives_ids_speakers_and_parts_of_recordings(models: tuple[Path, Path], tmp_path: Path) -> None:
    corpus = tmp_path / "talks"
    corpus.mkdir()
    soundfile.write(corpus / "talk.wav", render_words(["four", "five", "two", "six"]), RATE)
    lines: list[Any] = [
        {"id": "a", "audio_filepath": "talk.wav", "offset": 0.0, "duration": 0.1, "speaker": "ada", "room": "1"},
        {"id": "b", "audio_filepath": "talk.wav", "offset": 0.1, "duration": 0.1, "text": "", "speaker": "bo"},
        {"id": "c", "audio_filepath": "talk.wav", "offset": 0.2, "duration": 0.1, "text": None, "speaker": "cy"},
        {"id": "d", "audio_filepath": "talk.wav", "offset": 0.3, "duration": 0.1, "text": "six", "speaker": "ada"},
        {"id": "a", "audio_filepath": "talk.wav", "offset": 0.3, "duration": 0.1},
        {"id": "gone", "audio_filepath": "gone.wav"},
        {"id": "late", "audio_filepath": "talk.wav", "offset": 7.0, "duration": 0.1},
        {"text": "no audio"},
        ["no mapping"],
    ]
    manifest = corpus / "calls.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{half a\n")
    counts = draft(manifest, models, tmp_path / "drafts")
    kept = {line.id: line for line in read_manifest(tmp_path / "drafts")}
    assert {id: (line.text, line.speaker, line.offset) for id, line in kept.items()} == {
        "a": ("four", "ada", 0.0), "b": ("five", "bo", 0.1)
    }  # fmt: skip
    assert kept["a"].extra["room"] == "1"
    assert len({line.audio_filepath for line in kept.values()}) == 1

    reasons = [(reject.id, str(reject.reason)) for reject in read_rejects(tmp_path / "drafts")]
    assert {("c", "disagreement"), ("d", "transcribed"), ("a", "duplicate_id"), ("gone", "missing_file")} <= {*reasons}
    assert counts.drafts + counts.rejects == len(lines) + 1
    assert len(reasons) == counts.rejects


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_killed_run_loses_one_group_and_ends_alike(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "GROUP_RECORDINGS", 2)
    draft(calls, models, tmp_path / "whole")
    hear_group = drafting._hear_group
    calls_of: list[int] = []

    def killed(*values: Any) -> Any:
        calls_of.append(len(values[0]))
        if len(calls_of) == at:
            raise KeyboardInterrupt
        return hear_group(*values)

    monkeypatch.setattr(drafting, "_hear_group", killed)
    with pytest.raises(KeyboardInterrupt):
        draft(calls, models, tmp_path / "drafts")
    assert not (tmp_path / "drafts" / "drafting.json").exists()
    assert not (tmp_path / "drafts" / "manifest.jsonl").exists()
    monkeypatch.setattr(drafting, "_hear_group", hear_group)

    resumed = draft(calls, models, tmp_path / "drafts")
    assert resumed.new == 5 - 2 * (at - 1)
    for name in ("manifest.jsonl", "rejects.jsonl", "drafting.json"):
        assert (tmp_path / "drafts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_disk_that_fails_while_the_corpus_is_written_leaves_the_one_before(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft(calls, models, tmp_path / "drafts")
    before = (tmp_path / "drafts" / "manifest.jsonl").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(drafting, "write_manifest", full)
    with pytest.raises(OSError, match="No space"):
        draft(calls, models, tmp_path / "drafts", max_wer=0.5)
    monkeypatch.undo()
    assert (tmp_path / "drafts" / "manifest.jsonl").read_bytes() == before
    assert all(Path(line.audio_filepath).is_file() for line in read_manifest(tmp_path / "drafts"))
    assert draft(calls, models, tmp_path / "drafts", max_wer=0.5).drafts == 4


def test_recordings_are_copied_where_a_disk_has_no_links(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(drafting.os, "link", no_links)
    draft(calls, models, tmp_path / "drafts")
    copies = [Path(line.audio_filepath) for line in read_manifest(tmp_path / "drafts")]
    assert len(copies) == 3
    assert all(copy.stat().st_nlink == 1 and copy.stat().st_size for copy in copies)


def test_a_purge_finds_kept_drafts_and_what_was_left_out(
    calls: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    drafts = tmp_path / "drafts"
    draft(calls, models, drafts)
    found = find_recordings(drafts, "bo")
    assert len(found) == 3  # two drafts, and the group in which they were heard
    erase_recordings(drafts, "bo")
    assert not find_recordings(drafts, "bo")
    left = b"".join(files_of(drafts).values())
    assert b"bo" not in left
    assert b"three four five" not in left
    assert b"one two" not in left  # of a draft that was left out
    assert [line.id for line in read_manifest(drafts)] == ["ada/1"]
    assert [reject.id for reject in read_rejects(drafts)] == ["ada/3"]
    assert len(list((drafts / "audio").iterdir())) == 1
    assert (calls / "bo" / "2.wav").is_file()  # a publisher's recording is never changed

    # A speaker of whom nothing was kept is found as well.
    erase_recordings(drafts, "ada")
    assert not read_rejects(drafts)
    assert not read_manifest(drafts)


def test_a_purge_finds_what_a_killed_run_has_left(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a manifest yet, and with recordings that no line names."""
    drafts = tmp_path / "drafts"

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drafting, "write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        draft(calls, models, drafts)
    monkeypatch.undo()
    assert len(list((drafts / "audio").iterdir())) == 3

    check_captures(drafts)
    assert find_recordings(drafts, "bo")
    erase_recordings(drafts, "bo")
    left = b"".join(files_of(drafts).values())
    assert b"bo" not in left
    assert not list((drafts / "audio").iterdir())
    assert draft(calls / "ada", models, drafts, speakers_by_folder=False).drafts == 1


@pytest.mark.parametrize("name", ["rejects.jsonl", "drafting/00000001.drafts"])
def test_a_purge_names_damage_before_anything_is_gone(
    name: str, calls: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    corpus = tmp_path / "drafts"
    draft(calls, models, corpus)
    (corpus / name).write_bytes(b'{"id": "nobod\n' + (corpus / name).read_bytes())
    before = files_of(corpus)
    with pytest.raises(WorkError, match=rf"{name}:1: damaged .*delete this file, which `voxline corpus label` writes"):
        erase_recordings(corpus, "ada")
    assert {file: data for file, data in files_of(corpus).items() if file in before} == before

    (corpus / name).unlink()
    erase_recordings(corpus, "ada")
    draft(calls / "bo", models, corpus, speakers_by_folder=False)
    # A digest may have the three letters by chance.
    left = [data for file, data in files_of(corpus).items() if not file.startswith("audio/")]
    assert not any(b"ada/" in data or b'"ada"' in data for data in left)


def test_a_recording_of_two_speakers_stays_while_a_draft_of_one_is_there(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    corpus = tmp_path / "talks"
    corpus.mkdir()
    soundfile.write(corpus / "talk.wav", render_words(["four", "five"]), RATE)
    lines = [
        {"id": name, "audio_filepath": "talk.wav", "offset": offset, "duration": 0.1, "speaker": name}
        for name, offset in (("ada", 0.0), ("bo", 0.1))
    ]
    (corpus / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draft(corpus / "calls.jsonl", models, tmp_path / "drafts")
    erase_recordings(tmp_path / "drafts", "ada")
    (line,) = read_manifest(tmp_path / "drafts")
    assert line.id == "bo"
    assert Path(line.audio_filepath).is_file()
    erase_recordings(tmp_path / "drafts", "bo")
    assert not list((tmp_path / "drafts" / "audio").iterdir())


def test_drafts_that_a_purge_erased_meanwhile_do_not_come_back(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = drafting._hear

    def and_purge(*values: Any) -> None:
        hear(*values)
        erase_recordings(tmp_path / "drafts", "bo")

    monkeypatch.setattr(drafting, "_hear", and_purge)
    with pytest.raises(PreconditionError, match=r"5 drafts were erased meanwhile, such as that of ada/1; start again"):
        draft(calls, models, tmp_path / "drafts")
    assert not (tmp_path / "drafts" / "manifest.jsonl").exists()


def test_captured_clips_expire_in_a_corpus_of_drafts_too(models: tuple[Path, Path], tmp_path: Path) -> None:
    push_judged(tmp_path / "registry", tmp_path / "model", {})
    texts = sentences(6)
    clips = capture(tmp_path / "registry", tmp_path / "captures", texts, recordings(texts, 3))
    selection = tmp_path / "to-label"
    write_selection(CaptureStore(tmp_path / "captures"), clips, selection)

    drafts = tmp_path / "drafts"
    settings = DraftSettings(second=str(models[1]), max_wer=0.0)
    counts = draft_corpus(selection, tmp_path / "registry" / "asr" / "1", drafts, settings, WAV)
    assert counts.drafted_by.startswith("asr@1 (")
    kept = read_manifest(drafts)
    assert 0 < len(kept) < 6
    assert {line.extra["consent"] for line in kept} == {"terms-1"}
    assert {Path(line.audio_filepath).name for line in kept} == {f"{line.id}.flac" for line in kept}

    assert expire_recordings(drafts, "2998-12-31") == 0
    assert expire_recordings(drafts, "2999-01-01") == len(kept)
    assert not read_manifest(drafts)
    assert not list((drafts / "audio").iterdir())
    assert not list((drafts / "drafting").glob("*.drafts"))


def test_what_is_refused(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    for changes, message in (
        ({"max_wer": 1.5}, r"--max-wer is 1.5; a number from 0 to 1"),
        ({"min_confidence": -1}, r"--min-confidence is -1"),
        ({"max_seconds": 0}, r"--max-seconds is 0"),
        ({"max_seconds": float("nan")}, r"--max-seconds is nan"),
        ({"noise_db": float("inf")}, r"--noise-db is inf; a number from -100 to 100"),
        ({"second": str(models[0])}, r"is the same model as the first, which agrees with itself"),
        ({"second": "decoding"}, r"the model has no language model, so it decodes in one way"),
    ):
        with pytest.raises(SettingsError, match=message):
            draft(calls, models, tmp_path / "drafts", **changes)
    with pytest.raises(SettingsError, match="no such folder or manifest"):
        draft(tmp_path / "gone", models, tmp_path / "drafts")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"no recording here; .*\.wav"):
        draft(tmp_path / "empty", models, tmp_path / "drafts")
    with pytest.raises(SettingsError, match="over the recordings"):
        draft(calls, models, calls)

    with pytest.raises(SettingsError, match=r"0\.wav: one recording; give the folder"):
        draft(calls / "bo" / "0.wav", models, tmp_path / "drafts")

    # What a person has there is never replaced.
    for theirs in ("manifest.jsonl", "rejects.jsonl", "audio/1.wav"):
        folder = tmp_path / theirs.replace("/", "-")
        (folder / theirs).parent.mkdir(parents=True)
        (folder / theirs).write_text("{}\n")
        with pytest.raises(SettingsError, match=rf"else, {theirs.partition('/')[0]} first, which drafts would replace"):
            draft(calls, models, folder)
        assert (folder / theirs).read_text() == "{}\n"

    # What was refused before it heard anything leaves a folder that takes other settings.
    draft(calls, models, tmp_path / "drafts")
    with pytest.raises(SettingsError, match=r"it has drafts by asr \(.*, of other settings"):
        draft(calls, models, tmp_path / "drafts", second="noise")


def test_drafts_below_the_recordings_are_no_recordings(
    calls: Path, models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(calls)
    for corpus in (calls / "drafts", Path("calls/drafts"), tmp_path / "linked" / "drafts"):
        assert draft(Path("calls"), models, corpus).drafts == 3


def test_each_absent_recording_is_named(models: tuple[Path, Path], tmp_path: Path) -> None:
    lines = [json.dumps({"id": id, "audio_filepath": f"gone-{id}.wav"}) for id in ("a", "b", "\0")]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    for again in (2, 0):
        assert draft(tmp_path / "list.jsonl", models, tmp_path / "drafts").new == again
        rejects = read_rejects(tmp_path / "drafts")
        assert all(f"gone-{reject.id}.wav" in reject.detail for reject in rejects if reject.id in ("a", "b"))
        assert [str(reject.reason) for reject in rejects] == ["bad_entry", "missing_file", "missing_file"]

    # Once one is there, it is heard.
    soundfile.write(tmp_path / "gone-b.wav", render_words(["one"]), RATE)
    counts = draft(tmp_path / "list.jsonl", models, tmp_path / "drafts")
    assert (counts.drafts, counts.new) == (1, 1)


def test_a_damaged_group_is_named(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    draft(calls, models, tmp_path / "drafts")
    group = tmp_path / "drafts" / "drafting" / "00000001.drafts"
    group.write_bytes(group.read_bytes()[:-30])
    with pytest.raises(Exception, match=r"00000001\.drafts:5: damaged .*delete this file and start again"):
        draft(calls, models, tmp_path / "drafts")
    group.unlink()
    assert draft(calls, models, tmp_path / "drafts").drafts == 3

    for damage in ("{", "[]"):
        (tmp_path / "drafts" / "drafting" / "settings.json").write_text(damage)
        with pytest.raises(WorkError, match=r"settings\.json: damaged .*delete .*drafts, and start again"):
            draft(calls, models, tmp_path / "drafts")


def test_the_command_drafts_and_says_what_it_left_out(calls: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["corpus", "label", str(calls), "--model", str(models[0]), "--second", str(models[1])]
    words += ["-o", str(tmp_path / "drafts"), "--speakers-by-folder"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert "3 drafts by asr (" in ended.output
    assert "2 recordings left out (rejects.jsonl)" in ended.output
    assert "2 × disagreement, e.g. ada/3: 'two' and 'three'" in ended.output
    assert f"--set corpus.pseudo.uri={tmp_path / 'drafts'}" in ended.output

    as_json = CliRunner().invoke(app, [*words, "--max-wer", "0.5", "--json"])
    assert json.loads(as_json.stdout)["drafts"] == 4
    refused = CliRunner().invoke(app, [*words, "--max-wer", "2"])
    assert isinstance(refused.exception, SettingsError)


def test_the_command_resumes_when_it_was_killed(models: tuple[Path, Path], tmp_path: Path) -> None:
    """SIGKILL leaves whole groups alone, which the same command keeps."""
    texts = sentences(900)
    (tmp_path / "calls").mkdir()
    for number, waveform in enumerate(recordings(texts, 5)):
        soundfile.write(tmp_path / "calls" / f"{number:04}.wav", waveform, RATE)
    command = [sys.executable, "-m", "voxline", "corpus", "label", str(tmp_path / "calls"), "--model", str(models[0])]
    command += ["--second", str(models[1]), "-o", str(tmp_path / "drafts")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    groups = tmp_path / "drafts" / "drafting"
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        deadline = time.monotonic() + 120
        while not list(groups.glob("*.drafts")) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
    kept = files_of(groups)
    assert any(name.endswith(".drafts") for name in kept)
    assert not (tmp_path / "drafts" / "drafting.json").exists()

    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "of 900 recordings" in ended.stdout
    assert {name: data for name, data in files_of(groups).items() if name in kept} == kept
    done = json.loads((tmp_path / "drafts" / "drafting.json").read_text())
    assert done["drafts"] + sum(done["rejects"].values()) == 900

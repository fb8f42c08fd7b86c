"""A recording that kills the process that reads it becomes a reject."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extract.deadly import DEADLY, written_deadly
from voxline.components.extract.clip_features import crashes_worker, note_clips, suspect_clips
from voxline.components.extract.manifest_scan import clip_of_line
from voxline.components.extract.plan import ShardTask
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.write_shard import write_shard
from voxline.data.manifest import Utterance, read_rejects
from voxline.rejects import Reason

HOW = ExtractSettings()
WRITE = (
    "import sys; from pathlib import Path; from voxline.components.extract.plan import ShardTask; "
    "from voxline.components.extract.settings import ExtractSettings; "
    "from voxline.components.extract.write_shard import write_shard; "
    "folder = Path(sys.argv[1]); task = ShardTask('0' * 32, 1.0, folder / 'converted' / 'manifest.jsonl', 1, 1, 4, 1); "
    "print(write_shard(task, ExtractSettings(runner='FlinkRunner'), str(folder / 'store'), folder / 'unfinished'))"
)


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes processes die when they open a file of that name."""
    written_deadly(tmp_path / "hook")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hook"), str(Path.cwd())]))


def write(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", WRITE, str(folder)], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.usefixtures("deadly")
def test_a_recording_that_crashes_two_workers_is_a_reject_at_the_third_attempt(
    corpus: Callable[..., list[Utterance]], tmp_path: Path
) -> None:
    utterances = corpus(4)
    Path(utterances[2].audio_filepath).rename(tmp_path / "converted" / "wavs" / DEADLY)
    manifest = tmp_path / "converted" / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace("wavs/2.wav", f"wavs/{DEADLY}"))
    assert [write(tmp_path).returncode for _ in range(2)] == [-signal.SIGKILL] * 2
    third = write(tmp_path)
    assert third.returncode == 0, third.stderr
    assert third.stdout.count("FailedClip(") == 1
    assert "reason='unreadable', detail='crashed 2 workers, and then a process of its own'" in third.stdout


@pytest.mark.usefixtures("deadly")
def test_a_recording_at_which_workers_were_killed_from_outside_is_read(
    corpus: Callable[..., list[Utterance]], tmp_path: Path
) -> None:
    (utterance,) = corpus(1)
    notes = tmp_path / "unfinished" / "attempts"
    notes.mkdir(parents=True)
    for name in ("one", "two"):
        (notes / f"{'0' * 32}.{name}").write_text(clip_of_line(utterance.as_line(), 1.0))
    assert list(suspect_clips(notes, "0" * 32).values()) == [2]
    assert not crashes_worker(utterance, 1.0, HOW)
    task = ShardTask("0" * 32, 1.0, tmp_path / "converted" / "manifest.jsonl", 1, 1, 1, 1)
    assert write_shard(task, HOW, str(tmp_path / "store"), tmp_path / "unfinished") == []


def test_an_exception_leaves_no_note(tmp_path: Path) -> None:
    def fail() -> None:
        with note_clips(tmp_path, "a") as begin:
            begin("clip")
            assert [note.read_text().strip() for note in tmp_path.iterdir()] == ["clip"]
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert not list(tmp_path.iterdir())


RUN = (
    "import sys; from pathlib import Path; from voxline.components.extract.settings import ExtractSettings; "
    "from voxline.components.extract.step import run; folder = Path(sys.argv[1]); "
    "how = ExtractSettings(max_reject_share=0.5, beam_from_megabytes=float(sys.argv[2])); "
    "print(run(folder / 'converted', folder / 'store', how).counts)"
)


@pytest.mark.usefixtures("deadly")
@pytest.mark.parametrize(
    ("beam_from", "which"),
    [pytest.param(0, 11, marks=pytest.mark.slow), (512, 11), (512, 0)],
    ids=["Beam", "no Beam", "probed"],
)
def test_a_recording_that_crashes_the_step_is_a_reject_when_the_step_is_started_again(
    corpus: Callable[..., list[Utterance]], tmp_path: Path, beam_from: int, which: int
) -> None:
    utterances = corpus(12)
    Path(utterances[which].audio_filepath).rename(tmp_path / "converted" / "wavs" / DEADLY)
    manifest = tmp_path / "converted" / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace(f"wavs/{which}.wav", f"wavs/{DEADLY}"))
    command = [sys.executable, "-c", RUN, str(tmp_path), str(beam_from)]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == -signal.SIGKILL
    assert second.returncode == 0, second.stderr
    (done,) = (tmp_path / "store" / "extract").glob("*/done.json")
    (reject,) = read_rejects(done.parent)
    assert (reject.id, reject.reason) == (utterances[which].id, Reason.UNREADABLE)
    assert reject.detail == "crashed the process that read it, and then a process of its own"
    assert json.loads(done.read_text())["counts"]["utterances"] == 11
    assert not (done.parent / "unfinished").exists()

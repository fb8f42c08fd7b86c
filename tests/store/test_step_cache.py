"""Finished work is reused while all of it exists; errors of the disk name the folder and the remedy."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.files import write_json
from voxline.store.finished import check_input, read_done
from voxline.store.hashing import hash_file, hash_unchanged_file
from voxline.store.step_cache import StepOutput, StepWouldRunError, cached_step, local_inputs, plan_steps


def make(store: Path) -> StepOutput:
    with cached_step(store, "count", Settings(), {"corpus": "ab"}) as work:
        if not work.reused:
            (work.folder / "numbers.txt").write_text("1 2 3", encoding="utf-8")
            work.outputs["numbers"] = "numbers.txt"
    return work


def test_work_is_made_again_where_one_of_its_outputs_is_gone(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert make(tmp_path).reused
    made.path("numbers").unlink()
    assert not make(tmp_path).reused
    assert make(tmp_path).reused


def test_work_resumes_where_a_kill_left_an_unfinished_folder(tmp_path: Path) -> None:
    folder = make(tmp_path).folder
    (folder / "done.json").unlink()
    (folder / ".model.0123456789ab.part" / "variables").mkdir(parents=True)
    (folder / ".model.0123456789ab.part" / "variables" / "half").touch()
    (folder / ".elsewhere.part").symlink_to(tmp_path)
    assert not make(tmp_path).reused
    assert sorted(path.name for path in folder.iterdir()) == ["done.json", "numbers.txt"]


def test_work_is_made_again_where_its_marker_is_damaged(tmp_path: Path) -> None:
    marker = make(tmp_path).folder / "done.json"
    marker.write_bytes(b"\0" * 40)
    with pytest.raises(WorkError, match="damaged"):
        read_done(marker.parent)
    assert not make(tmp_path).reused
    assert json.loads(marker.read_text(encoding="utf-8"))["step"] == "count"


def test_processor_time_counts_the_processes_of_a_step_and_no_waiting(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    with cached_step(tmp_path, "count", Settings(), {}) as work:
        time.sleep(0.5)
        subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    assert 0.3 <= work.cpu_seconds < work.seconds
    assert read_done(work.folder)["cpu_seconds"] == round(work.cpu_seconds, 3)


def test_a_store_that_is_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(WorkError, match=r"store.*set `store` to another folder"):
        make(tmp_path / "store")


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkError, match=r"No space left on device; make room"),
        cached_step(tmp_path, "count", Settings(), {}),
    ):
        Path("/dev/full").write_text("x", encoding="utf-8")


def flip(file: Path, at: int = 0) -> None:
    """Changes one bit, and nothing else: the size and the times stay."""
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[at] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def make_model(store: Path) -> StepOutput:
    with cached_step(store, "train", Settings(), {"dataset": "ab"}) as work:
        if not work.reused:
            for name in ("model/variables/weights", "logs/events", "checkpoints/last", "curves.json"):
                (work.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (work.folder / name).write_text(f"content of {name}", encoding="utf-8")
            work.outputs |= {"model": "model", "logs": "logs"}
            work.scratch_dirs, work.unverified = ("checkpoints",), ("logs",)
    return work


@local_inputs("model")
def read_model(model: Path | str) -> str:
    return (Path(model) / "model" / "variables" / "weights").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["model/variables/weights", "curves.json"])
def test_a_flipped_bit_is_named_and_the_work_is_made_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a file that is no output of its own, and in a folder."""
    made = make_model(tmp_path)
    flip(made.folder / name)
    with plan_steps(), pytest.raises(StepWouldRunError) as planned:
        make_model(tmp_path)
    assert f"{name} (its hash is " in planned.value.damage
    assert not make_model(tmp_path).reused
    assert f"train: making it again: {made.folder}: {name} (its hash is " in capsys.readouterr().out
    assert (made.folder / name).read_text(encoding="utf-8") == f"content of {name}"
    assert make_model(tmp_path).reused


def test_what_no_step_reads_is_not_compared(tmp_path: Path) -> None:
    made = make_model(tmp_path)
    flip(made.folder / "logs" / "events")
    (made.folder / "checkpoints" / "last").unlink()
    assert make_model(tmp_path).reused


@pytest.mark.parametrize("name", ["model/language_model/ngrams.npz", "model/variables/more"])
def test_a_file_that_was_added_to_a_folder_is_named_and_the_work_is_made_again(name: str, tmp_path: Path) -> None:
    """Evaluate and push would read it: the files of a model, such as a language model in it, are found by name."""
    folder = make_model(tmp_path).folder
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    with pytest.raises(WorkError, match=rf"{name} \(added\) has changed since train wrote it"):
        check_input(folder / "model")
    with pytest.raises(WorkError, match=r"\(added\)"):
        check_input(folder)

    assert not make_model(tmp_path).reused
    assert not (folder / name).exists()
    assert make_model(tmp_path).reused


def test_a_marker_of_other_work_is_not_believed(tmp_path: Path) -> None:
    """A folder that was copied under another name is whole, and is not the result of that work."""
    folder = make(tmp_path).folder
    with cached_step(tmp_path, "count", Settings(), {"corpus": "cd"}) as work:
        (work.folder / "numbers.txt").write_text("4 5 6", encoding="utf-8")
        work.outputs["numbers"] = "numbers.txt"
    shutil.rmtree(folder)
    shutil.copytree(work.folder, folder)
    made = make(tmp_path)
    assert not made.reused
    assert made.path("numbers").read_text(encoding="utf-8") == "1 2 3"


def test_an_input_may_be_named_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path).folder
    monkeypatch.chdir(tmp_path)
    relative = folder.relative_to(tmp_path)
    check_input(relative)
    flip(folder / "model" / "variables" / "weights")
    with pytest.raises(WorkError, match=r"weights \(its hash is"):
        check_input(relative / "model")


def test_a_step_refuses_an_input_that_has_changed_since(tmp_path: Path) -> None:
    made = make_model(tmp_path)
    assert read_model(made.folder) == "content of model/variables/weights"
    flip(made.folder / "model" / "variables" / "weights")
    with pytest.raises(
        WorkError, match=r"model/variables/weights \(its hash is .* since train wrote it, .*run the same"
    ):
        read_model(made.folder)
    (made.folder / "curves.json").unlink()
    with pytest.raises(WorkError, match=r"weights"):
        check_input(made.folder / "model")
    check_input(made.folder / "logs")


def test_a_flipped_bit_in_the_marker_is_noticed(tmp_path: Path) -> None:
    """Its metrics are printed, and sent to those who are notified."""
    with cached_step(tmp_path, "count", Settings(), {}) as work:
        work.metrics["wer"] = 0.91
    marker = work.folder / "done.json"
    flip(marker, marker.read_bytes().index(b"0.91") + 3)
    with pytest.raises(WorkError, match="its seal is another"):
        read_done(work.folder)
    with cached_step(tmp_path, "count", Settings(), {}) as work:
        assert not work.reused


def test_work_of_an_earlier_release_has_no_hashes_and_is_reused(tmp_path: Path) -> None:
    marker = make(tmp_path).folder / "done.json"
    values = json.loads(marker.read_text(encoding="utf-8"))
    write_json(marker, {name: value for name, value in values.items() if name not in ("hashes", "seal")})
    assert make(tmp_path).reused


def test_a_file_that_was_hashed_before_is_hashed_again_once_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "manifest.jsonl"
    file.write_bytes(b"first line\n")
    os.utime(file, (1, 1))
    time.sleep(0.1)
    first = hash_unchanged_file(file)
    assert first == hash_unchanged_file(file) == hash_file(file)

    # The same size and the same time of modification.
    file.write_bytes(b"other line\n")
    os.utime(file, (1, 1))
    assert hash_unchanged_file(file) == hash_file(file) != first

    for number in range(50):  # as fast as a file can be written
        file.write_bytes(b"line %d\n" % (number % 10))
        assert hash_unchanged_file(file) == hash_file(file)

"""Finished work is reused while all of it exists; errors of the disk name the folder and the remedy."""

import json
from pathlib import Path

import pytest

from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.finished import read_done
from voxline.store.step_cache import StepOutput, cached_step


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

"""A folder that a person names for an export appears whole, and takes no other one's place."""

from pathlib import Path

import pytest

from voxline.errors import SettingsError
from voxline.store.files import new_folder


def test_a_folder_appears_when_all_of_it_is_there(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with new_folder(target, "--output") as unfinished:
        (unfinished / "weights").write_text("0.5")
        assert not target.exists()
    assert [file.name for file in target.iterdir()] == ["weights"]
    assert [file.name for file in target.parent.iterdir()] == ["model"]


def test_an_empty_folder_is_filled_and_another_one_is_kept(tmp_path: Path) -> None:
    with new_folder(tmp_path / "mine", "--output") as unfinished:
        (unfinished / "a").write_text("a")
    for taken in (tmp_path / "mine", tmp_path / "mine" / "a"):
        with (
            pytest.raises(SettingsError, match=r"--output .*: it exists and is not empty"),
            new_folder(taken, "--output"),
        ):
            pass
    assert (tmp_path / "mine" / "a").read_text() == "a"


def test_what_comes_meanwhile_is_kept_and_what_fails_leaves_nothing(tmp_path: Path) -> None:

    def export_while_another_does() -> None:
        with new_folder(tmp_path / "mine", "--output") as unfinished:
            (unfinished / "a").write_text("ours")
            (tmp_path / "mine").mkdir()
            (tmp_path / "mine" / "a").write_text("theirs")

    with pytest.raises(SettingsError, match="is not empty"):
        export_while_another_does()
    assert (tmp_path / "mine" / "a").read_text() == "theirs"

    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "other", "--output") as unfinished:
        (unfinished / "a").write_text(str(1 / 0))
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_the_current_folder_is_not_taken_from_under_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for current in (Path(), tmp_path):
        with pytest.raises(SettingsError, match="the current folder; give a folder that"), new_folder(current, "-o"):
            pass
    assert list(tmp_path.iterdir()) == []

"""Purges where little is left of a speaker: caches, copies of lists, the footprint of a purge that was killed."""

from pathlib import Path

import pytest

from tests.operations.three_speakers import GONE
from tests.registry.published import exported, publish
from voxline.errors import SettingsError
from voxline.operations.purge.footprint import Footprint
from voxline.operations.purge.locations import PurgeScope
from voxline.operations.purge.purge import find_speaker, purge_speaker
from voxline.pipelines.cli.dataset_views import format_purge_lines
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.store.files import read_json, write_json


def test_line_caches_are_deleted_though_nothing_else_is_left_of_a_speaker(tmp_path: Path) -> None:
    cache = tmp_path / "store" / "lines" / "convert-0123"
    cache.parent.mkdir(parents=True)
    cache.write_text("a line of somebody whose output was deleted")
    assert not purge_speaker(GONE, PurgeScope(tmp_path / "store"))
    assert not cache.exists()


def test_a_copy_of_a_list_of_training_data_goes_though_no_dataset_is_left(tmp_path: Path) -> None:
    """The step language copies the model with its list; the speaker may be an ancestor's, whose dataset is deleted."""
    folders = [tmp_path / "store" / "language" / (digit * 32) / "model" for digit in "04"]
    for model, speaker in zip(folders, (GONE, "ada"), strict=True):
        line = {"id": "1", "split": "train", "speaker": speaker, "audio_hash": "", "offset": 0.0, "duration": 1.0}
        model.mkdir(parents=True)
        TrainingData("", "", 0, [{**line, "text_hash": "", "inherited": True}]).write(model / TRAINED_ON)
    assert purge_speaker(GONE, PurgeScope(tmp_path / "store")).counts()["outputs"] == 1
    assert [model.exists() for model in folders] == [False, True]


def test_a_purge_that_was_killed_when_nothing_but_its_footprint_was_left_can_be_completed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with pytest.raises(SettingsError, match="this is no store"):
        purge_speaker(GONE, PurgeScope(store))
    Footprint(GONE, record={"at": "2026-11-22T12:00:00Z"}).write(store)
    assert purge_speaker(GONE, PurgeScope(store))
    assert not list(store.glob(".purge-*"))


def test_a_voice_that_speaks_as_the_purged_is_named_and_stays(tmp_path: Path) -> None:
    """Its list of training data may be lost or purged; the row of its table is in the weights."""
    for name, speakers in (("family", ["ada", GONE]), ("other", ["ada"])):
        model = exported(tmp_path / name, "weights")
        document = read_json(model / "model.json") | {"speakers": speakers}
        write_json(model / "model.json", document)
        publish(Registry(tmp_path / "registry", name), model)
    (tmp_path / "store" / "wavs" / "01").mkdir(parents=True)

    scope = PurgeScope(tmp_path / "store", registry=tmp_path / "registry")
    findings = find_speaker(GONE, scope)

    assert [(use.name, use.speaks, use.trained) for use in findings.registry_uses] == [("family/1", True, False)]
    printed = "\n".join(format_purge_lines(GONE, scope, "", do=False))
    assert "which speaks as them and has their name in model.json and model_card.md" in printed

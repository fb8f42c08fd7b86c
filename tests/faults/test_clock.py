"""A clock that jumps loses nothing and gives the same results."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.faults.steps import STEPS, end_state, fresh, make_corpus
from voxline.operations.shard_gc import collect_garbage
from voxline.store.files import remove_unfinished

YEARS = 10 * 365 * 86_400


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-YEARS, YEARS])
@pytest.mark.parametrize("name", STEPS)
def test_outputs_of_another_clock_are_reused(name: str, jump: int, tmp_path: Path) -> None:
    step, corpus, usual, jumped = STEPS[name], tmp_path / "corpus", tmp_path / "usual", tmp_path / "jumped"
    make_corpus(corpus)
    usual.mkdir()
    step.prepare(corpus, usual)
    fresh(usual, jumped)
    for folder in (usual, jumped):
        step.first(corpus, folder)
        if folder == jumped:
            for file in folder.rglob("*"):
                os.utime(file, (time.time() - jump,) * 2)
        assert step.first(corpus, folder).reused
        step.second(corpus, folder)
    assert end_state(jumped) == end_state(usual)


@pytest.mark.parametrize("jump", [-YEARS, YEARS])
def test_garbage_collection_by_a_wrong_clock_leaves_each_version_readable(jump: int, tmp_path: Path) -> None:
    step, corpus, folder = STEPS["publish"], tmp_path / "corpus", tmp_path / "folder"
    make_corpus(corpus)
    folder.mkdir()
    step.prepare(corpus, folder)
    step.first(corpus, folder)
    first, *versions = sorted((folder / "datasets" / "corpus").glob("[0-9]*"))
    shutil.rmtree(first)  # nothing references its shards any more
    before = [step.content(version) for version in versions]
    for file in folder.rglob("*"):
        os.utime(file, (time.time() - jump,) * 2)
    collected = collect_garbage(folder / "store", [folder / "datasets"], grace_days=1, dry_run=False)
    assert (collected.shards > 0) == (jump > 0), "files from the future are kept"
    assert [step.content(version) for version in versions] == before
    step.second(corpus, folder)


def test_an_old_unfinished_file_is_removed_and_one_from_the_future_stays(tmp_path: Path) -> None:
    for name, age in (("old", 2 * 86_400), ("new", 60), ("future", -YEARS)):
        (tmp_path / f".{name}.part").touch()
        os.utime(tmp_path / f".{name}.part", (time.time() - age,) * 2)
    remove_unfinished(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".future.part", ".new.part"]

"""Replay: what the epochs after a warm start are made of."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.tones import make_utterances, write_dataset
from voxline.data.dataset import Dataset
from voxline.registry.parents import Ancestor, Parent
from voxline.registry.training_data import TrainingData, training_data_of
from voxline.training.batches import Batches
from voxline.training.export import model_info
from voxline.training.replay import Replay, plan_replay
from voxline.training.settings import TrainSettings


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """24 sayings to train on and 4 for dev, in a store as extract leaves them."""
    store = tmp_path_factory.mktemp("store")
    made = write_dataset(store / "made", make_utterances(24, 4))
    shutil.move(store / "made", store / "extract" / made.key)
    done = {"counts": {}, "metrics": {}, "outputs": {}}
    (store / "extract" / made.key / "done.json").write_text(json.dumps(done))
    return Dataset.read(store / "extract" / made.key)


def parent_on(dataset: Dataset, training_data: TrainingData | None = None) -> Parent:
    ancestor = Ancestor("asr", 1, "0f", dataset.key)
    about = model_info("ctc", TrainSettings(name="asr"), dataset, {}, [])
    return Parent(ancestor, about, training_data or training_data_of(dataset), "asr@1", Path())


def drawn(replay: Replay, folder: Path, epochs: int) -> tuple[list[Counter[str]], Batches]:
    """How often each epoch has each utterance."""
    merged, weights = replay.write(folder, {})
    batches = Batches(merged, "train", batch_size=4, shuffled=True, corpus_weights=weights)
    return [Counter(name for batch in batches.epoch(one) for name in batch.ids) for one in range(epochs)], batches


def test_an_epoch_has_all_that_is_new_and_a_share_of_what_was_heard(before: Dataset, tmp_path: Path) -> None:
    """Today's dataset grew by eight; three epochs replay each old utterance once."""
    spoken = make_utterances(24, 4)
    new = [type(one)(f"new-{one.id}", one.text, one.split, one.waveform) for one in make_utterances(8, seed=7)]
    today = write_dataset(tmp_path / "today", [*spoken, *new])
    replay = plan_replay(today, parent_on(before), 0.5, tmp_path)
    assert replay is not None
    assert not replay.earlier
    epochs, _ = drawn(replay, tmp_path / "merged", 3)
    for epoch in epochs:
        assert sum(epoch.values()) == 16
        assert sum(count for name, count in epoch.items() if name.startswith("new")) == 8
    old = sum(epochs, Counter())
    assert {count for name, count in old.items() if name.startswith("train")} == {1}
    assert len([name for name in old if name.startswith("train")]) == 24

    none = plan_replay(today, parent_on(before), 0.0, tmp_path)
    assert none is not None
    assert set(drawn(none, tmp_path / "none", 1)[0][0]) == {one.id for one in new}
    assert plan_replay(today, parent_on(before), 1.0, tmp_path) is None


def test_a_part_that_today_leaves_out_is_replayed_from_the_parents_dataset(before: Dataset, tmp_path: Path) -> None:
    """With the very features of the shards there; and its dev split chooses among the weights too."""
    new = [type(one)(f"new-{one.id}", one.text, one.split, one.waveform) for one in make_utterances(12, 2, seed=7)]
    today = write_dataset(tmp_path / "today", new)
    store = before.folder.parent.parent
    replay = plan_replay(today, parent_on(before), 0.25, store)
    assert replay is not None
    (epoch, *_), batches = drawn(replay, tmp_path / "merged", 1)
    assert Counter(name.startswith("new") for name in epoch.elements()) == {True: 12, False: 4}

    def features(source: Batches) -> dict[str, Any]:
        batch = source.read(np.arange(source.utterances))
        return {name: batch.features[row, : batch.frames[row]] for row, name in enumerate(batch.ids)}

    merged, originals = features(batches), features(Batches(before, "train", batch_size=4))
    originals |= features(Batches(today, "train", batch_size=4))
    assert merged.keys() == originals.keys()
    assert all(np.array_equal(merged[name], originals[name]) for name in merged)
    assert Batches(replay.write(tmp_path / "dev", {})[0], "dev", batch_size=4).utterances == 2 + 4


def test_what_was_purged_is_not_replayed_and_changes_the_key(
    before: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = [type(one)(f"new-{one.id}", one.text, one.split, one.waveform) for one in make_utterances(4, seed=7)]
    today = write_dataset(tmp_path / "today", new)
    store = before.folder.parent.parent
    listed = training_data_of(before)
    whole = plan_replay(today, parent_on(before), 0.5, store)
    kept = TrainingData(listed.dataset, listed.rows, 0, listed.utterances[:-3])
    less = plan_replay(today, parent_on(before, kept), 0.5, store)
    assert whole is not None
    assert less is not None
    assert whole.inputs() != less.inputs()
    assert len(whole.earlier[0][1]) - len(less.earlier[0][1]) == 3
    capsys.readouterr()
    assert plan_replay(today, parent_on(before), 0.5, tmp_path) is None  # a store without that dataset
    assert "28 of the utterances that asr@1 was trained on are neither in today's dataset" in capsys.readouterr().out


def test_what_today_says_otherwise_is_not_replayed_as_it_was(before: Dataset, tmp_path: Path) -> None:
    """A corrected transcript, and a recording that tests now: neither returns to training through the parent."""
    one, other, *_ = spoken = make_utterances(24, 4)
    assert (one.id, other.id) == ("train-000", "train-001")
    corrected = type(one)(one.id, "dd", "train", one.waveform)
    tests_now = type(one)(other.id, "cc", "test", other.waveform)
    new = [type(each)(f"new-{each.id}", each.text, each.split, each.waveform) for each in make_utterances(4, seed=7)]
    today = write_dataset(tmp_path / "today", [corrected, tests_now, *new])
    replay = plan_replay(today, parent_on(before), 0.5, before.folder.parent.parent)
    assert replay is not None
    rows = [(row.id, row.text, row.split) for row in replay.write(tmp_path / "merged", {})[0].rows()]
    named = [row for row in rows if row[0] in (one.id, other.id)]
    assert named == [(one.id, "dd", "train"), (other.id, "cc", "test")]
    assert len(rows) == len(new) + len(spoken)


def test_with_nothing_new_an_epoch_is_the_whole_split(before: Dataset, tmp_path: Path) -> None:
    assert plan_replay(before, parent_on(before), 0.5, tmp_path) is None

"""What a model was trained on: written, read back, kept through a rollback."""

from pathlib import Path

import numpy as np
import pytest

from tests.registry.published import exported, publish
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import WorkError
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data, training_data_of
from voxline.text.alphabet import Alphabet


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    spoken = [
        NewExample(f"u{n}", "a word", split, np.ones((5, 8), np.float32), "anna" if n % 2 else "bo")
        for n, split in enumerate(["train", "train", "train", "dev", "test"])
    ]
    return write_dataset(tmp_path / "dataset", spoken, FeatureSettings(mels=8), Alphabet.from_name("english"))


def test_it_lists_what_training_sees_and_is_the_same_bytes_for_the_same_rows(dataset: Dataset, tmp_path: Path) -> None:
    training_data_of(dataset).write(tmp_path / "a")
    training_data_of(dataset).write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    read = read_training_data((tmp_path / "a").read_bytes(), "a")
    assert read == training_data_of(dataset)
    assert [line["id"] for line in read.utterances] == ["u0", "u1", "u2", "u3"]
    assert (read.dataset, read.rows) == (dataset.key, dataset.rows_hash)


def test_who_is_taken_out_is_counted(dataset: Dataset) -> None:
    left = training_data_of(dataset).without("anna")
    assert ([line["speaker"] for line in left.utterances], left.purged) == (["bo", "bo"], 2)
    assert left.without("anna") == left


def test_one_that_was_cut_short_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    training_data_of(dataset).write(tmp_path / "a")
    with pytest.raises(WorkError, match="a: damaged"):
        read_training_data((tmp_path / "a").read_bytes()[:-9], "a")


def test_a_version_that_is_rolled_back_to_takes_its_list_along(dataset: Dataset, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry", "asr")
    first = publish(registry, exported(tmp_path / "one", "1"))
    training_data_of(dataset).write(registry.path(first) / TRAINED_ON)
    publish(registry, exported(tmp_path / "two", "2"))
    change = registry.rollback()
    assert registry.read_file(change.version, TRAINED_ON) == registry.read_file(first, TRAINED_ON)

"""Fixtures for the tests of training."""

import pytest

from tests.training.tones import make_utterances, write_dataset
from voxline.data.dataset import Dataset


@pytest.fixture(scope="session")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """160 sayings to train on and 24 for dev."""
    return write_dataset(tmp_path_factory.mktemp("tones") / "dataset", make_utterances(160, 24))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """32 sayings to train on and 8 for dev."""
    return write_dataset(tmp_path_factory.mktemp("few"), make_utterances(32, 8))

"""A dataset that is read utterance by utterance."""

from pathlib import Path

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.reader import DatasetReader
from voxline.data.testing import NewExample, write_dataset
from voxline.text.alphabet import Alphabet


def _open_shards(folder: Path) -> int:
    return sum(str(link.resolve()).startswith(str(folder)) for link in Path("/proc/self/fd").iterdir())


def test_few_shards_are_open_at_once(tmp_path: Path) -> None:
    features = FeatureSettings()
    given = [
        NewExample(f"id{number:02}", "ab", "train", np.full((2, features.bins), number, np.float32))
        for number in range(10)
    ]
    write_dataset(tmp_path / "dataset", given, features, Alphabet.from_name("english"), shards=5)
    examples = DatasetReader(tmp_path / "dataset", max_open_shards=3).examples("train")
    read = []
    for example in examples:
        assert _open_shards(tmp_path) <= 3
        read.append((example.id, example.features[0, 0]))
    assert read == [(f"id{number:02}", number) for number in range(10)]
    assert _open_shards(tmp_path) == 0

"""A corpus, and a cluster for each test that needs one. Only `make test-flink` collects these tests."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.extract.conftest import write_wav
from tests.flink.jars import NoFlinkError, jars
from voxline.data.manifest import Utterance, write_manifest
from voxline.store.hashing import hash_file

if not os.environ.get("VOXLINE_TEST_FLINK"):
    collect_ignore_glob = ["test_*"]

UTTERANCES = int(os.environ.get("VOXLINE_FLINK_UTTERANCES", "5000"))


@pytest.fixture(scope="session", autouse=True)
def _flink() -> None:
    try:
        jars()
    except NoFlinkError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest of many recordings of about half a second."""
    folder = tmp_path_factory.mktemp("many")
    make_corpus(folder, UTTERANCES)
    return folder


def make_corpus(folder: Path, count: int, *, longest: float = 0.7) -> list[Utterance]:
    """Noise; the last recording has the given length."""
    random = np.random.default_rng(5)
    utterances = []
    for number in range(count):
        seconds = longest if number == count - 1 else random.uniform(0.3, 0.7)
        samples = int(16_000 * seconds)
        path = write_wav(folder / "wavs" / f"{number}.wav", random.standard_normal(samples) / 10)
        split = ("train", "train", "dev", "train", "test")[number % 5]
        utterances.append(
            Utterance(f"u{number:06}", str(path), samples / 16_000, "one two", f"s{number % 9}", split, hash_file(path))
        )
    write_manifest(folder / "manifest.jsonl", utterances)
    return utterances

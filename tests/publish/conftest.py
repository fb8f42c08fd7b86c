"""Extracted datasets to publish."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.extract.conftest import write_wav
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data.manifest import Utterance, write_manifest
from voxline.store.hashing import hash_file

HOW = ExtractSettings.of({"features": {"mels": 8, "hop_seconds": 0.02}, "shard_megabytes": 0.002})
"""About five recordings a shard."""

Extract = Callable[..., Path]


@pytest.fixture
def extracted(tmp_path: Path) -> Extract:
    """Extracts some of twenty recordings into the store, and returns the dataset's folder."""
    random = np.random.default_rng(0)
    utterances = []
    for number in range(20):
        samples = int(random.integers(2_000, 6_000))
        path = write_wav(tmp_path / "wavs" / f"{number}.wav", random.standard_normal(samples) / 10)
        split = "dev" if number % 5 == 4 else "train"
        speaker = f"s{number % 2}"
        utterances.append(
            Utterance(f"u{number:02}", str(path), samples / 16_000, "one", speaker, split, hash_file(path))
        )

    def extract(which: range | list[int] = range(20), store: str = "store") -> Path:
        write_manifest(tmp_path / "manifest.jsonl", [utterances[number] for number in which])
        return run(tmp_path, tmp_path / store, HOW).folder

    return extract

"""Tiny corpora of generated audio, and ingest run on them."""

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.data.manifest import Utterance, read_manifest, read_rejects

RATE = 8_000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with spaces and non-ASCII in its name."""
    folder = tmp_path / "mon córpus 語"
    folder.mkdir()
    return folder


@pytest.fixture
def record(corpus: Path) -> Callable[..., Path]:
    """Writes a recording of noise into the corpus; each has other samples."""
    noise = np.random.default_rng(1)

    def write(path: str, seconds: float = 0.5) -> Path:
        file = corpus / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "wb") as opened:
            soundfile.write(
                opened, noise.uniform(-0.3, 0.3, round(seconds * RATE)), RATE, format=file.suffix[1:].upper()
            )
        return file

    return write


class Ingested:
    """What came out: utterances by id, rejects as {id: reason}, and the work."""

    def __init__(self, store: Path, **settings: Any) -> None:
        self.work = run(store, CorpusSettings.of({"max_reject_share": 0.99, **settings}, "corpus"))
        self.utterances: dict[str, Utterance] = {one.id: one for one in read_manifest(self.work.path("manifest"))}
        self.all_rejects = read_rejects(self.work.path("rejects"))
        self.rejects = {reject.id: str(reject.reason) for reject in self.all_rejects}
        self.details = {reject.id: reject.detail for reject in self.all_rejects}
        self.splits = collections.Counter(one.split for one in self.utterances.values())

    @property
    def ids(self) -> list[str]:
        return list(self.utterances)


@pytest.fixture
def ingest(corpus: Path, tmp_path: Path) -> Callable[..., Ingested]:
    """Runs ingest on the corpus; whatever its own splits are called, all of it is train."""

    def ingested(format: str, **settings: Any) -> Ingested:
        settings = {"uri": str(corpus), "splits": {"train": ["*"], "dev": [], "test": []}, **settings}
        settings = {"split": {"dev": 0}, **settings}
        return Ingested(tmp_path / "store", format=format, **settings)

    return ingested

"""A corpus, and what evaluates models on it and pushes them."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tone_asr_model import WORDS, write_corpus
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.families.asr.settings import AsrPushSettings as PushSettings
from voxline.registry.looks import LOOKS_FILE

Judge = Callable[..., dict[str, Any]]
QUICK = PushSettings(smoke_test=False, min_slice_utterances=5)
"""Without the fresh process, which loads TensorFlow for ten seconds; two tests have it."""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 sentences; zoë says ten of them, she alone says "seven", and never "four" or "five"."""
    choose = random.Random(2)
    sentences = []
    for number in range(100):
        if number % 10 == 0:
            sentences.append(("zoë", " ".join([*choose.choices(WORDS[:4], k=7), "seven"])))
        else:
            sentences.append(("ada", " ".join(choose.choices(WORDS[:6], k=8))))
    return write_corpus(tmp_path_factory.mktemp("corpus"), sentences)


@pytest.fixture
def judge(corpus: Path, tmp_path: Path) -> Judge:
    """Evaluates and pushes a model to `tmp_path/registry`, and gives the verdict."""

    def judged(model: Path, settings: PushSettings = QUICK, corpus: Path = corpus) -> dict[str, Any]:
        work = push(model, evaluated(model, corpus, tmp_path), tmp_path / "registry", tmp_path / "store", settings)
        html = work.path("report").read_text()
        assert "Not judged yet" not in html
        verdict: dict[str, Any] = json.loads(work.path("verdict").read_text())
        assert all(reason.split("'")[0].lower() in html.lower() for reason in verdict["reasons"])
        return verdict

    return judged


def evaluated(model: Path, corpus: Path, folder: Path) -> Path:
    settings = AsrEvaluateSettings(bootstrap_samples=500, worst_utterances=1, aligned_utterances=0)
    return evaluate(model, corpus, folder / "registry", folder / "store", settings).folder


def state(folder: Path) -> dict[str, bytes]:
    """Every file but the count of comparisons; of the journal only the events, since each attempt leaves a fence."""

    def content(path: Path) -> bytes:
        lines = path.read_bytes().splitlines(keepends=True)
        return b"".join(line for line in lines if path.name != "journal.jsonl" or b'"fence"' not in line)

    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOOKS_FILE)
    return {str(path.relative_to(folder)): content(path) for path in files}

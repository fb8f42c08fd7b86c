"""A good corpus that tests spoil, and what validate says about it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from voxline.components.convert.recording import measure_level
from voxline.components.validate.checks import run_checks
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.components.validate.tfdv.results import TfdvResult
from voxline.data.manifest import Utterance, write_manifest, write_rejects
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject
from voxline.store.hashing import hash_bytes

RATE = 16_000
WORDS = ["red", "green", "blue", "lamp", "door", "fan", "on", "off", "up", "down", "left", "right"]
SMALL = {
    "small_splits": {"train": 30, "dev": 8, "test": 8},
    "gate_margin": {"margin": 0.9},
    "frames_per_second": 33.3,
    "tfdv": "off",
}

Samples = npt.NDArray[np.float64]


@dataclasses.dataclass
class Take:
    """An utterance in memory."""

    id: str
    split: str
    speaker: str
    text: str
    samples: Samples
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    measured: dict[str, Any] = dataclasses.field(default_factory=dict)


def speech(seed: int, seconds: float = 1.0) -> Samples:
    """Noise in bursts like syllables, with peaks far above the mean level."""
    samples = np.arange(int(seconds * RATE))
    noise = np.random.default_rng(seed).normal(size=len(samples))
    bursts = 0.05 + np.abs(np.sin(2 * np.pi * 2.5 * samples / RATE)) ** 3
    return 0.1 * noise * bursts


def fit() -> list[Take]:
    """Sixty utterances; train, dev and test have their own speakers and sentences, of the same words."""
    sentences = [
        " ".join(WORDS[(number + step) % 12] for step in (0, 1 + number // 12, 6 + number // 12))
        for number in range(60)
    ]
    sizes = {"train": (40, 8), "dev": (10, 2), "test": (10, 2)}
    takes = []
    for split, (size, voices) in sizes.items():
        for place in range(size):
            number = len(takes)
            takes.append(
                Take(f"{split}-{place}", split, f"{split}-voice-{place % voices}", sentences[number], speech(number))
            )
    return takes


def written(folder: Path, takes: list[Take], rejects: int = 0) -> Path:
    """Writes the takes as convert does: WAVs, a manifest with measurements, rejects."""
    folder.mkdir(parents=True, exist_ok=True)
    utterances = []
    for number, take in enumerate(takes):
        pcm = (np.clip(take.samples, -1, 1) * 32767).round().astype(np.int16)
        path = folder / f"{number}.wav"
        soundfile.write(path, pcm, RATE)
        utterances.append(
            Utterance(
                take.id,
                str(path),
                len(pcm) / RATE,
                take.text,
                take.speaker,
                take.split,
                audio_hash=hash_bytes(pcm.tobytes()),
                measured=measure_level(pcm, RATE, -60.0) | take.measured,
                extra=take.extra,
            )
        )
    write_manifest(folder / "manifest.jsonl", utterances)
    write_rejects(folder / "rejects.jsonl", [Reject(f"lost-{n}", Reason.TRUNCATED, "cut") for n in range(rejects)])
    return folder


def judged(folder: Path, takes: list[Take], rejects: int = 0, **changes: Any) -> dict[str, dict[str, Any]]:
    """The results of the checks by name, as in validation.json."""
    chosen = ValidateSettings.of({**SMALL, **changes})
    corpus = CheckedCorpus.read(written(folder, takes, rejects))
    results = run_checks(corpus, chosen, TfdvResult(skipped="these tests are about our own checks"))
    return {result.check.name: result.to_json(corpus, chosen.max_listed) for result in results}


def failed(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, found in checks.items() if found["outcome"] == "failed"}


def report_of(folder: Path, takes: list[Take]) -> str:
    """The report on takes that fail."""
    manifest = written(folder / "corpus", takes)
    with pytest.raises(WorkError):
        run(manifest, folder / "store", ValidateSettings.of(SMALL))
    (page,) = (folder / "store").glob("validate/*/report.html")
    return page.read_text()


def of(takes: list[Take], split: str) -> list[Take]:
    return [take for take in takes if take.split == split]

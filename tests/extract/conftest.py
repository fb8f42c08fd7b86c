"""Converted recordings to extract from: noise shaped like speech, by several speakers."""

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voxline.data.manifest import Utterance, write_manifest
from voxline.store.hashing import hash_file

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "it's"]


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., list[Utterance]]:
    """Makes a folder `wavs` and a manifest next to it; returns its utterances."""

    def make(count: int, *, seconds: float = 0.5, folder: str = "converted", seed: int = 0) -> list[Utterance]:
        place = tmp_path / folder
        random = np.random.default_rng(seed)
        utterances = []
        for number in range(count):
            samples = int(16_000 * seconds * random.uniform(0.6, 1.4))
            level = np.abs(np.sin(np.arange(samples) / 2_000)) * random.uniform(0.05, 0.5)
            path = write_wav(place / "wavs" / f"{number}.wav", level * random.standard_normal(samples) / 3)
            utterances.append(
                Utterance(
                    id=f"speaker{number % 4}-{number:04}",
                    audio_filepath=str(path),
                    duration=samples / 16_000,
                    text=" ".join(random.choice(WORDS, 3)),
                    speaker=f"speaker{number % 4}",
                    split=("train", "train", "dev", "train", "test")[number % 5],
                    audio_hash=hash_file(path),
                )
            )
        write_manifest(place / "manifest.jsonl", utterances)
        return utterances

    return make


def write_wav(path: Path, samples: np.typing.NDArray[np.float64], rate: int = 16_000, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32_767).astype("<i2").repeat(channels).tobytes())
    return path

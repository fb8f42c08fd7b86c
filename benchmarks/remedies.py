"""Compares remedies for attention that never aligns: the same voice and strings of digits, with and without each.

Not part of `make bench`: it trains a small Tacotron 2 a dozen times, some minutes each on one core.

  python -m benchmarks.remedies [NAME …]
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.demo_corpus.english import draw_digits
from voxline.components.demo_corpus.espeak import EspeakVoice, speak
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.task import TtsTask
from voxline.text.alphabet import Alphabet
from voxline.training.trainer import Trainer

VOICE = EspeakVoice("en-us", "m3", rate=160)
FEATURES = FeatureSettings(window_seconds=0.05, hop_seconds=0.0125, fft_size=1024, log_floor=1e-5, spectrum="magnitude")
TRAIN, LONGER = 600, 16
LOUD = 0.01
"""Amplitude below which the ends of a recording are silence."""
ALIGNED = 0.9
"""Diagonality in synthesis from which attention counts as aligned."""
STEPS, LOOK = 400, 50

BASE: dict[str, Any] = {
    "epochs": -(-STEPS * 16 // TRAIN),
    "batch_size": 16,
    "learning_rate": 3e-3,
    "warm_up_steps": 30,
    "evaluate_steps": LOOK,
    "validation_utterances": LONGER,
    "strategy": "one",
}
MODEL: dict[str, Any] = {
    "kind": "tacotron2",
    "reduction": 5,
    "embedding": 128,
    "encoder_channels": 128,
    "encoder_dropout": 0.0,
    "encoder_lstm": 64,
    "prenet": [128, 128],
    "decoder_units": 256,
    "decoder_layers": 1,
    "decoder_dropout": 0.0,
    "postnet_layers": 0,
}
"""With a bidirectional LSTM in the encoder, as in the paper, which is where attention fails to align."""

GUIDED = {"guided_attention": {"weight": 0.3}}
REMEDIES: dict[str, dict[str, Any]] = {
    "none": {},
    "guided attention": GUIDED,
    "no BiLSTM": {"model": {"encoder_lstm": 0}},
    "dropped frames": {"model": {"dropped_frames": 0.2}},
    "pre-net of 32": {"model": {"prenet": [32, 32]}},
    "scheduled teacher forcing": {"teacher_forcing": {"to_share": 0.5, "from_step": 100, "to_step": 300}},
    "reduction 10, then 5": {
        "model": {"reduction": 10},
        "reduction_schedule": [{"step": 0, "reduction": 10}, {"step": 200, "reduction": 5}],
    },
    "mutual information": {"mel_ctc": {"weight": 1.0}},
    "guided attention, no BiLSTM": {**GUIDED, "model": {"encoder_lstm": 0}},
}


def dataset(folder: Path) -> Dataset:
    """600 strings of 3 to 6 digits in words to learn from, and as dev 16 of 8 to 10, longer than any of them."""
    random = np.random.default_rng(1)
    alphabet, spoken = Alphabet(" abcdefghijklmnopqrstuvwxyz."), []
    sentences = {"train": draw_digits(random, TRAIN), "dev": draw_digits(random, LONGER, long=True)}
    for split, said in sentences.items():
        texts = [f"{sentence.normalized}." for sentence in said]
        made = [_features(samples, rate) for samples, rate in _spoken(texts)]
        for number, (text, values) in enumerate(zip(texts, made, strict=True)):
            spoken.append(NewExample(f"{split}-{number}", text, split, values, "voice"))
    return write_dataset(folder, spoken, FEATURES, alphabet)


def _spoken(texts: list[str]) -> list[tuple[np.ndarray, int]]:
    recordings, rate = speak(VOICE, texts)
    return [(samples, rate) for samples in recordings]


def _features(samples: np.ndarray, rate: int) -> np.ndarray:
    import soxr

    samples = soxr.resample(samples, rate, FEATURES.sample_rate).astype(np.float32)
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    return compute_features(samples[max(loud[0] - 400, 0) : loud[-1] + 800], FEATURES)


def row(name: str, changes: dict[str, Any], data: Dataset, folder: Path) -> list[str]:
    """Trains with one remedy; returns when autoregressive attention aligned, and the final metrics."""
    changes = {**changes}
    model = {**MODEL, **changes.pop("model", {})}
    settings = TtsTrainSettings.of({**BASE, **changes, "model": model})
    start = time.perf_counter()
    trained = Trainer(TtsTask(settings, data), folder).fit()
    seconds = time.perf_counter() - start
    results = trained.state.validations
    aligned = next((result for result in results if result.metrics["attention_diagonality"] >= ALIGNED), None)
    last = results[-1].metrics
    return [
        name,
        f"{aligned.step}" if aligned else "never",
        f"{last['attention_diagonality']:.2f}",
        f"{last['attention_coverage']:.2f}",
        f"{last['hit_limit']:.0%}",
        f"{last['mel_dtw']:.2f}",
        f"{last['loss']:.3f}",
        f"{seconds / trained.state.step * 1000:.0f} ms",
    ]


def main() -> None:
    names = sys.argv[1:] or list(REMEDIES)
    if unknown := [name for name in names if name not in REMEDIES]:
        sys.exit(f"benchmarks.remedies: unknown {', '.join(unknown)}; there are: {', '.join(REMEDIES)}")
    columns = ["remedy", "aligned at step", "diagonality", "coverage", "hit limit", "mel after warping"]
    columns += ["mel, teacher-forced", "step"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        data = dataset(Path(folder) / "data")
        for number, name in enumerate(names):
            cells = row(name, REMEDIES[name], data, Path(folder) / str(number))
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

"""Peak memory of training steps: batches by seconds over mixed lengths, parts of batches, activations computed again.

Each case is a process of its own, which trains a Conformer or Deep Speech 2 on random features and tells its peak
resident memory. Attention is a small part of this Conformer; where it is a large one, long utterances take more.

  python -m benchmarks.step_memory
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.table import Row, print_table
from voxline.training.batches import Batch

BINS = 40
SECONDS = 60.0
"""Of audio in a step."""
UTTERANCES = 240
CONFORMER = {"kind": "conformer", "layers": 6, "units": 144, "heads": 4, "subsampling": 4}
RECURRENT = {"kind": "deepspeech2", "layers": 3, "units": 400}
CASES: dict[str, dict[str, Any]] = {
    "mixed": {"seconds": (1.0, 15.0), "batch_seconds": SECONDS},
    "short": {"seconds": (1.25, 1.25), "batch_seconds": SECONDS},
    "long": {"seconds": (15.0, 15.0), "batch_seconds": SECONDS},
    "by utterances": {"seconds": (1.0, 15.0), "batch_size": 11},
    "whole": {"seconds": (8.0, 8.0), "batch_size": 16},
    "parts": {"seconds": (8.0, 8.0), "batch_size": 4, "accumulate": 4},
    "recurrent, mixed": {"seconds": (1.0, 15.0), "batch_seconds": SECONDS, "network": RECURRENT},
    "recurrent, short": {"seconds": (1.25, 1.25), "batch_seconds": SECONDS, "network": RECURRENT},
    "recurrent, long": {"seconds": (15.0, 15.0), "batch_seconds": SECONDS, "network": RECURRENT},
    "recomputed": {"seconds": (8.0, 8.0), "batch_size": 16, "recompute": True},
}


def rows() -> list[Row]:
    peaks = {name: _measure(name) for name in CASES}
    return [
        _mixed_lengths("a Conformer", *(peaks[case]["peak"] for case in ("mixed", "short", "long"))),
        _mixed_lengths("Deep Speech 2", *(peaks[f"recurrent, {case}"]["peak"] for case in ("mixed", "short", "long"))),
        Row.of(
            "a Conformer in batches of 11 utterances, about as many seconds on average",
            f"{peaks['by utterances']['peak']:,.0f} MB",
            f"{peaks['mixed']['peak']:,.0f} MB",
            peaks["by utterances"]["peak"] / peaks["mixed"]["peak"],
            ">=",
            1.1,
        ),
        Row.of(
            "activations and gradients of 4 x 4 utterances of 8 s, x those of 1 x 16",
            f"{peaks['parts']['step']:,.0f} MB",
            f"{peaks['whole']['step']:,.0f} MB",
            peaks["parts"]["step"] / peaks["whole"]["step"],
            "<=",
            0.5,
        ),
        Row.of(
            "the same of 1 x 16 with the activations of blocks computed again",
            f"{peaks['recomputed']['step']:,.0f} MB",
            f"{peaks['whole']['step']:,.0f} MB",
            peaks["recomputed"]["step"] / peaks["whole"]["step"],
            "<=",
            0.7,
        ),
    ]


def _mixed_lengths(network: str, mixed: float, *of_one_length: float) -> Row:
    name = f"{network}: peak of steps of {SECONDS:g} s, utterances of 1 to 15 s, x the peak at one length"
    highest = max(of_one_length)
    return Row.of(name, f"{mixed:,.0f} MB", f"{highest:,.0f} MB", mixed / highest, "<=", 1.1)


def _measure(case: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.step_memory", case]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    measured: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return measured


def _train(case: str) -> dict[str, float]:
    """Trains for one epoch.

    Returns:
      peak resident memory of the process in MB; and what a step took beyond the memory before it, its graph there.
    """
    import tensorflow as tf

    from voxline.audio.feature_settings import FeatureSettings
    from voxline.data.testing import NewExample, write_dataset
    from voxline.families.asr.settings import AsrTrainSettings
    from voxline.families.asr.task import AsrTask
    from voxline.text.alphabet import Alphabet

    chosen = dict(CASES[case])
    shortest, longest = chosen.pop("seconds")
    random = np.random.default_rng(1)
    lengths = 100 * np.exp(random.uniform(np.log(shortest), np.log(longest), UTTERANCES))
    examples = [
        NewExample(f"u{number:03}", "a few words", "train", _noise(random, int(length)), "nobody")
        for number, length in enumerate(lengths)
    ]
    network = chosen.pop("network", CONFORMER)
    settings = AsrTrainSettings.of({"model": network, "strategy": "one", **chosen})
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_dataset(
            Path(folder), examples, FeatureSettings(mels=BINS), Alphabet("a bcdefghijklmnopqrstuvwxyz")
        )
        task = AsrTask(settings, dataset)
        batches = list(task.train.epoch(0))
        if chosen.get("batch_size") == 16 or "accumulate" in chosen:
            batches = batches[:2]

        # The graph is built on a fraction of a second, so that the peak from here on is that of its activations.
        task.module.train_step(_beginning(batches[0]), 1e-3, 0)
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        for step, batch in enumerate(batches):
            task.module.train_step(batch, 1e-3, step)
    return {"peak": _status("VmHWM"), "step": _status("VmHWM") - before}


def _beginning(batch: Batch) -> Batch:
    rows = len(batch.ids)
    return dataclasses.replace(
        batch,
        features=batch.features[:, :64],
        frames=np.full(rows, 64, np.int32),
        labels=batch.labels[:, :2],
        counts=np.full(rows, 2, np.int32),
    )


def _noise(random: np.random.Generator, frames: int) -> np.ndarray:
    return random.standard_normal((frames, BINS)).astype(np.float32)


def _status(name: str) -> float:
    """A field of this process's status, in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(_train(sys.argv[1])))
    else:
        print_table(rows())

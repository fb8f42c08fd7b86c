"""Processor time and memory of opening a training split and planning an epoch, by the number of utterances.

Lines are generated, and features are one frame. Each size is measured in a process of its own, imports included; memory
is its peak.

  python -m benchmarks.planning [UTTERANCES …]       default: 10,000 100,000 1,000,000
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.testing import NewExample, write_dataset
from voxline.text.alphabet import Alphabet

ROOT = Path(__file__).parent.parent
SIZES = (10_000, 100_000, 1_000_000)
MOST_MEMORY = 1e9
WORDS = ["turn", "the", "light", "in", "kitchen", "on", "off", "music", "louder", "seven", "please", "stop"]
PLAN = """
import sys
from voxline.data.dataset import Dataset
from voxline.training.batches import Batches
Batches(Dataset.read(sys.argv[1]), "train", batch_size=16, shuffled=True).plan(0)
"""


def rows(sizes: list[int]) -> list[Row]:
    costs = {size: _measured(size) for size in sizes}
    smallest = sizes[0]
    table = []
    for size, (seconds, memory) in costs.items():
        ours = 1e6 * seconds / size
        peer = 1e6 * costs[smallest][0] / smallest
        if size != smallest:
            name = f"plan of {size:,}: processor time an utterance, x of {smallest:,}"
            table.append(Row.of(name, f"{ours:.0f} µs", f"{peer:.0f} µs", ours / peer, "<=", 1.5))
        name = f"plan of {size:,}: memory, share of {MOST_MEMORY / 1e9:g} GB"
        table.append(Row.of(name, f"{memory / 1e6:,.0f} MB", "", memory / MOST_MEMORY, "<=", 1))
    return table


def _measured(size: int) -> tuple[float, int]:
    """Processor seconds, and peak memory in bytes."""
    with tempfile.TemporaryDirectory() as name:
        # In a process of its own: the peak of a child counts what its parent has in memory when it starts.
        writer = multiprocessing.get_context("spawn").Process(target=_write, args=(Path(name), size))
        writer.start()
        writer.join()
        with subprocess.Popen([sys.executable, "-c", PLAN, name], cwd=ROOT) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
    if status:
        sys.exit(f"benchmarks.planning: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _write(folder: Path, size: int) -> None:
    random = np.random.default_rng(0)
    features = FeatureSettings(mels=8)
    frame = np.zeros((1, features.bins), np.float32)
    examples = [
        NewExample(f"u{number:07}", " ".join(random.choice(WORDS, 12)), "train", frame, f"s{number % 997}")
        for number in range(size)
    ]
    write_dataset(folder, examples, features, Alphabet.from_name("english"))


if __name__ == "__main__":
    print_table(rows([int(size.replace(",", "")) for size in sys.argv[1:]] or list(SIZES)))

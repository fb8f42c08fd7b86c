"""Processor time and memory of planning, by the number of utterances: an epoch of a training, and extract's shards.

Lines are generated, and features are one frame. Each size is measured in a process of its own, imports included; memory
is its peak.

  python -m benchmarks.planning [UTTERANCES …]       default: 10,000 100,000 1,000,000
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.costs import Cost, record
from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.manifest import Utterance, write_manifest
from voxline.data.testing import NewExample, write_dataset
from voxline.text.alphabet import Alphabet

ROOT = Path(__file__).parent.parent
SIZES = (10_000, 100_000, 1_000_000)
PLAN_STEP = "plan of an epoch"
SHARDS_STEP = "plan of shards"
"""Their names in benchmarks/growth.json, where their costs are kept."""
MOST_MEMORY = 1e9
WORDS = ["turn", "the", "light", "in", "kitchen", "on", "off", "music", "louder", "seven", "please", "stop"]
PLAN = """
import sys
from voxline.data.dataset import Dataset
from voxline.training.batches import Batches
Batches(Dataset.read(sys.argv[1]), "train", batch_size=16, shuffled=True).plan(0)
"""


PLAN_SHARDS = """
import sys
from pathlib import Path
from voxline.components.extract.manifest_scan import scan_manifest
from voxline.components.extract.plan import plan_shards
from voxline.components.extract.settings import ExtractSettings
folder = Path(sys.argv[1])
(folder / "unfinished").mkdir()
settings = ExtractSettings()
scan = scan_manifest(folder, settings, folder / "unfinished", folder / "store")
assert sum(task.utterances for task in plan_shards(scan, scan.clips != b"", settings, folder / "unfinished"))
"""


def rows(sizes: list[int]) -> list[Row]:
    """Of both plans."""
    return [*_rows_of(PLAN_STEP, PLAN, _write, sizes), *_rows_of(SHARDS_STEP, PLAN_SHARDS, _write_manifest, sizes)]


def _rows_of(step: str, code: str, write: Callable[[Path, int], None], sizes: list[int]) -> list[Row]:
    costs = {size: _measured(code, write, size) for size in sizes}
    for size, (seconds, memory) in costs.items():
        record(step, size, Cost(seconds, memory))
    smallest = sizes[0]
    table = []
    for size, (seconds, memory) in costs.items():
        ours = 1e6 * seconds / size
        peer = 1e6 * costs[smallest][0] / smallest
        if size != smallest:
            name = f"{step}, {size:,}: processor time an utterance, x of {smallest:,}"
            table.append(Row.of(name, f"{ours:.0f} µs", f"{peer:.0f} µs", ours / peer, "<=", 1.5))
        name = f"{step}, {size:,}: memory, share of {MOST_MEMORY / 1e9:g} GB"
        table.append(Row.of(name, f"{memory / 1e6:,.0f} MB", "", memory / MOST_MEMORY, "<=", 1))
    return table


def _measured(code: str, write: Callable[[Path, int], None], size: int) -> tuple[float, int]:
    """Processor seconds, and peak memory in bytes."""
    with tempfile.TemporaryDirectory() as name:
        # In a process of its own: the peak of a child counts what its parent has in memory when it starts.
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(Path(name), size))
        writer.start()
        writer.join()
        with subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT) as process:
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


def _write_manifest(folder: Path, size: int) -> None:
    """Lines of 5 s; no shard is written, so nothing opens their recordings."""
    lines = (
        Utterance(f"u{number:07}", str(folder / f"{number}.wav"), 5.0, "one two", "s", "train", f"{number:032x}")
        for number in range(size)
    )
    write_manifest(folder / "manifest.jsonl", lines)


if __name__ == "__main__":
    print_table(rows([int(size.replace(",", "")) for size in sys.argv[1:]] or list(SIZES)))

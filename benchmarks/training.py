"""A training step of the demo's Deep Speech 2 next to the same model in PyTorch eager; and reading its batches.

PyTorch is in a separate environment (`make bench` sets it up), so the peer is a process that times itself; the two
alternate, so that a busy machine slows both equally.

  python -m benchmarks.training
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.table import Row, peak_memory_row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.data.testing import NewExample, write_dataset
from voxline.families.asr.settings import AsrTrainSettings, DeepSpeech2Settings
from voxline.families.asr.task import AsrTrainModule
from voxline.text.alphabet import Alphabet
from voxline.training.batches import Batch, Batches

PEER = Path(__file__).parent / "peers" / "deepspeech2_torch.py"
PEER_PYTHON = Path(__file__).parent.parent / ".bench-venv" / "bin" / "python"
STEPS = 12
WARM_UP = 3
ROUNDS = 7
BATCH = 16
FEATURES = FeatureSettings(mels=40)
SETTINGS = AsrTrainSettings(batch_size=BATCH, model=DeepSpeech2Settings(dropout=0.1))


def rows() -> list[Row]:
    """A training step against PyTorch's, and reading a batch against a training step."""
    frames = np.linspace(360, 140, BATCH).astype(int)  # 1.4 to 3.6 s, as the demo's commands
    labels = (frames / 12).astype(int)
    alphabet = Alphabet.from_name("english")
    dataset = Dataset(
        "benchmark", "benchmark", FEATURES, alphabet, [0.0] * FEATURES.bins, [1.0] * FEATURES.bins, {}, {}, []
    )
    module = AsrTrainModule(SETTINGS, dataset, tf.distribute.get_strategy())
    random = np.random.default_rng(1)
    batch = Batch.of(
        [
            Example(
                str(number),
                "",
                "",
                random.standard_normal((count, FEATURES.bins)).astype(np.float32),
                random.integers(0, len(alphabet.symbols), length).astype(np.int32),
            )
            for number, (count, length) in enumerate(zip(frames, labels, strict=True))
        ]
    )
    ours: list[float] = []
    peer: list[float] = []
    peer_bytes = 0
    for _ in range(ROUNDS):
        ours.append(_step_seconds(module, batch))
        seconds, taken = _run_peer(frames, labels, module.model.count_params())
        peer.append(seconds)
        peer_bytes = max(peer_bytes, taken)
    step, theirs = statistics.median(ours), statistics.median(peer)
    name = f"training step, Deep Speech 2 ({module.model.count_params():,} weights)"
    memory = peak_memory_row(name, peer_bytes)
    with tempfile.TemporaryDirectory() as folder:
        reading = _reading_seconds(dataset, Path(folder))
    return [
        Row.of(
            f"{name}, share of PyTorch eager's",
            f"{step * 1000:.0f} ms",
            f"{theirs * 1000:.0f} ms",
            statistics.median(mine / other for mine, other in zip(ours, peer, strict=True)),
            "<=",
            0.6,
        ),
        memory,
        Row.of(
            "reading a batch from TFRecord, x the step that eats it",
            f"{reading * 1000:.2f} ms",
            f"{step * 1000:.0f} ms",
            step / reading,
            ">=",
            20,
        ),
    ]


def _step_seconds(module: AsrTrainModule, batch: Batch) -> float:
    seconds = []
    for step in range(STEPS + WARM_UP):
        start = time.perf_counter()
        module.train_step(batch, 1e-3, step).loss  # noqa: B018 - read, a device has ended the step
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM_UP:])


def _run_peer(frames: np.ndarray, labels: np.ndarray, weights: int) -> tuple[float, int]:
    """Seconds of the peer's step, and bytes that its process took."""
    model = SETTINGS.model
    shape = {
        "threads": len(os.sched_getaffinity(0)),
        "bins": FEATURES.bins,
        "frames": frames.tolist(),
        "labels": labels.tolist(),
        "symbols": len(Alphabet.from_name("english").symbols),
        "convolutions": [layer.plain() for layer in model.convolutions],
        "layers": model.layers,
        "units": model.units,
        "dropout": model.dropout,
        "steps": STEPS + WARM_UP,
    }
    answer = subprocess.run(
        [PEER_PYTHON, PEER], input=json.dumps(shape), capture_output=True, text=True, check=True, timeout=3_600
    )
    result = json.loads(answer.stdout)
    # The same model but for the biases of convolutions (ours have none) and of GRUs (each library has its own count).
    if abs(result["weights"] - weights) > 0.02 * weights:
        sys.exit(f"benchmarks.training: {weights:,} weights against {result['weights']:,}: not the same model")
    return statistics.median(result["seconds"][WARM_UP:]), result["bytes"]


def _reading_seconds(dataset: Dataset, folder: Path) -> float:
    """Seconds per batch, over epochs of 800 utterances as in the demo, on the threads that training uses."""
    random = np.random.default_rng(2)
    spoken = []
    for number in range(800):
        frames = int(random.integers(140, 360))
        features = random.standard_normal((frames, FEATURES.bins)).astype(np.float32)
        text = dataset.alphabet.decode(random.integers(0, 27, frames // 12))
        spoken.append(NewExample(str(number), text, "train", features))
    listed = write_dataset(folder, spoken, FEATURES, dataset.alphabet)
    batches = Batches(listed, "train", batch_size=BATCH, time_stride=SETTINGS.model.time_stride, shuffled=True)
    count = sum(1 for _ in batches.epoch(0))
    start = time.perf_counter()
    for epoch in range(1, 6):
        count += sum(1 for _ in batches.epoch(epoch))
    return (time.perf_counter() - start) / (count * 5 / 6)


def main() -> None:
    if not PEER_PYTHON.exists():
        sys.exit("benchmarks.training: PyTorch, the peer, is not set up; run `make bench`")
    print_table(rows())


if __name__ == "__main__":
    main()

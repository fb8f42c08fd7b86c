"""Utterances of 12.5 s and 80 bins that training's feeder reads, augments and batches in a second of processor time.

The files are in the page cache; the network does not run. Readers are counted by the time that passes: run it on a
machine that does nothing else.

  python -m benchmarks.feeder
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.families.asr.augmentation import Augmentation
from voxline.families.asr.settings import AugmentSettings
from voxline.text.alphabet import Alphabet
from voxline.training.batches import Batches

MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder of ours within it
FRAMES = 1250
BINS = 80
UTTERANCES = 384
BATCH = 16
WAYS = {
    "nothing augmented": {},
    "SpecAugment": {"time_masks": 2, "time_mask_share": 0.05, "frequency_masks": 2, "frequency_mask_share": 0.33},
    "all augmentation": {
        "speed": 0.25,
        "silence": 0.1,
        "pitch": 0.25,
        "equalizer": 6.0,
        "reverberation": 0.5,
        "reverberation_share": 0.5,
        "background": 0.5,
        "band_limit": 0.2,
        "codec": 0.1,
        "frequency_masks": 2,
    },
}
"""SpecAugment is that of configs/asr/librispeech.yaml, all augmentation that of docs/recognizers.md."""
TARGETS = {"nothing augmented": 1500, "SpecAugment": 1500, "all augmentation": 700}
"""Utterances a second of processor time."""


def rows() -> list[Row]:
    table = []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        dataset = _write(Path(folder))
        for way, settings in WAYS.items():
            rate, _ = _rates(dataset, settings, 1)
            target = TARGETS[way]
            table.append(
                Row.of(f"{way}: utterances a CPU-second", f"{rate:,.0f}", f"{target:,}", rate / target, ">=", 1)
            )
        _, single = _rates(dataset, WAYS["all augmentation"], 1)
        _, double = _rates(dataset, WAYS["all augmentation"], 2)
        name = "all augmentation: utterances a second of two readers, x one"
        table.append(Row.of(name, f"{double:,.0f}", f"{single:,.0f}", double / single, ">=", 1.8))
    return table


def _write(folder: Path) -> Dataset:
    random = np.random.default_rng(1)
    examples = [
        NewExample(f"u{number}", "the same words", "train", random.normal(-5, 2, (FRAMES, BINS)).astype(np.float32))
        for number in range(UTTERANCES)
    ]
    return write_dataset(folder, examples, FeatureSettings(mels=BINS), Alphabet.from_name("english"), shards=4)


def _rates(dataset: Dataset, settings: dict[str, float], readers: int) -> tuple[float, float]:
    """Utterances a second of processor time, and a second that passes; the first epoch warms up."""
    augment = Augmentation(
        AugmentSettings.model_validate(settings),
        dataset.features,
        np.array(dataset.mean, np.float32),
        np.array(dataset.deviation, np.float32),
    )
    batches = Batches(dataset, "train", batch_size=BATCH, shuffled=True, augment=augment, readers=readers)
    best = 0.0, 0.0
    for epoch in range(4):
        start = time.perf_counter()
        processor_start = time.process_time()
        count = sum(len(batch.ids) for batch in batches.epoch(epoch))
        spent = time.process_time() - processor_start
        passed = time.perf_counter() - start
        if epoch:
            best = max(best[0], count / spent), max(best[1], count / passed)
    return best


if __name__ == "__main__":
    print_table(rows())

"""Writes a dataset of given features, for tests and benchmarks without a corpus."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset, Shard
from voxline.data.record_locations import RECORD_LOCATION, write_record_locations
from voxline.data.rows import ROWS_FILE, encode_row
from voxline.data.shard_writer import FeatureArray, ShardWriter
from voxline.data.shards import clip_name
from voxline.data.tfrecord import RECORD_OVERHEAD
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_file, hash_value
from voxline.text.alphabet import Alphabet


@dataclasses.dataclass(frozen=True)
class NewExample:
    """One utterance to write, whose labels follow from its text; `features` float32 `[frames, bins]`.

    Attributes:
      extra: further fields of its row.
    """

    id: str
    text: str
    split: str
    features: FeatureArray
    speaker: str = ""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def write_dataset(
    folder: Path, examples: Sequence[NewExample], features: FeatureSettings, alphabet: Alphabet, *, shards: int = 1
) -> Dataset:
    """Writes a dataset into a folder.

    Args:
      shards: for each split.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    listed: list[Shard] = []
    locations: dict[str, tuple[int, ...]] = {}

    # Each split has shards of its own, as extract writes them.
    for split in dict.fromkeys(example.split for example in examples):
        members = [example for example in examples if example.split == split]
        for number in range(min(shards, len(members))):
            writer = ShardWriter(folder, features.bins)
            for example in members[number::shards]:
                # Equal ids would be equal clips, whatever their features.
                writer.add(clip_name(example.id, 0.0, 0.0, 1.0), example.features)
            info = writer.close(folder / "shards")
            records = zip(members[number::shards], info.offsets, info.sizes, info.frames, strict=True)
            locations |= {example.id: (len(listed), *location) for example, *location in records}
            count = len(info.clips)
            live_bytes = sum(info.sizes) + RECORD_OVERHEAD * len(info.clips)
            path = str(info.path.relative_to(folder))
            listed.append(Shard(path, count, info.bytes, count, live_bytes, info.checksum))

    # Rows and locations have one order: by id.
    in_order = sorted(examples, key=lambda example: example.id)
    seconds: dict[str, float] = {}
    with atomic_write(folder / ROWS_FILE, "w") as file:
        for example in in_order:
            duration = len(example.features) * features.hop_seconds
            seconds[example.split] = seconds.get(example.split, 0.0) + duration
            values = {"id": example.id, "split": example.split, "speaker": example.speaker, "text": example.text}
            file.write(encode_row({**example.extra, **values, "duration": duration, "audio_hash": example.id}))

    # Statistics are of the training split alone, as in extract.
    train = np.concatenate([example.features for example in examples if example.split == "train"]).astype(np.float64)
    train = train[np.isfinite(train).all(axis=1)]  # a test may write bad features on purpose
    rows_hash = hash_file(folder / ROWS_FILE)
    Dataset(
        key=hash_value([features.key_values(), rows_hash]),
        fingerprint=rows_hash,
        features=features,
        alphabet=alphabet,
        mean=train.mean(0).tolist(),
        deviation=train.std(0).tolist(),
        counts=dict(Counter(example.split for example in examples)),
        seconds=seconds,
        shards=listed,
        rows_hash=rows_hash,
        record_locations_file=write_record_locations(
            folder, np.array([[locations[example.id]] for example in in_order], RECORD_LOCATION)
        ),
    ).write(folder)
    return Dataset.read(folder)

"""A dataset of features at hand, with its shards beside it: for trials and benchmarks that have no corpus of files."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
class DatasetExample:
    """One utterance; `features` float32 `[frames, bins]`."""

    id: str
    text: str
    split: str
    features: FeatureArray
    speaker: str = ""


def write_dataset(
    folder: Path, spoken: Sequence[DatasetExample], features: FeatureSettings, alphabet: Alphabet, *, shards: int = 1
) -> Dataset:
    """Writes a dataset into a folder, with so many shards for each split."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    listed: list[Shard] = []
    where: dict[str, list[int]] = {}
    for split in dict.fromkeys(each.split for each in spoken):
        members = [each for each in spoken if each.split == split]
        for number in range(min(shards, len(members))):
            writer = ShardWriter(folder, features.bins)
            for each in members[number::shards]:
                writer.add(clip_name(each.id, 0.0, 0.0, 1.0), each.features)
            index = writer.close(folder / "shards")
            columns = zip(index.offsets, index.sizes, index.frames, strict=True)
            for each, place in zip(members[number::shards], columns, strict=True):
                where[each.id] = [len(listed), *place]
            path = str(index.path.relative_to(folder))
            count = len(index.clips)
            listed.append(
                Shard(path, count, index.bytes, count, sum(index.sizes) + RECORD_OVERHEAD * count, index.checksum)
            )
    ordered = sorted(spoken, key=lambda each: each.id)
    with atomic_write(folder / ROWS_FILE, "w") as file:
        for each in ordered:
            values = {"id": each.id, "split": each.split, "speaker": each.speaker, "text": each.text}
            file.write(
                encode_row({**values, "duration": len(each.features) * features.hop_seconds, "audio_hash": each.id})
            )
    heard = np.concatenate([each.features for each in spoken if each.split == "train"]).astype(np.float64)
    heard = heard[np.isfinite(heard).all(axis=1)]  # who writes what is spoilt means to see it read
    counts = Counter(each.split for each in spoken)
    rows_hash = hash_file(folder / ROWS_FILE)
    Dataset(
        key=hash_value([features.plain(), rows_hash]),
        fingerprint=rows_hash,
        features=features,
        alphabet=alphabet,
        mean=heard.mean(0).tolist(),
        deviation=heard.std(0).tolist(),
        counts=dict(counts),
        seconds={
            split: features.hop_seconds * sum(len(each.features) for each in spoken if each.split == split)
            for split in counts
        },
        shards=listed,
        rows_hash=rows_hash,
        places=write_record_locations(folder, np.array([[tuple(where[each.id])] for each in ordered], RECORD_LOCATION)),
    ).write(folder)
    return Dataset.read(folder)

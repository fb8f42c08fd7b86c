"""Reads the utterances of a dataset: one by one, as padded arrays, or as `tf.data`.

Training reads batches with `voxline.training.batches`, which can resume in the middle of an epoch.
"""

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxline.data.dataset import Dataset
from voxline.data.rows import DatasetRow
from voxline.data.shards import report_damage
from voxline.data.tfrecord import DamagedRecordError, find_bytes, view_record_at
from voxline.errors import SettingsError, WorkError

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Example:
    """One utterance of a dataset, as training and a notebook read it.

    Attributes:
      features: float32 `[frames, bins]`, not normalized.
      labels: int32 `[labels]`, indices into the dataset's alphabet.
    """

    id: str
    text: str
    speaker: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True)
class DatasetArrays:
    """A split as arrays, padded with zeros; one row an utterance, sorted by id.

    Attributes:
      features: float32 `[utterances, frames, bins]`.
      frames: int32 `[utterances]`, frames before padding.
      labels: int32 `[utterances, labels]`, indices into the dataset's alphabet.
      label_counts: int32 `[utterances]`, labels before padding.
    """

    ids: list[str]
    texts: list[str]
    speakers: list[str]
    features: npt.NDArray[np.float32]
    frames: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    label_counts: npt.NDArray[np.int32]


class DatasetReader:
    """Reads the utterances of a dataset, without the sped-up copies that training may use.

    Args:
      folder: what extract or publish wrote: a folder with `dataset.json`.
      max_open_shards: files that an iteration keeps open. A process may usually have 1,024, and 300 hours of speech
        have more shards.

    Attributes:
      info: the content of `dataset.json`: feature settings, alphabet, normalization statistics, counts.

    Raises:
      WorkError: the folder holds no dataset, or a file of it is missing or damaged.
    """

    def __init__(self, folder: Path | str, *, max_open_shards: int = 256) -> None:
        self.info = Dataset.read(folder)
        self._max_open_shards = max_open_shards

    @property
    def splits(self) -> list[str]:
        """The splits that have utterances."""
        return [split for split, count in self.info.counts.items() if count]

    def examples(self, split: str) -> Iterator[Example]:
        """The utterances of a split, sorted by id. Each record is compared with its checksum.

        Raises:
          SettingsError: the dataset has no such split.
          WorkError: a shard is missing or damaged.
        """
        rows = self._rows(split)

        # Copies at other speeds are for training; a reader gets the recording as it is.
        column = self.info.speeds.index(1.0)
        locations = self.info.read_record_locations()

        # Rows are sorted by id, so neighbors are in different shards, and many shards are open at a time.
        files: dict[int, int] = {}  # descriptors by shard, the one opened first in front
        try:
            for row in rows:
                shard, offset, size, _ = locations[row.number, column].tolist()
                path = self.info.file(self.info.shards[shard])
                if shard not in files:
                    if files and len(files) >= self._max_open_shards:
                        os.close(files.pop(next(iter(files))))
                    files[shard] = open_shard(path)
                features = read_features(files[shard], offset, size, path, self.info.features.bins)
                labels = np.array(self.info.alphabet.encode(row.text), np.int32)
                yield Example(row.id, row.text, row.speaker, features, labels)
        finally:
            for file in files.values():
                os.close(file)

    def arrays(self, split: str) -> DatasetArrays:
        """A whole split in memory.

        Raises:
          SettingsError, WorkError: as `examples`.
        """
        examples = list(self.examples(split))
        frames = np.array([len(example.features) for example in examples], np.int32)

        # Zeros of `[utterances, longest]`, into which each utterance is copied from the left.
        counts = np.array([len(example.labels) for example in examples], np.int32)
        features = np.zeros((len(examples), frames.max(initial=0), self.info.features.bins), np.float32)
        labels = np.zeros((len(examples), counts.max(initial=0)), np.int32)
        for row, example in enumerate(examples):
            features[row, : frames[row]] = example.features
            labels[row, : counts[row]] = example.labels
        return DatasetArrays(
            [example.id for example in examples],
            [example.text for example in examples],
            [example.speaker for example in examples],
            features,
            frames,
            labels,
            counts,
        )

    def tf_data(self, split: str, batch_size: int | None = None) -> "tf.data.Dataset":
        """A split as `tf.data`: dictionaries with id, text, speaker, features, frames, labels and label_count.

        Args:
          batch_size: utterances in a batch, padded with zeros; None: one utterance an element.

        Raises:
          SettingsError: the dataset has no such split. A damaged shard ends the iteration with an error of TensorFlow
            that quotes ours.
        """
        from voxline.inference.tensorflow_import import import_tensorflow

        # Fails here, with our error: within the generator it would come out as an error of TensorFlow.
        self._rows(split)
        tf: Any = import_tensorflow()

        def elements() -> Iterator[dict[str, Any]]:
            for example in self.examples(split):
                yield {
                    "id": example.id,
                    "text": example.text,
                    "speaker": example.speaker,
                    "features": example.features,
                    "frames": len(example.features),
                    "labels": example.labels,
                    "label_count": len(example.labels),
                }

        texts = {name: tf.TensorSpec([], tf.string) for name in ("id", "text", "speaker")}
        counts = {name: tf.TensorSpec([], tf.int32) for name in ("frames", "label_count")}
        signature = (
            texts
            | counts
            | {
                "features": tf.TensorSpec([None, self.info.features.bins], tf.float32),
                "labels": tf.TensorSpec([None], tf.int32),
            }
        )

        # A generator has no length of its own; with it Keras can show the progress of an epoch.
        data = tf.data.Dataset.from_generator(elements, output_signature=signature)
        data = data.apply(tf.data.experimental.assert_cardinality(self.info.counts[split]))
        return data if batch_size is None else data.padded_batch(batch_size)

    def _rows(self, split: str) -> list[DatasetRow]:
        if split not in self.splits:
            raise SettingsError(f"split {split!r}: the dataset has {', '.join(map(repr, self.splits)) or 'none'}")
        return [row for row in self.info.rows() if row.split == split]


def open_shard(path: Path) -> int:
    """A descriptor of a shard, locked against purge and garbage collection for as long as it is open.

    Raises:
      WorkError: the shard is gone.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise WorkError(
            f"{path}: {error.strerror}; a purge or garbage collection may have deleted it since this dataset was "
            "read: start again, and if that does not help, run extract again"
        ) from None

    # Purge and garbage collection take an exclusive lock before they delete. It goes with the descriptor.
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def read_features(
    file: int, offset: int, size: int, path: Path, bins: int, *, verify: bool = True
) -> npt.NDArray[np.float32]:
    """The features of a record: float32 `[frames, bins]`.

    Args:
      file: the shard, opened.
      offset, size: bytes of the record.
      verify: compares the record with its checksum.

    Raises:
      WorkError: the shard is damaged.
    """
    try:
        record = view_record_at(file, offset, size, path, verify=verify)
    except DamagedRecordError as damage:
        raise report_damage(path, damage.what) from None
    return np.frombuffer(find_bytes(record, "features"), "<f4").reshape(-1, bins)

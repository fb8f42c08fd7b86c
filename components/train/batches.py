"""Batches from a dataset's TFRecord shards, in an order that the dataset's rows, seed and epoch alone decide.

The dataset says where each record lies and how long it is, so no shard is scanned; every batch is read by position,
ahead of its use, on threads. So the order of an epoch is a plan that can be made anew after a kill, step k of it costs
no reading of the steps before, and the number of steps is known before the first. How a dataset's shards happen to
be laid does not show: not in the order, and not in what is read.
"""

import collections
import concurrent.futures
import dataclasses
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.data.dataset import Dataset
from voxline.data.rows import DatasetRow
from voxline.data.shards import report_damage
from voxline.data.tfrecord import DamagedRecordError, decode_example, read_record_at
from voxline.errors import WorkError
from voxline.text.alphabet import Alphabet, min_ctc_frames

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]
PREFETCHED = 6
"""Batches that are being read, or wait to be used."""


@dataclasses.dataclass(frozen=True)
class Example:
    """One utterance.

    Attributes:
      features: float32 [frames, bins].
      labels: int32 [labels].
    """

    id: str
    text: str
    features: Array
    labels: Integers


@dataclasses.dataclass(frozen=True)
class Batch:
    """Utterances of like length, padded with zeros.

    Attributes:
      features: float32 [rows, frames, bins].
      frames: int32 [rows], real frames.
      labels: int32 [rows, labels].
      counts: int32 [rows], real labels.
    """

    ids: list[str]
    texts: list[str]
    features: Array
    frames: Integers
    labels: Integers
    counts: Integers

    @classmethod
    def of(cls, examples: list[Example]) -> "Batch":
        frames = np.array([len(example.features) for example in examples], np.int32)
        counts = np.array([len(example.labels) for example in examples], np.int32)
        features = np.zeros((len(examples), frames.max(), examples[0].features.shape[1]), np.float32)
        labels = np.zeros((len(examples), max(counts.max(), 1)), np.int32)
        for row, example in enumerate(examples):
            features[row, : frames[row]] = example.features
            labels[row, : counts[row]] = example.labels
        return cls([e.id for e in examples], [e.text for e in examples], features, frames, labels, counts)


@dataclasses.dataclass(frozen=True)
class _Record:
    """Where a record lies, and what planning needs of it; `fewest` frames do its labels need."""

    id: str
    text: str
    file: int
    offset: int
    size: int
    frames: int
    fewest: int


class Batches:
    """The batches of one split.

    Args:
      time_stride, padding: feature frames to one output frame, and added at each end by the model; an utterance
        with fewer output frames than CTC needs for its labels is left out, and listed in `infeasible`. A time
        stride of 0: nothing is left out.
      shuffled: False gives one order, shortest first, for every epoch.
      length_noise: utterances are sorted into batches by lengths with so large a share of noise, so that an
        epoch's batches are not the last one's in another order.
      perturb: what is done to an example: (features, fewest frames, generator) to features.

    Attributes:
      infeasible: ids of what was left out.

    Raises:
      WorkError: a shard is damaged; what is damaged in the middle of one is found when it is read first.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        *,
        batch_size: int,
        time_stride: int = 0,
        padding: int = 0,
        seed: int = 0,
        shuffled: bool = False,
        length_noise: float = 0.0,
        shortest_first: bool = False,
        perturb: Callable[[Array, int, np.random.Generator], Array] | None = None,
    ) -> None:
        self.bins, self.batch_size, self.seed = dataset.features.bins, batch_size, seed
        self.shuffled, self.shortest_first, self.perturb = shuffled, shortest_first, perturb
        self.length_noise, self.time_stride = length_noise, time_stride
        self._alphabet = dataset.alphabet
        places = list(_read_records(dataset, split, time_stride, 2 * padding))
        self._paths = {number: dataset.file(dataset.shards[number]) for number in {place.file for place in places}}
        self._files = {number: _open_locked(path) for number, path in self._paths.items()}
        # n frames give ceil(n / stride) output frames, so `fewest` is the least n that gives enough.
        self.infeasible = [place.id for place in places if place.frames < place.fewest]
        self._places = [place for place in places if place.frames >= place.fewest]
        self._frames = np.array([place.frames for place in self._places], np.float64)
        self._seen = np.zeros(len(self._places), bool)

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            os.close(file)

    @property
    def utterances(self) -> int:
        return len(self._places)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-len(self._places) // self.batch_size)

    def plan(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """Which examples stand in which batch of an epoch.

        Where they do not fill the last batch, it is filled up by some of the one before: a graph is built
        for each number of rows, and one is enough.
        """
        random = np.random.default_rng([self.seed, epoch])
        shuffled = self.shuffled and not (self.shortest_first and epoch == 0)
        noise = np.exp(random.uniform(-1, 1, len(self._frames)) * np.log1p(self.length_noise))
        lengths = self._frames * noise if shuffled else self._frames
        order = np.argsort(lengths, kind="stable")
        starts = list(range(0, len(order), self.batch_size))
        if shuffled and len(order) > self.batch_size:
            starts[-1] = len(order) - self.batch_size
        batches = [order[start : start + self.batch_size] for start in starts]
        return [batches[index] for index in random.permutation(len(batches))] if shuffled else batches

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `first` of it on, read ahead on threads."""
        plan = self.plan(epoch)[first:]
        with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="batches") as readers:
            waiting: collections.deque[concurrent.futures.Future[Batch]] = collections.deque()
            try:
                for rows in plan:
                    waiting.append(readers.submit(self.read, rows, epoch))
                    if len(waiting) > PREFETCHED:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def read(self, rows: npt.NDArray[np.int64], epoch: int = 0) -> Batch:
        """The examples of some rows of a plan, as one batch."""
        examples = []
        for row in rows.tolist():
            example, place = self._example(row), self._places[row]
            if self.perturb is not None:
                random = np.random.default_rng([self.seed, epoch, row])
                example = dataclasses.replace(example, features=self.perturb(example.features, place.fewest, random))
            examples.append(example)
        return Batch.of(examples)

    def _example(self, row: int) -> Example:
        """Reads an example; the first time, its checksum is looked at."""
        place = self._places[row]
        path, seen = self._paths[place.file], bool(self._seen[row])
        try:
            data = read_record_at(self._files[place.file], place.offset, place.size, path, verify=not seen)
        except DamagedRecordError as damage:
            raise report_damage(path, damage.what) from None
        values: Any = decode_example(data)
        features = np.frombuffer(values["features"][0], "<f4").reshape(-1, self.bins)
        if not seen and len(features) != place.frames:
            raise WorkError(
                f"{path}: the record at byte {place.offset:,} has {len(features):,} frames, {place.id} has "
                f"{place.frames:,}; run extract again"
            )
        self._seen[row] = True
        return Example(place.id, place.text, features, np.array(self._alphabet.encode(place.text), np.int32))


def _read_records(dataset: Dataset, split: str, time_stride: int, padding: int) -> Iterator[_Record]:
    """The records of a split: by speed, and then by the hash of the id, which mixes speakers and lengths."""
    rows = [row for row in dataset.rows() if row.split == split]
    rows.sort(key=lambda row: (hashlib.blake2b(row.id.encode(), digest_size=8).digest(), row.id))
    locations = dataset.read_record_locations()
    fewest = [_min_frames(row, dataset.alphabet, time_stride, padding) for row in rows]
    for column in range(len(dataset.speeds)):
        for row, least in zip(rows, fewest, strict=True):
            shard, offset, size, frames = locations[row.number, column].item()
            if shard >= 0:
                yield _Record(row.id, row.text, shard, offset, size, frames, least)


def _min_frames(row: DatasetRow, alphabet: Alphabet, time_stride: int, padding: int) -> int:
    """The fewest frames from which a model with this stride has an output frame for all that CTC must emit."""
    needed = min_ctc_frames(alphabet.encode(row.text)) if time_stride else 1
    return max((max(needed, 1) - 1) * time_stride + 1 - padding, 1)


def _open_locked(path: Path) -> int:
    """Opens a shard; while it is open, nobody who clears up takes it away."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise WorkError(
            f"{path}: {error.strerror}; it may have been purged or collected since this dataset was read: start again, "
            "and where that does not help, run extract again"
        ) from None
    fcntl.flock(file, fcntl.LOCK_SH)
    return file

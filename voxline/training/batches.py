"""Batches from a dataset's TFRecord shards, in an order determined by the dataset's rows, the seed and the epoch.

The dataset lists the position and length of each record, so no shard is scanned: threads read batches by position,
ahead of their use. The plan of an epoch can therefore be rebuilt after a kill, starting at step k reads nothing before
it, and the number of steps is known in advance. The layout of the shards affects neither the order nor the content.

Every worker of a training makes the same plan, and reads, decodes and augments only the rows of its own devices.

Batches by seconds of audio. A network's memory follows the frames of a batch, so `batch_seconds` bounds rows times the
longest row. A recurrent network builds a graph for each number of rows (Deep Speech 2: 7 s, 80 MB), so batches have 1,
2, 3, 4, 6, 8, 12, 16, … rows: an utterance belongs to the largest of these numbers that it fits into, and batches are
made within it. From 1 s to 16 s of audio these are 9 numbers, where each would be up to 60; a batch uses two thirds of
the seconds or more, about five sixths on average. Other networks have one graph. The number of batches depends on the
lengths alone, not on the order. Attention's memory grows with the square of the length, so that of long utterances is
not bounded by their sum.
"""

import collections
import concurrent.futures
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from voxline.audio.process_pool import available_cores
from voxline.data.dataset import Dataset
from voxline.data.drafts import is_draft
from voxline.data.reader import Example, open_shard, read_features
from voxline.data.rows import DatasetRow
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.text.alphabet import min_ctc_frames

Array = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]
PREFETCHED = 4
"""Batches read ahead, besides one for each reader."""
MOST_READERS = 16
"""Threads by default, at most: beyond them readers wait for the interpreter that they share."""
ROWS = sorted({2**power for power in range(17)} | {3 * 2**power for power in range(16)})
"""Numbers of rows of a device's batch by seconds."""
LENGTHS = np.array([*range(8, 64, 8), *(n << octave for octave in range(3, 15) for n in range(8, 16))], np.int32)
"""Lengths of arrays where a network shall meet few of them: multiples of 8, and from 64 on eight in each octave."""

BUCKET_FRAMES = 8
"""Static lengths are multiples of this many frames, which suits the tiles of a TPU."""


@dataclasses.dataclass(frozen=True)
class ReplicaShare:
    """The devices of this process among those of all workers; of a batch, device `r` gets the places r, r + total, ….

    Attributes:
      first: the number of its first device.
      count, total: its devices, and those of all workers.
    """

    first: int = 0
    count: int = 1
    total: int = 1

    def places(self, rows: int, least: int = 0) -> Integers:
        """The places in a batch of `rows` utterances that this process computes, ascending.

        A place beyond the last row repeats a row, at no weight in the loss. There are as many of them as it takes for
        each device to have a place, and for `least` places in all.

        >>> ReplicaShare(first=2, count=2, total=4).places(7).tolist(), WHOLE.places(2, least=3).tolist()
        ([2, 3, 6], [0, 1, 2])
        """
        every = np.arange(max(rows, self.total, least), dtype=np.int32)
        return every[(every - self.first) % self.total < self.count]


WHOLE = ReplicaShare()


class SupportsRows(Protocol):
    """An array of each row of a split."""

    def __getitem__(self, row: int, /) -> Array: ...


@dataclasses.dataclass(frozen=True)
class Batch:
    """Utterances of similar length, padded with zeros.

    Attributes:
      ids, texts: of the whole batch.
      features: float32 [rows, frames, bins].
      frames: int32 [rows], real frames.
      labels: int32 [rows, labels].
      counts: int32 [rows], real labels.
      places: int32 [rows] where only some rows were read: row `i` is the utterance `places[i] % len(ids)`, and counts
        nothing if its place is `len(ids)` or above. None: the rows are those of `ids`.
      weights: float32 [len(ids)], what each utterance of the whole batch counts in the loss; None: 1.
      speakers: int32 [rows], rows of a table of speakers; None: 0.
    """

    ids: list[str]
    texts: list[str]
    features: Array
    frames: Integers
    labels: Integers
    counts: Integers
    places: Integers | None = None
    weights: Array | None = None
    speakers: Integers | None = None

    @classmethod
    def of(cls, examples: list[Example], buckets: Sequence[tuple[int, int]] = ()) -> "Batch":
        """Pads the examples to the longest, or to the smallest bucket of (frames, labels) that all of them fit into."""

        # Real lengths first; then the smallest shape that holds all rows.
        frames = np.array([len(example.features) for example in examples], np.int32)
        counts = np.array([len(example.labels) for example in examples], np.int32)
        size = int(frames.max()), max(int(counts.max()), 1)
        size = next((bucket for bucket in buckets if bucket[0] >= size[0] and bucket[1] >= size[1]), size)

        # Padding is zero, which every network masks.
        features = np.empty((len(examples), size[0], examples[0].features.shape[1]), np.float32)
        labels = np.zeros((len(examples), size[1]), np.int32)
        for row, example in enumerate(examples):
            features[row, : frames[row]] = example.features
            features[row, frames[row] :] = 0
            labels[row, : counts[row]] = example.labels

        return cls([e.id for e in examples], [e.text for e in examples], features, frames, labels, counts)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The position of a record, and what planning needs; its labels need `min_frames`. A `file` of -1: in no shard.

    `is_draft`: a model wrote its text (`voxline.data.drafts`).
    """

    id: str
    text: str
    speaker: str
    file: int
    offset: int
    size: int
    frames: int
    labels: int
    min_frames: int
    corpus: str
    is_draft: bool = False


class Batches:
    """The batches of one split.

    Args:
      time_stride, padding: feature frames per output frame of the model, and those that it adds at each end. An
        utterance with fewer output frames than CTC needs for its labels is left out, and listed in `infeasible`. A time
        stride of 0 leaves nothing out.
      window_frames: feature frames that an output frame needs, if there is more than one.
      most_frames: feature frames that an utterance may have, with those that augmentation may add; longer ones are left
        out too; 0: any number.
      shuffled: False gives the same order, shortest first, in every epoch.
      length_noise: share of random noise on lengths when utterances are sorted into batches, so that batches differ
        between epochs.
      augment: changes the features of an example: (features, minimum frames, generator) to features.
      corpus_weights: corpus → how often an epoch draws each of its utterances, on average; others once.
      share: the rows of each batch that `epoch` reads.
      buckets: pad each batch to one of so many static shapes, and fill it with rows of no weight to `batch_size`; 0: a
        batch is as long as its longest row.
      longer, more_frames: share by which `augment` may lengthen an utterance, and frames that it may add to it.
      batch_seconds: of audio in a part of a batch, padding included, in place of `batch_size`; 0: `batch_size`.
      parts: of a batch by seconds, each of the same number of rows.
      draft_weight: what an utterance whose text a model wrote counts in the loss, beside the 1 of the others; None:
        there may be none.
      readers: threads of `epoch`; 0: as many as there are cores, 2 to `MOST_READERS`.
      speakers: rows of a table, in whose order batches number speakers; (): all are number 0.

    Attributes:
      waited: seconds that `epoch` has waited for its readers.
      infeasible: ids of the utterances left out.
      shapes: the buckets, (frames, labels), ascending.
      encodings: what takes the place of the features of each row (`encodings`); None: the features.

    Raises:
      WorkError: a shard is damaged, the weights draw no utterance, or a draft is where none may be. Damage within a
        shard is noticed when the record is first read.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        *,
        batch_size: int,
        time_stride: int = 0,
        padding: int = 0,
        window_frames: int = 1,
        most_frames: int = 0,
        seed: int = 0,
        shuffled: bool = False,
        length_noise: float = 0.0,
        shortest_first: bool = False,
        augment: Callable[[Array, int, np.random.Generator], Array] | None = None,
        corpus_weights: Mapping[str, float] | None = None,
        share: ReplicaShare = WHOLE,
        buckets: int = 0,
        longer: float = 0.0,
        more_frames: int = 0,
        batch_seconds: float = 0.0,
        parts: int = 1,
        draft_weight: float | None = None,
        readers: int = 0,
        speakers: Sequence[str] = (),
    ) -> None:
        self.readers = readers or min(max(available_cores(), 2), MOST_READERS)
        self.waited = 0.0
        self.bins = dataset.features.bins
        self.batch_size = batch_size
        self.seed = seed
        self.shuffled = shuffled
        self.shortest_first = shortest_first
        self.augment = augment
        self.length_noise = length_noise
        self.time_stride = time_stride
        self.padding = padding
        self.window_frames = window_frames
        self.share = share
        self._alphabet = dataset.alphabet
        self.encodings: SupportsRows | None = None
        self._speaker_rows = {name: row for row, name in enumerate(speakers)}

        # The records of the split, and its shards, which stay open.
        records = list(self._find_records(dataset, split))
        shards = {record.file for record in records if record.file >= 0}
        self._paths = {number: dataset.file(dataset.shards[number]) for number in shards}
        self._files = {number: open_shard(path) for number, path in self._paths.items()}
        # n frames give (n - window) // stride + 1 output frames; `min_frames` is the smallest n that gives enough.
        feasible = [
            record.frames >= record.min_frames
            and (not most_frames or record.frames * (1 + longer) + more_frames <= most_frames)
            for record in records
        ]
        self.infeasible = [record.id for record, fits in zip(records, feasible, strict=True) if not fits]
        self._records = [record for record, fits in zip(records, feasible, strict=True) if fits]
        self._frames = np.array([record.frames for record in self._records], np.float64)
        self._weights = self._weigh_drafts(split, draft_weight)
        self._verified = np.zeros(len(self._records), bool)

        # Draws of each corpus in an epoch.
        self._corpora = self._weigh_corpora(corpus_weights or {})
        if self._records and not self.draws:
            raise WorkError(
                f"train: the weights of the corpora ({dict(corpus_weights or {})}) draw no utterance of {split}; raise "
                "the weight of one that has some (corpus.corpora)"
            )

        if weighted := [corpus for corpus in self._corpora if corpus.name]:
            drawn = ", ".join(f"{corpus.name} {corpus.draws:,} draws of {len(corpus.rows):,}" for corpus in weighted)
            print_status(f"train: utterances in each epoch: {drawn}")

        # Rows of the batch that each utterance belongs to, by its longest form.
        self._rows_of = np.zeros(0, np.int64)
        if batch_seconds:
            seconds = dataset.features.hop_length / dataset.features.sample_rate
            longest = (np.ceil(self._frames * (1 + longer)) + more_frames) * seconds
            in_replica = np.searchsorted(ROWS, batch_seconds / share.total / longest, side="right") - 1
            self._rows_of = np.array(ROWS)[np.maximum(in_replica, 0)] * share.total * parts
            self._describe_rows(batch_seconds, longest)

        # Static shapes, if steps are compiled.
        sizes = [(record.frames, record.labels) for record in self._records]
        self.shapes = choose_buckets(sizes, buckets, longer, more_frames) if buckets and sizes else []

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            os.close(file)

    @property
    def utterances(self) -> int:
        return len(self._records)

    @property
    def texts(self) -> list[str]:
        """Transcripts of the utterances, by rows."""
        return [record.text for record in self._records]

    @property
    def draws(self) -> int:
        """Utterances in an epoch; one that is drawn twice counts twice."""
        return sum(corpus.draws for corpus in self._corpora)

    @property
    def steps(self) -> int:
        """Batches in the first epoch."""
        return self.steps_of(0)

    def steps_of(self, epoch: int) -> int:
        """Batches in an epoch; by seconds they may differ where weights of corpora draw other utterances."""
        if not len(self._rows_of):
            return -(-self.draws // self.batch_size)

        # As `_plan_by_seconds` makes them, by their numbers alone.
        rows = self._rows_of[self._draw(epoch) % len(self._records)]
        left = 0
        steps = 0
        for size, count in sorted(collections.Counter(rows.tolist()).items(), reverse=True):
            full, left = divmod(left + count, size)
            steps += full
        return steps + (left > 0)

    def plan(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """The draws of each batch of an epoch: the n-th repetition of a row is the row + n times the number of rows.

        If the last batch is not full, it is filled with rows of the previous one: each number of rows builds its own
        graph, and one is enough.
        """

        # Sorted by length with some noise: little padding, and other batches in each epoch.
        random = np.random.default_rng([self.seed, epoch])
        shuffled = self.shuffled and not (self.shortest_first and epoch == 0)
        draws = self._draw(epoch)
        frames = self._frames[draws % max(len(self._records), 1)]
        noise = np.exp(random.uniform(-1, 1, len(draws)) * np.log1p(self.length_noise))
        lengths = frames * noise if shuffled else frames
        order = draws[np.argsort(lengths, kind="stable")]

        # Batches of neighbors in length, in an order of chance.
        if len(self._rows_of):
            batches = self._plan_by_seconds(order)
        else:
            starts = list(range(0, len(order), self.batch_size))
            if shuffled and len(order) > self.batch_size:
                starts[-1] = len(order) - self.batch_size
            batches = [order[start : start + self.batch_size] for start in starts]

        return [batches[index] for index in random.permutation(len(batches))] if shuffled else batches

    def _plan_by_seconds(self, order: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        """The batches of each number of rows, the shortest utterances first.

        What does not fill a batch continues with the next number, whose utterances are longer. The last batch of a
        training split is filled with rows of those before it.

        Args:
          order: draws, by their length with its noise.
        """
        rows = self._rows_of[order % len(self._records)]
        batches: list[npt.NDArray[np.int64]] = []
        left = order[:0]
        for size in sorted(set(rows.tolist()), reverse=True):
            pool = np.concatenate([left, order[rows == size]])
            full = len(pool) // size * size
            batches += np.split(pool[:full], full // size) if full else []
            left = pool[full:]

        if len(left) and self.shuffled:
            missing = int(self._rows_of[left % len(self._records)].min()) - len(left)
            others = np.concatenate([left[:0], *batches])
            left = np.concatenate([others[max(len(others) - missing, 0) :], left])

        return [*batches, left] if len(left) else batches

    def _draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.sort(np.concatenate([corpus.draw(epoch, len(self._records)) for corpus in self._corpora]))

    def _describe_rows(self, batch_seconds: float, longest: npt.NDArray[np.float64]) -> None:
        """Tells the numbers of rows of a training split, and how many utterances are longer than a batch."""
        if not self.shuffled or not len(longest):
            return
        sizes = ", ".join(map(str, sorted(set(self._rows_of.tolist()))))
        too_long = int((longest * self.share.total > batch_seconds).sum())
        note = f"; {too_long:,} utterances are longer, and take more memory" if too_long else ""
        print_status(f"train: batches of up to {batch_seconds:g} s have {sizes} utterances{note}")

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from step `first` of it, read ahead on threads."""
        plan = self.plan(epoch)[first:]
        with concurrent.futures.ThreadPoolExecutor(self.readers, thread_name_prefix="batches") as readers:
            waiting: collections.deque[concurrent.futures.Future[Batch]] = collections.deque()
            try:
                for rows in plan:
                    waiting.append(readers.submit(self.read, rows, epoch, self.share))
                    if len(waiting) >= self.readers + PREFETCHED:
                        yield self._await(waiting.popleft())
                while waiting:
                    yield self._await(waiting.popleft())
            finally:
                for future in waiting:
                    future.cancel()

    def _await(self, reading: "concurrent.futures.Future[Batch]") -> Batch:
        start = time.perf_counter()
        batch = reading.result()
        self.waited += time.perf_counter() - start
        return batch

    def read(self, draws: npt.NDArray[np.int64], epoch: int = 0, share: ReplicaShare | None = None) -> Batch:
        """Reads some draws of a plan as one batch; with a share, only its rows.

        Each repetition of an utterance is augmented in its own way.
        """
        weights = None if self._weights is None else self._weights[draws % len(self._records)]
        if share is None:
            return dataclasses.replace(self._pad(self._read(draws, epoch)), weights=weights)

        # One worker reads the whole batch; others read the rows of their own devices.
        least = self.batch_size if self.shapes else 0
        if share.count == share.total and len(draws) >= least:
            return dataclasses.replace(self._pad(self._read(draws, epoch), self.shapes), weights=weights)

        places = share.places(len(draws), least)

        # A place beyond the last row repeats a row, which is read once.
        unique_draws, row_of_draw = np.unique(draws[places % len(draws)], return_inverse=True)
        examples = self._read(unique_draws, epoch)
        batch = self._pad([examples[index] for index in row_of_draw.tolist()], self.shapes)
        records = [self._records[draw % len(self._records)] for draw in draws.tolist()]
        ids = [record.id for record in records]
        texts = [record.text for record in records]

        return dataclasses.replace(batch, ids=ids, texts=texts, places=places, weights=weights)

    def _pad(self, examples: list[Example], buckets: Sequence[tuple[int, int]] = ()) -> Batch:
        batch = Batch.of(examples, buckets)
        if not self._speaker_rows:
            return batch
        return dataclasses.replace(
            batch, speakers=np.array([self._speaker_rows[example.speaker] for example in examples], np.int32)
        )

    def _read(self, draws: npt.NDArray[np.int64], epoch: int) -> list[Example]:
        examples = []
        for draw in draws.tolist():
            row = draw % len(self._records)
            example = self._example(row)
            record = self._records[row]
            if self.augment is not None:
                # The seed names epoch and draw, so that any worker augments it alike.
                random = np.random.default_rng([self.seed, epoch, draw])
                example = dataclasses.replace(
                    example, features=self.augment(example.features, record.min_frames, random)
                )
            examples.append(example)
        return examples

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        """The records of a split, by speed and then by a hash of the id, which mixes speakers and lengths."""
        # Each name is in memory once, however many rows have it.
        names: dict[str, str] = {}
        rows = [_PlannedRow.of(row, names) for row in dataset.rows() if row.split == split]
        rows.sort(key=mixed_order)
        locations = dataset.read_record_locations()
        alphabet = dataset.alphabet
        stride = self.time_stride
        first = self.window_frames - 2 * self.padding

        # Sped-up copies are columns of the table of locations; they have fewer frames for the same labels.
        needed = [_count_needed(alphabet.encode(row.text), stride, first) for row in rows]
        for column in range(len(dataset.speeds)):
            for row, (count, minimum) in zip(rows, needed, strict=True):
                shard, offset, size, frames = locations[row.number, column].item()
                if shard >= 0:
                    place = (shard, offset, size, frames)
                    yield Record(row.id, row.text, row.speaker, *place, count, minimum, row.corpus, row.is_draft)

    def _weigh_drafts(self, split: str, weight: float | None) -> Array | None:
        """What each record counts in the loss, float32 [records]; None if all of them count 1."""
        drafts = [record.id for record in self._records if record.is_draft]
        if not drafts:
            return None

        if split != "train" or weight is None:
            problem = (
                "drafts are trained on, and nothing is judged by them"
                if split != "train"
                else ("drafts train recognizers alone, which weigh them (train.pseudo_weight)")
            )
            raise WorkError(
                f"train: {len(drafts):,} utterances of {split} have a text that a model wrote, such as {drafts[0]}: "
                f"{problem}; leave them out of the corpus, and run ingest again"
            )
        return np.array([weight if record.is_draft else 1.0 for record in self._records], np.float32)

    def _weigh_corpora(self, weights: Mapping[str, float]) -> list["_DrawnCorpus"]:
        corpora = np.array([record.corpus if record.corpus in weights else "" for record in self._records], object)
        return [
            _DrawnCorpus(name, np.flatnonzero(corpora == name), weights[name] if name else 1.0, self.seed)
            for name in sorted({"", *weights})
        ]

    def frames(self, row: int) -> int:
        """Counts the feature frames of an utterance."""
        return self._records[row].frames

    def features(self, row: int) -> Array:
        """Reads the features of an utterance, float32 [frames, bins], and verifies their checksum the first time."""
        record = self._records[row]
        path = self._paths[record.file]
        verified = bool(self._verified[row])
        features = read_features(
            self._files[record.file], record.offset, record.size, path, self.bins, verify=not verified
        )
        if not verified and len(features) != record.frames:
            raise WorkError(
                f"{path}: the record at byte {record.offset:,} has {len(features):,} frames, {record.id} has "
                f"{record.frames:,}; run extract again"
            )

        self._verified[row] = True
        return features

    def _example(self, row: int) -> Example:
        record = self._records[row]
        features = self.features(row) if self.encodings is None else self.encodings[row]
        labels = np.array(self._alphabet.encode(record.text), np.int32)
        return Example(record.id, record.text, record.speaker, features, labels)


class _DrawnCorpus:
    """Draws rows for each epoch: as many in each epoch, and over the epochs each row equally often, give or take one.

    With n rows and k draws in an epoch, a row of rank r (a shuffle by the seed) is drawn in epoch e as often as a
    multiple of n is in (e·k + r, (e + 1)·k + r]. This is systematic sampling (Madow & Madow 1944); by Hermite's
    identity the counts of all rows sum to k. With a weight of 1, k = n and each row is drawn once.
    """

    def __init__(self, name: str, rows: npt.NDArray[np.int64], weight: float, seed: int) -> None:
        """
        Args:
          weight: draws of each row in an epoch, on average; at least one row is drawn unless it is 0.
        """
        self.name = name
        self.rows = rows
        self.draws = max(round(weight * len(rows)), 1) if weight and len(rows) else 0

        # The shuffle of a corpus does not depend on the other corpora.
        salt = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
        self._ranks = np.random.default_rng([seed, salt]).permutation(len(rows))

    def draw(self, epoch: int, repetition: int) -> npt.NDArray[np.int64]:
        """The rows that an epoch draws; each repetition of a row is `repetition` more than the one before."""
        if not self.draws:
            return np.zeros(0, np.int64)
        count = len(self.rows)

        # Multiples of `count` in (e·k + r, (e + 1)·k + r], for each rank r.
        draws_of_rows = ((epoch + 1) * self.draws + self._ranks) // count - (epoch * self.draws + self._ranks) // count
        first_draw = np.repeat(np.cumsum(draws_of_rows) - draws_of_rows, draws_of_rows)  # of each row's draws among all
        rows: npt.NDArray[np.int64] = np.repeat(self.rows, draws_of_rows)
        rows += (np.arange(self.draws) - first_draw) * repetition
        return rows


class _PlannedRow(NamedTuple):
    """What planning needs of a row, in half of its memory: those of a split are in memory together."""

    number: int
    id: str
    text: str
    speaker: str
    corpus: str
    is_draft: bool

    @classmethod
    def of(cls, row: DatasetRow, names: dict[str, str]) -> "_PlannedRow":
        """Keeps what planning needs; equal speakers and corpora share the strings in `names`."""
        corpus = str(row.extra.get("corpus", ""))
        speaker = names.setdefault(row.speaker, row.speaker)
        return cls(row.number, row.id, row.text, speaker, names.setdefault(corpus, corpus), is_draft(row.extra))


def mixed_order(row: DatasetRow | _PlannedRow) -> tuple[bytes, str]:
    """A key that sorts rows by a hash of their id."""
    return hashlib.blake2b(row.id.encode(), digest_size=8).digest(), row.id


def _count_needed(labels: Sequence[int], time_stride: int, first: int) -> tuple[int, int]:
    """Counts labels, and the fewest feature frames whose output frames suffice for CTC.

    Args:
      first: feature frames that the first output frame needs; models give one output frame to any utterance.
    """
    needed = min_ctc_frames(labels) if time_stride else 1
    return len(labels), max((needed - 1) * time_stride + first, 1) if needed > 1 else 1


def padded_length(length: int) -> int:
    """The least of `LENGTHS` that is no shorter; a length beyond all of them stays.

    >>> [padded_length(length) for length in (1, 64, 65, 130, 1_000_000)]
    [8, 64, 72, 144, 1000000]
    """
    place = int(np.searchsorted(LENGTHS, length))
    return int(LENGTHS[place]) if place < len(LENGTHS) else length


def choose_buckets(
    sizes: Sequence[tuple[int, int]], count: int, longer: float = 0.0, more_frames: int = 0
) -> list[tuple[int, int]]:
    """Chooses up to `count` static shapes (frames, labels), ascending, into which utterances of the given sizes fit.

    The bounds part the utterances into groups of the same number by their frames; the last one leaves room for
    utterances that augmentation lengthens by a share of up to `longer` and by `more_frames`.

    >>> choose_buckets([(10, 3), (20, 2), (30, 9), (41, 5)], 2), choose_buckets([(10, 3), (20, 2)], 1, longer=0.25)
    ([(24, 3), (48, 9)], [(32, 3)])
    """

    # Quantiles of the frames part the utterances; labels are the most of each part.
    frames = np.array([size[0] for size in sizes])
    labels = np.array([size[1] for size in sizes])
    bounds = np.quantile(frames, np.arange(1, count + 1) / count, method="inverted_cdf")
    bounds[-1] = np.ceil(bounds[-1] * (1 + longer)) + more_frames
    rounded = np.unique(-(-bounds.astype(int) // BUCKET_FRAMES) * BUCKET_FRAMES)

    return [(int(bound), max(int(labels[frames <= bound].max()), 1)) for bound in rounded]

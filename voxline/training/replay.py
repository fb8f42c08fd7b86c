"""Replay: after a warm start an epoch has what is new, and a share of what the model was trained on before.

Experience replay (Robins 1995, "Catastrophic forgetting, rehearsal and pseudorehearsal"): without it a network forgets
what it is no longer trained on. The parent's list of training data says what it was trained on. Today's dataset has
some of that; the datasets of the ancestors, if the store still has them, may have more: a part of the corpus that
today's run leaves out. docs/decisions/0063-warm-start.md
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.data.dataset import Dataset, Shard
from voxline.data.rows import ROWS_FILE, DatasetRow, encode_row
from voxline.progress import print_status
from voxline.registry.parents import Parent, ancestors_of
from voxline.registry.training_data import content_of_line, content_of_row
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_file, hash_value

if TYPE_CHECKING:
    from voxline.data.record_locations import RecordLocations

SEEN = "seen before"
"""Ends the name of the corpus of replayed utterances, by which `Batches` draws them."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """What the epochs after a warm start are made of.

    Attributes:
      dataset: today's.
      share: of an epoch's draws, those that the parent was trained on.
      heard: numbers of today's training rows that it was trained on.
      earlier: datasets of ancestors, each with the numbers of its rows that today's dataset does not have.
    """

    dataset: Dataset
    share: float
    heard: frozenset[int]
    earlier: Sequence[tuple[Dataset, frozenset[int]]]

    def inputs(self) -> str:
        """For the step's key: a purge may change what is replayed."""
        return hash_value(
            [self.share, sorted(self.heard), [[one.rows_hash, sorted(rows)] for one, rows in self.earlier]]
        )

    def write(self, folder: Path, weights: Mapping[str, float]) -> tuple[Dataset, dict[str, float]]:
        """Writes a dataset of today's rows and earlier ones, which refers to the shards of all.

        Args:
          weights: of today's corpora.

        Returns:
          the dataset, and the weights of its corpora.
        """
        import numpy as np

        from voxline.data.record_locations import write_record_locations

        folder.mkdir(parents=True, exist_ok=True)
        shards: list[Shard] = []
        locations: list[RecordLocations] = []
        new = replayed = 0.0
        corpora: set[str] = set()
        with atomic_write(folder / ROWS_FILE, "w") as file:
            for dataset, rows in [(self.dataset, None), *self.earlier]:
                of_dataset = dataset.read_record_locations()
                chosen = []
                for row in dataset.rows():
                    if rows is not None and row.number not in rows:
                        continue
                    corpus = str(row.extra.get("corpus", ""))
                    before = row.split == "train" and (rows is not None or row.number in self.heard)
                    if before:
                        corpora.add(corpus)
                        replayed += weights.get(corpus, 1.0)
                    elif row.split == "train":
                        new += weights.get(corpus, 1.0)
                    file.write(_encode(row, _name(corpus) if before else corpus))
                    chosen.append(row.number)
                locations.append(_columns(of_dataset[chosen], dataset.speeds, self.dataset.speeds, len(shards)))
                shards += [dataclasses.replace(one, path=str(dataset.file(one))) for one in dataset.shards]
        wanted = self.share / (1 - self.share) * new
        times = wanted / replayed if replayed else 0.0
        merged = dataclasses.replace(
            self.dataset,
            shards=shards,
            folder=folder.absolute(),
            rows_hash=hash_file(folder / ROWS_FILE),
            record_locations_file=write_record_locations(folder, np.concatenate(locations)),
        )
        return merged, {**weights, **{_name(one): times * weights.get(one, 1.0) for one in corpora}}


def plan_replay(dataset: Dataset, parent: Parent, share: float, store: Path | str) -> Replay | None:
    """What the epochs are made of; None where they are today's training split as it is.

    Args:
      share: `train.start.replay`.
      store: that may still have the datasets of the parent and its ancestors.
    """
    if share >= 1 or parent.training_data is None:
        return None
    lines = {content_of_line(line): line["split"] for line in parent.training_data.utterances}
    today = {content_of_row(row): row for row in dataset.rows() if row.split in ("train", "dev")}
    heard = frozenset(row.number for key, row in today.items() if row.split == "train" and key in lines)
    if len(heard) == sum(row.split == "train" for row in today.values()):
        print_status(f"train: {parent.label} was trained on all of the training split; each epoch has all of it")
        return None
    # What today's corpus says of a recording replaces what was said of it: its text, its speaker, its split.
    recordings = {content_of_row(row)[:2] for row in dataset.rows()}
    gone = {key for key in lines if key[:2] not in recordings}
    earlier = _find_earlier(dataset, parent, gone, store) if share and gone else []
    return Replay(dataset, share, heard, earlier) if heard or earlier else None


def _find_earlier(
    dataset: Dataset, parent: Parent, gone: set[Any], store: Path | str
) -> list[tuple[Dataset, frozenset[int]]]:
    found, left = [], set(gone)
    for ancestor in (parent.ancestor, *ancestors_of(parent.about)):
        other = ancestor.open_dataset(store) if left else None
        if other is None or other.features != dataset.features or other.frontend != dataset.frontend:
            continue
        rows = {content_of_row(row): row for row in other.rows() if row.split in ("train", "dev")}
        chosen = {key: row for key, row in rows.items() if key in left and not dataset.alphabet.unknown(row.text)}
        if chosen:
            found.append((other, frozenset(row.number for row in chosen.values())))
            left -= chosen.keys()
    if left:
        print_status(
            f"train: {len(left):,} of the utterances that {parent.label} was trained on are neither in today's dataset "
            f"nor, in its features and alphabet, in {store}; they are not replayed"
        )
    return found


def _name(corpus: str) -> str:
    return f"{corpus}, {SEEN}".lstrip(", ")


def _encode(row: DatasetRow, corpus: str) -> str:
    values = {name: getattr(row, name) for name in DatasetRow.__slots__ if name not in ("number", "extra")}
    return encode_row({**values, **row.extra, **({"corpus": corpus} if corpus else {})})


def _columns(
    locations: "RecordLocations", speeds: Sequence[float], wanted: Sequence[float], first: int
) -> "RecordLocations":
    """The locations at the wanted speeds, with the numbers of the shards from `first` on; a speed may be absent."""
    import numpy as np

    result = np.zeros((len(locations), len(wanted)), locations.dtype)
    result["shard"] = -1
    for column, speed in enumerate(wanted):
        if speed in speeds:
            result[:, column] = locations[:, list(speeds).index(speed)]
    result["shard"][result["shard"] >= 0] += first
    return result

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
    """Utterances of the epochs after a warm start.

    Attributes:
      dataset: today's.
      share: of an epoch's draws, those that the parent was trained on.
      seen: numbers of today's training rows that it was trained on.
      earlier: datasets of ancestors, each with the numbers of its rows that today's dataset does not have.
    """

    dataset: Dataset
    share: float
    seen: frozenset[int]
    earlier: Sequence[tuple[Dataset, frozenset[int]]]

    def inputs(self) -> str:
        """Hash for the step's key: a purge may change what is replayed."""
        return hash_value(
            [self.share, sorted(self.seen), [[dataset.rows_hash, sorted(rows)] for dataset, rows in self.earlier]]
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

        # One list of rows and one table of locations; the shards stay where they are.
        folder.mkdir(parents=True, exist_ok=True)
        shards: list[Shard] = []
        locations: list[RecordLocations] = []
        new = replayed = 0.0
        corpora: set[str] = set()
        with atomic_write(folder / ROWS_FILE, "w") as file:
            for dataset, rows in [(self.dataset, None), *self.earlier]:
                all_locations = dataset.read_record_locations()
                rows_of_dataset = []
                for row in dataset.rows():
                    if rows is not None and row.number not in rows:
                        continue
                    corpus = str(row.extra.get("corpus", ""))

                    # Utterances that the parent was trained on make a corpus of their own, with its own weight.
                    is_replayed = row.split == "train" and (rows is not None or row.number in self.seen)
                    if is_replayed:
                        corpora.add(corpus)
                        replayed += weights.get(corpus, 1.0)
                    elif row.split == "train":
                        new += weights.get(corpus, 1.0)
                    file.write(_encode(row, _name(corpus) if is_replayed else corpus))
                    rows_of_dataset.append(row.number)
                locations.append(
                    _columns(all_locations[rows_of_dataset], dataset.speeds, self.dataset.speeds, len(shards))
                )
                shards += [dataclasses.replace(shard, path=str(dataset.file(shard))) for shard in dataset.shards]

        # share = replayed / (replayed + new), solved for the draws of a replayed row.
        target_draws = self.share / (1 - self.share) * new
        draws_a_row = target_draws / replayed if replayed else 0.0
        merged = dataclasses.replace(
            self.dataset,
            shards=shards,
            folder=folder.absolute(),
            rows_hash=hash_file(folder / ROWS_FILE),
            record_locations_file=write_record_locations(folder, np.concatenate(locations)),
        )

        return merged, {**weights, **{_name(shard): draws_a_row * weights.get(shard, 1.0) for shard in corpora}}


def plan_replay(dataset: Dataset, parent: Parent, share: float, store: Path | str) -> Replay | None:
    """Plans the epochs after a warm start; None where they are today's training split as it is.

    Args:
      share: `train.start.replay`.
      store: that may still have the datasets of the parent and its ancestors.
    """
    if share >= 1 or parent.training_data is None:
        return None

    # Rows are compared by content, not by id: ids of another run may differ.
    lines = {content_of_line(line): line["split"] for line in parent.training_data.utterances}
    today = {content_of_row(row): row for row in dataset.rows() if row.split in ("train", "dev")}
    seen = frozenset(row.number for key, row in today.items() if row.split == "train" and key in lines)
    if len(seen) == sum(row.split == "train" for row in today.values()):
        print_status(f"train: {parent.label} was trained on all of the training split; each epoch has all of it")
        return None

    # Today's text, speaker and split of a recording replace the earlier ones.
    recordings = {content_of_row(row)[:2] for row in dataset.rows()}
    absent = {key for key in lines if key[:2] not in recordings}
    earlier = _find_earlier(dataset, parent, absent, store) if share and absent else []

    return Replay(dataset, share, seen, earlier) if seen or earlier else None


def _find_earlier(
    dataset: Dataset, parent: Parent, absent: set[Any], store: Path | str
) -> list[tuple[Dataset, frozenset[int]]]:
    earlier = []
    remaining = set(absent)

    # The nearest ancestor first: its features and alphabet are most like today's.
    for ancestor in (parent.ancestor, *ancestors_of(parent.info)):
        other = ancestor.open_dataset(store) if remaining else None
        if other is None or other.features != dataset.features or other.frontend != dataset.frontend:
            continue
        rows = {content_of_row(row): row for row in other.rows() if row.split in ("train", "dev")}
        replayable = {
            key: row for key, row in rows.items() if key in remaining and not dataset.alphabet.unknown(row.text)
        }
        if replayable:
            earlier.append((other, frozenset(row.number for row in replayable.values())))
            remaining -= replayable.keys()

    if remaining:
        print_status(
            f"train: {len(remaining):,} of the utterances that {parent.label} was trained on are neither in today's "
            f"dataset nor, in its features and alphabet, in {store}; they are not replayed"
        )

    return earlier


def _name(corpus: str) -> str:
    return f"{corpus}, {SEEN}".lstrip(", ")


def _encode(row: DatasetRow, corpus: str) -> str:
    values = {name: getattr(row, name) for name in DatasetRow.__slots__ if name not in ("number", "extra")}
    return encode_row({**values, **row.extra, **({"corpus": corpus} if corpus else {})})


def _columns(
    locations: "RecordLocations", speeds: Sequence[float], target_speeds: Sequence[float], first: int
) -> "RecordLocations":
    """Locations at the target speeds, with the numbers of the shards from `first` on; a speed may be absent."""
    import numpy as np

    result = np.zeros((len(locations), len(target_speeds)), locations.dtype)
    result["shard"] = -1
    for column, speed in enumerate(target_speeds):
        if speed in speeds:
            result[:, column] = locations[:, list(speeds).index(speed)]
    result["shard"][result["shard"] >= 0] += first
    return result

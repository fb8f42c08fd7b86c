"""A dataset: rows that say what it holds, shards that hold the features, and where in them each row's lie.

  dataset.json       how features were made, their statistics, counts, the list of shards with checksums
  rows.jsonl         an utterance a line, sorted by id (voxline/data/rows.py)
  places-<hash>.npy  int64 [rows, speeds, 4]: the number of a shard in dataset.json's list, the byte at which the
                     record begins, the bytes of its data, its frames; shard -1 where a row has no such copy

Shards are shared with other datasets and hold clips that are none of this one's: an utterance that is not among the
rows is never read. So the rows are the content, and places only say where it happens to lie.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.rows import ROWS_FILE, DatasetRow, read_rows
from voxline.data.shards import REBUILD_SHARD_HINT, localize_shards, verify_shard
from voxline.errors import WorkError
from voxline.store.bucket_cache import ensure_local, is_cached, local_path, localize, uri_of
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_file
from voxline.store.objects import is_remote
from voxline.text.alphabet import Alphabet
from voxline.text.settings import FrontendSettings

if TYPE_CHECKING:
    from voxline.data.record_locations import RecordLocations


DATASET_FILE = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
      path: relative to dataset.json, or in a bucket.
      examples, bytes: of all that it holds, of this dataset or not.
      live: records of this dataset, and `live_bytes` theirs.
      checksum: hash of the file's bytes.
    """

    path: str
    examples: int
    bytes: int
    live: int
    live_bytes: int
    checksum: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """What extract hands to train.

    Attributes:
      key: names it by its input; stands in the model's provenance.
      fingerprint: of the utterances that went in.
      features: how its features were made; a model's front end repeats it.
      alphabet: what its labels index.
      frontend: the settings of `voxline.text.frontend`, as plain values.
      mean, deviation: per bin, float, over the training split as it is (no sped-up copies).
      counts: utterances by split, without sped-up copies.
      shards: in the order that places count them.
      speeds: of the copies of training utterances, 1.0 among them.
      rows_hash: of rows.jsonl; the same for the same content.
      places: the file of places.
      folder: where it lies; not written.
    """

    key: str
    fingerprint: str
    features: FeatureSettings
    alphabet: Alphabet
    mean: list[float]
    deviation: list[float]
    counts: dict[str, int]
    seconds: dict[str, float]
    shards: list[Shard]
    speeds: list[float] = dataclasses.field(default_factory=lambda: [1.0])
    rows_hash: str = ""
    places: str = ""
    folder: Path = Path()
    frontend: dict[str, Any] = dataclasses.field(default_factory=lambda: FrontendSettings().plain())

    def rows(self) -> Iterator[DatasetRow]:
        """Every utterance, by id.

        Raises:
          WorkError: the file is not the one that dataset.json names.
        """
        if hash_file(self.folder / ROWS_FILE) != self.rows_hash:
            raise WorkError(
                f"{self.folder / ROWS_FILE}: damaged, not what {DATASET_FILE} beside it names; {_AGAIN} "
                "(where a purge has just changed this version, start again)"
            )
        return read_rows(self.folder / ROWS_FILE)

    def read_record_locations(self) -> "RecordLocations":
        """Where the features of each row are, `[rows, speeds]`; see `voxline.data.rows.RECORD_LOCATION`.

        Raises:
          WorkError: the file is absent, or not the one that dataset.json names.
        """
        from voxline.data.record_locations import read_record_locations

        return read_record_locations(self.folder, self.places)

    def file(self, shard: Shard) -> Path:
        """Where the file of a shard lies on this machine; `localize_shards` makes sure that it does."""
        if is_remote(shard.path):
            return local_path(shard.path)
        return Path(os.path.normpath(self.folder / shard.path))

    def files(self) -> list[Path]:
        return [self.file(shard) for shard in self.shards]

    def write(self, folder: Path) -> None:
        """Writes `dataset.json`, after whose appearance the dataset is there."""
        write_json(
            folder / DATASET_FILE,
            {
                "key": self.key,
                "fingerprint": self.fingerprint,
                "features": self.features.plain(),
                "alphabet": self.alphabet.symbols,
                "frontend": self.frontend,
                "mean": self.mean,
                "deviation": self.deviation,
                "counts": self.counts,
                "seconds": self.seconds,
                "speeds": self.speeds,
                "rows": {"file": ROWS_FILE, "utterances": sum(self.counts.values()), "hash": self.rows_hash},
                "places": self.places,
                "shards": [dataclasses.asdict(shard) for shard in self.shards],
            },
        )

    def copy_to(self, folder: Path, seen_from: Path) -> None:
        """Writes the dataset, all but its shards, into another folder.

        Args:
          seen_from: where that folder will lie when it is read.
        """
        self.copy_rows(folder)
        shutil.copyfile(self.folder / self.places, folder / self.places)
        shards = [dataclasses.replace(shard, path=shard_path(self.file(shard), seen_from)) for shard in self.shards]
        dataclasses.replace(self, shards=shards, folder=folder).write(folder)

    def copy_rows(self, folder: Path) -> None:
        """Writes the rows into another folder."""
        shutil.copyfile(self.folder / ROWS_FILE, folder / ROWS_FILE)

    @classmethod
    def listed(cls, folder: Path | str) -> "Dataset":
        """What `dataset.json` in a folder says; nothing else is looked at.

        Raises:
          WorkError: there is none, or it is damaged.
        """
        folder = localize(folder).absolute()
        ensure_local([folder / DATASET_FILE])
        if not (folder / DATASET_FILE).is_file():
            raise WorkError(f"{folder}: no {DATASET_FILE} here; run extract first")
        try:
            values: dict[str, Any] = read_json(folder / DATASET_FILE)
            return cls(
                key=values["key"],
                fingerprint=values["fingerprint"],
                features=FeatureSettings.of(values["features"]),
                alphabet=Alphabet(values["alphabet"]),
                mean=values["mean"],
                deviation=values["deviation"],
                counts=values["counts"],
                seconds=values["seconds"],
                speeds=values["speeds"],
                shards=[Shard(**shard) for shard in values["shards"]],
                rows_hash=values["rows"]["hash"],
                places=values["places"],
                folder=folder,
                frontend=values["frontend"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{folder / DATASET_FILE}: damaged, or of another version ({error}); {_AGAIN}") from None

    @classmethod
    def read(cls, folder: Path | str, *, shards: bool = True) -> "Dataset":
        """Reads the dataset in a folder.

        Args:
          shards: whether they are wanted here too, where they lie in a bucket.

        Raises:
          WorkError: there is none, or what it lists is absent or can be seen to be damaged.
        """
        dataset = cls.listed(folder)
        folder = dataset.folder
        ensure_local([folder / ROWS_FILE, folder / dataset.places])
        for name in (ROWS_FILE, dataset.places):
            if not (folder / name).is_file():
                raise WorkError(f"{folder / name}: named in {DATASET_FILE} and absent; {_AGAIN}")
        if shards:
            localize_shards(dataset.files())
        for shard in dataset.shards:
            file = dataset.file(shard)
            if is_cached(file):
                here = not shards or (file.is_file() and file.stat().st_size == shard.bytes)
                damage = "" if here else f"{file}: absent or cut short"
            else:
                damage = verify_shard(file, shard.bytes)
            if damage:
                raise WorkError(f"{damage}, and {folder / DATASET_FILE} lists it; {REBUILD_SHARD_HINT}")
        return dataset


def shard_path(file: Path, seen_from: Path) -> str:
    """The path of a shard as a dataset in a folder tells it; between a bucket and a folder, its address.

    Raises:
      WorkError: nobody elsewhere could find it.
    """
    if is_cached(file) == is_cached(seen_from):
        return os.path.relpath(file, seen_from)
    if is_cached(file):
        return uri_of(file)
    raise WorkError(
        f"{file}: a dataset in a bucket cannot lead to shards on this machine; set `store` to a bucket too, or "
        "`datasets` to a folder"
    )


_AGAIN = "run extract again"

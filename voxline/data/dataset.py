"""A dataset: rows with the content, shards with the features, and the location of each row's features.

  dataset.json                 feature settings, normalization statistics, counts, the list of shards with checksums,
                               and its own hash
  rows.jsonl                   an utterance a line, sorted by id (voxline/data/rows.py)
  record-locations-<hash>.npy  the shard and the bytes of each row's features (voxline/data/record_locations.py)

Datasets share shards, so a shard also has clips of other datasets. Only utterances among the rows are ever read.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.manifest import Utterance, read_manifest
from voxline.data.rows import ROWS_FILE, DatasetRow, read_rows
from voxline.data.shards import REBUILD_SHARD_HINT, localize_shards, verify_shard
from voxline.errors import WorkError
from voxline.store.bucket_cache import is_cached, local_path, uri_of
from voxline.store.files import check_seal, read_json, seal_marker, write_json
from voxline.store.hashing import hash_file
from voxline.store.layout import WAVS
from voxline.store.localize import ensure_local, localize
from voxline.store.uris import is_remote
from voxline.text.alphabet import Alphabet
from voxline.text.settings import FrontendSettings

if TYPE_CHECKING:
    from voxline.data.record_locations import RecordLocations


DATASET_FILE = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
      path: relative to dataset.json, or a URI.
      examples, bytes: of the whole file.
      live, live_bytes: of the records that this dataset uses.
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
    """The content of `dataset.json`: what extract hands to train.

    Attributes:
      key: identifies the dataset by its input; part of a model's provenance.
      fingerprint: of the utterances that extract read.
      features: feature settings; a model's frontend repeats them.
      alphabet: the symbols that labels index.
      frontend: settings of the text frontend (`voxline.text.frontend`), as plain values.
      mean, deviation: of each bin, over the training split without sped-up copies.
      counts, seconds: of each split, without sped-up copies.
      shards: in the order of their numbers in the record locations.
      speeds: of the copies of training utterances; 1.0 is one of them.
      rows_hash: of rows.jsonl; equal content has an equal hash.
      record_locations_file: name of the file of record locations.
      folder: that it was read from; not written.
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
    record_locations_file: str = ""
    folder: Path = Path()
    frontend: dict[str, Any] = dataclasses.field(default_factory=lambda: FrontendSettings().plain())

    def rows(self) -> Iterator[DatasetRow]:
        """Yields every utterance, sorted by id.

        Raises:
          WorkError: rows.jsonl is not the file that dataset.json lists.
        """
        # The record locations refer to rows by number, so a row more or less would give features to other utterances.
        if hash_file(self.folder / ROWS_FILE) != self.rows_hash:
            raise WorkError(
                f"{self.folder / ROWS_FILE}: damaged, it is not the file that {DATASET_FILE} lists; {_RUN_AGAIN} "
                "(or only start again, if a purge has just changed this version)"
            )
        return read_rows(self.folder / ROWS_FILE)

    def utterances(self) -> Iterator[Utterance]:
        """Yields the rows as convert's manifest had them: with the WAVs in the store of the shards, unmeasured.

        Rows of texts alone have the empty path.

        Raises:
          WorkError: the rows are damaged.
        """
        wavs = self._wavs() if self.shards else ""
        for row in self.rows():
            file = f"{wavs}/{row.audio_hash[:2]}/{row.audio_hash}.wav" if self.shards else ""
            yield Utterance(
                row.id,
                file,
                row.duration,
                row.text,
                row.speaker,
                row.split,
                row.audio_hash,
                row.offset,
                extra=row.extra,
            )

    @property
    def is_text(self) -> bool:
        """Whether it has texts alone, without recordings and features."""
        return not self.shards and any(self.counts.values()) and not any(self.seconds.values())

    def _wavs(self) -> Path:
        """The pool of WAVs in the store of the shards."""
        # The records are in <store>/shards/<features>/<shard>/, so `parents[3]` is the store.
        return self.files()[0].parents[3] / WAVS

    def read_record_locations(self) -> "RecordLocations":
        """Reads where the features of each row are: `[rows, speeds]` of `RECORD_LOCATION` (record_locations.py).

        Raises:
          WorkError: the file is absent or damaged.
        """
        from voxline.data.record_locations import read_record_locations

        return read_record_locations(self.folder, self.record_locations_file)

    def file(self, shard: Shard) -> Path:
        """The path of a shard on this machine; `read` downloads it if it is in a bucket."""
        if is_remote(shard.path):
            return local_path(shard.path)
        return Path(os.path.normpath(os.path.join(self.folder, shard.path)))

    def files(self) -> list[Path]:
        return [self.file(shard) for shard in self.shards]

    def shard_store(self) -> str:
        """The store that holds the shards: a folder or a bucket URI."""
        return uri_of(self.files()[0].parents[3])

    def recordings(self, audio_hashes: Iterable[str], reader: str = "") -> list[Path]:
        """The WAVs of rows, in the store of the shards; downloaded if that is in a bucket. One may be absent.

        Args:
          audio_hashes: `DatasetRow.audio_hash` of each row.
          reader: the step that trains on them. They are compared with what convert wrote then.

        Raises:
          WorkError: some have changed since convert wrote them.
        """
        wavs = self._wavs()
        names = list(audio_hashes)

        # The pool spreads its WAVs over 256 folders by the first two digits of their names.
        files = [wavs / name[:2] / f"{name}.wav" for name in names]
        ensure_local(files)
        if reader:
            from voxline.data.recordings import refuse_changed_wavs

            refuse_changed_wavs(wavs, names, self.features.sample_rate, reader)
        return files

    def write(self, folder: Path) -> None:
        """Writes `dataset.json`. Write it last: it makes the dataset complete."""
        # With its own hash: no marker of a step vouches for a published version.
        values = seal_marker(
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
                "record_locations": self.record_locations_file,
                "shards": [vars(shard) for shard in self.shards],
            }
        )
        write_json(folder / DATASET_FILE, values)

    def copy_to(self, folder: Path, relative_to: Path) -> None:
        """Copies the dataset without its shards into another folder.

        Args:
          relative_to: the final path of that folder, from which the shards are found.
        """
        self.copy_rows(folder)
        shutil.copyfile(self.folder / self.record_locations_file, folder / self.record_locations_file)
        shards = [dataclasses.replace(shard, path=shard_path(self.file(shard), relative_to)) for shard in self.shards]
        dataclasses.replace(self, shards=shards, folder=folder).write(folder)

    def copy_rows(self, folder: Path) -> None:
        """Copies the rows into another folder."""
        shutil.copyfile(self.folder / ROWS_FILE, folder / ROWS_FILE)

    @classmethod
    def read_header(cls, folder: Path | str) -> "Dataset":
        """Reads only the `dataset.json` of a folder.

        Raises:
          WorkError: the file is absent or damaged.
        """
        folder = localize(folder).absolute()
        ensure_local([folder / DATASET_FILE])
        if not (folder / DATASET_FILE).is_file():
            # A user often gives the parent of the dataset: name the datasets that are in it.
            there = sorted(file.parent.name for file in folder.parent.glob(f"*/{DATASET_FILE}"))
            hint = f"there: {', '.join(there[:20])}" if there else "run extract first"
            raise WorkError(f"{folder}: no {DATASET_FILE} here; {hint}")
        try:
            values: dict[str, Any] = read_json(folder / DATASET_FILE)
            check_seal(values)
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
                record_locations_file=values["record_locations"],
                folder=folder,
                frontend=values["frontend"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(
                f"{folder / DATASET_FILE}: damaged, or of another version ({error}); {_RUN_AGAIN}"
            ) from None

    @classmethod
    def read(cls, folder: Path | str, *, shards: bool = True) -> "Dataset":
        """Reads the `dataset.json` of a folder and checks that the files that it lists exist.

        Args:
          shards: whether to download shards that are in a bucket.

        Raises:
          WorkError: the folder has no dataset, or a file is absent or damaged.
        """
        dataset = cls.read_header(folder)
        folder = dataset.folder

        # The small files come first: a dataset without its rows need not download gigabytes of shards.
        ensure_local([folder / ROWS_FILE, folder / dataset.record_locations_file])
        for name in (ROWS_FILE, dataset.record_locations_file):
            if not (folder / name).is_file():
                raise WorkError(f"{folder / name}: absent, and {DATASET_FILE} lists it; {_RUN_AGAIN}")
        if shards:
            localize_shards(dataset.files())
        for shard in dataset.shards:
            # A copy of a bucket's object was compared when it was downloaded, so its size is enough here.
            file = dataset.file(shard)
            if is_cached(file):
                here = not shards or (file.is_file() and file.stat().st_size == shard.bytes)
                damage = "" if here else f"{file}: absent or cut short"
            else:
                damage = verify_shard(file, shard.bytes)
            if damage:
                raise WorkError(f"{damage}, and {folder / DATASET_FILE} lists it; {REBUILD_SHARD_HINT}")
        return dataset


def read_utterances(path: Path | str) -> list[Utterance]:
    """The utterances of a manifest, or of a dataset's folder, such as a published version.

    Args:
      path: a manifest, or a folder with one, or a folder with `dataset.json`; on a disk or in a bucket.

    Raises:
      WorkError: there is neither, or a line is damaged.
    """
    folder = localize(path)
    if not (folder / DATASET_FILE).is_file():
        return read_manifest(folder)
    return list(Dataset.read(folder, shards=False).utterances())


def shard_path(file: Path, relative_to: Path) -> str:
    """The path under which a dataset in a folder lists a shard: relative, or a URI if only the shard is in a bucket.

    Raises:
      WorkError: the dataset is in a bucket and the shard is not.
    """
    # Both on a disk or both in a bucket: a relative path stays right when the whole tree moves.
    if is_cached(file) == is_cached(relative_to):
        return os.path.relpath(file, relative_to)
    if is_cached(file):
        return uri_of(file)
    raise WorkError(
        f"{file}: a dataset in a bucket cannot list shards on this machine; set `store` to a bucket too, or "
        "`datasets` to a folder"
    )


_RUN_AGAIN = "run extract again"

"""A dataset: immutable TFRecord shards of utterances, and `dataset.json`, which lists them.

Each record is a `tf.train.Example`; numbers are raw little-endian bytes, since `float_list` encodes
forty times slower than `bytes_list`:
  id        bytes   UTF-8
  text      bytes   UTF-8, normalised
  speaker   bytes   UTF-8
  features  bytes   float32 [frames, bins]
  frames    int64
  labels    bytes   int32 [labels], indices into the alphabet
  speed     float   1.0; other where the audio was sped up or slowed down to augment
"""

import dataclasses
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.feature_settings import FeatureSettings
from components.speech.reading.settings import ReadingSettings
from components.speech.storage import read_json, write_json
from components.speech.text import Alphabet

DATASET = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records, all of one split.

    Attributes:
      path: relative to dataset.json.
      frames: of all its examples together.
      checksum: hash of the file's bytes.
    """

    path: str
    split: str
    examples: int
    frames: int
    bytes: int
    checksum: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """What extract hands to train.

    Attributes:
      key: names it by its input; stands in the model's provenance.
      fingerprint: of the utterances that went in.
      features: how its features were made; a model's front end repeats it.
      alphabet: what its labels index.
      reading: how its text was read; the settings of `components.speech.reading`, as plain values.
      mean, deviation: per bin, float, over the training split as it is (no sped-up copies).
      counts: utterances by split, without sped-up copies.
      shards: in a fixed order.
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
    folder: Path = Path()
    reading: dict[str, Any] = dataclasses.field(default_factory=lambda: ReadingSettings().plain())

    def files(self, split: str) -> list[Path]:
        return [self.folder / shard.path for shard in self.shards if shard.split == split]

    def write(self, folder: Path) -> None:
        write_json(
            folder / DATASET,
            {
                "key": self.key,
                "fingerprint": self.fingerprint,
                "features": self.features.plain(),
                "alphabet": self.alphabet.symbols,
                "reading": self.reading,
                "mean": self.mean,
                "deviation": self.deviation,
                "counts": self.counts,
                "seconds": self.seconds,
                "shards": [dataclasses.asdict(shard) for shard in self.shards],
            },
        )

    @classmethod
    def read(cls, folder: Path | str) -> "Dataset":
        """Reads `dataset.json` in a folder.

        Raises:
          WorkError: there is none, or a shard that it lists is absent or of another size.
        """
        folder = Path(folder).absolute()
        if not (folder / DATASET).is_file():
            raise WorkError(f"{folder}: no {DATASET} here; run extract first")
        values: dict[str, Any] = read_json(folder / DATASET)
        dataset = cls(
            key=values["key"],
            fingerprint=values["fingerprint"],
            features=FeatureSettings.of(values["features"]),
            alphabet=Alphabet(values["alphabet"]),
            mean=values["mean"],
            deviation=values["deviation"],
            counts=values["counts"],
            seconds=values["seconds"],
            shards=[Shard(**shard) for shard in values["shards"]],
            folder=folder,
            # Datasets from before there was a choice were all read as transcripts.
            reading=values.get("reading", ReadingSettings().plain()),
        )
        for shard in dataset.shards:
            file = folder / shard.path
            if not file.is_file() or file.stat().st_size != shard.bytes:
                raise WorkError(f"{file}: listed in {DATASET} and absent or cut short; run extract again")
        return dataset

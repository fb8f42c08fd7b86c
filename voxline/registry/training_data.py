"""What a model was trained on: an utterance a line, kept beside the model for when the dataset is long gone.

  trained_on.jsonl.gz
    {"dataset": "2f06…", "rows": "81c4…", "utterances": 3870, "purged": 0}
    {"id": "1988-0000", "split": "train", "speaker": "1988", "audio_hash": "9f…", "offset": 0.0, "duration": 3.2,
     "text_hash": "07…"}

It holds the training split and dev, which chose among the weights; test is not seen in training. Lines are sorted by
id, and the same rows give the same bytes. It names people, so a purge takes their lines out and counts them.
"""

import dataclasses
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import WorkError
from voxline.store.files import whole_file
from voxline.store.hashing import hash_bytes

if TYPE_CHECKING:  # who only wants to know what a registry holds imports no numpy
    from voxline.data.dataset import Dataset


TRAINED_ON = "trained_on.jsonl.gz"
SPLITS = ("train", "dev")


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The utterances of a training.

    Attributes:
      dataset: its key.
      rows: the hash of its rows.
      purged: utterances that a purge has taken out of this list since; the model has seen them all the same.
      utterances: the lines.
    """

    dataset: str
    rows: str
    purged: int
    utterances: list[dict[str, Any]]

    def of_speaker(self, speaker: str) -> list[dict[str, Any]]:
        return [line for line in self.utterances if line["speaker"] == speaker]

    def without(self, speaker: str) -> "TrainingData":
        """The same without the lines of a speaker, who are counted."""
        kept = [line for line in self.utterances if line["speaker"] != speaker]
        gone = len(self.utterances) - len(kept)
        return dataclasses.replace(self, utterances=kept, purged=self.purged + gone)

    def write(self, file: Path) -> None:
        """Writes it, whole or not at all."""
        head = {
            "dataset": self.dataset,
            "rows": self.rows,
            "utterances": len(self.utterances),
            "purged": self.purged,
        }
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as lines:  # no name and no time: the same bytes again
            for line in (head, *self.utterances):
                lines.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        with whole_file(file) as target:
            target.write(packed.getvalue())


def training_data_of(dataset: "Dataset") -> TrainingData:
    """What a training on a dataset sees."""
    lines = [
        {
            "id": row.id,
            "split": row.split,
            "speaker": row.speaker,
            "audio_hash": row.audio_hash,
            "offset": row.offset,
            "duration": row.duration,
            "text_hash": hash_bytes(row.text.encode()),
        }
        for row in dataset.rows()
        if row.split in SPLITS
    ]
    return TrainingData(dataset.key, dataset.rows_hash, 0, lines)


def read_training_data(data: bytes, where: str) -> TrainingData:
    """Reads the file's bytes; `where` names it to a person.

    Raises:
      WorkError: it is damaged.
    """
    try:
        head, *lines = map(json.loads, _lines(data))
        if len(lines) != head["utterances"]:
            raise ValueError(f"{len(lines):,} of {head['utterances']:,} utterances")
        return TrainingData(head["dataset"], head["rows"], head["purged"], lines)
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise WorkError(f"{where}: damaged ({error}); push the model again, and the new version has it") from None


def _lines(data: bytes) -> Iterable[bytes]:
    return gzip.decompress(data).splitlines()

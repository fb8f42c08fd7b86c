"""The training data of a model: one line per utterance, stored next to the model so that it outlives the dataset.

  trained_on.jsonl.gz
    {"dataset": "2f06…", "rows": "81c4…", "utterances": 3870, "purged": 0}
    {"id": "1988-0000", "split": "train", "speaker": "1988", "audio_hash": "9f…", "offset": 0.0, "duration": 3.2,
     "text_hash": "07…"}

The file lists the train split and the dev split, which chose among the weights. Training never sees the test split.
A model that started from another one also lists what its ancestors were trained on, with `"inherited": true` where its
own dataset does not have it: it knows these utterances through their weights. Of a draft, `drafted_by` names the model
that wrote the transcript.
Lines are sorted by id, and the same rows give the same bytes. The file names people: a purge removes their lines and
counts them.
"""

import dataclasses
import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.data.drafts import DRAFTED_BY, is_draft
from voxline.errors import WorkError
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_bytes
from voxline.store.size_limits import unpack_bounded

if TYPE_CHECKING:  # reading a registry must not import numpy
    from voxline.data.dataset import Dataset
    from voxline.data.rows import DatasetRow


TRAINED_ON = "trained_on.jsonl.gz"
SPLITS = ("train", "dev")
Content = tuple[str, float, float, str, str]
"""Recording, offset, duration, speaker and hash of the text: what a model was trained on, under any name."""
Recording = tuple[str, float]
"""The first two of `Content`: what was recorded, whatever a corpus says of it."""


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The utterances that a model was trained on.

    Attributes:
      dataset: the dataset's key.
      rows: hash of the dataset's rows.
      purged: utterances that a purge removed from this list. The model was trained on them all the same.
      utterances: the lines.
    """

    dataset: str
    rows: str
    purged: int
    utterances: list[dict[str, Any]]

    def of_speaker(self, speaker: str) -> list[dict[str, Any]]:
        return [line for line in self.utterances if line["speaker"] == speaker]

    def recordings(self) -> set[Recording]:
        """Those of the train split."""
        return {content_of_line(line)[:2] for line in self.utterances if line["split"] == "train"}

    def without(self, speaker: str) -> "TrainingData":
        """A copy without the lines of a speaker, which are added to `purged`."""
        utterances = [line for line in self.utterances if line["speaker"] != speaker]
        removed = len(self.utterances) - len(utterances)
        return dataclasses.replace(self, utterances=utterances, purged=self.purged + removed)

    def with_ancestors(self, parent: "TrainingData | None") -> "TrainingData":
        """A copy with the lines of the model that this one started from."""
        # By content, not by id: corpora name the same recording differently.
        own = {content_of_line(line) for line in self.utterances}
        inherited = [line for line in (parent.utterances if parent else []) if content_of_line(line) not in own]
        lines = [*self.utterances, *({**line, "inherited": True} for line in inherited)]
        return dataclasses.replace(
            self,
            utterances=sorted(lines, key=lambda line: str(line["id"])),
            # What a purge took from the list of the parent is in these weights too.
            purged=self.purged + (parent.purged if parent else 0),
        )

    def to_bytes(self) -> bytes:
        """The content of the file."""
        # The count is repeated in the head, so that a file that was cut is noticed.
        header = {
            "dataset": self.dataset,
            "rows": self.rows,
            "utterances": len(self.utterances),
            "purged": self.purged,
        }
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as lines:  # no name, no time: same lines, same bytes
            for line in (header, *self.utterances):
                lines.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return packed.getvalue()

    def write(self, path: Path) -> None:
        """Writes the file atomically."""
        with atomic_write(path) as file:
            file.write(self.to_bytes())


def content_of_line(line: dict[str, Any]) -> Content:
    # Without a hash of the audio, the id has to name the recording.
    return line["audio_hash"] or line["id"], line["offset"], line["duration"], line["speaker"], line["text_hash"]


def content_of_row(row: "DatasetRow") -> Content:
    text = hash_bytes(row.text.encode())
    return row.audio_hash or row.id, row.offset, row.duration, row.speaker, text


def training_data_of(dataset: "Dataset") -> TrainingData:
    """The training data of a model that trains on `dataset`."""
    lines = [
        {
            "id": row.id,
            "split": row.split,
            "speaker": row.speaker,
            "audio_hash": row.audio_hash,
            "offset": row.offset,
            "duration": row.duration,
            "text_hash": hash_bytes(row.text.encode()),
            # The transcript of a draft is a model's, which the weights have learned from too.
            **({DRAFTED_BY: row.extra[DRAFTED_BY]} if is_draft(row.extra) else {}),
        }
        for row in dataset.rows()
        if row.split in SPLITS
    ]
    return TrainingData(dataset.key, dataset.rows_hash, 0, lines)


def erased_utterances(data: bytes | None, source: str) -> int | None:
    """Counts the utterances that a model was trained on and that were erased since; None without a list.

    Args:
      data: of the file, of which only the head is read; None: it has none.
      source: names the file in error messages.

    Raises:
      WorkError: the file is damaged.
    """
    if data is None:
        return None
    try:
        return int(json.loads(unpack_bounded(data, source).partition(b"\n")[0])["purged"])
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise WorkError(f"{source}: damaged ({error}); push the model again to write it with a new version") from None


def listed_utterances(data: bytes, source: str) -> dict[str, int]:
    """Counts the utterances of each speaker in a list.

    Args:
      source: names the file in error messages.

    Raises:
      WorkError: the file is damaged.
    """
    return dict(Counter(str(line["speaker"]) for line in read_training_data(data, source).utterances))


def read_training_data(data: bytes, source: str) -> TrainingData:
    """Parses the bytes of the file.

    Args:
      source: names the file in error messages.

    Raises:
      WorkError: the file is damaged.
    """
    try:
        # Bounded: the list comes with a model, which may be a stranger's.
        header, *lines = map(json.loads, unpack_bounded(data, source).splitlines())
        if len(lines) != header["utterances"]:
            raise ValueError(f"{len(lines):,} of {header['utterances']:,} utterances")
        return TrainingData(header["dataset"], header["rows"], header["purged"], lines)
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise WorkError(f"{source}: damaged ({error}); push the model again to write it with a new version") from None

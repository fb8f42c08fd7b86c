"""A manifest as the checks see it: columns of numbers in memory, and the rest where it stands.

Ids, transcripts and paths stay in the file. What is wrong with an utterance is told of few, and those are looked up.
"""

import collections
import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from voxline.components.validate.columns import Codes, Floats, HashColumn, RowIndices, StringColumn
from voxline.components.validate.settings import SPLITS
from voxline.components.validate.tally import MEASURED, ManifestTally, hash_text, split_words
from voxline.data.manifest import REJECTS_FILE, Utterance, manifest_path, parse_utterance, read_rejects
from voxline.errors import WorkError
from voxline.store.hashing import hash_value


def read_reject_counts(manifest: Path) -> tuple[dict[str, int] | None, str]:
    """What stands in the list of rejects beside a manifest: how many of each code, and what names them."""
    beside = manifest_path(manifest).parent / REJECTS_FILE
    if not beside.is_file():
        return None, ""
    rejects = read_rejects(beside)
    codes = collections.Counter(str(reject.reason) for reject in rejects).most_common()
    return dict(codes), hash_value(sorted([reject.id, str(reject.reason)] for reject in rejects))


CACHED_UTTERANCES = 4_096
"""Utterances that are kept once they were looked up."""


@dataclasses.dataclass
class CheckedCorpus:
    """The columns of a manifest.

    Attributes:
      file: the manifest.
      tally: of all of it.
      rejects: codes of the step before and how often; None where there is no list of them.
    """

    file: Path
    tally: ManifestTally
    rejects: dict[str, int] | None = None

    @classmethod
    def read(cls, manifest: Path, tally: ManifestTally | None = None) -> "CheckedCorpus":
        """Reads a manifest, or takes its tally from who has read it, and the rejects beside it."""
        file = manifest_path(manifest)
        return cls(file, tally or ManifestTally.of_piece(file), read_reject_counts(file)[0])

    def __len__(self) -> int:
        return len(self.tally)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Names the utterances."""
        return self.tally.fingerprint()

    def rows(self, *splits: str) -> RowIndices:
        """The rows of these splits, in the manifest's order."""
        return np.flatnonzero(np.isin(self.splits.codes, [self.splits.number(split) for split in splits]))

    @property
    def speakers(self) -> StringColumn:
        return self.tally.speakers

    @property
    def splits(self) -> StringColumn:
        return self.tally.splits

    @functools.cached_property
    def recordings(self) -> HashColumn:
        """What names the samples."""
        return HashColumn(self.tally.hashes("recordings"))

    @functools.cached_property
    def sentences(self) -> HashColumn:
        """What names the transcripts."""
        return HashColumn(self.tally.hashes("sentences"))

    @functools.cached_property
    def ids(self) -> HashColumn:
        return HashColumn(self.tally.hashes("ids"))

    @functools.cached_property
    def durations(self) -> Floats:
        """[utterances] seconds."""
        return np.frombuffer(self.tally.numbers["duration"], np.float32)

    @functools.cached_property
    def measured(self) -> dict[str, Floats]:
        """By name, [utterances]; NaN where the step before did not measure."""
        return {name: np.frombuffer(self.tally.numbers[name], np.float32) for name in MEASURED}

    @functools.cached_property
    def characters(self) -> Codes:
        """[utterances] characters in the transcript, spaces and punctuation not counted."""
        return np.frombuffer(self.tally.numbers["characters"], np.int32)

    @functools.cached_property
    def words(self) -> Codes:
        """[utterances] words in the transcript."""
        return np.frombuffer(self.tally.numbers["words"], np.int32)

    @functools.cached_property
    def labels(self) -> Codes:
        """[utterances] frames that CTC needs at least to spell the transcript."""
        return np.frombuffer(self.tally.numbers["labels"], np.int32)

    def characters_said(self, *splits: str) -> collections.Counter[str]:
        """How often each character stands in the transcripts of these splits, in order of appearance."""
        counts: collections.Counter[str] = collections.Counter()
        for split in splits:
            for piece, count in self.tally.said.get(split, {}).items():
                for character in piece:
                    counts[character] += count
        return +counts

    def words_said(self, *splits: str) -> collections.Counter[str]:
        """How often each word stands there."""
        counts: collections.Counter[str] = collections.Counter()
        for split in splits:
            for piece, count in self.tally.said.get(split, {}).items():
                for word in split_words(piece):
                    counts[word] += count
        return counts

    def present_splits(self) -> list[str]:
        """The splits that have utterances; train, dev and test first."""
        return sorted(self.splits.names, key=lambda split: (SPLITS.index(split) if split in SPLITS else 9, split))

    def utterance(self, row: int) -> Utterance:
        """One utterance, with what stands in its line."""
        if row not in self._looked_up:
            if len(self._looked_up) >= CACHED_UTTERANCES:
                self._looked_up.clear()
            ((_, self._looked_up[row]),) = self.utterances(np.array([row]))
        return self._looked_up[row]

    def utterances(self, rows: RowIndices) -> Iterator[tuple[int, Utterance]]:
        """The utterances of some rows with what stands in their lines, one after the other.

        Raises:
          WorkError: the manifest is not the one that was tallied any more.
        """
        folder, ids = os.path.abspath(self.file.parent), self.tally.hashes("ids")
        with open(self.file, "rb") as file:
            for row in map(int, rows):
                file.seek(self.tally.numbers["place"][row])
                line = file.readline().decode(errors="replace")
                found = parse_utterance(line, f"{self.file}:{row + 1}", folder)
                if hash_text(found.id) != int(ids[row]):
                    raise WorkError(f"{self.file}: changed while it was judged; run this again when it is written")
                yield row, found

    @functools.cached_property
    def _looked_up(self) -> dict[int, Utterance]:
        return {}

    @functools.cached_property
    def texts(self) -> StringColumn:
        """All transcripts in memory: TFX's data validation wants them."""
        texts = StringColumn()
        for _, utterance in self.utterances(np.arange(len(self))):
            texts.append(utterance.text)
        return texts

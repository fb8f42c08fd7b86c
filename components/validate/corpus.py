"""A manifest for the checks: columns of numbers in memory, everything else in the file.

Ids, transcripts and paths stay in the file; few utterances are reported, and those are read when needed.
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
from voxline.components.validate.tally import MEASURED, ManifestTally, hash_text, transcript_words
from voxline.data.manifest import REJECTS_FILE, Utterance, manifest_path, parse_utterance, read_rejects
from voxline.errors import WorkError
from voxline.store.hashing import hash_value

CACHED_UTTERANCES = 4_096
"""Utterances that stay in memory after they were read."""


@dataclasses.dataclass
class CheckedCorpus:
    """The columns of a manifest.

    Attributes:
      file: the manifest.
      tally: its columns and counts.
      rejects: of the previous step, by reason; None without a list.
    """

    file: Path
    tally: ManifestTally
    rejects: dict[str, int] | None = None

    @classmethod
    def read(cls, manifest: Path, tally: ManifestTally | None = None) -> "CheckedCorpus":
        """Reads a manifest, unless its tally is given, and the rejects next to it."""
        file = manifest_path(manifest)
        return cls(file, tally or ManifestTally.read(file), read_reject_counts(file)[0])

    def __len__(self) -> int:
        return len(self.tally)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the utterances."""
        return self.tally.fingerprint()

    def rows(self, *splits: str) -> RowIndices:
        """The rows of some splits, in manifest order."""
        # A split that no utterance has gets the number -1, which no row has.
        return np.flatnonzero(np.isin(self.splits.codes, [self.splits.number(split) for split in splits]))

    @property
    def speakers(self) -> StringColumn:
        return self.tally.speakers

    @property
    def splits(self) -> StringColumn:
        return self.tally.splits

    @property
    def drafted_by(self) -> StringColumn:
        """The models that drafted transcripts; "" where a person wrote it."""
        return self.tally.drafted_by

    @property
    def doubts(self) -> StringColumn:
        """Why ingest doubts a text or a duration; "" where it does not."""
        return self.tally.doubts

    @property
    def personal(self) -> StringColumn:
        """The kinds of personal data in each transcript, a line each; "" where there are none."""
        return self.tally.personal

    @functools.cached_property
    def recordings(self) -> HashColumn:
        """The hashes of the samples."""
        return HashColumn(self.tally.hashes("recordings"))

    @functools.cached_property
    def sentences(self) -> HashColumn:
        """The hashes of the transcripts."""
        return HashColumn(self.tally.hashes("sentences"))

    @functools.cached_property
    def ids(self) -> HashColumn:
        return HashColumn(self.tally.hashes("ids"))

    @functools.cached_property
    def durations(self) -> Floats:
        """`[utterances]` in seconds."""
        return np.frombuffer(self.tally.numbers["duration"], np.float32)

    @functools.cached_property
    def measured(self) -> dict[str, Floats]:
        """The measurements by name, `[utterances]`; NaN if convert did not measure."""
        return {name: np.frombuffer(self.tally.numbers[name], np.float32) for name in MEASURED}

    @functools.cached_property
    def characters(self) -> Codes:
        """`[utterances]` characters in the transcript, without spaces and punctuation."""
        return np.frombuffer(self.tally.numbers["characters"], np.int32)

    @functools.cached_property
    def words(self) -> Codes:
        """`[utterances]` words in the transcript."""
        return np.frombuffer(self.tally.numbers["words"], np.int32)

    @functools.cached_property
    def labels(self) -> Codes:
        """`[utterances]` fewest frames in which CTC can emit the transcript."""
        return np.frombuffer(self.tally.numbers["labels"], np.int32)

    def character_counts(self, *splits: str) -> collections.Counter[str]:
        """The characters of the transcripts of some splits, with their counts, in order of appearance."""
        # Each distinct token is looked at once, however many utterances have it.
        counts: collections.Counter[str] = collections.Counter()
        for split in splits:
            for token, count in self.tally.token_counts.get(split, {}).items():
                for character in token:
                    counts[character] += count

        # Without those whose count is 0, such as the space of a corpus of single words.
        return +counts

    def word_counts(self, *splits: str) -> collections.Counter[str]:
        """The words of the transcripts of some splits, with their counts."""
        counts: collections.Counter[str] = collections.Counter()
        for split in splits:
            for token, count in self.tally.token_counts.get(split, {}).items():
                for word in transcript_words(token):
                    counts[word] += count
        return counts

    def present_splits(self) -> list[str]:
        """The splits that have utterances; train, dev and test first."""
        return sorted(self.splits.names, key=lambda split: (SPLITS.index(split) if split in SPLITS else 9, split))

    def utterance(self, row: int) -> Utterance:
        """One utterance, read from the manifest."""
        if row not in self._cached:
            # Emptied at once: the checks read rows in runs, so that a better cache would save little.
            if len(self._cached) >= CACHED_UTTERANCES:
                self._cached.clear()
            ((_, self._cached[row]),) = self.utterances(np.array([row]))
        return self._cached[row]

    def utterances(self, rows: RowIndices) -> Iterator[tuple[int, Utterance]]:
        """Reads the utterances of some rows from the manifest.

        Raises:
          WorkError: the manifest has changed since it was tallied.
        """
        # A row's line is found by its byte offset. The hash of its id shows that the file is still the one that was
        # tallied.
        folder = os.path.abspath(self.file.parent)
        ids = self.tally.hashes("ids")
        with open(self.file, "rb") as file:
            for row in map(int, rows):
                file.seek(self.tally.numbers["offset"][row])
                line = file.readline().decode(errors="replace")

                utterance = parse_utterance(line, f"{self.file}:{row + 1}", folder)
                if hash_text(utterance.id) != int(ids[row]):
                    raise WorkError(f"{self.file}: changed during validation; run this again when it is complete")
                yield row, utterance

    @functools.cached_property
    def _cached(self) -> dict[int, Utterance]:
        return {}

    @functools.cached_property
    def texts(self) -> StringColumn:
        """All transcripts, in memory, for TFDV."""
        texts = StringColumn()
        for _, utterance in self.utterances(np.arange(len(self))):
            texts.append(utterance.text)
        return texts


def read_reject_counts(manifest: Path) -> tuple[dict[str, int] | None, str]:
    """The rejects next to a manifest: their number by reason (None without a list), and their hash."""
    file = manifest_path(manifest).parent / REJECTS_FILE
    if not file.is_file():
        return None, ""

    # The reasons are counted; the hash is part of the step's key, and does not depend on the order of the rejects.
    rejects = read_rejects(file)
    codes = collections.Counter(str(reject.reason) for reject in rejects).most_common()
    return dict(codes), hash_value(sorted([reject.id, str(reject.reason)] for reject in rejects))

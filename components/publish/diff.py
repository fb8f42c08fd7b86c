"""The differences between two datasets, found by merging their two files of rows, both sorted by id.

Lines that are equal in both files are skipped without parsing, so the cost follows the number of changes. Only changed
utterances are kept in memory.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.data.dataset import Dataset
from voxline.data.json_codec import parse_json
from voxline.data.rows import ROWS_FILE
from voxline.store.size_limits import FILE_BUFFER
from voxline.text.alphabet import is_ideograph, split_words

Line = dict[str, Any]
CHANGE_KINDS = {
    "audio_changed": ("audio_hash", "offset", "duration"),
    "text_changed": ("text",),
    "speaker_changed": ("speaker",),
    "split_changed": ("split",),
}
"""The kinds of change of an utterance that is in both datasets, each with the keys that it compares."""

TEST_SPLIT = "test"


@dataclasses.dataclass(frozen=True)
class ChangedUtterance:
    """An utterance that is in both datasets with different lines."""

    id: str
    before: Line
    after: Line

    def differs(self, *keys: str) -> bool:
        return any(self.before[key] != self.after[key] for key in keys)


@dataclasses.dataclass
class DatasetDiff:
    """The differences between two datasets.

    Attributes:
      added, removed: lines of utterances that are in one dataset only.
      changed: utterances that are in both and differ in text, audio, speaker, split or any other key.
    """

    before: Dataset
    after: Dataset
    added: list[Line] = dataclasses.field(default_factory=list)
    removed: list[Line] = dataclasses.field(default_factory=list)
    changed: list[ChangedUtterance] = dataclasses.field(default_factory=list)

    @property
    def audio_changed(self) -> list[ChangedUtterance]:
        return self._of_kind("audio_changed")

    @property
    def text_changed(self) -> list[ChangedUtterance]:
        return self._of_kind("text_changed")

    @property
    def speaker_changed(self) -> list[ChangedUtterance]:
        return self._of_kind("speaker_changed")

    @property
    def split_changed(self) -> list[ChangedUtterance]:
        return self._of_kind("split_changed")

    def _of_kind(self, kind: str) -> list[ChangedUtterance]:
        return [utterance for utterance in self.changed if utterance.differs(*CHANGE_KINDS[kind])]

    def counts(self) -> dict[str, int]:
        """The number of changes of each kind. An utterance counts under every kind that applies."""
        changed = {kind: len(self._of_kind(kind)) for kind in CHANGE_KINDS}
        return {"added": len(self.added), "removed": len(self.removed), **changed}

    def test_set_changed(self) -> bool:
        """Returns whether the test sets differ in text, audio or members, so that metrics are not comparable."""
        # An utterance that left the test split counts as much as one that came to it, so both of its lines are looked
        # at.
        pairs = (
            (utterance.before, utterance.after)
            for utterance in self.changed
            if utterance.differs("text", "audio_hash", "offset", "split")
        )
        return any(line["split"] == TEST_SPLIT for line in itertools.chain(self.added, self.removed, *pairs))

    def seconds_by_speaker(self) -> dict[str, tuple[float, float]]:
        """Seconds of speech before and after, of each speaker for whom they differ; the largest difference first."""
        totals: dict[str, list[float]] = {}

        for index, dataset in enumerate((self.before, self.after)):
            for row in dataset.rows():
                totals.setdefault(row.speaker, [0.0, 0.0])[index] += row.duration
        changed = {speaker: (before, after) for speaker, (before, after) in totals.items() if before != after}
        return dict(sorted(changed.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0])))


def diff_datasets(before: Dataset, after: Dataset) -> DatasetDiff:
    """Compares two datasets by their rows. It reads no shard."""
    result = DatasetDiff(before, after)
    if before.rows_hash == after.rows_hash:
        return result

    # One pass over two files sorted by id.
    for before_row, new in _merge(before.folder / ROWS_FILE, after.folder / ROWS_FILE):
        if before_row and new:
            result.changed.append(ChangedUtterance(before_row["id"], before_row, new))
        elif new:
            result.added.append(new)
        elif before_row:
            result.removed.append(before_row)
    return result


def diff_paths(before: str, after: str) -> DatasetDiff:
    """Compares two datasets, each given by its folder or bucket URI."""
    return diff_datasets(*(Dataset.read(path, shards=False) for path in (before, after)))


def count_changes(before: Dataset, after: Dataset) -> dict[str, int]:
    """The same as `DatasetDiff.counts`, without keeping utterances in memory."""
    counts = dict.fromkeys(("added", "removed", *CHANGE_KINDS), 0)
    if before.rows_hash == after.rows_hash:
        return counts

    for before_row, new in _merge(before.folder / ROWS_FILE, after.folder / ROWS_FILE):
        if before_row and new:
            for kind, keys in CHANGE_KINDS.items():
                counts[kind] += any(before_row[key] != new[key] for key in keys)
        else:
            counts["added" if new else "removed"] += 1
    return counts


def describe_comparability(diff: DatasetDiff) -> str:
    """Describes whether metrics of models that were evaluated on the two datasets may be compared."""
    if diff.test_set_changed():
        return (
            "The test set changed: metrics measured on the two datasets are not comparable; evaluate both models on "
            "both."
        )
    return "The test set is the same: metrics measured on the two datasets are comparable."


def _merge(before: Path, after: Path) -> Iterator[tuple[Line | None, Line | None]]:
    """Lines that differ, paired by id; None where one file has no line of that id."""
    with open(before, "rb", FILE_BUFFER) as old_lines, open(after, "rb", FILE_BUFFER) as new_lines:
        before_row = next(old_lines, None)
        new = next(new_lines, None)
        while before_row is not None or new is not None:
            # Equal bytes: both files advance without parsing, which is nearly all of the work after a small refresh.
            if before_row == new:
                before_row = next(old_lines, None)
                new = next(new_lines, None)
                continue

            # Of two different ids the smaller one is missing from the other file. The larger one waits for its turn.
            left: Line | None = parse_json(before_row) if before_row else None
            right: Line | None = parse_json(new) if new else None
            if left and right and left["id"] != right["id"]:
                left, right = (left, None) if left["id"] < right["id"] else (None, right)
            yield left, right

            before_row = next(old_lines, None) if left else before_row
            new = next(new_lines, None) if right else new


def format_word_diff(before: str, after: str) -> str:
    """Merges two texts into one line that marks deletions and insertions.

    >>> format_word_diff("the cat sat", "the black cat sits")
    'the {+black+} cat [-sat-] {+sits+}'
    >>> format_word_diff("今天很好", "今天不好")
    '今天[-很-]{+不+}好'
    """

    # Chinese has no spaces between words, unless the text was split into words by them.
    glue = "" if any(map(is_ideograph, before + after)) and " " not in f"{before}{after}" else " "

    parts: list[str] = []
    for operation, deleted, inserted in _word_edits(before, after):
        if operation == "equal":
            parts += deleted
            continue
        parts += [f"[-{glue.join(deleted)}-]"] if deleted else []
        parts += [f"{{+{glue.join(inserted)}+}}"] if inserted else []

    return glue.join(parts)


def count_word_changes(utterances: list[ChangedUtterance]) -> Counter[tuple[str, str]]:
    """Counts which words became which, as in ("sat", "sits"); "" stands for an insertion or a deletion."""
    counts: Counter[tuple[str, str]] = Counter()
    for utterance in utterances:
        for operation, deleted, inserted in _word_edits(utterance.before["text"], utterance.after["text"]):
            if operation != "equal":
                counts[" ".join(deleted), " ".join(inserted)] += 1
    return counts


def _word_edits(before: str, after: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The operations that turn one text into the other, each with the words on both sides."""
    from voxline.report.texts import word_edits  # not at the top: publish counts changes, and draws nothing

    # Edits of single words are joined into runs, so that a changed phrase is one change.
    edits = word_edits(split_words(before), split_words(after))
    for equal, group in itertools.groupby(edits, key=lambda edit: edit[0] == "equal"):
        words = list(group)
        before_words = [word for _, word, _ in words if word]
        new = [word for _, _, word in words if word]
        yield "equal" if equal else "change", before_words, new


NOTABLE_DRIFT = 0.1
"""Standard deviations of shift, or relative change of a standard deviation, from which a model would notice."""


@dataclasses.dataclass(frozen=True)
class FeatureDrift:
    """The change of the feature statistics of the train split.

    Attributes:
      mean_shift: per bin, the shift of the mean in standard deviations of the dataset before.
      deviation_ratio: per bin, the standard deviation after, divided by the one before.
    """

    mean_shift: list[float]
    deviation_ratio: list[float]

    @property
    def most_shifted(self) -> int:
        """The bin whose mean shifted most."""
        return max(range(len(self.mean_shift)), key=lambda bin: abs(self.mean_shift[bin]))

    @property
    def most_scaled(self) -> int:
        """The bin whose standard deviation changed most."""
        return max(
            range(len(self.deviation_ratio)), key=lambda bin: abs(math.log(max(self.deviation_ratio[bin], 1e-9)))
        )

    @property
    def notable(self) -> bool:
        shift = self.mean_shift[self.most_shifted]
        ratio = self.deviation_ratio[self.most_scaled]
        return abs(shift) > NOTABLE_DRIFT or abs(ratio - 1) > NOTABLE_DRIFT

    def describe(self) -> str:
        """The bins that changed most, in words."""
        shifted = self.most_shifted
        scaled = self.most_scaled
        return (
            f"means shifted by at most {self.mean_shift[shifted]:+.3f} deviations (bin {shifted}), deviations changed "
            f"by at most {self.deviation_ratio[scaled] - 1:+.1%} (bin {scaled})"
            + ("; that is a lot" if self.notable else "")
        )


def feature_drift(before: Dataset, after: Dataset) -> FeatureDrift | None:
    """The drift between two datasets; None if their feature settings differ or if no statistic changed.

    Bins that do not vary have no drift.
    """
    if before.features != after.features or not before.mean or len(before.mean) != len(after.mean):
        return None

    # A bin that never varies has a deviation of 0, and nothing to scale a shift by.
    columns = zip(before.mean, before.deviation, after.mean, after.deviation, strict=True)
    pairs = [
        ((new_mean - mean) / deviation, new_deviation / deviation) if deviation > 0 else (0.0, 1.0)
        for mean, deviation, new_mean, new_deviation in columns
    ]
    if all(shift == 0 and ratio == 1 for shift, ratio in pairs):
        return None

    return FeatureDrift([shift for shift, _ in pairs], [ratio for _, ratio in pairs])

"""What changed from one dataset to another: two files of rows, both sorted by id, read side by side.

A line that stands in both is passed over unread, so that comparing costs what changed; of the rest only the changed
utterances are kept in memory.
"""

import dataclasses
import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.data.dataset import Dataset
from voxline.data.json_codec import parse_json
from voxline.data.rows import ROWS_FILE
from voxline.store.bucket_cache import local

Line = dict[str, Any]
CHANGE_KINDS = {
    "audio_changed": ("audio_hash", "offset", "duration"),
    "text_changed": ("text",),
    "speaker_changed": ("speaker",),
    "moved": ("split",),
}
"""What an utterance that is in both may differ in, by its keys."""

TEST_SPLIT = "test"
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN = re.compile(f"[{_IDEOGRAPHS}]")
_UNIT = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")


@dataclasses.dataclass(frozen=True)
class ChangedUtterance:
    """An utterance that is in both, and not the same: what each says of it."""

    id: str
    before: Line
    after: Line

    def differs(self, *keys: str) -> bool:
        return any(self.before[key] != self.after[key] for key in keys)


@dataclasses.dataclass
class DatasetDiff:
    """What changed.

    Attributes:
      added, removed: lines of utterances that are in one alone.
      changed: those that are in both with another text, audio, speaker, split, or anything else.
    """

    before: Dataset
    after: Dataset
    added: list[Line] = dataclasses.field(default_factory=list)
    removed: list[Line] = dataclasses.field(default_factory=list)
    changed: list[ChangedUtterance] = dataclasses.field(default_factory=list)

    @property
    def audio(self) -> list[ChangedUtterance]:
        return [one for one in self.changed if one.differs(*CHANGE_KINDS["audio_changed"])]

    @property
    def texts(self) -> list[ChangedUtterance]:
        return [one for one in self.changed if one.differs("text")]

    @property
    def speakers(self) -> list[ChangedUtterance]:
        return [one for one in self.changed if one.differs("speaker")]

    @property
    def moved(self) -> list[ChangedUtterance]:
        """From one split to another."""
        return [one for one in self.changed if one.differs("split")]

    def counts(self) -> dict[str, int]:
        """How many of each kind; one utterance may be of several kinds."""
        return {
            "added": len(self.added),
            "removed": len(self.removed),
            "audio_changed": len(self.audio),
            "text_changed": len(self.texts),
            "speaker_changed": len(self.speakers),
            "moved": len(self.moved),
        }

    def test_changed(self) -> bool:
        """Whether models measured on both test sets were not measured on the same: text, audio or members differ."""
        pairs = (
            (one.before, one.after) for one in self.changed if one.differs("text", "audio_hash", "offset", "split")
        )
        return any(line["split"] == TEST_SPLIT for line in itertools.chain(self.added, self.removed, *pairs))

    def seconds_of_speakers(self) -> dict[str, tuple[float, float]]:
        """How long those speakers speak, before and after, of whom something changed; most changed first."""
        totals: dict[str, list[float]] = {}
        for which, dataset in enumerate((self.before, self.after)):
            for row in dataset.rows():
                totals.setdefault(row.speaker, [0.0, 0.0])[which] += row.duration
        found = {speaker: (before, after) for speaker, (before, after) in totals.items() if before != after}
        return dict(sorted(found.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0])))


def diff_datasets(before: Dataset, after: Dataset) -> DatasetDiff:
    """Compares two datasets by their rows; no shard is looked at."""
    found = DatasetDiff(before, after)
    if before.rows_hash == after.rows_hash:
        return found
    for old, new in _side_by_side(before.folder / ROWS_FILE, after.folder / ROWS_FILE):
        if old and new:
            found.changed.append(ChangedUtterance(old["id"], old, new))
        elif new:
            found.added.append(new)
        elif old:
            found.removed.append(old)
    return found


def diff_paths(before: str, after: str) -> DatasetDiff:
    """The difference of two datasets; folders, or gs://…"""
    return diff_datasets(*(Dataset.read(local(place), shards=False) for place in (before, after)))


def describe_comparability(found: DatasetDiff) -> str:
    """What it means for models that are compared with one another."""
    if found.test_changed():
        return (
            "The test set changed: figures of models that were measured on either are not comparable; measure both on "
            "both."
        )
    return "The test set is the same: figures measured on either are comparable."


def count_changes(before: Dataset, after: Dataset) -> dict[str, int]:
    """As `DatasetDiff.counts`, with no utterance kept in memory."""
    counts = dict.fromkeys(("added", "removed", *CHANGE_KINDS), 0)
    if before.rows_hash == after.rows_hash:
        return counts
    for old, new in _side_by_side(before.folder / ROWS_FILE, after.folder / ROWS_FILE):
        if old and new:
            for kind, keys in CHANGE_KINDS.items():
                counts[kind] += any(old[key] != new[key] for key in keys)
        else:
            counts["added" if new else "removed"] += 1
    return counts


def split_words(text: str) -> list[str]:
    """What is compared of a text: words, and in one that is written without spaces each character.

    >>> split_words("the cat"), split_words("ni3 hao3"), split_words("今天很好 OK")
    (['the', 'cat'], ['ni3', 'hao3'], ['今', '天', '很', '好', 'OK'])
    """
    return _UNIT.findall(text)


def format_word_diff(before: str, after: str) -> str:
    """Two texts as one, word by word, or character by character where these are words.

    >>> format_word_diff("the cat sat", "the black cat sits")
    'the {+black+} cat [-sat-] {+sits+}'
    >>> format_word_diff("今天很好", "今天不好")
    '今天[-很-]{+不+}好'
    """
    glue = "" if _HAN.search(before + after) and " " not in f"{before}{after}" else " "
    old, new = split_words(before), split_words(after)
    parts: list[str] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts += old[a:b]
            continue
        parts += [f"[-{glue.join(old[a:b])}-]"] if a < b else []
        parts += [f"{{+{glue.join(new[c:d])}+}}"] if c < d else []
    return glue.join(parts)


def count_word_changes(texts: list[ChangedUtterance]) -> Counter[tuple[str, str]]:
    """How often which words became which: ("sat", "sits"); nothing stands for what was added or dropped."""
    found: Counter[tuple[str, str]] = Counter()
    for one in texts:
        old, new = split_words(one.before["text"]), split_words(one.after["text"])
        for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind != "equal":
                found[" ".join(old[a:b]), " ".join(new[c:d])] += 1
    return found


def _side_by_side(before: Path, after: Path) -> Iterator[tuple[Line | None, Line | None]]:
    """Lines that are not the same in both, paired by id."""
    with open(before, "rb") as old_lines, open(after, "rb") as new_lines:
        old, new = next(old_lines, None), next(new_lines, None)
        while old is not None or new is not None:
            if old == new:
                old, new = next(old_lines, None), next(new_lines, None)
                continue
            left: Line | None = parse_json(old.decode()) if old else None
            right: Line | None = parse_json(new.decode()) if new else None
            if left and right and left["id"] != right["id"]:
                left, right = (left, None) if left["id"] < right["id"] else (None, right)
            yield left, right
            old = next(old_lines, None) if left else old
            new = next(new_lines, None) if right else new


NOTABLE_DRIFT = 0.1
"""Deviations of shift, or share of another deviation, from which on a model hears other features than it was told."""


@dataclasses.dataclass(frozen=True)
class FeatureDrift:
    """What changed of the statistics of the training split.

    Attributes:
      shift: per bin, how far the mean moved, in deviations of the dataset before.
      spread: per bin, the deviation after over that before.
    """

    shift: list[float]
    spread: list[float]

    @property
    def furthest(self) -> int:
        """The bin whose mean moved most."""
        return max(range(len(self.shift)), key=lambda bin: abs(self.shift[bin]))

    @property
    def widest(self) -> int:
        """The bin whose deviation changed most."""
        return max(range(len(self.spread)), key=lambda bin: abs(math.log(max(self.spread[bin], 1e-9))))

    @property
    def notable(self) -> bool:
        return abs(self.shift[self.furthest]) > NOTABLE_DRIFT or abs(self.spread[self.widest] - 1) > NOTABLE_DRIFT

    def told(self) -> str:
        """In words, the bins that changed most."""
        moved, widened = self.furthest, self.widest
        return (
            f"means moved by at most {self.shift[moved]:+.3f} deviations (bin {moved}), deviations changed by at most "
            f"{self.spread[widened] - 1:+.1%} (bin {widened})" + ("; that is a lot" if self.notable else "")
        )


def feature_drift(before: Dataset, after: Dataset) -> FeatureDrift | None:
    """The drift from one dataset to another; None where their features are made otherwise, or nothing moved.

    Bins that do not vary have none.
    """
    if before.features != after.features or not before.mean or len(before.mean) != len(after.mean):
        return None
    columns = zip(before.mean, before.deviation, after.mean, after.deviation, strict=True)
    pairs = [((to - mean) / by, to_by / by) if by > 0 else (0.0, 1.0) for mean, by, to, to_by in columns]
    found = FeatureDrift([shift for shift, _ in pairs], [spread for _, spread in pairs])
    return found if any(shift or spread != 1 for shift, spread in pairs) else None

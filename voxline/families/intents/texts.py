"""Texts and their intents: the vocabulary, and batches of numbered words."""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.errors import WorkError
from voxline.families.intents.settings import IntentsTrainSettings
from voxline.inference.intent_classifier import FIRST_WORD, UNKNOWN_WORD, intent_of, number_words
from voxline.progress import print_status
from voxline.text.alphabet import split_words
from voxline.training.batches import Array, Batches, Record, mixed_order
from voxline.training.task import shorten_list


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that a classifier knows, the most frequent first, and the intents that it distinguishes, by name."""

    words: list[str]
    intents: list[str]

    @classmethod
    def of(cls, dataset: Dataset, settings: IntentsTrainSettings) -> "Vocabulary":
        """The vocabulary of a dataset's training split.

        Raises:
          WorkError: it has fewer than two intents.
        """

        # Only train: words and intents of dev must not be known.
        counts = collections.Counter[str]()
        intents = set[str]()
        fields = set[str]()
        for row in dataset.rows():
            if row.split == "train":
                fields |= row.extra.keys()
                if intent := intent_of(row.extra, settings.field):
                    intents.add(intent)
                    counts.update(split_words(row.text))

        if len(intents) < 2:
            present = f"the training split has {', '.join(map(repr, sorted(intents))) or 'none'}"
            raise WorkError(
                f"train: a classifier needs two intents, and by the manifest's field {settings.field!r} {present}; "
                f"set train.field to one of {', '.join(sorted(fields)) or 'the fields that the manifest gets'}"
            )

        # Ties by spelling, so that the order does not depend on the dataset's.
        ordered = sorted(counts, key=lambda word: (-counts[word], word))

        return cls(ordered[: settings.model.max_words], sorted(intents))

    @property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}


class TextBatches(Batches):
    """The batches of one split, from the rows of a dataset; its shards are not read.

    The features of an example are the numbers of its words, float32 [words, 1], and its only label is the number of its
    intent. Utterances without an intent, and those of dev whose intent train does not have, are left out and named.

    Args:
      options: those of `Batches`.
    """

    def __init__(self, dataset: Dataset, split: str, vocabulary: Vocabulary, field: str, **options: Any) -> None:
        self.vocabulary = vocabulary
        self.field = field
        self._words: dict[str, tuple[list[int], int]] = {}
        super().__init__(dataset, split, **options)

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        # An utterance with an unknown intent has no label, and one without words no input.
        numbers = self.vocabulary.numbers
        intents = {intent: index for index, intent in enumerate(self.vocabulary.intents)}
        rows = [row for row in dataset.rows() if row.split == split]
        left_out: list[str] = []
        for row in sorted(rows, key=mixed_order):
            words = number_words(row.text, numbers)
            intent = intent_of(row.extra, self.field)
            if not words or intent not in intents:
                left_out.append(row.id)
                continue
            self._words[row.id] = words, intents[intent]
            corpus = str(row.extra.get("corpus", ""))
            yield Record(row.id, row.text, row.speaker, -1, 0, 0, len(words), 1, 1, corpus)

        if left_out:
            print_status(
                f"train: {len(left_out):,} of {len(rows):,} utterances of {split} have no intent of train in "
                f"{self.field!r} and are left out: {shorten_list(left_out)}"
            )

    def _example(self, row: int) -> Example:
        record = self._records[row]
        words, intent = self._words[record.id]
        return Example(
            record.id,
            record.text,
            record.speaker,
            np.array(words, np.float32)[:, None],
            np.array([intent], np.int32),
        )


def drop_words(rate: float) -> Callable[[Array, int, np.random.Generator], Array] | None:
    """Replaces a share of the words by the unknown one, as a recognizer's errors do; for `Batches`' `augment`."""
    if not rate:
        return None

    def augment(words: Array, _: int, random: np.random.Generator) -> Array:
        dropped: npt.NDArray[np.bool_] = random.random(words.shape) < rate
        return np.where(dropped, np.float32(UNKNOWN_WORD), words)

    return augment

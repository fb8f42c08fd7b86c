"""Draws sentences from a grammar of templates with slots.

A `{slot}` of a template is replaced by one of the slot's choices, which may have slots themselves. A choice that is
listed twice is drawn twice as often.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

_SLOT = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Grammar:
    """The sentences that can be drawn.

    >>> greeting = Grammar(("good {time}", "hello"), {"time": ("morning", "night")})
    >>> greeting.draw(np.random.default_rng(1), 3)
    ['good night', 'hello', 'good night']
    >>> greeting.words()
    ['good', 'hello', 'morning', 'night']
    """

    templates: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]]

    def draw(self, rng: np.random.Generator, count: int, among: Collection[str] | None = None) -> list[str]:
        """Draws sentences; some may be equal. Every template comes about equally often.

        Args:
          among: the sentences that may be drawn, at least one of every template; None: all.
        """
        # All templates in random order, then all again: however many slots one has, it is not drawn more often.
        rounds = -(-count // len(self.templates))
        order = np.concatenate([rng.permutation(len(self.templates)) for _ in range(rounds)])[:count]
        return [self._draw_one(self.templates[template], rng, among) for template in order]

    def split(self, rng: np.random.Generator, shares: Mapping[str, float]) -> dict[str, set[str]]:
        """Deals the sentences of every template to splits; none is in two of them.

        Args:
          shares: of each split, 1 in all. The first gets what rounding leaves, and every split at least one sentence of
            every template.

        >>> greeting = Grammar(("good {time}",), {"time": ("day", "morning", "night", "day")})
        >>> {
        ...     split: len(sentences)
        ...     for split, sentences in greeting.split(np.random.default_rng(1), {"train": 0.8, "test": 0.2}).items()
        ... }
        {'train': 2, 'test': 1}

        Raises:
          ValueError: a template has fewer sentences than there are splits.
        """
        first, *later_shares = shares
        splits: dict[str, set[str]] = {split: set() for split in shares}
        for template in self.templates:
            sentences = self.sentences(template)
            if len(sentences) < len(splits):
                raise ValueError(
                    f"{template!r} has {len(sentences)} sentences, too few for {', '.join(splits)}, which need one "
                    "each; give its slots more choices"
                )

            dealt = [sentences[index] for index in rng.permutation(len(sentences))]

            # Each split leaves one sentence to each after it, and to the first one.
            for later, split in zip(range(len(later_shares), 0, -1), later_shares, strict=True):
                count = min(max(1, round(shares[split] * len(sentences))), len(dealt) - later)
                splits[split] |= set(dealt[:count])
                dealt = dealt[count:]

            splits[first] |= set(dealt)
        return splits

    def sentences(self, template: str) -> list[str]:
        """Every sentence of a template, once, in alphabetical order."""
        return sorted(set(self._expand(template)))

    def words(self) -> list[str]:
        """Every word that a sentence can have, in alphabetical order."""
        texts = [*self.templates, *(choice for choices in self.slots.values() for choice in choices)]
        return sorted({word for text in texts for word in _SLOT.sub("", text).split()})

    def _draw_one(self, template: str, rng: np.random.Generator, among: Collection[str] | None) -> str:
        # Drawn again until it fits, which keeps the chances of the slots; `among` has some of every template.
        while True:
            sentence = self._fill(template, rng)
            if among is None or sentence in among:
                return sentence

    def _expand(self, template: str) -> Iterator[str]:
        """Every sentence of a template; one that can be drawn in two ways comes twice."""
        slot = _SLOT.search(template)
        if slot is None:
            yield template
            return

        # A choice may have slots of its own, which this resolves with the template's others.
        for choice in self.slots[slot[1]]:
            yield from self._expand(template[: slot.start()] + choice + template[slot.end() :])

    def _fill(self, template: str, rng: np.random.Generator) -> str:
        # The first slot each time, which may be one that a choice has brought in.
        while slot := _SLOT.search(template):
            choices = self.slots[slot[1]]
            template = template[: slot.start()] + choices[rng.integers(len(choices))] + template[slot.end() :]
        return template


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence in two spellings.

    Attributes:
      written: as in a book: "4 8 3", "我们 喜欢 喝 茶".
      normalized: as espeak-ng reads it: "four eight three", "wo3 men5 xi3 huan5 he1 cha2".
    """

    written: str
    normalized: str

"""Draws sentences from a grammar of templates with slots.

A `{slot}` of a template is replaced by one of the slot's choices, which may have slots themselves. A choice that is
listed twice is drawn twice as often.
"""

import dataclasses
import re
from collections.abc import Mapping

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

    def draw(self, rng: np.random.Generator, count: int) -> list[str]:
        """Draws sentences; some may be equal. Every template comes about equally often."""
        rounds = -(-count // len(self.templates))
        order = np.concatenate([rng.permutation(len(self.templates)) for _ in range(rounds)])[:count]
        return [self._fill(self.templates[template], rng) for template in order]

    def words(self) -> list[str]:
        """Every word that a sentence can have, in alphabetical order."""
        texts = [*self.templates, *(choice for choices in self.slots.values() for choice in choices)]
        return sorted({word for text in texts for word in _SLOT.sub("", text).split()})

    def _fill(self, template: str, rng: np.random.Generator) -> str:
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

"""What is said in a corpus for synthesis, split so that no sentence is in two splits."""

from collections.abc import Callable

import numpy as np

from voxline.components.demo_corpus.grammar import Sentence
from voxline.components.demo_corpus.mandarin import draw_mandarin
from voxline.components.demo_corpus.phrases import draw_phrases
from voxline.components.demo_corpus.settings import SentenceKind
from voxline.errors import SettingsError

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LENGTHS, LONGER = (3, 6), (8, 10)
"""How many digits a string has, from and to: in train, and where longer ones are asked for."""


def draw_digits(rng: np.random.Generator, count: int, *, longer: bool = False) -> list[Sentence]:
    """Strings, some of which may be alike.

    >>> draw_digits(np.random.default_rng(1), 1)[0].normalised
    'five seven nine zero'
    """
    shortest, longest = LONGER if longer else LENGTHS
    strings = [rng.integers(10, size=rng.integers(shortest, longest + 1)).tolist() for _ in range(count)]
    return [Sentence(" ".join(map(str, string)), " ".join(WORDS[digit] for digit in string)) for string in strings]


DRAW: dict[SentenceKind, Callable[..., list[Sentence]]] = {
    "digits": draw_digits,
    "phrases": draw_phrases,
    "mandarin": draw_mandarin,
}


def draw_sentences(
    kind: SentenceKind, rng: np.random.Generator, sizes: dict[str, int], longer: int
) -> dict[str, list[Sentence]]:
    """Sentences by split, each of them once in all; the last `longer` of test are longer than any of train.

    Raises:
      SettingsError: there are not so many different sentences.
    """
    several = _different(kind, rng, sum(sizes.values()), longer=False)
    splits, start = {}, 0
    for split, size in sizes.items():
        splits[split] = several[start : start + size]
        start += size
    splits["test"] += _different(kind, rng, longer, longer=True)
    return splits


def _different(kind: SentenceKind, rng: np.random.Generator, count: int, *, longer: bool) -> list[Sentence]:
    found: dict[Sentence, None] = {}
    while len(found) < count:
        before = len(found)
        found |= dict.fromkeys(DRAW[kind](rng, max(count, 100), longer=longer))
        if len(found) - before < max(count, 100) // 50:
            raise SettingsError(
                f"generate: {count:,} different sentences of kind {kind!r} are asked for, and after {len(found):,} "
                "hardly any new one comes; ask for fewer sentences or voices"
            )
    return list(found)[:count]

"""Strings of digits: the smallest language in which a voice can be told to say something that it never said."""

import numpy as np

from components.generate.sentence import Sentence

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

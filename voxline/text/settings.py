"""How text becomes what a model reads; set once for a run, and remembered by the model."""

import unicodedata
from collections.abc import Iterable
from typing import Literal

import pydantic

from voxline.settings import Settings

FrontendKind = Literal["transcript", "as_is", "english", "english_phonemes", "mandarin", "pinyin"]


class FrontendSettings(Settings):
    """How a text is read."""

    kind: FrontendKind = pydantic.Field(
        "transcript",
        description="transcript (lower case, no punctuation: for recognition), as_is, english (numbers and "
        "abbreviations spelled out), english_phonemes (IPA), mandarin (hanzi become pinyin), pinyin (given as such)",
    )
    sandhi: bool = pydantic.Field(
        True, description="mandarin: tones as they are spoken (ni2 hao3), not as a dictionary has them (ni3 hao3)"
    )


NAMED, SHOWN = 10, 120
"""How many characters, and how much of their text, a message holds: a text may be a whole book."""


class UnsupportedText(ValueError):  # noqa: N818 - an answer more than an error; callers make theirs of it
    """A text that cannot be read, with what of it, and what is accepted, in words."""


class EmptyText(UnsupportedText):
    """A text in which there is nothing to say: punctuation alone."""


def unsupported_characters(characters: Iterable[str], text: str, accepted: str) -> UnsupportedText:
    """The error for characters of a text, each named once.

    >>> print(unsupported_characters("☃☃", "snow ☃☃", "latin letters are accepted"))
    '☃' (U+2603 SNOWMAN) in 'snow ☃☃' has no sound; latin letters are accepted
    """
    unknown = list(dict.fromkeys(characters))
    named = ", ".join(f"{one!r} (U+{ord(one):04X} {unicodedata.name(one, 'unnamed')})" for one in unknown[:NAMED])
    more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
    have = "has" if len(unknown) == 1 else "have"
    return UnsupportedText(f"{named}{more} in {quote_text(text)} {have} no sound; {accepted}")


def quote_text(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")

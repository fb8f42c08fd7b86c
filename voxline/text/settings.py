"""The settings of the text frontend, which a model carries in model.json; and the errors for texts it cannot read."""

from collections.abc import Iterable
from typing import Literal

import pydantic

from voxline.settings import Settings
from voxline.text.alphabet import name_characters, quote_text

FrontendKind = Literal[
    "transcript",
    "english_transcript",
    "mandarin_transcript",
    "as_is",
    "english",
    "english_phonemes",
    "mandarin",
    "pinyin",
]


class FrontendSettings(Settings):
    """How text becomes symbols."""

    kind: FrontendKind = pydantic.Field(
        "transcript",
        description="for ASR: transcript (lower case, no punctuation), english_transcript or mandarin_transcript "
        "(numbers, times, money and abbreviations spelled out too); for TTS: english (spelled out, with punctuation), "
        "english_phonemes (IPA), mandarin (hanzi to pinyin), pinyin; or as_is",
    )
    sandhi: bool = pydantic.Field(
        True, description="mandarin: apply tone sandhi (ni2 hao3), instead of the dictionary tones (ni3 hao3)"
    )


class UnsupportedText(ValueError):  # noqa: N818 - callers turn it into a reject or an error of their own
    """The frontend cannot read a text. The message names the characters and what is accepted."""


class EmptyText(UnsupportedText):
    """A text without words, such as punctuation alone."""


def unsupported_characters(characters: Iterable[str], text: str, accepted: str) -> UnsupportedText:
    """The error for some characters of a text, each named once.

    >>> print(unsupported_characters("☃☃", "snow ☃☃", "latin letters are accepted"))
    '☃' (U+2603 SNOWMAN) in 'snow ☃☃' has no sound; latin letters are accepted
    """
    unknown = "".join(dict.fromkeys(characters))
    have = "has" if len(unknown) == 1 else "have"
    return UnsupportedText(f"{name_characters(unknown)} in {quote_text(text)} {have} no sound; {accepted}")

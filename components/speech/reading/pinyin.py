"""Pinyin that is given, with tone marks or digits, against the table of syllables."""

import re
import unicodedata
from functools import cache

from components.speech.reading.unreadable import Unreadable, refusal, shown

MARKS = str.maketrans("。，、；：！？…—", ".,,;:!?.,")
_TONES = {"\u0304": "1", "\u0301": "2", "\u030c": "3", "\u0300": "4"}


def pinyin(text: str) -> str:
    """Syllables with tone digits; ü is v, the neutral tone 5.

    >>> pinyin("Nǐ hǎo, nü3 er2 ma!")
    'ni3 hao3, nv3 er2 ma5!'

    Raises:
      Unreadable: a syllable that Mandarin has not, or a character of no pinyin.
    """
    symbols = []
    text = unicodedata.normalize("NFC", text).lower().translate(MARKS).replace("u:", "v")
    for part in re.findall(r"[.,;:!?]|[^\s.,;:!?]+", text):
        symbols.append(part if part in ".,;:!?" else f" {_syllable(part, text)}")
    said = re.sub(r"([.,;:!?])[.,;:!?]+", r"\1", "".join(symbols)).lstrip(" .,;:!?")
    if not said:
        raise Unreadable(f"{shown(text)} has no syllable; pinyin such as ni3 hao3 is accepted")
    return ended(said)


def ended(symbols: str) -> str:
    """What is read, with a mark at its end, by which a voice knows that it is through.

    >>> ended("ni2 hao3,"), ended("ni2 hao3 ma5?")
    ('ni2 hao3.', 'ni2 hao3 ma5?')
    """
    return symbols if symbols[-1] in ".!?" else symbols.rstrip(" ,;:") + "."


def heard(symbols: str) -> str:
    """The syllables alone.

    >>> heard("ni2 hao3, ma5!")
    'ni2 hao3 ma5'
    """
    return " ".join(re.sub(r"[.,;:!?]", " ", symbols).split())


def _syllable(part: str, text: str) -> str:
    apart = unicodedata.normalize("NFD", part)
    tones = [_TONES[one] for one in apart if one in _TONES]
    bare = unicodedata.normalize("NFC", "".join(one for one in apart if one not in _TONES)).replace("ü", "v")
    if bare[-1:] in "12345" and bare[:-1]:
        bare, tones = bare[:-1], [*tones, bare[-1]]
    if unknown := re.findall(r"[^a-zê]", bare):
        raise refusal(unknown, text, "pinyin with tone marks or the digits 1 to 5, parted by spaces, is accepted")
    bare = re.sub("^([nl])ue$", r"\1ve", bare)
    if (bare not in syllables() and not (bare[-1:] == "r" and bare[:-1] in syllables())) or len(tones) > 1:
        raise Unreadable(f"{shown(part)} in {shown(text)} is no syllable of Mandarin; zhong1 or lǜ is one")
    return bare + (tones[0] if tones else "5")


@cache
def syllables() -> frozenset[str]:
    """Every syllable that a character of the dictionary has, without tone."""
    from pypinyin.constants import PINYIN_DICT
    from pypinyin.contrib.tone_convert import to_normal

    readings = {one for all_of_one in PINYIN_DICT.values() for one in all_of_one.split(",")}
    return frozenset(one for one in (to_normal(each, v_to_u=False) for each in readings) if re.fullmatch("[a-z]+", one))

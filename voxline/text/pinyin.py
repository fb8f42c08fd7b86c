"""Pinyin that is given, with tone marks or digits, against the table of syllables."""

import re
import unicodedata
from functools import cache

from voxline.text.settings import EmptyText, UnsupportedText, quote_text, unsupported_characters

PUNCTUATION = str.maketrans("。，、；：！？…—", ".,,;:!?.,")
_TONES = {"\u0304": "1", "\u0301": "2", "\u030c": "3", "\u0300": "4"}


def normalize_pinyin(text: str) -> str:
    """Syllables with tone digits; ü is v, the neutral tone 5.

    >>> normalize_pinyin("Nǐ hǎo, nü3 er2 ma5!")
    'ni3 hao3, nv3 er2 ma5!'

    Raises:
      Unreadable: a syllable that Mandarin has not, or a character of no pinyin.
    """
    symbols = []
    plain = unicodedata.normalize("NFC", text).lower().translate(PUNCTUATION).replace("u:", "v")
    marked = any(one in _TONES for one in unicodedata.normalize("NFD", plain))
    for part in re.findall(r"[.,;:!?]|[^\s.,;:!?'’-]+", plain):
        if part in ".,;:!?":
            symbols.append(part)
            continue
        for one in _split_syllables(part):
            if one in ("r", "r5") and symbols and symbols[-1][0] == " " and symbols[-1][-2] != "r":
                symbols[-1] = f"{symbols[-1][:-1]}r{symbols[-1][-1]}"  # dian3 r5, as dictionaries write dianr3
                continue
            symbols.append(f" {_syllable(one, text, marked)}")
    said = re.sub(r"([.,;:!?])[.,;:!?]+", r"\1", "".join(symbols)).lstrip(" .,;:!?")
    if not said:
        raise EmptyText(f"{quote_text(text)} has no syllable; pinyin such as ni3 hao3 is accepted")
    return with_final_mark(said)


def with_final_mark(symbols: str) -> str:
    """What is read, with a mark at its end, by which a voice knows that it is through.

    >>> with_final_mark("ni2 hao3,"), with_final_mark("ni2 hao3 ma5?")
    ('ni2 hao3.', 'ni2 hao3 ma5?')
    """
    return symbols if symbols[-1] in ".!?" else symbols.rstrip(" ,;:") + "."


def pinyin_syllables(symbols: str) -> str:
    """The syllables alone.

    >>> pinyin_syllables("ni2 hao3, ma5!")
    'ni2 hao3 ma5'
    """
    return " ".join(re.sub(r"[.,;:!?]", " ", symbols).split())


def _split_syllables(word: str) -> list[str]:
    """The syllables of a word written together: by its digits, else the fewest that the table has.

    >>> _split_syllables("ni3hao3"), _split_syllables("zhōngguó"), _split_syllables("fǎnguān")
    (['ni3', 'hao3'], ['zhōng', 'guó'], ['fǎn', 'guān'])
    """
    if any(one.isdigit() for one in word):
        return re.findall(r"[^0-9]+[0-9]*|[0-9]+", word)
    # best[end]: how many syllables begin with a vowel within the word (an apostrophe would stand there), how many
    # there are, and where the last one begins.
    best: list[tuple[int, int, int] | None] = [(0, 0, 0)] + [None] * len(word)
    plain = [_strip_tones(one)[0] for one in word]
    marked = [len(_strip_tones(one)[1]) for one in word]
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - 7), end):
            before = best[start]
            if before is None or sum(marked[start:end]) > 1 or not _is_syllable("".join(plain[start:end])):
                continue
            found = (before[0] + (start > 0 and plain[start] in "aeo"), before[1] + 1, start)
            best[end] = min(best[end] or found, found)
    parts, end = [], len(word)
    while end and (last := best[end]):
        parts.append(word[last[2] : end])
        end = last[2]
    return parts[::-1] if not end else [word]


def _strip_tones(part: str) -> tuple[str, list[str]]:
    """Letters without tone marks, ü being v; and the tones."""
    apart = unicodedata.normalize("NFD", part)
    bare = unicodedata.normalize("NFC", "".join(one for one in apart if one not in _TONES)).replace("ü", "v")
    return bare, [_TONES[one] for one in apart if one in _TONES]


def _is_syllable(bare: str) -> bool:
    bare = re.sub("^([nl])ue", r"\1ve", bare)
    return bare in known_syllables() or (bare[-1:] == "r" and bare[:-1] in known_syllables())


def _syllable(part: str, text: str, marked: bool) -> str:
    bare, tones = _strip_tones(part)
    if bare[-1:] in "12345" and bare[:-1]:
        bare, tones = bare[:-1], [*tones, bare[-1]]
    if unknown := re.findall(r"[^a-zê]", bare):
        raise unsupported_characters(
            unknown, text, "pinyin with tone marks or the digits 1 to 5, parted by spaces, is accepted"
        )
    bare = re.sub("^([nl])ue$", r"\1ve", bare)
    if not _is_syllable(bare) or len(tones) > 1:
        raise UnsupportedText(
            f"{quote_text(part)} in {quote_text(text)} is no syllable of Mandarin; zhong1 or lǜ is one"
        )
    if not tones and not marked:
        # Among tone marks a bare syllable is neutral; among digits, or alone, somebody forgot its tone.
        raise UnsupportedText(f"{quote_text(part)} in {quote_text(text)} has no tone; {part}5 is the neutral one")
    return bare + (tones[0] if tones else "5")


@cache
def known_syllables() -> frozenset[str]:
    """Every syllable that a character of the dictionary has, without tone."""
    from pypinyin.constants import PINYIN_DICT
    from pypinyin.contrib.tone_convert import to_normal

    readings = {one for all_of_one in PINYIN_DICT.values() for one in all_of_one.split(",")}
    return frozenset(one for one in (to_normal(each, v_to_u=False) for each in readings) if re.fullmatch("[a-z]+", one))

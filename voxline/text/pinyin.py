"""Pinyin with tone marks or digits, checked against the table of Mandarin syllables."""

import re
import unicodedata
from functools import cache

from voxline.text.alphabet import EmptyText, UnsupportedText, quote_text, unsupported_characters

PUNCTUATION = str.maketrans("。，、；：！？…—", ".,,;:!?.,")
_TONES = {"\u0304": "1", "\u0301": "2", "\u030c": "3", "\u0300": "4"}


def normalize_pinyin(text: str, *, whole: bool = True) -> str:
    """Normalizes pinyin to syllables with tone digits; ü becomes v, the neutral tone 5.

    Args:
      whole: False: a part of a sentence, which begins and ends with the marks that it has, and may have no syllables.

    >>> normalize_pinyin("Nǐ hǎo, nü3 er2 ma5!")
    'ni3 hao3, nv3 er2 ma5!'

    Raises:
      UnsupportedText: a syllable does not exist in Mandarin, or a character is not pinyin.
    """
    symbols = []
    plain = unicodedata.normalize("NFC", text).lower().translate(PUNCTUATION).replace("u:", "v")

    # Whether the text has tone marks decides what a syllable without one is.
    marked = any(char in _TONES for char in unicodedata.normalize("NFD", plain))
    for part in re.findall(r"[.,;:!?]|[^\s.,;:!?'’-]+", plain):
        if part in ".,;:!?":
            symbols.append(part)
            continue
        for syllable in _split_syllables(part):
            if syllable in ("r", "r5") and symbols and symbols[-1][0] == " " and symbols[-1][-2] != "r":
                symbols[-1] = (
                    f"{symbols[-1][:-1]}r{symbols[-1][-1]}"  # dian3 r5, which is how dictionaries write dianr3
                )
                continue
            symbols.append(f" {_syllable(syllable, text, marked)}")

    # Of several marks in a row the first one remains.
    normalized = re.sub(r"([.,;:!?])[.,;:!?]+", r"\1", "".join(symbols))
    if not whole:
        return normalized.strip()
    normalized = normalized.lstrip(" .,;:!?")
    if not normalized:
        raise EmptyText(f"{quote_text(text)} has no syllables; pinyin such as ni3 hao3 is accepted")
    return with_final_mark(normalized)


def with_final_mark(symbols: str) -> str:
    """Ensures a final mark, by which a TTS model knows where to stop.

    >>> with_final_mark("ni2 hao3,"), with_final_mark("ni2 hao3 ma5?")
    ('ni2 hao3.', 'ni2 hao3 ma5?')
    """
    return symbols if symbols[-1] in ".!?" else symbols.rstrip(" ,;:") + "."


def pinyin_syllables(symbols: str) -> str:
    """The syllables, without punctuation.

    >>> pinyin_syllables("ni2 hao3, ma5!")
    'ni2 hao3 ma5'
    """
    return " ".join(re.sub(r"[.,;:!?]", " ", symbols).split())


def _split_syllables(word: str) -> list[str]:
    """Splits a word into syllables: after its tone digits, else into the fewest syllables of the table.

    >>> _split_syllables("ni3hao3"), _split_syllables("zhōngguó"), _split_syllables("fǎnguān")
    (['ni3', 'hao3'], ['zhōng', 'guó'], ['fǎn', 'guān'])
    """
    if any(char.isdigit() for char in word):
        return re.findall(r"[^0-9]+[0-9]*|[0-9]+", word)
    # best[end]: how many syllables inside the word begin with a vowel (which would need an apostrophe), how many
    # syllables there are, and where the last one begins.
    best: list[tuple[int, int, int] | None] = [(0, 0, 0)] + [None] * len(word)
    plain = [_strip_tones(char)[0] for char in word]
    marked = [len(_strip_tones(char)[1]) for char in word]

    # Dynamic programming over ends: at most seven letters a syllable, at most one tone mark.
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - 7), end):
            before = best[start]
            if before is None or sum(marked[start:end]) > 1 or not _is_syllable("".join(plain[start:end])):
                continue
            candidate = (before[0] + (start > 0 and plain[start] in "aeo"), before[1] + 1, start)
            best[end] = min(best[end] or candidate, candidate)

    # From the end back to the beginning; a word that cannot be split stays whole.
    parts = []
    end = len(word)
    while end and (last := best[end]):
        parts.append(word[last[2] : end])
        end = last[2]
    return parts[::-1] if not end else [word]


def _strip_tones(part: str) -> tuple[str, list[str]]:
    """The letters without tone marks, with v for ü; and the tones."""
    decomposed = unicodedata.normalize("NFD", part)
    bare = unicodedata.normalize("NFC", "".join(char for char in decomposed if char not in _TONES)).replace("ü", "v")
    return bare, [_TONES[char] for char in decomposed if char in _TONES]


def _is_syllable(bare: str) -> bool:
    bare = re.sub("^([nl])ue", r"\1ve", bare)
    return bare in known_syllables() or (bare[-1:] == "r" and bare[:-1] in known_syllables())


def _syllable(part: str, text: str, marked: bool) -> str:
    # The digit of a tone counts like its mark.
    bare, tones = _strip_tones(part)
    if bare[-1:] in "12345" and bare[:-1]:
        bare, tones = bare[:-1], [*tones, bare[-1]]
    if unknown := re.findall(r"[^a-zê]", bare):
        raise unsupported_characters(
            unknown, text, "pinyin with tone marks or the digits 1 to 5, separated by spaces, is accepted"
        )

    bare = re.sub("^([nl])ue$", r"\1ve", bare)
    if not _is_syllable(bare) or len(tones) > 1:
        raise UnsupportedText(
            f"{quote_text(part)} in {quote_text(text)} is not a syllable of Mandarin; zhong1 and lǜ are"
        )

    if not tones and not marked:
        # Among tone marks a bare syllable is neutral; among digits, or alone, its tone was forgotten.
        raise UnsupportedText(f"{quote_text(part)} in {quote_text(text)} has no tone; {part}5 is the neutral one")
    return bare + (tones[0] if tones else "5")


@cache
def known_syllables() -> frozenset[str]:
    """Every syllable of the dictionary, without its tone."""
    from pypinyin.constants import PINYIN_DICT
    from pypinyin.contrib.tone_convert import to_normal

    readings = {reading for character in PINYIN_DICT.values() for reading in character.split(",")}
    return frozenset(
        plain for plain in (to_normal(reading, v_to_u=False) for reading in readings) if re.fullmatch("[a-z]+", plain)
    )

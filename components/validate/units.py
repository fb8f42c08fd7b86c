"""What of a transcript is counted: punctuation is read by a synthesiser, but nobody says it."""

import unicodedata


class _Kept(dict[int, int | None]):
    """For `str.translate`: a code point, or None for one that is nothing said. Each is looked up once."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        self[code] = None if character != "'" and unicodedata.category(character)[0] in "PZC" else code
        return self[code]


_KEPT = _Kept()


def characters_in(text: str) -> int:
    """Characters that are neither space nor punctuation; an apostrophe is part of its word.

    >>> characters_in("it's late, go!"), characters_in("ni3 hao3 .")
    (10, 7)
    """
    return len(text.translate(_KEPT))


def words_in(text: str) -> list[str]:
    """Words (in pinyin, syllables) without the punctuation around them.

    >>> words_in("no - it's late, go!"), words_in("ni3 hao3 .")
    (['no', "it's", 'late', 'go'], ['ni3', 'hao3'])
    """
    return [kept for word in text.split() if (kept := _bare(word))]


def _bare(word: str) -> str:
    start, end = 0, len(word)
    while start < end and _KEPT[ord(word[start])] is None:
        start += 1
    while end > start and _KEPT[ord(word[end - 1])] is None:
        end -= 1
    return word[start:end]

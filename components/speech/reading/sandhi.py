"""Tones of Mandarin in company: what a dictionary gives, and what is said.

Of Chao, *A Grammar of Spoken Chinese* (1968), 1.3.6: two third tones, 一 and 不. Words come first: within a word all
third tones but the last rise; then the last one of a word does where the next word still begins with one.
"""

from collections.abc import Sequence

_COUNTING = "第十百千万亿零〇点两二三四五六七八九一"
_ORDINAL_AFTER = "月号日楼一二三四五六七八九十零〇"
_DIGITS = "零一二三四五六七八九"


def together(words: Sequence[str], tones: Sequence[str]) -> list[str]:
    """Syllables as they are said.

    Args:
      words: the hanzi of a clause, parted into words.
      tones: a syllable for each of its hanzi, with the tone that it has alone.

    >>> together(["你", "好"], ["ni3", "hao3"]), together(["不", "对"], ["bu4", "dui4"])
    (['ni2', 'hao3'], ['bu2', 'dui4'])
    >>> together(["我", "很", "好"], ["wo3", "hen3", "hao3"]), together(["展览馆"], ["zhan3", "lan3", "guan3"])
    (['wo3', 'hen2', 'hao3'], ['zhan2', 'lan2', 'guan3'])
    """
    said = _one_and_not("".join(words), list(tones))
    starts, place = [], 0
    for word in words:
        starts.append(place)
        for one in range(place, place + len(word) - 1):
            _rise(said, one)
        place += len(word)
    # From the end, so that of a row of short words every other one rises: wo3 hen2 hao3.
    for start in reversed(starts[1:]):
        _rise(said, start - 1)
    return said


def _rise(said: list[str], place: int) -> None:
    if said[place][-1] == "3" and said[place + 1][-1] == "3":
        said[place] = said[place][:-1] + "2"


def _one_and_not(hanzi: str, tones: list[str]) -> list[str]:
    """不 before a fourth tone is bu2; 一 is yi2 or yi4 before a syllable, unless it counts."""
    said = list(tones)
    for place, one in enumerate(hanzi[:-1]):
        before, after = hanzi[place - 1 : place], hanzi[place + 1]
        between = before and before == after  # 看一看, 是不是
        fourth = tones[place + 1][-1] == "4" or after == "个"
        if one == "不":
            said[place] = "bu5" if between else "bu2" if fourth else tones[place]
        elif one == "一" and between and before not in _COUNTING:
            said[place] = "yi5"
        elif one == "一" and not _counts(hanzi, place):
            said[place] = "yi2" if fourth else "yi4"
    return said


def _counts(hanzi: str, place: int) -> bool:
    """Whether 一 is a numeral in a row or a rank, which keeps its tone: 十一, 第一, 一月, 一点五; 一百 is not."""
    before, after, next_one = hanzi[place - 1 : place], hanzi[place + 1], hanzi[place + 2 : place + 3]
    if before and before in _COUNTING:
        return before == "第" or after not in "百千万亿"
    return after in _ORDINAL_AFTER or (after == "点" and bool(next_one) and next_one in _DIGITS)

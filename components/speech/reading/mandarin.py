"""Hanzi to pinyin: phrases decide how a character is read; numbers are said; tones change in company."""

import re
import unicodedata
from functools import cache
from typing import Any

from components.speech.reading.mandarin_numbers import say_numbers
from components.speech.reading.neutral_tones import NEUTRAL
from components.speech.reading.pinyin import MARKS, ended
from components.speech.reading.sandhi import together
from components.speech.reading.unreadable import Wordless, refusal, shown

_HANZI = "\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002ebef"
_FULL_ER = "女婴幼孤少健胎宠男育小生"
_DROPPED = str.maketrans("", "", "“”‘’\"'「」『』《》〈〉（）()【】[]·")
_MUST = tuple("我你他她就都不必还可总也")
"""Before these 得 is no particle: it means to have to."""
_BEFORE_MEASURE = "一二两三四五六七八九十百千万几多这那哪每"
_PHRASES = {
    "得走": "dei3 zou3", "午休息": "wu3 xiu1 xi5", "大夫": "dai4 fu5", "头发": "tou2 fa5", "觉得": "jue2 de5",
    "着急": "zhao2 ji2", "慢慢地": "man4 man4 de5", "一行人": "yi4 xing2 ren2", "睡着": "shui4 zhao2",
}  # fmt: skip


def mandarin(text: str, sandhi: bool = True) -> str:
    """Reads hanzi. Latin words are refused: nothing tells how they are to be said.

    >>> mandarin("你好，银行有50%！")
    'ni2 hao3, yin2 hang2 you2 bai3 fen1 zhi1 wu3 shi2!'

    Raises:
      Unreadable: a character that Mandarin has no sound for, or nothing to say.
    """
    written = unicodedata.normalize("NFKC", text.translate(MARKS)).translate(_DROPPED).translate(MARKS)
    said = re.sub("--+", ",", "".join(say_numbers(" ".join(written.split())).split()))
    if unknown := re.findall(rf"[^{_HANZI}.,;:!?]", said):
        latin = re.findall("[A-Za-z]+", said)
        named = f"; Latin here: {', '.join(dict.fromkeys(latin[:10]))}" if latin else ""
        raise refusal(unknown, text, f"hanzi, digits and punctuation are accepted, Latin words are not{named}")
    parts = []
    for part in re.findall(r"[.,;:!?]+|[^.,;:!?]+", said):
        parts.append(part[0] if part[0] in ".,;:!?" else " " + " ".join(_clause(part, text, sandhi)))
    symbols = "".join(parts).lstrip(" .,;:!?")
    if not symbols:
        raise Wordless(f"{shown(text)} has nothing to say; hanzi are accepted")
    return ended(symbols)


def _clause(hanzi: str, text: str, sandhi: bool) -> list[str]:
    read = _reader()(hanzi)
    if len(read) != len(hanzi) or (
        bad := [c for c, one in zip(hanzi, read, strict=True) if not re.fullmatch("[a-z]+[1-5]", one)]
    ):
        raise refusal(hanzi if len(read) != len(hanzi) else bad, text, "characters of the dictionary are accepted")
    read = [{"一": "yi1", "不": "bu4"}.get(one, said) for one, said in zip(hanzi, read, strict=True)]
    words = _words(hanzi)
    read = _in_company(words, read)
    if sandhi:
        read = together(words, read)
    joined: list[str] = []
    for place, (one, said) in enumerate(zip(hanzi, read, strict=True)):
        # 花儿 is one syllable; 女儿, 儿子 and 儿童 are two.
        if (
            one == "儿"
            and joined
            and hanzi[place - 1] not in _FULL_ER
            and hanzi[place + 1 : place + 2] not in tuple("子童歌媳科")
        ):
            joined[-1] = joined[-1] if joined[-1][-2] == "r" else f"{joined[-1][:-1]}r{joined[-1][-1]}"
        else:
            joined.append(said)
    return joined


def _in_company(words: list[str], read: list[str]) -> list[str]:
    """Words of one hanzi whose sound the word before them decides.

    得 and 地 are particles behind a word that they belong to: 长得高, 高兴地说; not 这块地. 只 counts behind a number:
    三只猫; elsewhere it means only.
    """
    said, place = list(read), 0
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        complement = word == "得" and before and before not in _MUST
        adverbial = word == "地" and len(before) > 1 and after
        if complement or adverbial:
            said[place] = "de5"
        if word == "只" and before and before[-1] in _BEFORE_MEASURE:
            said[place] = "zhi1"
        place += len(word)
    return said


def _words(hanzi: str) -> list[str]:
    from pypinyin.seg import mmseg

    return [str(word) for word in mmseg.seg.cut(hanzi)]


@cache
def _reader() -> Any:
    from pypinyin import Style, lazy_pinyin, load_phrases_dict
    from pypinyin.contrib.tone_convert import to_tone

    def syllables(hanzi: str) -> list[str]:
        return lazy_pinyin(hanzi, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors=list)  # type: ignore[arg-type]

    # Both parts are told by the same dictionary: what is a word, and how it sounds.
    phrases = {word: f"{syllables(word)[0]} {syllables(word)[1][:-1]}5" for word in NEUTRAL} | _PHRASES
    load_phrases_dict({phrase: [[to_tone(one)] for one in said.split()] for phrase, said in phrases.items()})
    return syllables

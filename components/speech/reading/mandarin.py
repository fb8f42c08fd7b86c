"""Hanzi to pinyin: phrases decide how a character is read; numbers are said; tones change in company."""

import re
import unicodedata
from functools import cache
from typing import Any

from components.speech.reading.pinyin import MARKS
from components.speech.reading.unreadable import Unreadable, refusal, shown

_DIGITS = "零一二三四五六七八九"
_HANZI = "\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002ebef"
_FULL_ER = "女婴幼孤少健胎宠男育小生"
_DROPPED = str.maketrans("", "", "“”‘’\"'「」『』《》〈〉（）()【】[]·")
_PHRASES = {
    "得走": "dei3 zou3", "大夫": "dai4 fu5", "妈妈": "ma1 ma5", "爸爸": "ba4 ba5", "头发": "tou2 fa5",
    "觉得": "jue2 de5",
    "着急": "zhao2 ji2", "慢慢地": "man4 man4 de5", "一行人": "yi4 xing2 ren2", "睡着": "shui4 zhao2",
}  # fmt: skip


def mandarin(text: str, sandhi: bool = True) -> str:
    """Reads hanzi. Latin words are refused: nothing tells how they are to be said.

    >>> mandarin("你好，银行有50%！")
    'ni2 hao3, yin2 hang2 you2 bai3 fen1 zhi1 wu3 shi2!'

    Raises:
      Unreadable: a character that Mandarin has no sound for, or nothing to say.
    """
    written = unicodedata.normalize("NFKC", text).translate(_DROPPED).translate(MARKS)
    said = _numbers("".join(written.split()))
    if unknown := re.findall(rf"[^{_HANZI}.,;:!?]", said):
        raise refusal(unknown, text, "hanzi, digits and punctuation are accepted, Latin words are not")
    parts = []
    for part in re.findall(r"[.,;:!?]+|[^.,;:!?]+", said):
        parts.append(part[0] if part[0] in ".,;:!?" else " " + " ".join(_clause(part, text, sandhi)))
    symbols = "".join(parts).lstrip(" .,;:!?")
    if not symbols:
        raise Unreadable(f"{shown(text)} has nothing to say; hanzi are accepted")
    return symbols


def _clause(hanzi: str, text: str, sandhi: bool) -> list[str]:
    read = _reader()(hanzi)
    if len(read) != len(hanzi) or (
        bad := [c for c, one in zip(hanzi, read, strict=True) if not re.fullmatch("[a-z]+[1-5]", one)]
    ):
        raise refusal(hanzi if len(read) != len(hanzi) else bad, text, "characters of the dictionary are accepted")
    read = [{"一": "yi1", "不": "bu4"}.get(one, said) for one, said in zip(hanzi, read, strict=True)]
    if sandhi:
        read = _together(hanzi, read)
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


def _together(hanzi: str, read: list[str]) -> list[str]:
    """不 before a fourth tone is bu2; 一 is yi2 or yi4 before a syllable unless it counts; 3 before 3 becomes 2."""
    spoken = list(read)
    for place in range(len(read) - 1):
        one, before, after = hanzi[place], hanzi[place - 1 : place] or " ", hanzi[place + 1]
        fourth = read[place + 1][-1] == "4" or after == "个"
        if one == "不" and fourth:
            spoken[place] = "bu2"
        if one == "一" and before not in "第十百零〇点" + _DIGITS and after not in "月号日十点" + _DIGITS:
            spoken[place] = "yi2" if fourth else "yi4"
    for place in range(len(spoken) - 1):
        if spoken[place][-1] == "3" and spoken[place + 1][-1] == "3":
            spoken[place] = spoken[place][:-1] + "2"
    return spoken


def _numbers(text: str) -> str:
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", text)
    text = re.sub(r"([0-9]{4})(?=年)", lambda m: "".join(_DIGITS[int(d)] for d in m[1]), text)
    text = re.sub(r"(?<![0-9])-(?=[0-9])", "负", text)
    return re.sub(
        r"([0-9]+(?:\.[0-9]+)?)(%|°C)?",
        lambda m: ("百分之" if m[2] == "%" else "") + _number(m[1]) + ("摄氏度" if m[2] == "°C" else ""),
        text,
    )


def _number(number: str) -> str:
    whole, _, fraction = number.partition(".")
    row = len(whole) > 12 or (len(whole) > 1 and whole[0] == "0")
    said = "".join(_DIGITS[int(d)] for d in whole) if row else _whole(int(whole))
    return said + ("点" + "".join(_DIGITS[int(d)] for d in fraction) if fraction else "")


def _whole(number: int) -> str:
    """A number below 10¹² in hanzi: groups of four digits, 零 where digits are left out."""
    if number == 0:
        return "零"
    said = ""
    for unit, name in ((10**8, "亿"), (10**4, "万"), (1, "")):
        group, number = divmod(number, unit)
        if group:
            said += ("零" if said and group < 1000 else "") + _group(group) + name
        elif said and number and not said.endswith("零"):
            said += ""
    return said.removeprefix("一") if said.startswith("一十") else said


def _group(group: int) -> str:
    said, gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, group = divmod(group, unit)
        if digit:
            said += ("零" if gap and said else "") + _DIGITS[digit] + name
        gap = not digit
    return said


@cache
def _reader() -> Any:
    from pypinyin import Style, lazy_pinyin, load_phrases_dict
    from pypinyin.contrib.tone_convert import to_tone

    load_phrases_dict({phrase: [[to_tone(one)] for one in said.split()] for phrase, said in _PHRASES.items()})
    return lambda hanzi: lazy_pinyin(hanzi, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors=list)  # type: ignore[arg-type]

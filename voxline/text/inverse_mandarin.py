"""Inverse text normalization of Mandarin: numbers in hanzi as they are written, 七点三十分 as 7:30.

A number is written in digits where it is the one that `hanzi_number` would read for them, so that nothing is read
differently afterwards; small counts (两个) and idioms (万一, 三三两两) stay hanzi.
"""

import re
from collections.abc import Callable, Sequence

from voxline.text.inverse_english import WrittenWord
from voxline.text.mandarin_numbers import DIGITS, hanzi_number

_VALUES = {hanzi: value for value, hanzi in enumerate(DIGITS)} | {"〇": 0, "两": 2, "幺": 1}
_POWERS = {"十": 10, "百": 100, "千": 1000}
_GROUPS = {"万": 10**4, "亿": 10**8}
_DIGIT = "零〇一二三四五六七八九"
_ANY = f"{_DIGIT}十百千万亿两幺"
"""None of them stands before a number: 三四十 is about thirty or forty."""
_WHOLE = f"[{_DIGIT}十百千万亿两]{{1,24}}"
_NUMBER = rf"{_WHOLE}(?:点[{_DIGIT}]{{1,24}}(?![{_DIGIT}十百千刻]))?"
"""Behind 点, 四十 is a minute and no decimal."""
_TWO_DIGITS = re.compile(f"[{DIGITS[1:]}两]{{2}}")
_BEHIND_POINT = re.compile(f"[{_ANY}]点[{_ANY}]*$")
_COUNTED = "个人次天年月日号分秒小岁元块角米克斤公里吨度层楼页本台辆名位条件张家间句字章课期届路平倍万亿"
"""What a number of two hanzi, such as 十二, is written in digits before; elsewhere it may be a part of a word."""
_UNITS = {
    "公里每小时": "km/h", "摄氏度": "°C", "公里": "公里", "千米": "km", "厘米": "cm", "毫米": "mm", "公斤": "kg",
    "毫克": "mg", "毫升": "ml",
}  # fmt: skip


def write_mandarin(words: Sequence[str]) -> list[WrittenWord]:
    """Writes numbers, times, dates, money and shares as a person writes them.

    Args:
      words: hanzi one by one, and other words; what stands for several of them is one word.

    >>> "".join(word.text for word in write_mandarin("二零二四年三月十五日七点三十分花了十二点五元买两个"))
    '2024年3月15日7:30花了12.5元买两个'
    """
    text = "".join(words)
    owners = [place for place, word in enumerate(words) for _ in word]
    begins = [0]
    for word in words:
        begins.append(begins[-1] + len(word))

    ends = set(begins[1:])

    # The first rule that matches at a place decides; a match covers whole words.
    written: list[WrittenWord] = []
    place = 0
    while place < len(words):
        position = begins[place]
        for pattern, write in _RULES:
            match = pattern.match(text, position)
            spelled = write(match) if match and match.end() > position else None
            if match and spelled is not None and match.end() in ends:
                last = owners[match.end() - 1] + 1
                written.append(WrittenWord(spelled, place, last))
                place = last
                break
        else:
            written.append(WrittenWord(words[place], place, place + 1))
            place += 1
    return written


def parse_hanzi(number: str) -> str | None:
    """The digits of a number in hanzi; None if it would be said otherwise.

    >>> parse_hanzi("一万零八十六"), parse_hanzi("三点零五"), parse_hanzi("二零二四"), parse_hanzi("三四十")
    ('10086', '3.05', '2024', None)
    """
    whole, _, fraction = number.partition("点")
    # 七八公里 and 四五万 are about as many.
    if _TWO_DIGITS.fullmatch(whole):
        return None
    digits = _digits(whole) if not set(whole) & {*_POWERS, *_GROUPS} else _value(whole)
    if digits is None:
        return None
    text = digits + (f".{_digits(fraction)}" if fraction else "")
    if set(whole) & {*_POWERS, *_GROUPS} or len(whole) == 1:
        said = hanzi_number(text)
        plain = number.replace("两", "二").replace("〇", "零")
        return text if plain in (said, f"一{said}") else None
    return text


def _digits(hanzi: str) -> str:
    return "".join(str(_VALUES[digit]) for digit in hanzi)


def _value(hanzi: str) -> str | None:
    """A number with its powers of ten, such as 三百零五万."""
    total = group = digit = 0
    for character in hanzi:
        if character in _VALUES:
            digit = _VALUES[character]
        elif character in _POWERS:
            group += (digit or 1) * _POWERS[character]
            digit = 0
        else:
            total = (total + group + digit) * _GROUPS[character]
            group = digit = 0
    return str(total + group + digit)


def _compact(number: str) -> str | None:
    """A round number keeps 万 and 亿, as newspapers write it: 三点五万, 两百万."""
    for unit in ("万亿", "亿", "万"):
        if number.endswith(unit) and len(number) > len(unit):
            before = parse_hanzi(number[: -len(unit)])
            return f"{before}{unit}" if before else None
    return parse_hanzi(number)


def _date(match: re.Match[str]) -> str | None:
    # A part that is no number, such as 二零月, leaves the date as it is.
    parts = [(parse_hanzi(number), unit) for number, unit in re.findall(f"({_WHOLE})([年月日号])", match[0])]
    return "".join(f"{number}{unit}" for number, unit in parts) if all(number for number, _ in parts) else None


def _time(match: re.Match[str]) -> str | None:
    # 八点零五分: the zero is of the clock.
    hour = parse_hanzi(match[1])
    minute = parse_hanzi(match[2].removeprefix("零"))
    if hour is None or minute is None or int(hour) > 24 or int(minute) > 59:
        return None
    return f"{hour}:{int(minute):02d}"


def _share(match: re.Match[str]) -> str | None:
    number = parse_hanzi(match[1])
    return f"{number}%" if number else None


def _fraction(match: re.Match[str]) -> str | None:
    below = parse_hanzi(match[1])
    above = parse_hanzi(match[2])
    return f"{above}/{below}" if below and above else None


def _is_minute(match: re.Match[str]) -> bool:
    """Returns whether a number stands behind a digit and 点: 五点二十元 is neither 5.20 nor 20 yuan."""
    return bool(_BEHIND_POINT.search(match.string, max(0, match.start() - 8), match.start()))


def _minutes(match: re.Match[str]) -> str | None:
    """三分二十秒: both numbers, or none."""
    minutes = parse_hanzi(match[1])
    seconds = parse_hanzi(match[2].removeprefix("零"))
    return f"{minutes}分{seconds.zfill(1 + match[2].startswith('零'))}秒" if minutes and seconds else None


def _measure(match: re.Match[str]) -> str | None:
    number = None if _is_minute(match) else parse_hanzi(match[2])
    return f"{'-' * bool(match[1])}{number}{_UNITS[match[3]]}" if number else None


def _money(match: re.Match[str]) -> str | None:
    number = None if _is_minute(match) else _compact(match[1])
    return f"{number}{match[2]}" if number else None


_NAMED_ROW = re.compile("[码号](?:是|为)?$")


def _row(match: re.Match[str]) -> str | None:
    """Digits one by one: telephone numbers, years, codes."""
    is_code = "幺" in match[0] or len(match[0]) > 3 or set("零〇") & set(match[0])
    digits = _digits(match[0])
    # 七七八八 is a word, unless a number is named before it: 密码是七七八八.
    if match[0] in ("七七八八", "三三五五") and not _NAMED_ROW.search(
        match.string[max(0, match.start() - 2) : match.start()]
    ):
        return None
    # A telephone with its area: 010 and 02x have three digits, the others four.
    if digits[0] == "0" and len(digits) in (10, 11, 12):
        area = 3 if digits[1] in "12" else 4
        return f"{digits[:area]}-{digits[area:]}"
    return digits if is_code else None


def _count(match: re.Match[str]) -> str | None:
    number = match[0]
    if _is_minute(match):
        return None
    # 两 and 十 alone are words, 百, 千 and 万 begin words such as 千万; without a power 七八 is about seven.
    if number[0] in "百千万亿零〇" or len(number) < 2 or not set(number) & {"点", *_POWERS, *_GROUPS}:
        return None
    # 十二 may be a part of a word, 一百 is one, 一千零一夜 a title.
    behind = match.string[match.end() : match.end() + 2]
    is_range = behind[:1] in ("到", "至") and behind[1:] in _VALUES
    if len(number) == 2 and "点" not in number and not is_range and (not behind or behind[0] not in _COUNTED):
        return None
    if behind.startswith("夜") or (number[0] == "一" and len(number) == 2 and number[1] in "百千万亿"):
        return None
    return _compact(number)


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (re.compile(f"[{_DIGIT}]{{4}}年(?:[{_DIGIT}十]{{1,3}}月(?:[{_DIGIT}十]{{1,3}}[日号])?)?"), _date),
    (re.compile(f"(?<![{_ANY}])[{_DIGIT}十]{{1,3}}月[{_DIGIT}十]{{1,3}}[日号]"), _date),
    (re.compile(f"([{_DIGIT}十两]{{1,3}})点([{_DIGIT}十]{{1,3}})分(?![之钟])"), _time),
    (
        re.compile(
            f"(?<![{_ANY}])([{_DIGIT}十两]{{1,3}})点([二三四五]?十[一二三四五六七八九]?)(?![{_ANY}点元块个公厘毫米斤摄度分秒级倍人次名])"
        ),
        _time,
    ),
    (re.compile(f"([{_DIGIT}十两]{{1,3}})分([{_DIGIT}十]{{1,3}})秒"), _minutes),
    (re.compile(f"百分之({_NUMBER})"), _share),
    (re.compile(f"(?<![{_ANY}])({_WHOLE})分之({_WHOLE})"), _fraction),
    (re.compile(f"(?<![{_ANY}])(负?)({_NUMBER})({'|'.join(_UNITS)})"), _measure),
    (re.compile(f"(?<![{_ANY}])({_NUMBER}[万亿]*)(元|块钱|美元|欧元|英镑|日元)"), _money),
    (re.compile(f"(?<![{_ANY}])[{_DIGIT}幺]{{3,24}}(?![{_ANY}点])"), _row),
    (re.compile(f"(?<![{_ANY}]){_NUMBER}[万亿]*"), _count),
)
"""The certain ones first."""

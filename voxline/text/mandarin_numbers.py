"""Numbers, dates, times, percentages and units in hanzi text, written out in hanzi."""

import re
from collections.abc import Callable

DIGITS = "零一二三四五六七八九"
MAX_DIGITS = 16
"""A number with more digits is spoken digit by digit."""

_UNITS = {
    "km/h": "公里每小时", "km": "公里", "kg": "公斤", "cm": "厘米", "mm": "毫米", "mg": "毫克", "ml": "毫升",
    "m": "米", "g": "克", "°C": "摄氏度", "℃": "摄氏度", "°": "度", "%": "",
}  # fmt: skip
_MONEY = {"¥": "元", "￥": "元", "$": "美元", "€": "欧元", "£": "英镑"}
_COUNTED = "个次只张本位件条块元天年点分小名岁米斤克公台辆间家座支枝把双杯瓶碗层"
"""Before these, 2 is 两."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"


def expand_mandarin_numbers(text: str) -> str:
    """Replaces digits and the signs around them with hanzi.

    >>> expand_mandarin_numbers("2024年3月15日14:30,有50%的人花了12.5元买2个")
    '二零二四年三月十五日十四点三十分,有百分之五十的人花了十二点五元买两个'
    """
    for rule in _RULES:
        text = rule(text)
    return text


def hanzi_number(digits: str) -> str:
    """
    >>> hanzi_number("10"), hanzi_number("10086"), hanzi_number("3.05"), hanzi_number("007"), hanzi_number("100000000")
    ('十', '一万零八十六', '三点零五', '零零七', '一亿')
    """
    whole, _, fraction = digits.partition(".")

    # Codes and long numbers are read digit by digit.
    row = len(whole) > MAX_DIGITS or (len(whole) > 1 and whole[0] == "0")
    return (hanzi_digits(whole) if row else _whole(int(whole))) + ("点" + hanzi_digits(fraction) if fraction else "")


def hanzi_digits(digits: str) -> str:
    return "".join(DIGITS[int(digit)] for digit in digits)


def _whole(count: int) -> str:
    """Groups of four digits, each with its unit; 零 marks omitted digits once."""
    if count == 0:
        return DIGITS[0]
    spoken = ""
    skipped = False
    for unit, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万"), (1, "")):
        # Groups without digits are said as one 零 before the next group that has some.
        group, count = divmod(count, unit)
        if unit == 10**8 and spoken and not group:
            skipped = True
        elif group:
            spoken += ("零" if spoken and (skipped or group < 1000) else "") + _group(group) + name
            skipped = False
        else:
            skipped = bool(spoken)

    # 一十 at the beginning is said 十.
    return spoken[1:] if spoken.startswith("一十") else spoken


def _group(group: int) -> str:
    # A gap between two digits is one 零, however long it is.
    spoken = ""
    gap = False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, group = divmod(group, unit)
        if digit:
            spoken += ("零" if gap and spoken else "") + DIGITS[digit] + name
        gap = not digit
    return spoken


def _sub(pattern: str, put: Callable[[re.Match[str]], str] | str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda text: compiled.sub(put, text)


def _date(match: re.Match[str]) -> str:
    month = int(match[2])
    day = int(match[3])

    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{hanzi_digits(match[1])}年{_whole(month)}月{_whole(day)}日"


def _time(match: re.Match[str]) -> str:
    hour = int(match[1])
    minute = int(match[2])
    if hour > 24 or minute > 59:
        return match[0]
    spoken = ("两" if hour == 2 else _whole(hour)) + "点"
    return spoken + (f"{'零' if minute < 10 else ''}{_whole(minute)}分" if minute else "")


def _telephone(match: re.Match[str]) -> str:
    # On the telephone, 一 is said 幺, which nobody mistakes for 七.
    return hanzi_digits(match[0].replace("-", "")).replace("一", "幺")


def _unit(match: re.Match[str]) -> str:
    spoken = "两" if match[1] == "2" and match[2] not in ("%", "°C", "℃", "°") else hanzi_number(match[1])
    return f"百分之{hanzi_number(match[1])}" if match[2] == "%" else spoken + _UNITS[match[2]]


_RULES: tuple[Callable[[str], str], ...] = (
    _sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", ""),
    _sub(r"(?<![0-9])([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})(?![0-9])", _date),
    _sub(r"(?<![0-9])([0-9]{4})[-~～到至]([0-9]{4})(?=年)", lambda m: f"{hanzi_digits(m[1])}到{hanzi_digits(m[2])}"),
    _sub(r"(?<![0-9])([0-9]{4})(?=年)", lambda m: hanzi_digits(m[1])),
    _sub(r"(?<![0-9:])([0-9]{1,2}):([0-9]{2})(?![0-9:])", _time),
    _sub(r"(?<=[0-9]):(?=[0-9])", "比"),
    _sub(r"(?<![0-9.])1[3-9][0-9]{9}(?![0-9.])", _telephone),
    _sub(r"(?<![0-9.-])0[0-9]{2,3}-[0-9]{7,8}(?![0-9.-])", _telephone),
    _sub(rf"([¥￥$€£])({_NUMBER})(万|亿)?", lambda m: hanzi_number(m[2]) + (m[3] or "") + _MONEY[m[1]]),
    _sub(r"(?<![0-9/])([0-9]{1,4})/([0-9]{1,4})(?![0-9/])", lambda m: f"{hanzi_number(m[2])}分之{hanzi_number(m[1])}"),
    _sub(r"(?<=[0-9%])[-~～](?=[0-9])", "到"),
    _sub(r"(?<=[A-Za-z])-(?=[0-9])", " "),
    _sub(r"(?<![0-9])-(?=[0-9])", "负"),
    _sub(
        rf"(?<![0-9.])({_NUMBER}) ?({'|'.join(sorted(map(re.escape, _UNITS), key=len, reverse=True))})(?![a-z])", _unit
    ),
    _sub(rf"(?<![0-9.第])2(?=[{_COUNTED}])(?!分之|点[零一二三四五六七八九]|年级)", "两"),
    _sub(_NUMBER, lambda m: hanzi_number(m[0])),
)

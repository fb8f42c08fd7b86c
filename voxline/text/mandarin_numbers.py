"""Numbers, dates, times, percentages and units in hanzi text, written out in hanzi.

Rules go from the certain to the general: telephone numbers, dates, ranges, times, money, units, counts. A mark between
two digits that no rule reads is refused, since what is left without it is another number: 5'10" is no fifty.
"""

import re
import unicodedata
from collections.abc import Callable

from voxline.text.alphabet import UnsupportedText

DIGITS = "零一二三四五六七八九"
MAX_DIGITS = 16
"""A number with more digits is spoken digit by digit."""

_UNITS = {
    "km/h": "公里每小时", "m/s": "米每秒", "km²": "平方公里", "cm²": "平方厘米", "mm²": "平方毫米", "m²": "平方米",
    "km2": "平方公里", "cm2": "平方厘米", "m2": "平方米", "km³": "立方公里", "cm³": "立方厘米", "mm³": "立方毫米",
    "m³": "立方米", "cm3": "立方厘米", "m3": "立方米",
    "km": "公里", "kg": "公斤", "cm": "厘米", "mm": "毫米", "mg": "毫克", "ml": "毫升", "mL": "毫升", "ML": "毫升",
    "μm": "微米", "nm": "纳米", "μg": "微克", "cc": "毫升", "ha": "公顷", "KG": "公斤", "Kg": "公斤", "KM": "公里",
    "CM": "厘米",
    "m": "米", "g": "克", "t": "吨", "L": "升", "°C": "摄氏度", "℃": "摄氏度", "°F": "华氏度", "°": "度", "%": "",
    "‰": "", "kWh": "千瓦时", "kW": "千瓦", "MW": "兆瓦", "kHz": "千赫", "MHz": "兆赫", "GHz": "吉赫", "Hz": "赫兹",
    "dB": "分贝", "V": "伏", "mAh": "毫安时", "min": "分钟", "h": "小时", "ms": "毫秒",
}  # fmt: skip
_SHARES = {"%": "百分之", "‰": "千分之"}
_MONEY = {"¥": "元", "￥": "元", "$": "美元", "€": "欧元", "£": "英镑"}
_DOLLARS = {
    "US": "美元", "HK": "港元", "C": "加元", "CA": "加元", "A": "澳元", "AU": "澳元", "S": "新元", "NT": "新台币",
    "NZ": "新西兰元",
}  # fmt: skip
"""Letters before a dollar sign, and whose dollars these are."""
_COUNTED = "个次只张本位件条块元天年点分小名岁米斤克公台辆间家座支枝把双杯瓶碗层"
"""Before these, 2 is 两."""
_MEASURES = (
    f"{_COUNTED}人万亿千百度吨升周月日号秒时多余亩厘毫所部款套页行句字架艘股期届集首场片粒颗根头匹群批种类项笔户"
    "美欧英港平立路楼级倍%‰℃°"
)
"""A number before one of these is a count, and no telephone number."""

_NUMERALS = "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩⅪⅫ"
"""Numbers as one character each, which NFKC writes in letters."""
_ROMAN = re.compile(f"[{_NUMERALS}{_NUMERALS.lower()}]")
_ENCIRCLED = re.compile("[\u2460-\u249b\u24ea\u3251-\u325f\u32b1-\u32bf]")
_UNFOLDED = re.compile("([²³¹⁰⁴-⁹⁺⁻½¼¾⅐-⅞↉№™℠℡])")
_SQUARED = str.maketrans(
    {"㎡": "m²", "㎢": "km²", "㎠": "cm²", "㎟": "mm²", "㎥": "m³", "㎦": "km³", "㎤": "cm³", "㎣": "mm³", "㏄": "cc"}
)
"""Signs that NFKC writes as m2 and the like."""
_FRACTIONS = {"½": "二分之一", "⅓": "三分之一", "⅔": "三分之二", "¼": "四分之一", "¾": "四分之三"}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"


def expand_mandarin_numbers(text: str) -> str:
    """Replaces digits and the signs around them with hanzi.

    >>> expand_mandarin_numbers("2024年3月15日14:30,有50%的人花了12.5元买2个")
    '二零二四年三月十五日十四点三十分,有百分之五十的人花了十二点五元买两个'

    Raises:
      UnsupportedText: a number has more than one reading.
    """
    for rule in _RULES:
        text = rule(text)
    return text


def _roman(match: re.Match[str]) -> str:
    # Apart, since 第2Ⅲ期 is no twenty-third.
    return f" {_NUMERALS.index(match[0].upper()) + 1} "


def fold_mandarin(text: str) -> str:
    """A text in the usual width (NFKC), with the signs that numbers have a part of their meaning from.

    >>> fold_mandarin("５０㎡，①苹果，3½"), fold_mandarin("10⁶")
    ('50m²,  1 苹果,3½', '10⁶')
    """
    text = _ROMAN.sub(_roman, text)
    text = _ENCIRCLED.sub(lambda number: f" {unicodedata.normalize('NFKC', number[0])} ", text.translate(_SQUARED))
    # The odd places have what NFKC would join with the digits beside it.
    parts = _UNFOLDED.split(text)
    return "".join(part if place % 2 else unicodedata.normalize("NFKC", part) for place, part in enumerate(parts))


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


def _refuse(readings: str) -> Callable[[re.Match[str]], str]:
    """A rule for a number that a person reads by knowing more than is written."""

    def refuse(match: re.Match[str]) -> str:
        raise UnsupportedText(f"{match[0]!r} has more than one reading: {readings}; write it in hanzi")

    return refuse


def _refuse_single_marks(text: str) -> str:
    """Feet, inches, minutes or seconds, whose mark would be lost: 10" wide, and no "10" in quotes."""
    for marks in ("'", '"', "′", "″"):
        place = text.find(marks)
        if place > 0 and text[place - 1].isdecimal() and (marks in "′″" or text.count(marks) == 1):
            number = re.search(r"[0-9.]+$", text[max(0, place - 20) : place])
            written = f"{number[0] if number else ''}{marks}"
            raise UnsupportedText(
                f"{written!r} has more than one reading: the mark behind the digits; write it in hanzi"
            )
    return text


def _date(match: re.Match[str]) -> str:
    month = int(match[3])
    day = int(match[4])

    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise UnsupportedText(f"{match[0]!r} is no date; write in hanzi what it is")
    return f"{match[1]}年{month}月{day}日"


def _day(match: re.Match[str]) -> str:
    """5·12 is a day whose digits are said one by one: 五一二; of October, 10·7 may be 十七."""
    month = int(match[1])
    day = int(match[2])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return _refuse("a day, or two numbers")(match)
    # The digits of October would be ten and another number.
    if month == 10:
        return "十一" if day == 1 else _refuse("a day, or ten and another number")(match)
    return hanzi_digits(f"{month}{day}")


def _years(match: re.Match[str]) -> str:
    """2000年前 is before a year, or two thousand years ago."""
    if match[1] == "2000" and match[2][0] in "前来后":
        return _refuse("a year, or a number of years")(match)
    return f"{hanzi_number(match[1])}年{match[2]}"


def _time(match: re.Match[str]) -> str:
    hour = int(match[1])
    minute = int(match[2])
    second = match[3]
    if hour > 24 or minute > 59 or int(second or 0) > 59:
        return match[0]
    # Minutes and seconds below ten have a zero.
    spoken = ("两" if hour == 2 else _whole(hour)) + "点"
    if minute or second:
        spoken += f"{'零' if 0 < minute < 10 else ''}{_whole(minute)}分"
    return spoken + (f"{'零' if 0 < int(second) < 10 else ''}{_whole(int(second))}秒" if second else "")


def _telephone(match: re.Match[str]) -> str:
    # On the telephone, 一 is said 幺, which nobody mistakes for 七.
    return re.sub("[0-9]", lambda digit: _said_on_the_telephone(digit[0]), re.sub(r"[-() ]", "", match[0]))


def _said_on_the_telephone(digits: str) -> str:
    return hanzi_digits(digits).replace("一", "幺")


def _called(match: re.Match[str]) -> str:
    return match[1] + _said_on_the_telephone(match[2].replace("-", "").replace(" ", ""))


def _range(match: re.Match[str]) -> str:
    """Numbers with a dash between them rise; others are a difference, a score, or the name of a model."""
    if float(match[1]) > float(match[2]):
        return _refuse("到, 减, 比, or the name of a model")(match)
    return f"{match[1]}到{match[2]}"


def _unit(match: re.Match[str]) -> str:
    # The share is said before its number: 百分之五.
    number = match[1]
    if share := _SHARES.get(match[2]):
        return share + hanzi_number(number)
    return ("两" if number == "2" and match[2][0] not in "°℃" else hanzi_number(number)) + _UNITS[match[2]]


def _fraction(match: re.Match[str]) -> str:
    """3/4; 5/1 is a day, or nothing that is said."""
    above = int(match[1])
    below = int(match[2])
    if below <= 1 or (below < above <= 12 and below <= 31):
        return _refuse("a day, or a fraction")(match)
    return f"{hanzi_number(match[2])}分之{hanzi_number(match[1])}"


def _thousands(match: re.Match[str]) -> str:
    """12 000 and 1 234 567元 have a space between thousands."""
    return match[0].replace(" ", "")


def _dotted(match: re.Match[str]) -> str:
    """A version or an address: 1.2.3, 192.168.1.1."""
    # The digits of an address are said one by one; elsewhere those of one group may be a number.
    groups = match[0].split(".")
    is_address = len(groups) == 4 and all(int(group) < 256 for group in groups)
    if not is_address and any(len(group) > 1 for group in groups):
        return _refuse("a date, a version, or a code")(match)
    return "点".join(map(hanzi_digits, groups))


_DASH = r"[-\u2010-\u2015\u2212~～]"
_ANY_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_NOT_COUNTED = rf"(?!\.?[0-9]|-[0-9]|\s?(?:[{_MEASURES}]|(?:{_ANY_UNIT})(?![A-Za-z])))"
_QUOTE = "[“\"'‘「]?"
_SERVICE = "110|114|119|120|122|911|999"
_SERVICES = (
    "10086|1001[01]|10099|1211[079]|12121|12306|12315|123(?:09|18|20|29|33|45|48|58|65|66|68|69|77|78|80|88|95)|1118[35]|"
    "95[0135][0-9]{2}"
)
"""Numbers of the police, of operators, hotlines and banks."""
_CALL = (
    "(?:拨打|拨通|拨|打|致电|呼叫|叫|找|电话|热线|客服|号码|联系|短信|发送到|发到|按)"
    "(?:电话|热线|号码|给|了|通|过|为|是|:| )?"
)
_NAMED = (
    "(?:拨打|拨通|拨|致电|呼叫|电话|热线|客服|号码|手机|手机号|传真|分机|密码|验证码|邮编|账号|卡号|学号|工号|编号|尾号|QQ|微信)"
    "(?:号码|号)?(?:为|是|:| )?"
)
_SERVED = (
    "报警|报案|警|急救|救护|抢救|火警|消防|客服|热线|电话|查号|指挥|接警|出警|平台|服务|调度|来了|短信|订票|投诉|举报|"
    "专线"
)
"""What is behind a service number."""
_EVENTS = (
    "事件|恐怖|袭击|晚会|地震|大地震|购物|大促|狂欢|惨案|运动|讲话|空难|枪击|暴雨|事故|起义|政变|特大|事变|假期|小长假|黄金周|"
    "劳动节|妇女节|儿童节|建军节|教师节|国庆节"
)
_FEES = "元|块|美元|欧元|英镑|角|分|次|公里|千米|米|毫克|毫升|克|升|字|件|人|吨"
_EACH = (
    "天|日|月|年|周|小时|分钟|分|秒|人|个|斤|公斤|千克|克|吨|升|米|平方米|平米|平|套|件|次|只|张|条|台|股|位|瓶|箱|本|晚|夜|盒|"
    "杯|份|户|桌|间|课时|节|㎡|m²|kg|h"
)
_READ = r"\w\s,、，;；:。!！?？()（）\[\]《》<>+=×÷*%‰±°#@&"
"""Marks between two digits that part them, or stay for a reject by the alphabet."""
_AIRLINES = "CA|MU|CZ|HU|3U|ZH|MF|SC|FM|KN|HO|JD|PN|TV|GS|EU"
"""Codes before the numbers of Chinese flights."""
_LOVE = "520|521|1314"
_AMOUNT = r"[0-9][0-9.]{0,20}(?:[-~～到][0-9][0-9.]{0,20})?\s?[百千万亿]{0,2}\s?"
"""Money, or a range of it, and its scale."""
_PHONE_END = r"(?!\.?[0-9]|-[0-9])"

_RULES: tuple[Callable[[str], str], ...] = (
    _sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", ""),
    _refuse_single_marks,
    # Dollars of elsewhere, and a currency that is written twice, which is said once.
    _sub(
        rf"(?<![A-Za-z])({'|'.join(_DOLLARS)})\s?\$\s?({_NUMBER})(万|亿)?(?:\s?(?:[美港加澳新台][元币]|元))?(?![0-9.]|[到~～-]\s?[$0-9])",
        lambda m: f"{m[2]}{m[3] or ''}{_DOLLARS[m[1]]}",
    ),
    _sub(r"(?<![A-Za-z])[A-Z]{1,3}\$(?=[0-9])", _refuse("the dollars of one country or another")),
    _sub(rf"(?<![A-Za-z])\$(?={_AMOUNT}(?:元|块|人民币))", _refuse("dollars, or yuan")),
    _sub(rf"[¥￥](?={_AMOUNT}(?:元|块|人民币))|\$(?={_AMOUNT}美[元金])|€(?={_AMOUNT}欧元)|£(?={_AMOUNT}英镑)", ""),
    _sub(r"(?<![A-Za-z0-9])[0-9]{1,4}(?:st|nd|rd|th)(?![A-Za-z])", _refuse("第, or an ordinal in English")),
    _sub(r"(?<![0-9.:/-])7-11(?=便利|超市|店|门店|买|门口)", _refuse("the name of a shop, in one language or another")),
    # Rooms, of which there are no 200.
    _sub(
        r"(?<![0-9.:/-])(?<![有共约达近])(?![0-9]{1,2}00)([1-9][0-9]{2,3})(?=教?室(?![内外友温])|病房|号房)",
        lambda m: _said_on_the_telephone(m[1]),
    ),
    _sub(
        r"((?:房间|房号|门牌|教室)号?码?(?:是|为|: ?)?|(?<=[0-9])(?:栋|幢|单元|号?楼))"
        rf"([1-9][0-9]{{2,3}}){_NOT_COUNTED}",
        _called,
    ),
    # Thousands with a space, or two numbers: nobody says 000 alone.
    _sub(r"(?<![0-9.,:/-])(?<![0-9] )([1-9][0-9]{0,2})((?: [0-9]{3})* 000)(?![0-9]| [0-9]|[-/:][0-9])", _thousands),
    _sub(
        rf"(?<![0-9.,:/-])(?<![0-9] )([1-9][0-9]{{0,2}})((?: [0-9]{{3}}){{2,}})(?=[{_MEASURES}])",
        _thousands,
    ),
    # Telephone numbers, whose groups are no range.
    _sub(rf"(?<![0-9.])1[3-9][0-9]([- ]?)[0-9]{{4}}\1[0-9]{{4}}{_PHONE_END}", _telephone),
    _sub(
        r"(?<![0-9.-])[48]00(?:-[0-9]{3,4}-?[0-9]{3,4}|(?: [0-9]{3,4}){2}|[0-9]{7})(?:转[0-9]{1,5})?" + _NOT_COUNTED,
        _telephone,
    ),
    _sub(
        r"(?<![0-9.-])(?:\(0[0-9]{2,3}\)\s?|0[0-9]{2,3}[- ])[0-9]{3,4}[- ]?[0-9]{4}(?:转[0-9]{1,5})?" + _PHONE_END,
        _telephone,
    ),
    _sub(rf"({_CALL}{_QUOTE})(?<![0-9.])({_SERVICE}|{_SERVICES}|96[0-9]{{3}}){_NOT_COUNTED}", _called),
    _sub(rf"((?:拨打|拨|打))({_SERVICES}|10000)(?=号)", _called),
    _sub(rf"()(?<![0-9.:/-])({_SERVICE}|{_SERVICES}|96[0-9]{{3}})(?=[”\"'’」]?\s?(?:{_SERVED}))", _called),
    _sub(rf"^\s*(?:{_SERVICE})\s*[.。!！?？]?$", _refuse("a service number, or a count")),
    _sub(rf"()(?<![0-9.:/共约有达超过近为计第价余至到增减=-])({_SERVICES}){_NOT_COUNTED}", _called),
    _sub(rf"({_NAMED})((?:[0-9]{{3,20}}(?:-[0-9]{{3,20}}){{0,3}})){_NOT_COUNTED}", _called),
    _sub(r"(?<![0-9.,:/-])(?<![0-9] )[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])", _refuse("thousands, or several numbers")),
    # Of buses, as people say them; 300路人 are many.
    _sub(
        r"(?<![0-9.])([1-9][0-9]{2})(?=路(?:公交|公共汽车|公车|电车|巴士|大巴|车|开往|到站|来了|[,，.。!！?？]|$))",
        lambda m: _said_on_the_telephone(m[1]),
    ),
    _sub(r"(?<![0-9])(480|720|1080|1440|2160)(?=[pPiI](?![A-Za-z]))", lambda m: hanzi_digits(m[1])),
    # Names of trains, flights, roads, universities and days.
    _sub(r"(?<=[A-Z])([0-9]{3,4})(?=次|航班|号?列车|号航班)", lambda m: _said_on_the_telephone(m[1])),
    _sub(
        r"(?<![0-9.])(211|985)(?=大学|高校|院校|工程)|(?<![0-9.])(7[0-8]7)(?=飞机|客机|航班)|(?<![0-9.])(618)(?=大促|购物|活动|促销|期间)"
        r"|(?<![0-9.])(400)(?=电话|热线|客服)|(?<![0-9.])([0-9]{3})(?=国道|省道|县道)",
        lambda m: _said_on_the_telephone(m[0]) if m[4] or m[5] else hanzi_digits(m[0]),
    ),
    _sub(
        rf"(?:(波音)(7[0-8]7)|(?<![A-Za-z0-9])(A)(3[2-8]0)){_NOT_COUNTED}",
        lambda m: (m[1] or m[3]) + hanzi_digits(m[2] or m[4]),
    ),
    _sub(
        rf"(?<![A-Za-z0-9])([GDCZTK]|{_AIRLINES})(?![0-9]{{1,2}}00)([0-9]{{3,4}}){_NOT_COUNTED}",
        lambda m: m[1] + _said_on_the_telephone(m[2]),
    ),
    _sub(
        rf"(?<![0-9.])({_LOVE})(?=快乐|表白|告白|礼物|情人|活动|红包|当天|这天|那天|节)", lambda m: hanzi_digits(m[1])
    ),
    _sub(rf"^\s*(?:{_LOVE})\s*[.。!！?？]?$", _refuse("digits that sound like words, or a count")),
    # 1米75, but 2米15个人 and 3米21秒 have two counts.
    _sub(
        rf"(?<![0-9.])([0-9])米([0-9][1-9])(?!\.[0-9]|\s?[厘毫公分米]){_NOT_COUNTED}",
        lambda m: f"{m[1]}米{hanzi_digits(m[2])}",
    ),
    _sub(
        r"(?<![0-9/])[0-9]{1,2}/[0-9]{1,2}(?=月|号|日)|(?<![0-9/])24/7(?![0-9/])", _refuse("a fraction, or two numbers")
    ),
    _sub(r"(?<![0-9.])[0-9]{1,2}\.[0-9]{1,2}(?=[号日])", _refuse("a day, or a decimal")),
    _sub(r"(?<=[0-9])\.00?(?=元|块|美元|欧元|英镑)", ""),
    _sub(r"([¥￥$€£][0-9]{1,9})\.00?(?![0-9])", r"\1"),
    # Dates, which keep their digits for the rules of ranges.
    _sub(r"(?<![0-9.])([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})(?![0-9]|[./-][0-9]{3})", _date),
    _sub(r"(?<![0-9.])((?:19|20)[0-9]{2})\.(?:0[1-9]|1[0-2]|[1-9])" + _NOT_COUNTED, _refuse("a month, or a decimal")),
    _sub(r"(?<![0-9.])((?:19|20)[0-9]{2})[-/](?:0[1-9]|1[0-2])(?![0-9])", _refuse("a month, or a range")),
    _sub(r"(?<![0-9·])([0-9]{1,2})\s?[·•・‧⋅∙]\s?([0-9]{1,2})(?![0-9·])", _day),
    _sub(rf"(?<![0-9.])([1-9]|1[0-2])\.([1-9]|[12][0-9]|3[01])(?=[“”\"]?(?:{_EVENTS}))", _day),
    _sub(r"(?<![0-9])0([1-9])(?=[月日号])", r"\1"),
    _sub(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){2,5}(?![0-9]|\.[0-9])", _dotted),
    # Ranges, before their ends are spelled out.
    _sub(r"(?<=[0-9])\s?(?:[—-]{2,3})\s?(?=[0-9])", _refuse("到, or a pause")),
    _sub(
        rf"((?:比分|战胜|击败|胜|负|平|赢|输)[^0-9]{{0,6}}[0-9]{{1,3}}){_DASH}(?=[0-9]{{1,3}}(?![0-9.:%]))",
        r"\1比",
    ),
    _sub(r"(?<![0-9/.:])[0-9]{1,4}(?:-[0-9]{1,4}){2,8}(?![0-9])", _refuse("a date, a range, or a row of numbers")),
    _sub(
        rf"(?<![0-9.:A-Za-z])(-?{_NUMBER})\s?{_DASH}\s?({_NUMBER})(?![0-9:])(?=(?!\.[0-9]))",
        _range,
    ),
    _sub(rf"(?<=[0-9%‰])\s?{_DASH}\s?(?=[0-9¥$€£])", "到"),
    _sub(r"(?<=[0-9])[~～到至]-(?=[0-9])", "到负"),
    _sub(
        rf"([0-9](?:[年月日号时点分秒天周岁元个人米度级万亿]|小时|分钟|公里|{_ANY_UNIT})){_DASH}(?=[0-9¥$€£])",
        r"\1到",
    ),
    _sub(rf"(?<=[0-9]){_DASH}(?=(?:次日|翌日|第二天|当[日天]|[上下]午|中午|凌晨|[早晚]上?)[0-9])", "到"),
    _sub(rf"(?<=[周期][一二三四五六日天]){_DASH}(?=周|星期)", "到"),
    _sub(rf"(?<=[一二三四五六七八九十][月日号]){_DASH}(?=[一二三四五六七八九十]{{1,3}}[月日号])", "到"),
    # Years.
    _sub(r"(?<![0-9])([0-9]{4})[到至]([0-9]{4})(?=年)", lambda m: f"{hanzi_digits(m[1])}到{hanzi_digits(m[2])}"),
    _sub(
        r"(?<![0-9])((?:19|20)[0-9]{2})到((?:19|20)?[0-9]{2})(?=学年|财年|赛季)",
        lambda m: f"{hanzi_digits(m[1])}到{hanzi_digits(m[2])}",
    ),
    _sub(
        rf"(?<![0-9.])((?:19|20)[0-9]{{2}})到((?:19|20)[0-9]{{2}})(?![0-9]|\.[0-9]|\s?[{_MEASURES}])",
        lambda m: f"{hanzi_digits(m[1])}到{hanzi_digits(m[2])}",
    ),
    _sub(r"(?<![0-9])([1-9]000)年(前|来|后|历史|的历史|文明|的文明|以上|多|之久|之前|间|古)", _years),
    _sub(r"(?<![0-9])([1-9][0-9]00)(?=(?:多|余)?年(?:的?历史|的?文明|以上|之久))", lambda m: hanzi_number(m[1])),
    _sub(r"(?<=公元前)([1-9][0-9]00)(?=年)", lambda m: hanzi_number(m[1])),
    _sub(r"(?<![0-9])([0-9]{4})(?=年)", lambda m: hanzi_digits(m[1])),
    _sub(r"(?<![0-9.])([5-9][0-9])(?=年(?:出生|生人|毕业|洪水|特大|世界杯|奥运|春节))", lambda m: hanzi_digits(m[1])),
    _sub(r"(?<![0-9.])([05-9][05])(?=(?:[、,和到至][05-9][05]){1,3}后(?![面来天续]))", lambda m: hanzi_digits(m[1])),
    _sub(
        r"(?<![0-9.])((?:19|20)[0-9]{2})(?=学年|财年|赛季|届|级|款|春|夏季|秋季|冬奥|冬季|奥运|世界杯|亚运|上半年|下半年|新年|元旦|国庆)",
        lambda m: hanzi_digits(m[1]),
    ),
    _sub(r"(?<![0-9.])([05-9][05])(?=后(?![面来天续]))", lambda m: hanzi_digits(m[1])),
    # Times, scores and ratios.
    _sub(r"(?<![0-9:.])([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?![0-9:]|\.[0-9])(?:分(?![钟之]))?", _time),
    _sub(r"(?<=[0-9]):(?=[0-9])", "比"),
    # Money, fractions and what is paid for each.
    _sub(r"(?:(?<=^)|(?<=[\s(\[+±¥￥$€£<>≤≥=:,、~负约近仅达-]))\.(?=[0-9])", "0."),
    _sub(r"(?<![0-9.])\.(?=[0-9])", _refuse("a decimal, or the end of a sentence")),
    _sub(
        rf"([¥￥$€£])({_NUMBER})到[¥￥$€£]?({_NUMBER})(万|亿)?",
        lambda m: f"{hanzi_number(m[2])}到{hanzi_number(m[3])}{m[4] or ''}{_MONEY[m[1]]}",
    ),
    _sub(rf"([¥￥$€£])({_NUMBER})(万|亿)?", lambda m: hanzi_number(m[2]) + (m[3] or "") + _MONEY[m[1]]),
    _sub(rf"([0-9][万亿]?(?:{_FEES}))/(?=(?:{_EACH})(?![0-9]))", r"\1每"),
    _sub(r"每(?:㎡|m²)", "每平方米"),
    _sub(r"每kg", "每公斤"),
    _sub(
        r"(?<![0-9/.])([0-9]{1,4})/([0-9]{1,4})(?![0-9/]|\.[0-9])",
        _fraction,
    ),
    _sub(f"([0-9]?)([{''.join(_FRACTIONS)}])", lambda m: m[1] + "又" * bool(m[1]) + _FRACTIONS[m[2]]),
    _sub(r"(?<=[A-Za-z])-(?=[0-9])", " "),
    _sub(r"(?<![0-9])[-\u2212](?=[0-9])", "负"),
    _sub(
        rf"(?<![0-9.])({_NUMBER})到({_NUMBER})([%‰])",
        lambda m: f"{_SHARES[m[3]]}{hanzi_number(m[1])}到{hanzi_number(m[2])}",
    ),
    _sub(
        r"(?<![0-9.A-Za-z])([0-9]{1,2}) ?h ?([0-9]{1,2}) ?(?:min|m)(?![A-Za-z0-9])",
        lambda m: f"{'两' if m[1] == '2' else hanzi_number(m[1])}小时{hanzi_number(m[2])}分钟",
    ),
    _sub(rf"(?<![0-9.A-Za-z])({_NUMBER}) ?({_ANY_UNIT})(?![A-Za-z0-9²³])", _unit),
    _sub(r"(?<=[0-9A-Za-z])²", "的平方"),
    _sub(r"(?<=[0-9A-Za-z])³", "的立方"),
    _sub(
        rf"(?<![0-9.第])2(?=(?:到{_NUMBER})?[{_COUNTED}])(?!(?:到{_NUMBER})?(?:分之|点[零一二三四五六七八九]|年级))",
        "两",
    ),
    # What is left between two digits stood for something.
    _sub(rf"[0-9]\s?(?:[^.{_READ}]|[^{_READ}]{{2,3}})\s?[0-9]", _refuse("the mark between the digits")),
    _sub(_NUMBER, lambda m: hanzi_number(m[0])),
)

"""Personal data in transcripts that rules can find, in digits or spoken, in English and Mandarin.

Numbers with a checksum are recognized by it: payment cards (Luhn, ISO/IEC 7812), bank accounts (IBAN, ISO 13616), and
identity numbers of the People's Republic of China (GB 11643, ISO 7064 MOD 11-2). Telephone numbers and addresses are
recognized by their form. A name is recognized only where somebody introduces herself: there is no list of names here.
"""

import re
from collections.abc import Iterator

from voxline.text.lazy_pattern import lazy_pattern

PHONE = "phone number"
EMAIL = "e-mail address"
CARD = "card number"
ACCOUNT = "account number"
IDENTITY = "identity number"
ADDRESS = "street address"
NAME = "name"
NUMBER = "long number"
KINDS = (PHONE, EMAIL, CARD, ACCOUNT, IDENTITY, ADDRESS, NAME, NUMBER)

MASK = "•••"
MIN_SPOKEN_DIGITS = 7
ENOUGH_CLUES = 4
"""Words of the shortest number that is found, with "double" and "triple"; see `clues`."""
MIN_LONG_NUMBER = 9

_WIDE = {ord(wide): str(digit) for digit, wide in enumerate("０１２３４５６７８９")} | {ord("＠"): "@", ord("－"): "-"}

_ANY_DIGIT = lazy_pattern(r"\d")

# Spoken digits

_WORDS = {
    **{"zero": "0", "oh": "0", "o": "0", "nought": "0", "naught": "0", "one": "1", "two": "2", "three": "3"},
    **{"four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"},
    **{"ling2": "0", "yao1": "1", "yi1": "1", "er4": "2", "san1": "3", "si4": "4", "wu3": "5", "liu4": "6"},
    **{"qi1": "7", "ba1": "8", "jiu3": "9"},
}
_TIMES = {"double": 2, "triple": 3}
_HANZI = dict(zip("零〇幺一二两三四五六七八九", "0011223456789", strict=True))
_WORD = "|".join(_WORDS)
_DIGIT = rf"(?:\b(?:(?:double|triple)\s+)?(?:{_WORD})\b|[{''.join(_HANZI)}]|\d)"
_RUN = lazy_pattern(rf"\+?\(?{_DIGIT}(?:[\s().\-–]{{0,3}}(?:,\s)?{_DIGIT}){{5,}}[xX]?(?!\w)", re.IGNORECASE)
_RUN_DIGITS = 6
"""Digits that a match of it has at least."""
_ASCII_WORD = lazy_pattern(r"\w+", re.ASCII)
_ELEMENT = lazy_pattern(rf"(double|triple)?\s*\b({_WORD})\b|([{''.join(_HANZI)}])|(\d)|([xX])$", re.IGNORECASE)
_SPOKEN = frozenset([*_WORDS, *_TIMES])
_HANZI_RUN = lazy_pattern(f"[{''.join(_HANZI)}]{{6}}")
_DATE = lazy_pattern(r"\b(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d\d))\b")
_COUNTED = lazy_pattern("(?:0?123456789|0?12345678|0?1234567|0?123456|0?12345|0?1234|0?123)+|9876543210?")

# As a recording has a number that is written in groups of four.
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_VALUES = {word: number for number, word in enumerate(_UNITS, start=1)}
_VALUES |= {word: number for number, word in enumerate(_TEENS, start=10)}
_VALUES |= {word: 10 * number for number, word in enumerate(_TENS, start=2)}
_UNIT = f"(?:{'|'.join(_UNITS)})"
_BELOW_HUNDRED = f"(?:{'|'.join(_TEENS)}|(?:{'|'.join(_TENS)})(?:[- ]{_UNIT})?|{_UNIT})"
_SPOKEN_DIGIT = f"(?:zero|oh|{_UNIT})"
_FOUR = lazy_pattern(
    rf"\b{_UNIT} thousand(?: {_UNIT} hundred)?(?: (?:and )?{_BELOW_HUNDRED})?\b(?! (?:hundred|thousand))"
    rf"|\b{_SPOKEN_DIGIT}(?: {_SPOKEN_DIGIT}){{3}}\b"
)
_FOUR_GROUPS = lazy_pattern(rf"(?:{_FOUR.pattern})(?:,? (?:{_FOUR.pattern})){{3}}")

# Cards: Visa, Mastercard, American Express, JCB, Diners, Discover, UnionPay.
_ISSUER = lazy_pattern(r"4|5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)|3[47]|35|3[068]|6(?:011|4[4-9]|5|2)")
_CHINESE_MOBILE = lazy_pattern(r"(?:0{0,2}86)?1[3-9]\d{9}")
_AMERICAN = lazy_pattern(r"1?[2-9]\d\d[2-9]\d{6}")
_LOCAL = lazy_pattern(r"\(?\d{3}\)?[-. ]{1,2}(?:\d{3}[-. ])?\d{4}")
_SOCIAL_SECURITY = lazy_pattern(r"(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}")
_DECIMAL = lazy_pattern(r"\d+\.\d+")
_CHINESE_ID = lazy_pattern(r"[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]")
_ACCOUNT = lazy_pattern(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
# In small letters too, and apart from the words behind it: most countries have letters for the bank alone.
_NUMBERED_ACCOUNT = lazy_pattern(r"\b[A-Z]{2}\d{2}(?: ?[A-Z]{4})?(?: ?\d{4}){2,7}(?: ?\d{1,3})?\b", re.IGNORECASE)

# Addresses

_EMAIL = lazy_pattern(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SPOKEN_EMAIL = lazy_pattern(
    r"\b[\w.-]+(?: (?:dot|underscore|dash) [\w-]+)* at (?:[\w-]+ dot )+"
    r"(?:com|org|net|edu|gov|io|info|co|me|de|fr|uk|cn)\b",
    re.IGNORECASE,
)
_NUMBER_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|oh"
)
_NAMED = (
    r"(?!(?:the|a|an|of|on|in|at|to|down|up|and|or|from|people|men|times|years?|hours?|minutes?|miles?)\b)[^\W\d_]+"
)
_STREET = lazy_pattern(
    rf"\b(?:\d{{1,5}}[a-z]?|(?:{_NUMBER_WORD})(?:[ -](?:{_NUMBER_WORD}))+),?(?: {_NAMED}){{1,2}} "
    r"(?:street|st|avenue|ave|road|rd|lane|boulevard|blvd|drive|terrace)\b",
    re.IGNORECASE,
)
_GERMAN_STREET = lazy_pattern(r"\b[^\W\d_]{3,}(?:straße|strasse|str\.|gasse|allee) \d{1,4}[a-z]?\b", re.IGNORECASE)
_CHINESE_STREET = lazy_pattern(
    r"[\u4e00-\u9fff]{1,6}(?:路|街|大道|巷|弄|胡同)[0-9零〇一二三四五六七八九十百]{1,6}[号號]"
)
_NO_NAME = r"(?!(?:not|on|in|at|of|to|the|a|what|that|this|too|very|already|also|spelled|misspelled|wrong)\b)"
_INTRODUCED = lazy_pattern(
    rf"\bmy (?:full |first |last )?name is {_NO_NAME}(?P<name>[^\W\d_]+(?: [^\W\d_]+)?)"
    r"|\bthis is (?P<caller>[^\W\d_]+(?: [^\W\d_]+)?) (?:speaking|calling)\b"
    r"|我(?:的名字)?(?:叫|是叫)(?P<hanzi>[\u4e00-\u9fff]{2,3})|我姓(?P<family>[\u4e00-\u9fff])",
    re.IGNORECASE,
)
_STREETS = ("street", "avenue", "road", "lane", "boulevard", "drive", "terrace", " st", " ave", " rd", " blvd")
_GERMAN_STREETS = ("straße", "strasse", "str.", "gasse", "allee")
_CLUES = frozenset(
    [
        *("street", "st", "avenue", "ave", "road", "rd", "lane", "boulevard", "blvd", "drive", "terrace"),
        *("name", "dot", "speaking", "calling", "thousand"),
    ]
)
_CLUE = lazy_pattern(rf"[\d@我号號]|{_HANZI_RUN.pattern}")


def personal_data(text: str) -> list[tuple[str, int, int]]:
    """Finds personal data in a text: its kind, and where it begins and ends, in order.

    >>> personal_data("call five five five one two one two")
    [('phone number', 5, 35)]
    >>> personal_data("nineteen eighty four"), personal_data("one two three four five six seven")
    ([], [])
    """
    return find_personal_data(text) if sum(map(clues, text.split(" "))) >= ENOUGH_CLUES else []


def find_personal_data(text: str) -> list[tuple[str, int, int]]:
    """The same for a text whose clues were weighed, and are enough."""
    if not text.isascii():
        text = text.translate(_WIDE)
    found: list[tuple[str, int, int]] = []
    for kind, start, end in sorted(_candidates(text), key=lambda place: (place[1], -place[2])):
        if not found or start >= found[-1][2]:
            found.append((kind, start, end))
    return found


def clues(word: str) -> int:
    """Weighs a word as a sign of personal data in its text; `personal_data` finds none below `ENOUGH_CLUES` in all.

    >>> sum(map(clues, "call five five five one two one two".split(" ")))
    7

    Args:
      word: a part of the text between two spaces.
    """
    word = word.casefold().translate(_WIDE)
    bare = word.strip(".()-–")
    if bare in _CLUES or _CLUE.search(word) or word.endswith(_GERMAN_STREETS):
        return ENOUGH_CLUES
    return sum(part in _SPOKEN or part in _HANZI for part in bare.split("-"))


def masked(text: str) -> str:
    """The text with all personal data in it hidden.

    >>> masked("write to ada@example.com today")
    'write to ••• today'
    """
    for _, start, end in reversed(personal_data(text)):
        text = f"{text[:start]}{MASK}{text[end:]}"
    return text


def _candidates(text: str) -> Iterator[tuple[str, int, int]]:
    # Each pattern waits for a clue, which costs a fraction of a microsecond.
    folded = text.lower()
    has_digits = _ANY_DIGIT.search(text) is not None

    if "@" in text:
        yield from _places(EMAIL, _EMAIL, text)
    if " dot " in folded:
        yield from _places(EMAIL, _SPOKEN_EMAIL, text)
    if "name is" in folded or "我" in text or folded.endswith((" speaking", " calling")):
        for match in _INTRODUCED.finditer(text):
            yield NAME, *match.span(str(match.lastgroup))
    if any(map(folded.__contains__, _STREETS)):
        yield from _places(ADDRESS, _STREET, text)
    if "号" in text or "號" in text:
        yield from _places(ADDRESS, _CHINESE_STREET, text)
    if has_digits:
        if any(map(folded.__contains__, _GERMAN_STREETS)):
            yield from _places(ADDRESS, _GERMAN_STREET, text)
        for pattern in (_ACCOUNT, _NUMBERED_ACCOUNT):
            for match in pattern.finditer(text):
                if _is_account(match[0].replace(" ", "")):
                    yield ACCOUNT, *match.span()

    # Dates are runs of digits too.
    without_dates = _DATE.sub(lambda date: "/" * len(date[0]), text) if has_digits else text
    for match in _RUN.finditer(without_dates) if has_digits or _may_have_run(folded) else ():
        run = match[0].rstrip(" ().-")
        if kind := _kind_of_run(run):
            yield kind, match.start(), match.start() + len(run)
    if "thousand" in folded:
        for match in _FOUR_GROUPS.finditer(folded):
            digits = "".join(map(_four_digits, _FOUR.findall(match[0])))
            if _is_card(digits):
                yield CARD, *match.span()


def _may_have_run(folded: str) -> bool:
    """Returns whether a text without written digits may have a run: to look for one takes ten times as long."""
    return not folded.isascii() or sum(map(_WORDS.__contains__, _ASCII_WORD.findall(folded))) >= _RUN_DIGITS


def _places(kind: str, pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, int, int]]:
    for match in pattern.finditer(text):
        yield kind, *match.span()


def _kind_of_run(run: str) -> str:
    """Names a run of digits, written or spoken; empty if the rules know nothing of its form."""
    words = [_WORDS.get(word, "") for word in run.lower().split()]
    spoken = all(words)
    digits = "".join(words) if spoken else ""
    for times, word, hanzi, digit, check in () if spoken else _ELEMENT.findall(run):
        spoken = spoken or bool(word or hanzi)
        value = _WORDS.get(word.lower(), "") + _HANZI.get(hanzi, "") + digit + check.upper()
        digits += value * _TIMES.get(times.lower(), 1)

    if _CHINESE_ID.fullmatch(digits) and _has_id_checksum(digits):
        return IDENTITY
    digits = digits.rstrip("X")
    if _SOCIAL_SECURITY.fullmatch(run):
        return IDENTITY
    if _is_card(digits):
        return CARD
    if _DECIMAL.fullmatch(run) or _COUNTED.fullmatch(digits):
        return ""

    groups = run.count(" ") + run.count("-") + run.count(".")
    is_phone = (
        (run.startswith("+") and 8 <= len(digits) <= 15)
        or _CHINESE_MOBILE.fullmatch(digits)
        or _AMERICAN.fullmatch(digits)
        or _LOCAL.fullmatch(run)
        or (digits.startswith("0") and 9 <= len(digits) <= 12 and groups <= 4)
        or (spoken and MIN_SPOKEN_DIGITS <= len(digits) <= 15)
    )
    if is_phone:
        return PHONE
    # A round number is an amount.
    if len(digits) >= MIN_LONG_NUMBER and not digits.endswith("00000") and (spoken or not groups):
        return NUMBER
    return ""


def _four_digits(spoken: str) -> str:
    """The four digits of a group of a card's number: "four thousand two hundred forty-two", "oh one one nine".

    >>> _four_digits("four thousand two hundred forty-two"), _four_digits("zero one one nine")
    ('4242', '0119')
    """
    words = spoken.replace("-", " ").replace(" and ", " ").split()
    if "thousand" not in words:
        return "".join(_WORDS[word] for word in words)
    value = 0
    for word in words:
        value = value * 1000 if word == "thousand" else value + _VALUES.get(word, 0)
        if word == "hundred":  # of what was said since the thousand
            value = value // 1000 * 1000 + value % 1000 * 100
    return str(value)


def _is_card(digits: str) -> bool:
    return 13 <= len(digits) <= 19 and bool(_ISSUER.match(digits)) and _has_luhn_checksum(digits)


def _has_luhn_checksum(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value // 10 + value % 10
    return total % 10 == 0


def _has_id_checksum(digits: str) -> bool:
    # GB 11643: the last character makes the weighted sum 1, modulo 11; X stands for 10.
    values = [10 if digit in "Xx" else int(digit) for digit in digits]
    total = sum(value * pow(2, 17 - place, 11) for place, value in enumerate(values))
    return total % 11 == 1


def _is_account(account: str) -> bool:
    # ISO 13616: letters count from 10, the first four characters go to the end, modulo 97.
    moved = account[4:] + account[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1

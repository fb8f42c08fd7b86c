"""English, as it is said: numbers, money, times, units and abbreviations become words; accents are folded.

What is left are letters, spaces and the punctuation that a voice hears; a text ends with a mark, which ends its speech.
"""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any

from components.speech.reading.unreadable import Unreadable, refusal, shown

_OUTSIDE = re.compile(r"[^a-z .,;:!?'-]")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBER = r"(?<![\w.])(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_LETTERS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "th", "þ": "th", "ı": "i"}
_MARKS = {"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'", "–": ", ", "—": ", ", "―": ", ", "‐": "-", "‑": "-"}
_MARKS |= dict.fromkeys('"“”„«»()[]{}', " ") | {"&": " and ", "@": " at ", "+": " plus ", "=": " equals ", "−": "-"}
_MARKS |= {"/": " ", "_": " ", "*": " ", "#": " number "}
_FRACTIONS = {"½": "one half", "¼": "one quarter", "¾": "three quarters", "⅓": "one third", "⅔": "two thirds"}
_ABBREVIATIONS = {
    "mr": "mister", "mrs": "missus", "ms": "miss", "dr": "doctor", "st": "saint", "prof": "professor",
    "etc": "et cetera",
    "jr": "junior", "sr": "senior", "vs": "versus", "capt": "captain", "lt": "lieutenant", "messrs": "messieurs",
}  # fmt: skip
_UNITS = {
    "km/h": "kilometer per hour", "m/s": "meter per second", "mph": "mile per hour", "km": "kilometer",
    "kg": "kilogram",
    "cm": "centimeter", "mm": "millimeter", "ml": "milliliter", "mg": "milligram", "kHz": "kilohertz", "Hz": "hertz",
    "°C": "degree Celsius", "°F": "degree Fahrenheit", "°": "degree", "%": "percent", "m": "meter", "g": "gram",
    "GB": "gigabyte", "MB": "megabyte", "kW": "kilowatt", "lb": "pound", "ft": "foot",
}  # fmt: skip
_MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
_PLURALS = {"foot": "feet", "penny": "pence"} | {one: one for one in ("percent", "hertz", "kilohertz")}
_KINGS = "Henry|Edward|George|Louis|Charles|James|Elizabeth|William|Richard|Philip|Napoleon|Pius|Frederick|Alexander"
_ROMAN = re.compile(r"X{0,3}(?:IX|IV|V?I{0,3})")
_LONGEST = 15
"""Digits; what is longer is no number but a row of digits, and said so."""


def english(text: str) -> str:
    """Reads English.

    >>> english("Dr. Smith paid $3.50 on May 3rd, 1999 — at 10:05")
    'doctor smith paid three dollars and fifty cents on may third, nineteen ninety-nine, at ten oh five.'

    Raises:
      Unreadable: a character that English has no sound for, or nothing to say.
    """
    text = _words(_folded(text))
    text = "".join(_MARKS.get(one, one) for one in text).lower()
    if unknown := _OUTSIDE.findall(text):
        raise refusal(unknown, text, "letters, digits, punctuation and the signs of money and of units are accepted")
    return _ended(_abbreviated(text), text)


def heard(symbols: str) -> str:
    """The words of what was read.

    >>> heard("it's twenty-one.")
    "it's twenty one"
    """
    return " ".join(re.sub(r"[^a-z0-9']", " ", symbols).split())


def _abbreviated(text: str) -> str:
    def long(match: re.Match[str]) -> str:
        return _ABBREVIATIONS[match[1]]

    text = re.sub(rf"\b({'|'.join(_ABBREVIATIONS)})\b(?!['-])\.(?= *[a-z,;])", long, text)
    return re.sub(rf"(?<!')\b({'|'.join(_ABBREVIATIONS)})\b(?!['-])", long, text)


def _ended(text: str, original: str) -> str:
    text = re.sub(r"(?<![a-z])'+|'+(?=')", " ", text)
    text = re.sub(r"(?<![a-z])-+|-+(?![a-z])", " ", text)
    text = re.sub(r" *([.,;:!?])[ .,;:!?]*", lambda match: f"{_strongest(match[0])} ", text)
    text = " ".join(text.split()).lstrip(" .,;:!?'-")
    if not re.search("[a-z]", text):
        raise Unreadable(f"{shown(original)} has no word; letters or digits are accepted")
    return text if text[-1] in ".!?" else text.rstrip(" ,;:-") + "."


def _strongest(marks: str) -> str:
    return next(mark for mark in "?!.;:," if mark in marks)


def _folded(text: str) -> str:
    """Without accents, ligatures and wide forms; ² and ① stay, which are not 2 and 1."""
    folded: list[str] = []
    for one in unicodedata.normalize("NFC", text):
        if one in _FRACTIONS:
            folded.append((" and " if folded and folded[-1][-1:].isdigit() else " ") + _FRACTIONS[one] + " ")
            continue
        form = unicodedata.decomposition(one)
        if not form.startswith(("<super>", "<sub>", "<circle>", "<fraction>", "<square>")) and one not in "´":
            one = unicodedata.normalize("NFKD", one)
        folded.append("".join(_LETTERS.get(part, part) for part in one if not unicodedata.combining(part)))
    return " ".join("".join(folded).split())


def _words(text: str) -> str:
    """Everything with digits, and roman numerals where a word before them tells what they are."""
    text = re.sub(
        rf"\b({_KINGS}) ([XVI]+)\b", lambda m: f"{m[1]} the {_ordinal(_roman(m[2]))}" if _roman(m[2]) else m[0], text
    )
    text = re.sub(
        r"\b([Cc]hapter|[Bb]ook|[Pp]art|[Vv]olume|[Aa]ct|[Ss]cene|World War) ([XVI]+)\b",
        lambda m: f"{m[1]} {_cardinal(_roman(m[2]))}" if _roman(m[2]) else m[0],
        text,
    )
    text = re.sub(r"\b[Nn]os?\. ?(?=[0-9])", "number ", text)
    text = re.sub(
        r"([$£€]) ?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]{2}))?(?: (million|billion|thousand))?(?![0-9])",
        _money,
        text,
    )
    text = re.sub(r"\b([0-9]{1,3}) ?([¢])", lambda m: _counted(int(m[1]), "cent"), text)
    text = re.sub(r"\b([01]?[0-9]|2[0-3]):([0-5][0-9])\b", _time, text)
    text = re.sub(
        rf"\b({_MONTHS}) ([0-9]{{1,2}})(?![0-9:.,]*[0-9]{{3}})\b(?!th)", lambda m: f"{m[1]} {_ordinal(int(m[2]))}", text
    )
    text = re.sub(r"\b([0-9]{1,15})(?:st|nd|rd|th)\b", lambda m: _ordinal(int(m[1])), text)
    text = re.sub(r"\b([0-9]{3}0)s\b", lambda m: _plural(_year(int(m[1]))), text)
    text = re.sub(r"(?<![\w.])-(?=[0-9])", "minus ", text)
    units = "|".join(map(re.escape, _UNITS))
    text = re.sub(rf"({_NUMBER}(?:\.[0-9]+)?) ?({units})(?![A-Za-z])", _measured, text)
    text = re.sub(r"(?<![\w.,])(1[1-9][0-9]{2}|20[0-9]{2})(?![\w%]|[.,][0-9])", lambda m: _year(int(m[1])), text)
    text = re.sub(rf"{_NUMBER}\.[0-9]+", lambda m: _decimal(m[0]), text)
    text = re.sub(_NUMBER, lambda m: _decimal(m[0]), text)
    return re.sub(r"[0-9]+", lambda m: f" {_decimal(m[0])} ", text)


def _king(match: re.Match[str]) -> str:
    number = _roman(match[2])
    return f"{match[1]} the {_ordinal(number)}" if number else match[0]


def _money(match: re.Match[str]) -> str:
    (large, small), whole, cents, scale = _MONEY[match[1]], match[2].replace(",", ""), match[3], match[4]
    if scale or len(whole) > _LONGEST:
        return f"{_decimal(whole + ('.' + cents if cents else ''))} {scale or ''} {_plural(large)}"
    said = [_counted(int(whole), large)] if int(whole) or not int(cents or 0) else []
    return " and ".join(said + ([_counted(int(cents), small)] if int(cents or 0) else []))


def _date(match: re.Match[str]) -> str:
    return f"{match[1]} {_ordinal(int(match[2]))}"


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    said = "o'clock" if not minute else f"oh {_cardinal(minute)}" if minute < 10 else _cardinal(minute)
    return f"{_cardinal(hour)} {said}"


def _measured(match: re.Match[str]) -> str:
    unit, *rest = _UNITS[match[2]].split(" ", 1)
    return " ".join([_decimal(match[1]), unit if match[1] == "1" else _plural(unit), *rest])


def _counted(count: int, noun: str) -> str:
    return f"{_cardinal(count)} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    return _PLURALS.get(noun) or (noun[:-1] + "ies" if noun.endswith("y") else noun + "s")


def _year(year: int) -> str:
    century, rest = divmod(year, 100)
    if century % 10 == 0 and rest < 10:
        return _cardinal(year)
    return f"{_cardinal(century)} " + (
        "hundred" if not rest else f"oh {_cardinal(rest)}" if rest < 10 else _cardinal(rest)
    )


def _decimal(number: str) -> str:
    whole, _, fraction = number.replace(",", "").partition(".")
    row = len(whole) > _LONGEST or (len(whole) > 1 and whole[0] == "0")
    said = " ".join(map(_cardinal, map(int, whole))) if row else _cardinal(int(whole))
    return f"{said} point {' '.join(map(_cardinal, map(int, fraction)))}" if fraction else said


def _roman(numeral: str) -> int:
    if not _ROMAN.fullmatch(numeral):
        return 0
    values = [{"I": 1, "V": 5, "X": 10}[one] for one in numeral]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


@cache
def _engine() -> Any:
    import inflect

    return inflect.engine()


@lru_cache(4096)
def _cardinal(number: int) -> str:
    return str(_engine().number_to_words(number, andword="")).replace(",", "")


def _ordinal(number: int) -> str:
    return str(_engine().ordinal(_cardinal(number)))

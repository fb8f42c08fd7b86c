"""Inverse text normalization of English: spoken words as they are written, "seven thirty" as 7:30.

A number is written in digits where its neighbors say what it counts: a currency, a unit, a month, a time of day. Small
counts stay words ("two dogs"), and so does what has two readings ("three to one"). Rules take spoken words from a
position on, the certain ones first; what no rule takes stays as it is.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxline.text.english_numbers import UNDER_20, UNDER_100

_DIGITS = {word: value for value, word in enumerate(UNDER_20[:10])} | {"oh": 0, "o": 0}
_SMALL = {word: value for value, word in enumerate(UNDER_20) if value}
_TENS = {word: 10 * tens for tens, word in enumerate(UNDER_100) if word}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {
    "first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine",
    "twelfth": "twelve",
    **{f"{word}th": word for word in (*UNDER_20[1:], "hundred", *_SCALES)},
    **{f"{word[:-1]}ieth": word for word in _TENS},
}  # fmt: skip
_DENOMINATORS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
                 "eighth": 8, "ninth": 9, "tenth": 10}  # fmt: skip
_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_ALSO_WORDS = ("march", "may")
_DECADES = {f"{word[:-1]}ies": value for word, value in _TENS.items()} | {"tens": 10}
_CURRENCIES = {
    "dollar": "$", "euro": "€", "yen": "¥", "rupee": "₹", "ruble": "₽", "rouble": "₽", "shekel": "₪", "naira": "₦",
    "hryvnia": "₴", "baht": "฿", "won": "₩", "pound": "£",
}  # fmt: skip
_WHOSE = {
    ("u", "s"): "US", ("us",): "US", ("canadian",): "C", ("australian",): "A", ("new", "zealand"): "NZ",
    ("hong", "kong"): "HK", ("singapore",): "S",
}  # fmt: skip
_HUNDREDTHS = ("centimes", "cent", "cents", "penny", "pence", "paisa", "paise", "kopecks")
_UNITS = {
    "kilometers per hour": " km/h", "miles per hour": " mph", "meters per second": " m/s", "square kilometers": " km²",
    "square meters": " m²", "cubic meters": " m³", "degrees celsius": "°C", "degrees fahrenheit": "°F",
    "percent": "%", "per cent": "%", "kilometers": " km", "centimeters": " cm", "millimeters": " mm",
    "meters": " m", "kilograms": " kg", "milligrams": " mg", "grams": " g", "milliliters": " ml", "liters": " L",
    "kilobytes": " KB", "megabytes": " MB", "gigabytes": " GB", "terabytes": " TB", "hertz": " Hz",
    "kilohertz": " kHz", "megahertz": " MHz", "gigahertz": " GHz", "kilowatts": " kW", "megawatts": " MW",
    "watts": " W", "volts": " V", "decibels": " dB", "milliseconds": " ms",
}  # fmt: skip
_LABELS = frozenset(
    """
    chapter page room number flight route gate platform version channel step level track volume figure act section
    line grade unit apartment suite highway interstate bus terminal exit question exercise phase season episode part
    verse extension box scene paragraph article
    """.split()  # noqa: SIM905 - a table in lines
)
"""What numbers name: "chapter four" is chapter 4."""
_CODES = ("call", "dial", "code", "pin", "extension", "number", "phone", "telephone", "zip", "is", *_LABELS)
_STREETS = ("street", "avenue", "road", "boulevard", "drive", "lane", "court", "place")
_NO_NAMES = frozenset("of the to in on and a an from at way lane or for with people cars is was".split())  # noqa: SIM905
_BEFORE_YEARS = ("in", "since", "of", "until", "till", "by", "year", "before", "after", "from", "to", "and", *_MONTHS)
_BEFORE_TIMES = ("at", "by", "until", "till", "before", "after", "from", "it's", "past", "between")
_AFTER_TIMES = ("today", "tomorrow", "tonight", "sharp", "eastern", "pacific", "central", "est", "gmt", "utc")
_BEFORE_DATES = ("on", "by", "since", "until", "till", "of", "before", "after", "from", "through", "next", "last")
_LONGEST = 24
"""Words that a number is looked for in, and digits of a code: the time must not grow as the square of the words."""
_SITES = ("com", "org", "net", "edu", "gov", "io")
_MARKS = ".,;:!?…"


@dataclass(frozen=True, slots=True)
class WrittenWord:
    """The text that is written for some spoken words.

    Attributes:
      first, last: of the spoken words: their places, `last` excluded.
    """

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Amount:
    """A number among words.

    Attributes:
      text: in digits.
      end: the place behind it.
      whole: True of one without a decimal point and without a word such as million.
    """

    text: str
    value: float
    end: int
    whole: bool


def write_english(words: Sequence[str]) -> list[WrittenWord]:
    """Writes numbers, times, dates, money, units and spelled letters as a person writes them.

    Args:
      words: spoken, in order; marks behind a word stay, and end what is written as one.

    >>> def write(text):
    ...     return " ".join(word.text for word in write_english(text.split()))
    >>> write("doctor smith paid three dollars and fifty cents at seven thirty on march fifth nineteen eighty four")
    'doctor smith paid $3.50 at 7:30 on March 5, 1984'
    >>> write("two dogs ran five kilometers in twenty five minutes, call five five five one two three four")
    'two dogs ran 5 km in 25 minutes, call 555-1234'
    """
    bare = [word.rstrip(_MARKS) for word in words]
    spoken = [word.lower().replace("’", "'") for word in bare]
    written: list[WrittenWord] = []
    ends = [place + 1 for place in range(len(words)) if bare[place] != words[place] or place + 1 == len(words)]
    for start, end in itertools.pairwise([0, *ends]):
        part = spoken[start:end]
        place = start
        while place < end:
            text, length = _write_at(part, place - start) or (bare[place], 1)
            last = place + length
            written.append(WrittenWord(text + words[last - 1][len(bare[last - 1]) :], place, last))
            place = last
    return written


def _write_at(words: list[str], place: int) -> tuple[str, int] | None:
    """Returns the text that is written from a place on, and how many words it stands for."""
    if words[place] not in _BEGINNINGS and len(words[place]) > 1 and not _is_site(words, place):
        return None
    for rule in _RULES:
        if result := rule(words, place):
            text, end = result
            return text, end - place
    return None


# Numbers as words: each parser returns the value and the place behind it.


def _word(words: list[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def _under_100(words: list[str], place: int) -> tuple[int, int] | None:
    word = _word(words, place)
    if word in _SMALL:
        return _SMALL[word], place + 1
    if word in _TENS:
        digit = _SMALL.get(_word(words, place + 1), 10)
        return (_TENS[word] + digit, place + 2) if digit < 10 else (_TENS[word], place + 1)
    return None


def _under_1000(words: list[str], place: int) -> tuple[int, int] | None:
    first = _under_100(words, place)
    if first is None or _word(words, first[1]) != "hundred":
        return first
    value = first[0] * 100
    end = first[1] + 1
    # "one hundred and five" is one number, "one hundred and two hundred" are two.
    behind = _under_100(words, end + (_word(words, end) == "and"))
    if behind and _word(words, behind[1]) != "hundred":
        return value + behind[0], behind[1]
    return value, end


def _cardinal(words: list[str], place: int) -> tuple[int, int] | None:
    """A whole number above zero: groups of up to three digits, each with a smaller scale than the one before."""
    if _word(words, place) == "a" and _word(words, place + 1) in ("hundred", *_SCALES):
        number = _cardinal(["one", *words[place + 1 : place + 1 + _LONGEST]], 0)
        return (number[0], place + number[1]) if number else None
    # Groups of up to three digits: each has a smaller scale than the one before it.
    total = 0
    end = place
    least = 10**15
    while group := _under_1000(words, end + (bool(total) and _word(words, end) == "and")):
        scale = _SCALES.get(_word(words, group[1]), 1)
        if scale >= least:
            break
        total += group[0] * scale
        end = group[1] + (scale > 1)
        least = scale
        if scale == 1:
            break
    return (total, end) if total else None


def _digit_run(words: list[str], place: int) -> tuple[str, int]:
    """Digits that are said one by one."""
    end = place
    while end < place + _LONGEST and _word(words, end) in _DIGITS:
        end += 1
    return "".join(str(_DIGITS[word]) for word in words[place:end]), end


def _amount(words: list[str], place: int) -> _Amount | None:
    """A number with its sign, its decimals and its scale: minus five, two point five million."""
    begin = place + (_word(words, place) in ("minus", "negative"))
    sign = "-" * (begin > place)
    number = (0, begin + 1) if _word(words, begin) == "zero" else _cardinal(words, begin)
    if number is None:
        return None
    value, end = number
    scale = _word(words, end - 1)
    # Two million stays a word and a figure; two million three has seven digits.
    is_round = scale in ("million", "billion", "trillion") and value % _SCALES[scale] == 0
    text = f"{value // _SCALES[scale]:,} {scale}" if is_round else f"{value:,}"
    # Decimals: digits one by one, or one number; versions have several points.
    points = ""
    while _word(words, end) == "point" and _word(words, end + 1) in (*_DIGITS, *_TENS, *_SMALL):
        digits, behind = _digit_run(words, end + 1)
        if not digits and (under := _under_100(words, end + 1)):
            digits = str(under[0])
            behind = under[1]
        points += f".{digits}"
        end = behind
    if points:
        scale = _word(words, end)
        is_scaled = scale in ("million", "billion", "trillion")
        return _Amount(f"{sign}{value}{points}{f' {scale}' * is_scaled}", value, end + is_scaled, False)
    return _Amount(sign + text, value, end, not is_round)


def _pair(words: list[str], place: int) -> tuple[str, int] | None:
    """Two numbers that are one when they are written: nineteen eighty four, one oh one, sixteen hundred."""
    first = _under_100(words, place)
    if first is None:
        return None
    value, end = first
    # One oh one; of more digits it is a row.
    if _word(words, end) in ("oh", "o") and _DIGITS.get(_word(words, end + 1), 0) > 0 and not _is_digit(words, end + 2):
        return f"{value}0{_DIGITS[words[end + 1]]}", end + 2
    if _word(words, end) == "hundred" and value > 9:
        return (f"{value}00", end + 1) if _under_100(words, end + 1) is None else None
    second = _under_100(words, end)
    return (f"{value}{second[0]}", second[1]) if second and second[0] > 9 else None


def _is_digit(words: list[str], place: int) -> bool:
    return _word(words, place) in _DIGITS


def _year(words: list[str], place: int) -> tuple[str, int] | None:
    """A year from 1100 to 2099, as it is said."""
    if (pair := _pair(words, place)) and len(pair[0]) == 4 and "1100" <= pair[0] <= "2099":
        return pair
    number = _cardinal(words, place)
    return (str(number[0]), number[1]) if number and 2000 <= number[0] <= 2099 else None


# Rules: what is written from a place on, and the place behind it.

_Written = tuple[str, int] | None


def _write_telephone(words: list[str], place: int) -> _Written:
    """Digits that are said one by one: telephone numbers, codes, 911."""
    before = _word(words, place - 1)
    if words[place : place + 3] == ["one", "eight", "hundred"]:
        digits, end = _digit_run(words, place + 3)
        return (f"1-800-{digits[:3]}-{digits[3:]}", end) if len(digits) == 7 else None
    is_plus = words[place] == "plus"
    digits, end = _digit_run(words, place + is_plus)
    # The last digit may begin another number: three point five, five hundred, eight p m.
    if _word(words, end) in ("point", "hundred", *_SCALES, "percent", "o'clock", "am", "pm", "a.m.", "p.m.") or (
        _word(words, end) in ("a", "p") and _word(words, end + 1) == "m"
    ):
        return None
    # Groups by the number of digits, as in North America.
    if is_plus:
        return (f"+{digits}", end) if len(digits) >= 8 else None
    if words[place] in ("oh", "o") or before in _DIGITS:  # or the rest of a row that is no number
        return None
    if len(digits) == 10:
        return f"{digits[:3]}-{digits[3:6]}-{digits[6:]}", end
    if len(digits) == 11 and digits[0] == "1":
        return f"1-{digits[1:4]}-{digits[4:7]}-{digits[7:]}", end
    if len(digits) == 7:
        return f"{digits[:3]}-{digits[3:]}", end
    # Who counts says digits too, and "seven oh five" may be a time.
    is_counting = digits in "0123456789" or digits in "9876543210"
    is_time = len(digits) == 3 and words[place + 1] in ("oh", "o")
    is_year = len(digits) == 4 and "1100" <= digits <= "2099"
    if len(digits) < 3 or is_counting or ((is_time or is_year) and before not in _CODES):
        return None
    is_code = before in _CODES or "0" in digits or len(set(digits)) < len(digits)
    return (digits, end) if len(digits) > 3 or is_code else None


def _write_date(words: list[str], place: int) -> _Written:
    if words[place] in _MONTHS:
        return _month_first(words, place)
    # The third of May stays a day of a month.
    ordinal = _ordinal(words, place)
    if ordinal is None or ordinal[0] > 31 or _word(words, ordinal[1]) != "of":
        return None
    month = _word(words, ordinal[1] + 1)
    if month not in _MONTHS:
        return None
    end = ordinal[1] + 2
    year = _year(words, end)
    text = f"{_with_suffix(ordinal[0])} of {month.capitalize()}"
    return (f"{text} {year[0]}", year[1]) if year else (text, end)


def _month_first(words: list[str], place: int) -> _Written:
    month = words[place].capitalize()
    day = _ordinal(words, place + 1)
    if day and 1 <= day[0] <= 31:
        last = _ordinal(words, day[1] + 1) if _word(words, day[1]) == "to" else None
        if last and day[0] < last[0] <= 31:
            return f"{month} {day[0]}–{last[0]}", last[1]
        if year := _year(words, day[1]):
            return f"{month} {day[0]}, {year[0]}", year[1]
        is_sure = words[place] not in _ALSO_WORDS or _word(words, place - 1) in _BEFORE_DATES or len(words) == day[1]
        return (f"{month} {day[0]}", day[1]) if is_sure else None
    # March five, nineteen eighty four has its year for proof.
    number = _under_100(words, place + 1)
    if number and 1 <= number[0] <= 31 and (year := _year(words, number[1])):
        return f"{month} {number[0]}, {year[0]}", year[1]
    year = _year(words, place + 1)
    return (f"{month} {year[0]}", year[1]) if year else None


def _write_time(words: list[str], place: int) -> _Written:
    if half := _write_half_past(words, place):
        return half
    hour = (0, place + 1) if words[place] == "zero" else _under_100(words, place)
    if hour is None or hour[0] > 24:
        return None
    value, end = hour
    minutes: int | None = None
    if _word(words, end) == "o'clock":
        minutes = 0
        end += 1
    elif _word(words, end) in ("oh", "o") and _SMALL.get(_word(words, end + 1), 10) < 10:
        minutes = _SMALL[words[end + 1]]
        end += 2
    elif (under := _under_100(words, end)) and 10 <= under[0] <= 59:
        minutes, end = under
    elif _word(words, end) == "hundred" and value > 9 and _is_clock_hour(words, place, end + 1):
        minutes = 0
        end += 1
    # Seven p m is a time without minutes.
    half_of_day, behind = _half_of_day(words, end)
    if minutes is None:
        return (f"{value}{half_of_day}", behind) if half_of_day and 1 <= value <= 12 else None

    # And thirty seconds are of a time in any place.
    text = f"{value}:{minutes:02d}"
    seconds = _under_100(words, behind + 1) if _word(words, behind) == "and" else None
    if seconds and seconds[0] < 60 and _word(words, seconds[1]) == "seconds":
        return f"{text}:{seconds[0]:02d}", seconds[1] + 1
    is_clock = words[end - 1] in ("o'clock", "hundred")
    is_sure = half_of_day or is_clock or _is_time(words, place, end, value, minutes)
    return (text + half_of_day, behind) if is_sure else None


def _is_clock_hour(words: list[str], place: int, end: int) -> bool:
    """Returns whether a hundred is an hour of 24: at eighteen hundred, from nine o'clock to seventeen hundred."""
    if _under_100(words, end):
        return False
    is_second = _word(words, place - 1) == "to" and "o'clock" in words[max(0, place - 4) : place]
    return is_second or _word(words, place - 1) == "at"


def _is_time(words: list[str], place: int, end: int, hour: int, minutes: int) -> bool:
    """Returns whether an hour and minutes are no house, no year and no count."""
    before = _word(words, place - 1)
    if end < len(words) and (words[end] in _CURRENCY_WORDS or _is_number_word(words[end])):
        return False
    is_alone = place == 0 and end == len(words) and hour <= 12 and minutes % 5 == 0
    is_after_it = before == "is" and _word(words, place - 2) in ("it", "time")
    # "from nine oh five to ten fifteen"; in twenty thirty is a year.
    is_second = before in ("to", "and") and any(
        word in ("from", "between") for word in words[max(0, place - 8) : place]
    )
    is_range = (_word(words, end) == "to" and _clock_end(words, end + 1) is not None) or (
        before == "to" and place - 1 in (_clock_end(words, place - 3), _clock_end(words, place - 4))
    )
    is_year = before in _BEFORE_YEARS and (
        hour in (19, 20) or (hour > 12 and before not in ("by", "until", "till", "before", "after"))
    )
    return not is_year and (
        before in _BEFORE_TIMES or is_alone or is_range or is_after_it or is_second or _word(words, end) in _AFTER_TIMES
    )


def _clock_end(words: list[str], place: int) -> int | None:
    """The place behind an hour up to twelve and minutes that clocks show: ten thirty."""
    hour = _SMALL.get(_word(words, place), 13)
    minutes = _under_100(words, place + 1)
    is_clock = hour <= 12 and minutes is not None and 10 <= minutes[0] <= 55 and minutes[0] % 5 == 0
    return minutes[1] if minutes and is_clock else None


def _half_of_day(words: list[str], place: int) -> tuple[str, int]:
    word = _word(words, place).replace(".", "")
    if word in ("am", "pm"):
        return f" {word[0]}.m.", place + 1
    if word in ("a", "p") and _word(words, place + 1) == "m":
        return f" {word}.m.", place + 2
    return "", place


def _write_half_past(words: list[str], place: int) -> _Written:
    begin = place + (words[place] == "a" and _word(words, place + 1) == "quarter")
    minutes = {"half": 30, "quarter": 15}.get(_word(words, begin))
    relation = _word(words, begin + 1)
    hour = _SMALL.get(_word(words, begin + 2), 0)
    if minutes is None or not 1 <= hour <= 12:
        return None
    if relation in ("past", "after") and not (minutes == 30 and relation == "after"):
        return f"{hour}:{minutes}", begin + 3
    return (f"{(hour - 2) % 12 + 1}:45", begin + 3) if relation == "to" and minutes == 15 else None


def _write_decade(words: list[str], place: int) -> _Written:
    century = _under_100(words, place)
    if century is None or not 11 <= century[0] <= 20:
        return None
    decade = _word(words, century[1])
    if decade == "hundreds":
        return f"{century[0]}00s", century[1] + 1
    return (f"{century[0]}{_DECADES[decade]}s", century[1] + 1) if decade in _DECADES else None


def _write_money(words: list[str], place: int) -> _Written:
    amount = _amount(words, place)
    if amount is None or (words[place] == "a" and _word(words, place - 1) == "half"):  # half a million euros
        return None
    # Ten to twenty dollars: one sign for both.
    if _word(words, amount.end) == "to" and amount.whole and not _is_digit(words, place - 1):
        most = _amount(words, amount.end + 1)
        money = _money_of(words, most) if most else None
        if money and money[0][:1] in _CURRENCIES.values() and money[0][1:2].isdigit():
            return f"{money[0][:1]}{amount.text}–{money[0][1:]}", money[1]
    return _money_of(words, amount)


def _money_of(words: list[str], amount: _Amount) -> _Written:
    """An amount with the currency behind it."""
    end = amount.end
    whose = ""
    for country, letters in _WHOSE.items():
        if tuple(words[end : end + len(country)]) == country:
            whose = letters
            end += len(country)
            break
    if words[end : end + 2] in (["swiss", "franc"], ["swiss", "francs"]):
        part, end = _hundredths(words, end + 2, amount)
        return f"CHF {amount.text}{part}", end
    name = _word(words, end)
    sign = _CURRENCIES.get(name) or _CURRENCIES.get(name.removesuffix("s"))
    if sign is None or (whose and sign != "$"):
        return None
    end += 1

    part, end = _hundredths(words, end, amount)
    # Pounds are a weight too, and "won" is a verb.
    is_scaled = amount.text.endswith("illion")
    if sign == "£" and not part and not is_scaled:
        if _word(words, end) != "sterling":
            return None
        end += 1
    if sign == "₩" and amount.value < 100 and not is_scaled:
        return None
    minus = "-" * amount.text.startswith("-")
    return f"{minus}{whose}{sign}{amount.text.removeprefix('-')}{part}", end


def _hundredths(words: list[str], end: int, amount: _Amount) -> tuple[str, int]:
    """Decimals of a whole amount: and fifty cents; or only fifty, at the end."""
    cents = _under_100(words, end + (_word(words, end) == "and"))
    if not amount.whole or cents is None:
        return "", end
    if _word(words, cents[1]) in _HUNDREDTHS:
        return f".{cents[0]:02d}", cents[1] + 1
    is_last = cents[0] > 9 and cents[1] == len(words) and _word(words, end) != "and"
    return (f".{cents[0]}", cents[1]) if is_last else ("", end)


def _write_measure(words: list[str], place: int) -> _Written:
    amount = _amount(words, place)
    if amount is None or _is_number_word(_word(words, place - 1)):  # three sixty degrees
        return None
    # The longest unit first: kilometers per hour before kilometers.
    for length in (3, 2, 1):
        unit = _ALL_UNITS.get(" ".join(words[amount.end : amount.end + length]))
        if unit and amount.end + length <= len(words):
            return amount.text + unit, amount.end + length
    # Five foot ten, five feet six inches.
    inches = _under_100(words, amount.end + 1) if _word(words, amount.end) in ("foot", "feet") else None
    if inches and inches[0] < 12 and amount.whole and amount.value < 10:
        has_unit = _word(words, inches[1]) in ("inch", "inches")
        if has_unit or words[amount.end] == "foot":
            return f"{amount.text}'{inches[0]}\"", inches[1] + has_unit
    return None


def _write_fraction(words: list[str], place: int) -> _Written:
    whole = _cardinal(words, place)
    if whole is None:
        return None
    value, end = whole
    # Two and a half, three and seven eighths.
    if _word(words, end) == "and":
        article = _word(words, end + 1) == "a"
        above = (1, end + 2) if article else _under_100(words, end + 1)
        below = _denominator(words, above) if above else None
        if above and below and (article or above[0] < below):
            return f"{value} {above[0]}/{below}", above[1] + 1
        return None
    below = _denominator(words, whole)
    if below is None:
        return None
    # "one fifth avenue" is no fraction.
    is_sure = value > 1 or _word(words, end) in ("half", "quarter") or _word(words, end + 1) in ("", "of", "the", "a")
    return (f"{value}/{below}", end + 1) if is_sure else None


def _denominator(words: list[str], above: tuple[int, int]) -> int | None:
    name = _word(words, above[1])
    is_plural = above[0] > 1
    return _DENOMINATORS.get(name.removesuffix("s")) if name.endswith("s") == is_plural and name != "halve" else None


def _ordinal(words: list[str], place: int) -> tuple[int, int] | None:
    # The last word alone is ordinal: one hundred twenty third.
    for end in range(place, min(place + 9, len(words))):
        if words[end] in _ORDINALS:
            number = _cardinal([*words[place:end], _ORDINALS[words[end]]], 0)
            return (number[0], end + 1) if number and number[1] == end + 1 - place else None
        if not _is_number_word(words[end]) and words[end] not in ("hundred", "and", *_SCALES):
            return None
    return None


def _with_suffix(value: int) -> str:
    """
    >>> _with_suffix(21), _with_suffix(112), _with_suffix(3)
    ('21st', '112th', '3rd')
    """
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th") if value % 100 not in (11, 12, 13) else "th"
    return f"{value:,}{suffix}"


def _write_ordinal(words: list[str], place: int) -> _Written:
    ordinal = _ordinal(words, place)
    if ordinal is None or ordinal[0] < 10:
        return None
    # "a thirty second break" has seconds.
    is_second = words[ordinal[1] - 1] == "second" and _word(words, place - 1) in ("a", "every", "each", "per")
    return None if is_second else (_with_suffix(ordinal[0]), ordinal[1])


def _write_address(words: list[str], place: int) -> _Written:
    """A house before the name of its street, of up to three words."""
    number = _pair(words, place) or _small_pair(words, place)
    if number is None:
        cardinal = _cardinal(words, place)
        if cardinal is None or (cardinal[0] < 10 and _word(words, place - 1) != "at"):
            return None
        number = str(cardinal[0]), cardinal[1]
    # Between the number and the street is a name, and nothing that makes a sentence.
    end = number[1]
    for length in (1, 2, 3):
        names = words[end : end + length]
        if any(name in _NO_NAMES or _is_number_word(name) for name in names):
            return None
        if _word(words, end + length) in _STREETS:
            return number
    return None


def _small_pair(words: list[str], place: int) -> tuple[str, int] | None:
    """One twenty three, as houses and rooms are said."""
    first = _SMALL.get(_word(words, place), 10)
    second = _under_100(words, place + 1)
    return (f"{first}{second[0]}", second[1]) if first < 10 and second and second[0] > 9 else None


def _write_label(words: list[str], place: int) -> _Written:
    """Numbers that name what is before them: chapter four, room one oh one."""
    if _word(words, place - 1) not in _LABELS:
        return None
    # Rooms and flights are said in pairs.
    if number := _pair(words, place) or _small_pair(words, place):
        return number
    amount = _amount(words, place)
    return (amount.text.replace(",", ""), amount.end) if amount else None


def _write_year(words: list[str], place: int) -> _Written:
    year = _year(words, place)
    if year is None:
        return None
    # A pair of numbers is a year by itself from 1500 on, others with a word before it.
    before = _word(words, place - 1) in _BEFORE_YEARS
    is_pair = _pair(words, place) == year
    # "two thousand people" is a count, "eleven thirty" a time or a year; "nineteen eighty" is nothing else.
    if is_pair and not year[0].endswith("00"):
        # After "to", eleven forty five is a time.
        before = before and (year[0] >= "1300" or _word(words, place - 1) in ("in", "since", "year"))
        return year if before or year[0] >= "1500" or year[0][2:] >= "60" else None
    behind = _word(words, year[1])
    is_closed = behind in ("", "and", "or", "to", "the", "was", "when", "we", "he", "she", "they", "it", "i")
    is_closed |= _is_number_word(behind)
    return year if before and (is_closed or is_pair) else None


def _write_number(words: list[str], place: int) -> _Written:
    """A count of ten or more, or one with decimals. Smaller ones are words, unless a range continues with digits."""
    amount = _amount(words, place)
    before = _word(words, place - 1)
    # Three fifty nine hundred and forty sevens are no counts.
    is_behind = before in _TENS or (words[place] in _TENS and _is_number_word(before))
    if amount is None or words[place] == "a" or is_behind or _word(words, amount.end)[:-1] in _SMALL:
        return None
    # Ten minus five is arithmetic, minus five is a number.
    is_negative = amount.text.startswith("-") and not _is_number_word(before)
    if amount.text.startswith("-") and not is_negative:
        return None
    if before == "or" and _word(words, place - 2) == "plus":
        return None
    if _word(words, amount.end) in ("to", "or") and amount.value < 10 and amount.whole:
        behind = _amount(words, amount.end + 1)
        is_half_of_day = behind and _half_of_day(words, behind.end)[0]
        if behind and (behind.value >= 10 or is_half_of_day or _write_measure(words, amount.end + 1)):
            return amount.text, amount.end
    # "sixteen to nine", but "twenty to two friends".
    behind_word = _word(words, amount.end)
    is_ratio = before == "to" and not behind_word.endswith("s") and not _is_number_word(behind_word)
    if is_ratio and (_SMALL.get(_word(words, place - 2), 0) > 9 or _word(words, place - 2) in _TENS):
        return amount.text, amount.end
    # Two numbers side by side, such as "seven thirty", have more than one reading.
    if amount.value < 10 and amount.whole and not is_negative:
        return None
    follows = _is_number_word(behind_word) or _is_number_word(before)
    return None if follows and amount.whole and amount.value < 100 else (amount.text, amount.end)


def _write_letters(words: list[str], place: int) -> _Written:
    """Letters that are said one by one: u s a."""
    end = place
    while end < place + _LONGEST and len(_word(words, end)) == 1 and words[end].isalpha():
        end += 1
    letters = words[place:end]
    is_word_first = letters[:1] in (["a"], ["i"], ["o"])
    # W three c is a name, and no letters W and C.
    is_beside_number = _is_number_word(_word(words, place - 1)) or _is_number_word(_word(words, end))
    is_behind_letter = len(_word(words, place - 1)) == 1
    if len(letters) < 2 + is_word_first or is_behind_letter or is_beside_number:
        return None
    return "".join(letters).upper(), end


def _is_site(words: list[str], place: int) -> bool:
    return _word(words, place + 1) == "dot" and _word(words, place + 2) in _SITES


def _write_site(words: list[str], place: int) -> _Written:
    return (f"{words[place]}.{words[place + 2]}", place + 3) if _is_site(words, place) else None


def _is_number_word(word: str) -> bool:
    return word in _SMALL or word in _TENS or word in ("zero", "oh")


_BRITISH = {"meter": "metre", "liter": "litre"}
_ALL_UNITS: dict[str, str] = {}
for _plural, _symbol in _UNITS.items():
    _ALL_UNITS[_plural] = _symbol
    _ALL_UNITS[re.sub(r"s\b", "", _plural, count=1) if "hertz" not in _plural and "celsius" not in _plural
               else _plural.replace("degrees", "degree")] = _symbol  # fmt: skip
    for _american, _spelling in _BRITISH.items():
        _ALL_UNITS[_plural.replace(_american, _spelling)] = _symbol
_CURRENCY_WORDS = frozenset(_CURRENCIES) | {f"{name}s" for name in _CURRENCIES} | {"cents", "pence", "percent"}
_BEGINNINGS = frozenset(
    [*_SMALL, *_TENS, *_ORDINALS, *_MONTHS, "zero", "oh", "a", "plus", "minus", "negative", "half", "quarter"]
)
_RULES: tuple[Callable[[list[str], int], _Written], ...] = (
    _write_site,
    _write_telephone,
    _write_date,
    _write_time,
    _write_decade,
    _write_money,
    _write_measure,
    _write_fraction,
    _write_ordinal,
    _write_address,
    _write_label,
    _write_year,
    _write_number,
    _write_letters,
)
"""The certain ones first."""

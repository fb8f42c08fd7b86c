"""Inverse text normalization of English: spoken words as they are written, "seven thirty" as 7:30.

A number is written in digits where its neighbors say what it counts: a currency, a unit, a month, a time of day. Small
counts stay words ("two dogs"), and so does what has two readings ("three to one"). Rules take spoken words from a
position on, the certain ones first; what no rule takes stays as it is.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxline.text.english_numbers import (
    DIGIT_VALUES,
    LONGEST_ROW,
    SCALE_VALUES,
    SMALL_VALUES,
    TENS_VALUES,
    UNDER_20,
    Amount,
    is_digit,
    is_digit_row,
    is_number_word,
    parse_amount,
    parse_cardinal,
    parse_digit_run,
    parse_pair,
    parse_under_100,
    parse_year,
    parse_year_of_date,
    word_at,
)

_ORDINALS = {
    "first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine",
    "twelfth": "twelve",
    **{f"{word}th": word for word in (*UNDER_20[1:], "hundred", *SCALE_VALUES)},
    **{f"{word[:-1]}ieth": word for word in TENS_VALUES},
}  # fmt: skip
_DENOMINATORS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
                 "eighth": 8, "ninth": 9, "tenth": 10}  # fmt: skip
_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_ALSO_WORDS = ("march", "may")
_DECADES = {f"{word[:-1]}ies": value for word, value in TENS_VALUES.items()} | {"tens": 10}
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
_SAID_IN_PAIRS = ("room", "flight", "route", "apartment", "suite", "highway", "interstate", "bus", "box", "extension")
"""Of these, those of which "twenty three twenty four" is one number."""
_BEFORE_SCORES = {
    *("score", "won", "win", "wins", "lost", "lose", "beat", "lead", "leads", "led", "ahead", "vote", "vision"),
    "hindsight",
}
_BEFORE_SHARES = ("gave", "give", "gives", "giving", "paid", "pay", "pays", "owe", "owes", "left")
_CODES = ("call", "dial", "code", "pin", "extension", "number", "phone", "telephone", "zip", "is", *_LABELS)
_STREETS = ("street", "avenue", "road", "boulevard", "drive", "lane", "court", "place")
_NO_NAMES = frozenset("of the to in on and a an from at way lane or for with people cars is was".split())  # noqa: SIM905
_BEFORE_YEARS = ("in", "since", "of", "until", "till", "by", "year", "before", "after", "from", "to", "and", *_MONTHS)
_BEFORE_TIMES = ("at", "by", "until", "till", "before", "after", "from", "it's", "past", "between")
_AFTER_CLOCKS = (
    *("", "in", "on", "and", "when", "this", "every", "a", "p", "am", "pm", "o'clock", "is", "was"),
    *("i", "we", "he", "she", "they", "it"),
)
_AFTER_TIMES = ("today", "tomorrow", "tonight", "sharp", "eastern", "pacific", "central", "est", "gmt", "utc")
_BEFORE_DATES = ("on", "by", "since", "until", "till", "of", "before", "after", "from", "through", "next", "last")
_LASTING = frozenset(
    """
    timer delay break pause clip interval intervals countdown silence video ad spot rule window gap timeout head
    """.split()  # noqa: SIM905 - a table in lines
)
"""What lasts some seconds: behind "twenty second", it is no 22nd."""
_LASTING_OR_VERBS = frozenset(("head", "video", "clip", "break", "pause", "delay", "spot", "rule"))
"""Of these, what may begin the sentence behind a date: on the twenty second head over."""
_DETERMINERS = frozenset(("the", "this", "that", "my", "your", "his", "her", "its", "our", "their", "another"))
_AFTER_YEARS = ("was", "is", "will", "has", "had", "saw", "began", "brought", "started", "ended")
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
        kept = _shared_hundreds(part)
        place = start
        while place < end:
            result = None if place - start in kept else _write_at(part, place - start)
            text, length = result or (bare[place], 1)
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


def _shared_hundreds(words: list[str]) -> set[int]:
    """The places of ranges such as "two to three hundred", which stay words: 2 to 300 would be another one."""
    places: set[int] = set()
    for middle in range(1, len(words) - 2):
        if words[middle] not in ("to", "or", "and") or not is_number_word(words[middle - 1]):
            continue
        most = parse_cardinal(words, middle + 1)
        if most is None or words[most[1] - 1] not in ("hundred", "thousand"):
            continue
        # The number before "to" has one word or two, such as twenty two, and stands alone.
        is_two_words = middle > 1 and words[middle - 2] in TENS_VALUES and SMALL_VALUES.get(words[middle - 1], 10) < 10
        first = middle - 1 - is_two_words
        is_part = first > 0 and words[first - 1] in (
            "hundred",
            "and",
            "point",
            *SCALE_VALUES,
            *SMALL_VALUES,
            *TENS_VALUES,
        )
        if not is_part and (words[middle] != "and" or word_at(words, first - 1) == "between"):
            places.update(range(first, most[1]))
    return places


# Rules: what is written from a place on, and the place behind it.

_Written = tuple[str, int] | None


def _write_telephone(words: list[str], place: int) -> _Written:
    """Digits that are said one by one: telephone numbers, codes, 911."""
    before = word_at(words, place - 1)
    if words[place : place + 3] == ["one", "eight", "hundred"]:
        digits, end = parse_digit_run(words, place + 3)
        return (f"1-800-{digits[:3]}-{digits[3:]}", end) if len(digits) == 7 else None
    if word_at(words, place + 1) == "hundred" and words[place] in ("eight", "nine"):
        digits, end = parse_digit_run(words, place + 2)
        return (f"{DIGIT_VALUES[words[place]]}00-{digits[:3]}-{digits[3:]}", end) if len(digits) == 7 else None
    is_plus = words[place] == "plus"
    digits, end = parse_digit_run(words, place + is_plus)
    # The last digit may begin another number: three point five, five hundred, eight p m.
    if word_at(words, end) in ("point", "hundred", *SCALE_VALUES, "percent", "o'clock", "am", "pm", "a.m.", "p.m.") or (
        word_at(words, end) in ("a", "p") and word_at(words, end + 1) == "m"
    ):
        return None
    # Groups by the number of digits, as in North America.
    if is_plus:
        return (f"+{digits}", end) if len(digits) >= 8 else None
    if words[place] in ("oh", "o") or before in (*DIGIT_VALUES, "hundred"):  # or the rest of a row that is no number
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
    if ordinal is None or ordinal[0] > 31 or word_at(words, ordinal[1]) != "of":
        return None
    month = word_at(words, ordinal[1] + 1)
    if month not in _MONTHS:
        return None
    end = ordinal[1] + 2
    year = parse_year_of_date(words, end)
    text = f"{_with_suffix(ordinal[0])} of {month.capitalize()}"
    return (f"{text} {year[0]}", year[1]) if year else (text, end)


def _month_first(words: list[str], place: int) -> _Written:
    month = words[place].capitalize()
    day = _ordinal(words, place + 1)
    if day and 1 <= day[0] <= 31:
        last = _ordinal(words, day[1] + 1) if word_at(words, day[1]) == "to" else None
        if last and day[0] < last[0] <= 31:
            return f"{month} {day[0]}–{last[0]}", last[1]
        if year := parse_year_of_date(words, day[1]):
            return f"{month} {day[0]}, {year[0]}", year[1]
        is_sure = words[place] not in _ALSO_WORDS or word_at(words, place - 1) in _BEFORE_DATES or len(words) == day[1]
        return (f"{month} {day[0]}", day[1]) if is_sure else None
    # March five, nineteen eighty four has its year for proof.
    number = parse_under_100(words, place + 1)
    if number and 1 <= number[0] <= 31 and (year := parse_year_of_date(words, number[1])):
        return f"{month} {number[0]}, {year[0]}", year[1]
    year = parse_year_of_date(words, place + 1)
    return (f"{month} {year[0]}", year[1]) if year else None


def _write_time(words: list[str], place: int) -> _Written:
    if half := _write_half_past(words, place):
        return half
    hour = (0, place + 1) if words[place] == "zero" else parse_under_100(words, place)
    if hour is None or hour[0] > 24:
        return None
    value, end = hour
    minutes: int | None = None
    if word_at(words, end) == "o'clock":
        minutes = 0
        end += 1
    elif word_at(words, end) in ("oh", "o") and SMALL_VALUES.get(word_at(words, end + 1), 10) < 10:
        minutes = SMALL_VALUES[words[end + 1]]
        end += 2
    elif (under := parse_under_100(words, end)) and 10 <= under[0] <= 59:
        minutes, end = under
    elif word_at(words, end) == "hundred" and value > 9 and _is_clock_hour(words, place, end + 1):
        minutes = 0
        end += 1
    # Seven p m is a time without minutes.
    half_of_day, behind = _half_of_day(words, end)
    if minutes is None:
        is_question = words[end : end + 2] == ["am", "i"] and word_at(words, place - 1) not in _BEFORE_TIMES
        is_hour = half_of_day and 1 <= value <= 12 and not is_question  # which one am i
        return (f"{value}{half_of_day}", behind) if is_hour else None

    # And thirty seconds are of a time in any place.
    text = f"{value}:{minutes:02d}"
    seconds = parse_under_100(words, behind + 1) if word_at(words, behind) == "and" else None
    if seconds and seconds[0] < 60 and word_at(words, seconds[1]) == "seconds":
        return f"{text}:{seconds[0]:02d}", seconds[1] + 1
    is_clock = words[end - 1] in ("o'clock", "hundred")
    is_sure = half_of_day or is_clock or _is_time(words, place, end, value, minutes)
    return (text + half_of_day, behind) if is_sure else None


def _is_clock_hour(words: list[str], place: int, end: int) -> bool:
    """Returns whether a hundred is an hour of 24: at eighteen hundred, from nine o'clock to seventeen hundred."""
    if parse_under_100(words, end):
        return False
    is_second = word_at(words, place - 1) == "to" and "o'clock" in words[max(0, place - 4) : place]
    return is_second or word_at(words, place - 1) == "at"


def _is_time(words: list[str], place: int, end: int, hour: int, minutes: int) -> bool:
    """Returns whether an hour and minutes are no house, no year and no count."""
    before = word_at(words, place - 1)
    behind = word_at(words, end)
    # It's two fifty a pound.
    is_price = before in ("is", "it's") and behind in ("a", "an", "each", "per")
    if is_price or behind == "point" or behind in _CURRENCY_WORDS or is_number_word(behind):
        return False
    is_alone = place == 0 and end == len(words) and hour <= 12 and minutes % 5 == 0
    is_after_it = before == "is" and word_at(words, place - 2) in ("it", "time")
    # "from nine oh five to ten fifteen"; in twenty thirty is a year.
    is_second = before in ("to", "and") and any(
        word in ("from", "between") for word in words[max(0, place - 8) : place]
    )
    is_range = (word_at(words, end) == "to" and _clock_end(words, end + 1) is not None) or (
        before == "to" and place - 1 in (_clock_end(words, place - 3), _clock_end(words, place - 4))
    )
    is_year = before in (*_BEFORE_YEARS, "between") and (
        hour in (19, 20) or (hour > 12 and before not in ("by", "until", "till", "before", "after"))
    )
    is_told = before in _BEFORE_TIMES or behind in _AFTER_TIMES or is_second
    return not is_year and (is_told or is_alone or is_range or is_after_it)


def _clock_end(words: list[str], place: int) -> int | None:
    """The place behind an hour up to twelve and minutes that clocks show: ten thirty."""
    hour = SMALL_VALUES.get(word_at(words, place), 13)
    minutes = parse_under_100(words, place + 1)
    is_clock = hour <= 12 and minutes is not None and 10 <= minutes[0] <= 55 and minutes[0] % 5 == 0
    return minutes[1] if minutes and is_clock else None


def _half_of_day(words: list[str], place: int) -> tuple[str, int]:
    word = word_at(words, place).replace(".", "")
    if word in ("am", "pm"):
        return f" {word[0]}.m.", place + 1
    if word in ("a", "p") and word_at(words, place + 1) == "m":
        return f" {word}.m.", place + 2
    return "", place


def _write_half_past(words: list[str], place: int) -> _Written:
    begin = place + (words[place] == "a" and word_at(words, place + 1) == "quarter")
    minutes = {"half": 30, "quarter": 15}.get(word_at(words, begin))
    relation = word_at(words, begin + 1)
    hour = SMALL_VALUES.get(word_at(words, begin + 2), 0)
    if minutes is None or not 1 <= hour <= 12:
        return None
    # A quarter that is given to ten people is no time.
    before = word_at(words, place - 1)
    is_time = before in (*_BEFORE_TIMES, "is", "was") or word_at(words, begin + 3) in (*_AFTER_CLOCKS, *_AFTER_TIMES)
    if (minutes == 15 and not is_time) or (relation == "to" and before in _BEFORE_SHARES):
        return None
    if relation in ("past", "after") and not (minutes == 30 and relation == "after"):
        return f"{hour}:{minutes}", begin + 3
    return (f"{(hour - 2) % 12 + 1}:45", begin + 3) if relation == "to" and minutes == 15 else None


def _write_decade(words: list[str], place: int) -> _Written:
    century = parse_under_100(words, place)
    if century is None or not 11 <= century[0] <= 20:
        return None
    decade = word_at(words, century[1])
    if decade == "hundreds":
        return f"{century[0]}00s", century[1] + 1
    return (f"{century[0]}{_DECADES[decade]}s", century[1] + 1) if decade in _DECADES else None


def _write_money(words: list[str], place: int) -> _Written:
    amount = parse_amount(words, place)
    if amount is None or (words[place] == "a" and word_at(words, place - 1) == "half"):  # half a million euros
        return None
    # "Two fifty dollars" may be 250; "two fifty dollar bills" are two.
    if is_number_word(word_at(words, place - 1)) and word_at(words, amount.end).endswith("s"):
        return None
    # Ten to twenty dollars: one sign for both.
    if word_at(words, amount.end) == "to" and amount.whole and not is_digit(words, place - 1):
        most = parse_amount(words, amount.end + 1)
        money = _money_of(words, most) if most else None
        if money and money[0][:1] in _CURRENCIES.values() and money[0][1:2].isdigit():
            return f"{money[0][:1]}{amount.text}–{money[0][1:]}", money[1]
    return _money_of(words, amount)


def _money_of(words: list[str], amount: Amount) -> _Written:
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
    name = word_at(words, end)
    sign = _CURRENCIES.get(name) or _CURRENCIES.get(name.removesuffix("s"))
    if sign is None or (whose and sign != "$"):
        return None
    end += 1

    part, end = _hundredths(words, end, amount)
    # Pounds are a weight too, and "won" is a verb.
    is_scaled = amount.text.endswith("illion")
    if sign == "£" and not part and not is_scaled:
        if word_at(words, end) != "sterling":
            return None
        end += 1
    if sign == "₩" and amount.value < 100 and not is_scaled:
        return None
    minus = "-" * amount.text.startswith("-")
    return f"{minus}{whose}{sign}{amount.text.removeprefix('-')}{part}", end


def _hundredths(words: list[str], end: int, amount: Amount) -> tuple[str, int]:
    """Decimals of a whole amount: and fifty cents; or only fifty, at the end."""
    cents = parse_under_100(words, end + (word_at(words, end) == "and"))
    if not amount.whole or cents is None:
        return "", end
    if word_at(words, cents[1]) in _HUNDREDTHS:
        return f".{cents[0]:02d}", cents[1] + 1
    is_last = cents[0] > 9 and cents[1] == len(words) and word_at(words, end) != "and"
    return (f".{cents[0]}", cents[1]) if is_last else ("", end)


def _write_measure(words: list[str], place: int) -> _Written:
    amount = parse_amount(words, place)
    if amount is None or is_number_word(word_at(words, place - 1)):  # three sixty degrees
        return None
    # The longest unit first: kilometers per hour before kilometers.
    for length in (3, 2, 1):
        unit = _ALL_UNITS.get(" ".join(words[amount.end : amount.end + length]))
        if unit and amount.end + length <= len(words):
            return amount.text + unit, amount.end + length
    # Five foot ten, five feet six inches.
    inches = parse_under_100(words, amount.end + 1) if word_at(words, amount.end) in ("foot", "feet") else None
    if inches and inches[0] < 12 and amount.whole and amount.value < 10:
        has_unit = word_at(words, inches[1]) in ("inch", "inches")
        if has_unit or words[amount.end] == "foot":
            return f"{amount.text}'{inches[0]}\"", inches[1] + has_unit
    return None


def _write_fraction(words: list[str], place: int) -> _Written:
    whole = parse_cardinal(words, place)
    if whole is None:
        return None
    value, end = whole
    # Two and a half, three and seven eighths.
    if word_at(words, end) == "and":
        article = word_at(words, end + 1) == "a"
        above = (1, end + 2) if article else parse_under_100(words, end + 1)
        below = _denominator(words, above) if above else None
        if above and below and value < 1_000 and (article or above[0] < below):
            return f"{value} {above[0]}/{below}", above[1] + 1
        return None
    below = _denominator(words, whole)
    if below is None:
        return None
    # "one fifth avenue" is no fraction.
    is_sure = (
        value > 1 or word_at(words, end) in ("half", "quarter") or word_at(words, end + 1) in ("", "of", "the", "a")
    )
    return (f"{value}/{below}", end + 1) if is_sure else None


def _denominator(words: list[str], above: tuple[int, int]) -> int | None:
    name = word_at(words, above[1])
    is_plural = above[0] > 1
    return _DENOMINATORS.get(name.removesuffix("s")) if name.endswith("s") == is_plural and name != "halve" else None


def _ordinal(words: list[str], place: int) -> tuple[int, int] | None:
    # The last word alone is ordinal: one hundred twenty third.
    for end in range(place, min(place + 9, len(words))):
        if words[end] in _ORDINALS:
            number = parse_cardinal([*words[place:end], _ORDINALS[words[end]]], 0)
            return (number[0], end + 1) if number and number[1] == end + 1 - place else None
        if not is_number_word(words[end]) and words[end] not in ("hundred", "and", *SCALE_VALUES):
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
    # "a thirty second break" and "the twenty second timer" have seconds.
    before = word_at(words, place - 1)
    behind = word_at(words, ordinal[1])
    is_date = before not in _DETERMINERS or word_at(words, place - 2) == "on"
    is_lasting = behind in _LASTING and not (is_date and behind in _LASTING_OR_VERBS)
    is_second = words[ordinal[1] - 1] == "second" and (before in ("a", "every", "each", "per", "wait") or is_lasting)
    return None if is_second or (before == "a" and behind == "of") else (_with_suffix(ordinal[0]), ordinal[1])


def _write_address(words: list[str], place: int) -> _Written:
    """A house before the name of its street, of up to three words."""
    number = parse_pair(words, place) or _small_pair(words, place)
    if number is None:
        cardinal = parse_cardinal(words, place)
        if cardinal is None or (cardinal[0] < 10 and word_at(words, place - 1) != "at"):
            return None
        number = str(cardinal[0]), cardinal[1]
    # Between the number and the street is a name, and nothing that makes a sentence.
    end = number[1]
    for length in (1, 2, 3):
        names = words[end : end + length]
        if any(name in _NO_NAMES or is_number_word(name) for name in names):
            return None
        if word_at(words, end + length) in _STREETS:
            return number
    return None


def _small_pair(words: list[str], place: int) -> tuple[str, int] | None:
    """One twenty three, as houses and rooms are said."""
    first = SMALL_VALUES.get(word_at(words, place), 10)
    second = parse_under_100(words, place + 1)
    return (f"{first}{second[0]}", second[1]) if first < 10 and second and second[0] > 9 else None


def _write_label(words: list[str], place: int) -> _Written:
    """Numbers that name what is before them: chapter four, room one oh one."""
    label = word_at(words, place - 1)
    if label not in _LABELS:
        return None
    # Rooms and flights are said in pairs; pages twenty three twenty four are two.
    number = parse_pair(words, place) or _small_pair(words, place)
    if number and (label in _SAID_IN_PAIRS or {"oh", "o", "hundred"} & set(words[place : number[1]])):
        return number
    amount = parse_amount(words, place)
    if number or (amount and amount.whole and is_number_word(word_at(words, amount.end))):
        return None
    return (amount.text.replace(",", ""), amount.end) if amount else None


def _write_year(words: list[str], place: int) -> _Written:
    year = parse_year(words, place)
    is_sight = year is not None and word_at(words, year[1]) in ("vision", "hindsight", "eyesight")
    if year is None or is_sight or word_at(words, place - 1) in _LABELS:
        return None
    is_behind_year_word = word_at(words, place - 1) in _BEFORE_YEARS and word_at(words, place - 2) not in _BEFORE_SCORES
    if not is_behind_year_word and _BEFORE_SCORES & set(words[max(0, place - 4) : place]):
        return None
    # One of a row of numbers: five, ten, fifteen, twenty.
    if _is_in_row(words, place):
        return None
    # A sentence about a year: two thousand twenty one was hard.
    if place == 0 and "2001" <= year[0] <= "2049" and word_at(words, year[1]) in _AFTER_YEARS:
        return year
    # A pair of numbers is a year by itself from 1500 on, others with a word before it.
    before = word_at(words, place - 1) in _BEFORE_YEARS
    is_pair = parse_pair(words, place) == year
    # "two thousand people" is a count, "eleven thirty" a time or a year; "nineteen eighty" is nothing else.
    if is_pair and not year[0].endswith("00"):
        # After "to", eleven forty five is a time.
        before = before and (year[0] >= "1300" or word_at(words, place - 1) in ("in", "since", "year"))
        return year if before or year[0] >= "1500" or year[0][2:] >= "60" else None
    behind = word_at(words, year[1])
    is_closed = behind in ("", "and", "or", "to", "the", "was", "when", "we", "he", "she", "they", "it", "i")
    is_closed |= is_number_word(behind) or word_at(words, place - 1) == "year"
    return year if before and (is_closed or is_pair) else None


def _is_in_row(words: list[str], place: int) -> bool:
    """Returns whether two numbers end at a place that are no year: nineteen eighty nineteen ninety are two years."""
    for _ in range(LONGEST_ROW):
        if not (is_number_word(word_at(words, place - 1)) and is_number_word(word_at(words, place - 2))):
            return False
        # Behind another year, which may be in a row itself.
        years = {start: parse_year(words, start) for start in range(max(place - 4, 0), place - 1)}
        before = [start for start, year in years.items() if year and year[1] == place and year[0] >= "1500"]
        if not before:
            return True
        place = before[0]
    return False


def _write_number(words: list[str], place: int) -> _Written:
    """A count of ten or more, or one with decimals. Smaller ones are words, unless a range continues with digits."""
    amount = parse_amount(words, place)
    before = word_at(words, place - 1)
    # Three fifty nine hundred and forty sevens are no counts.
    is_behind = before in TENS_VALUES or (words[place] in TENS_VALUES and is_number_word(before))
    # One oh one point five is one number.
    is_behind |= amount is not None and before in ("oh", "o") and not amount.whole and is_digit(words, place - 2)
    if (
        amount is None
        or (words[place] == "a" and not _has_more(words, place, amount.end))
        or is_behind
        or is_digit_row(words, amount.end)
        or word_at(words, amount.end)[:-1] in SMALL_VALUES
    ):
        return None
    # Ten minus five is arithmetic, minus five is a number.
    is_negative = amount.text.startswith("-") and not is_number_word(before)
    if amount.text.startswith("-") and not is_negative:
        return None
    if before == "or" and word_at(words, place - 2) == "plus":
        return None
    # Nine times out of ten.
    if before == "of" and amount.text == "10" and word_at(words, place - 2) == "out" and _is_small(words, place - 3):
        return None
    if word_at(words, amount.end) in ("to", "or") and amount.value < 10 and amount.whole:
        behind = parse_amount(words, amount.end + 1)
        is_half_of_day = behind and _half_of_day(words, behind.end)[0]
        if behind and (behind.value >= 10 or is_half_of_day or _write_measure(words, amount.end + 1)):
            return amount.text, amount.end
    # "sixteen to nine" and "ten to one odds", but "twenty to two friends".
    behind_word = word_at(words, amount.end)
    is_plural = behind_word.endswith("s") and behind_word not in ("odds", "is", "was")
    is_ratio = before == "to" and not is_plural and not is_number_word(behind_word)
    if is_ratio and (SMALL_VALUES.get(word_at(words, place - 2), 0) > 9 or word_at(words, place - 2) in TENS_VALUES):
        return amount.text, amount.end
    # Two numbers side by side, such as "seven thirty", have more than one reading.
    if amount.value < 10 and amount.whole and not is_negative:
        return None
    follows = is_number_word(behind_word) or is_number_word(before)
    return None if follows and amount.whole and amount.value < 100 else (amount.text, amount.end)


def _has_more(words: list[str], place: int, end: int) -> bool:
    """Returns whether a number that begins with "a" continues with ten or more: a hundred and fifty thousand."""
    is_large = any(word in TENS_VALUES or SMALL_VALUES.get(word, 0) > 9 for word in words[place + 2 : end])
    return is_large or any(word == "hundred" or word in SCALE_VALUES for word in words[place + 3 : end])


def _is_small(words: list[str], place: int) -> bool:
    """Returns whether a count below ten ends at a place, or before the word "times" there."""
    return SMALL_VALUES.get(word_at(words, place - (word_at(words, place) == "times")), 10) < 10


def _write_letters(words: list[str], place: int) -> _Written:
    """Letters that are said one by one: u s a."""
    end = place
    while end < place + LONGEST_ROW and len(word_at(words, end)) == 1 and words[end].isalpha():
        end += 1
    letters = words[place:end]
    is_word_first = letters[:1] in (["a"], ["i"], ["o"])
    # W three c is a name, and no letters W and C.
    is_beside_number = is_number_word(word_at(words, place - 1)) or is_number_word(word_at(words, end))
    is_behind_letter = len(word_at(words, place - 1)) == 1
    if len(letters) < 2 + is_word_first or is_behind_letter or is_beside_number:
        return None
    return "".join(letters).upper(), end


def _is_site(words: list[str], place: int) -> bool:
    return word_at(words, place + 1) == "dot" and word_at(words, place + 2) in _SITES


def _write_site(words: list[str], place: int) -> _Written:
    return (f"{words[place]}.{words[place + 2]}", place + 3) if _is_site(words, place) else None


_BRITISH = {"meter": "metre", "liter": "litre"}
_ALL_UNITS: dict[str, str] = {}
for _plural, _symbol in _UNITS.items():
    _ALL_UNITS[_plural] = _symbol
    _ALL_UNITS[re.sub(r"s\b", "", _plural, count=1) if "hertz" not in _plural and "celsius" not in _plural
               else _plural.replace("degrees", "degree")] = _symbol  # fmt: skip
    for _american, _spelling in _BRITISH.items():
        _ALL_UNITS[_plural.replace(_american, _spelling)] = _symbol
_CURRENCY_WORDS = frozenset(_CURRENCIES) | {f"{name}s" for name in _CURRENCIES} | {"cents", "pence", "percent"}
_BEGINNINGS = frozenset((
    *SMALL_VALUES, *TENS_VALUES, *_ORDINALS, *_MONTHS,
    "zero", "oh", "a", "plus", "minus", "negative", "half", "quarter",
))  # fmt: skip
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

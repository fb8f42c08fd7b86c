"""English numbers as words: counts, ordinals, years, decimals, fractions, money; and spoken ones read back."""

import functools
import re
from dataclasses import dataclass
from typing import Any

from voxline.text.alphabet import UnsupportedText

MAX_DIGITS = 15
"""A number with more digits is spoken digit by digit."""

UNDER_20 = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
UNDER_100 = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
"""Numbers by their values, and tens by their digits."""
CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₽": ("ruble", "rubles", "kopeck", "kopecks"),
    "₩": ("won", "won", "jeon", "jeon"),
    "₺": ("lira", "lira", "kurus", "kurus"),
    "₪": ("shekel", "shekels", "agora", "agorot"),
    "₴": ("hryvnia", "hryvnias", "kopeck", "kopecks"),
    "₫": ("dong", "dong", "hao", "hao"),
    "฿": ("baht", "baht", "satang", "satang"),
    "₱": ("peso", "pesos", "centavo", "centavos"),
    "₦": ("naira", "naira", "kobo", "kobo"),
    "CHF": ("swiss franc", "swiss francs", "centime", "centimes"),
    "CNY": ("yuan", "yuan", "fen", "fen"),
    "RMB": ("yuan", "yuan", "fen", "fen"),
    "SEK": ("swedish krona", "swedish kronor", "ore", "ore"),
    "NOK": ("norwegian krone", "norwegian kroner", "ore", "ore"),
    "DKK": ("danish krone", "danish kroner", "ore", "ore"),
    "AUD": ("australian dollar", "australian dollars", "cent", "cents"),
    "CAD": ("canadian dollar", "canadian dollars", "cent", "cents"),
    "NZD": ("new zealand dollar", "new zealand dollars", "cent", "cents"),
    "HKD": ("hong kong dollar", "hong kong dollars", "cent", "cents"),
    "SGD": ("singapore dollar", "singapore dollars", "cent", "cents"),
    "BRL": ("brazilian real", "brazilian reais", "centavo", "centavos"),
    "PLN": ("zloty", "zloty", "grosz", "groszy"),
}
"""A sign, or a code of ISO 4217 that has none → the names of one and of many, and of their hundredths."""
CODES = {
    "USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "RUB": "₽", "KRW": "₩", "ILS": "₪", "UAH": "₴",
    "THB": "฿", "VND": "₫", "NGN": "₦", **{code: code for code in CURRENCIES if code.isalpha()},
}  # fmt: skip
"""Codes of ISO 4217 beside an amount, and the keys of `CURRENCIES` that say the same; PHP and TRY are words too."""


DOLLARS_BY_CODE = {"USD": "US", "CAD": "C", "AUD": "A", "NZD": "NZ", "HKD": "HK", "SGD": "S"}
"""A code behind an amount with a dollar sign → the letters before the sign that say the same."""


@functools.cache
def _engine() -> Any:
    import inflect

    return inflect.engine()


@functools.lru_cache(maxsize=10_000)
def _words(number: int) -> str:
    return str(_engine().number_to_words(number, andword="", comma=""))


def cardinal(digits: str) -> str:
    """A count; commas separate thousands.

    >>> cardinal("12,345"), cardinal("007")
    ('twelve thousand three hundred forty-five', 'zero zero seven')
    """
    digits = digits.replace(",", "")
    # Leading zeros are said: 007 is a code and no count.
    if len(digits) > MAX_DIGITS or (digits[0] == "0" and len(digits) > 1):
        return digit_by_digit(digits)
    return _words(int(digits))


def digit_by_digit(digits: str) -> str:
    return " ".join(UNDER_20[int(digit)] for digit in digits)


def ordinal(digits: str) -> str:
    """
    >>> ordinal("21"), ordinal("100")
    ('twenty-first', 'one hundredth')
    """
    digits = digits.replace(",", "").lstrip("0") or "0"
    if len(digits) > MAX_DIGITS:
        return digit_by_digit(digits)
    return str(_engine().ordinal(_words(int(digits))))


def year(digits: str) -> str:
    """
    >>> year("1984"), year("1905"), year("1900"), year("2007"), year("2024")
    ('nineteen eighty-four', 'nineteen oh five', 'nineteen hundred', 'two thousand seven', 'twenty twenty-four')
    """
    century = int(digits[:2])
    remainder = int(digits[2:])

    # 2005 is "two thousand five", 1905 "nineteen oh five".
    if century % 10 == 0 and remainder < 10:
        return _words(int(digits))
    words = _words(century)
    if remainder == 0:
        return f"{words} hundred"
    return f"{words} oh {_words(remainder)}" if remainder < 10 else f"{words} {_words(remainder)}"


def decade(digits: str) -> str:
    """
    >>> decade("1990"), decade("80"), decade("1900")
    ('nineteen nineties', 'eighties', 'nineteen hundreds')
    """
    return pluralize(year(digits) if len(digits) == 4 else cardinal(digits))


def pluralize(words: str) -> str:
    return words[:-1] + "ies" if words.endswith("y") else words + "s" * (not words.endswith("s"))


def decimal(digits: str) -> str:
    """A number with or without a decimal point, or with several points, as in a version.

    >>> decimal("3.14"), decimal("1,000.5")
    ('three point one four', 'one thousand point five')
    """
    whole, *fractions = digits.split(".")
    return " point ".join([cardinal(whole), *(digit_by_digit(fraction) for fraction in fractions)])


def fraction(above: str, below: str, *, is_over: bool = False) -> str:
    """
    Args:
      is_over: say "over" whatever the numbers, as of a blood pressure.

    >>> fraction("1", "2"), fraction("3", "4"), fraction("2", "3"), fraction("24", "7000")
    ('one half', 'three quarters', 'two thirds', 'twenty-four over seven thousand')
    """
    # Beyond two digits, "over" is what people say.
    if is_over or below.startswith("0") or len(below) > 2 or below == "1":
        return f"{cardinal(above)} over {cardinal(below)}"
    named = {"2": "half", "4": "quarter"}.get(below) or ordinal(below)
    if above != "1":
        named = "halves" if named == "half" else pluralize(named)
    return f"{cardinal(above)} {named}"


def money(sign: str, amount: str, scale: str, whose: str = "", *, is_single: bool = False) -> str:
    """
    Args:
      whose: of the country, before the name: canadian.
      is_single: the name is of one whatever the amount, as in "a five dollar bill".

    >>> money("$", "1.50", ""), money("£", "2.5", "million"), money("€", "1", ""), money("$", "0.05", "")
    ('one dollar and fifty cents', 'two point five million pounds', 'one euro', 'five cents')
    """
    singular, many, small, smalls = CURRENCIES[sign]
    if whose:
        singular = f"{whose} {singular}"
        many = f"{whose} {many}"
    if is_single:
        many = singular
    if scale:
        return f"{decimal(amount)} {scale} {many}"

    whole, _, part = amount.partition(".")
    # Fractions of a cent are read as decimals.
    if len(part) > 2 or "." in part:
        return f"{decimal(amount)} {many}"
    whole = whole.replace(",", "") or "0"
    cents = int(part.ljust(2, "0") or 0)

    # "$0.05" has no dollars, "$0" has.
    words = [f"{cardinal(whole)} {singular if whole == '1' else many}"] if whole != "0" or not cents else []
    if cents:
        words.append(f"{_words(cents)} {small if cents == 1 else smalls}")
    return " and ".join(words)


def pairs(digits: str) -> str:
    """Three or four digits as numbers of houses, rooms and flights are said.

    >>> pairs("123"), pairs("101"), pairs("2490"), pairs("1600"), pairs("2000")
    ('one twenty-three', 'one oh one', 'twenty-four ninety', 'sixteen hundred', 'two thousand')
    """
    first = digits[:-2]
    last = digits[-2:]
    if last == "00":
        return cardinal(digits) if len(digits) == 3 or first[-1] == "0" else f"{cardinal(first)} hundred"
    return f"{cardinal(first)} {'oh ' if last[0] == '0' else ''}{cardinal(str(int(last)))}"


_ROMAN = re.compile(r"M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def has_two_readings(written: str, readings: str) -> UnsupportedText:
    """The error for a number that a person reads by knowing more than is written."""
    return UnsupportedText(f"{written!r} has more than one reading: {readings}; write it in words")


def parse_roman(numeral: str) -> int:
    """The value of a Roman numeral; 0 if it is not one.

    >>> parse_roman("XIV"), parse_roman("IIX")
    (14, 0)
    """
    if not _ROMAN.fullmatch(numeral):
        return 0
    values = [_VALUES[letter] for letter in numeral]

    # A smaller digit before a larger one is subtracted.
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))


_CARDINAL_AFTER = frozenset(
    """
    chapter part volume book act scene war section article appendix phase type class grade level stage canto psalm
    bowl game title amendment number division table figure plate episode season tier category schedule mark phases
    page pages parts chapters volumes types grades levels classes acts books sections articles wars scenes stages
    rocky pentium fantasy
    """.split()  # noqa: SIM905 - a table in lines
)
_NAMES = frozenset(["mark", "rocky"])
"""People too: Mark V. Hurd."""
_ENDS_A_NUMBER = re.compile(r"\s*($|[^\w\s'’-]|(?:of|and|or|to|through|is)\b)")
"""What may follow the I of "Part I", and no pronoun."""
_ONE_OF_TWO = re.compile(r",?\s(?:and|or)\b")
"""Behind the I of "the grades I and my friends got"."""
_TITLES = "(?:King|Queen|Pope|Emperor|Empress|Prince|Princess|Tsar|Czar|Kaiser|Sultan|Shah)"
_REGNAL = frozenset(
    """
    henry louis charles edward george william james elizabeth richard philip francis pius john paul benedict leo
    gregory alexander nicholas catherine peter frederick napoleon mary ivan otto innocent clement urban boniface
    ramses ptolemy friedrich wilhelm edgar harald olaf christian gustav alfonso ferdinand juan carlos henri
    """.split()  # noqa: SIM905 - a table in lines
)
_ROMAN_BEHIND_WORD = re.compile(r"\b([A-Za-z]{1,20}\.?)\s([IVXLC]{1,12})\b")
_ROMAN_ALONE = re.compile(r"\b[IVX]+\b")
_SEVERAL_ROMAN = re.compile(
    rf"\b((?i:{'|'.join(sorted(_CARDINAL_AFTER))})\s)"
    r"([IVX]{1,7}(?:(?:,?\s(?:and|or|to|&)\s|,\s|[-–])(?:[VX]|[IVX]{2,7}))+)\b"
)
"""Parts I, II and III."""
_ROMAN_BEHIND_TITLE = re.compile(rf"\b({_TITLES}\s[A-Z][a-z]+)\s([IVX]{{2,7}})\b")
_SMALL_ROMAN = re.compile(rf"\b({'|'.join(sorted(_CARDINAL_AFTER | _REGNAL))})\s([ivx]{{2,7}})\b", re.IGNORECASE)
_ROMAN_YEAR = re.compile(r"\b(?:[MDCLXVI]{5,15}|MM[XVI]{2})\b")
_SHORT_SMALL_ROMAN = re.compile(r"\b(chapter|part|volume|book|act|scene)\s([ivx])(?=\s*(?:$|[.:;]))")
_OTHER_ROMAN = re.compile(
    r"\b(?:II|IV|IX|VI|XI|XV|XX(?!\s?(?:/|and|or|chromosome|karyotype|female|sex))|[XVI]{3,7}|[LXVI]{4,9}|[CLXVI]{5,12}"
    r"|XL[IVX]|L[VX]{2}|LX[IVX]|XC[IV]|LII|ii|iv|[xvi]{3,7})\b"
)
_INTRAVENOUS = (
    "drips?|fluids?|lines?|bags?|poles?|push|pushes|therapy|antibiotics?|access|catheters?|needles?|medications?|meds?|"
    "infusions?|morphine|saline|drugs?|use|users?|tubing|tubes?|pump|pumps|site|sites|dose|doses|bolus|contrast|"
    "injections?|nurse|stand|starts?|placement|hydration|steroids?|iron|sedation|route|solution|solutions|treatments?|"
    "nutrition|administration|insertion|heparin|insulin|potassium|glucose|dextrose|immunoglobulin"
)
_IV_OF_FLUIDS = re.compile(rf"[\s-](?:{_INTRAVENOUS})\b", re.IGNORECASE)
_IV_OF_MEDICINE = re.compile(
    r"\b(?:an?|the|my|his|her|your|their|this|that|another|new|with|via|by|per|through|start|starts|started|starting|"
    r"place|placed|insert|inserted|give|gives|gave|given|get|gets|got|getting|needs?|needed|hang|hung|mg|mcg|ml|grams?|"
    r"milligrams?|units?|on|or|and|im|po|slash|milliliters?|micrograms?|"
    r"receiv(?:e|es|ed|ing)|administer(?:s|ed|ing)?|fluids?|intravenous(?:ly)?\s?,?|/)\s?\(?$",
    re.IGNORECASE,
)
_IV_BEFORE_MEDICINE = re.compile(
    rf"(?:\s|-|/|\s(?:and|or|slash)\s)(?:{_INTRAVENOUS}|IM|PO|oral|every|once|twice|daily|started|removed|running|out|"
    r"q|q[0-9]{1,2}h?|bid|tid|qid|x\s?[0-9]|tylenol|lasix|benadryl|zofran|toradol|in\splace|"
    r"[a-z]{3,20}(?:mycin|cillin|floxacin|azole|olol|phrine|profen|tanyl|semide|triaxone|setron))\b",
    re.IGNORECASE,
)
_BEHIND_COUNTED = re.compile(
    r"\b(?:[Gg]roup|[Rr]egion|[Zz]one|[Uu]nit|[Qq]uestion|[Ff]orm|[Ss]tep|[Ll]ot|[Oo]pus|[Cc]hromosome|Apollo|Gemini|Mk\.?)\s$"
)
"""Words that count, and may be followed by a letter too: Group X."""
_LETTERED = frozenset(
    ["page", "type", "types", "class", "level", "levels", "grade", "grades", "number", "category", "tier"]
)
"""What is also named by letters: class XL, grade CC."""
_LETTERS_OR_NUMERAL = frozenset(["XL", "CC", "CV", "CL", "CI", "LI", "LL", "XX", "IC"])


def spell_out_roman(text: str) -> str:
    """Roman numerals in words: counts behind "chapter", ordinals behind the names of rulers, years.

    Raises:
      UnsupportedText: one may be a count or an ordinal.
    """
    text = _SEVERAL_ROMAN.sub(_several_roman, text)
    text = _ROMAN_BEHIND_WORD.sub(_roman, text)
    text = _ROMAN_BEHIND_TITLE.sub(_regnal, text)
    text = _SMALL_ROMAN.sub(_lower_roman, text)
    text = _SHORT_SMALL_ROMAN.sub(_lower_roman, text)
    text = _ROMAN_YEAR.sub(_roman_year, text)
    return _OTHER_ROMAN.sub(_other_roman, text)


def _several_roman(match: re.Match[str]) -> str:
    values = [parse_roman(numeral) for numeral in _ROMAN_ALONE.findall(match[2])]
    if not all(values):
        return match[0]
    words = map(cardinal, map(str, values))
    return match[1] + _ROMAN_ALONE.sub(lambda _: next(words), re.sub("[-–]", " to ", match[2]))


def _roman(match: re.Match[str]) -> str:
    before = match[1].lower()
    numeral = match[2]
    value = parse_roman(numeral)
    if not value:
        return match[0]

    # "Appendix C" is a letter, and "the number I have" somebody; World War I is neither.
    rest = match.string[match.end() : match.end() + 40]
    is_pronoun = numeral == "I" and match[1] != "War" and not _ENDS_A_NUMBER.match(rest)
    is_pronoun |= numeral == "I" and match[1].islower() and _ONE_OF_TWO.match(rest) is not None
    is_initial = len(numeral) == 1 and before in _NAMES
    if numeral in ("C", "L") or is_pronoun or is_initial:
        return match[0]

    # Two letters may be of a size or a class.
    if before in _LETTERED and numeral in _LETTERS_OR_NUMERAL:
        raise has_two_readings(match[0], f"{cardinal(str(value))}, or letters")
    # They gave Henry IV fluids.
    if numeral == "IV" and before in _REGNAL and _IV_OF_FLUIDS.match(rest):
        return match[0]

    # "Chapter IV" counts, "Henry IV" orders.
    if before in _CARDINAL_AFTER:
        return f"{match[1]} {cardinal(str(value))}"
    if before in _REGNAL and len(numeral) > 1:  # "Henry I" may continue "Henry I think"
        return f"{match[1]} the {ordinal(str(value))}"
    return match[0]


def _lower_roman(match: re.Match[str]) -> str:
    value = parse_roman(match[2].upper())
    if not value:
        return match[0]
    if match[1].lower() in _REGNAL:
        if value == 4 and _IV_OF_FLUIDS.match(match.string[match.end() : match.end() + 24]):
            return match[0]
        return f"{match[1]} the {ordinal(str(value))}"
    return f"{match[1]} {cardinal(str(value))}"


def _regnal(match: re.Match[str]) -> str:
    value = parse_roman(match[2])
    return f"{match[1]} the {ordinal(str(value))}" if value else match[0]


def _other_roman(match: re.Match[str]) -> str:
    if not (value := parse_roman(match[0].upper())) or match[0].upper() == "XXX":
        return match[0]
    before = match.string[max(0, match.start() - 20) : match.start()]
    behind = match.string[match.end() : match.end() + 24]
    is_of_fluids = match[0] in ("IV", "iv")
    # The letters of intravenous: an IV drip, 5 mg IV.
    if is_of_fluids and (_IV_OF_MEDICINE.search(before) or _IV_BEFORE_MEDICINE.match(behind)):
        return match[0]
    if _BEHIND_COUNTED.search(before):
        return cardinal(str(value))
    if is_of_fluids:
        raise has_two_readings(match[0], f"{cardinal('4')}, the {ordinal('4')}, or letters")
    readings = f"{cardinal(str(value))}, or the {ordinal(str(value))}"
    raise has_two_readings(match[0], readings)


def _roman_year(match: re.Match[str]) -> str:
    value = parse_roman(match[0])
    return year(str(value)) if 1000 <= value <= 2100 else match[0]


DIGIT_VALUES = {word: value for value, word in enumerate(UNDER_20[:10])} | {"oh": 0, "o": 0}
SMALL_VALUES = {word: value for value, word in enumerate(UNDER_20) if value}
TENS_VALUES = {word: 10 * tens for tens, word in enumerate(UNDER_100) if word}
SCALE_VALUES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
LONGEST_ROW = 24
"""Words that a number is looked for in, and digits of a code: the time must not grow as the square of the words."""


@dataclass(frozen=True, slots=True)
class Amount:
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


# Spoken numbers, read back: each parser returns the value and the place behind it.


def word_at(words: list[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def parse_under_100(words: list[str], place: int) -> tuple[int, int] | None:
    word = word_at(words, place)
    if word in SMALL_VALUES:
        return SMALL_VALUES[word], place + 1
    if word in TENS_VALUES:
        digit = SMALL_VALUES.get(word_at(words, place + 1), 10)
        return (TENS_VALUES[word] + digit, place + 2) if digit < 10 else (TENS_VALUES[word], place + 1)
    return None


def _parse_under_1000(words: list[str], place: int) -> tuple[int, int] | None:
    first = parse_under_100(words, place)
    if first is None or word_at(words, first[1]) != "hundred":
        return first
    value = first[0] * 100
    end = first[1] + 1
    # "one hundred and five" is one number, "one hundred and two hundred" are two.
    behind = parse_under_100(words, end + (word_at(words, end) == "and"))
    if is_digit_row(words, end):
        return value, end
    if behind and word_at(words, behind[1]) != "hundred":
        return value + behind[0], behind[1]
    return value, end


def parse_cardinal(words: list[str], place: int) -> tuple[int, int] | None:
    """A whole number above zero: groups of up to three digits, each with a smaller scale than the one before."""
    if word_at(words, place) == "a" and word_at(words, place + 1) in ("hundred", *SCALE_VALUES):
        number = parse_cardinal(["one", *words[place + 1 : place + 1 + LONGEST_ROW]], 0)
        return (number[0], place + number[1]) if number else None
    # Groups of up to three digits: each has a smaller scale than the one before it.
    total = 0
    end = place
    least = 10**15
    while group := _parse_under_1000(words, end + (bool(total) and word_at(words, end) == "and")):
        scale = SCALE_VALUES.get(word_at(words, group[1]), 1)
        if scale >= least:
            break
        total += group[0] * scale
        end = group[1] + (scale > 1)
        least = scale
        if scale == 1:
            break
    return (total, end) if total else None


def parse_digit_run(words: list[str], place: int) -> tuple[str, int]:
    """Digits that are said one by one."""
    end = place
    while end < place + LONGEST_ROW and word_at(words, end) in DIGIT_VALUES:
        end += 1
    return "".join(str(DIGIT_VALUES[word]) for word in words[place:end]), end


def parse_amount(words: list[str], place: int) -> Amount | None:
    """A number with its sign, its decimals and its scale: minus five, two point five million."""
    begin = place + (word_at(words, place) in ("minus", "negative"))
    sign = "-" * (begin > place)
    number = (0, begin + 1) if word_at(words, begin) == "zero" else parse_cardinal(words, begin)
    if number is None:
        return None
    value, end = number
    scale = word_at(words, end - 1)
    # Two million stays a word and a figure; two million three has seven digits.
    is_round = scale in ("million", "billion", "trillion") and value % SCALE_VALUES[scale] == 0
    text = f"{value // SCALE_VALUES[scale]:,} {scale}" if is_round else f"{value:,}"
    # Decimals: digits one by one, or one number; versions have several points.
    points = ""
    while word_at(words, end) == "point" and word_at(words, end + 1) in (*DIGIT_VALUES, *TENS_VALUES, *SMALL_VALUES):
        digits, behind = parse_digit_run(words, end + 1)
        if not digits and (under := parse_under_100(words, end + 1)):
            digits = str(under[0])
            behind = under[1]
        points += f".{digits}"
        end = behind
    if points:
        scale = word_at(words, end)
        is_scaled = scale in ("million", "billion", "trillion")
        return Amount(f"{sign}{value}{points}{f' {scale}' * is_scaled}", value, end + is_scaled, False)
    return Amount(sign + text, value, end, not is_round)


def parse_pair(words: list[str], place: int) -> tuple[str, int] | None:
    """Two numbers that are one when they are written: nineteen eighty four, one oh one, sixteen hundred."""
    first = parse_under_100(words, place)
    if first is None:
        return None
    value, end = first
    # One oh one; of more digits it is a row.
    if (
        word_at(words, end) in ("oh", "o")
        and DIGIT_VALUES.get(word_at(words, end + 1), 0) > 0
        and not is_digit(words, end + 2)
    ):
        return f"{value}0{DIGIT_VALUES[words[end + 1]]}", end + 2
    if word_at(words, end) == "hundred" and value > 9:
        return (f"{value}00", end + 1) if parse_under_100(words, end + 1) is None else None
    second = parse_under_100(words, end)
    return (f"{value}{second[0]}", second[1]) if second and second[0] > 9 else None


def is_digit_row(words: list[str], place: int) -> bool:
    """Returns whether digits are said one by one from a place on: eight hundred, five five five."""
    return is_digit(words, place) and is_digit(words, place + 1)


def is_digit(words: list[str], place: int) -> bool:
    return word_at(words, place) in DIGIT_VALUES


def parse_year(words: list[str], place: int) -> tuple[str, int] | None:
    """A year from 1100 to 2099, as it is said."""
    if (pair := parse_pair(words, place)) and len(pair[0]) == 4 and "1100" <= pair[0] <= "2099":
        return pair
    number = parse_cardinal(words, place)
    return (str(number[0]), number[1]) if number and 2000 <= number[0] <= 2099 else None


def parse_year_of_date(words: list[str], place: int) -> tuple[str, int] | None:
    """A year behind a month or a day; in March two thousand people came, who are counted."""
    year = parse_year(words, place)
    if year is None or words[place : place + 2] != ["two", "thousand"]:
        return year
    # What is counted is in the plural; of the short words that end so, none is.
    behind = word_at(words, year[1])
    is_counted = behind in ("people", "men", "women", "children") or (len(behind) > 4 and behind.endswith("s"))
    return None if is_counted else year


def is_number_word(word: str) -> bool:
    return word in SMALL_VALUES or word in TENS_VALUES or word in ("zero", "oh")

"""English text normalization for TTS: lower-case words and punctuation; numbers, signs and abbreviations spelled out.

The meaning of a sign depends on its neighbors ("$5", "5 km", "Dr. Who"), so the rules see the text with its capitals
and digits, and the last rules handle the rest. Order matters: money before numbers, years before counts.
"""

import re
import unicodedata
from collections.abc import Callable

from voxline.text import english_numbers as numbers
from voxline.text.alphabet import EmptyText, UnsupportedText, quote_text, unsupported_characters
from voxline.text.apostrophes import PLAIN_APOSTROPHES, remove_quotes
from voxline.text.english_abbreviations import (
    ANY_UNIT,
    DAYS,
    expand_abbreviations,
    expand_counts,
    expand_per,
    expand_units,
    from_capitals,
    is_in_capitals,
    mark_degrees,
    put_apart,
    unit_name,
)
from voxline.text.english_dates import spell_out_dates
from voxline.text.english_marks import (
    DOLLARS,
    NUMBERED,
    SCALES,
    SIGN,
    date_or_fraction,
    decade_or_seconds,
    falling_numbers,
    hyphened_numbers,
    long_number,
    model_name,
    plural_digits,
    spell_out_marks,
    stopwatch_time,
    telephone_or_numbers,
    two_groups,
)

_LETTERS = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ð": "th", "Ð": "Th", "þ": "th", "Þ": "Th", "ı": "i", "ħ": "h", "Ħ": "H",
}  # fmt: skip
_LATIN_MARKS = {
    **dict.fromkeys("’‘ʼ`´′＇", "'"),
    **dict.fromkeys("\"“”„‟«»‹›″‚", " "),
    **dict.fromkeys("()[]{}", ", "),
    **dict.fromkeys("‐‑", "-"),
    **dict.fromkeys("—―", ", "),
    "…": "...", "−": "-", "•": ", ", "·": " ", "_": " ", "|": ", ", "*": " ",
}  # fmt: skip
_LATIN_SIGNS = {
    "½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 ", "⅓": " 1/3 ", "⅔": " 2/3 ", "⅛": " 1/8 ", "№": " number ",
    "℃": "°C", "℉": "°F", "©": " copyright ", "®": " ", "™": " ",
    "‰": " per mille ", "×": " times ", "÷": " divided by ", "±": " plus or minus ",
    "§": " section ", "≈": " about ", "≠": " does not equal ",
}  # fmt: skip
_TABLE = str.maketrans({**_LETTERS, **_LATIN_MARKS, **_LATIN_SIGNS})
_ACCENT = re.compile("[̀-ͯ]+")
_DASHES = re.compile(r"\s?\s–\s|\s?--+|\s-\s")
ACCEPTED_CHARACTERS = "letters with or without accents, digits, common signs and punctuation are accepted"
FINAL_MARKS = ".!?"
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WEEKDAY = "|".join(sorted(DAYS, key=len, reverse=True))
_MONTH = "|".join(_MONTHS)
_SHORT = {name[:3]: name for name in _MONTHS if name != "May"} | {"Sept": "September"}
_ANY_MONTH = "|".join([*_MONTHS, *sorted(_SHORT, key=len, reverse=True)])
_UNKNOWN = re.compile(r"[^ a-z.,;:!?'-]")
_NUMBER = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)*"
_MEASURED = rf"\s?(?:%|°|{SIGN}|(?:km|kg|cm|mm|m|g|l|hours?|minutes?|seconds?|million|billion|percent|times)\b)"
"""What follows a decimal: ages 5,6 are two numbers, lines 5,6 cm apart are not."""
_NO_COUNT = r"(?!,[0-9]{3}(?![0-9])|[.:][0-9]|\s?%|\s?-?(?:percent|hundred|thousand|million|billion|trillion|dozen)\b)"
"""Behind a month, what makes a number no day: in May 20,000 came, in May 5% did."""
_TWO_GROUPS = r"([1-9][0-9]{0,2}) ([0-9]{3})(?:,([0-9]{1,2}))?(?![0-9_'])(?! [0-9]|-[0-9])"
"""Thousands with a space, or two numbers: 12 500."""
_CODES_ALONE = "|".join(code for code in numbers.CURRENCIES if code.isalpha())
_NO_NOUN = "or|and|to|in|per|at|for|a|each|more|less|off|is|was|of|on|from|if|as|but|than"
"""What may follow an amount without being counted by it: "a $5 bill" has a noun, "$5 or more" none."""
_DOLLAR_SIGN = rf"(?:\b(?:{'|'.join(DOLLARS)}))?{SIGN}"
_SCALE = r"(?:\s(hundred|thousand|million|billion|trillion|lakhs?|crores?)\b)?"
_SIGNS = {
    "&": "and", "+": "plus", "@": "at", "=": "equals", "%": "percent", "/": "slash", "#": "number", "~": "about",
    "<": "less than", ">": "greater than", "¢": "cent", "–": ",",
    **{sign: names[0] for sign, names in numbers.CURRENCIES.items() if len(sign) == 1},
}  # fmt: skip

# An apostrophe stays inside a word, at the end of a plural, and where it marks an omission.
_QUOTES = (
    re.compile(r"(?<![a-z])'(?!(?:tis|twas|em|cause|til|round|bout|n)\b)"),
    re.compile(r"(?<![sn])'(?![a-z])"),
)
_LOOSE_HYPHENS = re.compile(r"(?<![a-z])-+|-+(?![a-z])")
_MARKS = re.compile(r" ?([.,;:!?])[ .,;:!?]*")


def normalize_english(text: str, *, whole: bool = True) -> str:
    """Normalizes a text to lower-case ASCII letters, spaces and `.,;:!?'-`, with a final mark.

    Args:
      whole: False: a part of a sentence, which begins and ends with the marks that it has, and may have no words.

    >>> normalize_english("Dr. Smith paid $3.50 on March 5, 1984…")
    'doctor smith paid three dollars and fifty cents on march fifth, nineteen eighty-four.'
    >>> normalize_english("Henry VIII ran 5 km at 10:05 p.m.")
    'henry the eighth ran five kilometers at ten oh five p m.'
    >>> normalize_english(", said Jan 5", whole=False), normalize_english('."', whole=False)
    (', said january fifth', '.')

    Raises:
      UnsupportedText: some characters have no sound in English, or there are no words.
    """
    text = expand_counts(mark_degrees(text))
    # In a text of capitals, I is a word and a letter rather than a numeral.
    words = _apply_rules(from_capitals(text) if is_in_capitals(text) else text, whole)
    # The output of a rule may match another one ("mr2" → "mr two"), so the rules are applied until nothing changes.
    for _ in range(8):
        again = _apply_rules(words, whole)
        if again == words:
            break
        words = again
    return words


def english_words(symbols: str) -> str:
    """The words of a normalized text, without punctuation.

    >>> english_words("it's twenty-one.")
    "it's twenty one"
    """
    return " ".join(re.sub(r"[^a-z0-9']", " ", symbols).split())


def _apply_rules(text: str, whole: bool) -> str:
    # Rules see capitals and digits; lower case comes after them.
    # Marks that folding takes for quotes and brackets.
    marked = _AREA_CODE.sub(r"\1-", _TRUNK_ZERO.sub(" 0", spell_out_marks(spell_out_dates(text))))
    words = fold_to_ascii(remove_quotes(marked.translate(PLAIN_APOSTROPHES)))
    own = set(_WITH_APOSTROPHE.findall(words.lower()))
    for rule in _RULES:
        words = rule(words)
    # An apostrophe behind a number, or its sign, joins what is no word: $5's, 5%'s.
    words = words.lower()
    words = _WITH_APOSTROPHE.sub(lambda word: word[0] if word[0] in own else _apart(word[0]), words)
    if unknown := _UNKNOWN.findall(words):
        raise unsupported_characters(unknown, text, ACCEPTED_CHARACTERS)
    return _tidy(words, text, whole)


def fold_to_ascii(text: str) -> str:
    """Removes accents, ligatures and typographic marks; characters without a Latin counterpart stay.

    >>> fold_to_ascii("Café “Łódź” – naïve…")
    'Cafe Lodz, naive...'
    """
    text = unicodedata.normalize("NFC", text).translate(_TABLE)
    text = _POWER.sub(lambda power: "^" + unicodedata.normalize("NFKC", power[0]).replace("\N{MINUS SIGN}", "-"), text)

    # Some keep their form: NFKD would turn ² into 2, and drop the ° of a temperature. A fraction is a word of its own:
    # 3⅞ is no thirty-seven eighths.
    pieces = (char if char in "²³°–¢" or char in numbers.CURRENCIES else _decompose(char) for char in text)
    # The table again: a decomposed letter may be one that it has.
    text = _ACCENT.sub("", "".join(pieces)).translate(_TABLE)
    return " ".join(_DASHES.sub(", ", text).split())


def _apart(word: str) -> str:
    """A word with an apostrophe that the text does not have, such as dollars's, which is not spoken, or dollars'qq."""
    stem, _, ending = word.partition("'")
    if ending == "s":
        return stem if stem.endswith("s") and len(stem) > 1 else word
    return word if stem == "o" else word.replace("'", " ")


def _decompose(character: str) -> str:
    letters = unicodedata.normalize("NFKD", character)
    if "\N{COMBINING LONG SOLIDUS OVERLAY}" in letters or character == "ª":
        return character  # not less than is no "less than"
    return f" {letters.replace('⁄', '/')} " if "⁄" in letters else letters


def _tidy(words: str, text: str, whole: bool) -> str:
    for quote in _QUOTES:
        words = quote.sub(" ", words)
    words = " ".join(_LOOSE_HYPHENS.sub(" ", words).split())

    # Of several marks in a row, the strongest one remains.
    words = _MARKS.sub(lambda match: f"{_strongest(match[0])} ", words)
    words = " ".join(words.split())
    if not whole:
        return words.strip(" -")

    # A sentence begins with a word and ends with a mark.
    words = words.lstrip(" .,;:!?-")
    if not re.search("[a-z]", words):
        raise EmptyText(f"{quote_text(text)} has no words; letters or digits are accepted")
    words = words.rstrip(" ,;:-")
    return words if words[-1] in FINAL_MARKS else words + "."


def _strongest(marks: str) -> str:
    return next(mark for mark in "?!.;:," if mark in marks)


_WITH_APOSTROPHE = re.compile(r"(?<![a-z])[a-z]++(?:'[a-z]++)+")
_POWER = re.compile("(?<=[0-9])(?:⁻[⁰¹²³⁴-⁹]{1,3}|[⁰¹⁴-⁹][⁰¹²³⁴-⁹]{0,2}|[²³][⁰¹²³⁴-⁹]{1,2})")
"""10⁻³, 10⁶; ² and ³ alone have words of their own."""
_TRUNK_ZERO = re.compile(r"(?<=[0-9])\s?\(0\)\s?(?=[0-9])")
_AREA_CODE = re.compile(r"(?<!\w)\(([0-9]{3})\)\s?(?=[0-9]{3}[ .-][0-9]{4}(?![0-9]))")


def _month_name(match: re.Match[str]) -> str:
    return f"{_SHORT[match[1]]} "


def _iso_date(match: re.Match[str]) -> str:
    year = match[1]
    month = int(match[3])
    day = int(match[4])

    if not (1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]):
        raise UnsupportedText(f"{match[0]!r} is no date; write in words what it is")
    return f"{_MONTHS[month - 1]} {numbers.ordinal(str(day))}, {numbers.year(year)}"


def _slash_date(match: re.Match[str]) -> str:
    month, day = int(match[1]), int(match[2])
    if month != day and month <= 12 and day <= 12:
        raise numbers.has_two_readings(match[0], "the month first, or the day")
    month, day = (day, month) if month > 12 else (month, day)

    if not (1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]):
        raise UnsupportedText(f"{match[0]!r} is no date; write in words what it is")
    words = f"{_MONTHS[month - 1]} {numbers.ordinal(str(day))}"
    if not match[3]:
        return words
    if len(match[3]) == 4:
        return f"{words}, {numbers.year(match[3])}"
    return f"{words}, {'oh ' if match[3][0] == '0' else ''}{numbers.cardinal(str(int(match[3])))}"


def _month_day(match: re.Match[str]) -> str:
    words = f"{match[1]} {numbers.ordinal(match[2])}"
    return words + (f", {numbers.year(match[3])}" if match[3] else "")


def _month_days(match: re.Match[str]) -> str:
    """June 1–5 has two days."""
    if not int(match[2]) < int(match[3]) <= 31:
        return match[0]
    words = f"{match[1]} {numbers.ordinal(match[2])} to {numbers.ordinal(match[3])}"
    return words + (f", {numbers.year(match[4])}" if match[4] else "")


def _dotted_date(match: re.Match[str]) -> str:
    # European order; a version stays for the later rules.
    day = int(match[1])
    month = int(match[2])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{_MONTHS[month - 1]} {numbers.ordinal(str(day))}, {numbers.year(match[3])}"


def _day_month(match: re.Match[str]) -> str:
    words = f"{numbers.ordinal(match[1])} of {match[2]}"
    return words + (f", {numbers.year(match[3])}" if match[3] else "")


def _time(match: re.Match[str]) -> str:
    hour = match[1]
    minute = match[2]
    second = match[3]
    half = match[4]

    # What is no time of day, such as a score, stays for the later rules.
    if int(hour) > 24 or int(minute) > 59:
        return match[0]
    words = numbers.cardinal(str(int(hour)))
    if minute != "00":
        words += f" {'oh ' if minute[0] == '0' else ''}{numbers.cardinal(str(int(minute)))}"
    elif second:
        words += " oh oh"
    # A full hour without a.m. or p.m.: "o'clock", or "hundred" on a clock of 24 hours.
    elif not half:
        words += " o'clock" if 1 <= int(hour) <= 12 else " hundred"
    if second:
        words += f" and {numbers.decimal(second.removeprefix('0') if second != '0' else second)} seconds"
    return words + (f" {half[0].lower()} m" if half else "")


def _money(match: re.Match[str]) -> str:
    return numbers.money(match[1], match[2], match[3] or "")


def _money_before_noun(match: re.Match[str]) -> str:
    return match[1] + numbers.money(match[2], match[3], match[4] or "", is_single=True)


def _with_code(match: re.Match[str]) -> str:
    """$30 USD: the code says whose dollars these are, or what the sign says."""
    sign = match[0][0]
    code = match[4]
    scale = f" {match[3]}" if match[3] else ""
    if sign == "$" and code in numbers.DOLLARS_BY_CODE:
        return f"{numbers.DOLLARS_BY_CODE[code]}${match[2]}{scale}"
    return f"{sign}{match[2]}{scale}" if numbers.CODES.get(code) == sign else match[0]


def _behind(match: re.Match[str]) -> str:
    return f"{match[3]}{match[1]} {SCALES.get(match[2], match[2])}"


def _unknown_currency(match: re.Match[str]) -> str:
    raise UnsupportedText(f"{match[0]!r} is money of a currency that is not known; write it in words")


def _other_dollars(match: re.Match[str]) -> str:
    """US$30 are thirty U.S. dollars: the words say whose dollars behind the amount."""
    return numbers.money("$", match[2], match[3] or "", DOLLARS[match[1].upper()])


def _thousands(match: re.Match[str]) -> str:
    """Groups of three digits, separated as in other countries; their fraction behind a comma."""
    groups = re.split(r"[.' ]", match[1])
    # Three groups of any digits may be a telephone number; thousands that are separated by spaces are mostly round.
    if " " in match[1] and (groups[0].startswith("0") or (len(groups[0]) == 3 and groups[-1] != "000")):
        return match[0]
    # An address of the Internet, such as 192.168.100.200.
    if "." in match[1] and len(groups) == 4 and all(int(group) < 256 for group in groups):
        return match[0]
    return ",".join(groups) + (f".{match[2]}" if match[2] else "")


def _thousand(match: re.Match[str]) -> str:
    return f"{match[1]},{match[2]}" + (f".{match[3]}" if match[3] else "")


def _telephone(match: re.Match[str]) -> str:
    return f"{numbers.digit_by_digit(match[1])}, {numbers.digit_by_digit(match[2])}"


def _call(match: re.Match[str]) -> str:
    return f"{match[1]}{numbers.digit_by_digit(match[2])}, {numbers.digit_by_digit(match[3])}"


def _long_telephone(match: re.Match[str]) -> str:
    """A number with an area code, each group after a pause; 1-800 is a name."""
    groups = re.findall("[0-9]+", match[0])
    plus = "plus " * match[0].startswith("+")
    if groups[:2] == ["1", "800"]:
        return ", ".join([f"{plus}one eight hundred", *map(numbers.digit_by_digit, groups[2:])])
    return plus + ", ".join(map(numbers.digit_by_digit, groups))


def _large(match: re.Match[str]) -> str:
    """1.5M views: behind a number and before what is counted."""
    return f"{match[1]} {SCALES[match[2].lower()]}"


def _telephone_name(match: re.Match[str]) -> str:
    """1-800-FLOWERS: letters stand for digits, and are said as words."""
    prefix = "eight hundred" if match[1] == "800" else numbers.digit_by_digit(match[1])
    parts = re.findall("[A-Za-z]+|[0-9]+", match[2])
    plus = ["plus"] * match[0].startswith("+")
    return " ".join(
        [*plus, "one", prefix, *(numbers.digit_by_digit(part) if part.isdigit() else part for part in parts)]
    )


def _foreign_telephone(match: re.Match[str]) -> str:
    return _long_telephone(match) if 8 <= sum(map(str.isdigit, match[0])) <= 15 else match[0]


def _bare(match: re.Match[str]) -> str:
    """A number that no other rule matched: a year if four digits look like one, else a count."""
    digits = match[0]
    if len(digits) == 4 and digits.isdigit() and ("1100" <= digits <= "1999" or "2000" < digits <= "2099"):
        return f" {numbers.year(digits)} "
    if len(digits) > 6 and digits.isdigit():
        return f" {long_number(match)} "
    return f" {numbers.decimal(digits)} "


def _sub_digits(pattern: str, put: Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    """A rule that writes digits, which the letters of a unit or an ordinal may touch."""
    compiled = re.compile(pattern)
    return lambda text: compiled.sub(put, text)


def _sub(pattern: str, put: Callable[[re.Match[str]], str] | str, flags: int = 0) -> Callable[[str], str]:
    """A rule; words that a function puts stand apart from letters and digits beside them."""
    compiled = re.compile(pattern, flags)
    if isinstance(put, str):
        return lambda text: compiled.sub(put, text)
    return lambda text: compiled.sub(lambda match: put_apart(match, put(match)), text)


_RULES: tuple[Callable[[str], str], ...] = (
    _sub(r"(?<![\w.,])\.(?=[0-9])", "0."),
    _sub(r"\b[Tt]el\.?:?(?=\s?[+0-9])", "telephone"),
    _sub(r"([0-9]{3}[-. ][0-9]{4}),?\s?(?:x|[Ee]xt\.?)\s?(?=[0-9])", r"\1 extension "),
    # Ranges of what later rules spell out: the hyphen would be lost.
    _sub(rf"(?<=[0-9])~(?={SIGN}?[0-9])", "-"),
    _sub(
        r"(?<=[0-9]x)[-–](?=[0-9]{1,9}x\b)|(?<=[0-9][s¢])[-–](?=['0-9])|(?<=/[12][0-9]{3})[-–](?=[0-9]{1,2}/)", " to "
    ),
    _sub(rf"\b({_WEEKDAY})\.?[-–]({_WEEKDAY})\b\.?", lambda m: f"{DAYS[m[1]]} to {DAYS[m[2]]}"),
    _sub(
        rf"\b({_ANY_MONTH})\.?[-–]({_ANY_MONTH})\b\.?",
        lambda m: " to ".join(_SHORT.get(name, name) for name in m.groups()),
    ),
    # Two hours fifteen minutes: m alone is a meter, and s a plural.
    _sub(r"(?<![\w.:])([0-9]{1,2})\s?h\s?([0-9]{1,2})\s?m(?:in)?\b", r"\1 hr \2 min"),
    _sub(r"(?<![\w.:])([0-9]{1,2})\s?m(?:in)?\s?([0-9]{1,2})\s?s(?:ec)?\b", r"\1 min \2 sec"),
    _sub(r"(?<=[0-9])-(?=(?:st|nd|rd|th)\b)", ""),
    _sub(r"(?<![\w/.,-])([0-9]{1,3})-(?=[1-9]/(?:[2-9]|16|32)(?![0-9/-]))", r"\1 "),
    # Telephone numbers that are words, in part.
    _sub(
        r"(?<![\w.,+-])\+?1[ .-](8(?:00|88|77|66|55|44|33))-"
        r"((?:[A-Za-z0-9]{1,12}-){0,3}[A-Za-z]{3,12}[A-Za-z0-9]{0,9})(?![\w-])",
        _telephone_name,
    ),
    # Telephone numbers first: they have groups as thousands have.
    _sub(
        r"(?<![\w.,+-])(?<![0-9] )(?:\+?1[ .-])?[0-9]{3}[ .-][0-9]{3}[ .-][0-9]{4}(?!\w|[.,-][0-9]| [0-9])",
        _long_telephone,
    ),
    _sub(r"(?<![\w.,])\+[0-9]{1,3}(?:[ .-]?\(?[0-9]{1,4}\)?){1,6}(?![\w%]|[.,:-][0-9])", _foreign_telephone),
    _sub(r"(?<![\w.,+-])(?<![0-9] )0[0-9]{2,4}[ -][0-9]{3,4}[ -]?[0-9]{3,4}(?!\w|[.,-][0-9]| [0-9])", _long_telephone),
    _sub(r"(?<![\w.,+-])(?<![0-9] )0[0-9]{1,4}(?: [0-9]{2,6}){2,5}(?!\w|[.,-][0-9]| [0-9])", _foreign_telephone),
    _sub(
        r"\b((?:zip|zip\scode|postcode|pin|pin\scode|passcode|password|area\scode)\s(?:is\s)?)([0-9]{3,6})(?![\w.,:-][0-9]|[\w%])",
        lambda m: m[1] + numbers.digit_by_digit(m[2]),
        re.IGNORECASE,
    ),
    _sub(
        # Of more digits before or behind, as of a telephone number, the groups are no thousands.
        r"(?<![\w.,'+])(?<![0-9)] )([0-9]{1,3}(?:(?:\.[0-9]{3})+(?=,[0-9]{1,2}(?![0-9]))|(?:\.[0-9]{3}){2,}"
        r"|(?: [0-9]{3}){2,}|(?:'[0-9]{3})+))(?:,([0-9]{1,2}))?(?![0-9_'])(?!\.[0-9])(?! [0-9]|-[0-9]{4})",
        _thousands,
    ),
    # Nobody says 000 alone, and an amount of money is one. Other groups may be a number and another one.
    _sub_digits(
        r"(?<![\w.,'+])(?<![0-9)] )([1-9][0-9]{0,2}) (000)(?:,([0-9]{1,2}))?(?![0-9_'])"
        r"(?! [0-9]|-(?![1-9][0-9]{0,2} 000)[0-9])",
        _thousand,
    ),
    _sub(
        rf"(?<={SIGN})\s?{_TWO_GROUPS}(?!\.[0-9]|\s(?!(?:was|is|has|as|plus|minus|less|this|its)\b)[a-z]+s\b)",
        _thousand,
    ),
    _sub(rf"(?<![\w.,'+$])(?<![0-9)] ){_TWO_GROUPS}(?=\s?(?:{SIGN}|(?:{'|'.join(numbers.CODES)})\b))", _thousand),
    _sub(
        rf"(?<![\w.,'+])([1-9][0-9]{{0,2}}) ([0-9]{{3}})\s?({ANY_UNIT})(?=\s[a-z]+s\b)",
        lambda m: f"{m[1]} {numbers.cardinal(m[2])} {unit_name(m[3])}",
    ),
    _sub(rf"(?<![\w.,'+:/#-])(?<![0-9)] ){_TWO_GROUPS}(?![.,:/-][0-9]|[ -][0-9]|-[A-Za-z])", two_groups),
    # Euros have two decimals: three digits behind a point are thousands.
    _sub(r"(?<=€)(\s?[0-9]{1,3})\.([0-9]{3})(?![0-9]|[.,][0-9])", r"\1,\2"),
    _sub(r"(?<![\w.,])([0-9]{1,3})\.([0-9]{3})(?=\s?(?:€|EUR\b))", r"\1,\2"),
    # Groups of two digits and one of three, as in India.
    _sub(r"(?<![0-9.,])[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9]|,[0-9])", lambda m: m[0].replace(",", "")),
    _sub(r"\bv\.?(?=[0-9]+\.[0-9])", "version "),
    _sub(r"(?<![\w.])(?!0x)([0-9]+(?:\.[0-9]+)?(?:\s(?:inch(?:es)?|foot|feet))?)\s?x\s?(?=[0-9])", r"\1 by "),
    _sub(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)e([+-]?)([0-9]{1,3})(?!\w|\.[0-9])", r"\1 times 10^\g<2>\3"),
    _sub(r"(?<=[\w)])\^-(?=[0-9])", " to the power of minus "),
    _sub(r"(?<=[\w)])\^(?=[0-9A-Za-z])", " to the power of "),
    _sub(r"\b(and/or|he/she|she/he|yes/no|his/her|him/her)\b", lambda m: m[0].replace("/", " "), re.IGNORECASE),
    _sub(r"\b([CFJ])#", r"\1 sharp"),
    expand_abbreviations,
    _sub(rf"\b({'|'.join(_SHORT)})\b\.?\s(?='?[0-9])", _month_name),
    _sub(rf"(?:(?<=[0-9]\s)|(?<=[0-9](?:st|nd|rd|th)\s))({'|'.join(_SHORT)})\b\.?\s?", _month_name),
    _sub(rf"(?<=[0-9]\s)({_MONTH})\s?[-–]\s?(?=[0-9]{{1,2}}\s(?:{_ANY_MONTH})\b)", r"\1 to "),
    numbers.spell_out_roman,
    # Dates of digits alone, in the order that the values allow; impossible ones are refused.
    _sub(r"(?<![\w/-])([12][0-9]{3})([-/])([0-9]{1,2})\2([0-9]{1,2})(?![\w/-])", _iso_date),
    _sub(r"(?<![0-9/])9/11(?![0-9/])", "nine eleven"),
    _sub(r"(?<![0-9/])24/7/365(?![0-9/])", "twenty-four seven three sixty-five"),
    _sub(r"(?<![\w/.])([0-9]{1,2})/([0-9]{1,2})/([12][0-9]{3}|[0-9]{2})(?![\w/])", _slash_date),
    _sub(r"(?<![\w/.-])([0-9]{1,2})-([0-9]{1,2})-([12][0-9]{3})(?![\w/-])", _slash_date),
    _sub(
        r"(?<=\b(?:on|by) )([0-9]{1,2})/([0-9]{1,2})()"
        r"(?=[.,;:!?]?$|[.,;:!?]\s|\s(?:at|and|to|from|for|with|we|i|he|she|they|it)\b)",
        _slash_date,
        re.IGNORECASE,
    ),
    _sub(rf"(?<=[0-9])\s?[-–]\s?(?=(?:{_MONTH})\s[0-9])", " to "),
    _sub(r"(?<![\w.])([0-9]{1,2})\.([0-9]{1,2})\.([12][0-9]{3})(?![\w]|\.[0-9])", _dotted_date),
    _sub(
        rf"\b({_MONTH})\s([0-3]?[0-9])(?:st|nd|rd|th)?[-–]([0-3]?[0-9])(?:st|nd|rd|th)?(?![\w:%]|[.,/-][0-9])"
        r"(?:,?\s([12][0-9]{3})\b)?",
        _month_days,
    ),
    _sub(rf"\b({_MONTH})\s([0-3]?[0-9])(?:st|nd|rd|th)?\b{_NO_COUNT}(?:,?\s([12][0-9]{{3}})\b)?", _month_day),
    _sub(rf"\b([0-3]?[0-9])[-–](?=[0-3]?[0-9]\s(?:{_MONTH})\b)", lambda m: f"{numbers.ordinal(m[1])} to "),
    _sub(rf"\b([0-3]?[0-9])(?:st|nd|rd|th)?\s(?:of\s)?({_MONTH})\b(?:,?\s([12][0-9]{{3}})\b)?", _day_month),
    _sub(r"(?<=[0-9]:[0-5][0-9])[-–](?=[0-9]{1,2}(?::[0-5][0-9])?(?![\w:%]|[.,/-][0-9]))", " to "),
    _sub(r"(?<=\b[Nn]oon)[-–](?=[0-9])|(?<=\b[Mm]idnight)[-–](?=[0-9])", " to "),
    _sub(r"(?<![0-9.:,])(1[0-2]|0?[1-9])\.([0-5][0-9])(?=\s?[AaPp]\.?[Mm]\b)", r"\1:\2"),
    _sub(
        r"(?:(?<=[0-9])|(?<=[0-9][AaPp][Mm])|(?<=[0-9]\s[AaPp][Mm])|(?<=\b[AaPp]\.[Mm]\.))"
        r"\s?[-–]\s?(?=[0-9]{1,2}(?::[0-9]{2})?\s?[AaPp]\.?[Mm]\b)",
        " to ",
    ),
    _sub(r"(?<![0-9:])([0-9]{1,2}):([0-5][0-9])\.([0-9]{1,3})(?![\w:]|\s?[AaPp]\.?[Mm]\b)", stopwatch_time),
    _sub(
        r"(?<![0-9:])([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,3})?))?(?![0-9:])(?:\s?([AaPp])\.?[Mm]\b\.?)?",
        _time,
    ),
    _sub(r"(?<![0-9.])([0-9]{1,2})\s?([AaPp])\.?[Mm]\b\.?", lambda m: f"{numbers.cardinal(m[1])} {m[2].lower()} m"),
    _sub(r"\b(?:[A-Za-z]\.){2,20}(?:'s\b)?", lambda m: m[0].replace(".'", "'").replace(".", " ")),
    # Lists: of three and more, after what is numbered, of neighbors; not where a measure shows a decimal.
    _sub(r"(?<![\w.,])[0-9]{1,2}(?:,[0-9]{1,2}){2,}(?!\w|[.,][0-9])", lambda m: m[0].replace(",", ", ")),
    _sub(rf"\b((?:{NUMBERED})\s[0-9]+),(?=[0-9]{{1,2}}(?![0-9]))(?![0-9]+{_MEASURED})", r"\1, ", re.IGNORECASE),
    _sub(r"(?<![0-9.,])([0-9]+),([0-9]{1,2})(?![0-9]|,[0-9])", r"\1.\2"),  # a decimal comma: 1,5; not 1,500 or 1,2,3
    _sub(r"(?<![\w:.])[0-9]{1,3}(?::[0-9]{1,3}){2,5}(?![\w:]|\.[0-9])", lambda m: m[0].replace(":", " to ")),
    _sub(r"(?<![0-9:.])([0-9]{1,3}):([0-9]{1,3})(?![0-9:]|\.[0-9])", lambda m: f"{m[1]} to {m[2]}"),  # a ratio, a score
    # Money: one spelling for each currency, the sign in front of the digits.
    _sub(rf"(?:{SIGN}|(?<![\w.,])())\s?({_NUMBER}){_SCALE}\s(USD|CAD|AUD|NZD|HKD|SGD|EUR|GBP|JPY|INR)\b", _with_code),
    _sub(r"\b(US|CA|AU|NZ|HK|NT)D?\s?\$(?=\s?[0-9])", r"\1$"),
    _sub(rf"\$\s?({_NUMBER})(?:\s?(US)|(CA|AU|NZ))\b(?!\.)", lambda m: f"{m[2] or m[3]}${m[1]}"),
    _sub(r"\bJP¥", "¥", re.IGNORECASE),
    _sub(r"\b(?:CN|RMB)¥(?=\s?[0-9])", "CNY ", re.IGNORECASE),
    _sub(r"\bR\$(?=\s?[0-9])", "BRL ", re.IGNORECASE),
    _sub(r"\bRs\.?\s?(?=[0-9])", "₹"),
    _sub(rf"¢\s?({_NUMBER})", r"\1¢"),
    _sub(rf"((?:\b(?:{'|'.join(DOLLARS)}))?{SIGN})\s?-(?=\.?[0-9])", r" minus \1"),
    _sub(
        rf"(?<![\w.,])({_NUMBER})\s?(hundred|thousand|million|billion|trillion|bn|[kmb])\s?({SIGN})(?!\w|\s?[0-9])",
        _behind,
    ),
    _sub(
        rf"(?<![\w.,])(?<!{SIGN})({_NUMBER})\s?({'|'.join(numbers.CODES)}|{SIGN})(?![\w]|\s?[0-9])",
        lambda m: f"{numbers.CODES.get(m[2].upper(), m[2])}{m[1]}",
        re.IGNORECASE,
    ),
    _sub(rf"\b({'|'.join(numbers.CODES)})\s?({_NUMBER})", lambda m: f"{numbers.CODES[m[1]]}{m[2]}"),
    _sub(
        rf"(?<![\w.,])({_NUMBER}){_SCALE}\s?({_CODES_ALONE})\b",
        lambda m: numbers.money(m[3], m[1], m[2] or ""),
    ),
    _sub(rf"\b({_CODES_ALONE})\s?({_NUMBER}){_SCALE}", _money),
    expand_per,
    _sub(rf"(?<![\w.])-(?={SIGN}\s?[0-9])", "minus "),
    _sub(rf"(?:(?<=[0-9])|(?<=[0-9][mkbMKB])|(?<=[0-9]bn))\s?[-–](?={SIGN}\s?[0-9])", " to "),
    _sub(rf"(?<![\w.,])({_NUMBER})\s?({'|'.join(DOLLARS)})\$(?![\w])", r"\2$\1"),
    # A range has one sign, and a scale of its own where it differs: $500k-1m.
    _sub(rf"({_DOLLAR_SIGN})\s?({_NUMBER})(bn|[mkbMKB])[-–](?=(?:{_NUMBER})\3\b)", r"\2 to \1"),
    _sub(rf"({_DOLLAR_SIGN})\s?({_NUMBER})(bn|[mkbMKB])[-–](?=(?:{_NUMBER})(?:bn|[mkbMKB])\b)", r"\1\2\3 to \1"),
    _sub(rf"({_DOLLAR_SIGN})\s?({_NUMBER})[-–](?=(?:{_NUMBER})(?:bn|[mkbMKB])?(?![\w-]))", r"\2 to \1"),
    _sub(rf"({SIGN}\s?(?:{_NUMBER}))\s?(bn|tn|ml?n|MM|[mkbMKB])\b", lambda m: f"{m[1]} {SCALES[m[2].lower()]}"),
    _sub(rf"\b({'|'.join(DOLLARS)})\$\s?({_NUMBER}){_SCALE}", _other_dollars, re.IGNORECASE),
    _sub(rf"(?<![A-Za-z])[A-Za-z]{{1,20}}{SIGN}\s?[0-9]", _unknown_currency),
    _sub(r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?)(M|B|bn|ml?n)\b(?=\s(?:[a-z]+s|people|men|women|children)\b)", _large),
    _sub(
        # "a $5 bill", "a $20-a-month plan": one dollar.
        rf"(\b[Aa]n?\s)({SIGN})([0-9]+(?:,[0-9]{{3}})*)(?![.,]?[0-9]){_SCALE}(?=-[a-z]|\s[a-z])"
        rf"(?!\s(?:{_NO_NOUN}|hundred|thousand|million|billion|trillion)\b)",
        _money_before_noun,
    ),
    _sub(rf"({SIGN})\s?({_NUMBER}){_SCALE}", _money),
    _sub(r"(?<![\w.,])([0-9]{1,2})p\b", lambda m: f"{numbers.cardinal(m[1])} {'penny' if m[1] == '1' else 'pence'}"),
    _sub(r"\b(480|720|1080|1440|2160)([pi])\b", lambda m: f"{numbers.pairs(m[1])} {m[2]}"),
    _sub(rf"(?<![0-9.,])({_NUMBER})\s?¢", lambda m: f"{numbers.decimal(m[1])} {'cent' if m[1] == '1' else 'cents'}"),
    _sub(r"(?<![0-9.])([0-9]{3})-([0-9]{4})(?![0-9])", _telephone),
    _sub(r"\b((?:[Cc]all|[Dd]ial|[Pp]hone|[Nn]umber|is)\s)([0-9]{3}) ([0-9]{4})(?!\w|[.,:/-][0-9]| [0-9])", _call),
    _sub(r"(?<![\w.,:/$+-])(?<![0-9)] )([0-9]{3}) ((?!19|20)[0-9]{4})(?!\w|[.,:/-][0-9]| [0-9])", telephone_or_numbers),
    _sub(
        # not a count: "we called 250 customers"
        r"\b((?:call|dial|phone|ring)(?:s|ed|led|ing|ling)?\s)([0-9]{3})\b(?![.,:-]?[0-9])"
        r"(?=\W*$|[.,;:!?]|\s(?:and|at|first|for|from|if|immediately|in|now|on|or|right|straight|to|when)\b)",
        lambda m: m[1] + numbers.digit_by_digit(m[2]),
        re.IGNORECASE,
    ),
    # Numbers of houses, rooms, roads and flights are said in pairs.
    _sub(
        r"(?<![\w.,:$/-])(?<![0-9] )([1-9][0-9]{2,3})([A-D]?)"
        r"(?=(?:\s[A-Z][a-z]+\.?){1,3}\s(?i:street|avenue|road|boulevard|drive|lane|terrace|court|place|square|parkway)\b)",
        lambda m: f"{numbers.pairs(m[1])} {m[2]}".rstrip(),
    ),
    _sub(
        r"\b((?i:room|suite|apartment|highway|route|flight)\s(?:[A-Z]{2})?)([1-9][0-9]{2,3})(?![\w%]|[.,:/-][0-9])",
        lambda m: f"{m[1]} {numbers.pairs(m[2])}".replace("  ", " "),
    ),
    # A hyphen in the names of models, in rows of numbers, and before a smaller number is no "to".
    _sub(r"(?<![A-Za-z0-9])([A-Za-z]{1,4})-?([0-9]{3,4})-([0-9]{1,4})(?![\w-])", model_name),
    _sub(r"(?<![A-Za-z0-9])([A-Za-z]{1,4})([0-9]{1,2})-([0-9]{3,4})(?=[A-Za-z]{0,3}\b)(?!-)", model_name),
    _sub(r"(?<![A-Za-z0-9])([Qq])([1-4])-([0-9]{2})\b", model_name),
    _sub(r"(?<=[A-Za-z])([0-9]{1,4})/(?=[0-9]{1,4}\b)", r"\1 slash "),
    _sub(r"(?<![\w.,:/+-])[0-9]{1,20}(?:-[0-9]{1,20}){2,9}(?![\w-]|[.,:/][0-9])", hyphened_numbers),
    _sub(r"(?<![\w.,:/+-])([0-9]{1,4})-([0-9]{1,4})(?![a-z0-9_%°-]|[.,:/][0-9])", falling_numbers),
    _sub(r"(?<![0-9/-])50[/-]50(?![0-9/-])", "fifty fifty"),
    _sub(r"(?<![0-9/-])20[/-]20(?=\s(?:vision|hindsight))", "twenty twenty"),
    _sub(r"(?<=[0-9]%)\s?[-–]\s?(?=[0-9])|(?<=[0-9]°)[-–](?=[0-9])", " to "),
    _sub(rf"([0-9]\s?(?:{ANY_UNIT}))[-–](?=[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?\s?(?:{ANY_UNIT})(?![\w/]))", r"\1 to "),
    _sub(r"(?<=[0-9])\s?[-–]\s?(?=[0-9])", " to "),
    _sub(r"(?<=[0-9](?:st|nd|rd|th))\s?[-–]\s?(?=[0-9])", " to "),
    _sub(r"(?<![0-9/])24/7(?![0-9/])", "twenty-four seven"),
    _sub(r"(?<![\w.])-(?=[0-9])", "minus "),
    _sub(r"\b([0-9]{1,2})\s?ft\.?([0-9]{1,2})(?:\s?in\b)?(?!\w|\.[0-9])", r"\1 foot \2"),
    _sub(r"(\b[0-9]{1,2}\s?(?:ft|feet|foot)\.?\s[0-9]{1,2}(?:\.[0-9])?)\s?in\b(?!\s[a-z])", r"\1 inches"),
    _sub(r"\b((?:in|since|year)\s)(10[1-9][0-9])(?=[.,;:!?]|$)", lambda m: m[1] + numbers.year(m[2])),
    expand_units,
    # An s behind digits: seconds, a decade, several of them, or a possessive.
    _sub(r"(?<![\w.,])([0-9]+\.[0-9]+)\s?s\b", r"\1 seconds"),
    _sub(
        r"(?<![\w.,'-])(?<!\b(?:the|his|her|our|its|mid|and) )(?<!\b(?:my|in|or) )(?<!\b(?:their|early|whose) )"
        r"(?<!\b(?:your|late|into|over) )([2-9]0)s\b",
        decade_or_seconds,
    ),
    _sub(r"'?\b((?:1[1-9]|20)[0-9]0|[2-9]0)'?s\b", lambda m: numbers.decade(m[1])),
    _sub(
        r"((?:(?<![A-Za-z])[A-Za-z]{1,4}-?)?)(?<![0-9.,$])(?<!\$ )([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,7})s\b",
        plural_digits,
    ),
    _sub(
        r"(?<![0-9.,$])([0-9]{1,7})'s\b", lambda m: (numbers.pairs if len(m[1]) == 3 else numbers.cardinal)(m[1]) + "'s"
    ),
    _sub(r"(?<![0-9/])([0-9]{1,3}/[0-9]{1,3})(?:st|nd|rd|th)s?\b", r"\1"),
    _sub(r"(?<![0-9,.])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:st|nd|rd|th)\b", lambda m: numbers.ordinal(m[1])),
    _sub(r"(?<![0-9/])([0-9]+)\s([0-9]{1,2})/([0-9]{1,2})(?![0-9/])", lambda m: f"{m[1]} and {m[2]}/{m[3]}"),
    _sub(r"(?<![\w/.,])(?<![0-9] )([0-9]{1,2})/([0-9]{1,2})(?![\w/%°]|[.,-][0-9])", date_or_fraction),
    _sub(
        r"(?<![0-9/])([0-9]{1,3})/([0-9]{1,4})(?![0-9/])",
        lambda m: f" {numbers.fraction(m[1], m[2], is_over=len(m[1]) > 2)} ",
    ),
    _sub(r"\b(and[.,;:!?]?) one (?=half|quarter)", r"\1 a "),
    _sub(_NUMBER, _bare),
    _sub(r"²", " squared "),
    _sub(r"³", " cubed "),
    _sub(r"°", " degrees "),
    _sub(r"([A-Za-z]{2})\.(com|org|net|edu|gov|io)\b", r"\1 dot \2", re.IGNORECASE),
    _sub(r"[&+@=%/#~<>$£€¥¢–]", lambda m: f" {_SIGNS[m[0]]} "),
)

"""English dates, zip codes, directions, telephones and shares whose marks are elsewhere ranges and fractions."""

import re

from voxline.text import english_numbers as numbers
from voxline.text.english_abbreviations import DAYS, put_apart
from voxline.text.english_marks import COUNTED, DIRECTIONS

_MONTHS = {
    "Jan": "January", "Feb": "February", "Mar": "March", "Apr": "April", "May": "May", "Jun": "June", "Jul": "July",
    "Aug": "August", "Sep": "September", "Sept": "September", "Oct": "October", "Nov": "November", "Dec": "December",
}  # fmt: skip
_MONTH = "(" + "|".join(sorted({*_MONTHS, *_MONTHS.values()}, key=len, reverse=True)) + ")"
_TIMESTAMP = re.compile(
    r"(?<![\w-])([12][0-9]{3}-[01][0-9]-[0-3][0-9])T([0-2][0-9]:[0-5][0-9])(?::([0-5][0-9])(?:\.[0-9]{1,9})?)?"
    r"(Z|[+-][0-9:]{4,5})?(?!\w)",
    re.IGNORECASE,
)
"""Of ISO 8601."""
_HYPHENED_DATE = re.compile(
    rf"(?<![\w-])(?:(0?[1-9]|[12][0-9]|3[01])-)?{_MONTH}-([12][0-9]{{3}}|[0-9]{{2}})(?![\w-])", re.I
)
_POINTED_DATE = re.compile(r"(?<![\w.,-])([12][0-9]{3})\.(0[1-9]|1[0-2])\.(0[1-9]|[12][0-9]|3[01])(?!\w|[.,-][0-9])")
_MONTH_OR_FRACTION = re.compile(r"(?<![\w/.,-])(?:0[1-9]|1[0-2])/(?:19|20)[0-9]{2}(?![\w/]|[.,-][0-9])")
_DATES = re.compile(
    rf"\b({_MONTH}\.?\s[0-9]{{1,2}}(?:st|nd|rd|th)?(?:,\s[12][0-9]{{3}})?)\s[-–—]\s(?={_MONTH}\.?\s[0-9])"
)
_MONTH_ALONE = re.compile(
    r"\b([Ii]n|[Oo]f|[Ss]ince|[Uu]ntil|[Bb]y|[Ff]rom|[Tt]o|[Ll]ate|[Ee]arly|[Mm]id|[Ll]ast|[Nn]ext|[Tt]his|[Tt]hrough)([\s-])"
    r"(?!(?:(?<=\b[Bb]y\s)|(?<=\b[Tt]o\s)|(?<=\b[Oo]f\s)|(?<=\b[Ff]rom\s))(?:Jan|Dec)\b)(Jan|Feb|Apr|Aug|Sept?|Oct|Nov|Dec)\.(?!\s?[0-9])"
)
"""In Sept., late Aug."""
_CUT_YEARS = re.compile(r"(?<![\w/.,-])([12][0-9]{3})[-–]0([1-9])(?![\w-]|[./,][0-9])")
"""2004-05."""
_BOOKS = {
    "Gen": "Genesis", "Exod": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deut": "Deuteronomy", "Josh": "Joshua",
    "Judg": "Judges", "Sam": "Samuel", "Kgs": "Kings", "Chron": "Chronicles", "Chr": "Chronicles", "Neh": "Nehemiah",
    "Ps": "Psalm", "Pss": "Psalms", "Prov": "Proverbs", "Eccl": "Ecclesiastes", "Isa": "Isaiah", "Jer": "Jeremiah",
    "Lam": "Lamentations", "Ezek": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea", "Mic": "Micah", "Hab": "Habakkuk",
    "Zech": "Zechariah", "Mal": "Malachi", "Matt": "Matthew", "Mt": "Matthew", "Mk": "Mark", "Lk": "Luke", "Jn": "John",
    "Rom": "Romans", "Cor": "Corinthians", "Gal": "Galatians", "Eph": "Ephesians", "Phil": "Philippians",
    "Col": "Colossians", "Thess": "Thessalonians", "Tim": "Timothy", "Heb": "Hebrews", "Jas": "James", "Pet": "Peter",
    "Rev": "Revelation",
}  # fmt: skip
"""Short names of books whose verses are named by two numbers: Rev. 21:4."""
_SHORT_BOOKS = "|".join(sorted(_BOOKS, key=len, reverse=True))
_BOOK = re.compile(
    rf"((?<=\b[123]\s)|\b(?!(?:{_SHORT_BOOKS})\.?\s(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?![0-9])))"
    rf"({_SHORT_BOOKS})\.?\s(?=[0-9]{{1,3}}:[0-9])"
)
"""But for what may be a time and a person: call Josh 10:00."""
_DAY = "|".join(sorted({*DAYS, *DAYS.values()}, key=len, reverse=True))
_SPACED_DAYS = re.compile(
    rf"\b({_DAY})\.?\s[-–]\s({_DAY})\b(?=\.?(?:$|[,;:)]|\s(?:[0-9]|from\b|at\b)))(?:\.(?=\s[a-z0-9]))?"
    rf"|\b({'|'.join({*DAYS.values()})})[-–]({_DAY})\b"
)
_WEEK = re.compile(
    r"(?<![\w.&/-])M[-–]F(?=,?\s(?:[0-9]|from\b|at\b))|(?<=\bopen\s)M[-–]F(?![\w/&-])|(?<=\bclosed\s)M[-–]F(?![\w/&-])"
)
_DAYS_WITH_BARS = re.compile(rf"(?<![\w/])({_DAY})/({_DAY})(?:/({_DAY}))?(?![\w/])")
_WEEK_BEHIND_HOURS = re.compile(r"(?:(?<=[0-9]\s)|(?<=[ap]m\s)|(?<=[ap]\.m\.\s))M[-–]F(?![\w/&'’-])")
# Of 5-Nov-2020 the year is read with it.
_DAY_AND_MONTH = re.compile(rf"(?<![\w/.,-])(0?[1-9]|[12][0-9]|3[01])-{_MONTH}(?![\w-])")
# C and L are letters too: a vitamin C century.
_CENTURY = re.compile(r"\b([XVI]{1,6})(?:st|nd|rd|th)?(?=\s(?:century|centuries)\b)")
_UNTIL_NOON = re.compile(
    r"(?<=[0-9][AaPp][Mm])[-–](?=(?:noon|midnight)\b)|(?<=[AaPp]\.[Mm]\.)[-–](?=(?:noon|midnight)\b)"
)
_UNTIL_TIME = re.compile(r"(?<![\w:.,/-])([1-9]|1[0-2])[-–](?=1?[0-9]:[0-5][0-9](?![0-9:]))")
"""10-2:30."""
_HOURS_OF_24 = re.compile(
    r"(?:(?<![\w.,:/-])(0[0-9])|(?:(?<!\brated at )(?<=\bat )|(?<=\bby )|(?<=\buntil ))(1[0-9]|2[0-3]))([0-5][0-9])"
    r"\s?(?:hrs?|hours)\b(?!'|\s(?:of|per|a|an|are|is|were|was|and|or|in|each|every)\b)"
)
"""0800 hours, at 1430 hrs; elsewhere 1430 hours are counted."""
_YEAR_OF_TEN = re.compile(rf"(?:\b{_MONTH}\.?\s)?(?<!\w)['’‘]0([1-9])(?!\w|['’])")
"""Class of '05."""
_COUNT_IN_MONTH = re.compile(
    # A day of its own, on which something was that has its name: in January 6 cases.
    rf"\b([Ii]n)\s(?!Jan(?:uary)?\.?\s6\b|Sep(?:t|tember)?\.?\s11\b|July?\.?\s4\b){_MONTH}\.?\s([0-9]{{1,2}})"
    rf"(?=\s(?:of|more|other|days|weeks|months|years|hours|minutes|{COUNTED})\b)"
)
"""In June 25 students came: days are on June 25."""
_CLOCK_WITH_POINT = re.compile(
    r"(?<![\w.,:/$£€-])(1[0-2]|0?[1-9])\.([0-5][0-9])(?=\sat\snight\b|\so'clock\b)"
    r"|(?:(?<=\bat )|(?<=\bby )|(?<=\buntil )|(?<=\bfrom )|(?<=\baround )|(?<=\babout )|(?<=\b[Ii]t's ))"
    r"(1[0-2]|0?[1-9])\.([0-5][0-9])(?=\sin\sthe\s(?:morning|afternoon|evening)\b)"
)
_TWO_MONTHS = re.compile(rf"(?<![\w/]){_MONTH}/{_MONTH}(?![\w/])")
_ZIP = re.compile(
    r"(?<=[\w.,]\s)(A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[AT]|"
    r"W[AIVY])\s([0-9]{5})(?:-([0-9]{4}))?(?![\w-]|[.,][0-9])(?!(?<!,\s..\s.....)\s[a-z])"
)
"""Behind a state: Springfield, IL 62704-1234."""
_QUARTER = re.compile(
    r"(?<=[0-9]\s)(N[EW]?|S[EW]?|E|W)\s(?=(?:[A-Z][a-z]+\s|[0-9]{1,3}(?:st|nd|rd|th)\s){1,3}(?:St|Dr|Ave|Blvd|Rd|Ln|Hwy|Pkwy|"
    r"Street|Drive|Avenue|Boulevard|Road|Lane|Way|Place|Court|Highway|Parkway)\b)"
)
"""Of a town, between a house and its street: 1200 N Lake Shore Dr."""
_ROAD_WAY = re.compile(
    r"\b(I-?[1-9][0-9]{0,2}|(?:Routes?|Rte\.?|Hwy\.?|Highway|Interstate|US|U\.S\.|SR)[\s-][1-9][0-9]{0,2})\s([NSEW])(?![\w'’]|\.\w)"
)
"""I-80 W, which has no watts."""
_ROAD_AND_WAY = re.compile(r"\b(I-[1-9][0-9]{0,2})(?=[NSEW](?![\w'’]))")
_THOUSANDTHS = re.compile(
    # Of baseball; a zero is said of no batter.
    r"(?<![\w.,])\.([0-9]{3})(?=\s(?:hitters?|record|ball|team|club|season|batting|winning)\b)"
    r"|(?:(?<=\bbatting )|(?<=\bhitting )|(?<=\bbatted )|(?<=\bbats ))\.([0-9]{3})(?![\w%]|[.,/-][0-9])"
    r"|(?<![\w.,])\.(22|25|32|38|44|45|50|357)(?=[\s-](?:calib(?:er|re)|cal\b|magnum|pistol|rifle|revolver|handgun))"
)
"""Batting .312, a .45 caliber: hundredths of an inch."""
_DECIMAL_RATIO = re.compile(
    # The rules of decimals would take the colon for a mark of a sentence.
    r"(?<![\w.,:/-])(?:([0-9]{1,3}\.[0-9]{1,3}):([0-9]{1,3}(?:\.[0-9]{1,3})?)|([0-9]{1,3}):([0-9]{1,3}\.[0-9]{1,3}))(?![\w:%]|[.,/-][0-9])"
)
_OUT_OF = re.compile(
    r"(?<![\w/.,$£€-])([0-9]{1,2}\.[0-9]{1,2})/(4|5|10|20|100)(?![\w/%°]|[.,-][0-9]|\s?(?:[kMG]?Hz|[km]?[gmlVWA]|c[ml]|in|inch(?:es)?|cups?)\b)"
    r"|(?<![\w/.,$£€-])([0-9]|10)/(5|10)(?=\sstars?\b)"
    r"|(?:(?<=\bit a )|(?<=\bit an )|(?<=\brated )|(?<=\brated it )|(?<=\bscored )|(?<=\bscore of )|(?<=\brating of ))"
    r"([0-9]|10)/(5|10)(?=[.,;!?)]?$|[,;!?)]|\.\s|\s(?:on|for|because|and|but)\b)"
)
"""Of marks: 4.5/5, 4/5 stars, I give it a 7/10."""
_SHARES = re.compile(r"(?<![\w/.,:$£€-])([1-9][0-9]?)/([1-9][0-9]?)(?![\w/%°]|[.,-][0-9]|\s(?:of|inch|cup|mile)\b)")
"""A 60/40 split."""
_DECIMAL_BAR = re.compile(r"(?<![\w/.,$£€:-])[0-9]{1,4}\.[0-9]{1,4}/[0-9]{1,4}(?![\w/]|[.,-][0-9])")
_QUARTERS = DIRECTIONS | {"NE": "northeast", "NW": "northwest", "SE": "southeast", "SW": "southwest"}
_SEVEN_ELEVEN = re.compile(
    r"(?<![\w.,:/$£€-])7-11(?:(?=\s(?i:stores?|shops?|clerks?|locations?|franchises?|parking)\b)"
    r"|(?<=\b[tT]o\s7-11)(?=[.,;!?]|$|\s(?:for|and|on|in)\b)|(?<=\b(?:at|by|in)\s7-11)(?=[.,;!?]?$|\son\s|\sin\s)"
    r"|(?<=\bnear\s7-11)(?=[.,;!?]?$))"
)
"""A shop, and no range."""
_AUSTRALIAN = re.compile(r"(?<![\w.,'+$£€-])(?<![0-9)] )1[38]00 [0-9]{3} [0-9]{3}(?!\w|[.,-][0-9]| [0-9])")


def spell_out_dates(text: str) -> str:
    """Writes dates and places so that later rules read their numbers as what they are.

    >>> spell_out_dates("05-Nov-2020, 2020.10.09 and 2020-11-05T10:30:00Z")
    '5 November 2020, 2020-10-09 and 2020-11-05 10:30 UTC'
    >>> spell_out_dates("1200 N Lake Shore Dr, Chicago, IL 60610")
    '1200 north Lake Shore Dr, Chicago, IL six zero six one zero'

    Raises:
      UnsupportedText: a number may be a date or something else.
    """
    # Most sentences have no number.
    text = _spell_out_names(text)
    return _spell_out_places(_spell_out_days(text)) if re.search("[0-9]", text) else text


def _spell_out_names(text: str) -> str:
    """Months and days of the week with marks, also without a number: Mar/Apr, in Sept., Mon - Fri."""
    if "/" in text:
        text = _DAYS_WITH_BARS.sub(lambda match: " ".join(DAYS.get(day, day) for day in match.groups() if day), text)
        text = _TWO_MONTHS.sub(lambda match: " ".join(map(_long, match.groups())), text)
    if "." in text:
        text = _MONTH_ALONE.sub(_month_alone, text)
    text = _CENTURY.sub(_century, text)
    if any(dash in text for dash in "-–—"):
        text = _WEEK.sub("Monday to Friday", _WEEK_BEHIND_HOURS.sub("Monday to Friday", text))
        text = _SPACED_DAYS.sub(lambda match: " to ".join(DAYS.get(day, day) for day in match.groups() if day), text)
    return text


def _spell_out_days(text: str) -> str:
    """Dates with hyphens, points and bars, whose marks are elsewhere ranges, decimals and fractions."""
    text = _COUNT_IN_MONTH.sub(lambda match: f"{match[1]} {_long(match[2])}, {match[3]}", text)
    text = _CLOCK_WITH_POINT.sub(lambda match: f"{match[1] or match[3]}:{match[2] or match[4]}", text)
    text = _TIMESTAMP.sub(_timestamp, text)
    text = _HYPHENED_DATE.sub(_hyphened_date, text)
    text = _DAY_AND_MONTH.sub(lambda match: f"{int(match[1])} {_long(match[2])}", text)
    text = _POINTED_DATE.sub(r"\1-\2-\3", text)
    if match := _MONTH_OR_FRACTION.search(text):
        raise numbers.has_two_readings(match[0], "a month, or a fraction")
    text = _BOOK.sub(lambda match: f"{_BOOKS[match[2]]} ", text)
    text = _HOURS_OF_24.sub(lambda match: put_apart(match, _hours_of_24(match)), _UNTIL_TIME.sub(r"\1 to ", text))
    text = _UNTIL_NOON.sub(" to ", _CUT_YEARS.sub(_cut_years, text))
    text = _YEAR_OF_TEN.sub(lambda match: f"{f'{_long(match[1])} ' if match[1] else ''}oh {match[2]}", text)
    return _DATES.sub(r"\1 to ", text)


def _spell_out_places(text: str) -> str:
    """Zip codes, directions of streets, telephones of Australia, marks out of ten, and a shop."""
    text = _ZIP.sub(lambda match: put_apart(match, _zip(match)), text)
    text = _THOUSANDTHS.sub(lambda match: _thousandths(match[1] or match[2] or match[3]), text)
    text = _ROAD_AND_WAY.sub(r"\1 ", text)
    text = _ROAD_WAY.sub(lambda match: f"{match[1]} {_QUARTERS[match[2]]}", text)
    text = _SHARES.sub(_shares, _OUT_OF.sub(_out_of, _DECIMAL_RATIO.sub(_decimal_ratio, text)))
    # What is left is no fraction: 2.4/5 GHz.
    if match := _DECIMAL_BAR.search(text):
        raise numbers.has_two_readings(match[0], "out of, over, or both")
    text = _QUARTER.sub(lambda match: f"{_QUARTERS[match[1]]} ", text)
    text = _AUSTRALIAN.sub(lambda match: ", ".join(map(numbers.digit_by_digit, match[0].split())), text)
    return _SEVEN_ELEVEN.sub("seven eleven", text)


def _century(match: re.Match[str]) -> str:
    value = numbers.parse_roman(match[1])
    return numbers.ordinal(str(value)) if value else match[0]


def _month_alone(match: re.Match[str]) -> str:
    # The point of an abbreviation may end a sentence too.
    ends = re.match(r"$|\s[A-Z]", match.string[match.end() : match.end() + 2])
    return f"{match[1]}{match[2]}{_long(match[3])}{'.' if ends else ''}"


def _cut_years(match: re.Match[str]) -> str:
    # What may be a month is refused later.
    is_month = "2000" <= match[1] < "2100" and int(match[2]) <= int(match[1][2:])
    return match[0] if is_month else f"{match[1]} to oh {match[2]}"


def _hours_of_24(match: re.Match[str]) -> str:
    hour = match[1] or match[2]
    minute = match[3]
    spoken = [
        f"oh {numbers.cardinal(digits[1])}" if digits[0] == "0" else numbers.cardinal(digits)
        for digits in (hour, minute)
    ]
    return f"{spoken[0]} {'hundred' if minute == '00' else spoken[1]} hours"


def _long(month: str) -> str:
    return _MONTHS.get(month, month)


def _timestamp(match: re.Match[str]) -> str:
    zone = match[4] or ""
    if zone not in ("", "Z", "z") or match[3] not in (None, "00"):
        raise numbers.has_two_readings(match[0], "a time, with or without its zone and seconds")
    return f"{match[1]} {match[2]}" + " UTC" * bool(zone)


def _hyphened_date(match: re.Match[str]) -> str:
    """05-Nov-2020, Nov-2020; in Nov-20 the number may be a day or a year."""
    if not match[1] and len(match[3]) == 2:
        if match[2] in ("May", "Mar") or not match[2].istitle():  # as in the names of models
            return match[0]
        raise numbers.has_two_readings(match[0], "a day, or a year")
    month = _MONTHS.get(match[2].capitalize(), match[2].capitalize())
    if not match[1]:
        return f"{month} {match[3]}"
    if len(match[3]) == 4:
        return f"{int(match[1])} {month} {match[3]}"
    year = f"{'oh ' * (match[3][0] == '0')}{numbers.cardinal(str(int(match[3])))}"
    return f"{numbers.ordinal(match[1])} of {month}, {year}"


def _thousandths(digits: str) -> str:
    return numbers.pairs(digits) if len(digits) == 3 else numbers.cardinal(digits)


def _decimal_ratio(match: re.Match[str]) -> str:
    """1.5:1; of 1:23.45 the whole seconds have two digits, as on a stopwatch."""
    first, second = (match[1], match[2]) if match[1] else (match[3], match[4])
    is_stopwatch = bool(match[3]) and second.index(".") == 2
    return match[0] if is_stopwatch else f"{first} to {second}"


def _out_of(match: re.Match[str]) -> str:
    # The alternatives of the pattern have two groups each.
    score, most = next((match[place], match[place + 1]) for place in (1, 3, 5) if match[place])
    return f"{score} out of {most}"


def _shares(match: re.Match[str]) -> str:
    # Eyes that see as well as others have 20/20; 60/40 are all of something.
    is_sight = re.match(r"\s(?:vision|eyesight)\b", match.string[match.end() : match.end() + 10])
    is_whole = is_sight or (int(match[1]) + int(match[2]) == 100 and min(map(int, match.groups())) > 4)
    return f"{numbers.cardinal(match[1])} {numbers.cardinal(match[2])}" if is_whole else match[0]


def _zip(match: re.Match[str]) -> str:
    return " ".join([match[1], *(numbers.digit_by_digit(group) for group in match.groups()[1:] if group)])

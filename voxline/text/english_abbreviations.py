"""English abbreviations and units as words."""

import re

from voxline.text import english_numbers as numbers
from voxline.text.alphabet import UnsupportedText

_ALWAYS = {"mr": "mister", "mrs": "missus", "etc": "et cetera", "vs": "versus", "messrs": "messrs"}
"""With or without a dot, in any case."""

_TITLES = {
    "Ms": "miz", "Dr": "doctor", "Drs": "doctors", "St": "saint", "Prof": "professor", "Rev": "reverend",
    "Hon": "honorable", "Gen": "general", "Col": "colonel", "Maj": "major", "Capt": "captain", "Lt": "lieutenant",
    "Sgt": "sergeant", "Gov": "governor", "Sen": "senator", "Rep": "representative", "Pres": "president",
    "Mt": "mount", "Ft": "fort", "Fr": "father", "Supt": "superintendent", "Cpl": "corporal", "Pvt": "private",
    "Adm": "admiral", "Cmdr": "commander", "Atty": "attorney", "Msgr": "monsignor",
}  # fmt: skip
"""Before a name."""

_ENDS = {
    "Co": "company", "Corp": "corporation", "Inc": "incorporated", "Ltd": "limited", "Bros": "brothers",
    "Jr": "junior", "Sr": "senior", "Esq": "esquire", "Ave": "avenue", "Blvd": "boulevard", "Rd": "road",
    "Dept": "department", "Ln": "lane", "Hwy": "highway",
}  # fmt: skip
"""After a name."""

_STREETS = {"St": "street", "Dr": "drive"}
_BEFORE_NUMBERS = {
    "No": "number", "Nos": "numbers", "Vol": "volume", "Fig": "figure", "p": "page", "pp": "pages", "Apt": "apartment",
    "Figs": "figures", "Eq": "equation", "Eqs": "equations", "Vols": "volumes", "pg": "page", "pgs": "pages",
    "Rm": "room", "Bldg": "building", "Op": "opus", "Ste": "suite", "Ext": "extension", "Hwy": "highway",
    "Ch": "chapter", "Rte": "route", "Nr": "number", "c": "circa", "ca": "circa",
}  # fmt: skip
_LATIN = {"e.g.": "for example", "i.e.": "that is", "approx.": "approximately", "a.k.a.": "also known as"}
DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Weds": "Wednesday",
    "Thu": "Thursday", "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_DIRECTIONS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_MONTHS = ("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec")

NEVER_FINAL = frozenset({"mr", "mrs", "messrs", "vs", "cf", "mme", "mlle", *map(str.lower, _TITLES)}) | {
    phrase.removesuffix(".") for phrase in _LATIN
}
"""Words of which a full stop, with a capital behind it, ends no sentence; in lower case, as the next."""
BEFORE_NUMBERS = frozenset({"n°", "ch", "sec", "art", "nr", "ca", *_MONTHS, *map(str.lower, _BEFORE_NUMBERS)})
"""The same before a digit."""

_ALWAYS_RULE = re.compile(rf"\b({'|'.join(_ALWAYS)})\b\.?", re.IGNORECASE)
_NO_STREET = "".join(
    rf"(?<!\b{word} )"
    for word in (
        *("of", "the", "a", "my", "our", "your", "his", "her", "and", "dear", "their", "this", "that", "any", "no"),
        *("me", "him", "them", "us", "you", "is", "was", "be", "as", "a new", "called", "The", "My", "Our", "Your"),
        *("His", "Her", "Their", "This", "A", "Dear"),
    )
)
_STREET_RULE = re.compile(
    rf"(?<=[a-z0-9] ){_NO_STREET}(St|Dr)\.?(?=[,;:!?]|\s?$|\s[a-z(])"
    # A house before it and a town behind it: 5 Main St. New York.
    r"|(?:(?<=[0-9]\s)|(?<=[0-9](?:st|nd|rd|th)\s))((?:[NSEW]\.?\s)?[A-Z][a-z]{1,20}\s)(St|Dr)\.?(?=\s[A-Z][a-z])"
)
_FUNCTION_WORDS = (
    "and|or|in|at|near|is|was|to|on|by|with|from|the|for|until|where|when|between|toward|towards|then|because|has|had|are|"
    "were|before|after|behind|across|opposite|past|off|via|but|this|that|we|i|he|she|they|it"
)
"""What stands behind the name of a street, and before no name: MAIN ST. AND."""
_SAINTS = (
    "Agatha|Agnes|Alban(?:s|'s)?|Ambrose|Andrews?|Ann[ae]?|Anthony|Augustine|Austell|Barbara|Barnabas|Bartholomew|Basil|"
    "Benedict|Bernard|Brendan|Bride|Brigid|Catharines?|Catherine|Cecilia|Charles|Christopher|Clair|Clare|Clement|Cloud|"
    "Columba|Croix|Cuthbert|Cyril|David|Denis|Dominic|Dunstan|Edmunds?|Elizabeth|Elmo|Emilion|Etienne|Francis|Gall|"
    "Gallen|George|Germain|Giles|Gotthard|Gregory|Helena?|Helens|Helier|Hilda|Ignatius|Ives|Jacques|James|Jean|Jerome|"
    "Joan|John(?:s|'s)?|Joseph|Jude|Julian|Katherine|Kilda|Kitts|Laurence|Lawrence|Leger|Leonards?|Louis|Lucia|Lucie|"
    "Lucy|Luke|Maarten|Malo|Margaret|Mark|Martha|Martins?|Mary|Matthew|Matthias|Maurice|Mawes|Michael|Monica|Moritz|"
    "Neots|Nicholas|Nick|Olaf|Olave|Omer|Oswald|Pancras|Patrick|Paul|Peters?|Petersburg|Philip|Pierre|Piran|Quentin|"
    "Raphael|Regis|Remy|Rita|Sebastian|Simon|Stanislaus|Stephens?|Sulpice|Swithin|Teresa|Th[eé]r[eè]se|Thomas|Timothy|"
    "Tropez|Ursula|Valentine|Veronica|Vincent|Vitus|Xavier"
)
"""Whom St. stands for, and what is named after them, whatever is before it."""
_BEFORE_SAINTS = (
    "Mount|Port|Lake|Fort|Sault|Bay|River|Point|Isle|East|West|North|South|New|Old|Great|Little|Church|Cathedral|Abbey|"
    "Father|Sister|Brother|Mother|Blessed|Sir|Lord|Lady|Island|Castle|Chapel|College|Feast|Visit|See|Dear|Good|Even"
)
_DOCTORED = (
    "Professor|Prof|Herr|Frau|Doctor|Yes|No|Dear|Father|Senator|General|Colonel|Captain|Major|Rabbi|Bishop|Archbishop|"
    "Reverend|Rev|Dean|Chancellor|Minister|President|Secretary|Mayor|Governor|Nurse|Sir|Poor|Good|Old|Mr|Mrs|Ms|"
    "Facebook|Twitter|Instagram|Zoom|Skype"
)
_STARTS = (
    "Then|She|He|We|They|It|The|You|But|And|There|This|That|I|So|In|On|At|My|Our|His|Her|When|After|Turn|Go|Take|Please"
)
_STREET_ENDS = re.compile(rf"(?<=[a-z0-9] ){_NO_STREET}(St|Dr)\.(?=\s(?:{_STARTS})\b)")
"""A street that ends a sentence."""
_NUMBERED_STREET = re.compile(r"(?<=[0-9](?:st|nd|rd|th)\s)St\.(?=\s[A-Z])")
_DRIVE_OR_TOWN = re.compile(
    # Named after a tree, a park or a president: WASHINGTON DR. BOSTON.
    r"(?<![\w.-])(?:Washington|Lincoln|Jefferson|Madison|Jackson|Roosevelt|Kennedy|Oak|Elm|Maple|Pine|Cedar|Walnut|Chestnut|"
    r"Sunset|Ocean|Lake|Lakeshore|Riverside|Hillside|Meadow|Valley|Forest|Park|Main)\sDr\.\s(?=[A-Z][a-z])",
    re.IGNORECASE,
)
_OF_DOCTORS = "".join(
    rf"|(?<=\b{word} )"
    for word in ("[Tt]he", "[Mm]y", "[Oo]ur", "[Yy]our", "[Hh]is", "[Hh]er", "[Tt]heir", "[Aa]", "me")
)
_THE_DOCTOR = re.compile(rf"(?:{_OF_DOCTORS[1:]})Dr(?:\.(?=\s[a-z]|[,;:!?])|(?=\.?$))")
"""Ask your Dr."""
_TIMES = (
    "Mondays?|Tuesdays?|Wednesdays?|Thursdays?|Fridays?|Saturdays?|Sundays?|January|February|March|April|May|June|July|"
    "August|September|October|November|December|Spring|Summer|Autumn|Fall|Winter|Christmas|Easter|Thanksgiving|"
    "Halloween|Passover|Hanukkah|Ramadan|Diwali|Eve|Day|Night|Today|Yesterday|Tomorrow"
)
"""Days, months and holidays, which no street is named after: on Tuesday Dr. Lee."""
_STREET_OR_SAINT = re.compile(
    # Within a sentence: its first word has a capital for another reason. "In London St." has a place and a saint.
    rf"(?:(?<=[\w,;]\s)|(?<=^))(?<!\b[Ii]n\s)(?!(?:{_BEFORE_SAINTS}|{_FUNCTION_WORDS}|{_TIMES})\b)[A-Z][a-z]{{1,20}}"
    rf"\sSt\.\s(?!(?:{_SAINTS})\b)(?=[A-Z][a-z])"
)
_DRIVE_OR_DOCTOR = re.compile(
    # Behind a word of place alone: in London Dr. Johnson wrote.
    rf"\b(?:[Oo]n|onto|[Dd]own|[Aa]long|off|up|[0-9]{{1,5}})\s(?:(?:North|South|East|West|[NSEW]\.)\s)?"
    rf"(?!(?:{_DOCTORED}|{_TIMES})\b)[A-Z][a-z]{{1,20}}\sDr\.\s(?=[A-Z][a-z])"
)
_TITLE_RULE = re.compile(
    rf"\b(?!Gen\.?\s(?:[XYZ]|Alpha|Xers?|Zers?)\b)({'|'.join(_TITLES)})\b(?:\.?\s(?=[A-Z])|\.(?=[A-Z][a-z]))"
)
_END_RULE = re.compile(rf"\b({'|'.join(_ENDS)})\.(\s(?=[A-Z]))?")
_NUMBER_RULE = re.compile(
    # A letter alone may begin the next sentence: "No. I stayed."
    rf"\b({'|'.join(_BEFORE_NUMBERS)})\.\s?(?=[0-9]|(?-i:[IVXLC]{{2,9}}|[ivx]{{2,7}})\b)"
    r"|\b(vol|ch|fig)\.\s?(?=(?-i:[VX]|I(?=[,;:)]|\.?$|\sof\b|\sand\b))\b)",
    re.IGNORECASE,
)
_NUMBER_OF_LETTERS = re.compile(
    r"\b((?i:serial|part|order|model|account|invoice|registration|licen[cs]e|policy|reference|ref|passport|patent|item|lot))"
    r"\s[Nn]o\.\s?(?=[A-Z]{1,4}-?[0-9]|[0-9])"
)
"""Serial no. A17."""
_COUNT_OF = re.compile(r"\b([Nn])o(s?)\.\s(?=of\b(?!\scourse\b))")
_SURE = {
    "sec": "section", "ep": "episode", "pt": "part", "est": "established", "dept": "department", "govt": "government",
}  # fmt: skip
_SURE_RULE = re.compile(
    r"(?<![0-9]\s)\b(?:(Sec|Ep|Pt)\.\s?(?=[0-9])|([Ee]st)\.\s(?=1[0-9]{3}\b|20[0-9]{2}\b)|(dept|govt)\.(?=\s[a-z]|[,;:]))"
)
"""Only before these: 30 sec. 5 times."""
_WORLD_WAR = re.compile(r"\bWW(II?|[12])(?![\w'])")
_SECONDS = re.compile(
    r"(?<![\w.,:/$-])(?<!\b[Tt]he )(?<!\blate )(?<!\bearly )((?:\b[Aa]n?\s)?)"
    r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\ss\b(?!['’]|\.\w)(?=(\s[a-z]{3,})?)"
)
"""30 s; in the 90 s the s is of a decade."""
_LATIN_RULE = re.compile(rf"\b(?:{'|'.join(map(re.escape, _LATIN))})", re.IGNORECASE)
_NEXT_MONTH = rf"(?:[0-9]{{1,2}}(?:st|nd|rd|th)?\s)?(?:{'|'.join(month.capitalize() for month in _MONTHS)}|May)"
_DAY_RULE = re.compile(
    rf"\b({'|'.join(DAYS)})(?:\.,|,?(?=\s{_NEXT_MONTH})|\.(?=\s(?:[0-9]|{_NEXT_MONTH}))|,(?=\s[0-9])"
    r"|\.(?=\s(?:the\s[0-9]|at\s|and\s|to\s|through\s|morning|afternoon|evening|night)|[-–]))"
    r"|\b(Tues|Thurs?|Weds)\b\.?(?![\w'])"
)
"""Before a date or a time, or with a dot and a comma; "the cat sat." and "in the sun, 5 of them" are none."""
_DAY_AT_END = re.compile(
    # Sat and Sun are words: it takes one that stands before days, or another day.
    r"(?:(?<=\bon )|(?<=\bby )|(?<=\buntil )|(?<=\btill )|(?<=\bnext )|(?<=\blast )|(?<=\bevery )|(?<=day and )"
    r"|(?<=day, and )|(?<=day & )|(?<=day, & )|(?<=day, ))"
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?=\.?(?:$|\s?[,;:!?]|\.\s|\sat\s))"
)
"""On Fri. or until Sun; the cat sat, in the sun."""
_DIRECTION_RULE = re.compile(
    rf"\b([NSEW])\.\s(?=[A-Z][a-z]+\s(?:{'|'.join((*_STREETS, *_ENDS))})\b"
    r"|(?:Dakota|Carolina|Virginia|Korea|Africa|America)\b)"
    # A house before it: 6 S. Main, 12 E. 5th.
    r"|(?:(?<=[0-9])|(?<=[0-9][A-D]))\s([NSE])\.\s(?=[A-Z][a-z]|[0-9]{1,3}(?:st|nd|rd|th)\b)"
)
_WITH_RULE = re.compile(r"(?<!/)\bw/(?:o(?:ut)?|e)\b|(?<!/)\b(?!(?-i:W/[A-Z])\b)w/(?=\s?[a-z]|\s[0-9])", re.IGNORECASE)


def expand_abbreviations(text: str) -> str:
    """
    >>> expand_abbreviations("Dr. Bell of 5 Elm St. saw Mr. King, No. 7, in St. Paul")
    'doctor Bell of 5 Elm street saw mister King, number 7, in saint Paul'
    """
    # From the certain to the ambiguous: "St." is a street behind a name, and a saint before one.
    text = _LATIN_RULE.sub(lambda match: put_apart(match, _LATIN[match[0].lower()]), text)
    text = _WITH_RULE.sub(_with, text)
    text = _DAY_RULE.sub(
        lambda match: put_apart(match, DAYS[match[1] or match[2]] + "," * match[0].endswith(",")), text
    )
    text = _DAY_AT_END.sub(lambda match: DAYS[match[1]], text)
    text = _DIRECTION_RULE.sub(
        lambda match: f"{_DIRECTIONS[match[1]]} " if match[1] else f" {_DIRECTIONS[match[2]]} ", text
    )
    text = _ALWAYS_RULE.sub(_always, text)
    text = _NUMBER_OF_LETTERS.sub(r"\1 number ", text)
    text = _SURE_RULE.sub(lambda match: f"{_SURE[(match[1] or match[2] or match[3]).lower()]} ", text)
    text = _WORLD_WAR.sub(lambda match: f"World War {'II' if match[1] in ('II', '2') else 'I'}", text)
    text = _SECONDS.sub(
        lambda match: f"{match[1]}{match[2]} second{'s' * (match[2] != '1' and not (match[1] and match[3]))}", text
    )
    text = _NUMBER_RULE.sub(lambda match: _BEFORE_NUMBERS[_cased(match[1] or match[2])] + " ", text)
    text = _THE_DOCTOR.sub("doctor", text)
    text = _STREET_ENDS.sub(lambda match: f"{_STREETS[match[1]]}.", text)
    text = _NUMBERED_STREET.sub("street", text)
    text = _STREET_RULE.sub(
        lambda match: put_apart(match, _STREETS[match[1]] if match[1] else match[2] + _STREETS[match[3]]), text
    )
    text = _STREET_OR_SAINT.sub(_street_or_saint, text)
    text = _DRIVE_OR_TOWN.sub(_drive_or_doctor, _DRIVE_OR_DOCTOR.sub(_drive_or_doctor, text))
    text = _TITLE_RULE.sub(lambda match: _TITLES[match[1]] + " ", text)
    # The dot of an abbreviation at the end of a sentence also ends the sentence.
    return _END_RULE.sub(lambda match: put_apart(match, _ENDS[match[1]] + (". " if match[2] else "")), text)


def _with(match: re.Match[str]) -> str:
    if match[0].lower() == "w/e":
        raise UnsupportedText(f"{match[0]!r} has more than one reading: weekend, or week ending; write it in words")
    return "without" if match[0].lower() in ("w/o", "w/out") else "with "


def _street_or_saint(match: re.Match[str]) -> str:
    raise UnsupportedText(f"{match[0].strip()!r} has more than one reading: street, or saint; write it in words")


def _drive_or_doctor(match: re.Match[str]) -> str:
    raise UnsupportedText(f"{match[0].strip()!r} has more than one reading: drive, or doctor; write it in words")


def _always(match: re.Match[str]) -> str:
    return put_apart(match, _ALWAYS[match[1].lower()])


def _cased(word: str) -> str:
    return word.lower() if word.lower() in _BEFORE_NUMBERS else word.capitalize()


_TITLED = {title.lower(): title for title in _TITLES}
_ENDED = {end.lower(): end for end in (*_ENDS, *_STREETS)}
_IN_CAPITALS = (
    # With its dot each of them is an abbreviation; without one, what is no word in small letters either.
    (re.compile(rf"\b({'|'.join(_TITLED)})\.\s+(?=[a-z])|\b(drs?|prof|sgt|capt)\s+(?=[a-z])"), _TITLED),
    (re.compile(rf"\b({'|'.join(_ENDED)})\.|(?<=\w )(st)(?=[,;:!?]|$)"), _ENDED),
    (re.compile(rf"\b({'|'.join(map(str.lower, DAYS))})\."), {day.lower(): day for day in DAYS}),
    (re.compile(rf"\b({'|'.join(_MONTHS)})\b\.?\s*(?=[0-9])"), {month: month.capitalize() for month in _MONTHS}),
)
_STREET_IN_CAPITALS = re.compile(
    rf"(?<=\w )(?<!\band )(?<!\bor )(?<!\bof )(?<!\bthe )(?<!\bin )(?<!\bat )st\.(?=\s+(?:{_FUNCTION_WORDS})\b)"
    rf"|(?:(?<=[0-9]\s)|(?<=[0-9](?:st|nd|rd|th)\s))((?:[nsew]\.?\s)?(?!(?:{_FUNCTION_WORDS})\b)[a-z]{{2,20}}\s)(st|dr)\.(?=\s)"
    r"|(?<=\b(?:main|wall|high|park|pine) )st\."
)
_SAINT_IN_CAPITALS = re.compile(
    rf"(?<!\bin\s)\b(?!(?:{_BEFORE_SAINTS.lower()}|{_FUNCTION_WORDS}|{_TIMES.lower()}|of|a|an|as|our)\b)[a-z]{{2,20}}\sst\.\s"
    rf"(?!(?:{_SAINTS.lower()})\b)(?=[a-z])"
)
_NAMED = re.compile(rf"\b((?:{'|'.join(_TITLES)})\.?\s+)([a-z])")


_NO_TEXT = re.compile(
    rf"[^A-Z]*(?:[A-Z]|[MDCLXVI]{{5,15}}|MM[XVI]{{2}}|[IVXLC]{{2,12}}|{'|'.join(numbers.CODES)}|(?:US|CA|AU|NZ|HK|NT)(?=\s?\$)|(?<=[0-9])US)[^A-Z]*"
)
"""Capitals that are no text of capitals: 220 V, MCMXCIX, EUR 50."""


_DEGREES_IN_CAPITALS = re.compile("°\\s?[cf]\\b|(?:°|(?<=[0-9])['′\"″])\\s?[nsew]\\b")


def is_in_capitals(text: str) -> bool:
    """
    >>> is_in_capitals("DR. JONES"), is_in_capitals("220 V"), is_in_capitals("5 KM"), is_in_capitals("Dr. Jones")
    (True, False, True, False)
    """
    return text.isupper() and not _NO_TEXT.fullmatch(text)


def from_capitals(text: str) -> str:
    """A text of capitals in small letters, with the capitals that tell abbreviations, degrees and units.

    >>> from_capitals("MAIN ST. AND 5 ELM DR. ARE NEAR ST. JOHN")
    'main street and 5 elm drive are near St. John'
    >>> from_capitals("DR. JONES LIVES ON ELM ST."), from_capitals("ON JAN. 5 IT WAS -5°C, 20 MB")
    ('Dr. Jones lives on elm St.', 'on Jan. 5 it was -5°C, 20 MB')
    """
    text = _STREET_IN_CAPITALS.sub(
        lambda match: match[1] + _STREETS[match[2].capitalize()] if match[2] else "street", text.lower()
    )
    text = _SAINT_IN_CAPITALS.sub(_street_or_saint, text)
    for rule, spelling in _IN_CAPITALS:
        text = rule.sub(lambda match, spelling=spelling: _recased(match, spelling), text)  # type: ignore[misc]
    text = _NAMED.sub(lambda match: match[1] + match[2].upper(), text)
    text = _DEGREES_IN_CAPITALS.sub(lambda match: match[0].upper(), text)
    return _UNIT_IN_CAPITALS.sub(lambda match: match[1] + _UNITS_OF[match[2]], text)


def _recased(match: re.Match[str], spelling: dict[str, str]) -> str:
    word = match[match.lastindex or 0]
    return match[0].replace(word, spelling[word], 1)


_UNITS = {
    "km/h": ("kilometer per hour", "kilometers per hour"), "kph": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"), "m/s": ("meter per second", "meters per second"),
    "km²": ("square kilometer", "square kilometers"), "m²": ("square meter", "square meters"),
    "m³": ("cubic meter", "cubic meters"), "cm²": ("square centimeter", "square centimeters"),
    "km": ("kilometer", "kilometers"), "cm": ("centimeter", "centimeters"), "mm": ("millimeter", "millimeters"),
    "m": ("meter", "meters"), "kg": ("kilogram", "kilograms"), "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"), "lb": ("pound", "pounds"), "lbs": ("pound", "pounds"), "oz": ("ounce", "ounces"),
    "ft": ("foot", "feet"), "mi": ("mile", "miles"), "ml": ("milliliter", "milliliters"), "l": ("liter", "liters"),
    "L": ("liter", "liters"), "ha": ("hectare", "hectares"), "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"), "MW": ("megawatt", "megawatts"), "V": ("volt", "volts"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"), "MB": ("megabyte", "megabytes"), "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"), "dB": ("decibel", "decibels"), "ms": ("millisecond", "milliseconds"),
    "min": ("minute", "minutes"), "sec": ("second", "seconds"), "hr": ("hour", "hours"), "hrs": ("hour", "hours"),
    "mpg": ("mile per gallon", "miles per gallon"), "bpm": ("beat per minute", "beats per minute"),
    "ppm": ("part per million", "parts per million"),
    "mins": ("minute", "minutes"), "secs": ("second", "seconds"), "yr": ("year", "years"), "yrs": ("year", "years"),
    "sq ft": ("square foot", "square feet"), "sq m": ("square meter", "square meters"),
    "m2": ("square meter", "square meters"), "km2": ("square kilometer", "square kilometers"),
    "m3": ("cubic meter", "cubic meters"), "mm²": ("square millimeter", "square millimeters"),
    "cm³": ("cubic centimeter", "cubic centimeters"),
    "°C": ("degree celsius", "degrees celsius"), "°F": ("degree fahrenheit", "degrees fahrenheit"),
    "°": ("degree", "degrees"), "%": ("percent", "percent"), "gal": ("gallon", "gallons"),
    "tsp": ("teaspoon", "teaspoons"), "tbsp": ("tablespoon", "tablespoons"), "yd": ("yard", "yards"),
    "yds": ("yard", "yards"), "kbps": ("kilobit per second", "kilobits per second"),
    "mbps": ("megabit per second", "megabits per second"), "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"), "fps": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"), "kcal": ("kilocalorie", "kilocalories"),
    "kWh": ("kilowatt hour", "kilowatt hours"), "mAh": ("milliampere hour", "milliampere hours"),
    "m/s²": ("meter per second squared", "meters per second squared"),
    "m/s2": ("meter per second squared", "meters per second squared"),
    "cm2": ("square centimeter", "square centimeters"), "mm2": ("square millimeter", "square millimeters"),
    "cm3": ("cubic centimeter", "cubic centimeters"), "sq in": ("square inch", "square inches"),
    "sq mi": ("square mile", "square miles"), "sq km": ("square kilometer", "square kilometers"),
    "cu ft": ("cubic foot", "cubic feet"), "cu in": ("cubic inch", "cubic inches"),
    "cu m": ("cubic meter", "cubic meters"), "wk": ("week", "weeks"), "wks": ("week", "weeks"),
    "mos": ("month", "months"), "pct": ("percent", "percent"), "fl oz": ("fluid ounce", "fluid ounces"),
    "mL": ("milliliter", "milliliters"), "dL": ("deciliter", "deciliters"), "mcg": ("microgram", "micrograms"),
    "µg": ("microgram", "micrograms"), "μg": ("microgram", "micrograms"), "mmol": ("millimole", "millimoles"),
    "mA": ("milliampere", "milliamperes"),
    "Ah": ("ampere hour", "ampere hours"), "cl": ("centiliter", "centiliters"), "kPa": ("kilopascal", "kilopascals"),
    "kJ": ("kilojoule", "kilojoules"), "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"), "kB/s": ("kilobyte per second", "kilobytes per second"),
    "Mb/s": ("megabit per second", "megabits per second"), "Gb/s": ("gigabit per second", "gigabits per second"),
    "Mbit/s": ("megabit per second", "megabits per second"), "Gbit/s": ("gigabit per second", "gigabits per second"),
}  # fmt: skip

ANY_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
"""A pattern of the units, the longest first."""
_UNIT_RULE = re.compile(
    r"(\b[Aa]n?\s)?(?<![0-9.,])([0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?)([\s-]?)"
    rf"({ANY_UNIT})(?![A-Za-z0-9²³/]|:[0-9])(\s(?=[a-z])(?!(?:of|or|and|to|in|per|at|for|a|is|was)\b))?"
)
_FRACTION_RULE = re.compile(
    rf"(?<![0-9/.,])((?:[0-9]{{1,3}}\s)?)([0-9]{{1,2}}/[0-9]{{1,2}})\s?({ANY_UNIT})(?![A-Za-z0-9²³/])"
)
_PER_RULE = re.compile(
    r"((?<=[0-9])\s?[A-Za-z]{1,2}|(?<=[0-9])\s[a-z]{2,12}s|[$£€¥₹]\s?[0-9][0-9.,]*(?:\s?[mkbMKB]|\s[mb]illion)?)\s?/\s?"
    rf"(hour|day|night|week|month|year|person|user|unit|piece|mile|gallon|h|hr|wk|mo|yr|{ANY_UNIT})\b"
)
_PER = {"h": "hour", "hr": "hour", "wk": "week", "mo": "month", "yr": "year"}
_UNITS_OF = {
    unit.lower(): unit
    for unit in _UNITS
    if sum(unit.lower() == other.lower() for other in _UNITS) == 1
    and unit not in ("L", "V", "W", "mA", "Ah", "cl")  # "GAME 5 V 3"
} | {"mb": "MB", "kb": "KB", "mw": "MW", "ml": "ml"}
"""A unit in small letters → as it is written; where two differ in capitals alone, the one of texts in capitals."""
_UNIT_IN_CAPITALS = re.compile(
    rf"([0-9]\s?)({'|'.join(sorted(map(re.escape, _UNITS_OF), key=len, reverse=True))})(?![a-z0-9²³/])"
)


def expand_units(text: str) -> str:
    """
    >>> expand_units("1 km/h, 20 °C and 3.5%")
    'one kilometer per hour, twenty degrees celsius and three point five percent'
    """
    text = _FRACTION_RULE.sub(lambda match: f"{match[1]}{match[2]} {_UNITS[match[3]][bool(match[1])]}", text)
    return _UNIT_RULE.sub(lambda match: put_apart(match, _unit(match)), text)


def unit_name(unit: str) -> str:
    """
    >>> unit_name("ml")
    'milliliter'
    """
    return _UNITS[unit][0]


def expand_per(text: str) -> str:
    """
    >>> expand_per("$5/hour, £3.50/kg, 10 mg/L, and/or")
    '$5 per hour, £3.50 per kilogram, 10 mg per liter, and/or'
    """
    return _PER_RULE.sub(lambda match: put_apart(match, _per(match)), text)


def _per(match: re.Match[str]) -> str:
    # What is a unit as a whole, such as km/h or m/s, has its own name.
    if f"{match[1].strip()}/{match[2]}" in _UNITS or (
        match[1][:1].strip().isalpha() and match[1].strip() not in (*_UNITS, "x")
    ):
        return match[0]
    below = _UNITS[match[2]][0] if match[2] in _UNITS else match[2]
    return f"{match[1]} per {_PER.get(match[2], below)}"


def put_apart(match: re.Match[str], words: str) -> str:
    """The words that stand for a match, with spaces where letters or digits of the text would touch them.

    >>> put_apart(re.search("[0-9]", "x2y"), "two"), put_apart(re.search("[0-9]+", "at 10"), "ten")
    (' two ', 'ten')
    """
    if words == match[0]:
        return words
    # One character, and no copy of all that is before or behind: a text may have a hundred thousand numbers.
    before = match.string[max(0, match.start() - 1) : match.start()] + words[:1]
    after = words[-1:] + match.string[match.end() : match.end() + 1]
    return " " * (len(before) == 2 and before.isalnum()) + words + " " * (len(after) == 2 and after.isalnum())


def _unit(match: re.Match[str]) -> str:
    # "a 10 kg bag" and "a 5-km run" have one kilogram and one kilometer; "10-m" may be a range that was cut.
    before = match[1] or ""
    behind = match[5] or ""
    if match[3] == "-" and (len(match[4]) < 2 or not match[4].isalpha()):
        return match[0]
    is_single = match[2] == "1" or match[3] == "-" or bool(before and behind)
    return f"{before}{numbers.decimal(match[2])} {_UNITS[match[4]][not is_single]}{behind}"


_DEGREES_WITHOUT_SIGN = re.compile(
    r"(?<![\w.,:/$£€¥#-])((?:[0-9]{1,3}\s?[-–]\s?|[-−](?=[0-9.]))?(?:[0-9]{1,2},[0-9]{3}|[0-9]{1,4})(?:\.[0-9]{1,2})?)(\s?)([CFf])"
    r"(?!\w|['’.](?:\w)|-[A-Za-z]|(?<=\s[CF])-[0-9]|#|\s?[+*=]|/[A-Za-z])"
)
"""98F, 98.6 F, 20C, no 5 F-16s; a small c is of cents or circa, and a small f stays unless heat is spoken of."""
_LABELS = (
    "rooms?|rm|gates?|seats?|rows?|apartments?|apts?|units?|flights?|bus|buses|routes?|lines?|platforms?|models?|vitamins?|"
    "sections?|class|grades?|exhibits?|schedules?|forms?|figures?|figs?|tables?|numbers?|no|nos|iphone|size|sizes|type|types|"
    "level|levels|parts?|items?|pages?|blocks?|lots?|house|houses|suites?|ste|doors?|stands?|(?<!danger\\s)zones?|highways?|hwy|"
    "tracks?|groups?|questions?|buildings?|bldg|halls?|channels?|rules?|articles?|chapters?|lockers?|bays?|berths?|cabins?|exits?|"
    "flats?|terminals?|concourse|piers?|docks?|hangars?|studios?|offices?|trains?|trams?|coach|carriage|deck|entrance|panels?|"
    "clauses?|annexe|pixel|redmi|usb|porsche|cessna|homeroom|classrooms?|"
    "versions?|titles?|codes?|court|stage|phase|year|form|plot|box|boeing|airbus|step|option|appendix|annex|desk|aisle|"
    "spot|bed|ward|floor|paragraph|para|example|problem|exercise|lesson|unit|plan|hair|cup|bra"
)
"""What is named by a number with a letter."""
_BEHIND_LABEL = re.compile(
    rf"\b(?:(?:{_LABELS})\.?,?(?:\s(?:numbers?|no\.?))?|(?:seat|gate|apartment|number|size|terminal|locker|flight|exhibit)\s(?:is|was))[\s:]\s?"
    r"(?:[0-9]{1,4}\s?[A-Z]?(?:,\s|\s?[-–/&]\s?|,?\s(?:and|or|to|through)\s)){0,4}$",
    re.IGNORECASE,
)
_BEFORE_STREET = re.compile(
    r"(?:\s[A-Z][a-z]{1,20}\.?){1,3}\s(?:street|st|avenue|ave|road|rd|drive|dr|lane|ln|court|place|square)\b",
    re.IGNORECASE,
)
_HEAT = re.compile(
    r"\b(?:temperatures?|temps?|thermostat|thermometer|celsius|fahrenheit|degrees?|weather|forecast|outside(?!\s[0-9])|outdoors|indoors|"
    r"hot|hotter|cold|colder|warm|warmer|cooler|cooled|chilly|heat(?!\s[0-9])|heated|heats|heating|oven|ovens|bake|baked|baking|"
    r"preheat|preheated|roast|roasted|simmer|cook|cooked|boil|boils|boiled|boiling|freeze|freezes|freezer|freezing|frozen|"
    r"fridge|refrigerat(?:e|ed|or)|melt|melts|melting|fever|sunny|humid|humidity|cloudy|overnight|highs?(?=\sof)|"
    r"lows?(?=\sof)|heatwave|incubat(?:e|ed|or)|sterili[sz]ed?|ambient|stor(?:e|ed)\s(?:at|below)|"
    r"wash(?:ed)?\sat|kept\sat|keep\sat|water)\b",
    re.IGNORECASE,
)
_WEATHER = re.compile(
    r"\b(?:it\s(?:is|was|will\sbe|feels|felt|hit|reached)|it['’]s)\s"
    r"(?:(?:about|around|only|almost|nearly|over|under|still|now|at\sleast)\s){0,2}$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\b(?:between|from)\s[-−]?[0-9.]{1,6}\s(?:and|to)\s$", re.IGNORECASE)
_BEHIND_ARTICLE = re.compile(r"\b(?:the|an?|my|your|his|her|our|their|this|that)\s$", re.IGNORECASE)
_HOT_THING = re.compile(
    r"[\s,](?:ovens?|day|days|night|nights|morning|afternoon|evening|fever|heat|cold|weather|temperatures?|water|summer|"
    r"winter|air|wash|bath|and|mark|range|limit|difference|rise|drop|increase)\b",
    re.IGNORECASE,
)
"""What a 98F one is; the 3C phone is another thing."""
_LETTERED_THING = re.compile(
    r"\s(?:bus|buses|trains?|trams?|ferry|phones?|bras?|cups?|seats?|(?:[Ss]treet|[Ss]t|[Aa]venue|[Aa]ve)(?:\.|\b)(?!\s[a-z])|flights?|batter(?:y|ies)|cells?|grades?|students?)\b"
)
"""What a 12C or a C one is."""
_BEHIND_WEAR = re.compile(r"\b(?:wear|wears|wearing|wore)\s(?:an?\s)?$", re.IGNORECASE)
_NEAR = (
    r"(?:(?:about|around|nearly|almost|only|over|under|above|below|roughly|near|up\sto|as\s(?:high|low)\sas)\s){0,2}"
)
_BEHIND_MEASURED = re.compile(
    rf"\b(?:(?:highs?|lows?)\s(?:of\s|in\sthe\s)?{_NEAR}|(?:feels?|felt|feeling)\slike\s{_NEAR}|"
    rf"(?:reach(?:es|ed|ing)?|hits?|hitting|topp?(?:ed|s|ing)?|exceed(?:s|ed|ing)?|surpass(?:ed|es)?)\s{_NEAR}|"
    rf"(?:drop(?:s|ped)?|falls?|fell|rises?|rose|climb(?:s|ed)?|soar(?:s|ed)?|plunged?|dip(?:s|ped)?|warming|cool(?:ed|s)?|"
    rf"chill(?:ed)?|heat(?:ed|s)?|warm(?:ed|s)?)\s(?:it\s|them\s)?(?:to|by|below|above|past)\s{_NEAR}|"
    rf"(?:set|adjust(?:ed)?|raised?|lower(?:ed)?)\s[a-z\s]{{2,30}}\sto\s|"
    rf"(?:fry|fried|frying|grill(?:ed)?|broil(?:ed)?|toast(?:ed)?|brew(?:ed)?|steep(?:ed)?|served?|smoked?|braised?|"
    rf"poach(?:ed)?|proof|thaw(?:ed)?|anneal(?:ed)?|quench(?:ed)?|cure[ds]?|dried|dry|operat(?:es?|ed|ing)|runs?|running|"
    rf"vide|done|rated|iron\swas|pool\sis|lake\sis|sea\sis)\s(?:at\s|to\s)?{_NEAR})$|"
    r"^(?:today|tonight|tomorrow|expect|rain\sand|sun\sand|showers\sand|machine\swash|wash|record)[\s,:]{1,2}$",
    re.IGNORECASE,
)
"""What only a temperature follows, even without a word of heat."""
_BEFORE_WEATHER = re.compile(
    r"\s(?:today|tonight|tomorrow|yesterday|by\snoon|(?:and|with)\s(?:rain|rainy|showers|sun|sunny|wind|windy|clouds|cloudy|snow)|"
    r"in\sthe\s(?:shade|sun)|under\sload)\b",
    re.IGNORECASE,
)
_BEHIND_IN = re.compile(r"\b(?:in|into)\s$", re.IGNORECASE)
_MOVED_TO = re.compile(
    r"\b(?:mov|switch|walk|sat|seated|assigned|return|live)[a-z]{0,5}\s(?:back\s)?(?:to|at)\s$",
    re.IGNORECASE,
)
_REACHED = re.compile(r"reach|hit", re.IGNORECASE)
_BEHIND_COLD = re.compile(r"[-−][0-9.]{1,5}\s?[CF]\s(?:to|and)\s\+?$")
"""-40C to."""
_FOR_MINUTES = re.compile(r"\sfor\s[0-9.]{1,4}\s?(?:seconds?|minutes?|hours?|secs?|mins?|hrs?|s|h)\b")
_BEHIND_AT = re.compile(r"\b(?:at|to|above|below|over|under|of|is|was|be)\s$", re.IGNORECASE)
_BOTH_SCALES = re.compile(
    r"(?<![\w.,/-])([0-9]{1,4})\s?°?\s?([CF])\s?/\s?([0-9]{1,4})\s?°?\s?([CF])(?:\s?/\s?(?=[Gg]as\b)|\b)"
)
"""180C/350F, as recipes write it."""
_DEG = re.compile(r"(?<=[0-9])\s?deg\.?\s?(?=[CF](?![\w'’]))")
_DEG_ALONE = re.compile(r"(?<=[0-9])\s?deg\b(?!\.)")
_BEFORE_PLURAL = re.compile(r"\s[a-z]{3,20}s\b")
_SENTENCE_END = re.compile(r"[.;!?]\s")


def expand_counts(text: str) -> str:
    """The no. of people, of a text as it was written: in small letters, "No. Of course not" is the same.

    >>> expand_counts("The no. of it. No. Of course not")
    'The number of it. No. Of course not'
    """
    return _COUNT_OF.sub(lambda match: f"{match[1]}umber{match[2]} ", text)


def mark_degrees(text: str) -> str:
    """Writes the sign of degrees that a temperature lacks; what names a room or a seat by a letter stays.

    >>> mark_degrees("It was 98F outside, and 20 C in room 20C")
    'It was 98°F outside, and 20°C in room 20C'

    Raises:
      UnsupportedText: neither a label before the number nor words of heat around it tell.
    """
    if not any(digit in text for digit in "0123456789"):
        return text
    text = _DEG_ALONE.sub(" degrees", _DEG.sub("°", _BOTH_SCALES.sub(_mark_both_scales, _CUPS.sub(_cups, text))))
    amounts: dict[str, list[float]] = {"C": [], "F": []}
    for match in _DEGREES_WITHOUT_SIGN.finditer(text):
        if not match[2] and match[3] in amounts:
            amounts[match[3]].append(_last_number(match[1]))
    has_both = any(_are_equal(celsius, other) for celsius in amounts["C"][:8] for other in amounts["F"][:8])
    return _DEGREES_WITHOUT_SIGN.sub(lambda match: _mark_degrees(match, has_both=has_both), text)


_CUPS = re.compile(
    r"(?<![\w.,/-])(?<!\b[Ii]n\s)(?<!\bat\s)(?<!\bto\s)((?:[0-9]{1,2}\s)?[1-9]/[2-8]|(?:1[0-2]|[1-9])(?:\.[0-9]{1,2})?)\sC\.?(?=\s(?:of\s)?(?:[a-z]{3,20}\s){0,2}(?:flour|sugar|water|milk|"
    r"rice|oil|butter|cream|oats?|oatmeal|broth|stock|cheese|onions?|nuts|pecans|walnuts|raisins|syrup|juice|honey|beans|"
    r"cornmeal|yogurt|buttermilk|shortening|carrots|celery|berries|blueberries|chips)\b)"
)
"""2 C flour."""


def _last_number(amount: str) -> float:
    return float(re.findall(r"[0-9.]+", amount.replace(",", ""))[-1])


def _are_equal(celsius: float, fahrenheit: float) -> bool:
    """True for one temperature on both scales, as recipes round it."""
    return abs(celsius * 1.8 + 32 - fahrenheit) <= max(2.0, 0.04 * fahrenheit)


def _cups(match: re.Match[str]) -> str:
    return f"{match[1]} cup{'s' * (match[1] != '1' and not re.fullmatch('[1-9]/[2-8]', match[1]))}"


def _mark_both_scales(match: re.Match[str]) -> str:
    first, scale, second, other = match.groups()
    celsius, fahrenheit = (first, second) if scale == "C" else (second, first)
    if scale == other or not _are_equal(float(celsius), float(fahrenheit)):
        return match[0]
    return f"{first}°{scale}, {second}°{other}" + ", " * match[0].endswith(("/", "/ "))


def _mark_degrees(match: re.Match[str], *, has_both: bool) -> str:
    amount, space, scale = match.groups()
    before = match.string[max(0, match.start() - 60) : match.start()]
    behind = match.string[match.end() : match.end() + 60]

    # A label explains the letter: seat 12C, rows 12C to 14F.
    if _BEHIND_LABEL.search(before) or _BEFORE_STREET.match(behind):
        return match[0]
    if (space and _LETTERED_THING.match(behind)) or _BEHIND_WEAR.search(before):  # 3 C students
        return match[0]
    sentence = _SENTENCE_END.split(before)[-1] + "0 " + _SENTENCE_END.split(behind)[0]
    is_heat = bool(
        _HEAT.search(sentence)
        or _WEATHER.search(before)
        or _BEFORE_WEATHER.match(behind)
        or (_last_number(amount) >= 37 and _FOR_MINUTES.match(behind))
    )
    cue = _BEHIND_MEASURED.search(_SENTENCE_END.split(before)[-1])
    # She waited at 12C for 20 minutes, and the bus reached 4C.
    is_heat = is_heat or bool(cue and (not _REACHED.match(cue[0]) or _last_number(amount) >= 20))
    if _BEHIND_ARTICLE.search(before):
        if not space and _LETTERED_THING.match(behind):
            return match[0]
        is_heat = bool(_HOT_THING.match(behind))
    # The man in 14F was hot.
    elif _BEHIND_IN.search(before) or _MOVED_TO.search(before):
        is_heat = bool(_HOT_THING.match(behind))
    is_below_zero = amount[0] in "-−" or _BEHIND_COLD.search(before)
    is_measured = is_below_zero or (
        not space
        and (
            any(mark in amount for mark in ".,")
            or has_both
            or _BETWEEN.search(before)
            or (_last_number(amount) >= 100 and _BEHIND_AT.search(before))
        )
    )
    if is_heat or (is_measured and scale.isupper()):
        return f"{amount}°{scale.upper()}"
    if scale == "f" or (space and _BEFORE_PLURAL.match(behind)):  # 3 C students
        return match[0]
    name = "Celsius" if scale == "C" else "Fahrenheit"
    raise UnsupportedText(
        f"{match[0]!r} has more than one reading: degrees {name}, or a letter; write 20°C, or words, "
        "or what it numbers (seat 12C)"
    )

"""Marks of English numbers that are seen before a text is folded: feet, inches, degrees, minus, halves and dashes.

Folding takes an inch for a quote, a minus for a dash, and a star for nothing; beside digits they are words. What has
more than one reading is refused, since a wrong word is worse than a reject.
"""

import re
from collections.abc import Callable

from voxline.text import english_numbers as numbers
from voxline.text.alphabet import UnsupportedText
from voxline.text.english_abbreviations import put_apart
from voxline.text.english_numbers import has_two_readings

DOLLARS = {
    "US": "u s", "C": "canadian", "CA": "canadian", "A": "australian", "AU": "australian", "NZ": "new zealand",
    "S": "singapore", "HK": "hong kong", "NT": "new taiwan",
}  # fmt: skip
"""Letters before a dollar sign, and whose dollars these are."""
SIGN = f"[{''.join(sign for sign in numbers.CURRENCIES if len(sign) == 1)}]"
"""A sign of a currency, as a pattern."""

SCALES = {
    "k": "thousand",
    "m": "million",
    "b": "billion",
    "bn": "billion",
    "tn": "trillion",
    "mn": "million",
    "mln": "million",
    "mm": "million",
}
"""Letters behind an amount of money."""

NUMBERED = (
    "pages|numbers|chapters|verses|lines|rooms|rows|figures|tables|sections|volumes|questions|exercises|steps|ages|aged|"
    "lots|players|items|groups|grades|levels|seats|tracks|houses|floors|routes|buses|flights|classes|problems|articles|"
    "paragraphs|channels|gates|days|weeks|rounds|games|examples|cases|parts"
)
"""What is listed by numbers: 10,11 after one of these are two."""
_BELOW = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 30})
"""What fractions of everyday have below their line."""
_BEFORE_RANGES = re.compile(rf"\b(?:{NUMBERED}|pp\.?|from|between|about|of)\s$", re.IGNORECASE)
_HALVES = {"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}
_HALF = f"[{''.join(_HALVES)}]"
_FIRM_SPACE = "[\u00a0\u2009\u202f]"
"""Spaces that do not break a line; between two groups of digits they separate thousands."""
DIRECTIONS = {"N": "north", "S": "south", "E": "east", "W": "west"}

_THOUSANDS = re.compile(
    rf"(?<![\w.,+])(?<![0-9)][\s])([1-9][0-9]{{0,2}}){_FIRM_SPACE}([0-9]{{3}})(?:,([0-9]{{1,2}}))?(?![0-9]|[\s-][0-9])"
)
_DEGREES = re.compile(
    r"([0-9]{1,3})\s?°\s?(?:([0-9]{1,2})\s?['′’](?!['’])(?:\s?([0-9]{1,2}(?:\.[0-9]+)?)\s?(?:[\"″”]|''|′′|’’))?)?"
    r"(?:\s?([NSEW])(?![\w/'’]|\.\w))?"
)
_MONEY = re.compile(
    rf"(?<![\w])((?:{'|'.join(DOLLARS)})?)({SIGN})\s?([0-9,]*)\s?({_HALF})"
    r"(?:\s?(thousand|million|billion|trillion|k|m|bn|b)\b)?",
    re.IGNORECASE,
)
_CENTS = re.compile(rf"(?<![\w.,])([0-9]*)\s?({_HALF})\s?(¢|p\b)")
_BOOKS = (
    "genesis|exodus|leviticus|deuteronomy|joshua|judges|ruth|samuel|kings|chronicles|ezra|nehemiah|esther|job|psalms?|"
    "proverbs|ecclesiastes|isaiah|jeremiah|lamentations|ezekiel|daniel|hosea|joel|amos|obadiah|jonah|micah|nahum|"
    "habakkuk|zephaniah|haggai|zechariah|malachi|matthew|mark|luke|john|acts|romans|corinthians|galatians|ephesians|"
    "philippians|colossians|thessalonians|timothy|titus|philemon|hebrews|james|peter|jude|revelation|surah?|quran"
)
"""Books whose verses are named by two numbers: John 3:5."""
_CHAPTER = (
    # "meet James 5:00 pm" and "my job 9:15" have a time.
    rf"(?!(?-i:job|mark|judges|acts|kings)\s[0-9]{{1,2}}:[0-5][0-9](?![0-9]))\b({_BOOKS})(\.?\s[0-9]{{1,3}}):"
    r"(?![0-9]{2}(?:[-–][0-9:]{1,5})?\s?[ap]\.?m\b)"
)
_VERSES = re.compile(rf"{_CHAPTER}([1-9][0-9]{{0,2}})[-–](?:([0-9]{{1,3}}):)?(?=[0-9])", re.IGNORECASE)
_VERSE = re.compile(rf"{_CHAPTER}(?=[1-9][0-9]{{0,2}}(?![0-9]))", re.IGNORECASE)
_DASH_AS_MINUS = re.compile(
    # Elsewhere a dash is a pause, or between two numbers.
    r"(^|[:;,=]\s|\b(?:to|at|of|below|above|was|is|were|are|about|around|between|from|and|or|than|a|an|the|equals|"
    r"reached|hit|highs?|lows?|temperatures?)\s)–(?=[0-9])|(^|\b(?:to|at|of|below)\s)[-–]\s(?=[0-9.]{1,6}\s?(?:degrees?\b|°))",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\w.,+-])(?<![0-9] )[0-9]{4}(?:[ -][0-9]{4}){3}(?![\w-]| [0-9]|[.,][0-9])")
_EVEN = re.compile(
    r"(?<![\w/.,-])(?<!\b[Oo]n\s)(0?[1-9]|[12][0-9]|3[01])/\1(?![\w/%°-]|[.,][0-9])(?!\s(?:vision|hindsight|eyesight|of\b))"
)
"""10/10, 20/20: out of, over, or twenty twenty."""
_NINE_ELEVEN = re.compile(
    r"(?<![\w/.,-])9[-–/]11(?=\s(?:attack|terroris|hijack|commission|memorial|tragedy|victim|survivor))", re.IGNORECASE
)
_DOLLAR_TWICE = re.compile(
    r"(?<![\w$])(?:\$(?=[^$]{1,40}?dollars?\b)|£(?=[^£]{1,40}?pounds?\b)|€(?=[^€]{1,40}?euros?\b))\s?"
    r"([0-9][0-9,.]{0,20}(?:[\s-](?:thousand|million|billion|trillion))?)[\s-](?=(?:dollar|pound|euro)s?\b)"
)
"""$5 million-dollar houses, $5 dollars: the currency is said once."""
_INCH = re.compile(
    rf"(?<![\w.,:/$£€-])((?:[0-9]{{1,3}}\s)?[0-9]{{1,2}}/[0-9]{{1,2}}|[0-9]{{1,3}}(?:\.[0-9]{{1,3}})?(?:\s?{_HALF})?|{_HALF})"
    r"[\s-]?in\.(?=[,;:)]|\s(x\s|[a-z]{2,20}\b))"
)
"""5 in. pipes: a dot that ends no sentence."""
_MINUS_TWICE = re.compile(r"(?<=\bminus )[-−](?=[0-9])")
_NO_INCH = frozenset(
    "the this that these those a an my your his her its our their which total all case here there now then so".split()  # noqa: SIM905
)
_MINUS = re.compile(rf"(?<![eE^])\s?−\s?(?=\.?[0-9]|{SIGN}|\(|[A-Za-z]\b)")
_NEGATIVE = re.compile(r"(?<![\w.,:-])([0-9]{1,9})\s-(?=([0-9]{1,9})(?![\w:-]|[.,][0-9]))")
_TIMES = re.compile(
    r"(?<=[0-9)])\s?\*\s?(?=[0-9(])|(?<=[0-9)])\*(?=[A-Za-z])|(?<=\b[A-Za-z])\*(?=[0-9])"
    r"|(?<=\b[A-Za-z])\s\*\s(?=(?:[A-Za-z]\b|[0-9]))|(?<=[0-9])\s\*\s(?=[A-Za-z]\b)"
)
_POWER = re.compile(r"(?<=[0-9)])\*\*(?=[0-9(])")
_STAR_KEY = re.compile(r"(?<=\b(?:dial|Dial|call|Call) )\*(?=[0-9])|(?<=\b[Pp]ress )\*(?=[0-9])")
_KEY = re.compile(
    r"\b(?i:(?:press|dial|hit|push|enter|tap|(?:followed|separated|ended) by(?: an?| the)?|then|or|just) )([*#])"
    r"(?=\s(?:key|sign|button|symbol|to|and|or|then|again|now|when|for|followed)\b|\s?[^\w\s](?!\w)|\s*$)"
    r"|\b(?:[Tt]he|[Aa]) ([*#])(?=\s(?:key|button)\b)"
)
"""A key of a telephone that stands alone, where one is pressed or named: press * to end, a number followed by #."""
_MINUS_GRADE = re.compile(
    r"(?:(?<=\b[aA] [A-DO])|(?<=\b(?:grade|blood) [A-DO])|(?<=\btype [A-DO])|(?<=\bgot [A-DO])|(?<=\b[aA]n A)"
    r"|(?<=\btype AB))"
    r"-(?=[\s.,;!?]|$)|(?:(?<=\b[ABO])|(?<=\bAB))-(?=\s(?:blood|donors?)\b)"
)
_STARS = re.compile(r"(?<![\w.])([1-7])\s?\*(?=\s(?:hotel|resort|restaurant|review|rating|general)s?\b)")
_HIDDEN = re.compile(r"(?<![A-Za-z*])[A-Za-z]++(?:\*+[A-Za-z]++|\*{2,}(?!\S))")
_MARKED = re.compile(
    r"(?<!\S)&(?=[A-Za-z])|(?<![\w&~])~(?=[A-Za-z])|(?<![\w&])#(?=[A-Za-z])|(?<![\w%])%(?=[A-Za-z])"
    r"|(?<![\w<>=-])(?:--?>|==?>)(?![<>=])|(?<![<>=])<--?(?=\s|$)"
)
"""Arrows, and signs before a word, which are words themselves or marks of names and hesitation: &John, ~A, #uh, %uh."""
_HALF_OF_DAY = r"\s?[AaPp]\.?[Mm]\b\.?"
_SPACED_DASH = re.compile(
    rf"(?<![0-9,.:])({SIGN}?[0-9][0-9,.:]*+(?: 000\b)*)({_HALF_OF_DAY}|\s?%)?\s[-–]\s"
    rf"(?=({SIGN}?[0-9][0-9,.:]*+(?: 000\b)*)({_HALF_OF_DAY})?(\s?=)?)"
)

_FEET_AND_INCHES = re.compile(
    rf"(?<![\w.,'])([1-9][0-9]?)['′’](?:\s?([0-9]{{1,2}})\s?({_HALF})?(?:[\"″”]|'')(?!\w)"
    rf"|([0-9]{{1,2}})({_HALF})?(?=[\s.,;:!?)…”]|$))"
)
_FEET = re.compile(
    r"(?:(?<![\w.,'])|(?<=['′’]x))((?:\b(?:[Aa]n?|[Tt]he)\s)?)([0-9]{1,3})['′’](?:(?=\s?x\s?[0-9])|(?![\w'’\"]))(?=(\s[a-z]+)?)"
)
_AFTER_FEET = frozenset("tall high long wide deep by x of and or in at to from above below apart away".split())  # noqa: SIM905
_FEET_MARK = re.compile(
    r"(?:(?<=[0-9])[`´](?=\s?[0-9]{1,2}(?![0-9]))|(?<=\b[1-9])\s['′’](?=[0-9]{1,2}(?:[\"″”]|'')))"
    r"|(?<=[1-9]['′’])-(?=[0-9]{1,2}(?:[\"″”]|''))"
)
"""Of heights: 5`10, 5 '10", 5'-10"."""
_OPENING_APOSTROPHE = re.compile(r"(?<!\w)['‘](?=\w)")
_INCHES = re.compile(
    rf"(?:(?<![\w.,/])|(?<=[\"″]x))((?:[0-9]{{1,3}}(?:\.[0-9]+)?\s?)?{_HALF}|(?:[0-9]{{1,3}}\s)?[0-9]{{1,2}}/[0-9]{{1,2}}"
    r"|[0-9]{1,3}(?:\.[0-9]+)?)[\"″](?:(?=x[0-9])|(?!\w))"
)
_BILLS = re.compile(rf"(?<![A-Za-z])({SIGN})\s?([1-9][0-9]{{0,3}})[\s-](?=(?:bills?|notes?|coins?|chips?)\b)")
_PLURAL_BILLS = re.compile(r"(?<![\w$£€])[$£€](1|2|5|10|20|50|100|500|1,?000)s(?![\w'’])")
"""Two $20s."""
_ONE_OR_LESS = re.compile(rf"1|{_HALF}|[0-9]+/[0-9]+")


def spell_out_marks(text: str) -> str:
    """Spells out marks beside digits, and leaves the digits.

    >>> spell_out_marks('5\\'10" tall, 40°30\\'15" N')
    '5 foot 10 tall, 40 degrees 30 minutes 15 seconds north'
    >>> spell_out_marks("£3½ million, 5 − 3, 5*3, 10 - 20")
    'three and a half million pounds, 5 minus 3, 5 times 3, 10-20'

    Raises:
      UnsupportedText: marks have more than one reading.
    """
    for rule in _RULES:
        text = rule(text)
    return text


def is_score(text: str, start: int, end: int) -> bool:
    """Returns whether words around a place say that numbers with a hyphen are of a game, a vote, or before Christ."""
    return bool(_BEFORE_SCORES.search(text, max(0, start - 40), start) or _AFTER_SCORES.match(text, end))


_BEFORE_SCORES = re.compile(
    r"\b(?:scores?|scored|won|wins?|lost|lose|loses|beat|beats|votes?|voted|passed|record|lead|leads|led|defeated|ahead)\b[^.;!?0-9]{0,30}$",
    re.IGNORECASE,
)
_AFTER_SCORES = re.compile(
    r"\s(?:win|victory|loss|defeat|record|lead|vote|majority|decision|score|in\s(?:favor|overtime)|BCE?|B\.C\.)", re.I
)


def _degrees(match: re.Match[str]) -> str:
    if not match[2] and not match[4]:
        return match[0]
    parts = [(match[1], "degree"), (match[2], "minute"), (match[3], "second")]
    words = [f"{count} {name}{'s' * (float(count) != 1)}" for count, name in parts if count]
    return " ".join([*words, *([DIRECTIONS[match[4]]] if match[4] else [])])


def _money(match: re.Match[str]) -> str:
    singular, many, *_ = numbers.CURRENCIES[match[2]]
    whose = f"{DOLLARS[match[1].upper()]} " if match[1] else ""
    if not match[5]:
        return _mixed(match[3], match[4], whose + singular, whose + many)
    # Half a million pounds has many of them, half a pound one.
    scaled = f"{SCALES.get(match[5].lower(), match[5].lower())} {whose}{many}"
    return _mixed(match[3], match[4], scaled, scaled)


def _cents(match: re.Match[str]) -> str:
    singular, many = ("cent", "cents") if match[3] == "¢" else ("penny", "pence")
    return _mixed(match[1], match[2], singular, many)


def _mixed(whole: str, half: str, singular: str, many: str) -> str:
    """Three and a half pounds; half a pound; three quarters of a million pounds."""
    fraction = numbers.fraction(*_HALVES[half].split("/"))
    if whole.strip(","):
        fraction = fraction.replace("one half", "a half").replace("one quarter", "a quarter")
        return f"{numbers.cardinal(whole)} and {fraction} {many}"
    article = "an" if singular.startswith("a") else "a"
    return f"half {article} {singular}" if half == "½" else f"{fraction} of {article} {singular}"


def _spaced_dash(match: re.Match[str]) -> str:
    # What is compared: the digits, without signs and thousands.
    first, second = (re.sub(r"[^0-9.]", "", part).strip(".") for part in (match[1], match[3]))
    if match[5]:
        return f"{match[1]}{match[2] or ''} minus "
    # A range rises; games, votes and hours need not.
    is_time = ":" in match[1] + match[3] or (match[2] or "%").strip()[0].isalpha() or match[4]
    is_rising = first.count(".") < 2 and second.count(".") < 2 and float(first) < float(second)
    is_year = len(first) == 4 and len(second) == 2 and first[2:] < second
    if is_time or is_rising or is_year or is_score(match.string, match.start(), match.end() + len(match[3])):
        return f"{match[1]}{match[2] or ''}-"
    raise has_two_readings(f"{match[0]}{match[3]}", "minus, to, or a pause")


def _negative(match: re.Match[str]) -> str:
    if float(match[1]) < float(match[2]):
        raise has_two_readings(f"{match[0]}{match[2]}", "minus, or to")
    return f"{match[1]} minus "


def _key(match: re.Match[str]) -> str:
    """Press star, followed by pound."""
    sign = match[1] or match[2]
    return f"{match[0][:-1]}{'star' if sign == '*' else 'pound'}"


def _marked(match: re.Match[str]) -> str:
    raise has_two_readings(f"{match[0]}{match.string[match.end() : match.end() + 20]}", "a word, or a mark")


def _inch(match: re.Match[str]) -> str:
    behind = (match[2] or "").strip()
    if behind in _NO_INCH:
        return match[0]
    is_noun = behind and behind not in _AFTER_FEET and behind not in ("thick", "square", "is", "was", "on", "per")
    return f"{match[1]} {'inch' if is_noun or _ONE_OR_LESS.fullmatch(match[1]) else 'inches'}"


def _even(match: re.Match[str]) -> str:
    raise has_two_readings(match[0], f"{match[1]} out of {match[1]}, {match[1]} over {match[1]}, or a date")


def _hidden(match: re.Match[str]) -> str:
    raise has_two_readings(match[0], "times, or letters that are left out")


def _spell_out_feet(text: str) -> str:
    """Marks of feet and inches, which later are quotes; a quote that was opened is closed by the next one."""
    text = _FEET_MARK.sub(lambda match: "" if match[0] == "-" else "'", text)
    if not any(mark in text for mark in "'′’\"″"):
        return text
    is_quoted = _OPENING_APOSTROPHE.search(text)
    text = _FEET_AND_INCHES.sub(lambda match: put_apart(match, _feet_and_inches(match)), text)
    if not is_quoted:
        text = _FEET.sub(lambda match: put_apart(match, _feet(match)), text)
    pieces = []
    is_open = False
    end = 0
    for match in _INCHES.finditer(text):
        is_open ^= text.count('"', end, match.end() - 1) % 2 == 1
        pieces.append(text[end : match.end() - 1])
        end = match.end()
        is_quote = match[0].endswith('"') and is_open
        is_single = _ONE_OR_LESS.fullmatch(match[1]) or _is_before_noun(text, match)
        pieces.append('"' if is_quote else " inch" if is_single else " inches")
        is_open &= not is_quote
    return "".join([*pieces, text[end:]])


def _is_before_noun(text: str, match: re.Match[str]) -> bool:
    """A 27" monitor has one inch."""
    noun = re.match(r"\s([A-Za-z]+)", text[match.end() : match.end() + 20])
    has_article = re.search(r"\b[Aa]n?\s$", text[max(0, match.start() - 4) : match.start()])
    return bool(has_article and noun and noun[1] not in _AFTER_FEET)


def _feet_and_inches(match: re.Match[str]) -> str:
    inches = match[2] or match[4]
    half = match[3] or match[5]
    if int(inches) > 11:
        raise has_two_readings(match[0], "feet and inches, or minutes and seconds")
    if not half:
        return f"{match[1]} foot {inches}"
    fraction = numbers.fraction(*_HALVES[half].split("/")).replace("one half", "a half")
    return f"{match[1]} foot {inches} and {fraction}"


def _feet(match: re.Match[str]) -> str:
    # "a 5' board" has one foot.
    is_noun = match[1] and match[3] and match[3].strip() not in _AFTER_FEET
    return f"{match[1]}{match[2]} {'foot' if match[2] == '1' or is_noun else 'feet'}"


_HALF_RANGE = re.compile(rf"(?<={_HALF})\s?[-–]\s?(?=[0-9½¼¾⅓⅔⅛⅜⅝⅞])")
_DOUBLE_HYPHEN = re.compile(r"(?<![\w.,])(-?)([0-9]{1,9}(?:\.[0-9]{1,9})?)--(?=[0-9])")
_AREA = re.compile(r"\((0[0-9]{2,5})\)\s?(?=[0-9]{3,4}[ -]?[0-9]{3,4})")
_SPACED_SCALE = re.compile(r"(?<=[0-9])\s?°\s(?=[CF](?![\w'’]))")
_FROM = re.compile(r"(?<![\w'’])([NSEW])\s?(?=[0-9]{1,3}(?:\.[0-9]{1,9})?\s?°)", re.IGNORECASE)

_SUFFIXES = (
    "com|org|net|edu|gov|mil|info|biz|io|co|uk|de|fr|eu|nl|ru|cn|jp|ch|dk|cz|pl|br|ca|nz|au|kr|app|dev|xyz|html?|txt|pdf|"
    "docx?|xlsx?|csv|jpe?g|png|gif|mp[34]|wav|zip|exe|php|json|xml"
)
"""Ends of addresses of the Internet and of names of files that are no words."""
_SITE = re.compile(
    r"(?<![\w.@-])(?:(https?)://)?([A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,62}){0,8})((?:/[\w.~-]{0,99}){0,9})"
    r"(?![\w@])"
)
_ENDS_AS_SITE = re.compile(rf"(?:.*[A-Za-z0-9]{{2}}|[a-z][0-9])\.(?:{_SUFFIXES})", re.ASCII)
_MAILBOX = re.compile(r"(?<=[\w-])\.(?=[\w-]{1,64}(?:\.[\w-]{1,64}){0,4}@[A-Za-z0-9])")
_MAIL_HOST = re.compile(r"(?<=@)[A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,62}){1,6}")


def _site(match: re.Match[str]) -> str:
    """bbc.co.uk, http://a.b/c, index.html: the marks are said."""
    # What only looks like an address is the end of a sentence without a space behind it.
    scheme, host, path = match.groups()
    is_site = scheme or host.startswith("www.") or _ENDS_AS_SITE.fullmatch(host)
    if not is_site:
        return match[0]

    # A full stop behind the path ends the sentence.
    path, end = (path[:-1], ".") if path.endswith(".") else (path, "")
    spoken = (f"{scheme} colon slash slash " if scheme else "") + host.replace(".", " dot ")
    return spoken + path.replace(".", " dot ").replace("/", " slash ") + end


COUNTED = (
    "people|persons|men|women|children|users|customers|views|viewers|downloads|followers|subscribers|listeners|readers|"
    "members|jobs|homes|households|families|workers|voters|visitors|tourists|passengers|patients|students|copies|"
    "shares|barrels|dollars|euros|pounds|rubles|rupees|inhabitants|residents|citizens|refugees|soldiers|visits|clicks|"
    "accounts|records|cars|vehicles|animals|trees|votes|tickets|streams|players|employees|lives|deaths|cases"
)
"""What is counted in whole numbers, by millions too."""
_NO_NOUN = (
    "was|is|has|as|his|its|this|us|plus|minus|less|across|towards|upwards|downwards|forwards|backwards|sideways|always|"
    "perhaps|besides|hers|ours|yours|theirs|does|goes|finals?|heats|hurdles|races|sprints|times|apiece|thus"
)
_THOUSANDS_OR_DECIMALS = re.compile(
    rf"(?<![\w.,+'-])(?<!{SIGN})(?<!{SIGN}\s)([1-9][0-9]{{0,2}})\.(000|[0-9]{{3}}(?=\s(?:{COUNTED})\b))(?![0-9]|[.,][0-9]|\s?(?:€|EUR\b))"
    rf"(\s(?:{COUNTED})\b)?"
)
_SMALL_M = re.compile(
    rf"(?<![\w.,])([0-9]{{1,3}}(?:\.[0-9]+)?)m(?=\s(?:({COUNTED})|(?!(?:{_NO_NOUN})\b)[a-z]{{2,20}}[a-rt-z]s)\b)"
)
_NUMBER_OR_NO = re.compile(
    r"(?:\b([A-Za-z']{1,20}),?\s)?\b[Nn]o\.\s[0-9]{1,4}(?![0-9]|[.,:/-][0-9])(?=(?:\s([a-z]{1,20}))?)"
)
_SAID = re.compile(
    "said|says?|saying|answer(?:s|ed)?|repl(?:y|ies|ied)|is|was|told|yes|oh|thought|whispered|shouted", re.IGNORECASE
)
_HAS_NUMBER = re.compile(
    "the|an?|our|my|your|his|her|their|its|this|that|room|bus|house|flat|platform|track|item|page|line|route|gate|opus|op|"
    "symphony|concerto|sonata|chapter|question|exercise|model|part|order|account|tel|phone|case|lot|cell|pier|tram|ward|see",
    re.IGNORECASE,
)
_AFTER_NUMBERS = re.compile(rf"(?:{COUNTED})|(?!(?:{_NO_NOUN})\b)[a-z]+[a-rt-z]s")
_WATTS_OR_WEST = re.compile(
    r"(?<=[0-9])\sW\.\s(?!(?:The|It|This|That|These|We|He|She|They|You|A|An|In|On|At|And|But|If|So|I|Is|Its|There|Then)\b)"
    r"(?=[A-Z][a-z]+\b(?!\s(?:St|Dr|Ave|Blvd|Rd|Ln|Hwy)\b)|[0-9]{1,3}(?:st|nd|rd|th)\b)"
)


def _thousands_or_decimals(match: re.Match[str]) -> str:
    if match[3]:
        return f"{match[1]},{match[2]}{match[3]}"
    raise has_two_readings(match[0], f"{match[1]},{match[2]}, or a decimal")


def _small_m(match: re.Match[str]) -> str:
    if match[2]:
        return f"{match[1]} million"
    raise has_two_readings(match[0], "million, or meters")


def _watts_or_west(match: re.Match[str]) -> str:
    raise has_two_readings(match[0].strip(), "watts, or west")


def _number_or_no(match: re.Match[str]) -> str:
    """Said no. 5 people came: the point may end a sentence."""
    # What is counted follows a number: no. 5 people came.
    before = match[1] or ""
    is_counted = match[2] and _AFTER_NUMBERS.fullmatch(match[2])
    if _HAS_NUMBER.fullmatch(before) or not (_SAID.fullmatch(before) or is_counted):
        return match[0]
    raise has_two_readings(match[0], "number, or no at the end of a sentence")


_TELEPHONE_NAME = re.compile(
    r"(?<![\w.,-])(?:\+?(1)[ -])?(?:\(([0-9]{3})\)\s?|([0-9]{3})-)"
    r"(?![0-9]{3}-[0-9]{4}|(?i:day|odd|bed|man|ton|lap|row|car|gun|hit|mph|bit|win|run|per|yen|mile|year|foot|page|word|hour|"
    r"week|unit|room|seat|inch|yard|acre|game|plus|line|item)\b)"
    r"([A-Z0-9]{3}-[A-Z0-9]{4}|[a-z]{3}-[a-z]{4}|[A-Z]{4}|[a-z]{4}|[A-Z]{7}|[a-z]{7})(?![\w-])"
)
"""555-GET-FOOD, a telephone number of which letters stand for digits; 365-day-long and 100-PAGE are none."""
_BEFORE_TELEPHONES = re.compile(r"\b(?:call|calls|called|calling|dial|dials|dialed|dialing)\s$", re.IGNORECASE)


def _named_telephone(match: re.Match[str]) -> str:
    """The digits one by one, and the words: a text of capitals has its words in small letters."""
    if match[1] and (match[2] or match[3]).startswith("8"):
        return match[0]  # 1-800 is a name

    # In small letters it may be of anything: a 300-and-some limit.
    is_called = (
        match[2]
        or match[3] == "555"
        or _BEFORE_TELEPHONES.search(match.string, max(0, match.start() - 12), match.start())
    )
    if (match[4].islower() or len(match[4]) == 7) and not is_called:
        return match[0]

    # 555-G3T-FOOD has both.
    parts = re.findall("[A-Za-z]+|[0-9]+", match[4])
    spoken = [numbers.digit_by_digit(part) if part.isdigit() else part for part in parts]
    country = ["one"] if match[1] else []
    area = match[2] or match[3]
    return " ".join([*country, "eight hundred" if area == "800" else numbers.digit_by_digit(area), *spoken])


_MONEY_AS_ADJECTIVE = re.compile(
    rf"(?<![A-Za-z])({SIGN})\s?([0-9][0-9,]{{0,12}}(?:\.[0-9]{{1,3}})?)[-‑](thousand|million|billion|trillion)\b(?!-dollar)"
)
"""A $1.5-million home: one dollar, as of any hyphen."""
_EUROS_AND_CENTS = re.compile(r"(?<![\w.,])([0-9]{1,6})(?:(\s)€\s|([€£$]))([0-9]{2})(?![\w%]|[.,/-][0-9])")
"""12 € 50, 12€50."""
_FOOTNOTE = re.compile(r"([A-Za-z]{3,20})[²³](?!\w)|(?:[A-Za-z]{2}|[.,!?)\"”])[¹⁴-⁹](?!\w)")
_LENGTHS = frozenset("meter metre mile yard foot inch kilometer kilometre".split())  # noqa: SIM905
_FUNCTIONS = frozenset("sin cos tan log sec csc cot sinh cosh tanh".split())  # noqa: SIM905
_HELP = re.compile(
    r"(?<![\w.,-])(?<!\bof\s)911(?=[\s-](?:call|callers?|operators?|dispatch|emergency|centers?|tapes?|"
    r"calls\b(?!\s(?:were|have|had))|was\s(?:called|dialed|notified|alerted|contacted))\b)"
)
_PLAIN_MARKS = (
    (re.compile(r"(?<=[0-9])\s?º(?=\s?[CFNSEW]?(?!\w))"), "°"),  # the ordinal of Spanish, typed for a degree
    (re.compile(r"(?<=[0-9])⁄(?=[0-9])"), "/"),
    (re.compile(r"((?:[0-9]/|[0-9]\s?x\s?)[0-9]{1,3})\sin\.?$"), r'\1"'),
    (re.compile(r"\b[Nn]°\s?(?=[0-9])"), "number "),
    (re.compile(r"(?<=\b[Aa]\s[0-9]{2})\s?y/o\b"), " year old"),
    (re.compile(r"(?<=[0-9])\s?y/o\b"), " years old"),
    (re.compile(r"(?<=[0-9])\s?x\s?(?=10(?:\^|[⁰¹²³⁴-⁹⁻]))"), " times "),
    (re.compile(r"(?<=[0-9])\s?fl\.?\s?oz\b(?:\.(?=\s[a-z]))?"), " fl oz"),
    (re.compile(r"(?<=[0-9]\s)(degrees?)\sF(?![\w'’])"), r"\1 Fahrenheit"),
    (re.compile(r"(?<=[0-9]\s)(degrees?)\sC(?![\w'’])"), r"\1 Celsius"),
    (re.compile(r"§\s?§"), " sections "),
    (re.compile(r"\+/[-−]"), " plus or minus "),
    (re.compile(r"(?<=[0-9])\s?([mk])\.p\.h\.?(?!\w)", re.IGNORECASE), r" \1ph"),
    (re.compile(r"(?<=[0-9])\s?m\.p\.g\.?(?!\w)", re.IGNORECASE), " mpg"),
    (re.compile(r"(?<![\w.,:/-])([0-9]{1,3})h00\b"), r"\1 hr"),
    (re.compile(r"(?<![\w.,:/-])([0-9]{1,3})h(?=[0-5][0-9]\b)"), r"\1 hr "),
    (re.compile(r"(?<![\w.,:/$-])([0-9]{1,3})h(?=\s(?:clock|shift|chart|race|mark|nap|flight|drive)s?\b)"), r"\1-hour"),
    (re.compile(r"(?<![\w.,:/$-])([0-9]{1,3}(?:\.[0-9])?)h(?![\w'’-]|\s?[0-9])"), r"\1 hr"),
    (re.compile(r"(?<=[0-9])(\s?(?:ft|lbs?|oz|yds?|hrs?|mins?|secs?|gal|tsp|tbsp))\.(?=,?\s[a-z])(?!\slbs?\b)"), r"\1"),
    (_HELP, "nine one one"),
    (re.compile(r"(?<=[0-9])[\s-]?ft[.-]\s?lbs?\b\.?"), " foot pounds"),
    (re.compile(r"(?<![\w.,])([0-9]{1,2})W-(?=[0-9]{2}(?![\w-]))"), r"\1 w "),  # of oil
    (re.compile(r"((?:₹|\bRs\.?)\s?[0-9.,]{1,20}\s(?:lakh|crore))s\b"), r"\1"),
    (re.compile(r"(?<=[0-9])\s(sq|cu)\.\s?(?=(?:ft|in|mi|m|km)\b)"), r" \1 "),
    (re.compile(r"(?<=[0-9])(\s?(?:cm|mm|km|m|ft|in)\.?)\s?[x×]\s?(?=[0-9])"), r"\1 by "),
)


def _verses(match: re.Match[str]) -> str:
    chapter = f"{match[4]}, " if match[4] else ""
    return f"{match[1]}{match[2]}, {match[3]} to {chapter}"


def _footnote(match: re.Match[str]) -> str:
    word = (match[1] or "").lower()
    if word in _FUNCTIONS or word in ("feet", "inches") or word.removesuffix("s") in _LENGTHS:
        return match[0]
    raise has_two_readings(match[0], "the number of a footnote, or a power")


def _spell_out_plain_marks(text: str) -> str:
    if text.isascii() and not re.search("[0-9+]", text):
        return text
    for pattern, words in _PLAIN_MARKS:
        text = pattern.sub(words, text)
    return _FOOTNOTE.sub(_footnote, text)


_RULES: tuple[Callable[[str], str], ...] = (
    _spell_out_plain_marks,
    lambda text: _MONEY_AS_ADJECTIVE.sub(
        lambda match: f"{numbers.decimal(match[2])} {match[3]} {numbers.CURRENCIES[match[1]][0]}", text
    ),
    lambda text: _EUROS_AND_CENTS.sub(lambda match: f"{(match[3] or '€')}{match[1]}.{match[4]}", text),
    lambda text: (
        _SITE.sub(lambda match: put_apart(match, _site(match)), text) if "." in text or "://" in text else text
    ),
    lambda text: _MAIL_HOST.sub(lambda match: match[0].replace(".", " dot "), _MAILBOX.sub(" dot ", text)),
    lambda text: _TELEPHONE_NAME.sub(lambda match: put_apart(match, _named_telephone(match)), text),
    lambda text: _NUMBER_OR_NO.sub(_number_or_no, text),
    lambda text: _SMALL_M.sub(_small_m, text),
    lambda text: _THOUSANDS_OR_DECIMALS.sub(_thousands_or_decimals, text),
    lambda text: _WATTS_OR_WEST.sub(_watts_or_west, text),
    lambda text: _THOUSANDS.sub(lambda match: f"{match[1]},{match[2]}" + (f".{match[3]}" if match[3] else ""), text),
    lambda text: _AREA.sub(r"\1 ", text),
    lambda text: _HALF_RANGE.sub(" to ", text),
    lambda text: _DOUBLE_HYPHEN.sub(lambda match: f"-{match[2]} to -" if match[1] else f"{match[2]}-", text),
    lambda text: _SPACED_SCALE.sub("°", text),
    lambda text: _FROM.sub(lambda match: f"{DIRECTIONS[match[1].upper()]} ", text),
    lambda text: _DEGREES.sub(lambda match: put_apart(match, _degrees(match)), text),
    lambda text: _MONEY.sub(lambda match: put_apart(match, _money(match)), text),
    lambda text: _CENTS.sub(lambda match: put_apart(match, _cents(match)), text),
    lambda text: _VERSE.sub(r"\1\2, ", _VERSES.sub(_verses, text)),
    lambda text: _DASH_AS_MINUS.sub(lambda match: f"{match[1] or match[2] or ''}minus ", text),
    lambda text: _DOLLAR_TWICE.sub(r"\1 ", _NINE_ELEVEN.sub("nine eleven", text)),
    lambda text: _INCH.sub(_inch, text),
    lambda text: _MINUS_TWICE.sub("", text),
    lambda text: _CARD.sub(
        lambda match: ", ".join(map(numbers.digit_by_digit, re.findall("[0-9]{4}", match[0]))), text
    ),
    lambda text: _BILLS.sub(lambda match: f"{numbers.money(match[1], match[2], '', is_single=True)} ", text),
    lambda text: _PLURAL_BILLS.sub(_plural_bills, text),
    lambda text: _EVEN.sub(_even, text),
    lambda text: _MINUS.sub(" minus ", text),
    lambda text: _STARS.sub(r"\1 star", text),
    lambda text: _POWER.sub(" to the power of ", text),
    lambda text: _STAR_KEY.sub("star ", text),
    lambda text: _KEY.sub(_key, text),
    lambda text: _MINUS_GRADE.sub(" minus", text),
    lambda text: _TIMES.sub(" times ", text),
    lambda text: _HIDDEN.sub(_hidden, text),
    lambda text: _MARKED.sub(_marked, text),
    lambda text: _SPACED_DASH.sub(_spaced_dash, text),
    lambda text: _NEGATIVE.sub(_negative, text),
    _spell_out_feet,
)


def model_name(match: re.Match[str]) -> str:
    """A350-900 is no range."""
    return " ".join([match[1], *(numbers.pairs(part) if len(part) > 2 else part for part in match.groups()[1:])])


def hyphened_numbers(match: re.Match[str]) -> str:
    """1-2-3 are three numbers; longer groups, or those that begin with a zero, are digits."""
    # A code has a long group, or one that begins with a zero.
    groups = match[0].split("-")
    if re.fullmatch("[12][0-9]{3}-[0-9]{2}-[0-9]{2}", match[0]):
        raise UnsupportedText(f"{match[0]!r} is no date; write in words what it is")
    is_code = any(len(group) > 3 or (group[0] == "0" and len(group) > 1) for group in groups)
    return " ".join(numbers.digit_by_digit(group) if is_code else numbers.cardinal(group) for group in groups)


def falling_numbers(match: re.Match[str]) -> str:
    """A large number, a hyphen and a smaller one: 747-400 and "they won 121-118" are no ranges."""
    # Years may be cut (1999-05), and results fall.
    first = int(match[1])
    second = int(match[2])
    if re.fullmatch("20[0-9]{2}", match[1]) and len(match[2]) == 2 and 0 < second <= min(12, first % 100):
        raise has_two_readings(match[0], "a month, or to")
    is_year = len(match[1]) == 4 and len(match[2]) == 2
    is_airliner = re.fullmatch("7[0-8]7", match[1]) and (second < 11 or not second % 100)
    if is_airliner and not _BEFORE_RANGES.search(match.string, max(0, match.start() - 12), match.start()):
        return f"{numbers.pairs(match[1])} {numbers.pairs(match[2]) if second > 99 else numbers.cardinal(match[2])}"
    if len(match[1]) < 3:
        return _falling_pair(match, first, second)
    if first < second or is_year or is_score(match.string, match.start(), match.end()):
        return match[0]
    if len(match[1]) == len(match[2]) == 3 and first % 100 and not second % 100:
        return f"{numbers.pairs(match[1])} {numbers.pairs(match[2])}"
    raise has_two_readings(match[0], "to, minus, or the name of a model")


_BEFORE_HOURS = re.compile(
    r"\b(?:open|opens|hours?|from|between|works?|worked|working|weekdays|weekends|daily|days?|shift|today|tomorrow|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?):?\s$",
    re.IGNORECASE,
)
_AFTER_HOURS = re.compile(r",?\s(?:job|jobs|shift|shifts|work|worker|schedule|workday|daily|weekdays|on\s[A-Z])")
_AFTER_RADIO = re.compile(r",?\s(?:good\sbuddy|roger|over\sand\sout|copy\sthat)", re.IGNORECASE)
_BEFORE_RADIO = re.compile(r"\b(?:big|roger|copy\sthat|that's\sa)[,.]?\s$", re.IGNORECASE)


def _falling_pair(match: re.Match[str], first: int, second: int) -> str:
    """3-0 is a score and 60-40 a share, which other rules read; on the radio 10-4 is said as ten four."""
    text = match.string
    start = match.start()
    if first <= second or is_score(text, start, match.end()):
        return match[0]
    if match[0] == "24-7":
        return "twenty-four seven"

    # Codes of the radio, and hours of work; a bare 10-4 may be either.
    is_said = _AFTER_RADIO.match(text, match.end()) or _BEFORE_RADIO.search(text, max(0, start - 12), start)
    if is_said and first in (10, 11):
        return f"{numbers.cardinal(match[1])} {numbers.cardinal(match[2])}"
    is_open = _BEFORE_HOURS.search(text, max(0, start - 12), start) or _AFTER_HOURS.match(text, match.end())
    if match[0] != "10-4" or is_open:
        return match[0]
    raise has_two_readings(match[0], "10 to 4, or ten four")


_CODE_BEFORE = re.compile(
    r"\b(?:orders?|accounts?|number|no\.?|code|id|pin|reference|ref|ticket|tracking|serial|invoice|policy|phone|call|called|"
    r"dial|dialed|telephone|tel\.?|mobile|cell|fax|extension|member|passport|licen[cs]e|case|card|text|isbn|batch|model|sku|"
    r"part)(?:\snumber|\sno\.?|\sid|\scode)?\s?(?:(?:is|was|at|on|to)\s)?[:#]?\s?$",
    re.IGNORECASE,
)


def long_number(match: re.Match[str]) -> str:
    """Seven and more digits without commas: a count if it is round or counts something, and else a code or a date."""
    # Many zeros at the end are those of a count, zeros in front those of a code.
    digits = match[0]
    if digits.startswith("0") or digits.endswith("00000") or len(digits) > numbers.MAX_DIGITS:
        return numbers.cardinal(digits)

    # 1234567 people are counted, also behind "called"; a telephone may end in 000.
    behind = re.match(r"\s([a-z]{2,20})\b", match.string[match.end() : match.end() + 24])
    if behind and _AFTER_NUMBERS.fullmatch(behind[1]):
        return numbers.cardinal(digits)
    if _CODE_BEFORE.search(match.string, max(0, match.start() - 40), match.start()):
        return numbers.digit_by_digit(digits)
    if digits.endswith("000"):
        return numbers.cardinal(digits)
    raise has_two_readings(digits, "a count, a date, or digits one by one")


def _plural_bills(match: re.Match[str]) -> str:
    # Hundreds of dollars are no one hundreds.
    words = numbers.cardinal(match[1].replace(",", ""))
    return re.sub("xs$", "xes", numbers.pluralize(words.removeprefix("one ") if len(match[1]) > 2 else words))


def plural_digits(match: re.Match[str]) -> str:
    """AK-47s, 747s, 100s of people; 5s may be seconds or the name of a telephone."""
    # Round numbers are counts (hundreds), three digits the name of an airliner.
    digits = match[2].replace(",", "")
    if set(digits[1:]) == {"0"} and len(digits) > 2 and not match[1]:
        words = numbers.cardinal(digits).removeprefix("one ")
    elif len(digits) == 3:
        words = numbers.pairs(digits)
    elif match[1] or (digits == "10" and match.string.startswith(" of", match.end())):
        words = numbers.cardinal(digits)
    else:
        raise has_two_readings(match[0], "seconds, or several of them")
    return f"{match[1].rstrip('-')} {re.sub('xs$', 'xes', numbers.pluralize(words))}".strip()


def decade_or_seconds(match: re.Match[str]) -> str:
    raise has_two_readings(match[0], f"{numbers.decade(match[1])}, or seconds")


def stopwatch_time(match: re.Match[str]) -> str:
    # Above the point is a whole number of two digits: oh five.
    minutes = numbers.cardinal(str(int(match[1])))
    seconds = f"{'oh ' if match[2][0] == '0' else ''}{numbers.cardinal(str(int(match[2])))}"
    return f"{minutes} {seconds} point {numbers.digit_by_digit(match[3])}"


def two_groups(match: re.Match[str]) -> str:
    raise has_two_readings(match[0], f"{match[1]},{match[2]}, or {match[1]} and {match[2]}")


def telephone_or_numbers(match: re.Match[str]) -> str:
    raise has_two_readings(match[0], "a telephone number, or two numbers")


def date_or_fraction(match: re.Match[str]) -> str:
    """3/4 may be a fraction, and 4/11 a day in March or April elsewhere."""
    # Parts of an inch and of a cup are fractions whatever the month would be.
    above = int(match[1])
    below = int(match[2])
    has_zero = match[1].startswith("0") or match[2].startswith("0") or below == 1
    is_fraction = not has_zero and (below in _BELOW or below > 31 or above > 12 or below < above)
    if is_fraction or match.string[match.end() : match.end() + 4].strip().startswith(("of", "in", "%")):
        return match[0]
    raise has_two_readings(match[0], "a date, or a fraction")

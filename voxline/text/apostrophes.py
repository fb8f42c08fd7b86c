"""Apostrophes of transcripts: elisions that were taken apart are joined, and quotes made of apostrophes removed."""

import re
from collections.abc import Sequence

from voxline.text.lazy_pattern import lazy_pattern

APOSTROPHES = "'’‘ʼʻ`´‛＇\u055a"
_ELIDED = "tis|twas|twere|twill|cause|cos|em|im|til|till|n|bout|round|neath|s|t|k|m|d|ll|re|ve|l|il|[0-9]{2}s?"
"""English, Dutch and Maltese words, endings apart, and years that begin with an apostrophe: it opens no quote."""
_OPENS_OR_CLOSES = lazy_pattern(
    # The l of 'l'acqua' has an apostrophe of its own, and is no word behind an elision; '"Go" he said' has two marks.
    rf"((?<![^\W_])(?<!')(?:'(?='(?i:{_ELIDED})(?!\w|'\w))|'+(?=[\"“«„¿¡(\[]{{0,3}}\w)(?!(?i:{_ELIDED})(?!\w|'\w))))"
    r"|(?<=[^\s'])'+(?![^\W_]|')"
)
_AS_LETTER = lazy_pattern(
    r"(?:[bgkpqx]|tz)'(?!(?:s|t|d|m|n|re|ve|ll|em|er)\b)[a-z]|(?!a'am\b)(?<!q)[aeiou]'[aiou]",
    re.IGNORECASE,
)
"""What no elision and no word of English or a Romance language has: apostrophes of glottal stops."""
_Q_WITHOUT_U = lazy_pattern(r"(?<!\w)(?!iraqi|burqa|faqir)[a-z]+q[a-tv-z][a-z]*")
"""A word of such a language too, where a text has several; names (Nasdaq, Tariq) and capitals (IQ, FAQ) are none."""
_DUTCH = (
    "morgens|ochtends|middags|namiddags|voormiddags|avonds|nachts|zomers|winters|maandags|dinsdags|woensdags|donderdags|"
    "vrijdags|zaterdags|zondags|lands|werelds|mans|levens|konings|keizers|"
    "hertogenbosch|gravenhage|gravenzande|gravendeel|heerenberg"
)
"""What 's stands before as a word of its own."""
_APART_BEFORE = lazy_pattern(
    rf"(?<=[A-Za-z]) (?=['’](?:s(?![ -](?:{_DUTCH})\b)|d|re|ve|ll)(?![\w'’]))|(?<=\bi) (?=['’]m(?![\w'’]))"
    r"|(?<=[a-z]) (?=n['’]t(?![\w'’]))",
    re.IGNORECASE,
)
_VOWEL = "[aeiouyhàâäéèêëîïôöùûüœæ]"
_APART_BOTH = lazy_pattern(
    # Before a vowel, and with two spaces: in "vitamin C 'is' good" and "plan C ' was ' bad" are quotes.
    rf"(?<![\w'’])(?:[cdjlmnst]|qu) ['’] (?={_VOWEL})"
    r"|(?<![\w'’])(?:jusqu|lorsqu|puisqu|quoiqu|presqu|quelqu|aujourd) ['’] ?(?=[^\W\d_])"
    rf"|(?<![\w'’])(?:un|dell|nell|dall|sull|quell|quest|anch|dov|tutt|mezz|nessun) ['’] (?={_VOWEL})"
    r"|(?<=[a-z]) ['’] (?=(?:s|d|re|ve|ll)(?![\w'’]))|(?<=n) ['’] (?=t(?![\w'’]))|(?<=\bi) ['’] (?=m(?![\w'’]))"
    r"|(?<![\w'’])(?:o ['’] (?=clock\b)|ma ['’] (?=am\b)|y ['’] (?=all\b)|(?-i:O ['’] (?=[A-Z][a-z])))",
    re.IGNORECASE,
)
"""Spaces around the apostrophes of elisions: it 's, is n't, l ' homme."""
_BESIDE_SPACE = lazy_pattern(" n?['’]", re.IGNORECASE)
PLAIN_APOSTROPHES = str.maketrans(dict.fromkeys(APOSTROPHES, "'"))
"""A table for `str.translate`: each apostrophe is the one of ASCII."""


def join_apostrophes(text: str) -> str:
    """Joins what tokenizers have taken apart at an apostrophe, as in TED-LIUM and the Penn Treebank.

    >>> join_apostrophes("it 's here , is n't it ? l ' homme qu ' il a"), join_apostrophes("the letter 's' , don ' t")
    ("it's here , isn't it ? l'homme qu'il a", "the letter 's' , don't")
    """
    # Most texts have no apostrophe beside a space.
    if not _BESIDE_SPACE.search(text):
        return text
    return _APART_BEFORE.sub("", _APART_BOTH.sub(lambda apart: apart[0].replace(" ", ""), text))


def _quotes(text: str) -> list[tuple[int, int]]:
    """The places of quotes made of apostrophes that open and close, in order; the time grows as the length."""
    # An opening one, and what may close it before the next one opens.
    spans: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
    for mark in _OPENS_OR_CLOSES.finditer(text):
        if mark[1]:
            spans.append((mark.span(), []))
        elif spans:
            spans[-1][1].append(mark.span())

    opened: list[tuple[int, int]] = []
    quotes: list[tuple[int, int]] = []
    for opening, closing in spans:
        opened.append(opening)
        last = _closing(text, opening[1], closing)
        for place, end in enumerate(closing):
            if opened and (place == last or (place > last and not _ends_a_plural(text, end[0]))):
                quotes += [opened.pop(), end]
    return sorted(quotes)


def _closing(text: str, start: int, ends: Sequence[tuple[int, int]]) -> int:
    """Which apostrophe closes a quote: in 'the boys' toys,' the second, and in 'yes' of the boys' choir the first."""
    if len(ends) < 2:
        return 0
    is_word = not re.search(r"\s", text[start : ends[0][0]])
    closes = [
        place
        for place, (end, _) in enumerate(ends)
        if not (text[end - 1].isalnum() if is_word else _ends_a_plural(text, end))
    ]
    return closes[0] if closes else 0 if is_word else len(ends) - 1


def _ends_a_plural(text: str, place: int) -> bool:
    """True if an apostrophe may be that of the boys' or of rockin'."""
    return text[place - 1] in "sSnN"


def remove_quotes(text: str) -> str:
    """A text without quotes made of apostrophes that open and close.

    >>> remove_quotes("'The boys' toys,' he said; 'yes' or 'no' in the '90s")
    "The boys' toys, he said; yes or no in the '90s"
    """
    pieces = []
    end = 0
    for start, after in _quotes(text):
        pieces.append(text[end:start])
        end = after
    return "".join([*pieces, text[end:]])


def letters_or_quotes(text: str, letters: str) -> str:
    """The first piece between apostrophes that may be quotes or letters; empty if there is none.

    A text that has apostrophes as letters elsewhere, such as the glottal stop of k'o, or spellings of such languages,
    may have them at ends of words.

    >>> letters_or_quotes("K'o jun 'ixoq ri' nim", ""), letters_or_quotes("he said 'don't go' now", "")
    ("'ixoq ri'", '')
    """
    if text.isascii() and text.count("'") + text.count("`") < 2:
        return ""
    if letters and not set(APOSTROPHES) & set(letters):
        return ""
    plain = text.translate(PLAIN_APOSTROPHES)
    if plain.count("'") < 2 or not (_AS_LETTER.search(plain) or len({*_Q_WITHOUT_U.findall(plain)}) > 1):
        return ""
    quotes = _quotes(plain)
    return plain[quotes[0][0] : quotes[1][1]] if quotes else ""

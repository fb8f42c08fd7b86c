"""Where a text may be cut: at the ends of its sentences, at a clause, at a space.

A sentence ends as in Unicode's annex 29 (https://unicode.org/reports/tr29/#Sentence_Boundaries): a final mark, the
quotes and brackets that close behind it, then white space; marks of Chinese, Japanese and Indic scripts need none. A
full stop is ambiguous. It ends nothing before a lower-case letter, in a number, or behind an initial or a known
abbreviation. Where that is not enough the text stays whole, since a pause in a sentence is worse than none behind one.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator

from voxline.text.english_abbreviations import BEFORE_NUMBERS, NEVER_FINAL

_WIDE = "。！？｡；‼⁇⁈⁉؟۔।॥։።፧។៕"
"""Final marks of which no white space need follow."""
_NARROW = ".!?…"
_CLOSING = "\"'”’»›)\\]}」』》〉）】〕"
_OPENING = "\"'“‘„«‹(\\[{「『《〈（【〔¿¡"
_END = re.compile(rf"[{_WIDE}{_NARROW}]+[{_CLOSING}]*")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_LETTERS_WITH_DOTS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_BEFORE_WORD = re.compile(rf"\s*[{_OPENING}]*")
_NUMERAL = re.compile(r"[0-9]|(?!I\b)[IVX]+\b")
"""What an abbreviation such as No. or Vol. is before; "no. I think not" has a pronoun."""
_LAST_WORD = re.compile(rf"[^\s{_OPENING}]*\Z")

_NEAR = 60
"""Characters before a full stop that are looked at: no abbreviation is longer."""

# A run of marks is tried from its first one alone, and not given back: else many marks take quadratic time.
_SENTENCE = re.compile(rf"[{_WIDE}]+[{_CLOSING}]*\s*|(?<![{_NARROW}])[{_NARROW}]++[{_CLOSING}]*+\s+")
_CLAUSE = re.compile(rf"[，、：;；—][{_CLOSING}]*\s*|(?<![,;:–)])[,;:–)]++[{_CLOSING}]*+\s+")
_SPACE = re.compile(r"\s+")


def split_paragraphs(text: str) -> list[str]:
    """The parts between blank lines. Those without a letter or a digit belong to the one before.

    >>> split_paragraphs("One.\\nTwo.\\n\\nThree.")
    ['One.\\nTwo.', 'Three.']
    """
    return _merge_silent([part.strip() for part in _PARAGRAPH.split(text) if part.strip()], "\n\n")


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph, without the white space between them.

    >>> split_sentences("Dr. Bell paid $3.14 to J. Smith. “Why?” he asked... Nobody knew!")
    ['Dr. Bell paid $3.14 to J. Smith.', '“Why?” he asked...', 'Nobody knew!']
    >>> split_sentences("你好！“很好。”他说……好；再见。")
    ['你好！', '“很好。”', '他说……', '好；', '再见。']
    """
    ends = [0, *sentence_ends(text), len(text)]
    parts = [text[start:end].strip() for start, end in itertools.pairwise(ends)]
    return [part for part in parts if part]


def sentence_ends(text: str) -> Iterator[int]:
    """Finds where a sentence ends and another one begins: the index of the first character behind its marks."""
    start = 0
    marked = -1

    # Only marks behind a spoken character can end a sentence.
    first = _next_spoken(text, 0)
    for match in _END.finditer(text):
        if marked >= 0 and first < match.start():  # there are words behind the last end
            yield (start := marked)
            marked = -1
        if first < match.end() and _ends_sentence(text, start, match):
            marked = match.end()
            first = _next_spoken(text, marked)
    if marked >= 0 and first < len(text):
        yield marked


def cut_point(text: str) -> int:
    """Finds where to cut a sentence that is too long: behind another end of a sentence, a clause or a
    space, whichever of them is near the middle, in this order; else between two characters.

    >>> cut_point("one, two three four five, six"), cut_point("one two"), cut_point("abcdef")
    (15, 4, 3)
    """
    places = [[match.end() for match in rule.finditer(text)] for rule in (_SENTENCE, _CLAUSE, _SPACE)]
    first = _next_spoken(text, 0)
    last = next((index for index in range(len(text) - 1, -1, -1) if _is_spoken(text[index])), -1)

    # Both parts have something to say, else the cut would leave silence.
    places = [[place for place in several if first < place <= last] for several in places]
    middle = len(text) / 2
    for most in (len(text) / 4, middle):  # far from the middle, a clause is worse than a space
        for several in places:
            best = min(several, key=lambda place: abs(place - middle), default=None)
            if best is not None and abs(best - middle) <= most:
                return best

    # No place at all, as in a long number: between two characters.
    place = len(text) // 2
    while place < len(text) - 1 and unicodedata.category(text[place])[0] == "M":  # an accent stays with its letter
        place += 1
    return place


def cut_to(text: str, most: int) -> list[str]:
    """A sentence in parts of at most so many characters. Nothing but white space at their ends is lost.

    >>> cut_to("one, two three four five, six", 20)
    ['one, two three', 'four five, six']
    """
    if len(text) <= most:
        return [text]
    place = cut_point(text)
    return [part for half in (text[:place].strip(), text[place:].strip()) for part in cut_to(half, most) if part]


def has_words(text: str) -> bool:
    """Returns whether there is a letter or a digit."""
    return any(map(_is_spoken, text))


def _next_spoken(text: str, start: int) -> int:
    """The index of the next letter or digit, or the length of the text."""
    return next((index for index in range(start, len(text)) if _is_spoken(text[index])), len(text))


def _is_spoken(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def _merge_silent(parts: list[str], between: str) -> list[str]:
    merged: list[str] = []
    for part in parts:
        if merged and not (has_words(part) and has_words(merged[-1])):
            merged[-1] += between + part
        else:
            merged.append(part)
    return merged


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Returns whether the marks of a match end the sentence that began at `start`."""
    # Marks of these scripts are never part of an abbreviation.
    if any(mark in _WIDE for mark in match[0]):
        return True

    before = text[match.start() - 1 : match.start()]
    behind = _BEFORE_WORD.match(text, match.end())
    following = text[behind.end() : behind.end() + 1] if behind else ""
    numeral = _NUMERAL.match(text, behind.end()) if behind else None
    if not text[match.end() : match.end() + 1].isspace():  # 你好!世界 needs no space, a.b does
        return _is_ideograph(before) and _is_ideograph(following)
    if following.islower() or following in tuple(_NARROW):  # of ". . ." the last one decides
        return False
    if match[0] != ".":  # no abbreviation ends in anything else
        return True

    near = max(start, match.start() - _NEAR)
    last_word = _LAST_WORD.search(text, near, match.start())
    word = last_word[0] if last_word else ""
    earlier = text[near : match.start() - len(word)].split()
    return not _is_abbreviation(word, numeral is not None, earlier[-1] if earlier else "")


def _is_abbreviation(word: str, before_number: bool, earlier: str) -> bool:
    """Returns whether a full stop behind a word belongs to the word.

    Args:
      before_number: whether the next word begins with a digit, or is a Roman numeral.
      earlier: the word before, of the same sentence.
    """
    lower = word.lower()

    if lower in NEVER_FINAL or (lower in BEFORE_NUMBERS and before_number):
        return True
    if word.isdecimal():  # 1. First, 2. Second
        return len(word) <= 3 and not has_words(earlier)
    if len(word) == 1 and word.isalpha():  # an initial, or z. B.; "you and I." has none
        return not (word == "I" and earlier.islower())
    return bool(_LETTERS_WITH_DOTS.fullmatch(word)) and lower not in ("a.m", "p.m")


def _is_ideograph(character: str) -> bool:
    return bool(character) and unicodedata.category(character) == "Lo"

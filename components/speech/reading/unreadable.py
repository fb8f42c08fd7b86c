"""What no reading has a sound for, named so that a person finds it."""

import unicodedata
from collections.abc import Iterable

NAMED, SHOWN = 10, 120
"""How many characters, and how much of their text, a message holds: a text may be a whole book."""


class Unreadable(ValueError):  # noqa: N818 - an answer more than an error; callers make theirs of it
    """A text that cannot be read, with what of it, and what is accepted, in words."""


class Wordless(Unreadable):
    """A text in which there is nothing to say: punctuation alone."""


def refusal(characters: Iterable[str], text: str, accepted: str) -> Unreadable:
    """The error for characters of a text, each named once.

    >>> print(refusal("☃☃", "snow ☃☃", "latin letters are accepted"))
    '☃' (U+2603 SNOWMAN) in 'snow ☃☃' has no sound; latin letters are accepted
    """
    unknown = list(dict.fromkeys(characters))
    named = ", ".join(f"{one!r} (U+{ord(one):04X} {unicodedata.name(one, 'unnamed')})" for one in unknown[:NAMED])
    more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
    have = "has" if len(unknown) == 1 else "have"
    return Unreadable(f"{named}{more} in {shown(text)} {have} no sound; {accepted}")


def shown(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")

"""How a person's consent is written: that of a caller whose speech is kept, or of one whose voice is made."""

import re

CONSENT = re.compile(r"yes(:(?P<terms>[a-z][a-z0-9]*([._-][a-z0-9]+)*))?", re.IGNORECASE)
"""`yes`, or `yes:` and the terms that the caller agreed to; see `is_consent`."""
REFUSALS = frozenset((
    "decline", "declined", "denied", "deny", "false", "never", "nein", "no", "non", "none", "not", "null", "off", "out",
    "refuse", "refused", "revoked", "undefined", "unknown", "without", "withdrawn",
))  # fmt: skip
"""Words that no name of terms may have: `yes:no`, `yes:opt-out-2`."""
_MOST_CHARACTERS = 64


def is_consent(text: str) -> bool:
    """Returns whether a person agreed: `yes`, or `yes:` and the name of the terms.

    The name has a digit, of its version or date, since only terms of a version say what a caller agreed to. It has none
    of the words of a refusal.

    >>> [is_consent(text) for text in ("yes", "yes:terms-2026", "yes:terms", "yes:no", "yes:opt-out-2", "true")]
    [True, True, False, False, False, False]
    """
    match = CONSENT.fullmatch(text)
    if match is None or len(text) > _MOST_CHARACTERS:
        return False

    terms = match["terms"]
    if terms is None:
        return True
    return any(map(str.isdigit, terms)) and REFUSALS.isdisjoint(re.split(r"[._-]", terms.lower()))


def names_terms(text: str) -> bool:
    """Returns whether a person agreed, and to which terms: what a voice needs.

    >>> [names_terms(text) for text in ("yes:voice-terms-2026", "yes", "yes:no", "")]
    [True, False, False, False]
    """
    return is_consent(text) and ":" in text

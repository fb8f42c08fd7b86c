"""What a voice can speak: some words, in its own symbols, not too long; all else is refused by name."""

import dataclasses
import unicodedata

from voxline.errors import SettingsError
from voxline.text.alphabet import Alphabet

MAX_SYMBOLS = 1_000
"""The longest text that is spoken at once: more than a minute of speech, which no voice here was taught. Whether a
voice comes to the end of a shorter one, its limit on decoder steps shows (`hit_limit`)."""

MAX_CHARACTERS = 4 * MAX_SYMBOLS
"""Characters of text; numbers and abbreviations grow when they are read, so a longer one is not even looked at."""

MAX_QUOTED = 60
"""Characters of a text that a message shows."""

WHITESPACE_CONTROLS = "\t\n\r\v\f"
"""Control characters that are no more than a space."""


@dataclasses.dataclass(frozen=True)
class TextLimits:
    """The limits of one voice, by the symbols that it reads."""

    alphabet: Alphabet

    def check_text(self, text: str) -> None:
        """Refuses what no reading needs to look at.

        Raises:
          SettingsError: naming what is wrong with it.
        """
        control = next((place for place, mark in enumerate(text) if _is_control(mark)), None)
        if control is not None:
            raise SettingsError(
                f"the text {quote_text(text)} holds the control character U+{ord(text[control]):04X} at place "
                f"{control + 1}; remove it"
            )
        if not text.strip():
            raise SettingsError("the text is empty; give some words to speak")
        if not any(unicodedata.category(mark)[0] in "LN" for mark in text):
            raise SettingsError(
                f"the text {quote_text(text)} holds no letter and no digit, so there is nothing to speak"
            )
        if len(text) > MAX_CHARACTERS:
            raise _too_long(text, f"{len(text):,} characters")

    def check_symbols(self, symbols: str, text: str) -> None:
        """Refuses what was read from a text and cannot be spoken.

        Raises:
          SettingsError: naming what is wrong with it.
        """
        if not any(unicodedata.category(mark)[0] in "LN" for mark in symbols):
            raise SettingsError(
                f"the text {quote_text(text)} leaves nothing to speak; it was read as {quote_text(symbols)}"
            )
        if fault := self.alphabet.fault(symbols):
            raise SettingsError(f"the voice cannot read the text {quote_text(text)}: {fault}")

    def check_length(self, symbols: str, text: str) -> None:
        """Refuses what is too much for one go. Not of a test split: what was recorded is measured, however long.

        Raises:
          SettingsError: naming both lengths.
        """
        if len(symbols) > MAX_SYMBOLS:
            raise _too_long(text, f"{len(symbols):,} symbols")


def _too_long(text: str, length: str) -> SettingsError:
    return SettingsError(
        f"the text {quote_text(text)} is too long: {length}, and at most {MAX_SYMBOLS:,} symbols are spoken at once; "
        "part it into sentences"
    )


def quote_text(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")


def _is_control(mark: str) -> bool:
    return unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Co", "Cn") and mark not in WHITESPACE_CONTROLS

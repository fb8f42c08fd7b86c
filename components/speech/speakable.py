"""What a voice can speak: some words, in its own symbols, short enough for its decoder; all else is refused by name."""

import dataclasses
import unicodedata
from typing import Any, Self

from components.speech.errors import SettingsError
from components.speech.text import Alphabet

QUICKEST = 25
"""Symbols a second; the quickest speakers stay under it, so a longer text cannot be spoken within the limit."""

LONGEST_RAW = 4
"""Characters of text for each symbol that the voice may read: a longer text is not even looked at."""

SHOWN = 60
"""Characters of a text that a message shows."""

WHITE = "\t\n\r\v\f"
"""Control characters that are no more than a space."""


@dataclasses.dataclass(frozen=True)
class Speakable:
    """The limits of one voice.

    Attributes:
      most_symbols: the longest text that `max_steps` decoder steps could still speak.
    """

    alphabet: Alphabet
    max_steps: int
    most_symbols: int

    @classmethod
    def of(cls, about: dict[str, Any], alphabet: Alphabet) -> Self:
        """By what `model.json` says: a step does not speak more than a symbol, nor a second more than `QUICKEST`."""
        steps, seconds = int(about["max_steps"]), about["settings"].get("max_seconds")
        return cls(alphabet, steps, min(steps, round(QUICKEST * float(seconds))) if seconds else steps)

    def check_text(self, text: str) -> None:
        """Refuses what no reading needs to look at.

        Raises:
          SettingsError: naming what is wrong with it.
        """
        control = next((place for place, mark in enumerate(text) if _is_control(mark)), None)
        if control is not None:
            raise SettingsError(
                f"the text {shown(text)} holds the control character U+{ord(text[control]):04X} at place "
                f"{control + 1}; remove it"
            )
        if not text.strip():
            raise SettingsError("the text is empty; give some words to speak")
        if not any(unicodedata.category(mark)[0] in "LN" for mark in text):
            raise SettingsError(f"the text {shown(text)} holds no letter and no digit, so there is nothing to speak")
        if len(text) > LONGEST_RAW * self.most_symbols:
            raise self._too_long(text, f"{len(text):,} characters")

    def check_symbols(self, symbols: str, text: str) -> None:
        """Refuses what was read from a text and cannot be spoken.

        Raises:
          SettingsError: naming what is wrong with it.
        """
        if not any(unicodedata.category(mark)[0] in "LN" for mark in symbols):
            raise SettingsError(f"the text {shown(text)} leaves nothing to speak; it was read as {shown(symbols)}")
        if fault := self.alphabet.fault(symbols):
            raise SettingsError(f"the voice cannot read the text {shown(text)}: {fault}")
        if len(symbols) > self.most_symbols:
            raise self._too_long(text, f"{len(symbols):,} symbols")

    def _too_long(self, text: str, length: str) -> SettingsError:
        return SettingsError(
            f"the text {shown(text)} is too long: {length}, and the voice speaks at most {self.most_symbols:,} "
            f"symbols at once ({self.max_steps:,} decoder steps); part it into sentences"
        )


def shown(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _is_control(mark: str) -> bool:
    return unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Co", "Cn") and mark not in WHITE

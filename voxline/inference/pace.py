"""The length of speech against that of its text: speech that stops at once is as wrong as speech that never ends.

Settings need it too, so it imports nothing of the network.
"""

import dataclasses
from typing import Literal

from voxline.errors import SettingsError

PaceFault = Literal["", "too_short", "too_long"]
"""Of speech that stopped at once, or went on after its text."""
PAUSES_SECONDS = 2.0
"""Of silence at the ends of a sentence and within, beside the time of its symbols."""
HANZI_SYMBOLS = 3
"""Letters that a hanzi stands for, where the symbols are hanzi and no pinyin."""

LEAST_SYMBOLS = 3
"""Letters of the shortest text: the name of one letter takes as long."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """The time that a letter, digit or phoneme takes, by which speech that stops at once shows.

    Of 3,565 recordings (FSDD, the prompts of Asterisk, LJSpeech and LibriSpeech) the fastest have 0.036 s a letter, and
    none has more than 1.1 s and 0.3 s a letter: the defaults are half of the one, and a second beyond the other.

    Attributes:
      min_symbol_seconds: of speech; less of it stopped before its text was said.
      max_symbol_seconds: of speech without `PAUSES_SECONDS`; more of it went on.
    """

    min_symbol_seconds: float = 0.02
    max_symbol_seconds: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.min_symbol_seconds < self.max_symbol_seconds:
            raise SettingsError(
                f"seconds a symbol: from {self.min_symbol_seconds:g} to {self.max_symbol_seconds:g}; give 0 or more, "
                "and then a larger number"
            )

    def fault(self, symbols: str, seconds: float) -> PaceFault:
        """Names the fault of the length of speech.

        >>> Pace().fault("hello there", 0.025), Pace().fault("hello there", 0.9), Pace().fault("ok", 9.0)
        ('too_short', '', 'too_long')
        """
        spoken = sum(HANZI_SYMBOLS if "\u3400" <= symbol <= "\u9fff" else symbol.isalnum() for symbol in symbols)
        if spoken and seconds < max(spoken, LEAST_SYMBOLS) * self.min_symbol_seconds:
            return "too_short"
        return "too_long" if seconds > spoken * self.max_symbol_seconds + PAUSES_SECONDS else ""


USUAL_PACE = Pace()

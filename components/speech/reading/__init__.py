"""Reading: a text becomes the symbols that a model reads, and the words that a listener should hear.

It happens once, when a corpus is converted, and again in the same way for each text that a voice is given.
"""

import dataclasses
import unicodedata

from components.speech.reading.settings import ReadingSettings
from components.speech.reading.unreadable import Unreadable
from components.speech.text import normalise

__all__ = ["Read", "Unreadable", "read"]


@dataclasses.dataclass(frozen=True)
class Read:
    """A text, read.

    Attributes:
      symbols: what the model reads, in normal form C, one code point a symbol.
      spoken: the words that are heard, lower case, without punctuation; of Mandarin, syllables with tone digits.
    """

    symbols: str
    spoken: str


def read(text: str, settings: ReadingSettings) -> Read:
    """Reads a text.

    >>> read("Well, THEN!", ReadingSettings())
    Read(symbols='well then', spoken='well then')

    Raises:
      Unreadable: naming the characters that this reading has no sound for.
    """
    if settings.kind == "transcript":
        words = normalise(text)
        return Read(words, words)
    text = unicodedata.normalize("NFC", text)
    return Read(text, text)

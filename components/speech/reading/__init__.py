"""Reading: a text becomes the symbols that a model reads, and the words that a listener should hear.

It happens once, when a corpus is converted, and again in the same way for each text that a voice is given.
"""

import dataclasses
import unicodedata

from components.speech.reading.settings import ReadingSettings
from components.speech.reading.unreadable import Unreadable, Wordless
from components.speech.text import normalise

__all__ = ["Read", "Unreadable", "Wordless", "read"]


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
      Wordless: there is nothing to say in it.
    """
    if settings.kind == "transcript":
        words = normalise(text)
        return Read(words, words)
    if settings.kind == "as_is":
        text = unicodedata.normalize("NFC", text)
        return Read(text, text)
    if settings.kind in ("mandarin", "pinyin"):
        return _mandarin(text, settings)
    from components.speech.reading.english import english, heard
    from components.speech.reading.phonemes import phonemes

    words = english(text)
    return Read(words if settings.kind == "english" else phonemes(words), heard(words))


def _mandarin(text: str, settings: ReadingSettings) -> Read:
    from components.speech.reading.mandarin import mandarin
    from components.speech.reading.pinyin import heard, pinyin

    symbols = mandarin(text, settings.sandhi) if settings.kind == "mandarin" else pinyin(text)
    return Read(symbols, heard(symbols))

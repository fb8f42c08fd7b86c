"""Reading: a text becomes the symbols that a model reads, and the words that a listener should hear.

It happens once, when a corpus is converted, and again in the same way for each text that a voice is given.
"""

import dataclasses
import unicodedata
from importlib.metadata import version

from voxline.text.alphabet import normalise
from voxline.text.settings import Kind, ReadingSettings, Unreadable, Wordless

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
    from voxline.text.english import english, heard
    from voxline.text.phonemes import phonemes

    words = english(text)
    return Read(words if settings.kind == "english" else phonemes(words), heard(words))


def _mandarin(text: str, settings: ReadingSettings) -> Read:
    from voxline.text.mandarin import mandarin
    from voxline.text.pinyin import heard, pinyin

    symbols = mandarin(text, settings.sandhi) if settings.kind == "mandarin" else pinyin(text)
    return Read(symbols, heard(symbols))


REVISION = 1
"""Raised whenever our own rules read a text otherwise than before."""

_LIBRARIES: dict[Kind, tuple[str, ...]] = {
    "english": ("inflect",),
    "english_phonemes": ("inflect", "espeakng-loader"),
    "mandarin": ("pypinyin",),
    "pinyin": ("pypinyin",),
}


def made_by(settings: ReadingSettings) -> dict[str, int | str]:
    """The versions that decide how a text is read; empty where it is only put into its normal form.

    >>> made_by(ReadingSettings())
    {}
    >>> sorted(made_by(ReadingSettings(kind="mandarin")))
    ['pypinyin', 'revision']
    """
    libraries = _LIBRARIES.get(settings.kind, ())
    return {"revision": REVISION, **{name: version(name) for name in libraries}} if libraries else {}

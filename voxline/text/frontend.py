"""The text frontend: turns a text into the symbols that a model reads, and into the words that a listener should hear.

convert applies it to the corpus, and a TTS model applies the same frontend to each text that it speaks.
"""

import dataclasses
import unicodedata
from importlib.metadata import version

from voxline.text.alphabet import normalize_transcript
from voxline.text.settings import EmptyText, FrontendKind, FrontendSettings, UnsupportedText

__all__ = ["EmptyText", "FrontendOutput", "UnsupportedText", "apply_frontend"]

REVISION = 1
"""Increase it when our own rules change the symbols of any text."""

_LIBRARIES: dict[FrontendKind, tuple[str, ...]] = {
    "english": ("inflect",),
    "english_phonemes": ("inflect", "espeakng-loader"),
    "mandarin": ("pypinyin",),
    "pinyin": ("pypinyin",),
}


@dataclasses.dataclass(frozen=True)
class FrontendOutput:
    """What the frontend makes of a text.

    Attributes:
      symbols: the model input, Unicode NFC, one code point a symbol.
      normalized_text: the words to hear, lower case, without punctuation; for Mandarin, syllables with tone digits.
    """

    symbols: str
    normalized_text: str


def apply_frontend(text: str, settings: FrontendSettings) -> FrontendOutput:
    """Applies the frontend to a text.

    >>> apply_frontend("Well, THEN!", FrontendSettings())
    FrontendOutput(symbols='well then', normalized_text='well then')

    Raises:
      UnsupportedText: some characters have no sound in this kind of frontend.
      EmptyText: the text has no words.
    """
    if settings.kind == "transcript":
        words = normalize_transcript(text)
        return FrontendOutput(words, words)
    if settings.kind == "as_is":
        text = unicodedata.normalize("NFC", text)
        return FrontendOutput(text, text)
    if settings.kind in ("mandarin", "pinyin"):
        return _mandarin(text, settings)
    from voxline.text.english import english_words, normalize_english
    from voxline.text.phonemes import phonemize

    words = normalize_english(text)
    return FrontendOutput(words if settings.kind == "english" else phonemize(words), english_words(words))


def _mandarin(text: str, settings: FrontendSettings) -> FrontendOutput:
    from voxline.text.mandarin import hanzi_to_pinyin
    from voxline.text.pinyin import normalize_pinyin, pinyin_syllables

    symbols = hanzi_to_pinyin(text, settings.sandhi) if settings.kind == "mandarin" else normalize_pinyin(text)
    return FrontendOutput(symbols, pinyin_syllables(symbols))


def frontend_version(settings: FrontendSettings) -> dict[str, int | str]:
    """The versions that the frontend's output depends on; empty if the text is only normalized.

    >>> frontend_version(FrontendSettings())
    {}
    >>> sorted(frontend_version(FrontendSettings(kind="mandarin")))
    ['pypinyin', 'revision']
    """
    libraries = _LIBRARIES.get(settings.kind, ())
    return {"revision": REVISION, **{name: version(name) for name in libraries}} if libraries else {}

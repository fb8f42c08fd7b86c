"""Text in, the symbols that a TTS model reads out; text that it cannot speak is refused.

`model.json` alone decides, so a text is refused before TensorFlow is imported.
"""

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError
from voxline.inference.saved_model import exported_folder, read_model_json, require_family
from voxline.text.alphabet import Alphabet, UnsupportedText, quote_text
from voxline.text.frontend import FrontendOutput, apply_frontend
from voxline.text.settings import FrontendSettings

MAX_SYMBOLS = 1_000
"""Longest text to synthesize at once: over a minute of speech, longer than any training utterance. Whether a model
reaches the end of a shorter text, its limit on decoder steps shows (`hit_limit`)."""

MAX_CHARACTERS = 4 * MAX_SYMBOLS
"""Longest text before the frontend, which expands numbers and abbreviations; a longer one is refused unread."""

WHITESPACE_CONTROLS = "\t\n\r\v\f"
"""Control characters that count as a space."""


class TextEncoder:
    """Applies a TTS model's text frontend, within the model's limits.

    Args:
      about: the contents of `model.json`.
      source: the model's folder, for messages.
    """

    def __init__(self, about: Mapping[str, Any], source: Path | str) -> None:
        self.alphabet = Alphabet(about["alphabet"])
        self.frontend = FrontendSettings.of(about["frontend"], str(source))

    @classmethod
    def of_model(cls, model: Path | str) -> "TextEncoder":
        """The encoder of an exported TTS model.

        Raises:
          WorkError: it is damaged, or of another family.
        """
        folder = exported_folder(model)
        about = read_model_json(folder)
        require_family(about, "tts", folder)
        return cls(about, folder)

    def encode(self, text: str) -> FrontendOutput:
        """Applies the frontend that the training data went through.

        Raises:
          SettingsError: the text is empty or too long, or holds characters that the model cannot read.
        """
        _check_text(text)
        try:
            encoded = apply_frontend(" ".join(text.split()), self.frontend)
        except UnsupportedText as unreadable:
            raise SettingsError(f"the text {quote_text(text)} cannot be read: {unreadable}") from None
        self.check_symbols(encoded.symbols, text)
        if len(encoded.symbols) > MAX_SYMBOLS:
            raise _too_long(text, f"{len(encoded.symbols):,} symbols")
        return encoded

    def check_symbols(self, symbols: str, text: str = "") -> None:
        """Refuses symbols that the model cannot speak. Any length passes: a test split is measured as recorded.

        Args:
          symbols: the frontend's output, such as `text` of a converted manifest.
          text: the frontend's input, for the message.

        Raises:
          SettingsError: naming the character, or that no letter and no digit is left.
        """
        text = text or symbols
        if not _has_words(symbols):
            raise SettingsError(
                f"the text {quote_text(text)} leaves nothing to speak; it was read as {quote_text(symbols)}"
            )
        if unknown := self.alphabet.describe_unknown(symbols):
            raise SettingsError(f"the model cannot read the text {quote_text(text)}: {unknown}")


def _check_text(text: str) -> None:
    control = next((index for index, character in enumerate(text) if _is_control(character)), None)
    if control is not None:
        raise SettingsError(
            f"the text {quote_text(text)} holds the control character U+{ord(text[control]):04X} at position "
            f"{control + 1}; remove it"
        )
    if not text.strip():
        raise SettingsError("the text is empty; give some words to speak")
    if not _has_words(text):
        raise SettingsError(f"the text {quote_text(text)} holds no letter and no digit, so there is nothing to speak")
    if len(text) > MAX_CHARACTERS:
        raise _too_long(text, f"{len(text):,} characters")


def _too_long(text: str, length: str) -> SettingsError:
    return SettingsError(
        f"the text {quote_text(text)} is too long: {length}; at most {MAX_SYMBOLS:,} symbols are synthesized at once; "
        "split it into sentences"
    )


def _has_words(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") and character not in WHITESPACE_CONTROLS

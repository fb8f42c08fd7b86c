"""Text or SSML in, the symbols that a TTS model reads out; text that it cannot speak is refused.

`model.json` alone decides, so a text is refused before TensorFlow is imported.
"""

import dataclasses
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError
from voxline.inference.saved_model import exported_folder, read_model_json, require_family
from voxline.text.alphabet import Alphabet, UnsupportedText, quote_text
from voxline.text.frontend import FrontendOutput, apply_frontend, part_symbols, phoneme_symbols
from voxline.text.settings import FrontendSettings
from voxline.text.ssml import Document, Pause, Span, SsmlSentence, is_ssml, parse_ssml

MAX_SYMBOLS = 1_000
"""Longest text to synthesize at once: over a minute of speech, longer than any training utterance. Whether a model
reaches the end of a shorter text, its limit on decoder steps shows (`hit_limit`)."""

MAX_CHARACTERS = 4 * MAX_SYMBOLS
"""Longest text before the frontend, which expands numbers and abbreviations; a longer one is refused unread."""

WHITESPACE_CONTROLS = "\t\n\r\v\f"
"""Control characters that count as a space."""


_PUNCTUATED = ("english", "english_phonemes", "mandarin", "pinyin")
"""Frontends whose symbols have marks, the last of which says where to stop."""
_MARKS, _FINAL_MARKS = ".,;:!?", ".!?"


@dataclasses.dataclass(frozen=True)
class EncodedSentence:
    """What is spoken in one go.

    Attributes:
      symbols: the model's input.
      rates: of each symbol; 2 is twice as fast.
    """

    symbols: str
    rates: tuple[float, ...]


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

    def encode_speech(self, text: str) -> list[EncodedSentence | Pause]:
        """A text as `encode` reads it, or an SSML document as `parse_ssml` does: sentences and pauses, in order.

        Raises:
          SettingsError: as `encode`; or the document is not understood, or in another language than the voice's.
        """
        if not is_ssml(text):
            symbols = self.encode(text).symbols
            return [EncodedSentence(symbols, (1.0,) * len(symbols))]
        document = parse_ssml(text)
        self._check_languages(document)
        return [item if isinstance(item, Pause) else self._encode_sentence(item) for item in document.items]

    def _check_languages(self, document: Document) -> None:
        own = next((language for language in ("english", "mandarin") if self.frontend.kind.startswith(language)), "")
        own = "mandarin" if self.frontend.kind == "pinyin" else own
        accepted = {"english": ("en",), "mandarin": ("zh", "cmn")}.get(own, ())
        for language, line in document.languages:
            if accepted and language.lower().split("-")[0] not in accepted:
                raise SettingsError(f'SSML, line {line}: xml:lang="{language[:40]}", and this voice speaks {own} alone')

    def _encode_sentence(self, sentence: SsmlSentence) -> EncodedSentence:
        symbols, rates = "", list[float]()
        for span in sentence.spans:
            part = self._encode_span(span)
            if self.frontend.kind in _PUNCTUATED:
                if not symbols or symbols[-1] in _MARKS:  # a sentence begins with a word, and one mark is enough
                    part = part.lstrip(f" {_MARKS}-" if not symbols else f" {_MARKS}")
                if symbols and part and part[0] not in _MARKS:
                    part = f" {part}"
            elif self.frontend.kind == "as_is":
                part = part if symbols[-1:].strip() else part.lstrip()  # at the beginning, or after a space
            elif symbols and part:
                part = f" {part}"
            symbols += part
            rates += [span.rate] * len(part)
        if self.frontend.kind in _PUNCTUATED and symbols[-1:] not in (*_FINAL_MARKS, ""):
            symbols = symbols.rstrip(" ,;:-") + "."
        symbols = symbols.rstrip() if self.frontend.kind == "as_is" else symbols
        text = "".join(span.text for span in sentence.spans).strip()
        first = sentence.spans[0].line
        try:
            self.check_symbols(symbols, text)
        except SettingsError as error:
            raise SettingsError(f"SSML, line {first}: {error}") from None
        if len(symbols) > MAX_SYMBOLS:
            raise SettingsError(f"SSML, line {first}: {_too_long(text, f'{len(symbols):,} symbols')} with <s>")
        rates += rates[-1:] * (len(symbols) - len(rates))
        return EncodedSentence(symbols, tuple(rates[: len(symbols)]))

    def _encode_span(self, span: Span) -> str:
        try:
            if span.phonemes:
                return phoneme_symbols(span.phonemes, span.alphabet, self.frontend)
            if (control := _find_control(span.text)) is not None:
                raise UnsupportedText(f"it holds the control character U+{ord(span.text[control]):04X}; remove it")
            if len(span.text) > MAX_CHARACTERS:
                raise _too_long(span.text, f"{len(span.text):,} characters")
            if self.frontend.kind == "as_is":
                return part_symbols(_collapse(span.text), self.frontend)
            return part_symbols(" ".join(span.text.split()), self.frontend)
        except UnsupportedText as unreadable:
            raise SettingsError(f"SSML, line {span.line}: {quote_text(span.text)}: {unreadable}") from None

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
    if (control := _find_control(text)) is not None:
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


def _find_control(text: str) -> int | None:
    return next((index for index, character in enumerate(text) if _is_control(character)), None)


def _collapse(text: str) -> str:
    """White space as single spaces, at the ends too."""
    words = " ".join(text.split())
    return f"{' ' * text[:1].isspace()}{words}{' ' * (text[-1:].isspace() and bool(words))}"


def _too_long(text: str, length: str) -> SettingsError:
    return SettingsError(
        f"the text {quote_text(text)} is too long: {length}; at most {MAX_SYMBOLS:,} symbols are synthesized at once; "
        "split it into sentences"
    )


def _has_words(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") and character not in WHITESPACE_CONTROLS

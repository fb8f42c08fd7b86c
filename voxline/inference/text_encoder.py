"""Text or SSML in, the symbols that a TTS model reads out; text that it cannot speak is refused.

`model.json` alone decides, so a text is refused before TensorFlow is imported. A long text is cut at its sentences, and
a sentence that is too long at a clause or a space.
"""

import dataclasses
import math
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from voxline.errors import SettingsError
from voxline.inference.saved_model import exported_folder, read_model_info, require_family
from voxline.text.alphabet import Alphabet, UnsupportedText, quote_text
from voxline.text.frontend import FrontendOutput, apply_frontend, part_symbols, phoneme_symbols
from voxline.text.sentences import cut_point, cut_to, has_words, sentence_ends, split_paragraphs, split_sentences
from voxline.text.settings import FrontendSettings
from voxline.text.ssml import (
    BREAK_SECONDS,
    PARAGRAPH_PAUSE,
    SENTENCE_PAUSE,
    Document,
    Pause,
    Span,
    SsmlSentence,
    is_ssml,
    parse_ssml,
)

MAX_SYMBOLS = 1_000
"""Longest text to synthesize at once: over a minute of speech, longer than any training utterance. Whether a model
reaches the end of a shorter text, its limit on decoder steps shows (`hit_limit`)."""

MAX_CHARACTERS = 4 * MAX_SYMBOLS
"""Longest sentence before the frontend, which expands numbers and abbreviations."""

MAX_TEXT_CHARACTERS = 500_000
"""Longest text that is cut at its sentences: about ten hours of speech. A longer one is refused unread."""

CLAUSE_PAUSE = BREAK_SECONDS["x-weak"]
"""Seconds where a sentence that is too long is cut at a mark; at a space there is none."""

WHITESPACE_CONTROLS = "\t\n\r\v\f"
"""Control characters that count as a space."""


_PUNCTUATED = ("english", "english_phonemes", "phonemes", "mandarin", "pinyin")
"""Frontends whose symbols have marks, the last of which says where to stop."""
_MARKS = ".,;:!?"
_FINAL_MARKS = ".!?"

AT_ONCE = f"at most {MAX_SYMBOLS:,} symbols are synthesized at once; split it into sentences"

Refusal = Literal["empty", "unknown_characters", "too_long", "ssml"]


class RefusedTextError(SettingsError):
    """A text that a voice cannot speak.

    Attributes:
      reason: why, for programs; the message is for people.
    """

    def __init__(self, message: str, reason: Refusal) -> None:
        super().__init__(message)
        self.reason: Refusal = reason


@dataclasses.dataclass(frozen=True)
class EncodedSentence:
    """A sentence that is spoken in one go.

    Attributes:
      symbols: the model's input.
      rates: of each symbol; 2 is twice as fast.
    """

    symbols: str
    rates: tuple[float, ...]


class TextEncoder:
    """Applies a TTS model's text frontend, within the model's limits.

    Args:
      info: the contents of `model.json`.
      source: the model's folder, for messages.
    """

    def __init__(self, symbols: Sequence[str], frontend: Mapping[str, Any], source: Path | str) -> None:
        self.alphabet = Alphabet(symbols)
        self.frontend = FrontendSettings.of(dict(frontend), str(source))

    @classmethod
    def of_model(cls, model: Path | str) -> "TextEncoder":
        """The encoder of an exported TTS model.

        Raises:
          WorkError: it is damaged, or of another family.
        """
        folder = exported_folder(model)
        info = read_model_info(folder)
        require_family(info, "tts", folder)
        return cls(info.alphabet, info.frontend, folder)

    def encode(self, text: str) -> FrontendOutput:
        """Applies the frontend that the training data went through, to a text that is spoken in one go.

        Raises:
          RefusedTextError: the text is empty or too long, or holds characters that the model cannot read.
        """
        # The length before the frontend bounds its work, since numbers and abbreviations grow there.
        _check_text(text, MAX_CHARACTERS, AT_ONCE)
        encoded = self._apply_frontend(text)
        if len(encoded.symbols) > MAX_SYMBOLS:
            raise _too_long(text, f"{len(encoded.symbols):,} symbols", AT_ONCE)
        return encoded

    def encode_speech(self, text: str) -> list[EncodedSentence | Pause]:
        """A text, or an SSML document as `parse_ssml` reads it: sentences and pauses, in order.

        Between two sentences of a text, and two paragraphs (with an empty line between them), is the pause that SSML
        has there. A sentence of more than MAX_SYMBOLS is cut as `halve` does.

        Raises:
          RefusedTextError: as `encode`; or the document is not understood, or in another language than the voice's.
        """
        items: list[EncodedSentence | Pause] = []
        if is_ssml(text):
            try:
                document = parse_ssml(text)
                self._check_languages(document)
            except SettingsError as error:
                raise RefusedTextError(str(error), "ssml") from None
            for item in document.items:
                items += [item] if isinstance(item, Pause) else self._encode_ssml(item)
            return items

        # Plain text from here on.
        _check_text(text, MAX_TEXT_CHARACTERS, f"at most {MAX_TEXT_CHARACTERS:,} characters are accepted; split it")
        for paragraph in split_paragraphs(text):
            for number, sentence in enumerate(split_sentences(paragraph)):
                # The pause of a paragraph before its first sentence, that of a sentence before the others.
                items += [Pause(SENTENCE_PAUSE if number else PARAGRAPH_PAUSE)] if items else []
                for part in cut_to(sentence, MAX_CHARACTERS):
                    symbols = self._apply_frontend(part).symbols if has_words(part) else ""
                    items += self._within_limit(EncodedSentence(symbols, (1.0,) * len(symbols)))
        return items

    def halve(self, sentence: EncodedSentence) -> list[EncodedSentence | Pause]:
        """A sentence in two, for a voice that does not reach its end: cut at a clause or a space near its middle.

        At a mark there is a short pause. A part without words is left out. Empty: it is a single symbol.
        """
        symbols = sentence.symbols
        if len(symbols) < 2:
            return []
        place = cut_point(symbols)
        halves = [
            self._trimmed(symbols[part], sentence.rates[part], first=part.start is None)
            for part in (slice(None, place), slice(place, None))
        ]
        parts: list[EncodedSentence | Pause] = [half for half in halves if has_words(half.symbols)]

        # The mark itself was trimmed from the first half, so it is looked up in the whole.
        if len(parts) == 2 and unicodedata.category(symbols[:place].rstrip()[-1])[0] == "P":
            parts.insert(1, Pause(CLAUSE_PAUSE))
        return parts

    def _trimmed(self, symbols: str, rates: tuple[float, ...], *, first: bool) -> EncodedSentence:
        """A half of a sentence as one of its own: without white space and marks at the cut, with a final mark."""
        marks = f" {_MARKS}-" if self.frontend.kind in _PUNCTUATED else " "
        trimmed = symbols if first else symbols.lstrip(marks)
        rates = rates[len(symbols) - len(trimmed) :]
        if self.frontend.kind in _PUNCTUATED:
            trimmed = _end_sentence(trimmed.rstrip())
        trimmed = trimmed.rstrip()
        # A mark that was added is spoken at the rate of the symbol before it.
        return EncodedSentence(trimmed, (*rates, *rates[-1:])[: len(trimmed)])

    def _within_limit(self, sentence: EncodedSentence) -> list[EncodedSentence | Pause]:
        if len(sentence.symbols) <= MAX_SYMBOLS:
            return [sentence] if sentence.symbols else []
        parts: list[EncodedSentence | Pause] = []
        for half in self.halve(sentence):
            parts += [half] if isinstance(half, Pause) else self._within_limit(half)
        return parts

    def _apply_frontend(self, text: str) -> FrontendOutput:
        try:
            encoded = apply_frontend(" ".join(text.split()), self.frontend, self.alphabet.characters)
        except UnsupportedText as unreadable:
            message = f"the text {quote_text(text)} cannot be read: {unreadable}"
            raise RefusedTextError(message, "unknown_characters") from None
        self.check_symbols(encoded.symbols, text)
        return encoded

    def _check_languages(self, document: Document) -> None:
        # "english_phonemes" is English too; pinyin is a spelling of Mandarin.
        own = next((language for language in ("english", "mandarin") if self.frontend.kind.startswith(language)), "")
        own = "mandarin" if self.frontend.kind == "pinyin" else own
        accepted = {"english": ("en",), "mandarin": ("zh", "cmn")}.get(own, ())
        if self.frontend.kind == "phonemes":
            own = self.frontend.language
            accepted = (own.split("-")[0],)
        for language, line in document.languages:
            if accepted and language.lower().split("-")[0] not in accepted:
                raise SettingsError(f'SSML, line {line}: xml:lang="{language[:40]}", and this voice speaks {own} alone')

    def _encode_ssml(self, sentence: SsmlSentence) -> list[EncodedSentence | Pause]:
        """Encodes the text between two breaks or elements, cut at sentence ends unless the document marks one."""
        items: list[EncodedSentence | Pause] = []
        for spans in [sentence.spans] if sentence.marked else _split_spans(sentence.spans):
            items += [Pause(SENTENCE_PAUSE)] if items else []
            items += self._within_limit(self._encode_sentence(spans))
        return items

    def _encode_sentence(self, spans: Sequence[Span]) -> EncodedSentence:
        symbols = ""
        rates = list[float]()
        for span in spans:
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
        if self.frontend.kind in _PUNCTUATED:
            symbols = _end_sentence(symbols)
        symbols = symbols.rstrip() if self.frontend.kind == "as_is" else symbols
        text = "".join(span.text for span in spans).strip()

        # White space at the end was taken off, or a mark was added: one rate for each symbol again.
        try:
            self.check_symbols(symbols, text)
        except RefusedTextError as error:
            raise RefusedTextError(f"SSML, line {spans[0].line}: {error}", error.reason) from None
        rates += rates[-1:] * (len(symbols) - len(rates))
        return EncodedSentence(symbols, tuple(rates[: len(symbols)]))

    def _encode_span(self, span: Span) -> str:
        try:
            if span.phonemes:
                return phoneme_symbols(span.phonemes, span.alphabet, self.frontend, is_possessive=span.is_possessive)
            # A document may hold them as references, which XML decodes.
            if (control := _find_control(span.text)) is not None:
                raise UnsupportedText(f"it holds the control character U+{ord(span.text[control]):04X}; remove it")
            if self.frontend.kind == "as_is":
                return part_symbols(_collapse(span.text), self.frontend)
            return part_symbols(" ".join(span.text.split()), self.frontend)
        except UnsupportedText as unreadable:
            message = f"SSML, line {span.line}: {quote_text(span.text)}: {unreadable}"
            raise RefusedTextError(message, "unknown_characters") from None

    def check_symbols(self, symbols: str, text: str = "") -> None:
        """Refuses symbols that the model cannot speak. Any length passes: a test split is measured as recorded.

        Args:
          symbols: the frontend's output, such as `text` of a converted manifest.
          text: the frontend's input, for the message.

        Raises:
          RefusedTextError: naming the character, or that no letter and no digit is left.
        """
        text = text or symbols
        if not has_words(symbols):
            message = f"the text {quote_text(text)} leaves nothing to speak; it was read as {quote_text(symbols)}"
            raise RefusedTextError(message, "empty")
        if unknown := self.alphabet.describe_unknown(symbols):
            message = f"the model cannot read the text {quote_text(text)}: {unknown}"
            raise RefusedTextError(message, "unknown_characters")


def _split_spans(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans of each sentence. A pronunciation is never cut."""
    # Ends of sentences, as characters of the joined spans; infinity after the last one.
    ends = iter([*sentence_ends("".join(span.text for span in spans)), math.inf])
    end = next(ends)
    place = 0
    split = list[list[Span]]([[]])
    for span in spans:
        remaining = span.text
        line = span.line
        while place + len(remaining) > end and not (span.phonemes and place < end):
            first = remaining[: int(end) - place]
            remaining = remaining[int(end) - place :]
            split[-1] += [dataclasses.replace(span, text=first, line=line)] if first else []
            line += first.lstrip().count("\n") + remaining[: len(remaining) - len(remaining.lstrip())].count("\n")
            place = int(end)
            end = next(ends)
            split.append([])
        split[-1].append(dataclasses.replace(span, text=remaining, line=line))
        place += len(remaining)
        while place > end:  # within a pronunciation
            end = next(ends)
    return split


def _end_sentence(symbols: str) -> str:
    """Symbols with a final mark, which voices with marks need."""
    return symbols if symbols[-1:] in (*_FINAL_MARKS, "") else symbols.rstrip(" ,;:-") + "."


def _check_text(text: str, most: int, advice: str) -> None:
    if len(text) > most:
        raise _too_long(text, f"{len(text):,} characters", advice)
    if (control := _find_control(text)) is not None:
        raise RefusedTextError(
            f"the text {quote_text(text)} holds the control character U+{ord(text[control]):04X} at position "
            f"{control + 1}; remove it",
            "unknown_characters",
        )
    if not text.strip():
        raise RefusedTextError("the text is empty; give some words to speak", "empty")
    if not has_words(text):
        message = f"the text {quote_text(text)} holds no letter and no digit, so there is nothing to speak"
        raise RefusedTextError(message, "empty")


def _find_control(text: str) -> int | None:
    return next((index for index, character in enumerate(text) if _is_control(character)), None)


def _collapse(text: str) -> str:
    """White space as single spaces, at the ends too."""
    words = " ".join(text.split())
    return f"{' ' * text[:1].isspace()}{words}{' ' * (text[-1:].isspace() and bool(words))}"


def _too_long(text: str, length: str, advice: str) -> RefusedTextError:
    return RefusedTextError(f"the text {quote_text(text)} is too long: {length}; {advice}", "too_long")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") and character not in WHITESPACE_CONTROLS

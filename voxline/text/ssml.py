"""A subset of SSML 1.1: a document becomes sentences, whose spans have a rate and perhaps phonemes, and pauses.

  parse_ssml('<speak>Wait <break time="1s"/> <prosody rate="slow">here</prosody>.</speak>')

Speech Synthesis Markup Language, W3C Recommendation of 2010: https://www.w3.org/TR/speech-synthesis11/. What is not in
the subset is refused by name with its line. A document type declaration is refused too, and with it every entity that a
document could declare: none is expanded, and nothing is read from elsewhere.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from xml.parsers import expat

from voxline.errors import SettingsError

NAMESPACE = "http://www.w3.org/2001/10/synthesis"
MAX_CHARACTERS = 50_000
"""Of a document: about an hour of speech."""
MAX_PAUSE = 20.0
MAX_PAUSES = 600.0
"""Seconds of one break, and of all of a document."""

BREAK_SECONDS = {"none": 0.0, "x-weak": 0.25, "weak": 0.5, "medium": 0.75, "strong": 1.0, "x-strong": 1.25}
"""Of each strength. SSML leaves them to the processor; these are Azure's:
https://learn.microsoft.com/azure/ai-services/speech-service/speech-synthesis-markup-structure#add-a-break
"""
RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.5, "x-fast": 2.0}
"""Of each label; SSML leaves them to the processor too."""
SLOWEST = 0.5
FASTEST = 2.0
SENTENCE_PAUSE = BREAK_SECONDS["weak"]
PARAGRAPH_PAUSE = BREAK_SECONDS["strong"]
"""Seconds between two sentences, and two paragraphs, without a break between them."""

_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "speak": ("version", "xml:lang"),
    "p": ("xml:lang",),
    "s": ("xml:lang",),
    "break": ("time", "strength"),
    "prosody": ("rate",),
    "phoneme": ("alphabet", "ph"),
    "sub": ("alias",),
}
_IGNORED = ("http://www.w3.org/2001/XMLSchema-instance schemaLocation",)
_NOT_INSIDE = {"p": ("p", "s"), "s": ("s",)}
_XML = "http://www.w3.org/XML/1998/namespace"
_START = re.compile(r"\ufeff?\s*<(\?xml\s|!DOCTYPE\s|!--|([\w.-]+:)?speak[\s/>])")
_WORD_END = re.compile(r"['’](?:s|d|m|t|ll|re|ve)?(?!\w)", re.IGNORECASE)
"""What belongs to the word before, if it follows directly: Anna's, James', we'll."""
_TIME = re.compile(r"\+?([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|s)")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)%")


@dataclasses.dataclass(frozen=True)
class Span:
    """A part of a sentence that is read in one way.

    Attributes:
      text: as written, its white space included; of a `sub`, its alias.
      rate: of speech; 2 is twice as fast.
      phonemes: how it is pronounced, in `alphabet` ("" if the document names none); "": as written.
      line: of the document where the text begins, for messages.
      is_possessive: 's follows the pronounced word.
    """

    text: str
    rate: float = 1.0
    phonemes: str = ""
    alphabet: str = ""
    line: int = 1
    is_possessive: bool = False


@dataclasses.dataclass(frozen=True)
class SsmlSentence:
    """The text between two breaks or elements that end a sentence. Its spans are not empty.

    Attributes:
      marked: it is in `<s>`, so it is one sentence, or a part of one; else it may be several.
    """

    spans: tuple[Span, ...]
    marked: bool = False


@dataclasses.dataclass(frozen=True)
class Pause:
    """Silence."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Document:
    """A parsed document.

    Attributes:
      items: in order.
      languages: each `xml:lang`, and its line.
    """

    items: tuple[SsmlSentence | Pause, ...]
    languages: tuple[tuple[str, int], ...]


def is_ssml(text: str) -> bool:
    """Returns whether a text is meant as SSML: it begins with `<speak>`, or as XML does.

    >>> is_ssml("<speak>one</speak>"), is_ssml("one < two")
    (True, False)
    """
    return bool(_START.match(text))


def parse_ssml(text: str) -> Document:
    """Reads a document.

    >>> one, pause, two = parse_ssml('<speak>One <break strength="weak"/> two.</speak>').items
    >>> one.spans[0].text, pause, two.spans[0].text
    ('One ', Pause(seconds=0.5), ' two.')

    Raises:
      SettingsError: it is too long or no well-formed XML, or has what is not understood here: what, and its line.
    """
    if len(text) > MAX_CHARACTERS:
        raise SettingsError(
            f"the SSML document has {len(text):,} characters; {MAX_CHARACTERS:,} are accepted: split it"
        )

    # expat takes bytes, and counts lines from the document's own beginning.
    try:
        content = text.lstrip("\ufeff \t\r\n").encode()
    except UnicodeEncodeError as error:
        raise SettingsError(f"the SSML document is not Unicode: {error}") from None
    before = text[: len(text) - len(text.lstrip("\ufeff \t\r\n"))].count("\n")
    return _Reader(before).read(content)


class _Reader:
    """Handlers of one document."""

    def __init__(self, lines_before: int) -> None:
        # Lines before the document, so that messages agree with the user's text.
        self._before = lines_before
        # The open elements with their attributes and lines; rates of nested `prosody`.
        self._open: list[tuple[str, Mapping[str, str], int]] = []
        self._rates = [1.0]
        self._items: list[SsmlSentence | Pause] = []
        self._spans: list[Span] = []
        self._languages: list[tuple[str, int]] = []
        self._content = ""  # of a phoneme or a sub
        # since the last element began or ended
        self._text = ""
        self._text_line = 1
        self._boundary = 0.0
        self._chosen = False
        self._marked = False

        # A space separates namespace and name, as no name has one.
        self._parser = expat.ParserCreate("utf-8", " ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.ProcessingInstructionHandler = self._refuse_instruction
        # Text is joined here: with buffer_text, expat calls late, and the current line is that of the next tag.

    def read(self, content: bytes) -> Document:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            raise _refuse(error.lineno + self._before, f"the XML is not well-formed: {why}") from None

        total = sum(item.seconds for item in self._items if isinstance(item, Pause))
        if total > MAX_PAUSES:
            raise SettingsError(f"the SSML document has {total:,.0f} s of pauses; {MAX_PAUSES:,.0f} s are accepted")
        if not self._items:
            raise SettingsError("the SSML document is empty; give some words to speak")
        return Document(tuple(self._items), tuple(self._languages))

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber) + self._before

    def _refuse_doctype(self, name: str, *_: object) -> None:
        raise _refuse(self._line, "a document type declaration (<!DOCTYPE>) and its entities are refused; remove it")

    def _refuse_instruction(self, target: str, *_: object) -> None:
        raise _refuse(self._line, f"the processing instruction <?{target}?> is not understood; remove it")

    def _start(self, name: str, raw_attributes: Mapping[str, str]) -> None:
        self._end_text()

        # Elements of another namespace keep it in their name, and are refused by it.
        namespace, _, local = name.rpartition(" ")
        name = local if namespace in ("", NAMESPACE) else f"{local} xmlns={namespace}"
        if name not in _ATTRIBUTES:
            raise _refuse(self._line, f"<{name}> is not understood; {', '.join(_ATTRIBUTES)} are")
        if (name == "speak") == bool(self._open):
            raise _refuse(
                self._line, f"<{name}> is inside <speak>" if self._open else f"<{name}> is outside of <speak>"
            )

        # Elements that may not be nested in each other.
        within = [element for element, *_ in self._open]
        if within and within[-1] in ("break", "phoneme", "sub"):
            raise _refuse(self._line, f"<{name}> is inside <{within[-1]}>, which has no elements inside")
        if outer := next((element for element in _NOT_INSIDE.get(name, ()) if element in within), ""):
            raise _refuse(self._line, f"<{name}> is inside <{outer}>; end that first")

        attributes = {
            key.replace(f"{_XML} ", "xml:"): value for key, value in raw_attributes.items() if key not in _IGNORED
        }
        for key, value in attributes.items():
            if key not in _ATTRIBUTES[name]:
                accepted = ", ".join(_ATTRIBUTES[name])
                raise _refuse(self._line, f'<{name} {key}="{value[:40]}"> is not understood; accepted: {accepted}')
        if attributes.get("xml:lang"):
            self._languages.append((attributes["xml:lang"], self._line))
        self._open.append((name, attributes, self._line))

        if name in ("p", "s"):
            self._end_sentence(PARAGRAPH_PAUSE if name == "p" else SENTENCE_PAUSE)
        elif name == "break":
            self._break(attributes)
        elif name == "prosody":
            self._rates.append(self._rate(attributes))

    def _end(self, _: str) -> None:
        self._end_text()
        name, attributes, line = self._open.pop()

        if name in ("p", "s"):
            self._end_sentence(PARAGRAPH_PAUSE if name == "p" else SENTENCE_PAUSE)
        elif name == "prosody":
            self._rates.pop()
        elif name == "speak":
            self._end_sentence(0.0)
        elif name in ("phoneme", "sub"):
            # The content is complete only now; it is what the attributes replace or pronounce.
            content = self._content
            self._content = ""
            required = "ph" if name == "phoneme" else "alias"
            value = " ".join(attributes.get(required, "").split())
            if not value:
                raise _refuse(line, f"<{name}> has no {required}; say how it is to be read")

            if name == "sub":
                self._add(Span(value, self._rates[-1], line=line))
            else:
                self._add(Span(content or value, self._rates[-1], value, attributes.get("alphabet", ""), line))

    def _characters(self, text: str) -> None:
        if not self._text.strip():
            self._text_line = self._line
        self._text += text

    def _end_text(self) -> None:
        # Text since the last tag; it belongs to the element that is open.
        text = self._text
        self._text = ""
        if not text:
            return
        name, _, line = self._open[-1]
        if name == "break" and text.strip():
            raise _refuse(line, "<break> has text inside; end it with />")
        if name in ("phoneme", "sub"):
            self._content += text
        elif name != "break":
            self._add(Span(text, self._rates[-1], line=self._text_line))

    def _add(self, span: Span) -> None:
        """Adds to the sentence; what has no sound does not begin one."""
        silent = not span.phonemes and all(_is_silent(character) for character in span.text)
        if not self._spans:
            # Silence before the first word: white space or a mark between two elements.
            if silent:
                return
            if self._boundary and not self._chosen and self._items:
                self._items.append(Pause(self._boundary))
            self._boundary = 0.0
            self._marked = any(name == "s" for name, *_ in self._open)

        # A break that the document states replaces the pause of a boundary.
        if not silent:
            self._chosen = False
        span = self._without_word_end(span)
        if not span.text:
            return
        last = self._spans[-1] if self._spans else None
        if last and not last.phonemes and not span.phonemes and last.rate == span.rate:  # one text for the frontend
            self._spans[-1] = dataclasses.replace(last, text=last.text + span.text)
        else:
            self._spans.append(span)

    def _without_word_end(self, span: Span) -> Span:
        """Gives what ends the word before, such as 's, to that word's span, and returns the rest."""
        last = self._spans[-1] if self._spans else None
        match = None if span.phonemes or not last or not last.text[-1:].isalnum() else _WORD_END.match(span.text)
        if not last or not match or (last.phonemes and match[0][1:].lower() not in ("", "s")):
            return span
        if last.phonemes:
            self._spans[-1] = dataclasses.replace(last, is_possessive=len(match[0]) > 1)
        else:
            self._spans[-1] = dataclasses.replace(last, text=last.text + match[0])
        return dataclasses.replace(span, text=span.text[match.end() :])

    def _end_sentence(self, pause: float) -> None:
        if self._spans:
            self._items.append(SsmlSentence(tuple(self._spans), self._marked))
            self._spans = []
        self._boundary = max(self._boundary, pause)

    def _break(self, attributes: Mapping[str, str]) -> None:
        # Without attributes a break is medium, as SSML has it.
        strength = attributes.get("strength", "medium")
        time = attributes.get("time")
        if strength not in BREAK_SECONDS:
            raise _refuse(self._line, f'<break strength="{strength[:40]}">: accepted: {", ".join(BREAK_SECONDS)}')
        seconds = BREAK_SECONDS[strength] if time is None else self._seconds(time)
        self._chosen = True

        if seconds:
            self._end_sentence(0.0)
            self._items.append(Pause(seconds))

    def _seconds(self, time: str) -> float:
        match = _TIME.fullmatch(time.strip())
        seconds = float(match[1]) / (1_000 if match[2] == "ms" else 1) if match else -1.0
        if not 0 <= seconds <= MAX_PAUSE:
            raise _refuse(
                self._line,
                f'<break time="{time[:40]}">: 0 to {MAX_PAUSE:g} seconds are accepted, such as 250ms or 1.5s',
            )
        return seconds

    def _rate(self, attributes: Mapping[str, str]) -> float:
        """Reads a rate as a share of the default one, as SSML has it: a nested rate replaces the outer one."""
        value = attributes.get("rate", "").strip()
        match = _PERCENT.fullmatch(value)
        rate = RATES.get(value, float(match[1]) / 100 if match else 0.0)
        if not SLOWEST <= rate <= FASTEST:
            raise _refuse(
                self._line,
                f'<prosody rate="{value[:40]}">: {SLOWEST:.0%} to {FASTEST:.0%} of the usual rate is accepted, where '
                f"100% is no change, or {', '.join(RATES)}",
            )
        return rate


def _is_silent(character: str) -> bool:
    """White space, and punctuation that no frontend reads as a word, as "&" is."""
    return character.isspace() or (unicodedata.category(character)[0] == "P" and character not in "&%@#*/\\‰§")


def _refuse(line: int, why: str) -> SettingsError:
    return SettingsError(f"SSML, line {line}: {why}")

"""A transcript as a person writes it: inverse text normalization, full stops and capitals.

A model of letters hears words alone. Numbers are written by the rules of `voxline.text`; sentences end where nobody
speaks for `PAUSE_SECONDS`, as the times of the words say, and at the end of the recording. No model guesses commas or
question marks. What a model punctuates itself, as Whisper does, keeps its own.
"""

import dataclasses
import itertools
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from voxline.errors import SettingsError
from voxline.inference.transcript import Transcript
from voxline.text.alphabet import split_words
from voxline.text.inverse_english import WrittenWord, write_english
from voxline.text.inverse_mandarin import write_mandarin

if TYPE_CHECKING:
    from voxline.inference.ctc_alignment import AlignedWord

PAUSE_SECONDS = 0.7
"""Between two words, at which a sentence ends: the silence that ends a segment of a stream."""

_LANGUAGES = {"en": write_english, "zh": write_mandarin}
_FINAL_MARKS = ".?!…。？！؟۔।։።"
_STOPS = {
    "CJK": "。", "HIRAGANA": "。", "KATAKANA": "。", "DEVANAGARI": "।", "BENGALI": "।", "ARMENIAN": "։",
    "ETHIOPIC": "።", "KHMER": "។", "MYANMAR": "။", "THAI": "", "LAO": "",
}  # fmt: skip
"""Script → the mark that ends its sentences, where it is no full stop; "" where a space does."""
_CAPITALIZED = frozenset(
    "i i'm i'll i've i'd monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
)
"""English words that have a capital within a sentence too."""


@dataclasses.dataclass(frozen=True, slots=True)
class WritingChoices:
    """The form in which transcripts are written.

    Attributes:
      itn: language of the inverse text normalization, "en" or "zh"; empty: none.
      punctuate: full stops at pauses, and capitals.
    """

    itn: str = ""
    punctuate: bool = False

    def __post_init__(self) -> None:
        if self.itn not in ("", *_LANGUAGES):
            raise SettingsError(f"itn: {self.itn!r}; {', '.join(_LANGUAGES)} is accepted, or nothing")

    @classmethod
    def of_texts(cls, texts: Mapping[str, object], default: "WritingChoices") -> "WritingChoices":
        """The choices of a form or a query, such as {"itn": "en", "punctuate": "true"}; others as by default.

        Raises:
          SettingsError: a value is not accepted.
        """
        itn = str(texts.get("itn", default.itn))
        punctuate = str(texts.get("punctuate", default.punctuate)).lower()
        if punctuate not in ("true", "false"):
            raise SettingsError(f"punctuate: {punctuate!r}; true or false is accepted")
        return cls(itn, punctuate == "true")


def write_transcript(transcript: Transcript, choices: WritingChoices) -> Transcript:
    """A transcript as the choices write it. A written word has the time of all words that it stands for.

    >>> from voxline.inference.ctc_alignment import AlignedWord
    >>> words = [AlignedWord(word, i, i + 1.0, 1.0) for i, word in enumerate("at seven thirty".split())]
    >>> written = write_transcript(Transcript("at seven thirty", words, 1.0, 3.0), WritingChoices("en", True))
    >>> written.text, [(word.word, word.start, word.end) for word in written.words]
    ('At 7:30.', [('At', 0, 1.0), ('7:30.', 1, 3.0)])
    """
    if choices == WritingChoices() or not transcript.text:
        return transcript
    alternatives = tuple(
        dataclasses.replace(other, text=written_form(other.text, choices)) for other in transcript.alternatives
    )
    words = transcript.words
    if choices.itn == "zh":
        words = [piece for word in words for piece in _pieces(word)]
    spoken = [word.word for word in words]
    if not spoken or "".join(spoken) != "".join(transcript.text.split()):
        # Without a word for each piece of the text there is no time that a written word could have.
        text = written_form(transcript.text, choices)
        return dataclasses.replace(transcript, text=text, alternatives=alternatives)

    tokens = _write(spoken, choices)
    pauses = [word.last == len(spoken) or _pause(words, word.last) >= PAUSE_SECONDS for word in tokens]
    pieces = _punctuate(tokens, pauses, choices) if choices.punctuate else [word.text for word in tokens]
    words = [_joined(words[word.first : word.last], piece) for word, piece in zip(tokens, pieces, strict=True)]
    text = _spaced(transcript.text, spoken, tokens, pieces)
    return dataclasses.replace(transcript, text=text, words=words, alternatives=alternatives)


_FIRST_OF_EAST_ASIA = "\u2e80"
"""Of the characters that are written without spaces between words."""


def written_form(text: str, choices: WritingChoices) -> str:
    """A text without times, such as what is heard so far."""
    spoken = split_words(text)
    if not spoken or choices == WritingChoices():
        return text
    tokens = _write(spoken, choices)
    ends = [place == len(tokens) - 1 for place in range(len(tokens))]
    pieces = _punctuate(tokens, ends, choices) if choices.punctuate else [word.text for word in tokens]
    return _spaced(text, spoken, tokens, pieces)


def settled_text(text: str, choices: WritingChoices) -> str:
    """The text that is heard so far if it is written the same whatever follows; "" while that is not sure.

    Numbers may continue in what follows, and a mark there says that the model punctuates itself. Once it has written
    one, its text stays.

    >>> punctuated = WritingChoices(punctuate=True)
    >>> settled_text("so far", punctuated), settled_text("So. far", punctuated)
    ('', 'So. far')
    """
    # Marks alone need no look ahead once one was seen. Behind hanzi and kana, what follows may be of the same word.
    words = text.split()
    words = words[:-1] if max(text, default="") >= _FIRST_OF_EAST_ASIA else words
    if choices == WritingChoices() or (not choices.itn and len(words) > 1 and _has_final_mark(words)):
        return text
    return ""


def _write(spoken: Sequence[str], choices: WritingChoices) -> list[WrittenWord]:
    if not choices.itn:
        return [WrittenWord(word, place, place + 1) for place, word in enumerate(spoken)]
    return _LANGUAGES[choices.itn](spoken)


def _pieces(word: "AlignedWord") -> "list[AlignedWord]":
    """The hanzi of a word, which is all between two spaces; each has an equal part of its time."""
    pieces = split_words(word.word)
    if "".join(pieces) != word.word:
        return [word]
    seconds = (word.end - word.start) / len(word.word)
    ends = [word.start + seconds * count for count in itertools.accumulate(map(len, pieces))]
    starts = [word.start, *ends[:-1]]
    return [
        dataclasses.replace(word, word=piece, start=start, end=end)
        for piece, start, end in zip(pieces, starts, [*ends[:-1], word.end], strict=True)
    ]


def _pause(words: "Sequence[AlignedWord]", place: int) -> float:
    """Seconds between a word and the one before it."""
    return words[place].start - words[place - 1].end


def _joined(words: "Sequence[AlignedWord]", text: str) -> "AlignedWord":
    logs = [math.log(max(word.confidence, 1e-12)) for word in words]
    confidence = math.exp(math.fsum(logs) / len(logs))
    return dataclasses.replace(words[0], word=text, end=words[-1].end, confidence=confidence)


def _spaced(text: str, spoken: Sequence[str], tokens: Sequence[WrittenWord], pieces: Sequence[str]) -> str:
    """The written words with the spaces that the text has between them."""
    is_spaced = []
    place = 0
    for word in spoken:
        begin = text.find(word, place)
        is_spaced.append(begin > place)
        place = begin + len(word)
    return "".join(
        " " * (is_spaced[word.first] and word.first > 0) + piece
        for word, piece in zip(tokens, pieces, strict=True)
    )  # fmt: skip


def _punctuate(tokens: Sequence[WrittenWord], ends: Sequence[bool], choices: WritingChoices) -> list[str]:
    """The texts of the words with full stops where sentences end, and capitals where they begin.

    Args:
      ends: whether a sentence ends behind a word.
    """
    texts = [word.text for word in tokens]
    # A model that writes marks or sentences' capitals itself knows better than pauses do.
    if _has_final_mark(texts):
        return texts
    is_first = True
    is_turkic = any("ı" in text for text in texts)
    for place, text in enumerate(texts):
        if choices.itn == "en" and text.lower() in _CAPITALIZED:
            text = text[0].upper() + text[1:]
        if is_first:
            # Title case: Georgian has capitals for headlines alone.
            text = ("İ" if is_turkic and text[0] == "i" else text[0].title()) + text[1:]
        is_first = ends[place]
        texts[place] = text + (_full_stop(text) if ends[place] else "")
    return texts


def _has_final_mark(words: Sequence[str]) -> bool:
    return any(word[-1] in _FINAL_MARKS and not word.endswith(".m.") for word in words)


def _full_stop(text: str) -> str:
    """The mark behind the last word of a sentence; none behind the dot of an abbreviation such as p.m."""
    if text[-1] in _FINAL_MARKS:
        return ""
    # Also a vowel sign, which ends many words of Thai and Hindi.
    letter = next((character for character in reversed(text) if unicodedata.category(character)[0] in "LM"), "")
    script = unicodedata.name(letter, "").partition(" ")[0] if letter else ""
    return _STOPS.get(script, ".")

"""Transcripts: how they are normalised, and the alphabet that a recogniser spells them in.

Text is Unicode in normal form C everywhere. A character outside the alphabet is never dropped in
silence: `normalize_transcript` maps what it is told to map, and `Alphabet.unknown` names what is left.
"""

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from voxline.errors import SettingsError

ALPHABETS = {
    "english": " abcdefghijklmnopqrstuvwxyz'",
    "english_speech": " abcdefghijklmnopqrstuvwxyz.,;:!?'-",
    "phonemes": " abcdefhijklmnopqrstuvwxzæçðøŋœɐɑɒɔəɚɛɜɡɣɪɫɬɲɹɾʁʃʊʌʒʔˈˌːʲ̩̃βθχᵻ.,;:!?",
    "pinyin": " abcdefghijklmnopqrstuvwxyz12345",
    "pinyin_speech": " abcdefghijklmnopqrstuvwxyz12345.,;:!?",
}
"""Alphabets by name; any other value of the setting is taken as the characters themselves."""

NAMED, SHOWN = 10, 200
"""How many foreign characters, and how much of their text, a message holds: a transcript may be a whole book."""

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'"})
_DASHES = re.compile(r"[-‐‑‒–—―/_]+")
_PUNCTUATION = re.compile(r"[.,;:!?\"“”„«»()\[\]{}…。，、；：！？（）《》]+")


def normalize_transcript(text: str) -> str:
    """Lower case, NFC, plain apostrophes, no punctuation, single spaces.

    >>> normalize_transcript("  Mister  O’Neill’s — “FIRST-rate” café. ")
    "mister o'neill's first rate café"
    """
    text = unicodedata.normalize("NFC", text).translate(_APOSTROPHES).lower()
    text = _PUNCTUATION.sub(" ", _DASHES.sub(" ", text))
    return unicodedata.normalize("NFC", " ".join(text.split()))


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The symbols of a recogniser, one character each; the CTC blank comes after the last.

    >>> english = Alphabet.named("english")
    >>> english.encode("a cab")
    [1, 0, 3, 1, 2]
    >>> english.decode([1, 0, 3])
    'a c'
    >>> english.blank, english.unknown("naïve ½")
    (28, 'ï½')
    """

    symbols: str

    @classmethod
    def named(cls, name: str) -> "Alphabet":
        """An alphabet by its name in `ALPHABETS`, or made of the characters given.

        Raises:
          SettingsError: the characters repeat, or there are too few to spell with.
        """
        symbols = unicodedata.normalize("NFC", ALPHABETS.get(name, name))
        repeated = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
        if repeated or len(symbols) < 2:
            raise SettingsError(
                f"alphabet {name!r}: give one of {', '.join(ALPHABETS)}, or two characters or more, each once"
                + (f" (repeated: {''.join(repeated)!r})" if repeated else "")
            )
        return cls(symbols)

    @property
    def blank(self) -> int:
        """The index of CTC's blank."""
        return len(self.symbols)

    def unknown(self, text: str) -> str:
        """The characters of the text that cannot be spelled, each once, in order of appearance."""
        return "".join(dict.fromkeys(character for character in text if character not in self.symbols))

    def fault(self, text: str) -> str:
        """In words, what of the text cannot be spelled; empty where all can.

        >>> Alphabet.named("english").fault("naïve")
        "'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS) in 'naïve' is not in the alphabet"
        """
        if not set(text).difference(self.symbols):
            return ""
        unknown = self.unknown(text)
        named = ", ".join(
            f"{char!r} (U+{ord(char):04X} {unicodedata.name(char, 'unnamed')})" for char in unknown[:NAMED]
        )
        more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
        shown = text if len(text) <= SHOWN else text[:SHOWN] + "…"
        return f"{named}{more} in {shown!r} {'is' if len(unknown) == 1 else 'are'} not in the alphabet"

    def encode(self, text: str) -> list[int]:
        return [self.symbols.index(character) for character in text]

    def decode(self, labels: Iterable[int]) -> str:
        return "".join(self.symbols[label] for label in labels)


def min_ctc_frames(labels: Sequence[int]) -> int:
    """The fewest frames in which CTC can emit the labels: a blank must part two that are alike.

    >>> min_ctc_frames([3, 3, 4])
    4
    """
    return len(labels) + sum(left == right for left, right in itertools.pairwise(labels))

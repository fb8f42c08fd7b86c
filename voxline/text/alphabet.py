"""Alphabets, words, and the errors for texts that cannot be read.

All text is Unicode NFC. A character outside the alphabet is never dropped silently: `normalize_transcript` maps known
characters, and `Alphabet.unknown` names the rest.
"""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from voxline.errors import SettingsError

ALPHABETS = {
    "english": " abcdefghijklmnopqrstuvwxyz'",
    "english_speech": " abcdefghijklmnopqrstuvwxyz.,;:!?'-",
    "phonemes": " abcdefhijklmnopqrstuvwxzæçðøŋœɐɑɒɔəɚɛɜɡɣɪɫɬɲɹɾʁʃʊʌʒʔˈˌːʲ̩̃βθχᵻ.,;:!?",
    "ipa": " !'(),-.:;?abcdefhijklmnopqrstuvwxyzæçðøħŋœǀǁǂǃɐɑɒɓɔɕɖɗɘəɚɛɜɞɟɠɡɢɣɤɥɦɧɨɪɫɬɭɮɯɰɱɲɳ"
    'ɴɵɶɸɹɺɻɽɾʀʁʂʃʄʈʉʊʋʌʍʎʏʐʑʒʔʕʘʙʛʜʝʟʡʢʲˈˌːˑ˞βθχᵻⱱ0123456789̧̪̯̩̃ʰˤε↓#"gʦXɝʷ̺̻̝̊',
    "pinyin": " abcdefghijklmnopqrstuvwxyz12345",
    "pinyin_speech": " abcdefghijklmnopqrstuvwxyz12345.,;:!?",
}
"""Alphabets by name. Any other value of the setting is read as the characters themselves."""

MAX_NAMED = 10
MAX_QUOTED = 200
"""Characters that a message names, and characters of a text that it quotes."""

IDEOGRAPHS = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"  # Japanese kana
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf"  # Thai, Lao
    "\u1780-\u17d3\u1000-\u103f\u1050-\u108f"  # Khmer, Burmese
)
"""Characters of languages that put no spaces between words: each is a word, for scores and for language models."""
_IDEOGRAPH = f"[{IDEOGRAPHS}]"
_WORD = rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+"
_RUN = rf"[\s{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+"
_compiled = functools.cache(re.compile)  # 3 ms each, which most steps do not need
_HANZI = "[\u3400-\u9fff]"
_KANA = "[\u3041-\u30ff]"
_CACHED_RUNS = 1 << 16
_COMBINED = re.compile(r".[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u093c\u09bc\u0a3c\u0abc\u0b3c]+")
"""A letter with signs above or below, such as an accent or a nukta."""


def split_words(text: str) -> list[str]:
    """Splits a text into words; a character of a language without spaces is a word of its own.

    >>> split_words("the cat"), split_words("ni3 hao3"), split_words("今天很好 OK"), split_words("カナ")
    (['the', 'cat'], ['ni3', 'hao3'], ['今', '天', '很', '好', 'OK'], ['カ', 'ナ'])
    """
    return _compiled(_WORD).findall(text)


def split_runs(text: str) -> list[str]:
    """Splits a text into what subwords may be part of: spaces and characters that are words stand alone.

    >>> split_runs("the cat"), split_runs("很好 ok")
    (['the', ' ', 'cat'], ['很', '好', ' ', 'ok'])
    """
    return _compiled(_RUN).findall(text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Finds the words of a text: their first characters, and those after their last.

    >>> word_spans("好 OK"), word_spans("")
    ([(0, 1), (2, 4)], [])
    """
    return [match.span() for match in _compiled(_WORD).finditer(text)]


def is_ideograph(symbol: str) -> bool:
    """Returns whether a symbol is of a language without spaces, and so a word without spaces around it."""
    return bool(_compiled(_IDEOGRAPH).fullmatch(symbol))


def is_mandarin(characters: Iterable[str]) -> bool:
    """Returns whether characters are those of Chinese: there are hanzi, and no kana as in Japanese.

    >>> is_mandarin("今天很好 ok"), is_mandarin("今日は"), is_mandarin("สวัสดี")
    (True, False, False)
    """
    text = "".join(characters)
    return bool(_compiled(_HANZI).search(text)) and not _compiled(_KANA).search(text)


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The symbols of a model. The CTC blank follows the last.

    Attributes:
      symbols: a string of characters; or a tuple of characters and subwords, which are joined in this order
        (`voxline.text.subwords`).

    >>> english = Alphabet.from_name("english")
    >>> english.encode("a cab")
    [1, 0, 3, 1, 2]
    >>> english.decode([1, 0, 3])
    'a c'
    >>> english.blank, english.unknown("naïve ½")
    (28, 'ï½')
    >>> Alphabet([" ", "a", "b", "c", "ab"]).encode("cab a")
    [3, 4, 0, 1]
    """

    symbols: Sequence[str]

    def __post_init__(self) -> None:
        if not isinstance(self.symbols, str):
            object.__setattr__(self, "symbols", tuple(self.symbols))

    @classmethod
    def from_name(cls, name: str) -> "Alphabet":
        """Creates an alphabet from its name in `ALPHABETS`, or from its characters.

        Raises:
          SettingsError: a character is repeated, or there are fewer than two.
        """
        # In NFC, as all texts are: a decomposed é would be two symbols. Letters that have no character of their own in
        # NFC, such as the Hindi क़, give their parts, once each.
        symbols = unicodedata.normalize("NFC", ALPHABETS.get(name, name))
        parts = set("".join(_COMBINED.findall(symbols)))
        symbols = "".join(
            symbol for place, symbol in enumerate(symbols) if symbol not in parts or symbol not in symbols[:place]
        )
        repeated = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
        if repeated or len(symbols) < 2:
            raise SettingsError(
                f"alphabet {name!r}: give one of {', '.join(ALPHABETS)}, or two or more different characters"
                + (f" (repeated: {''.join(repeated)!r})" if repeated else "")
            )
        return cls(symbols)

    @property
    def blank(self) -> int:
        """The label of the CTC blank."""
        return len(self.symbols)

    @functools.cached_property
    def characters(self) -> str:
        """The symbols that are one character; texts consist of them."""
        return "".join(symbol for symbol in self.symbols if len(symbol) == 1)

    @functools.cached_property
    def words_begin_with_space(self) -> bool:
        """Whether a space is a part of the symbol that begins a word, as in SentencePiece's pieces."""
        return any(symbol.startswith(" ") and symbol != " " for symbol in self.symbols)

    def unknown(self, text: str) -> str:
        """The characters of a text that are not in the alphabet, each once, in order of appearance."""
        return "".join(dict.fromkeys(character for character in text if character not in self.characters))

    def describe_unknown(self, text: str) -> str:
        """Names the characters of a text that are not in the alphabet, in words; empty if there are none.

        >>> Alphabet.from_name("english").describe_unknown("naïve")
        "'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS) in 'naïve' is not in the alphabet"
        """
        if not set(text).difference(self.characters):
            return ""

        unknown = self.unknown(text)
        verb = "is" if len(unknown) == 1 else "are"
        return f"{name_characters(unknown)} in {quote_text(text)} {verb} not in the alphabet"

    def encode(self, text: str) -> list[int]:
        """The labels of a text.

        Raises:
          ValueError: a character is not in the alphabet.
        """
        if isinstance(self.symbols, str):
            return [self.symbols.index(character) for character in text]
        return [label for run in split_runs(text) for label in self._encode_run(run)]

    def decode(self, labels: Iterable[int]) -> str:
        return "".join(self.symbols[label] for label in labels)

    def label_words(self, text: str) -> list[tuple[int, int]]:
        """The labels of each word of a text, words being between single spaces: (first, last + 1) in `encode(text)`.

        >>> Alphabet("ab ").label_words("ab a")
        [(0, 2), (3, 4)]
        """
        spans = []
        first = 0
        for word in text.split(" "):
            last = first + len(self.encode(word))
            spans.append((first, last))

            # One label on for the space between two words.
            first = last + 1
        return spans

    @functools.cached_property
    def _encode_run(self) -> "functools._lru_cache_wrapper[tuple[int, ...]]":
        """Encodes one of `split_runs`; the words of a language come again and again."""
        labels = {symbol: label for label, symbol in enumerate(self.symbols)}

        @functools.lru_cache(_CACHED_RUNS)
        def encode(run: str) -> tuple[int, ...]:
            parts = list(run)
            # The subword that was learned first is joined first, as when the alphabet was learned: labels are in that
            # order.
            while pairs := [pair for pair in itertools.pairwise(parts) if "".join(pair) in labels]:
                parts = join_pair(parts, min(pairs, key=lambda pair: labels["".join(pair)]))
            if unknown := self.unknown(run):
                raise ValueError(f"{unknown!r} is not in the alphabet")
            return tuple(labels[part] for part in parts)

        return encode


def join_pair(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Joins each occurrence of a pair, from the left: a step of byte-pair encoding.

    >>> join_pair(["a", "a", "a", "b"], ("a", "a"))
    ['aa', 'a', 'b']
    """
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def min_ctc_frames(labels: Sequence[int]) -> int:
    """The fewest frames in which CTC can emit the labels: a blank must separate two equal labels.

    >>> min_ctc_frames([3, 3, 4])
    4
    """
    return len(labels) + sum(left == right for left, right in itertools.pairwise(labels))


def name_characters(characters: str) -> str:
    """Names characters for a message: up to ten, then how many more.

    >>> name_characters("é☃")
    "'é' (U+00E9 LATIN SMALL LETTER E WITH ACUTE), '☃' (U+2603 SNOWMAN)"
    """
    names = [f"{char!r} (U+{ord(char):04X} {unicodedata.name(char, 'unnamed')})" for char in characters[:MAX_NAMED]]
    more = f" and {len(characters) - MAX_NAMED:,} more" if len(characters) > MAX_NAMED else ""
    return ", ".join(names) + more


def quote_text(text: str) -> str:
    """Quotes a text for a message; a long one is shortened, since a transcript may be a whole book."""
    return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")


class UnsupportedText(ValueError):  # noqa: N818 - callers turn it into a reject or an error of their own
    """The frontend cannot read a text. The message names the characters and what is accepted."""


class EmptyText(UnsupportedText):
    """A text without words, such as punctuation alone."""


def unsupported_characters(characters: Iterable[str], text: str, accepted: str) -> UnsupportedText:
    """The error for some characters of a text, each named once.

    >>> print(unsupported_characters("☃☃", "snow ☃☃", "latin letters are accepted"))
    '☃' (U+2603 SNOWMAN) in 'snow ☃☃' has no sound; latin letters are accepted
    """
    unknown = "".join(dict.fromkeys(characters))
    have = "has" if len(unknown) == 1 else "have"
    return UnsupportedText(f"{name_characters(unknown)} in {quote_text(text)} {have} no sound; {accepted}")

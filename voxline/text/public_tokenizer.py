"""Tokenizers of public models: their pieces become the symbols of an alphabet, and their own library cuts the texts.

  tokenizer = PublicTokenizer.of("tokenizer.json", content, blank=1024)
  tokenizer.encode("the cat")      # labels, as the model was trained on them

Two forms of file are read: `tokenizer.json` by the package tokenizers, `tokenizer.model` by sentencepiece. Pieces are
those of SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226), in which "▁" is a space. A symbol has the space
itself, so that joined symbols are a text.
"""

import collections
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable
from typing import Any, Literal, Protocol

from voxline.errors import WorkError
from voxline.text.alphabet import Alphabet

TokenizerForm = Literal["tokenizer.json", "tokenizer.model"]
TOKENIZER_JSON: TokenizerForm = "tokenizer.json"
TOKENIZER_MODEL: TokenizerForm = "tokenizer.model"
SPACE_MARK = "▁"
"""SentencePiece's space, U+2581."""


@dataclasses.dataclass(frozen=True)
class PublicTokenizer(Alphabet):
    """The alphabet of a public model, and its file.

    kernel = kernel[:, tokenizer.columns]                  # [units, symbols + 1], the blank last

    Attributes:
      symbols: the pieces in the order of their numbers, with spaces for "▁". The blank, the piece of unknown characters
        and control pieces are no symbols: training with CTC has left them without a use.
      file: `TOKENIZER_JSON` or `TOKENIZER_MODEL`.
      content: of the file.
      columns: the number of each symbol's piece, which is its column in the model's output layer; and that of the blank
        after them.
    """

    file: TokenizerForm = TOKENIZER_JSON
    content: bytes = b""
    columns: tuple[int, ...] = ()

    @classmethod
    def of(cls, file: TokenizerForm, content: bytes, blank: int) -> "PublicTokenizer":
        """Reads the bytes of a tokenizer's file.

        Args:
          file: its name, which tells its form.
          blank: the number of the CTC blank: `pad_token_id` of the model's config.json. It need not be a piece.

        Raises:
          WorkError: it is damaged, or its pieces are no symbols of an alphabet.
        """
        # In the order of their numbers, which the output layer has too.
        pieces = _open(file, content).pieces
        columns = [number for number in sorted(pieces) if number != blank]
        symbols = [pieces[number].replace(SPACE_MARK, " ") for number in columns]
        if twice := [symbol for symbol, count in collections.Counter(symbols).items() if count > 1]:
            raise WorkError(f"{file}: two pieces are written {twice[0]!r}; the symbols of an alphabet are different")
        return cls(symbols, file, content, (*columns, blank))

    @functools.cached_property
    def characters(self) -> str:
        """The characters of which texts consist: those of all pieces that can be spelled anywhere."""
        characters = dict.fromkeys(character for symbol in self.symbols for character in symbol)
        return "".join(filter(self._is_known, characters))

    def unknown(self, text: str) -> str:
        """The characters of a text for which there is no piece, each once, in order of appearance."""
        return "".join(character for character in dict.fromkeys(text) if not self._is_known(character))

    def encode(self, text: str) -> list[int]:
        """The labels of a text, as the model's own library cuts it.

        Raises:
          ValueError: there is no piece for a character.
        """
        # The piece of unknown characters has no label, and no transcript may need one.
        labels = [self._labels.get(number, -1) for number in self._tokenizer.encode(text)]
        if -1 in labels:
            raise ValueError(f"{self.unknown(text)!r} is not in the model's tokenizer")
        return labels

    def decode(self, labels: Iterable[int]) -> str:
        return self._tokenizer.decode([self.columns[label] for label in labels])

    def label_words(self, text: str) -> list[tuple[int, int]]:
        """The labels of each word; a piece that begins with a space begins a word."""
        labels = self.encode(text)

        # Some tokenizers put no space before the first word.
        begins = [at for at, label in enumerate(labels) if at == 0 or self.symbols[label].startswith(" ")]
        return list(itertools.pairwise([*begins, len(labels)]))

    def _is_known(self, character: str) -> bool:
        numbers = self._tokenizer.encode(character)
        # A character that the tokenizer drops would be lost in silence.
        return character == " " or (bool(numbers) and all(number in self._labels for number in numbers))

    @functools.cached_property
    def _labels(self) -> dict[int, int]:
        """The label of each piece's number."""
        return {number: label for label, number in enumerate(self.columns[:-1])}

    @functools.cached_property
    def _tokenizer(self) -> "_Tokenizer":
        return _open(self.file, self.content)


class _Tokenizer(Protocol):
    """A tokenizer of one of the two libraries.

    Attributes:
      pieces: number → piece, without the piece of unknown characters and those that write nothing.
    """

    pieces: dict[int, str]

    def encode(self, text: str) -> list[int]: ...

    def decode(self, numbers: list[int]) -> str: ...


class _TokenizerJson:
    """A tokenizer.json, by the package tokenizers."""

    def __init__(self, content: bytes) -> None:
        from tokenizers import Tokenizer

        # Texts as they are, however long: a file may ask for a length.
        self._tokenizer: Any = Tokenizer.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

        # Unigram names its unknown piece by number, the others by text.
        model = json.loads(content)["model"]
        names = {token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special}
        left_out = {*names, model.get("unk_token")}
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).items()
        self.pieces = {
            number: piece for piece, number in numbers if piece not in left_out and number != model.get("unk_id")
        }

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, numbers: list[int]) -> str:
        return str(self._tokenizer.decode(numbers, skip_special_tokens=True))


class _TokenizerModel:
    """A tokenizer.model, by the package sentencepiece."""

    def __init__(self, content: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        # From bytes: they were read with a limit, and the same ones are written into an exported model.
        self._processor: Any = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(content)
        self.pieces = {
            number: self._processor.IdToPiece(number)
            for number in range(self._processor.GetPieceSize())
            if not self._processor.IsUnknown(number) and not self._processor.IsControl(number)
        }

    def encode(self, text: str) -> list[int]:
        return list(self._processor.EncodeAsIds(text))

    def decode(self, numbers: list[int]) -> str:
        return str(self._processor.DecodeIds(numbers))


_FORMS: dict[TokenizerForm, Any] = {TOKENIZER_JSON: _TokenizerJson, TOKENIZER_MODEL: _TokenizerModel}


def _open(file: TokenizerForm, content: bytes) -> _Tokenizer:
    try:
        tokenizer: _Tokenizer = _FORMS[file](content)
    except Exception as error:  # both libraries raise errors of their own kinds
        raise WorkError(f"{file}: not a tokenizer, or damaged ({error}); get the model again") from None
    return tokenizer

"""Whisper's tokenizer: byte-level pieces (BPE) of text as it is written, and special tokens that ask for a transcript.

  tokenizer = WhisperTokenizer.read(content, language="en", task="transcribe")
  tokenizer.encode("Hello.")      # the labels of a training example: the tokens of " Hello.", and the end token
  tokenizer.prompt                # what the decoder reads before them

Pieces are bytes (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2), so that any
text can be spelled: capitals, digits and punctuation too. Special tokens and times are never part of a text.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterable
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.text.public_tokenizer import TOKENIZER_JSON, PublicTokenizer

START = "<|startoftranscript|>"
END = "<|endoftext|>"
NO_TIMES = "<|notimestamps|>"
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages whose words have no spaces between them; in others Whisper writes one before the first word too."""
_PRINTED = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
"""Bytes that a piece has as themselves; the others are the characters from 256 on, in their order."""


@dataclasses.dataclass(frozen=True)
class WhisperTokenizer(PublicTokenizer):
    """The tokens of a Whisper model, in place of an alphabet. It has no symbols: labels are the tokens' own numbers.

    Attributes:
      language: of the prompt, such as "en"; "" of an English-only model.
      task: of the prompt, transcribe or translate; "" of an English-only model.
      columns: the number of the end token alone.
    """

    language: str = ""
    task: str = ""

    @classmethod
    def read(cls, content: bytes, language: str = "", task: str = "") -> "WhisperTokenizer":
        """Reads the bytes of a tokenizer.json.

        Raises:
          WorkError: it is damaged, or not Whisper's.
        """
        try:
            numbers = cls((), TOKENIZER_JSON, content).numbers
            missing = [token for token in (START, END, NO_TIMES) if token not in numbers]
        except Exception as error:  # the library raises errors of its own kinds
            raise WorkError(f"{TOKENIZER_JSON}: not a tokenizer, or damaged ({error}); get the model again") from None
        if missing:
            raise WorkError(f"{TOKENIZER_JSON}: not Whisper's: it has no token {missing[0]}; get the model again")
        return cls((), TOKENIZER_JSON, content, (numbers[END],), language, task)

    def with_prompt(self, language: str, task: str) -> "WhisperTokenizer":
        """The same tokens after another prompt.

        Raises:
          SettingsError: there is no token for the language or the task.
        """
        tokenizer = dataclasses.replace(self, language=language, task=task)
        _ = tokenizer.prompt
        return tokenizer

    @property
    def end(self) -> int:
        """The token after the last one of a text."""
        return self.columns[-1]

    @functools.cached_property
    def prompt(self) -> tuple[int, ...]:
        """The tokens before a text: the start, language and task if they are set, and the one that asks for no times.

        Raises:
          SettingsError: there is no token for the language or the task.
        """
        # English-only models have tokens for languages too, but were never trained with them.
        settings = {"language": self.language, "task": self.task}
        for setting, name in settings.items():
            if name and f"<|{name}|>" not in self.numbers:
                raise SettingsError(
                    f"train.model.prompt.{setting} is {name!r}, and the model's tokenizer has no token <|{name}|>; "
                    "set one that it has, such as language: en and task: transcribe"
                )

        # In the order of the training: start, language, task, no times.
        names = [f"<|{name}|>" for name in settings.values() if name]
        return tuple(self.numbers[token] for token in (START, *names, NO_TIMES))

    @functools.cached_property
    def pieces(self) -> dict[int, bytes]:
        """Number → the bytes that a token writes, without special tokens and times."""
        # Bytes that are no printed character are written as the characters from 256 on.
        special = self._tokenizer_json.get_added_tokens_decoder()
        hidden = set(range(256)) - set(_PRINTED)
        letters = {chr(byte): byte for byte in _PRINTED}
        letters |= {chr(256 + place): byte for place, byte in enumerate(sorted(hidden))}
        return {
            number: bytes(letters[letter] for letter in piece)
            for piece, number in self.numbers.items()
            if number not in special and all(letter in letters for letter in piece)
        }

    @property
    def languages(self) -> dict[str, int]:
        """The token of each language, such as "en", in the order of their numbers."""
        tokens = sorted(self.numbers.items(), key=lambda item: item[1])
        return {match[1]: number for token, number in tokens if (match := _LANGUAGE.fullmatch(token))}

    @property
    def blank_token(self) -> int | None:
        """The token of a single space, with which no text begins."""
        return self.numbers.get("Ġ")

    @functools.cached_property
    def characters(self) -> str:
        """None: there is no list of all that bytes can spell."""
        return ""

    def unknown(self, text: str) -> str:
        """The characters of a text with a byte that has no piece; the pieces of public models have all bytes."""
        return "".join(character for character in dict.fromkeys(text) if not self._bytes.issuperset(character.encode()))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, and the end token."""
        # A text is what follows the prompt, so its first word is like any other.
        space = "" if self.language in WITHOUT_SPACES or not text else " "
        return [*self._tokenizer_json.encode(space + text, add_special_tokens=False).ids, self.end]

    def decode(self, labels: Iterable[int]) -> str:
        """The text of tokens, up to the first end token; special ones write nothing."""
        text = bytearray()
        for label in labels:
            if label == self.end:
                break
            text += self.pieces.get(label, b"")

        # A sequence that is cut within a character has no text for its last bytes.
        return text.decode("utf-8", "replace").strip()

    def label_words(self, text: str) -> list[tuple[int, int]]:
        raise NotImplementedError("tokens of a decoder have no places in the audio")

    @functools.cached_property
    def _bytes(self) -> frozenset[int]:
        return frozenset(piece[0] for piece in self.pieces.values() if len(piece) == 1)

    @functools.cached_property
    def _tokenizer_json(self) -> Any:
        from tokenizers import Tokenizer

        # Texts as they are, however long: a file may ask for a length.
        tokenizer: Any = Tokenizer.from_buffer(self.content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        if json.loads(self.content)["model"].get("type") != "BPE":
            raise ValueError("its model is not BPE")
        numbers: dict[str, int] = self._tokenizer_json.get_vocab(with_added_tokens=True)
        return numbers


@dataclasses.dataclass(frozen=True)
class SearchRules:
    """The tokens that may follow.

    Attributes:
      prompt: the tokens before a text.
      end: the token after it.
      penalties: float32 [vocabulary], 0 of the tokens of texts and of the end, and minus infinity of others: special
        tokens and times.
      first_penalties: the same for the first token, which is neither a single space nor the end.
    """

    prompt: tuple[int, ...]
    end: int
    penalties: Any
    first_penalties: Any

    @classmethod
    def of(cls, tokenizer: WhisperTokenizer, tokens: int) -> "SearchRules":
        """The rules of a model with so many tokens."""
        import numpy as np

        penalties = np.full(tokens, -np.inf, np.float32)
        penalties[[*tokenizer.pieces, tokenizer.end]] = 0

        first_penalties = penalties.copy()
        first_penalties[tokenizer.end] = -np.inf
        if tokenizer.blank_token is not None:
            first_penalties[tokenizer.blank_token] = -np.inf
        return cls(tokenizer.prompt, tokenizer.end, penalties, first_penalties)

"""Vocabularies of public CTC models: vocab.json of wav2vec 2.0 and its kin, as an alphabet of ours.

vocabulary = read_ctc_vocabulary(model.json_file("vocab.json"), tokenizer, source=model.label)
kernel = kernel[:, vocabulary.columns]                    # [units, symbols + 1], the blank last
"""

import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from voxline.errors import SettingsError

SPECIAL_TOKENS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
"""Keys of tokenizer_config.json, and what they are where it does not say. The blank is the first."""
WORD_DELIMITER = "|"


@dataclasses.dataclass(frozen=True)
class CtcVocabulary:
    """The symbols of a public model, and their columns in its output layer.

    Attributes:
      symbols: of an `Alphabet`, in the order of the model: a string, or a tuple if some are longer than a character.
      columns: the model's column of each symbol, and that of the blank after them. Columns of its start, end and
        unknown tokens are not among them: training with CTC has left them without a use.
      size: columns of the model's output layer that vocab.json names.
    """

    symbols: Sequence[str]
    columns: tuple[int, ...]
    size: int


def read_ctc_vocabulary(
    tokens: Any, tokenizer: Mapping[str, Any] | None = None, *, source: str, language: str = ""
) -> CtcVocabulary:
    """Reads a vocabulary: the word delimiter is a space, capitals are small letters if there are no small ones.

    Args:
      tokens: the content of vocab.json, token → column; of MMS language → token → column.
      tokenizer: the content of tokenizer_config.json or special_tokens_map.json, which name the special tokens.
      source: names the model in messages.
      language: of MMS.

    Raises:
      SettingsError: there is no blank, the file is no vocabulary, or it lacks the language.

    >>> tokens = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "E": 5, "'": 6}
    >>> read_ctc_vocabulary(tokens, source="a model")
    CtcVocabulary(symbols=" e'", columns=(4, 5, 6, 0), size=7)
    """
    columns = _check_columns(_of_language(tokens, language, source), source)
    names = {key: _text(tokenizer, key, usual) for key, usual in SPECIAL_TOKENS.items()}
    blank = names["pad_token"]
    if blank not in columns:
        raise SettingsError(
            f"{source}: vocab.json has no {blank!r}, the pad token, which is the blank of CTC; a model with a CTC "
            "vocabulary is accepted"
        )

    # Other tokens, in the order of their columns.
    special = {*names.values(), *SPECIAL_TOKENS.values()}
    delimiter = _text(tokenizer, "word_delimiter_token", WORD_DELIMITER)
    if delimiter in columns:
        special.add(" ")  # the delimiter is our space
    spoken = sorted((column, token) for token, column in columns.items() if token not in special)

    symbols = [" " if token == delimiter else unicodedata.normalize("NFC", token) for _, token in spoken]
    if not any(symbol != symbol.upper() for symbol in symbols):
        symbols = [_small(symbol) for symbol in symbols]
    if repeated := sorted({symbol for symbol in symbols if symbols.count(symbol) > 1}):
        raise SettingsError(f"{source}: vocab.json has two tokens for {repeated[0]!r}; different ones are accepted")

    several = any(len(symbol) > 1 for symbol in symbols)
    order = (*(column for column, _ in spoken), columns[blank])

    return CtcVocabulary(tuple(symbols) if several else "".join(symbols), order, max(columns.values()) + 1)


def _of_language(tokens: Any, language: str, source: str) -> Any:
    """The vocabulary itself, where a file has one for each language."""
    if not isinstance(tokens, dict) or not tokens or not all(isinstance(value, dict) for value in tokens.values()):
        return tokens
    if language not in tokens:
        several = ", ".join(sorted(tokens)[:20])
        more = f" and {len(tokens) - 20:,} more" if len(tokens) > 20 else ""
        raise SettingsError(
            f"{source}: vocab.json has a vocabulary for each language and none for {language!r}; give one of "
            f"{several}{more}"
        )
    return tokens[language]


def _check_columns(tokens: Any, source: str) -> dict[str, int]:
    columns = tokens.values() if isinstance(tokens, dict) else [None]
    whole = all(isinstance(column, int) and not isinstance(column, bool) and column >= 0 for column in columns)
    if not tokens or not whole or len(set(columns)) < len(tokens):
        raise SettingsError(f"{source}: vocab.json is no mapping of tokens to different columns; get the file again")
    return dict(tokens)


def _text(tokenizer: Mapping[str, Any] | None, key: str, usual: str) -> str:
    """Reads a special token, which may be a text or a mapping with its content."""
    value = (tokenizer or {}).get(key, usual)
    value = value.get("content", usual) if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else usual


def _small(symbol: str) -> str:
    """The small letter; a capital whose small letter is two characters stays."""
    small = unicodedata.normalize("NFC", symbol.lower())
    return small if len(small) == len(symbol) else symbol

"""Tokenizers of public models: their pieces as symbols, and the segmentation of their own libraries.

The tokenizer of tests/families/networks/hub/fastconformer was trained by SentencePiece and converted by transformers,
whose segmentations of some sentences are stored beside it.
"""

import json
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.conftest import ROOT
from voxline.errors import WorkError
from voxline.text.alphabet import Alphabet
from voxline.text.public_tokenizer import TOKENIZER_JSON, TOKENIZER_MODEL, PublicTokenizer

PARAKEET = ROOT / "tests" / "families" / "networks" / "hub" / "fastconformer"
BLANK = 48
FILES = (TOKENIZER_JSON, TOKENIZER_MODEL)


def parakeet(file: Any = TOKENIZER_JSON) -> PublicTokenizer:
    return PublicTokenizer.of(file, (PARAKEET / file).read_bytes(), BLANK)


def of_pieces(model: Any, blank: int, prefix: Any = "always") -> PublicTokenizer:
    """A tokenizer of SentencePiece's form with the given pieces."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=prefix)
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    return PublicTokenizer.of(TOKENIZER_JSON, tokenizer.to_str().encode(), blank)


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    with np.load(PARAKEET / "outputs.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("texts", "pieces", "sentencepieces")}


@pytest.mark.parametrize(("file", "by"), [(TOKENIZER_JSON, "pieces"), (TOKENIZER_MODEL, "sentencepieces")])
def test_sentences_are_cut_as_the_models_own_library_cuts_them(file: Any, by: str, stored: dict[str, Any]) -> None:
    tokenizer = parakeet(file)
    labels = [label for text in stored["texts"] for label in tokenizer.encode(text)]
    assert [tokenizer.columns[label] for label in labels] == stored[by].tolist()


@pytest.mark.parametrize("file", FILES)
def test_labels_are_decoded_to_the_text_and_so_are_joined_symbols(file: Any, stored: dict[str, Any]) -> None:
    tokenizer = parakeet(file)
    for text in stored["texts"]:
        labels = tokenizer.encode(text)
        assert len(labels) < len(text)
        assert tokenizer.decode(labels) == text
        assert "".join(tokenizer.symbols[label] for label in labels) == f" {text}"
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("file", FILES)
def test_symbols_are_all_pieces_but_the_unknown_one_and_the_blank_is_the_last_column(file: Any) -> None:
    tokenizer = parakeet(file)
    pieces = json.loads((PARAKEET / TOKENIZER_JSON).read_text())["model"]["vocab"]
    assert tokenizer.symbols == tuple(piece.replace("▁", " ") for piece in pieces if piece != "<unk>")
    assert tokenizer.columns == tuple(range(1, BLANK + 1))
    assert tokenizer.blank == len(tokenizer.symbols) == BLANK - 1
    assert set(tokenizer.characters) == set(" abcdefghijklmnopqrstuvwxyz'")


@pytest.mark.parametrize("file", FILES)
def test_a_character_without_a_piece_is_named_and_not_dropped(file: Any) -> None:
    tokenizer = parakeet(file)
    assert tokenizer.unknown("the naïve ½ Cat") == "ï½C"
    assert "'ï' (U+00EF" in tokenizer.describe_unknown("naïve")
    with pytest.raises(ValueError, match=r"'ï' is not in the model's tokenizer"):
        tokenizer.encode("naïve")
    with pytest.raises(ValueError, match="is not in the model's tokenizer"):
        tokenizer.encode("the <pad>")


@pytest.mark.parametrize("file", FILES)
def test_words_are_found_among_the_labels(file: Any) -> None:
    tokenizer = parakeet(file)
    text = "the jump can't"
    labels = tokenizer.encode(text)
    words = ["".join(tokenizer.symbols[label] for label in labels[a:b]) for a, b in tokenizer.label_words(text)]
    assert words == [" the", " jump", " can't"]
    assert tokenizer.label_words("") == []
    assert tokenizer.words_begin_with_space
    assert not Alphabet([" ", "a", "b", "ab"]).words_begin_with_space


def test_unigrams_and_a_blank_among_the_pieces_are_read() -> None:
    """Unigram's best path, which pairs would not find; columns skip the blank."""
    scores = [("<pad>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("a", -3.0), ("b", -3.0), ("▁a", -2.0), ("bab", -1.0)]
    tokenizer = of_pieces(tokenizers.models.Unigram(scores, unk_id=1), blank=0)
    assert tokenizer.symbols == (" ", "a", "b", " a", "bab")
    assert tokenizer.columns == (2, 3, 4, 5, 6, 0)
    assert tokenizer.encode("abab b") == [3, 4, 0, 2]
    assert tokenizer.decode([3, 4, 0, 2]) == "abab b"
    assert tokenizer.label_words("abab b") == [(0, 2), (2, 4)]


def test_a_first_word_without_a_space_is_a_word() -> None:
    """Some tokenizers put no space before a text."""
    tokenizer = of_pieces(tokenizers.models.BPE({"▁": 0, "a": 1, "▁a": 2}, [("▁", "a")]), blank=3, prefix="never")
    assert tokenizer.encode("a aa") == [1, 2, 1]
    assert tokenizer.label_words("a aa") == [(0, 1), (1, 3)]


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_refused(file: Any) -> None:
    with pytest.raises(WorkError, match=rf"{file}: not a tokenizer, or damaged"):
        PublicTokenizer.of(file, b'{"model": 1', BLANK)


def test_two_pieces_for_one_symbol_are_refused() -> None:
    model = tokenizers.models.BPE({"a": 0, " a": 1, "▁a": 2}, [])
    with pytest.raises(WorkError, match="two pieces are written ' a'"):
        of_pieces(model, blank=3)

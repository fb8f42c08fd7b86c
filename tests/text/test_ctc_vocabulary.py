"""Vocabularies of public CTC models become alphabets of ours."""

import json
from typing import Any

import pytest

from tests.conftest import ROOT
from voxline.errors import SettingsError
from voxline.text.alphabet import Alphabet
from voxline.text.ctc_vocabulary import read_ctc_vocabulary

LIBRISPEECH = {
    token: column for column, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ"])
}
"""vocab.json of most English models."""


def read(tokens: Any, tokenizer: Any = None, language: str = "") -> Any:
    return read_ctc_vocabulary(tokens, tokenizer, source="a model", language=language)


def test_the_vocabulary_of_english_models_is_our_english_alphabet_in_another_order() -> None:
    vocabulary = read(LIBRISPEECH)
    assert sorted(vocabulary.symbols) == sorted(Alphabet.from_name("english").symbols)
    assert vocabulary.symbols.startswith(" etaoni")
    assert vocabulary.columns == (*range(4, 32), 0)
    assert vocabulary.size == 32


def test_labels_stand_for_the_columns_of_their_letters() -> None:
    vocabulary = read(LIBRISPEECH)
    alphabet = Alphabet(vocabulary.symbols)
    columns = [vocabulary.columns[label] for label in [*alphabet.encode("it's me"), alphabet.blank]]
    assert columns == [LIBRISPEECH[token] for token in ["I", "T", "'", "S", "|", "M", "E", "<pad>"]]


def test_special_tokens_are_those_that_the_tokenizer_names() -> None:
    tokens = {"a": 0, "b": 1, "#": 2, "[UNK]": 3, "[PAD]": 4}
    tokenizer = {"pad_token": {"content": "[PAD]"}, "unk_token": "[UNK]", "word_delimiter_token": "#"}
    vocabulary = read(tokens, tokenizer)
    assert (vocabulary.symbols, vocabulary.columns) == ("ab ", (0, 1, 2, 4))


def test_capitals_stay_where_there_are_small_letters() -> None:
    assert read({"<pad>": 0, "|": 1, "A": 2, "a": 3}).symbols == " Aa"
    assert read({"<pad>": 0, "|": 1, "E\N{COMBINING ACUTE ACCENT}": 2}).symbols == " é"


def test_tokens_of_several_characters_make_a_tuple() -> None:
    assert read({"<pad>": 0, "a": 1, "aɪ": 2}).symbols == ("a", "aɪ")


def test_each_language_of_mms_has_its_vocabulary() -> None:
    tokens = json.loads((ROOT / "tests/families/networks/hub/mms/vocab.json").read_text(encoding="utf-8"))
    assert read(tokens, language="eng").symbols == " eatn's"
    assert read(tokens, language="fra").symbols == " eatn'sé"
    with pytest.raises(SettingsError, match=r"a model: vocab.json .* none for 'deu'; give one of eng, fra"):
        read(tokens, language="deu")


def test_a_vocabulary_without_a_blank_or_with_two_tokens_for_a_symbol_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"a model: vocab.json has no '<pad>', the pad token"):
        read({"a": 0, "b": 1})
    with pytest.raises(SettingsError, match="two tokens for 'é'"):
        read({"<pad>": 0, "é": 1, "e\N{COMBINING ACUTE ACCENT}": 2})
    for damaged in (None, [], {}, {"<pad>": 0, "a": 0}, {"<pad>": "x"}, {"<pad>": True, "a": 0}):
        with pytest.raises(SettingsError, match=r"vocab.json is no mapping of tokens to different columns"):
            read(damaged)

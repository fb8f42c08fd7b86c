"""Subwords against byte-pair encoding as Sennrich et al. 2016 print it, and texts that must come back as they were."""

import collections
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voxline.errors import SettingsError
from voxline.text.alphabet import Alphabet, split_runs
from voxline.text.subwords import extend_subwords, learn_subwords

LETTERS = " abcdeéǚ"
HANZI = "今天很好，"
MIXED = Alphabet.from_name(LETTERS + HANZI)
ENGLISH = Alphabet.from_name("english")
SENTENCES = [
    "the other brother gathers the feathers",
    "mother gathers other things then",
    "a thing is a thing nothing else",
    "there is nothing there",
]


def published(words: list[str], joins: int) -> tuple[list[str], list[str]]:
    """The program of the paper's figure 1, with the ties of ours: words as symbols between spaces, pairs by regex.

    Returns:
      What it learns, and the words as it spells them in the end.
    """
    vocabulary = collections.Counter(" ".join(word) for word in words)
    learned: list[str] = []
    while len(learned) < joins:
        pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        for word, count in vocabulary.items():
            symbols = word.split()
            for index in range(len(symbols) - 1):
                pairs[symbols[index], symbols[index + 1]] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=("", ""))
        if pairs[best] < 2:
            break
        pattern = re.compile(r"(?<!\S)" + re.escape(" ".join(best)) + r"(?!\S)")
        vocabulary = collections.Counter({pattern.sub("".join(best), word): n for word, n in vocabulary.items()})
        if "".join(best) not in learned:
            learned.append("".join(best))
    return learned, list(vocabulary)


@given(st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 20))
@example(" ".join(SENTENCES).split(), 25)
@example(" ".join(SENTENCES).split(), 500)
def test_subwords_and_spellings_are_those_of_the_published_program(words: list[str], joins: int) -> None:
    found = learn_subwords([" ".join(words)], ENGLISH, len(ENGLISH.symbols) + joins)
    learned, spelled = published(words, joins)
    assert "".join(found.symbols[: len(ENGLISH.symbols)]) == ENGLISH.symbols
    assert list(found.symbols[len(ENGLISH.symbols) :]) == learned
    for spelling in spelled:
        labels = found.encode(spelling.replace(" ", ""))
        assert [found.symbols[label] for label in labels] == spelling.split()


@given(st.lists(st.text(MIXED.characters), max_size=6), st.integers(1, 30), st.text(MIXED.characters))
def test_every_text_comes_back_as_it_was(texts: list[str], more: int, text: str) -> None:
    subwords = learn_subwords(texts, MIXED, len(MIXED.symbols) + more)
    assert len(subwords.symbols) <= len(MIXED.symbols) + more
    assert len(set(subwords.symbols)) == len(subwords.symbols)
    assert subwords.characters == MIXED.characters
    for one in [*texts, text]:
        labels = subwords.encode(one)
        assert subwords.decode(labels) == one
        assert len(labels) <= len(one)
        # Words are spelled alone, whatever is around them: a lexicon of spellings finds them.
        assert labels == [label for run in split_runs(one) for label in subwords.encode(run)]
    for symbol in subwords.symbols:
        assert subwords.encode(symbol) == [subwords.symbols.index(symbol)]
        assert unicodedata.is_normalized("NFC", symbol)
        assert len(symbol) == 1 or not set(symbol) & {" ", *HANZI[:4]}


def test_a_frequent_word_becomes_one_symbol_and_a_new_one_is_spelled() -> None:
    subwords = learn_subwords(SENTENCES, ENGLISH, 60)
    shown = [subwords.symbols[label] for label in subwords.encode("the thing zoo")]
    assert shown == ["the", " ", "thing", " ", "z", "o", "o"]
    with pytest.raises(ValueError, match="'é' is not in the alphabet"):
        subwords.encode("é")
    assert subwords.unknown("thé ½") == "é½"


def test_chinese_characters_stay_words_and_letters_between_them_join() -> None:
    subwords = learn_subwords(["今天abc很好", "abc今天", "ab 很好"], MIXED, 40)
    assert [one for one in subwords.symbols if len(one) > 1] == ["ab", "abc"]
    assert [subwords.symbols[label] for label in subwords.encode("今天abc")] == ["今", "天", "abc"]


def test_more_symbols_are_asked_for_than_the_alphabet_has() -> None:
    with pytest.raises(SettingsError, match=r"train\.subwords is 28, and the alphabet has 28 characters"):
        learn_subwords(SENTENCES, ENGLISH, 28)


def test_subwords_of_an_earlier_model_are_kept_as_far_as_the_alphabet_spells_them() -> None:
    learned = learn_subwords(["abc abc abd", "ab cab"], Alphabet(" abcd"), 9)
    kept = extend_subwords(learned, Alphabet(" abdé"))
    assert kept.symbols == (" ", "a", "b", "d", "ab", "é")
    assert kept.decode(kept.encode("abdé ab")) == "abdé ab"

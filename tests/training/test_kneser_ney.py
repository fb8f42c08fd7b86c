"""The trainer of n-gram models against KenLM's lmplz.

lmplz/ holds a text, and the models that lmplz (kpu/kenlm, built from its sources) made of it:

  lmplz -o 3 < text.txt > 3.arpa
  lmplz -o 4 --prune 0 0 1 1 --discount_fallback < text.txt > 4-pruned.arpa
"""

import gzip
from pathlib import Path

import pytest

from voxline.errors import SettingsError, WorkError
from voxline.inference.ngram import NgramModel
from voxline.training.kneser_ney import train_ngrams

HERE = Path(__file__).parent / "lmplz"


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    return [line.split() for line in gzip.open(HERE / "text.txt.gz", "rt", encoding="utf-8")]


def values(model: NgramModel) -> dict[tuple[str, ...], tuple[float, float]]:
    """(log probability, back-off weight) of each n-gram."""
    found = {}
    for order, (grams, probabilities) in enumerate(zip(model.grams, model.log10_probabilities, strict=True)):
        backoffs = model.log10_backoffs[order] if order < model.order - 1 else [0.0] * len(grams)
        for row, probability, backoff in zip(grams, probabilities, backoffs, strict=True):
            found[tuple(model.words[number] for number in row)] = (float(probability), float(backoff))
    return found


@pytest.mark.parametrize(("name", "order", "prune"), [("3", 3, [0]), ("4-pruned", 4, [0, 0, 1])])
def test_every_number_is_that_of_lmplz(sentences: list[list[str]], name: str, order: int, prune: list[int]) -> None:
    expected = values(NgramModel.read_arpa(HERE / f"{name}.arpa.gz"))
    found = values(train_ngrams(sentences, order, prune))
    assert found.keys() == expected.keys()
    assert max(abs(found[gram][0] - expected[gram][0]) for gram in expected) < 1e-5
    assert max(abs(found[gram][1] - expected[gram][1]) for gram in expected) < 1e-5


@pytest.mark.parametrize("prune", [[0], [0, 1], [0, 0, 2]])
def test_probabilities_sum_to_one_in_every_context(sentences: list[list[str]], prune: list[int]) -> None:
    model = train_ngrams(sentences[:60], 3, prune, vocabulary=50)
    assert len(model.vocabulary) == 50
    frequent = model.vocabulary[:4]
    for context in ([], ["<s>"], *([word] for word in frequent), *(["<s>", word] for word in frequent), ["<unk>"]):
        words = [word for word in model.words if word != "<s>"]
        assert sum(10 ** model.log10_probability(word, context) for word in words) == pytest.approx(1, abs=1e-5)


def test_the_order_of_the_sentences_does_not_matter(sentences: list[list[str]]) -> None:
    forth, back = train_ngrams(sentences[:80], 3), train_ngrams(sentences[79::-1], 3)
    assert forth.words == back.words
    assert values(forth) == values(back)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(WorkError, match="has no sentence"):
        train_ngrams([[], []])
    for prune in ([1], [0, 2, 1]):
        with pytest.raises(SettingsError, match="numbers that do not descend"):
            train_ngrams([["a"]], 3, prune)

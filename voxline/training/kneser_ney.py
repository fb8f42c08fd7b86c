"""Trains an n-gram model: interpolated modified Kneser-Ney smoothing, as KenLM's `lmplz` computes it.

Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling"; Heafield et al. 2013,
"Scalable modified Kneser-Ney language model estimation", which this follows in what the first leaves open: n-grams that
start with `<s>` keep their counts at every order, pruned n-grams still count for discounts and denominators, and
`<unk>` is a word that was never seen.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError, WorkError
from voxline.inference.ngram import SPECIAL_WORDS, NgramModel, sorted_model
from voxline.progress import print_status

Array = npt.NDArray[Any]
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
"""Those of lmplz's --discount_fallback, for text too small or too regular to derive them."""
START = 1
"""Number of `<s>`; those of `SPECIAL_WORDS` come first in every vocabulary."""
END = 2
"""Number of `</s>`."""


@dataclasses.dataclass(frozen=True)
class _Order:
    """The n-grams of one order, pruned ones included.

    Attributes:
      grams: int32 [n-grams, n].
      prefix, suffix: the n-gram of the order below without the last and without the first word.
      counts: how often the text has them.
      adjusted: the counts of Kneser-Ney: of the highest order and after `<s>` as `counts`, else the number of different
        words before them.
    """

    grams: Array
    prefix: Array
    suffix: Array
    counts: Array
    adjusted: Array


def train_ngrams(
    sentences: Iterable[Sequence[str]], order: int = 3, prune: Sequence[int] = (0,), vocabulary: int = 0
) -> NgramModel:
    """Trains a model on sentences.

    Args:
      sentences: the words of each; empty ones are skipped.
      prune: n-grams that occur at most this often are left out, for each order from 1; the last number counts for all
        further orders. Never descending, and 0 for single words.
      vocabulary: most frequent words kept; the others count as `<unk>`. 0: all.

    Raises:
      SettingsError: the numbers of `prune` descend, or the first is not 0.
      WorkError: there is no sentence.
    """
    thresholds = _thresholds(prune, order)
    words, tokens, starts = _number_words(sentences, vocabulary)
    orders = _count(tokens, starts, order, len(words))
    masks = [counted.counts > limit for counted, limit in zip(orders, thresholds, strict=True)]
    masks[0][:] = True  # a single word is never pruned

    # From the lowest order to the highest: p(w|context) = own + gamma(context) · p(w|shorter context), equation 4 of
    # Heafield et al. The order below single words is uniform.
    lower = np.full(1, 1.0 / (len(words) - 1))  # <unk> and </s> are words, <s> is not
    probabilities = []
    gammas = []
    for number, (counted, keep) in enumerate(zip(orders, masks, strict=True), 1):
        # One discount each for a count of 1, 2, and 3 or more; sums over the n-grams that share a prefix.
        discounts = _discounts(counted.adjusted, number)
        contexts = len(orders[number - 2].grams) if number > 1 else 1
        total = np.bincount(counted.prefix, counted.adjusted, contexts)
        discount = discounts[np.minimum(counted.adjusted, 3)]

        # What discounts and pruning take from the n-grams of a context goes to the order below.
        taken = np.where(keep, discount, counted.adjusted)
        gamma = np.bincount(counted.prefix, taken, contexts) / np.maximum(total, 1)

        own = (counted.adjusted - discount) / np.maximum(total[counted.prefix], 1)
        lower = own + gamma[counted.prefix] * lower[counted.suffix]

        if number == 1:
            lower[START] = 1.0  # lmplz writes it so; nothing asks for it
        probabilities.append(lower)

        gammas.append(np.where(total > 0, gamma, 1.0))

    # ARPA holds base-10 logarithms, with -99 for a backoff of zero. The highest order has no backoff.
    with np.errstate(divide="ignore"):
        logs = [np.minimum(np.log10(values), 0.0) for values in probabilities]
        backoffs = [np.where(values > 0, np.log10(values), -99.0) for values in gammas[1:]]

    # Pruned n-grams have done their part above, and are left out only here.
    return sorted_model(
        words,
        [counted.grams[keep] for counted, keep in zip(orders, masks, strict=True)],
        [values[keep].astype(np.float32) for values, keep in zip(logs, masks, strict=True)],
        [values[keep].astype(np.float32) for values, keep in zip(backoffs, masks[:-1], strict=True)],
    )


def _thresholds(prune: Sequence[int], order: int) -> list[int]:
    numbers = [*prune, *itertools.repeat(prune[-1] if prune else 0, order)][:order]
    if any(high < low for low, high in itertools.pairwise(numbers)) or (numbers and numbers[0]):
        raise SettingsError(
            f"prune is {list(prune)}; 0 for single words, and then numbers that do not descend, are accepted, such as "
            "[0, 0, 1]"
        )
    return numbers


def _number_words(sentences: Iterable[Sequence[str]], vocabulary: int) -> tuple[list[str], Array, Array]:
    """The words; the text as their numbers, each sentence between `<s>` and `</s>`; where the sentence of a token ends.

    Words are numbered by the alphabet, so that the order of the sentences does not matter.
    """
    # These numbers are by first appearance: which words the vocabulary keeps is known only once all are counted.
    # -1 stands for <s>, and -2 for </s>.
    numbers: dict[str, int] = {}
    tokens: list[int] = []
    ends: list[int] = []
    for words in sentences:
        if not words:
            continue
        tokens.append(-1)
        tokens.extend(numbers.setdefault(word, len(numbers)) for word in words)
        tokens.append(-2)
        ends.append(len(tokens))
    if not ends:
        raise WorkError("the text of the language model has no sentence; give it text, one sentence a line")

    flat = np.array(tokens, np.int64)
    names = list(numbers)
    counts = np.bincount(flat[flat >= 0], minlength=len(names))

    # Equal counts are ordered by the word, so that the vocabulary does not depend on the order of the text.
    keep = sorted(range(len(names)), key=lambda index: (-counts[index], names[index]))[: vocabulary or None]
    special = set(SPECIAL_WORDS)
    order = sorted(names[index] for index in keep if names[index] not in special)
    words = [*SPECIAL_WORDS, *order]

    place = {word: number for number, word in enumerate(words)}

    # A negative index counts from the end, where -2 finds </s> and -1 finds <s>. Words of the text that are spelt like
    # special ones, and those that are not kept, are <unk>, whose number is 0.
    mapped = np.array([0 if name in special else place.get(name, 0) for name in names] + [END, START], np.int64)

    sizes = np.diff([0, *ends])
    return words, mapped[flat], np.repeat(np.array(ends), sizes)


def _count(tokens: Array, ends: Array, order: int, size: int) -> list[_Order]:
    """Counts the n-grams of every order."""
    # `codes[i]` is the n-gram that starts at token i, as a row of the order's table.
    codes = tokens
    grams = np.arange(size, dtype=np.int32)[:, None]
    counts = np.bincount(tokens, minlength=size)
    # Nothing predicts <s>, so it has no share in the probability of single words.
    counts[START] = 0
    nothing = np.zeros(size, np.int64)
    counted_orders = [_Order(grams, nothing, nothing, counts, counts)]

    positions = np.arange(len(tokens))
    for length in range(2, order + 1):
        # No n-gram crosses the end of its sentence.
        starts = positions[positions + length <= ends[positions]]
        # An n-gram is the number of its prefix and its last word, in one int64: `np.unique` sorts them in that order.
        keys = codes[starts] * size + tokens[starts + length - 1]
        unique, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)

        prefix, word = np.divmod(unique, size)
        suffix = codes[starts[first] + 1]

        # Kneser-Ney counts the different words before an n-gram, in place of how often it occurs. Before <s> there is
        # none, so n-grams that start with it keep their counts.
        below = counted_orders[-1]
        different = np.bincount(suffix, minlength=len(below.grams))
        adjusted = np.where(below.grams[:, 0] == START, below.counts, different)
        counted_orders[-1] = dataclasses.replace(below, adjusted=adjusted)

        grams = np.concatenate([below.grams[prefix], word[:, None]], axis=1).astype(np.int32)
        counted_orders.append(_Order(grams, prefix, suffix, counts, counts))

        codes = np.full(len(tokens), -1, np.int64)
        codes[starts] = inverse
    return counted_orders


def _discounts(adjusted: Array, order: int) -> Array:
    """Returns the discounts of an adjusted count of 0, 1, 2, and 3 or more (Chen and Goodman, equation 26)."""
    ones, twos, threes, fours = (int((adjusted == number).sum()) for number in range(1, 5))

    # Each discount divides by the count before it; some are undefined or out of range for a text of few words.
    if ones and twos and threes:
        y = ones / (ones + 2 * twos)
        values = [1 - 2 * y * twos / ones, 2 - 3 * y * threes / twos, 3 - 4 * y * fours / threes]
        if all(0 <= value <= number for number, value in enumerate(values, 1)):
            return np.array([0.0, *values])
    print_status(
        f"language: {order}-grams are too few or too regular to derive discounts; {FALLBACK_DISCOUNTS} are used"
    )
    return np.array([0.0, *FALLBACK_DISCOUNTS])

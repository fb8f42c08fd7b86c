"""Subwords: symbols of several characters, learned from transcripts by byte-pair encoding (BPE).

Sennrich et al. 2016, "Neural machine translation of rare words with subword units" (arXiv 1508.07909), on characters.
The symbols are all characters of an alphabet, and after them the subwords in the order in which they were learned. So
every text in the alphabet has a spelling, and `Alphabet.encode` needs nothing but the list.

No subword has a space or a Chinese character: a space stays a symbol that ends a word, a Chinese character a word.
"""

import collections
import heapq
import itertools
from collections.abc import Iterable

from voxline.errors import SettingsError
from voxline.text.alphabet import Alphabet, join_pair, split_runs

Pair = tuple[str, str]
MIN_COUNT = 2
"""Two symbols that follow each other less often in all texts together are not joined."""


def learn_subwords(texts: Iterable[str], alphabet: Alphabet, size: int) -> Alphabet:
    """Learns an alphabet of subwords: joins the most frequent pair of symbols, again and again.

    Of equally frequent pairs the first in the order of code points is joined.

    Args:
      texts: in the alphabet.
      alphabet: of characters.
      size: symbols wanted, characters included. There are fewer if no pair is left that occurs twice.

    Raises:
      SettingsError: the alphabet alone has as many characters.

    >>> learn_subwords(["the thin thing", "the thing"], Alphabet(" eghint"), 10).symbols
    (' ', 'e', 'g', 'h', 'i', 'n', 't', 'th', 'in', 'thin')
    """
    check_size(size, alphabet)

    # Runs of one character cannot be joined; equal words are counted once, with how often they occur.
    counts = collections.Counter(run for text in texts for run in split_runs(text) if len(run) > 1)
    words = [list(run) for run in counts]
    times = list(counts.values())
    # How often each pair occurs, and in which words: a join then touches these words alone.
    pairs: collections.Counter[Pair] = collections.Counter()
    where: dict[Pair, set[int]] = collections.defaultdict(set)
    for index, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += times[index]
            where[pair].add(index)

    # A heap with entries that may be out of date: an entry counts only if its number still does.
    waiting = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(waiting)
    symbols = dict.fromkeys(alphabet.symbols)
    while waiting and len(symbols) < size:
        count, best = heapq.heappop(waiting)
        if pairs[best] != -count:
            continue  # it has changed since, and waits with its new count
        if -count < MIN_COUNT:
            break
        symbols["".join(best)] = None  # a subword may come from two pairs; it is one symbol

        changed = set()
        # The pairs of the words before the join go, those after it come.
        for index in where.pop(best):
            before = words[index]
            words[index] = join_pair(words[index], best)
            for pair in itertools.pairwise(before):
                pairs[pair] -= times[index]
                changed.add(pair)
            for pair in itertools.pairwise(words[index]):
                pairs[pair] += times[index]
                where[pair].add(index)
                changed.add(pair)

        # Each changed pair waits with its new count; its old entry is ignored when it comes up.
        for pair in changed:
            heapq.heappush(waiting, (-pairs[pair], pair))
    return Alphabet(tuple(symbols))


def check_size(size: int, alphabet: Alphabet) -> None:
    """Refuses a number of symbols that leaves none for subwords.

    Raises:
      SettingsError: names the setting.
    """
    if size <= len(alphabet.symbols):
        raise SettingsError(
            f"train.subwords is {size}, and the alphabet has {len(alphabet.symbols)} characters, which are symbols "
            "too; give more, or 0 for the characters alone"
        )


def extend_subwords(learned: Alphabet, alphabet: Alphabet) -> Alphabet:
    """The subwords of an earlier model for another alphabet of characters: what that lacks goes, its others follow.

    >>> extend_subwords(Alphabet((" ", "a", "b", "c", "ab", "bc")), Alphabet(" abd")).symbols
    (' ', 'a', 'b', 'ab', 'd')
    """
    symbols = [symbol for symbol in learned.symbols if not alphabet.unknown(symbol)]
    return Alphabet((*symbols, *(character for character in alphabet.symbols if character not in symbols)))

"""CTC prefix beam search, compiled by numba: the loops of `beam_search`.

After Hannun et al. 2014 (arXiv 1408.2873): a prefix has the probability of all its paths that end in a blank, and of
all that end in its last symbol. Equal prefixes have the same hash, so that paths which meet again are
one prefix. A prefix also has a place in a trie of words, and a state of the language model after its whole words.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.inference.compiled import compiled
from voxline.inference.ngram import NgramAutomaton

Array = npt.NDArray[Any]
LETTER = 0
SPACE = 1
IDEOGRAPH = 2
START = 3
"""Kinds of symbols: a part of a word, the end of one, a word by itself, and the first part of a word after a space."""
NONE = -np.inf
ROOT = 0
OFF_TRIE = -1
UNKNOWN_WORD = 0
START_WORD = 1
END_WORD = 2


class LexiconArrays(NamedTuple):
    """The words of a beam search, and the trie of their spellings.

    Attributes:
      symbol_kind: uint8 [symbols].
      symbol_word: int32 [symbols], the word that an ideograph is; -1: none.
      trie_start: int64 [nodes + 1]; the arcs of node `n` are trie_start[n] to trie_start[n + 1]. The root is 0.
      trie_symbol: int32 [arcs], ascending within a node.
      trie_target: int32 [arcs], nodes.
      trie_word: int32 [nodes], the word that ends at the node; -1: none.
      trie_best: float64 [nodes], the best score of a word that can still be reached, by its unigram.
      word_lm: int32 [words], their numbers in the language model.
      word_bonus: float64 [words], added to their scores.
    """

    symbol_kind: Array
    symbol_word: Array
    trie_start: Array
    trie_symbol: Array
    trie_target: Array
    trie_word: Array
    trie_best: Array
    word_lm: Array
    word_bonus: Array


class SearchWeights(NamedTuple):
    """Numbers of a beam search; logarithms are natural.

    Attributes:
      alpha: weight of the language model; 0: it is not asked.
      beta: added for each word.
      unknown: added for each word that is not in the lexicon.
      unknown_best: the score of such a word by its unigram.
      symbol_floor: symbols with a lower log probability in a frame are not tried there.
      prune: prefixes this far below the best are dropped.
      blank_skip: frames whose blank has at least this log probability only separate equal symbols.
    """

    alpha: float
    beta: float
    unknown: float
    unknown_best: float
    symbol_floor: float
    prune: float
    blank_skip: float


class BeamState(NamedTuple):
    """The prefixes that a search has kept after some frames. `extend` changes the arrays.

    Attributes:
      counters: int64 [4]: which of the two rows of prefixes counts, how many prefixes it has, the symbols in the links,
        and whether every path has the probability zero.
      link_parent, link_symbol: the last symbols of all prefixes that were ever kept, each with the one before it.
      The others: [2, width], of the prefixes; see `extend`.
    """

    counters: Array
    link_parent: Array
    link_symbol: Array
    hashes: Array
    parent_hash: Array
    blank_score: Array
    symbol_score: Array
    language: Array
    node_of: Array
    state_of: Array
    last_of: Array
    link_of: Array
    ends: Array
    end_added: Array
    end_state: Array


def start(width: int, model: NgramAutomaton) -> BeamState:
    """The state before the first frame: the empty prefix.

    Args:
      width: prefixes kept after each frame.
    """
    # [2, width] each: the prefixes before and after a frame
    numbers = [np.zeros((2, width), np.int64) for _ in range(6)]
    node_of, state_of, last_of, link_of, ends, end_state = numbers
    blank_score = np.full((2, width), NONE)
    symbol_score = np.full((2, width), NONE)
    hashes = np.zeros((2, width), np.uint64)

    # One prefix, the empty one, with all of the probability; the language model has read the sentence's start.
    hashes[0, 0] = 1
    blank_score[0, 0] = 0.0
    state_of[0, 0] = model.arc_target[START_WORD]
    last_of[:] = -1
    ends[:] = -1
    return BeamState(
        np.array([0, 1, 1, 0], np.int64), np.zeros(1, np.int64), np.full(1, -1, np.int64), hashes,
        np.zeros((2, width), np.uint64), blank_score, symbol_score, np.zeros((2, width)), node_of, state_of, last_of,
        link_of, ends, np.zeros((2, width)), end_state,
    )  # fmt: skip


def make_room(state: BeamState, frames: int) -> BeamState:
    """The state with links for so many further frames."""
    needed = int(state.counters[2]) + frames * state.hashes.shape[1]
    missing = needed - len(state.link_parent)
    if missing <= 0:
        return state

    # At least twice the length, so that a long stream copies its links seldom.
    missing = max(missing, len(state.link_parent) if len(state.link_parent) > 1 else 0)
    return state._replace(
        link_parent=np.concatenate([state.link_parent, np.zeros(missing, np.int64)]),
        link_symbol=np.concatenate([state.link_symbol, np.full(missing, -1, np.int64)]),
    )


@compiled
def _add_logs(a: float, b: float) -> Any:
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a

    # Beyond 40 nats the smaller one is lost in float64.
    if b == NONE or a - b > 40.0:
        return a
    return a + np.log1p(np.exp(b - a))


@compiled
def _extend_hash(before: Any, symbol: int) -> Any:
    """The hash of a prefix with one more symbol (the finalizer of splitmix64)."""
    x = before ^ (np.uint64(symbol + 1) * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _find(values: Array, first: int, last: int, value: int) -> Any:
    """The index of a value in an ascending part of an array; -1: it is not there."""
    end = last
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first if first < end and values[first] == value else -1


@compiled
def advance(model: NgramAutomaton, state: int, word: int) -> Any:
    """The natural logarithm of a word's probability in a state, and the state after it."""
    score = 0.0

    # Katz back-off: a shorter context until it has the word, at the price of each step. State 0 has every word.
    while state > 0:
        arc = _find(model.arc_word, model.arc_start[state], model.arc_start[state + 1], word)
        if arc >= 0:
            return score + model.arc_score[arc], int(model.arc_target[arc])
        score += model.backoff[state]
        state = int(model.backoff_state[state])
    return score + model.arc_score[word], int(model.arc_target[word])


@compiled
def _finish_word(
    node: int, state: int, lexicon: LexiconArrays, model: NgramAutomaton, weights: SearchWeights, is_open: bool
) -> Any:
    """Returns whether a word may end at a node, what that adds to the score, and the language model's next state."""
    word = -1 if node < 0 else lexicon.trie_word[node]
    if word < 0 and not is_open:
        return False, 0.0, state

    # The score of a word: beta, its bonus, and alpha * log P(word | state).
    added = weights.beta + (weights.unknown if word < 0 else lexicon.word_bonus[word])
    if weights.alpha != 0.0:
        # An unknown word moves the model on too: the next word is scored after it.
        score, state = advance(model, state, UNKNOWN_WORD if word < 0 else int(lexicon.word_lm[word]))
        added += weights.alpha * score
    return True, added, state


@compiled
def _nth_largest(values: Array, n: int) -> Any:
    """The n-th largest value (Hoare 1961, "Algorithm 65: find"): numba compiles `np.partition` for ten seconds."""
    values = values.copy()
    low = 0
    high = len(values) - 1
    rank = len(values) - n
    while low < high:
        pivot = values[rank]
        i = low
        j = high

        # Partition around the pivot.
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i = i + 1
                j = j - 1
        if j < rank:
            low = i
        if i > rank:
            high = j
    return values[rank]


@compiled
def _symbol_threshold(row: Array, symbols: int, most: int, floor: float) -> Any:
    """The lowest log probability at which a symbol is tried in a frame."""
    if symbols <= most:
        return floor
    return max(floor, _nth_largest(row[:symbols], most))


@compiled
def _find_space(lexicon: LexiconArrays) -> Any:
    """The number of the symbol that ends a word; -1: there is none."""
    space = -1
    for symbol in range(len(lexicon.symbol_kind)):
        if lexicon.symbol_kind[symbol] == SPACE:
            space = symbol
    return space


@compiled
def extend(
    log_probabilities: Array,
    beam: BeamState,
    lexicon: LexiconArrays,
    model: NgramAutomaton,
    weights: SearchWeights,
    is_open: bool,
    most_symbols: int,
) -> None:
    """Extends the search by some frames.

    Args:
      log_probabilities: float32 [frames, symbols + 1], natural logarithms, the blank last.
      beam: with room for their links (`make_room`); it is changed.
      is_open: words that the lexicon lacks are accepted.
      most_symbols: tried in a frame, the most probable ones.
    """
    # [frames, symbols + 1]
    frames = log_probabilities.shape[0]
    symbols = log_probabilities.shape[1] - 1
    width = beam.hashes.shape[1]
    blank = symbols
    space = _find_space(lexicon)
    most = min(most_symbols, symbols)
    capacity = width * (2 * most + 2) + 8  # symbols of equal probability at the threshold are all tried by arcs

    # An open hash table from prefix to candidate; a slot counts in the frame that wrote it, so it is never cleared.
    table_size = 64
    while table_size < 2 * capacity:
        table_size *= 2
    mask = np.uint64(table_size - 1)
    table_key = np.zeros(table_size, np.uint64)
    table_frame = np.full(table_size, -1, np.int64)
    table_slot = np.zeros(table_size, np.int64)

    counters = beam.counters
    link_parent = beam.link_parent
    link_symbol = beam.link_symbol

    # [2, width]: the prefixes before and after a frame take turns.
    hashes = beam.hashes
    parent_hash = beam.parent_hash
    last_of = beam.last_of
    link_of = beam.link_of
    blank_score = beam.blank_score
    symbol_score = beam.symbol_score
    language = beam.language
    node_of = beam.node_of
    state_of = beam.state_of
    # Whether the word of the prefix may end (-1: not looked up), what that adds, and the state after it.
    ends = beam.ends
    end_added = beam.end_added
    end_state = beam.end_state
    total = np.zeros(width)

    # Candidates of a frame. Their symbol is -1 if they are the prefix that they come from.
    c_hash = np.zeros(capacity, np.uint64)
    c_from = np.zeros(capacity, np.int64)
    c_symbol = np.zeros(capacity, np.int64)
    c_blank = np.zeros(capacity)
    c_label = np.zeros(capacity)
    c_language = np.zeros(capacity)
    c_best = np.zeros(capacity)
    c_node = np.zeros(capacity, np.int64)
    c_state = np.zeros(capacity, np.int64)
    rank = np.zeros(capacity)

    active = np.zeros(symbols, np.int64)
    row_of_beam = counters[0]
    prefixes = counters[1]
    links = counters[2]

    for frame in range(frames):
        if counters[3]:
            break
        row = log_probabilities[frame]

        # A frame of blank alone changes no prefix, only their scores.
        if row[blank] >= weights.blank_skip:
            for i in range(prefixes):
                blank_score[row_of_beam, i] = (
                    _add_logs(blank_score[row_of_beam, i], symbol_score[row_of_beam, i]) + row[blank]
                )
                symbol_score[row_of_beam, i] = NONE
            continue

        # The most probable symbols of the frame.
        threshold = _symbol_threshold(row, symbols, most, weights.symbol_floor)
        active_count = 0
        word_ends = False
        for symbol in range(symbols):
            if row[symbol] >= threshold and active_count < most:
                active[active_count] = symbol
                active_count += 1
                if lexicon.symbol_kind[symbol] != LETTER:
                    word_ends = True

        candidates = 0
        best = NONE
        # The prefix itself: a blank adds to it, and so does its last symbol, which CTC merges.
        for i in range(prefixes):  # a blank, or the last symbol again
            total[i] = _add_logs(blank_score[row_of_beam, i], symbol_score[row_of_beam, i])
            last = last_of[row_of_beam, i]
            repeated = NONE
            if last < 0 or last == space:  # spaces at the start, or side by side, count as none or one
                if space >= 0:
                    repeated = total[i] + row[space]
            else:
                repeated = symbol_score[row_of_beam, i] + row[last]

            # Prefixes are distinct, so the first free slot is the prefix's own.
            place = hashes[row_of_beam, i] & mask
            while table_frame[int(place)] == frame:
                place = (place + np.uint64(1)) & mask
            at = int(place)
            table_key[at] = hashes[row_of_beam, i]
            table_frame[at] = frame
            table_slot[at] = candidates
            node = node_of[row_of_beam, i]
            c_hash[candidates] = hashes[row_of_beam, i]
            c_from[candidates] = i
            c_symbol[candidates] = -1
            c_blank[candidates] = total[i] + row[blank]
            c_label[candidates] = repeated
            c_language[candidates] = language[row_of_beam, i]
            c_node[candidates] = node
            c_state[candidates] = state_of[row_of_beam, i]

            # A word under way is ranked with the best score that one of its endings can still bring.
            c_best[candidates] = 0.0
            if node != ROOT:
                c_best[candidates] = weights.unknown_best if is_open else NONE
                if node > 0:
                    c_best[candidates] = max(c_best[candidates], lexicon.trie_best[node])
            best = max(best, _add_logs(c_blank[candidates], repeated) + language[row_of_beam, i] + c_best[candidates])
            candidates += 1

        for i in range(prefixes):  # one more symbol
            node = node_of[row_of_beam, i]
            last = last_of[row_of_beam, i]
            if word_ends and ends[row_of_beam, i] < 0:
                may_end = True
                end_added[row_of_beam, i] = 0.0
                end_state[row_of_beam, i] = state_of[row_of_beam, i]
                if node != ROOT:
                    may_end, end_added[row_of_beam, i], end_state[row_of_beam, i] = _finish_word(
                        node, state_of[row_of_beam, i], lexicon, model, weights, is_open
                    )
                ends[row_of_beam, i] = 1 if may_end else 0
            # In a closed lexicon, few symbols can follow most nodes: their arcs are tried instead of all symbols.
            first_arc = 0
            arcs = 0
            by_arcs = False
            if node >= 0:
                first_arc = lexicon.trie_start[node]
                arcs = lexicon.trie_start[node + 1] - first_arc
                by_arcs = not is_open and arcs <= active_count
            steps = arcs + active_count if by_arcs else active_count
            for step in range(steps):
                target = OFF_TRIE
                if by_arcs and step < arcs:
                    # An arc of the trie: a letter that continues a word of the lexicon.
                    symbol = int(lexicon.trie_symbol[first_arc + step])
                    if row[symbol] < threshold:
                        continue
                    target = int(lexicon.trie_target[first_arc + step])
                    kind = LETTER
                else:
                    symbol = active[step - arcs if by_arcs else step]
                    kind = lexicon.symbol_kind[symbol]
                    if by_arcs and (kind == LETTER or (kind == START and node == ROOT)):
                        continue
                    if kind == LETTER:
                        if node >= 0:
                            arc = _find(lexicon.trie_symbol, first_arc, first_arc + arcs, symbol)
                            if arc >= 0:
                                target = int(lexicon.trie_target[arc])
                        if target < 0 and not is_open:
                            continue

                # A repeated symbol needs a blank before it.
                score = (blank_score[row_of_beam, i] if symbol == last else total[i]) + row[symbol]
                if score == NONE:
                    continue

                state = state_of[row_of_beam, i]
                added = language[row_of_beam, i]
                ahead = 0.0
                if kind == LETTER:
                    ahead = weights.unknown_best if is_open else NONE
                    if target > 0:
                        ahead = max(ahead, lexicon.trie_best[target])
                else:
                    # The symbol ends the word before it: what `_finish_word` added comes to the prefix.
                    if ends[row_of_beam, i] == 0:
                        continue
                    target = ROOT
                    state = end_state[row_of_beam, i]
                    added = added + end_added[row_of_beam, i]
                    if kind == SPACE:
                        if last < 0 or last == space:
                            continue
                    elif kind == START:
                        # The next word begins at the root of the trie.
                        arc = _find(lexicon.trie_symbol, lexicon.trie_start[ROOT], lexicon.trie_start[ROOT + 1], symbol)
                        target = int(lexicon.trie_target[arc]) if arc >= 0 else OFF_TRIE
                        if target < 0 and not is_open:
                            continue
                        ahead = weights.unknown_best if is_open else NONE
                        if target > 0:
                            ahead = max(ahead, lexicon.trie_best[target])
                    else:
                        word = lexicon.symbol_word[symbol]
                        if word < 0 and not is_open:
                            continue
                        added += weights.beta + (weights.unknown if word < 0 else lexicon.word_bonus[word])
                        # An ideograph is a word by itself, so it also has a score of its own.
                        if weights.alpha != 0.0:
                            number = UNKNOWN_WORD if word < 0 else int(lexicon.word_lm[word])
                            gained, state = advance(model, state, number)
                            added += weights.alpha * gained
                ranked = score + added + ahead
                if ranked < best - weights.prune:
                    continue

                # The same prefix on another path: add the probabilities.
                best = max(best, ranked)
                key = _extend_hash(hashes[row_of_beam, i], symbol)
                place = key & mask
                while table_frame[int(place)] == frame and table_key[int(place)] != key:
                    place = (place + np.uint64(1)) & mask
                at = int(place)
                if table_frame[at] == frame:
                    slot = table_slot[at]
                    c_label[slot] = _add_logs(c_label[slot], score)
                    continue
                table_key[at] = key
                table_frame[at] = frame
                table_slot[at] = candidates
                c_hash[candidates] = key
                c_from[candidates] = i
                c_symbol[candidates] = symbol
                c_blank[candidates] = NONE
                c_label[candidates] = score
                c_language[candidates] = added
                c_best[candidates] = ahead
                c_node[candidates] = target
                c_state[candidates] = state
                candidates += 1

        best = NONE
        for slot in range(candidates):
            rank[slot] = _add_logs(c_blank[slot], c_label[slot]) + c_language[slot] + c_best[slot]
            best = max(best, rank[slot])

        # Keep the best `width` candidates.
        least = best - weights.prune
        if candidates > width:
            least = max(least, _nth_largest(rank[:candidates], width))
        ties = width  # those at the limit itself may be too many; the better ones come first
        for slot in range(candidates):
            if rank[slot] > least:
                ties -= 1

        # The survivors go to the other row, which becomes the current one.
        new = 1 - row_of_beam
        number = 0
        for slot in range(candidates):
            if number == width:  # only after scores that are no numbers
                break
            if rank[slot] < least or rank[slot] == NONE or (rank[slot] == least and ties <= 0):
                continue
            if rank[slot] == least:
                ties -= 1
            i = c_from[slot]
            hashes[new, number] = c_hash[slot]
            blank_score[new, number] = c_blank[slot]
            symbol_score[new, number] = c_label[slot]
            language[new, number] = c_language[slot]
            node_of[new, number] = c_node[slot]
            state_of[new, number] = c_state[slot]
            if c_symbol[slot] < 0:
                parent_hash[new, number] = parent_hash[row_of_beam, i]
                last_of[new, number] = last_of[row_of_beam, i]
                link_of[new, number] = link_of[row_of_beam, i]
                ends[new, number] = ends[row_of_beam, i]
                end_added[new, number] = end_added[row_of_beam, i]
                end_state[new, number] = end_state[row_of_beam, i]
            # A new prefix: its last symbol becomes a link to those before it.
            else:
                parent_hash[new, number] = hashes[row_of_beam, i]
                last_of[new, number] = c_symbol[slot]
                link_parent[links] = link_of[row_of_beam, i]
                link_symbol[links] = c_symbol[slot]
                link_of[new, number] = links
                ends[new, number] = -1
                links += 1
            number += 1
        if number == 0:  # every path has the probability zero
            counters[3] = 1
            break
        row_of_beam = new
        prefixes = number

    # The next call continues from here.
    counters[0] = row_of_beam
    counters[1] = prefixes
    counters[2] = links


@compiled
def finish(
    beam: BeamState,
    lexicon: LexiconArrays,
    model: NgramAutomaton,
    weights: SearchWeights,
    is_open: bool,
    n_best: int,
) -> tuple[Array, Array, Array]:
    """The best texts, if no frame follows. The state is not changed.

    Args:
      n_best: hypotheses wanted.

    Returns:
      labels int32 [hypotheses, longest], -1 after the end; scores float64 [hypotheses, 2]: in all, and of the audio
      alone; whether the last word is whole, bool [hypotheses].
    """
    width = beam.hashes.shape[1]
    space = _find_space(lexicon)
    link_parent = beam.link_parent
    link_symbol = beam.link_symbol
    hashes = beam.hashes
    parent_hash = beam.parent_hash
    last_of = beam.last_of
    link_of = beam.link_of
    blank_score = beam.blank_score
    symbol_score = beam.symbol_score
    language = beam.language
    node_of = beam.node_of
    state_of = beam.state_of
    row_of_beam = beam.counters[0]
    prefixes = beam.counters[1]

    # [width, 2]
    scores = np.full((width, 2), NONE)
    whole = np.zeros(width, np.bool_)
    for i in range(prefixes):
        scores[i, 1] = _add_logs(blank_score[row_of_beam, i], symbol_score[row_of_beam, i])
        added = 0.0
        state = state_of[row_of_beam, i]
        whole[i] = True
        if node_of[row_of_beam, i] != ROOT:
            whole[i], added, state = _finish_word(node_of[row_of_beam, i], state, lexicon, model, weights, is_open)

        # A sentence ends here, which the language model scores too.
        if weights.alpha != 0.0:
            added += weights.alpha * advance(model, state, END_WORD)[0]
        scores[i, 0] = scores[i, 1] + language[row_of_beam, i] + added
    for i in range(prefixes):  # a text with a space at its end is the text without it
        if last_of[row_of_beam, i] == space and space >= 0:
            for j in range(prefixes):
                if hashes[row_of_beam, j] == parent_hash[row_of_beam, i] and whole[j]:
                    scores[j, 0] = _add_logs(scores[j, 0], scores[i, 0])
                    scores[j, 1] = _add_logs(scores[j, 1], scores[i, 1])
                    scores[i, 0] = NONE

    # A text whose last word is cut off only counts if there is no other.
    anything_whole = False
    for i in range(prefixes):
        anything_whole = anything_whole or (whole[i] and scores[i, 0] > NONE)
    for i in range(prefixes):
        if anything_whole and not whole[i]:
            scores[i, 0] = NONE

    # The n best by repeated search: n is small.
    order = np.zeros(min(n_best, prefixes), np.int64)
    taken = np.zeros(prefixes, np.bool_)
    count = 0
    longest = 0
    lengths = np.zeros(len(order), np.int64)
    for position in range(len(order)):
        first = -1
        for i in range(prefixes):
            if not taken[i] and scores[i, 0] > (NONE if first < 0 else scores[first, 0]):
                first = i
        if first < 0:
            break
        order[position] = first
        taken[first] = True
        count = count + 1
        link = link_of[row_of_beam, first]
        while link > 0:
            lengths[position] = lengths[position] + 1
            link = link_parent[link]
        longest = max(longest, lengths[position])

    # [hypotheses, longest]: follow the links back to the start.
    labels = np.full((count, longest), -1, np.int32)
    for position in range(count):
        at = lengths[position]
        link = link_of[row_of_beam, order[position]]
        while link > 0:
            at -= 1
            labels[position, at] = link_symbol[link]
            link = link_parent[link]
    return labels, scores[order[:count]], whole[order[:count]]

"""CTC beam search with a language model: the network's output in, the most probable texts out.

  search = BeamSearch(alphabet, model.vocabulary, model, alpha=1.0, beta=1.5)
  search.decode(log_probabilities)[0].text

The score of a text is log P(text | audio) + alpha · log P(text) + beta · words (Hannun et al. 2014, arXiv 1408.2873;
Amodei et al. 2015, arXiv 1512.02595, equation 12), where P(text | audio) sums over all paths of CTC, and P(text) is the
language model's, the end of the sentence included. By default only words of a lexicon are found.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError
from voxline.inference.ngram import NEVER, SPECIAL_WORDS, NgramAutomaton, NgramModel
from voxline.text.alphabet import Alphabet, is_ideograph, split_words

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ScoredText:
    """A text that a beam search found.

    Attributes:
      score: natural logarithm: of the audio, of the language model times alpha, and beta for each word.
      audio_score: log P(text | audio), of the paths that the beam kept.
      whole: the last word is in the lexicon. False only if the audio ended within every word that the beam kept.
    """

    text: str
    score: float
    audio_score: float
    whole: bool = True


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """A beam search, ready to decode.

    Attributes:
      lexicon: the words that may be found, or an empty sequence: any sequence of symbols. Words with a symbol that the
        alphabet lacks are left out.
      language_model: None: the audio and the lexicon decide alone.
      alpha: weight of the language model.
      beta: added to the score for each word, as natural logarithms.
      width: texts kept after each frame. 1, without a lexicon and a language model, follows the best path (greedy).
      hot_words: word → what it adds to the score; a word that the lexicon lacks is added to it.
      open_vocabulary: accept words that the lexicon lacks; with an empty lexicon always so.
      unknown_penalty: added to the score for each such word.
      most_symbols: symbols tried in a frame.
      symbol_floor: symbols below this log probability are not tried in a frame.
      prune: texts this far below the best are dropped.
      blank_skip: in frames with a blank at least as probable no symbol is tried; above 1: every frame counts.

    Raises:
      SettingsError: a hot word cannot be spelled in the alphabet, or no word of the lexicon can; a weight is no number.
    """

    alphabet: Alphabet
    lexicon: Sequence[str] = ()
    language_model: NgramModel | None = None
    alpha: float = 1.0
    beta: float = 1.0
    width: int = 64
    hot_words: Mapping[str, float] = dataclasses.field(default_factory=dict)
    open_vocabulary: bool = False
    unknown_penalty: float = -5.0
    most_symbols: int = 40
    symbol_floor: float = -10.0
    prune: float = 14.0
    blank_skip: float = 0.9999

    def __post_init__(self) -> None:
        if self.width < 1:
            raise SettingsError(f"width is {self.width}; 1 or more texts are accepted")

        # A weight that is no number would make every comparison false, and the beam empty.
        weights = {"alpha": self.alpha, "beta": self.beta, "unknown_penalty": self.unknown_penalty}
        for name, weight in {
            **weights,
            **{f"hot word {word!r}": value for word, value in self.hot_words.items()},
        }.items():
            if not math.isfinite(weight):
                raise SettingsError(f"{name}: its weight is {weight}; a finite number is accepted")
        for word in self.hot_words:
            if not word or self.alphabet.unknown(word) or len(split_words(word)) != 1:
                raise SettingsError(
                    f"hot word {word!r}: one word of the model's alphabet is accepted, {self.alphabet.characters!r}"
                )
        if self.lexicon and not self._words:
            raise SettingsError(
                f"no word of the lexicon (such as {self.lexicon[0]!r}) can be spelled in the model's alphabet, "
                f"{self.alphabet.characters!r}; give it words in the form that transcripts have"
            )

    def decode(self, log_probabilities: Array, n_best: int = 1) -> list[ScoredText]:
        """The best texts of an utterance, the best first.

        Args:
          log_probabilities: [frames, symbols + 1], natural logarithms, the blank last.

        Raises:
          ValueError: another number of symbols.
        """
        if self._is_greedy:
            return [decode_best_path(self._checked(log_probabilities), self.alphabet)]
        stream = self.stream()
        stream.extend(log_probabilities)
        return stream.best(n_best)

    def stream(self) -> "BeamStream":
        """A search that takes its frames in parts: the texts are those of `decode` of all frames together."""
        return BeamStream(self)

    @property
    def _is_greedy(self) -> bool:
        return self.width == 1 and not self.lexicon and self.language_model is None and not self.hot_words

    def _checked(self, log_probabilities: Array) -> Array:
        if log_probabilities.ndim != 2 or log_probabilities.shape[1] != len(self.alphabet.symbols) + 1:
            raise ValueError(
                f"log probabilities of the shape {log_probabilities.shape}; "
                f"[frames, {len(self.alphabet.symbols) + 1}] is accepted: the alphabet's symbols and the blank"
            )
        return log_probabilities

    def with_weights(self, alpha: float, beta: float) -> "BeamSearch":
        """The same with another alpha and beta; the trie is not built again."""
        # Only scores depend on the weights; `_arrays` does, so it is not carried over.
        other = dataclasses.replace(self, alpha=alpha, beta=beta)
        for name in ("_words", "_trie", "_automaton", "_unigrams"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @functools.cached_property
    def _words(self) -> list[str]:
        """The lexicon with the hot words, as far as the alphabet spells them."""
        symbols = set(self.alphabet.characters) - {" "}
        words = dict.fromkeys([*self.lexicon, *self.hot_words])
        return [word for word in words if word and word not in SPECIAL_WORDS and symbols.issuperset(word)]

    @functools.cached_property
    def _automaton(self) -> NgramAutomaton:
        return self.language_model.automaton if self.language_model else _EMPTY_MODEL.automaton

    @functools.cached_property
    def _unigrams(self) -> Array:
        """Natural logarithms of the words' probabilities without context, that of an unknown word first."""
        if self.language_model is None:
            return np.zeros(len(self._words) + 1)
        scores = self.language_model.log10_probabilities[0].astype(np.float64) * math.log(10)
        return scores[[0, *(self.language_model.word_ids.get(word, 0) for word in self._words)]]

    @functools.cached_property
    def _trie(self) -> "_Trie":
        return _Trie(self._words, self.alphabet)

    @functools.cached_property
    def _arrays(self) -> Any:
        # Imported here, since numba takes a second.
        from voxline.inference.beam_kernel import IDEOGRAPH, LETTER, SPACE, START, LexiconArrays

        space = START if self.alphabet.words_begin_with_space else SPACE
        kinds = [
            space if symbol.startswith(" ") else IDEOGRAPH if is_ideograph(symbol) else LETTER
            for symbol in self.alphabet.symbols
        ]
        word_ids = self.language_model.word_ids if self.language_model else {}
        bonus = np.array([self.hot_words.get(word, 0.0) for word in self._words], np.float64)

        # [words] the score of each word without context, for the best score below a node of the trie.
        scores = bonus + self.beta
        if self.language_model is not None:
            scores = scores + self.alpha * self._unigrams[1:]
        trie = self._trie
        return LexiconArrays(
            np.array(kinds, np.uint8),
            trie.symbol_word,
            trie.start,
            trie.symbol,
            trie.target,
            trie.word,
            trie.best(scores),
            np.array([word_ids.get(word, 0) for word in self._words], np.int32),
            bonus,
        )


class BeamStream:
    """A beam search of an utterance that is still arriving.

    >>> rows = np.log(np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.1, 0.8, 0.1]], np.float32))
    >>> stream = BeamSearch(Alphabet("ab"), beta=0.0).stream()
    >>> stream.extend(rows[:2])
    >>> stream.best()[0].text
    'a'
    >>> stream.extend(rows[2:])
    >>> stream.best()[0].text
    'ab'
    """

    def __init__(self, search: BeamSearch) -> None:
        from voxline.inference.beam_kernel import SearchWeights, start  # numba, which takes a second to import

        # The kernel compares logarithms; infinity: no frame is skipped.
        blank_skip = math.log(search.blank_skip) if search.blank_skip <= 1 else math.inf
        uses_model = search.language_model is not None and search.alpha != 0
        unknown = search.unknown_penalty if search.lexicon or uses_model else 0.0
        self._search = search
        self._is_open = search.open_vocabulary or not search.lexicon
        self._weights = SearchWeights(
            float(search.alpha) if uses_model else 0.0,
            float(search.beta),
            float(unknown),
            # The estimate for a word that the lexicon lacks, while it is being spelled.
            float(search.beta + unknown + (search.alpha * search._unigrams[0] if uses_model else 0.0)),
            float(search.symbol_floor),
            float(search.prune),
            float(blank_skip),
        )
        self._state = start(search.width, search._automaton)

    def extend(self, log_probabilities: Array) -> None:
        """Extends the search by some frames, float32 [frames, symbols + 1].

        Raises:
          ValueError: another number of symbols.
        """
        from voxline.inference.beam_kernel import extend, make_room

        search = self._search

        # Finite values alone: one NaN would spread through the log sums.
        values = np.fmin(np.fmax(search._checked(log_probabilities), -1e4), 1e4)
        self._state = make_room(self._state, len(values))
        extend(
            np.ascontiguousarray(values, np.float32), self._state, search._arrays, search._automaton, self._weights,
            self._is_open, search.most_symbols,
        )  # fmt: skip

    def best(self, n_best: int = 1) -> list[ScoredText]:
        """The best texts, the best first, if no frame follows."""
        from voxline.inference.beam_kernel import finish

        search = self._search
        # Subwords spell a text in several ways, which are several prefixes; the best one counts.
        count = n_best if n_best == 1 or isinstance(search.alphabet.symbols, str) else search.width
        labels, scores, whole = finish(
            self._state, search._arrays, search._automaton, self._weights, self._is_open, count
        )
        texts: dict[str, ScoredText] = {}
        for row, (score, audio_score), is_whole in zip(labels, scores, whole, strict=True):
            text = " ".join(search.alphabet.decode(label for label in row if label >= 0).split())
            texts.setdefault(text, ScoredText(text, float(score), float(audio_score), bool(is_whole)))
        return list(texts.values())[:n_best]


class _Trie:
    """The spellings of words, as arrays; see `beam_kernel.LexiconArrays`."""

    def __init__(self, words: Sequence[str], alphabet: Alphabet) -> None:
        size = len(alphabet.symbols)
        self.symbol_word = np.full(size, -1, np.int32)
        # One dictionary with integers as keys: one for each node would take far more memory.
        nodes: dict[int, int] = {}  # node · symbols + symbol → the node after it
        ends = []
        for index, word in enumerate(words):
            if is_ideograph(word):
                self.symbol_word[alphabet.encode(word)[0]] = index
                continue
            node = 0
            for label in alphabet.encode(word):
                key = node * size + label
                node = nodes.setdefault(key, len(nodes) + 1)
            ends.append((node, index))

        # Sorted keys put the arcs of a node side by side, and their symbols in ascending order: `_find` needs both.
        keys = np.array(sorted(nodes), np.int64)
        self.start = np.searchsorted(keys // size, np.arange(len(nodes) + 2)).astype(np.int64)
        self.symbol = (keys % size).astype(np.int32)
        self.target = np.array([nodes[key] for key in keys.tolist()], np.int32)
        self.word = np.full(len(nodes) + 1, -1, np.int32)
        for node, index in ends:
            self.word[node] = index
        self._parent = np.zeros(len(nodes) + 1, np.int64)
        self._parent[self.target] = keys // size

    def best(self, scores: Array) -> Array:
        """Returns for each node the best score of a word at it or below it.

        Args:
          scores: of the words.
        """
        # [nodes]
        best = np.full(len(self.word), -np.inf)
        ending = self.word >= 0
        best[ending] = scores[self.word[ending]]
        depth = np.zeros(len(best), np.int64)
        for node in range(1, len(best)):  # parents have lower numbers
            depth[node] = depth[self._parent[node]] + 1

        # From the leaves to the root, a level at a time: a node's children are done before it.
        order = np.argsort(-depth, kind="stable")
        for _, group in itertools.groupby(order.tolist(), key=depth.__getitem__):
            level = np.fromiter(group, np.int64)
            np.maximum.at(best, self._parent[level], best[level])
        return best


def decode_best_path(log_probabilities: Array, alphabet: Alphabet) -> ScoredText:
    """The text of the most probable path (greedy decoding), with the score of that path."""
    best = log_probabilities.argmax(axis=1) if len(log_probabilities) else np.zeros(0, np.int64)
    labels = [label for label, _ in itertools.groupby(best.tolist()) if label != alphabet.blank]
    score = float(log_probabilities[np.arange(len(best)), best].sum())
    return ScoredText(" ".join(alphabet.decode(labels).split()), score, score)


_EMPTY_MODEL = NgramModel(
    SPECIAL_WORDS, [np.arange(3, dtype=np.int32)[:, None]], [np.array([NEVER] * 3, np.float32)], []
)

"""An n-gram language model: read, written and queried.

  model = NgramModel.read_arpa("english.arpa.gz")
  model.log10_probability("cat", ["<s>", "the"])
  model.write_arpa("copy.arpa.gz")

ARPA is the text format of SRILM, KenLM and others: for each n-gram the base-10 logarithm of its probability and of its
back-off weight. `NgramModel.save` writes the same tables as numpy arrays, which load in a fraction of the time.
"""

import dataclasses
import functools
import gzip
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.errors import WorkError
from voxline.store.files import atomic_write
from voxline.store.size_limits import BoundedGzip, SizeLimitError, iter_bounded_lines, load_npz, open_regular
from voxline.text.alphabet import split_words

UNKNOWN = "<unk>"
SENTENCE_START = "<s>"
SENTENCE_END = "</s>"
SPECIAL_WORDS = (UNKNOWN, SENTENCE_START, SENTENCE_END)
"""The words 0, 1 and 2 of every model."""
NEVER = -99.0
"""The logarithm (base 10) that stands for a probability of zero in ARPA files."""
LARGEST = 1_000.0
"""Of a logarithm (base 10) in a model, either way."""
MAX_ORDER = 10
"""Of the n-grams in a model. Models of 5 are common, and time grows with the cube."""
MAX_ARPA_LINE = 65_536
MAX_BLANK_LINES = 1_000
"""Bytes of a line in an ARPA file, and blank lines in a section; gzip packs a billion lines into a megabyte."""
_COUNT = re.compile(r"ngram\s+([0-9]{1,9})\s*=\s*([0-9]{1,18})")
_SECTION = re.compile(r"\\([0-9]+)-grams:")
Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class NgramAutomaton(NamedTuple):
    """A model as states and arcs, for compiled code. State 0 has no context; every other one is an n-gram's words.

    Attributes:
      arc_start: int64 [states + 1]; the arcs of state `s` are arc_start[s] to arc_start[s + 1].
      arc_word: int32 [arcs], ascending within a state. Those of state 0 are all words, so arc `w` is that of word `w`.
      arc_score: float32 [arcs], natural logarithms of probabilities.
      arc_target: int32 [arcs], the state after the word.
      backoff: float32 [states], natural logarithms of weights.
      backoff_state: int32 [states], the state of the context without its first word.
    """

    arc_start: npt.NDArray[np.int64]
    arc_word: Ids
    arc_score: Floats
    arc_target: Ids
    backoff: Floats
    backoff_state: Ids


@dataclasses.dataclass(frozen=True)
class NgramModel:
    """An n-gram model with back-off.

    Attributes:
      words: `SPECIAL_WORDS` first.
      grams: for each order n from 1: int32 [n-grams, n], numbers of words, in ascending order; all words are unigrams.
      log10_probabilities: for each order: float32 [n-grams].
      log10_backoffs: for each order but the highest: float32 [n-grams].
    """

    words: tuple[str, ...]
    grams: list[Ids]
    log10_probabilities: list[Floats]
    log10_backoffs: list[Floats]

    @property
    def order(self) -> int:
        return len(self.grams)

    @property
    def counts(self) -> list[int]:
        """The number of n-grams of each order."""
        return [len(grams) for grams in self.grams]

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words, without the special ones."""
        return self.words[len(SPECIAL_WORDS) :]

    @functools.cached_property
    def word_ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def log10_probability(self, word: str, context: Sequence[str] = ()) -> float:
        """The base-10 logarithm of a word's probability after the words before it.

        Args:
          word: one that the model does not know counts as `<unk>`; `</s>` is the end of the sentence.
          context: the words before it, the last one last; `<s>` is the start of the sentence.
        """
        automaton = self.automaton
        state = 0

        # More context than the order has no effect.
        for token in context[max(0, len(context) - self.order + 1) :]:
            _, state = _advance(automaton, state, self.word_ids.get(token, 0))
        return _advance(automaton, state, self.word_ids.get(word, 0))[0] / math.log(10)

    def log10_score(self, text: str) -> float:
        """The base-10 logarithm of the probability of a sentence, its end included."""
        words = [SENTENCE_START, *split_words(text), SENTENCE_END]
        return math.fsum(self.log10_probability(words[i], words[:i]) for i in range(1, len(words)))

    def perplexity(self, texts: Iterable[str]) -> float:
        """Per word, ends of sentences counted as words; unknown words have the probability of `<unk>`."""
        total = 0.0
        words = 0
        for text in texts:
            total += self.log10_score(text)
            words += len(split_words(text)) + 1
        return float(10 ** (-total / words)) if words else math.nan

    @functools.cached_property
    def automaton(self) -> NgramAutomaton:
        """The model for compiled code."""
        keys = _NgramKeys(self)

        # State 0 has no context; then come the n-grams of each order but the highest, in the order of the tables.
        offsets = np.cumsum([0, *self.counts])
        states = 1 + int(offsets[self.order - 1]) if self.order > 1 else 1
        origins = []
        targets = []
        for order, grams in enumerate(self.grams, 1):
            # The arc of an n-gram leaves the state of its first words, and leads to the longest context that continues.
            origins.append(keys.states(grams[:, :-1]))
            if order < self.order:
                targets.append(np.arange(offsets[order - 1], offsets[order]) + 1)
            else:
                targets.append(keys.longest_suffix(grams))
        backoff_state = [np.zeros(1, np.int64)] + [keys.longest_suffix(grams) for grams in self.grams[:-1]]

        # Natural logarithms from here on; files have base 10.
        scores = np.concatenate(self.log10_probabilities) * np.float32(math.log(10))
        backoffs = np.concatenate([np.zeros(1, np.float32), *self.log10_backoffs]) * np.float32(math.log(10))
        return NgramAutomaton(
            np.searchsorted(np.concatenate(origins), np.arange(states + 1)).astype(np.int64),
            np.concatenate([grams[:, -1] for grams in self.grams]).astype(np.int32),
            scores.astype(np.float32),
            np.concatenate(targets).astype(np.int32),
            backoffs.astype(np.float32),
            np.concatenate(backoff_state).astype(np.int32),
        )

    def write_arpa(self, file: Path | str) -> None:
        """Writes an ARPA file; one whose name ends in .gz is compressed, with the same bytes for the same model."""
        with atomic_write(Path(file)) as raw:
            if str(file).endswith(".gz"):
                # No name and no time in the head of the gzip file, so that equal models have equal bytes.
                with gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed:
                    packed.writelines(line.encode() for line in self._arpa_lines())
            else:
                raw.writelines(line.encode() for line in self._arpa_lines())

    def _arpa_lines(self) -> Iterator[str]:
        yield "\\data\\\n"
        yield from (f"ngram {order}={count}\n" for order, count in enumerate(self.counts, 1))
        for order, grams in enumerate(self.grams, 1):
            yield f"\n\\{order}-grams:\n"
            probabilities = self.log10_probabilities[order - 1]
            backoffs = self.log10_backoffs[order - 1] if order < self.order else None
            for row, ids in enumerate(grams):
                words = " ".join(self.words[number] for number in ids)
                end = "" if backoffs is None else f"\t{_decimal(backoffs[row])}"
                yield f"{_decimal(probabilities[row])}\t{words}{end}\n"
        yield "\n\\end\\\n"

    @classmethod
    def read_arpa(cls, file: Path | str) -> "NgramModel":
        """Reads an ARPA file, compressed by gzip if its name ends in .gz.

        Raises:
          WorkError: the file is absent, or not ARPA, naming the line; or its order, a line or its unpacked size is
            beyond a limit.
        """
        source = Path(file)
        try:
            with BoundedGzip(source) if source.suffix == ".gz" else open_regular(source) as lines:
                # A bound on the bytes: the numbers in the head of the file are compared with it before memory is
                # reserved.
                size = lines.limit if isinstance(lines, BoundedGzip) else os.fstat(lines.fileno()).st_size
                return _ArpaReader(source, lines, size).read()
        except OSError as error:
            raise WorkError(f"{source}: cannot be read ({error.strerror or error})") from None

    def save(self, file: Path) -> None:
        """Writes the tables as numpy arrays (.npz), with the same bytes for the same model."""
        # Words are joined by line feeds in one array of bytes: numpy's own strings would need pickle or padding.
        arrays: dict[str, npt.NDArray[Any]] = {"words": np.frombuffer("\n".join(self.words).encode(), np.uint8)}
        for order, grams in enumerate(self.grams, 1):
            arrays[f"grams_{order}"] = grams
            arrays[f"probabilities_{order}"] = self.log10_probabilities[order - 1]
            if order < self.order:
                arrays[f"backoffs_{order}"] = self.log10_backoffs[order - 1]
        with atomic_write(file) as raw:
            np.savez_compressed(raw, **arrays)  # type: ignore[arg-type]  # mypy takes the mapping for allow_pickle

    @classmethod
    def load(cls, file: Path) -> "NgramModel":
        """Reads what `save` wrote.

        Raises:
          WorkError: the file is absent or damaged.
        """
        try:
            arrays = load_npz(file)
            words = tuple(arrays["words"].tobytes().decode().split("\n"))
            orders = range(1, 1 + sum(name.startswith("grams_") for name in arrays))
            model = cls(
                words,
                [arrays[f"grams_{order}"] for order in orders],
                [arrays[f"probabilities_{order}"] for order in orders],
                [arrays[f"backoffs_{order}"] for order in orders[:-1]],
            )
        except (OSError, ValueError, KeyError) as error:
            raise WorkError(f"{file}: not a language model that Voxline saved, or damaged ({error})") from None
        model.check(file)
        return model

    def check(self, source: Path | str) -> None:
        """Refuses tables that compiled code could not index.

        Raises:
          WorkError: naming `source`.
        """
        if self.order > MAX_ORDER:
            raise WorkError(f"{source}: n-grams of order {self.order:,}; orders of 1 to {MAX_ORDER} are accepted")

        # The kernel indexes without bounds checks, so nothing may point outside of its table.
        sound = self.words[: len(SPECIAL_WORDS)] == SPECIAL_WORDS and bool(self.grams)
        sound = sound and len(self.log10_probabilities) == self.order and len(self.log10_backoffs) == self.order - 1
        for order, grams in enumerate(self.grams if sound else [], 1):
            sound = sound and grams.ndim == 2 and grams.shape[1] == order and grams.dtype == np.int32
            sound = sound and self.log10_probabilities[order - 1].shape == (len(grams),)
            sound = sound and (order == self.order or self.log10_backoffs[order - 1].shape == (len(grams),))
            sound = sound and (not len(grams) or (grams.min() >= 0 and grams.max() < len(self.words)))
        # Unigram `w` is word `w`: `NgramAutomaton` takes an arc of state 0 by the number of its word.
        if not sound or not np.array_equal(self.grams[0][:, 0], np.arange(len(self.words))):
            raise WorkError(f"{source}: the tables of this language model do not fit each other; make it again")
        for order, values in enumerate(self.log10_probabilities, 1):
            if not ((values >= -LARGEST) & (values <= 0)).all():
                raise WorkError(
                    f"{source}: a {order}-gram has a log10 probability that is no number of {-LARGEST:g} to 0"
                )
        for order, values in enumerate(self.log10_backoffs, 1):
            if not (np.abs(values) <= LARGEST).all():
                raise WorkError(
                    f"{source}: a {order}-gram has a back-off that is no number of -{LARGEST:g} to {LARGEST:g}"
                )
        try:
            _ = self.automaton
        except ValueError as error:
            raise WorkError(f"{source}: {error}") from None


def sorted_model(
    words: Sequence[str], grams: Sequence[Ids], probabilities: Sequence[Floats], backoffs: Sequence[Floats]
) -> NgramModel:
    """A model from n-grams in any order."""
    # `lexsort` takes the last key as the first one, hence the reversed columns.
    orders = [np.lexsort(ids.T[::-1]) for ids in grams]
    return NgramModel(
        tuple(words),
        [np.ascontiguousarray(ids[order], np.int32) for ids, order in zip(grams, orders, strict=True)],
        [np.asarray(values, np.float32)[order] for values, order in zip(probabilities, orders, strict=True)],
        [np.asarray(values, np.float32)[order] for values, order in zip(backoffs, orders[:-1], strict=True)],
    )


class _NgramKeys:
    """Finds the states of n-grams in a model's sorted tables."""

    def __init__(self, model: NgramModel) -> None:
        self._size = len(model.words)

        # The first state of each order.
        self._first = np.cumsum([1, *model.counts])

        # A key is the state of the first words, times the number of words, plus the last word: sorted like the table.
        self._keys: list[npt.NDArray[np.int64]] = [np.arange(self._size, dtype=np.int64)]
        for order, grams in enumerate(model.grams[1:], 2):
            contexts = self._find(grams[:, :-1])
            if (contexts < 0).any():
                row = int(np.flatnonzero(contexts < 0)[0])
                gram = " ".join(model.words[number] for number in grams[row])
                raise ValueError(
                    f"the {order}-gram {gram!r} is there, and the {order - 1}-gram of its first words is not; a "
                    "back-off model needs both, so prune the model with the tool that made it"
                )
            self._keys.append(contexts * self._size + grams[:, -1])

    def _find(self, grams: Ids) -> npt.NDArray[np.int64]:
        """The state of each n-gram; -1: the model lacks it."""
        states = np.zeros(len(grams), np.int64)
        for order in range(1, grams.shape[1] + 1):
            # A context that is missing gives a negative target, which no key equals.
            targets = states * self._size + grams[:, order - 1]
            keys = self._keys[order - 1]
            if not len(keys):
                return np.full(len(grams), -1, np.int64)
            at = np.minimum(np.searchsorted(keys, targets), len(keys) - 1)
            states = np.where((states >= 0) & (keys[at] == targets), at + self._first[order - 1], -1)
        return states

    def states(self, grams: Ids) -> npt.NDArray[np.int64]:
        return self._find(grams)

    def longest_suffix(self, grams: Ids) -> npt.NDArray[np.int64]:
        """The state of the longest proper suffix of each n-gram that the model has."""
        states = np.zeros(len(grams), np.int64)
        for length in range(1, grams.shape[1]):
            state = self._find(grams[:, grams.shape[1] - length :])
            states = np.where(state >= 0, state, states)
        return states


def _advance(automaton: NgramAutomaton, state: int, word: int) -> tuple[float, int]:
    """The natural logarithm of a word's probability in a state, and the state after it."""
    score = 0.0
    while state:
        first = automaton.arc_start[state]
        last = automaton.arc_start[state + 1]
        arc = first + int(np.searchsorted(automaton.arc_word[first:last], word))
        if arc < last and automaton.arc_word[arc] == word:
            return score + float(automaton.arc_score[arc]), int(automaton.arc_target[arc])
        score += float(automaton.backoff[state])
        state = int(automaton.backoff_state[state])
    target = int(automaton.arc_target[word])
    return score + float(automaton.arc_score[word]), target


class _ArpaTable(NamedTuple):
    """The n-grams of one order, as they come."""

    ids: "array[int]"
    probabilities: "array[float]"
    backoffs: "array[float]"

    def add(self, ids: Iterable[int], probability: float, backoff: float) -> None:
        self.ids.extend(ids)
        self.probabilities.append(probability)
        self.backoffs.append(backoff)


class _ArpaReader:
    def __init__(self, file: Path, lines: BoundedGzip | IO[bytes], size: int) -> None:
        """Takes an open file, and the bytes that it has at most."""
        self._file = file
        self._size = size
        self._number = 0
        self._lines = iter_bounded_lines(lines, file, MAX_ARPA_LINE)

    def read(self) -> NgramModel:
        counts = self._read_counts()

        # The special words come first, whatever their order in the file.
        words = list(SPECIAL_WORDS)
        ids = {word: number for number, word in enumerate(words)}
        tables = [self._read_section(order, count, len(counts), ids, words) for order, count in enumerate(counts, 1)]
        unigrams = tables[0]
        listed = set(unigrams.ids)
        # A file need not list them; a sentence without a start could not be scored.
        for special, value in ((0, -100.0), (1, NEVER), (2, NEVER)):  # KenLM's value for a model without <unk>
            if special not in listed:
                unigrams.add([special], value, 0.0)
        model = sorted_model(
            words,
            [np.array(table.ids, np.int32).reshape(-1, order) for order, table in enumerate(tables, 1)],
            [np.array(table.probabilities, np.float32) for table in tables],
            [np.array(table.backoffs, np.float32) for table in tables[:-1]],
        )
        model.check(self._file)
        return model

    def _read_counts(self) -> list[int]:
        for line in self._texts():
            if line == "\\data\\":
                break
            if self._number > MAX_BLANK_LINES:
                raise self._fault(f"more than {MAX_BLANK_LINES:,} lines before the line \\data\\")
        else:
            raise self._fault("there is no line \\data\\, so this is not an ARPA file")
        counts: list[int] = []
        for line in self._texts():
            if match := _COUNT.fullmatch(line):
                if int(match[1]) != len(counts) + 1:
                    raise self._fault(f"ngram {match[1]} follows ngram {len(counts)}")
                if len(counts) == MAX_ORDER:
                    raise self._fault(f"n-grams of order {match[1]}; orders of 1 to {MAX_ORDER} are accepted")
                counts.append(int(match[2]))
            else:
                self._expect_section(line, 1)
                break
        if not counts:
            raise self._fault("no line `ngram 1=…` follows \\data\\")

        # The shortest possible lines: a head that states more than the file can hold is refused before any are read.
        shortest = sum(count * (2 * order + 2) for order, count in enumerate(counts, 1))  # "0 a b" and its end
        if shortest > self._size:
            raise self._fault(f"the head says {sum(counts):,} n-grams, more than {self._size:,} bytes can hold")
        return counts

    def _read_section(self, order: int, count: int, orders: int, ids: dict[str, int], words: list[str]) -> "_ArpaTable":
        # Typed arrays: lists of Python's numbers would take several times the memory.
        table = _ArpaTable(array("i"), array("f"), array("f"))
        for line in self._texts():
            rows = len(table.probabilities)
            # Only a line with a backslash ends a section, and only after as many n-grams as the head states.
            if line.startswith("\\") and rows == count:
                if order == orders and line != "\\end\\":
                    raise self._fault(f"got {line!r}, \\end\\ is expected after the {count:,} n-grams of order {order}")
                if order < orders:
                    self._expect_section(line, order + 1)
                return table
            if rows == count:
                raise self._fault(f"more n-grams of order {order} than the {count:,} that the head says")
            parts = line.split()
            if len(parts) not in (order + 1, order + 2):
                raise self._fault(f"got {line[:100]!r}; a probability, {order} words and a back-off are expected")
            # A word gets its number where its unigram is read; longer n-grams look it up.
            if order == 1 and parts[1] not in ids:
                ids[parts[1]] = len(words)
                words.append(parts[1])
            elif order == 1 and parts[1] not in SPECIAL_WORDS:
                raise self._fault(f"the word {parts[1][:100]!r} is given twice")
            try:
                backoff = float(parts[order + 1]) if len(parts) == order + 2 else 0.0
                table.add([ids[word] for word in parts[1 : order + 1]], float(parts[0]), backoff)
            except KeyError as word:
                raise self._fault(f"the word {word} has no unigram") from None
            except ValueError:
                raise self._fault(f"got {line[:100]!r}; a number is expected first and last") from None
        rows = len(table.probabilities)
        raise self._fault(f"the file ends after {rows:,} of {count:,} n-grams of order {order}; it was cut short")

    def _expect_section(self, line: str, order: int) -> None:
        match = _SECTION.fullmatch(line)
        if not match or int(match[1]) != order:
            raise self._fault(f"got {line[:100]!r}, \\{order}-grams: is expected")

    def _texts(self) -> Iterator[str]:
        """The lines that are not empty."""
        blank = 0
        try:
            for number, line in self._lines:
                self._number = number
                if text := line.decode("utf-8").strip():
                    yield text
                    continue
                blank += 1
                if blank > MAX_BLANK_LINES:
                    raise self._fault(f"more than {MAX_BLANK_LINES:,} blank lines; take them out")
        except SizeLimitError as error:
            raise WorkError(str(error)) from None
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            raise self._fault(f"cannot be read ({error})") from None

    def _fault(self, text: str) -> WorkError:
        return WorkError(f"{self._file}, line {self._number:,}: {text}")


def _decimal(value: np.float32) -> str:
    """A number as KenLM prints it: seven digits, and no exponent."""
    text = f"{float(value):.7f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text

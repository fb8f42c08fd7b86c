"""Word and character errors, and how sure one may be of them.

Errors are counted by jiwer, per utterance; a rate is all errors over all reference words. Its interval
is a percentile bootstrap over utterances, or over speakers where there are enough of them: words of one
speaker fall together, and resampling them apart would promise too much (Bisani and Ney 2004,
"Bootstrap estimates for confidence intervals in ASR performance evaluation").
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from components.speech.errors import WorkError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

FEWEST_UNITS = 5
"""With fewer utterances (or speakers) than this a bootstrap says nothing; the interval is all there is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Edits:
    """What turns a reference into a hypothesis.

    Attributes:
      length: words (or characters) in the reference.
    """

    length: int = 0
    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0

    @property
    def errors(self) -> int:
        return self.insertions + self.deletions + self.substitutions

    @property
    def rate(self) -> float:
        """Errors by reference word; words put where nothing was said count as if against one word.

        >>> Edits(length=4, deletions=1).rate, Edits(length=0, insertions=2).rate
        (0.25, 2.0)
        """
        return self.errors / max(self.length, 1)

    def __add__(self, other: "Edits") -> "Edits":
        return Edits(
            self.length + other.length,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.substitutions + other.substitutions,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """Where the true rate (or difference of rates) lies.

    Attributes:
      over: what was resampled, "utterances" or "speakers".
      units: how many of them.
    """

    low: float
    high: float
    over: str
    units: int


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A challenger against a champion on the same utterances; rates of errors, so positive is worse.

    Attributes:
      difference: challenger's rate less the champion's.
      interval: of the difference, two-sided.
      lowest, highest: one-sided bounds: the difference is above `lowest`, and below `highest`, each with the
        stated confidence. Where the challenger was nowhere worse no resample can show that it is; what so many words
        leave open (the exact binomial bound, as in `Bootstrap.interval`) is then added to the upper bounds.
      probability_worse: share of resamples in which the challenger makes more errors; ties count half.
    """

    difference: float
    interval: Interval
    lowest: float
    highest: float
    probability_worse: float


def word_edits(references: Sequence[str], hypotheses: Sequence[str]) -> list[Edits]:
    """Counts word errors of each utterance; an empty reference has its insertions counted.

    >>> said, silence = word_edits(["a red cat", ""], ["the red", "oh"])
    >>> said, silence.errors
    (Edits(length=3, insertions=0, deletions=1, substitutions=1), 1)
    """
    return [_edits(pairs) for pairs in _aligned(references, hypotheses, "words")]


def character_edits(references: Sequence[str], hypotheses: Sequence[str]) -> list[Edits]:
    """Counts character errors of each utterance; the space between words is a character too."""
    return [_edits(pairs) for pairs in _aligned(references, hypotheses, "characters")]


def align_words(reference: str, hypothesis: str) -> list[tuple[str, str]]:
    """Pairs of (reference word, hypothesis word); an empty one stands for an insertion or a deletion.

    >>> align_words("a red cat", "the red cat oh")
    [('a', 'the'), ('red', 'red'), ('cat', 'cat'), ('', 'oh')]
    """
    return next(_aligned([reference], [hypothesis], "words"))


def confusions(references: Sequence[str], hypotheses: Sequence[str]) -> list[tuple[str, str, int]]:
    """(reference word, heard as, how often), most frequent first; an empty word is an insertion or a deletion.

    >>> confusions(["two to", "two", "red"], ["too to", "too", "red um"])
    [('two', 'too', 2), ('', 'um', 1)]
    """
    counts = collections.Counter(
        pair for pairs in _aligned(references, hypotheses, "words") for pair in pairs if pair[0] != pair[1]
    )
    return [(said, heard, count) for (said, heard), count in sorted(counts.items(), key=lambda e: (-e[1], e[0]))]


def total(edits: Iterable[Edits]) -> Edits:
    return sum(edits, Edits())


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
      confidence: of an interval, 0.95 for instance.
      samples: resamples drawn.
      seed: of the resamples; the same data and seed give the same interval.
      fewest_speakers: from so many on, speakers are resampled in place of utterances.

    >>> Bootstrap(samples=500).interval([Edits(4, substitutions=n % 2) for n in range(40)], [""] * 40)
    Interval(low=0.0875, high=0.1625, over='utterances', units=40)
    """

    confidence: float = 0.95
    samples: int = 2000
    seed: int = 0
    fewest_speakers: int = 10

    def interval(self, edits: Sequence[Edits], speakers: Sequence[str]) -> Interval:
        """The interval of the error rate.

        Where not one error was seen every resample says 0; the upper end is then the exact binomial bound
        for so many words without an error, 3.7 / words at 95% ("rule of three").
        """
        import numpy as np

        errors = np.array([edit.errors for edit in edits], np.int64)
        lengths = np.array([edit.length for edit in edits], np.int64)
        over, errors, lengths = self._units(errors, lengths, speakers)
        if len(errors) < FEWEST_UNITS:
            return Interval(0.0, max(1.0, total(edits).rate), over, len(errors))
        tail = (1 - self.confidence) / 2
        if not errors.any():
            return Interval(0.0, 1 - tail ** (1 / max(int(lengths.sum()), 1)), over, len(errors))
        rates = self._resampled(errors, lengths)
        low, high = np.quantile(rates, [tail, 1 - tail])
        return Interval(float(low), float(high), over, len(errors))

    def compare(self, challenger: Sequence[Edits], champion: Sequence[Edits], speakers: Sequence[str]) -> Comparison:
        """Compares two recognisers, utterance by utterance.

        Raises:
          WorkError: the two were not measured against the same references.
        """
        import numpy as np

        if [edit.length for edit in challenger] != [edit.length for edit in champion]:
            raise WorkError("two models can be compared on the same utterances only; evaluate both on one test split")
        differences = np.array([a.errors - b.errors for a, b in zip(challenger, champion, strict=True)], np.int64)
        lengths = np.array([edit.length for edit in challenger], np.int64)
        point = float(differences.sum()) / max(int(lengths.sum()), 1)
        over, differences, lengths = self._units(differences, lengths, speakers)
        if len(differences) < FEWEST_UNITS:
            widest = max(1.0, abs(point))
            return Comparison(point, Interval(-widest, widest, over, len(differences)), -widest, widest, 0.5)
        resampled = self._resampled(differences, lengths)
        tail = (1 - self.confidence) / 2
        low, high, lowest, highest = np.quantile(resampled, [tail, 1 - tail, 1 - self.confidence, self.confidence])
        if not (differences > 0).any():
            words = max(int(lengths.sum()), 1)
            high += 1 - tail ** (1 / words)
            highest += 1 - (1 - self.confidence) ** (1 / words)
        worse = float((resampled > 0).mean() + (resampled == 0).mean() / 2)
        interval = Interval(float(low), float(high), over, len(differences))
        return Comparison(point, interval, float(lowest), float(highest), worse)

    def _units(
        self, counts: "Integers", lengths: "Integers", speakers: Sequence[str]
    ) -> tuple[str, "Integers", "Integers"]:
        """What is resampled: utterances, or the sums of each speaker where there are enough and all are known."""
        import numpy as np

        names, index = np.unique(np.array(speakers, dtype=str), return_inverse=True)
        if len(names) < self.fewest_speakers or "" in names:
            return "utterances", counts, lengths
        by_speaker = [np.bincount(index, weights=values).astype(np.int64) for values in (counts, lengths)]
        return "speakers", by_speaker[0], by_speaker[1]

    def _resampled(self, counts: "Integers", lengths: "Integers") -> "Floats":
        """The rate in each resample, float64 [samples]; in blocks, so that memory stays within some 100 MB."""
        import numpy as np

        random = np.random.default_rng(self.seed)
        units = len(counts)
        block = max(1, 4_000_000 // units)
        rates = []
        for start in range(0, self.samples, block):
            drawn = random.integers(units, size=(min(block, self.samples - start), units))
            rates.append(counts[drawn].sum(axis=1) / np.maximum(lengths[drawn].sum(axis=1), 1))
        return np.concatenate(rates)


def _edits(pairs: Sequence[tuple[str, str]]) -> Edits:
    insertions = sum(not said for said, _ in pairs)
    deletions = sum(not heard for _, heard in pairs)
    substitutions = sum(said != heard for said, heard in pairs) - insertions - deletions
    return Edits(len(pairs) - insertions, insertions, deletions, substitutions)


def _aligned(references: Sequence[str], hypotheses: Sequence[str], unit: str) -> Iterator[list[tuple[str, str]]]:
    """jiwer's alignment of each utterance, as pairs of (said, heard)."""
    import jiwer

    if not references:
        return
    process = jiwer.process_words if unit == "words" else jiwer.process_characters
    result = process([" ".join(text.split()) for text in references], [" ".join(text.split()) for text in hypotheses])
    for said, heard, chunks in zip(result.references, result.hypotheses, result.alignments, strict=True):
        pairs: list[tuple[str, str]] = []
        for chunk in chunks:
            left = said[chunk.ref_start_idx : chunk.ref_end_idx]
            right = heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
            longest = max(len(left), len(right))
            pairs.extend(zip(left + [""] * (longest - len(left)), right + [""] * (longest - len(right)), strict=True))
        yield pairs

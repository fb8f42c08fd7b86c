"""Word and character errors of a hypothesis against its reference.

jiwer counts the errors of each utterance; a rate is all errors over all reference words. `bootstrap` computes its
confidence interval.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from voxline.metrics.bootstrap import SumAndWeight

_PINYIN = re.compile("[a-z]+[1-5]")
_HANZI = re.compile("[\u3007\u3400-\u9fff]")
_ANCHOR = 4
"""Equal words in a row, on both sides of which runs of words are joined apart."""
_MOST_PAIRS = 1_000_000
"""Words of a reference times words of a hypothesis, between such rows, above which none are joined."""


@dataclasses.dataclass(frozen=True, slots=True)
class EditCounts:
    """The edits that turn a reference into a hypothesis.

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
        """Errors per reference word; insertions into an empty reference count as if against one word.

        >>> EditCounts(length=4, deletions=1).rate, EditCounts(length=0, insertions=2).rate
        (0.25, 2.0)
        """
        return self.errors / max(self.length, 1)

    @property
    def as_metric(self) -> SumAndWeight:
        """Returns what this utterance adds to the rate over all."""
        return SumAndWeight(self.errors, self.length)

    @property
    def by_kind(self) -> dict[str, SumAndWeight]:
        """Returns what this utterance adds to the rate of each kind of error."""
        counts = {
            "substitution_rate": self.substitutions,
            "deletion_rate": self.deletions,
            "insertion_rate": self.insertions,
        }
        return {name: SumAndWeight(count, self.length) for name, count in counts.items()}

    def __add__(self, other: "EditCounts") -> "EditCounts":
        return EditCounts(
            self.length + other.length,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.substitutions + other.substitutions,
        )


def count_word_edits(references: Sequence[str], hypotheses: Sequence[str], *, spacing: bool = True) -> list[EditCounts]:
    """Counts word errors of each utterance; an empty reference has its insertions counted.

    >>> spoken, silence = count_word_edits(["a red cat", ""], ["the red", "oh"])
    >>> spoken, silence.errors
    (EditCounts(length=3, insertions=0, deletions=1, substitutions=1), 1)
    >>> [edits.errors for edits in count_word_edits(["my mail box", "my mailbox"], ["my mailbox", "a mail box"])]
    [2, 3]
    >>> count_word_edits(["my mail box", "my mailbox"], ["my mailbox", "a mail box"], spacing=False)[1]
    EditCounts(length=2, insertions=0, deletions=0, substitutions=1)

    Args:
      spacing: False: a word that the other text writes apart is no error, as the alternatives of compounds in the
        transcription filters of NIST's `sclite`. The length stays that of the reference as it is.
    """
    counted = []
    for pairs in _aligned(references, hypotheses, "words"):
        edits = _edits(pairs)
        if edits.errors and not spacing:
            edits = dataclasses.replace(_edits(_join_equal_runs(pairs)), length=edits.length)
        counted.append(edits)
    return counted


def count_character_edits(references: Sequence[str], hypotheses: Sequence[str]) -> list[EditCounts]:
    """Counts character errors of each utterance; the space between words is a character too."""
    return [_edits(pairs) for pairs in _aligned(references, hypotheses, "characters")]


@dataclasses.dataclass(frozen=True, slots=True)
class SyllableEdits:
    """Errors of a Mandarin utterance, from one alignment of its syllables without their tones.

    Attributes:
      syllables: the edits, tones ignored.
      tones: right syllables whose tone is wrong.
    """

    syllables: EditCounts
    tones: int

    def metrics(self, prefix: str = "") -> dict[str, SumAndWeight]:
        """Returns what this utterance adds to each metric of the catalog."""
        return {
            f"{prefix}syllable_error_rate": self.syllables.as_metric,
            f"{prefix}tone_error_rate": SumAndWeight(self.tones, self.syllables.length),
        }


def count_syllable_edits(references: Sequence[str], hypotheses: Sequence[str]) -> list[SyllableEdits] | None:
    """Counts errors of Mandarin syllables and tones; None unless most references are hanzi, or pinyin with tone digits.

    Hanzi are compared by their dictionary tones; a Latin word among them is one syllable. Of any other text, such as a
    reference or hypothesis in Latin letters alone, each word counts as a syllable.

    >>> (edits,) = count_syllable_edits(["ni3 hao3 ma5"], ["ni2 hao3"])
    >>> edits.syllables.rate, edits.tones
    (0.3333333333333333, 1)
    >>> count_syllable_edits(["麻"], ["马"])[0].tones, count_syllable_edits(["a red cat"], ["the red"])
    (1, None)
    >>> [one.syllables.length for one in count_syllable_edits(["你好", "再见", "ok google"], ["你好", "再", "ok"])]
    [2, 2, 2]
    """
    # None where a text is neither hanzi nor pinyin with tones.
    expected = [_syllables(reference) for reference in references]
    if 2 * sum(syllables is not None for syllables in expected) <= len(references):
        return None
    pairs_of = zip(expected, references, strict=True)
    spoken = [reference.lower().split() if syllables is None else syllables for syllables, reference in pairs_of]
    hypothesis_syllables = [_syllables(hypothesis) or hypothesis.split() for hypothesis in hypotheses]

    # Aligned without tones: a wrong tone alone must not count as a deletion and an insertion.
    aligned = _aligned(list(map(_without_tones, spoken)), list(map(_without_tones, hypothesis_syllables)), "words")
    counted = []
    for pairs, left, right in zip(aligned, spoken, hypothesis_syllables, strict=True):
        tones_left = iter(left)
        tones_right = iter(right)
        wrong = 0
        # Both lists are walked along the alignment, so that tones of paired syllables meet.
        for reference, hypothesis in pairs:
            tone = next(tones_left) if reference else ""
            other = next(tones_right) if hypothesis else ""
            wrong += reference == hypothesis and tone != other
        counted.append(SyllableEdits(_edits(pairs), wrong))
    return counted


def _without_tones(syllables: Sequence[str]) -> str:
    return " ".join(syllable.rstrip("12345") or syllable for syllable in syllables)


def _syllables(text: str) -> list[str] | None:
    """The syllables of pinyin with tone digits, or of hanzi; None if the text is neither."""
    from voxline.text.alphabet import UnsupportedText
    from voxline.text.frontend import apply_frontend
    from voxline.text.settings import FrontendSettings

    if text.strip() and all(_PINYIN.fullmatch(word) for word in text.split()):
        return text.split()
    if not _HANZI.search(text):
        return None

    # Without sandhi, by which one wrong syllable would change the tone of its neighbor.
    frontend = FrontendSettings(kind="mandarin", sandhi=False)
    syllables = list[str]()
    # Latin words stay whole; all between them goes through the frontend.
    for part in re.split("([A-Za-z]+)", text):
        if part.isascii() and part.isalpha():
            syllables.append(part.lower())
        elif any(map(str.isalnum, part)):
            try:
                syllables += apply_frontend(part, frontend).normalized_text.split()
            except UnsupportedText:
                return None
    return syllables


def align_words(reference: str, hypothesis: str) -> list[tuple[str, str]]:
    """Pairs of (reference word, hypothesis word); an empty one stands for an insertion or a deletion.

    >>> align_words("a red cat", "the red cat oh")
    [('a', 'the'), ('red', 'red'), ('cat', 'cat'), ('', 'oh')]
    """
    return next(_aligned([reference], [hypothesis], "words"))


def count_confusions(references: Sequence[str], hypotheses: Sequence[str]) -> list[tuple[str, str, int]]:
    """(reference word, hypothesis word, count), most frequent first; an empty word is an insertion or a deletion.

    >>> count_confusions(["two to", "two", "red"], ["too to", "too", "red um"])
    [('two', 'too', 2), ('', 'um', 1)]
    """
    counts = collections.Counter(
        pair for pairs in _aligned(references, hypotheses, "words") for pair in pairs if pair[0] != pair[1]
    )
    return [(*pair, count) for pair, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def count_missed_words(references: Sequence[str], hypotheses: Sequence[str]) -> list[tuple[str, int, int]]:
    """(reference word, times missed, times it occurs) of each word that was substituted or deleted.

    Sorted by the times missed, then by their share of the times it occurs.

    >>> count_missed_words(["call anna", "call me"], ["cal anna", "call"])
    [('me', 1, 1), ('call', 1, 2)]
    """
    missed, occurs = collections.Counter[str](), collections.Counter[str]()
    for pairs in _aligned(references, hypotheses, "words"):
        for reference, hypothesis in pairs:
            if reference:
                occurs[reference] += 1
                missed[reference] += reference != hypothesis

    order = sorted((word for word in missed if missed[word]), key=lambda word: (-missed[word], occurs[word], word))
    return [(word, missed[word], occurs[word]) for word in order]


def sum_edits(edits: Iterable[EditCounts]) -> EditCounts:
    return sum(edits, EditCounts())


def _edits(pairs: Sequence[tuple[str, str]]) -> EditCounts:
    insertions = sum(not reference for reference, _ in pairs)
    deletions = sum(not hypothesis for _, hypothesis in pairs)
    substitutions = sum(reference != hypothesis for reference, hypothesis in pairs) - insertions - deletions

    # Deletions and insertions have one empty side, substitutions two different words.
    return EditCounts(len(pairs) - insertions, insertions, deletions, substitutions)


def _join_equal_runs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """An alignment in which words that the other text writes as one are one.

    >>> _join_equal_runs([("the", "the"), ("mail", ""), ("box", "mailbox"), ("is", "was")])
    [('the', 'the'), ('mailbox', 'mailbox'), ('is', 'was')]
    """
    joined: list[tuple[str, str]] = []
    for block in _between_equal_words(pairs):
        reference, hypothesis = ([word for word in side if word] for side in zip(*block, strict=True))
        if reference != hypothesis and len(reference) * len(hypothesis) <= _MOST_PAIRS:
            block = _join_in_block(reference, hypothesis)
        joined += block
    return joined


def _between_equal_words(pairs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Divides an alignment at runs of equal words that are so long that another alignment would pair them too."""
    block: list[tuple[str, str]] = []
    for equal, group in itertools.groupby(pairs, lambda pair: pair[0] == pair[1]):
        run = list(group)
        if equal and len(run) >= _ANCHOR:
            yield from filter(None, (block, run))
            block = []
        else:
            block += run
    if block:
        yield block


def _join_in_block(reference: list[str], hypothesis: list[str]) -> list[tuple[str, str]]:
    """Aligns words so that the fewest edits are left."""
    # From each place in both: the edits up to their ends, and how many words of each come before the next place.
    costs = {(len(reference), len(hypothesis)): (0, 0, 0)}
    for left in reversed(range(len(reference) + 1)):
        for right in reversed(range(len(hypothesis) + 1)):
            # A substitution, a deletion, an insertion.
            choices = [
                (costs[left + words, right + spoken][0] + 1, words, spoken)
                for words, spoken in ((1, 1), (1, 0), (0, 1))
                if left + words <= len(reference) and right + spoken <= len(hypothesis)
            ]
            # Equal words are runs of one word each.
            choices += [
                (costs[left + words, right + spoken][0], words, spoken)
                for words, spoken in _equal_runs(reference, left, hypothesis, right)
            ]
            if choices:
                costs[left, right] = min(choices)

    # From the first place of both along the choices. No run of several words is an edit.
    pairs = []
    left = right = 0
    while (left, right) != (len(reference), len(hypothesis)):
        _, words, spoken = costs[left, right]
        pairs.append(("".join(reference[left : left + words]), "".join(hypothesis[right : right + spoken])))
        left += words
        right += spoken
    return pairs


def _equal_runs(reference: list[str], left: int, hypothesis: list[str], right: int) -> Iterator[tuple[int, int]]:
    """Counts the words of both, from a place in each, that are one word of either; each pair of numbers."""
    begin = left
    start = right
    text = heard_text = ""
    while text.startswith(heard_text) or heard_text.startswith(text):
        if text and text == heard_text and 1 in (left - begin, right - start):
            yield left - begin, right - start
        # The shorter text grows by a word.
        if left - begin > 1 and right - start > 1:
            return
        if len(text) <= len(heard_text) and left < len(reference):
            text += reference[left]
            left += 1
        elif len(text) > len(heard_text) and right < len(hypothesis):
            heard_text += hypothesis[right]
            right += 1
        else:
            return


def _aligned(references: Sequence[str], hypotheses: Sequence[str], unit: str) -> Iterator[list[tuple[str, str]]]:
    """jiwer's alignment of each utterance, as pairs of (reference, hypothesis)."""
    import jiwer

    if not references:
        return

    # jiwer wants single spaces, and aligns all utterances in one call.
    process = jiwer.process_words if unit == "words" else jiwer.process_characters
    result = process([" ".join(text.split()) for text in references], [" ".join(text.split()) for text in hypotheses])
    for reference, hypothesis, chunks in zip(result.references, result.hypotheses, result.alignments, strict=True):
        pairs: list[tuple[str, str]] = []
        for chunk in chunks:
            left = reference[chunk.ref_start_idx : chunk.ref_end_idx]
            right = hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx]
            longest = max(len(left), len(right))
            # A chunk may be longer on one side: the rest pairs with nothing.
            pairs.extend(zip(left + [""] * (longest - len(left)), right + [""] * (longest - len(right)), strict=True))
        yield pairs

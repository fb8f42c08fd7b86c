"""Assigns utterances to train, dev and test.

Shares are drawn by hash: the seed and the name of a speaker (or utterance) give a number in [0, 1), and the name is
selected if the number is below the share. So when a corpus grows or shrinks, the others keep their split.

Of few utterances chance may select none, so dev and test have a minimum: `MINIMUM` utterances, or their share of the
corpus if that is less. Test takes what it lacks from dev, and dev from train. So what moves when a small corpus grows
moves between train and dev or between dev and test, never between train and test, whose utterances would then be tested
with a model that learned them. Two exceptions, for a few names: a test split that is still empty takes one utterance
from train, and an empty split of speakers the speaker with the lowest number; and no share takes the last name from
training.
"""

import dataclasses
import difflib
import fnmatch
import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from voxline.components.ingest.settings import CorpusSettings, SplitNames
from voxline.components.ingest.staging import ProbedUtterance, SplitKey
from voxline.errors import SettingsError

LEFT_OUT = "left_out"
MINIMUM = 5
"""Utterances of dev and of test, where their share of the corpus is as many."""

UtteranceFilter = Callable[[SplitKey | ProbedUtterance], bool]


@dataclasses.dataclass(frozen=True)
class SplitAssignment:
    """The split of each utterance of a corpus.

    Attributes:
      by_corpus_split: the split that each of the corpus' own splits becomes.
      keep_corpus_splits: whether these are kept; else test and dev are drawn from all utterances that are used.
      in_test, in_dev: select the utterances of the drawn splits.
      filled: (from, to) → utterances that were moved because a split had too few.
    """

    by_corpus_split: dict[str, str]
    keep_corpus_splits: bool
    in_test: UtteranceFilter
    in_dev: UtteranceFilter
    filled: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)

    def split_of(self, utterance: SplitKey | ProbedUtterance) -> str:
        """Returns "train", "dev", "test" or "left_out"."""
        split = self.by_corpus_split[utterance.split]
        if split == LEFT_OUT or (self.keep_corpus_splits and split != "train"):
            return split
        return "test" if self.in_test(utterance) else "dev" if self.in_dev(utterance) else "train"


def assign_splits(
    corpus_splits: Iterable[str], utterances: Callable[[], Iterable[SplitKey]], settings: CorpusSettings
) -> SplitAssignment:
    """Decides the split of every utterance.

    Args:
      corpus_splits: the corpus' own splits.
      utterances: iterates over all of them, once for each draw.

    Raises:
      SettingsError: the settings do not cover a split of the corpus, utterances to be split by speaker have no
        speaker, or a held-out speaker is not in the corpus.
    """
    split = settings.split
    by_corpus_split = _map_corpus_splits(set(corpus_splits), settings)
    assignment = SplitAssignment(by_corpus_split, split.by == "corpus", _select_none, _select_none)
    dev_by = split.dev_by or ("utterance" if split.by == "corpus" else split.by)

    # Test is drawn first, and dev from what it leaves.
    def draw(role: str, share: float, by: str, keep: int = 1) -> UtteranceFilter:
        return _draw(_of_split(assignment, "train", utterances()), share, by, f"{split.seed} {role}", keep)

    dev_share = split.dev
    if split.by == "corpus":
        if "dev" in by_corpus_split.values():
            return assignment
    elif split.test_speakers:
        in_test = _hold_out(_of_split(assignment, "train", utterances()), split.test_speakers)
        assignment = dataclasses.replace(assignment, in_test=in_test)
    else:
        keep = 2 if split.dev and dev_by == split.by else 1  # one for train and, maybe, one for dev
        assignment = dataclasses.replace(assignment, in_test=draw("test", split.test, split.by, keep))
        dev_share = split.dev / (1 - split.test)  # of the remainder, so that it is `split.dev` of all

    assignment = dataclasses.replace(assignment, in_dev=draw("dev", dev_share, dev_by))

    # Few utterances: see the module's docstring for what may move.
    if split.by == "utterance":
        if dev_by == "utterance":
            assignment = _fill("test", "dev", assignment, utterances, split.test, split.seed)
        assignment = _fill("test", "train", assignment, utterances, split.test, split.seed, minimum=1)
    if dev_by == "utterance":
        assignment = _fill("dev", "train", assignment, utterances, split.dev, split.seed)
    return assignment


def within_limits(
    assignment: SplitAssignment, utterances: Callable[[], Iterable[SplitKey]], settings: CorpusSettings
) -> UtteranceFilter:
    """Selects the utterances that `corpus.limits` leaves in, all of those whose split has no limit.

    Args:
      utterances: iterates over all of them, once for each split with a limit.
    """
    # By the numbers of their hashes: when the corpus grows, few of a split make room for others.
    salt = f"{settings.split.seed} limit"
    last: dict[str, tuple[float, str]] = {}
    for split, limit in settings.limits:
        if limit:
            names = (utterance.id for utterance in _of_split(assignment, split, utterances()))
            lowest = heapq.nsmallest(limit, ((hash_fraction(name, salt), name) for name in names))
            last |= {split: lowest[-1]} if lowest else {}

    def selects(utterance: SplitKey | ProbedUtterance) -> bool:
        highest = last.get(assignment.split_of(utterance))
        return highest is None or (hash_fraction(utterance.id, salt), utterance.id) <= highest

    return selects


def _of_split(assignment: SplitAssignment, split: str, utterances: Iterable[SplitKey]) -> Iterator[SplitKey]:
    return (utterance for utterance in utterances if assignment.split_of(utterance) == split)


def _fill(
    to: str,
    source: str,
    assignment: SplitAssignment,
    utterances: Callable[[], Iterable[SplitKey]],
    share: float,
    seed: int,
    minimum: int = MINIMUM,
) -> SplitAssignment:
    """Moves utterances from one split to another that has fewer than a minimum: those with the lowest numbers.

    Args:
      share: of `to` in all utterances that are drawn. Less than `minimum` utterances, it is the minimum; but at least
        one, unless it is 0.
    """
    # A corpus' own test split is not drawn from, and not part of the total.
    counts = Counter(map(assignment.split_of, utterances()))
    total = counts["train"] + counts["dev"] + (0 if assignment.keep_corpus_splits else counts["test"])
    least = min(minimum, max(1, math.floor(share * total + 1e-9))) if share else 0  # 0.1 * 30 is above 3, others below
    missing = min(least - counts[to], counts[source] - (source == "train"))
    if missing <= 0:
        return assignment

    # By the numbers of the draw, so that a corpus that grows moves as few utterances as possible.
    names = (utterance.id for utterance in _of_split(assignment, source, utterances()))
    moved = frozenset(heapq.nsmallest(missing, names, key=lambda name: (hash_fraction(name, f"{seed} {to}"), name)))
    drawn = assignment.in_test if to == "test" else assignment.in_dev

    def selects(utterance: SplitKey | ProbedUtterance) -> bool:
        return utterance.id in moved or drawn(utterance)

    filled = {**assignment.filled, (source, to): len(moved)}
    if to == "test":
        return dataclasses.replace(assignment, in_test=selects, filled=filled)
    return dataclasses.replace(assignment, in_dev=selects, filled=filled)


def _select_none(utterance: SplitKey | ProbedUtterance) -> bool:
    return False


def _draw(utterances: Iterable[SplitKey], share: float, by: str, salt: str, keep: int) -> UtteranceFilter:
    """Selects a share of these utterances, or all utterances of a share of their speakers."""
    if by == "utterance":
        threshold = selection_threshold((utterance.id for utterance in utterances), share, salt, keep, at_least=0)
        return lambda utterance: hash_fraction(utterance.id, salt) <= threshold
    threshold = selection_threshold({_speaker_of(utterance) for utterance in utterances}, share, salt, keep)
    return lambda utterance: hash_fraction(_speaker_of(utterance), salt) <= threshold


def selection_threshold(
    names: Iterable[str], share: float, salt: str, keep: int = 1, at_least: Literal[0, 1] = 1
) -> float:
    """The number up to which names are selected; below 0 where none is.

    Names whose number is below the share are selected. At least `keep` names are never selected, or all but one where
    there are no more than that.

    Args:
      names: each once.
      at_least: 1 selects the name with the lowest number where the share selects none and is not 0.

    >>> names = {f"speaker {number}" for number in range(1000)}
    >>> def select(names, share):
    ...     threshold = selection_threshold(names, share, "0 test")
    ...     return {name for name in names if hash_fraction(name, "0 test") <= threshold}
    >>> len(select(names, 0.1))
    94
    >>> select(names, 0.1) - {"speaker 1"} == select(names - {"speaker 1"}, 0.1)
    True
    >>> len(select({"theo", "lucas"}, 0.001)), select({"theo"}, 0.9)
    (1, set())
    """
    count = under = 0
    # a heap of the highest numbers below the share
    lowest = 1.0
    highest = [-1.0] * (keep + 1)
    for name in names:
        number = hash_fraction(name, salt)
        count = count + 1
        lowest = min(lowest, number)
        if number < share:
            under += 1
            heapq.heappushpop(highest, number)

    most = count - min(keep, max(count - 1, 1))
    if share <= 0 or most <= 0:
        return -1.0
    return sorted(highest, reverse=True)[max(under - most, 0)] if under else lowest if at_least else -1.0


def hash_fraction(name: str, salt: str) -> float:
    """The number in [0, 1) that a name hashes to."""
    return int.from_bytes(hashlib.blake2b(f"{salt} {name}".encode(), digest_size=8).digest()) / 2**64


def _map_corpus_splits(names: set[str], settings: CorpusSettings) -> dict[str, str]:
    """The split that each of the corpus' own splits becomes."""
    patterns_of = {"train": settings.splits.train, "dev": settings.splits.dev, "test": settings.splits.test}
    splits: dict[str, str] = {}
    for name in sorted(names):
        # Where shares decide, the corpus' splits only say what is left out.
        matching = [split for split, patterns in patterns_of.items() if _matches(patterns, name)]
        if len(matching) > 1 and settings.split.by == "corpus":
            raise SettingsError(
                f"corpus.splits: the corpus' split {name!r} is covered by {' and by '.join(matching)}; "
                "let only one of them cover it"
            )

        if matching:
            splits[name] = matching[0]
        elif _matches(settings.splits.leave_out, name):
            splits[name] = LEFT_OUT
        elif settings.split.by == "corpus":
            raise SettingsError(
                f"corpus.splits: none covers the corpus' split {name!r} (it has: {', '.join(sorted(names))}); add a "
                "pattern to corpus.splits.train, .dev, .test or .leave_out, or set corpus.split.by to speaker or "
                "utterance"
            )
        else:
            splits[name] = "train"

    return splits


def split_patterns_cover(names: Iterable[str], patterns: SplitNames) -> bool:
    """Returns whether patterns cover each of a corpus' own splits once, train and test among them.

    >>> (
    ...     split_patterns_cover(["train-clean-100", "test-clean"], SplitNames()),
    ...     split_patterns_cover(["all"], SplitNames()),
    ... )
    (True, False)
    """
    covered = set()
    for name in names:
        matching = [split for split in ("train", "dev", "test") if _matches(getattr(patterns, split), name)]
        if len(matching) != 1:
            return False
        covered.add(matching[0])

    return {"train", "test"} <= covered


def _matches(patterns: list[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _hold_out(utterances: Iterable[SplitKey], speakers: list[str]) -> UtteranceFilter:
    all_speakers = {_speaker_of(utterance) for utterance in utterances}
    for speaker in speakers:
        if speaker not in all_speakers:
            near = difflib.get_close_matches(speaker, all_speakers, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(all_speakers)[:20])}"
            raise SettingsError(f"corpus.split.test_speakers: the corpus has no speaker {speaker!r}; {hint}")
    if all_speakers <= set(speakers):
        raise SettingsError("corpus.split.test_speakers: lists all speakers, so none is left to train on; remove some")
    return lambda utterance: utterance.speaker in speakers


def _speaker_of(utterance: SplitKey | ProbedUtterance) -> str:
    if not utterance.speaker:
        raise SettingsError(
            f"corpus.split: the corpus does not name the speaker of {utterance.id} ({utterance.source}), "
            "so it cannot be split by speaker; set corpus.split.by (or dev_by) to utterance"
        )
    return utterance.speaker

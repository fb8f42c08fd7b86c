"""Which utterance is for training, which for stopping and which for judging.

Shares are drawn by hash: every speaker (or utterance) has a place in [0, 1) that depends on the seed and
its name alone, and is drawn if the place is under the share. So a corpus can grow or shrink and those
who stay keep their split. One exception: a share that would draw nobody draws the one with the lowest
place (an empty dev or test split is of no use), and shares never draw the last one away from
training, or from dev; with so few, a newcomer may take the place.
"""

import dataclasses
import difflib
import fnmatch
import hashlib
import heapq
from collections.abc import Callable, Iterable

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import ProbedUtterance, SplitKey
from voxline.errors import SettingsError

LEFT_OUT = "left_out"

UtteranceFilter = Callable[[SplitKey | ProbedUtterance], bool]


@dataclasses.dataclass(frozen=True)
class SplitAssignment:
    """The split of each utterance of a corpus.

    Attributes:
      own: what each of the corpus' own splits becomes.
      whole: those are kept; else what is used of them is one heap, from which test and dev are drawn.
      test, dev: who is drawn.
    """

    own: dict[str, str]
    whole: bool
    test: UtteranceFilter
    dev: UtteranceFilter

    def of(self, one: SplitKey | ProbedUtterance) -> str:
        """It is "train", "dev", "test" or "left_out"."""
        split = self.own[one.split]
        if split == LEFT_OUT or (self.whole and split != "train"):
            return split
        return "test" if self.test(one) else "dev" if self.dev(one) else "train"


def assign_splits(
    own: Iterable[str], utterances: Callable[[], Iterable[SplitKey]], settings: CorpusSettings
) -> SplitAssignment:
    """Decides about splits.

    Args:
      own: the corpus' own splits.
      utterances: gives all of them anew, as often as somebody has to be drawn.

    Raises:
      SettingsError: a split of the corpus that the settings do not cover, utterances without a speaker
        that are to be split by speaker, or a held-out speaker whom nobody knows.
    """
    split = settings.split
    drawn = SplitAssignment(_own_splits(set(own), settings), split.by == "corpus", _nobody, _nobody)
    dev_by = split.dev_by or ("utterance" if split.by == "corpus" else split.by)

    def draw(role: str, share: float, by: str, keep: int = 1) -> UtteranceFilter:
        rest = (one for one in utterances() if drawn.of(one) == "train")
        return _draw(rest, share, by, f"{split.seed} {role}", keep)

    if split.by == "corpus":
        if "dev" in drawn.own.values():
            return drawn
        return dataclasses.replace(drawn, dev=draw("dev", split.dev, dev_by))
    if split.test_speakers:
        test, share = (
            _held_out((one for one in utterances() if drawn.of(one) == "train"), split.test_speakers),
            split.dev,
        )
    else:
        both_remain = 2 if split.dev and dev_by == split.by else 1
        test, share = draw("test", split.test, split.by, both_remain), split.dev / (1 - split.test)
    drawn = dataclasses.replace(drawn, test=test)
    return dataclasses.replace(drawn, dev=draw("dev", share, dev_by))


def _nobody(one: SplitKey | ProbedUtterance) -> bool:
    return False


def _draw(utterances: Iterable[SplitKey], share: float, by: str, salt: str, keep: int) -> UtteranceFilter:
    """Who is drawn among these utterances, or among their speakers."""
    if by == "utterance":
        last = selection_threshold((one.id for one in utterances), share, salt, keep)
        return lambda one: hash_fraction(one.id, salt) <= last
    last = selection_threshold({_speaker(one) for one in utterances}, share, salt, keep)
    return lambda one: hash_fraction(_speaker(one), salt) <= last


def selection_threshold(names: Iterable[str], share: float, salt: str, keep: int = 1) -> float:
    """The place of the last of these names that is drawn; below 0 where none is.

    Those are drawn whose place is under the share; at least one if the share is not 0. Of those that there are, `keep`
    are never drawn, or all but one where there are no more than that.

    Args:
      names: each once.

    >>> names = {f"speaker {number}" for number in range(1000)}
    >>> def drawn(names, share):
    ...     last = selection_threshold(names, share, "0 test")
    ...     return {name for name in names if hash_fraction(name, "0 test") <= last}
    >>> len(drawn(names, 0.1))
    94
    >>> drawn(names, 0.1) - {"speaker 1"} == drawn(names - {"speaker 1"}, 0.1)
    True
    >>> len(drawn({"theo", "lucas"}, 0.001)), drawn({"theo"}, 0.9)
    (1, set())
    """
    count = under = 0
    lowest, highest = 1.0, [-1.0] * (keep + 1)  # a heap of the highest places under the share, the lowest of them first
    for name in names:
        place = hash_fraction(name, salt)
        count, lowest = count + 1, min(lowest, place)
        if place < share:
            under += 1
            heapq.heappushpop(highest, place)
    most = count - min(keep, max(count - 1, 1))
    if share <= 0 or most <= 0:
        return -1.0
    return sorted(highest, reverse=True)[max(under - most, 0)] if under else lowest


def hash_fraction(name: str, salt: str) -> float:
    """Where a name stands in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(f"{salt} {name}".encode(), digest_size=8).digest()) / 2**64


def _own_splits(names: set[str], settings: CorpusSettings) -> dict[str, str]:
    """What each of the corpus' own splits becomes."""
    patterns_of = {"train": settings.splits.train, "dev": settings.splits.dev, "test": settings.splits.test}
    ours: dict[str, str] = {}
    for name in sorted(names):
        fitting = [split for split, patterns in patterns_of.items() if _covers(patterns, name)]
        if len(fitting) > 1 and settings.split.by == "corpus":
            raise SettingsError(
                f"corpus.splits: the corpus' split {name!r} is covered by {' and by '.join(fitting)}; "
                f"let one of them cover it"
            )
        if fitting:
            ours[name] = fitting[0]
        elif _covers(settings.splits.leave_out, name):
            ours[name] = LEFT_OUT
        elif settings.split.by == "corpus":
            raise SettingsError(
                f"corpus.splits: none covers the corpus' split {name!r} (it has: {', '.join(sorted(names))}); add a "
                "pattern to corpus.splits.train, .dev, .test or .leave_out, or set corpus.split.by to speaker or "
                "utterance"
            )
        else:
            ours[name] = "train"
    return ours


def _covers(patterns: list[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def _held_out(utterances: Iterable[SplitKey], speakers: list[str]) -> UtteranceFilter:
    known = {_speaker(one) for one in utterances}
    for speaker in speakers:
        if speaker not in known:
            near = difflib.get_close_matches(speaker, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known)[:20])}"
            raise SettingsError(f"corpus.split.test_speakers: the corpus has no speaker {speaker!r}; {hint}")
    if known <= set(speakers):
        raise SettingsError("corpus.split.test_speakers: these are all the speakers, so nobody is left to train on")
    return lambda one: one.speaker in speakers


def _speaker(one: SplitKey | ProbedUtterance) -> str:
    if not one.speaker:
        raise SettingsError(
            f"corpus.split: the corpus does not say who speaks {one.id} ({one.source}), "
            f"so it cannot be split by speaker; set corpus.split.by (or dev_by) to utterance"
        )
    return one.speaker

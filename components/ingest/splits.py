"""Which utterance is for training, which for stopping and which for judging.

Shares are drawn by hash: every speaker (or utterance) has a place in [0, 1) that depends on the seed and
its name alone, and is drawn if the place is under the share. So a corpus can grow or shrink and those
who stay keep their split. One exception: a share that would draw nobody draws the one with the lowest
place (an empty dev or test split is of no use), and shares never draw the last one away from
training, or from dev; with so few, a newcomer may take the place.
"""

import difflib
import fnmatch
import hashlib
from collections.abc import Callable, Collection, Iterable

from components.ingest.corpus import Entry
from components.ingest.settings import CorpusSettings
from components.speech.errors import SettingsError

LEFT_OUT = "left_out"


def splits_of(entries: Collection[Entry], settings: CorpusSettings) -> dict[str, str]:
    """The split of each utterance, by id: "train", "dev", "test" or "left_out".

    Raises:
      SettingsError: a split of the corpus that the settings do not cover, utterances without a speaker
        that are to be split by speaker, or a held-out speaker whom nobody knows.
    """
    own = _own_splits({entry.split for entry in entries}, settings)
    splits = {entry.id: own[entry.split] for entry in entries}
    used = [entry for entry in entries if splits[entry.id] != LEFT_OUT]
    split = settings.split
    dev_by = split.dev_by or ("utterance" if split.by == "corpus" else split.by)
    names: dict[str, Callable[[Entry], str]] = {"utterance": _id, "speaker": _speaker}

    def draw(role: str, candidates: list[Entry], share: float, by: str, keep: int = 1) -> list[Entry]:
        drawn = drawn_by_hash({names[by](entry) for entry in candidates}, share, f"{split.seed} {role}", keep)
        return [entry for entry in candidates if names[by](entry) in drawn]

    if split.by == "corpus":
        if "dev" not in splits.values():
            train = [entry for entry in used if splits[entry.id] == "train"]
            splits |= {entry.id: "dev" for entry in draw("dev", train, split.dev, dev_by)}
        return splits
    splits |= {entry.id: "train" for entry in used}
    held_out = _held_out(used, split.test_speakers)
    both_remain = 2 if split.dev and dev_by == split.by else 1
    test = held_out or draw("test", used, split.test, split.by, keep=both_remain)
    splits |= {entry.id: "test" for entry in test}
    rest = [entry for entry in used if splits[entry.id] == "train"]
    share = split.dev if held_out else split.dev / (1 - split.test)
    splits |= {entry.id: "dev" for entry in draw("dev", rest, share, dev_by)}
    return splits


def drawn_by_hash(names: Iterable[str], share: float, salt: str, keep: int = 1) -> set[str]:
    """Those of the names whose place is under the share; at least one if the share is not 0.

    Of those that there are, `keep` are never drawn, or all but one where there are no more than that.

    >>> names = {f"speaker {number}" for number in range(1000)}
    >>> len(drawn_by_hash(names, 0.1, "0 test"))
    94
    >>> drawn_by_hash(names, 0.1, "0 test") - {"speaker 1"} == drawn_by_hash(names - {"speaker 1"}, 0.1, "0 test")
    True
    >>> len(drawn_by_hash({"theo", "lucas"}, 0.001, "0 test")), drawn_by_hash({"theo"}, 0.9, "0 test")
    (1, set())
    """

    def place(name: str) -> float:
        return int.from_bytes(hashlib.blake2b(f"{salt} {name}".encode(), digest_size=8).digest()) / 2**64

    order = sorted(names, key=place)
    if share <= 0:
        return set()
    drawn = [name for name in order if place(name) < share] or order[:1]
    return set(drawn[: len(order) - min(keep, max(len(order) - 1, 1))])


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


def _held_out(entries: list[Entry], speakers: list[str]) -> list[Entry]:
    known = {_speaker(entry) for entry in entries} if speakers else set()
    for speaker in speakers:
        if speaker not in known:
            near = difflib.get_close_matches(speaker, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known)[:20])}"
            raise SettingsError(f"corpus.split.test_speakers: the corpus has no speaker {speaker!r}; {hint}")
    if speakers and known <= set(speakers):
        raise SettingsError("corpus.split.test_speakers: these are all the speakers, so nobody is left to train on")
    return [entry for entry in entries if entry.speaker in speakers]


def _id(entry: Entry) -> str:
    return entry.id


def _speaker(entry: Entry) -> str:
    if not entry.speaker:
        raise SettingsError(
            f"corpus.split: the corpus does not say who speaks {entry.id} ({entry.source}), "
            f"so it cannot be split by speaker; set corpus.split.by (or dev_by) to utterance"
        )
    return entry.speaker

"""Which utterance goes into which shard, decided before any audio is read.

Utterances are ordered by the hash of their id, which mixes speakers, chapters and lengths, and cut into shards
along a binary trie of that hash: a range that holds more than `shard_megabytes` is halved by its next bit. So

- a shard holds at most that much (a recording that is longer has one to itself);
- where an utterance lies depends on its id and on how crowded its range is, on nothing else: adding, changing or
  removing one touches one shard, or splits it in two or joins two halves; all others keep their bytes;
- a copy at another speed goes into another shard at the same place of the trie, so that it does not stand beside
  its original, and adding a speed leaves the shards that are there.

A shard is named by the hash of what is in it: its members' id, text, speaker, split and audio, and the settings
that make bytes of them. One that lies whole in the store under its name is never written again, by whatever run.
"""

import bisect
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from components.extract.settings import ExtractSettings
from components.speech.storage import hash_value
from components.speech.text import Alphabet
from components.speech.utterances import Reason, Reject, Utterance

REVISION = 1
"""Raised whenever the bytes of a shard change for the same input."""

BITS = 64
SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """One shard to be: utterances of one split, at one speed, in the order in which they are written."""

    split: str
    speed: float
    utterances: Sequence[Utterance]

    def name(self, settings: ExtractSettings) -> str:
        return shard_name(self.utterances, self.split, self.speed, settings)


def plan_shards(utterances: Iterable[Utterance], settings: ExtractSettings) -> Iterator[ShardPlan]:
    """All shards of a dataset, in a fixed order: by split, place and speed.

    >>> few = [Utterance(f"u{n}", "u.wav", 2.0, "a word", audio_hash="ab") for n in range(100)]
    >>> sizes = [len(plan.utterances) for plan in plan_shards(few, ExtractSettings(shard_megabytes=1.6))]
    >>> sum(sizes), max(sizes) <= 25  # two seconds are 64 kB of 80 float32 a frame
    (100, True)
    """
    by_split: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        by_split.setdefault(utterance.split, []).append(utterance)
    for split in sorted(by_split, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)):
        ordered = sorted((_place(utterance.id), utterance.id, utterance) for utterance in by_split[split])
        places = [place for place, _, _ in ordered]
        totals = [0.0]
        for _, _, utterance in ordered:
            totals.append(totals[-1] + _bytes(utterance, settings))
        for first, last in _leaves(places, totals, settings.shard_megabytes * 1e6):
            members = [utterance for _, _, utterance in ordered[first:last]]
            for speed in settings.speeds if split == "train" else [1.0]:
                yield ShardPlan(split, speed, members)


def shard_name(utterances: Iterable[Utterance], split: str, speed: float, settings: ExtractSettings) -> str:
    """The name of a shard that holds just these utterances."""
    members = [[u.id, u.text, u.speaker, u.audio_hash, u.offset, u.duration] for u in utterances]
    return hash_value(
        {
            "revision": REVISION,
            "features": settings.features.plain(),
            "alphabet": Alphabet.named(settings.alphabet).symbols,
            "split": split,
            "speed": speed,
            "members": members,
        }
    )


def unfit(utterances: Iterable[Utterance], alphabet: Alphabet) -> tuple[list[Utterance], list[Reject]]:
    """Parts those that can be labelled from those that cannot, which takes no audio."""
    fit: list[Utterance] = []
    rejects: list[Reject] = []
    seen: set[str] = set()
    for utterance in utterances:
        fault = alphabet.fault(utterance.text)
        if utterance.id in seen:
            reason, detail = Reason.DUPLICATE_ID, "another utterance before it in the manifest has this id"
        elif not utterance.text:
            reason, detail = Reason.TRANSCRIPT_EMPTY, "no text to label it with"
        elif fault:
            reason, detail = Reason.OUTSIDE_ALPHABET, fault
        else:
            seen.add(utterance.id)
            fit.append(utterance)
            continue
        rejects.append(Reject(utterance.id, reason, detail))
    return fit, rejects


def _leaves(places: Sequence[int], totals: Sequence[float], limit: float) -> Iterator[tuple[int, int]]:
    """Ranges of indices, none empty: the leaves of the trie."""
    pending = [(0, len(places), 0, 0)]  # first, last, the place at which the range begins, bits that it has fixed
    while pending:
        first, last, begin, bits = pending.pop()
        if first == last:
            continue
        if last - first == 1 or bits == BITS or totals[last] - totals[first] <= limit:
            yield first, last
            continue
        middle = begin + (1 << (BITS - bits - 1))
        cut = bisect.bisect_left(places, middle, first, last)
        pending += [(cut, last, middle, bits + 1), (first, cut, begin, bits + 1)]


def _place(identity: str) -> int:
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=BITS // 8).digest(), "big")


def _bytes(utterance: Utterance, settings: ExtractSettings) -> int:
    how = settings.features
    return how.frames(round(utterance.duration * how.sample_rate)) * how.bins * 4

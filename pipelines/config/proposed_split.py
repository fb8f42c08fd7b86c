"""Proposes how a corpus is split: by its own splits, by speaker, or by utterance.

Shares of speakers are shares of the hours only where all speakers said about as much. So the draw of ingest is tried
with some seeds, and the hours are counted: of 26 speakers, two of whom had 83% of the audio, it gave dev 12 utterances.
"""

import dataclasses
import math
from collections import Counter
from typing import Any

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.splits import LEFT_OUT, assign_splits
from voxline.components.ingest.staging import ProbedUtterance, SplitKey
from voxline.pipelines.config.corpus_look import CorpusLook, describe_hours, spoken_seconds

FEW_SPEAKERS = 6
"""Speakers from which on some are held out."""
SEEDS = 100
UNEVEN = 1.5
"""Times that dev or test may have more or fewer hours than its share, before other seeds are tried."""
FAR = 2.0
"""The same with the best seed, before utterances are drawn in place of speakers."""
FEW_UTTERANCES = 20
"""Utterances of dev or test below which a corpus' own split is warned of."""


@dataclasses.dataclass(frozen=True)
class SplitProposal:
    """The split of a corpus.

    Attributes:
      settings: values of `corpus.split`; none for the corpus' own splits.
      splits: train, dev, test or left_out, for each utterance of the look.
      findings: lines that say so, with hours and utterances.
    """

    settings: dict[str, Any]
    splits: list[str]
    findings: list[str]


def propose_split(look: CorpusLook, *, small: bool) -> SplitProposal:
    """Chooses the corpus' own splits, or shares by which dev and test have about their share of the hours.

    Args:
      small: dev and test are larger shares, since a few utterances say little.
    """
    test, dev = (0.2, 0.1) if small else (0.1, 0.05)

    # Mozilla draws its own splits again in each release, so a run does not use them.
    if look.has_test and look.format != "common_voice":
        names = {entry.split for entry in look.entries}
        has_dev = "dev" in assign_splits(names, lambda: iter(()), CorpusSettings()).by_corpus_split.values()
        more = {"by": "corpus", "dev": dev} if small and not has_dev else {}  # of train, in place of 5%
        return _describe(look, more, "the corpus' own" + ("" if has_dev else ", and dev by utterance from train"))

    by_speaker = {"by": "speaker", "test": test, "dev": dev}
    by_utterance = {"by": "utterance", "test": test, "dev": dev}
    # Whole speakers are held out where there are enough: a model is asked to understand others than it has heard.
    if not look.speakers:
        return _describe(look, by_utterance, "by utterance, because no speakers are named")
    if look.speakers < FEW_SPEAKERS:
        return _describe(look, by_utterance, "by utterance, because too few speakers are there to hold any out")

    # The draw depends on the speakers alone, so one utterance stands for all of each.
    seconds = dict.fromkeys((entry.speaker for entry in look.entries), 0.0)
    for entry, length in zip(look.entries, _lengths(look.entries), strict=True):
        seconds[entry.speaker] += length
    total = sum(seconds.values())
    seed = 0
    if _distance(seconds, by_speaker, seed) > math.log(UNEVEN):
        distances = [_distance(seconds, by_speaker, seed) for seed in range(SEEDS)]
        seed = distances.index(min(distances))
        if distances[seed] > math.log(FAR):
            large = [share for share in seconds.values() if share > test * total]
            share = f"{sum(large) / total:.0%}" if large else ""
            why = f"{len(large)} of {look.speakers} speakers have {share} of the audio" if large else "no draw is even"
            how = f"by utterance, because {why}: speakers of dev and test are in train too"
            return _describe(look, by_utterance, how)
    if not seed:
        return _describe(look, by_speaker, "by speaker")
    return _describe(look, {**by_speaker, "seed": seed}, f"by speaker, with seed {seed}: seed 0 is uneven in hours")


def _lengths(entries: list[ProbedUtterance]) -> list[float]:
    """Seconds of each utterance; those that are not known are as long as the average."""
    lengths = [spoken_seconds(entry) for entry in entries]
    known_lengths = [length for length in lengths if length]
    average = sum(known_lengths) / len(known_lengths) if known_lengths else 1.0
    return [length or average for length in lengths]


def _distance(seconds: dict[str, float], split: dict[str, Any], seed: int) -> float:
    """How far dev and test are from their shares of the hours: the larger of the two ratios, as a logarithm."""
    keys = [SplitKey(speaker, speaker, "", "") for speaker in seconds]
    assignment = assign_splits({""}, lambda: iter(keys), CorpusSettings.of({"split": {**split, "seed": seed}}))
    total = sum(seconds.values())
    # No hours at all are infinitely far: a split that is empty measures nothing.
    ratios = []
    for name in ("dev", "test"):
        drawn = sum(seconds[key.speaker] for key in keys if assignment.split_of(key) == name)
        ratios.append(drawn / total / split[name])
    return max(abs(math.log(ratio)) if ratio else math.inf for ratio in ratios)


def _describe(look: CorpusLook, settings: dict[str, Any], how: str) -> SplitProposal:
    """The split that a run will make with these settings, and its hours in words."""
    values = {"format": look.format, "split": settings or {"by": "corpus"}}
    keys = [SplitKey(entry.id, entry.speaker, entry.split, entry.source) for entry in look.entries]
    names = {entry.split for entry in look.entries}
    assignment = assign_splits(names, lambda: iter(keys), CorpusSettings.of(values))
    splits = [assignment.split_of(key) for key in keys]

    counts = Counter(splits)
    # With the ids of the run, so that these are the utterances that it will draw.
    seconds = dict.fromkeys(("train", "dev", "test", LEFT_OUT), 0.0)
    for split, length in zip(splits, _lengths(look.entries), strict=True):
        seconds[split] += length
    parts = [f"{name} {describe_hours(seconds[name] / 3_600)} ({counts[name]:,})" for name in ("train", "dev", "test")]
    more = "" if look.complete else f", of the first {len(look.entries):,} utterances"
    findings = [f"split      {how}", f"           {', '.join(parts)}{more}"]
    if lacking := [name for name in ("train", "dev", "test") if not counts[name]]:
        findings.append(f"warning    {' and '.join(lacking)}: no utterance, so a run cannot end; add recordings")
    few = [name for name in ("dev", "test") if 0 < counts[name] < FEW_UTTERANCES <= counts["train"]]
    if few and look.complete and settings.get("by", "corpus") == "corpus":
        findings.append(f"warning    {' and '.join(few)}: fewer than {FEW_UTTERANCES} utterances say little")
    return SplitProposal(settings, splits, findings)

"""Checks of the corpus as a whole: sizes, speakers, and whether the splits are similar."""

import collections
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from voxline.components.validate.checks.check import CheckFinding, not_checked
from voxline.components.validate.columns import RowIndices, median
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import SPLITS, ValidateSettings
from voxline.metrics.divergence import jensen_shannon
from voxline.metrics.paired import EXPECTED_ERRORS, least_margin, look_confidence, proposed_margin

OTHER_WORDS = "\0"
"""Represents all words that are not among the frequent ones."""


def empty_splits(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    empty = [split for split in settings.empty_splits.required if split not in corpus.splits.names]
    return CheckFinding(len(empty), f"empty: {', '.join(empty)}" if empty else "none is empty")


def small_splits(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    sizes = {split: len(corpus.rows(split)) for split in SPLITS}
    minimum = {split: getattr(settings.small_splits, split) for split in SPLITS}
    # An empty split fails empty_splits.
    small = [split for split in SPLITS if 0 < sizes[split] < minimum[split]]
    return CheckFinding(
        len(small),
        ", ".join(
            f"{split} {sizes[split]:,}" + f" (minimum: {minimum[split]:,})" * (split in small) for split in SPLITS
        ),
    )


def gate_margin(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    margin = settings.gate_margin.margin
    if margin is None:
        return not_checked("the gate has no margin of a word error rate (push.max_regression.wer)")
    if not margin:
        return not_checked(
            "the margin is a share of an error rate that is not known yet (push.max_relative_regression)"
        )
    words = int(corpus.words[corpus.rows("test")].sum())
    if not words:
        return not_checked("no words in test")

    # A first model has nothing to be compared with, so this is about all that follow.
    confidence = settings.gate_margin.confidence
    least = least_margin(words, look_confidence(confidence, 1))
    detail = f"{words:,} words in test show {100 * least:.2f} points at best, and the margin is {100 * margin:.2f}"
    if least > margin:
        proposed = proposed_margin(words, EXPECTED_ERRORS, confidence)
        needed = math.ceil(words * least / margin)
        detail += f": a second model needs {needed:,} words, or push.max_regression.wer: {proposed:g}"
    return CheckFinding(least / margin, detail)


def rejects_share(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    if corpus.rejects is None:
        return not_checked("no rejects.jsonl next to the manifest")
    rejected = sum(corpus.rejects.values())
    total = rejected + len(corpus)
    if not total:
        return not_checked("there were no utterances")
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in corpus.rejects.items())
    return CheckFinding(
        rejected / total, f"{rejected:,} of {total:,} were rejected" + (f": {reasons}" if reasons else "")
    )


def dominant_speaker(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    rows = corpus.rows("train")
    # Utterances without a speaker are not one speaker.
    rows = rows[corpus.speakers.codes[rows] != corpus.speakers.number("")]
    if not rows.size:
        return not_checked("no utterance of train has a speaker")

    seconds = np.bincount(corpus.speakers.codes[rows], weights=corpus.durations[rows])
    most = int(seconds.argmax())
    return CheckFinding(
        float(seconds[most] / seconds.sum()),
        f"speaker {corpus.speakers.names[most]}: {seconds[most]:,.0f} of {seconds.sum():,.0f} s",
    )


def duration_balance(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    medians = _medians(corpus, corpus.durations)
    if len(medians) < 2:
        return not_checked("fewer than two splits have utterances")
    return CheckFinding(
        max(medians.values()) / max(min(medians.values()), 1e-3),
        "medians: " + ", ".join(f"{split} {median:.2f} s" for split, median in medians.items()),
    )


def level_balance(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    medians = _medians(corpus, corpus.measured["rms_db"])
    if len(medians) < 2:
        return not_checked("fewer than two splits were measured")
    return CheckFinding(
        max(medians.values()) - min(medians.values()),
        "medians: " + ", ".join(f"{split} {median:.1f} dB" for split, median in medians.items()),
    )


def character_balance(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    counts = {split: corpus.character_counts(split) for split in SPLITS}
    # Spaces say how long the words are, and nothing about the characters in them.
    for characters in counts.values():
        del characters[" "]
    return _largest_divergence(counts)


def word_balance(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    counts = {split: corpus.word_counts(split) for split in SPLITS}
    frequent = {word for word, _ in counts["train"].most_common(settings.word_balance.frequent_words)}
    return _largest_divergence({split: _merge_rare(words, frequent) for split, words in counts.items()})


def _largest_divergence(counts: Mapping[str, collections.Counter[str]]) -> CheckFinding:
    """The divergence from train of the split that differs most."""
    if not counts.get("train") or not any(counts.get(split) for split in ("dev", "test")):
        return not_checked("train, or dev and test, are empty")

    distances = {split: _divergence(counts["train"], counts[split]) for split in ("dev", "test") if counts.get(split)}
    furthest = max(distances, key=lambda split: distances[split])

    # For the reader, the units whose shares differ most; rare words were merged into one, which has no name.
    shares = {split: _shares(counts[split]) for split in ("train", furthest)}
    gaps = {
        unit: shares[furthest].get(unit, 0.0) - shares["train"].get(unit, 0.0)
        for unit in {**shares["train"], **shares[furthest]}
    }

    units = sorted((unit for unit in gaps if unit != OTHER_WORDS), key=lambda unit: (-abs(gaps[unit]), unit))[:3]
    return CheckFinding(
        distances[furthest],
        f"{furthest} against train; largest differences: "
        + ", ".join(
            f"{unit!r} {shares['train'].get(unit, 0):.1%} → {shares[furthest].get(unit, 0):.1%}" for unit in units
        ),
    )


def _divergence(counter: collections.Counter[str], other: collections.Counter[str]) -> float:
    """Jensen-Shannon divergence of the shares of the units, in bits."""
    # [2, units]
    units = sorted({*counter, *other})
    shares = np.array([[counts[unit] / counts.total() for unit in units] for counts in (counter, other)])
    return jensen_shannon(shares[0], shares[1])


def _shares(counts: collections.Counter[str]) -> dict[str, float]:
    return {unit: count / counts.total() for unit, count in counts.items()}


def _merge_rare(counts: collections.Counter[str], frequent: set[str]) -> collections.Counter[str]:
    merged: collections.Counter[str] = collections.Counter()
    for unit, count in counts.items():
        merged[unit if unit in frequent else OTHER_WORDS] += count
    return merged


def _by_split(corpus: CheckedCorpus) -> dict[str, RowIndices]:
    return {split: corpus.rows(split) for split in SPLITS}


def _medians(corpus: CheckedCorpus, values: npt.NDArray[np.float32]) -> dict[str, float]:
    """The median of each split that has values."""
    finite = {split: values[rows][np.isfinite(values[rows])] for split, rows in _by_split(corpus).items()}
    return {split: median(split_values) for split, split_values in finite.items() if split_values.size}

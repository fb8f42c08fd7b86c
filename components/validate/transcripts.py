"""Transcripts that cannot be learnt: too long for their audio, all alike, or spelled as train never spells."""

import collections
import math

import numpy as np

from components.speech.text import frames_needed
from components.validate.corpus import Corpus, Rows
from components.validate.finding import Finding, not_checked, share_of
from components.validate.settings import ValidateSettings
from components.validate.units import words_in


def contradictory_transcripts(corpus: Corpus, settings: ValidateSettings) -> Finding:
    rows = np.flatnonzero(corpus.recordings.codes != corpus.recordings.number(""))
    if not rows.size:
        return not_checked("no utterance has an audio_hash")
    recordings, texts = corpus.recordings.codes[rows], corpus.texts.codes[rows]
    _, first, inverse = np.unique(recordings, return_index=True, return_inverse=True)
    earlier = rows[first[inverse]]
    unlike = texts != corpus.texts.codes[earlier]
    offenders, original = rows[unlike], earlier[unlike]
    against = dict(zip(offenders.tolist(), original.tolist(), strict=True))
    return Finding(
        len(offenders),
        f"{len(offenders):,} utterances have the samples of an earlier one and another transcript",
        offenders,
        lambda row: f"{corpus.ids[against[row]]} has the same samples and says: {corpus.texts[against[row]]}",
    )


def identical_transcripts(corpus: Corpus, settings: ValidateSettings) -> Finding:
    limits = settings.identical_transcripts
    worst, finding = -1.0, not_checked(f"no split has {limits.fewest} utterances")
    for split in corpus.present_splits():
        rows = corpus.rows(split)
        if len(rows) < limits.fewest:
            continue
        codes, counts = np.unique(corpus.texts.codes[rows], return_counts=True)
        share = float(counts.max() / len(rows))
        if share > worst:
            worst, text = share, int(codes[counts.argmax()])
            offenders = rows[corpus.texts.codes[rows] == text] if share > limits.threshold else rows[:0]
            finding = Finding(
                share, f"in {split}, {counts.max():,} of {len(rows):,} say: {corpus.texts.names[text]}", offenders
            )
    return finding


def ctc_feasibility(corpus: Corpus, settings: ValidateSettings) -> Finding:
    """CTC emits at most a label a frame, and needs a blank between two labels that are alike."""
    rate = settings.frames_per_second
    if rate is None:
        return not_checked("validate.frames_per_second is empty")
    rows = corpus.rows("train")
    if not rows.size:
        return not_checked("train is empty")
    frames = np.floor(corpus.durations.astype(np.float64) * rate).astype(np.int64)

    def needed(row: int) -> int:
        return frames_needed([ord(character) for character in corpus.texts[row]])

    lengths = np.array([len(text) for text in corpus.texts.names])[corpus.texts.codes[rows]]
    doubtful = rows[frames[rows] < 2 * lengths - 1]  # even if every label repeated, the others would do
    offenders = np.array([row for row in doubtful.tolist() if frames[row] < needed(row)], dtype=np.int64)
    return share_of(
        offenders,
        len(rows),
        f"utterances of train have fewer frames (at {rate:g} a second) than labels and repeats",
        lambda row: f"{frames[row]:,} frames, {needed(row):,} needed",
    )


def speaking_rate(corpus: Corpus, settings: ValidateSettings) -> Finding:
    limits = settings.speaking_rate
    if not len(corpus):
        return not_checked("there are no utterances")
    units = corpus.characters if limits.unit == "characters" else corpus.words
    rates = units / np.maximum(corpus.durations, 1e-3)
    # Twice as slow as accepted is as bad as twice as fast.
    excess = np.maximum(rates / limits.highest, limits.lowest / np.maximum(rates, 1e-6))
    offenders = np.flatnonzero(excess > 1)
    offenders = offenders[np.argsort(-excess[offenders], kind="stable")]
    return share_of(
        offenders,
        len(corpus),
        f"utterances have under {limits.lowest:g} or over {limits.highest:g} {limits.unit} a second",
        lambda row: f"{rates[row]:.1f} {limits.unit} a second",
    )


def unseen_characters(corpus: Corpus, settings: ValidateSettings) -> Finding:
    train, judged = corpus.rows("train"), corpus.rows("dev", "test")
    if not train.size or not judged.size:
        return not_checked("train, or dev and test, are empty")
    unseen = sorted(_characters(corpus, judged) - _characters(corpus, train))
    holding = [code for code, text in enumerate(corpus.texts.names) if any(one in text for one in unseen)]
    offenders = judged[np.isin(corpus.texts.codes[judged], holding)]
    return Finding(
        len(unseen),
        f"characters that train has not: {' '.join(map(repr, unseen[:40]))}" if unseen else "train has them all",
        offenders,
        lambda row: "has " + " ".join(repr(one) for one in unseen if one in corpus.texts[row]),
    )


def unseen_words(corpus: Corpus, settings: ValidateSettings) -> Finding:
    train, judged = corpus.rows("train"), corpus.rows("dev", "test")
    if not train.size or not judged.size:
        return not_checked("train, or dev and test, are empty")
    known = {word for code in np.unique(corpus.texts.codes[train]) for word in words_in(corpus.texts.names[code])}
    heard: collections.Counter[str] = collections.Counter()
    for row in judged.tolist():
        heard.update(words_in(corpus.texts[row]))
    unseen = {word: count for word, count in heard.most_common() if word not in known}
    total = max(sum(heard.values()), 1)
    share = sum(unseen.values()) / total
    shares = {row: _share_of(unseen, corpus.texts[row]) for row in judged.tolist()} if unseen else {}
    offenders = sorted((row for row, part in shares.items() if part), key=lambda row: (-shares[row], row))
    return Finding(
        share,
        f"{sum(unseen.values()):,} of {total:,} words"
        + (f", most often: {', '.join(list(unseen)[:10])}" if unseen else ""),
        np.array(offenders, dtype=np.int64),
        lambda row: "has " + ", ".join(dict.fromkeys(word for word in words_in(corpus.texts[row]) if word in unseen)),
    )


def _characters(corpus: Corpus, rows: Rows) -> set[str]:
    return {character for code in np.unique(corpus.texts.codes[rows]) for character in corpus.texts.names[code]}


def _share_of(unseen: dict[str, int], text: str) -> float:
    words = words_in(text)
    return math.fsum(word in unseen for word in words) / max(len(words), 1)

"""Checks for transcripts that cannot be learned: too long for the audio, identical, or with units that train lacks."""

import collections

import numpy as np

from voxline.components.validate.checks.check import CheckFinding, not_checked, share_finding
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tally import transcript_words
from voxline.data.manifest import Utterance
from voxline.text.personal_data import masked

MAX_EXAMPLE = 80
"""Characters of an example."""


def contradictory_transcripts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    rows = corpus.recordings.known
    if not rows.size:
        return not_checked("no utterance has an audio_hash")
    recordings = corpus.recordings.codes[rows]
    sentences = corpus.sentences.codes[rows]

    # By row, the first row with the same samples, to compare transcripts with.
    _, first, inverse = np.unique(recordings, return_index=True, return_inverse=True)
    earlier = rows[first[inverse]]
    unlike = sentences != corpus.sentences.codes[earlier]
    offenders = rows[unlike]
    original = earlier[unlike]

    against = dict(zip(offenders.tolist(), original.tolist(), strict=True))

    def describe(utterance: Utterance) -> str:
        return f"{utterance.id} has the same samples and the transcript: {utterance.text}"

    return CheckFinding(
        len(offenders),
        f"{len(offenders):,} utterances have the same samples as an earlier one but another transcript",
        offenders,
        lambda row: describe(corpus.utterance(against[row])),
    )


def identical_transcripts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    limits = settings.identical_transcripts
    worst = -1.0
    finding = not_checked(f"no split has {limits.min_utterances} utterances")

    # The worst split decides. A split of few utterances may have one sentence by chance.
    for split in corpus.present_splits():
        rows = corpus.rows(split)
        rows = rows[corpus.labels[rows] > 0]
        if len(rows) < limits.min_utterances:
            continue
        sentences = corpus.sentences.codes[rows]
        codes, firsts, counts = np.unique(sentences, return_index=True, return_counts=True)

        share = float(counts.max() / len(rows))
        if share > worst:
            worst = share
            # All rows of the split with that transcript, and only if they fail the check.
            most = int(counts.argmax())
            text = corpus.utterance(int(rows[firsts[most]])).text
            offenders = rows[sentences == codes[most]] if share > limits.threshold else rows[:0]
            finding = CheckFinding(
                share, f"in {split}, {counts.max():,} of {len(rows):,} have the transcript: {text}", offenders
            )
    return finding


def ctc_feasibility(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    """CTC emits at most one label a frame, and needs a blank between two equal labels."""
    rate = settings.frames_per_second
    if rate is None:
        return not_checked("validate.frames_per_second is empty")

    rows = corpus.rows("train")
    if not rows.size:
        return not_checked("train is empty")

    frames = np.floor(corpus.durations.astype(np.float64) * rate).astype(np.int64)
    offenders = rows[frames[rows] < corpus.labels[rows]]
    return share_finding(
        offenders,
        len(rows),
        f"utterances of train have fewer frames (at {rate:g} a second) than labels and repeats",
        lambda row: f"{frames[row]:,} frames, {corpus.labels[row]:,} needed",
    )


def personal_data_in_texts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    """Counts the utterances by what their transcripts hold; the example is masked, and no offender is quoted."""
    if not len(corpus):
        return not_checked("there are no utterances")
    codes = corpus.personal.codes
    rows = np.flatnonzero(codes != corpus.personal.number(""))
    kinds = collections.Counter(kind for row in rows for kind in corpus.personal[int(row)].split("\n"))
    detail = f"{rows.size:,} of {len(corpus):,} transcripts have any"
    if rows.size:
        counts = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
        example = corpus.utterance(int(rows[0]))
        detail += f": {counts}; such as {example.id}: {masked(example.text)[:MAX_EXAMPLE]!r}"
    return CheckFinding(rows.size, detail, rows, lambda row: corpus.personal[row].replace("\n", ", "), hidden=True)


def speaking_rate(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    limits = settings.speaking_rate
    if not len(corpus):
        return not_checked("there are no utterances")

    units = corpus.characters if limits.unit == "characters" else corpus.words
    rates = units / np.maximum(corpus.durations, 1e-3)

    # Half the minimum is as bad as twice the maximum.
    excess = np.maximum(rates / limits.max_rate, limits.min_rate / np.maximum(rates, 1e-6))
    offenders = np.flatnonzero((excess > 1) & (corpus.labels > 0))
    offenders = offenders[np.argsort(-excess[offenders], kind="stable")]
    return share_finding(
        offenders,
        len(corpus),
        f"utterances have under {limits.min_rate:g} or over {limits.max_rate:g} {limits.unit} a second",
        lambda row: f"{rates[row]:.1f} {limits.unit} a second",
    )


def unseen_characters(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    train = corpus.rows("train")
    judged = corpus.rows("dev", "test")
    if not train.size or not judged.size:
        return not_checked("train, or dev and test, are empty")

    # The counts are of tokens and cost little; the manifest is read again only if there is something to list.
    unseen = sorted(set(corpus.character_counts("dev", "test")) - set(corpus.character_counts("train")))
    if not unseen:
        return CheckFinding(0, "train has all of them")

    offenders = [
        row for row, utterance in corpus.utterances(judged) if any(character in utterance.text for character in unseen)
    ]
    return CheckFinding(
        len(unseen),
        f"characters that train does not have: {' '.join(map(repr, unseen[:40]))}",
        np.array(offenders, dtype=np.int64),
        lambda row: (
            "has " + " ".join(repr(utterance) for utterance in unseen if utterance in corpus.utterance(row).text)
        ),
    )


def unseen_words(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    train = corpus.rows("train")
    judged = corpus.rows("dev", "test")
    if not train.size or not judged.size:
        return not_checked("train, or dev and test, are empty")

    train_words = corpus.word_counts("train")
    held_out = corpus.word_counts("dev", "test")
    total = max(held_out.total(), 1)

    if held_out.keys() <= train_words.keys():
        return CheckFinding(0.0, f"0 of {total:,} words")

    # A second pass over dev and test, for the utterances that have them; the most unseen first.
    unseen: collections.Counter[str] = collections.Counter()
    shares: dict[int, float] = {}
    for row, utterance in corpus.utterances(judged):
        words = transcript_words(utterance.text)
        missing = [word for word in words if word not in train_words]
        unseen.update(missing)
        if missing:
            shares[row] = len(missing) / len(words)

    frequent = [word for word, _ in unseen.most_common(10)]
    return CheckFinding(
        unseen.total() / total,
        f"{unseen.total():,} of {total:,} words, most often: {', '.join(frequent)}",
        np.array(sorted(shares, key=lambda row: (-shares[row], row)), dtype=np.int64),
        lambda row: (
            "has " + ", ".join(dict.fromkeys(w for w in transcript_words(corpus.utterance(row).text) if w in unseen))
        ),
    )

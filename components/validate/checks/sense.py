"""Checks for tables whose values mean something else: a column of lengths read as text, rounded durations, calls."""

from collections import Counter

import numpy as np

from voxline.components.validate.checks.check import CheckFinding, not_checked, share_finding
from voxline.components.validate.columns import Floats, RowIndices
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings

VALUES = ("number", "speaker", "path", "placeholder")
"""Of ingest's doubts: what a text is."""
DURATION = "duration"
LABEL_ENDS = (":", "：", ">")
"""Of ingest's doubts about a label in front of a text; words in `<…>` begin with a bracket."""
NAMED = 10
"""Brackets that the detail names."""


def value_texts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    return _doubted(corpus, VALUES, "transcripts are a number, the speaker, a path or a placeholder")


def bracketed_texts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    brackets = [name for name in corpus.doubts.names if name not in ("", DURATION, *VALUES)]
    reasons = {reason for name in brackets for reason in name.split("\n")}
    labels = {reason for reason in reasons if reason.endswith(LABEL_ENDS) and reason[0] not in "<[("}
    remedies = [
        *(
            ["convert.frontend.tags names sounds to remove; [*] in it removes all in such brackets"]
            * (reasons > labels)
        ),
        *(["take labels of speakers, and ids, out of the texts"] * bool(labels)),
    ]
    return _doubted(corpus, brackets, "transcripts have words in brackets or a speaker's label", "; ".join(remedies))


def cut_recordings(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    return _doubted(corpus, [DURATION], "utterances end before their recordings do, and none begins later")


def _doubted(corpus: CheckedCorpus, names: tuple[str, ...] | list[str], text: str, remedy: str = "") -> CheckFinding:
    """The share of utterances with one of ingest's doubts; the detail has the commonest, and a remedy."""
    if not len(corpus):
        return not_checked("there are no utterances")
    codes = corpus.doubts.codes
    rows = np.flatnonzero(np.isin(codes, [corpus.doubts.number(name) for name in names if name in corpus.doubts.names]))
    counts = np.bincount(codes[rows], minlength=len(corpus.doubts.names) + 1)

    # A text may have several words in brackets.
    reasons: Counter[str] = Counter()
    for code, name in enumerate(corpus.doubts.names):
        reasons.update({reason: int(counts[code]) for reason in name.split("\n") if counts[code]})
    listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(NAMED))
    example = f", such as {corpus.utterance(int(rows[0])).id}" if rows.size else ""
    return share_finding(
        rows,
        len(corpus),
        text + (f": {listed}{example}" if listed else "") + (f"; {remedy}" if remedy else ""),
        lambda row: corpus.doubts[row].replace("\n", ", "),
    )


def frequent_transcript(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    """Compares the two most frequent transcripts: of texts that people chose, none is many times as frequent.

    Counts of words and phrases fall with their rank (Zipf 1949), the second to about half of the first.
    """
    codes, firsts, counts = np.unique(corpus.sentences.codes, return_index=True, return_counts=True)
    least = settings.frequent_transcript.min_utterances
    if not len(codes):
        return not_checked("there are no utterances")
    if len(codes) == 1 or counts.max() < least:
        return CheckFinding(1.0, f"no transcript has {least} utterances, or all have the same")

    # [transcripts], the most frequent first
    order = np.argsort(-counts, kind="stable")
    first, second = (int(counts[place]) for place in order[:2])
    example = corpus.utterance(int(firsts[order[0]])).text
    rows = np.flatnonzero(corpus.sentences.codes == codes[order[0]])
    value = first / second
    return CheckFinding(
        value,
        f"{first:,} utterances have the transcript {example[:80]!r}, and {second:,} the next one",
        rows if value > settings.frequent_transcript.threshold else rows[:0],
    )


def unlike_channels(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    correlations = corpus.measured["channel_correlation"]
    least = settings.unlike_channels.min_correlation
    cancelled = settings.antiphase_channels.max_correlation
    rows = np.flatnonzero((correlations < least) & (correlations >= cancelled))
    return _channels(correlations, rows, f"two-channel recordings have channels that correlate less than {least:g}")


def antiphase_channels(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    correlations = corpus.measured["channel_correlation"]
    most = settings.antiphase_channels.max_correlation
    rows = np.flatnonzero(correlations < most)
    return _channels(correlations, rows, f"two-channel recordings have channels that correlate less than {most:g}")


def _channels(correlations: Floats, rows: RowIndices, text: str) -> CheckFinding:
    """The share of the recordings whose two channels were mixed; NaN where there were no two."""
    count = int(np.isfinite(correlations).sum())
    if not count:
        return CheckFinding(0.0, "no recording of two channels was mixed")
    return share_finding(rows, count, text, lambda row: f"correlation {correlations[row]:.2f}")

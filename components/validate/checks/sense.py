"""Checks for tables whose values mean something else: a column of lengths read as text, rounded durations, calls."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from voxline.audio.wav import HEADER_NOTE
from voxline.components.validate.checks.check import CheckFinding, not_checked, share_finding
from voxline.components.validate.columns import Floats, RowIndices
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.data.manifest import ROW_MARK

VALUES = ("number", "speaker", "path", "placeholder")
"""Of ingest's doubts: what a text is."""
DURATION = "duration"
LABEL_ENDS = (":", "：", ">")
"""Of ingest's doubts about a label in front of a text; words in `<…>` begin with a bracket."""
NAMED = 10
"""Brackets that the detail names."""


def value_texts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    return _doubted(corpus, VALUES.__contains__, "transcripts are a number, the speaker, a path or a placeholder")


def bracketed_texts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    reasons = {reason for name in corpus.doubts.names for reason in name.split("\n") if is_bracket(reason)}
    labels = {reason for reason in reasons if reason.endswith(LABEL_ENDS) and reason[0] not in "<[("}
    remedies = [
        *(
            ["convert.frontend.tags names sounds to remove; [*] in it removes all in such brackets"]
            * (reasons > labels)
        ),
        *(["take labels of speakers, and ids, out of the texts"] * bool(labels)),
    ]
    return _doubted(corpus, is_bracket, "transcripts have words in brackets or a speaker's label", "; ".join(remedies))


def cut_recordings(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    return _doubted(corpus, DURATION.__eq__, "utterances end before their recordings do, and none begins later")


def marked_rows(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    text = "utterances are called invalid or poor by a column of their own table"
    remedy = "leave them out, or give the column another name if it says something else"
    return _doubted(corpus, lambda reason: reason.startswith(ROW_MARK), text, remedy)


def unlike_headers(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    text = "utterances are of WAVs whose headers say two lengths of the samples"
    remedy = "listen to one: if it is too fast or too slow, write its own sample rate into it"
    return _doubted(corpus, lambda reason: reason.startswith(HEADER_NOTE), text, remedy)


def is_bracket(reason: str) -> bool:
    """True for words in brackets and a label, of the reasons that ingest has to doubt a line."""
    return bool(reason) and reason not in (DURATION, *VALUES) and not reason.startswith((ROW_MARK, HEADER_NOTE))


def _doubted(corpus: CheckedCorpus, is_kind: Callable[[str], bool], text: str, remedy: str = "") -> CheckFinding:
    """The share of utterances with a kind of ingest's doubts; the detail has the commonest, and a remedy."""
    if not len(corpus):
        return not_checked("there are no utterances")

    # A line may have several doubts, and a text several words in brackets.
    doubts = corpus.doubts
    own = [[reason for reason in name.split("\n") if is_kind(reason)] for name in doubts.names]
    rows = np.flatnonzero(np.isin(doubts.codes, [code for code, reasons in enumerate(own) if reasons]))
    counts = np.bincount(doubts.codes[rows], minlength=len(doubts.names) + 1)
    reasons: Counter[str] = Counter()
    for code, names in enumerate(own):
        reasons.update({_shown(reason): int(counts[code]) for reason in names if counts[code]})
    remedy = remedy if rows.size else ""
    listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(NAMED))
    example = f", such as {corpus.utterance(int(rows[0])).id}" if rows.size else ""
    return share_finding(
        rows,
        len(corpus),
        text + (f": {listed}{example}" if listed else "") + (f"; {remedy}" if remedy else ""),
        lambda row: ", ".join(_shown(reason) for reason in doubts[row].split("\n") if is_kind(reason)),
    )


def _shown(reason: str) -> str:
    return reason.removeprefix(ROW_MARK).removeprefix(HEADER_NOTE)


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

"""Checks for duplicates, and for leakage: recordings, speakers or sentences that dev and test share with train."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.components.validate.checks.check import CheckFinding, not_checked, share_finding
from voxline.components.validate.columns import Codes, RowIndices, count_distinct
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings

HELD_OUT = ("dev", "test")


def duplicate_ids(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    # Each row's first row with the same id; of a unique id that is the row itself.
    original = _first_alike(corpus.ids.codes)
    offenders = np.flatnonzero(original != np.arange(len(corpus)))
    return CheckFinding(
        len(offenders),
        f"{len(offenders):,} utterances have an id that occurs earlier in the manifest",
        offenders,
        lambda row: f"line {row + 1:,}; first on line {original[row] + 1:,}",
    )


def duplicate_audio(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    # Without a hash nothing is known of the samples, so that such rows are not compared.
    rows = corpus.recordings.known
    if not rows.size:
        return not_checked("no utterance has an audio_hash")
    # The same recording in another split fails recording_overlap.
    within = corpus.recordings.codes[rows].astype(np.int64) * len(corpus.splits.names) + corpus.splits.codes[rows]

    original = rows[_first_alike(within)]
    offenders = rows[original != rows]

    same = dict(zip(offenders.tolist(), original[original != rows].tolist(), strict=True))
    return CheckFinding(
        len(offenders),
        f"{len(offenders):,} utterances have the same samples as an earlier one in their split",
        offenders,
        lambda row: f"same samples as {corpus.utterance(same[row]).id}",
    )


def recording_overlap(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    rows = corpus.recordings.known
    if not rows.size:
        return not_checked("no utterance has an audio_hash")

    # Dev is compared with train, and test with both: a recording in two held-out splits is reported once.
    codes = corpus.recordings.codes
    train, dev, test = (rows[np.isin(rows, corpus.rows(split))] for split in ("train", "dev", "test"))
    offenders = np.concatenate(
        [dev[np.isin(codes[dev], codes[train])], test[np.isin(codes[test], codes[np.concatenate([train, dev])])]]
    )

    twin = _first_of(codes, np.concatenate([train, dev]))
    return CheckFinding(
        len(offenders),
        f"{len(offenders):,} utterances of dev and test are recordings that are also in another split",
        offenders,
        lambda row: f"same samples as {corpus.utterance(twin(row)).id} in {corpus.splits[twin(row)]}",
    )


def judged_drafts(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    rows = corpus.rows(*HELD_OUT)
    offenders = rows[corpus.drafted_by.codes[rows] != corpus.drafted_by.number("")]
    return CheckFinding(
        len(offenders),
        f"{len(offenders):,} utterances of dev and test have a transcript that a model wrote",
        offenders,
        lambda row: f"drafted by {corpus.drafted_by[row]}",
    )


def speaker_overlap(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    judged = corpus.rows(*HELD_OUT)
    # Utterances without a speaker would all seem to be by the same one.
    judged = judged[corpus.speakers.codes[judged] != corpus.speakers.number("")]
    if not judged.size:
        return not_checked("no utterance of dev or test has a speaker")
    offenders = _also_in_train(corpus, corpus.speakers.codes, judged)

    speakers = count_distinct(corpus.speakers.codes[offenders])
    return share_finding(
        offenders,
        len(judged),
        "utterances of dev and test are by speakers of train" + (f" ({speakers:,} speakers)" if speakers else ""),
        lambda row: f"speaker {corpus.speakers[row]}",
    )


def sentence_overlap(corpus: CheckedCorpus, settings: ValidateSettings) -> CheckFinding:
    judged = corpus.rows(*HELD_OUT)
    if not judged.size:
        return not_checked("dev and test are empty")
    # No words are no sentence.
    judged = judged[corpus.labels[judged] > 0]
    if not judged.size:
        return not_checked("dev and test have no sentence")
    offenders = _also_in_train(corpus, corpus.sentences.codes, judged)
    twin = _first_of(corpus.sentences.codes, corpus.rows("train"))
    return share_finding(
        offenders,
        len(judged),
        "utterances of dev and test have a sentence of train",
        lambda row: f"same sentence as {corpus.utterance(twin(row)).id}",
    )


def _also_in_train(corpus: CheckedCorpus, codes: Codes, judged: RowIndices) -> RowIndices:
    """The rows of dev and test whose code is also in train; one of each code comes first, for short lists."""
    rows = judged[np.isin(codes[judged], codes[corpus.rows("train")])]
    # The report plays the first few: those of different speakers or sentences show more than many of the same.
    _, first = np.unique(codes[rows], return_index=True)
    first.sort()
    return np.concatenate([rows[first], np.delete(rows, first)])


def _first_alike(codes: npt.NDArray[Any]) -> RowIndices:
    """Returns for each row the first row with the same code."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first[inverse]


def _first_of(codes: Codes, rows: RowIndices) -> Callable[[int], int]:
    """A function from a row to the first of `rows` with the same code."""
    distinct, first = np.unique(codes[rows], return_index=True)
    return lambda row: int(rows[first[np.searchsorted(distinct, codes[row])]])

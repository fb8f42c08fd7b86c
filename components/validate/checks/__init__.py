"""The table of checks.

A check is a function from the corpus, or from the result of TFDV, to a `CheckFinding`: a number, and the utterances
that cause it. To add one, write the function, add a field of its name to `ValidateSettings`, and a line to the table.
The report and validation.json include it without further changes.
"""

from typing import Any

from voxline.components.validate.checks import audio, balance, leakage, sense, transcripts
from voxline.components.validate.checks.check import CheckFinding, CheckResult, CorpusCheck
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import CheckSettings, ValidateSettings
from voxline.components.validate.tfdv.checks import anomaly_check, drifted_features
from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import TfdvResult

CHECKS = [
    CorpusCheck("empty_splits", "Does every split have utterances?", "count", balance.empty_splits),
    CorpusCheck("small_splits", "Are the splits large enough?", "count", balance.small_splits),
    CorpusCheck("gate_margin", "Can a second model pass the gate on test?", "times", balance.gate_margin),
    CorpusCheck("rejects_share", "Did the previous step keep nearly everything?", "share", balance.rejects_share),
    CorpusCheck("duplicate_ids", "Is every id unique?", "count", leakage.duplicate_ids),
    CorpusCheck("duplicate_audio", "Does every recording occur once?", "count", leakage.duplicate_audio),
    CorpusCheck("recording_overlap", "Is every recording in one split only?", "count", leakage.recording_overlap),
    CorpusCheck(
        "judged_drafts", "Did people transcribe all of dev and test, and no model?", "count", leakage.judged_drafts
    ),
    CorpusCheck("speaker_overlap", "Do dev and test have other speakers than train?", "share", leakage.speaker_overlap),
    CorpusCheck(
        "sentence_overlap", "Do dev and test have other sentences than train?", "share", leakage.sentence_overlap
    ),
    CorpusCheck(
        "contradictory_transcripts",
        "Do equal recordings have equal transcripts?",
        "count",
        transcripts.contradictory_transcripts,
    ),
    CorpusCheck("identical_transcripts", "Do the transcripts differ?", "share", transcripts.identical_transcripts),
    CorpusCheck("value_texts", "Are the transcripts texts, no numbers or names?", "share", sense.value_texts),
    CorpusCheck("bracketed_texts", "Are the transcripts free of brackets and labels?", "share", sense.bracketed_texts),
    CorpusCheck("cut_recordings", "Does each utterance end with its recording?", "share", sense.cut_recordings),
    CorpusCheck("marked_rows", "Does the corpus accept its own rows?", "share", sense.marked_rows),
    CorpusCheck("frequent_transcript", "Is no transcript far more frequent?", "times", sense.frequent_transcript),
    CorpusCheck("unlike_headers", "Does each WAV's header agree with itself?", "share", sense.unlike_headers),
    CorpusCheck("unlike_channels", "Are the channels that are mixed alike?", "share", sense.unlike_channels),
    CorpusCheck("antiphase_channels", "Is the sound left when channels are mixed?", "share", sense.antiphase_channels),
    CorpusCheck(
        "personal_data",
        "Are the transcripts free of numbers, addresses and names of people?",
        "count",
        transcripts.personal_data_in_texts,
    ),
    CorpusCheck("ctc_feasibility", "Are there enough frames for the labels?", "share", transcripts.ctc_feasibility),
    CorpusCheck("speaking_rate", "Does each transcript match its duration?", "share", transcripts.speaking_rate),
    CorpusCheck(
        "unseen_characters", "Does train have every character of dev and test?", "count", transcripts.unseen_characters
    ),
    CorpusCheck("unseen_words", "Does train have most words of dev and test?", "share", transcripts.unseen_words),
    CorpusCheck("character_balance", "Do the splits have similar characters?", "bits", balance.character_balance),
    CorpusCheck("word_balance", "Do the splits have similar words?", "bits", balance.word_balance),
    CorpusCheck("duration_balance", "Do the splits have similar durations?", "times", balance.duration_balance),
    CorpusCheck("level_balance", "Do the splits have similar levels?", "dB", balance.level_balance),
    CorpusCheck("dominant_speaker", "Does train have more than one main speaker?", "share", balance.dominant_speaker),
    CorpusCheck("clipping", "Is the audio free of clipping?", "share", audio.clipping),
    CorpusCheck("level", "Is the level neither too low nor too high?", "share", audio.level),
    CorpusCheck("silence", "Is there speech in most of the audio?", "share", audio.silence),
    CorpusCheck("constant_audio", "Does the level vary as in speech?", "share", audio.constant_audio),
]

TFDV_CHECKS = [
    CorpusCheck(
        "missing_features", "Are all features of the schema present?", "count", anomaly_check("missing_features")
    ),
    CorpusCheck("wrong_types", "Do all features have the schema's types?", "count", anomaly_check("wrong_types")),
    CorpusCheck("unexpected_values", "Does the schema list all values?", "count", anomaly_check("unexpected_values")),
    CorpusCheck("out_of_range", "Are all numbers within the schema's bounds?", "count", anomaly_check("out_of_range")),
    CorpusCheck(
        "other_anomalies", "Does the corpus match the schema otherwise?", "count", anomaly_check("other_anomalies")
    ),
    CorpusCheck("drift", "Is it similar to the data of the model in service?", "count", drifted_features),
]
"""Run by TensorFlow Data Validation; "not checked" where that does not run."""


def run_checks(corpus: CheckedCorpus, settings: ValidateSettings, tfdv_result: TfdvResult) -> list[CheckResult]:
    """Runs every check that is not off."""
    # The examples take memory in proportion to the corpus, and are not needed if TFDV did not run.
    tfdv_input = (tfdv_result, None if tfdv_result.skipped else Examples.of(corpus))
    results = [_run_check(check, corpus, settings) for check in CHECKS]
    return results + [_run_check(check, tfdv_input, settings) for check in TFDV_CHECKS]


def _run_check(check: CorpusCheck, subject: Any, settings: ValidateSettings) -> CheckResult:
    # A finding without a value could not be computed, which is not a failure.
    own: CheckSettings = getattr(settings, check.name)
    if own.severity == "off":
        return CheckResult(check, own, "off", CheckFinding(None, "turned off in the config"))
    finding = check.run(subject, settings)
    if finding.value is None:
        return CheckResult(check, own, "not checked", finding)
    return CheckResult(check, own, "failed" if finding.value > own.threshold else "passed", finding)

"""The table of checks, and what each comes to.

A check is a small function that looks at the corpus, or at what TFX's data validation found, and returns a
`CheckFinding`: one number, and the utterances to blame. To add one, write the function, give `ValidateSettings` a
field of its name, and add a line here; the report and validation.json follow.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from voxline.components.validate.checks import audio, balance, leakage, transcripts
from voxline.components.validate.checks.finding import CheckFinding
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import CheckSettings, ValidateSettings
from voxline.components.validate.tfdv.checks import anomaly_check, drifted_features
from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import TfdvResult

ValueUnit = Literal["count", "share", "bits", "times", "dB"]
CheckOutcome = Literal["passed", "failed", "not checked", "off"]


@dataclasses.dataclass(frozen=True)
class CorpusCheck:
    """One line of the table.

    Attributes:
      name: of its field in ValidateSettings.
      asks: the question, as the report puts it; yes is good.
      unit: of its value and its threshold.
      look: given the corpus (those of TFX_CHECKS: the examination and the examples) and the settings.
    """

    name: str
    asks: str
    unit: ValueUnit
    look: Callable[[Any, Any], CheckFinding]


CHECKS = [
    CorpusCheck("empty_splits", "Has every split utterances?", "count", balance.empty_splits),
    CorpusCheck("small_splits", "Are there enough to learn from, and to judge by?", "count", balance.small_splits),
    CorpusCheck("rejects_share", "Did the step before keep nearly everything?", "share", balance.rejects_share),
    CorpusCheck("duplicate_ids", "Has every utterance an id of its own?", "count", leakage.duplicate_ids),
    CorpusCheck("duplicate_audio", "Is every recording there once?", "count", leakage.duplicate_audio),
    CorpusCheck("recording_overlap", "Has each recording one split?", "count", leakage.recording_overlap),
    CorpusCheck("speaker_overlap", "Are dev and test spoken by others than train?", "share", leakage.speaker_overlap),
    CorpusCheck("sentence_overlap", "Do dev and test say other things than train?", "share", leakage.sentence_overlap),
    CorpusCheck(
        "contradictory_transcripts",
        "Have equal recordings equal transcripts?",
        "count",
        transcripts.contradictory_transcripts,
    ),
    CorpusCheck("identical_transcripts", "Do the transcripts differ?", "share", transcripts.identical_transcripts),
    CorpusCheck("ctc_feasibility", "Are there frames enough for the labels?", "share", transcripts.ctc_feasibility),
    CorpusCheck("speaking_rate", "Does each transcript fit its duration?", "share", transcripts.speaking_rate),
    CorpusCheck(
        "unseen_characters", "Has train every character of dev and test?", "count", transcripts.unseen_characters
    ),
    CorpusCheck("unseen_words", "Has train most words of dev and test?", "share", transcripts.unseen_words),
    CorpusCheck("character_balance", "Are the splits alike in characters?", "bits", balance.character_balance),
    CorpusCheck("word_balance", "Are the splits alike in words?", "bits", balance.word_balance),
    CorpusCheck("duration_balance", "Are the splits alike in duration?", "times", balance.duration_balance),
    CorpusCheck("level_balance", "Are the splits alike in level?", "dB", balance.level_balance),
    CorpusCheck("dominant_speaker", "Has train more than one main voice?", "share", balance.dominant_speaker),
    CorpusCheck("clipping", "Is the audio free of clipping?", "share", audio.clipping),
    CorpusCheck("level", "Is it loud enough, and not too loud?", "share", audio.level),
    CorpusCheck("silence", "Is there speech in most of it?", "share", audio.silence),
    CorpusCheck("constant_audio", "Does it move as speech does?", "share", audio.constant_audio),
]

TFDV_CHECKS = [
    CorpusCheck(
        "missing_features", "Is all there that the schema asks for?", "count", anomaly_check("missing_features")
    ),
    CorpusCheck("wrong_types", "Are numbers numbers, and texts texts?", "count", anomaly_check("wrong_types")),
    CorpusCheck(
        "unexpected_values", "Does the schema know all the values?", "count", anomaly_check("unexpected_values")
    ),
    CorpusCheck("out_of_range", "Are all numbers within the schema's bounds?", "count", anomaly_check("out_of_range")),
    CorpusCheck("other_anomalies", "Is the schema kept otherwise?", "count", anomaly_check("other_anomalies")),
    CorpusCheck("drift", "Is it like the data of the model in service?", "count", drifted_features),
]
"""By TFX's data validation; not checked where that does not run."""


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What a check came to."""

    check: CorpusCheck
    settings: CheckSettings
    outcome: CheckOutcome
    finding: CheckFinding

    @property
    def fails_the_step(self) -> bool:
        return self.outcome == "failed" and self.settings.severity == "error"

    @property
    def value(self) -> str:
        """The value as a person reads it."""
        return format_value(self.finding.value, self.check.unit)

    @property
    def threshold(self) -> str:
        return format_value(self.settings.threshold, self.check.unit)

    def plain(self, corpus: CheckedCorpus, listed: int) -> dict[str, Any]:
        """As it stands in validation.json; of the offending utterances the first `listed`."""
        value = self.finding.value
        return {
            "name": self.check.name,
            "asks": self.check.asks,
            "severity": self.settings.severity,
            "outcome": self.outcome,
            "passed": {"passed": True, "failed": False}.get(self.outcome),
            "value": None if value is None else round(value, 6),
            "threshold": self.settings.threshold,
            "unit": self.check.unit,
            "detail": self.finding.detail,
            "count": len(self.finding.offenders),
            "offenders": [
                {"id": corpus.utterance(row).id, "split": corpus.splits[row], "note": self.finding.note(row)}
                for row in map(int, self.finding.offenders[:listed])
            ],
        }


def run_checks(corpus: CheckedCorpus, settings: ValidateSettings, examination: TfdvResult) -> list[CheckResult]:
    """Runs every check that is not off."""
    # The examples take memory in proportion to the corpus, and where nothing was examined nothing is told of them.
    subject = (examination, None if examination.skipped else Examples.of(corpus))
    return [_run_check(check, corpus, settings) for check in CHECKS] + [
        _run_check(check, subject, settings) for check in TFDV_CHECKS
    ]


def format_value(value: float | None, unit: ValueUnit) -> str:
    """A value with its unit: 3, 1.2%, 0.04 bits, 2.5 ×, 6.0 dB."""
    if value is None:
        return "—"
    if unit == "share":
        return f"{value:.3%}" if 0 < value < 0.001 else f"{value:.1%}"
    return {"count": f"{value:,.0f}", "bits": f"{value:.3f} bits", "times": f"{value:.2f} ×", "dB": f"{value:.1f} dB"}[
        unit
    ]


def _run_check(check: CorpusCheck, subject: Any, settings: ValidateSettings) -> CheckResult:
    own: CheckSettings = getattr(settings, check.name)
    if own.severity == "off":
        return CheckResult(check, own, "off", CheckFinding(None, "turned off in the config"))
    finding = check.look(subject, settings)
    if finding.value is None:
        return CheckResult(check, own, "not checked", finding)
    return CheckResult(check, own, "failed" if finding.value > own.threshold else "passed", finding)

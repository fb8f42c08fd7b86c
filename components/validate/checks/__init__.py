"""The table of checks, and what each comes to.

A check is a small function that looks at the corpus, or at what TFX's data validation found, and returns a
`Finding`: one number, and the utterances to blame. To add one, write the function, give `ValidateSettings` a
field of its name, and add a line here; the report and validation.json follow.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from voxline.components.validate.checks import audio, balance, leakage, transcripts
from voxline.components.validate.checks.finding import Finding
from voxline.components.validate.corpus import Corpus
from voxline.components.validate.settings import CheckSettings, ValidateSettings
from voxline.components.validate.tfdv.checks import anomalies_of, drift
from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import Examination

Unit = Literal["count", "share", "bits", "times", "dB"]
Outcome = Literal["passed", "failed", "not checked", "off"]


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
      name: of its field in ValidateSettings.
      asks: the question, as the report puts it; yes is good.
      unit: of its value and its threshold.
      look: given the corpus (those of TFX_CHECKS: the examination and the examples) and the settings.
    """

    name: str
    asks: str
    unit: Unit
    look: Callable[[Any, Any], Finding]


CHECKS = [
    Check("empty_splits", "Has every split utterances?", "count", balance.empty_splits),
    Check("small_splits", "Are there enough to learn from, and to judge by?", "count", balance.small_splits),
    Check("rejects_share", "Did the step before keep nearly everything?", "share", balance.rejects_share),
    Check("duplicate_ids", "Has every utterance an id of its own?", "count", leakage.duplicate_ids),
    Check("duplicate_audio", "Is every recording there once?", "count", leakage.duplicate_audio),
    Check("recording_overlap", "Has each recording one split?", "count", leakage.recording_overlap),
    Check("speaker_overlap", "Are dev and test spoken by others than train?", "share", leakage.speaker_overlap),
    Check("sentence_overlap", "Do dev and test say other things than train?", "share", leakage.sentence_overlap),
    Check(
        "contradictory_transcripts",
        "Have equal recordings equal transcripts?",
        "count",
        transcripts.contradictory_transcripts,
    ),
    Check("identical_transcripts", "Do the transcripts differ?", "share", transcripts.identical_transcripts),
    Check("ctc_feasibility", "Are there frames enough for the labels?", "share", transcripts.ctc_feasibility),
    Check("speaking_rate", "Does each transcript fit its duration?", "share", transcripts.speaking_rate),
    Check("unseen_characters", "Has train every character of dev and test?", "count", transcripts.unseen_characters),
    Check("unseen_words", "Has train most words of dev and test?", "share", transcripts.unseen_words),
    Check("character_balance", "Are the splits alike in characters?", "bits", balance.character_balance),
    Check("word_balance", "Are the splits alike in words?", "bits", balance.word_balance),
    Check("duration_balance", "Are the splits alike in duration?", "times", balance.duration_balance),
    Check("level_balance", "Are the splits alike in level?", "dB", balance.level_balance),
    Check("dominant_speaker", "Has train more than one main voice?", "share", balance.dominant_speaker),
    Check("clipping", "Is the audio free of clipping?", "share", audio.clipping),
    Check("level", "Is it loud enough, and not too loud?", "share", audio.level),
    Check("silence", "Is there speech in most of it?", "share", audio.silence),
    Check("constant_audio", "Does it move as speech does?", "share", audio.constant_audio),
]

TFX_CHECKS = [
    Check("missing_features", "Is all there that the schema asks for?", "count", anomalies_of("missing_features")),
    Check("wrong_types", "Are numbers numbers, and texts texts?", "count", anomalies_of("wrong_types")),
    Check("unexpected_values", "Does the schema know all the values?", "count", anomalies_of("unexpected_values")),
    Check("out_of_range", "Are all numbers within the schema's bounds?", "count", anomalies_of("out_of_range")),
    Check("other_anomalies", "Is the schema kept otherwise?", "count", anomalies_of("other_anomalies")),
    Check("drift", "Is it like the data of the model in service?", "count", drift),
]
"""By TFX's data validation; not checked where that does not run."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a check came to."""

    check: Check
    settings: CheckSettings
    outcome: Outcome
    finding: Finding

    @property
    def fails_the_step(self) -> bool:
        return self.outcome == "failed" and self.settings.severity == "error"

    @property
    def value(self) -> str:
        """The value as a person reads it."""
        return shown(self.finding.value, self.check.unit)

    @property
    def threshold(self) -> str:
        return shown(self.settings.threshold, self.check.unit)

    def plain(self, corpus: Corpus, listed: int) -> dict[str, Any]:
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


def look(corpus: Corpus, settings: ValidateSettings, examination: Examination) -> list[Result]:
    """Runs every check that is not off."""
    # The examples take memory in proportion to the corpus, and where nothing was examined nothing is told of them.
    subject = (examination, None if examination.skipped else Examples.of(corpus))
    return [_result(check, corpus, settings) for check in CHECKS] + [
        _result(check, subject, settings) for check in TFX_CHECKS
    ]


def shown(value: float | None, unit: Unit) -> str:
    """A value with its unit: 3, 1.2%, 0.04 bits, 2.5 ×, 6.0 dB."""
    if value is None:
        return "—"
    if unit == "share":
        return f"{value:.3%}" if 0 < value < 0.001 else f"{value:.1%}"
    return {"count": f"{value:,.0f}", "bits": f"{value:.3f} bits", "times": f"{value:.2f} ×", "dB": f"{value:.1f} dB"}[
        unit
    ]


def _result(check: Check, subject: Any, settings: ValidateSettings) -> Result:
    own: CheckSettings = getattr(settings, check.name)
    if own.severity == "off":
        return Result(check, own, "off", Finding(None, "turned off in the config"))
    finding = check.look(subject, settings)
    if finding.value is None:
        return Result(check, own, "not checked", finding)
    return Result(check, own, "failed" if finding.value > own.threshold else "passed", finding)

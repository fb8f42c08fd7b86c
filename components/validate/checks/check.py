"""A check, what it finds, and its result."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from voxline.components.validate.columns import RowIndices
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import CheckSettings

ValueUnit = Literal["count", "share", "bits", "times", "dB"]
CheckOutcome = Literal["passed", "failed", "not checked", "off"]


def no_rows() -> RowIndices:
    return np.empty(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class CheckFinding:
    """The finding of a check: a number, and the utterances that cause it.

    Attributes:
      value: compared with the threshold; None if the check cannot be run.
      detail: the numbers behind it in words, or why the check cannot be run.
      offenders: the utterances that cause the value, worst first.
      describe: says what is wrong with an offender, given its row.
      hidden: the page neither plays nor quotes the offenders.
    """

    value: float | None
    detail: str
    offenders: RowIndices = dataclasses.field(default_factory=no_rows)
    describe: Callable[[int], str] = lambda row: ""
    hidden: bool = False


@dataclasses.dataclass(frozen=True)
class CorpusCheck:
    """One check of the table.

    Attributes:
      name: of its field in ValidateSettings.
      question: shown in the report; the answer should be yes.
      unit: of its value and its threshold.
      run: the function, which takes the corpus (in TFDV_CHECKS: the result of TFDV and the examples) and the settings.
    """

    name: str
    question: str
    unit: ValueUnit
    run: Callable[[Any, Any], CheckFinding]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The outcome of a check."""

    check: CorpusCheck
    settings: CheckSettings
    outcome: CheckOutcome
    finding: CheckFinding

    @property
    def fails_the_step(self) -> bool:
        return self.outcome == "failed" and self.settings.severity == "error"

    @property
    def value(self) -> str:
        """The value with its unit; with further digits where it would read as the threshold that it is above."""
        # A failed check must not read "10.0%, at most 10.0% accepted": digits are added until the two differ.
        value = self.finding.value
        threshold = self.settings.threshold
        unit = self.check.unit
        more = range(4) if self.outcome == "failed" else ()

        differs = (
            digits for digits in more if format_value(value, unit, digits) != format_value(threshold, unit, digits)
        )
        return format_value(value, unit, next(differs, 0))

    @property
    def threshold(self) -> str:
        """The threshold with its unit."""
        return format_value(self.settings.threshold, self.check.unit)

    def to_json(self, corpus: CheckedCorpus, max_listed: int) -> dict[str, Any]:
        """The entry in validation.json, with the first `max_listed` offenders."""
        # The keys are the format of validation.json, which pipelines and later steps read.
        value = self.finding.value
        return {
            "name": self.check.name,
            "question": self.check.question,
            "severity": self.settings.severity,
            "outcome": self.outcome,
            "passed": {"passed": True, "failed": False}.get(self.outcome),
            "value": None if value is None else round(value, 6),
            "threshold": self.settings.threshold,
            "unit": self.check.unit,
            "detail": self.finding.detail,
            "count": len(self.finding.offenders),
            "offenders": [
                {"id": corpus.utterance(row).id, "split": corpus.splits[row], "note": self.finding.describe(row)}
                for row in map(int, self.finding.offenders[:max_listed])
            ],
        }


def not_checked(reason: str) -> CheckFinding:
    return CheckFinding(None, reason)


def share_finding(offenders: RowIndices, total: int, text: str, describe: Callable[[int], str]) -> CheckFinding:
    """The finding of a check whose value is the share of offenders among the checked utterances."""
    share = len(offenders) / total
    return CheckFinding(share, f"{len(offenders):,} of {total:,} {text}", offenders, describe)


def format_value(value: float | None, unit: ValueUnit, more_digits: int = 0) -> str:
    """A value with its unit: 3, 1.2%, 0.04 bits, 2.5 ×, 6.0 dB."""
    if value is None:
        return "—"
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "share":
        return f"{value:.{(3 if 0 < value < 0.001 else 1) + more_digits}%}"

    digits, sign = {"bits": (3, "bits"), "times": (2, "×"), "dB": (1, "dB")}[unit]
    return f"{value:.{digits + more_digits}f} {sign}"

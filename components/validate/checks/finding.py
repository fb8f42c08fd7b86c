"""What a check finds."""

import dataclasses
from collections.abc import Callable

import numpy as np

from voxline.components.validate.columns import RowIndices


def no_rows() -> RowIndices:
    return np.empty(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class CheckFinding:
    """One number, and the utterances that make it what it is.

    Attributes:
      value: compared with the threshold; None where the check cannot be made.
      detail: the numbers behind it in words, or why it cannot be made.
      offenders: the utterances to look at, worst first.
      note: what is wrong with one of them, given its row.
    """

    value: float | None
    detail: str
    offenders: RowIndices = dataclasses.field(default_factory=no_rows)
    note: Callable[[int], str] = lambda row: ""


def not_checked(why: str) -> CheckFinding:
    return CheckFinding(None, why)


def share_finding(offenders: RowIndices, total: int, what: str, note: Callable[[int], str]) -> CheckFinding:
    """The finding of a check that counts utterances: their share of those that were looked at."""
    share = len(offenders) / total
    return CheckFinding(share, f"{len(offenders):,} of {total:,} {what}", offenders, note)

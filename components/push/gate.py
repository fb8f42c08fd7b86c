"""The gate: checks that a model passes or not, each with what was measured and what is accepted.

Why these statistics: docs/decisions/0010-the-gate.md.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from components.push.settings import PushSettings
from components.speech.errors import SettingsError
from components.speech.evaluation import Evaluation, Row, by_slice
from components.speech.scoring import Edits, total

SLICES_NAMED = 3
"""Of the worse slices in a reason, worst first; the report has them all."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that a model must be.

    Attributes:
      measured, limit: None where the check is no number.
      detail: a sentence for a person: what was found and, where it failed, what was accepted.
    """

    name: str
    passed: bool
    detail: str
    measured: float | None = None
    limit: float | None = None


def check_slices(evaluation: Evaluation, settings: PushSettings) -> None:
    """Refuses to judge by a slicing that evaluate did not make.

    Raises:
      SettingsError: naming it, and those that there are.
    """
    made = evaluation.metrics["slices"]
    unknown = [name for name in settings.slices if name not in made]
    if unknown:
        raise SettingsError(
            f"push: 'slices' is {settings.slices!r}; evaluate did not report by {', '.join(unknown)}, "
            f"it did by {', '.join(made)}; add it to evaluate.slices"
        )


def absolute(evaluation: Evaluation, settings: PushSettings) -> Check:
    """The word error rate as measured, whatever its interval: the limit is a promise to users of the model."""
    rate = total(row.words for row in evaluation.rows).rate
    relation = "within" if rate <= settings.max_wer else "above"
    detail = f"word error rate {rate:.2%}, {relation} the limit of {settings.max_wer:.2%} (max_wer)"
    return Check("word error rate", rate <= settings.max_wer, detail, rate, settings.max_wer)


def relative(evaluation: Evaluation, champion: Mapping[str, Edits], version: int, settings: PushSettings) -> Check:
    """No worse than the model in service by more than the margin, shown with the confidence asked for.

    Args:
      champion: what the model in service made of each utterance, by the utterance's id.
    """
    rows = evaluation.rows
    compared = evaluation.bootstrap(settings.confidence).compare(
        [row.words for row in rows], [champion[row.id] for row in rows], [row.speaker for row in rows]
    )
    passed = compared.highest <= settings.max_regression
    detail = (
        f"{100 * compared.difference:+.2f} points against version {version}, "
        f"with {100 * settings.confidence:g}% confidence at most {100 * compared.highest:+.2f}; "
        f"{100 * settings.max_regression:+.2f} is accepted (max_regression)"
    )
    if not passed and compared.difference <= settings.max_regression:
        detail += "; it may be as good, and the test split is too small to show it: more test utterances would"
    return Check("against the model in service", passed, detail, compared.highest, settings.max_regression)


def slices(evaluation: Evaluation, champion: Mapping[str, Edits], version: int, settings: PushSettings) -> Check:
    """No slice worse than under the model in service by more than its margin, and surely worse at all."""
    worse: list[tuple[float, str]] = []
    judged = small = 0
    highest = 0.0
    bootstrap = evaluation.bootstrap(settings.confidence)
    for name in settings.slices:
        for value, rows in by_slice(evaluation.rows, name).items():
            if len(rows) < settings.min_slice_utterances:
                small += 1
                continue
            judged += 1
            compared = bootstrap.compare(
                [row.words for row in rows], [champion[row.id] for row in rows], [row.speaker for row in rows]
            )
            highest = max(highest, compared.difference)
            if compared.difference > settings.max_slice_regression and compared.lowest > 0:
                said = f"{name} {value}: {_rates(rows, champion)} on {len(rows):,} utterances"
                worse.append((compared.difference, said))
    limit = f"{100 * settings.max_slice_regression:.1f} points (max_slice_regression)"
    judged_words = f"{judged:,} slices judged, {small:,} with fewer than {settings.min_slice_utterances} utterances not"
    if worse:
        worst = [said for _, said in sorted(worse, reverse=True)[:SLICES_NAMED]]
        shown = "; ".join(worst) + (f"; and {len(worse) - len(worst)} more" if len(worse) > len(worst) else "")
        detail = f"worse than version {version} by more than {limit} in {len(worse)} of {judged} slices: {shown}"
    else:
        detail = f"no slice is worse than under version {version} by more than {limit}; {judged_words}"
    return Check("slices", not worse, detail, highest, settings.max_slice_regression)


def _rates(rows: Sequence[Row], champion: Mapping[str, Edits]) -> str:
    return f"{total(row.words for row in rows).rate:.1%} after {total(champion[row.id] for row in rows).rate:.1%}"

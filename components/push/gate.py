"""The gate: checks that a model passes or not, each with what was measured and what is accepted.

One gate for every kind of model: any figure is held to a limit, compared with the model in service as a whole,
and in slices. Why these statistics: docs/decisions/0007-the-gate.md.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap, Comparison, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, SPEED_METRICS, Metric
from voxline.metrics.evaluation import Evaluation, UtteranceResult, group_by_slice

MAX_SLICES_NAMED = 3
"""Of the worse slices in a reason, worst first; the report has them all."""

ChampionMetrics = Mapping[str, Mapping[str, SumAndWeight]]
"""What the model in service made of each utterance: the utterance's id → figure → its part."""


@dataclasses.dataclass(frozen=True)
class GateCheck:
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


def refuse_unmeasured(evaluation: Evaluation, settings: PushSettings) -> None:
    """Refuses to judge by what evaluate did not measure.

    Raises:
      SettingsError: naming it, and what there is.
    """
    made = evaluation.metrics["slices"]
    unknown = [name for name in settings.slices if name not in made]
    if unknown:
        raise SettingsError(
            f"push: 'slices' is {settings.slices!r}; evaluate did not report by {', '.join(unknown)}, "
            f"it did by {', '.join(made)}; add it to evaluate.slices"
        )
    for name in getattr(settings, "limits", {}):
        if _measured(evaluation, CATALOG[name]) is None:
            raise SettingsError(
                f"push: 'limits.{name}' holds a figure to a limit that evaluate did not measure; leave it out, or "
                "let evaluate measure it (evaluate.listener, evaluate.pitched)"
            )


def check_limits(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """Figures as measured, whatever their intervals: a limit is a promise to users of the model."""
    checks = []
    for name, (limit, key) in settings.absolute_limits().items():
        figure = CATALOG[name]
        value = _measured(evaluation, figure)
        if value is None:
            checks.append(GateCheck(figure.title, True, f"{figure.title}: not measured, so {key} judges nothing"))
            continue
        passed = figure.sign * value <= figure.sign * limit
        relation = "within" if passed else "above" if figure.better == "lower" else "under"
        detail = f"{figure.title} {figure.shown(value)}, {relation} the limit of {figure.shown(limit)} ({key})"
        checks.append(GateCheck(figure.title, passed, detail, value, limit))
    return checks


def check_regression(
    evaluation: Evaluation, champion: ChampionMetrics, version: int, settings: PushSettings
) -> list[GateCheck]:
    """No figure worse than under the model in service by more than its margin, shown with the confidence asked for."""
    bootstrap = evaluation.bootstrap(settings.confidence)
    checks = []
    for name, margin in settings.margins().items():
        figure, title = CATALOG[name], f"{CATALOG[name].title}, against the model in service"
        if _measured(evaluation, figure) is None:
            checks.append(GateCheck(title, True, f"{figure.title}: not measured, so max_regression judges nothing"))
            continue
        compared = _compared(evaluation.rows, champion, figure, bootstrap)
        if not compared.interval.units:
            detail = (
                f"{figure.title}: no utterance has it of this model and of version {version}, whose features may have "
                "other units; take it out of max_regression, or judge by mcd"
            )
            checks.append(GateCheck(title, False, detail, None, margin))
            continue
        passed = compared.highest <= margin
        bound = "at most" if figure.better == "lower" else "at least"
        detail = (
            f"{figure.title} {figure.change(figure.sign * compared.difference)} against version {version}, with "
            f"{100 * settings.confidence:g}% confidence {bound} {figure.change(figure.sign * compared.highest)}; "
            f"{figure.change(figure.sign * margin)} is accepted (max_regression)"
        )
        if not passed and compared.difference <= margin:
            detail += "; it may be as good, and the test split is too small to show it: more test utterances would"
        checks.append(GateCheck(title, passed, detail, compared.plain()["highest"], margin))
    return checks


def check_slice_regression(
    evaluation: Evaluation, champion: ChampionMetrics, version: int, settings: PushSettings
) -> list[GateCheck]:
    """No slice worse than under the model in service by more than its margin, and surely worse at all."""
    return [
        _slices(evaluation, champion, version, CATALOG[name], margin, settings)
        for name, margin in settings.slice_margins().items()
        if _measured(evaluation, CATALOG[name]) is not None
    ]


def _slices(
    evaluation: Evaluation,
    champion: ChampionMetrics,
    version: int,
    figure: Metric,
    margin: float,
    settings: PushSettings,
) -> GateCheck:
    worse: list[tuple[float, str]] = []
    judged = small = 0
    highest = 0.0
    bootstrap = evaluation.bootstrap(settings.confidence)
    for name in settings.slices:
        for value, rows in group_by_slice(evaluation.rows, name).items():
            if len(rows) < settings.min_slice_utterances:
                small += 1
                continue
            judged += 1
            compared = _compared(rows, champion, figure, bootstrap)
            highest = max(highest, compared.difference)
            if compared.difference > margin and compared.lowest > 0:
                said = f"{name} {value}: {_values(rows, champion, figure)} on {len(rows):,} utterances"
                worse.append((compared.difference, said))
    limit = f"{figure.change(margin).lstrip('+')} (max_slice_regression)"
    if worse:
        worst = [said for _, said in sorted(worse, reverse=True)[:MAX_SLICES_NAMED]]
        shown = "; ".join(worst) + (f"; and {len(worse) - len(worst)} more" if len(worse) > len(worst) else "")
        detail = (
            f"{figure.title}: worse than version {version} by more than {limit} in {len(worse)} of {judged} slices: "
            f"{shown}"
        )
    else:
        detail = (
            f"{figure.title}: no slice is worse than under version {version} by more than {limit}; {judged:,} slices "
            f"judged, {small:,} with fewer than {settings.min_slice_utterances} utterances not"
        )
    return GateCheck(f"{figure.title}, in slices", not worse, detail, highest, margin)


def _measured(evaluation: Evaluation, figure: Metric) -> float | None:
    """The figure over all utterances; None where it was not measured."""
    if figure in SPEED_METRICS:
        return float(evaluation.metrics["real_time_factor"])
    parts = [row.figures[figure.name] for row in evaluation.rows if figure.name in row.figures]
    return aggregate(parts, figure.kind) if parts else None


def _compared(
    rows: Sequence[UtteranceResult], champion: ChampionMetrics, figure: Metric, bootstrap: Bootstrap
) -> Comparison:
    """Turned so that positive is worse."""
    one, other = [
        [SumAndWeight(figure.sign * parts[figure.name].value, parts[figure.name].weight) for parts in figures]
        for figures in ([row.figures for row in rows], [champion[row.id] for row in rows])
    ]
    return bootstrap.compare(one, other, [row.speaker for row in rows], figure.kind)


def _values(rows: Sequence[UtteranceResult], champion: ChampionMetrics, figure: Metric) -> str:
    now = aggregate([row.figures[figure.name] for row in rows], figure.kind)
    before = aggregate([champion[row.id][figure.name] for row in rows], figure.kind)
    return f"{figure.shown(now)} after {figure.shown(before)}"

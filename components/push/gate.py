"""The gate: checks that a model passes or fails, each with the measured value and the accepted one.

One gate serves every family: any metric is held to a limit, and compared with the model in service, as a whole and
in slices. docs/decisions/0007-the-gate.md explains the statistics.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap, Comparison, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import Evaluation, UtteranceResult, group_by_slice

MAX_SLICES_NAMED = 3
"""Worse slices named in a reason, worst first; the report has them all."""

ChampionMetrics = Mapping[str, Mapping[str, SumAndWeight]]
"""Of the model in service: the utterance's id → metric → its value."""


@dataclasses.dataclass(frozen=True)
class GateCheck:
    """One requirement.

    Attributes:
      measured, limit: None if the check is not about a number.
      detail: a sentence for a person: the finding and, if it failed, what is accepted.
    """

    name: str
    passed: bool
    detail: str
    measured: float | None = None
    limit: float | None = None


def refuse_unmeasured(evaluation: Evaluation, settings: PushSettings) -> None:
    """Refuses to judge by what evaluate did not measure. Default thresholds are skipped instead.

    Raises:
      SettingsError: naming it, and what was measured.
    """
    reported = evaluation.metrics["slices"]
    if unknown := [name for name in settings.slices if name not in reported]:
        raise SettingsError(
            f"push: 'slices' is {settings.slices!r}; evaluate did not report by {', '.join(unknown)}, but by "
            f"{', '.join(reported)}; add it to evaluate.slices"
        )
    for name in settings.limits:
        if evaluation.value(name) is None and not settings.is_default_limit(name):
            setting = f" (set {CATALOG[name].setting})" if CATALOG[name].setting else ""
            raise SettingsError(
                f"push: 'limits.{name}' is a metric that evaluate did not measure; remove the limit, or let evaluate "
                f"measure it{setting}"
            )


def check_limits(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """The values as measured, whatever their intervals: a limit is a promise to the model's users."""
    checks = []
    for name, limit in settings.limits.items():
        metric, value = CATALOG[name], evaluation.value(name)
        if value is None:
            checks.append(GateCheck(metric.title, True, f"{metric.title}: not measured, so limits.{name} is skipped"))
            continue
        passed = metric.sign * value <= metric.sign * limit
        relation = "within" if passed else "above" if metric.sign > 0 else "below"
        detail = (
            f"{metric.title} {metric.format(value)}, {relation} the limit of {metric.format(limit)} (limits.{name})"
        )
        checks.append(GateCheck(metric.title, passed, detail, value, limit))
    return checks


def check_regression(
    evaluation: Evaluation, champion: ChampionMetrics, version: int, settings: PushSettings
) -> list[GateCheck]:
    """No metric is worse than in the model in service by more than its margin, with the confidence that is set."""
    bootstrap = evaluation.bootstrap(settings.confidence)
    checks = []
    for name, margin in settings.max_regression.items():
        metric, title = CATALOG[name], f"{CATALOG[name].title}, against the model in service"
        setting = f"max_regression.{name}"
        if evaluation.value(name) is None:
            checks.append(GateCheck(title, True, f"{metric.title}: not measured, so {setting} is skipped"))
            continue
        compared = _compare(evaluation.results, champion, metric, bootstrap)
        if not compared.interval.units:
            detail = (
                f"{metric.title}: not measured on any utterance for both this model and version {version}, whose "
                f"features may differ; remove {setting}, or judge by mcd"
            )
            checks.append(GateCheck(title, False, detail, None, margin))
            continue
        passed = compared.highest <= margin
        bound = "at most" if metric.sign > 0 else "at least"
        detail = (
            f"{metric.title} {metric.format_difference(metric.sign * compared.difference)} against version {version}, "
            f"with {100 * settings.confidence:g}% confidence {bound} "
            f"{metric.format_difference(metric.sign * compared.highest)}; "
            f"{metric.format_difference(metric.sign * margin)} is accepted ({setting})"
        )
        if not passed and compared.difference <= margin:
            detail += "; it may be as good, and the test split is too small to show it: add test utterances"
        highest = compared.highest if math.isfinite(compared.highest) else None
        checks.append(GateCheck(title, passed, detail, highest, margin))
    return checks


def check_slice_regression(
    evaluation: Evaluation, champion: ChampionMetrics, version: int, settings: PushSettings
) -> list[GateCheck]:
    """No slice is worse than in the model in service by more than its margin, and significantly worse at all."""
    return [
        _check_slices(evaluation, champion, version, CATALOG[name], margin, settings)
        for name, margin in settings.max_slice_regression.items()
        if evaluation.value(name) is not None
    ]


def _check_slices(
    evaluation: Evaluation,
    champion: ChampionMetrics,
    version: int,
    metric: Metric,
    margin: float,
    settings: PushSettings,
) -> GateCheck:
    worse: list[tuple[float, str]] = []
    judged = small = 0
    highest = 0.0
    bootstrap = evaluation.bootstrap(settings.confidence)
    for name in settings.slices:
        for value, results in group_by_slice(evaluation.results, name).items():
            if len(results) < settings.min_slice_utterances:
                small += 1
                continue
            judged += 1
            compared = _compare(results, champion, metric, bootstrap)
            highest = max(highest, compared.difference)
            if compared.difference > margin and compared.lowest > 0:
                values = _format_both(results, champion, metric)
                worse.append((compared.difference, f"{name} {value}: {values} on {len(results):,} utterances"))
    limit = f"{metric.format_difference(margin).lstrip('+')} (max_slice_regression.{metric.name})"
    if worse:
        named = [text for _, text in sorted(worse, reverse=True)[:MAX_SLICES_NAMED]]
        more = f"; and {len(worse) - len(named)} more" if len(worse) > len(named) else ""
        detail = (
            f"{metric.title}: worse than version {version} by more than {limit} in {len(worse)} of {judged} slices: "
            f"{'; '.join(named)}{more}"
        )
    else:
        detail = (
            f"{metric.title}: no slice is worse than in version {version} by more than {limit}; {judged:,} slices "
            f"judged, {small:,} with fewer than {settings.min_slice_utterances} utterances skipped"
        )
    return GateCheck(f"{metric.title}, in slices", not worse, detail, highest, margin)


def _compare(
    results: Sequence[UtteranceResult], champion: ChampionMetrics, metric: Metric, bootstrap: Bootstrap
) -> Comparison:
    return bootstrap.compare(
        [result.metrics[metric.name] for result in results],
        [champion[result.id][metric.name] for result in results],
        [result.speaker for result in results],
        metric.kind,
        sign=metric.sign,
    )


def _format_both(results: Sequence[UtteranceResult], champion: ChampionMetrics, metric: Metric) -> str:
    now = aggregate([result.metrics[metric.name] for result in results], metric.kind)
    before = aggregate([champion[result.id][metric.name] for result in results], metric.kind)
    return f"{metric.format(now)}, was {metric.format(before)}"

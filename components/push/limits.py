"""Limits of the gate: what must be measured of a model, and what it must reach by itself, as a whole and, of a voice,
for each speaker.
"""

from voxline.components.push.gate import GateCheck
from voxline.components.push.settings import PushSettings
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import Evaluation, group_by_slice


def refuse_unmeasured(evaluation: Evaluation, settings: PushSettings) -> None:
    """Refuses to judge by what evaluate did not measure. Default thresholds are skipped instead.

    Raises:
      SettingsError: naming it, and what was measured.
    """
    reported = evaluation.info.slices
    if unknown := [name for name in settings.slices if name not in reported]:
        raise SettingsError(
            f"push: 'slices' is {settings.slices!r}; evaluate did not report by {', '.join(unknown)}, but by "
            f"{', '.join(reported)}; add it to evaluate.slices"
        )

    # Only what a config asks for: a default threshold of a metric that nobody measures must not stop a push.
    for kind, name in settings.asked_for():
        if evaluation.value(name) is None:
            setting = f" (set {CATALOG[name].setting})" if CATALOG[name].setting else ""
            threshold = "limit" if kind == "limits" else "margin"
            raise SettingsError(
                f"push: '{kind}.{name}' is a metric that evaluate did not measure; remove the {threshold}, or let "
                f"evaluate measure it{setting}"
            )


def check_limits(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """Holds the values as measured, whatever their intervals: a limit is a promise to the model's users."""
    checks = []
    for name, limit in settings.limits.items():
        metric = CATALOG[name]
        value = evaluation.value(name)
        if value is None:
            checks.append(GateCheck(metric.title, None, f"{metric.title}: not measured, so limits.{name} is skipped"))
            continue

        # The sign is -1 of a metric that is better when higher, so its limit is the lowest accepted value.
        passed = metric.sign * value <= metric.sign * limit
        relation = "within" if passed else "above" if metric.sign > 0 else "below"
        detail = (
            f"{metric.title} {metric.format(value)}, {relation} the limit of {metric.format(limit)} (limits.{name})"
        )
        checks.append(GateCheck(metric.title, passed, detail, value, limit))
        # A mean over all speakers would hide the one who cannot be understood.
        checks += _check_limit_by_slice(evaluation, metric, limit, settings)
    return checks


def _check_limit_by_slice(
    evaluation: Evaluation, metric: Metric, limit: float, settings: PushSettings
) -> list[GateCheck]:
    """Holds each slice of `limits_by` to a limit; [] where there are no two that are large enough."""
    values = limited_slices(evaluation, metric, settings)
    if not values:
        return []
    slicing = settings.limits_by

    # The worst is named; the report has them all.
    worst = max(values, key=lambda name: metric.sign * values[name])
    beyond = sorted(name for name, value in values.items() if metric.sign * value > metric.sign * limit)
    others = f", and {len(beyond) - 1} more beyond it" if len(beyond) > 1 else ""
    detail = (
        f"{metric.title}, by {slicing}: {metric.format(values[worst])} of {worst}, the worst of {len(values)}; limit "
        f"{metric.format(limit)} (limits.{metric.name}){others}"
    )
    return [GateCheck(f"{metric.title}, by {slicing}", not beyond, detail, values[worst], limit)]


def limited_slices(evaluation: Evaluation, metric: Metric, settings: PushSettings) -> dict[str, float]:
    """The slices of `limits_by` that are held to the limits, with their values; {} where no two are large enough."""
    if not metric.comparable or settings.limits_by not in evaluation.info.slices:
        return {}
    values: dict[str, float] = {}
    for name, results in group_by_slice(evaluation.results, settings.limits_by).items():
        value = aggregate([result.metrics[metric.name] for result in results], metric.kind)
        if value is not None and len(results) >= settings.min_slice_utterances:
            values[name] = value
    return values if len(values) > 1 else {}


def describe_missing_judge(evaluation: Evaluation, settings: PushSettings) -> str:
    """What a model lacks that nothing independent judged; empty if something did, or its family has no such judge."""
    metrics, lacks = settings.judge
    return "" if not metrics or any(evaluation.value(metric) is not None for metric in metrics) else lacks

"""What the examination comes to as checks: features that break the schema, by kind, and features that drifted."""

from collections.abc import Callable

import numpy as np

from voxline.components.validate.checks.finding import CheckFinding, no_rows, not_checked
from voxline.components.validate.columns import RowIndices
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import Anomaly, AnomalyKind, FeatureDrift, TfdvResult

TfdvCheck = Callable[[tuple[TfdvResult, Examples], ValidateSettings], CheckFinding]


def anomaly_check(kind: AnomalyKind) -> TfdvCheck:
    """The check of one kind of anomaly: how many features have any, and the utterances behind it."""

    def look(subject: tuple[TfdvResult, Examples], settings: ValidateSettings) -> CheckFinding:
        examination, examples = subject
        if examination.skipped:
            return not_checked(_skipped(examination))
        found = [anomaly for anomaly in examination.anomalies if anomaly.kind == kind]
        features = list(dict.fromkeys(anomaly.feature for anomaly in found))
        if not found:
            return CheckFinding(0, f"none against the schema {examination.schema}")
        offenders = {feature: _outside(feature, examination, examples) for feature in features}
        rows = np.unique(np.concatenate([no_rows(), *offenders.values()]))
        return CheckFinding(
            len(features),
            "; ".join(map(_told, found)),
            rows,
            lambda row: ", ".join(
                f"{feature} {_value(feature, row, examples)}" for feature in features if row in offenders[feature]
            ),
        )

    return look


def drifted_features(subject: tuple[TfdvResult, Examples], settings: ValidateSettings) -> CheckFinding:
    """How many features are further from the dataset of the model in service than the schema accepts."""
    examination, _ = subject
    if examination.skipped:
        return not_checked(_skipped(examination))
    if not examination.against:
        return not_checked(examination.not_compared)
    drifted = [one for one in examination.drifts if one.drifted]
    if drifted:
        return CheckFinding(len(drifted), f"against {examination.against}: " + "; ".join(map(_distance, drifted)))
    furthest = max(
        (one for one in examination.drifts if one.distance is not None and one.measure != "utterances"),
        key=lambda one: (one.distance or 0.0) / max(one.threshold, 1e-9),
        default=None,
    )
    nearest = f"; the furthest: {_distance(furthest)}" if furthest else ""
    return CheckFinding(0, f"{len(examination.drifts)} compared with {examination.against}{nearest}")


def _skipped(examination: TfdvResult) -> str:
    return f"TFX's data validation was skipped: {examination.skipped}"


def _told(anomaly: Anomaly) -> str:
    return f"{anomaly.feature or 'the dataset'}: {anomaly.told}"


def _distance(one: FeatureDrift) -> str:
    if one.distance is None:
        return f"{one.feature}: {one.told}"
    if one.measure == "utterances":
        return f"{one.distance:.0%} as many utterances, at least {one.threshold:.0%} accepted"
    unit = " bits" if one.measure == "Jensen-Shannon" else ""
    return f"{one.feature} {one.distance:.3f}{unit} ({one.measure}), {one.threshold:g} accepted"


def _outside(feature: str, examination: TfdvResult, examples: Examples) -> RowIndices:
    """The utterances whose value of a feature the schema does not accept."""
    limits = examination.limits.get(feature)
    if limits is None:
        return no_rows()
    if feature in examples.numbers:
        values = examples.numbers[feature].astype(np.float64)
        least = -np.inf if limits.least is None else limits.least
        most = np.inf if limits.most is None else limits.most
        excess = np.maximum(least - values, values - most)
        # TFDV compares in double precision what it was given in single.
        rows = np.flatnonzero(np.nan_to_num(excess, nan=-1.0) > 0)
        return rows[np.argsort(-excess[rows], kind="stable")]
    if feature in examples.texts and limits.values:
        column = examples.texts[feature]
        accepted = [column.number(value) for value in (*limits.values, "")]
        return np.flatnonzero(~np.isin(column.codes, accepted))
    return no_rows()


def _value(feature: str, row: int, examples: Examples) -> str:
    return f"{examples.numbers[feature][row]:g}" if feature in examples.numbers else examples.texts[feature][row]

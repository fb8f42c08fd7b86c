"""Checks on the result of TFDV: features that violate the schema, by kind, and features that drifted."""

from collections.abc import Callable

import numpy as np

from voxline.components.validate.checks.check import CheckFinding, no_rows, not_checked
from voxline.components.validate.columns import RowIndices
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import Anomaly, AnomalyKind, TfdvDrift, TfdvResult

TfdvCheck = Callable[[tuple[TfdvResult, Examples], ValidateSettings], CheckFinding]


def anomaly_check(kind: AnomalyKind) -> TfdvCheck:
    """The check of one kind of anomaly: counts the features that have it, and lists the utterances that cause it."""

    def check(subject: tuple[TfdvResult, Examples], settings: ValidateSettings) -> CheckFinding:
        tfdv_result, examples = subject
        if tfdv_result.skipped:
            return not_checked(_skipped(tfdv_result))

        anomalies = [anomaly for anomaly in tfdv_result.anomalies if anomaly.kind == kind]
        features = list(dict.fromkeys(anomaly.feature for anomaly in anomalies))
        if not anomalies:
            return CheckFinding(0, f"no violation of the schema {tfdv_result.schema}")

        # TFDV judges statistics and names no utterances; those with values outside the domain are found here.
        offenders = {feature: _outside(feature, tfdv_result, examples) for feature in features}
        rows = np.unique(np.concatenate([no_rows(), *offenders.values()]))
        return CheckFinding(
            len(features),
            "; ".join(map(_describe, anomalies)),
            rows,
            lambda row: ", ".join(
                f"{feature} {_value(feature, row, examples)}" for feature in features if row in offenders[feature]
            ),
        )

    return check


def drifted_features(subject: tuple[TfdvResult, Examples], settings: ValidateSettings) -> CheckFinding:
    """Counts the features that are further from the baseline than the schema accepts."""
    tfdv_result, _ = subject
    if tfdv_result.skipped:
        return not_checked(_skipped(tfdv_result))
    if not tfdv_result.baseline:
        return not_checked(tfdv_result.no_baseline)

    drifted = [drift for drift in tfdv_result.drifts if drift.drifted]
    if drifted:
        return CheckFinding(len(drifted), f"against {tfdv_result.baseline}: " + "; ".join(map(_distance, drifted)))

    # None has drifted: the one that came nearest to its threshold tells how much room there is.
    furthest = max(
        (drift for drift in tfdv_result.drifts if drift.distance is not None and drift.measure != "utterances"),
        key=lambda drift: (drift.distance or 0.0) / max(drift.threshold, 1e-9),
        default=None,
    )
    nearest = f"; the furthest: {_distance(furthest)}" if furthest else ""
    return CheckFinding(0, f"{len(tfdv_result.drifts)} compared with {tfdv_result.baseline}{nearest}")


def _skipped(tfdv_result: TfdvResult) -> str:
    return f"TFX's data validation was skipped: {tfdv_result.skipped}"


def _describe(anomaly: Anomaly) -> str:
    return f"{anomaly.feature or 'the dataset'}: {anomaly.description}"


def _distance(drift: TfdvDrift) -> str:
    if drift.distance is None:
        return f"{drift.feature}: {drift.description}"
    if drift.measure == "utterances":
        return f"{drift.distance:.0%} as many utterances, at least {drift.threshold:.0%} accepted"
    unit = " bits" if drift.measure == "Jensen-Shannon" else ""
    return f"{drift.feature} {drift.distance:.3f}{unit} ({drift.measure}), {drift.threshold:g} accepted"


def _outside(feature: str, tfdv_result: TfdvResult, examples: Examples) -> RowIndices:
    """The utterances whose value of a feature is outside its domain."""
    domain = tfdv_result.domains.get(feature)
    if domain is None:
        return no_rows()
    if feature in examples.numbers:
        values = examples.numbers[feature].astype(np.float64)
        low = -np.inf if domain.min is None else domain.min
        high = np.inf if domain.max is None else domain.max
        excess = np.maximum(low - values, values - high)

        # TFDV compares single-precision values in double precision.
        rows = np.flatnonzero(np.nan_to_num(excess, nan=-1.0) > 0)
        return rows[np.argsort(-excess[rows], kind="stable")]

    # A missing text, "", violates no domain.
    if feature in examples.texts and domain.values:
        column = examples.texts[feature]
        accepted = [column.number(value) for value in (*domain.values, "")]
        return np.flatnonzero(~np.isin(column.codes, accepted))
    return no_rows()


def _value(feature: str, row: int, examples: Examples) -> str:
    return f"{examples.numbers[feature][row]:g}" if feature in examples.numbers else examples.texts[feature][row]

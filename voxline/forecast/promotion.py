"""Whether a training will end in a promotion, predicted from the trainings before it.

Two models, averaged by how well each predicted the past (Dawid, "Statistical theory: the prequential approach", 1984):

  - the share of promotions so far, (promoted + 1) / (trainings + 2)
  - a logistic regression on what is known before a training, log(p / (1 − p)) = w · x with w ~ N(0, S), whose posterior
    is approximated by Laplace's method (MacKay, "The evidence framework applied to classification networks", 1992)

So a history whose promotions follow nothing that is known beforehand is predicted by their share.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError

Floats = npt.NDArray[np.float64]

MINIMUM = 10
"""Judged runs without which nothing is predicted."""
_MEAN = np.array([-0.1, 0.7, -0.6, -0.4, -2.5])
_PRECISION = np.array([1.0, 4.0, 4.0, 4.0, 1.0])
"""Prior of the weights of 1, growth, lead, refusals and drift: mean, and inverse of S."""
_DEVIATION = 0.05
_DEVIATION_RUNS = 3
"""Of the log of the metric between trainings on the same data, before any was seen; and the runs that this is worth."""
_LATEST = 5
"""Runs with whose mean the model in service is compared."""
_LEAST = 1e-3
"""Least value of the metric, whose log is taken."""
_STEPS = 30
_CLOSE = 1e-6
"""Newton's method: most steps, and the change after which it ends."""


@dataclasses.dataclass(frozen=True)
class JudgedRun:
    """A run whose model the gate has judged.

    Attributes:
      promoted: the gate accepted it.
      hours: of audio that it was trained on; None: not known.
      value: of the first headline metric, lower is better; None: not known.
      drift: features of its data that drifted from those of the model in service.
    """

    promoted: bool
    hours: float | None = None
    value: float | None = None
    drift: float = 0.0


@dataclasses.dataclass(frozen=True)
class PromotionForecast:
    """A prediction for a training.

    Attributes:
      probability: that it is promoted.
      runs, promoted: of the past.
      brier: mean of (probability − outcome)² over the past runs, each predicted from those before it.
      share_brier: the same of the share of promotions alone.
      past: float64 [n], the probabilities that the past runs had.
    """

    probability: float
    runs: int
    promoted: int
    brier: float
    share_brier: float
    past: Floats


def predict_promotion(past: Sequence[JudgedRun], hours: float | None, drift: float = 0.0) -> PromotionForecast:
    """Predicts whether the next run will promote its model.

    Args:
      past: oldest first. Those before the first promotion are left out: nothing was in service.
      hours, drift: of the next run, as in `JudgedRun`.

    Raises:
      SettingsError: fewer than `MINIMUM` runs were judged against a model in service.
    """
    # The last row is the next run, whose outcome nobody knows.
    inputs, outcomes = _inputs([*past, JudgedRun(False, hours, None, drift)])
    if len(outcomes) < MINIMUM:
        raise SettingsError(f"{len(outcomes)} runs were judged against a model in service; a forecast needs {MINIMUM}")

    # Laplace's rule of succession: [n + 1], before each run from those before it.
    shares = (np.cumsum(np.append(0.0, outcomes)) + 1) / (np.arange(len(inputs)) + 2)
    mean = _MEAN

    # Each run is predicted from those before it alone, so that the past is a fair test.
    regression = np.empty(len(inputs))
    for at in range(len(inputs)):
        mean, covariance = _posterior(inputs[:at], outcomes[:at], mean)
        regression[at] = _predictive(inputs[at], mean, covariance)

    # Weights of the two models are their likelihoods on the runs so far.
    gain = _log_score(regression[:-1], outcomes) - _log_score(shares[:-1], outcomes)
    weight = 1 / (1 + np.exp(-np.clip(np.cumsum(np.append(0.0, gain)), -30, 30)))
    predicted = weight * regression + (1 - weight) * shares
    return PromotionForecast(
        probability=float(predicted[-1]),
        runs=len(outcomes),
        promoted=int(outcomes.sum()),
        brier=float(np.mean((predicted[:-1] - outcomes) ** 2)),
        share_brier=float(np.mean((shares[:-1] - outcomes) ** 2)),
        past=predicted[:-1],
    )


def _inputs(runs: Sequence[JudgedRun]) -> tuple[Floats, Floats]:
    """Returns what was known before each run that had a model in service, and all outcomes but the last.

    Returns:
      x, float64 [n + 1, k]: 1; growth, the log of the hours over those that the model in service was trained on; lead,
      by how much that model was better than the latest ones on average; the logs of 1 + runs refused since, and of
      1 + features that drifted. Growth and lead are in standard deviations of the log of the metric between runs.
      outcomes, float64 [n]: 0 or 1.
    """
    # `service` is the model in service before a run; refusals count since it went there.
    service: JudgedRun | None = None
    refusals = 0
    logs = list[float]()
    rows = []
    outcomes = []
    for run in runs:
        if service is not None:
            steps = np.abs(np.diff(logs))
            # The prior deviation counts as three runs; with more steps between runs their median replaces it.
            seen = float(np.median(steps)) * 1.05 if len(steps) else 0.0  # 1.05: of normal values, to their deviation
            deviation = (_DEVIATION_RUNS * _DEVIATION + len(steps) * seen) / (_DEVIATION_RUNS + len(steps))
            growth = math.log(run.hours / service.hours) if run.hours and service.hours else 0.0
            lead = 0.0 if service.value is None else float(np.mean(logs[-_LATEST:])) - _log(service.value)
            figures = [growth / max(deviation, _LEAST), lead / max(deviation, _LEAST)]
            rows.append([1.0, *np.clip(figures, -5, 5), math.log1p(refusals), math.log1p(run.drift)])
            outcomes.append(float(run.promoted))
        # Every measured run, promoted or not, says how the metric varies.
        if run.value is not None:
            logs.append(_log(run.value))
        refusals = 0 if run.promoted else refusals + 1
        service = run if run.promoted else service
    return np.array(rows).reshape(-1, len(_MEAN)), np.array(outcomes[:-1])


def _log(value: float) -> float:
    return math.log(max(value, _LEAST))


def _posterior(inputs: Floats, outcomes: Floats, start: Floats) -> tuple[Floats, Floats]:
    """The mode of the weights [k] and the inverse of the Hessian there [k, k]; by Newton's method.

    Args:
      inputs: float64 [n, k].
      outcomes: float64 [n], 0 or 1.
      start: float64 [k], of the search.
    """
    weights = start
    for _ in range(_STEPS):
        # Gradient and negative Hessian of the log posterior, [k] and [k, k].
        probability = _sigmoid(inputs @ weights)
        slope = inputs.T @ (outcomes - probability) - _PRECISION * (weights - _MEAN)
        curvature = (inputs.T * (probability * (1 - probability))) @ inputs + np.diag(_PRECISION)
        step = np.linalg.solve(curvature, slope)
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))  # far from the mode a whole step may overshoot
        weights = weights + step
        if np.abs(step).max() < _CLOSE:
            break
    return weights, np.asarray(np.linalg.inv(curvature), np.float64)


def _predictive(inputs: Floats, mean: Floats, covariance: Floats) -> float:
    """The probability, averaged over the posterior: MacKay's approximation of a logistic of a normal variable."""
    spread = float(inputs @ covariance @ inputs)
    return float(_sigmoid(np.array(inputs @ mean / math.sqrt(1 + math.pi * spread / 8))))


def _log_score(probability: Floats, outcomes: Floats) -> Floats:
    return np.log(np.where(outcomes > 0, probability, 1 - probability))


def _sigmoid(value: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(value, -35, 35)))

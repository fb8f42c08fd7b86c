"""Forecasts of a figure of successive runs, by a structural time-series model: level, trend and season.

The model is the basic structural model of Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter"
(1989), section 2.3:

    y[t] = level[t] + season[t] + e[t],            e ~ N(0, s²)
    level[t+1] = level[t] + slope[t] + u[t],       u ~ N(0, q_level s²)
    slope[t+1] = slope[t] + v[t],                  v ~ N(0, q_slope s²)
    season[t+1] = −(season[t] + … + season[t−p+2]) + w[t],  w ~ N(0, q_season s²)

A season of more than `LONG` steps is a sum of harmonics, of which w[t] moves each coefficient (the trigonometric season
of the same section; for long seasons also Young, Pedregal & Tych, "Dynamic harmonic regression", 1999):

    season[t] = sum over j of a_j[t] cos(2πjt/p) + b_j[t] sin(2πjt/p)

It has as many states as coefficients, where the form above has p. Their number is chosen like the form.

The ratios q are those of a grid with the highest likelihood; all candidates are filtered at once. s² follows from
the innovations. An observation beyond `limit` standard deviations of its forecast is an anomaly: the filter does not
learn from it, so one bad night does not move the level. After three in a row on the same side it does: the level has
shifted.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.errors import SettingsError

Floats = npt.NDArray[np.float64]
_Passed = tuple[Floats, Floats, Floats, Floats, npt.NDArray[np.int8]]

MINIMUM = 8
"""Observations without which nothing is forecast."""
LIMIT = 2.8
"""In series with planted faults of four deviations it finds 99% of them, with one false alarm in 150 observations."""
_LEVEL = (0.0, 1e-3, 1e-2, 1e-1, 1.0)
_SLOPE = (None, 0.0, 1e-4, 1e-2)
_SEASON = (0.0, 1e-4, 1e-2)
"""Candidates of the ratios q; a slope of None is a model without a trend."""
LONG = 12
"""Steps of the longest season that has a state for each of them."""
_HARMONICS = (1, 2, 4, 8, 16)
"""Numbers of harmonics that are tried for a longer season."""
_DIFFUSE = 1e6
"""Variance of the state before the first observation, in units of the series' variance."""
_SHIFT = 3
"""Anomalies in a row, on one side, that are a new level."""
_LEAST = 1e-5
"""Least s, in units of the series' deviation: that of a series without any noise. From a diffuse start, the filter
knows the states of such a series to some millionths."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The forecast of a series.

    Attributes:
      expected: float64 [n], the one-step forecast of each observation from those before it; NaN where there were too
        few to say.
      deviation: float64 [n], its standard deviation.
      anomalies: indices of the observations beyond the limit.
      shifts: those of them at which the level shifted.
      ahead: float64 [horizon], the forecast after the last observation.
      ahead_deviation: float64 [horizon].
      period: of the season; 1 without one.
      trend: whether the model has a slope.
    """

    expected: Floats
    deviation: Floats
    anomalies: tuple[int, ...]
    shifts: tuple[int, ...]
    ahead: Floats
    ahead_deviation: Floats
    period: int
    trend: bool


def forecast(
    values: Sequence[float],
    *,
    periods: Sequence[int] = (1, 7),
    horizon: int = 7,
    limit: float = LIMIT,
    fitted: int | None = None,
) -> Forecast:
    """Forecasts a series of equal steps.

    Args:
      values: oldest first; NaN where nothing was measured.
      periods: lengths of a season that are tried, 1 (none) to 366. A season needs two periods of observations.
      horizon: steps after the last observation.
      limit: standard deviations from the forecast beyond which an observation is an anomaly.
      fitted: how many of the first observations the form of the model, its ratios and s are chosen by; None: all. The
        forecasts of the others are then those of a model that has not seen them, as a back-test wants.

    Raises:
      SettingsError: there are fewer than `observations_needed` to fit it to, or one is infinite.
    """
    # [n]
    series = np.asarray(values, np.float64)
    past = series[:fitted]
    count = int(np.isfinite(past).sum())
    needed = observations_needed(periods)
    if count < needed:
        raise SettingsError(f"{count} observations; a forecast needs {needed}")
    if np.isinf(series).any():
        raise SettingsError("an observation is infinite")

    # The series in units of its own deviation around its median: variances and _DIFFUSE then fit every figure.
    center = float(np.nanmedian(past))
    scale = float(np.nanstd(past))
    scale = scale if scale > 1e-12 * max(1.0, abs(center)) else 1.0
    scaled = (series - center) / scale

    # Every form of the model that the observations suffice for; the one with the lowest BIC is taken.
    fits = [
        _Filter(period, trend, scaled, limit, len(past), harmonics)
        for period in sorted(set(periods))
        for harmonics in _harmonics_of(period)
        for trend in (False, True)
        if count >= observations_needed([period])
    ]
    best = min(fits, key=lambda fit: fit.criterion)
    return best.result(horizon, center, scale)


def observations_needed(periods: Sequence[int]) -> int:
    """Observations without which no season of these lengths can be tried.

    >>> observations_needed((1, 7)), observations_needed((7,))
    (8, 22)
    """
    return min(MINIMUM + (2 * period if period > 1 else 0) for period in periods)


def _harmonics_of(period: int) -> list[int]:
    """Numbers of harmonics to try for a season; 0: a state for each of its steps.

    >>> _harmonics_of(7), _harmonics_of(24), _harmonics_of(366)
    ([0], [1, 2, 4, 8, 12], [1, 2, 4, 8, 16])
    """
    return [0] if period <= LONG else sorted({min(number, period // 2) for number in _HARMONICS})


class _Filter:
    """Kalman filters of one form of the model, with all candidates of its ratios, over a series.

    Shapes: c candidates, k states, n observations.

    Args:
      fitted: the first observations, by which a candidate is chosen.
      harmonics: of the season; 0: a state for each of its steps.
    """

    def __init__(self, period: int, trend: bool, series: Floats, limit: float, fitted: int, harmonics: int = 0) -> None:
        self.period = period
        self.trend = trend
        self._harmonics = harmonics

        # [c] all combinations of the ratios q
        slopes = [q for q in _SLOPE if (q is not None) == trend]
        ratios = list(itertools.product(_LEVEL, slopes, _SEASON if period > 1 else (0.0,)))

        # The state: level, slope if there is a trend, then the season and the p - 2 steps before it, or coefficients.
        season = 1 + trend
        waves = _waves(period, harmonics)
        self._size = size = season + (waves.shape[1] if harmonics else period - 1)

        # The transition T [k, k], and z [1 or p, k] by the step of the season: an observation is level plus season.
        self._transition = np.eye(size)
        self._observe = np.zeros((len(waves), size))
        self._observe[:, 0] = 1.0
        if trend:
            self._transition[0, 1] = 1.0

        # The season is minus the sum of the p - 1 before it; the others move one place on. Coefficients stay.
        if harmonics:
            self._observe[:, season:] = waves
        elif period > 1:
            self._transition[season:, season:] = np.eye(period - 1, k=-1)
            self._transition[season, season:] = -1.0
            self._observe[:, season] = 1.0

        # Q [c, k, k], diagonal: each disturbance enters one state.
        self._noise = np.zeros((len(ratios), size, size))
        for number, (level, slope, seasonal) in enumerate(ratios):
            self._noise[number, 0, 0] = level
            if trend:
                self._noise[number, 1, 1] = slope
            if harmonics:
                # As much in sum as the one disturbance of the other form.
                coefficients = np.arange(season, size)
                self._noise[number, coefficients, coefficients] = seasonal / harmonics
            elif period > 1:
                self._noise[number, season, season] = seasonal
        sigma = self._fit(series[:fitted], limit)
        if fitted < len(series):  # the same pass, further
            self._keep(series, self._pass(series, sigma, limit))

    def _fit(self, series: Floats, limit: float) -> Floats:
        """Filters the series twice: the first time to learn s of each candidate, the second to leave out anomalies.

        Returns:
          float64 [c], s of each candidate as the last pass had it.
        """
        # The first pass takes nothing for an anomaly; s is robust, since there may be some.
        innovations, ratios, _, _, _ = self._pass(series, None, np.inf)
        usable = np.isfinite(innovations)
        sigma = 1.4826 * np.nanmedian(np.abs(innovations) / np.sqrt(ratios), axis=0)  # of a normal's median deviation
        sigma = np.maximum(sigma, _LEAST)

        # The second pass leaves out what the first s says is an anomaly; then s again without these.
        for _ in range(2):
            used = sigma
            innovations, ratios, state, covariance, flags = self._pass(series, used, limit)

            # An anomaly counts with the limit, so that a form is not preferred for declaring more of them.
            standardized = np.where(usable, np.clip(np.abs(innovations) / np.sqrt(ratios), 0.0, limit * sigma), np.nan)
            sigma = np.maximum(np.sqrt(np.nanmean(np.where(flags != 0, np.nan, standardized) ** 2, axis=0)), _LEAST)

        # [c] minus twice the log likelihood
        count = usable.sum(axis=0)
        logs = np.nansum(np.where(usable, np.log(ratios), 0.0), axis=0)
        clipped = np.nansum((standardized / sigma) ** 2, axis=0)
        minus_two = count * np.log(sigma**2) + logs + clipped
        parameters = 2 + self.trend + (self.period > 1) + self._size
        criteria = minus_two + parameters * np.log(np.maximum(count, 2))  # BIC; initial states count as parameters
        self._best = best = int(np.argmin(criteria))
        self.criterion = float(criteria[best])
        self._sigma = float(sigma[best])
        self._keep(series, (innovations, ratios, state, covariance, flags))
        return used

    def _keep(self, series: Floats, passed: _Passed) -> None:
        """Keeps of a pass what the best candidate came to."""
        innovations, ratios, state, covariance, flags = passed
        best = self._best
        self._innovations = innovations[:, best]
        self._ratios = ratios[:, best]
        self._state = state[best]
        self._covariance = covariance[best]
        self._flags = flags[:, best]
        self._series = series

    def _pass(self, series: Floats, sigma: Floats | None, limit: float) -> _Passed:
        """One pass over the series.

        Args:
          sigma: float64 [c], s of each candidate; None: nothing is an anomaly.

        Returns:
          innovations [n, c], NaN while the state is diffuse and where nothing was observed; their variances over s²
          [n, c]; the state after the last observation [c, k] and its covariance over s² [c, k, k], both predicted for
          the next step; int8 [n, c]: 1 for an anomaly, 2 for one at which the level shifted.
        """
        candidates = len(self._noise)
        size = self._size

        # [c, k] and [c, k, k]
        state = np.zeros((candidates, size))
        covariance = np.tile(np.eye(size) * _DIFFUSE, (candidates, 1, 1))

        # [n, c]
        innovations = np.full((len(series), candidates), np.nan)
        variances = np.ones((len(series), candidates))
        flags = np.zeros((len(series), candidates), np.int8)
        streak = np.zeros(candidates, np.int64)
        seen = 0

        # Prediction error decomposition: v = y - z'a, F = z'Pz + 1, K = Pz / F.
        for at, value in enumerate(series):
            observe = self._observe[at % len(self._observe)]
            gain = covariance @ observe
            variance = gain @ observe + 1.0
            error = value - state @ observe
            if np.isfinite(value):
                seen += 1
                variances[at] = variance
                if seen > size:
                    innovations[at] = error
                # A gap in the series only lets the uncertainty grow.
                accept = np.ones(candidates, bool)

                # Of too few observations nothing stands out: the state is still diffuse.
                if sigma is not None and seen > max(size, MINIMUM - 1):
                    outside = np.abs(error) > limit * sigma * np.sqrt(variance)
                    side = np.where(outside, np.sign(error), 0).astype(np.int64)
                    # A streak counts up on one side and down on the other; the sign is the side.
                    streak = np.where(outside, np.where(np.sign(streak) == side, streak + side, side), 0)
                    shifted = np.abs(streak) >= _SHIFT
                    flags[at] = np.where(shifted, 2, outside)
                    if shifted.any():  # a new level: what was known of the old one counts no more
                        covariance[shifted, 0, 0] += (error[shifted]) ** 2 / sigma[shifted] ** 2
                        gain = covariance @ observe
                        variance = gain @ observe + 1.0
                        streak[shifted] = 0
                    accept = ~outside | shifted

                # The update; a rejected observation has no weight.
                weight = np.where(accept[:, None], gain / variance[:, None], 0.0)
                state = state + weight * error[:, None]
                covariance = covariance - weight[:, :, None] * gain[:, None, :]

            # The prediction of the next step; T P T' where T moves nothing but the slope is two sums.
            if self._harmonics:
                if self.trend:
                    state[:, 0] += state[:, 1]
                    covariance[:, 0] += covariance[:, 1]
                    covariance[:, :, 0] += covariance[:, :, 1]
                covariance += self._noise
            else:
                state = state @ self._transition.T
                covariance = self._transition @ covariance @ self._transition.T + self._noise
        return innovations, variances, state, covariance, flags

    def result(self, horizon: int, center: float, scale: float) -> Forecast:
        """The forecast in the units of the series."""
        # Where there is no innovation, NaN remains.
        expected = center + scale * (self._series - self._innovations)
        unit = 0.0 if self._sigma <= _LEAST else scale * self._sigma
        deviation = np.where(np.isfinite(self._innovations), unit * np.sqrt(self._ratios), np.nan)
        state = self._state
        covariance = self._covariance
        ahead = np.empty(horizon)
        spread = np.empty(horizon)

        # Ahead of the data there is nothing to update by: only the transition, and its noise.
        for step in range(horizon):
            observe = self._observe[(len(self._series) + step) % len(self._observe)]
            ahead[step] = state @ observe
            spread[step] = np.sqrt(observe @ covariance @ observe + 1.0)
            state = self._transition @ state
            covariance = self._transition @ covariance @ self._transition.T + self._noise[self._best]
        return Forecast(
            expected=expected,
            deviation=deviation,
            anomalies=tuple(int(at) for at in np.flatnonzero(self._flags)),
            shifts=tuple(int(at) for at in np.flatnonzero(self._flags == 2)),
            ahead=center + scale * ahead,
            ahead_deviation=unit * spread,
            period=self.period,
            trend=self.trend,
        )


def _waves(period: int, harmonics: int) -> Floats:
    """The cosine and sine of each harmonic, float64 [period, coefficients]; [1, 0] without any."""
    if not harmonics:
        return np.zeros((1, 0))
    # [period, harmonics]
    angles = 2 * np.pi * np.outer(np.arange(period), np.arange(1, harmonics + 1)) / period
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    # The sine of half the period is zero at each step, so it has no coefficient.
    return waves[:, :-1] if 2 * harmonics == period else waves

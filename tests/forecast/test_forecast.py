"""Forecasts against the joint normal distribution that the model defines, and planted faults."""

import time

import numpy as np
import numpy.typing as npt
import pytest

from voxline.errors import SettingsError
from voxline.forecast import forecast as module
from voxline.forecast.forecast import forecast

Floats = npt.NDArray[np.float64]


def weekly(seed: int, n: int = 365) -> tuple[Floats, Floats]:
    """A series of a figure with a season of 7, a drift and noise of deviation 1; and the series without the noise."""
    noise = np.random.default_rng(seed)
    level = 50 + np.cumsum(noise.normal(0, 0.05, n)) + 0.01 * np.arange(n)
    clean = level + np.tile(noise.normal(0, 3, 7), n // 7 + 1)[:n]
    return clean + noise.normal(0, 1, n), clean


def planted(seed: int, faults: int = 20) -> tuple[Floats, Floats, set[int]]:
    """A weekly series in which some observations are exactly 4 deviations from what is expected of them."""
    series, clean = weekly(seed)
    chance = np.random.default_rng(100 + seed)
    at = chance.choice(np.arange(60, len(series)), faults, replace=False)
    series[at] = clean[at] + 4 * chance.choice([-1, 1], faults)
    return series, clean, {int(index) for index in at}


@pytest.mark.parametrize(
    ("period", "trend", "harmonics"),
    [(1, False, 0), (1, True, 0), (4, False, 0), (3, True, 0), (6, False, 2), (5, True, 1), (4, True, 2)],
)
def test_the_forecast_is_the_mean_of_the_joint_normal_distribution(period: int, trend: bool, harmonics: int) -> None:
    """Kalman's recursion against conditioning: the mean and variance of y[t] given all y before it, by its formula."""
    series = np.random.default_rng(0).normal(0, 1, 14)
    found = module._Filter(period, trend, series, 1e9, len(series), harmonics)
    innovations, variances, *_ = found._pass(series, None, np.inf)
    size, candidate = found._size, 3 % len(found._noise)
    powers = [np.linalg.matrix_power(found._transition, k) for k in range(len(series))]
    noise = found._noise[candidate]
    observe = [found._observe[t % len(found._observe)] for t in range(len(series))]
    covariance = np.zeros((len(series), len(series)))
    for i in range(len(series)):
        for j in range(len(series)):
            states = 1e6 * powers[i] @ powers[j].T
            states = states + sum(powers[i - 1 - k] @ noise @ powers[j - 1 - k].T for k in range(min(i, j)))
            covariance[i, j] = observe[i] @ states @ observe[j] + (i == j)
    for t in range(size + 1, len(series)):
        weights = np.linalg.solve(covariance[:t, :t], covariance[:t, t])
        assert series[t] - innovations[t, candidate] == pytest.approx(weights @ series[:t], abs=2e-3)
        variance = covariance[t, t] - weights @ covariance[:t, t]
        assert variances[t, candidate] == pytest.approx(variance, rel=5e-3)


@pytest.mark.parametrize("period", [5, 6])
def test_all_harmonics_of_a_season_are_a_state_for_each_of_its_steps(period: int) -> None:
    """A season that does not change is any function of its steps in both forms, so both forecast the same."""
    series = np.random.default_rng(7).normal(0, 1, 40)
    forms = [module._Filter(period, False, series, 1e9, len(series), harmonics) for harmonics in (0, period // 2)]
    steps, waves = (form._pass(series, None, np.inf)[0] for form in forms)
    assert waves.shape == steps.shape
    fixed = [number for number, noise in enumerate(forms[0]._noise) if not noise[1:, 1:].any() and noise[0, 0] > 0]
    np.testing.assert_allclose(waves[2 * period :, fixed], steps[2 * period :, fixed], atol=1e-3)


@pytest.mark.parametrize(("period", "rows"), [(24, 200), (200, 430), (366, 1_100)])
def test_long_seasons_are_forecast_in_seconds(period: int, rows: int) -> None:
    at = np.arange(rows + period // 2)
    clean = 100 + 0.01 * at + 10 * np.sin(2 * np.pi * at / period) + 4 * np.cos(6 * np.pi * at / period + 1)
    series = clean[:rows] + np.random.default_rng(period).normal(0, 1, rows)
    series[rows - 5] += 8
    begin = time.process_time()
    found = forecast(series, periods=(period,), horizon=period // 2)
    assert time.process_time() - begin < 60, "processor time: 1 to 5 s where nothing else runs"
    assert found.period == period
    assert rows - 5 in found.anomalies
    other = forecast(series, periods=(1,), horizon=period // 2)
    errors, without = (np.abs(one.ahead - clean[rows:]).mean() for one in (found, other))
    assert errors < 1.5 < without, "near the noise, where a forecast without the season is not"
    assert found.ahead_deviation.min() > 0.5


@pytest.mark.parametrize("period", [(1,), (1, 7)])
def test_a_back_test_knows_nothing_of_the_runs_it_is_tested_on(period: tuple[int, ...]) -> None:
    """Fitted to 60 observations, the forecast of each later one depends on those before it alone."""
    series, _ = weekly(3, 90)
    noisy = series.copy()
    noisy[75:] += np.random.default_rng(1).normal(0, 6, 15)
    tested, other = (forecast(one, periods=period, fitted=60) for one in (series, noisy))
    np.testing.assert_array_equal(tested.expected[:76], other.expected[:76])
    np.testing.assert_array_equal(tested.deviation[:76], other.deviation[:76])
    assert not np.array_equal(tested.expected[76:], other.expected[76:]), "it follows what it has seen"
    whole, changed = (forecast(one, periods=period) for one in (series, noisy))
    assert not np.array_equal(whole.deviation[60:76], changed.deviation[60:76]), "one fitted to all runs has seen them"
    np.testing.assert_allclose(tested.expected[:60], forecast(series[:60], periods=period).expected, equal_nan=True)
    with pytest.raises(SettingsError, match="5 observations"):
        forecast(series, fitted=5)


def test_planted_faults_are_found() -> None:
    recalls, alarms, covered, gains, seconds = [], [], [], [], []
    for seed in range(6):
        series, _, at = planted(seed)
        begin = time.process_time()
        found = forecast(series)
        seconds.append(time.process_time() - begin)
        assert found.period == 7
        recalls.append(len(at & set(found.anomalies)) / len(at))
        alarms.append(len(set(found.anomalies) - at) / len(series))
        usual = [index for index in range(60, len(series)) if index not in at and index - 7 not in at]
        errors = np.abs(series[usual] - found.expected[usual])
        covered.append(np.mean(errors < found.deviation[usual]))
        gains.append(1 - errors.mean() / np.abs(series[usual] - series[np.array(usual) - 7]).mean())
    assert np.mean(recalls) >= 0.95
    assert np.mean(alarms) <= 0.01
    assert np.mean(covered) == pytest.approx(0.68, abs=0.05)
    assert np.mean(gains) >= 0.2, "the error is a fifth under that of the same day a week ago"
    assert min(seconds) < 10, "processor time for a year of runs: 0.2 s where nothing else runs"


def test_a_new_level_is_learnt_after_three_nights() -> None:
    series = 10 + np.random.default_rng(3).normal(0, 0.1, 60)
    series[40:] += 5
    found = forecast(series)
    assert {40, 41, 42} <= set(found.anomalies)
    assert found.shifts == (42,)
    assert np.abs(found.expected[45:] - 15).max() < 0.5


def test_one_bad_night_does_not_move_the_forecast() -> None:
    series = 10 + np.random.default_rng(4).normal(0, 0.1, 40)
    series[30] = 25
    found = forecast(series)
    assert 30 in found.anomalies
    assert abs(found.expected[31] - 10) < 0.3


def test_units_scale_and_gaps() -> None:
    series, _ = weekly(1, 70)
    series[20] = np.nan
    found, scaled = forecast(series), forecast(series * 1000 - 7)
    assert np.isnan(found.expected[20])
    assert 20 not in found.anomalies
    np.testing.assert_allclose(scaled.ahead, found.ahead * 1000 - 7, rtol=1e-6)
    np.testing.assert_allclose(scaled.ahead_deviation, found.ahead_deviation * 1000, rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_figures_measured_in_some_runs_only_are_forecast() -> None:
    measured = np.random.default_rng(5).normal(0, 1, 8)
    assert forecast([float("nan")] * 14 + measured.tolist()).period == 1, "8 observations show no season"


def test_a_constant_series_is_forecast_as_itself() -> None:
    found = forecast([0.0] * 20)
    assert not found.anomalies
    np.testing.assert_allclose(found.ahead, 0.0, atol=1e-6)
    assert not found.ahead_deviation.any()
    assert forecast([240.0] * 20 + [241.0]).anomalies == (20,)


def test_no_step_of_an_exact_season_stands_out() -> None:
    """A shop that sells 9 on each seventh day and 5 on all others: what is left over is the filter's own rounding."""
    series = [9.0 if step % 7 == 0 else 5.0 for step in range(60)]
    result = forecast(series, periods=(1, 7))
    assert (result.period, list(result.anomalies)) == (7, [])
    fault = forecast([*series[:-1], 6.0], periods=(1, 7))
    assert list(fault.anomalies) == [59]


def test_short_and_infinite_series_are_refused() -> None:
    with pytest.raises(SettingsError, match="7 observations; a forecast needs 8"):
        forecast([1.0] * 7 + [float("nan")])
    with pytest.raises(SettingsError, match="20 observations; a forecast needs 68"):
        forecast([1.0, 2.0] * 10, periods=(30,))
    with pytest.raises(SettingsError, match="infinite"):
        forecast([1.0] * 9 + [float("inf")])

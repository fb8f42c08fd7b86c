"""The LSTM of forecasts: chosen where figures follow each other, and not where they do not."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.command import voxline
from tests.notify.conftest import RUN
from voxline.errors import SettingsError
from voxline.forecast.lstm_forecaster import LstmForecast, forecast_together
from voxline.notify.event import MetricValue, RunEvent, RunIdentity
from voxline.notify.history import record_run

Floats = npt.NDArray[np.float64]
RUNS = 160


def leading(seed: int = 1) -> Floats:
    """Two series: noise, and one that follows its last value, not linearly, with noise of deviation 0.2."""
    chance = np.random.default_rng(seed)
    first = chance.normal(0, 1, RUNS)
    second = np.concatenate([[0.0], np.tanh(1.5 * first[:-1])]) + chance.normal(0, 0.2, RUNS)
    return np.stack([first, second], axis=1)


@pytest.fixture(scope="module")
def found() -> LstmForecast:
    return forecast_together(leading(), horizon=3)


@pytest.mark.slow
def test_a_figure_that_follows_another_one_is_predicted(found: LstmForecast) -> None:
    values = leading()
    held_out = slice(found.start, None)
    assert found.start == 120
    assert np.isnan(found.expected[: found.start]).all()
    errors = np.abs(found.expected[held_out, 1] - values[held_out, 1])
    assert errors.mean() < 0.4, "0.16 is the noise, 0.66 the error without the other figure"
    covered = np.mean(errors < found.deviation[held_out, 1])
    assert 0.45 <= covered <= 0.9


@pytest.mark.slow
def test_several_steps_ahead_the_uncertainty_grows_to_that_of_the_series(found: LstmForecast) -> None:
    values = leading()
    known = np.tanh(1.5 * values[-1, 0])
    assert found.ahead[0, 1] == pytest.approx(known, abs=0.5)
    assert found.ahead_deviation[0, 1] < found.ahead_deviation[1, 1]
    assert found.ahead_deviation[2, 1] == pytest.approx(values[:, 1].std(), rel=0.4)


def test_missing_values_are_filled_and_short_series_refused() -> None:
    values = leading()
    with pytest.raises(SettingsError, match="55 observations; the LSTM needs 56 of each figure"):
        forecast_together(values[:55])
    values[:120, 1] = np.nan
    with pytest.raises(SettingsError, match="of each figure"):
        forecast_together(values)


@pytest.mark.slow
def test_the_command_chooses_by_the_error_over_the_last_runs(tmp_path: Path) -> None:
    """`hours` leads the error rate by a night; the duration has no pattern that the LSTM could know."""
    values = leading()
    for night in range(RUNS):
        wer = 0.1 + 0.01 * values[night, 1]
        started = RUN.started + 86_400 * night
        identity = RunIdentity("asr", "nightly", "asr", id=f"night-{night:03d}", started=started)
        event = RunEvent(identity, "refused", "", started + 600 + night)
        other = MetricValue(0.2 + 0.01 * values[night, 0])
        record_run(RunEvent(**{**event.__dict__, "metrics": {"wer": MetricValue(wer), "cer": other}}), tmp_path)
    printed = voxline("runs", "forecast", tmp_path, "--method", "best", "--json")
    assert printed.returncode == 0, printed.stderr
    documents = {one["figure"]: one for one in json.loads(printed.stdout)}
    assert documents["wer"]["method"] == "lstm"
    assert documents["wer"]["errors"]["lstm"] < 0.7 * documents["wer"]["errors"]["structural"]
    assert documents["seconds"]["method"] == "structural", "it grows by a second a night"
    assert "by lstm (mean error over the last 40 runs: structural 0." in documents["wer"]["text"]
    few = voxline("runs", "forecast", tmp_path, "--method", "arima")
    assert few.returncode == 2
    assert "accepted: structural, lstm, best" in few.stderr

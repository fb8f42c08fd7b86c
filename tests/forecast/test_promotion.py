"""Whether a run will be promoted: the posterior against a grid, and calibration on histories of a stated simulation."""

import math

import numpy as np
import pytest

from voxline.errors import SettingsError
from voxline.forecast import promotion as module
from voxline.forecast.promotion import JudgedRun, predict_promotion

NIGHTS, HISTORIES = 60, 100


def simulate(seed: int) -> list[JudgedRun]:
    """The history of a team in which every night trains on all the data so far.

    It begins with 20 hours. Two nights of three add data, 3% on average (exponential). The log of a model's true error
    rate is that of 0.2 / √hours; plus the luck of the training, whose deviation is 0.01, 0.03 or 0.1 in all nights of a
    team; plus 0.05 to 0.2 in one night of ten, whose data have 1 to 3 drifted features. The gate knows the difference
    to the model in service with a deviation of 0.02, and promotes what is not worse. So does the recorded error rate.
    """
    chance = np.random.default_rng(seed)
    luck, hours, in_service, history = float(chance.choice([0.01, 0.03, 0.1])), 20.0, math.inf, list[JudgedRun]()
    for _ in range(NIGHTS):
        hours *= 1 + (chance.random() < 2 / 3) * chance.exponential(0.03)
        drift = int(chance.integers(1, 4)) if chance.random() < 0.1 else 0
        error = math.log(0.2) - 0.5 * math.log(hours) + chance.normal(0, luck)
        error += chance.uniform(0.05, 0.2) if drift else 0.0
        promoted = bool(error - in_service + chance.normal(0, 0.02) <= 0)
        history.append(JudgedRun(promoted, hours, math.exp(error + chance.normal(0, 0.02)), drift))
        in_service = error if promoted else in_service
    return history


@pytest.mark.slow
def test_the_probabilities_are_calibrated() -> None:
    """Each run predicted from those before it: in each tenth of the scale, as many are promoted as was said.

    The seeds are not those that the prior was chosen with.
    """
    predicted, promoted, shares = [], [], []
    for seed in range(5_000, 5_000 + HISTORIES):
        history = simulate(seed)
        found = predict_promotion(history, history[-1].hours)
        predicted += found.past[10:].tolist()
        promoted += [run.promoted for run in history][-len(found.past) + 10 :]
        shares.append(found.share_brier)
    probability, outcome = np.array(predicted), np.array(promoted, float)
    tenths = np.minimum((probability * 10).astype(int), 9)
    total = 0.0
    for tenth in range(10):
        inside = tenths == tenth
        error = abs(probability[inside].mean() - outcome[inside].mean()) if inside.any() else 0.0
        total += error * inside.mean()
        assert inside.sum() < 200 or error <= 0.07, f"of those from {tenth / 10} on, {outcome[inside].mean():.2f} were"
    assert total <= 0.04
    assert np.mean((probability - outcome) ** 2) <= 0.9 * np.mean(shares), "a tenth better than the share of promotions"


def test_promotions_that_follow_nothing_are_predicted_by_their_share() -> None:
    chance = np.random.default_rng(2)
    history = [JudgedRun(True, 10.0, 0.1)]
    for night in range(150):
        history.append(JudgedRun(bool(chance.random() < 0.2), 10.0 + night, 0.1 * math.exp(chance.normal(0, 0.1))))
    found = predict_promotion(history, 200.0)
    assert found.probability == pytest.approx(0.2, abs=0.1)
    assert found.brier <= found.share_brier + 0.01


def test_the_weights_posterior_is_that_of_a_grid() -> None:
    chance = np.random.default_rng(0)
    inputs = np.zeros((40, 5))
    inputs[:, 0], inputs[:, 1] = 1, chance.normal(0, 1, 40)
    outcomes = (chance.random(40) < 1 / (1 + np.exp(-(0.5 + 1.5 * inputs[:, 1])))).astype(float)
    mode, _ = module._posterior(inputs, outcomes, module._MEAN)
    intercept, growth = np.meshgrid(np.linspace(-3, 3, 301), np.linspace(-2, 4, 301), indexing="ij")
    logits = intercept[..., None] + growth[..., None] * inputs[:, 1]
    density = (outcomes * logits - np.logaddexp(0, logits)).sum(axis=-1)
    for value, mean, precision in zip((intercept, growth), module._MEAN, module._PRECISION, strict=False):
        density -= 0.5 * precision * (value - mean) ** 2
    highest = np.unravel_index(density.argmax(), density.shape)
    assert (intercept[highest], growth[highest]) == pytest.approx(tuple(mode[:2]), abs=0.02)
    np.testing.assert_allclose(mode[2:], module._MEAN[2:])


def test_more_data_a_lucky_model_refusals_and_drift_count_as_a_team_expects() -> None:
    history = simulate(5_001)
    usual = predict_promotion(history, history[-1].hours).probability
    assert predict_promotion(history, 1.5 * history[-1].hours).probability > usual
    assert predict_promotion(history, history[-1].hours, drift=3).probability < usual
    lucky = [*history, JudgedRun(True, history[-1].hours, 0.5 * history[-1].value)]
    assert predict_promotion(lucky, history[-1].hours).probability < usual


def test_unknown_hours_and_values_count_for_nothing() -> None:
    history = [JudgedRun(night % 3 == 0) for night in range(30)]
    found = predict_promotion(history, None)
    assert (found.runs, found.promoted) == (29, 9), "nothing was in service before the first one"
    assert 0.1 < found.probability < 0.6


def test_too_few_judged_runs_predict_nothing() -> None:
    refused = [JudgedRun(False, 1.0, 0.1)] * 40
    with pytest.raises(SettingsError, match="0 runs were judged against a model in service; a forecast needs 10"):
        predict_promotion(refused, 1.0)

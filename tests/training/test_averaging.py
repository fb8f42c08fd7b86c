"""Averages of weights: the moving average is the formula's, the mean is that of the best, and dev decides.

Resuming with both is in asr/test_step.py, a compiled step in test_xla.py.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.toy_family import ToyTask, ToyTrainSettings
from voxline.data.dataset import Dataset
from voxline.training.task import Samples, ValidationOutput
from voxline.training.trainer import Trainer, TrainResult

TRAINING = {"epochs": 4, "learning_rate": 0.5, "warm_up_steps": 5, "strategy": "one"}


def make_task(dataset: Dataset, **average: Any) -> ToyTask:
    return ToyTask(ToyTrainSettings.of({**TRAINING, "average": average}), dataset)


def test_the_moving_average_follows_accepted_steps_only(tones: Dataset) -> None:
    """Recomputed in float64: the first step's weights, then a decay that rises to 0.5 at step 10."""
    module = make_task(tones, ema_decay=0.5).module
    batch = next(make_task(tones).train.epoch(0))
    poisoned = dataclasses.replace(batch, features=batch.features * np.nan)
    expected, count = np.zeros(tones.features.bins), 0
    for step in range(14):
        accepted = module.train_step(poisoned if step in (0, 6) else batch, 0.3, step).accepted
        if accepted:
            count += 1
            decay = min(0.5, (count - 1) / (count + 8))
            expected = decay * expected + (1 - decay) * module.weights()["model/0"].astype(np.float64)
    assert count == 12
    average = module.averaged_weights()
    assert average is not None
    np.testing.assert_allclose(average["model/0"], expected, rtol=1e-5)
    assert np.abs(average["model/0"] - module.weights()["model/0"]).max() > 1e-3
    assert make_task(tones).module.averaged_weights() is None


class ScoredTask(ToyTask):
    """Has these dev scores in turn, and keeps the weights that each was given to."""

    def __init__(self, dataset: Dataset, scores: list[float], **average: Any) -> None:
        super().__init__(ToyTrainSettings.of({**TRAINING, "average": average}), dataset)
        self.scores, self.heard = scores, list[np.ndarray]()

    def validate(self, step: int) -> ValidationOutput:
        score = self.scores[len(self.heard)]
        self.heard.append(self.module.weights()["model/0"])
        return ValidationOutput((score,), {"mse": score}, Samples())


def train_with_scores(task: ScoredTask, folder: Path) -> tuple[TrainResult, list[np.ndarray]]:
    result = Trainer(task, folder).fit()
    assert len(task.heard) == len(task.scores)
    return result, task.heard


@pytest.mark.slow
@pytest.mark.parametrize("last", [0.05, 0.2])
def test_the_mean_of_the_best_is_exported_if_dev_says_it_is_better(last: float, tones: Dataset, tmp_path: Path) -> None:
    task = ScoredTask(tones, [0.2, 0.3, 0.1, 0.4, last], best_checkpoints=2)
    result, heard = train_with_scores(task, tmp_path)
    mean = np.mean([heard[0], heard[2]], axis=0)
    np.testing.assert_allclose(heard[4], mean, rtol=1e-6)
    # That of step 20 is needed where a damaged checkpoint lets the run resume from an older one.
    assert sorted(path.name[-2:] for path in (tmp_path / "best").iterdir()) == ["10", "20", "30"]
    better = last < 0.1
    np.testing.assert_array_equal(result.weights["model/0"], heard[4] if better else heard[2])
    assert (result.best.weights, result.best.step) == (
        ("mean of the 2 best validations", 40) if better else ("trained", 30)
    )


@pytest.mark.slow
def test_each_validation_keeps_the_better_of_the_weights_and_their_moving_average(
    tones: Dataset, tmp_path: Path
) -> None:
    """Pairs of scores: trained, averaged. Training continues from the trained weights."""
    task = ScoredTask(tones, [0.9, 0.8, 0.5, 0.6, 0.4, 0.2, 0.3, 0.3], ema_decay=0.9)
    result, heard = train_with_scores(task, tmp_path)
    assert [each.score for each in result.state.validations] == [(0.8,), (0.5,), (0.2,), (0.3,)]
    assert [each.weights for each in result.state.validations] == ["moving average", "trained"] * 2
    np.testing.assert_array_equal(result.weights["model/0"], heard[5])
    plain, without = train_with_scores(ScoredTask(tones, [0.9, 0.5, 0.4, 0.3]), tmp_path / "plain")
    for averaged, trained in zip(heard[::2], without, strict=True):
        np.testing.assert_array_equal(averaged, trained)
    assert plain.best.weights == "trained"

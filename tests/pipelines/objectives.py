"""An objective of searches that costs nothing, and the space that it is searched in."""

import math
from typing import Any

from voxline.pipelines.search.trial_files import Training, Trial

RANGES = {
    "train.learning_rate": {"log": [1e-4, 1e-1]},
    "train.warm_up_steps": {"integer": [10, 200]},
    "train.model.units": [48, 96, 128],
}
OWN = {"train.learning_rate": 1e-4, "train.warm_up_steps": 100, "train.model.units": 48}
STEPS = 10
"""In an epoch."""


def error_rate(settings: dict[str, Any], epochs: int) -> float:
    """Falls with the epochs, to a floor that is lowest at a rate of 5e-3 with 96 units."""
    away = abs(math.log10(settings["train.learning_rate"] / 5e-3))
    floor = 0.002 + 0.1 * away**2 + 0.01 * (settings["train.model.units"] != 96)
    return min(floor + 0.5 * 0.5**epochs, 1.0)


class Objective:
    """Counts the epochs that it trains, as a store that keeps what was trained."""

    def __init__(self) -> None:
        self.trained: dict[str, int] = {}
        self.epochs = 0
        self.calls = 0

    def __call__(self, trial: Trial, epochs: int) -> Training:
        self.calls += 1
        key = str(trial.settings)
        before = self.trained.get(key, 0)
        reused = before >= epochs
        self.epochs += 0 if reused else epochs - before
        self.trained[key] = max(before, epochs)
        metrics = {"steps": float(STEPS * epochs), "epochs": float(epochs)}
        value = error_rate(trial.settings, epochs)
        return Training(epochs, value, metrics, 0 if reused else before, reused, seconds=60.0, cpu_seconds=90.0)

"""Looks at the dev split: what they saw, which was the best, and the rule by which training stops early."""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.components.train.settings import TrainSettings


@dataclasses.dataclass(frozen=True)
class ValidationResult:
    """What one look at the dev split saw.

    Attributes:
      epoch: epochs that had ended.
      step: steps that were done.
      score: what weights are chosen by: the lower the better, the first number first; None without a dev split.
      figures: what a person reads of it, by name.
    """

    epoch: int
    step: int
    score: tuple[float, ...] | None
    figures: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ValidationResult":
        """From JSON, which has no tuples."""
        return cls(**{**values, "score": None if values["score"] is None else tuple(values["score"])})


@dataclasses.dataclass(frozen=True)
class Samples:
    """What a person sees and hears of a look, by name.

    Attributes:
      texts: Markdown.
      images: uint8 [height, width, 3].
      audio: float32 [samples], in [-1, 1], at `sample_rate`.
    """

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    images: dict[str, npt.NDArray[np.uint8]] = dataclasses.field(default_factory=dict)
    audio: dict[str, npt.NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    sample_rate: int = 0


def best_result(looks: list[ValidationResult]) -> ValidationResult | None:
    """The look with the lowest score, of equal ones the first; without dev, the last.

    >>> best_result(
    ...     [
    ...         ValidationResult(1, 10, (0.2, 3.0)),
    ...         ValidationResult(2, 20, (0.1, 2.0)),
    ...         ValidationResult(3, 30, (0.1, 1.0)),
    ...     ]
    ... ).step
    30
    """
    if any(look.score is None for look in looks):
        return looks[-1]
    return min(looks, key=lambda look: look.score or (), default=None)


def should_stop_early(settings: TrainSettings, looks: list[ValidationResult]) -> bool:
    """Whether the last `patience` looks brought nothing.

    A look counts as better when its score lies at least `min_improvement` under the lowest before it that counted
    as better. Training never stops before `earliest_stop_epoch` has ended, nor within the warm-up: until a CTC
    model has left the stage at which it emits only blanks, and a voice that at which it attends everywhere, the
    score says nothing.

    >>> settings = TrainSettings(name="a", patience=2, earliest_stop_epoch=1, warm_up_steps=5)
    >>> flat = [ValidationResult(epoch, 10 * epoch, (0.5, 1.0)) for epoch in (1, 2, 3)]
    >>> should_stop_early(settings, flat[:2]), should_stop_early(settings, flat)
    (False, True)
    """
    if not settings.patience or not looks:
        return False
    lowest, since = math.inf, 0
    for look in looks:
        if look.score is None:
            return False
        if look.step <= settings.warm_up_steps:
            continue
        if look.score[0] <= lowest - settings.min_improvement:
            lowest, since = look.score[0], 0
        else:
            since += 1
    return looks[-1].epoch >= settings.earliest_stop_epoch and since >= settings.patience

"""The report of a training step, whose numbers stay on the device until somebody reads them.

To read one waits until the device has computed the step. `Trainer` therefore reads the results of a GPU or a TPU some
steps late (`train.log_steps`): the device has the next steps already, and does not wait for Python between two.
"""

import dataclasses
import functools
from typing import Any

from voxline.training.batches import Batch


class StepResult:
    """Report of one training step. An attribute is read from the device when it is first used.

    Attributes:
      loss: mean over utterances, of each its loss times its weight.
      gradient_norm: global norm before clipping.
      accepted: False if the loss, the gradient or a statistic was not finite; the step then changed nothing.
      losses: the terms of the loss, by name.
    """

    def __init__(self, loss: Any, gradient_norm: Any, accepted: Any, losses: dict[str, Any]) -> None:
        self._loss = loss
        self._gradient_norm = gradient_norm
        self._accepted = accepted
        self._losses = losses

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepResult) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    @functools.cached_property
    def loss(self) -> float:
        return float(self._loss)

    @functools.cached_property
    def gradient_norm(self) -> float:
        return float(self._gradient_norm)

    @functools.cached_property
    def accepted(self) -> bool:
        return bool(self._accepted)

    @functools.cached_property
    def losses(self) -> dict[str, float]:
        return {name: float(loss) for name, loss in self._losses.items()}

    def _values(self) -> tuple[Any, ...]:
        return self.loss, self.gradient_norm, self.accepted, self.losses


@dataclasses.dataclass(frozen=True)
class UnreadStep:
    """A step whose result was not read yet.

    Attributes:
      number: completed steps, this one included.
      batch: kept to name its utterances, should the step have been skipped.
    """

    number: int
    batch: Batch
    rate: float
    result: StepResult

"""Averages of weights: a moving average over all steps, and the mean over the best validations.

Both are candidates, as the weights themselves are, and dev decides.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.training.checkpoints import Arrays
from voxline.training.layers import Tensor
from voxline.training.optimizer import assign_if

TRAINED = "trained"
MOVING = "moving average"
"""Names of the weights that a validation scored."""


class MovingAverage:
    """An exponential moving average of weights over the accepted steps (Polyak and Juditsky 1992).

    Step `t`, counted from 1, moves it to d · average + (1 - d) · weights with d = min(decay, (t - 1) / (t + 8)): it
    begins with the weights of the first step, and forgets them sooner than `decay` would
    (`tf.train.ExponentialMovingAverage` with `num_updates`). Create it inside `strategy.scope()`.

    Args:
      weights: Keras variables; statistics of normalizations are averaged too.
      decay: the share that stays in each step, such as 0.999.
    """

    def __init__(self, weights: Sequence[Any], decay: float) -> None:
        self.decay = decay
        self._weights = [weight.value for weight in weights]
        self.averages = [tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in weights]

    def update(self, strategy: Any, count: Any, accept: Tensor) -> None:
        """Follows the weights, after their update; called outside `strategy.run`.

        Args:
          count: accepted steps, this one included, float32 [].
          accept: bool []; if false nothing changes.
        """
        for average, weight in zip(self.averages, self._weights, strict=True):
            strategy.extended.update(average, self._update_one, args=(weight, count, accept), group=False)

    def update_in_replica(self, count: Any, accept: Tensor) -> None:
        """The same as `update`, within `strategy.run`."""
        for average, weight in zip(self.averages, self._weights, strict=True):
            self._update_one(average, weight, count, accept)

    def _update_one(self, average: Any, weight: Any, count: Any, accept: Tensor) -> None:
        # The average over few steps must not hold on to the first weights.
        decay = tf.minimum(self.decay, (count - 1) / (count + 8))
        assign_if(average, weight + decay * (average - weight), accept)


def mean_weights(several: Sequence[Arrays]) -> Arrays:
    """The mean of each array, computed in float64.

    >>> mean_weights([{"model/0": np.float32([1, 2])}, {"model/0": np.float32([3, 2])}])["model/0"].tolist()
    [2.0, 2.0]
    """
    return {
        # In float64: weights of many checkpoints are added.
        name: np.mean([arrays[name] for arrays in several], axis=0, dtype=np.float64).astype(first.dtype)
        for name, first in several[0].items()
    }

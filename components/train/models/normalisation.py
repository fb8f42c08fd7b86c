"""Batch normalisation over the real frames of a batch, and dropout's noise; neither changes state by itself.

All state that training changes is changed in one place, the train loop, where a step that is not finite is
left out whole: a layer that moved its own statistics in the forward pass would have taken the poison already.
"""

from typing import Any

import keras
from keras import layers, ops

Tensor = Any


class SequenceNormalisation(layers.Layer):  # type: ignore[misc]
    """Batch normalisation whose statistics are of real frames only (Ioffe and Szegedy 2015).

    Padded frames would drag the mean towards them by as much as the batch happens to be padded. The inputs'
    padded frames may hold anything; what comes out of them means nothing.

    Attributes:
      batch_statistics: (mean, variance), each [channels], of the batch last seen in training.
    """

    def __init__(self, momentum: float = 0.98, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum, self.epsilon = momentum, epsilon
        self.batch_statistics: tuple[Tensor, ...] = ()

    def build(self, shape: tuple[int | None, ...]) -> None:
        size = (shape[-1],)
        self.gamma = self.add_weight(shape=size, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=size, initializer="zeros", name="beta")
        self.moving_mean = self.add_weight(shape=size, initializer="zeros", name="moving_mean", trainable=False)
        self.moving_variance = self.add_weight(shape=size, initializer="ones", name="moving_variance", trainable=False)

    def call(self, x: Tensor, frames: Tensor, training: bool = False) -> Tensor:
        """Normalises [batch, frames, …, channels], of which `frames` [batch] are real."""
        if training:
            mean, variance = self._of_batch(x, frames)
            self.batch_statistics = (mean, variance)
        else:
            mean, variance = ops.convert_to_tensor(self.moving_mean), ops.convert_to_tensor(self.moving_variance)
        scale = ops.cast(self.gamma, "float32") * ops.rsqrt(ops.cast(variance, "float32") + self.epsilon)
        shift = ops.cast(self.beta, "float32") - ops.cast(mean, "float32") * scale
        return x * ops.cast(scale, x.dtype) + ops.cast(shift, x.dtype)

    def _of_batch(self, x: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        real = ops.arange(ops.shape(x)[1]) < ops.expand_dims(frames, 1)
        axes = tuple(range(len(x.shape) - 1))
        real = ops.reshape(real, (*ops.shape(real), *([1] * (len(x.shape) - 2))))
        inner = 1
        for size in x.shape[2:-1]:
            inner *= size
        count = ops.maximum(ops.sum(ops.cast(frames, "float32")) * inner, 1.0)
        x = ops.cast(x, "float32")
        mean = ops.sum(ops.where(real, x, 0.0), axes) / count
        variance = ops.sum(ops.where(real, ops.square(x - mean), 0.0), axes) / count
        return mean, variance


class StepSeed(keras.random.SeedGenerator):  # type: ignore[misc]
    """Hands a given pair of integers to Keras's random functions, instead of counting up a variable of its own.

    The numbers come from (seed, step), so that a resumed run drops what the first would have dropped.
    """

    def __init__(self, noise: Tensor, place: int) -> None:
        self._noise, self._place = noise, place

    def next(self, ordered: bool = True) -> Tensor:
        return ops.cast(self._noise + ops.convert_to_tensor([0, self._place], dtype="int32"), "uint32")

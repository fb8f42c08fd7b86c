"""Batch normalisation over the real frames of a batch, and dropout's noise; neither changes state by itself.

All state that training changes is changed in one place, the train loop, where a step that is not finite is
left out whole: a layer that moved its own statistics in the forward pass would have taken the poison already.
"""

from typing import Any, NamedTuple

import keras
from keras import layers, ops

Tensor = Any


class SequenceBatchNorm(layers.Layer):  # type: ignore[misc]
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


class TtsOutput(NamedTuple):
    """Speech in normalised space.

    Attributes:
      before: float32 [batch, frames', mels], as the decoder made them; frames' = steps · reduction. Zero past the end.
      mels: the same after the post-net, or `before` where the network has none.
      linear: float32 [batch, frames', linear bins] of Tacotron, else None.
      stop: float32 [batch, frames'], logit of "this frame is the last".
      alignment: float32 [batch, steps, symbols].
      frames: int32 [batch], real frames.
      hit_limit: bool [batch], ended by `max_steps` and not by itself.
    """

    before: Tensor
    mels: Tensor
    linear: Tensor | None
    stop: Tensor
    alignment: Tensor
    frames: Tensor
    hit_limit: Tensor


def length_mask(counts: Tensor, longest: Tensor) -> Tensor:
    """bool [batch, longest], true within each row's count."""
    return ops.arange(longest) < ops.expand_dims(ops.cast(counts, "int32"), 1)


def mask_padding(x: Tensor, counts: Tensor) -> Tensor:
    """[batch, length, …] with zeros past each row's count, whatever stood there."""
    inside = length_mask(counts, ops.shape(x)[1])
    return ops.where(ops.expand_dims(inside, -1), x, ops.zeros((), x.dtype))


def dropout(x: Tensor, rate: float, training: bool, noise: Tensor, place: int) -> Tensor:
    """Dropout from given noise."""
    if not training or not rate or noise is None:
        return x
    return keras.random.dropout(x, rate, seed=StepSeed(noise, place))


class ConvBatchNorm(layers.Layer):  # type: ignore[misc]
    """Convolution over time, batch normalisation over what is real, activation; padding comes out as zero.

    "same" with a stride of 1 pads by the kernel alone, so the batch's length does not matter.
    """

    def __init__(
        self, channels: int, taps: int, *, activation: str | None, seed: int, first: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.convolution = layers.Conv1D(
            channels,
            taps,
            padding="same",
            use_bias=False,
            kernel_initializer=keras.initializers.GlorotUniform(seed),
            dtype=self.dtype_policy,
        )
        self.norm = SequenceBatchNorm(dtype=self.dtype_policy)
        self.activation, self.first = keras.activations.get(activation), first

    def call(self, x: Tensor, counts: Tensor, training: bool = False) -> Tensor:
        """[batch, length, channels] whose padding is zero; `first`: the activation stands before the normalisation."""
        x = self.convolution(x)
        if self.first:
            x = self.norm(self.activation(x), counts, training=training)
        else:
            x = self.activation(self.norm(x, counts, training=training))
        return mask_padding(x, counts)


def bidirectional(kind: type[Any], units: int, seeds: list[int], precision: Any, portable: bool) -> layers.Layer:
    """A GRU or LSTM in both directions; `portable` keeps cuDNN out of the graph."""

    def one(drawn: list[int], backward: bool) -> layers.Layer:
        kernel, state = drawn
        return kind(
            units,
            return_sequences=True,
            go_backwards=backward,
            kernel_initializer=keras.initializers.GlorotUniform(kernel),
            recurrent_initializer=keras.initializers.Orthogonal(seed=state),
            use_cudnn=False if portable else "auto",
            dtype=precision,
        )

    return layers.Bidirectional(one(seeds[:2], False), backward_layer=one(seeds[2:], True), dtype=precision)

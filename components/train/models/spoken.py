"""What a voice gives back, and the masks and convolutions that its parts share."""

from typing import Any, NamedTuple

import keras
from keras import layers, ops

from components.train.models.normalisation import SequenceNormalisation, StepSeed

Tensor = Any


class Spoken(NamedTuple):
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


def real(counts: Tensor, longest: Tensor) -> Tensor:
    """bool [batch, longest], true within each row's count."""
    return ops.arange(longest) < ops.expand_dims(ops.cast(counts, "int32"), 1)


def silenced(x: Tensor, counts: Tensor) -> Tensor:
    """[batch, length, …] with zeros past each row's count, whatever stood there."""
    inside = real(counts, ops.shape(x)[1])
    return ops.where(ops.expand_dims(inside, -1), x, ops.zeros((), x.dtype))


def dropped(x: Tensor, rate: float, training: bool, noise: Tensor, place: int) -> Tensor:
    """Dropout from given noise."""
    if not training or not rate or noise is None:
        return x
    return keras.random.dropout(x, rate, seed=StepSeed(noise, place))


class NormalisedConvolution(layers.Layer):  # type: ignore[misc]
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
        self.norm = SequenceNormalisation(dtype=self.dtype_policy)
        self.activation, self.first = keras.activations.get(activation), first

    def call(self, x: Tensor, counts: Tensor, training: bool = False) -> Tensor:
        """[batch, length, channels] whose padding is zero; `first`: the activation stands before the normalisation."""
        x = self.convolution(x)
        if self.first:
            x = self.norm(self.activation(x), counts, training=training)
        else:
            x = self.activation(self.norm(x, counts, training=training))
        return silenced(x, counts)


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

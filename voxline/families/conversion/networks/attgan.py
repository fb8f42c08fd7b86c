"""AttGAN: mels to the same words by a voice with other attributes, and the networks that judge it.

He et al. 2017, arXiv 1711.10678, with mels in place of a face: an encoder of 4×4 convolutions of stride 2, and a
decoder that gets their output and the target attributes. One more layer of the encoder goes to the decoder too (the
short cut), and the attributes go to it twice (the injection). Where this differs
from the paper: docs/decisions/0086.
"""

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.training.layers import Composite, SequenceBatchNorm, Tensor, dropout

KERNEL = 4
STRIDE = 2
SLOPE = 0.2
"""Negative slope of the leaky ReLUs."""
NORM_EPSILON = 1e-5


class AttGan(Composite, keras.Model):  # type: ignore[misc]
    """Encoder and decoder.

    Args:
      bins: of a frame.
      values: length of an attribute vector.
      channels: of the first convolution; each layer has twice as many as the one before.
      depth: layers of the encoder, and of the decoder; at least 2.
      seed: of the initial weights.

    >>> mels, attributes = np.zeros((2, 8, 6), "float32"), np.array([[1, -1], [-1, 1]], "float32")
    >>> AttGan(bins=6, values=2, channels=2, depth=2)(mels, attributes).shape
    TensorShape([2, 8, 6])
    """

    def __init__(self, *, bins: int, values: int, channels: int, depth: int, seed: int = 1) -> None:
        super().__init__(name="attgan")
        seeds = _Seeds(seed, 6)
        self.bins = bins
        self.factor = STRIDE**depth
        """Frames must be a multiple of `factor`."""

        # Encoder: channels, 2 · channels, 4 · channels, …; the decoder takes the same way back.
        sizes = [channels << number for number in range(depth)]
        self.down = [_convolution(layers.Conv2D, size, seeds) for size in sizes]
        self.down_norms = [SequenceBatchNorm() for _ in sizes]
        self.up = [_convolution(layers.Conv2DTranspose, size, seeds) for size in reversed(sizes[1:])]
        self.up_norms = [SequenceBatchNorm() for _ in self.up]
        self.last = _convolution(layers.Conv2DTranspose, 1, seeds, bias=True)
        self(np.zeros((1, self.factor, bins), "float32"), np.zeros((1, values), "float32"))

    @property
    def normalizations(self) -> list[SequenceBatchNorm]:
        """The layers whose moving statistics the trainer updates after an accepted step."""
        return [*self.down_norms, *self.up_norms]

    def call(self, mels: Tensor, attributes: Tensor, training: bool = False) -> Tensor:
        """Takes normalized mels [batch, frames, bins] and attribute vectors [batch, values]; returns mels."""
        return self.decode(self.encode(mels, training=training), attributes, training=training)

    def encode(self, mels: Tensor, training: bool = False) -> tuple[Tensor, Tensor]:
        """The last two layers' output, [batch, frames / f, bins / f, channels]: the short cut, and what is decoded."""

        # [batch, frames, bins, 1]; bins are padded to a multiple of all strides.
        x = ops.pad(mels, [(0, 0), (0, 0), (0, -self.bins % self.factor)])[..., None]
        outputs = []
        for convolution, norm in zip(self.down, self.down_norms, strict=True):
            x = convolution(x)
            x = ops.leaky_relu(norm(x, _all_frames(x), training=training), SLOPE)
            outputs.append(x)
        return outputs[-2], outputs[-1]

    def decode(self, encoded: tuple[Tensor, Tensor], attributes: Tensor, training: bool = False) -> Tensor:
        """Normalized mels [batch, frames, bins].

        Args:
          encoded: as `encode` returned it.
          attributes: [batch, values].
        """

        # Attributes join the code, and once more the first layer of the decoder with the short cut.
        short_cut, x = encoded
        x = _inject(x, attributes)
        for number, (convolution, norm) in enumerate(zip(self.up, self.up_norms, strict=True)):
            x = convolution(x)
            x = ops.relu(norm(x, _all_frames(x), training=training))
            if number == 0:
                x = _inject(ops.concatenate([x, short_cut], axis=-1), attributes)

        return self.last(x)[:, :, : self.bins, 0]


class MelDiscriminator(Composite, keras.Model):  # type: ignore[misc]
    """4×4 convolutions of stride 2 with instance norm, and a head of two dense layers for each question.

    The critic of the training asks both whether mels are recorded and which attributes they have; the classifier that
    judges the result asks the latter only, and has weights of its own.

    Args:
      frames, bins: of the mels that it reads.
      values: length of an attribute vector.
      units: of the first dense layer of a head.
      criticizes: whether it has the critic's head.
      dropout_rate: of what the heads read.
    """

    def __init__(
        self,
        *,
        frames: int,
        bins: int,
        values: int,
        channels: int,
        depth: int,
        units: int,
        criticizes: bool,
        dropout_rate: float = 0.0,
        seed: int = 1,
    ) -> None:
        super().__init__(name="critic" if criticizes else "classifier")
        seeds = _Seeds(seed, 7 if criticizes else 8)
        self.convolutions = [_convolution(layers.Conv2D, channels << number, seeds) for number in range(depth)]
        self.norms = [InstanceNorm() for _ in self.convolutions]

        # The same convolutions serve both heads.
        self.attribute_head = [_dense(units, seeds), _dense(values, seeds)]
        self.critic_head = [_dense(units, seeds), _dense(1, seeds)] if criticizes else []
        self.dropout_rate = dropout_rate
        self(np.zeros((1, frames, bins), "float32"))

    @property
    def normalizations(self) -> list[Any]:
        return []  # instance norm has no moving statistics

    def call(self, mels: Tensor, training: bool = False, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores normalized mels [batch, frames, bins]: how recorded they are [batch], and attributes [batch, values].

        Args:
          noise: int [2], the seed of dropout.
        """

        # [batch, frames, bins, 1] → [batch, frames / f, bins / f, channels]
        x = mels[..., None]
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = ops.leaky_relu(norm(convolution(x)), SLOPE)

        # [batch, values of all positions]
        x = ops.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3]))
        x = dropout(x, self.dropout_rate, training, noise, 1)
        logits = _head(x, self.attribute_head)

        return (_head(x, self.critic_head)[:, 0] if self.critic_head else ops.zeros_like(logits[:, 0])), logits


class InstanceNorm(layers.Layer):  # type: ignore[misc]
    """γ (x - μ) / sqrt(σ² + ε) + β, with μ and σ² of each row and channel (Ulyanov et al. 2016, arXiv 1607.08022)."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x: Tensor) -> Tensor:
        """Normalizes [batch, frames, bins, channels]."""
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        variance = ops.mean(ops.square(x - mean), axis=(1, 2), keepdims=True)
        return (x - mean) * ops.rsqrt(variance + NORM_EPSILON) * self.gamma + self.beta


class _Seeds:
    """Seeds of initial weights, one after the other."""

    def __init__(self, seed: int, stream: int) -> None:
        self._random = np.random.default_rng(np.random.SeedSequence([seed, stream]))

    def next(self) -> int:
        return int(self._random.integers(2**31))


def _convolution(kind: Any, channels: int, seeds: _Seeds, *, bias: bool = False) -> Any:
    # "same" with a stride of 2 on an even size: one zero on each side, as in PyTorch with a padding of 1.
    initializer = keras.initializers.GlorotUniform(seeds.next())
    return kind(channels, KERNEL, STRIDE, padding="same", use_bias=bias, kernel_initializer=initializer)


def _dense(units: int, seeds: _Seeds) -> Any:
    return layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(seeds.next()))


def _head(x: Tensor, dense: list[Any]) -> Tensor:
    return dense[1](ops.leaky_relu(dense[0](x), SLOPE))


def _inject(x: Tensor, attributes: Tensor) -> Tensor:
    """Attribute vectors as further channels of every position of [batch, frames, bins, channels]."""
    everywhere = ops.ones_like(x[..., :1])
    return ops.concatenate([x, everywhere * attributes[:, None, None, :]], axis=-1)


def _all_frames(x: Tensor) -> Tensor:
    return ops.full((ops.shape(x)[0],), ops.shape(x)[1], dtype="int32")

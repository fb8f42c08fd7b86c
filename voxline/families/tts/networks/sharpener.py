"""A network that gives smoothed mels the detail of recorded ones, the critic that it learns from, and their norm.

After DeblurGAN (Kupyn et al. 2018, arXiv 1711.07064), with mels in place of an image: a 7×7 convolution, two strided
ones, residual blocks at a quarter of the frames and bins, two up-samplings, each added to what had its size on the way
down, and a 7×7 convolution, whose output is added to the input. Where this differs: docs/decisions/0085.
"""

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.training.layers import Composite, Tensor, length_mask, mask_padding

FACTOR = 4
"""Frames, and bins, of one position of the residual blocks."""
SLOPE = 0.2
"""Negative slope of the critic's leaky ReLUs."""
CRITIC_LAYERS = 4


class SwitchableNorm(layers.Layer):  # type: ignore[misc]
    """Normalizes by a learned mix of three statistics (Luo et al. 2019, arXiv 1806.10779, equations 3 to 5).

      y = γ (x - Σ w_k μ_k) / sqrt(Σ v_k σ²_k + ε) + β,  k over instance, layer and batch, w and v softmaxes

    Instance: of a row and channel; layer: of a row; batch: of a channel. Statistics are over real frames only, and
    inference takes the moving ones of the batch, so that a row gives what it gives alone.

    Attributes:
      batch_statistics: (mean, variance) over the batch, each [channels], of the last batch in training.
      frozen: whether it takes the moving ones of the batch in training too (`train.freeze`).
    """

    def __init__(self, momentum: float = 0.98, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.frozen = False
        self.momentum = momentum
        self.epsilon = epsilon
        self.batch_statistics: tuple[Tensor, ...] = ()

    def build(self, shape: tuple[int | None, ...]) -> None:
        size = (shape[-1],)
        self.gamma = self.add_weight(shape=size, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=size, initializer="zeros", name="beta")
        self.mean_logits = self.add_weight(shape=(3,), initializer="ones", name="mean_logits")
        self.variance_logits = self.add_weight(shape=(3,), initializer="ones", name="variance_logits")
        self.moving_mean = self.add_weight(shape=size, initializer="zeros", name="moving_mean", trainable=False)
        self.moving_variance = self.add_weight(shape=size, initializer="ones", name="moving_variance", trainable=False)

    def call(self, x: Tensor, real: Tensor, training: bool = False) -> Tensor:
        """Normalizes [batch, frames, bins, channels].

        Args:
          real: bool [batch, frames, 1, 1]; what comes out of other frames is undefined.
        """

        # Real positions of a row, [batch, 1, 1, 1].
        count = ops.sum(ops.cast(real, x.dtype), axis=(1, 2, 3), keepdims=True) * x.shape[2]
        count = ops.maximum(count, 1.0)

        # Instance statistics, of a row and channel: [batch, 1, 1, channels].
        mean = ops.sum(ops.where(real, x, 0.0), axis=(1, 2), keepdims=True) / count
        variance = ops.sum(ops.where(real, ops.square(x - mean), 0.0), axis=(1, 2), keepdims=True) / count

        # Layer statistics, of a row: [batch, 1, 1, 1]. The variance of means is part of them.
        row_mean = ops.mean(mean, axis=-1, keepdims=True)
        row_variance = ops.mean(variance + ops.square(mean - row_mean), axis=-1, keepdims=True)
        if training and not self.frozen:
            # Batch statistics, of a channel: [1, 1, 1, channels]; rows count by their frames.
            share = count / ops.sum(count)
            batch_mean = ops.sum(share * mean, axis=0, keepdims=True)
            batch_variance = ops.sum(share * (variance + ops.square(mean - batch_mean)), axis=0, keepdims=True)
            self.batch_statistics = (ops.reshape(batch_mean, (-1,)), ops.reshape(batch_variance, (-1,)))
        else:
            batch_mean = ops.convert_to_tensor(self.moving_mean)
            batch_variance = self.moving_variance

        # The mixes μ = Σ w_k μ_k and σ² = Σ v_k σ²_k, then γ (x - μ) / σ + β.
        w = ops.softmax(self.mean_logits)
        v = ops.softmax(self.variance_logits)
        mean = w[0] * mean + w[1] * row_mean + w[2] * batch_mean
        variance = v[0] * variance + v[1] * row_variance + v[2] * batch_variance
        scale = self.gamma * ops.rsqrt(variance + self.epsilon)

        return x * scale + (self.beta - mean * scale)


class SharpenerBlock(Composite, layers.Layer):  # type: ignore[misc]
    """x + norm(convolution(relu(norm(convolution(x)))))."""

    def __init__(self, channels: int, draws: "_Convolutions") -> None:
        super().__init__()
        self.convolutions = [draws.make(channels, 3), draws.make(channels, 3)]
        self.norms = [SwitchableNorm(), SwitchableNorm()]

    def call(self, x: Tensor, real: Tensor, training: bool = False) -> Tensor:
        """Takes and returns [batch, frames, bins, channels], zero where `real` is false."""

        # [batch, frames, bins, channels]
        y = ops.relu(self.norms[0](self.convolutions[0](x), real, training=training))
        y = self.norms[1](self.convolutions[1](ops.where(real, y, 0.0)), real, training=training)
        return x + ops.where(real, y, 0.0)


class Sharpener(Composite, keras.Model):  # type: ignore[misc]
    """Turns smoothed mels into sharp ones. Untrained, it returns its input.

    Args:
      channels: of the first convolution; the residual blocks have four times as many.
      blocks: how many of them.
      seed: of the initial weights.

    >>> mels = np.random.default_rng(1).normal(size=(2, 11, 6)).astype("float32")
    >>> sharp = Sharpener(channels=2, blocks=1)(mels, np.array([11, 11]))
    >>> sharp.shape, bool(np.array_equal(sharp, mels))
    (TensorShape([2, 11, 6]), True)
    """

    def __init__(self, *, channels: int, blocks: int, seed: int = 1) -> None:
        super().__init__(name="sharpener")
        draws = _Convolutions(seed)

        # 7 × 7 at full size, then two strided convolutions: half and a quarter of frames and bins.
        self.down = [draws.make(channels, 7), draws.make(2 * channels, 3, 2), draws.make(4 * channels, 3, 2)]
        self.down_norms = [SwitchableNorm() for _ in self.down]
        self.blocks = [SharpenerBlock(4 * channels, draws) for _ in range(blocks)]
        self.up = [draws.make(2 * channels, 3), draws.make(channels, 3)]
        self.up_norms = [SwitchableNorm() for _ in self.up]

        # Zeros: the residual is nothing at first, and the network the identity.
        self.last = layers.Conv2D(1, 7, padding="same", kernel_initializer="zeros")
        self(np.zeros((1, FACTOR, FACTOR), "float32"), np.array([FACTOR]))

    @property
    def normalizations(self) -> list[SwitchableNorm]:
        """The layers whose moving statistics the trainer updates after an accepted step."""
        return [layer for layer in self._flatten_layers() if isinstance(layer, SwitchableNorm)]

    def call(self, mels: Tensor, frames: Tensor, training: bool = False) -> Tensor:
        """Takes and returns normalized mels, float32 [batch, frames, bins]; zero beyond a row's frames.

        Args:
          frames: int [batch], real frames; a row gives what it gives alone.
        """
        count = ops.shape(mels)[1]
        bins = mels.shape[2]
        frames = ops.cast(frames, "int32")
        mels = mask_padding(mels, frames)

        # [batch, frames, bins, 1], padded to multiples of FACTOR.
        x = ops.expand_dims(ops.pad(mels, [(0, 0), (0, -count % FACTOR), (0, -bins % FACTOR)]), -1)
        length = ops.shape(x)[1]

        # Real positions at each of the three sizes, [batch, frames / size, 1, 1].
        masks = [
            ops.reshape(length_mask((frames + size - 1) // size, length // size), (-1, length // size, 1, 1))
            for size in (1, 2, FACTOR)
        ]

        # Down; each output is kept for the way up.
        skips = []
        for convolution, norm, real in zip(self.down, self.down_norms, masks, strict=True):
            if convolution.strides != (1, 1):
                x = ops.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
            x = ops.where(real, ops.relu(norm(convolution(x), real, training=training)), 0.0)
            skips.append(x)

        # Residual blocks at a quarter of the size.
        for block in self.blocks:
            x = block(x, masks[2], training=training)

        # Up, by nearest neighbors: transposed convolutions leave a checkerboard (Odena et al. 2016).
        for convolution, norm, size in zip(self.up, self.up_norms, (1, 0), strict=True):
            x = norm(convolution(ops.repeat(ops.repeat(x, 2, axis=1), 2, axis=2)), masks[size], training=training)
            x = skips[size] + ops.where(masks[size], ops.relu(x), 0.0)

        # [batch, frames, bins]
        residual = self.last(x)[:, :count, :bins, 0]

        return mask_padding(mels + residual, frames)


class MelCritic(Composite, keras.Model):  # type: ignore[misc]
    """Scores how much more a segment of mels is like recorded than like sharpened ones: a Wasserstein GAN's critic.

    It sees the smoothed mels too. It has no norm: its gradient is bounded row by row (Gulrajani et al. 2017).

    Args:
      frames, bins: of a segment.
      channels: of the first of four convolutions; each has twice as many as the one before.
      units: of the layer before the last.
      seed: of the initial weights.
    """

    def __init__(self, *, frames: int, bins: int, channels: int, units: int, seed: int = 1) -> None:
        super().__init__(name="critic")
        draws = _Convolutions(seed + 1)
        self.convolutions = [draws.make(channels << number, 4, 2, "same") for number in range(CRITIC_LAYERS)]
        self.widen = layers.Dense(units, kernel_initializer=draws.initializer())
        self.last = layers.Dense(1, kernel_initializer=draws.initializer())
        self(np.zeros((1, frames, bins), "float32"), np.zeros((1, frames, bins), "float32"))

    def call(self, mels: Tensor, smoothed: Tensor) -> Tensor:
        """Takes normalized mels [batch, frames, bins] twice; returns [batch]."""

        # [batch, frames, bins, 2] → [batch, frames / 16, bins / 16, channels] → [batch]
        x = ops.stack([mels, smoothed], axis=-1)
        for convolution in self.convolutions:
            x = ops.leaky_relu(convolution(x), SLOPE)
        x = ops.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3]))
        return self.last(ops.leaky_relu(self.widen(x), SLOPE))[:, 0]


class _Convolutions:
    """Makes 2-D convolutions, each with a seed of its own for its initial weights (He et al. 2015)."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(np.random.SeedSequence([seed, 5]))

    def initializer(self) -> keras.initializers.Initializer:
        return keras.initializers.HeNormal(int(self._random.integers(2**31)))

    def make(self, channels: int, kernel: int, stride: int = 1, padding: str = "") -> layers.Layer:
        padding = padding or ("same" if stride == 1 else "valid")
        return layers.Conv2D(channels, kernel, strides=stride, padding=padding, kernel_initializer=self.initializer())

"""Conformer with CTC: convolutional subsampling, blocks of self-attention and convolution, a dense layer.

After Gulati et al. 2020, "Conformer: Convolution-augmented Transformer for Speech Recognition" (arXiv 2005.08100), with
rotary positions (Su et al. 2021, arXiv 2104.09864) in place of Transformer-XL's relative ones: Zhang et al. 2025 (arXiv
2501.06051) measured no more errors and up to 21% less training time. Where else it differs: docs/decisions/0068.

Padding changes nothing: convolutions see zeros beyond an utterance's end, attention does not see these frames, and the
statistics of batch normalization leave them out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import ConformerSettings
from voxline.training.layers import (
    Composite,
    FeatureNormalizer,
    SequenceBatchNorm,
    Tensor,
    dropout,
    length_mask,
    mask_padding,
)

SLOWEST = 10_000.0
"""The base of the rotations: pair `i` of `n` turns by position / SLOWEST^(i / n) radians."""


class Conformer(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from raw features; a `CtcModel`, whose arguments it takes.

    >>> settings = ConformerSettings(units=8, heads=2, layers=1, padding=0)
    >>> model = Conformer(settings, mean=[0.0] * 40, deviation=[1.0] * 40, classes=29)
    >>> logits, frames = model(np.zeros((2, 31, 40), "float32"), np.array([31, 7]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 8, 29]), [8, 2])
    """

    def __init__(
        self,
        settings: ConformerSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="conformer")
        self.settings = settings
        self.normalize = FeatureNormalizer(mean, deviation, settings.top_db)
        halvings = settings.time_stride.bit_length() - 1
        seeds = iter(np.random.SeedSequence(seed).generate_state(halvings + 2 + 9 * settings.layers).tolist())

        # Convolutions of stride 2, each halving frames and bins.
        self.subsampling = [
            layers.Conv2D(
                settings.units,
                3,
                strides=2,
                activation="relu",
                kernel_initializer=keras.initializers.HeNormal(next(seeds)),
                dtype=precision,
            )
            for _ in range(halvings)
        ]

        # [frames, units · bins / stride] → [frames, units]
        self.projection = _dense(settings.units, seeds, precision)
        self.blocks = [ConformerBlock(settings, seeds, dtype=precision) for _ in range(settings.layers)]
        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = _dense(classes, seeds, "float32")
        self(
            np.zeros((1, 2 * settings.time_stride, self.normalize.bins), "float32"),
            np.array([2 * settings.time_stride]),
        )

    @property
    def normalizations(self) -> list[SequenceBatchNorm]:
        """The layers whose moving statistics the trainer updates after an accepted step."""
        return [block.convolution_norm for block in self.blocks]

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network; see `CtcModel`."""

        # [batch, frames, bins], zero beyond the end and in the frames of padding.
        x = self.normalize(features, frames)
        x = ops.cast(mask_padding(x, frames), self.compute_dtype)
        padding = self.settings.padding
        x = ops.pad(x, [(0, 0), (padding, padding), (0, 0)])
        frames = ops.cast(frames, "int32") + 2 * padding

        # [batch, frames, bins, 1] → [batch, frames / stride, bins / stride, units]
        x = ops.expand_dims(x, -1)
        for convolution in self.subsampling:  # output i is centered on input 2 · i, whatever the batch's length
            x = convolution(ops.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]))
            frames = (frames + 1) // 2
            x = x * ops.cast(length_mask(frames, ops.shape(x)[1]), x.dtype)[:, :, None, None]

        # [batch, frames, units] from here on.
        x = self.projection(ops.reshape(x, (ops.shape(x)[0], -1, x.shape[2] * x.shape[3])))
        x = dropout(x, self.settings.dropout, training, noise, 0)
        rotation = rotary_angles(ops.shape(x)[1], self.settings.units // self.settings.heads)
        for index, block in enumerate(self.blocks):
            # Each block has its own seed, since a step has only a hundred streams of a seed for itself.
            block_noise = None if noise is None else noise + ops.convert_to_tensor([index + 1, 0], dtype="int32")
            x = block(x, frames, rotation, training=training, noise=block_noise)

        return self.classifier(x), frames


class ConformerBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Half a feed-forward module, self-attention, a convolution module, half a feed-forward module, layer norm.

    Equation 1 of the paper: each module adds to its input, which it normalizes first.
    """

    def __init__(self, settings: ConformerSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        policy = self.dtype_policy
        units = settings.units

        def norm() -> layers.LayerNormalization:
            return layers.LayerNormalization(epsilon=1e-5, dtype=policy)

        def feed_forward() -> list[layers.Layer]:
            return [norm(), _dense(settings.feed_forward * units, seeds, policy), _dense(units, seeds, policy)]

        # Each module has its norm first. The seeds are drawn in this order.
        self.first = feed_forward()
        self.second = feed_forward()
        self.attention_norm = norm()
        self.query_key_value = _dense(3 * units, seeds, policy)
        self.attended = _dense(units, seeds, policy)
        self.convolution_input_norm = norm()
        self.gated = _dense(2 * units, seeds, policy)
        self.convolution = layers.DepthwiseConv1D(
            settings.kernel,
            padding="same",
            use_bias=False,
            depthwise_initializer=keras.initializers.GlorotUniform(next(seeds)),
            dtype=policy,
        )
        self.convolution_norm = SequenceBatchNorm(dtype=policy)
        self.convolved = _dense(units, seeds, policy)
        self.output_norm = norm()

    def call(
        self,
        x: Tensor,
        frames: Tensor,
        rotation: tuple[Tensor, Tensor],
        training: bool = False,
        noise: Tensor | None = None,
    ) -> Tensor:
        def drop(y: Tensor, stream: int) -> Tensor:
            return dropout(y, self.settings.dropout, training, noise, stream)

        def feed_forward(y: Tensor, module: list[Any], stream: int) -> Tensor:
            norm, wide, narrow = module
            return drop(narrow(drop(ops.silu(wide(norm(y))), stream)), stream + 1)

        # Equation 1: ½ FFN, MHSA, Conv, ½ FFN, then the norm.
        x = x + 0.5 * feed_forward(x, self.first, 0)
        x = x + drop(self._attend(self.attention_norm(x), frames, rotation), 2)
        x = x + drop(self._convolve(self.convolution_input_norm(x), frames, training), 3)
        x = x + 0.5 * feed_forward(x, self.second, 4)

        return self.output_norm(x)

    def _attend(self, x: Tensor, frames: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        batch, length = ops.shape(x)[:2]
        heads = self.settings.heads
        units = self.settings.units

        # [batch, frames, 3, heads, units / heads]
        projected = ops.reshape(self.query_key_value(x), (batch, length, 3, heads, units // heads))
        query = rotate(projected[:, :, 0], rotation)
        key = rotate(projected[:, :, 1], rotation)

        # Keys beyond the end are hidden from all queries: [batch, 1, 1, frames].
        real = length_mask(frames, length)[:, None, None, :]
        attended = ops.dot_product_attention(query, key, projected[:, :, 2], mask=real)
        return self.attended(ops.reshape(attended, (batch, length, units)))

    def _convolve(self, x: Tensor, frames: Tensor, training: bool) -> Tensor:
        # Gated linear unit, depthwise convolution, batch normalization, swish, and a dense layer (figure 2).
        value, gate = ops.split(self.gated(x), 2, axis=-1)
        x = self.convolution(mask_padding(value * ops.sigmoid(gate), frames))
        return self.convolved(ops.silu(self.convolution_norm(x, frames, training=training)))


def rotary_angles(length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotation of each pair of values at each position, float32 [length, size / 2].

    >>> [values.shape for values in rotary_angles(5, 8)]
    [TensorShape([5, 4]), TensorShape([5, 4])]
    """

    # θ_i = SLOWEST^(-i / n), the angle of pair i from one position to the next.
    speeds = SLOWEST ** -(np.arange(size // 2, dtype="float32") / (size // 2))
    angles = ops.expand_dims(ops.cast(ops.arange(length), "float32"), 1) * speeds
    return ops.cos(angles), ops.sin(angles)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotates the pairs (i, i + size / 2) of [batch, length, heads, size] by their position's angles.

    The product of a rotated query and a rotated key depends on the distance of their positions alone.
    """

    # [length, 1, size / 2], the same for all heads.
    cosine, sine = (ops.cast(values, x.dtype)[:, None, :] for values in rotation)
    left, right = ops.split(x, 2, axis=-1)
    return ops.concatenate([left * cosine - right * sine, left * sine + right * cosine], axis=-1)


def _dense(units: int, seeds: Iterator[int], dtype: Any) -> layers.Dense:
    return layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)), dtype=dtype)

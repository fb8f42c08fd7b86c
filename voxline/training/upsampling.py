"""The upsampling of HiFi-GAN's generator, which vocoders and VITS share: frames in, a step for each sample out.

After Kong, Kim and Bae 2020, "HiFi-GAN: Generative Adversarial Networks for Efficient and High Fidelity Speech
Synthesis" (arXiv 2010.05646), section 2.2.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import layers, ops

from voxline.training.layers import Composite, Tensor, length_mask, mask
from voxline.training.upsampling_settings import UpsamplingSettings

SLOPE = 0.1
"""Negative slope of leaky ReLUs."""
LAST_SLOPE = 0.01
"""The slope before the last convolution, which has PyTorch's default in the authors' code."""


class Upsampling:
    """The layers and the computation, for a network that has further layers around them.

    Attributes:
      first: the convolution of the frames.
      upsampling: transposed convolutions, each of which halves the channels.
      residuals: residual blocks behind each of them, one of each kernel size.
    """

    def make_upsampling(self, settings: UpsamplingSettings, draws: "Draws") -> None:
        """Makes the layers.

        Args:
          draws: makes them; one transposed convolution after another, each with its residual blocks.
        """
        channels = settings.channels
        self._upsample_rates = settings.upsample_rates
        self._upsample_kernels = settings.upsample_kernels
        self.first = draws.convolution(channels, 7)
        self.upsampling: list[layers.Layer] = []
        self.residuals: list[list[ResidualBlock]] = []

        for rate, kernel in zip(settings.upsample_rates, settings.upsample_kernels, strict=True):
            channels //= 2
            self.upsampling.append(
                layers.Conv1DTranspose(
                    channels, kernel, strides=rate, kernel_initializer=draws.initializer(), dtype=draws.precision
                )
            )
            self.residuals.append(
                [
                    ResidualBlock(channels, size, dilations, settings.residual_block == "double", draws)
                    for size, dilations in zip(settings.residual_kernels, settings.residual_dilations, strict=True)
                ]
            )

    def upsample(self, x: Tensor, frames: Tensor | None = None, speaker: Tensor | None = None) -> Tensor:
        """Takes [batch, count, inputs], and returns [batch, count · hop, channels / 2^layers].

        Args:
          frames: int [batch], the real ones, beyond which x is zero; None: all.
          speaker: added to the first convolution, [batch, 1, channels]; None: nothing.
        """
        count = ops.shape(x)[1]
        real = real_steps(frames, count, 1)
        x = self.first(x)
        if speaker is not None:
            x = x + speaker
        x = mask(x, real)

        factor = 1
        sizes = zip(self._upsample_rates, self._upsample_kernels, self.upsampling, self.residuals, strict=True)
        for rate, kernel, upsample, blocks in sizes:
            # [batch, count · factor, channels]; a transposed convolution overhangs on both sides alike.
            overhang = (kernel - rate) // 2
            factor = factor * rate
            x = upsample(ops.leaky_relu(x, SLOPE))[:, overhang : overhang + count * factor]
            real = real_steps(frames, count, factor)
            x = mask(x, real)

            # Multi-receptive field fusion: the mean of residual blocks of different kernels.
            branches = [block(x, real) for block in blocks]
            x = sum(branches[1:], branches[0]) / len(branches)

        return x


def real_steps(frames: Tensor | None, count: Tensor, factor: int) -> Tensor | None:
    """bool [batch, count · factor, 1], true for the steps of real frames, each of which has `factor`; None: all are."""
    if frames is None:
        return None
    return ops.expand_dims(length_mask(ops.cast(frames, "int32") * factor, count * factor), -1)


class ResidualBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Residual convolutions of one kernel size, each with its own dilation."""

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int], double: bool, draws: "Draws") -> None:
        super().__init__(dtype=draws.precision)
        self.dilated = [draws.convolution(channels, kernel, dilation) for dilation in dilations]
        self.undilated = [draws.convolution(channels, kernel) for _ in dilations] if double else []

    def call(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Takes and returns [batch, samples, channels], zero where `real` is false."""

        # Each pair of convolutions has a residual connection.
        for index, convolution in enumerate(self.dilated):
            y = mask(convolution(ops.leaky_relu(x, SLOPE)), real)
            if self.undilated:
                y = mask(self.undilated[index](ops.leaky_relu(y, SLOPE)), real)
            x = x + y
        return x


class Draws:
    """Makes layers, each with a seed of its own for its initial weights: normal with a deviation of 0.01."""

    def __init__(self, seed: int, stream: int, precision: str) -> None:
        self.precision = precision
        self._random = np.random.default_rng(np.random.SeedSequence([seed, stream]))

    def initializer(self) -> keras.initializers.Initializer:
        return keras.initializers.RandomNormal(stddev=0.01, seed=int(self._random.integers(2**31)))

    def convolution(
        self, channels: int, kernel: int, dilation: int = 1, *, stride: int = 1, padding: str = "same"
    ) -> layers.Layer:
        return layers.Conv1D(
            channels,
            kernel,
            strides=stride,
            dilation_rate=dilation,
            padding=padding,
            kernel_initializer=self.initializer(),
            dtype=self.precision,
        )

    def convolution_over_periods(self, channels: int, kernel: int, stride: int) -> layers.Layer:
        return layers.Conv2D(
            channels,
            (kernel, 1),
            strides=(stride, 1),
            kernel_initializer=keras.initializers.HeNormal(int(self._random.integers(2**31))),
            dtype=self.precision,
        )

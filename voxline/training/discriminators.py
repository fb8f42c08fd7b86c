"""HiFi-GAN's discriminators of periods and of scales, and the least squares of adversarial training.

After Kong, Kim and Bae 2020 (arXiv 2010.05646), section 2.3. Vocoders and VITS train against them.
"""

import math

import keras
import numpy as np
from keras import layers, ops

from voxline.training.layers import Composite, Tensor
from voxline.training.settings import DiscriminatorSettings
from voxline.training.upsampling import SLOPE, Draws

SCALE_CONVOLUTIONS = ((128, 15, 1, 1), (128, 41, 2, 4), (256, 41, 2, 16), (512, 41, 4, 16), (1024, 41, 4, 16),
                      (1024, 41, 1, 16), (1024, 5, 1, 1))  # fmt: skip
"""Convolutions of a discriminator by scale: channels, kernel, stride, groups."""
PERIOD_CONVOLUTIONS = ((32, 3), (128, 3), (512, 3), (1024, 3), (1024, 1))
"""Convolutions of a discriminator by period: channels, stride; each kernel has 5 taps along time."""
DISCRIMINATOR = "discriminator"
"""The term that the discriminators minimize; all others are the generator's."""


class Discriminators(Composite, keras.Model):  # type: ignore[misc]
    """All discriminators: of each period and of each scale.

    Args:
      seed: of the initial weights.
    """

    def __init__(self, settings: DiscriminatorSettings, *, seed: int = 1, precision: str = "float32") -> None:
        super().__init__(dtype=precision, name="discriminators")
        draws = Draws(seed, 4, precision)
        self.by_period = [PeriodDiscriminator(period, settings.width, draws) for period in settings.periods]
        self.by_scale = [ScaleDiscriminator(settings.width, draws) for _ in range(settings.scales)]
        self.halve = layers.AveragePooling1D(4, 2)
        self(np.zeros((1, 512), "float32"))

    def call(self, waveforms: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Judges waveforms, float32 [batch, samples].

        Returns:
          of each discriminator its judgments [batch, …], and the activations of each of its layers.
        """

        # [batch, samples, 1]
        x = ops.cast(ops.expand_dims(waveforms, -1), self.compute_dtype)
        outputs = [discriminator(x) for discriminator in self.by_period]

        # The waveform at its rate, at half of it, at a quarter.
        for index, discriminator in enumerate(self.by_scale):
            x = self.halve(ops.pad(x, [[0, 0], [2, 2], [0, 0]])) if index else x
            outputs.append(discriminator(x))

        return [judgment for judgment, _ in outputs], [activations for _, activations in outputs]


class PeriodDiscriminator(Composite, layers.Layer):  # type: ignore[misc]
    """Judges every n-th sample, n the period: convolutions over [batch, samples / period, period, channels]."""

    def __init__(self, period: int, width: float, draws: Draws) -> None:
        super().__init__(dtype=draws.precision)
        self.period = period
        self.convolutions = [
            draws.convolution_over_periods(scaled(channels, width), 5, stride)
            for channels, stride in PERIOD_CONVOLUTIONS
        ]
        self.last = draws.convolution_over_periods(1, 3, 1)

    def call(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Takes [batch, samples, 1]; returns the judgment [batch, …] and the activations of each layer."""

        # [batch, samples, 1] → [batch, samples / period, period, 1]: a column is every n-th sample.
        missing = -x.shape[1] % self.period
        x = ops.pad(x, [[0, 0], [0, missing], [0, 0]], mode="reflect") if missing else x
        x = ops.reshape(x, (-1, x.shape[1] // self.period, self.period, 1))
        activations = []
        for convolution in self.convolutions:
            x = ops.leaky_relu(convolution(ops.pad(x, [[0, 0], [2, 2], [0, 0], [0, 0]])), SLOPE)
            activations.append(x)
        x = self.last(ops.pad(x, [[0, 0], [1, 1], [0, 0], [0, 0]]))
        return x, [*activations, x]


class ScaleDiscriminator(Composite, layers.Layer):  # type: ignore[misc]
    """Judges a waveform by strided, grouped convolutions (MelGAN's, Kumar et al. 2019)."""

    def __init__(self, width: float, draws: Draws) -> None:
        super().__init__(dtype=draws.precision)
        # A group is a layer: TensorFlow has no gradient of grouped convolutions on CPUs.
        self.convolutions = [
            [draws.convolution(channels // groups, kernel, stride=stride, padding="valid") for _ in range(groups)]
            for channels, kernel, stride, groups in scale_convolutions(width)
        ]
        self.last = draws.convolution(1, 3, padding="valid")

    def call(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Takes [batch, samples, 1]; returns the judgment [batch, …] and the activations of each layer."""
        activations = []
        for groups in self.convolutions:
            # A group convolves its share of the channels: [batch, samples, channels / groups].
            padding = groups[0].kernel_size[0] // 2
            parts = ops.split(ops.pad(x, [[0, 0], [padding, padding], [0, 0]]), len(groups), axis=-1)
            outputs = [convolution(part) for convolution, part in zip(groups, parts, strict=True)]
            x = ops.leaky_relu(outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=-1), SLOPE)
            activations.append(x)
        x = self.last(ops.pad(x, [[0, 0], [1, 1], [0, 0]]))
        return x, [*activations, x]


def adversarial_terms(
    discriminators: Discriminators, recorded: Tensor, generated: Tensor, settings: DiscriminatorSettings
) -> dict[str, Tensor]:
    """The terms of both sides, float32 [batch] each, from the same waveforms [batch, samples]."""
    recorded_judgments, recorded_activations = discriminators(recorded)
    generated_judgments, generated_activations = discriminators(generated)
    matching = feature_matching_loss(recorded_activations, generated_activations)
    return {
        "adversarial": settings.adversarial * adversarial_loss(generated_judgments),
        "feature_matching": settings.feature_matching * matching,
        DISCRIMINATOR: discriminator_loss(recorded_judgments, generated_judgments),
    }


def discriminator_loss(recorded: list[Tensor], generated: list[Tensor]) -> Tensor:
    """The discriminators' least squares (Mao et al. 2017): recorded speech is to be judged 1, generated 0; [batch]."""
    terms = [
        _mean(ops.square(1 - real)) + _mean(ops.square(fake)) for real, fake in zip(recorded, generated, strict=True)
    ]
    return sum(terms[1:], terms[0])


def adversarial_loss(generated: list[Tensor]) -> Tensor:
    """The generator's least squares: generated speech is to be judged 1; [batch]."""
    terms = [_mean(ops.square(1 - judgment)) for judgment in generated]
    return sum(terms[1:], terms[0])


def feature_matching_loss(recorded: list[list[Tensor]], generated: list[list[Tensor]]) -> Tensor:
    """Mean absolute difference of activations, summed over all layers of all discriminators (Larsen et al. 2016)."""
    terms = [
        _mean(ops.abs(real - fake))
        for of_recorded, of_generated in zip(recorded, generated, strict=True)
        for real, fake in zip(of_recorded, of_generated, strict=True)
    ]
    return sum(terms[1:], terms[0])


def _mean(values: Tensor) -> Tensor:
    """Over all dimensions but the first, float32."""
    return ops.mean(ops.cast(values, "float32"), axis=tuple(range(1, len(values.shape))))


def scaled(channels: int, width: float) -> int:
    """A share of the paper's channels: a power of two, so that groups divide it; at least 4.

    >>> scaled(1024, 0.25), scaled(128, 0.01)
    (256, 4)
    """
    return 1 << max(2, round(math.log2(channels * width)))


def scale_convolutions(width: float) -> list[tuple[int, int, int, int]]:
    """`SCALE_CONVOLUTIONS` with a share of the channels, and no more groups than channels."""
    sizes = []
    inputs = 1
    for channels, kernel, stride, groups in SCALE_CONVOLUTIONS:
        scaled_channels = scaled(channels, width)
        sizes.append((scaled_channels, kernel, stride, min(groups, inputs, scaled_channels)))
        inputs = scaled_channels
    return sizes

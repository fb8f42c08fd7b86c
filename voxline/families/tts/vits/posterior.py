"""What only training needs of VITS (Kim et al. 2021, sections 2.1.3 and 2.2.2): from recordings to the latent.

A posterior encoder gives each frame of a recording the distribution of its latent. Durations are whole numbers, so the
flow that learns them gets real ones in their place, and a second value of each symbol; both are drawn by a flow of
their own (variational dequantization and data augmentation, Ho et al. 2019 and Chen et al. 2020).
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.tts.vits.durations import DilatedConvolutions, SplineFlow, StochasticDurations, dense_layer
from voxline.families.tts.vits.network import GatedConvolutions
from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.layers import Composite, Tensor, length_mask, mask_padding

LEAST_DURATION = 1e-5
"""Frames, below which a real duration has no logarithm."""
LOG_TWO_PI = math.log(2 * math.pi)


class VitsPosterior(Composite, keras.Model):  # type: ignore[misc]
    """Posterior encoder, and the flow that makes whole durations real; trains beside a `Vits`.

    Args:
      settings: those of the voice.
      bins: of the linear spectrogram.
      count: convolutions of the posterior encoder.
      seed: of the initial weights.
    """

    def __init__(self, settings: VitsSettings, *, bins: int, count: int = 16, seed: int = 1) -> None:
        super().__init__(name="vits_posterior")
        seeds = (int(s) for n in itertools.count() for s in np.random.SeedSequence([seed, 8, n]).generate_state(64))
        self.encoder = PosteriorEncoder(settings, count, seeds)
        self.durations = DurationPosterior(settings, seeds) if settings.durations == "stochastic" else None

        # A call on one frame and one symbol makes the weights of all layers.
        speaker = np.zeros((1, 1, settings.speaker_units), "float32") if settings.speakers else None
        self.encoder(np.zeros((1, 1, bins), "float32"), np.ones(1, "int32"), speaker)
        if self.durations is not None:
            symbol = np.zeros((1, 1, settings.units), "float32")
            self.durations.draw(np.ones((1, 1), "float32"), symbol, np.ones(1, "int32"), symbol[..., :2])
            self.durations.spline.forward(symbol[..., 0], symbol[..., 0], symbol, np.ones(1, "int32"))

    @property
    def normalizations(self) -> list[Any]:
        """It has none with moving statistics."""
        return []

    def call(self, spectrogram: Tensor, frames: Tensor, speaker: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `PosteriorEncoder.call`."""
        return self.encoder(spectrogram, frames, speaker)


class PosteriorEncoder(Composite, layers.Layer):  # type: ignore[misc]
    """A WaveNet over the linear spectrogram of a recording."""

    def __init__(self, settings: VitsSettings, count: int, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.latent = settings.latent
        self.before = dense_layer(settings.units, seeds)
        self.wavenet = GatedConvolutions(settings, count, seeds)
        self.statistics = dense_layer(2 * settings.latent, seeds)

    def call(self, spectrogram: Tensor, frames: Tensor, speaker: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and log deviation of each frame's latent, [batch, frames, latent], zero beyond a row's frames.

        Args:
          spectrogram: magnitudes, float32 [batch, frames, bins].
          speaker: [batch, 1, values]; None: one speaker.
        """
        x = self.wavenet(mask_padding(self.before(spectrogram), frames), frames, speaker)
        statistics = mask_padding(self.statistics(x), frames)
        return statistics[..., : self.latent], statistics[..., self.latent :]


class DurationPosterior(Composite, layers.Layer):  # type: ignore[misc]
    """Draws a real duration below each whole one, and a second value of each symbol.

    Attributes:
      spline: a step of the predictor's flow of which speech does without: its last one, which changes the second value.
    """

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before = dense_layer(settings.units, seeds)
        self.convolutions = DilatedConvolutions(settings, seeds)
        self.after = dense_layer(settings.units, seeds)
        self.flows = [SplineFlow(settings, seeds) for _ in range(settings.duration_flows + 1)]
        self.shift = self.add_weight(shape=(2,), initializer="zeros", name="shift")
        self.log_scale = self.add_weight(shape=(2,), initializer="zeros", name="log_scale")
        self.spline = SplineFlow(settings, seeds)

    def negative_log_likelihood(
        self,
        predictor: StochasticDurations,
        text: Tensor,
        counts: Tensor,
        durations: Tensor,
        drawn: Tensor,
        speaker: Tensor | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """A bound of that of durations, in nats, a sum over symbols: float32 [batch] (equation 7).

        Args:
          predictor: whose flow gives durations their likelihood.
          text: [batch, symbols, units], zero beyond a row's count.
          durations: whole frames, float32 [batch, symbols].
          drawn: normal values, float32 [batch, symbols, 2].
          speaker: [batch, 1, values]; None: one speaker.
          seed: int [2], of dropout; None: no dropout.
        """
        real = ops.cast(length_mask(counts, ops.shape(durations)[1]), "float32")

        def total(values: Tensor) -> Tensor:
            return ops.sum(values * real, axis=1)

        # What was drawn, and how likely: log q(u, ν | d, text).
        condition = predictor.condition(text, counts, speaker, seed)
        share, second, log_determinant = self.draw(durations, condition, counts, drawn, seed)
        log_q = total(ops.sum(-0.5 * (LOG_TWO_PI + ops.square(drawn)), axis=-1)) - log_determinant

        # d - u, whose logarithm the predictor's flow takes back to noise; its slope is that of the logarithm.
        log_duration = ops.log(ops.maximum(durations - share, LEAST_DURATION)) * real
        log_determinant = total(-log_duration)

        # Both values scaled and shifted, [batch, symbols] each; then they change places before each spline.
        first = (predictor.shift[0] + ops.exp(predictor.log_scale[0]) * log_duration) * real
        second = (predictor.shift[1] + ops.exp(predictor.log_scale[1]) * second) * real
        log_determinant = log_determinant + total(ops.sum(predictor.log_scale) * real)
        for flow in (self.spline, *predictor.flows):
            changed, log_slope = flow.forward(second, first, condition, counts)
            first = second
            second = changed * real
            log_determinant = log_determinant + total(log_slope)

        noise = ops.square(first) + ops.square(second)
        return total(LOG_TWO_PI + 0.5 * noise) - log_determinant + log_q

    def draw(
        self, durations: Tensor, condition: Tensor, counts: Tensor, drawn: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is taken from each whole duration, between 0 and 1, and a second value, both [batch, symbols]; and the
        log-determinant of their flow, [batch].

        Args:
          durations: whole frames, float32 [batch, symbols].
          condition: of the text, [batch, symbols, units].
          drawn: normal values, float32 [batch, symbols, 2].
          seed: int [2], of dropout.
        """
        real = ops.cast(length_mask(counts, ops.shape(durations)[1]), "float32")
        x = self.convolutions(self.before(ops.expand_dims(durations, -1)), counts, seed)
        condition = condition + mask_padding(self.after(x), counts)

        # A scale and a shift, and splines before which both values change places.
        first = (self.shift[0] + ops.exp(self.log_scale[0]) * drawn[..., 0]) * real
        second = (self.shift[1] + ops.exp(self.log_scale[1]) * drawn[..., 1]) * real
        log_determinant = ops.sum(ops.sum(self.log_scale) * real, axis=1)
        for flow in self.flows:
            changed, log_slope = flow.forward(second, first, condition, counts)
            first = second
            second = changed * real
            log_determinant = log_determinant + ops.sum(log_slope * real, axis=1)

        # They changed places once more than there are splines. σ(x) has the slope σ(x) σ(-x).
        log_slope = -(ops.softplus(second) + ops.softplus(-second))
        log_determinant = log_determinant + ops.sum(log_slope * real, axis=1)
        return ops.sigmoid(second), first, log_determinant

"""Vocos: a vocoder that computes at the frame rate, and leaves the samples to an inverse STFT.

After Siuzdak 2023, "Vocos: Closing the gap between time-domain and Fourier-based neural vocoders" (arXiv 2306.00814),
section 3: a convolution over mels, ConvNeXt blocks (Liu et al. 2022, in one dimension), and a dense layer to log
magnitude m and phase p of each bin; the spectrum is exp(m) · (cos p + i sin p).
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.components.train.models.layers import length_mask
from voxline.components.train.models.stft import inverse_stft
from voxline.components.train.vocoder.settings import VocosSettings

Tensor = Any

MAX_LOG_MAGNITUDE = float(np.log(100.0))
"""As in the authors' code: an exponential without a bound breaks the first steps."""
EPSILON = 1e-6


class Vocos(keras.Model):  # type: ignore[misc]
    """From raw mels to waveforms; a `Vocoder`.

    Args:
      settings: sizes.
      fft_size: samples in the inverse FFT; even.
      hop: samples of a frame.
      mean, deviation: per mel band, of the training split; the graph normalizes mels by them.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32" or "mixed_bfloat16"; the spectrum stays float32.

    Attributes:
      context_frames: frames on each side that a sample depends on.

    >>> model = Vocos(
    ...     VocosSettings(channels=8, hidden=8, layers=1), fft_size=32, hop=8, mean=[0.0] * 4, deviation=[1.0] * 4
    ... )
    >>> model(np.zeros((2, 11, 4), "float32")).shape
    TensorShape([2, 80])
    """

    def __init__(
        self,
        settings: VocosSettings,
        *,
        fft_size: int,
        hop: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        seed: int = 1,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype=precision, name="vocos")
        self.hop = hop
        self.context_frames = settings.kernel // 2 * (1 + settings.layers) + -(-fft_size // (2 * hop))
        self.normalizations: list[Any] = []
        self._shift = np.asarray(mean, "float32")
        self._scale = 1 / np.maximum(np.asarray(deviation, "float32"), 1e-5)
        seeds = iter(np.random.SeedSequence([seed, 2]).generate_state(2 + 3 * settings.layers).tolist())
        self.embedding = layers.Conv1D(
            settings.channels,
            settings.kernel,
            padding="same",
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            dtype=precision,
        )
        self.first_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=precision)
        self.blocks = [
            ConvNeXtBlock(settings, [next(seeds) for _ in range(3)], dtype=precision) for _ in range(settings.layers)
        ]
        self.last_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=precision)
        self.head = layers.Dense(
            fft_size + 2, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)), dtype="float32"
        )
        self(np.zeros((1, 2, len(self._shift)), "float32"))

    def call(self, mels: Tensor, frames: Tensor = None) -> Tensor:
        """Returns waveforms, float32 [batch, (frames - 1) · hop]; sample 0 is the center of frame 0.

        Args:
          mels: float32 [batch, frames, mels], as extract writes them.
          frames: int [batch], real frames; None: all. A row then gives what it gives alone; what comes after its
            (frames - 1) · hop samples is undefined.
        """
        real = None if frames is None else ops.expand_dims(length_mask(frames, ops.shape(mels)[1]), -1)
        x = mask((ops.cast(mels, "float32") - self._shift) * self._scale, real)
        x = mask(self.first_norm(self.embedding(ops.cast(x, self.compute_dtype))), real)
        for block in self.blocks:
            x = mask(block(x), real)
        spectrum = ops.cast(self.head(self.last_norm(x)), "float32")
        bins = spectrum.shape[-1] // 2
        magnitude = mask(ops.exp(ops.minimum(spectrum[..., :bins], MAX_LOG_MAGNITUDE)), real)
        phase = spectrum[..., bins:]
        return inverse_stft(magnitude * ops.cos(phase), magnitude * ops.sin(phase), self.hop, real)


class ConvNeXtBlock(layers.Layer):  # type: ignore[misc]
    """x + γ · W₂ gelu(W₁ norm(depthwise convolution of x)), with γ a number for each channel, 1 / layers at first."""

    def __init__(self, settings: VocosSettings, seeds: list[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        depthwise, widen, narrow = map(keras.initializers.GlorotUniform, seeds)
        self.convolution = layers.DepthwiseConv1D(
            settings.kernel, padding="same", depthwise_initializer=depthwise, dtype=self.dtype_policy
        )
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=self.dtype_policy)
        self.widen = layers.Dense(settings.hidden, "gelu", kernel_initializer=widen, dtype=self.dtype_policy)
        self.narrow = layers.Dense(settings.channels, kernel_initializer=narrow, dtype=self.dtype_policy)
        self.scale = self.add_weight(
            shape=(settings.channels,), initializer=keras.initializers.Constant(1 / settings.layers), name="scale"
        )

    def call(self, x: Tensor) -> Tensor:
        """Takes and returns [batch, frames, channels]."""
        return x + ops.cast(self.scale, x.dtype) * self.narrow(self.widen(self.norm(self.convolution(x))))


def mask(x: Tensor, real: Tensor | None) -> Tensor:
    """Zero where `real` [batch, length, 1] is false; None changes nothing."""
    return x if real is None else ops.where(real, x, ops.zeros((), x.dtype))

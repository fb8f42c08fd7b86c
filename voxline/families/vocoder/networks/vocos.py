"""Vocos: a vocoder that computes at the frame rate, and leaves the samples to an inverse STFT.

After Siuzdak 2023, "Vocos: Closing the gap between time-domain and Fourier-based neural vocoders" (arXiv 2306.00814),
section 3: a convolution over mels, ConvNeXt blocks (Liu et al. 2022, in one dimension), and a dense layer to log
magnitude m and phase p of each bin; the spectrum is exp(m) · (cos p + i sin p). With a prior, m is what the network
adds to the magnitudes that the mels imply, as in FreeV (Lv et al. 2024, arXiv 2406.08196).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import mel_filterbank
from voxline.audio.griffin_lim import bin_weights
from voxline.families.vocoder.networks.settings import VocosSettings
from voxline.training.layers import Composite, ConvNeXtBlock, FeatureNormalizer, Tensor, length_mask, mask
from voxline.training.stft import inverse_stft

MAX_LOG_MAGNITUDE = float(np.log(100.0))
"""Bound as in the authors' code: an exponential without a bound breaks the first steps."""
MIN_PRIOR = 1e-5
PRIOR_UPDATES = 4
"""Multiplicative updates of the prior's magnitudes, whose mels are then within 0.2 dB of the given ones."""
EPSILON = 1e-6


class Vocos(Composite, keras.Model):  # type: ignore[misc]
    """Generates waveforms from raw mels; a `Vocoder`.

    Args:
      settings: sizes.
      fft_size: samples in the inverse FFT; even.
      hop: samples of a frame.
      mean, deviation: per mel band, of the training split; the graph normalizes mels by them.
      prior: from raw mels to log magnitudes [batch, frames, fft_size // 2 + 1], to which the network adds its own.
      seed: of the initial weights.
      precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16"; the spectrum stays float32.

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
        prior: Callable[[Tensor], Tensor] | None = None,
        seed: int = 1,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="vocos")
        self.hop = hop
        self.context_frames = settings.kernel // 2 * (1 + settings.layers) + -(-fft_size // (2 * hop))
        self.normalizations: list[Any] = []
        self._prior = prior
        self.normalize = FeatureNormalizer(mean, deviation)
        seeds = iter(np.random.SeedSequence([seed, 2]).generate_state(2 + 3 * settings.layers).tolist())

        # A convolution, ConvNeXt blocks, and the head of the inverse STFT.
        self.embedding = layers.Conv1D(
            settings.channels,
            settings.kernel,
            padding="same",
            kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
            dtype=precision,
        )
        self.first_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=precision)
        self.blocks = [
            ConvNeXtBlock(
                settings.channels,
                settings.hidden,
                settings.kernel,
                scale=1 / settings.layers,
                seeds=[next(seeds) for _ in range(3)],
                dtype=precision,
            )
            for _ in range(settings.layers)
        ]
        self.last_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=precision)
        self.head = layers.Dense(
            fft_size + 2, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)), dtype="float32"
        )
        self(np.zeros((1, 2, self.normalize.bins), "float32"))

    def call(self, mels: Tensor, frames: Tensor | None = None) -> Tensor:
        """Returns waveforms, float32 [batch, (frames - 1) · hop]; sample 0 is the center of frame 0.

        Args:
          mels: float32 [batch, frames, mels], as extract writes them.
          frames: int [batch], real frames; None: all. A row then gives what it gives alone; what comes after its
            (frames - 1) · hop samples is undefined.
        """

        # [batch, frames, mels] → [batch, frames, channels]
        real = None if frames is None else ops.expand_dims(length_mask(frames, ops.shape(mels)[1]), -1)
        x = mask(self.normalize(mels), real)
        x = mask(self.first_norm(self.embedding(ops.cast(x, self.compute_dtype))), real)
        for block in self.blocks:
            x = mask(block(x), real)

        # [batch, frames, fft_size + 2]: log magnitude m and phase p of each bin.
        spectrum = ops.cast(self.head(self.last_norm(x)), "float32")
        logarithm, phase = ops.split(spectrum, 2, axis=-1)  # slices would have a gradient of padded tensors
        if self._prior is not None:
            logarithm += self._prior(ops.cast(mels, "float32"))

        # exp(m) · (cos p + i sin p): no phase has to be unwrapped.
        magnitude = mask(ops.exp(ops.minimum(logarithm, MAX_LOG_MAGNITUDE)), real)

        return inverse_stft(magnitude * ops.cos(phase), magnitude * ops.sin(phase), self.hop, real)


def magnitude_prior(features: FeatureSettings, fft_size: int) -> Callable[[Tensor], Tensor]:
    """A function from raw mels to the logarithms of smooth magnitudes that have these mels, for `Vocos`.

    Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2000), as in
    `griffin_lim.mel_to_spectrum`, but from a spectrum that is nowhere zero. Magnitudes are those of Hann windows of
    `fft_size` samples; up to the phases, they are the magnitudes of the frames of an inverse STFT of that size.
    """
    to_mels, to_bins, magnitude_offset, mel_offset = prior_matrices(features, fft_size)

    def prior(mels: Tensor) -> Tensor:
        if features.kind == "mel_and_linear":
            decibels = ops.clip(mels, 0.0, 1.0) * -features.floor_db + features.floor_db + features.reference_db
            mels = decibels * (math.log(10) / 20)

        # Magnitudes or powers of mel bands, then of bins: [batch, frames, mels] → [batch, frames, bins].
        bands = ops.exp(mels + mel_offset)
        spectrum = bands @ to_bins
        for _ in range(PRIOR_UPDATES):
            # Each bin grows by the mean ratio, over its bands, of wanted to present energy.
            spectrum *= (bands / ops.maximum(spectrum @ to_mels, MIN_PRIOR**2)) @ to_bins

        # Powers have twice the logarithm of magnitudes.
        power = 1.0 if features.uses_magnitude else 0.5
        return power * ops.log(ops.maximum(spectrum, MIN_PRIOR ** (1 / power))) + magnitude_offset

    return prior


def prior_matrices(features: FeatureSettings, fft_size: int) -> tuple[Any, Any, float, float]:
    """Matrices and offsets for `magnitude_prior`.

    Returns:
      from bins to mel bands, and back, float32 [fft_size // 2 + 1, mels] and its reverse; what is added to log
      magnitudes; and to log mels.
    """
    features_of_size = features.model_copy(update={"fft_size": fft_size})
    # A band is a sum over bins, of which there are more or fewer here; a longer window holds more of a tone.
    magnitude_offset = math.log(fft_size / features.win_length)
    mel_offset = math.log(fft_size / features.n_fft)
    return mel_filterbank(features_of_size), bin_weights(features_of_size), magnitude_offset, mel_offset

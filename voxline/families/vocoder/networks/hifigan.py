"""HiFi-GAN's generator: transposed convolutions; `training.discriminators` has what judges it.

After Kong, Kim and Bae 2020, "HiFi-GAN: Generative Adversarial Networks for Efficient and High Fidelity Speech
Synthesis" (arXiv 2010.05646), section 2.2; sizes as in the authors' configs v1, v2 and v3. Where this differs:
docs/decisions/0066. Two options take the last upsampling from the network: an inverse STFT (Kaneko et al. 2022,
"iSTFTNet", arXiv 2203.02395) and a filter bank of four bands (Yang et al. 2020, "Multi-band MelGAN", arXiv 2005.05106).
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from voxline.families.vocoder.networks.settings import HifiganSettings
from voxline.families.vocoder.networks.vocos import MAX_LOG_MAGNITUDE
from voxline.training.layers import Composite, FeatureNormalizer, Tensor, length_mask, mask
from voxline.training.stft import BANK_TAPS, inverse_stft, join_bands
from voxline.training.upsampling import LAST_SLOPE, Draws, Upsampling, real_steps


class HifiganGenerator(Upsampling, Composite, keras.Model):  # type: ignore[misc]
    """Generates waveforms from raw mels; a `Vocoder`.

    Args:
      settings: sizes; its hop is that of the mels.
      mean, deviation: per mel band, of the training split; the graph normalizes mels by them.
      seed: of the initial weights, normal with a deviation of 0.01.
      precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16".

    Attributes:
      context_frames: frames on each side that a sample depends on.

    >>> settings = HifiganSettings(channels=8, upsample_rates=(4, 2), upsample_kernels=(8, 4))
    >>> HifiganGenerator(settings, mean=[0.0] * 4, deviation=[1.0] * 4)(np.zeros((2, 11, 4), "float32")).shape
    TensorShape([2, 80])
    """

    def __init__(
        self,
        settings: HifiganSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        seed: int = 1,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="hifigan")
        self.settings = settings
        self.hop = settings.hop
        self.context_frames = _context_frames(settings)
        self.normalizations: list[Any] = []
        self.normalize = FeatureNormalizer(mean, deviation)
        draws = Draws(seed, 3, precision)
        self.make_upsampling(settings, draws)

        # The last layer makes samples, or log magnitudes and phases of an inverse STFT, of each band.
        self.last = draws.convolution(settings.bands * (4 * settings.istft_hop + 2 if settings.istft_hop else 1), 7)
        self(np.zeros((1, 2, self.normalize.bins), "float32"))

    def call(self, mels: Tensor, frames: Tensor | None = None) -> Tensor:
        """Returns waveforms, float32 [batch, (frames - 1) · hop]; sample 0 is the center of frame 0.

        They are in [-1, 1], except with an inverse STFT or bands.

        Args:
          mels: float32 [batch, frames, mels], as extract writes them.
          frames: int [batch], real frames; None: all. A row then gives what it gives alone; what comes after its
            (frames - 1) · hop samples is undefined.
        """
        count = ops.shape(mels)[1]

        # [batch, frames, mels] → [batch, count · factor, channels]
        x = mask(self.normalize(mels), real_steps(frames, count, 1))
        x = self.upsample(ops.cast(x, self.compute_dtype), frames)
        factor = math.prod(self.settings.upsample_rates)

        # [batch, samples / bands, bands] → [batch, samples]
        parts = self._make_bands(ops.leaky_relu(x, LAST_SLOPE), frames, count, factor)
        waveform = join_bands(parts) if self.settings.bands > 1 else parts[..., 0]

        # The network makes a hop around each frame's center, and a waveform begins at the first center.
        return waveform[:, self.hop // 2 : self.hop // 2 + (count - 1) * self.hop]

    def _make_bands(self, x: Tensor, frames: Tensor | None, count: Tensor, factor: int) -> Tensor:
        """The last layer: float32 [batch, count · factor (· istft_hop), bands], of several bands zero where not real.

        Args:
          x: [batch, count · factor, channels].
        """
        bands = self.settings.bands
        hop = self.settings.istft_hop

        # Samples straight from the last convolution, in [-1, 1].
        if not hop:
            parts = ops.tanh(ops.cast(self.last(x), "float32"))
            return parts if bands == 1 else mask(parts, real_steps(frames, count, factor))

        # A window more than steps, so that the centered windows reach to the end.
        x = ops.cast(self.last(ops.pad(x, [[0, 0], [1, 0], [0, 0]], mode="reflect")), "float32")
        windows = count * factor + 1
        x = ops.transpose(ops.reshape(x, (-1, windows, bands, 4 * hop + 2)), (0, 2, 1, 3))

        # [batch · bands, windows, 2 · hop + 1] each: log magnitude and phase.
        logarithm, phase = ops.split(ops.reshape(x, (-1, windows, 4 * hop + 2)), 2, axis=-1)
        present = None
        if frames is not None:
            present = length_mask(ops.cast(frames, "int32") * factor + 1, windows)
            present = ops.expand_dims(ops.repeat(present, bands, axis=0), -1)

        # The sine bounds the phase, as in the authors' code.
        magnitude = mask(ops.exp(ops.minimum(logarithm, MAX_LOG_MAGNITUDE)), present)
        angle = ops.sin(phase)
        waveforms = inverse_stft(magnitude * ops.cos(angle), magnitude * ops.sin(angle), hop, present)
        parts = ops.transpose(ops.reshape(waveforms, (-1, bands, count * factor * hop)), (0, 2, 1))

        return parts if bands == 1 else mask(parts, real_steps(frames, count, factor * hop))


def _context_frames(settings: HifiganSettings) -> int:
    """Frames on each side that a sample depends on: what each layer reads, from the last one to the first.

    >>> _context_frames(HifiganSettings())
    15
    """
    reach = settings.hop // 2  # in samples; a frame's begin half a hop before its center

    # From samples to bands, from bands to windows, from windows to steps of the last layer.
    if settings.bands > 1:
        reach = -(-(reach + BANK_TAPS // 2) // settings.bands)

    if settings.istft_hop:
        reach = -(-reach // settings.istft_hop) + 3  # windows of two hops to each side, and the one more

    # The last convolution, of 7 taps, and all before it.
    return settings.frames_around(reach + 3)

"""WaveGlow: a normalizing flow between waveforms and noise, which mels condition.

After Prenger, Valle and Catanzaro 2018, "WaveGlow: A Flow-based Generative Network for Speech Synthesis" (arXiv
1811.00002). A waveform, eight samples a group, goes through flows, each an invertible 1 × 1 convolution W (section
2.2) and an affine coupling (section 2.1): of x = (x_a, x_b), x_a stays, and x_b becomes s ⊙ x_b + t, where a WaveNet
computes log s and t from x_a and the mels. After every fourth flow two channels leave as noise (section 2.3). Training
minimizes

  Σ z² / 2σ² − Σ log s − Σ log |det W|,

and the flows run backwards make a waveform of noise, all samples at once. Sizes are those of the authors' code; where
this differs: docs/decisions/0066.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import layers, ops

from voxline.families.vocoder.networks.settings import WaveGlowSettings
from voxline.training.layers import Composite, FeatureNormalizer, Tensor, length_mask, mask
from voxline.training.stft import cut_windows, overlap_add, periodic_hann

NOISE_SEED = 7
"""Seed of the noise that waveforms are made of: the same mels always give the same waveform."""
BIAS_SAMPLES = 88 * 256
"""Length of the waveform that the bias is measured in, at least; the authors take 88 frames."""
DENOISER_FFT = 1024
MIN_MAGNITUDE = 1e-8


class WaveGlow(Composite, keras.Model):  # type: ignore[misc]
    """Generates waveforms from raw mels and noise, and maps waveforms back to noise; a `Vocoder`.

    Args:
      settings: sizes.
      hop: samples of a frame; a multiple of `settings.group`.
      mean, deviation: per mel band, of the training split; the graph normalizes mels by them.
      seed: of the initial weights: rotations, zeros after each WaveNet and as biases, PyTorch's defaults elsewhere.
      precision: a Keras dtype policy, "float32", "mixed_bfloat16" or "mixed_float16"; the flows stay float32.

    Attributes:
      context_frames: None, so it does not stream: a sample depends on more than a second on each side, and on the
        noise of its place in the utterance.

    >>> settings = WaveGlowSettings(flows=3, group=4, early_every=2, layers=2, channels=4)
    >>> model = WaveGlow(settings, hop=8, mean=[0.0] * 3, deviation=[1.0] * 3)
    >>> model(np.zeros((2, 11, 3), "float32")).shape
    TensorShape([2, 80])
    """

    def __init__(
        self,
        settings: WaveGlowSettings,
        *,
        hop: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        seed: int = 1,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="waveglow")
        self.settings = settings
        self.hop = hop
        self.context_frames: int | None = None
        self.normalizations: list[Any] = []
        self.normalize = FeatureNormalizer(mean, deviation)
        self._mean = np.asarray(mean, "float32")
        self._bias: npt.NDArray[np.float32] | None = None
        seeds = iter(np.random.SeedSequence([seed, 5]).generate_state(1 + 32 * settings.flows).tolist())

        # A transposed convolution takes mels to the rate of samples.
        self.upsample = layers.Conv1DTranspose(
            len(mean),
            settings.upsampled_hops * hop,
            strides=hop,
            kernel_initializer=_uniform(next(seeds)),
            dtype=precision,
        )
        self.flows = [
            Flow(settings, channels, [next(seeds) for _ in range(32)], dtype=precision)
            for channels in settings.flow_channels
        ]
        self(np.zeros((1, 2, len(mean)), "float32"))

    def call(self, mels: Tensor, frames: Tensor | None = None) -> Tensor:
        """Returns waveforms, float32 [batch, (frames - 1) · hop]; sample 0 is the center of frame 0.

        The noise is that of `NOISE_SEED` times `settings.sampling_sigma`, the same for all rows.

        Args:
          mels: float32 [batch, frames, mels], as extract writes them.
          frames: int [batch], real frames; None: all. A row then gives what it gives alone; what comes after its
            (frames - 1) · hop samples is undefined.
        """
        waveforms = self.sample(mels, frames, self.settings.sampling_sigma)
        denoised = self._bias is not None and self.settings.denoiser
        return self.denoise(waveforms, frames, self.settings.denoiser) if denoised else waveforms

    def sample(self, mels: Tensor, frames: Tensor | None, sigma: Tensor | float) -> Tensor:
        """The waveforms of a call before the denoiser, by noise of another deviation.

        Args:
          mels, frames: as in a call.
          sigma: standard deviation of the noise.
        """

        # [batch, groups, group]: all rows get the same noise.
        groups = (ops.shape(mels)[1] - 1) * self.hop // self.settings.group
        noise = keras.random.normal((1, groups, self.settings.group), seed=NOISE_SEED)
        noise = ops.tile(sigma * noise, (ops.shape(mels)[0], 1, 1))
        return self.from_noise(noise, mels, frames)

    def to_noise(self, waveforms: Tensor, mels: Tensor) -> tuple[Tensor, Tensor]:
        """The noise that gives waveforms, and by how much the flows compress them.

        Args:
          waveforms: float32 [batch, (frames - 1) · hop].
          mels: float32 [batch, frames, mels].

        Returns:
          float32 [batch, groups, group], in the order in which channels leave; and the logarithm of the determinant of
          the Jacobian, float32 [batch].
        """

        # [batch, samples] → [batch, groups, group]
        settings = self.settings
        condition = self._condition(mels)
        x = ops.reshape(ops.cast(waveforms, "float32"), (ops.shape(mels)[0], -1, settings.group))

        # log |det J| adds up over couplings and convolutions.
        noise = []
        determinant = ops.zeros(())
        for flow, channels in zip(self.flows, settings.flow_channels, strict=True):
            if leaving := x.shape[-1] - channels:
                noise.append(x[..., :leaving])
                x = x[..., leaving:]
            x, flow_determinant = flow.forward(x, condition)
            determinant += flow_determinant

        return ops.concatenate([*noise, x], axis=-1), determinant

    def from_noise(self, noise: Tensor, mels: Tensor, frames: Tensor | None = None) -> Tensor:
        """The waveforms that `to_noise` takes to this noise, float32 [batch, (frames - 1) · hop].

        Args:
          noise: float32 [batch, groups, group], scaled.
          mels, frames: as in a call.
        """
        settings = self.settings
        condition = self._condition(mels)
        real = None
        if frames is not None:
            per_frame = self.hop // settings.group
            groups = ops.shape(noise)[1]
            real = ops.expand_dims(length_mask((ops.cast(frames, "int32") - 1) * per_frame, groups), -1)

        # The flows run backwards; the channels that left early come back in the reverse order.
        first = settings.group - settings.flow_channels[-1]
        x = noise[..., first:]
        waiting = noise[..., :first]
        for flow, channels in reversed(list(zip(self.flows, settings.flow_channels, strict=True))):
            if joining := channels - x.shape[-1]:
                x = ops.concatenate([waiting[..., -joining:], x], axis=-1)
                waiting = waiting[..., :-joining]
            x = flow.backward(x, condition, real)

        return ops.reshape(x, (ops.shape(mels)[0], -1))

    def negative_log_likelihood(self, waveforms: Tensor, mels: Tensor) -> Tensor:
        """The loss for each sample of a row, float32 [batch], in nats, without the constant log √2πσ²."""

        # Gaussian noise of deviation σ, less the log determinants.
        noise, determinant = self.to_noise(waveforms, mels)
        energy = ops.sum(ops.square(noise), axis=(1, 2)) / (2 * self.settings.sigma**2)
        return (energy - determinant) / ops.cast(ops.shape(waveforms)[1], "float32")

    def turn_on_denoiser(self) -> None:
        """Measures the bias of the weights as they are; calls subtract its share `settings.denoiser` from now on.

        The bias is the magnitude spectrum of a waveform that is generated from zero mels without noise: all of it comes
        from the layers' biases, and it sounds as a faint tone (the authors' denoiser.py).
        """
        self._bias = self.bias_spectrum()

    def bias_spectrum(self) -> npt.NDArray[np.float32]:
        """Mean magnitudes of `biased_waveform`, float32 [DENOISER_FFT // 2 + 1]; frames near the edges are left out."""

        # [frames, bins], the middle half of the frames.
        real, imaginary = ops.rfft(_windows(self.biased_waveform()), DENOISER_FFT)
        spectra = np.hypot(np.asarray(real)[0], np.asarray(imaginary)[0])
        edge = len(spectra) // 4
        mean: npt.NDArray[np.float32] = spectra[edge : len(spectra) - edge].mean(axis=0)
        return mean

    def biased_waveform(self) -> Tensor:
        """Generates a waveform from zero mels without noise, float32 [1, samples]."""
        hops = -(-BIAS_SAMPLES // self.hop)
        mels = np.tile(self._mean, (1, hops + 1, 1))
        groups = hops * self.hop // self.settings.group
        return self.from_noise(ops.zeros((1, groups, self.settings.group)), mels)

    def denoise(self, waveforms: Tensor, frames: Tensor | None = None, strength: Tensor | float = 1.0) -> Tensor:
        """Waveforms [batch, samples] less a share of the bias in each magnitude; the phases stay."""
        if self._bias is None:
            raise ValueError("the bias was not measured; call turn_on_denoiser")

        samples = ops.shape(waveforms)[1]
        if frames is not None:
            waveforms = ops.where(length_mask((frames - 1) * self.hop, samples), waveforms, 0.0)

        # Spectral subtraction: each magnitude loses a share of the bias, and none falls below zero.
        real, imaginary = ops.rfft(_windows(waveforms), DENOISER_FFT)
        magnitude = ops.sqrt(ops.square(real) + ops.square(imaginary))
        gain = ops.relu(magnitude - strength * self._bias) / ops.maximum(magnitude, MIN_MAGNITUDE)
        windows = ops.irfft((real * gain, imaginary * gain), DENOISER_FFT) * periodic_hann(DENOISER_FFT)

        # Overlap and add, then the samples of the input.
        denoised = overlap_add(windows, DENOISER_FFT // 4) / 1.5  # squared Hann windows, four over each sample

        return denoised[:, DENOISER_FFT : DENOISER_FFT + samples]

    def _condition(self, mels: Tensor) -> Tensor:
        """Mels at the rate of samples, those of a group side by side: [batch, groups, group · mels]."""
        frames = ops.shape(mels)[1]
        x = self.upsample(ops.cast(self.normalize(mels), self.compute_dtype))[:, : (frames - 1) * self.hop]
        return ops.reshape(x, (ops.shape(mels)[0], -1, self.settings.group * mels.shape[-1]))


def _windows(waveforms: Tensor) -> Tensor:
    """Cuts the denoiser's windows, [batch, count, DENOISER_FFT]: four over each sample."""
    hop = DENOISER_FFT // 4
    missing = -ops.shape(waveforms)[1] % hop
    padded = ops.pad(waveforms, [[0, 0], [DENOISER_FFT, DENOISER_FFT + missing]])
    return cut_windows(padded, DENOISER_FFT, hop) * periodic_hann(DENOISER_FFT)


class Flow(layers.Layer):  # type: ignore[misc]
    """One step of the flow, in both directions: an invertible 1 × 1 convolution and an affine coupling.

    Args:
      channels: of its input, even.
    """

    def __init__(self, settings: WaveGlowSettings, channels: int, seeds: list[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.channels = channels
        rotation = functools.partial(_rotation, seed=seeds[0])
        # Inverses and determinants are float32 in every precision.
        self.mixing = self.add_weight(
            shape=(channels, channels), initializer=rotation, name="mixing", dtype="float32", autocast=False
        )
        self.wavenet = WaveNet(settings, channels // 2, seeds[1:], dtype=self.dtype_policy)
        self.built = True  # it has two directions, and no call

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Towards noise.

        Args:
          x: float32 [batch, groups, channels].
          condition: [batch, groups, …].

        Returns:
          of the same shape; and the logarithm of the determinant, float32 [batch].
        """

        # Section 2.2: z = W x.
        x = ops.matmul(x, self.mixing)

        # Section 2.1: x_a stays, x_b becomes s ⊙ x_b + t; [batch, groups, channels / 2] each.
        x_a = x[..., : self.channels // 2]
        x_b = x[..., self.channels // 2 :]
        log_scale, shift = self.wavenet(x_a, condition)
        groups = ops.cast(ops.shape(x)[1], "float32")

        # log |det J| = Σ log s + groups · log |det W|
        determinant = ops.sum(log_scale, axis=(1, 2)) + groups * _log_determinant(self.mixing)

        return ops.concatenate([x_a, ops.exp(log_scale) * x_b + shift], axis=-1), determinant

    def backward(self, x: Tensor, condition: Tensor, real: Tensor | None = None) -> Tensor:
        """Towards waveforms: the inverse of `forward`."""

        # x_b = (z_b - t) / s, then W⁻¹.
        x_a = x[..., : self.channels // 2]
        x_b = x[..., self.channels // 2 :]
        log_scale, shift = self.wavenet(x_a, condition, real)
        x = ops.concatenate([x_a, (x_b - shift) * ops.exp(-log_scale)], axis=-1)
        return ops.matmul(x, ops.inv(ops.convert_to_tensor(self.mixing)))


class WaveNet(Composite, layers.Layer):  # type: ignore[misc]
    """Gated, dilated convolutions over groups (van den Oord et al. 2016), none of them causal.

    Args:
      channels: of its input, and of each of its two outputs.
    """

    def __init__(self, settings: WaveGlowSettings, channels: int, seeds: list[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width = settings.channels
        count = settings.layers
        seed_source = iter(seeds)

        def dense(units: int) -> layers.Layer:
            return layers.Dense(units, kernel_initializer=_uniform(next(seed_source)), dtype=self.dtype_policy)

        self.width = width
        self.first = dense(width)

        # One dense layer conditions all convolutions.
        self.condition = dense(2 * width * count)
        self.dilated = [
            layers.Conv1D(
                2 * width,
                settings.kernel,
                dilation_rate=1 << layer,
                padding="same",
                kernel_initializer=_uniform(next(seed_source)),
                dtype=self.dtype_policy,
            )
            for layer in range(count)
        ]
        self.outputs = [dense(2 * width if layer < count - 1 else width) for layer in range(count)]

        # Zeros: log s = t = 0, so each coupling is the identity at first, as in Glow.
        self.last = layers.Dense(2 * channels, kernel_initializer="zeros", dtype="float32")

    def call(self, x: Tensor, condition: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logarithm of the scales, and the shifts: float32 [batch, groups, channels] each.

        Args:
          x: float32 [batch, groups, channels].
          condition: [batch, groups, …].
          real: bool [batch, groups, 1]; None: all.
        """
        width = self.width

        # [batch, groups, width], and the mels' part of all gates, [batch, groups, 2 · width · layers].
        x = mask(self.first(ops.cast(x, self.compute_dtype)), real)
        conditions = self.condition(condition)
        skips = []
        for layer, (convolution, output) in enumerate(zip(self.dilated, self.outputs, strict=True)):
            # Gated activation: tanh of one half times the sigmoid of the other.
            gates = convolution(x) + conditions[..., 2 * width * layer : 2 * width * (layer + 1)]
            outputs = output(ops.tanh(gates[..., :width]) * ops.sigmoid(gates[..., width:]))
            skips.append(outputs[..., -width:])

            # All but the last layer have a residual connection; all have a skip.
            if layer < len(self.dilated) - 1:
                x = mask(x + outputs[..., :width], real)

        scale_and_shift = ops.cast(self.last(sum(skips[1:], skips[0])), "float32")
        channels = scale_and_shift.shape[-1] // 2

        return scale_and_shift[..., channels:], scale_and_shift[..., :channels]


def _rotation(shape: tuple[int, int], dtype: Any = None, *, seed: int) -> Tensor:
    """An orthogonal matrix whose determinant is 1."""
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal(shape))

    # A reflection becomes a rotation.
    rotation[:, 0] *= np.sign(np.linalg.det(rotation))
    return ops.convert_to_tensor(rotation, dtype="float32")


def _log_determinant(matrix: Tensor) -> Tensor:
    """log |det|, by the QR decomposition, which XLA compiles, unlike the determinant."""
    return ops.sum(ops.log(ops.abs(ops.diagonal(ops.qr(ops.convert_to_tensor(matrix))[1]))))


def _uniform(seed: int) -> keras.initializers.Initializer:
    """Uniform within 1 / √(inputs), PyTorch's default."""
    return keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed=seed)

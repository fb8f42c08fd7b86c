"""Transforms in a network's graph: short-time Fourier (magnitudes, the inverse by overlap and add), a filter bank.

Pure Keras. The windows are cut in pieces of a hop, side by side, which costs a few slices instead of a gather.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from keras import ops

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import mel_filterbank
from voxline.training.custom_gradient import custom_gradient
from voxline.training.layers import Tensor

MIN_MAGNITUDE = 1e-5
"""The least one that has a logarithm here."""
MIN_POWER = 1e-10
"""Below it a magnitude has no gradient: that of a square root grows without bound at zero."""
MIN_ENVELOPE = 1e-3
"""Least sum of overlapping squared windows; where it is less, no window reaches."""


def periodic_hann(length: int) -> npt.NDArray[np.float32]:
    """The periodic Hann window, float32 [length]."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)


def cut_windows(samples: Tensor, length: int, hop: int) -> Tensor:
    """Overlapping windows of waveforms.

    >>> cut_windows(np.arange(7.0)[None], 3, 2)[0].numpy().tolist()
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0], [4.0, 5.0, 6.0]]

    Args:
      samples: [batch, samples], at least `length` of them.

    Returns:
      [batch, 1 + (samples - length) // hop, length].
    """

    # A window is `hops` pieces of a hop each: [batch, count - 1 + hops, hop].
    hops = -(-length // hop)
    total = ops.shape(samples)[1]
    count = 1 + (total - length) // hop
    needed = (count - 1 + hops) * hop
    samples = ops.pad(samples, [[0, 0], [0, hops * hop]])[:, :needed]
    parts = ops.reshape(samples, (ops.shape(samples)[0], count - 1 + hops, hop))
    side_by_side = ops.concatenate([parts[:, number : number + count] for number in range(hops)], axis=-1)

    return side_by_side[..., :length]


def overlap_add(windows: Tensor, hop: int) -> Tensor:
    """Adds windows [batch, count, length] where they overlap: [batch, (count - 1 + hops) · hop], hops = ⌈length / hop⌉.

    >>> overlap_add(np.ones((1, 2, 3)), 2)[0].numpy().tolist()
    [1.0, 1.0, 2.0, 1.0, 1.0, 0.0]
    """
    length = windows.shape[-1]
    count = ops.shape(windows)[1]
    hops = -(-length // hop)
    whole = ops.pad(windows, [[0, 0], [0, 0], [0, hops * hop - length]])
    # Split, not sliced: the gradient is one concatenation instead of a sum of padded tensors.
    parts = [
        ops.pad(part, [[0, 0], [number, hops - 1 - number], [0, 0]])
        for number, part in enumerate(ops.split(whole, hops, axis=-1))
    ]
    added = sum(parts[1:], parts[0])

    return ops.reshape(added, (ops.shape(windows)[0], (count - 1 + hops) * hop))


def magnitudes(samples: Tensor, fft_size: int, hop: int, length: int) -> Tensor:
    """Magnitude spectra of the whole windows of waveforms, [batch, frames, fft_size // 2 + 1]; no padding."""
    spectra: Tensor = _magnitudes(fft_size, hop, length)(samples)
    return spectra


@functools.cache
def _magnitudes(fft_size: int, hop: int, length: int) -> Callable[[Tensor], Tensor]:
    """Makes the function from waveforms [batch, samples], whose gradient is one inverse transform and one addition.

    The one that TensorFlow derives takes four times as long: it goes through complex numbers several times, and pads
    each piece of a window to the whole. With X = Σ x e^(-iωn), the gradient of Σ g |X| by x is
    Re Σ g X / |X| e^(iωn) over the bins there are. The inverse transform counts each twice but the first and the last,
    and divides by the size.
    """

    # Bins that stand for two of the whole spectrum, and the division of the inverse transform.
    hann = periodic_hann(length)
    once = np.full(fft_size // 2 + 1, fft_size / 2, np.float32)
    once[[0, -1]] = fft_size

    def compute(samples: Tensor) -> Any:
        total = ops.shape(samples)[1]

        # [batch, frames, fft_size // 2 + 1]
        real, imaginary = ops.rfft(cut_windows(samples, length, hop) * hann, fft_size)
        power = ops.square(real) + ops.square(imaginary)
        magnitude = ops.sqrt(ops.maximum(power, MIN_POWER))

        def gradient(upstream: Tensor) -> Tensor:
            # g X / |X|, where a magnitude has a gradient.
            share = ops.where(power > MIN_POWER, upstream / magnitude, 0.0) * once
            windows = ops.irfft((real * share, imaginary * share), fft_size)[..., :length] * hann
            # After the last window there are fewer samples than a hop, or zeros that fill up its pieces.
            return ops.pad(overlap_add(windows, hop), [[0, 0], [0, hop]])[:, :total]

        return magnitude, gradient

    function: Callable[[Tensor], Tensor] = custom_gradient(compute)

    return function


def log_mels(waveforms: Tensor, features: FeatureSettings) -> Tensor:
    """Natural logarithms of mel magnitudes, [batch, frames, mels]: windows as the features have them, of magnitude."""

    # Centered frames, as extract has them.
    around = features.win_length // 2
    padded = ops.pad(waveforms, [[0, 0], [around, around]])
    spectrum = magnitudes(padded, features.n_fft, features.hop_length, features.win_length)
    return ops.log(ops.maximum(spectrum @ mel_filterbank(features), MIN_MAGNITUDE))


def mel_distance(generated: Tensor, recorded: Tensor, features: FeatureSettings) -> Tensor:
    """Mean absolute difference of `log_mels`, [batch]."""
    distances = ops.abs(log_mels(generated, features) - log_mels(recorded, features))
    return ops.mean(distances, axis=(1, 2))


def inverse_stft(real: Tensor, imaginary: Tensor, hop: int, present: Tensor | None = None) -> Tensor:
    """Waveforms [batch, (frames - 1) · hop] of spectra [batch, frames, fft_size // 2 + 1] of centered frames.

    Least squares with a Hann window of the FFT's size (Griffin and Lim 1984): `torch.istft(center=True)`.

    Args:
      present: bool [batch, frames, 1], the frames that a row has; those of the others are zero. None: all.
    """
    size = 2 * (real.shape[-1] - 1)

    # Σ window · frame over Σ window², at each sample.
    hann = periodic_hann(size)
    count = ops.shape(real)[1]
    added = overlap_add(ops.irfft((real, imaginary), size) * hann, hop)
    windows = ops.ones((1, count, 1)) if present is None else ops.cast(present, "float32")
    envelope = overlap_add(windows * hann**2, hop)
    samples = (count - 1) * hop

    # From the center of the first frame to that of the last one.
    middle = slice(size // 2, size // 2 + samples)

    return added[:, middle] / ops.maximum(envelope[:, middle], MIN_ENVELOPE)


BANK_TAPS = 62
"""Taps of the prototype filter of four bands, but the last one."""
BANK_CUTOFF = 0.142
"""Cut-off of the prototype, as a share of Nyquist."""
BANK_BETA = 9.0
"""Beta of the prototype's Kaiser window."""


@functools.cache
def bank_filters(bands: int) -> npt.NDArray[np.float64]:
    """The synthesis filters of a cosine-modulated filter bank, float64 [taps + 1, bands].

    Pseudo-QMF (Nguyen 1994, "Near-perfect-reconstruction pseudo-QMF banks"), with the prototype of Yang et al. 2020
    (arXiv 2005.05106). Those of analysis are the same from the last tap to the first.
    """
    from scipy.signal import firwin

    # h_k[n] = 2 p[n] cos((2k + 1) π / 2K · (n - N / 2) - (-1)^k π / 4), of band k.
    taps = np.arange(BANK_TAPS + 1)[:, None]
    prototype = firwin(BANK_TAPS + 1, BANK_CUTOFF, window=("kaiser", BANK_BETA))[:, None]
    band = np.arange(bands)
    angle = (2 * band + 1) * np.pi / (2 * bands) * (taps - BANK_TAPS / 2) - (-1.0) ** band * np.pi / 4
    return np.asarray(2 * prototype * np.cos(angle))


def join_bands(parts: Tensor) -> Tensor:
    """Waveforms [batch, samples · bands] of bands [batch, samples, bands], lowest first, each critically sampled."""
    bands = parts.shape[-1]
    count = ops.shape(parts)[1]
    apart = ops.pad(ops.expand_dims(parts, 2), [[0, 0], [0, 0], [0, bands - 1], [0, 0]])

    # Zeros between the samples of each band, then the synthesis filters, added.
    spread = ops.reshape(apart, (ops.shape(parts)[0], count * bands, bands))
    kernel = (bands * bank_filters(bands)[:, :, None]).astype(np.float32)
    return ops.conv(spread, kernel, padding="same")[..., 0]

"""The distance of two waveforms of the same length by their short-time spectra, at several resolutions.

  log-STFT distance      mean of |20 log10(|X| / |Y|)| over bins and frames, in dB
  spectral convergence   ‖|X| − |Y|‖ / ‖|X|‖ (Frobenius), X the recording
Both are means over `RESOLUTIONS` (Yamamoto, Song and Kim 2020, arXiv 1910.11480, equations 4 to 6). They compare a
vocoder's output with the recording sample by sample; of a voice, which speaks at a pace of its own, they say nothing.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

RESOLUTIONS = ((1024, 120, 600), (2048, 240, 1200), (512, 50, 240))
"""Samples of the FFT, the hop and the Hann window: those of Parallel WaveGAN, whatever the sample rate."""
MIN_POWER = 1e-10
"""Power below which the logarithm is clipped, so that digital silence has no infinite distance."""


class StftDistance(NamedTuple):
    """
    Attributes:
      log_stft: decibels.
      spectral_convergence: a share; 0 if both are equal.
    """

    log_stft: float
    spectral_convergence: float


def stft_distance(recorded: "Array", generated: "Array") -> StftDistance:
    """Compares two waveforms, float32 [samples] each; of the longer one the end is left out.

    >>> import numpy as np
    >>> tone = np.sin(np.arange(8_000) / 5).astype(np.float32)
    >>> stft_distance(tone, tone), round(stft_distance(tone, tone / 2).spectral_convergence, 3)
    (StftDistance(log_stft=0.0, spectral_convergence=0.0), 0.5)
    """
    import numpy as np

    # Frame by frame: both begin together.
    samples = min(len(recorded), len(generated))
    log_distance = []
    convergence = []
    for size, hop, window in RESOLUTIONS:
        reference, other = (_magnitudes(signal[:samples], size, hop, window) for signal in (recorded, generated))

        # The log distance in dB, and the spectral convergence
        log_distance.append(float(np.abs(20 * np.log10(reference / other)).mean()))
        convergence.append(float(np.linalg.norm(reference - other) / np.linalg.norm(reference)))
    return StftDistance(sum(log_distance) / len(RESOLUTIONS), sum(convergence) / len(RESOLUTIONS))


def _magnitudes(samples: "Array", size: int, hop: int, window: int) -> "Array":
    """Computes the magnitudes of whole windows, [frames, size // 2 + 1]; too few samples are padded with zeros."""
    import numpy as np

    from voxline.audio.fft import rfft

    # The periodic Hann window, [window]
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)).astype(np.float32)
    samples = np.pad(samples, (0, max(window - len(samples), 0)))
    windows = np.lib.stride_tricks.sliding_window_view(samples, window)[::hop]

    # [frames, size], zeros behind the window
    block = np.zeros((len(windows), size), np.float32)
    np.multiply(windows, hann, out=block[:, :window])

    # [frames, size // 2 + 1]
    spectrum = rfft(block)
    magnitudes: Array = np.sqrt(np.maximum(spectrum.real**2 + spectrum.imag**2, MIN_POWER))
    return magnitudes

"""Extended short-time objective intelligibility (ESTOI): 1 where speech moves as the recording does, 0 for noise.

After Jensen and Taal 2016, "An Algorithm for Predicting the Intelligibility of Speech Masked by Modulated Noise
Maskers" (IEEE/ACM TASLP 24(11)), section II: spectra of 15 one-third octave bands at 10 kHz, in segments of 384 ms;
each segment is normalized along time and then along frequency, and the two are correlated. Silent frames are left out,
as in Taal et al. 2011. It compares sample by sample: of a voice, which speaks at a pace of its own, it says nothing.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

RATE = 10_000
WINDOW = 256
HOP = 128
FFT_SIZE = 512
SEGMENT = 30
"""Frames."""
BANDS = 15
LOWEST_HZ = 150.0
"""One-third octave bands, and the center of the first."""
DYNAMIC_RANGE = 40.0
"""dB below the loudest frame of the recording under which a frame is silent."""
TINY = 1e-15


def spans(rate: int) -> tuple[int, int, int]:
    """Samples at a rate: of a window, of a hop, and of the waveform that a segment needs.

    >>> spans(10_000), spans(16_000)
    ((256, 128, 3968), (410, 205, 6355))
    """
    window, hop = (round(rate * samples / RATE) for samples in (WINDOW, HOP))
    return window, hop, window + (SEGMENT - 1) * hop


def estoi(recorded: "npt.NDArray[np.float32]", generated: "npt.NDArray[np.float32]", sample_rate: int) -> float | None:
    """Compares two waveforms, float32 [samples] each; of the longer one the end is left out.

    Returns:
      at most 1; None with less than 0.4 seconds of speech in the recording, which make no segment.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    >>> round(estoi(noise, 0.3 * noise, 10_000), 6), estoi(noise[:3_000], noise[:3_000], 10_000)
    (1.0, None)
    """
    import numpy as np

    from voxline.audio.decoding import resample

    # Sample by sample: both must begin together, and the longer end has no counterpart.
    samples = min(len(recorded), len(generated))
    reference, other = (
        np.asarray(samples_of if sample_rate == RATE else resample(samples_of, sample_rate, RATE), np.float64)
        for samples_of in (recorded[:samples], generated[:samples])
    )
    reference, other = _without_silence(reference, other)
    first = _segments(reference)
    second = _segments(other)
    if not len(first):
        return None

    # The correlation of normalized frames, averaged over frames and segments.
    return float((_normalize(first) * _normalize(second)).sum() / (SEGMENT * len(first)))


def _windows(samples: "Array") -> "Array":
    """[frames, WINDOW], each times a Hann window without its zeros; as in the authors' code, none ends with the last
    sample.
    """
    import numpy as np

    if len(samples) <= WINDOW:
        return np.zeros((0, WINDOW))
    windows = np.lib.stride_tricks.sliding_window_view(samples[:-1], WINDOW)[::HOP]
    return np.asarray(windows * np.hanning(WINDOW + 2)[1:-1])


def _without_silence(recorded: "Array", generated: "Array") -> tuple["Array", "Array"]:
    """Both without the frames in which the recording is silent, by overlapping and adding the others."""
    import numpy as np

    windows = _windows(recorded)

    # [frames], dB
    level = 20 * np.log10(np.linalg.norm(windows, axis=1) + np.finfo(float).eps)
    loud = level > level.max(initial=-np.inf) - DYNAMIC_RANGE
    joined = []
    for loud_windows in (windows[loud], _windows(generated)[loud]):
        # Windows overlap by half: [frames + 1, HOP] holds their sum.
        whole = np.zeros((len(loud_windows) + 1, HOP))
        whole[:-1] += loud_windows[:, :HOP]
        whole[1:] += loud_windows[:, HOP:]
        joined.append(whole.reshape(-1))
    return joined[0], joined[1]


def _segments(samples: "Array") -> "Array":
    """Magnitudes of bands, [segments, BANDS, SEGMENT]."""
    import numpy as np

    # [frames, FFT_SIZE // 2 + 1]
    power = np.abs(np.fft.rfft(_windows(samples), FFT_SIZE)) ** 2

    # [frames, BANDS]
    bands = np.sqrt(power @ octave_bands())
    if len(bands) < SEGMENT:
        return np.zeros((0, BANDS, SEGMENT))
    return np.lib.stride_tricks.sliding_window_view(bands, SEGMENT, axis=0)


@functools.cache
def octave_bands(fft_size: int = FFT_SIZE, rate: int = RATE) -> "Array":
    """Assigns bins to bands: [fft_size // 2 + 1, BANDS] of 0 and 1."""
    import numpy as np

    hertz = np.arange(fft_size // 2 + 1) * rate / fft_size

    # A third of an octave each, so the edges are half of that from the centers.
    edges = LOWEST_HZ * 2.0 ** ((2 * np.arange(BANDS + 1) - 1) / 6)
    nearest = np.abs(hertz[:, None] - edges).argmin(axis=0)
    bins = np.arange(len(hertz))[:, None]
    return np.asarray((bins >= nearest[:-1]) & (bins < nearest[1:]), np.float64)


def _normalize(segments: "Array") -> "Array":
    """Zero mean and unit norm of each band over time, then of each frame over bands."""
    import numpy as np

    for axis in (2, 1):
        segments = segments - segments.mean(axis=axis, keepdims=True)
        segments = segments / (np.linalg.norm(segments, axis=axis, keepdims=True) + TINY)
    return segments

"""Loudness and noise of one channel: integrated loudness in LUFS (ITU-R BS.1770-4), level and SNR.

The signal passes two filters (a shelf for the effect of the head, and a high pass), and is averaged over blocks of
400 ms, quiet blocks excluded. The recommendation defines the filters at 48 kHz; at other rates the same analog filters
are used, warped to the rate, as in libebur128 and pyloudnorm.
"""

import math

import numpy as np
import numpy.typing as npt

from voxline.audio.filters import sosfilt

BLOCK_SECONDS = 0.4
STEP_SECONDS = 0.1
ABSOLUTE_GATE = -70.0
RELATIVE_GATE = -10.0
"""A block is excluded below this LUFS, or this many LU below the mean of the others."""

_OFFSET = -0.691
"""Makes a sine of 997 Hz at full scale -3.01 LUFS."""


def integrated_loudness(samples: npt.NDArray[np.float32], sample_rate: int) -> float:
    """Integrated loudness in LUFS.

    A clip shorter than 400 ms is one block. If no block passes the gates (a word in a long silence), the loudest block
    counts: the loudness of the speech is wanted.

    Args:
      samples: float32 `[samples]`, full scale 1; not all zero.
      sample_rate: Hz.

    >>> sine = np.sin(2 * np.pi * 997 * np.arange(48_000) / 48_000).astype(np.float32)
    >>> round(integrated_loudness(sine, 48_000), 2)
    -3.01
    """
    # ITU-R BS.1770-4: K-weighting, blocks of 400 ms, then an absolute and a relative gate.
    weighted = _k_weighted(samples.astype(np.float64), sample_rate)
    powers = np.maximum(_block_powers(weighted, sample_rate), 1e-20)

    # LUFS of each block
    levels = _OFFSET + 10 * np.log10(powers)
    loud = powers[levels > ABSOLUTE_GATE]
    if not loud.size:
        return float(levels.max())

    # The relative gate is below the mean of the blocks above the absolute one, not of all.
    gate = _OFFSET + 10 * math.log10(loud.mean()) + RELATIVE_GATE
    counted = powers[levels > max(gate, ABSOLUTE_GATE)]
    return _OFFSET + 10 * math.log10(counted.mean())


def level_and_snr(samples: npt.NDArray[np.float32], sample_rate: int) -> tuple[float, float]:
    """The RMS level in dB of full scale, and an estimate of the signal-to-noise ratio in dB.

    The estimate is the distance between the 95th and the 10th percentile of the levels of frames of 20 ms: in most
    clips a tenth or more is pause, and pauses are as loud as the noise. It is too low for a clip without a pause, and
    says nothing of noise in speech alone. Frames below -90 dB count as -90 dB.

    Args:
      samples: float32 `[samples]`, full scale 1.

    >>> random = np.random.default_rng(0)
    >>> noise = random.standard_normal(32_000).astype(np.float32) / 1000
    >>> noise[8_000:24_000] += np.sin(np.arange(16_000) / 4).astype(np.float32)  # 57 dB above the noise
    >>> [round(value) for value in level_and_snr(noise, 16_000)]
    [-6, 57]
    """
    frame = max(round(0.02 * sample_rate), 1)
    squares = samples.astype(np.float64) ** 2

    # [frames] mean squares
    whole = squares[: len(squares) // frame * frame].reshape(-1, frame).mean(axis=1)
    if not len(whole):
        whole = np.array([squares.mean() if len(squares) else 0.0])
    levels = np.sort(10 * np.log10(np.maximum(whole, 1e-9)))

    # Sorted levels: percentiles as whole frames, without interpolation.
    loud, quiet = (levels[round(share * (len(levels) - 1))] for share in (0.95, 0.1))
    return 10 * math.log10(max(float(squares.mean()) if len(squares) else 0.0, 1e-9)), float(loud - quiet)


def _k_weighted(samples: npt.NDArray[np.float64], rate: int) -> npt.NDArray[np.float64]:
    return sosfilt([_shelf(rate), _high_pass(rate)], samples)


def _shelf(rate: int) -> list[float]:
    """b0, b1, b2, 1, a1, a2: +4 dB above 1.7 kHz, the effect of the head on sound from the front."""
    # Parameters of the analog filter, from which the coefficients of BS.1770 at 48 kHz follow.
    warped = math.tan(math.pi * 1681.974450955533 / rate)
    quality = 0.7071752369554196
    high = 10 ** (3.999843853973347 / 20)
    band = high**0.4996667741545416
    scale = 1 + warped / quality + warped**2
    return [
        (high + band * warped / quality + warped**2) / scale,
        2 * (warped**2 - high) / scale,
        (high - band * warped / quality + warped**2) / scale,
        1.0,
        2 * (warped**2 - 1) / scale,
        (1 - warped / quality + warped**2) / scale,
    ]


def _high_pass(rate: int) -> list[float]:
    """b0, b1, b2, 1, a1, a2: nothing below 38 Hz."""
    warped = math.tan(math.pi * 38.13547087602444 / rate)
    quality = 0.5003270373238773
    scale = 1 + warped / quality + warped**2
    return [1.0, -2.0, 1.0, 1.0, 2 * (warped**2 - 1) / scale, (1 - warped / quality + warped**2) / scale]


def _block_powers(weighted: npt.NDArray[np.float64], rate: int) -> npt.NDArray[np.float64]:
    """The mean square of each whole block, `[blocks]`; of the whole signal if it is shorter than a block."""
    block = round(BLOCK_SECONDS * rate)
    step = round(STEP_SECONDS * rate)
    if len(weighted) < block:
        return np.array([np.mean(weighted**2)])

    # [samples + 1] running sums
    sums = np.concatenate([[0.0], np.cumsum(weighted**2)])
    starts = np.arange(0, len(weighted) - block + 1, step)
    powers: npt.NDArray[np.float64] = (sums[starts + block] - sums[starts]) / block
    return powers

"""Integrated loudness of one channel, in LUFS (ITU-R BS.1770-4).

The signal passes two filters (a shelf for the effect of the head, and a high pass), and is averaged over blocks of
400 ms, quiet blocks excluded. The recommendation defines the filters at 48 kHz; at other rates the same analog filters
are used, warped to the rate, as in libebur128 and pyloudnorm.
"""

import math

import numpy as np
import numpy.typing as npt

BLOCK_SECONDS, STEP_SECONDS = 0.4, 0.1
ABSOLUTE_GATE, RELATIVE_GATE = -70.0, -10.0
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
    weighted = _k_weighted(samples.astype(np.float64), sample_rate)
    powers = np.maximum(_block_powers(weighted, sample_rate), 1e-20)
    levels = _OFFSET + 10 * np.log10(powers)
    loud = powers[levels > ABSOLUTE_GATE]
    if not loud.size:
        return float(levels.max())
    gate = _OFFSET + 10 * math.log10(loud.mean()) + RELATIVE_GATE
    counted = powers[levels > max(gate, ABSOLUTE_GATE)]
    return _OFFSET + 10 * math.log10(counted.mean())


def _k_weighted(samples: npt.NDArray[np.float64], rate: int) -> npt.NDArray[np.float64]:
    from scipy.signal import sosfilt

    weighted: npt.NDArray[np.float64] = sosfilt(np.array([_shelf(rate), _high_pass(rate)]), samples)
    return weighted


def _shelf(rate: int) -> list[float]:
    """b0, b1, b2, 1, a1, a2: +4 dB above 1.7 kHz, the effect of the head on sound from the front."""
    warped, quality = math.tan(math.pi * 1681.974450955533 / rate), 0.7071752369554196
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
    warped, quality = math.tan(math.pi * 38.13547087602444 / rate), 0.5003270373238773
    scale = 1 + warped / quality + warped**2
    return [1.0, -2.0, 1.0, 1.0, 2 * (warped**2 - 1) / scale, (1 - warped / quality + warped**2) / scale]


def _block_powers(weighted: npt.NDArray[np.float64], rate: int) -> npt.NDArray[np.float64]:
    """The mean square of each whole block, `[blocks]`; of the whole signal if it is shorter than a block."""
    block, step = round(BLOCK_SECONDS * rate), round(STEP_SECONDS * rate)
    if len(weighted) < block:
        return np.array([np.mean(weighted**2)])
    sums = np.concatenate([[0.0], np.cumsum(weighted**2)])
    starts = np.arange(0, len(weighted) - block + 1, step)
    powers: npt.NDArray[np.float64] = (sums[starts + block] - sums[starts]) / block
    return powers

"""What may be done to a recording on its way to a WAV: silence trimmed at both ends, loudness set. Both by config.

Nothing of it clips: where the loudness asked for would drive the peak over -1 dB of full scale, the gain is less.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from components.convert.job import Shaping
from components.convert.loudness import loudness
from components.speech.audio import resample

FRAME_SECONDS = 0.01
PEAK_DB = -1.0
"""dB of full scale that no sample passes when loudness is set; what is between the samples may overshoot by as much."""


def shape(
    samples: npt.NDArray[Any], sample_rate: int, shaping: Shaping
) -> tuple[npt.NDArray[Any], dict[str, float | str]]:
    """Trims, then sets the loudness; a recording without a sound must not come here.

    Args:
      samples: int16 or float32 [samples].

    Returns:
      The samples (as they were, where nothing is asked for), and what was done: trimmed_seconds, gain_db, and
      loudness_lufs as it is afterwards; of each what was asked for.
    """
    done: dict[str, float | str] = {}
    if shaping.trim_db:
        first, last = sounding(samples, sample_rate, shaping.trim_db, shaping.trim_keep_seconds)
        done["trimmed_seconds"] = round((len(samples) - (last - first)) / sample_rate, 4)
        samples = samples[first:last]
    if shaping.loudness_lufs is not None:
        scaled = resample(samples, sample_rate, sample_rate)  # float32, whatever it was
        before = loudness(scaled, sample_rate)
        room = PEAK_DB - 20 * math.log10(float(np.abs(scaled).max()))
        gain = min(shaping.loudness_lufs - before, room)
        samples = scaled * np.float32(10 ** (gain / 20))
        done |= {"gain_db": round(gain, 2), "loudness_lufs": round(before + gain, 2)}
    return samples, done


def sounding(samples: npt.NDArray[Any], sample_rate: int, trim_db: float, keep_seconds: float) -> tuple[int, int]:
    """From where to where the recording sounds, with `keep_seconds` around it as far as they are there.

    Silence is what lies more than `trim_db` below the loudest 10 ms (RMS): relative, since a quiet recording's
    speech is quiet too. 10 ms, since a click of one sample is no speech, and a "t" is hardly longer.

    >>> take = np.concatenate([np.zeros(8000), np.tile([0.5, -0.5], 4000), np.zeros(4000)]).astype(np.float32)
    >>> sounding(take, 16_000, 40, 0.05)
    (7200, 16800)
    """
    frame = max(1, round(FRAME_SECONDS * sample_rate))
    frames = -(-len(samples) // frame)
    padded = np.zeros(frames * frame, np.float64)
    padded[: len(samples)] = samples
    powers = (padded.reshape(frames, frame) ** 2).sum(axis=1)
    loud = np.flatnonzero(powers > powers.max() * 10 ** (-trim_db / 10))
    keep = round(keep_seconds * sample_rate)
    return max(0, int(loud[0]) * frame - keep), min(len(samples), (int(loud[-1]) + 1) * frame + keep)

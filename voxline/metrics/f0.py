"""F0 of what was spoken against F0 of what was recorded, by librosa's pYIN (Mauch and Dixon 2014).

Frames are brought together by the time warping of the mels. F0 is compared where both are voiced (root mean square,
in Hz and in cents); voicing is compared everywhere (share of frames voiced in the one and not in the other, the
voicing decision error of Nakatani et al. 2008).
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


BETA_PARAMETERS = (2, 8)
"""Of the beta distribution of pYIN's thresholds: mean 0.2, the most tolerant that its paper tries. What Griffin-Lim
makes of smooth mels is hoarse, half as periodic as a recording; with librosa's mean of 0.1 whole utterances that
anybody hears as voiced have no F0 at all. Still more tolerance finds octaves that are not there."""


@dataclasses.dataclass(frozen=True)
class F0Pair:
    """Two recordings to be compared.

    Attributes:
      recorded, spoken: float32 [samples].
      path: int32 [steps, 2], which frame of the one goes with which of the other.
      hop: samples from one frame to the next.
      lowest, highest: Hz.
    """

    recorded: "Array"
    spoken: "Array"
    path: "npt.NDArray[np.int32]"
    sample_rate: int
    hop: int
    lowest: float
    highest: float


@dataclasses.dataclass(frozen=True)
class F0Comparison:
    """How two recordings differ in pitch; None where no frame is voiced in both.

    Attributes:
      hertz, cents: root mean square difference of F0.
      voicing_error: share of frames.
    """

    hertz: float | None
    cents: float | None
    voicing_error: float


def compare_f0(jobs: Sequence[F0Pair]) -> Iterator[F0Comparison]:
    """Compares each pair, in their order.

    In threads: numba and numpy let each other run, and a fresh process would first import librosa for seconds.
    """
    import librosa

    librosa.pyin  # noqa: B018  (librosa imports what is asked of it: here, and not in several threads at once)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(compare_pair, jobs)


def compare_pair(job: F0Pair) -> F0Comparison:
    """Compares one pair."""
    import numpy as np

    recorded, spoken = estimate_f0(job.recorded, job), estimate_f0(job.spoken, job)
    one = recorded[np.minimum(job.path[:, 0], len(recorded) - 1)]
    other = spoken[np.minimum(job.path[:, 1], len(spoken) - 1)]
    voiced = np.isfinite(one) & np.isfinite(other)
    error = float((np.isfinite(one) != np.isfinite(other)).mean())
    if not voiced.any():
        return F0Comparison(None, None, error)
    hertz = other[voiced] - one[voiced]
    cents = 1200 * np.log2(other[voiced] / one[voiced])
    return F0Comparison(float(np.sqrt((hertz**2).mean())), float(np.sqrt((cents**2).mean())), error)


def estimate_f0(samples: "Array", job: F0Pair) -> "npt.NDArray[np.float64]":
    """F0 of each frame in Hz, float64 [frames]; not a number where it is unvoiced."""
    import librosa
    import numpy as np

    window = 1 << int(np.ceil(np.log2(4 * job.sample_rate / job.lowest)))
    if len(samples) < window:
        samples = np.pad(samples, (0, window - len(samples)))
    found, _, _ = librosa.pyin(
        samples,
        fmin=job.lowest,
        fmax=job.highest,
        sr=job.sample_rate,
        frame_length=window,
        hop_length=job.hop,
        beta_parameters=BETA_PARAMETERS,
    )
    pitch: npt.NDArray[np.float64] = found
    return pitch

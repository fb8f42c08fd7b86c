"""F0 of synthesized speech against the recording, by librosa's pYIN (Mauch and Dixon 2014).

DTW of the mels pairs the frames. F0 is compared where both are voiced (root mean square, in Hz and in cents);
voicing is compared everywhere (share of frames voiced in only one of the two, the voicing decision error of Nakatani
et al. 2008).
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
"""Of the beta distribution of pYIN's thresholds: mean 0.2, the most tolerant in the paper. Griffin-Lim makes hoarse
speech of smooth mels, half as periodic as a recording; with librosa's mean of 0.1, utterances that are clearly voiced
have no F0 at all. More tolerance than this finds octaves that are not there."""


@dataclasses.dataclass(frozen=True)
class F0Pair:
    """A recording and synthesized speech.

    Attributes:
      recorded, synthesized: float32 [samples].
      path: int32 [steps, 2], the pairs of frames.
      hop: samples from one frame to the next.
      lowest, highest: range of F0 to search, in Hz.
    """

    recorded: "Array"
    synthesized: "Array"
    path: "npt.NDArray[np.int32]"
    sample_rate: int
    hop: int
    lowest: float
    highest: float


@dataclasses.dataclass(frozen=True)
class F0Comparison:
    """The difference in F0 of a pair; None if no frame is voiced in both.

    Attributes:
      hertz, cents: root mean square difference of F0.
      voicing_error: share of frames.
      recorded_spread, synthesized_spread: cents, see `f0_spread`; 0 without a voiced frame.
    """

    hertz: float | None
    cents: float | None
    voicing_error: float
    recorded_spread: float
    synthesized_spread: float


def compare_f0(pairs: Sequence[F0Pair]) -> Iterator[F0Comparison]:
    """Compares each pair, in order.

    It uses threads: numba and numpy release the interpreter, and a new process would import librosa for seconds.
    """
    if not pairs:
        return
    import librosa

    librosa.pyin  # noqa: B018  (librosa imports it lazily: once here, not in several threads at once)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(compare_pair, pairs)


def compare_pair(pair: F0Pair) -> F0Comparison:
    """Compares one pair."""
    # [frames] each, Hz; NaN where unvoiced
    import numpy as np

    recorded = estimate_f0(pair.recorded, pair)
    synthesized = estimate_f0(pair.synthesized, pair)

    # [steps] F0 along the path, in Hz
    reference = recorded[np.minimum(pair.path[:, 0], len(recorded) - 1)]
    other = synthesized[np.minimum(pair.path[:, 1], len(synthesized) - 1)]
    voiced = np.isfinite(reference) & np.isfinite(other)
    error = float((np.isfinite(reference) != np.isfinite(other)).mean())
    spreads = f0_spread(recorded), f0_spread(synthesized)
    if not voiced.any():
        # No frame is voiced in both: there is no error of F0, but one of voicing.
        return F0Comparison(None, None, error, *spreads)

    # 1,200 cents are an octave.
    hertz = other[voiced] - reference[voiced]
    cents = 1200 * np.log2(other[voiced] / reference[voiced])
    return F0Comparison(float(np.sqrt((hertz**2).mean())), float(np.sqrt((cents**2).mean())), error, *spreads)


def f0_spread(f0: "npt.NDArray[np.float64]") -> float:
    """Cents from the 10th to the 90th percentile of F0 in Hz; frames that are NaN do not count. 0 of no other frame.

    A few frames that are taken for an octave higher or lower do not change it, as they would a deviation.

    >>> import numpy as np
    >>> round(f0_spread(np.geomspace(100, 200, 101))), f0_spread(np.array([np.nan]))
    (960, 0.0)
    """
    import numpy as np

    voiced = f0[np.isfinite(f0)]
    if not len(voiced):
        return 0.0
    low, high = np.percentile(1200 * np.log2(voiced), (10, 90)).tolist()
    return float(high - low)


def estimate_f0(samples: "Array", pair: F0Pair) -> "npt.NDArray[np.float64]":
    """F0 of each frame in Hz, float64 [frames]; NaN if unvoiced."""
    import librosa
    import numpy as np

    # At least four periods of the lowest F0, as a power of two.
    window = 1 << int(np.ceil(np.log2(4 * pair.sample_rate / pair.lowest)))
    if len(samples) < window:
        samples = np.pad(samples, (0, window - len(samples)))
    f0, _, _ = librosa.pyin(
        samples,
        fmin=pair.lowest,
        fmax=pair.highest,
        sr=pair.sample_rate,
        frame_length=window,
        hop_length=pair.hop,
        beta_parameters=BETA_PARAMETERS,
    )
    hertz: npt.NDArray[np.float64] = f0
    return hertz

"""Sharpness of mels, and their change over time: what a network loses that predicts the mean of what is possible.

  sharpness        mean over frames and neighboring bins of |x[t, k + 1] - x[t, k]|
  change over time mean over neighboring frames and bins of |x[t + 1, k] - x[t, k]|

An evaluation reports both as a share of the recording's. Neither needs frames to be paired, so pace does not matter.
They say how much detail there is, not whether it is right: noise has plenty. Mel cepstral distortion says the latter.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


def sharpness(mels: "Array") -> float:
    """Mean absolute difference of neighboring bins of [frames, mels], in the units of the features.

    >>> import numpy as np
    >>> sharpness(np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 4.0]]))
    1.5
    """
    return _mean_step(mels, 1)


def change_over_time(mels: "Array") -> float:
    """Mean absolute difference of neighboring frames of [frames, mels], in the units of the features; 0 of one frame.

    >>> import numpy as np
    >>> change_over_time(np.array([[0.0, 2.0], [1.0, 2.0]])), change_over_time(np.array([[0.0, 2.0]]))
    (0.5, 0.0)
    """
    return _mean_step(mels, 0)


def _mean_step(mels: "Array", axis: int) -> float:
    import numpy as np

    steps = np.abs(np.diff(np.asarray(mels, np.float64), axis=axis))
    return float(steps.mean()) if steps.size else 0.0

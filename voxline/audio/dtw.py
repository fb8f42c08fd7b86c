"""Dynamic time warping: aligns the frames of two recordings, and measures their distance.

A path leads from the first frames to the last ones; each step advances one frame in either recording or in both. The
path of least total cost is found (Sakoe and Chiba 1978, symmetric form without weights).
"""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Frames = npt.NDArray[np.floating]
    Costs = npt.NDArray[np.float64]
    Path = npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True)
class DtwResult:
    """The alignment of two recordings.

    Attributes:
      distance: mean cost along the path.
      path: int32 `[steps, 2]`, pairs of frames from (0, 0) to the last frame of both.
    """

    distance: float
    path: "Path"


def dtw(first: "Frames", other: "Frames") -> DtwResult:
    """Aligns two recordings by the mean absolute difference of their frames.

    Args:
      first, other: float `[frames, bins]` with the same number of bins, and at least one frame.

    Raises:
      ValueError: the numbers of bins differ, or there are no frames.

    >>> import numpy as np
    >>> dtw(np.array([[0.0], [1.0], [4.0]]), np.array([[0.0], [0.0], [1.0], [3.0]])).distance
    0.25
    """
    from scipy.spatial.distance import cdist

    if first.ndim != 2 or other.ndim != 2 or first.shape[1] != other.shape[1] or not first.size or not other.size:
        raise ValueError(
            f"shapes {first.shape} and {other.shape}: [frames, bins] with frames and equal bins are accepted"
        )
    return align_by_cost(cdist(first, other, "cityblock") / first.shape[1])


def align_by_cost(costs: "Costs") -> DtwResult:
    """Aligns two recordings by the cost of each pair of frames.

    Args:
      costs: float64 `[frames, other frames]`, finite; negative ones are gains.

    Raises:
      ValueError: there are no frames, or a cost is not finite.
    """
    import numpy as np

    if costs.ndim != 2 or not costs.size or not np.isfinite(costs).all():
        raise ValueError(f"costs {costs.shape}: finite costs [frames, frames] with at least one frame are accepted")

    # [steps, 2]
    path = _trace_back(_accumulate_costs(costs))
    return DtwResult(float(costs[path[:, 0], path[:, 1]].mean()), path)


def _accumulate_costs(costs: "Costs") -> "Costs":
    """The least total cost up to each pair, by anti-diagonals: `[rows + columns - 1, rows + 1]`.

    Pair (i, j) is at [i + j, i + 1]. An anti-diagonal follows from the two before it at once, which gives numpy long
    rows to work on. Column 0, and positions that are not a pair, are infinite.
    """
    import numpy as np

    rows, columns = costs.shape
    summed = np.full((rows + columns - 1, rows + 1), np.inf)
    # Pair (i, j) is (i + j)(rows + 1) + i + 1 items from the start: a view with these two strides.
    item = summed.itemsize
    skewed = np.lib.stride_tricks.as_strided(summed.ravel()[1:], costs.shape, ((rows + 2) * item, (rows + 1) * item))
    skewed[...] = costs

    # [rows] the cheapest way into each pair of the anti-diagonal
    before = np.empty(rows)
    for diagonal in range(1, len(summed)):
        last = summed[diagonal - 1]
        np.minimum(last[1:], last[:-1], out=before)  # from (i, j - 1) and from (i - 1, j)
        if diagonal > 1:
            np.minimum(before, summed[diagonal - 2, :-1], out=before)  # from (i - 1, j - 1)
        summed[diagonal, 1:] += before
    return summed


def _trace_back(summed: "Costs") -> "Path":
    """The path, traced from the last pair to the first; ties advance both."""
    import numpy as np

    rows = summed.shape[1] - 1
    i = rows - 1

    # A pair (i, j) is on anti-diagonal i + j.
    j = len(summed) - rows
    path = [(i, j)]
    while i or j:
        diagonal = i + j
        # Out of range in a direction: infinite, so it is never chosen.
        diagonal_cost = summed[diagonal - 2, i] if i and j else np.inf
        left = summed[diagonal - 1, i + 1] if j else np.inf
        above = summed[diagonal - 1, i]
        if diagonal_cost <= left and diagonal_cost <= above:
            i = i - 1
            j = j - 1
        elif left <= above:
            j -= 1
        else:
            i -= 1
        path.append((i, j))
    return np.array(path[::-1], np.int32)

"""Dynamic time warping: which frame of one recording goes with which of another, and how far apart they are.

A path starts at both first frames, ends at both last ones, and each step goes on by one frame in one recording
or in both. The path with the least summed cost is found (Sakoe and Chiba 1978, symmetric form without weights).
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
    """Two recordings, laid over each other.

    Attributes:
      distance: mean cost along the path.
      path: int32 [steps, 2], the frame of the one and of the other; from (0, 0) to the last of both.
    """

    distance: float
    path: "Path"


def dtw(one: "Frames", other: "Frames") -> DtwResult:
    """Warps by the mean absolute difference of two frames.

    Args:
      one, other: [frames, bins] with equally many bins, at least one frame each.

    Raises:
      ValueError: the bins differ, or there is no frame.

    >>> import numpy as np
    >>> dtw(np.array([[0.0], [1.0], [4.0]]), np.array([[0.0], [0.0], [1.0], [3.0]])).distance
    0.25
    """
    from scipy.spatial.distance import cdist

    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1] or not one.size or not other.size:
        raise ValueError(
            f"shapes {one.shape} and {other.shape}: [frames, bins] with frames and equal bins are accepted"
        )
    return align_by_cost(cdist(one, other, "cityblock") / one.shape[1])


def align_by_cost(costs: "Costs") -> DtwResult:
    """Warps by a given cost of each pair of frames.

    Args:
      costs: [frames of the one, frames of the other], finite and not below 0.

    Raises:
      ValueError: there is no frame, or a cost is not finite.
    """
    import numpy as np

    if costs.ndim != 2 or not costs.size or not np.isfinite(costs).all():
        raise ValueError(f"costs {costs.shape}: finite costs [frames, frames] with at least one frame are accepted")
    path = _trace_back(_accumulate_costs(costs))
    return DtwResult(float(costs[path[:, 0], path[:, 1]].mean()), path)


def _accumulate_costs(costs: "Costs") -> "Costs":
    """The least sum of costs up to each pair, by anti-diagonals: [rows + columns - 1, rows + 1].

    Pair (i, j) stands at [i + j, i + 1]; all of an anti-diagonal follow from the two before it at once, so
    numpy has long rows to work on. Column 0 and what is no pair are infinite.
    """
    import numpy as np

    rows, columns = costs.shape
    summed = np.full((rows + columns - 1, rows + 1), np.inf)
    # The cell of (i, j) lies (i + j)(rows + 1) + i + 1 items from the start: a view with these two strides.
    item = summed.itemsize
    skewed = np.lib.stride_tricks.as_strided(summed.ravel()[1:], costs.shape, ((rows + 2) * item, (rows + 1) * item))
    skewed[...] = costs
    before = np.empty(rows)
    for diagonal in range(1, len(summed)):
        last = summed[diagonal - 1]
        np.minimum(last[1:], last[:-1], out=before)  # from (i, j - 1) and from (i - 1, j)
        if diagonal > 1:
            np.minimum(before, summed[diagonal - 2, :-1], out=before)  # from (i - 1, j - 1)
        summed[diagonal, 1:] += before
    return summed


def _trace_back(summed: "Costs") -> "Path":
    """From the last pair back to the first; where sums are equal, on in both."""
    import numpy as np

    rows = summed.shape[1] - 1
    i, j = rows - 1, len(summed) - rows
    path = [(i, j)]
    while i or j:
        diagonal = i + j
        both = summed[diagonal - 2, i] if i and j else np.inf
        left, above = summed[diagonal - 1, i + 1] if j else np.inf, summed[diagonal - 1, i]
        if both <= left and both <= above:
            i, j = i - 1, j - 1
        elif left <= above:
            j -= 1
        else:
            i -= 1
        path.append((i, j))
    return np.array(path[::-1], np.int32)

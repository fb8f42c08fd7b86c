"""Recursive filters as second-order sections: scipy's, without importing `scipy.signal`, which takes a second.

Where scipy is absent, a loop does the same arithmetic: some 10 ms for a second of audio.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.fft import load_extension

Array = npt.NDArray[np.float64]


def sosfilt(sections: list[list[float]], samples: npt.NDArray[Any]) -> Array:
    """Filters samples from rest, as `scipy.signal.sosfilt`: float64 `[samples]`.

    Args:
      sections: b0, b1, b2, 1, a1, a2 of each, in the order in which they follow each other.
      samples: `[samples]`, of any float type.

    >>> sosfilt([[1, 0, 0, 1, -0.5, 0]], np.array([1.0, 0.0, 0.0]))
    array([1.  , 0.5 , 0.25])
    """
    return _load_sosfilt()(np.array(sections, np.float64), samples.astype(np.float64))


@functools.cache
def _load_sosfilt() -> Callable[[Array, Array], Array]:
    library = load_extension("signal/_sosfilt", "_sosfilt")
    if library is None:
        with contextlib.suppress(ModuleNotFoundError):
            from scipy import signal

            return lambda sections, samples: np.asarray(signal.sosfilt(sections, samples))
        return filter_in_a_loop

    # Zeros are the state of a filter at rest, [signals, sections, 2].
    def filtered(sections: Array, samples: Array) -> Array:
        library._sosfilt(sections, samples[None], np.zeros((1, len(sections), 2)))  # in place
        return samples

    return filtered


def filter_in_a_loop(sections: Array, samples: Array) -> Array:
    """As `sosfilt`, in Python: direct form II, transposed.

    >>> filter_in_a_loop(np.array([[1, 0, 0, 1, -0.5, 0]]), np.array([1.0, 0.0, 0.0]))
    array([1.  , 0.5 , 0.25])
    """
    values = samples.tolist()
    for b0, b1, b2, _, a1, a2 in sections.tolist():
        first = 0.0
        second = 0.0
        for index, value in enumerate(values):
            result = b0 * value + first
            first = b1 * value - a1 * result + second
            second = b2 * value - a2 * result
            values[index] = result
    return np.array(values, np.float64)

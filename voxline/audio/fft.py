"""The real FFT of frames: scipy's, without importing `scipy.fft`, which takes longer than the features of a small
refresh. Features and prosody both need it, and features may hold prosody.
"""

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_FRAMES = 256
"""Frames transformed at a time. 256 x 512 floats fit in the cache; a whole utterance takes 2.5 times as long."""


def rfft(frames: npt.NDArray[np.float32]) -> npt.NDArray[np.complex64]:
    """The FFT of each frame, as `scipy.fft.rfft`: `[frames, samples]` to complex64 `[frames, samples // 2 + 1]`.

    >>> rfft(np.ones((1, 4), np.float32))
    array([[4.+0.j, 0.+0.j, 0.+0.j]], dtype=complex64)
    """
    spectrum: npt.NDArray[np.complex64] = _load_rfft()(frames)
    return spectrum


@functools.cache
def _load_rfft() -> Callable[[npt.NDArray[np.float32]], Any]:
    """Loads scipy's compiled FFT directly."""
    scipy = importlib.util.find_spec("scipy")
    for folder in (scipy.submodule_search_locations or []) if scipy else []:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = Path(folder, "fft", "_pocketfft", f"pypocketfft{suffix}")
            spec = importlib.util.spec_from_file_location("pypocketfft", file) if file.is_file() else None
            if spec and spec.loader:
                library = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(library)
                if hasattr(library, "r2c"):
                    return lambda frames: library.r2c(frames, (1,), True, 0, None, 1)
    from scipy import fft  # a version of scipy with another layout

    return lambda frames: fft.rfft(frames, axis=1)

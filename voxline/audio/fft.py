"""The real FFT of frames, and convolution: scipy's, without importing its packages; NumPy's where scipy is absent.

`scipy.fft` takes longer to import than the features of a small refresh take to compute, and `scipy.signal`, which
imports all of scipy, a second. Features and prosody both need the FFT, and features may hold prosody. The core does
without scipy's 114 MB: NumPy's FFT is the same pocketfft, two to nine times slower, and differs in the last bit.
"""

import contextlib
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


def irfft(spectrum: npt.NDArray[np.complex64], samples: int) -> npt.NDArray[np.float32]:
    """The inverse of `rfft`: complex64 `[frames, samples // 2 + 1]`, which it may overwrite, to `[frames, samples]`."""
    frames: npt.NDArray[np.float32] = _load_irfft()(spectrum, samples)
    return frames


def convolve(first: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Convolves two signals by their FFT, as `scipy.signal.fftconvolve`: float32 `[first + other - 1 samples]`.

    >>> convolve(np.array([1, 2], np.float32), np.array([1, 0, 3], np.float32)).round(6)
    array([1., 2., 3., 6.], dtype=float32)
    >>> len(convolve(np.zeros(0, np.float32), np.ones(2, np.float32)))
    0
    """
    if not (len(first) and len(other)):
        return np.zeros(0, np.float32)
    convolved: npt.NDArray[np.float32] = _load_convolve()(first, other)
    return convolved


def load_extension(part: str, function: str) -> Any:
    """Loads a compiled part of scipy by itself; None if scipy is absent, or has another layout.

    Args:
      part: its path inside the package, as "signal/_sosfilt".
      function: a function that it must have.
    """
    # The file of the extension alone: importing the package would load all of scipy.
    scipy = importlib.util.find_spec("scipy")
    for folder in (scipy.submodule_search_locations or []) if scipy else []:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = Path(folder, f"{part}{suffix}")
            spec = importlib.util.spec_from_file_location(file.name.partition(".")[0], file) if file.is_file() else None
            if spec and spec.loader:
                library = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(library)
                if hasattr(library, function):
                    return library
    return None


@functools.cache
def _load_rfft() -> Callable[[npt.NDArray[np.float32]], Any]:
    if library := load_extension("fft/_pocketfft/pypocketfft", "r2c"):
        # Arguments of pocketfft: axes, forward, no normalization, no output array, one thread.
        return lambda frames: library.r2c(frames, (1,), True, 0, None, 1)
    with contextlib.suppress(ModuleNotFoundError):
        from scipy import fft

        return lambda frames: fft.rfft(frames, axis=1)
    return lambda frames: np.fft.rfft(frames, axis=1)


@functools.cache
def _load_irfft() -> Callable[[npt.NDArray[np.complex64], int], Any]:
    if library := load_extension("fft/_pocketfft/pypocketfft", "c2r"):
        # Normalization 2 divides by the size.
        return lambda spectrum, samples: library.c2r(spectrum, (1,), samples, False, 2, None, 1)
    return lambda spectrum, samples: np.fft.irfft(spectrum, samples, axis=1)


@functools.cache
def _load_convolve() -> Callable[[npt.NDArray[np.float32], npt.NDArray[np.float32]], Any]:
    library = load_extension("fft/_pocketfft/pypocketfft", "r2c")
    if library is None:
        from scipy import signal

        return lambda first, other: signal.fftconvolve(first, other)

    def convolve(first: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> Any:
        samples = len(first) + len(other) - 1
        # A size of small prime factors, at least the length of the result: circular convolution must not wrap.
        size = library.good_size(samples, True)
        spectra = [
            library.r2c(np.pad(signal_samples, (0, size - len(signal_samples))), (0,), True, 0, None, 1)
            for signal_samples in (first, other)
        ]
        # Normalization 2 divides by the size.
        return library.c2r(spectra[0] * spectra[1], (0,), size, False, 2, None, 1)[:samples]

    return convolve

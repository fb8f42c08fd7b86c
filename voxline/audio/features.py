"""From samples to features, in numpy: log-mel, MFCC with context, linear spectrogram, mel beside linear.

Conventions are librosa's (periodic Hann window, centred frames with zeros beyond the ends, Slaney mel scale
and normalisation), and librosa is the oracle in the tests. What each kind holds, per frame:
  log_mel  natural logarithm of the mel power spectrum, cut at `log_floor`; or of the mel magnitude spectrum, as
           Tacotron 2 has it (Shen et al. 2018)
  mfcc     `librosa.feature.mfcc` (orthonormal DCT-II of decibels of mel power), but cut at `log_floor` and not at
           80 dB under the recording's peak, which a recogniser that listens along cannot know; then the
           frames on each side stacked as Mozilla's DeepSpeech does, oldest first, zeros beyond the ends
  linear   natural logarithm of the power spectrum, cut at `log_floor`
  mel_and_linear  mels, then the linear spectrum, as Tacotron has them (Wang et al. 2017): magnitudes after
           pre-emphasis, in decibels over `reference_db`; `floor_db` and less becomes 0, the reference and more 1
"""

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings


def rfft(frames: npt.NDArray[np.float32]) -> npt.NDArray[np.complex64]:
    """The transform of each frame: `[frames, samples]` to `[frames, samples // 2 + 1]`, as `scipy.fft.rfft` has it.

    >>> rfft(np.ones((1, 4), np.float32))
    array([[4.+0.j, 0.+0.j, 0.+0.j]], dtype=complex64)
    """
    found: npt.NDArray[np.complex64] = _load_rfft()(frames)
    return found


@functools.cache
def _load_rfft() -> Callable[[npt.NDArray[np.float32]], Any]:
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
    from scipy import fft  # of a version that keeps it elsewhere

    return lambda frames: fft.rfft(frames, axis=1)


FloatArray = npt.NDArray[np.float32]

BLOCK_FRAMES = 256
"""Frames transformed at a time: 256 × 512 floats stay in the cache, a whole utterance does not (2.5 times slower)."""


BAND_MELS = 16
"""Mel filters multiplied at a time."""

MIN_MAGNITUDE = 1e-5
"""Tacotron's decibels are cut here: -100 dB, far under the floor that its settings have."""


def compute_features(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """The features of one recording, float32 `[frames, bins]`.

    Args:
      samples: `[samples]`, in [-1, 1], at `settings.sample_rate`.

    >>> compute_features(np.zeros(16_000, np.float32), FeatureSettings(mels=40)).shape
    (101, 40)
    """
    if settings.kind == "linear":
        spectrum = power_spectrogram(samples, settings)
        return np.log(np.maximum(spectrum, settings.log_floor, out=spectrum), out=spectrum)
    if settings.kind == "mel_and_linear":
        both = _spectrogram(preemphasize(samples, settings), settings, mels=True, spectrum=True, magnitude=True)
        return _normalize_decibels(both, settings)
    mels = _spectrogram(samples, settings, mels=True, magnitude=settings.uses_magnitude)
    logarithm = np.log(np.maximum(mels, settings.log_floor, out=mels), out=mels)
    if settings.kind == "log_mel":
        return logarithm
    return stack_context(logarithm @ cepstral_basis(settings), settings.context)


def power_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Squared magnitudes of the transform, float32 `[frames, transform // 2 + 1]`."""
    return _spectrogram(samples, settings, spectrum=True)


def mel_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Power in each mel band, float32 `[frames, mels]`; `librosa.feature.melspectrogram`, transposed."""
    return _spectrogram(samples, settings, mels=True)


def magnitude_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Magnitudes of the transform, float32 `[frames, transform // 2 + 1]`; of the samples as they are given."""
    return _spectrogram(samples, settings, spectrum=True, magnitude=True)


def preemphasize(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> npt.NDArray[np.floating]:
    """Takes a share of the sample before off each, which lifts what is high: float32 `[samples]`.

    >>> preemphasize(np.ones(3), FeatureSettings(kind="mel_and_linear", preemphasis=0.75)).tolist()
    [1.0, 0.25, 0.25]
    """
    if not settings.preemphasis_factor:
        return samples
    lifted = samples.astype(np.float32)
    lifted[1:] -= np.float32(settings.preemphasis_factor) * samples[:-1]
    return lifted


@functools.lru_cache(maxsize=16)
def hann_window(settings: FeatureSettings) -> FloatArray:
    """The periodic Hann window, float32 `[window]`."""
    phase = 2 * np.pi * np.arange(settings.win_length) / settings.win_length
    return read_only(0.5 - 0.5 * np.cos(phase))


@functools.lru_cache(maxsize=16)
def mel_filterbank(settings: FeatureSettings) -> FloatArray:
    """The weights from power spectrum to mel bands, float32 `[transform // 2 + 1, mels]`.

    Triangles on Slaney's scale (Auditory Toolbox, 1998), each of unit area in Hz: `librosa.filters.mel`,
    transposed, without the two seconds that importing librosa takes.
    """
    highest = settings.sample_rate / 2 if settings.highest_hz is None else settings.highest_hz
    edges = _hz(np.linspace(_mel(settings.lowest_hz), _mel(highest), settings.mels + 2))
    frequencies = np.fft.rfftfreq(settings.n_fft, 1 / settings.sample_rate)[:, None]
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - left) / (middle - left)
    falling = (right - frequencies) / (right - middle)
    return read_only(np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left))


@functools.lru_cache(maxsize=16)
def cepstral_basis(settings: FeatureSettings) -> FloatArray:
    """From natural logarithms of mel power to MFCC, float32 `[mels, coefficients]`.

    The orthonormal DCT-II, times 10 / ln 10, since librosa takes the cepstrum of decibels.
    """
    band = np.arange(settings.mels)[:, None] + 0.5
    basis = np.cos(np.pi / settings.mels * band * np.arange(settings.coefficients)) * np.sqrt(2 / settings.mels)
    basis[:, 0] /= np.sqrt(2)
    return read_only(basis * 10 / np.log(10))


def stack_context(frames: FloatArray, context: int) -> FloatArray:
    """Each frame between its neighbours: `[frames, bins]` to `[frames, (2 context + 1) bins]`.

    >>> stack_context(np.array([[1], [2], [3]], np.float32), 1).tolist()
    [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 0.0]]
    """
    if context == 0:
        return frames
    padded = np.pad(frames, ((context, context), (0, 0)))
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, 2 * context + 1, axis=0)  # [frames, bins, 2c + 1]
    return np.ascontiguousarray(neighbours.transpose(0, 2, 1)).reshape(len(frames), -1)


def _normalize_decibels(magnitudes: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Magnitudes to decibels, and those to [0, 1], in place."""
    decibels = np.log(np.maximum(magnitudes, MIN_MAGNITUDE, out=magnitudes), out=magnitudes)
    decibels *= 20 / np.log(10) / -settings.floor_db
    decibels += 1 + settings.reference_db / settings.floor_db
    return np.clip(decibels, 0, 1, out=decibels)


def _spectrogram(
    samples: npt.NDArray[np.floating],
    settings: FeatureSettings,
    *,
    mels: bool = False,
    spectrum: bool = False,
    magnitude: bool = False,
) -> FloatArray:
    """Power or magnitude of every frame, in mel bands, in bins or in both; block by block, in float32 throughout."""
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise ValueError(
            f"samples of shape {samples.shape} and dtype {samples.dtype}; one channel, [samples], of floats in [-1, 1] "
            "is accepted (divide int16 by 32768)"
        )
    count = settings.count_frames(len(samples))
    padded = np.zeros((count - 1) * settings.hop_length + settings.win_length + settings.padding, np.float32)
    audible = samples[: len(padded) - settings.padding]  # what lies beyond the last window is not looked at
    padded[settings.padding : settings.padding + len(audible)] = audible
    windows = np.lib.stride_tricks.sliding_window_view(padded, settings.win_length)[:: settings.hop_length][:count]
    hann = hann_window(settings)
    bands, first = (_bands(settings), settings.mels) if mels else ([], 0)
    # A shorter window than transform stands at the start of its frame, not in the middle as in librosa:
    # that turns phases, and neither power nor magnitude has any.
    block = np.zeros((min(BLOCK_FRAMES, count), settings.n_fft), np.float32)
    result = np.zeros((count, first + settings.fft_bins if spectrum else first), np.float32)
    for start in range(0, count, BLOCK_FRAMES):
        rows = slice(start, min(start + BLOCK_FRAMES, count))
        frames = block[: rows.stop - start]
        np.multiply(windows[rows], hann, out=frames[:, : settings.win_length])
        parts = rfft(frames).view(np.float32)
        np.square(parts, out=parts)
        power = parts[:, 0::2] + parts[:, 1::2]
        if magnitude:
            np.sqrt(power, out=power)
        if spectrum:
            result[rows, first:] = power
        for band in bands:
            np.matmul(power[:, band.bins], band.weights, out=result[rows, band.mels])
    return result


class _Band(NamedTuple):
    """Neighbouring mel filters, and the part of the spectrum in which any of them is not zero."""

    bins: slice
    mels: slice
    weights: FloatArray


@functools.lru_cache(maxsize=16)
def _bands(settings: FeatureSettings) -> list[_Band]:
    """The filterbank without most of its zeros, which takes a quarter of the time of the whole matrix."""
    weights = mel_filterbank(settings)
    bands = []
    for first in range(0, settings.mels, BAND_MELS):
        mels = slice(first, min(first + BAND_MELS, settings.mels))
        used = np.flatnonzero(weights[:, mels].any(axis=1))
        if len(used):  # none where the transform is too coarse for so many mels
            bins = slice(int(used[0]), int(used[-1]) + 1)
            bands.append(_Band(bins, mels, np.ascontiguousarray(weights[bins, mels])))
    return bands


_LINEAR_HZ, _LINEAR_MEL, _LOG_STEP = 1000.0, 15.0, np.log(6.4) / 27
"""Slaney's scale: 200/3 Hz a mel up to 1 kHz, then 27 mels for a factor of 6.4."""


def _mel(hz: float) -> float:
    return hz * 3 / 200 if hz < _LINEAR_HZ else _LINEAR_MEL + float(np.log(hz / _LINEAR_HZ)) / _LOG_STEP


def _hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mels < _LINEAR_MEL, mels * 200 / 3, _LINEAR_HZ * np.exp(_LOG_STEP * (mels - _LINEAR_MEL)))


def read_only(values: npt.NDArray[np.float64]) -> FloatArray:
    """Cached arrays are handed to many callers; none may write to them."""
    array = np.ascontiguousarray(values, np.float32)
    array.flags.writeable = False
    return array

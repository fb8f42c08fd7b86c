"""Features from samples, in numpy: log-mel, MFCC with context, linear spectrogram, mels with a spectrum or prosody.

  settings = FeatureSettings(kind="log_mel", mels=80)
  features = compute_features(samples, settings)          # float32 [frames, bins]

The conventions are librosa's (periodic Hann window, centered frames with zeros beyond the ends, Slaney mel scale and
normalization), and the tests compare with librosa. A frame of each kind holds:
  log_mel         natural logarithm of the mel power spectrum, clipped at `log_floor`; or of the mel magnitude spectrum,
                  as in Tacotron 2 (Shen et al. 2018)
  mfcc            `librosa.feature.mfcc` (orthonormal DCT-II of decibels of mel power), but clipped at `log_floor`, not
                  at 80 dB below the recording's peak, which a streaming recognizer cannot know; then stacked with the
                  frames on each side as in Mozilla's DeepSpeech, oldest first, zeros beyond the ends. With
                  `cepstra: tensorflow` as by TensorFlow's ops AudioSpectrogram and Mfcc: the DCT of natural logarithms
                  of mel magnitude; but frames are centered, half a window before those of the op
  linear          natural logarithm of the power spectrum, clipped at `log_floor`
  mel_and_linear  mels, then the linear spectrum, as in Tacotron (Wang et al. 2017): magnitudes after pre-emphasis, in
                  decibels; `reference_db` and more maps to 1, `floor_db` below it and less maps to 0
  whisper         as Whisper's public models read them (Radford et al. 2022): log10 of the mel power spectrum, clipped
                  at 1e-10 and at 8 below the utterance's maximum; plus 4, divided by 4. Before the first sample the
                  recording is reflected; after the last one there is silence, as in 30 seconds that it begins
  nemo_mel        as public FastConformers read them (AudioToMelSpectrogramPreprocessor of NeMo): pre-emphasis, a
                  symmetric Hann window, natural logarithm of the mel power spectrum and 2^-24; then each bin with mean
                  0 and deviation 1 over the utterance. A bin that holds rounding alone, as a filter leaves it, is
                  amplified too: there, two implementations differ by more than rounding
  mel_and_prosody log-mels, then `feature_settings.PROSODY` (voxline.audio.prosody): the natural logarithm of F0 in Hz,
                  0 where unvoiced; voicing, 1 or 0; the level in dB of full scale
  waveform        the sample, after the utterance is brought to zero mean and unit variance, as in wav2vec 2.0 (Baevski
                  et al. 2020); unchanged without `unit_variance`
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.fft import BLOCK_FRAMES, rfft
from voxline.audio.prosody import find_f0, frame_levels

FloatArray = npt.NDArray[np.float32]

BAND_MELS = 16
"""Mel filters multiplied at a time."""

NEMO_GUARD = 2.0**-24
"""Added to mel power before NeMo's logarithm."""
NEMO_EPSILON = 1e-5
"""Added to the deviation by which a bin is divided."""
WHISPER_FLOOR = 1e-10
"""Mel power at which Whisper's logarithm is clipped."""
WHISPER_RANGE = 8.0
"""Decades below an utterance's maximum at which it is clipped too."""

MIN_MAGNITUDE = 1e-5
"""Tacotron's decibels are clipped here: -100 dB, far below the floor of its settings."""

VARIANCE_FLOOR = np.float32(1e-7)
"""Added to the variance of a waveform, as in the feature extractor of wav2vec 2.0."""

_LINEAR_HZ = 1000.0
_LINEAR_MEL = 15.0
_LOG_STEP = np.log(6.4) / 27
"""Slaney's scale: 200/3 Hz a mel up to 1 kHz, then 27 mels for a factor of 6.4."""


def compute_features(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Computes the features of one recording: float32 `[frames, bins]`.

    Args:
      samples: float `[samples]`, mono, in [-1, 1], at `settings.sample_rate`.

    Raises:
      ValueError: the samples have another shape or dtype.

    >>> compute_features(np.zeros(16_000, np.float32), FeatureSettings(mels=40)).shape
    (101, 40)
    """
    if settings.kind == "waveform":
        return normalize_waveform(samples, settings)[:, None]
    if settings.kind == "linear":
        spectrum = power_spectrogram(samples, settings)
        return np.log(np.maximum(spectrum, settings.log_floor, out=spectrum), out=spectrum)
    if settings.kind == "mel_and_linear":
        magnitudes = _spectrogram(preemphasize(samples, settings), settings, mels=True, spectrum=True, magnitude=True)
        return _normalize_decibels(magnitudes, settings)
    if settings.kind == "nemo_mel":
        return _normalize_nemo(_spectrogram(preemphasize(samples, settings), settings, mels=True))
    mels = _spectrogram(samples, settings, mels=True, magnitude=settings.uses_magnitude)
    if settings.kind == "whisper":
        return _normalize_whisper(mels)
    logarithm = np.log(np.maximum(mels, settings.log_floor, out=mels), out=mels)
    if settings.kind == "log_mel":
        return logarithm
    if settings.kind == "mel_and_prosody":
        return np.concatenate([logarithm, prosody_features(samples, settings)], axis=1)
    return stack_context(logarithm @ cepstral_basis(settings), settings.context)


def normalize_waveform(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Samples of zero mean and unit variance, float32 `[samples]`; silence stays silence.

    >>> normalize_waveform(np.array([0.0, 0.5]), FeatureSettings(kind="waveform")).round(3).tolist()
    [-1.0, 1.0]
    """
    _check_samples(samples)
    samples = np.asarray(samples, np.float32)
    if not settings.unit_variance or not len(samples):
        return samples

    centered = samples - samples.mean()
    normalized: FloatArray = centered / np.sqrt(centered.var() + VARIANCE_FLOOR)
    return normalized


def prosody_features(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """The columns of `PROSODY`: float32 `[frames, 3]`.

    >>> tone = np.sin(2 * np.pi * 200 * np.arange(4_000) / 16_000).astype(np.float32)
    >>> found = prosody_features(np.pad(tone, (0, 1_000)), FeatureSettings(hop_seconds=0.1))
    >>> [[round(value, 1) for value in frame] for frame in found.tolist()]
    [[0.0, 0.0, -6.0], [5.3, 1.0, -3.0], [5.3, 1.0, -3.0], [0.0, 0.0, -120.0]]
    """
    mono = np.asarray(samples, np.float32)
    rate = settings.sample_rate
    hop = settings.hop_length

    f0 = find_f0(mono, rate, hop)

    # [frames] each: log F0 (0 where unvoiced), voicing, level in dB
    columns = np.log(np.where(f0 > 0, f0, np.float32(1))), f0 > 0, frame_levels(mono, rate, hop)
    return np.stack(columns, axis=1).astype(np.float32)


def mel_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Power in each mel band: float32 `[frames, mels]`; `librosa.feature.melspectrogram`, transposed."""
    return _spectrogram(samples, settings, mels=True)


def power_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Power spectrum: float32 `[frames, fft_bins]`."""
    return _spectrogram(samples, settings, spectrum=True)


def magnitude_spectrogram(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> FloatArray:
    """Magnitude spectrum, without pre-emphasis: float32 `[frames, fft_bins]`."""
    return _spectrogram(samples, settings, spectrum=True, magnitude=True)


def preemphasize(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> npt.NDArray[np.floating]:
    """Subtracts a share of the preceding sample from each, which amplifies high frequencies: float32 `[samples]`.

    >>> preemphasize(np.ones(3), FeatureSettings(kind="mel_and_linear", preemphasis=0.75)).tolist()
    [1.0, 0.25, 0.25]
    """
    if not settings.preemphasis_factor:
        return samples

    # y[n] = x[n] - a x[n - 1]
    emphasized = samples.astype(np.float32)
    emphasized[1:] -= np.float32(settings.preemphasis_factor) * samples[:-1]
    return emphasized


def stack_context(frames: FloatArray, context: int) -> FloatArray:
    """Stacks each frame with its neighbors: `[frames, bins]` to `[frames, (2 context + 1) bins]`.

    >>> stack_context(np.array([[1], [2], [3]], np.float32), 1).tolist()
    [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 0.0]]
    """
    if context == 0:
        return frames
    padded = np.pad(frames, ((context, context), (0, 0)))
    neighbors = np.lib.stride_tricks.sliding_window_view(padded, 2 * context + 1, axis=0)  # [frames, bins, 2c + 1]
    return np.ascontiguousarray(neighbors.transpose(0, 2, 1)).reshape(len(frames), -1)


@functools.lru_cache(maxsize=16)
def hann_window(settings: FeatureSettings) -> FloatArray:
    """The Hann window, float32 `[win_length]`: the periodic one; of nemo_mel the symmetric one."""
    period = settings.win_length - 1 if settings.kind == "nemo_mel" else settings.win_length
    phase = 2 * np.pi * np.arange(settings.win_length) / max(period, 1)
    return read_only(0.5 - 0.5 * np.cos(phase))


@functools.lru_cache(maxsize=16)
def mel_filterbank(settings: FeatureSettings) -> FloatArray:
    """The weights from the power spectrum to mel bands: float32 `[fft_bins, mels]`.

    Triangles on Slaney's scale (Auditory Toolbox, 1998), each of unit area in Hz: `librosa.filters.mel`,
    transposed. Importing librosa takes two seconds.
    With the cepstra of TensorFlow: triangles on HTK's scale, each of height 1.
    """
    highest = settings.sample_rate / 2 if settings.highest_hz is None else settings.highest_hz
    if settings.cepstra == "tensorflow":
        return read_only(_tensorflow_filterbank(settings, highest))

    # [mels + 2], Hz
    edges = _hz(np.linspace(_mel(settings.lowest_hz), _mel(highest), settings.mels + 2))
    frequencies = np.fft.rfftfreq(settings.n_fft, 1 / settings.sample_rate)[:, None]
    left = edges[:-2]
    middle = edges[1:-1]
    right = edges[2:]

    # [fft_bins, mels]
    rising = (frequencies - left) / (middle - left)
    falling = (right - frequencies) / (right - middle)
    return read_only(np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left))


@functools.lru_cache(maxsize=16)
def cepstral_basis(settings: FeatureSettings) -> FloatArray:
    """The weights from natural logarithms of mel power to MFCC: float32 `[mels, coefficients]`.

    The orthonormal DCT-II, times 10 / ln 10, because librosa takes the cepstrum of decibels. TensorFlow's op takes that
    of natural logarithms, and scales the first coefficient like the others.
    """
    # [mels, 1]
    band = np.arange(settings.mels)[:, None] + 0.5
    basis = np.cos(np.pi / settings.mels * band * np.arange(settings.coefficients)) * np.sqrt(2 / settings.mels)
    if settings.cepstra == "tensorflow":
        return read_only(basis)
    basis[:, 0] /= np.sqrt(2)
    return read_only(basis * 10 / np.log(10))


def read_only(values: npt.NDArray[np.float64]) -> FloatArray:
    """A float32 array that cannot be written to: cached arrays are shared by many callers."""
    array = np.ascontiguousarray(values, np.float32)
    array.flags.writeable = False
    return array


def _normalize_nemo(mels: FloatArray) -> FloatArray:
    """Mel powers to NeMo's features; in place."""
    # log(mel + guard) is log(1 + mel / guard) and a constant, which the mean takes away. So silence is exactly 0.
    mels /= np.float32(NEMO_GUARD)
    logarithm = np.log1p(mels, out=mels)
    logarithm -= logarithm.mean(axis=0, dtype=np.float64).astype(np.float32)

    # The unbiased deviation of each bin.
    variance = np.square(logarithm).sum(axis=0, dtype=np.float64) / max(len(logarithm) - 1, 1)
    logarithm /= (np.sqrt(variance) + NEMO_EPSILON).astype(np.float32)
    return logarithm


def _normalize_whisper(mels: FloatArray) -> FloatArray:
    """Mel powers to Whisper's features; in place."""
    decades = np.log10(np.maximum(mels, WHISPER_FLOOR, out=mels), out=mels)
    np.maximum(decades, decades.max() - WHISPER_RANGE, out=decades)
    decades += 4
    decades /= 4
    return decades


def _normalize_decibels(magnitudes: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Magnitudes to decibels, scaled to [0, 1]; in place."""
    # In place: 20 log10(magnitude), less the reference, from the floor up.
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
    """Power or magnitude of every frame, in mel bands, in FFT bins or in both; in blocks, and in float32 throughout."""
    _check_samples(samples)
    count = settings.count_frames(len(samples))

    # Zeros before the first sample and after the last, so that each window is whole.
    padded = np.zeros((count - 1) * settings.hop_length + settings.win_length + settings.padding, np.float32)
    audible = samples[: len(padded) - settings.padding]  # samples beyond the last window are not used
    padded[settings.padding : settings.padding + len(audible)] = audible
    if settings.kind == "whisper":
        reflected = samples[1 : settings.padding + 1]
        padded[settings.padding - len(reflected) : settings.padding] = reflected[::-1]

    # [frames, win_length], a view
    windows = np.lib.stride_tricks.sliding_window_view(padded, settings.win_length)[:: settings.hop_length][:count]
    hann = hann_window(settings)

    # Columns of the result: mels first, then the spectrum.
    bands, first = (_bands(settings), settings.mels) if mels else ([], 0)
    # A window shorter than the FFT is at the start of its frame, not in the middle as in librosa. This changes phases
    # only, not power or magnitude.
    block = np.zeros((min(BLOCK_FRAMES, count), settings.n_fft), np.float32)
    result = np.zeros((count, first + settings.fft_bins if spectrum else first), np.float32)
    for start in range(0, count, BLOCK_FRAMES):
        rows = slice(start, min(start + BLOCK_FRAMES, count))
        frames = block[: rows.stop - start]
        np.multiply(windows[rows], hann, out=frames[:, : settings.win_length])

        # [frames, 2 fft_bins]: real and imaginary parts in turn
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


def _check_samples(samples: npt.NDArray[np.floating]) -> None:
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise ValueError(
            f"samples of shape {samples.shape} and dtype {samples.dtype}; one channel, [samples], of floats in [-1, 1] "
            "is accepted (divide int16 by 32768)"
        )


class _Band(NamedTuple):
    """Adjacent mel filters, and the part of the spectrum in which any of them is not zero."""

    bins: slice
    mels: slice
    weights: FloatArray


@functools.lru_cache(maxsize=16)
def _bands(settings: FeatureSettings) -> list[_Band]:
    """The filterbank without most of its zeros, which takes a quarter of the time of the full matrix."""
    weights = mel_filterbank(settings)
    bands = []
    for first in range(0, settings.mels, BAND_MELS):
        mels = slice(first, min(first + BAND_MELS, settings.mels))
        used = np.flatnonzero(weights[:, mels].any(axis=1))
        if len(used):  # none if the FFT is too coarse for the number of mels
            bins = slice(int(used[0]), int(used[-1]) + 1)
            bands.append(_Band(bins, mels, np.ascontiguousarray(weights[bins, mels])))
    return bands


def _tensorflow_filterbank(settings: FeatureSettings, highest: float) -> npt.NDArray[np.float64]:
    """The weights of TensorFlow's op Mfcc (mfcc_mel_filterbank.cc), float64 `[fft_bins, mels]`.

    Triangles on HTK's scale, straight in mel and not in Hz. Bins below 1.5 bins above the lowest frequency, so 0 Hz
    too, count for none.
    """
    spacing = settings.sample_rate / settings.n_fft
    edges = np.linspace(_htk_mel(settings.lowest_hz), _htk_mel(highest), settings.mels + 2)
    bins = np.arange(settings.fft_bins)

    # [fft_bins, 1]
    mels = _htk_mel(bins * spacing)[:, None]
    left = edges[:-2]
    middle = edges[1:-1]
    right = edges[2:]
    weights = np.maximum(0, np.minimum((mels - left) / (middle - left), (right - mels) / (right - middle)))
    used = (bins >= int(1.5 + settings.lowest_hz / spacing)) & (bins <= int(highest / spacing))
    return np.where(used[:, None], weights, 0.0)


def _htk_mel(hz: Any) -> Any:
    return 1127 * np.log1p(np.asarray(hz, np.float64) / 700)


def _mel(hz: float) -> float:
    return hz * 3 / 200 if hz < _LINEAR_HZ else _LINEAR_MEL + float(np.log(hz / _LINEAR_HZ)) / _LOG_STEP


def _hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mels < _LINEAR_MEL, mels * 200 / 3, _LINEAR_HZ * np.exp(_LOG_STEP * (mels - _LINEAR_MEL)))

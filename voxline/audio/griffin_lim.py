"""Griffin-Lim: a waveform from mels or a linear spectrum, in numpy.

  samples = features_to_waveform(features[:, settings.mel_columns], settings)

The iteration of Griffin and Lim (1984) in its fast variant with momentum (Perraudin, Balazs and Søndergaard 2013, "A
fast Griffin-Lim algorithm"). Windows, frames and padding are those of `voxline.audio.features`, whose mel filterbank is
inverted to a non-negative spectrum. An exported TTS model does the same in its graph:
`voxline/families/tts/griffin_lim.py`.
"""

import functools

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, hann_window, mel_filterbank, read_only
from voxline.audio.fft import irfft, rfft
from voxline.audio.filters import sosfilt

BLOCK_FRAMES = 32
"""Frames at a time, so that the work of one iteration stays in the cache."""

UPDATES = 16
"""Steps after the pseudo-inverse. The mels are then off by 0.002 to 0.06 dB; with least squares, by 0.04 to 0.4."""

MIN_POWER = 1e-12
"""Replaces zero before a division; far below the resolution of 16 bits."""

PHASES = 4_096
TURN = 1 << 20
PHASE_STEPS = (648_056, 434_334, 767_622)
"""The fractions of the golden ratio and of the roots of 2 and 3, of TURN: no two adjacent phases are alike."""

MIN_WINDOW_SUM = 1e-4
"""Of overlapping squared windows. Less occurs only if hops are longer than windows, where there is no signal."""


def features_to_waveform(
    features: FloatArray,
    settings: FeatureSettings,
    *,
    iterations: int = 60,
    momentum: float = 0.99,
    power: float = 1.0,
) -> FloatArray:
    """Converts features to a waveform: float32 `[(frames - 1) * hop_length]`, roughly in [-1, 1].

    Args:
      features: float32, the mels `[frames, mels]` or the linear spectrum `[frames, fft_bins]` of `compute_features`:
        the columns `settings.mel_columns` or `settings.linear_columns`.
      iterations, momentum: as in `griffin_lim`.
      power: magnitudes are raised to it first. Tacotron's 1.5 makes predicted, smooth spectra sound less hollow; 1 is
        closest to the recording.

    Raises:
      ValueError: the features have another shape, or their kind cannot be inverted.
    """
    linear = features.shape[1] == settings.fft_bins and settings.kind in ("linear", "mel_and_linear")
    magnitudes = linear_to_magnitude(features, settings) if linear else mel_to_magnitude(features, settings)
    if power != 1:
        magnitudes **= power
    return deemphasize(griffin_lim(magnitudes, settings, iterations, momentum), settings)


def griffin_lim(
    magnitudes: FloatArray, settings: FeatureSettings, iterations: int = 60, momentum: float = 0.99
) -> FloatArray:
    """Finds a waveform with approximately the given magnitudes: float32 `[(frames - 1) * hop_length]`.

    Args:
      magnitudes: float32 `[frames, fft_bins]`.
      iterations: each costs an FFT and its inverse; 0 keeps the initial phases.
      momentum: how far each phase continues in the direction of its last step; 0 is the method of 1984.

    The result is deterministic: see `initial_phases`.

    Raises:
      ValueError: the magnitudes have another shape.

    >>> griffin_lim(np.zeros((101, 257), np.float32), FeatureSettings()).shape
    (16000,)
    """
    if magnitudes.ndim != 2 or magnitudes.shape[1] != settings.fft_bins:
        raise ValueError(
            f"magnitudes of shape {magnitudes.shape}; [frames, {settings.fft_bins}] is accepted, of an FFT of "
            f"{settings.n_fft} samples"
        )

    magnitudes = np.ascontiguousarray(magnitudes, np.float32)
    overlap = _OverlapAdd(len(magnitudes), settings)
    for rows in overlap.blocks:
        overlap.add(rows, magnitudes[rows] * initial_phases(rows.start, rows.stop, settings))

    # c of the paper's algorithm: the consistent spectrum of the last iteration, complex64 [frames, fft_bins]
    previous = np.zeros(magnitudes.shape, np.complex64)

    # t_n = c_n + α (c_n - c_{n-1}) points the same way as c_n - α / (1 + α) c_{n-1}, and only phases are kept.
    weight = np.float32(momentum / (1 + momentum))
    for _ in range(iterations):
        overlap.finish_iteration()
        for rows in overlap.blocks:
            spectrum = overlap.spectrum(rows)
            accelerated = spectrum - weight * previous[rows] if momentum else spectrum.copy()
            previous[rows] = spectrum
            overlap.add(rows, _with_magnitude(accelerated, magnitudes[rows]))
    overlap.finish_iteration()
    return overlap.samples()


def mel_to_magnitude(mels: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Converts mels to magnitudes, with `mel_to_spectrum`: float32 `[frames, fft_bins]`.

    Args:
      mels: float32 `[frames, mels]`, of kind log_mel, mel_and_linear or mel_and_prosody.
    """
    _ = settings.mel_columns  # raises if the kind has none
    if mels.shape[1:] != (settings.mels,):
        raise ValueError(f"mels of shape {mels.shape}; [frames, {settings.mels}] is accepted")

    # [frames, mels], power or magnitude
    bands = (
        _denormalize_decibels(mels, settings) if settings.kind == "mel_and_linear" else np.exp(mels, dtype=np.float32)
    )
    spectrum = mel_to_spectrum(bands, settings)
    return spectrum if settings.uses_magnitude else np.sqrt(spectrum, out=spectrum)


def linear_to_magnitude(linear: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Converts a linear spectrum to magnitudes: both float32 `[frames, fft_bins]`."""
    _ = settings.linear_columns  # raises if the kind has none
    if linear.shape[1:] != (settings.fft_bins,):
        raise ValueError(f"a linear spectrum of shape {linear.shape}; [frames, {settings.fft_bins}] is accepted")
    if settings.kind == "mel_and_linear":
        return _denormalize_decibels(linear, settings)
    magnitudes: FloatArray = np.exp(np.float32(0.5) * linear, dtype=np.float32)
    return magnitudes


def mel_to_spectrum(bands: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Finds a non-negative spectrum with the given mel bands: float32 `[frames, fft_bins]`.

    It starts from the pseudo-inverse, clipped at zero, and applies multiplicative updates for the Kullback-Leibler
    divergence (Lee and Seung 2000). That weighs each band by its own size: features are logarithms, and least squares
    would sacrifice a faint band to its loud neighbor.

    Args:
      bands: float32 `[frames, mels]`, not negative.
    """
    forward = mel_filterbank(settings)  # [bins, mels]
    spectrum: FloatArray = np.maximum(bands @ mel_pseudo_inverse(settings), np.float32(MIN_POWER))
    backward = bin_weights(settings)

    # Each update keeps the spectrum positive, and never increases the divergence.
    for _ in range(UPDATES):
        actual = spectrum @ forward
        spectrum *= (bands / np.maximum(actual, np.float32(MIN_POWER), out=actual)) @ backward
    return spectrum


@functools.lru_cache(maxsize=16)
def bin_weights(settings: FeatureSettings) -> FloatArray:
    """The share of each mel band in each bin: float32 `[mels, fft_bins]`; columns sum to 1, or 0."""
    weights = mel_filterbank(settings).astype(np.float64)
    return read_only((weights / np.maximum(weights.sum(axis=1, keepdims=True), MIN_POWER)).T)


@functools.lru_cache(maxsize=16)
def mel_pseudo_inverse(settings: FeatureSettings) -> FloatArray:
    """Maps mel bands to the spectrum of least energy that has them: float32 `[mels, fft_bins]`."""
    return read_only(np.linalg.pinv(mel_filterbank(settings).astype(np.float64)))


def deemphasize(samples: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Reverts `preemphasize`: float32 `[samples]`."""
    if not settings.preemphasis_factor:
        return samples
    return sosfilt([[1.0, 0.0, 0.0, 1.0, -settings.preemphasis_factor, 0.0]], samples).astype(np.float32)


def initial_phases(start: int, stop: int, settings: FeatureSettings) -> np.typing.NDArray[np.complex64]:
    """The initial phases of frames `start` to `stop`: complex64 `[stop - start, fft_bins]` of magnitude 1.

    They are multiples of irrational numbers, modulo a turn. They are as scattered as random phases and converge as
    well, but are the same every time, also in a graph, where a row must not depend on the rest of its batch.
    """
    frame = np.arange(start, stop)[:, None]
    bin_ = np.arange(settings.fft_bins)

    # Integers modulo a turn: exact, and equal in a graph and here.
    scattered = frame * bin_ * PHASE_STEPS[0] + bin_ * bin_ * PHASE_STEPS[1] + frame * frame * PHASE_STEPS[2]
    phases: np.typing.NDArray[np.complex64] = phase_table()[scattered % TURN // (TURN // PHASES)]
    return phases


@functools.cache
def phase_table() -> np.typing.NDArray[np.complex64]:
    """All values of an initial phase: complex64 `[PHASES]`."""
    phases: np.typing.NDArray[np.complex64] = np.exp(2j * np.pi / PHASES * np.arange(PHASES)).astype(np.complex64)
    return phases


def _denormalize_decibels(values: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Tacotron's decibels, scaled to [0, 1], to magnitudes; predictions outside of that range are clipped."""
    decibels = np.clip(values, 0, 1).astype(np.float32)
    decibels *= -settings.floor_db
    decibels += settings.floor_db + settings.reference_db
    decibels *= np.log(10) / 20
    np.exp(decibels, out=decibels)
    return decibels


def _with_magnitude(
    spectrum: np.typing.NDArray[np.complex64], magnitudes: FloatArray
) -> np.typing.NDArray[np.complex64]:
    """Replaces the magnitudes and keeps the phases, in place."""
    # [frames, 2 fft_bins]: real and imaginary parts in turn
    parts = spectrum.view(np.float32)
    squares = np.square(parts)
    scale = squares[:, 0::2] + squares[:, 1::2]
    scale += np.float32(MIN_POWER)
    np.divide(magnitudes, np.sqrt(scale, out=scale), out=scale)
    parts[:, 0::2] *= scale
    parts[:, 1::2] *= scale
    return spectrum


class _OverlapAdd:
    """Overlap-add of frames into one signal, while the signal of the previous iteration is read."""

    def __init__(self, count: int, settings: FeatureSettings) -> None:
        self.settings = settings
        self.count = count
        self.blocks = [slice(start, min(start + BLOCK_FRAMES, count)) for start in range(0, count, BLOCK_FRAMES)]

        # [count - 1 + hops, hop]: a signal cut in hops, so that overlap-add is a sum of shifted rows.
        hop = settings.hop_length
        window = settings.win_length
        self.hops = -(-window // hop)
        length = settings.count_samples(count)
        self.inside = slice(settings.padding, settings.padding + length)
        self.hann = hann_window(settings)
        shape = (count - 1 + self.hops, hop)
        self.signal = np.zeros(shape, np.float32)
        self.sum = np.zeros(shape, np.float32)
        self.frames = np.zeros((min(BLOCK_FRAMES, count), settings.n_fft), np.float32)
        self.windowed = np.zeros((min(BLOCK_FRAMES, count), self.hops * hop), np.float32)

        # The sum of squared windows at each sample, by which the result is divided.
        sums = np.zeros(shape, np.float32)
        squares = np.zeros(self.hops * hop, np.float32)
        squares[:window] = self.hann**2
        for number, part in enumerate(squares.reshape(self.hops, hop)):
            sums[number : number + count] += part
        # Zero beyond the ends of the recording, where its FFT sees zeros.
        self.scale = np.zeros_like(sums)
        self.scale.reshape(-1)[self.inside] = 1 / np.maximum(sums.reshape(-1)[self.inside], np.float32(MIN_WINDOW_SUM))

    def add(self, rows: slice, spectrum: np.typing.NDArray[np.complex64]) -> None:
        """Adds the frames of a spectrum `[rows, fft_bins]` to the sum."""
        frames = irfft(spectrum, self.settings.n_fft)
        windowed = self.windowed[: rows.stop - rows.start]
        np.multiply(frames[:, : self.settings.win_length], self.hann, out=windowed[:, : self.settings.win_length])
        hop = self.settings.hop_length
        for number in range(self.hops):
            self.sum[rows.start + number : rows.stop + number] += windowed[:, number * hop : (number + 1) * hop]

    def finish_iteration(self) -> None:
        """Makes the normalized sum the signal, and starts a new sum."""
        self.sum *= self.scale
        self.signal, self.sum = self.sum, self.signal
        self.sum[:] = 0

    def spectrum(self, rows: slice) -> np.typing.NDArray[np.complex64]:
        """The FFT of some frames of the signal."""
        settings = self.settings
        windows = np.lib.stride_tricks.sliding_window_view(self.signal.reshape(-1), settings.win_length)[
            :: settings.hop_length
        ]
        frames = self.frames[: rows.stop - rows.start]
        np.multiply(windows[rows], self.hann, out=frames[:, : settings.win_length])
        return rfft(frames)

    def samples(self) -> FloatArray:
        return self.signal.reshape(-1)[self.inside].copy()

"""From features back to a waveform, in numpy: what a spectrogram sounds like when its phases are lost.

Griffin and Lim's iteration (1984) in the fast variant with momentum (Perraudin, Balazs and Søndergaard 2013,
"A fast Griffin-Lim algorithm"). Windows, frames and zeros beyond the ends are those of `spectra`, whose filterbank
is undone by a non-negative spectrum that has the same mels. An exported voice does the same in its graph:
`components/train/tts/griffin_lim.py`.
"""

import functools

import numpy as np

from voxline.audio import features as spectra
from voxline.audio.feature_settings import FeatureSettings

FloatArray = spectra.FloatArray

BLOCK_FRAMES = 32
"""Frames at a time: what one iteration makes of them stays in the cache."""

UPDATES = 16
"""Steps after the pseudo-inverse; the mels are then 0.002 to 0.06 dB off, and by least squares 0.04 to 0.4."""

MIN_POWER = 1e-12
"""Stands in for nought where a division by it would follow; far under what 16 bits can tell from silence."""

PHASES, TURN = 4_096, 1 << 20
PHASE_STEPS = (648_056, 434_334, 767_622)
"""Of 1 << 20, the fractions of the golden ratio and of the roots of 2 and 3: no two phases side by side are alike."""

MIN_WINDOW_SUM = 1e-4
"""Of squared windows that overlap; less is found only where hops are longer than windows, and nothing is there."""


def features_to_waveform(
    part: FloatArray,
    settings: FeatureSettings,
    *,
    iterations: int = 60,
    momentum: float = 0.99,
    power: float = 1.0,
) -> FloatArray:
    """The waveform of features, float32 `[(frames - 1) hop]` in about [-1, 1].

    Args:
      part: mels `[frames, mels]`, or the linear spectrum `[frames, transform_bins]`, as `spectra.features` makes
        them: the columns `settings.mel_columns` or `settings.linear_columns`.
      iterations: of Griffin-Lim.
      momentum: see `griffin_lim`.
      power: magnitudes are raised to it before (Tacotron: 1.5 makes predicted, smooth spectra less hollow; 1 is
        nearest to the recording).
    """
    linear = part.shape[1] == settings.fft_bins and settings.kind != "log_mel"
    magnitudes = linear_to_magnitude(part, settings) if linear else mel_to_magnitude(part, settings)
    if power != 1:
        magnitudes **= power
    return deemphasize(griffin_lim(magnitudes, settings, iterations, momentum), settings)


def griffin_lim(
    magnitudes: FloatArray, settings: FeatureSettings, iterations: int = 60, momentum: float = 0.99
) -> FloatArray:
    """A waveform whose magnitudes are near the given ones, float32 `[(frames - 1) hop]`.

    Args:
      magnitudes: of the transform, float32 `[frames, transform // 2 + 1]`.
      iterations: each costs a transform and its inverse; 0 takes the first guess of phases as it is.
      momentum: how far each phase goes on in the direction of its last step; 0 is the method of 1984.

    The first phases are the same for the same input: see `initial_phases`.

    >>> how = FeatureSettings()
    >>> griffin_lim(np.zeros((101, 257), np.float32), how).shape
    (16000,)
    """
    if magnitudes.ndim != 2 or magnitudes.shape[1] != settings.fft_bins:
        raise ValueError(
            f"magnitudes of shape {magnitudes.shape}; [frames, {settings.fft_bins}] is accepted, a transform of "
            f"{settings.n_fft} samples"
        )
    magnitudes = np.ascontiguousarray(magnitudes, np.float32)
    overlap = _OverlapAdd(len(magnitudes), settings)
    for rows in overlap.blocks:
        overlap.add(rows, magnitudes[rows] * initial_phases(rows.start, rows.stop, settings))
    before = np.zeros(magnitudes.shape, np.complex64)
    weight = np.float32(momentum / (1 + momentum))
    for _ in range(iterations):
        overlap.turn()
        for rows in overlap.blocks:
            found = overlap.transform(rows)
            turned = found - weight * before[rows] if momentum else found.copy()
            before[rows] = found
            overlap.add(rows, _with_magnitude(turned, magnitudes[rows]))
    overlap.turn()
    return overlap.samples()


def mel_to_magnitude(mels: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Magnitudes whose mels are the given ones, float32 `[frames, transform // 2 + 1]`, by `mel_to_spectrum`.

    Args:
      mels: float32 `[frames, mels]`, of log_mel or the mels of mel_and_linear.
    """
    _ = settings.mel_columns  # refuses a kind without
    if mels.shape[1:] != (settings.mels,):
        raise ValueError(f"mels of shape {mels.shape}; [frames, {settings.mels}] is accepted")
    bands = (
        _denormalize_decibels(mels, settings) if settings.kind == "mel_and_linear" else np.exp(mels, dtype=np.float32)
    )
    found = mel_to_spectrum(bands, settings)
    return found if settings.uses_magnitude else np.sqrt(found, out=found)


def linear_to_magnitude(linear: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Magnitudes of the transform from features of it: float32 `[frames, transform // 2 + 1]`, both."""
    _ = settings.linear_columns
    if linear.shape[1:] != (settings.fft_bins,):
        raise ValueError(f"a linear spectrum of shape {linear.shape}; [frames, {settings.fft_bins}] is accepted")
    if settings.kind == "mel_and_linear":
        return _denormalize_decibels(linear, settings)
    magnitudes: FloatArray = np.exp(np.float32(0.5) * linear, dtype=np.float32)
    return magnitudes


def mel_to_spectrum(bands: FloatArray, settings: FeatureSettings) -> FloatArray:
    """A non-negative spectrum whose mel bands are the given ones.

    The pseudo-inverse first, without what is negative in it; then multiplicative updates for the Kullback-Leibler
    divergence (Lee and Seung 2000), which weighs each band by its own size: features are logarithms, and least
    squares would give a faint band whatever suits its loud neighbour.

    Args:
      bands: float32 `[frames, mels]`, not negative.

    Returns:
      float32 `[frames, transform // 2 + 1]`.
    """
    forth = spectra.mel_filterbank(settings)  # [bins, mels]
    found: FloatArray = np.maximum(bands @ mel_pseudo_inverse(settings), np.float32(MIN_POWER))
    back = bin_weights(settings)
    for _ in range(UPDATES):
        has = found @ forth
        found *= (bands / np.maximum(has, np.float32(MIN_POWER), out=has)) @ back
    return found


@functools.lru_cache(maxsize=16)
def bin_weights(settings: FeatureSettings) -> FloatArray:
    """How much each mel band has to say about each bin, `[mels, transform // 2 + 1]`: columns of sum 1, or 0."""
    weights = spectra.mel_filterbank(settings).astype(np.float64)
    return spectra.read_only((weights / np.maximum(weights.sum(axis=1, keepdims=True), MIN_POWER)).T)


@functools.lru_cache(maxsize=16)
def mel_pseudo_inverse(settings: FeatureSettings) -> FloatArray:
    """From mel bands to the spectrum of the least energy that has them, float32 `[mels, transform // 2 + 1]`."""
    return spectra.read_only(np.linalg.pinv(spectra.mel_filterbank(settings).astype(np.float64)))


def deemphasize(samples: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Undoes the pre-emphasis of `spectra.emphasise`: float32 `[samples]`."""
    from scipy import signal

    if not settings.preemphasis_factor:
        return samples
    lowered: FloatArray = signal.lfilter([1.0], [1.0, -settings.preemphasis_factor], samples).astype(np.float32)
    return lowered


def initial_phases(start: int, stop: int, settings: FeatureSettings) -> np.typing.NDArray[np.complex64]:
    """The first guess, complex64 `[stop - start, transform // 2 + 1]` of size 1: as scattered as random phases.

    They come as near in the end, are the same every time, and the same in a graph, where a row must not depend on
    what stands beside it: multiples of irrational numbers, modulo a turn.
    """
    frame, bin_ = np.arange(start, stop)[:, None], np.arange(settings.fft_bins)
    scattered = frame * bin_ * PHASE_STEPS[0] + bin_ * bin_ * PHASE_STEPS[1] + frame * frame * PHASE_STEPS[2]
    phases: np.typing.NDArray[np.complex64] = phase_table()[scattered % TURN // (TURN // PHASES)]
    return phases


@functools.cache
def phase_table() -> np.typing.NDArray[np.complex64]:
    """All phases that a first guess may have, complex64 `[CIRCLE]`."""
    phases: np.typing.NDArray[np.complex64] = np.exp(2j * np.pi / PHASES * np.arange(PHASES)).astype(np.complex64)
    return phases


def _denormalize_decibels(share: FloatArray, settings: FeatureSettings) -> FloatArray:
    """Tacotron's decibels in [0, 1] to magnitudes; what a model predicts outside of that is cut."""
    decibels = np.clip(share, 0, 1).astype(np.float32)
    decibels *= -settings.floor_db
    decibels += settings.floor_db + settings.reference_db
    decibels *= np.log(10) / 20
    np.exp(decibels, out=decibels)
    return decibels


def _with_magnitude(turned: np.typing.NDArray[np.complex64], magnitudes: FloatArray) -> np.typing.NDArray[np.complex64]:
    """Keeps each phase and replaces each magnitude, in place."""
    parts = turned.view(np.float32)
    squares = np.square(parts)
    scale = squares[:, 0::2] + squares[:, 1::2]
    scale += np.float32(MIN_POWER)
    np.divide(magnitudes, np.sqrt(scale, out=scale), out=scale)
    parts[:, 0::2] *= scale
    parts[:, 1::2] *= scale
    return turned


class _OverlapAdd:
    """Frames of a recording, added where they overlap; the recording that is read, and the one that grows."""

    def __init__(self, count: int, settings: FeatureSettings) -> None:
        self.settings, self.count = settings, count
        self.blocks = [slice(start, min(start + BLOCK_FRAMES, count)) for start in range(0, count, BLOCK_FRAMES)]
        hop, window = settings.hop_length, settings.win_length
        self.hops = -(-window // hop)
        length = settings.count_samples(count)
        self.real = slice(settings.padding, settings.padding + length)
        self.hann = spectra.hann_window(settings)
        shape = (count - 1 + self.hops, hop)
        self.read, self.grows = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.frames = np.zeros((min(BLOCK_FRAMES, count), settings.n_fft), np.float32)
        self.windowed = np.zeros((min(BLOCK_FRAMES, count), self.hops * hop), np.float32)
        sums = np.zeros(shape, np.float32)
        squares = np.zeros(self.hops * hop, np.float32)
        squares[:window] = self.hann**2
        for number, part in enumerate(squares.reshape(self.hops, hop)):
            sums[number : number + count] += part
        # Zero beyond the recording's ends, where every transform of it finds zeros.
        self.scale = np.zeros_like(sums)
        self.scale.reshape(-1)[self.real] = 1 / np.maximum(sums.reshape(-1)[self.real], np.float32(MIN_WINDOW_SUM))

    def add(self, rows: slice, spectrum: np.typing.NDArray[np.complex64]) -> None:
        """Adds the frames of a spectrum `[rows, bins]` to the recording that grows."""
        from scipy import fft

        made = fft.irfft(spectrum, self.settings.n_fft, axis=1, overwrite_x=True)
        windowed = self.windowed[: rows.stop - rows.start]
        np.multiply(made[:, : self.settings.win_length], self.hann, out=windowed[:, : self.settings.win_length])
        hop = self.settings.hop_length
        for number in range(self.hops):
            self.grows[rows.start + number : rows.stop + number] += windowed[:, number * hop : (number + 1) * hop]

    def turn(self) -> None:
        """The recording that grew is read from now on, and a new one grows."""
        self.grows *= self.scale
        self.read, self.grows = self.grows, self.read
        self.grows[:] = 0

    def transform(self, rows: slice) -> np.typing.NDArray[np.complex64]:
        """The transform of some frames of the recording that is read."""
        from scipy import fft

        settings = self.settings
        windows = np.lib.stride_tricks.sliding_window_view(self.read.reshape(-1), settings.win_length)[
            :: settings.hop_length
        ]
        frames = self.frames[: rows.stop - rows.start]
        np.multiply(windows[rows], self.hann, out=frames[:, : settings.win_length])
        found: np.typing.NDArray[np.complex64] = fft.rfft(frames, axis=1)
        return found

    def samples(self) -> FloatArray:
        return self.read.reshape(-1)[self.real].copy()

"""Griffin-Lim in a TensorFlow graph, of a whole batch: equal to `voxline.audio.griffin_lim`, which explains it.

An exported voice ends in it. Equal means: the first guess within 1e-5 of its peak, one iteration within 1e-2, and after
60 the magnitudes as near to the given ones within 0.15 dB. The waveforms part: where a spectrogram belongs to no
waveform, an iteration magnifies a rounding a thousandfold (numpy parts as far from itself after a change of 1e-7).
"""

import math

import tensorflow as tf

from voxline.audio import features as spectra
from voxline.audio import griffin_lim
from voxline.audio.feature_settings import FeatureSettings
from voxline.training.layers import Tensor


def reconstruct_waveforms(
    raw: Tensor,
    frames: Tensor,
    settings: FeatureSettings,
    iterations: int = 60,
    momentum: float = 0.99,
    power: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The waveforms of features.

    Args:
      raw: float32 [batch, time, mels] or [batch, time, transform_bins]: mels or the linear spectrum as
        `spectra.features` makes them; values beyond a row's frames are ignored.
      frames: int32 [batch]; a row of none is silent.

    Returns:
      waveforms, float32 [batch, samples], zero beyond a row's samples; and int32 [batch], samples.

    >>> waveforms, samples = reconstruct_waveforms(
    ...     tf.zeros([2, 11, 80]), tf.constant([11, 3]), FeatureSettings(), iterations=1
    ... )
    >>> waveforms.shape.as_list(), samples.numpy().tolist()
    ([2, 1600], [1600, 320])
    """

    # [batch, time, bins] of either kind to magnitudes [batch, time, fft_bins].
    raw = tf.convert_to_tensor(raw, tf.float32)
    frames = tf.convert_to_tensor(frames, tf.int32)
    width = raw.shape[-1]
    if width not in (settings.mels, settings.fft_bins):
        raise ValueError(f"frames of {width} bins; {settings.mels} (mels) or {settings.fft_bins} (linear) are accepted")

    time = tf.shape(raw)[1]
    real = tf.expand_dims(tf.sequence_mask(frames, time), -1)
    linear = width == settings.fft_bins and settings.kind in ("linear", "mel_and_linear")
    raw = tf.where(real, raw, 0.0)
    magnitudes = _linear_to_magnitude(raw, settings) if linear else _mel_to_magnitude(raw, settings)
    if power != 1:
        magnitudes = tf.pow(magnitudes, power)

    magnitudes = tf.where(real, magnitudes, 0.0)

    samples = tf.maximum(frames - 1, 0) * settings.hop_length
    waveforms = _griffin_lim(magnitudes, tf.cast(real, tf.float32), samples, settings, iterations, momentum)

    # Silence beyond a row's end, after the phases are found.
    audible = tf.sequence_mask(samples, tf.shape(waveforms)[1])

    return tf.where(audible, _deemphasise(waveforms, settings), 0.0), samples


def _griffin_lim(
    magnitudes: Tensor, real: Tensor, samples: Tensor, settings: FeatureSettings, iterations: int, momentum: float
) -> Tensor:
    """Reconstructs waveforms of magnitudes [batch, time, bins]; `real` [batch, time, 1] is 1 in real frames."""
    time = tf.shape(magnitudes)[1]
    longest = tf.maximum(time - 1, 0) * settings.hop_length
    hann = spectra.hann_window(settings)
    # What overlaps at each sample is that row's own frames, and beyond its ends every transform finds zeros.
    sums = tf.maximum(_overlap(real * tf.constant(hann**2), settings, longest), griffin_lim.MIN_WINDOW_SUM)
    scale = tf.where(tf.sequence_mask(samples, longest), 1 / sums, 0.0)
    after = (time - 1) * settings.hop_length + settings.win_length - settings.padding - longest

    # The fast Griffin-Lim algorithm (Perraudin et al. 2013), whose momentum makes it converge sooner.
    def inverse(spectrum: Tensor) -> Tensor:
        windows = tf.signal.irfft(spectrum, [settings.n_fft])[..., : settings.win_length] * hann
        return _overlap(windows, settings, longest) * scale

    def transform(waveform: Tensor) -> Tensor:
        padded = tf.pad(waveform, [[0, 0], [settings.padding, after]])
        return tf.signal.rfft(_windows(padded, time, settings) * hann, [settings.n_fft])

    def step(waveform: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        # Keeps the phases of the accelerated estimate, and the given magnitudes.
        transformed = transform(waveform)
        accelerated = transformed - weight * previous
        norm = tf.sqrt(
            tf.square(tf.math.real(accelerated)) + tf.square(tf.math.imag(accelerated)) + griffin_lim.MIN_POWER
        )
        return inverse(accelerated * tf.cast(magnitudes / norm, tf.complex64)), transformed

    weight = tf.constant(momentum / (1 + momentum), tf.complex64)
    first = inverse(tf.cast(magnitudes, tf.complex64) * _first_phases(time, settings))
    if not iterations:
        return first

    waveform, _ = tf.while_loop(
        lambda *_: True, step, (first, tf.zeros_like(magnitudes, tf.complex64)), maximum_iterations=iterations
    )

    return waveform


def _windows(padded: Tensor, time: Tensor, settings: FeatureSettings) -> Tensor:
    """Overlapping windows [batch, time, window] of [batch, (time - 1) hop + window], by hops side by side."""

    # A window is `hops` pieces of a hop each; slices cost less than a gather.
    hop = settings.hop_length
    hops = -(-settings.win_length // hop)
    missing = hops * hop - settings.win_length
    parts = tf.reshape(tf.pad(padded, [[0, 0], [0, missing]]), [tf.shape(padded)[0], time - 1 + hops, hop])
    side_by_side = tf.concat([parts[:, number : number + time] for number in range(hops)], axis=-1)
    return side_by_side[..., : settings.win_length]


def _overlap(windows: Tensor, settings: FeatureSettings, longest: Tensor) -> Tensor:
    """Adds windows [batch, time, window] where they overlap: [batch, longest], from the first one's middle on."""

    # The inverse of `_windows`: each piece is added at its place.
    hop = settings.hop_length
    hops = -(-settings.win_length // hop)
    batch = tf.shape(windows)[0]
    time = tf.shape(windows)[1]
    whole = tf.pad(windows, [[0, 0], [0, 0], [0, hops * hop - settings.win_length]])
    added = tf.add_n(
        [
            tf.pad(whole[:, :, number * hop : (number + 1) * hop], [[0, 0], [number, hops - 1 - number], [0, 0]])
            for number in range(hops)
        ]
    )

    return tf.reshape(added, [batch, (time - 1 + hops) * hop])[:, settings.padding : settings.padding + longest]


def _mel_to_magnitude(mels: Tensor, settings: FeatureSettings) -> Tensor:
    # Multiplicative updates, as `griffin_lim.mel_to_spectrum` has them: [batch, time, mels] → bins.
    bands = _from_range(mels, settings) if settings.kind == "mel_and_linear" else tf.exp(mels)
    to_mels = tf.constant(spectra.mel_filterbank(settings))
    to_bins = tf.constant(griffin_lim.bin_weights(settings))
    spectrum = tf.maximum(tf.matmul(bands, griffin_lim.mel_pseudo_inverse(settings)), griffin_lim.MIN_POWER)
    for _ in range(griffin_lim.UPDATES):
        spectrum *= tf.matmul(bands / tf.maximum(tf.matmul(spectrum, to_mels), griffin_lim.MIN_POWER), to_bins)
    return spectrum if settings.uses_magnitude else tf.sqrt(spectrum)


def _linear_to_magnitude(linear: Tensor, settings: FeatureSettings) -> Tensor:
    return _from_range(linear, settings) if settings.kind == "mel_and_linear" else tf.exp(0.5 * linear)


def _from_range(share: Tensor, settings: FeatureSettings) -> Tensor:
    decibels = tf.clip_by_value(share, 0.0, 1.0) * -settings.floor_db + (settings.floor_db + settings.reference_db)
    return tf.exp(decibels * (math.log(10) / 20))


def _first_phases(time: Tensor, settings: FeatureSettings) -> Tensor:
    """complex64 [time, bins]."""

    # Phases that look random, by integers: the same in numpy and on any device.
    frame = tf.range(tf.cast(time, tf.int64))[:, None]
    bin_ = tf.range(settings.fft_bins, dtype=tf.int64)
    by_both, by_bin, by_frame = griffin_lim.PHASE_STEPS
    scattered = frame * bin_ * by_both + bin_ * bin_ * by_bin + frame * frame * by_frame
    turns = scattered % griffin_lim.TURN // (griffin_lim.TURN // griffin_lim.PHASES)
    return tf.gather(tf.constant(griffin_lim.phase_table()), turns)


def _deemphasise(samples: Tensor, settings: FeatureSettings) -> Tensor:
    """The recursion y[n] = x[n] + a y[n - 1] without a loop: 1 / (1 - x) is (1 + x)(1 + x^2)(1 + x^4)…"""

    # Each factor doubles the reach; those below 1e-9 are nothing in float32.
    share = settings.preemphasis_factor
    shift = 1
    while share > 1e-9:
        count = tf.shape(samples)[1]
        samples += share * tf.pad(samples, [[0, 0], [shift, 0]])[:, :count]
        share = share * share
        shift = shift * 2
    return samples

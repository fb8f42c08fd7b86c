"""Features of waveforms in a TensorFlow graph, equal to `voxline.audio.features` within 1e-3.

Window, filterbank and cosine basis are the arrays of that module, as constants in the graph.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.audio import features as audio_features
from voxline.audio.feature_settings import WHISPER_FRAMES, FeatureSettings
from voxline.families.asr.augmentation import warp_frequency
from voxline.training.layers import Tensor


def graph_features(waveforms: Tensor, lengths: Tensor, settings: FeatureSettings) -> tuple[Tensor, Tensor]:
    """The features of a batch.

    Args:
      waveforms: float32 [batch, samples], in [-1, 1]; samples beyond a row's length are ignored.
      lengths: int32 [batch], samples.

    Returns:
      features, float32 [batch, frames, bins], zero beyond a row's frames; and int32 [batch], frames.

    >>> graph_features(tf.zeros([2, 800]), tf.constant([800, 320]), FeatureSettings(mels=40))[1].numpy().tolist()
    [6, 3]
    """

    real_samples = tf.sequence_mask(lengths, tf.shape(waveforms)[1], tf.float32)
    # Zero beyond the end, even if there is NaN.
    waveforms = tf.where(real_samples > 0, waveforms, 0.0)
    if settings.kind == "waveform":
        return _normalize(waveforms, real_samples, settings)[:, :, None], lengths

    # Frames are centered on multiples of the hop, as `features.compute_features` has them.
    frames = _count_frames(lengths, settings)
    if settings.preemphasis_factor:
        before = tf.pad(waveforms, [[0, 0], [1, 0]])[:, :-1]
        waveforms = (waveforms - settings.preemphasis_factor * before) * real_samples
    spectrum = _power(waveforms, settings)
    real = tf.expand_dims(tf.sequence_mask(frames, tf.shape(spectrum)[1], tf.float32), -1)
    if settings.uses_magnitude:
        spectrum = tf.sqrt(spectrum)

    if settings.kind != "linear":
        spectrum = tf.matmul(spectrum, audio_features.mel_filterbank(settings))

    if settings.kind == "whisper":
        return tf.ensure_shape(_normalize_whisper(spectrum, real), [None, None, settings.bins]), frames

    if settings.kind == "nemo_mel":
        return tf.ensure_shape(_normalize_nemo(spectrum, real), [None, None, settings.bins]), frames

    values = tf.math.log(tf.maximum(spectrum, settings.log_floor))

    # Cepstra of padding would not be zero, and neighbors are stacked: so the mask comes before.
    if settings.kind == "mfcc":
        values = _stack(tf.matmul(values, audio_features.cepstral_basis(settings)) * real, settings.context)

    values = tf.ensure_shape(values * real, [None, None, settings.bins])

    return values, frames


def warp_matrices(factors: Sequence[float], bins: int) -> npt.NDArray[np.float32]:
    """The matrices by which features [frames, bins] are stretched along their bins, [factors, bins, bins].

    >>> np.float32([[0, 1, 2]]) @ warp_matrices([2.0], 3)[0]
    array([[0. , 0.5, 1. ]], dtype=float32)
    """
    return np.stack([warp_frequency(np.eye(bins, dtype=np.float32), factor) for factor in factors])


def _count_frames(samples: Tensor, settings: FeatureSettings) -> Tensor:
    """`FeatureSettings.count_frames` of a tensor."""
    if settings.kind == "whisper":
        reached = 1 + (samples + settings.padding - 1) // settings.hop_length
        return tf.minimum(reached, tf.maximum(WHISPER_FRAMES, samples // settings.hop_length))
    if settings.kind == "nemo_mel":
        return tf.maximum(samples // settings.hop_length, 1)
    return 1 + samples // settings.hop_length


def _normalize_nemo(mels: Tensor, real: Tensor) -> Tensor:
    """NeMo's features of mel powers [batch, frames, mels]; `real` [batch, frames, 1] is 1 where a frame is real."""
    logarithm = tf.math.log1p(mels / audio_features.NEMO_GUARD) * real
    count = tf.reduce_sum(real, axis=1, keepdims=True)

    # Mean and unbiased deviation of each bin over the row's own frames, [batch, 1, mels].
    centered = (logarithm - tf.reduce_sum(logarithm, axis=1, keepdims=True) / count) * real
    variance = tf.reduce_sum(tf.square(centered), axis=1, keepdims=True) / tf.maximum(count - 1, 1)
    return centered / (tf.sqrt(variance) + audio_features.NEMO_EPSILON)


def _normalize_whisper(mels: Tensor, real: Tensor) -> Tensor:
    """Whisper's features of mel powers [batch, frames, mels]; `real` [batch, frames, 1] is 1 where a frame is real."""
    decades = tf.math.log(tf.maximum(mels, audio_features.WHISPER_FLOOR)) / math.log(10)

    # The loudest value of each row's own frames, [batch, 1, 1].
    loudest = tf.reduce_max(tf.where(real > 0, decades, -math.inf), axis=[1, 2], keepdims=True)
    decades = tf.maximum(decades, loudest - audio_features.WHISPER_RANGE)
    return (decades + 4) / 4 * real


def _normalize(waveforms: Tensor, real: Tensor, settings: FeatureSettings) -> Tensor:
    """`audio_features.normalize_waveform` of each row; zero beyond its end."""
    if not settings.unit_variance:
        return waveforms

    # [batch, 1]: samples of a row, then their mean and variance.
    count = tf.maximum(tf.reduce_sum(real, axis=1, keepdims=True), 1.0)
    mean = tf.reduce_sum(waveforms, axis=1, keepdims=True) / count
    centered = (waveforms - mean) * real
    variance = tf.reduce_sum(tf.square(centered), axis=1, keepdims=True) / count

    return centered * tf.math.rsqrt(variance + audio_features.VARIANCE_FLOOR)


def _power(waveforms: Tensor, settings: FeatureSettings) -> Tensor:
    """Squared magnitudes, float32 [batch, frames, transform // 2 + 1]."""

    # [batch, samples] → [batch, frames, window] → [batch, frames, bins]
    count = _count_frames(tf.shape(waveforms)[1], settings)
    needed = (count - 1) * settings.hop_length + settings.win_length
    # The last window may end before or after the last sample.
    missing = tf.maximum(needed - settings.padding - tf.shape(waveforms)[1], 0)

    padded = tf.pad(waveforms, [[0, 0], [settings.padding, missing]])[:, :needed]
    if settings.kind == "whisper":
        # Before the first sample the recording is reflected.
        head = tf.pad(waveforms, [[0, 0], [0, settings.padding + 1]])[:, 1 : settings.padding + 1]
        padded = tf.concat([tf.reverse(head, [1]), padded[:, settings.padding :]], axis=1)
    windows = tf.signal.frame(padded, settings.win_length, settings.hop_length) * audio_features.hann_window(settings)
    transform = tf.signal.rfft(windows, [settings.n_fft])
    return tf.square(tf.math.real(transform)) + tf.square(tf.math.imag(transform))


def _stack(frames: Tensor, context: int) -> Tensor:
    """Each frame with its neighbors; zeros beyond the ends."""
    if context == 0:
        return frames

    # [batch, frames, (2 · context + 1) · coefficients], oldest first.
    padded = tf.pad(frames, [[0, 0], [context, context], [0, 0]])
    count = tf.shape(frames)[1]
    return tf.concat([padded[:, shift : shift + count] for shift in range(2 * context + 1)], axis=-1)

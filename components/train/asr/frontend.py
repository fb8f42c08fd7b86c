"""From waveforms to features in a TensorFlow graph, equal to `voxline.audio.features` within 1e-3.

Its windows, filterbank and cosines are the very arrays of spectra, kept as constants in the graph.
"""

from typing import Any

import tensorflow as tf

from voxline.audio import features as spectra
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError

Tensor = Any


def graph_features(waveforms: Tensor, lengths: Tensor, settings: FeatureSettings) -> tuple[Tensor, Tensor]:
    """The features of a batch.

    Args:
      waveforms: float32 [batch, samples], in [-1, 1]; what lies beyond a row's length is not listened to.
      lengths: int32 [batch], samples.

    Returns:
      features, float32 [batch, frames, bins], zero beyond a row's frames; and int32 [batch], frames.

    >>> graph_features(tf.zeros([2, 800]), tf.constant([800, 320]), FeatureSettings(mels=40))[1].numpy().tolist()
    [6, 3]
    """
    frames = 1 + lengths // settings.hop_length
    audible = tf.sequence_mask(lengths, tf.shape(waveforms)[1], tf.float32)
    # A zero where the waveform is one, even if what lies there is not a number.
    waveforms = tf.where(audible > 0, waveforms, 0.0)
    power = _power(waveforms, settings)
    real = tf.expand_dims(tf.sequence_mask(frames, tf.shape(power)[1], tf.float32), -1)
    if settings.kind != "linear":
        power = tf.matmul(power, spectra.mel_filterbank(settings))
    values = tf.math.log(tf.maximum(power, settings.log_floor))
    if settings.kind == "mfcc":
        values = _stack(tf.matmul(values, spectra.cepstral_basis(settings)) * real, settings.context)
    values = tf.ensure_shape(values * real, [None, None, settings.bins])
    return values, frames


def check_exportable(settings: FeatureSettings) -> None:
    """Refuses features that `graph_features` does not compute.

    Raises:
      SettingsError: a recogniser that was trained on them could not be exported.
    """
    if settings.kind == "mel_and_linear":
        raise SettingsError(
            "a recogniser hears no features of kind mel_and_linear; "
            "set extract.features.kind to log_mel, mfcc or linear"
        )
    if settings.uses_magnitude:
        raise SettingsError(
            "a recogniser takes the logarithm of power, and the dataset's features are of magnitude; "
            "set extract.features.spectrum to power"
        )


def _power(waveforms: Tensor, settings: FeatureSettings) -> Tensor:
    """Squared magnitudes, float32 [batch, frames, transform // 2 + 1]."""
    count = 1 + tf.shape(waveforms)[1] // settings.hop_length
    needed = (count - 1) * settings.hop_length + settings.win_length
    # The last window may end before the last sample, or after it.
    beyond = tf.maximum(needed - settings.padding - tf.shape(waveforms)[1], 0)
    padded = tf.pad(waveforms, [[0, 0], [settings.padding, beyond]])[:, :needed]
    windows = tf.signal.frame(padded, settings.win_length, settings.hop_length) * spectra.hann_window(settings)
    transform = tf.signal.rfft(windows, [settings.n_fft])
    return tf.square(tf.math.real(transform)) + tf.square(tf.math.imag(transform))


def _stack(frames: Tensor, context: int) -> Tensor:
    """Each frame between its neighbours; zeros beyond the ends."""
    if context == 0:
        return frames
    padded = tf.pad(frames, [[0, 0], [context, context], [0, 0]])
    count = tf.shape(frames)[1]
    return tf.concat([padded[:, shift : shift + count] for shift in range(2 * context + 1)], axis=-1)

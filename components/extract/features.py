"""What features are made of: the samples of an utterance, as convert wrote them, or why there are none."""

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import decode_audio, resample, to_mono
from voxline.audio.features import FloatArray, compute_features
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import Utterance
from voxline.rejects import BadAudioError, Reason

MAX_FEATURE = 1e6
"""No feature of speech comes near it; one infinity would spoil the statistics of the whole dataset."""


def utterance_features(utterance: Utterance, speed: float, settings: ExtractSettings) -> FloatArray:
    """The features of an utterance at a speed, float32 `[frames, bins]`.

    Raises:
      BadAudio: as `read_samples`, or features that are not finite.
    """
    samples = change_speed(read_samples(utterance, settings.features.sample_rate), speed)
    made = compute_features(samples, settings.features)
    if not np.abs(made).max() < MAX_FEATURE:
        raise BadAudioError(Reason.BAD_FEATURES, "features that are not finite: samples far beyond [-1, 1]")
    return made


def read_samples(utterance: Utterance, sample_rate: int) -> npt.NDArray[np.float32]:
    """The utterance's samples, float32 `[samples]` in [-1, 1].

    Raises:
      BadAudio: as `voxline.audio.decoding.decode_audio`, or a recording of another rate than `sample_rate`, or stereo.
    """
    recording = decode_audio(utterance.audio_filepath, utterance.offset, utterance.duration)
    channels = recording.samples.shape[1]
    if recording.sample_rate != sample_rate or channels != 1:
        raise BadAudioError(
            Reason.WRONG_FORMAT,
            f"{recording.sample_rate} Hz and {channels} channel(s); {sample_rate} Hz (features.sample_rate) and 1 "
            "are expected, as convert writes them",
        )
    return resample(to_mono(recording.samples), sample_rate, sample_rate)


def change_speed(samples: npt.NDArray[np.float32], speed: float) -> npt.NDArray[np.float32]:
    """The recording played faster (above 1) or slower, pitch and all, as a tape would be; by soxr.

    >>> len(change_speed(np.zeros(16_000, np.float32), 1.25))
    12800
    """
    import soxr

    if speed == 1.0:
        return samples
    changed: npt.NDArray[np.float32] = soxr.resample(samples, speed, 1.0, quality="HQ")
    return changed

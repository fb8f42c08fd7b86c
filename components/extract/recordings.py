"""The samples of an utterance, as convert wrote them, or why there are none."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from components.speech.utterances import Reason, Utterance

TOLERANCE = 0.01
"""Seconds by which a manifest's duration may differ from the file's: some round to two decimals."""


class UnusableRecording(Exception):  # noqa: N818 - not an error of ours: it becomes a reject
    """A recording that cannot become features.

    Attributes:
      reason: the code in rejects.jsonl.
      detail: what was there, in words.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def read_samples(utterance: Utterance, sample_rate: int) -> npt.NDArray[np.float32]:
    """The utterance's samples, float32 `[samples]` in [-1, 1].

    Raises:
      UnusableRecording: the file is gone, unreadable, shorter than the manifest says, of another rate, or stereo.
    """
    path = Path(utterance.audio_filepath)
    try:
        with soundfile.SoundFile(path) as file:
            if file.samplerate != sample_rate or file.channels != 1:
                raise UnusableRecording(
                    Reason.WRONG_FORMAT,
                    f"{path.name} has {file.samplerate} Hz and {file.channels} channel(s); "
                    f"{sample_rate} Hz (features.sample_rate) and 1 are expected",
                )
            start, wanted = round(utterance.offset * sample_rate), round(utterance.duration * sample_rate)
            tolerated = round(TOLERANCE * sample_rate)
            if start == 0 and abs(file.frames - wanted) <= tolerated:
                wanted = file.frames
            if start:
                file.seek(min(start, file.frames))
            samples: npt.NDArray[np.float32] = file.read(wanted, dtype="float32")
    except soundfile.LibsndfileError as error:
        if not path.exists():
            raise UnusableRecording(Reason.MISSING_FILE, f"{path} is not there") from None
        raise UnusableRecording(Reason.UNREADABLE, f"{path.name}: {error}") from None
    if len(samples) < wanted - tolerated:
        raise UnusableRecording(
            Reason.TRUNCATED,
            f"{path.name} ends {(wanted - len(samples)) / sample_rate:.2f} s before the "
            f"{utterance.duration:.2f} s of the manifest are over",
        )
    if not len(samples):
        raise UnusableRecording(Reason.EMPTY_AUDIO, f"{path.name} holds no samples")
    return samples


def at_speed(samples: npt.NDArray[np.float32], speed: float) -> npt.NDArray[np.float32]:
    """The recording played faster (above 1) or slower, pitch and all, as a tape would be; by soxr."""
    import soxr

    if speed == 1.0:
        return samples
    changed: npt.NDArray[np.float32] = soxr.resample(samples, speed, 1.0, quality="HQ")
    return changed

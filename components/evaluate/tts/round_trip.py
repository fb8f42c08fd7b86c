"""The round trip: an ASR model transcribes synthesized speech, to measure whether it is intelligible."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer

if TYPE_CHECKING:
    from voxline.inference.waveforms import Waveform


def find_round_trip_recognizer(registry: Path | str, name: str) -> ModelVersion | None:
    """The ASR model in service under a name; None if the name is empty.

    Raises:
      SettingsError: none is in service under it, or a model of another family.
    """
    return find_auxiliary(registry, name, family="asr", setting="round_trip_recognizer")


class RoundTripRecognizer:
    """A loaded ASR model for speech of any sample rate.

    It decodes greedily: a language model would guess words that the voice says badly, and refuse those that it lacks.

    Raises:
      WorkError: the version is damaged.
    """

    def __init__(self, version: ModelVersion) -> None:
        try:
            self._recognizer = Recognizer(version.folder, language_model=False)
        except WorkError as error:
            raise version.unusable(error) from None

    def transcribe(self, waveforms: Sequence["Waveform"], sample_rate: int) -> list[str]:
        """Transcribes waveforms, float32 [samples]; samples beyond full scale are clipped."""
        import numpy as np

        from voxline.audio.decoding import resample

        rate = self._recognizer.sample_rate
        return self._recognizer.transcribe_waveforms(
            [np.clip(resample(waveform, sample_rate, rate), -1, 1) for waveform in waveforms]
        )


def reference_text(utterance: Utterance) -> str:
    """The words that the round trip should return: numbers spelled out, without punctuation."""
    return str(utterance.extra.get("normalized_text") or utterance.text)

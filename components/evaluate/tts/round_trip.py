"""The recogniser that listens to a voice: is what it speaks understood?"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.evaluate.champion import ModelVersion, find_in_service
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import read_model_json, require_family
from voxline.registry.registry import Registry

if TYPE_CHECKING:
    from voxline.inference.recognizer import Waveform


def find_round_trip_recognizer(registry: Path | str, name: str) -> ModelVersion | None:
    """The recogniser in service under a name; None where no name is given.

    Raises:
      SettingsError: none is in service under it, or a voice is.
    """
    if not name:
        return None
    found = find_in_service(Registry(registry, name))
    if found is None:
        raise SettingsError(
            f"evaluate: 'listener' is {name!r}, and {Path(registry) / name} holds no version; push a recogniser there "
            "first (voxline run asr), or leave the listener empty, and no round trip is measured"
        )
    try:
        require_family(read_model_json(found.folder), "asr", found.folder)
    except WorkError as error:
        raise SettingsError(f"evaluate: 'listener' is {name!r}, and {error}") from None
    return found


@dataclasses.dataclass(frozen=True)
class RoundTripRecognizer:
    """A loaded recogniser, and which one it is."""

    version: ModelVersion
    recogniser: Recognizer

    @classmethod
    def load(cls, version: ModelVersion) -> "RoundTripRecognizer":
        """Raises: WorkError: it is damaged, or no recogniser."""
        try:
            return cls(version, Recognizer(version.folder))
        except WorkError as error:
            raise version.unusable(error) from None

    def plain(self) -> dict[str, Any]:
        """As it stands in metrics.json."""
        return {"name": self.version.name, **self.version.plain()}

    def hear(self, waveforms: Sequence["Waveform"], sample_rate: int) -> list[str]:
        """What it hears in each waveform, float32 [samples] at a sample rate of their own."""
        import numpy as np

        from voxline.audio.decoding import resample

        rate = self.recogniser.sample_rate
        return self.recogniser.transcribe_waveforms(
            [np.clip(resample(waveform, sample_rate, rate), -1, 1) for waveform in waveforms]
        )


def reference_text(utterance: Utterance) -> str:
    """The words that a listener should hear: numbers spelled out, no punctuation."""
    return str(utterance.extra.get("normalized_text") or utterance.text)

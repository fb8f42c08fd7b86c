"""The recogniser that listens to a voice: is what it speaks understood?"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.evaluate.champion import ModelVersion, find_in_service
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import NEEDS_ASR_MODEL, Recognizer, is_voice, read_model_json
from voxline.registry.registry import Registry

if TYPE_CHECKING:
    from voxline.inference.saved_model import Waveform


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
    if is_voice(read_model_json(found.folder)):
        raise SettingsError(f"evaluate: 'listener' is {name!r}, and {found.folder} is a voice; {NEEDS_ASR_MODEL}")
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
        import soxr

        rate = self.recogniser.sample_rate
        if sample_rate != rate:
            waveforms = [soxr.resample(waveform, sample_rate, rate) for waveform in waveforms]
        return self.recogniser.transcribe([np.clip(waveform, -1, 1).astype(np.float32) for waveform in waveforms])


def reference_text(utterance: Utterance) -> str:
    """The words that a listener should hear: numbers spelled out, no punctuation."""
    return str(utterance.extra.get("spoken") or utterance.text)

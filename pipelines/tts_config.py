"""The config of a run of `tts`: a voice, from a corpus of one speaker to a pushed model."""

from pathlib import Path
from typing import Literal

import pydantic

from components.evaluate.synthesis.settings import SynthesisEvaluateSettings
from components.push.settings import SynthesisPushSettings
from components.speech.errors import SettingsError
from components.speech.registry import Registry
from components.train.synthesis.settings import SynthesisSettings
from pipelines.dotted import Values, get, over
from pipelines.run_config import Name
from pipelines.teaching_config import TeachingConfig

READING = "english"
ALPHABETS = {
    "english": "english_speech",
    "english_phonemes": "phonemes",
    "mandarin": "pinyin_speech",
    "pinyin": "pinyin_speech",
}
"""Reading → the alphabet of what it makes, where the config names none."""

# One speaker is all there is, in train and in test; attention needs no frames to spell with, so CTC is not asked.
DEFAULTS = {
    "corpus": {"format": "ljspeech"},
    "convert": {"reading": {"kind": READING}},
    "validate": {
        "schema": "synthesis",
        "ctc_feasibility": {"severity": "off"},
        "speaker_overlap": {"severity": "off"},
        "dominant_speaker": {"severity": "off"},
    },
    "train": {"model": {"kind": "tacotron2"}},
}


class TtsConfig(TeachingConfig):
    """A run of the `tts` pipeline."""

    pipeline: Literal["tts"] = pydantic.Field("tts", description="the graph that this config is for")
    model: Name = pydantic.Field("tts", description="name of the model in the registry")
    train: SynthesisSettings = pydantic.Field(
        default_factory=SynthesisSettings, description="the model and its training"
    )
    evaluate: SynthesisEvaluateSettings = pydantic.Field(
        default_factory=SynthesisEvaluateSettings, description="distances, attention and the round trip"
    )
    push: SynthesisPushSettings = pydantic.Field(default_factory=SynthesisPushSettings, description="the gate")

    def check_places(self) -> None:
        """Refuses a listener that is not there: evaluate comes after all of training.

        Raises:
          SettingsError: the registry holds no version of it.
        """
        listener = self.evaluate.listener
        if listener and Registry(self.registry, listener).in_service() is None:
            raise SettingsError(
                f"evaluate.listener is {listener!r}, and {Path(self.registry) / listener} holds no version; push a "
                "recogniser there first (voxline run asr, with this registry), or leave the listener empty"
            )

    @classmethod
    def defaults(cls, document: Values) -> Values:
        kind = get(document, "convert.reading.kind")
        alphabet = ALPHABETS.get(READING if kind is None else str(kind))
        follows = {"convert": {"alphabet": alphabet}} if alphabet else {}
        return over(super().defaults(document), over(DEFAULTS, follows))

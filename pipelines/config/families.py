"""The config of a run of `asr`: a recogniser, from a corpus to a pushed model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pydantic

from voxline.components.evaluate.settings import AsrEvaluateSettings, TtsEvaluateSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.push.settings import AsrPushSettings, TtsPushSettings
from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.errors import SettingsError
from voxline.pipelines.config.keys import Values, get_key, merge
from voxline.pipelines.config.run_config import NAME_PATTERN, Name, RunConfig, TrainingRunConfig
from voxline.registry.registry import Registry


class AsrConfig(TrainingRunConfig):
    """A run of the `asr` pipeline."""

    pipeline: Literal["asr"] = pydantic.Field("asr", description="the graph that this config is for")
    model: Name = pydantic.Field("asr", description="name of the model in the registry")
    train: AsrTrainSettings = pydantic.Field(default_factory=AsrTrainSettings, description="the model and its training")
    evaluate: AsrEvaluateSettings = pydantic.Field(default_factory=AsrEvaluateSettings, description="error rates")
    push: AsrPushSettings = pydantic.Field(default_factory=AsrPushSettings, description="the gate")

    def follows(self) -> dict[str, tuple[Any, str]]:
        made = "extract.features over train.model's stride and the fastest of extract.speeds"
        return {**super().follows(), "validate.frames_per_second": (self.frames_per_second(), made)}

    def frames_per_second(self) -> float:
        """Frames of the model's output to a second of a recording, played fastest: what CTC has to spell with."""
        rate = self.convert.sample_rate
        features = self.extract.features.model_copy(update={"sample_rate": rate})
        return round(rate / (features.hop_length * self.train.time_stride * max(self.extract.speeds)), 6)


class RefreshConfig(RunConfig):
    """A run of the `refresh` pipeline."""

    places: ClassVar[Mapping[str, str]] = {**RunConfig.places, "datasets": "datasets"}

    required_on_a_cluster: ClassVar[Sequence[str]] = ("store", "datasets", "corpus__uri")

    pipeline: Literal["refresh"] = pydantic.Field("refresh", description="the graph that this config is for")
    model: str = pydantic.Field(
        "",
        pattern=NAME_PATTERN.replace("^", "^(").replace("$", ")?$"),
        description="name of the model whose dataset is the baseline for drift; empty: no check for drift",
    )
    datasets: str = pydantic.Field(
        "", description="folder or gs:// URI of dataset versions; a run on this machine defaults to <run-dir>/datasets"
    )
    publish: PublishSettings = pydantic.Field(
        default_factory=PublishSettings, description="the dataset, as people and training name it"
    )


DEFAULT_FRONTEND = "english"
FRONTEND_ALPHABETS = {
    "english": "english_speech",
    "english_phonemes": "phonemes",
    "mandarin": "pinyin_speech",
    "pinyin": "pinyin_speech",
}
"""Reading → the alphabet of what it makes, where the config names none."""

# One speaker is all there is, in train and in test; attention needs no frames to spell with, so CTC is not asked.
TTS_DEFAULTS = {
    "corpus": {"format": "ljspeech"},
    "convert": {"frontend": {"kind": DEFAULT_FRONTEND}},
    "validate": {
        "schema": "tts",
        "ctc_feasibility": {"severity": "off"},
        "speaker_overlap": {"severity": "off"},
        "dominant_speaker": {"severity": "off"},
    },
    "train": {"model": {"kind": "tacotron2"}},
}


class TtsConfig(TrainingRunConfig):
    """A run of the `tts` pipeline."""

    pipeline: Literal["tts"] = pydantic.Field("tts", description="the graph that this config is for")
    model: Name = pydantic.Field("tts", description="name of the model in the registry")
    train: TtsTrainSettings = pydantic.Field(default_factory=TtsTrainSettings, description="the model and its training")
    evaluate: TtsEvaluateSettings = pydantic.Field(
        default_factory=TtsEvaluateSettings, description="distances, attention and the round trip"
    )
    push: TtsPushSettings = pydantic.Field(default_factory=TtsPushSettings, description="the gate")

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
        kind = get_key(document, "convert.frontend.kind")
        alphabet = FRONTEND_ALPHABETS.get(DEFAULT_FRONTEND if kind is None else str(kind))
        follows = {"convert": {"alphabet": alphabet}} if alphabet else {}
        return merge(super().defaults(document), merge(TTS_DEFAULTS, follows))

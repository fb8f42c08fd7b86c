"""The config of a run of `asr`: a recogniser, from a corpus to a pushed model."""

from typing import Any, Literal

import pydantic

from components.evaluate.recognition.settings import RecognitionEvaluateSettings
from components.push.settings import RecognitionPushSettings
from components.train.recognition.settings import RecognitionSettings
from pipelines.run_config import Name
from pipelines.teaching_config import TeachingConfig


class AsrConfig(TeachingConfig):
    """A run of the `asr` pipeline."""

    pipeline: Literal["asr"] = pydantic.Field("asr", description="the graph that this config is for")
    model: Name = pydantic.Field("asr", description="name of the model in the registry")
    train: RecognitionSettings = pydantic.Field(
        default_factory=RecognitionSettings, description="the model and its training"
    )
    evaluate: RecognitionEvaluateSettings = pydantic.Field(
        default_factory=RecognitionEvaluateSettings, description="error rates"
    )
    push: RecognitionPushSettings = pydantic.Field(default_factory=RecognitionPushSettings, description="the gate")

    def follows(self) -> dict[str, tuple[Any, str]]:
        made = "extract.features over train.model's stride and the fastest of extract.speeds"
        return {**super().follows(), "validate.frames_per_second": (self.frames_per_second(), made)}

    def frames_per_second(self) -> float:
        """Frames of the model's output to a second of a recording, played fastest: what CTC has to spell with."""
        rate = self.convert.sample_rate
        features = self.extract.features.model_copy(update={"sample_rate": rate})
        return round(rate / (features.hop * self.train.time_stride * max(self.extract.speeds)), 6)

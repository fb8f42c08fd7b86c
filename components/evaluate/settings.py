"""Settings of evaluate."""

from itertools import pairwise
from typing import Annotated, Any, Literal

import pydantic

from components.speech.settings import Settings

Bound = Annotated[float, pydantic.Field(gt=0)]


class EvaluateSettings(Settings):
    """How a model is measured."""

    model_name: str = pydantic.Field(
        "asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    split: Literal["test", "dev", "train"] = pydantic.Field("test", description="the split that it is measured on")
    batch_seconds: float = pydantic.Field(
        120.0, gt=0, le=36_000, description="seconds of audio, padding included, recognised at once"
    )
    confidence: float = pydantic.Field(0.95, ge=0.5, lt=1, description="of the intervals")
    bootstrap_samples: int = pydantic.Field(2000, ge=100, le=100_000, description="resamples behind an interval")
    seed: int = pydantic.Field(0, ge=0, description="of the resamples")
    fewest_speakers: int = pydantic.Field(
        10, ge=5, description="from so many speakers on they are resampled in place of utterances"
    )
    slices: list[str] = pydantic.Field(
        [], description="manifest fields to report by, beside speaker, duration and words"
    )
    duration_bands: list[Bound] = pydantic.Field(
        [1.0, 2.0, 4.0, 8.0, 16.0], min_length=1, description="seconds at which one band of durations ends"
    )
    word_bands: list[Annotated[int, pydantic.Field(gt=0)]] = pydantic.Field(
        [2, 4, 8, 16], min_length=1, description="words at which one band of text lengths ends"
    )
    worst: int = pydantic.Field(20, ge=0, le=1000, description="worst utterances shown in the report")
    confusions: int = pydantic.Field(30, ge=0, le=1000, description="most confused words shown in the report")
    audio_megabytes: float = pydantic.Field(8.0, ge=0, le=100, description="MB of audio embedded in the report")

    @pydantic.field_validator("duration_bands", "word_bands")
    @classmethod
    def _rising(cls, bounds: list[Any]) -> list[Any]:
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError("each bound must be above the one before it")
        return bounds

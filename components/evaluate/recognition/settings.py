"""Settings of evaluate for recognition."""

from typing import Annotated, Any

import pydantic

from components.evaluate.settings import EvaluateSettings, rising

Bound = Annotated[float, pydantic.Field(gt=0)]


class RecognitionEvaluateSettings(EvaluateSettings):
    """How a recogniser is measured."""

    batch_seconds: float = pydantic.Field(
        120.0, gt=0, le=36_000, description="seconds of audio, padding included, recognised at once"
    )
    duration_bands: list[Bound] = pydantic.Field(
        [1.0, 2.0, 4.0, 8.0, 16.0], min_length=1, description="seconds at which one band of durations ends"
    )
    word_bands: list[Annotated[int, pydantic.Field(gt=0)]] = pydantic.Field(
        [2, 4, 8, 16], min_length=1, description="words at which one band of text lengths ends"
    )
    confusions: int = pydantic.Field(30, ge=0, le=1000, description="most confused words shown in the report")

    @pydantic.field_validator("duration_bands", "word_bands")
    @classmethod
    def _rising(cls, bounds: list[Any]) -> list[Any]:
        return rising(bounds)

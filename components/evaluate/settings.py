"""Settings of evaluate that every kind of model has."""

from itertools import pairwise
from typing import Any, Literal

import pydantic

from components.speech.settings import Settings


class EvaluateSettings(Settings):
    """How a model is measured."""

    model_name: str = pydantic.Field(
        "asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    split: Literal["test", "dev"] = pydantic.Field("test", description="the split that it is measured on")
    confidence: float = pydantic.Field(0.95, ge=0.5, lt=1, description="of the intervals")
    bootstrap_samples: int = pydantic.Field(2000, ge=100, le=100_000, description="resamples behind an interval")
    seed: int = pydantic.Field(0, ge=0, description="of the resamples")
    fewest_speakers: int = pydantic.Field(
        10, ge=5, description="from so many speakers on they are resampled in place of utterances"
    )
    slices: list[str] = pydantic.Field([], description="manifest fields to report by, beside those always reported by")
    worst: int = pydantic.Field(20, ge=0, le=1000, description="worst utterances shown in the report")
    audio_megabytes: float = pydantic.Field(8.0, ge=0, le=100, description="MB of audio embedded in the report")

    @pydantic.field_validator("split", mode="before")
    @classmethod
    def _not_what_it_learned(cls, split: Any) -> Any:
        if split == "train":
            raise ValueError("a model has seen it, so it says nothing there; 'test' or 'dev' is accepted")
        return split


def rising(bounds: list[Any]) -> list[Any]:
    """Raises: ValueError: a bound is not above the one before it."""
    if any(low >= high for low, high in pairwise(bounds)):
        raise ValueError("each bound must be above the one before it")
    return bounds

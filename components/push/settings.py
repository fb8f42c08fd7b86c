"""Settings of push."""

import pydantic

from components.speech.settings import Settings


class PushSettings(Settings):
    """When a model is good enough to go into service."""

    model_name: str = pydantic.Field(
        "asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    max_wer: float = pydantic.Field(0.3, ge=0, le=10, description="word error rate above which no model is pushed")
    max_regression: float = pydantic.Field(
        0.01,
        ge=0,
        le=1,
        description="how much higher than the model in service its word error rate may be (0.01: 1 point)",
    )
    confidence: float = pydantic.Field(
        0.95,
        ge=0.5,
        lt=1,
        description="with which it must be no worse than that, and with which a slice counts as worse",
    )
    max_slice_regression: float = pydantic.Field(
        0.05, ge=0, le=1, description="the same for any one slice (0.05: 5 points)"
    )
    slices: list[str] = pydantic.Field(
        ["speaker", "duration", "words"], description="slicings that are judged; each must be one that evaluate made"
    )
    min_slice_utterances: int = pydantic.Field(20, ge=1, description="smaller slices are not judged")
    known_clip: bool = pydantic.Field(
        True, description="load the model in a fresh process and let it transcribe a clip that evaluate recorded"
    )
    clip_seconds: float = pydantic.Field(180.0, gt=0, le=3600, description="seconds that this may take")
    allow_rolled_back: bool = pydantic.Field(False, description="push a model although a person rolled it back before")

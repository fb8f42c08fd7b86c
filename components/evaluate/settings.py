"""Settings of evaluate that every kind of model has."""

from itertools import pairwise
from typing import Annotated, Any, Literal

import pydantic

from voxline.settings import Settings


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


def check_ascending(bounds: list[Any]) -> list[Any]:
    """Raises: ValueError: a bound is not above the one before it."""
    if any(low >= high for low, high in pairwise(bounds)):
        raise ValueError("each bound must be above the one before it")
    return bounds


Bound = Annotated[float, pydantic.Field(gt=0)]


class AsrEvaluateSettings(EvaluateSettings):
    """How a recogniser is measured."""

    EXPOSED = ("model_name",)

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
        return check_ascending(bounds)


class TtsEvaluateSettings(EvaluateSettings):
    """How a voice is measured."""

    EXPOSED = ("model_name", "listener")

    model_name: str = pydantic.Field(
        "tts", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    listener: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of a recogniser in the same registry, which transcribes what is spoken; empty: no round trip",
    )
    batch_size: int = pydantic.Field(16, ge=1, le=1024, description="texts spoken at once")
    batch_symbols: int = pydantic.Field(
        4_000, ge=1, le=1_000_000, description="symbols of text, padding included, spoken at once"
    )
    pitched: int = pydantic.Field(
        30, ge=0, le=100_000, description="utterances whose F0 is measured, evenly picked; 0.1 s for a second of speech"
    )
    lowest_f0: float = pydantic.Field(65.0, ge=40, le=500, description="Hz; lowest F0 that is looked for")
    highest_f0: float = pydantic.Field(400.0, ge=80, le=2_000, description="Hz; highest F0 that is looked for")
    cepstra: int = pydantic.Field(13, ge=2, le=60, description="cepstral coefficients compared, c1 to this one")
    text_bands: list[Annotated[int, pydantic.Field(gt=0)]] = pydantic.Field(
        [20, 40, 80, 160], min_length=1, description="symbols at which one band of text lengths ends"
    )
    typical: int = pydantic.Field(
        3, ge=0, le=100, description="utterances shown in the report however good, evenly picked"
    )
    worst: int = pydantic.Field(5, ge=0, le=1000, description="worst utterances shown in the report")

    @pydantic.field_validator("text_bands")
    @classmethod
    def _rising(cls, bounds: list[Any]) -> list[Any]:
        return check_ascending(bounds)

    @pydantic.field_validator("highest_f0")
    @classmethod
    def _above_the_lowest(cls, highest: float, others: pydantic.ValidationInfo) -> float:
        lowest = others.data.get("lowest_f0", 0.0)
        if highest < 2 * lowest:
            raise ValueError(f"at least twice lowest_f0 ({lowest:g} Hz) is accepted")
        return highest

"""Settings of push."""

from collections.abc import Mapping
from typing import Annotated

import pydantic

from voxline.metrics.catalog import NOT_COMPARED, SPEED_METRICS, TTS_METRICS
from voxline.settings import Settings

Margin = Annotated[float, pydantic.Field(ge=0)]
_JUDGED = [figure.name for figure in TTS_METRICS if figure.name not in NOT_COMPARED]
_LIMITED = [*_JUDGED, *(figure.name for figure in SPEED_METRICS)]


class PushSettings(Settings):
    """When a model is good enough to go into service: what every kind of model has."""

    model_name: str = pydantic.Field(
        "asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    confidence: float = pydantic.Field(
        0.95,
        ge=0.5,
        lt=1,
        description="with which it must be no worse than that, and with which a slice counts as worse",
    )
    slices: list[str] = pydantic.Field([], description="slicings that are judged; each must be one that evaluate made")
    min_slice_utterances: int = pydantic.Field(20, ge=1, description="smaller slices are not judged")
    known_clip: bool = pydantic.Field(
        True, description="load the model in a fresh process and let it do again what evaluate recorded"
    )
    clip_seconds: float = pydantic.Field(180.0, gt=0, le=3600, description="seconds that this may take")
    allow_rolled_back: bool = pydantic.Field(False, description="push a model although a person rolled it back before")

    def absolute_limits(self) -> Mapping[str, tuple[float, str]]:
        """The value that each figure must keep to, and the key that says so."""
        return {}

    def margins(self) -> Mapping[str, float]:
        """How much worse than the model in service each figure may be."""
        return {}

    def slice_margins(self) -> Mapping[str, float]:
        """The same for any one slice."""
        return {}


class AsrPushSettings(PushSettings):
    """When a recogniser is good enough to go into service."""

    EXPOSED = ("model_name", "max_wer", "max_regression", "confidence")

    max_wer: float = pydantic.Field(0.3, ge=0, le=10, description="word error rate above which no model is pushed")
    max_regression: float = pydantic.Field(
        0.01,
        ge=0,
        le=1,
        description="how much higher than the model in service its word error rate may be (0.01: 1 point)",
    )
    max_slice_regression: float = pydantic.Field(
        0.05, ge=0, le=1, description="the same for any one slice (0.05: 5 points)"
    )
    slices: list[str] = pydantic.Field(
        ["speaker", "duration", "words"], description="slicings that are judged; each must be one that evaluate made"
    )

    def absolute_limits(self) -> Mapping[str, tuple[float, str]]:
        return {"wer": (self.max_wer, "max_wer")}

    def margins(self) -> Mapping[str, float]:
        return {"wer": self.max_regression}

    def slice_margins(self) -> Mapping[str, float]:
        return {"wer": self.max_slice_regression}


class TtsPushSettings(PushSettings):
    """When a voice is good enough to go into service."""

    EXPOSED = ("model_name", "max_round_trip_wer", "max_hit_limit", "min_attention_diagonality", "confidence")

    model_name: str = pydantic.Field(
        "tts", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="the model's name in the registry"
    )
    max_round_trip_wer: float = pydantic.Field(
        0.5, ge=0, le=10, description="share of words that the listener may get wrong; judged where one listened"
    )
    max_hit_limit: float = pydantic.Field(
        0.1, ge=0, le=1, description="share of utterances that may run into the limit on decoder steps"
    )
    min_attention_diagonality: float = pydantic.Field(
        0.5, ge=0, le=1, description="share of the attention that must lie near the diagonal"
    )
    limits: dict[str, float] = pydantic.Field(
        {}, description="value that any other figure must keep to: highest accepted, or lowest where higher is better"
    )
    max_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.02, "mcd": 0.3},
        description="how much worse than the model in service a figure may be, in its own unit (shares: 0.02 is 2 "
        "points; mcd: dB)",
    )
    max_slice_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.1, "mcd": 1.0}, description="the same for any one slice"
    )
    slices: list[str] = pydantic.Field(
        ["text_length"], description="slicings that are judged; each must be one that evaluate made"
    )

    @pydantic.field_validator("limits", "max_regression", "max_slice_regression")
    @classmethod
    def _of_known_figures(cls, values: dict[str, float], field: pydantic.ValidationInfo) -> dict[str, float]:
        accepted = _LIMITED if field.field_name == "limits" else _JUDGED
        unknown = [name for name in values if name not in accepted]
        if unknown:
            raise ValueError(f"no figure {', '.join(unknown)}; accepted: {', '.join(accepted)}")
        return values

    def absolute_limits(self) -> Mapping[str, tuple[float, str]]:
        return {
            "round_trip_wer": (self.max_round_trip_wer, "max_round_trip_wer"),
            "hit_limit": (self.max_hit_limit, "max_hit_limit"),
            "attention_diagonality": (self.min_attention_diagonality, "min_attention_diagonality"),
            **{name: (limit, f"limits.{name}") for name, limit in self.limits.items()},
        }

    def margins(self) -> Mapping[str, float]:
        return self.max_regression

    def slice_margins(self) -> Mapping[str, float]:
        return self.max_slice_regression

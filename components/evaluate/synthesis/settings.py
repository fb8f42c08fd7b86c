"""Settings of evaluate for synthesis."""

from typing import Annotated, Any

import pydantic

from components.evaluate.settings import EvaluateSettings, rising


class SynthesisEvaluateSettings(EvaluateSettings):
    """How a voice is measured."""

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
        return rising(bounds)

    @pydantic.field_validator("highest_f0")
    @classmethod
    def _above_the_lowest(cls, highest: float, others: pydantic.ValidationInfo) -> float:
        lowest = others.data.get("lowest_f0", 0.0)
        if highest < 2 * lowest:
            raise ValueError(f"at least twice lowest_f0 ({lowest:g} Hz) is accepted")
        return highest

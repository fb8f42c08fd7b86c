"""Settings of the training of intents: the network, and which field of the manifest it predicts."""

from typing import ClassVar, Self

import pydantic

from voxline.components.evaluate.settings import MODEL_NAME, EvaluateSettings
from voxline.components.push.settings import (
    LIMITS,
    REGRESSION,
    RELATIVE,
    SLICE_REGRESSION,
    SLICE_RELATIVE,
    SLICES,
    Margin,
    PushSettings,
)
from voxline.families.intents.networks.settings import IntentsModelSettings
from voxline.training.settings import StartSettings, TrainSettings

FIELD = r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"


class IntentsTrainSettings(TrainSettings):
    """How a classifier of texts by their intent is trained."""

    family: ClassVar[str] = "intents"
    EXPOSED = ("name", "field", "epochs", "batch_size", "learning_rate", "seed")

    name: str = pydantic.Field("intents", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    field: str = pydantic.Field(
        "intent", pattern=FIELD, description="manifest field with the intent; utterances without it are left out"
    )
    model: IntentsModelSettings = pydantic.Field(IntentsModelSettings(), description="the network")
    baseline: bool = pydantic.Field(
        True,
        description="train a second classifier beside it, with a mean in place of the capsules, for the report",
    )
    word_dropout: float = pydantic.Field(
        0.05,
        ge=0,
        lt=1,
        description="share of training words that are read as unknown ones, as words that are heard wrong are",
    )

    batch_size: int = pydantic.Field(32, ge=1, le=65_536, description="texts per step, over all devices")
    epochs: int = pydantic.Field(40, ge=1, le=10_000, description="passes over the training split, at most")
    evaluate_epochs: int = pydantic.Field(5, ge=1, description="epochs between validations on the dev split")
    weight_decay: float = pydantic.Field(1e-4, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")

    @pydantic.field_validator("start")
    @classmethod
    def _no_parent(cls, start: StartSettings) -> StartSettings:
        if start.model:
            raise ValueError(
                f"model is {start.model!r}; a classifier of intents starts from random weights, since its words and "
                "intents are those of its corpus: remove start"
            )
        return start

    @pydantic.model_validator(mode="after")
    def _field_is_no_key(self) -> Self:
        if self.field in ("id", "text", "split", "audio_filepath", "audio_hash", "duration", "offset", "speaker"):
            raise ValueError(f"field is {self.field!r}, which every utterance has for itself; name a further field")
        return self


class IntentsEvaluateSettings(EvaluateSettings):
    """How a classifier of texts by their intent is measured."""

    EXPOSED = ("model_name", "field", "recognizer")
    family: ClassVar[str] = "intents"

    model_name: str = pydantic.Field("intents", pattern=MODEL_NAME, description="the model's name in the registry")
    field: str = pydantic.Field("intent", description="manifest field with the intent (follows from train.field)")
    recognizer: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of an ASR model in the same registry, whose transcripts are classified too; empty: none",
    )
    batch_seconds: float = pydantic.Field(
        120.0, gt=0, le=36_000, description="seconds of audio in a batch of the recognizer, padding included"
    )

    word_bands: ClassVar[tuple[int, ...]] = (2, 4, 8, 16)
    """Bounds between slices by length of the reference, in words."""
    confusions: ClassVar[int] = 30
    """Most confused intents shown in the report."""


class IntentsPushSettings(PushSettings):
    """How good a classifier of texts by their intent must be."""

    EXPOSED = ("model_name", "limits.intent_error_rate", "limits.text_intent_error_rate", "confidence")
    family: ClassVar[str] = "intents"

    model_name: str = pydantic.Field("intents", pattern=MODEL_NAME, description="the model's name in the registry")
    limits: dict[str, float] = pydantic.Field(
        {"intent_error_rate": 0.1, "text_intent_error_rate": 0.05}, description=LIMITS
    )
    max_regression: dict[str, Margin] = pydantic.Field(
        {"intent_error_rate": 0.005, "text_intent_error_rate": 0.005}, description=REGRESSION
    )
    max_relative_regression: dict[str, Margin] = pydantic.Field(
        {"intent_error_rate": 0.1, "text_intent_error_rate": 0.1}, description=RELATIVE
    )
    max_slice_regression: dict[str, Margin] = pydantic.Field({"intent_error_rate": 0.03}, description=SLICE_REGRESSION)
    max_relative_slice_regression: dict[str, Margin] = pydantic.Field(
        {"intent_error_rate": 0.5}, description=SLICE_RELATIVE
    )
    slices: list[str] = pydantic.Field(["intent", "speaker"], description=SLICES)

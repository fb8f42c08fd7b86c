"""Settings of the training of voice conversion: the attributes, the network and its losses."""

import re
from typing import ClassVar, Self

import pydantic

from voxline.families.conversion.networks.settings import AttGanSettings
from voxline.settings import Settings
from voxline.training.settings import StartSettings, TrainSettings

FIELD = r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"


class AttributeSettings(Settings):
    """An attribute of a voice: a field of the manifest. Of its values a voice has one at a time."""

    field: str = pydantic.Field(
        ..., pattern=FIELD, description="manifest field with the value, or speaker; utterances without it are left out"
    )
    pattern: str = pydantic.Field(
        "",
        description="regular expression, whose first group found in the field is the value, such as [+](.+) of "
        "en-us+m3; empty: the whole field",
    )

    @pydantic.field_validator("pattern")
    @classmethod
    def _has_a_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression ({error})") from None
        if pattern and not groups:
            raise ValueError(f"{pattern!r} has no group; put parentheses around what is the value")
        return pattern


class ConversionLossSettings(Settings):
    """The weights of the losses, as in the paper."""

    reconstruction: float = pydantic.Field(
        100.0, ge=0, description="of the mean distance of mels that are decoded with their own attributes"
    )
    attributes: float = pydantic.Field(
        10.0, ge=0, description="of the cross-entropy of the wanted attributes, in the converter's loss"
    )
    critic_attributes: float = pydantic.Field(
        1.0, ge=0, description="of the cross-entropy of the recordings' attributes, in the critic's loss"
    )
    gradient_penalty: float = pydantic.Field(
        10.0, ge=0, description="of the penalty on the critic's gradient (Gulrajani et al. 2017)"
    )


class ConversionTrainSettings(TrainSettings):
    """How a converter of voices is trained."""

    family: ClassVar[str] = "conversion"

    name: str = pydantic.Field("conversion", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    attributes: list[AttributeSettings] = pydantic.Field(
        [AttributeSettings(field="sex")], min_length=1, max_length=16, description="attributes that it can change"
    )
    model: AttGanSettings = pydantic.Field(AttGanSettings(), description="the networks")
    losses: ConversionLossSettings = pydantic.Field(ConversionLossSettings(), description="weights of the losses")
    critic_steps: int = pydantic.Field(
        5, ge=1, le=20, description="steps of the critic before each of the converter; both count as training steps"
    )
    segment_frames: int = pydantic.Field(
        128, ge=4, le=4096, description="frames of a training example; a multiple of 2 to the power of model.layers"
    )

    batch_size: int = pydantic.Field(32, ge=2, le=65_536, description="segments per step, over all devices")
    epochs: int = pydantic.Field(200, ge=1, le=10_000, description="passes over the training split")
    learning_rate: float = pydantic.Field(2e-4, gt=0, le=1, description="peak rate, reached after warm-up")
    warm_up_steps: int = pydantic.Field(0, ge=0, description="steps over which the rate rises from zero")
    weight_decay: float = pydantic.Field(0.0, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")
    beta_1: float = pydantic.Field(0.5, ge=0, lt=1, description="AdamW: decay rate of the first moment")
    beta_2: float = pydantic.Field(0.999, ge=0, lt=1, description="AdamW: decay rate of the second moment")
    clip_norm: float = pydantic.Field(1000.0, gt=0, description="global norm at which gradients are clipped")
    evaluate_epochs: int = pydantic.Field(20, ge=1, description="epochs between validations on the dev split")

    @pydantic.field_validator("start")
    @classmethod
    def _no_parent(cls, start: StartSettings) -> StartSettings:
        if start.model:
            raise ValueError(f"model is {start.model!r}; a converter starts from random weights: remove start")
        return start

    @pydantic.model_validator(mode="after")
    def _check_sizes(self) -> Self:
        factor = 2**self.model.layers
        if self.segment_frames % factor:
            raise ValueError(
                f"segment_frames is {self.segment_frames}; with {self.model.layers} layers a multiple of {factor} is "
                "accepted"
            )
        fields = [one.field for one in self.attributes]
        if repeated := sorted({field for field in fields if fields.count(field) > 1}):
            raise ValueError(f"attributes names the field {repeated[0]!r} twice; name each once")
        return self

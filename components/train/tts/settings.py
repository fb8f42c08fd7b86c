"""Settings of a voice: the network, what its loss is made of, and the remedies for attention that never aligns.

What each remedy is for and what it did here: docs/decisions/0016-attention-remedies-are-settings.md.
"""

from typing import ClassVar, Literal, Self

import pydantic

from voxline.components.train.settings import TrainSettings
from voxline.components.train.tts.model_settings import Tacotron2Settings, TtsModelSettings
from voxline.settings import Settings


class LossSettings(Settings):
    """What the loss is the sum of."""

    mel: Literal["l1", "mse"] = pydantic.Field("l1", description="distance of mels, before and after the post-net")
    linear: float = pydantic.Field(1.0, ge=0, description="weight of the linear spectrum's L1 (Tacotron)")
    low_hz: float = pydantic.Field(
        4_000.0, gt=0, description="Hz; half of the linear spectrum's weight is on the bins below"
    )
    stop: float = pydantic.Field(1.0, ge=0, description="weight of the stop token's cross-entropy")


class GuidedAttentionSettings(Settings):
    """Attention far from the diagonal costs (Tachibana et al. 2018)."""

    weight: float = pydantic.Field(0.0, ge=0, description="of it in the loss (0: none)")
    sigma: float = pydantic.Field(0.2, gt=0, le=10, description="width of what costs nothing, as a share of the text")
    decay_steps: int = pydantic.Field(0, ge=0, description="steps after which nothing is left of it (0: it stays)")


class MelCtcSettings(Settings):
    """A recogniser listens to the predicted mels and must hear the text (Liu et al. 2019)."""

    weight: float = pydantic.Field(0.0, ge=0, description="of its CTC loss, per symbol, in the loss (0: none)")
    units: int = pydantic.Field(96, ge=1, le=4096, description="channels and recurrent units of the recogniser")


class ReductionStage(Settings):
    """From a step on, so many frames are made in a decoder step."""

    step: int = pydantic.Field(..., ge=0, description="steps done when it begins")
    reduction: int = pydantic.Field(..., ge=1, le=20, description="frames in a decoder step")


class TeacherForcingSettings(Settings):
    """Share of the decoder's steps that are fed recorded frames; the others are fed what it made."""

    from_share: float = pydantic.Field(1.0, ge=0, le=1, description="until from_step")
    to_share: float = pydantic.Field(1.0, ge=0, le=1, description="after to_step; on a line between both")
    from_step: int = pydantic.Field(0, ge=0, description="step where the line begins")
    to_step: int = pydantic.Field(0, ge=0, description="step where the line ends")

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.to_step < self.from_step:
            raise ValueError(f"to_step ({self.to_step}) comes before from_step ({self.from_step}); give it as much")
        return self

    def share(self, step: int) -> float:
        """At one step.

        >>> forcing = TeacherForcingSettings(to_share=0.5, from_step=100, to_step=200)
        >>> [forcing.share(step) for step in (0, 100, 150, 200, 900)]
        [1.0, 1.0, 0.75, 0.5, 0.5]
        """
        gone = (step - self.from_step) / max(self.to_step - self.from_step, 1)
        return self.from_share + (self.to_share - self.from_share) * min(max(gone, 0.0), 1.0)


class GriffinLimSettings(Settings):
    """Griffin-Lim, in the exported voice."""

    iterations: int = pydantic.Field(60, ge=0, le=1_000, description="of it; each costs a transform and its inverse")
    momentum: float = pydantic.Field(0.99, ge=0, lt=2, description="of the fast variant; 0 is the method of 1984")
    power: float = pydantic.Field(1.0, gt=0, le=3, description="magnitudes are raised to it (Tacotron's paper: 1.2)")


class ExportSettings(Settings):
    """How the voice is exported."""

    decoder: Literal["float32", "int8"] = pydantic.Field(
        "float32",
        description="weights of the decoder; int8: several times faster alone on one core, for Voxline's own commands, "
        "without the signature that a TensorFlow server needs to speak",
    )


class TtsTrainSettings(TrainSettings):
    """How a voice is trained."""

    family: ClassVar[str] = "tts"
    EXPOSED = ("name", "epochs", "batch_size", "learning_rate", "model.kind", "model.reduction", "precision", "seed")

    name: str = pydantic.Field("tts", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: TtsModelSettings = pydantic.Field(default_factory=Tacotron2Settings, description="the network")
    loss: LossSettings = pydantic.Field(LossSettings(), description="what the loss is the sum of")
    guided_attention: GuidedAttentionSettings = pydantic.Field(
        GuidedAttentionSettings(), description="attention far from the diagonal costs"
    )
    mutual_information: MelCtcSettings = pydantic.Field(
        MelCtcSettings(), description="a recogniser must hear the text in the predicted mels"
    )
    reductions: tuple[ReductionStage, ...] = pydantic.Field(
        (), description="stages of fewer and fewer frames in a decoder step; empty: model.reduction all the time"
    )
    teacher_forcing: TeacherForcingSettings = pydantic.Field(
        TeacherForcingSettings(), description="share of decoder steps that are fed recorded frames"
    )
    vocoder: GriffinLimSettings = pydantic.Field(GriffinLimSettings(), description="from mels to a waveform")
    export: ExportSettings = pydantic.Field(ExportSettings(), description="how the voice is exported")

    clip_norm: float = pydantic.Field(1.0, gt=0, description="the gradient's global norm is clipped here")
    weight_decay: float = pydantic.Field(1e-6, ge=0, le=1, description="decoupled decay of kernels (AdamW)")
    beta_2: float = pydantic.Field(0.999, ge=0, lt=1, description="AdamW: decay of the gradient's square")
    epochs: int = pydantic.Field(100, ge=1, le=10_000, description="times through the training split, at most")
    learning_rate: float = pydantic.Field(1e-3, gt=0, le=1, description="highest rate, reached after warm-up")
    evaluate_steps: int = pydantic.Field(
        500, ge=0, description="steps from one look at the dev split to the next (0: by evaluate_epochs)"
    )
    look_utterances: int = pydantic.Field(
        8, ge=1, le=1_000, description="utterances of dev that a look has spoken freely; they choose the best weights"
    )
    max_seconds: float = pydantic.Field(
        20.0, gt=0, le=600, description="seconds after which a synthesis that has not stopped is cut, and says so"
    )

    @pydantic.field_validator("reductions")
    @classmethod
    def _stages_fall(cls, stages: tuple[ReductionStage, ...]) -> tuple[ReductionStage, ...]:
        steps = [stage.step for stage in stages]
        if stages and (steps[0] != 0 or steps != sorted(set(steps))):
            raise ValueError(f"stages at steps {steps}; the first at 0 and each later than the one before are accepted")
        return stages

    @pydantic.model_validator(mode="after")
    def _model_can_make_them(self) -> Self:
        most = max((stage.reduction for stage in self.reductions), default=1)
        if most > self.model.reduction:
            raise ValueError(
                f"train.reductions ask for {most} frames in a step and train.model.reduction, which is the most that "
                f"the network can make, is {self.model.reduction}; raise it to {most}"
            )
        return self

    def reduction(self, step: int) -> int:
        """Frames in a decoder step, in the step of learning after so many others."""
        made = [stage.reduction for stage in self.reductions if stage.step <= step]
        return made[-1] if made else self.model.reduction

    def learnt_reduction(self, steps: int) -> int:
        """Frames in a decoder step that the last of so many steps learnt; a stage that only begins has learnt none."""
        return self.reduction(max(steps - 1, 0))

    def guidance(self, step: int) -> float:
        """The weight of guided attention, which falls on a line to nothing."""
        guided = self.guided_attention
        left = max(1 - step / guided.decay_steps, 0.0) if guided.decay_steps else 1.0
        return guided.weight * left

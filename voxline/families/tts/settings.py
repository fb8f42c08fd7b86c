"""Settings of TTS training: the network, the loss, and remedies for attention that does not align.

What each remedy is for and what it achieved: docs/decisions/0016-attention-remedies-are-settings.md.
"""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import pydantic

from voxline.components.evaluate.settings import (
    MODEL_NAME,
    SpeechEvaluateSettings,
)
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
from voxline.errors import SettingsError
from voxline.families.tts.networks.settings import (
    FastSpeechSettings,
    FastSpeechTrainingSettings,
    Tacotron2Settings,
    TtsModelSettings,
)
from voxline.families.tts.vits.settings import VitsSettings, VitsTrainingSettings
from voxline.inference.pace import PAUSES_SECONDS, USUAL_PACE, Pace
from voxline.settings import Settings
from voxline.training.settings import FormSettings, TrainSettings

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings


class LossSettings(Settings):
    """The terms of the loss."""

    mel: Literal["l1", "mse"] = pydantic.Field("l1", description="distance of mels before and after the post-net")
    linear: float = pydantic.Field(1.0, ge=0, description="weight of the linear spectrum's L1 (Tacotron)")

    low_hz: ClassVar[float] = 4_000.0
    """Hz; half of the linear spectrum's weight is on the bins below."""

    stop: float = pydantic.Field(1.0, ge=0, description="weight of the stop token's cross-entropy")


class GuidedAttentionSettings(Settings):
    """A loss on attention far from the diagonal (Tachibana et al. 2018)."""

    weight: float = pydantic.Field(0.0, ge=0, description="weight of guided attention in the loss (0: none)")
    sigma: float = pydantic.Field(
        0.2, gt=0, le=10, description="width of the free band around the diagonal, as a share of the text"
    )
    decay_steps: int = pydantic.Field(0, ge=0, description="steps over which the weight falls to 0 (0: it stays)")


class MelCtcSettings(Settings):
    """An auxiliary CTC model that must recognize the text in the predicted mels (Liu et al. 2019)."""

    weight: float = pydantic.Field(0.0, ge=0, description="weight of its CTC loss, per symbol, in the loss (0: none)")
    units: int = pydantic.Field(96, ge=1, le=4096, description="channels and recurrent units of the auxiliary model")


class ReductionStage(Settings):
    """A reduction factor, and the training step from which it applies."""

    step: int = pydantic.Field(..., ge=0, description="first training step of the stage")
    reduction: int = pydantic.Field(..., ge=1, le=20, description="frames per decoder step")


class TeacherForcingSettings(Settings):
    """The share of decoder steps that are fed recorded frames; others get the decoder's own (Bengio et al. 2015)."""

    from_share: float = pydantic.Field(1.0, ge=0, le=1, description="share until from_step")
    to_share: float = pydantic.Field(1.0, ge=0, le=1, description="share after to_step; linear in between")
    from_step: int = pydantic.Field(0, ge=0, description="training step at which the change begins")
    to_step: int = pydantic.Field(0, ge=0, description="training step at which the change ends")

    @pydantic.model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.to_step < self.from_step:
            raise ValueError(
                f"to_step ({self.to_step}) is below from_step ({self.from_step}); set it to {self.from_step} or more"
            )
        return self

    def share(self, step: int) -> float:
        """The share at one training step.

        >>> forcing = TeacherForcingSettings(to_share=0.5, from_step=100, to_step=200)
        >>> [forcing.share(step) for step in (0, 100, 150, 200, 900)]
        [1.0, 1.0, 0.75, 0.5, 0.5]
        """
        gone = (step - self.from_step) / max(self.to_step - self.from_step, 1)
        return self.from_share + (self.to_share - self.from_share) * min(max(gone, 0.0), 1.0)


class GriffinLimSettings(Settings):
    """Griffin-Lim in the exported model."""

    iterations: int = pydantic.Field(
        60, ge=0, le=1_000, description="iterations; each costs a transform and its inverse"
    )
    momentum: float = pydantic.Field(
        0.99, ge=0, lt=2, description="momentum of fast Griffin-Lim; 0 is the original method"
    )
    power: float = pydantic.Field(1.0, gt=0, le=3, description="exponent of the magnitudes (Tacotron paper: 1.2)")


class ExportSettings(FormSettings):
    """The form of the exported model."""

    NOT_IN_KEY = frozenset({"vocoder"})  # its digest is in the key

    onnx: Literal["none", "float32", "int8"] = pydantic.Field(
        "none",
        description="float32: an ONNX graph beside the SavedModel, which `voxline synthesize` and `voxline serve` run "
        "without TensorFlow; evaluate compares the two over the test split. int8 (tacotron2): convolutions and the "
        "decoder's LSTMs have 8-bit weights; the gate judges such a graph by its own round trip",
    )
    vocoder: str = pydantic.Field(
        "",
        description="vocoder that the voice ships with, and is judged with: NAME@production (the version in service "
        "when the step runs), NAME@VERSION, or the path or URI of an exported vocoder; empty: Griffin-Lim",
    )


class SharpenSettings(Settings):
    """A network that gives the voice's mels the detail of recorded ones, trained after it, against a critic."""

    NOT_IN_KEY = frozenset({"recognizer"})  # its digest is in the key

    kind: Literal["none", "gan"] = pydantic.Field(
        "none",
        description="gan: train it, and put it between the post-net and the vocoder of every form of the export",
    )
    channels: int = pydantic.Field(
        8, ge=1, le=256, description="channels of its first convolution; the residual blocks have four times as many"
    )
    blocks: int = pydantic.Field(9, ge=0, le=64, description="residual blocks")
    critic_channels: int = pydantic.Field(
        16, ge=1, le=256, description="channels of the critic's first convolution; the fourth has eight times as many"
    )
    critic_units: int = pydantic.Field(256, ge=1, le=4096, description="units of the critic's layer before the last")
    content: float = pydantic.Field(
        300.0, ge=0, description="weight of the mean distance to the recorded mels; the critic's judgment has 1"
    )
    detail: float = pydantic.Field(
        900.0,
        ge=0,
        description="weight of the squared difference of steps to the next bin and frame (Mathieu et al. 2016)",
    )
    level: float = pydantic.Field(
        9_000.0,
        ge=0,
        description="weight of the squared difference of each bin's mean steps, over the frames of a segment",
    )
    recognizer: str = pydantic.Field(
        "",
        description="recognizer of the kind deepspeech2 whose convolutions compare the mels with the recorded ones: "
        "NAME@production, NAME@VERSION, or the path or URI of an exported model; empty: none",
    )
    perceptual: float = pydantic.Field(
        300.0, ge=0, description="weight of the squared difference of what the recognizer's convolutions put out"
    )

    gradient_penalty: ClassVar[float] = 10.0
    """Weight of the critic's gradient penalty (Gulrajani et al. 2017)."""
    critic_rate: ClassVar[float] = 2.0
    """The critic's learning rate, as a share of learning_rate (Heusel et al. 2017)."""

    segment_frames: int = pydantic.Field(
        64, ge=16, le=4096, description="frames of each segment; a batch has one random segment of each utterance"
    )
    batch_size: int = pydantic.Field(16, ge=1, le=65_536, description="segments per step, over all devices")
    epochs: int = pydantic.Field(10, ge=1, le=100_000, description="passes over the training split")
    learning_rate: float = pydantic.Field(1e-3, gt=0, le=1, description="peak rate, reached after warm-up")
    evaluate_steps: int = pydantic.Field(
        500, ge=0, description="steps between validations on the dev split (0: one after each epoch)"
    )


class TtsExportForm(Settings):
    """The settings that the step export has of `train`."""

    export: ExportSettings = ExportSettings()
    griffin_lim: GriffinLimSettings = GriffinLimSettings()


class TtsTrainSettings(TrainSettings):
    """How a TTS model is trained."""

    family: ClassVar[str] = "tts"
    # A sharpener is trained after the voice, under a key of its own; the others are those of the step export.
    NOT_IN_KEY = TrainSettings.NOT_IN_KEY | {"sharpen", "export", "griffin_lim"}
    EXPOSED = ("name", "epochs", "batch_size", "learning_rate", "model.kind", "model.reduction", "precision", "seed")

    name: str = pydantic.Field("tts", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: TtsModelSettings = pydantic.Field(default_factory=Tacotron2Settings, description="the network")
    loss: LossSettings = pydantic.Field(LossSettings(), description="terms of the loss")
    guided_attention: GuidedAttentionSettings = pydantic.Field(
        GuidedAttentionSettings(), description="loss on attention far from the diagonal"
    )
    mel_ctc: MelCtcSettings = pydantic.Field(MelCtcSettings(), description="auxiliary CTC on the predicted mels")
    reduction_schedule: tuple[ReductionStage, ...] = pydantic.Field(
        (), description="stages of the reduction factor; empty: model.reduction throughout"
    )
    teacher_forcing: TeacherForcingSettings = pydantic.Field(
        TeacherForcingSettings(), description="share of decoder steps that are fed recorded frames"
    )
    griffin_lim: GriffinLimSettings = pydantic.Field(GriffinLimSettings(), description="from mels to a waveform")
    fastspeech: FastSpeechTrainingSettings = pydantic.Field(
        FastSpeechTrainingSettings(), description="how a model of the kind fastspeech learns"
    )
    vits: VitsTrainingSettings = pydantic.Field(
        VitsTrainingSettings(), description="how a model of the kind vits learns"
    )
    sharpen: SharpenSettings = pydantic.Field(
        SharpenSettings(), description="sharpening of the voice's mels; off by default"
    )
    export: ExportSettings = pydantic.Field(ExportSettings(), description="form of the exported model")

    clip_norm: float = pydantic.Field(1.0, gt=0, description="global norm at which gradients are clipped")
    weight_decay: float = pydantic.Field(1e-6, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")
    beta_2: float = pydantic.Field(0.999, ge=0, lt=1, description="AdamW: decay rate of the second moment")
    epochs: int = pydantic.Field(100, ge=1, le=10_000, description="passes over the training split, at most")
    learning_rate: float = pydantic.Field(1e-3, gt=0, le=1, description="peak rate, reached after warm-up")
    evaluate_steps: int = pydantic.Field(
        500, ge=0, description="steps between validations on the dev split (0: by evaluate_epochs)"
    )
    validation_utterances: int = pydantic.Field(
        8, ge=1, le=1_000, description="utterances of dev that each validation synthesizes, to choose the best weights"
    )
    max_seconds: float = pydantic.Field(
        20.0, gt=0, le=600, description="seconds after which synthesis is cut off if the model has not stopped"
    )

    @pydantic.field_validator("reduction_schedule")
    @classmethod
    def _check_stages(cls, stages: tuple[ReductionStage, ...]) -> tuple[ReductionStage, ...]:
        steps = [stage.step for stage in stages]
        if stages and (steps[0] != 0 or steps != sorted(set(steps))):
            raise ValueError(f"stages at steps {steps}; the first at 0 and each later than the one before are accepted")
        return stages

    @pydantic.model_validator(mode="after")
    def _check_reductions(self) -> Self:
        most = max((stage.reduction for stage in self.reduction_schedule), default=1)
        if most > self.model.reduction:
            raise ValueError(
                f"train.reduction_schedule has {most} frames per decoder step, and the network has at most "
                f"train.model.reduction, which is {self.model.reduction}; raise it to {most}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _check_durations(self) -> Self:
        if self.model.kind not in ("fastspeech", "vits"):
            return self
        idle = {
            "guided_attention": self.guided_attention.weight > 0,
            "teacher_forcing": self.teacher_forcing != TeacherForcingSettings(),
            "reduction_schedule": bool(self.reduction_schedule),
            "loss.stop": self.loss.stop != LossSettings().stop,
        }
        if wanted := [name for name, given in idle.items() if given]:
            raise ValueError(
                f"{' and '.join(wanted)} are about a decoder that attends step by step, and {self.model.kind} has "
                "none; leave them out"
            )
        if self.xla:
            raise ValueError(f"{self.not_compiled()}; set xla to false")
        return self

    @pydantic.model_validator(mode="after")
    def _check_kind_of_fastspeech(self) -> Self:
        if self.model.kind != "fastspeech" and self.fastspeech != FastSpeechTrainingSettings():
            raise ValueError(
                f"fastspeech is about a model of the kind fastspeech, and model.kind is {self.model.kind!r}; leave it "
                "out"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.model.kind != "vits":
            if self.vits != VitsTrainingSettings():
                raise ValueError(
                    f"vits is about a model of the kind vits, and model.kind is {self.model.kind!r}; leave it out"
                )
            return self
        idle = {
            "loss": self.loss != LossSettings(),
            "mel_ctc": self.mel_ctc.weight > 0,
            "griffin_lim": self.griffin_lim != GriffinLimSettings(),
            "sharpen": self.sharpens,
            "export.vocoder": bool(self.export.vocoder),
        }
        if wanted := [name for name, given in idle.items() if given]:
            raise ValueError(
                f"{' and '.join(wanted)} are about mels that a vocoder makes sound of, and vits makes samples itself "
                "(vits has its loss); leave them out"
            )
        if self.export.onnx == "int8":
            raise ValueError("export.onnx is int8, and a vits has a graph of float32 alone; set it to float32")
        if self.start.head_epochs:
            raise ValueError(
                "start.head_epochs is set, and a vits that starts from another voice trains its posterior encoder "
                "first (vits.posterior_steps); set it to 0"
            )
        return self

    def not_compiled(self) -> str:
        """See `TrainSettings`."""
        if self.model.kind not in ("fastspeech", "vits"):
            return ""
        return f"XLA cannot compile the alignment that {self.model.kind} learns by"

    @pydantic.model_validator(mode="after")
    def _check_sharpen(self) -> Self:
        if self.sharpen.kind != "none" and self.model.kind == "tacotron":
            raise ValueError(
                "sharpen is between the mels of a voice and its vocoder, and tacotron makes its waveforms of a linear "
                "spectrum; set sharpen.kind to none, or model.kind to tacotron2 or fastspeech"
            )
        return self

    def check_features(self, features: "FeatureSettings") -> None:
        """Refuses features of a kind that the network does not produce.

        Raises:
          SettingsError: naming the setting that needs another kind.
        """
        kind = self.model.kind
        accepted = ["mel_and_linear" if kind == "tacotron" else "log_mel"]
        needed = f"train.model.kind is {kind!r}, which predicts {accepted[0]}"
        if isinstance(self.model, VitsSettings):
            self.model.check_features(features)
            needed = "train.model.kind is 'vits', whose speech is compared by its mels"
        if isinstance(self.model, FastSpeechSettings):
            if self.model.pitch:
                accepted, needed = [], "train.model.pitch is true, which needs the F0 of each frame"
            accepted.append("mel_and_prosody")
        if features.kind not in accepted:
            raise SettingsError(
                f"{needed}, and the features are {features.kind}; set extract.features.kind to "
                f"{' or '.join(map(repr, accepted))}"
            )

    @property
    def learns_speakers(self) -> bool:
        """Whether a corpus of several speakers makes a voice of several: the kind has a table, and the settings say
        no other.
        """
        sections = {"fastspeech": self.fastspeech.speakers, "vits": self.vits.speakers}
        return sections.get(self.model.kind) == "corpus"

    @property
    def sharpens(self) -> bool:
        """Whether a sharpener is trained after the voice, and exported in it."""
        return self.sharpen.kind != "none"

    @property
    def aligns_by_parent(self) -> bool:
        """Whether a vits that starts from a voice without a posterior encoder is to be aligned by that voice's own
        speech: it must take the whole of that voice, as it is. That one must have the symbols of the texts too.
        """
        start = self.start
        return self.vits.alignment == "parent" and bool(start.model) and start.keep == "all" and start.shrink == 1

    def of_voice_alone(self) -> Self:
        """The settings of the voice's training, without the sharpener that comes after it."""
        return self.weights_alone().model_copy(update={"sharpen": SharpenSettings()})

    def export_form(self) -> TtsExportForm:
        return TtsExportForm(export=self.export, griffin_lim=self.griffin_lim)

    def weights_alone(self) -> Self:
        return self.model_copy(update={"export": ExportSettings(), "griffin_lim": GriffinLimSettings()})

    @property
    def exports(self) -> bool:
        return super().exports or bool(self.export.vocoder)

    def started_from(self, model: str, *, by_fallback: bool = False) -> Self:
        """See `TrainSettings`. What changes over a training from random weights has its last value from the first step:
        the attention that it helps to align is aligned already.
        """
        started = super().started_from(model, by_fallback=by_fallback)
        if not model:
            return started
        forcing = self.teacher_forcing
        return started.model_copy(
            update={
                "reduction_schedule": tuple(
                    stage.model_copy(update={"step": 0}) for stage in self.reduction_schedule[-1:]
                ),
                "teacher_forcing": forcing.model_copy(
                    update={"from_share": forcing.to_share, "from_step": 0, "to_step": 0}
                ),
                "guided_attention": self.guided_attention.model_copy(
                    update={"weight": 0.0} if self.guided_attention.decay_steps else {}
                ),
            }
        )

    def reduction(self, step: int) -> int:
        """Frames per decoder step, in the training step after `step` others."""
        begun = [stage.reduction for stage in self.reduction_schedule if stage.step <= step]
        return begun[-1] if begun else self.model.reduction

    def trained_reduction(self, steps: int) -> int:
        """Frames per decoder step in the last of so many steps: a stage that only begins has trained no weights yet."""
        return self.reduction(max(steps - 1, 0))

    def guided_attention_weight(self, step: int) -> float:
        """The weight of guided attention at one step, which falls linearly to 0."""
        guided = self.guided_attention
        share = max(1 - step / guided.decay_steps, 0.0) if guided.decay_steps else 1.0
        return guided.weight * share


class SharpenTrainSettings(TrainSettings):
    """How a sharpener is trained: settings of `train.sharpen` and of its voice, as the trainer reads them."""

    family: ClassVar[str] = "tts"
    NOT_IN_KEY = TrainSettings.NOT_IN_KEY | {"strategy"}
    """The chief of several workers has another strategy than the pod that launched them."""

    sharpen: SharpenSettings = pydantic.Field(SharpenSettings(), description="the networks and their loss")

    @classmethod
    def of_voice(cls, voice: TtsTrainSettings) -> Self:
        """The moments of Adam are those of Gulrajani et al. 2017, but for a first one that is not zero.

        One machine trains it, so workers are none of its devices.
        """
        chosen = voice.sharpen
        shared = ("name", "seed", "corpus_weights", "max_bad_steps", "checkpoint_steps")
        return cls(
            **{name: getattr(voice, name) for name in shared},
            sharpen=chosen,
            epochs=chosen.epochs,
            batch_size=chosen.batch_size,
            learning_rate=chosen.learning_rate,
            evaluate_steps=chosen.evaluate_steps,
            beta_1=0.5,
            beta_2=0.9,
            weight_decay=0.0,
            clip_norm=1_000.0,
            strategy="auto" if voice.strategy == "multi_worker" else voice.strategy,
        )


class TtsEvaluateSettings(SpeechEvaluateSettings):
    """How a TTS model is measured."""

    EXPOSED = ("model_name", "round_trip_recognizer")
    NOT_IN_KEY = SpeechEvaluateSettings.NOT_IN_KEY | {"speaker_encoder", "voice_activity"}  # their digests are
    family: ClassVar[str] = "tts"

    model_name: str = pydantic.Field("tts", pattern=MODEL_NAME, description="the model's name in the registry")
    round_trip_recognizer: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of an ASR model in the same registry that transcribes the synthesized speech; empty: none",
    )
    public_recognizer: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of a second one that others trained, such as a Whisper that `voxline models import` has put "
        "there: it judges by itself, or beside the first, and how often both hear the same is reported; empty: none",
    )
    speaker_encoder: str = pydantic.Field(
        "",
        description="wheel of the speaker encoder Resemblyzer (pip download --no-deps Resemblyzer==0.1.4), a path or "
        "a bucket URI, which compares the voice with the recordings of its speaker; empty: none",
    )
    likeness_utterances: int = pydantic.Field(
        30,
        ge=1,
        le=100_000,
        description="utterances of each speaker that the speaker encoder compares, evenly spaced; 0.1 s per second of "
        "speech, and of each recording",
    )
    voice_activity: str = pydantic.Field(
        "",
        description="wheel of Silero VAD (pip download --no-deps silero-vad==6.2.3) or its ONNX file, a path or a "
        "bucket URI, which finds how much is speech, and the silence at the end; empty: none",
    )

    batch_size: ClassVar[int] = 16
    """Texts in a batch."""
    batch_symbols: ClassVar[int] = 4_000
    """Symbols of text in a batch, padding included."""
    cepstra: ClassVar[int] = 13
    """Cepstral coefficients compared, from c1."""
    text_bands: ClassVar[tuple[int, ...]] = (20, 40, 80, 160)
    """Bounds between slices by length of the text, in symbols."""

    worst_utterances: int = pydantic.Field(5, ge=0, le=1000, description="worst utterances shown in the report")
    min_symbol_seconds: float = pydantic.Field(
        USUAL_PACE.min_symbol_seconds,
        ge=0,
        le=1,
        description="seconds of speech for each letter, digit or phoneme, below which it stopped at once",
    )
    max_symbol_seconds: float = pydantic.Field(
        USUAL_PACE.max_symbol_seconds,
        gt=0,
        le=60,
        description=f"the same, beside {PAUSES_SECONDS:g} s of pauses, above which it went on after the text",
    )

    @pydantic.model_validator(mode="after")
    def _two_recognizers(self) -> Self:
        if self.public_recognizer and self.public_recognizer == self.round_trip_recognizer:
            raise ValueError(
                f"public_recognizer: {self.public_recognizer!r} is the round_trip_recognizer too, and would agree with "
                "itself; name another, or leave one of them empty"
            )
        return self

    @property
    def pace(self) -> Pace:
        return Pace(self.min_symbol_seconds, self.max_symbol_seconds)


class TtsPushSettings(PushSettings):
    """How good a TTS model must be."""

    EXPOSED = ("model_name", "limits.round_trip_wer", "limits.hit_limit", "limits.attention_diagonality", "confidence")
    family: ClassVar[str] = "tts"
    limits_by: ClassVar[str] = "speaker"
    judge: ClassVar[tuple[tuple[str, ...], str]] = (
        ("round_trip_wer", "public_wer"),
        "no recognizer has transcribed its speech (evaluate.round_trip_recognizer or public_recognizer)",
    )

    model_name: str = pydantic.Field("tts", pattern=MODEL_NAME, description="the model's name in the registry")
    limits: dict[str, float] = pydantic.Field(
        {
            "round_trip_wer": 0.5,
            "public_wer": 0.5,
            "public_wer_added": 0.3,
            "hit_limit": 0.1,
            "wrong_length": 0.1,
            "attention_diagonality": 0.5,
            "sharpness": 0.5,
            "dnsmos_share": 0.7,
            "speaker_likeness_share": 0.7,
            "f0_spread": 0.5,
        },
        description=LIMITS,
    )
    max_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.01, "public_wer": 0.01, "mcd": 0.1}, description=REGRESSION
    )
    max_relative_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.1, "public_wer": 0.1, "mcd": 0.03}, description=RELATIVE
    )
    max_slice_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.05, "public_wer": 0.05, "mcd": 0.5}, description=SLICE_REGRESSION
    )
    max_relative_slice_regression: dict[str, Margin] = pydantic.Field(
        {"round_trip_wer": 0.5, "public_wer": 0.5, "mcd": 0.1}, description=SLICE_RELATIVE
    )
    slices: list[str] = pydantic.Field(["speaker", "text_length"], description=SLICES)

"""Settings of vocoder training: the network, the loss, the discriminators."""

from typing import ClassVar, Literal, Self

import pydantic

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.settings import MODEL_NAME, SpeechEvaluateSettings
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
from voxline.families.vocoder.networks.settings import (
    SamplingSettings,
    VocoderModelSettings,
    VocosSettings,
)
from voxline.metrics import estoi
from voxline.metrics.stft import RESOLUTIONS
from voxline.settings import Settings
from voxline.training.settings import DiscriminatorSettings, FormSettings, TrainSettings


class VocoderLossSettings(Settings):
    """The terms of the generator's loss that compare spectra."""

    mel: float = pydantic.Field(
        2.0, ge=0, description="weight of the mean distance of log-mels (HiFi-GAN: 45, with discriminators)"
    )
    stft: float = pydantic.Field(
        1.0,
        ge=0,
        description="weight of the multi-resolution STFT loss: spectral convergence, log magnitudes (Yamamoto et al. "
        "2020)",
    )
    bands: float = pydantic.Field(
        0.0,
        ge=0,
        description="weight of the mean distance of log mel bands at the resolutions of the STFT loss (Kumar et al. "
        "2023): it follows the envelope of speech within the windows of the mels (0: none)",
    )
    estoi: float = pydantic.Field(
        0.0,
        ge=0,
        description="weight of 1 - ESTOI, the intelligibility that evaluate measures (Jensen and Taal 2016; 0: none)",
    )

    @pydantic.model_validator(mode="after")
    def _some_term(self) -> Self:
        if not self.mel and not self.stft and not self.bands:
            raise ValueError(
                "mel, stft and bands are all 0, so no term compares spectra with the recording's; raise one"
            )
        return self


class VocoderExportSettings(FormSettings):
    """The form of the exported model."""

    onnx: Literal["none", "float32"] = pydantic.Field(
        "none",
        description="float32: an ONNX graph beside the SavedModel, which Voxline runs without TensorFlow; evaluate "
        "compares the two over the test split",
    )


class VocoderExportForm(Settings):
    """The settings that the step export has of `train`."""

    export: VocoderExportSettings = VocoderExportSettings()


class WaveGlowExportForm(VocoderExportForm):
    """The same of a WaveGlow."""

    model: SamplingSettings = SamplingSettings()


class VocoderTrainSettings(TrainSettings):
    """How a vocoder is trained."""

    family: ClassVar[str] = "vocoder"
    NOT_IN_KEY = TrainSettings.NOT_IN_KEY | {"voice", "export"}  # the voice's digest is; export is a step of its own
    EXPOSED = ("name", "epochs", "batch_size", "learning_rate", "model.kind", "precision", "seed")

    name: str = pydantic.Field("vocoder", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: VocoderModelSettings = pydantic.Field(default_factory=VocosSettings, description="the network")
    loss: VocoderLossSettings = pydantic.Field(VocoderLossSettings(), description="terms of the loss")
    discriminators: DiscriminatorSettings = pydantic.Field(
        DiscriminatorSettings(), description="adversarial training; off by default"
    )
    export: VocoderExportSettings = pydantic.Field(
        VocoderExportSettings(), description="the form of the exported model"
    )
    voice: str = pydantic.Field(
        "",
        description="voice whose teacher-forced mels take the place of the recordings' mels, to fine-tune a vocoder "
        "(with start.model): NAME@production, NAME@VERSION, or the path or URI of an exported voice; empty: none",
    )
    segment_frames: int = pydantic.Field(
        64, ge=16, le=4096, description="frames of each segment; a batch has one random segment of each utterance"
    )

    batch_size: int = pydantic.Field(16, ge=1, le=65_536, description="segments per step, over all devices")
    epochs: int = pydantic.Field(100, ge=1, le=100_000, description="passes over the training split, at most")
    learning_rate: float = pydantic.Field(1e-3, gt=0, le=1, description="peak rate, reached after warm-up")
    warm_up_steps: int = pydantic.Field(50, ge=0, description="steps over which the rate rises from zero")
    weight_decay: float = pydantic.Field(1e-4, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")
    beta_1: float = pydantic.Field(0.8, ge=0, lt=1, description="AdamW: decay rate of the first moment")
    beta_2: float = pydantic.Field(0.99, ge=0, lt=1, description="AdamW: decay rate of the second moment")
    evaluate_steps: int = pydantic.Field(
        500, ge=0, description="steps between validations on the dev split (0: by evaluate_epochs)"
    )

    validation_samples: ClassVar[int] = 2
    """Segments of dev that each validation writes to the logs, as audio."""

    @pydantic.model_validator(mode="after")
    def _check_likelihood(self) -> Self:
        if self.model.kind == "waveglow":
            if self.loss != VocoderLossSettings():
                raise ValueError(
                    "loss compares spectra of generated speech, and waveglow learns by the likelihood of recorded "
                    "speech alone; leave loss out"
                )
            if self.discriminators.start_step >= 0:
                raise ValueError(
                    "discriminators judge generated speech, and waveglow learns by the likelihood of recorded speech "
                    "alone; set discriminators.start_step to -1"
                )
        return self

    def export_form(self) -> VocoderExportForm:
        if self.model.kind != "waveglow":
            return VocoderExportForm(export=self.export)
        sampling = SamplingSettings(sampling_sigma=self.model.sampling_sigma, denoiser=self.model.denoiser)
        return WaveGlowExportForm(export=self.export, model=sampling)

    def weights_alone(self) -> Self:
        sampling = SamplingSettings().plain() if self.model.kind == "waveglow" else {}
        return self.model_copy(
            update={"export": VocoderExportSettings(), "model": self.model.model_copy(update=sampling)}
        )

    def adversarial_at(self, step: int) -> bool:
        """Whether the discriminators train and judge at a training step.

        >>> settings = VocoderTrainSettings(discriminators={"start_step": 100})
        >>> settings.adversarial_at(99), settings.adversarial_at(100), VocoderTrainSettings().adversarial_at(100)
        (False, True, False)
        """
        return 0 <= self.discriminators.start_step <= step

    def check_features(self, features: FeatureSettings) -> None:
        """Refuses features without mels or with another hop than the network's, and segments too short to compare.

        Raises:
          SettingsError: names the settings.
        """
        if features.kind not in ("log_mel", "mel_and_linear"):
            raise SettingsError(
                f"extract.features.kind is {features.kind!r}, and a vocoder learns from mels alone; set it to "
                "'log_mel' (for a voice with mel_and_prosody too: their mels are the same) or to 'mel_and_linear', as "
                "the voice has it"
            )
        self.model.check_features(features)
        window, samples = max(length for _, _, length in RESOLUTIONS), (self.segment_frames - 1) * features.hop_length
        if samples < window:
            raise SettingsError(
                f"train.segment_frames is {self.segment_frames}, which makes segments of {samples:,} samples; spectra "
                f"are compared by windows of {window:,}: set it to {1 - -window // features.hop_length} or more"
            )
        _, _, shortest = estoi.spans(features.sample_rate)
        if self.loss.estoi and samples < shortest:
            raise SettingsError(
                f"train.segment_frames is {self.segment_frames}, which makes segments of {samples:,} samples; "
                f"train.loss.estoi compares {shortest:,}: set segment_frames to "
                f"{1 - -shortest // features.hop_length} or more, or train.loss.estoi to 0"
            )


class VocoderEvaluateSettings(SpeechEvaluateSettings):
    """How a vocoder is measured."""

    EXPOSED = ("model_name", "round_trip_recognizer")
    family: ClassVar[str] = "vocoder"

    model_name: str = pydantic.Field("vocoder", pattern=MODEL_NAME, description="the model's name in the registry")
    round_trip_recognizer: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of an ASR model in the same registry that transcribes the vocoded speech; empty: none",
    )
    voice: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of a voice in the same registry whose teacher-forced mels are vocoded in place of the "
        "recordings' mels, as for a vocoder that was fine-tuned on them (train.voice); empty: the recordings'",
    )
    griffin_lim_iterations: int = pydantic.Field(
        60, ge=1, le=1_000, description="iterations of Griffin-Lim, which vocoders are compared with"
    )

    batch_size: ClassVar[int] = 16
    """Utterances that are read and vocoded at a time."""
    batch_frames: ClassVar[int] = 4_000
    """Frames of mels in a batch, padding included."""
    duration_bands: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 8.0)
    """Bounds between slices by duration, in seconds."""

    worst_utterances: int = pydantic.Field(3, ge=0, le=1000, description="worst utterances shown in the report")


class VocoderPushSettings(PushSettings):
    """How good a vocoder must be."""

    EXPOSED = ("model_name", "limits.log_stft_reduction", "confidence")
    family: ClassVar[str] = "vocoder"

    model_name: str = pydantic.Field("vocoder", pattern=MODEL_NAME, description="the model's name in the registry")
    limits: dict[str, float] = pydantic.Field({"log_stft_reduction": 0.0, "estoi_gain": -0.02}, description=LIMITS)
    max_regression: dict[str, Margin] = pydantic.Field(
        {"log_stft": 0.05, "estoi": 0.01, "round_trip_wer": 0.01}, description=REGRESSION
    )
    max_relative_regression: dict[str, Margin] = pydantic.Field({"log_stft": 0.02}, description=RELATIVE)
    max_slice_regression: dict[str, Margin] = pydantic.Field({"log_stft": 0.2}, description=SLICE_REGRESSION)
    max_relative_slice_regression: dict[str, Margin] = pydantic.Field({"log_stft": 0.05}, description=SLICE_RELATIVE)
    slices: list[str] = pydantic.Field(["duration"], description=SLICES)

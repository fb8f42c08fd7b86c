"""Settings of ASR training: the network, and the augmentation of its examples."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import pydantic

from voxline.components.evaluate.settings import (
    MODEL_NAME,
    EvaluateSettings,
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
from voxline.families.asr.networks.settings import (
    CtcModelSettings,
    DeepSpeech2Settings,
    model_settings_type,
)
from voxline.inference.model_info import ATTENTION
from voxline.settings import Settings
from voxline.text.settings import LanguageTextSettings
from voxline.training.settings import FormSettings, TrainSettings

if TYPE_CHECKING:
    ModelSettings = CtcModelSettings
else:
    ModelSettings = model_settings_type()


TextNormalization = Literal["auto", "english", "mandarin", "unicode"]


class AugmentSettings(Settings):
    """Random changes of training examples, different in every epoch and determined by the seed."""

    speed: float = pydantic.Field(
        0.0, ge=0, le=0.5, description="time is stretched or compressed by up to this share (0: not at all)"
    )
    silence: float = pydantic.Field(
        0.0,
        ge=0,
        le=2,
        description="seconds; up to so much digital silence is put before each example, and as much after: recordings "
        "that are cut closely, and others that are not; `reverberation` and `background` reach into it",
    )
    pitch: float = pydantic.Field(
        0.0, ge=0, le=0.5, description="the mel axis is stretched by up to this share, as if by another vocal tract"
    )
    volume: float = pydantic.Field(
        0.0, ge=0, le=30, description="dB; the level is raised or lowered by up to this (log features)"
    )
    tilt: float = pydantic.Field(
        0.0, ge=0, le=30, description="dB; the spectrum is tilted by up to this from lowest to highest bin, either way"
    )
    equalizer: float = pydantic.Field(
        0.0,
        ge=0,
        le=20,
        description="dB; standard deviation of the slowest of four random ripples over the bins, as of another "
        "microphone; faster ones are smaller",
    )
    reverberation: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="up to this share of the energy of the frames before is added to each frame, as by a room",
    )
    reverberation_share: float = pydantic.Field(
        1.0,
        ge=0,
        le=1,
        description="share of examples with `reverberation`; where it is 1, the network never sees the pauses and "
        "valleys of speech recorded close to the microphone",
    )
    background: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="share of examples with stationary noise of a random color added, 5 to 35 dB below the speech",
    )
    band_limit: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="share of examples whose band is narrowed, as by a telephone or a small loudspeaker: to a lower "
        "edge of 50 to 400 Hz and an upper one of 3 kHz or more",
    )
    codec: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="share of examples with noise that follows the speech, 5 to 35 dB below it in each frame, as a "
        "codec of few bits adds",
    )
    noise: float = pydantic.Field(
        0.0, ge=0, le=2, description="standard deviations; Gaussian noise of up to this size is added to the features"
    )
    time_masks: int = pydantic.Field(0, ge=0, le=20, description="SpecAugment: number of time masks")
    time_mask_share: float = pydantic.Field(
        0.1, gt=0, le=1, description="SpecAugment: longest time mask, as a share of the utterance's frames"
    )
    frequency_masks: int = pydantic.Field(0, ge=0, le=20, description="SpecAugment: number of frequency masks")
    frequency_mask_share: float = pydantic.Field(
        0.15, gt=0, le=1, description="SpecAugment: widest frequency mask, as a share of the bins"
    )


class CrCtcSettings(Settings):
    """Consistency of two views of each utterance (CR-CTC; Yao et al. 2024, arXiv 2410.05101).

    Noise (`augment.noise`), masks and dropout are drawn for each view; what else augments is the same in both.
    """

    weight: float = pydantic.Field(
        0.0,
        ge=0,
        le=10,
        description="weight of the divergence between both views' posteriors beside their mean CTC loss (paper: 0.2, "
        "with 2.5 times as many and as long time masks); 0: one view. Doubles the cost of a step",
    )


class BlankPlateauSettings(Settings):
    """A check before training: are enough steps planned? A CTC model first learns to output nothing but blanks."""

    severity: Literal["error", "warning", "off"] = pydantic.Field(
        "warning", description="what fewer steps lead to: error (training does not start), warning, or off"
    )
    steps: int = pydantic.Field(
        200, ge=1, le=1_000_000, description="training steps (epochs times batches) that a model needs to learn words"
    )


class AsrExportSettings(FormSettings):
    """The form of the exported model."""

    NOT_IN_KEY = frozenset({"hub"})  # it is checked before training

    onnx: Literal["none", "float32", "int8"] = pydantic.Field(
        "none",
        description="float32: an ONNX graph beside the SavedModel, which `voxline transcribe` and `voxline serve` run "
        "without TensorFlow; evaluate compares the two over the test split. int8: its LSTM and dense layers have 8-bit "
        "weights, and the gate judges it by its own error rate",
    )
    streaming: bool = pydantic.Field(
        False,
        description="a second ONNX graph that recognizes while audio arrives; needs onnx, and a network that reads "
        "forward: deepspeech, or deepspeech2 with directions forward; evaluate compares it too",
    )
    frequency_warps: list[Annotated[float, pydantic.Field(ge=0.5, le=2)]] = pydantic.Field(
        [],
        max_length=16,
        description="factors by which the bins are stretched, 1 for not at all, such as [0.9, 1, 1.1]; the model's "
        "probabilities are their mean over all of them, each a pass of the network: better for speakers that train "
        "lacks; empty: the features as they are",
    )
    hub: bool = pydantic.Field(
        False,
        description="the model will be given to `voxline models export --to hub`: a network that `transformers` cannot "
        "compute is refused before its training. Not part of the step's key: the result is the same",
    )

    @pydantic.model_validator(mode="after")
    def _warps_are_not_onnx(self) -> Self:
        if self.frequency_warps and self.onnx != "none":
            raise ValueError("the ONNX graphs have no frequency_warps; set onnx to none, or frequency_warps to []")
        return self

    @pydantic.model_validator(mode="after")
    def _streaming_is_onnx(self) -> Self:
        if self.streaming and self.onnx == "none":
            raise ValueError(
                "streaming is a form of the ONNX export; set onnx to float32 or int8, or streaming to false"
            )
        return self


class AsrExportForm(Settings):
    """The settings that the step export has of `train`."""

    export: AsrExportSettings = AsrExportSettings()


class AsrTrainSettings(TrainSettings):
    """How an ASR model is trained."""

    family: ClassVar[str] = "asr"
    EXPOSED = ("name", "epochs", "batch_size", "learning_rate", "model.kind", "precision", "seed")
    # The first two are checked before training, and export has a step of its own.
    NOT_IN_KEY = TrainSettings.NOT_IN_KEY | {"blank_plateau", "language_text", "export"}

    name: str = pydantic.Field("asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: ModelSettings = pydantic.Field(DeepSpeech2Settings(), description="the network")
    subwords: int = pydantic.Field(
        0,
        ge=0,
        le=20_000,
        description="symbols of the network's output, which are then subwords (BPE) learned from the transcripts of "
        "train, the alphabet's characters included; 0: the characters alone",
    )
    export: AsrExportSettings = pydantic.Field(AsrExportSettings(), description="the form of the exported model")
    augment: AugmentSettings = pydantic.Field(AugmentSettings(), description="augmentation of training examples")
    pseudo_weight: float = pydantic.Field(
        0.5,
        gt=0,
        lt=1,
        description="what an utterance counts in the loss whose transcript a model drafted (corpus.pseudo), beside the "
        "1 of one that a person transcribed",
    )
    cr_ctc: CrCtcSettings = pydantic.Field(CrCtcSettings(), description="consistency of two views of an utterance")
    blank_plateau: BlankPlateauSettings = pydantic.Field(
        BlankPlateauSettings(), description="check of the number of steps; not part of the step's key"
    )
    language_text: LanguageTextSettings = pydantic.Field(
        default_factory=LanguageTextSettings,
        description="text of the language model (follows from language); it is checked before training",
    )

    @property
    def output_kind(self) -> str:
        return self.model.output_kind

    def export_form(self) -> AsrExportForm:
        return AsrExportForm(export=self.export)

    def weights_alone(self) -> Self:
        return self.model_copy(update={"export": AsrExportSettings()})

    @pydantic.model_validator(mode="after")
    def _check_decoder(self) -> Self:
        if not self._has_decoder:
            return self
        for setting, value, accepted in (
            ("subwords", self.subwords, 0),
            ("cr_ctc.weight", self.cr_ctc.weight, 0),
            ("xla", self.xla, False),
        ):
            if value:
                raise ValueError(
                    f"{setting} is {value}, and train.model.head is decoder, which has no use for it; set {setting} to "
                    f"{str(accepted).lower()}"
                )
        if not self.start.model or self.start.keep != "all":
            raise ValueError(
                "train.model.head is decoder, which writes the tokens of the model it starts from: set start.model to "
                "a Whisper model with a tokenizer.json, and start.keep to all"
            )
        return self

    def not_compiled(self) -> str:
        return "train.model.head is decoder, whose validation decodes texts of any length" if self._has_decoder else ""

    @property
    def _has_decoder(self) -> bool:
        return self.output_kind == ATTENTION


class AsrEvaluateSettings(EvaluateSettings):
    """How an ASR model is measured."""

    EXPOSED = ("model_name",)
    family: ClassVar[str] = "asr"

    model_name: str = pydantic.Field("asr", pattern=MODEL_NAME, description="the model's name in the registry")
    batch_seconds: float = pydantic.Field(
        120.0, gt=0, le=36_000, description="seconds of audio in a batch, padding included"
    )

    pauses: str = pydantic.Field(
        "level",
        pattern=r"^(level|silero|off|.+\.onnx)$",
        description="how the pauses are found at which recordings are cut before they are heard: level, silero (the "
        "package silero-vad), the path of Silero VAD's ONNX file, or off; as `voxline transcribe --pauses`",
    )
    joined_seconds: float = pydantic.Field(
        60.0,
        ge=0,
        le=3_600,
        description="seconds of test utterances that are also transcribed joined into long recordings with pauses of "
        "0.3 to 3 s (`joined_wer`): three recordings, of silence, noise and room tone; 0: none",
    )

    normalization: TextNormalization = pydantic.Field(
        "auto",
        description="how texts are normalized for wer_normalized and cer_normalized: english and mandarin spell "
        "numbers out, as convert's frontends do, unicode leaves case, punctuation and signs out; auto: of models that "
        "write capitals or punctuation alone, by the language of train.model.prompt or the letters of the alphabet",
    )

    duration_bands: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0, 8.0, 16.0)
    """Bounds between slices by duration, in seconds."""
    word_bands: ClassVar[tuple[int, ...]] = (2, 4, 8, 16)
    """Bounds between slices by length of the reference, in words."""
    level_bands: ClassVar[tuple[float, ...]] = (-40.0, -30.0, -20.0)
    """Bounds between slices by RMS level, in dB of full scale."""
    snr_bands: ClassVar[tuple[float, ...]] = (10.0, 20.0, 30.0, 40.0)
    """Bounds between slices by the estimated signal-to-noise ratio, in dB."""
    rate_bands: ClassVar[tuple[float, ...]] = (8.0, 12.0, 16.0, 20.0)
    """Bounds between slices by speaking rate, in characters of the reference per second."""

    text_judge: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of a model in the same registry that judges the transcripts too, such as a classifier of "
        "what was meant, by a field that the manifest has; empty: none",
    )

    confusions: ClassVar[int] = 30
    """Most confused words shown in the report."""

    aligned_utterances: int = pydantic.Field(
        8, ge=0, le=200, description="worst utterances shown in the report with their spectrogram and aligned words"
    )


class AsrPushSettings(PushSettings):
    """How good an ASR model must be."""

    EXPOSED = ("model_name", "limits.wer", "max_regression.wer", "max_relative_regression.wer", "confidence")
    family: ClassVar[str] = "asr"

    model_name: str = pydantic.Field("asr", pattern=MODEL_NAME, description="the model's name in the registry")
    limits: dict[str, float] = pydantic.Field({"wer": 0.3}, description=LIMITS)
    max_regression: dict[str, Margin] = pydantic.Field({"wer": 0.005}, description=REGRESSION)
    max_relative_regression: dict[str, Margin] = pydantic.Field({"wer": 0.1}, description=RELATIVE)
    max_slice_regression: dict[str, Margin] = pydantic.Field({"wer": 0.03}, description=SLICE_REGRESSION)
    max_relative_slice_regression: dict[str, Margin] = pydantic.Field({"wer": 0.5}, description=SLICE_RELATIVE)
    slices: list[str] = pydantic.Field(["speaker", "duration", "words"], description=SLICES)

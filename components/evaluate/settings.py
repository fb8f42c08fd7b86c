"""Settings of evaluate: those of every model family, and those of each."""

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from voxline.settings import Settings

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class EvaluateSettings(Settings):
    """How a model is measured."""

    family: ClassVar[str]

    model_name: str = pydantic.Field(..., pattern=MODEL_NAME, description="the model's name in the registry")
    split: Literal["test", "dev"] = pydantic.Field("test", description="the split to measure on")
    anchor: str = pydantic.Field(
        "best",
        pattern=r"^(best|none|[1-9][0-9]{0,17})$",
        description="version to compare with beside the one in service, so that margins do not add up over many "
        "pushes: best (so far, or the one that `voxline models anchor` names), a version's number, or none",
    )
    confidence: float = pydantic.Field(0.95, ge=0.5, lt=1, description="of the intervals")
    bootstrap_samples: int = pydantic.Field(2000, ge=100, le=100_000, description="resamples behind an interval")
    seed: int = pydantic.Field(0, ge=0, description="of the resamples")
    min_speakers: int = pydantic.Field(
        10, ge=5, description="with this many speakers or more, speakers are resampled instead of utterances"
    )
    slices: list[str] = pydantic.Field([], description="further manifest fields to report by")
    worst_utterances: int = pydantic.Field(20, ge=0, le=1000, description="worst utterances shown in the report")
    audio_megabytes: float = pydantic.Field(1.5, ge=0, le=100, description="MB of audio embedded in the report")

    @pydantic.field_validator("split", mode="before")
    @classmethod
    def _not_the_training_split(cls, split: Any) -> Any:
        if split == "train":
            raise ValueError("the model was trained on it, so it measures nothing; 'test' or 'dev' is accepted")
        return split


def check_ascending(bounds: list[Any]) -> list[Any]:
    """Raises: ValueError: a bound is not above the one before it."""
    if any(low >= high for low, high in pairwise(bounds)):
        raise ValueError("each bound must be above the one before it")
    return bounds


def check_f0_range(highest: float, lowest: float) -> float:
    """Raises: ValueError: the range is less than an octave."""
    if highest < 2 * lowest:
        raise ValueError(f"at least twice f0_min ({lowest:g} Hz) is accepted")
    return highest


Bound = Annotated[float, pydantic.Field(gt=0)]
WholeBound = Annotated[int, pydantic.Field(gt=0)]


class AsrEvaluateSettings(EvaluateSettings):
    """How an ASR model is measured."""

    EXPOSED = ("model_name",)
    family: ClassVar[str] = "asr"

    model_name: str = pydantic.Field("asr", pattern=MODEL_NAME, description="the model's name in the registry")
    batch_seconds: float = pydantic.Field(
        120.0, gt=0, le=36_000, description="seconds of audio in a batch, padding included"
    )
    duration_bands: list[Bound] = pydantic.Field(
        [1.0, 2.0, 4.0, 8.0, 16.0], min_length=1, description="bounds between slices by duration, in seconds"
    )
    word_bands: list[WholeBound] = pydantic.Field(
        [2, 4, 8, 16], min_length=1, description="bounds between slices by length of the reference, in words"
    )
    level_bands: list[float] = pydantic.Field(
        [-40.0, -30.0, -20.0], min_length=1, description="bounds between slices by RMS level, in dB of full scale"
    )
    snr_bands: list[float] = pydantic.Field(
        [10.0, 20.0, 30.0, 40.0],
        min_length=1,
        description="bounds between slices by the estimated signal-to-noise ratio, in dB",
    )
    rate_bands: list[Bound] = pydantic.Field(
        [8.0, 12.0, 16.0, 20.0],
        min_length=1,
        description="bounds between slices by speaking rate, in characters of the reference per second",
    )
    intents: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of a classifier of intents in the same registry, by which the transcripts are judged too "
        "(intent_error_rate); the manifest has its field; empty: none",
    )
    confusions: int = pydantic.Field(30, ge=0, le=1000, description="most confused words shown in the report")
    aligned_utterances: int = pydantic.Field(
        8, ge=0, le=200, description="worst utterances shown in the report with their spectrogram and aligned words"
    )

    @pydantic.model_serializer(mode="wrap")
    def _without_intents(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keys of evaluations from before there were intents stay as they are."""
        values: dict[str, Any] = handler(self)
        if not values.get("intents"):
            values.pop("intents", None)
        return values

    @pydantic.field_validator("duration_bands", "word_bands", "level_bands", "snr_bands", "rate_bands")
    @classmethod
    def _ascending(cls, bounds: list[Any]) -> list[Any]:
        return check_ascending(bounds)


class SpeechEvaluateSettings(EvaluateSettings):
    """How a model that makes speech is measured."""

    # What is judged by ear is not compressed.
    audio_megabytes: float = pydantic.Field(8.0, ge=0, le=100, description="MB of audio embedded in the report")
    f0_utterances: int = pydantic.Field(
        30, ge=0, le=100_000, description="utterances whose F0 is measured, evenly spaced; 0.1 s per second of speech"
    )
    mos_utterances: int = pydantic.Field(
        20, ge=0, le=100_000, description="utterances whose DNSMOS is predicted, evenly spaced; 0.5 to 5 s each"
    )
    f0_min: float = pydantic.Field(65.0, ge=40, le=500, description="Hz; lowest F0 to search for")
    f0_max: float = pydantic.Field(400.0, ge=80, le=2_000, description="Hz; highest F0 to search for")
    sample_utterances: int = pydantic.Field(
        3, ge=0, le=100, description="utterances shown in the report however good, evenly spaced"
    )

    @pydantic.field_validator("f0_max")
    @classmethod
    def _above_the_lowest(cls, highest: float, others: pydantic.ValidationInfo) -> float:
        return check_f0_range(highest, others.data.get("f0_min", 0.0))


class TtsEvaluateSettings(SpeechEvaluateSettings):
    """How a TTS model is measured."""

    EXPOSED = ("model_name", "round_trip_recognizer")
    family: ClassVar[str] = "tts"

    model_name: str = pydantic.Field("tts", pattern=MODEL_NAME, description="the model's name in the registry")
    round_trip_recognizer: str = pydantic.Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$",
        description="name of an ASR model in the same registry that transcribes the synthesized speech; empty: none",
    )
    batch_size: int = pydantic.Field(16, ge=1, le=1024, description="texts in a batch")
    batch_symbols: int = pydantic.Field(
        4_000, ge=1, le=1_000_000, description="symbols of text in a batch, padding included"
    )
    cepstra: int = pydantic.Field(13, ge=2, le=60, description="cepstral coefficients compared, from c1")
    text_bands: list[WholeBound] = pydantic.Field(
        [20, 40, 80, 160], min_length=1, description="bounds between slices by length of the text, in symbols"
    )
    worst_utterances: int = pydantic.Field(5, ge=0, le=1000, description="worst utterances shown in the report")

    @pydantic.field_validator("text_bands")
    @classmethod
    def _ascending(cls, bounds: list[Any]) -> list[Any]:
        return check_ascending(bounds)


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
    batch_size: int = pydantic.Field(16, ge=1, le=1024, description="utterances that are read and vocoded at a time")
    batch_frames: int = pydantic.Field(
        4_000, ge=1, le=1_000_000, description="frames of mels in a batch, padding included"
    )
    duration_bands: list[Bound] = pydantic.Field(
        [1.0, 2.0, 4.0, 8.0], min_length=1, description="bounds between slices by duration, in seconds"
    )
    worst_utterances: int = pydantic.Field(3, ge=0, le=1000, description="worst utterances shown in the report")

    @pydantic.field_validator("duration_bands")
    @classmethod
    def _ascending(cls, bounds: list[Any]) -> list[Any]:
        return check_ascending(bounds)


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
    word_bands: list[WholeBound] = pydantic.Field(
        [2, 4, 8, 16], min_length=1, description="bounds between slices by length of the reference, in words"
    )
    confusions: int = pydantic.Field(30, ge=0, le=1000, description="most confused intents shown in the report")

    @pydantic.field_validator("word_bands")
    @classmethod
    def _ascending(cls, bounds: list[Any]) -> list[Any]:
        return check_ascending(bounds)

"""Settings of evaluate: those of every model family, and those of each."""

from typing import Any, ClassVar, Literal

import pydantic

from voxline.settings import Settings

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class EvaluateSettings(Settings):
    """How a model is measured."""

    family: ClassVar[str]
    ALWAYS_IN_KEY = ("family",)
    NOT_IN_KEY = frozenset({"probe"})  # the fingerprint of its utterances is

    model_name: str = pydantic.Field(..., pattern=MODEL_NAME, description="the model's name in the registry")
    split: Literal["test", "dev"] = pydantic.Field("test", description="the split to measure on")
    anchor: str = pydantic.Field(
        "best",
        pattern=r"^(best|none|[1-9][0-9]{0,17})$",
        description="version to compare with beside the one in service, so that margins do not add up over many "
        "pushes: best (so far, or the one that `voxline models anchor` names), a version's number, or none",
    )
    probe: str = pydantic.Field(
        "",
        description="manifest of a corpus, or folder or URI with one as convert writes it, that shows what a model has "
        "forgotten of what it started from: both are measured on its test split, or on all of it if it has none; "
        "needed after a public model, whose own test set is not known; never a part of training",
    )
    confidence: float = pydantic.Field(0.95, ge=0.5, lt=1, description="of the intervals")
    bootstrap_samples: int = pydantic.Field(2000, ge=100, le=100_000, description="resamples behind an interval")

    seed: ClassVar[int] = 0
    """Seeds the resamples."""
    min_speakers: ClassVar[int] = 10
    """With this many speakers or more, speakers are resampled instead of utterances."""

    slices: list[str] = pydantic.Field([], description="further manifest fields to report by")
    worst_utterances: int = pydantic.Field(20, ge=0, le=1000, description="worst utterances shown in the report")

    audio_megabytes: ClassVar[float] = 1.5
    """MB of audio embedded in the report."""

    @pydantic.field_validator("split", mode="before")
    @classmethod
    def _not_the_training_split(cls, split: Any) -> Any:
        if split == "train":
            raise ValueError("the model was trained on it, so it measures nothing; 'test' or 'dev' is accepted")
        return split


def check_f0_range(highest: float, lowest: float) -> float:
    """Raises: ValueError: the range is less than an octave."""
    if highest < 2 * lowest:
        raise ValueError(f"at least twice f0_min ({lowest:g} Hz) is accepted")
    return highest


class SpeechEvaluateSettings(EvaluateSettings):
    """How a model that makes speech is measured."""

    # What is judged by ear is not compressed.

    audio_megabytes: ClassVar[float] = 8.0
    """MB of audio embedded in the report."""

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
    def _above_the_lowest(cls, highest: float, info: pydantic.ValidationInfo) -> float:
        return check_f0_range(highest, info.data.get("f0_min", 0.0))

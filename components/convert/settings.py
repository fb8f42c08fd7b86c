"""Settings of convert."""

from typing import Self

import pydantic

from voxline.beam.settings import MULTI_PROCESS, RunnerSettings
from voxline.components.convert.jobs import Shaping
from voxline.errors import SettingsError
from voxline.text.alphabet import Alphabet
from voxline.text.settings import FrontendSettings

PROCESSES = "processes"


class ConvertSettings(RunnerSettings):
    """The conversion of recordings to WAVs, and the limits beyond which they are rejected."""

    # The memory limit decides a reject only where a recording needs more; see `step.MEMORY_LIMIT_FILE`.
    NOT_IN_KEY = RunnerSettings.NOT_IN_KEY | {"worker_memory_megabytes"}
    EXPOSED = ("sample_rate", "alphabet", "frontend.kind")

    sample_rate: int = pydantic.Field(16_000, ge=4_000, le=96_000, description="Hz of the WAVs")
    alphabet: str = pydantic.Field(
        "english", description="an alphabet's name (english), or the characters that transcripts may have"
    )
    frontend: FrontendSettings = pydantic.Field(
        default_factory=FrontendSettings, description="how a transcript becomes what the model reads or spells"
    )
    min_seconds: float = pydantic.Field(0.1, ge=0, le=3_600, description="seconds; shorter recordings are rejected")
    max_seconds: float = pydantic.Field(60.0, gt=0, le=36_000, description="seconds; longer recordings are rejected")
    silence_db: float = pydantic.Field(
        -60.0, ge=-90, le=0, description="dB of full scale; a recording with no 25 ms above it is rejected"
    )
    trim_db: float = pydantic.Field(
        0.0,
        ge=0,
        le=120,
        description="dB below the loudest 10 ms; what is quieter at both ends is trimmed; 0: no trimming",
    )
    trim_keep_seconds: float = pydantic.Field(
        0.05, ge=0, le=10, description="seconds of silence that trimming keeps at each end"
    )
    loudness_lufs: float | None = pydantic.Field(
        None,
        ge=-70,
        le=0,
        description="LUFS (ITU-R BS.1770-4) of every WAV, such as -23; empty: unchanged",
    )
    prosody: bool = pydantic.Field(
        False,
        description="measure of each recording where speech begins and ends, its level and its F0, for the manifest",
    )
    decode_seconds: float = pydantic.Field(
        300.0, gt=0, le=86_400, description="seconds; a recording that takes longer to decode is rejected"
    )
    worker_memory_megabytes: float = pydantic.Field(
        1_024.0,
        ge=0,
        le=1e6,
        description="MB (10⁶ bytes) of address space that a decoding process may add to what it starts with; a "
        "recording that needs more is rejected as out_of_memory (0: no limit)",
    )
    max_reject_share: float = pydantic.Field(
        0.05, ge=0, le=1, description="share (0 to 1) of utterances; the step fails when more are rejected"
    )
    max_negative_share: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="largest accepted share (0 to 1) of utterances whose transcript is empty: recordings in which "
        "nobody speaks, such as noise, from which a recognizer learns to write nothing; 0: they are rejected",
    )
    runner: str = pydantic.Field(
        PROCESSES,
        description=f"what runs the conversion: {PROCESSES} (on this machine), {MULTI_PROCESS} (the same, by Beam), or "
        "the name of any Beam runner",
    )
    workers: int = pydantic.Field(0, ge=0, le=1_024, description="processes; 0: one per core")

    @property
    def shaping(self) -> Shaping:
        """Changes to the sound besides its sample rate."""
        return Shaping(self.trim_db, self.trim_keep_seconds, self.loudness_lufs)

    @pydantic.field_validator("alphabet")
    @classmethod
    def _check_alphabet(cls, value: str) -> str:
        try:
            Alphabet.from_name(value)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return value

    @pydantic.model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.min_seconds >= self.max_seconds:
            raise ValueError(f"min_seconds ({self.min_seconds:g}) must be below max_seconds ({self.max_seconds:g})")
        return self

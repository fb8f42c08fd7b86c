"""What one conversion is told, and how it can end. It imports nothing heavy: the step plans with it."""

import dataclasses
from pathlib import Path

from components.speech.utterances import Reason


@dataclasses.dataclass(frozen=True)
class Job:
    """What to convert.

    Attributes:
      source: the recording's path.
      audio_hash: of the source file, as the manifest has it.
      offset, duration: seconds; no duration: up to the end.
      wav: where it goes.
      silence_db: dB of full scale.
    """

    source: str
    audio_hash: str
    offset: float
    duration: float | None
    wav: Path
    sample_rate: int
    silence_db: float


@dataclasses.dataclass(frozen=True)
class Converted:
    """The WAV is there.

    Attributes:
      samples: how many.
      measured: see `measure`.
      decoded: False where the WAV was there already and only had to be measured.
    """

    samples: int
    measured: dict[str, float | str]
    decoded: bool = True


@dataclasses.dataclass(frozen=True)
class Refused:
    """The recording cannot be used; it is its content that says so, so this holds for every later run."""

    reason: Reason
    detail: str


@dataclasses.dataclass(frozen=True)
class Stale:
    """The source is no longer what the manifest says; that is no property of the recording."""

    detail: str

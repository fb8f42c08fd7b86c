"""What one conversion is told, and how it can end. It imports nothing heavy: the step plans with it."""

import dataclasses
from pathlib import Path
from typing import Any

from voxline.rejects import Reason


@dataclasses.dataclass(frozen=True)
class Shaping:
    """What is done to the sound besides its rate; see ConvertSettings.

    Attributes:
      trim_db: dB under the loudest 10 ms; 0: the ends stay as they are.
      trim_keep_seconds: of silence left at each end.
      loudness_lufs: what the loudness is set to; None: it stays as it is.
    """

    trim_db: float = 0.0
    trim_keep_seconds: float = 0.0
    loudness_lufs: float | None = None

    def naming(self) -> dict[str, Any]:
        """What a WAV's name says of it: nothing where nothing is done, so that such names stay what they were."""
        trim = {"trim": [self.trim_db, self.trim_keep_seconds]} if self.trim_db else {}
        return trim | ({} if self.loudness_lufs is None else {"loudness": self.loudness_lufs})


NO_SHAPING = Shaping()


@dataclasses.dataclass(frozen=True)
class ConversionJob:
    """What to convert.

    Attributes:
      source: the recording's path.
      audio_hash: of the source file, as the manifest has it.
      offset, duration: seconds; no duration: up to the end.
      wav: where it goes.
      silence_db: dB of full scale.
      shaping: what is done to the sound besides its rate.
    """

    source: str
    audio_hash: str
    offset: float
    duration: float | None
    wav: Path
    sample_rate: int
    silence_db: float
    shaping: Shaping = NO_SHAPING


@dataclasses.dataclass(frozen=True)
class Converted:
    """The WAV is there.

    Attributes:
      samples: how many.
      measured: see `measure`, and `shape` for what was done to it.
      decoded: False where the WAV was there already and only had to be measured.
    """

    samples: int
    measured: dict[str, float | str]
    decoded: bool = True


@dataclasses.dataclass(frozen=True)
class RejectedRecording:
    """The recording cannot be used; it is its content that says so, so this holds for every later run."""

    reason: Reason
    detail: str


@dataclasses.dataclass(frozen=True)
class SourceChanged:
    """The source is no longer what the manifest says; that is no property of the recording."""

    detail: str

"""A conversion's job and its results. The module imports nothing heavy, as the step plans with it."""

import dataclasses
from pathlib import Path
from typing import Any

from voxline.rejects import Reason


@dataclasses.dataclass(frozen=True)
class Shaping:
    """Changes to the sound besides its sample rate; see ConvertSettings.

    Attributes:
      trim_db: dB below the loudest 10 ms; 0: nothing is trimmed.
      trim_keep_seconds: silence to keep at each end.
      loudness_lufs: the target loudness; None: unchanged.
    """

    trim_db: float = 0.0
    trim_keep_seconds: float = 0.0
    loudness_lufs: float | None = None

    def key_values(self) -> dict[str, Any]:
        """Its part of a WAV's name. A setting that changes nothing has none."""
        trim = {"trim": [self.trim_db, self.trim_keep_seconds]} if self.trim_db else {}
        return trim | ({} if self.loudness_lufs is None else {"loudness": self.loudness_lufs})


NO_SHAPING = Shaping()


@dataclasses.dataclass(frozen=True)
class ConversionJob:
    """A recording to convert.

    Attributes:
      source: the recording's path.
      audio_hash: of the source file, according to the manifest.
      offset, duration: seconds; without a duration, up to the end.
      wav: path of the WAV to write.
      silence_db: dB of full scale.
      shaping: other changes to the sound.
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
    """The WAV exists.

    Attributes:
      samples: its number of samples.
      measured: see `measure_level` and `apply_shaping`.
      decoded: False if the WAV existed and was only measured.
    """

    samples: int
    measured: dict[str, float | str]
    decoded: bool = True


@dataclasses.dataclass(frozen=True)
class RejectedRecording:
    """The recording cannot be used. That depends on its content alone, so it holds for later runs too."""

    reason: Reason
    detail: str


@dataclasses.dataclass(frozen=True)
class SourceChanged:
    """The source is no longer what the manifest says, which says nothing about the recording."""

    detail: str

"""What the generated corpus holds: how many speakers of each split, how much each says, how hard it is to hear."""

from typing import Self

import pydantic
from pydantic import Field

from components.generate.speakers import DISTINCT_VOICES
from components.speech.settings import Settings


class GenerateSettings(Settings):
    """Settings of the demo corpus; equal settings give equal files."""

    train_speakers: int = Field(20, ge=1, description="speakers of train-clean")
    dev_speakers: int = Field(2, ge=1, description="speakers of dev-clean, none of them in another split")
    test_speakers: int = Field(6, ge=1, description="speakers of test-clean, none of them in another split")
    utterances_per_speaker: int = Field(40, ge=1, le=9999, description="utterances of a speaker of train or test")
    dev_utterances_per_speaker: int = Field(20, ge=1, le=9999, description="utterances of a speaker of dev")
    seed: int = Field(1, ge=0, description="draws the speakers, sentences, rooms and noises")
    snr_min: float = Field(15.0, ge=-5, le=80, description="dB of speech over noise in the noisiest utterances")
    snr_max: float = Field(30.0, ge=-5, le=80, description="dB of speech over noise in the cleanest utterances")
    reverberation_max: float = Field(
        0.3, ge=0.05, le=2, description="seconds in which the most echoing room dies away by 60 dB"
    )

    @pydantic.model_validator(mode="after")
    def _can_be_cast(self) -> Self:
        speakers = self.train_speakers + self.dev_speakers + self.test_speakers
        if speakers > DISTINCT_VOICES:
            raise ValueError(
                f"train_speakers + dev_speakers + test_speakers is {speakers}; "
                f"there are {DISTINCT_VOICES} voices, and no speaker may sound like another"
            )
        if self.snr_min > self.snr_max:
            raise ValueError(f"snr_min is {self.snr_min}, above snr_max = {self.snr_max}; swap them")
        return self

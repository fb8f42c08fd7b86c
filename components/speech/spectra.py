"""From samples to features, in numpy: log-mel, MFCC with context, linear spectrogram.

Conventions are librosa's (Hann window, centred frames with zeros beyond the ends, Slaney mel scale and
normalisation), and librosa is the oracle in the tests.
"""

from typing import Literal

import pydantic

from components.speech.settings import Settings


class FeatureSettings(Settings):
    """How samples become features; stands in dataset.json and in model.json."""

    kind: Literal["log_mel", "mfcc", "linear"] = pydantic.Field("log_mel", description="which features")
    sample_rate: int = pydantic.Field(16_000, ge=4_000, le=96_000, description="Hz; what convert wrote")
    window_seconds: float = pydantic.Field(0.025, gt=0, le=0.2, description="seconds in a window (Hann)")
    hop_seconds: float = pydantic.Field(0.010, gt=0, le=0.1, description="seconds from one frame to the next")
    fft_size: int | None = pydantic.Field(
        None, description="samples in a transform; empty: the next power of two that holds a window"
    )
    mels: int = pydantic.Field(80, ge=8, le=256, description="mel bins (log_mel; mfcc is made of them)")
    lowest_hz: float = pydantic.Field(0.0, ge=0, description="Hz; lower edge of the mel filterbank")
    highest_hz: float | None = pydantic.Field(None, description="Hz; upper edge; empty: half the sample rate")
    log_floor: float = pydantic.Field(1e-5, gt=0, description="power under which the logarithm is cut")
    coefficients: int = pydantic.Field(26, ge=2, le=128, description="cepstral coefficients (mfcc)")
    context: int = pydantic.Field(
        0, ge=0, le=30, description="frames stacked on each side (mfcc; Mozilla's DeepSpeech: 9)"
    )

    @property
    def window(self) -> int:
        """Samples in a window."""
        return round(self.window_seconds * self.sample_rate)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.hop_seconds * self.sample_rate)

    @property
    def transform(self) -> int:
        """Samples in a transform."""
        return self.fft_size or 1 << (self.window - 1).bit_length()

    @property
    def bins(self) -> int:
        """Numbers in a frame of features."""
        if self.kind == "linear":
            return self.transform // 2 + 1
        if self.kind == "mfcc":
            return self.coefficients * (2 * self.context + 1)
        return self.mels

    def frames(self, samples: int) -> int:
        """Frames of a recording of so many samples: one at every hop, centred, from sample 0 on."""
        return 1 + samples // self.hop

"""How samples become features, as settings; `spectra` computes them. It imports no numpy: every config reads it."""

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
    log_floor: float = pydantic.Field(
        1e-8, gt=0, description="power under which the logarithm is cut; quiet speech lies above 1e-8 of full scale"
    )
    coefficients: int = pydantic.Field(26, ge=2, le=128, description="cepstral coefficients (mfcc)")
    context: int = pydantic.Field(
        0, ge=0, le=30, description="frames stacked on each side (mfcc; Mozilla's DeepSpeech: 9)"
    )

    @pydantic.field_validator("window_seconds", "hop_seconds")
    @classmethod
    def _at_least_a_sample(cls, seconds: float, others: pydantic.ValidationInfo) -> float:
        rate = others.data.get("sample_rate")
        if rate and round(seconds * rate) < 1:
            raise ValueError(f"less than one sample at {rate} Hz; give {1 / rate:.1g} s or more")
        return seconds

    @pydantic.field_validator("fft_size")
    @classmethod
    def _transform_holds_a_window(cls, size: int | None, others: pydantic.ValidationInfo) -> int | None:
        rate, seconds = others.data.get("sample_rate"), others.data.get("window_seconds")
        if size is None or not rate or not seconds:
            return size
        if size % 2 or not round(seconds * rate) <= size <= 65_536:
            raise ValueError(
                f"an even number from {round(seconds * rate)} (the window's samples) to 65536 is accepted; "
                "empty picks one"
            )
        return size

    @pydantic.field_validator("highest_hz")
    @classmethod
    def _edges_in_order(cls, highest: float | None, others: pydantic.ValidationInfo) -> float | None:
        rate, lowest = others.data.get("sample_rate"), others.data.get("lowest_hz", 0.0)
        if rate and not lowest < (rate / 2 if highest is None else highest) <= rate / 2:
            raise ValueError(
                f"above lowest_hz ({lowest:g}) and at most half the sample rate ({rate / 2:g}) is accepted"
            )
        return highest

    @pydantic.field_validator("coefficients")
    @classmethod
    def _no_more_than_mels(cls, coefficients: int, others: pydantic.ValidationInfo) -> int:
        mels = others.data.get("mels")
        if others.data.get("kind") == "mfcc" and mels and coefficients > mels:
            raise ValueError(f"at most as many as mels ({mels}) is accepted")
        return coefficients

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
        return self.fft_size or max(2, 1 << (self.window - 1).bit_length())

    @property
    def padding(self) -> int:
        """Zeros before sample 0: the first window's middle stands on the first sample."""
        return self.transform // 2 - (self.transform - self.window) // 2

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

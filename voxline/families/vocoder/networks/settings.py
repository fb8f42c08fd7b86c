"""Sizes of the vocoders: Vocos, HiFi-GAN and WaveGlow."""

import math
from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.settings import Settings
from voxline.training.upsampling_settings import Channels, Kernel, UpsamplingSettings, check_odd


class VocosSettings(Settings):
    """ConvNeXt blocks at the frame rate, and an inverse STFT (Siuzdak 2023). The paper's sizes: 512, 1536 and 8."""

    kind: Literal["vocos"] = pydantic.Field("vocos", description="the network")
    channels: Channels = pydantic.Field(256, description="channels of each block")
    hidden: Channels = pydantic.Field(768, description="channels between a block's two dense layers")
    layers: int = pydantic.Field(4, ge=1, le=64, description="ConvNeXt blocks")
    kernel: Kernel = pydantic.Field(7, description="kernel size of the convolutions, in frames; odd")
    fft_size: int | None = pydantic.Field(
        None, ge=4, le=65_536, description="samples in the inverse FFT; even; empty: the window of the features"
    )

    prior: bool = pydantic.Field(
        True,
        description="add the network's log magnitudes to those that the mels imply, so that it learns the rest alone "
        "(FreeV, Lv et al. 2024); false: the paper's network",
    )

    @pydantic.field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        return check_odd(kernel)

    @pydantic.field_validator("fft_size")
    @classmethod
    def _even(cls, size: int | None) -> int | None:
        if size is not None and size % 2:
            raise ValueError(f"an FFT of {size} samples has no middle; even numbers are accepted")
        return size

    def check_features(self, features: FeatureSettings) -> None:
        """Refuses features whose frames lie further apart than the windows of the inverse STFT reach.

        Raises:
          SettingsError: names the settings.
        """
        if self.inverse_fft_size(features) < 2 * features.hop_length:
            raise SettingsError(
                f"train.model.fft_size is {self.inverse_fft_size(features)} samples and extract.features.hop_seconds "
                f"is {features.hop_length}: the windows of the inverse STFT must overlap by half or more; set fft_size "
                f"to {4 * features.hop_length}"
            )

    def inverse_fft_size(self, features: FeatureSettings) -> int:
        """`fft_size`, or the features' window, rounded up to an even number."""
        return self.fft_size or features.win_length + features.win_length % 2


class HifiganSettings(UpsamplingSettings):
    """HiFi-GAN's generator (Kong et al. 2020). The defaults are V1's, for a hop of 256 samples.

    >>> (
    ...     HifiganSettings().hop,
    ...     HifiganSettings.of({"upsample_rates": (8, 8), "upsample_kernels": (16, 16), "istft_hop": 4}).hop,
    ... )
    (256, 256)
    """

    kind: Literal["hifigan"] = pydantic.Field("hifigan", description="the network")
    istft_hop: int = pydantic.Field(
        0,
        ge=0,
        le=64,
        description="samples that an inverse STFT makes of each step of the last layer, by windows of four times as "
        "many (iSTFTNet, Kaneko et al. 2022: 4, after rates of 8 and 8); 0: the last layer makes the samples",
    )
    bands: Literal[1, 4] = pydantic.Field(
        1,
        description="4: the network makes four bands at a quarter of the sample rate, which a filter bank joins "
        "(Yang et al. 2020); 1: the waveform itself",
    )

    @property
    def hop(self) -> int:
        """Samples that the network makes of a frame."""
        return math.prod(self.upsample_rates) * max(self.istft_hop, 1) * self.bands

    def check_features(self, features: FeatureSettings) -> None:
        """Refuses features with another hop than the network's.

        Raises:
          SettingsError: names the settings.
        """
        if self.hop != features.hop_length:
            factors = [f"train.model.upsample_rates {'·'.join(map(str, self.upsample_rates))}"]
            factors += [f"istft_hop {self.istft_hop}"] if self.istft_hop else []
            factors += [f"bands {self.bands}"] if self.bands > 1 else []
            raise SettingsError(
                f"{' and '.join(factors)} make {self.hop} samples of a frame, "
                f"and extract.features.hop_seconds is {features.hop_length} samples; set upsample_rates to numbers "
                f"whose product{' with these' if len(factors) > 1 else ''} is {features.hop_length}, or hop_seconds to "
                f"{self.hop / features.sample_rate:.6g}"
            )


class SamplingSettings(Settings):
    """How a trained WaveGlow makes waveforms; no weight depends on it."""

    sampling_sigma: float = pydantic.Field(
        0.6, ge=0, le=10, description="standard deviation of the noise that waveforms are made of"
    )
    denoiser: float = pydantic.Field(
        0.01, ge=0, le=10, description="share of the network's own tone that the export subtracts (0: none)"
    )


class WaveGlowSettings(SamplingSettings):
    """WaveGlow (Prenger et al. 2018). The defaults are the authors' later sizes; the paper's has 512 channels."""

    NOT_IN_KEY = frozenset(SamplingSettings.model_fields)  # they are those of the step export

    kind: Literal["waveglow"] = pydantic.Field("waveglow", description="the network")
    flows: int = pydantic.Field(12, ge=1, le=64, description="flows")
    group: int = pydantic.Field(8, ge=2, le=64, description="samples that a flow sees side by side; even")
    early_every: int = pydantic.Field(4, ge=1, le=64, description="flows after which channels leave early")

    early_size: ClassVar[int] = 2
    """Channels that leave early; even."""
    upsampled_hops: ClassVar[int] = 4
    """Length of the kernel that upsamples mels, in hops: 1,024 samples for a hop of 256."""

    layers: int = pydantic.Field(
        8, ge=1, le=12, description="convolutions of a flow; each has twice the dilation of the one before"
    )
    channels: Channels = pydantic.Field(256, description="channels of a flow's convolutions (CPUs: 64)")
    kernel: Kernel = pydantic.Field(3, description="kernel size of the convolutions, in groups; odd")
    sigma: float = pydantic.Field(1.0, gt=0, le=10, description="standard deviation of the noise in the loss")

    @pydantic.field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        return check_odd(kernel)

    @pydantic.field_validator("group")
    @classmethod
    def _even(cls, channels: int) -> int:
        if channels % 2:
            raise ValueError(
                f"{channels} channels have no half, and a flow changes one half by the other; even numbers are accepted"
            )
        return channels

    @pydantic.model_validator(mode="after")
    def _check_channels(self) -> Self:
        # Channels must be left for the last flow.
        early = (self.flows - 1) // self.early_every
        if early * self.early_size >= self.group:
            raise ValueError(
                f"early_size {self.early_size} after every {self.early_every} of {self.flows} flows leave no channels "
                f"of a group of {self.group}; set early_every to more"
            )
        return self

    @property
    def flow_channels(self) -> list[int]:
        """Channels of each flow.

        >>> WaveGlowSettings().flow_channels
        [8, 8, 8, 8, 6, 6, 6, 6, 4, 4, 4, 4]
        """
        return [self.group - flow // self.early_every * self.early_size for flow in range(self.flows)]

    def check_features(self, features: FeatureSettings) -> None:
        """Refuses features with a hop that is no number of groups.

        Raises:
          SettingsError: names the settings.
        """
        if features.hop_length % self.group:
            raise SettingsError(
                f"train.model.group is {self.group} samples, and extract.features.hop_seconds is {features.hop_length} "
                f"samples; set hop_seconds to a multiple of {self.group / features.sample_rate:.6g}"
            )


VocoderModelSettings = Annotated[
    VocosSettings | HifiganSettings | WaveGlowSettings, pydantic.Field(discriminator="kind")
]

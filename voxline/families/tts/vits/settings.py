"""Sizes of VITS (Kim et al. 2021). The defaults are the authors', with Piper's way to write a text as symbols."""

import math
from typing import ClassVar, Literal, Self

import pydantic

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.settings import Settings
from voxline.training.settings import DiscriminatorSettings
from voxline.training.upsampling_settings import Channels, Kernel, UpsamplingSettings, check_odd


class SpeakerTableSettings(Settings):
    """A table with a row of values for each speaker of a voice."""

    speakers: int = pydantic.Field(
        0,
        ge=0,
        le=100_000,
        description="rows of the speaker table; 0: one for each speaker of the corpus if it names several (see "
        "fastspeech.speakers and vits.speakers), else no table",
    )
    speaker_units: int = pydantic.Field(
        0, ge=0, le=8192, description="values of a speaker; 0: 256 if there are several; set, one speaker has a row too"
    )
    speaker: int = pydantic.Field(0, ge=0, description="row of the speaker who speaks where none is asked for")

    @pydantic.model_validator(mode="after")
    def _check_table(self) -> Self:
        if self.speakers and not self.speaker_units:
            raise ValueError(f"speakers is {self.speakers}, and speaker_units is 0; set both, or leave speakers out")
        if self.speaker >= max(self.speakers, 1):
            raise ValueError(f"speaker is {self.speaker}, and there are {max(self.speakers, 1)}, numbered from 0")
        return self


class VitsSettings(SpeakerTableSettings, UpsamplingSettings):
    """A voice that makes samples from symbols in one network.

    >>> VitsSettings().hop
    256
    """

    kind: Literal["vits"] = pydantic.Field("vits", description="the network")
    reduction: int = pydantic.Field(1, ge=1, le=1, description="frames per decoder step: 1, all are made at once")
    between: bool = pydantic.Field(True, description="a blank symbol before, between and after the symbols of a text")
    ends: bool = pydantic.Field(True, description="a symbol where a text begins, and one where it ends")

    units: Channels = pydantic.Field(192, description="channels of the text encoder and of the flow's convolutions")
    heads: int = pydantic.Field(2, ge=1, le=64, description="attention heads of the text encoder")
    layers: int = pydantic.Field(6, ge=1, le=64, description="blocks of the text encoder")
    feed_forward: Channels = pydantic.Field(768, description="channels between a block's two convolutions")
    kernel: Kernel = pydantic.Field(3, description="kernel size of these convolutions, in symbols; odd")
    window: int = pydantic.Field(4, ge=1, le=64, description="symbols on each side whose distance attention knows")

    latent: Channels = pydantic.Field(192, description="values of a frame between text and waveform; even")
    flows: int = pydantic.Field(4, ge=1, le=32, description="coupling layers between the text's frames and the voice's")
    flow_layers: int = pydantic.Field(4, ge=1, le=32, description="convolutions of each coupling layer")
    flow_kernel: Kernel = pydantic.Field(5, description="their kernel size, in frames; odd")

    durations: Literal["stochastic", "fixed"] = pydantic.Field(
        "stochastic",
        description="durations drawn from a distribution that a flow learns, or one number for each symbol",
    )
    duration_channels: Channels = pydantic.Field(256, description="of a predictor of fixed durations")
    duration_kernel: Kernel = pydantic.Field(3, description="kernel size of the predictor, in symbols; odd")
    duration_flows: int = pydantic.Field(
        3, ge=1, le=32, description="spline flows of stochastic durations; training has one more than speech"
    )
    duration_layers: int = pydantic.Field(3, ge=1, le=16, description="convolutions of each, dilated more and more")
    duration_bins: int = pydantic.Field(10, ge=2, le=256, description="pieces of a spline")

    noise: float = pydantic.Field(0.667, ge=0, le=10, description="deviation of the frames' noise")
    duration_noise: float = pydantic.Field(0.8, ge=0, le=10, description="deviation of the noise of durations")
    length: float = pydantic.Field(1.0, gt=0, le=10, description="factor of all durations; 2 speaks half as fast")

    BOUND: ClassVar[float] = 5.0
    """Splines are between minus this and this; beyond, durations stay as they are."""

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return math.prod(self.upsample_rates)

    def count_symbols(self, symbols: int) -> int:
        """Symbols that the network reads of a text, with the blanks between them and the ends.

        >>> VitsSettings().count_symbols(3), VitsSettings(ends=False, between=False).count_symbols(3)
        (9, 3)
        """
        return symbols * (2 if self.between else 1) + self.between + 2 * self.ends

    def check_features(self, features: FeatureSettings) -> None:
        """Refuses features with another hop than the network's.

        Raises:
          SettingsError: names the settings.
        """
        if self.hop != features.hop_length:
            raise SettingsError(
                f"train.model.upsample_rates {'·'.join(map(str, self.upsample_rates))} make {self.hop} samples of a "
                f"frame, and extract.features.hop_seconds is {features.hop_length} samples; set upsample_rates to "
                f"numbers whose product is {features.hop_length}, or hop_seconds to "
                f"{self.hop / features.sample_rate:.6g}"
            )

    @pydantic.field_validator("kernel", "flow_kernel", "duration_kernel")
    @classmethod
    def _centered(cls, kernel: int) -> int:
        return check_odd(kernel)

    @pydantic.model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.units % self.heads:
            raise ValueError(f"units is {self.units} and heads {self.heads}; a multiple of the heads is accepted")
        if self.latent % 2:
            raise ValueError(f"latent is {self.latent}; even numbers are accepted")
        return self


class VitsDiscriminatorSettings(DiscriminatorSettings):
    """Those of VITS: on from the first step, and one of the waveform at its own rate."""

    start_step: int = pydantic.Field(
        0, ge=-1, description="training step from which they train and judge (-1: never, 0: from the beginning)"
    )
    scales: int = pydantic.Field(
        1, ge=0, le=8, description="discriminators of the waveform at its rate, half of it, a quarter, …"
    )


class SpeakersSettings(Settings):
    """Whose voice is learned."""

    speakers: Literal["corpus", "one"] = pydantic.Field(
        "corpus",
        description="corpus: the voice speaks as each speaker whom the train split names, if there are several; one: "
        "all recordings are of one voice",
    )


class VitsTrainingSettings(SpeakersSettings):
    """How VITS learns; nothing of it is in the exported voice but its speakers."""

    posterior_layers: int = pydantic.Field(
        16, ge=1, le=64, description="convolutions of the posterior encoder, which reads recordings"
    )
    posterior_steps: int = pydantic.Field(
        1_000,
        ge=0,
        le=1_000_000,
        description="first steps of a training that starts from a voice without a posterior encoder, in which that "
        "alone learns, from speech of the voice itself",
    )
    posterior_rate: float = pydantic.Field(
        5e-4, gt=0, le=1, description="learning rate of these steps, whatever the voice's own is (start.rate_share)"
    )
    alignment: Literal["parent", "search"] = pydantic.Field(
        "parent",
        description="which frames of a recording are a symbol's: parent: a voice that starts from one without a "
        "posterior encoder takes them from its parent's speech of each text, which time warping pairs with the "
        "recording, once before training, and others search, as where more than 1% of the texts have symbols that the "
        "parent lacks; search: the most probable path, at each step",
    )
    segment_frames: int = pydantic.Field(
        32, ge=8, le=4096, description="frames of each utterance that are made sound of in a step"
    )
    mel: float = pydantic.Field(45.0, gt=0, description="weight of the mean distance of log-mels")
    kl: float = pydantic.Field(
        1.0, gt=0, description="weight of the divergence between what recording and text say of the latent"
    )
    duration: float = pydantic.Field(1.0, gt=0, description="weight of the loss of durations, per symbol")
    discriminators: VitsDiscriminatorSettings = pydantic.Field(
        VitsDiscriminatorSettings(), description="adversarial training"
    )

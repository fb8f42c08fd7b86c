"""Settings of a recogniser: the network's size, and how its examples are perturbed."""

import math
from typing import Annotated, ClassVar, Literal

import pydantic

from voxline.components.train.settings import TrainSettings
from voxline.settings import Settings

Odd = Annotated[int, pydantic.Field(ge=1, le=101)]
Positive = Annotated[int, pydantic.Field(ge=1)]


class ConvolutionSettings(Settings):
    """One convolution over time × frequency, with batch normalisation and a clipped rectifier after it."""

    channels: int = pydantic.Field(16, ge=1, le=1024, description="channels out")
    kernel: tuple[Odd, Odd] = pydantic.Field((5, 5), description="taps over (frames, bins)")
    stride: tuple[Positive, Positive] = pydantic.Field((1, 2), description="steps over (frames, bins)")


class DeepSpeech2Settings(Settings):
    """Deep Speech 2 (Amodei et al. 2015). The defaults suit an hour of speech on a laptop.

    The paper's: convolutions of 32 channels, kernels (11, 41), (11, 21), (11, 21), strides (2, 2), (1, 2),
    (1, 2) — here as (frames, bins) — and 7 layers of 1760 vanilla recurrent units with batch normalisation.
    """

    convolutions: tuple[ConvolutionSettings, ...] = pydantic.Field(
        (ConvolutionSettings(stride=(3, 2)), ConvolutionSettings()),
        min_length=1,
        max_length=6,
        description="convolutions, first to last; the product of their strides over frames is the time stride",
    )
    padding: int = pydantic.Field(
        10,
        ge=0,
        le=200,
        description="feature frames of nothing put before and after each utterance: where a recording is cut close, "
        "CTC lacks frames to place its first and last symbols in",
    )
    rnn: Literal["gru", "lstm", "simple"] = pydantic.Field("gru", description="kind of recurrent unit")
    layers: int = pydantic.Field(2, ge=1, le=16, description="bidirectional recurrent layers")
    units: int = pydantic.Field(96, ge=1, le=8192, description="units in each direction of a recurrent layer")
    rnn_batch_norm: bool = pydantic.Field(
        False, description="sequence-wise batch normalisation before every recurrent layer but the first"
    )
    dropout: float = pydantic.Field(
        0.0, ge=0, lt=1, description="share of activations dropped before each recurrent layer and the output"
    )
    rectifier_ceiling: float = pydantic.Field(20.0, gt=0, description="where the rectifier is clipped")

    @property
    def time_stride(self) -> int:
        """Feature frames to one frame of the output."""
        return math.prod(convolution.stride[0] for convolution in self.convolutions)


class AugmentSettings(Settings):
    """What is done to training examples, anew in every epoch; all of it drawn from the seed."""

    speed: float = pydantic.Field(
        0.0, ge=0, le=0.5, description="time is stretched by up to this share, either way (0: not at all)"
    )
    pitch: float = pydantic.Field(
        0.0, ge=0, le=0.5, description="the mel axis is stretched by up to this share, as if the speaker were another"
    )
    volume: float = pydantic.Field(
        0.0, ge=0, le=30, description="dB; level is changed by up to this, either way (log features)"
    )
    tilt: float = pydantic.Field(
        0.0, ge=0, le=30, description="dB; the spectrum is tilted by up to this from lowest to highest bin, either way"
    )
    noise: float = pydantic.Field(
        0.0, ge=0, le=2, description="deviations; Gaussian noise of up to this size is added to normalised features"
    )
    time_masks: int = pydantic.Field(0, ge=0, le=20, description="SpecAugment: stretches of frames blanked")
    time_mask_share: float = pydantic.Field(
        0.1, gt=0, le=1, description="SpecAugment: the longest stretch, as a share of the utterance's frames"
    )
    frequency_masks: int = pydantic.Field(0, ge=0, le=20, description="SpecAugment: bands of bins blanked")
    frequency_mask_share: float = pydantic.Field(
        0.15, gt=0, le=1, description="SpecAugment: the widest band, as a share of the bins"
    )


class AsrTrainSettings(TrainSettings):
    """How a recogniser is trained."""

    family: ClassVar[str] = "asr"
    EXPOSED = ("name", "epochs", "batch_size", "learning_rate", "model.layers", "model.units", "precision", "seed")

    name: str = pydantic.Field("asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: DeepSpeech2Settings = pydantic.Field(DeepSpeech2Settings(), description="the network")
    augment: AugmentSettings = pydantic.Field(AugmentSettings(), description="perturbation of training examples")

    @property
    def time_stride(self) -> int:
        """Feature frames to one frame of the output; CTC needs an output frame for each label."""
        return self.model.time_stride

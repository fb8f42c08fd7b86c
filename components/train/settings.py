"""Settings of the train step: the model's size, how it is taught, and when it stops."""

import math
from typing import Annotated, Literal

import pydantic

from components.speech.settings import Settings

Odd = Annotated[int, pydantic.Field(ge=1, le=101)]
Positive = Annotated[int, pydantic.Field(ge=1)]


class Convolution(Settings):
    """One convolution over time × frequency, with batch normalisation and a clipped rectifier after it."""

    channels: int = pydantic.Field(16, ge=1, le=1024, description="channels out")
    kernel: tuple[Odd, Odd] = pydantic.Field((5, 5), description="taps over (frames, bins)")
    stride: tuple[Positive, Positive] = pydantic.Field((1, 2), description="steps over (frames, bins)")


class ModelSettings(Settings):
    """Deep Speech 2 (Amodei et al. 2015). The defaults suit an hour of speech on a laptop.

    The paper's: convolutions of 32 channels, kernels (11, 41), (11, 21), (11, 21), strides (2, 2), (1, 2),
    (1, 2) — here as (frames, bins) — and 7 layers of 1760 vanilla recurrent units with batch normalisation.
    """

    convolutions: tuple[Convolution, ...] = pydantic.Field(
        (Convolution(stride=(3, 2)), Convolution()),
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


class TrainSettings(Settings):
    """How a recogniser is trained."""

    name: str = pydantic.Field("asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")
    model: ModelSettings = pydantic.Field(ModelSettings(), description="the network")
    augment: AugmentSettings = pydantic.Field(AugmentSettings(), description="perturbation of training examples")

    epochs: int = pydantic.Field(15, ge=1, le=10_000, description="times through the training split, at most")
    batch_size: int = pydantic.Field(16, ge=1, le=65_536, description="utterances in a step, over all devices")
    learning_rate: float = pydantic.Field(3e-3, gt=0, le=1, description="highest rate, reached after warm-up")
    warm_up_steps: int = pydantic.Field(100, ge=0, description="steps over which the rate rises from zero")
    final_rate_share: float = pydantic.Field(
        0.01, ge=0, le=1, description="share of learning_rate at which the cosine ends with the last step"
    )
    weight_decay: float = pydantic.Field(1e-3, ge=0, le=1, description="decoupled decay of kernels (AdamW)")
    beta_1: float = pydantic.Field(0.9, ge=0, lt=1, description="AdamW: decay of the gradient's mean")
    beta_2: float = pydantic.Field(0.98, ge=0, lt=1, description="AdamW: decay of the gradient's square")
    clip_norm: float = pydantic.Field(5.0, gt=0, description="the gradient's global norm is clipped here")
    length_noise: float = pydantic.Field(
        0.5,
        ge=0,
        le=10,
        description="batches hold utterances of like length, as far as this share of noise on each "
        "length lets them: 0 wastes least on padding, more mixes batches better",
    )
    shortest_first: bool = pydantic.Field(
        False, description="first epoch in order of length (the paper's SortaGrad), not shuffled"
    )

    evaluate_epochs: int = pydantic.Field(1, ge=1, description="epochs from one look at the dev split to the next")
    patience: int = pydantic.Field(
        0, ge=0, description="stop after so many looks at dev without a better WER (0: never stop early)"
    )
    min_improvement: float = pydantic.Field(
        0.0005, ge=0, le=1, description="a dev WER lower by less than this does not count as better for patience"
    )
    earliest_stop_epoch: int = pydantic.Field(5, ge=1, description="never stop early before this epoch has ended")

    max_bad_steps: int = pydantic.Field(
        10, ge=0, description="steps with a non-finite loss or gradient that are skipped; one more stops the run"
    )
    max_infeasible_share: float = pydantic.Field(
        0.02, ge=0, le=1, description="share of utterances too short for their labels that may be left out"
    )
    checkpoint_steps: int = pydantic.Field(
        500, ge=1, description="steps from one checkpoint to the next; there is one after each look at dev too"
    )
    checkpoints_kept: int = pydantic.Field(3, ge=1, le=100, description="newest checkpoints that are kept")
    summary_steps: int = pydantic.Field(20, ge=1, description="steps from one point of the curves to the next")

    precision: Literal["float32", "mixed_bfloat16"] = pydantic.Field(
        "float32", description="numbers of the network's arithmetic; weights and loss stay float32"
    )
    strategy: Literal["auto", "one", "mirrored", "multi_worker"] = pydantic.Field(
        "auto", description="devices: one; all of this machine; all workers in TF_CONFIG; auto: as many as there are"
    )
    seed: int = pydantic.Field(1, ge=0, lt=2**31, description="of initial weights, order, augmentation and dropout")

    @property
    def time_stride(self) -> int:
        """Feature frames to one frame of the output; CTC needs an output frame for each label."""
        return self.model.time_stride

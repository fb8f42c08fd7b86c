"""The CTC models: the settings of each, and the table that names them. `ctc_model` says what each must offer.

A new model is a network in voxline/families/asr/networks/, its settings class here, and one line in `MODELS`.
See docs/extend/ctc-model.md.
"""

import dataclasses
import functools
import importlib
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import pydantic

from voxline.errors import SettingsError
from voxline.settings import Settings

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.data.dataset import Dataset
    from voxline.families.asr.networks.ctc_model import CtcModel

Odd = Annotated[int, pydantic.Field(ge=1, le=101)]
Positive = Annotated[int, pydantic.Field(ge=1)]
Rate = Annotated[float, pydantic.Field(ge=0, lt=1)]
NotNegative = Annotated[int, pydantic.Field(ge=0)]

ENGLISH_TOKENS = 51_864
"""Tokens of Whisper's English-only models; those of many languages have more."""
WHOLE_UTTERANCE = 1_000_000_000
"""The time stride of a network that has one output frame for an utterance of any length."""
SILENCE = -2.0
"""Features of silence, relative to the loudest of the utterance: 80 dB below it, in their unit of 40 dB."""
SLOWEST_POSITION = 10_000.0
"""The base of FastConformer's wave lengths: pair `i` of `n` has the angle distance / SLOWEST_POSITION^(i / n)."""
LEAST = -1.5
"""Features of digital silence, as the clip at 1e-10 makes them."""


class CtcModelSettings(Settings):
    """Settings that every CTC model has."""

    kind: str
    padding: int = pydantic.Field(
        10,
        ge=0,
        le=200,
        description="empty feature frames added before and after each utterance: without them, CTC lacks frames for "
        "the first and last symbols of closely cut recordings",
    )
    top_db: float = pydantic.Field(
        0.0,
        ge=0,
        le=120,
        description="dB; the network takes log power relative to the loudest frames of each utterance, and what is "
        "more than this below them as silence, such as 50: recordings of any gain, and rooms of any noise, then look "
        "more alike; 0: levels as recorded, normalized by the training split",
    )

    infeasible_advice: ClassVar[str] = "Lower the model's time stride, or extract.features.hop_seconds"
    """Advice on the settings if utterances have too few frames for their labels."""
    parents_have_pieces: ClassVar[bool] = False
    """True if public models of this network spell by pieces of several characters (`text.public_tokenizer`)."""

    reads_waveforms: ClassVar[bool] = False
    """True for networks of features of kind waveform, which no other network has a use for."""

    @property
    def time_stride(self) -> int:
        """Feature frames per output frame; CTC needs an output frame for each label."""
        raise NotImplementedError

    @property
    def window_frames(self) -> int:
        """Feature frames that an output frame needs, all of them real or `padding`.

        1 where convolutions are padded: then n frames give ceil(n / time_stride) output frames. In general they give
        (n - window_frames) // time_stride + 1, and at least one.
        """
        return 1

    @property
    def output_kind(self) -> str:
        """The `kind` of the exported model: ctc, or attention of one with a decoder."""
        return "ctc"

    @property
    def least_frames(self) -> int:
        """Frames to which the network pads shorter recordings; 0: to none."""
        return 0

    @property
    def changes_input(self) -> bool:
        """Returns whether training changes at random what frozen parts of the network compute, such as by dropout."""
        return any(value for name, value in self if "drop" in name or "mask" in name)

    def check_features(self, features: "FeatureSettings") -> None:
        """Refuses features that the network has no use for.

        Raises:
          SettingsError: names both settings.
        """
        if self.reads_waveforms != (features.kind == "waveform"):
            readable = "waveform" if self.reads_waveforms else "log_mel, mfcc or linear"
            raise SettingsError(
                f"train.model.kind is {self.kind}, and extract.features.kind is {features.kind}: this network reads "
                f"{readable}; set extract.features.kind to that"
            )
        if self.top_db and features.kind == "mfcc":
            raise SettingsError(
                f"train.model.top_db is {self.top_db:g}, and extract.features.kind is mfcc: cepstral coefficients are "
                "no powers; set top_db to 0, or extract.features.kind to log_mel"
            )


class ConvolutionSettings(Settings):
    """One convolution over time × frequency, followed by batch normalization and a clipped ReLU."""

    channels: int = pydantic.Field(16, ge=1, le=1024, description="output channels")
    kernel: tuple[Odd, Odd] = pydantic.Field((5, 5), description="kernel size over (frames, bins)")
    stride: tuple[Positive, Positive] = pydantic.Field((1, 2), description="stride over (frames, bins)")


class DeepSpeech2Settings(CtcModelSettings):
    """Deep Speech 2 (Amodei et al. 2015). The defaults suit an hour of speech on a laptop.

    The paper has convolutions of 32 channels, kernels (11, 41), (11, 21), (11, 21) and strides (2, 2), (1, 2), (1, 2)
    over (frames, bins), and 7 layers of 1760 vanilla recurrent units with batch normalization; its two directions are
    summed, and its units are clipped ReLU. Its deployed form reads forward only, with a row convolution on top.
    """

    infeasible_advice: ClassVar[str] = (
        "Lower the strides over frames in train.model.convolutions, or extract.features.hop_seconds"
    )

    kind: Literal["deepspeech2"] = pydantic.Field("deepspeech2", description="the network")
    convolutions: tuple[ConvolutionSettings, ...] = pydantic.Field(
        (ConvolutionSettings(stride=(3, 2)), ConvolutionSettings()),
        min_length=1,
        max_length=6,
        description="convolutions, first to last; the product of their strides over frames is the time stride",
    )
    rnn: Literal["gru", "lstm", "simple"] = pydantic.Field("gru", description="kind of recurrent unit")
    layers: int = pydantic.Field(2, ge=1, le=16, description="bidirectional recurrent layers")
    units: int = pydantic.Field(96, ge=1, le=8192, description="units in each direction of a recurrent layer")
    directions: Literal["concatenated", "summed", "forward"] = pydantic.Field(
        "concatenated",
        description="both directions of a recurrent layer, side by side or added (paper), or the forward one alone, "
        "which sees no more of the future than `lookahead`",
    )
    lookahead: int = pydantic.Field(
        0,
        ge=0,
        le=200,
        description="output frames of future that a row convolution above the forward layers sees (paper: 19)",
    )
    rnn_activation: Literal["tanh", "clipped_relu"] = pydantic.Field(
        "tanh", description="of the units of rnn simple; clipped_relu (paper) is bounded by relu_clip"
    )
    pooling: Literal["none", "utterance"] = pydantic.Field(
        "none",
        description="utterance: mean and maximum of the top recurrent layer over all frames make the one output frame, "
        "for utterances of one symbol, such as the words of a small vocabulary: set `subwords` so high that each word "
        "is one",
    )
    rnn_batch_norm: bool = pydantic.Field(
        False, description="sequence-wise batch normalization before every recurrent layer but the first"
    )
    dropout: float = pydantic.Field(
        0.0, ge=0, lt=1, description="dropout rate before each recurrent layer and the output"
    )
    output_dropout: Annotated[float, pydantic.Field(ge=0, lt=1)] | None = pydantic.Field(
        None,
        description="dropout rate before the output; empty: as `dropout`",
    )
    relu_clip: float = pydantic.Field(20.0, gt=0, description="upper bound of the clipped ReLU")

    @pydantic.model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.lookahead and self.directions != "forward":
            raise ValueError(
                f"lookahead is {self.lookahead} and directions is {self.directions!r}: layers that read backward see "
                "all of the future; set directions to 'forward', or lookahead to 0"
            )
        if self.rnn_activation != "tanh" and self.rnn != "simple":
            raise ValueError(f"rnn_activation is for rnn 'simple', and rnn is {self.rnn!r}; set rnn_activation to tanh")
        return self

    @property
    def time_stride(self) -> int:
        if self.pooling == "utterance":
            return WHOLE_UTTERANCE
        return math.prod(convolution.stride[0] for convolution in self.convolutions)


class DeepSpeechSettings(CtcModelSettings):
    """Mozilla's DeepSpeech (after Hannun et al. 2014). The defaults suit an hour of speech on a laptop.

    Mozilla's models have 2048 units: 47.2 million weights. They read 26 cepstral coefficients of windows of 32 ms every
    20 ms: `extract.features: {kind: mfcc, coefficients: 26, window_seconds: 0.032, hop_seconds: 0.02}`.
    """

    infeasible_advice: ClassVar[str] = "Lower extract.features.hop_seconds"

    kind: Literal["deepspeech"] = pydantic.Field("deepspeech", description="the network")
    context: int = pydantic.Field(
        9, ge=0, le=30, description="frames that the first layer sees on each side of its own, in the network"
    )
    units: int = pydantic.Field(
        256,
        ge=1,
        le=8192,
        description="units of the three dense layers, of the forward LSTM and of the dense layer above",
    )
    dropout: tuple[Rate, Rate, Rate, Rate, Rate] = pydantic.Field(
        (0.05, 0.05, 0.05, 0.0, 0.05),
        description="dropout rates after the three dense layers, the LSTM and the dense layer above",
    )
    relu_clip: float = pydantic.Field(20.0, gt=0, description="upper bound of the clipped ReLU of the dense layers")

    @property
    def time_stride(self) -> int:
        return 1

    def check_features(self, features: "FeatureSettings") -> None:
        super().check_features(features)
        if features.context and self.context:
            raise SettingsError(
                f"extract.features.context is {features.context} and train.model.context is {self.context}: the frames "
                "would be stacked twice; set extract.features.context to 0"
            )


def _odd(taps: int) -> int:
    if taps % 2 == 0:
        raise ValueError(f"a kernel of {taps} has no center; odd numbers are accepted")
    return taps


class ConformerSettings(CtcModelSettings):
    """Conformer (Gulati et al. 2020) with rotary positions. The defaults suit an hour of speech on a laptop.

    The paper's small model has 144 units, 16 layers, 4 heads and a kernel of 32, the medium one 256 units.
    """

    infeasible_advice: ClassVar[str] = "Lower train.model.subsampling, or extract.features.hop_seconds"

    kind: Literal["conformer"] = pydantic.Field("conformer", description="the network")
    subsampling: Literal[2, 4, 8] = pydantic.Field(
        4, description="feature frames per output frame; each halving is a convolution of 3 × 3 with stride 2"
    )
    layers: int = pydantic.Field(4, ge=1, le=64, description="Conformer blocks")
    units: int = pydantic.Field(
        64, ge=2, le=4096, description="values of a frame within the network; an even number for each head"
    )
    heads: int = pydantic.Field(4, ge=1, le=64, description="heads of the self-attention")
    feed_forward: int = pydantic.Field(
        4, ge=1, le=16, description="width of the feed-forward modules, as a multiple of units"
    )
    kernel: Odd = pydantic.Field(15, description="frames that the depthwise convolution of each block sees; odd")
    dropout: float = pydantic.Field(0.1, ge=0, lt=1, description="dropout rate at the end of every module")

    @pydantic.field_validator("kernel")
    @classmethod
    def _has_a_center(cls, taps: int) -> int:
        return _odd(taps)

    @pydantic.model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.units % (2 * self.heads):
            raise ValueError(
                f"units is {self.units} and heads is {self.heads}: each head takes an even number of units; set units "
                f"to a multiple of {2 * self.heads}"
            )
        return self

    @property
    def time_stride(self) -> int:
        return self.subsampling


class WhisperPromptSettings(Settings):
    """What the decoder of Whisper is asked for; its own special tokens say it. Times are never asked for."""

    language: str = pydantic.Field(
        "",
        pattern="^([a-z]{2,3})?$",
        description="of the recordings, such as en; English-only models (tiny.en to medium.en) have none",
    )
    task: Literal["", "transcribe", "translate"] = pydantic.Field(
        "", description="transcribe, or translate into English; English-only models have none"
    )

    @pydantic.model_validator(mode="after")
    def _has_both(self) -> Self:
        if bool(self.language) != bool(self.task):
            pair = f"language is {self.language!r} and task is {self.task!r}"
            raise ValueError(f"{pair}; set both, or neither for an English-only model")
        return self


class WhisperSettings(CtcModelSettings):
    """Whisper (Radford et al. 2022): its encoder with a CTC head, or all of it. The defaults are Whisper tiny.en's.

    Sizes follow from the public model that `start.model` names. It reads `extract.features: {kind: whisper}`.
    """

    infeasible_advice: ClassVar[str] = "Raise train.model.padding"

    kind: Literal["whisper"] = pydantic.Field("whisper", description="the network")
    head: Literal["ctc", "decoder"] = pydantic.Field(
        "ctc",
        description="ctc: the encoder alone, with an output layer for the corpus's alphabet. decoder: the whole model, "
        "which hears 30 s and writes its own tokens, as cased and punctuated as the transcripts are "
        "(convert.frontend.kind as_is, and convert.alphabet with all their characters)",
    )
    prompt: WhisperPromptSettings = pydantic.Field(
        WhisperPromptSettings(), description="head decoder: the language and the task"
    )
    label_smoothing: float = pydantic.Field(
        0.0,
        ge=0,
        lt=1,
        description="head decoder: share of each target that all tokens have in equal parts (Szegedy et al. 2016)",
    )
    training_silence: float | None = pydantic.Field(
        None,
        ge=0,
        le=30,
        description="head decoder: seconds of silence that training hears after each recording, such as 1, which is "
        "several times as fast with short ones. null: up to 30 s, as frozen parts, validation and transcription hear",
    )
    padding: int = pydantic.Field(
        50,
        ge=0,
        le=200,
        description="feature frames of silence added before and after each utterance, 0.5 s: public models are used to "
        "silence around speech, and without it recordings of single words are much harder for them",
    )
    pooling: Literal["none", "utterance"] = pydantic.Field(
        "none",
        description="utterance: mean and maximum over all frames make the one output frame, for utterances of one "
        "symbol, such as the words of a small vocabulary: set `subwords` so high that each word is one",
    )
    layers: int = pydantic.Field(4, ge=1, le=128, description="blocks of the encoder")
    units: int = pydantic.Field(384, ge=2, le=8192, description="values of a frame within the network")
    heads: int = pydantic.Field(6, ge=1, le=128, description="heads of the self-attention; they divide units")
    positions: int = pydantic.Field(
        1500, ge=1, le=100_000, description="output frames of 20 ms that an utterance may have: 30 s"
    )
    decoder_layers: int = pydantic.Field(4, ge=1, le=128, description="blocks of the decoder")
    tokens: int = pydantic.Field(51_864, ge=1, le=1_000_000, description="tokens of the decoder's vocabulary")
    token_positions: int = pydantic.Field(448, ge=1, le=10_000, description="tokens that a text may have")
    alignment_heads: tuple[tuple[NotNegative, NotNegative], ...] = pydantic.Field(
        (),
        description="blocks and heads of the decoder whose attention follows the speech, for times of words; empty: "
        "all heads of the upper half",
    )
    dropout: float = pydantic.Field(0.0, ge=0, lt=1, description="dropout rate at the end of every module")

    @pydantic.model_validator(mode="after")
    def _check_head(self) -> Self:
        if self.units % self.heads:
            raise ValueError(f"units is {self.units} and heads is {self.heads}; set units to a multiple of heads")
        for layer, head in self.alignment_heads:
            if layer >= self.decoder_layers or head >= self.heads:
                raise ValueError(f"alignment_heads: there is no head {head} in a block {layer}; they count from 0")
        of_decoder = self.label_smoothing or self.prompt != WhisperPromptSettings() or self.training_silence is not None
        if self.head == "ctc" and of_decoder:
            raise ValueError(
                "label_smoothing, prompt and training_silence are those of a decoder: set head to it, or leave them out"
            )
        if self.head == "decoder" and self.pooling != "none":
            raise ValueError(f"pooling is {self.pooling}, and a decoder reads all frames; set it to none")
        if self.head == "decoder" and self.tokens > ENGLISH_TOKENS and not self.prompt.language:
            raise ValueError(f"a model of {self.tokens:,} tokens is of many languages; set prompt.language and .task")
        if self.tokens == ENGLISH_TOKENS and self.prompt.language:
            raise ValueError(
                f"prompt.language is {self.prompt.language!r}, and the model is English-only; leave it out"
            )
        return self

    @property
    def output_kind(self) -> str:
        return "attention" if self.head == "decoder" else "ctc"

    @property
    def least_frames(self) -> int:
        return 2 * self.positions if self.head == "decoder" else 0

    @property
    def time_stride(self) -> int:
        return WHOLE_UTTERANCE if self.pooling == "utterance" else 2

    def check_features(self, features: "FeatureSettings") -> None:
        super().check_features(features)
        if features.kind != "whisper":
            raise SettingsError(
                f"train.model.kind is whisper, and extract.features.kind is {features.kind}; set it to whisper"
            )


class FastConformerSettings(CtcModelSettings):
    """FastConformer (Rekesh et al. 2023), as public Parakeet models have it. The defaults suit an hour of speech.

    parakeet-ctc-0.6b has 24 layers of 1,024 units, 8 heads and 256 channels, on nemo_mel of 80 bins.
    """

    infeasible_advice: ClassVar[str] = "Set train.subwords higher: an output frame lasts 80 ms"
    parents_have_pieces: ClassVar[bool] = True

    kind: Literal["fastconformer"] = pydantic.Field("fastconformer", description="the network")
    padding: int = pydantic.Field(
        0,
        ge=0,
        le=200,
        description="empty feature frames added before and after each utterance; public models were trained without",
    )
    channels: int = pydantic.Field(
        32, ge=1, le=4096, description="channels of the three convolutions, each of which halves frames and bins"
    )
    layers: int = pydantic.Field(4, ge=1, le=64, description="blocks")
    units: int = pydantic.Field(64, ge=2, le=4096, description="values of a frame within the network; an even number")
    heads: int = pydantic.Field(4, ge=1, le=64, description="heads of the self-attention")
    feed_forward: int = pydantic.Field(
        4, ge=1, le=16, description="width of the feed-forward modules, as a multiple of units"
    )
    kernel: Odd = pydantic.Field(9, description="frames that the depthwise convolution of each block sees; odd")
    attention_bias: bool = pydantic.Field(
        True, description="biases in the dense layers of attention and feed-forward modules"
    )
    convolution_bias: bool = pydantic.Field(True, description="biases in the convolution modules of the blocks")
    scale_input: bool = pydantic.Field(
        True, description="multiply what the first block takes by the square root of units"
    )
    dropout: Rate = pydantic.Field(0.1, description="dropout rate before the first block")
    attention_dropout: Rate = pydantic.Field(0.1, description="dropout rate of the attention's weights")
    activation_dropout: Rate = pydantic.Field(0.1, description="dropout rate within the feed-forward modules")
    fixed_statistics: bool = pydantic.Field(
        False,
        description="normalize by the moving statistics in training too, and leave them as they are. A public parent's "
        "come from batches of an hour of speech; those of small batches would replace them within a hundred steps, and "
        "a step on accumulated gradients would differ from one on the whole batch",
    )

    @pydantic.field_validator("kernel")
    @classmethod
    def _has_a_center(cls, taps: int) -> int:
        return _odd(taps)

    @pydantic.model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.units % 2 or self.units % self.heads:
            raise ValueError(
                f"units is {self.units} and heads is {self.heads}: units is an even number, and a multiple of heads"
            )
        return self

    @property
    def time_stride(self) -> int:
        return 8

    def check_features(self, features: "FeatureSettings") -> None:
        super().check_features(features)
        if features.kind != "nemo_mel":
            raise SettingsError(
                f"train.model.kind is fastconformer, and extract.features.kind is {features.kind}; set it to nemo_mel"
            )
        if self.top_db:
            raise SettingsError(f"train.model.top_db is {self.top_db:g}, and nemo_mel is normalized; set top_db to 0")


HUB_KEYS = {
    "channels": "conv_dim",
    "kernels": "conv_kernel",
    "strides": "conv_stride",
    "convolution_norm": "feat_extract_norm",
    "convolution_bias": "conv_bias",
    "projection_norm": "feat_proj_layer_norm",
    "position_kernel": "num_conv_pos_embeddings",
    "position_groups": "num_conv_pos_embedding_groups",
    "layers": "num_hidden_layers",
    "units": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward_units": "intermediate_size",
    "norm_first": "do_stable_layer_norm",
    "norm_epsilon": "layer_norm_eps",
    "adapter": "adapter_attn_dim",
}
"""Settings of wav2vec 2.0, and their keys in config.json."""
_ACCEPTED_IN_HUB: dict[str, tuple[Any, ...]] = {
    "model_type": ("wav2vec2", "hubert"),
    "hidden_act": ("gelu",),
    "feat_extract_activation": ("gelu",),
    "add_adapter": (False, None),
    "conv_pos_batch_norm": (False, None),
}
"""Keys of config.json whose other values would need another network; the first is what an absent key means."""


class Wav2Vec2Settings(CtcModelSettings):
    """wav2vec 2.0 (Baevski et al. 2020), XLS-R, MMS and HuBERT with CTC. The defaults are the base model.

    Most large models (wav2vec 2.0 on LV-60, XLS-R, MMS, HuBERT) have convolution_norm layer, convolution_bias,
    norm_first, 24 or more layers of 1024 units, 16 heads and 4096 feed-forward units. Networks of this size are not
    trained from random weights here: `train.start.model` names a public one.
    """

    infeasible_advice: ClassVar[str] = "Shorten the transcripts, or cut the recordings with them"
    reads_waveforms: ClassVar[bool] = True

    kind: Literal["wav2vec2"] = pydantic.Field("wav2vec2", description="the network")
    padding: int = pydantic.Field(
        0, ge=0, le=16_000, description="zero samples added before and after each utterance; public models have none"
    )
    channels: tuple[Positive, ...] = pydantic.Field(
        (512, 512, 512, 512, 512, 512, 512),
        min_length=1,
        max_length=12,
        description="output channels of the convolutions over samples, first to last",
    )
    kernels: tuple[Positive, ...] = pydantic.Field((10, 3, 3, 3, 3, 2, 2), description="taps of each convolution")
    strides: tuple[Positive, ...] = pydantic.Field(
        (5, 2, 2, 2, 2, 2, 2), description="stride of each convolution; their product is the time stride"
    )
    convolution_norm: Literal["group", "layer"] = pydantic.Field(
        "group",
        description="group: the first convolution's channels are each normalized over the utterance; layer: every "
        "frame is normalized after every convolution (large models)",
    )
    convolution_bias: bool = pydantic.Field(False, description="biases in the convolutions (large models)")
    projection_norm: bool = pydantic.Field(
        True, description="layer norm between convolutions and blocks; some HuBERT models have none"
    )
    position_kernel: int = pydantic.Field(
        128, ge=1, le=1_024, description="frames that the convolution that stands for positions sees"
    )
    position_groups: int = pydantic.Field(16, ge=1, le=256, description="groups of channels of that convolution")
    layers: int = pydantic.Field(12, ge=1, le=96, description="Transformer blocks")
    units: int = pydantic.Field(768, ge=1, le=8_192, description="values of a frame within the blocks")
    heads: int = pydantic.Field(12, ge=1, le=128, description="heads of the self-attention")
    feed_forward_units: int = pydantic.Field(3_072, ge=1, le=32_768, description="units within a feed-forward module")
    norm_first: bool = pydantic.Field(
        False, description="layer norm before each module of a block (large models), or after it"
    )
    norm_epsilon: float = pydantic.Field(
        1e-5, gt=0, lt=0.1, description="added to variances by the layer norms of projection and blocks"
    )
    adapter: int = pydantic.Field(
        0, ge=0, le=4_096, description="units of the adapter at the end of each block; 0: none (MMS: 16); norm_first"
    )
    hidden_dropout: float = pydantic.Field(0.0, ge=0, lt=1, description="dropout rate at the end of every module")
    attention_dropout: float = pydantic.Field(0.0, ge=0, lt=1, description="dropout rate of the attention's weights")
    activation_dropout: float = pydantic.Field(
        0.0, ge=0, lt=1, description="dropout rate within the feed-forward modules"
    )
    projection_dropout: float = pydantic.Field(0.0, ge=0, lt=1, description="dropout rate before the blocks")
    final_dropout: float = pydantic.Field(0.0, ge=0, lt=1, description="dropout rate before the output layer")
    layer_drop: float = pydantic.Field(0.0, ge=0, lt=1, description="share of blocks that a training step leaves out")
    time_masks: float = pydantic.Field(
        0.05,
        ge=0,
        le=1,
        description="share of output frames that a training step hides, in spans that may overlap (papers: 0.05 to "
        "0.075); a learned vector takes their place",
    )
    time_mask_frames: int = pydantic.Field(10, ge=1, le=200, description="output frames of a span")
    least_time_masks: int = pydantic.Field(2, ge=0, le=20, description="spans of an utterance, at least")
    unit_masks: float = pydantic.Field(
        0.0, ge=0, le=1, description="share of the units that a training step sets to zero, in spans that may overlap"
    )
    unit_mask_width: int = pydantic.Field(10, ge=1, le=1_024, description="units of such a span")

    @pydantic.model_validator(mode="after")
    def _check_form(self) -> Self:
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            raise ValueError(
                f"channels, kernels and strides are {len(self.channels)}, {len(self.kernels)} and {len(self.strides)} "
                "numbers; give one for each convolution"
            )
        for name, groups in (("heads", self.heads), ("position_groups", self.position_groups)):
            if self.units % groups:
                raise ValueError(f"units is {self.units} and {name} is {groups}; set units to a multiple of {groups}")
        if self.adapter and not self.norm_first:
            raise ValueError(f"adapter is {self.adapter}, and norm_first is false: only such blocks have adapters")
        return self

    @classmethod
    def from_hub(cls, config: Mapping[str, Any], **changes: Any) -> Self:
        """The settings of a public model; those of training are ours, and not those of its pre-training.

        Args:
          config: of its config.json.
          changes: our settings instead, such as hidden_dropout.

        Raises:
          SettingsError: the model has a part that this network lacks.
        """
        for key, accepted in _ACCEPTED_IN_HUB.items():
            if config.get(key, accepted[0]) not in accepted:
                raise SettingsError(
                    f"config.json: {key} is {config[key]!r}, and this network has no such part; accepted: "
                    f"{' or '.join(map(repr, accepted))}"
                )

        values = {name: config[key] for name, key in HUB_KEYS.items() if config.get(key) is not None}
        return cls.of({"kind": "wav2vec2", **values, **changes}, "config.json")

    @property
    def time_stride(self) -> int:
        return math.prod(self.strides)

    @property
    def is_randomized(self) -> bool:
        """Returns whether training changes at random what the network computes from the convolutions' output."""
        dropouts = (value for name, value in self if name.endswith("dropout"))
        return any((*dropouts, self.layer_drop, self.time_masks, self.unit_masks))

    @property
    def changes_input(self) -> bool:
        return False  # the network's stages know what may be frozen

    @property
    def window_frames(self) -> int:
        window = 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            window = (window - 1) * stride + kernel
        return window

    def check_features(self, features: "FeatureSettings") -> None:
        super().check_features(features)
        if self.top_db:
            raise SettingsError(
                f"train.model.top_db is {self.top_db:g}, and samples have no level in dB; set it to 0 (unit_variance "
                "of extract.features makes all recordings equally loud)"
            )


@dataclasses.dataclass(frozen=True)
class ModelEntry:
    """One model.

    Attributes:
      settings: the class of the config's section `train.model`.
      network: "module:class" of the `CtcModel`; imported when training starts, since it imports Keras.
    """

    settings: type[CtcModelSettings]
    network: str


DEFAULT_KIND = "deepspeech2"
MODELS: dict[str, ModelEntry] = {
    "deepspeech2": ModelEntry(DeepSpeech2Settings, "voxline.families.asr.networks.deepspeech2:DeepSpeech2"),
    "deepspeech": ModelEntry(DeepSpeechSettings, "voxline.families.asr.networks.deepspeech:DeepSpeech"),
    "whisper": ModelEntry(WhisperSettings, "voxline.families.asr.networks.whisper:WhisperCtc"),
    "conformer": ModelEntry(ConformerSettings, "voxline.families.asr.networks.conformer:Conformer"),
    "fastconformer": ModelEntry(FastConformerSettings, "voxline.families.asr.networks.fastconformer:FastConformer"),
    "wav2vec2": ModelEntry(Wav2Vec2Settings, "voxline.families.asr.networks.wav2vec2:Wav2Vec2"),
}
"""`train.model.kind` → network and settings."""


def model_settings_type() -> Any:
    """The type of the setting `train.model`: the classes in `MODELS`, distinguished by `kind`."""

    # Pydantic chooses the class by `kind`.
    union: Any = functools.reduce(operator.or_, (entry.settings for entry in MODELS.values()))
    union = Annotated[union, pydantic.Field(discriminator="kind")]
    return Annotated[union, pydantic.BeforeValidator(_with_default_kind)]


def _with_default_kind(values: Any) -> Any:
    return {"kind": DEFAULT_KIND, **values} if isinstance(values, dict) else values


def build_ctc_model(
    settings: CtcModelSettings, dataset: "Dataset", *, seed: int, precision: str, portable: bool = False
) -> "CtcModel":
    """The network for a dataset, with its initial weights.

    Raises:
      SettingsError: the network has no use for the dataset's features.
    """

    # The network imports Keras, so it is loaded here and not at the top.
    settings.check_features(dataset.features)
    module, name = MODELS[settings.kind].network.split(":")
    network: type[CtcModel] = getattr(importlib.import_module(module), name)
    return network(
        settings,
        mean=dataset.mean,
        deviation=dataset.deviation,
        classes=len(dataset.alphabet.symbols) + 1,
        seed=seed,
        precision=precision,
        portable=portable,
    )

"""Sizes of Tacotron, Tacotron 2 and FastSpeech; of VITS: `vits.settings`. The defaults are those of the papers; demos
use far smaller ones.

Where the sources differ: docs/decisions/0015-tacotron-where-the-sources-differ.md.
"""

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.families.tts.vits.settings import SpeakersSettings, SpeakerTableSettings, VitsSettings
from voxline.settings import Settings

Size = Annotated[int, pydantic.Field(ge=1, le=8192)]


class AttentionSettings(Settings):
    """Location-sensitive attention (Chorowski et al. 2015)."""

    units: Size = pydantic.Field(128, description="dimensions of query, keys and location features")
    location_filters: int = pydantic.Field(
        32, ge=0, le=512, description="channels of the location convolution (0: none)"
    )
    location_kernel: int = pydantic.Field(31, ge=1, le=201, description="its kernel size, in symbols; odd")
    location: Literal["previous_and_cumulative", "cumulative"] = pydantic.Field(
        "previous_and_cumulative", description="the earlier attention weights that it sees"
    )
    smoothing: bool = pydantic.Field(
        False,
        description="normalized sigmoids instead of a softmax: flatter, several symbols at once",
    )

    @pydantic.field_validator("location_kernel")
    @classmethod
    def _odd(cls, taps: int) -> int:
        if taps % 2 == 0:
            raise ValueError(f"a kernel of {taps} has no center; odd numbers are accepted")
        return taps


class DecoderSettings(Settings):
    """Settings of a decoder that attends to the text, for both Tacotrons."""

    reduction: int = pydantic.Field(1, ge=1, le=20, description="frames per decoder step, at most")
    embedding: Size = pydantic.Field(512, description="dimensions of a symbol")
    attention: AttentionSettings = pydantic.Field(AttentionSettings(), description="attention over the text")
    prenet: tuple[Size, ...] = pydantic.Field(
        (256, 256), min_length=1, max_length=4, description="units of the layers between the last frame and the decoder"
    )
    prenet_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="dropout rate of the pre-net")

    prenet_dropout_at_inference: ClassVar[bool] = True
    """Keep the pre-net's dropout at inference."""

    dropped_frames: float = pydantic.Field(
        0.0, ge=0, le=1, description="share of recorded frames replaced by the mean in training (Liu et al. 2019)"
    )


class TacotronSettings(DecoderSettings):
    """Tacotron (Wang et al. 2017) with location-sensitive attention."""

    kind: Literal["tacotron"] = pydantic.Field("tacotron", description="the network")
    reduction: int = pydantic.Field(5, ge=1, le=20, description="frames per decoder step, at most")
    embedding: Size = pydantic.Field(256, description="dimensions of a symbol")
    attention: AttentionSettings = pydantic.Field(
        AttentionSettings(units=256, location="cumulative"), description="attention over the text"
    )
    prenet: tuple[Size, ...] = pydantic.Field(
        (256, 128), min_length=1, max_length=4, description="units of both pre-nets, the encoder's and the decoder's"
    )

    prenet_dropout_at_inference: ClassVar[bool] = False
    """Keep the decoder pre-net's dropout at inference."""

    encoder_bank: int = pydantic.Field(
        16, ge=1, le=32, description="widest kernel of the encoder's convolution bank, in symbols"
    )
    encoder_channels: Size = pydantic.Field(128, description="channels of the encoder's bank, highways and projections")
    encoder_gru: int = pydantic.Field(128, ge=0, le=4096, description="units in each direction (0: none)")
    highways: int = pydantic.Field(4, ge=0, le=16, description="highway layers in each CBHG")
    decoder_units: Size = pydantic.Field(256, description="units of the decoder's dense layer and of its GRUs")
    decoder_layers: int = pydantic.Field(2, ge=1, le=4, description="residual GRUs")
    postnet_bank: int = pydantic.Field(
        8, ge=1, le=32, description="widest kernel of the post-net's convolution bank, in frames"
    )
    postnet_channels: Size = pydantic.Field(128, description="channels of the post-net's bank and highways")
    postnet_projection: Size = pydantic.Field(256, description="channels between the post-net's two projections")
    postnet_gru: int = pydantic.Field(128, ge=0, le=4096, description="units in each direction (0: none)")


class Tacotron2Settings(DecoderSettings):
    """Tacotron 2 (Shen et al. 2018), in NVIDIA's sizes."""

    kind: Literal["tacotron2"] = pydantic.Field("tacotron2", description="the network")
    encoder_convolutions: int = pydantic.Field(3, ge=0, le=8, description="convolutions over symbols")
    encoder_channels: Size = pydantic.Field(512, description="channels of the convolutions")

    encoder_kernel: ClassVar[int] = 5
    """Kernel size of the convolutions, in symbols."""

    encoder_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="dropout rate after each convolution")
    encoder_lstm: int = pydantic.Field(
        256,
        ge=0,
        le=4096,
        description="units in each direction (0: none). With it the decoder may learn to ignore attention",
    )
    decoder_units: Size = pydantic.Field(1024, description="units of each LSTM of the decoder")
    decoder_layers: int = pydantic.Field(2, ge=1, le=2, description="LSTMs: the attention LSTM, and one after it")
    decoder_dropout: float = pydantic.Field(0.1, ge=0, lt=1, description="dropout rate of their outputs (as NVIDIA)")
    zoneout: float = pydantic.Field(0.0, ge=0, lt=1, description="zoneout rate of their states (paper: 0.1)")
    postnet_layers: int = pydantic.Field(5, ge=0, le=10, description="convolutions over the mels (0: no post-net)")
    postnet_channels: Size = pydantic.Field(512, description="channels of all but the last convolution")

    postnet_kernel: ClassVar[int] = 5
    """Kernel size of the convolutions, in frames."""

    postnet_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="dropout rate after each convolution")


class FastSpeechSettings(SpeakerTableSettings):
    """All frames at once, of predicted durations (FastSpeech 2, Ren et al. 2021), with ConvNeXt blocks."""

    kind: Literal["fastspeech"] = pydantic.Field("fastspeech", description="the network")
    reduction: int = pydantic.Field(1, ge=1, le=1, description="frames per decoder step: 1, all are made at once")
    channels: Size = pydantic.Field(256, description="channels of each block")
    hidden: Size = pydantic.Field(1024, description="channels between a block's two dense layers")
    encoder_layers: int = pydantic.Field(4, ge=1, le=16, description="ConvNeXt blocks over symbols")
    decoder_layers: int = pydantic.Field(4, ge=1, le=16, description="ConvNeXt blocks over frames")
    kernel: int = pydantic.Field(9, ge=1, le=101, description="kernel size of the blocks' convolutions; odd")
    dropout: float = pydantic.Field(0.1, ge=0, lt=1, description="dropout rate after each block and predictor layer")
    prior: float = pydantic.Field(
        0.1,
        ge=0,
        le=10,
        description="width of the diagonal along which training looks for durations, as a share of the text (0: none)",
    )
    energy: bool = pydantic.Field(True, description="predict each symbol's loudness as well")
    pitch: bool = pydantic.Field(
        False,
        description="predict each symbol's pitch as well; needs extract.features.kind mel_and_prosody",
    )

    @pydantic.field_validator("kernel")
    @classmethod
    def _odd(cls, taps: int) -> int:
        if taps % 2 == 0:
            raise ValueError(f"a kernel of {taps} has no center; odd numbers are accepted")
        return taps


class FastSpeechTrainingSettings(SpeakersSettings):
    """How FastSpeech learns."""

    NOT_IN_KEY = frozenset({"speaker_encoder"})  # its digest is in the key

    speaker_encoder: str = pydantic.Field(
        "",
        description="wheel of the speaker encoder Resemblyzer (pip download --no-deps Resemblyzer==0.1.4), a path or a "
        "bucket URI: a speaker's row is what it hears in their recordings and is not trained, so that `voxline models "
        "enrol` can add a person; empty: rows are learned",
    )

    @pydantic.model_validator(mode="after")
    def _check_encoder(self) -> Self:
        if self.speaker_encoder and self.speakers == "one":
            raise ValueError("speaker_encoder is set, and speakers is one: a voice of one has no rows; leave one out")
        return self


TtsModelSettings = Annotated[
    TacotronSettings | Tacotron2Settings | FastSpeechSettings | VitsSettings, pydantic.Field(discriminator="kind")
]

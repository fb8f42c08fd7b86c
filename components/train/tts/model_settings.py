"""Sizes of Tacotron and Tacotron 2; the defaults are those of the papers, and a demo's are far smaller.

Where the sources differ: docs/decisions/0015-tacotron-where-the-sources-differ.md.
"""

from typing import Annotated, Literal

import pydantic

from voxline.settings import Settings

Size = Annotated[int, pydantic.Field(ge=1, le=8192)]


class AttentionSettings(Settings):
    """Location-sensitive attention (Chorowski et al. 2015)."""

    units: Size = pydantic.Field(128, description="dimensions in which query, keys and location are compared")
    location_filters: int = pydantic.Field(
        32, ge=0, le=512, description="channels of the location convolution (0: none)"
    )
    location_kernel: int = pydantic.Field(31, ge=1, le=201, description="taps of it, in symbols; odd")
    location: Literal["previous_and_cumulative", "cumulative"] = pydantic.Field(
        "previous_and_cumulative", description="which earlier weights it looks at"
    )
    smoothing: bool = pydantic.Field(
        False,
        description="weights are sigmoids made to sum to 1, instead of a softmax: flatter, several symbols at once",
    )

    @pydantic.field_validator("location_kernel")
    @classmethod
    def _odd(cls, taps: int) -> int:
        if taps % 2 == 0:
            raise ValueError(f"{taps} taps have no middle; an odd number is accepted")
        return taps


class DecoderSettings(Settings):
    """What both networks have."""

    reduction: int = pydantic.Field(1, ge=1, le=20, description="frames made in a decoder step, at most")
    embedding: Size = pydantic.Field(512, description="dimensions of a symbol")
    attention: AttentionSettings = pydantic.Field(AttentionSettings(), description="how the text is looked at")
    prenet: tuple[Size, ...] = pydantic.Field(
        (256, 256), min_length=1, max_length=4, description="units of the layers between the last frame and the decoder"
    )
    prenet_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="share of the pre-net's activations dropped")
    prenet_dropout_stays: bool = pydantic.Field(True, description="it also drops when the voice speaks")
    dropped_frames: float = pydantic.Field(
        0.0, ge=0, le=1, description="share of the frames fed in training that are the mean instead (Liu et al. 2019)"
    )


class TacotronSettings(DecoderSettings):
    """Tacotron (Wang et al. 2017) with location-sensitive attention."""

    kind: Literal["tacotron"] = pydantic.Field("tacotron", description="the network")
    reduction: int = pydantic.Field(5, ge=1, le=20, description="frames made in a decoder step, at most")
    embedding: Size = pydantic.Field(256, description="dimensions of a symbol")
    attention: AttentionSettings = pydantic.Field(
        AttentionSettings(units=256, location="cumulative"), description="how the text is looked at"
    )
    prenet: tuple[Size, ...] = pydantic.Field(
        (256, 128), min_length=1, max_length=4, description="units of both pre-nets, the encoder's and the decoder's"
    )
    prenet_dropout_stays: bool = pydantic.Field(False, description="the decoder's also drops when the voice speaks")
    encoder_bank: int = pydantic.Field(
        16, ge=1, le=32, description="widest convolution of the encoder's bank, in symbols"
    )
    encoder_channels: Size = pydantic.Field(128, description="channels of the encoder's bank, highways and projections")
    encoder_gru: int = pydantic.Field(
        128, ge=0, le=4096, description="units in each direction; 0: none, and attention must carry the text"
    )
    highways: int = pydantic.Field(4, ge=0, le=16, description="highway layers in each CBHG")
    decoder_units: Size = pydantic.Field(256, description="units of the decoder's dense layer and of its GRUs")
    decoder_layers: int = pydantic.Field(2, ge=1, le=4, description="residual GRUs")
    postnet_bank: int = pydantic.Field(
        8, ge=1, le=32, description="widest convolution of the post-net's bank, in frames"
    )
    postnet_channels: Size = pydantic.Field(128, description="channels of the post-net's bank and highways")
    postnet_projection: Size = pydantic.Field(256, description="channels between its two projections")
    postnet_gru: int = pydantic.Field(128, ge=0, le=4096, description="units in each direction (0: none)")


class Tacotron2Settings(DecoderSettings):
    """Tacotron 2 (Shen et al. 2018), in NVIDIA's sizes."""

    kind: Literal["tacotron2"] = pydantic.Field("tacotron2", description="the network")
    encoder_convolutions: int = pydantic.Field(3, ge=0, le=8, description="convolutions over symbols")
    encoder_channels: Size = pydantic.Field(512, description="channels of them")
    encoder_kernel: int = pydantic.Field(5, ge=1, le=31, description="taps of them, in symbols")
    encoder_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="share dropped after each of them")
    encoder_lstm: int = pydantic.Field(
        256,
        ge=0,
        le=4096,
        description="units in each direction; 0: none. With it the decoder can learn to do without attention",
    )
    decoder_units: Size = pydantic.Field(1024, description="units of each LSTM of the decoder")
    decoder_layers: int = pydantic.Field(2, ge=1, le=2, description="LSTMs: the attention's, and one after it")
    decoder_dropout: float = pydantic.Field(0.1, ge=0, lt=1, description="share of their outputs dropped (NVIDIA)")
    zoneout: float = pydantic.Field(
        0.0, ge=0, lt=1, description="share of their state kept from the step before (paper: 0.1)"
    )
    postnet_layers: int = pydantic.Field(5, ge=0, le=10, description="convolutions over the mels (0: no post-net)")
    postnet_channels: Size = pydantic.Field(512, description="channels of all but the last")
    postnet_kernel: int = pydantic.Field(5, ge=1, le=31, description="taps of them, in frames")
    postnet_dropout: float = pydantic.Field(0.5, ge=0, lt=1, description="share dropped after each of them")


TtsModelSettings = Annotated[TacotronSettings | Tacotron2Settings, pydantic.Field(discriminator="kind")]

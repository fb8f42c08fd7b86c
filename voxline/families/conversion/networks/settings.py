"""Sizes of AttGAN."""

import pydantic

from voxline.settings import Settings


class AttGanSettings(Settings):
    """The networks (He et al. 2017, arXiv 1711.10678); a small one has 16 channels."""

    channels: int = pydantic.Field(
        64, ge=1, le=512, description="channels of the first layer; each layer has twice as many as the one before"
    )
    layers: int = pydantic.Field(
        5, ge=2, le=7, description="layers of the encoder, of the decoder and of the critic; each halves both axes"
    )
    units: int = pydantic.Field(1024, ge=1, le=8192, description="units of the dense layer of each head of the critic")
    classifier_dropout: float = pydantic.Field(
        0.5, ge=0, lt=1, description="of the classifier that judges the conversion and learns from recordings alone"
    )

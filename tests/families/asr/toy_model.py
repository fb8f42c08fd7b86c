"""The model that docs/extend/ctc-model.md adds: two dense layers over each frame."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
import pydantic
from keras import layers, ops

from voxline.families.asr.networks.settings import CtcModelSettings
from voxline.training.layers import FeatureNormalizer

Tensor = Any


class FrameClassifierSettings(CtcModelSettings):
    """Two dense layers over each frame, without context."""

    kind: Literal["frame_classifier"] = pydantic.Field("frame_classifier", description="the network")
    units: int = pydantic.Field(32, ge=1, le=4096, description="hidden units")

    @property
    def time_stride(self) -> int:
        return 1


class FrameClassifier(keras.Model):  # type: ignore[misc]
    """Classifies each frame by itself; a `CtcModel`."""

    def __init__(
        self,
        settings: FrameClassifierSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int,
        precision: str,
        portable: bool,
    ) -> None:
        super().__init__(dtype=precision, name="frame_classifier")
        self.padding = settings.padding
        self.normalize = FeatureNormalizer(mean, deviation, settings.top_db)
        initializers = [keras.initializers.GlorotUniform(seed + layer) for layer in range(2)]
        self.hidden = layers.Dense(settings.units, "relu", kernel_initializer=initializers[0], dtype=precision)
        self.classifier = layers.Dense(classes, kernel_initializer=initializers[1], dtype="float32")
        self(np.zeros((1, 2, len(mean)), "float32"), np.array([2]))  # builds the weights

    @property
    def normalizations(self) -> list[Any]:
        return []

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor = None
    ) -> tuple[Tensor, Tensor]:
        x = ops.pad(self.normalize(features, frames), [(0, 0), (self.padding, self.padding), (0, 0)])
        return self.classifier(self.hidden(x)), ops.cast(frames, "int32") + 2 * self.padding
